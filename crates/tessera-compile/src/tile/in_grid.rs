//! A launch that has more blocks along x than were asked for.

use tessera_ir::attrs::{GridAxis, Predicate};
use tessera_ir::{Builder, Func, ScheduleOp, Type, bug};
use tessera_types::DType;

use super::numbers::Numbers;

/// Has blocks that nobody asked for do nothing of a body's operations from a place on.
pub(crate) fn in_grid(func: &mut Func, from: usize) {
    let mut rest = func.blocks[func.body].ops.split_off(from);
    let Some(end) = rest.pop() else { bug!("a body without an end") };
    let span = func.span;
    let (inside, otherwise) = (func.new_block(), func.new_block());
    func.blocks[inside].ops = rest;
    let mut b = Builder { block: func.body, span, func };
    let index = Type::scalar(DType::I32);
    let x = b.value(ScheduleOp::GetTileBlockId { axis: GridAxis::X }, &[], index.clone());
    let asked = b.value(ScheduleOp::GetNumTileBlocks { axis: GridAxis::X }, &[], index);
    let is_asked_for = b.is(x, Predicate::Lt, asked);
    for block in [inside, otherwise] {
        b.within(block, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
    }
    b.op_with_regions(ScheduleOp::If {}, &[&[is_asked_for]], [], [inside, otherwise]);
    func.blocks[func.body].ops.push(end);
}
