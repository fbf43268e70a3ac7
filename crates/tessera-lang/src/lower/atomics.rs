//! Atomic updates of elements.

use tessera_ir::attrs::{AtomicMode, MemoryOrder, MemoryScope};
use tessera_ir::{Diagnostic, ScheduleOp, Span, Type};
use tessera_types::DType;

use super::gather::Elements;
use super::operand::At;
use super::{Lowerer, Res, tile_type};
use crate::diagnostics::id;
use crate::promote::dtype_name;
use crate::value::{Tile, Val};

/// What an atomic operation does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Xchg,
    Add,
    Max,
    Min,
    And,
    Or,
    Xor,
}

const ORDERS: [MemoryOrder; 4] = [MemoryOrder::Relaxed, MemoryOrder::Acquire, MemoryOrder::Release, MemoryOrder::AcqRel];

impl Update {
    /// The operation on elements of a type, if there is one.
    fn mode(self, dtype: DType) -> Option<AtomicMode> {
        let word = matches!(dtype, DType::I32 | DType::I64 | DType::U32 | DType::U64);
        match self {
            Update::Xchg if word || matches!(dtype, DType::F32 | DType::F64) => Some(AtomicMode::Xchg),
            Update::Add if word => Some(AtomicMode::Add),
            Update::Add if matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) => Some(AtomicMode::AddF),
            Update::Max if word => Some(if dtype.is_signed() { AtomicMode::Max } else { AtomicMode::UMax }),
            Update::Min if word => Some(if dtype.is_signed() { AtomicMode::Min } else { AtomicMode::UMin }),
            Update::And if word => Some(AtomicMode::And),
            Update::Or if word => Some(AtomicMode::Or),
            Update::Xor if word => Some(AtomicMode::Xor),
            _ => None,
        }
    }
}

impl Lowerer<'_> {
    /// The update in the type of memory, with the operation's mode.
    pub(crate) fn atomic_update(&mut self, value: &At, dtype: DType, update: Update, span: Span) -> Res<(Tile, AtomicMode)> {
        let Some(mode) = update.mode(dtype) else {
            return Err(Box::new(
                Diagnostic::error(id::ATOMIC_TYPE, span, format!("this atomic operation has no form for {}", dtype_name(dtype)))
                    .label("on elements of this type")
                    .help(match update {
                        Update::Add => "it works on integers and floats of 32 and 64 bits, float16 and bfloat16",
                        Update::Xchg => "it works on integers and floats of 32 and 64 bits",
                        _ => "it works on integers of 32 and 64 bits",
                    }),
            ));
        };
        if matches!(update, Update::And | Update::Or | Update::Xor) {
            let found = self.dtype_of(value)?;
            if found != dtype {
                return Err(Box::new(
                    Diagnostic::error(
                        id::PROMOTION,
                        value.1,
                        format!("a bitwise update of {} needs that very type, not {}", dtype_name(dtype), dtype_name(found)),
                    )
                    .label(format!("this is {}", value.0.describe()))
                    .help(format!("write the cast: `.astype(ct.{})`", dtype_name(dtype))),
                ));
            }
        }
        Ok((self.implicit(value, dtype, "the update")?, mode))
    }

    /// Read-modify-write; yields the old elements.
    pub(crate) fn atomic_rmw(
        &mut self,
        elements: &Elements,
        value: &At,
        update: Update,
        order: &At,
        scope: &At,
        span: Span,
    ) -> Res<Val> {
        let (tile, mode) = self.atomic_update(value, elements.dtype, update, span)?;
        let tile = self.broadcast_exactly(tile, &elements.shape, value.1, "the update")?;
        let (order, scope) = self.memory_order(order, scope, &ORDERS)?;
        let kind = ScheduleOp::AtomicRmwTko { order, scope: scope.unwrap_or(MemoryScope::Device), mode };
        let results = [tile_type(elements.dtype, &elements.shape), Type::Token];
        let op = self.emit(kind, &[&[elements.pointers], &[tile.value], &elements.mask_group(), &[]], results);
        let old = self.func.ops[op].results[0];
        Ok(Val::Tile(Tile { value: old, dtype: elements.dtype, shape: elements.shape.clone(), known: None }))
    }

    /// Compare and swap; yields the old elements, and `expected` where masked.
    pub(crate) fn atomic_cas(
        &mut self,
        elements: &Elements,
        expected: &At,
        desired: &At,
        order: &At,
        scope: &At,
        span: Span,
    ) -> Res<Val> {
        let dtype = elements.dtype;
        if !matches!(dtype, DType::I32 | DType::I64 | DType::U32 | DType::U64 | DType::F32 | DType::F64) {
            return Err(Box::new(
                Diagnostic::error(id::ATOMIC_TYPE, span, format!("compare-and-swap has no form for {}", dtype_name(dtype)))
                    .help("it works on elements of 32 and 64 bits"),
            ));
        }
        let compare = self.implicit(expected, dtype, "the expected value")?;
        let compare = self.broadcast_exactly(compare, &elements.shape, expected.1, "the expected value")?;
        let value = self.implicit(desired, dtype, "the desired value")?;
        let value = self.broadcast_exactly(value, &elements.shape, desired.1, "the desired value")?;
        let (order, scope) = self.memory_order(order, scope, &ORDERS)?;
        let kind = ScheduleOp::AtomicCasTko { order, scope: scope.unwrap_or(MemoryScope::Device) };
        let results = [tile_type(dtype, &elements.shape), Type::Token];
        let groups: [&[tessera_ir::Value]; 5] =
            [&[elements.pointers], &[compare.value], &[value.value], &elements.mask_group(), &[]];
        let op = self.emit(kind, &groups, results);
        let old = self.func.ops[op].results[0];
        Ok(Val::Tile(Tile { value: old, dtype, shape: elements.shape.clone(), known: None }))
    }
}
