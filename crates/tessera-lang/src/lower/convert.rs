//! Element type conversions: `astype`, `bitcast`, bytes.

use tessera_ir::attrs::{Overflow, Rounding, Signedness};
use tessera_ir::{Diagnostic, ScheduleOp, Shape, Span};
use tessera_types::DType;

use super::operand::{At, settle};
use super::{Lowerer, Res, signedness};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::dtype_name;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    /// The tile with elements of another type.
    pub(crate) fn convert(&mut self, tile: Tile, dtype: DType, rounding: Option<Rounding>, span: Span) -> Res<Tile> {
        if tile.dtype == dtype {
            return Ok(tile);
        }
        if let (Some(known), None) = (tile.known, rounding)
            && let Some(value) = settle(known, dtype)
        {
            return self.constant(value, dtype, tile.shape, span);
        }
        let (from, shape) = (tile.dtype, tile.shape.clone());
        let kind = match (from, dtype) {
            (_, DType::B1) => {
                let zero = self.constant(Num::Int(0), from, shape, span)?;
                return Ok(self.compare_tiles(crate::ast::CompareOp::Ne, &tile, &zero));
            }
            _ if from.is_float() && dtype.is_float() => ScheduleOp::FToF {
                rounding: rounding.unwrap_or(if dtype == DType::E8M0 { Rounding::Zero } else { Rounding::NearestEven }),
            },
            _ if from.is_float() => ScheduleOp::FToI { signedness: signedness(dtype), rounding: Rounding::NearestIntToZero },
            _ if dtype.is_float() => ScheduleOp::IToF { signedness: int_signedness(from), rounding: Rounding::NearestEven },
            _ if from.bits() < dtype.bits() => ScheduleOp::ExtI { signedness: int_signedness(from) },
            _ if from.bits() > dtype.bits() => ScheduleOp::TruncI { overflow: Overflow::Wraps },
            // Same width, other sign: the same bits.
            _ => return Ok(Tile { dtype, known: None, ..tile }),
        };
        Ok(self.emit_tile(kind, &[tile.value], dtype, shape))
    }

    /// `ct.astype` and the method.
    pub(crate) fn astype(&mut self, x: &At, dtype: &At, rounding: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let to = self.require_dtype(dtype)?;
        let rounding = self.rounding_mode(rounding)?;
        if let Some(rounding) = rounding {
            if !(tile.dtype.is_float() && to.is_float()) {
                return Err(Box::new(
                    Diagnostic::error(id::ROUNDING, x.1, "a rounding mode needs a conversion between float types")
                        .label(format!("this is {}", x.0.describe())),
                ));
            }
            let supported = match rounding {
                Rounding::NearestEven => to != DType::E8M0,
                Rounding::Zero => !matches!(to, DType::F8E4M3 | DType::F8E5M2 | DType::F4E2M1 | DType::F6E2M3 | DType::F6E3M2),
                Rounding::PositiveInf => matches!(to, DType::E8M0 | DType::F64 | DType::F32 | DType::F16),
                Rounding::NegativeInf => matches!(to, DType::F64 | DType::F32 | DType::F16),
                Rounding::NearestAway => matches!(to, DType::F64 | DType::F32 | DType::TF32 | DType::F16),
                Rounding::Full | Rounding::Approx | Rounding::NearestIntToZero => false,
            };
            if !supported {
                return Err(Box::new(Diagnostic::error(
                    id::ROUNDING,
                    x.1,
                    format!("conversions to {} don't round by `{}`", dtype_name(to), rounding.word()),
                )));
            }
        }
        self.convert(tile, to, rounding, x.1).map(Val::Tile)
    }

    /// `ct.bitcast`.
    pub(crate) fn bitcast(&mut self, args: &Args) -> Res<Val> {
        let tile = self.tile(&args.at(0))?;
        let to = self.require_dtype(&args.at(1))?;
        if tile.dtype.bits() != to.bits() || tile.dtype == DType::B1 || to == DType::B1 {
            return Err(Box::new(
                Diagnostic::error(
                    id::BIT_WIDTH,
                    args.span(0),
                    format!("{} has {} bits and {} has {}", dtype_name(tile.dtype), tile.dtype.bits(), dtype_name(to), to.bits()),
                )
                .label(format!("this is {}", args.val(0).describe()))
                .also(args.span(1), "the type to read the bits as")
                .help("`ct.bitcast` keeps the width; `ct.astype` converts values"),
            ));
        }
        let shape = tile.shape.clone();
        if tile.dtype.signless() == to.signless() {
            return Ok(Val::Tile(Tile { dtype: to, known: None, ..tile }));
        }
        Ok(Val::Tile(self.emit_tile(ScheduleOp::Bitcast {}, &[tile.value], to, shape)))
    }

    /// `ct.pack_to_bytes`.
    pub(crate) fn pack(&mut self, args: &Args) -> Res<Val> {
        let tile = self.tile(&args.at(0))?;
        let count: u64 = tile.shape.iter().map(|&extent| u64::from(extent)).product();
        let bits = count * u64::from(tile.dtype.bits());
        if tile.dtype == DType::B1 {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, args.span(0), "truth values have no bytes")
                    .label(format!("this is {}", args.val(0).describe())),
            ));
        }
        if !bits.is_multiple_of(8) {
            return Err(Box::new(
                Diagnostic::error(id::BIT_WIDTH, args.span(0), format!("{bits} bits are no whole number of bytes"))
                    .label(format!("this is {}", args.val(0).describe())),
            ));
        }
        let bytes = Shape::from_slice(&[(bits / 8) as u32]);
        let flat = self.reshape_to(tile, Shape::from_slice(&[count as u32]));
        if matches!(flat.dtype, DType::U8 | DType::I8) {
            return Ok(Val::Tile(Tile { dtype: DType::U8, known: None, ..flat }));
        }
        Ok(Val::Tile(self.emit_tile(ScheduleOp::Pack {}, &[flat.value], DType::U8, bytes)))
    }

    /// `ct.unpack_from_bytes`.
    pub(crate) fn unpack(&mut self, args: &Args) -> Res<Val> {
        let tile = self.tile(&args.at(0))?;
        let to = self.require_dtype(&args.at(1))?;
        if tile.dtype != DType::U8 || tile.shape.len() != 1 {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, args.span(0), "`unpack_from_bytes` reads a one-dimensional tile of uint8")
                    .label(format!("this is {}", args.val(0).describe()))
                    .help("flatten with `.reshape((-1,))`, and cast with `ct.bitcast(x, ct.uint8)`"),
            ));
        }
        if to == DType::B1 {
            return Err(Box::new(Diagnostic::error(id::ARGUMENT_TYPE, args.span(1), "truth values are not read from bytes")));
        }
        let bits = tile.shape[0] * 8;
        if bits % to.bits() != 0 {
            return Err(Box::new(
                Diagnostic::error(
                    id::BIT_WIDTH,
                    args.span(0),
                    format!("{} bytes are no whole number of {} elements", tile.shape[0], dtype_name(to)),
                )
                .label(format!("this is {}", args.val(0).describe())),
            ));
        }
        let shape = Shape::from_slice(&[bits / to.bits()]);
        self.check_extents(&shape, args.call)?;
        if matches!(to, DType::U8 | DType::I8) {
            return Ok(Val::Tile(Tile { dtype: to, known: None, ..tile }));
        }
        Ok(Val::Tile(self.emit_tile(ScheduleOp::Unpack {}, &[tile.value], to, shape)))
    }
}

/// Truth values count as 0 and 1.
fn int_signedness(dtype: DType) -> Signedness {
    if dtype == DType::B1 { Signedness::Unsigned } else { signedness(dtype) }
}
