//! Where the loop over strips goes, and whether it may stand there.
//!
//! The loop takes in the smallest stretch of one block that holds every operation on what is cut. Of what else stands there, reads and
//! arithmetic are repeated in each strip; writes, and what is wanted behind the loop, move in front of it.
//!
//! Invariant: no strip reads or writes memory that another writes, unless by atomic updates.

use rustc_hash::FxHashSet;
use tessera_ir::{Block, Effects, Func, Op, OpKind, ScheduleOp, Type, Value, ViewKind};

use super::axes::{Axes, Class, rank};
use crate::tile::relation::shape;
use tessera_analysis::exits::can_leave;
use tessera_analysis::memory::{Access, access};
use tessera_ir::Reason;

/// What becomes of a function whose tiles are cut along some classes.
pub(super) struct Plan {
    /// The block that the loop stands in.
    pub(super) block: Block,
    /// What goes into the loop, in order.
    pub(super) inside: Vec<Op>,
    /// What moves in front of it, in order.
    pub(super) before: Vec<Op>,
    /// Tokens of writes inside that operations behind the loop wait for.
    pub(super) tokens: Vec<Value>,
}

/// A path from the body to an operation: the blocks, with the operation of each that leads on.
type Path = Vec<(Block, Op)>;

impl Plan {
    /// Where the loop goes when these classes are cut.
    pub(super) fn of(func: &Func, axes: &Axes, classes: &[Class]) -> Result<Plan, Reason> {
        let cut = Cut { func, axes, classes };
        let mut paths: Vec<Path> = Vec::new();
        cut.paths(func.body, &mut Vec::new(), &mut paths);
        let first = paths.first().ok_or("nothing has that axis")?;
        let depth = (0..first.len())
            .take_while(|&at| paths.iter().all(|path| path.get(at).is_some_and(|&(block, _)| block == first[at].0)))
            .count();
        let block = first[depth - 1].0;
        let ops = &func.blocks[block].ops;
        let own: FxHashSet<Op> = paths.iter().map(|path| path[depth - 1].1).collect();
        let place = |op: &Op| own.contains(op);
        let (Some(start), Some(end)) = (ops.iter().position(place), ops.iter().rposition(place)) else {
            return Err("nothing has that axis".into());
        };
        let (stretch, behind) = (&ops[start..=end], &ops[end + 1..]);
        if let Some(&op) = stretch.iter().find(|op| can_leave(func, **op)) {
            return Err(Reason::at("the tile's work is left from within", func.ops[op].span));
        }
        let mut accesses = Vec::new();
        for &op in stretch {
            cut.accesses(op, own.contains(&op), 0, &mut accesses)?;
        }
        cut.check(&accesses)?;
        let moved: FxHashSet<Op> = stretch.iter().copied().filter(|&op| !own.contains(&op) && writes(func, op)).collect();
        cut.assemble(block, stretch, behind, (&own, moved))
    }
}

/// What is cut.
struct Cut<'f> {
    func: &'f Func,
    axes: &'f Axes,
    classes: &'f [Class],
}

/// An access to memory in the stretch.
struct Touch {
    op: Op,
    access: Access,
    /// It is one of a tile that is cut.
    cut: bool,
    /// Loops around it within the stretch.
    loops: u32,
}

impl Cut<'_> {
    fn has(&self, value: Value) -> bool {
        (0..rank(self.func, value)).any(|axis| self.classes.contains(&self.axes.class(value, axis)))
    }

    fn is_cut(&self, op: Op) -> bool {
        let data = &self.func.ops[op];
        data.operands.iter().chain(&data.results).any(|&value| self.has(value))
    }

    /// Every class that is cut is one of an operation's tile.
    fn is_cut_all_ways(&self, op: Op) -> bool {
        let has = |class: &Class, value: Value| (0..rank(self.func, value)).any(|axis| self.axes.class(value, axis) == *class);
        self.classes.iter().all(|class| self.func.ops[op].operands.iter().any(|&value| has(class, value)))
    }

    /// The paths to all operations on what is cut.
    fn paths(&self, block: Block, path: &mut Path, found: &mut Vec<Path>) {
        for &op in &self.func.blocks[block].ops {
            path.push((block, op));
            if self.is_cut(op) {
                found.push(path.clone());
            }
            let data = &self.func.ops[op];
            if !matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. })) {
                data.regions.iter().for_each(|&region| self.paths(region, path, found));
            }
            path.pop();
        }
    }

    /// What an operation and its regions touch; `own` says whether it goes into the loop whatever it does.
    fn accesses(&self, op: Op, own: bool, loops: u32, found: &mut Vec<Touch>) -> Result<(), Reason> {
        let func = self.func;
        let data = &func.ops[op];
        let cut = self.is_cut(op);
        if let Some(access) = access(func, op) {
            if access.writes && own && !self.is_cut_all_ways(op) {
                return Err(Reason::at("a strip would write what belongs to all of them", data.span));
            }
            found.push(Touch { op, access, cut, loops });
        }
        let asserts = matches!(data.kind, OpKind::Schedule(ScheduleOp::Assert { .. }));
        if data.row().effects == Effects::Observable && !asserts {
            return Err(Reason::at(format!("`{}` happens once", data.row().mnemonic), data.span));
        }
        let repeats = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
        for &region in &data.regions {
            for &inner in &func.blocks[region].ops {
                self.accesses(inner, own, loops + u32::from(repeats), found)?;
            }
        }
        Ok(())
    }

    /// Strips do not get in each other's way.
    fn check(&self, touches: &[Touch]) -> Result<(), Reason> {
        for write in touches.iter().filter(|touch| touch.access.writes) {
            for other in touches {
                if write.access.root.meets(other.access.root) && !self.are_apart(write, other) {
                    let text = "what one strip writes another may read or write";
                    return Err(Reason::at(text, self.func.ops[write.op].span));
                }
            }
        }
        Ok(())
    }

    fn are_apart(&self, write: &Touch, other: &Touch) -> bool {
        if !write.cut {
            // It moves in front of the loop, alone.
            return write.op == other.op;
        }
        if let (Some(a), Some(b)) = (self.parts(write.op), self.parts(other.op)) {
            return other.cut && a == b;
        }
        // Elements of one tile through pointers come in no order; atomic updates in none anyway.
        let updates = matches!(self.func.ops[write.op].row().mnemonic, "atomic_rmw_tko" | "atomic_red_view_tko");
        write.op == other.op && (write.loops == 0 || updates)
    }

    /// What says which part of its array an access by a view is cut along: the array, its axis, and the tile's extent there.
    fn parts(&self, op: Op) -> Option<(Value, u32, u32)> {
        let func = self.func;
        let data = &func.ops[op];
        let (view, tile) = view_and_tile(func, op)?;
        let Type::TileView(ty) = func.ty(view) else { return None };
        let axis = (0..rank(func, tile)).find(|&axis| self.classes.contains(&self.axes.class(tile, axis)))?;
        let tiles = match &ty.kind {
            ViewKind::Partition => true,
            ViewKind::Strided(steps) => steps[axis] == ty.tile[axis],
            ViewKind::GatherScatter { .. } => false,
        };
        let array = func.ops[func.defining_op(view)?].operands.first().copied()?;
        (tiles && !data.operands.is_empty()).then(|| (array, ty.dim_map[axis], ty.tile[axis]))
    }

    /// Parts the stretch into what goes in and what moves in front.
    fn assemble(
        &self,
        block: Block,
        stretch: &[Op],
        behind: &[Op],
        (own, mut moved): (&FxHashSet<Op>, FxHashSet<Op>),
    ) -> Result<Plan, Reason> {
        let func = self.func;
        let mut wanted: Vec<Value> = Vec::new();
        for &op in behind.iter().chain(&moved) {
            uses(func, op, &mut wanted);
        }
        let mut tokens = Vec::new();
        while let Some(value) = wanted.pop() {
            let Some(op) = func.defining_op(value).filter(|op| stretch.contains(op)) else { continue };
            if !own.contains(&op) {
                if moved.insert(op) {
                    uses(func, op, &mut wanted);
                }
            } else if *func.ty(value) == Type::Token && !moved.iter().any(|&op| func.ops[op].operands.contains(&value)) {
                if !tokens.contains(&value) {
                    tokens.push(value);
                }
            } else {
                return Err(Reason::at("what the strips compute is wanted behind them", func.ops[op].span));
            }
        }
        let follows = |op: &&Op| func.ops[**op].operands.iter().any(|&v| func.defining_op(v).is_some_and(|op| own.contains(&op)));
        if let Some(&op) = stretch.iter().filter(|op| moved.contains(op)).find(follows) {
            return Err(Reason::at("what the strips compute is written once", func.ops[op].span));
        }
        tokens.sort_unstable();
        let (before, inside): (Vec<Op>, Vec<Op>) = stretch.iter().partition(|op| moved.contains(op));
        Ok(Plan { block, inside, before, tokens })
    }
}

/// The operation, or one in its regions, writes memory.
fn writes(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let own = data.row().effects == Effects::Write || access(func, op).is_some_and(|access| access.writes);
    own || data.regions.iter().any(|&region| func.blocks[region].ops.iter().any(|&op| writes(func, op)))
}

/// The operations that write, or are seen outside, and are on no tile that is cut.
pub(super) fn done_once(func: &Func, axes: &Axes, class: Class) -> Vec<Op> {
    let cut = Cut { func, axes, classes: &[class] };
    let once = |op: &Op| {
        let data = &func.ops[*op];
        let asserts = matches!(data.kind, OpKind::Schedule(ScheduleOp::Assert { .. }));
        data.regions.is_empty()
            && !cut.is_cut(*op)
            && (writes(func, *op) || data.row().effects == Effects::Observable && !asserts)
    };
    func.linked_ops().into_iter().filter(once).collect()
}

/// Adds what an operation and its regions use.
fn uses(func: &Func, op: Op, wanted: &mut Vec<Value>) {
    wanted.extend(func.ops[op].used());
    for &region in &func.ops[op].regions {
        func.blocks[region].ops.iter().for_each(|&inner| uses(func, inner, wanted));
    }
}

/// The view that an operation accesses, and the tile that it moves.
pub(super) fn view_and_tile(func: &Func, op: Op) -> Option<(Value, Value)> {
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) => Some((data.one(0), data.results[0])),
        OpKind::Schedule(ScheduleOp::StoreViewTko { .. }) => Some((data.one(1), data.one(0))),
        OpKind::Schedule(ScheduleOp::AtomicRedViewTko { .. }) => Some((data.one(0), data.one(2))),
        _ => None,
    }
}

/// Bytes that a strip reads, and operations that it does, which are the other strips' too: what cutting costs, for each strip more.
pub(super) fn repeated(func: &Func, axes: &Axes, classes: &[Class], plan: &Plan) -> u64 {
    let cut = Cut { func, axes, classes };
    plan.inside.iter().map(|&op| again(&cut, op, 1)).sum()
}

/// Rounds that a loop is taken to have.
const ROUNDS: u64 = 16;
/// Operations of tensor cores, and of others, that take as long as a byte from memory.
const PRODUCT_A_BYTE: u64 = 256;
const OTHERS_A_BYTE: u64 = 16;

fn again(cut: &Cut<'_>, op: Op, rounds: u64) -> u64 {
    let func = cut.func;
    let data = &func.ops[op];
    let elements = |value: Value| shape(func, value).iter().product::<u64>();
    let own = match &data.kind {
        _ if cut.is_cut(op) => 0,
        OpKind::Schedule(ScheduleOp::LoadViewTko { .. } | ScheduleOp::LoadPtrTko { .. }) => {
            elements(data.results[0]) * func.ty(data.results[0]).the_tile().elem.bits() / 8
        }
        OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled {}) => {
            let factor = shape(func, data.one(0));
            2 * elements(data.result()) * factor[factor.len() - 1] / PRODUCT_A_BYTE
        }
        _ => data.results.first().map_or(0, |&result| if rank(func, result) > 0 { elements(result) / OTHERS_A_BYTE } else { 0 }),
    };
    let repeats = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
    let rounds = if repeats { rounds * ROUNDS } else { rounds };
    let combines = matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
    let inner = data.regions.iter().filter(|_| !combines).flat_map(|&region| &func.blocks[region].ops);
    own * rounds + inner.map(|&inner| again(cut, inner, rounds)).sum::<u64>()
}
