//! The block's place in the grid, promises about scalars, launch order.

use tessera_ir::attrs::{Assumption, GridAxis};
use tessera_ir::{Diagnostic, ScheduleOp, Shape, Type};
use tessera_types::DType;

use super::{Lowerer, Res};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    fn grid_axis(&mut self, args: &Args) -> Res<GridAxis> {
        let axis = self.require_int(&args.at(0))?;
        usize::try_from(axis).ok().and_then(GridAxis::from_index).ok_or_else(|| {
            Box::new(
                Diagnostic::error(id::AXIS, args.span(0), format!("a grid has no axis {axis}"))
                    .label("out of range")
                    .help("grid axes are 0, 1 and 2"),
            )
        })
    }

    pub(crate) fn bid(&mut self, args: &Args) -> Res<Val> {
        let axis = self.grid_axis(args)?;
        Ok(Val::Tile(self.emit_tile(ScheduleOp::GetTileBlockId { axis }, &[], DType::I32, Shape::new())))
    }

    pub(crate) fn num_blocks(&mut self, args: &Args) -> Res<Val> {
        let axis = self.grid_axis(args)?;
        Ok(Val::Tile(self.emit_tile(ScheduleOp::GetNumTileBlocks { axis }, &[], DType::I32, Shape::new())))
    }

    pub(crate) fn assume_divisible_by(&mut self, args: &Args) -> Res<Val> {
        let divisor = self.require_int(&args.at(1))?;
        if divisor <= 0 {
            return Err(Box::new(Diagnostic::error(
                id::VALUE_RANGE,
                args.span(1),
                format!("a divisor must be positive, not {divisor}"),
            )));
        }
        if matches!(args.val(0), Val::Num(crate::number::Num::Int(_))) {
            return Ok(args.val(0).clone());
        }
        let tile = self.tile(&args.at(0))?;
        if !tile.dtype.is_integer() || !tile.shape.is_empty() {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, args.span(0), "divisibility is a property of integer scalars")
                    .label(format!("this is {}", args.val(0).describe())),
            ));
        }
        let kind = ScheduleOp::Assume { predicate: Assumption::DivisibleBy(divisor as u64) };
        let value = self.emit_tile(kind, &[tile.value], tile.dtype, tile.shape.clone()).value;
        Ok(Val::Tile(Tile { value, ..tile }))
    }

    pub(crate) fn grid_wait(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("grid_dependency_control_wait", args.call)?;
        self.emit(ScheduleOp::GdcWaitTko {}, &[&[]], [Type::Token]);
        Ok(Val::None)
    }

    pub(crate) fn grid_launch(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("grid_dependency_control_launch_dependents", args.call)?;
        self.emit(ScheduleOp::GdcLaunchDependentsTko {}, &[&[]], [Type::Token]);
        Ok(Val::None)
    }
}
