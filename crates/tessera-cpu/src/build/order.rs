//! The order of memory operations in a plan, against the function's.
//!
//! Loads are evaluated when something needs their elements, so the builder has to know which writes they must come before. It is not
//! believed: every read and write of a plan names the operation that it performs, and here the finished plan is walked beside the
//! function. In each list of instructions,
//!
//! - reads and writes stand in the list of the block that their operation stands in: what a loop repeats is repeated;
//! - of two that may touch the same bytes, one of them writing, the one that comes first in the block comes first in the plan;
//! - the strips of one instruction interleave: it does not read what it may write;
//! - every write happens once.
//!
//! Where memory comes from is found here from the function alone, not from what the builder noted. An operation with an order for other
//! blocks (acquire, release) keeps its place among all others.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::attrs::{MemoryOrder, MemoryScope};
use tessera_ir::{Block, Def, Diagnostic, EntityId, Func, Op, OpKind, ScheduleOp, Value};

use super::Built;
use crate::plan::{Fetch, Group, Inst, NodeKind, Sink};

/// The memory that an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// That of an argument.
    Argument(u32),
    /// What an operation allocates, or a constant of the module.
    Made(Op),
    /// Some of it.
    Unknown,
    /// All of it, other blocks' as well.
    Everything,
}

impl Memory {
    fn meets(self, other: Memory, distinct: bool) -> bool {
        match (self, other) {
            (Memory::Everything | Memory::Unknown, _) | (_, Memory::Everything | Memory::Unknown) => true,
            (a, b) => a == b || !distinct,
        }
    }
}

/// One operation's part in the order.
#[derive(Clone, Copy, Debug)]
struct Action {
    op: Op,
    memory: Memory,
    writes: bool,
}

/// Actions with their places in a block.
type Actions = SmallVec<[(usize, Action); 4]>;

/// The order of an access, and among whose threads it holds; weak ones hold among nobody's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    pub(super) order: MemoryOrder,
    scope: Option<MemoryScope>,
}

impl Ordered {
    pub(crate) fn of(order: MemoryOrder, scope: impl Into<Option<MemoryScope>>) -> Ordered {
        Ordered { order, scope: scope.into() }
    }

    /// Its order holds among the threads of all blocks.
    pub(crate) fn reaches_blocks(self) -> bool {
        match self.scope {
            Some(MemoryScope::Block) => false,
            Some(MemoryScope::Device | MemoryScope::System) | None => true,
        }
    }

    /// It is in no order that others see.
    pub(crate) fn is_weak(self) -> bool {
        self.order == MemoryOrder::Weak
    }

    /// Other blocks may wait for it, or it for them.
    pub(crate) fn is_strong(self) -> bool {
        self.order != MemoryOrder::Weak && self.reaches_blocks()
    }

    /// It keeps its place among all others of its block.
    pub(crate) fn is_fence(self) -> bool {
        is_fence(self.order)
    }

    /// Other blocks are told how far this one has come, or it learns how far they have.
    pub(crate) fn tells_blocks(self) -> bool {
        self.is_fence() && self.reaches_blocks()
    }
}

/// True where an access keeps its place among all others of its block.
pub(super) fn is_fence(order: MemoryOrder) -> bool {
    matches!(order, MemoryOrder::Acquire | MemoryOrder::Release | MemoryOrder::AcqRel)
}

/// The pointer or view through which an operation touches memory, its order, and whether it writes.
pub(super) fn touched(func: &Func, op: Op) -> Option<(Value, MemoryOrder, bool)> {
    let data = &func.ops[op];
    let OpKind::Schedule(kind) = &data.kind else { return None };
    Some(match kind {
        ScheduleOp::LoadViewTko { order, .. } | ScheduleOp::LoadPtrTko { order, .. } => (data.one(0), *order, false),
        ScheduleOp::StoreViewTko { order, .. } => (data.one(1), *order, true),
        ScheduleOp::StorePtrTko { order, .. }
        | ScheduleOp::AtomicRedViewTko { order, .. }
        | ScheduleOp::AtomicRmwTko { order, .. }
        | ScheduleOp::AtomicCasTko { order, .. } => (data.one(0), *order, true),
        _ => return None,
    })
}

/// Whether a function reads memory in an order that others see, or updates it: it may wait for another block.
pub(crate) fn may_wait(func: &Func) -> bool {
    func.linked_ops().into_iter().any(|op| {
        touched(func, op).is_some_and(|(_, order, writes)| !writes && order != MemoryOrder::Weak)
            || matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::AtomicRmwTko { .. } | ScheduleOp::AtomicCasTko { .. }))
    })
}

/// Where a pointer or a view comes from.
fn memory(func: &Func, mut value: Value) -> Memory {
    loop {
        let op = match func.values[value].def {
            Def::Argument(block, position) if block == func.body => return Memory::Argument(position),
            Def::Argument(..) => return Memory::Unknown,
            Def::Result(op, _) => op,
        };
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return Memory::Unknown };
        value = match kind {
            ScheduleOp::Alloca { .. } | ScheduleOp::GetGlobal { .. } => return Memory::Made(op),
            ScheduleOp::Select {} => {
                let (a, b) = (memory(func, data.one(1)), memory(func, data.one(2)));
                return if a == b { a } else { Memory::Unknown };
            }
            ScheduleOp::Offset {}
            | ScheduleOp::Assume { .. }
            | ScheduleOp::Broadcast {}
            | ScheduleOp::Reshape {}
            | ScheduleOp::Permute { .. }
            | ScheduleOp::Extract {}
            | ScheduleOp::PtrToPtr {}
            | ScheduleOp::MakeTensorView {}
            | ScheduleOp::MakePartitionView {}
            | ScheduleOp::MakeStridedView {}
            | ScheduleOp::MakeGatherScatterView {} => data.operands[0],
            _ => return Memory::Unknown,
        };
    }
}

/// Checks a finished plan; `distinct` as it was built.
pub(super) fn verify(func: &Func, plan: &[Inst], distinct: bool) -> Built<()> {
    let mut order =
        Order { func, distinct, homes: FxHashMap::default(), actions: FxHashMap::default(), done: FxHashSet::default() };
    for block in func.linked_blocks() {
        for (position, &op) in func.blocks[block].ops.iter().enumerate() {
            order.homes.insert(op, (block, position));
            if let Some((place, order_of, writes)) = touched(func, op) {
                let memory = if is_fence(order_of) { Memory::Everything } else { memory(func, place) };
                order.actions.insert(op, Action { op, memory, writes: writes || is_fence(order_of) });
            }
        }
    }
    order.list(plan, func.body)?;
    let writes = func.linked_ops().into_iter().filter(|&op| touched(func, op).is_some_and(|(.., writes)| writes));
    match writes.into_iter().find(|op| !order.done.contains(op)) {
        None => Ok(()),
        Some(op) => Err(mistake(func, op, "is left out")),
    }
}

struct Order<'f> {
    func: &'f Func,
    distinct: bool,
    /// The block of each operation and its place there.
    homes: FxHashMap<Op, (Block, usize)>,
    actions: FxHashMap<Op, Action>,
    /// Writes that were met.
    done: FxHashSet<Op>,
}

/// The last positions in a block at which some memory was touched.
struct Last {
    memory: Memory,
    touched: usize,
    written: Option<usize>,
}

impl Order<'_> {
    /// One list of instructions, which performs a block.
    fn list(&mut self, list: &[Inst], block: Block) -> Built<()> {
        let mut last: Vec<Last> = Vec::new();
        for inst in list {
            let actions = self.actions_of(inst, block)?;
            let has_regions = matches!(inst, Inst::For { .. } | Inst::Loop { .. } | Inst::If { .. });
            for (i, &(position, action)) in actions.iter().enumerate() {
                let meets = |memory: Memory| memory.meets(action.memory, self.distinct);
                let before = last.iter().filter(|last| meets(last.memory));
                let latest = before.filter_map(|last| if action.writes { Some(last.touched) } else { last.written }).max();
                if latest.is_some_and(|latest| latest > position || action.writes && latest == position) {
                    return Err(mistake(self.func, action.op, "comes too late"));
                }
                let clashes = |other: &(usize, Action)| (other.1.writes || action.writes) && meets(other.1.memory);
                if !has_regions && actions[..i].iter().any(clashes) {
                    return Err(mistake(self.func, action.op, "is mixed with another that it may meet"));
                }
            }
            for (position, action) in actions {
                let written = action.writes.then_some(position);
                match last.iter_mut().find(|last| last.memory == action.memory) {
                    Some(last) => {
                        last.touched = last.touched.max(position);
                        last.written = last.written.max(written);
                    }
                    None => last.push(Last { memory: action.memory, touched: position, written }),
                }
            }
        }
        Ok(())
    }

    /// What an instruction and its regions do to memory, each with its place in the block.
    fn actions_of(&mut self, inst: &Inst, block: Block) -> Built<Actions> {
        let mut found = Actions::new();
        match inst {
            Inst::Group(group) => {
                for op in accesses(group) {
                    found.push(self.performs(op, block)?);
                }
            }
            Inst::Atomic { op, .. } => found.push(self.performs(*op, block)?),
            Inst::AtomicView { access, .. } => found.push(self.performs(access.op, block)?),
            Inst::Product(product) => {
                let (home, position) = self.home(product.op)?;
                if home != block {
                    return Err(mistake(self.func, product.op, "stands in another region"));
                }
                for op in [product.lhs.op, product.rhs.op] {
                    found.push((position, self.actions[&op]));
                }
            }
            Inst::For { op, body, .. } | Inst::Loop { op, body, .. } => return self.regions(*op, &[body], block),
            Inst::If { op, then, other, .. } => return self.regions(*op, &[then, other], block),
            _ => {}
        }
        Ok(found)
    }

    /// The regions of an operation, each on its own; then all that they touch, at the operation's place.
    fn regions(&mut self, op: Op, lists: &[&Vec<Inst>], block: Block) -> Built<Actions> {
        let (home, position) = self.home(op)?;
        if home != block {
            return Err(mistake(self.func, op, "stands in another region"));
        }
        let regions = &self.func.ops[op].regions;
        for (list, &region) in lists.iter().zip(regions) {
            self.list(list, region)?;
        }
        let mut found = Actions::new();
        let mut open: Vec<Block> = regions.to_vec();
        while let Some(region) = open.pop() {
            for &inner in &self.func.blocks[region].ops {
                open.extend(&self.func.ops[inner].regions);
                if let Some(&action) = self.actions.get(&inner) {
                    found.push((position, action));
                }
            }
        }
        Ok(found)
    }

    fn home(&self, op: Op) -> Built<(Block, usize)> {
        self.homes.get(&op).copied().ok_or_else(|| mistake(self.func, op, "is not the function's"))
    }

    /// The action of an operation of this block.
    fn performs(&mut self, op: Op, block: Block) -> Built<(usize, Action)> {
        let (home, position) = self.home(op)?;
        let Some(&action) = self.actions.get(&op).filter(|_| home == block) else {
            return Err(mistake(self.func, op, "stands in another region"));
        };
        let writes = touched(self.func, op).is_some_and(|(.., writes)| writes);
        if writes && !self.done.insert(op) {
            return Err(mistake(self.func, op, "happens twice"));
        }
        Ok((position, action))
    }
}

/// The operations that a group performs on memory.
fn accesses(group: &Group) -> impl Iterator<Item = Op> + '_ {
    let reads = group.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Fetch(Fetch::View(access)) => Some(access.op),
        NodeKind::Load { op, .. } => Some(*op),
        NodeKind::Fetch(_) | NodeKind::Op(..) => None,
    });
    let writes = group.sinks.iter().filter_map(|sink| match sink {
        Sink::View { access, .. } => Some(access.op),
        Sink::Scatter { op, .. } => Some(*op),
        _ => None,
    });
    reads.chain(writes)
}

/// A plan that is not what the function says: our mistake, not the user's.
fn mistake(func: &Func, op: Op, what: &str) -> Box<Diagnostic> {
    let span = if op.index() < func.ops.len() { func.ops[op].span } else { func.span };
    let message = format!("the plan of `@{}` is wrong: this access to memory {what}", func.name);
    Box::new(Diagnostic::error("cpu-memory-order", span, message).ours())
}
