//! What no barrier puts right: memory used while work goes on there by itself, without a wait between.
//!
//! ```text
//! tile.copy_async %view, [%i], %s
//! tile.commit_group
//! %a = tile.load_shared %s          error: reads a buffer that a copy is still writing
//! ```
//!
//! A place is reported only where every way to it has the mistake: the work starts earlier in the same block or in one around it, nothing between
//! them waits, and both touch the same memory for sure.

use smallvec::SmallVec;
use tessera_ir::{Diagnostic, Func, Op, OpKind, TileOp};

use super::place::{Access, Extent, Memory, Who};
use super::program::{AccessId, Kind, ListId, Program};

/// The mistakes in a function, in order.
pub(super) fn mistakes(func: &Func, program: &Program) -> Vec<Diagnostic> {
    let mut check = Check { func, program, found: Vec::new() };
    check.groups();
    check.list(0, Work::default());
    check.found
}

/// What goes on for sure: the newest last.
#[derive(Clone, Debug, Default)]
struct Work {
    /// Copies that no group has yet.
    open: Vec<AccessId>,
    groups: Vec<Vec<AccessId>>,
    /// Products with the buffers that they read.
    products: Vec<(Op, SmallVec<[AccessId; 2]>)>,
    stores: Vec<AccessId>,
}

/// A kind of work, and how many of its kind are newer.
#[derive(Clone, Copy)]
enum Under {
    OpenCopy,
    Copy(usize),
    Product(usize),
    Store(usize),
}

impl Work {
    fn all(&self) -> impl Iterator<Item = (Under, AccessId)> + '_ {
        let open = self.open.iter().map(|&access| (Under::OpenCopy, access));
        let groups = self.groups.iter().rev().enumerate();
        let groups = groups.flat_map(|(newer, group)| group.iter().map(move |&access| (Under::Copy(newer), access)));
        let products = self.products.iter().rev().enumerate();
        let products = products.flat_map(|(newer, (_, reads))| reads.iter().map(move |&access| (Under::Product(newer), access)));
        let stores = self.stores.iter().rev().enumerate().map(|(newer, &access)| (Under::Store(newer), access));
        open.chain(groups).chain(products).chain(stores)
    }
}

fn leave<T>(queue: &mut Vec<T>, pending: u32) {
    queue.drain(..queue.len().saturating_sub(pending as usize));
}

struct Check<'p> {
    func: &'p Func,
    program: &'p Program,
    found: Vec<Diagnostic>,
}

impl Check<'_> {
    fn list(&mut self, list: ListId, mut work: Work) {
        let program = self.program;
        for &node in &program.lists[list].nodes {
            let data = &program.nodes[node];
            match &data.kind {
                &Kind::Touch(access) => {
                    self.touch(data.op, access, &work);
                    // The slot that is filled counts them.
                    match self.func.ops[data.op].kind {
                        OpKind::Tile(TileOp::Commit { .. }) => work.open.clear(),
                        OpKind::Tile(TileOp::Release {}) => self.released(data.op, &work),
                        _ => {}
                    }
                }
                &Kind::Start(access) => {
                    self.touch(data.op, access, &work);
                    work.open.push(access);
                }
                Kind::Group => work.groups.push(std::mem::take(&mut work.open)),
                &Kind::Await(pending) => leave(&mut work.groups, pending),
                Kind::Fly(reads) => {
                    for &access in reads {
                        self.touch(data.op, access, &work);
                    }
                    work.products.push((data.op, reads.clone()));
                }
                &Kind::Land(pending) => {
                    self.landed(data.op, pending, &work);
                    leave(&mut work.products, pending);
                }
                &Kind::Send(access) => {
                    self.touch(data.op, access, &work);
                    work.stores.push(access);
                }
                &Kind::Sent(pending) => leave(&mut work.stores, pending),
                Kind::Rounds(body, _) => self.inner(&[*body], &mut work),
                Kind::Ways(ways) => self.inner(ways, &mut work),
                Kind::Roles(lists) => self.inner(lists, &mut work),
                Kind::Next | Kind::Leave | Kind::End => return,
                Kind::Meet => {}
            }
        }
    }

    /// Lists that may run: what they do to work of a kind leaves nothing of it for sure.
    fn inner(&mut self, lists: &[ListId], work: &mut Work) {
        for &list in lists {
            self.list(list, work.clone());
        }
        let mut left = lists.to_vec();
        while let Some(list) = left.pop() {
            for &node in &self.program.lists[list].nodes {
                match &self.program.nodes[node].kind {
                    Kind::Start(_) | Kind::Group | Kind::Await(_) => {
                        work.open.clear();
                        work.groups.clear();
                    }
                    Kind::Fly(_) | Kind::Land(_) => work.products.clear(),
                    Kind::Send(_) | Kind::Sent(_) => work.stores.clear(),
                    Kind::Rounds(body, _) => left.push(*body),
                    Kind::Ways(ways) => left.extend(ways),
                    Kind::Roles(lists) => left.extend(lists),
                    Kind::Touch(_) | Kind::Meet | Kind::Next | Kind::Leave | Kind::End => {}
                }
            }
        }
    }

    fn touch(&mut self, op: Op, access: AccessId, work: &Work) {
        let then = &self.program.accesses[access];
        let hit = work.all().find(|&(_, first)| collide(&self.program.accesses[first], then));
        let Some((under, first)) = hit else { return };
        let started = self.func.ops[self.program.nodes[self.program.node_of[first]].op].span;
        let data = &self.func.ops[op];
        let does = if then.writes { "writes" } else { "reads" };
        let (id, what, label, help) = match under {
            Under::OpenCopy => (
                "sync-copy",
                "a copy is still writing",
                "the copy starts here, and no group has it yet",
                "put `tile.commit_group` behind the copy and `tile.wait_group {pending=0}` before this".to_string(),
            ),
            Under::Copy(newer) => (
                "sync-copy",
                "a copy is still writing",
                "the copy starts here",
                format!("put `tile.wait_group {{pending={newer}}}` before this"),
            ),
            Under::Product(newer) => (
                "sync-product",
                "a product in flight still reads",
                "the product starts here",
                format!("put `tile.wgmma_wait [] {{pending={newer}}}` before this"),
            ),
            Under::Store(newer) => (
                "sync-store",
                "a store of the accelerator still reads",
                "the store starts here",
                format!("put `tile.tma_store_wait {{pending={newer}, read=true}}` before this"),
            ),
        };
        let message = format!("`{}` {does} a buffer that {what}", data.row().mnemonic);
        self.found.push(Diagnostic::error(id, data.span, message).also(started, label).help(help));
    }

    /// A slot is given back: no product reads it any more.
    fn released(&mut self, op: Op, work: &Work) {
        let data = &self.func.ops[op];
        let Some(ring) = self.func.defining_op(data.one(0)) else { return };
        let is_slot = |&access: &AccessId| match &self.program.accesses[access].memory {
            Memory::Buffer(Some(part)) => {
                let of_ring =
                    self.func.ops[ring].operands.iter().any(|&buffer| self.func.defining_op(buffer) == Some(part.alloc));
                of_ring && part.axes.iter().any(|axis| matches!(axis, Extent::Named(at, _) if *at == data.one(1)))
            }
            _ => false,
        };
        let reads = work.products.iter().rev().enumerate().find(|(_, (_, reads))| reads.iter().any(is_slot));
        if let Some((newer, &(product, _))) = reads {
            let error = Diagnostic::error("sync-slot", data.span, "gives back a slot that a product in flight still reads");
            let error = error.also(self.func.ops[product].span, "the product starts here");
            self.found.push(error.help(format!("put `tile.wgmma_wait [] {{pending={newer}}}` before this")));
        }
    }

    /// A wait hands out products, which must be done behind it.
    fn landed(&mut self, op: Op, pending: u32, work: &Work) {
        let data = &self.func.ops[op];
        for &value in data.group(0) {
            let started = self.func.defining_op(value);
            let Some(newer) = work.products.iter().rev().position(|&(product, _)| Some(product) == started) else { continue };
            if newer < pending as usize {
                let message = format!("a product is used behind a wait that leaves {pending} in flight, it among them");
                let error = Diagnostic::error("sync-product", data.span, message);
                let at = started.map_or(data.span, |product| self.func.ops[product].span);
                self.found.push(error.also(at, "the product starts here").help(format!("wait with `{{pending={newer}}}`")));
            }
        }
    }

    /// Waits for groups where nothing makes one.
    fn groups(&mut self) {
        let ops = self.func.linked_ops();
        let first = |wanted: fn(&TileOp) -> bool| {
            ops.iter().copied().find(|&op| matches!(&self.func.ops[op].kind, OpKind::Tile(kind) if wanted(kind)))
        };
        let copy = first(|kind| matches!(kind, TileOp::CopyAsync { .. } | TileOp::CopyAsyncElement { .. }));
        let wait = first(|kind| matches!(kind, TileOp::WaitGroup { .. }));
        let group = first(|kind| matches!(kind, TileOp::CommitGroup {}));
        if let (Some(copy), Some(wait), None) = (copy, wait, group) {
            let error =
                Diagnostic::error("sync-group", self.func.ops[wait].span, "waits for a group, and no copy is ever in one");
            let help = "put `tile.commit_group` behind the copies that are waited for";
            self.found.push(error.also(self.func.ops[copy].span, "copies start here").help(help));
        }
    }
}

/// Whether two accesses without a wait between them are a mistake for sure.
fn collide(first: &Access, then: &Access) -> bool {
    let (Memory::Buffer(Some(a)), Memory::Buffer(Some(b))) = (&first.memory, &then.memory) else { return false };
    if !first.writes && !then.writes || !a.overlaps(b) {
        return false;
    }
    match (&first.who, &then.who) {
        (Who::Each(a), Who::Each(b)) => a.same(b),
        (Who::Each(_), _) | (_, Who::Each(_)) => false,
        _ => true,
    }
}
