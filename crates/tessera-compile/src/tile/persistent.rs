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
use tessera_ir::{Builder, Func, Op, OpKind, Reason, ScheduleOp, TileOp, Type, Value};
use tessera_types::DType;

use super::numbers::Numbers;
use super::order;
use super::relation::has_layout;
use super::roles::is_free;
use super::stream_k::{Share, Shared};

/// The blocks that are launched, and those that were asked for.
pub(super) struct Grid {
    pub(super) worker: Value,
    pub(super) workers: Value,
    /// Blocks along x, y and z, in whole clusters.
    counts: [Value; 3],
    /// Blocks of a plane of x and y.
    plane: Value,
    pub(super) all: Value,
}

impl Grid {
    fn of(b: &mut Builder<'_>) -> Grid {
        let index = Type::scalar(DType::I32);
        let (worker, workers) = (b.value(TileOp::Worker {}, &[], index.clone()), b.value(TileOp::Workers {}, &[], index.clone()));
        let mut counts = [GridAxis::X, GridAxis::Y, GridAxis::Z]
            .map(|axis| b.value(ScheduleOp::GetNumTileBlocks { axis }, &[], index.clone()));
        counts[0] = order::whole_clusters(b, counts[0]);
        let plane = b.times(counts[0], counts[1]);
        let all = b.times(plane, counts[2]);
        Grid { worker, workers, counts, plane, all }
    }

    /// The place along an axis of the block with a number.
    fn along(&self, b: &mut Builder<'_>, axis: GridAxis, place: Value) -> Value {
        match axis {
            GridAxis::X => b.modulo(place, self.counts[0]),
            GridAxis::Y => {
                let rows = b.over(place, self.counts[0]);
                b.modulo(rows, self.counts[1])
            }
            GridAxis::Z => b.over(place, self.plane),
        }
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

/// Wraps the function's body; `blocks` of it run on a multiprocessor. The rounds of a loop are shared where one is given.
pub(super) fn over_blocks(func: &mut Func, blocks: u32, shared: Option<Shared>) {
    let places = places(func);
    let Split { before, inside, .. } = Split::of(func);
    let Some((&last, inside)) = inside.split_last() else { return };
    let is_place = |op: &Op| places.iter().any(|(place, _)| place == op);
    let inside: Vec<Op> = inside.iter().copied().filter(|op| !is_place(op)).collect();
    let span = func.span;
    func.blocks[func.body].ops = before;
    let mut b = Builder { block: func.body, span, func };
    let grid = Grid::of(&mut b);
    let share = shared.map(|shared| Share::of(&mut b, shared, &grid));
    let body = b.func.new_block();
    let counter = b.func.add_arg(body, Type::scalar(DType::I32), None);
    let found = b.within(body, |b| {
        let piece = share.as_ref().map(|share| share.piece(b, counter));
        let place = piece.as_ref().map_or(counter, |piece| piece.place);
        let mut known: FxHashMap<GridAxis, Value> = FxHashMap::default();
        let mut found: FxHashMap<Value, Value> = FxHashMap::default();
        for (op, axis) in places {
            let value = match known.get(&axis) {
                Some(&value) => value,
                None => grid.along(b, axis, place),
            };
            known.insert(axis, value);
            found.insert(b.func.ops[op].result(), value);
        }
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
