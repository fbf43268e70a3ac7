//! Elementwise operations as lane operations, scalars and tiles alike.

use smallvec::{SmallVec, smallvec};
use tessera_ir::attrs::{NanOrder, Predicate, Rounding, Signedness};
use tessera_ir::{Elem, EntityId, OpData, Value};
use tessera_types::DType;

use super::expr::Wanted;
use super::{Builder, Built, Lane, Val, element_bytes};
use crate::lanes::{DirectedOp, Float, FloatOp, Int, IntOp, LaneOp};
use crate::plan::{Inst, ScalarCheck, Sink};

/// True for floats that are computed in `f32` lanes and rounded.
pub(super) fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && !matches!(dtype, DType::F64 | DType::F32)
}

fn is_directed(rounding: Rounding) -> bool {
    matches!(rounding, Rounding::Zero | Rounding::NegativeInf | Rounding::PositiveInf)
}

/// The operation that rounds in a direction.
fn directed(op: FloatOp) -> Option<DirectedOp> {
    match op {
        FloatOp::Add => Some(DirectedOp::Add),
        FloatOp::Sub => Some(DirectedOp::Sub),
        FloatOp::Mul => Some(DirectedOp::Mul),
        FloatOp::Div => Some(DirectedOp::Div),
        FloatOp::Sqrt => Some(DirectedOp::Sqrt),
        FloatOp::Fma => Some(DirectedOp::Fma),
        _ => None,
    }
}

/// What a float operation is called with.
pub(super) struct FloatCall {
    op: FloatOp,
    directed: Option<(DirectedOp, Rounding)>,
    flush: bool,
    /// The result of numbers of a format is a number of it.
    exact: bool,
}

impl FloatCall {
    pub(super) fn plain(op: FloatOp) -> FloatCall {
        FloatCall { op, directed: None, flush: false, exact: false }
    }

    pub(super) fn exact(op: FloatOp) -> FloatCall {
        FloatCall { exact: true, ..FloatCall::plain(op) }
    }

    /// An operation that rounds as it is told.
    pub(super) fn rounded(op: FloatOp, rounding: Rounding, flush: bool) -> FloatCall {
        let directed = directed(op).filter(|_| is_directed(rounding)).map(|op| (op, rounding));
        FloatCall { op, directed, flush, exact: false }
    }

    /// The larger or smaller of two numbers; the second operation where a NaN shall come through.
    pub(super) fn extreme([op, with_nan]: [FloatOp; 2], propagate_nan: bool) -> FloatCall {
        FloatCall::exact(if propagate_nan { with_nan } else { op })
    }

    /// The same with denormal numbers as zeros, before and after.
    pub(super) fn flushed(self, flush: bool) -> FloatCall {
        FloatCall { flush, ..self }
    }
}

impl Builder<'_> {
    /// The element type of a tile of numbers; pointers count as 64-bit integers.
    pub(super) fn dtype(&self, value: Value) -> Built<DType> {
        Ok(match self.tile_type(value)?.elem {
            Elem::Num(dtype) => dtype,
            Elem::Ptr(_) => DType::I64,
        })
    }

    /// The value as it is stored.
    pub(super) fn raw(&mut self, value: Value) -> Built<Lane> {
        match self.val(value)? {
            Val::Reg(reg) => Ok(Lane::Reg(reg)),
            Val::Tile { expr, wide: false } => Ok(Lane::Expr(expr)),
            Val::Tile { expr, wide: true } => {
                let dtype = self.dtype(value)?;
                Ok(self.lane(LaneOp::Narrow(dtype), &[Lane::Expr(expr)], dtype.unpacked_bytes() as u8))
            }
            Val::View(_) | Val::Token => Err(self.refuse("cpu-type", "a tile was expected")),
        }
    }

    /// The value as float lanes.
    pub(super) fn float_lane(&mut self, value: Value) -> Built<(Lane, Float)> {
        let dtype = self.dtype(value)?;
        let val = self.val(value)?;
        let width = if dtype == DType::F64 { Float::F64 } else { Float::F32 };
        let lane = match val {
            Val::Tile { expr, wide: true } => return Ok((Lane::Expr(expr), Float::F32)),
            Val::Tile { expr, wide: false } => Lane::Expr(expr),
            Val::Reg(reg) => Lane::Reg(reg),
            Val::View(_) | Val::Token => return Err(self.refuse("cpu-type", "a tile was expected")),
        };
        if !is_narrow(dtype) {
            return Ok((lane, width));
        }
        // A repeated scalar is widened once, not in every strip.
        if let Lane::Expr(expr) = lane {
            if let Some((reg, len)) = self.uniform_register(expr) {
                if let Lane::Reg(wide) = self.lane(LaneOp::Widen(dtype), &[Lane::Reg(reg)], 4) {
                    return Ok((Lane::Expr(self.uniform(wide, len, 4)), Float::F32));
                }
            }
        }
        Ok((self.lane(LaneOp::Widen(dtype), &[lane], 4), Float::F32))
    }

    fn uniform_register(&self, expr: super::expr::ExprId) -> Option<(crate::plan::Reg, usize)> {
        match &self.exprs[expr.index()].kind {
            super::expr::ExprKind::Fetch(crate::plan::Fetch::Uniform(reg)) => Some((*reg, self.exprs[expr.index()].len)),
            _ => None,
        }
    }

    /// Binds a result to stored lanes.
    pub(super) fn bind_raw(&mut self, result: Value, lane: Lane) -> Built<()> {
        self.bind_lane(result, lane, false)
    }

    fn bind_lane(&mut self, result: Value, lane: Lane, wide: bool) -> Built<()> {
        let val = match lane {
            Lane::Reg(reg) => Val::Reg(reg),
            Lane::Expr(expr) if self.func.ty(result).is_scalar() && !self.strips => {
                let bytes = self.exprs[expr.index()].bytes;
                let place = self.evaluated(expr);
                let dst = self.register();
                self.touch(place);
                self.emit(Inst::Read { dst, place, bytes });
                Val::Reg(dst)
            }
            Lane::Expr(expr) => Val::Tile { expr, wide },
        };
        self.bind(result, val);
        Ok(())
    }

    /// Binds a result to float lanes that still have to be rounded to its type.
    pub(super) fn bind_float(&mut self, result: Value, lane: Lane, rounded: bool) -> Built<()> {
        let dtype = self.dtype(result)?;
        if !is_narrow(dtype) {
            return self.bind_raw(result, lane);
        }
        match lane {
            Lane::Reg(_) => {
                let raw = self.lane(LaneOp::Narrow(dtype), &[lane], dtype.unpacked_bytes() as u8);
                self.bind_raw(result, raw)
            }
            Lane::Expr(_) if self.func.ty(result).is_scalar() && !self.strips => {
                let raw = self.lane(LaneOp::Narrow(dtype), &[lane], dtype.unpacked_bytes() as u8);
                self.bind_raw(result, raw)
            }
            Lane::Expr(_) => {
                let lane = if rounded { lane } else { self.lane(LaneOp::Round(dtype), &[lane], 4) };
                self.bind_lane(result, lane, true)
            }
        }
    }

    pub(super) fn float(&mut self, data: &OpData, call: FloatCall) -> Built<()> {
        let result = data.result();
        let dtype = self.dtype(result)?;
        let mut lanes: SmallVec<[Lane; 3]> = SmallVec::new();
        let mut width = Float::F32;
        for &operand in &data.operands {
            let (lane, w) = self.float_lane(operand)?;
            width = w;
            let bytes = if w == Float::F64 { 8 } else { 4 };
            lanes.push(if call.flush { self.lane(LaneOp::Float(FloatOp::Flush, w), &[lane], bytes) } else { lane });
        }
        let bytes = if width == Float::F64 { 8 } else { 4 };
        let mut rounded = call.exact;
        let op = match call.directed {
            Some((op, rounding)) => {
                rounded = true;
                LaneOp::Directed(op, dtype, rounding)
            }
            None if call.op == FloatOp::Fma && matches!(dtype, DType::F16 | DType::BF16) => {
                rounded = true;
                LaneOp::NarrowFma(dtype)
            }
            None => LaneOp::Float(call.op, width),
        };
        let mut lane = self.lane(op, &lanes, bytes);
        if call.flush {
            lane = self.lane(LaneOp::Float(FloatOp::Flush, width), &[lane], bytes);
        }
        self.bind_float(result, lane, rounded)
    }

    pub(super) fn int(&mut self, data: &OpData, op: IntOp, signed: bool) -> Built<()> {
        let result = data.result();
        let dtype = self.dtype(result)?;
        let width = Int::of(dtype);
        let bytes = dtype.unpacked_bytes() as u8;
        let signed = signed && dtype != DType::B1;
        let mut lanes: SmallVec<[Lane; 3]> = SmallVec::new();
        for &operand in &data.operands {
            let lane = self.raw(operand)?;
            lanes.push(if dtype == DType::I4 && (!signed || op == IntOp::MulHi) {
                self.lane(LaneOp::MaskByte(15), &[lane], 1)
            } else {
                lane
            });
        }
        let lane = match (dtype, op) {
            // Truth values by 1 and by 0.
            (DType::B1, IntOp::Div | IntOp::DivFloor | IntOp::DivCeil) => {
                self.lane(LaneOp::Int(IntOp::And, width, signed), &lanes, bytes)
            }
            (DType::B1, IntOp::Rem) => self.lane(LaneOp::Int(IntOp::Xor, width, signed), &[lanes[0], lanes[0]], bytes),
            (DType::I4, IntOp::MulHi) => {
                let product = self.lane(LaneOp::Int(IntOp::Mul, Int::B8, false), &lanes, 1);
                let four = Lane::Reg(self.constant(4));
                self.lane(LaneOp::Int(IntOp::Shr, Int::B8, false), &[product, four], 1)
            }
            _ => self.lane(LaneOp::Int(op, width, signed), &lanes, bytes),
        };
        let lane = match dtype {
            DType::I4 => self.lane(LaneOp::Wrap4, &[lane], 1),
            DType::B1 if matches!(op, IntOp::Add | IntOp::Sub | IntOp::Mul | IntOp::Neg | IntOp::Shl) => {
                self.lane(LaneOp::MaskByte(1), &[lane], 1)
            }
            _ => lane,
        };
        self.bind_raw(result, lane)
    }

    /// The lane of an integer, with `i4` and `i1` brought to what their signedness says.
    fn int_source(&mut self, value: Value, signed: bool) -> Built<(Lane, Int)> {
        let dtype = self.dtype(value)?;
        let lane = self.raw(value)?;
        let lane = match dtype {
            DType::I4 if !signed => self.lane(LaneOp::MaskByte(15), &[lane], 1),
            DType::B1 if signed => self.lane(LaneOp::Int(IntOp::Neg, Int::B8, true), &[lane], 1),
            _ => lane,
        };
        Ok((lane, Int::of(dtype)))
    }

    fn shift_check(&mut self, count: Value) -> Built<()> {
        let dtype = self.dtype(count)?;
        let (bits, bytes) = (dtype.bits() as u8, dtype.unpacked_bytes() as u8);
        let span = self.span;
        match self.raw(count)? {
            Lane::Reg(reg) => {
                if self.constant_bits(reg).is_none_or(|count| count >= u64::from(bits)) {
                    self.emit(Inst::CheckScalar(ScalarCheck::ShiftCount(reg, bits, bytes), span));
                }
            }
            Lane::Expr(expr) => {
                let known = self.uniform_register(expr).and_then(|(reg, _)| self.constant_bits(reg));
                if known.is_none_or(|count| count >= u64::from(bits)) && !self.strips {
                    let make = move |nodes: &[u16]| Sink::ShiftCount { node: nodes[0], bits, bytes, span };
                    self.run(vec![Wanted::Sink(smallvec![expr], Box::new(make))]);
                }
            }
        }
        Ok(())
    }

    pub(super) fn compare_floats(&mut self, data: &OpData, predicate: Predicate, nan: NanOrder) -> Built<()> {
        let (a, width) = self.float_lane(data.operands[0])?;
        let (b, _) = self.float_lane(data.operands[1])?;
        let lane = self.lane(LaneOp::FloatCmp(predicate, nan, width), &[a, b], 1);
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn integer_power(&mut self, data: &OpData) -> Built<()> {
        let (base, width) = self.float_lane(data.operands[0])?;
        let (exponent, int) = self.int_source(data.operands[1], true)?;
        let bytes = if width == Float::F64 { 8 } else { 4 };
        let lane = self.lane(LaneOp::PowInt(width, int), &[base, exponent], bytes);
        self.bind_float(data.result(), lane, false)
    }

    pub(super) fn divide(&mut self, data: &OpData, signedness: Signedness, rounding: Rounding) -> Built<()> {
        let op = match rounding {
            Rounding::NegativeInf => IntOp::DivFloor,
            Rounding::PositiveInf => IntOp::DivCeil,
            _ => IntOp::Div,
        };
        self.int(data, op, signedness == Signedness::Signed)
    }

    pub(super) fn shift(&mut self, data: &OpData, op: IntOp, signed: bool) -> Built<()> {
        self.shift_check(data.operands[1])?;
        self.int(data, op, signed)
    }

    pub(super) fn compare_integers(&mut self, data: &OpData, predicate: Predicate, signedness: Signedness) -> Built<()> {
        let dtype = self.dtype(data.operands[0])?;
        let signed = signedness == Signedness::Signed && dtype != DType::B1;
        let mut lanes: SmallVec<[Lane; 2]> = SmallVec::new();
        for &operand in &data.operands {
            let lane = self.raw(operand)?;
            lanes.push(if dtype == DType::I4 && !signed { self.lane(LaneOp::MaskByte(15), &[lane], 1) } else { lane });
        }
        let lane = self.lane(LaneOp::IntCmp(predicate, Int::of(dtype), signed), &lanes, 1);
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn bitcast(&mut self, data: &OpData) -> Built<()> {
        let (from, to) = (self.dtype(data.operands[0])?, self.dtype(data.result())?);
        let lane = self.raw(data.operands[0])?;
        let lane = match (from == DType::I4, to == DType::I4) {
            (true, false) => self.lane(LaneOp::MaskByte(15), &[lane], 1),
            (false, true) => self.lane(LaneOp::Wrap4, &[lane], 1),
            _ => lane,
        };
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn extend_integer(&mut self, data: &OpData, signedness: Signedness) -> Built<()> {
        let signed = signedness == Signedness::Signed;
        let (lane, from) = self.int_source(data.operands[0], signed)?;
        let to = self.dtype(data.result())?;
        let lane = self.lane(LaneOp::Resize(from, signed, Int::of(to)), &[lane], to.unpacked_bytes() as u8);
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn truncate(&mut self, data: &OpData) -> Built<()> {
        let from = Int::of(self.dtype(data.operands[0])?);
        let to = self.dtype(data.result())?;
        let lane = self.raw(data.operands[0])?;
        let mut lane = self.lane(LaneOp::Resize(from, false, Int::of(to)), &[lane], to.unpacked_bytes() as u8);
        match to {
            DType::B1 => lane = self.lane(LaneOp::MaskByte(1), &[lane], 1),
            DType::I4 => lane = self.lane(LaneOp::Wrap4, &[lane], 1),
            _ => {}
        }
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn integer_to_pointer(&mut self, data: &OpData) -> Built<()> {
        let (lane, from) = self.int_source(data.operands[0], false)?;
        let lane = if from == Int::B64 { lane } else { self.lane(LaneOp::Resize(from, false, Int::B64), &[lane], 8) };
        self.bind_raw(data.result(), lane)
    }

    /// A pointer as another one or as an integer: the same bits of the same array.
    pub(super) fn keep_address(&mut self, data: &OpData) -> Built<()> {
        self.origins[data.result().index()] = self.origin(data.operands[0]);
        let lane = self.raw(data.operands[0])?;
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn offset(&mut self, data: &OpData) -> Built<()> {
        let Elem::Ptr(to) = self.tile_type(data.operands[0])?.elem else {
            return Err(self.refuse("cpu-type", "only pointers can be moved"));
        };
        if to.bits() < 8 && !to.is_byte_bool() {
            let message = format!("pointers to `{to}` can't be moved: its elements share bytes; use a view");
            return Err(self.refuse("cpu-packed-pointer", message));
        }
        self.origins[data.result().index()] = self.origin(data.operands[0]);
        let pointers = self.raw(data.operands[0])?;
        let (offsets, width) = self.int_source(data.operands[1], true)?;
        let lane = self.lane(LaneOp::Offset(width, to.unpacked_bytes() as u8), &[pointers, offsets], 8);
        self.bind_raw(data.result(), lane)
    }

    pub(super) fn select(&mut self, data: &OpData) -> Built<()> {
        let (result, operands) = (data.result(), &data.operands);
        let condition = self.raw(operands[0])?;
        let is_wide = |this: &Self, value: Value| matches!(this.values[value.index()], Some(Val::Tile { wide: true, .. }));
        if self.origin(operands[1]) == self.origin(operands[2]) {
            self.origins[result.index()] = self.origin(operands[1]);
        }
        if is_wide(self, operands[1]) || is_wide(self, operands[2]) {
            let (a, _) = self.float_lane(operands[1])?;
            let (b, _) = self.float_lane(operands[2])?;
            let lane = self.lane(LaneOp::Select(4), &[condition, a, b], 4);
            return self.bind_float(result, lane, true);
        }
        let bytes = element_bytes(self.tile_type(result)?.elem);
        let a = self.raw(operands[1])?;
        let b = self.raw(operands[2])?;
        let lane = self.lane(LaneOp::Select(bytes), &[condition, a, b], bytes);
        self.bind_raw(result, lane)
    }

    pub(super) fn float_to_float(&mut self, result: Value, source: Value, rounding: Rounding) -> Built<()> {
        let (from, to) = (self.dtype(source)?, self.dtype(result)?);
        let nearest = matches!(rounding, Rounding::NearestEven | Rounding::Approx | Rounding::Full);
        let widening = to == DType::F64 || (to == DType::F32 && from != DType::F64);
        if !widening && (!nearest || from == DType::F64 && to != DType::F32) {
            let lane = self.raw(source)?;
            let lane = self.lane(LaneOp::Recode(from, to, rounding), &[lane], to.unpacked_bytes() as u8);
            return self.bind_raw(result, lane);
        }
        let (lane, _) = self.float_lane(source)?;
        match (from, to) {
            (DType::F64, DType::F32) => {
                let lane = self.lane(LaneOp::F64ToF32, &[lane], 4);
                self.bind_raw(result, lane)
            }
            (DType::F64, _) => self.bind_raw(result, lane),
            (_, DType::F64) => {
                let lane = self.lane(LaneOp::F32ToF64, &[lane], 8);
                self.bind_raw(result, lane)
            }
            _ => self.bind_float(result, lane, false),
        }
    }

    pub(super) fn float_to_integer(&mut self, result: Value, source: Value, signed: bool, rounding: Rounding) -> Built<()> {
        let to = self.dtype(result)?;
        let (mut lane, width) = self.float_lane(source)?;
        let bytes = if width == Float::F64 { 8 } else { 4 };
        match rounding {
            Rounding::NegativeInf => lane = self.lane(LaneOp::Float(FloatOp::Floor, width), &[lane], bytes),
            Rounding::PositiveInf => lane = self.lane(LaneOp::Float(FloatOp::Ceil, width), &[lane], bytes),
            _ => {}
        }
        let int = Int::of(to);
        let mut lane = self.lane(LaneOp::FloatToInt(width, int, signed), &[lane], to.unpacked_bytes() as u8);
        let limits: &[(IntOp, i64)] = match (to, signed) {
            (DType::B1, _) => &[(IntOp::Min, 1), (IntOp::Max, 0)],
            (DType::I4, true) => &[(IntOp::Min, 7), (IntOp::Max, -8)],
            (DType::I4, false) => &[(IntOp::Min, 15)],
            _ => &[],
        };
        for &(op, limit) in limits {
            let limit = Lane::Reg(self.constant(u64::from(limit as u8)));
            lane = self.lane(LaneOp::Int(op, Int::B8, signed), &[lane, limit], 1);
        }
        if to == DType::I4 {
            lane = self.lane(LaneOp::Wrap4, &[lane], 1);
        }
        self.bind_raw(result, lane)
    }

    pub(super) fn integer_to_float(&mut self, result: Value, source: Value, signed: bool, rounding: Rounding) -> Built<()> {
        let (from, to) = (self.dtype(source)?, self.dtype(result)?);
        let (lane, int) = self.int_source(source, signed)?;
        let fits = from.unpacked_bytes() <= 2;
        let nearest = matches!(rounding, Rounding::NearestEven | Rounding::Approx | Rounding::Full) || fits && !is_narrow(to);
        let width = if to == DType::F64 { Float::F64 } else { Float::F32 };
        if nearest && (!is_narrow(to) || fits) {
            let bytes = if to == DType::F64 { 8 } else { 4 };
            let lane = self.lane(LaneOp::IntToFloat(int, signed, width), &[lane], bytes);
            return self.bind_float(result, lane, false);
        }
        let lane = self.lane(LaneOp::Encode(from, signed, to, rounding), &[lane], to.unpacked_bytes() as u8);
        self.bind_raw(result, lane)
    }

    pub(super) fn assume(&mut self, result: Value, source: Value, predicate: &tessera_ir::attrs::Assumption) -> Built<()> {
        self.origins[result.index()] = self.origin(source);
        let val = self.val(source)?;
        let span = self.span;
        match &val {
            Val::Reg(reg) => {
                let bytes = element_bytes(self.tile_type(source)?.elem);
                self.emit(Inst::CheckScalar(ScalarCheck::Assume(*reg, *predicate, bytes), span));
            }
            Val::Tile { expr, wide: false } if !self.strips => {
                let bytes = element_bytes(self.tile_type(source)?.elem);
                let predicate = *predicate;
                let make = move |nodes: &[u16]| Sink::Assume { node: nodes[0], predicate, bytes, span };
                self.run(vec![Wanted::Sink(smallvec![*expr], Box::new(make))]);
            }
            _ => {}
        }
        self.bind(result, val);
        Ok(())
    }
}
