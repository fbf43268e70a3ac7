//! The order in which a plane of blocks is taken: groups of rows, and column by column within a group, so that the blocks that run at the
//! same time share what they read.
//!
//! A launch starts blocks along x first. Renumbering them is a bijection of the grid, and a program may not depend on when a block
//! runs, so the result is the same. `docs/performance.md` has what the order is worth for products larger than the cache.

use tessera_ir::attrs::{GridAxis, Predicate};
use tessera_ir::{Builder, Func, Op, OpKind, ScheduleOp, Type, Value};
use tessera_types::DType;

use super::numbers::{Divisor, Numbers};

/// Blocks along x that are taken together.
const GROUP: i64 = 16;

/// The operations that ask for the block's place in a plane, where the function asks for both axes of it.
pub(super) fn plane(func: &Func) -> Option<[Vec<Op>; 2]> {
    let ids = [GridAxis::X, GridAxis::Y].map(|wanted| -> Vec<Op> {
        let is =
            |op: &Op| matches!(&func.ops[*op].kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { axis }) if *axis == wanted);
        func.linked_ops().into_iter().filter(is).collect()
    });
    ids.iter().all(|ids| !ids.is_empty()).then_some(ids)
}

/// Renumbers the blocks of a function that uses both axes of a plane. Neighbours of one cluster stay neighbours along x.
pub(super) fn by_groups(func: &mut Func) {
    let Some(ids) = plane(func) else { return };
    let rest = std::mem::take(&mut func.blocks[func.body].ops);
    let mut b = Builder::new(func);
    let index = |b: &mut Builder<'_>, kind: ScheduleOp| b.value(kind, &[], Type::scalar(DType::I32));
    let [x, y] = [GridAxis::X, GridAxis::Y].map(|axis| index(&mut b, ScheduleOp::GetTileBlockId { axis }));
    let [width, height] = [GridAxis::X, GridAxis::Y].map(|axis| index(&mut b, ScheduleOp::GetNumTileBlocks { axis }));
    let width = whole_clusters(&mut b, width);
    let before = b.times(y, width);
    let number = b.plus(before, x);
    let groups = Groups::of(&mut b, [width, height], false);
    let places = groups.place(&mut b, number);
    func.blocks[func.body].ops.extend(rest);
    let old = ids.map(|ops| ops.iter().map(|&op| func.ops[op].result()).collect::<Vec<_>>());
    func.replace_uses(|value| (0..2).find(|&axis| old[axis].contains(&value)).map_or(value, |axis| places[axis]));
}

/// A plane's blocks in groups.
pub(super) struct Groups {
    width: Value,
    group: Value,
    /// Blocks of a group.
    size: Divisor,
    /// How wide groups are, and how wide the last one is.
    wide: [Divisor; 2],
}

impl Groups {
    /// Of a plane that is so wide and so high, in which a block looks for its place once, or `often`.
    pub(super) fn of(b: &mut Builder<'_>, [width, height]: [Value; 2], often: bool) -> Groups {
        let group = b.number(GROUP);
        let size = b.times(group, height);
        let last = b.modulo(width, group);
        let one = b.number(1);
        let last = b.most(last, one);
        let [size, usual, last] = [size, group, last].map(|by| b.divisor(by, often));
        Groups { width, group, size, wide: [usual, last] }
    }

    /// The places along x and y of the block with a number.
    pub(super) fn place(&self, b: &mut Builder<'_>, number: Value) -> [Value; 2] {
        let [nth, within] = b.divided(number, self.size);
        let first = b.times(nth, self.group);
        let left = b.minus(self.width, first);
        let is_last = b.is(left, Predicate::Lt, self.group);
        let [usual, last] = self.wide;
        let by = b.choose(is_last, last.by, usual.by);
        let reciprocal = last.reciprocal.zip(usual.reciprocal).map(|(last, usual)| b.choose(is_last, last, usual));
        let [down, across] = b.divided(within, Divisor { by, reciprocal });
        [b.plus(first, across), down]
    }
}

/// The blocks along x that are launched for so many that are asked for.
pub(super) fn whole_clusters(b: &mut Builder<'_>, width: Value) -> Value {
    match b.func.hints.cluster {
        Some(blocks) => {
            let blocks = b.number(i64::from(blocks));
            let clusters = b.over_up(width, blocks);
            b.times(clusters, blocks)
        }
        None => width,
    }
}
