//! The order in which a plane of blocks is taken: groups of rows, and column by column within a group, so that the blocks that run at the
//! same time share what they read.
//!
//! A launch starts blocks along x first. Renumbering them is a bijection of the grid, and a program may not depend on when a block
//! runs, so the result is the same. `docs/performance.md` has what the order is worth for products larger than the cache.

use tessera_ir::attrs::GridAxis;
use tessera_ir::{Builder, Func, Op, OpKind, ScheduleOp, Type, Value};
use tessera_types::DType;

use super::numbers::Numbers;

/// Blocks along x that are taken together.
const GROUP: i64 = 16;

/// Renumbers the blocks of a function that uses both axes of a plane. Neighbours of one cluster stay neighbours along x.
pub(super) fn by_groups(func: &mut Func) {
    let ids = |func: &Func, wanted: GridAxis| -> Vec<Op> {
        let is =
            |op: &Op| matches!(&func.ops[*op].kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { axis }) if *axis == wanted);
        func.linked_ops().into_iter().filter(is).collect()
    };
    let (columns, rows) = (ids(func, GridAxis::X), ids(func, GridAxis::Y));
    if columns.is_empty() || rows.is_empty() {
        return;
    }
    let rest = std::mem::take(&mut func.blocks[func.body].ops);
    let mut b = Builder::new(func);
    let index = |b: &mut Builder<'_>, kind: ScheduleOp| b.value(kind, &[], Type::scalar(DType::I32));
    let (x, y) = (
        index(&mut b, ScheduleOp::GetTileBlockId { axis: GridAxis::X }),
        index(&mut b, ScheduleOp::GetTileBlockId { axis: GridAxis::Y }),
    );
    let (width, height) = (
        index(&mut b, ScheduleOp::GetNumTileBlocks { axis: GridAxis::X }),
        index(&mut b, ScheduleOp::GetNumTileBlocks { axis: GridAxis::Y }),
    );
    let width = whole_clusters(&mut b, width);
    let group = b.number(GROUP);
    let before = b.times(y, width);
    let number = b.plus(before, x);
    let size = b.times(group, height);
    let (nth, within) = (b.over(number, size), b.modulo(number, size));
    let first = b.times(nth, group);
    let left = b.minus(width, first);
    let wide = b.least(left, group);
    let (across, down) = (b.modulo(within, wide), b.over(within, wide));
    let column = b.plus(first, across);
    func.blocks[func.body].ops.extend(rest);
    let old = |ops: &[Op], func: &Func| ops.iter().map(|&op| func.ops[op].result()).collect::<Vec<_>>();
    let (columns, rows) = (old(&columns, func), old(&rows, func));
    func.replace_uses(|value| match value {
        value if columns.contains(&value) => column,
        value if rows.contains(&value) => down,
        value => value,
    });
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
