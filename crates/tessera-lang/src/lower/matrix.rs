//! Matrix products.

use tessera_ir::{Diagnostic, ScheduleOp, Shape, Span};
use tessera_types::DType;

use super::operand::{At, broadcast_shape};
use super::{Lowerer, Res, signedness};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::dtype_name;
use crate::value::{Tile, Val, show_shape};

/// Accumulator types of each operand type, the usual one first.
fn accumulators(operand: DType) -> &'static [DType] {
    match operand {
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 => &[DType::F16, DType::F32],
        DType::BF16 | DType::F32 | DType::TF32 => &[DType::F32],
        DType::F64 => &[DType::F64],
        DType::I8 | DType::U8 => &[DType::I32],
        _ => &[],
    }
}

/// Elements that share a scale, by operand and scale type.
fn scale_groups(operand: DType, scale: DType) -> &'static [u32] {
    match (operand, scale) {
        (DType::F8E4M3 | DType::F8E5M2, DType::E8M0) => &[32],
        (DType::F4E2M1, DType::E8M0) => &[16, 32],
        (DType::F4E2M1, DType::F8E4M3) => &[16],
        _ => &[],
    }
}

/// Shapes of a product: both operands with their batch axes broadcast, and the result.
struct Product {
    lhs: Shape,
    rhs: Shape,
    result: Shape,
}

impl Lowerer<'_> {
    fn matrix_tile(&mut self, at: &At, least_rank: usize) -> Res<Tile> {
        let tile = self.tile(at)?;
        if tile.shape.len() < least_rank || tile.shape.len() > 3 {
            return Err(Box::new(
                Diagnostic::error(
                    id::RANK,
                    at.1,
                    format!("a matrix operand has {least_rank} to 3 axes, not {}", tile.shape.len()),
                )
                .label(format!("this is {}", at.0.describe())),
            ));
        }
        Ok(tile)
    }

    fn product(&self, x: &Shape, y: &Shape, a: &At, b: &At, span: Span) -> Res<Product> {
        let (m, k) = (x[x.len() - 2], x[x.len() - 1]);
        let (k2, n) = (y[y.len() - 2], y[y.len() - 1]);
        let batch = broadcast_shape(&x[..x.len() - 2], &y[..y.len() - 2]);
        let Some(batch) = batch.filter(|_| k == k2) else {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    span,
                    format!("tiles of shape {} and {} can't be multiplied as matrices", show_shape(x), show_shape(y)),
                )
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe()))
                .help("the last axis of the first must equal the last but one of the second"),
            ));
        };
        let with = |rows: u32, columns: u32| -> Shape {
            let mut shape = batch.clone();
            shape.extend([rows, columns]);
            shape
        };
        Ok(Product { lhs: with(m, k), rhs: with(k, n), result: with(m, n) })
    }

    fn check_accumulator(&self, x: DType, y: DType, acc: DType, a: &At, b: &At, span: Span) -> Res<()> {
        let bytes = |dtype| matches!(dtype, DType::I8 | DType::U8);
        if x != y && !(bytes(x) && bytes(y)) {
            return Err(Box::new(
                Diagnostic::error(
                    id::MMA_TYPE,
                    span,
                    format!("matrices of {} and {} can't be multiplied", dtype_name(x), dtype_name(y)),
                )
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe()))
                .help("operands of one type, or int8 with uint8; cast one of them with `.astype`"),
            ));
        }
        let allowed = accumulators(x);
        if !allowed.contains(&acc) {
            let names: Vec<&str> = allowed.iter().map(|&dtype| dtype_name(dtype)).collect();
            let message = if allowed.is_empty() {
                format!("there is no matrix product of {}", dtype_name(x))
            } else {
                format!("a matrix product of {} does not accumulate in {}", dtype_name(x), dtype_name(acc))
            };
            return Err(Box::new(
                Diagnostic::error(id::MMA_TYPE, span, message).also(a.1, format!("this is {}", a.0.describe())).help(
                    if allowed.is_empty() {
                        "cast the operands, for example to float16".to_string()
                    } else {
                        format!("it accumulates in {}", names.join(" or "))
                    },
                ),
            ));
        }
        Ok(())
    }

    fn emit_mma(&mut self, x: &Tile, y: &Tile, acc: &Tile, fast_acc: bool) -> Tile {
        let kind = if x.dtype.is_float() {
            ScheduleOp::MmaF { fast_acc }
        } else {
            ScheduleOp::MmaI { lhs_signedness: signedness(x.dtype), rhs_signedness: signedness(y.dtype) }
        };
        self.emit_tile(kind, &[x.value, y.value, acc.value], acc.dtype, acc.shape.clone())
    }

    /// The accumulator's shape must be the product's.
    fn check_result(&self, acc: &At, shape: &Shape, result: &Shape) -> Res<()> {
        if shape == result {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(
                id::BROADCAST,
                acc.1,
                format!("the accumulator has shape {}, the product {}", show_shape(shape), show_shape(result)),
            )
            .label(format!("this is {}", acc.0.describe()))
            .help(format!("make it of shape {}", show_shape(result))),
        ))
    }

    /// `ct.mma`.
    pub(crate) fn mma(&mut self, args: &Args) -> Res<Val> {
        let (a, b, c) = (args.at(0), args.at(1), args.at(2));
        let fast = self.require_bool(&args.at(3))?;
        let (x, y) = (self.matrix_tile(&a, 2)?, self.matrix_tile(&b, 2)?);
        let acc = self.tile(&c)?;
        let product = self.product(&x.shape, &y.shape, &a, &b, args.call)?;
        self.check_result(&c, &acc.shape, &product.result)?;
        if fast && !matches!(x.dtype, DType::F8E4M3 | DType::F8E5M2) {
            return Err(Box::new(
                Diagnostic::error(id::MMA_TYPE, args.span(3), "`use_fast_acc` is for 8-bit floats")
                    .also(a.1, format!("this is {}", a.0.describe())),
            ));
        }
        self.check_accumulator(x.dtype, y.dtype, acc.dtype, &a, &b, args.call)?;
        let (x, y) = (self.broadcast(x, &product.lhs), self.broadcast(y, &product.rhs));
        Ok(Val::Tile(self.emit_mma(&x, &y, &acc, fast)))
    }

    /// `ct.matmul` and `@`.
    pub(crate) fn matmul(&mut self, a: &At, b: &At, span: Span) -> Res<Val> {
        let (x, y) = (self.matrix_tile(a, 1)?, self.matrix_tile(b, 1)?);
        let dtype = self.common_dtype(a, b, false)?;
        let (ranks, mut x, mut y) =
            ((x.shape.len(), y.shape.len()), self.convert(x, dtype, None, a.1)?, self.convert(y, dtype, None, b.1)?);
        if ranks.0 == 1 {
            let shape = Shape::from_slice(&[1, x.shape[0]]);
            x = self.reshape_to(x, shape);
        }
        if ranks.1 == 1 {
            let shape = Shape::from_slice(&[y.shape[0], 1]);
            y = self.reshape_to(y, shape);
        }
        let product = self.product(&x.shape, &y.shape, a, b, span)?;
        let acc = accumulators(dtype).first().copied();
        self.check_accumulator(dtype, dtype, acc.unwrap_or(dtype), a, b, span)?;
        let (x, y) = (self.broadcast(x, &product.lhs), self.broadcast(y, &product.rhs));
        let zero = self.constant(Num::Int(0), acc.unwrap_or(dtype), product.result.clone(), span)?;
        let result = self.emit_mma(&x, &y, &zero, false);
        let result = self.convert(result, dtype, None, span)?;
        let mut shape = product.result;
        if ranks.1 == 1 {
            shape.pop();
        }
        if ranks.0 == 1 {
            let row = shape.len() - if ranks.1 == 1 { 1 } else { 2 };
            shape.remove(row);
        }
        Ok(Val::Tile(self.reshape_to(result, shape)))
    }

    /// `tile.mma_sparse`.
    pub(crate) fn mma_sparse(&mut self, args: &Args) -> Res<Val> {
        let at: Vec<At> = (0..4).map(|i| args.at(i)).collect();
        let (values, places, y, acc) = (self.tile(&at[0])?, self.tile(&at[1])?, self.tile(&at[2])?, self.tile(&at[3])?);
        if let Some((_, place)) = [&values, &places, &y, &acc].into_iter().zip(&at).find(|(tile, _)| tile.shape.len() != 2) {
            return Err(Box::new(
                Diagnostic::error(id::RANK, place.1, "a product whose left operand is stored by half takes matrices, of 2 axes")
                    .label(format!("this is {}", place.0.describe())),
            ));
        }
        let halves = matches!(values.dtype, DType::F16 | DType::BF16) && values.dtype == y.dtype && acc.dtype == DType::F32;
        if !halves || !matches!(places.dtype, DType::I32 | DType::U32) {
            return Err(Box::new(
                Diagnostic::error(
                    id::MMA_TYPE,
                    args.call,
                    format!(
                        "there is no product of {} stored by half, with places of {}, and {}, accumulated in {}",
                        dtype_name(values.dtype),
                        dtype_name(places.dtype),
                        dtype_name(y.dtype),
                        dtype_name(acc.dtype)
                    ),
                )
                .also(at[0].1, format!("this is {}", at[0].0.describe()))
                .also(at[2].1, format!("this is {}", at[2].0.describe()))
                .help("operands are float16 or bfloat16, places int32, and the accumulator is float32"),
            ));
        }
        let (m, stored) = (values.shape[0], values.shape[1]);
        let fits = places.shape[..] == [m, stored / 16] && stored.is_multiple_of(16) && y.shape[0] == 2 * stored;
        if !fits {
            let shapes = [&values.shape, &places.shape, &y.shape].map(|shape| show_shape(shape));
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    args.call,
                    format!(
                        "values {} with places {} do not stand for rows that {} could multiply",
                        shapes[0], shapes[1], shapes[2]
                    ),
                )
                .also(at[0].1, format!("this is {}", at[0].0.describe()))
                .help("of M x K elements values are M x K/2 and places M x K/32, K a multiple of 32; the right operand is K x N"),
            ));
        }
        self.check_result(&at[3], &acc.shape, &Shape::from_slice(&[m, y.shape[1]]))?;
        let operands = [values.value, y.value, acc.value, places.value];
        Ok(Val::Tile(self.emit_tile(ScheduleOp::MmaFSparse {}, &operands, acc.dtype, acc.shape.clone())))
    }

    /// `ct.mma_scaled`.
    pub(crate) fn mma_scaled(&mut self, args: &Args) -> Res<Val> {
        let at: Vec<At> = (0..5).map(|i| args.at(i)).collect();
        let (x, sx) = (self.matrix_tile(&at[0], 2)?, self.matrix_tile(&at[1], 2)?);
        let (y, sy) = (self.matrix_tile(&at[2], 2)?, self.matrix_tile(&at[3], 2)?);
        let acc = self.matrix_tile(&at[4], 2)?;
        if x.dtype != y.dtype || sx.dtype != sy.dtype || scale_groups(x.dtype, sx.dtype).is_empty() || acc.dtype != DType::F32 {
            return Err(Box::new(
                Diagnostic::error(
                    id::MMA_TYPE,
                    args.call,
                    format!(
                        "there is no scaled product of {} with scales of {} and {} with scales of {}, accumulated in {}",
                        dtype_name(x.dtype),
                        dtype_name(sx.dtype),
                        dtype_name(y.dtype),
                        dtype_name(sy.dtype),
                        dtype_name(acc.dtype)
                    ),
                )
                .also(at[0].1, format!("this is {}", at[0].0.describe()))
                .also(at[2].1, format!("this is {}", at[2].0.describe()))
                .help(
                    "8-bit floats take float8_e8m0fnu scales, float4_e2m1fn also float8_e4m3fn ones; the accumulator is float32",
                ),
            ));
        }
        for (tile, scale, k_from_end, place) in [(&x, &sx, 1, &at[1]), (&y, &sy, 2, &at[3])] {
            let rank = tile.shape.len();
            let k = rank - k_from_end;
            let groups = scale_groups(tile.dtype, scale.dtype);
            let fits = scale.shape.len() == rank
                && (0..rank).all(|i| i == k || tile.shape[i] == scale.shape[i])
                && tile.shape[k] % scale.shape[k] == 0
                && groups.contains(&(tile.shape[k] / scale.shape[k]));
            if !fits {
                let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
                return Err(Box::new(
                    Diagnostic::error(
                        id::BROADCAST,
                        place.1,
                        format!(
                            "scales of shape {} don't fit an operand of shape {}",
                            show_shape(&scale.shape),
                            show_shape(&tile.shape)
                        ),
                    )
                    .label(format!("this is {}", place.0.describe()))
                    .help(format!("one scale stands for {} elements along the summed axis", groups.join(" or "))),
                ));
            }
        }
        let product = self.product(&x.shape, &y.shape, &at[0], &at[2], args.call)?;
        self.check_result(&at[4], &acc.shape, &product.result)?;
        let batch = product.lhs.len() - 2;
        let batched =
            |tile: &Tile| -> Shape { product.lhs[..batch].iter().chain(&tile.shape[tile.shape.len() - 2..]).copied().collect() };
        let (sx_shape, sy_shape) = (batched(&sx), batched(&sy));
        let x = self.broadcast(x, &product.lhs);
        let y = self.broadcast(y, &product.rhs);
        let (sx, sy) = (self.broadcast(sx, &sx_shape), self.broadcast(sy, &sy_shape));
        let operands = [x.value, y.value, acc.value, sx.value, sy.value];
        Ok(Val::Tile(self.emit_tile(ScheduleOp::MmaFScaled {}, &operands, acc.dtype, acc.shape.clone())))
    }
}
