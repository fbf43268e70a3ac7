//! A program whose blocks each take several of the blocks that a launch asks for, one after the other.
//!
//! ```text
//! %i = block id; work(%i)     for %t in worker .. all step workers { %i = ... %t ...; work(%i) }
//! ```
//!
//! What does not follow from the block's place stays before the loop. Who fills rings goes on to the next block's tiles while this one's
//! result is stored. A program may not depend on when a block runs, so the result is the same. [`stream_k`](super::stream_k) says what a
//! block takes where blocks share the rounds of a product.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::GridAxis;
use tessera_ir::{Builder, Func, Op, OpKind, Reason, ScheduleOp, TileOp, Type, Value, bug};
use tessera_types::DType;

use super::numbers::{Divisor, Numbers};
use super::order::{self, Groups};
use super::relation::has_layout;
use super::roles::{is_chain, is_free};
use super::stream_k::{Share, Shared};

/// The blocks that are launched, and those that were asked for.
pub(super) struct Grid {
    pub(super) worker: Value,
    pub(super) workers: Value,
    /// Blocks along x, in whole clusters, and of a plane of x and y.
    width: Divisor,
    plane: Divisor,
    /// The order in which a plane is taken, where that is not line by line.
    groups: Option<Groups>,
    pub(super) all: Value,
}

impl Grid {
    /// `often`: reciprocals are kept from tile to tile.
    fn of(b: &mut Builder<'_>, grouped: bool, often: bool) -> Grid {
        let index = Type::scalar(DType::I32);
        let (worker, workers) = (b.value(TileOp::Worker {}, &[], index.clone()), b.value(TileOp::Workers {}, &[], index.clone()));
        let mut counts = [GridAxis::X, GridAxis::Y, GridAxis::Z]
            .map(|axis| b.value(ScheduleOp::GetNumTileBlocks { axis }, &[], index.clone()));
        counts[0] = order::whole_clusters(b, counts[0]);
        let plane = b.times(counts[0], counts[1]);
        let all = b.times(plane, counts[2]);
        let groups = grouped.then(|| Groups::of(b, [counts[0], counts[1]], often));
        Grid { worker, workers, width: b.divisor(counts[0], often), plane: b.divisor(plane, often), groups, all }
    }

    /// The place along x, y and z of the block with a number.
    fn place(&self, b: &mut Builder<'_>, number: Value) -> [Value; 3] {
        let [z, number] = b.divided(number, self.plane);
        let [x, y] = match &self.groups {
            Some(groups) => groups.place(b, number),
            None => {
                let [y, x] = b.divided(number, self.width);
                [x, y]
            }
        };
        [x, y, z]
    }
}

/// The function has a use of the block's place, and of nothing that a loop over places would change.
pub(super) fn can(func: &Func) -> Result<(), Reason> {
    if places(func).is_empty() {
        return Err("the program does not say which block it is".into());
    }
    Ok(())
}

/// Where the program asks for the block's place.
fn places(func: &Func) -> Vec<(Op, GridAxis)> {
    let place = |op: Op| match func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::GetTileBlockId { axis }) => Some((op, axis)),
        _ => None,
    };
    func.linked_ops().into_iter().filter_map(place).collect()
}

/// Wraps the function's body; `blocks` of it run on a multiprocessor, and take planes in groups where `grouped`. The rounds of a loop are
/// shared where one is given.
pub(super) fn over_blocks(func: &mut Func, blocks: u32, grouped: bool, shared: Option<Shared>) {
    let places = places(func);
    // Chained products in flight leave no registers for what is needed once a tile.
    let often = !func.linked_blocks().into_iter().any(|block| is_chain(func, block));
    let Split { before, inside, .. } = Split::of(func);
    let Some((&last, inside)) = inside.split_last() else { bug!("a body without an end") };
    let is_place = |op: &Op| places.iter().any(|(place, _)| place == op);
    let inside: Vec<Op> = inside.iter().copied().filter(|op| !is_place(op)).collect();
    let span = func.span;
    func.blocks[func.body].ops = before;
    let mut b = Builder { block: func.body, span, func };
    let grid = Grid::of(&mut b, grouped, often);
    let share = shared.map(|shared| Share::of(&mut b, shared, &grid));
    let body = b.func.new_block();
    let counter = b.func.add_arg(body, Type::scalar(DType::I32), None);
    let found = b.within(body, |b| {
        let piece = share.as_ref().map(|share| share.piece(b, counter));
        let place = piece.as_ref().map_or(counter, |piece| piece.place);
        let along = grid.place(b, place);
        let mut found: FxHashMap<Value, Value> =
            places.into_iter().map(|(op, axis)| (b.func.ops[op].result(), along[axis as usize])).collect();
        match share.as_ref().zip(piece) {
            Some((share, piece)) => found.extend(share.work(b, &piece, &inside)),
            None => b.func.blocks[body].ops.extend(&inside),
        }
        b.op(ScheduleOp::Continue {}, &[&[]], []);
        found
    });
    let [first, end, step] = match &share {
        Some(share) => [b.number(0), share.pieces, b.number(1)],
        None => [grid.worker, grid.all, grid.workers],
    };
    b.op_with_regions(ScheduleOp::For { unsigned: false, unroll: None }, &[&[first], &[end], &[step], &[]], [], [body]);
    func.blocks[func.body].ops.push(last);
    func.replace_uses(|value| found.get(&value).copied().unwrap_or(value));
    func.hints.persistent = Some(blocks);
}

/// The body's operations, by whether they are the same in every block.
pub(super) struct Split {
    /// Scalars and views that are.
    pub(super) same: FxHashSet<Value>,
    before: Vec<Op>,
    /// All others.
    pub(super) inside: Vec<Op>,
}

impl Split {
    pub(super) fn of(func: &Func) -> Split {
        let mut split = Split { same: func.args().iter().copied().collect(), before: Vec::new(), inside: Vec::new() };
        for &op in &func.blocks[func.body].ops {
            let data = &func.ops[op];
            let place = matches!(data.kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { .. }));
            let plain = data.regions.is_empty() && is_free(func, op) && !place && !data.results.is_empty();
            let known = plain && data.operands.iter().all(|value| split.same.contains(value));
            if known && !data.results.iter().any(|&result| has_layout(func, result)) {
                split.same.extend(&data.results);
                split.before.push(op);
            } else {
                split.inside.push(op);
            }
        }
        split
    }
}
