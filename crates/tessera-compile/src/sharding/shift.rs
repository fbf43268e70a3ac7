//! Exponentials of differences from a maximum, where the maximum runs over what is divided between ranks.
//!
//! `e = exp(x - max(x))` along a divided axis would wait for the maximum of all ranks before any rank can go on. With its own
//! maximum `m'` instead of the common `m` a rank computes `e' = exp(x - m')`, and `e = e' f` with `f = exp(m' - m)`, one factor a line.
//! The factor is carried through whatever is linear in `e` (sums along the axis, products with values of that rank), and the
//! lines meet at the end:
//!
//! ```text
//! m = all_reduce max m'      sum e = all_reduce sum ((sum e') f)      e V = all_reduce sum ((e' V) f)
//! ```
//!
//! So the ranks compute alone up to one exchange of a maximum a line, followed by one of the sums. A rank whose own line holds
//! nothing but minus infinity takes the least finite number for `m'`: its `e'` is zero, and so is its `f` unless no rank has more,
//! where `f` is infinite and every sum not a number, as it is in one program.

use smallvec::SmallVec;
use tessera_ir::attrs::Combine;
use tessera_ir::{Const, GraphOp, Op, OpKind, ScheduleOp, Shape, Type, Value};
use tessera_types::DType;

use crate::sharding::insert::{Inserter, Variant};
use tessera_analysis::placement::{Dims, Placement};

/// The factors of one difference.
pub(super) struct Scale {
    /// The maximum, as a value of the source.
    maximum: Value,
    /// The rank's own, kept finite from below.
    own: Value,
    /// How lines are divided; nothing along the last axis.
    dims: Dims,
    /// The exponential.
    exponential: OpKind,
}

impl Inserter<'_> {
    /// Makes `x - max(x)` a difference from the rank's own maximum, where what follows can carry a factor.
    pub(super) fn shift(&mut self, op: Op) -> bool {
        let Some((maximum, exponential)) = self.is_shift(op) else { return false };
        let source = self.source;
        let data = &source.ops[op];
        let (from, own) = (self.home(data.one(0)).clone(), self.home(maximum).clone());
        let Some(least) = least(own.elem) else { return false };
        let (lines, whole) =
            (self.part(maximum, own.elem, &own.placement.dims), self.part(data.one(0), from.elem, &from.placement.dims));
        let constant = ScheduleOp::Constant { value: Const::splat(own.elem, least) };
        let constant = self.emit(op, constant.into(), &[], [Type::tile(Shape::new(), own.elem)]);
        let constant = self.func.ops[constant].result();
        let least = self.emit_one(op, GraphOp::Broadcast {}, &[constant], lines.clone());
        let kind = ScheduleOp::MaxF { propagate_nan: false, flush_to_zero: false };
        let finite = self.emit_one(op, kind, &[own.value, least], lines);
        let spread = self.emit_one(op, GraphOp::Broadcast {}, &[finite], whole.clone());
        let value = self.emit_one(op, data.kind.clone(), &[from.value, spread], whole);
        let scale = self.scales.len();
        self.scales.push(Scale { maximum, own: finite, dims: own.placement.dims, exponential });
        self.shifted.insert(data.result(), scale);
        self.define(data.result(), Variant { placement: from.placement, value, elem: from.elem });
        true
    }

    /// The exponential of such a difference, whose factor is still to be applied.
    pub(super) fn exponential(&mut self, op: Op) -> bool {
        let data = &self.source.ops[op];
        let Some(&scale) = data.operands.first().and_then(|operand| self.shifted.get(operand)) else { return false };
        let from = self.home(data.one(0)).clone();
        let ty = self.part(data.result(), from.elem, &from.placement.dims);
        let value = self.emit_one(op, data.kind.clone(), &[from.value], ty);
        let placement = Placement { scaled: Some(scale), ..from.placement };
        self.define(data.result(), Variant { placement, value, elem: from.elem });
        true
    }

    /// A rank's value times its factor.
    pub(super) fn rescaled(&mut self, at: Op, value: Value, variant: &Variant, scale: usize) -> Variant {
        let Scale { maximum, own, ref dims, ref exponential } = self.scales[scale];
        let (dims, exponential) = (dims.clone(), exponential.clone());
        let elem = self.home(maximum).elem;
        let factor = match self.known.factors.get(&scale) {
            Some(&factor) => factor,
            None => {
                let lines = self.part(maximum, elem, &dims);
                let common = self.obtain(at, maximum, &dims);
                let kind = ScheduleOp::SubF { rounding: Default::default(), flush_to_zero: false };
                let difference = self.emit_one(at, kind, &[own, common], lines.clone());
                let factor = self.emit_one(at, exponential, &[difference], lines);
                self.known.factors.insert(scale, factor);
                factor
            }
        };
        let mut factor = factor;
        if elem != variant.elem {
            let lines = self.part(maximum, variant.elem, &dims);
            factor = self.emit_one(at, ScheduleOp::FToF { rounding: Default::default() }, &[factor], lines);
        }
        let ty = self.part(value, variant.elem, &variant.placement.dims);
        let wide = self.func.ty(factor) != self.func.ty(variant.value);
        let spread = if wide { self.emit_one(at, GraphOp::Broadcast {}, &[factor], ty.clone()) } else { factor };
        let kind = ScheduleOp::MulF { rounding: Default::default(), flush_to_zero: false };
        let product = self.emit_one(at, kind, &[variant.value, spread], ty);
        Variant { placement: Placement { scaled: None, ..variant.placement.clone() }, value: product, elem: variant.elem }
    }

    /// Whether a maximum is spread for such a difference alone, which spreads the rank's own instead.
    pub(super) fn is_spread_for_shift(&self, op: Op) -> bool {
        let data = &self.source.ops[op];
        let user = || self.users(data.result()).next().is_some_and(|(user, at)| at == 1 && self.is_shift(user).is_some());
        data.kind == OpKind::Graph(GraphOp::Broadcast {}) && self.uses.get(&data.result()) == Some(&1) && user()
    }

    /// The maximum that is subtracted, and the exponential behind: when the maximum is still to be combined over the axis that
    /// divides the line, and everything that follows carries a factor.
    fn is_shift(&self, op: Op) -> Option<(Value, OpKind)> {
        let source = self.source;
        let data = &source.ops[op];
        let OpKind::Schedule(ScheduleOp::SubF { .. }) = data.kind else { return None };
        let graph = |value: Value| match &source.ops[source.defining_op(value)?] {
            data @ tessera_ir::OpData { kind: OpKind::Graph(kind), .. } => Some((kind, data.one(0))),
            _ => None,
        };
        let (from, (spread, maximum)) = (data.one(0), graph(data.one(1))?);
        let (reduce, reduced) = graph(maximum)?;
        let last = source.ty(from).as_tensor()?.axes.len() - 1;
        let GraphOp::Reduce { axis, combine: Combine::Max } = reduce else { return None };
        let right = *spread == GraphOp::Broadcast {} && reduced == from && *axis as usize == last;
        let (own, whole) = (self.home(maximum), self.home(from));
        let mut lines = whole.placement.dims.clone();
        let over = std::mem::take(&mut lines[last])?;
        let alone = !whole.placement.is_pending() && own.placement.scaled.is_none();
        let pending = own.placement.partial.as_slice() == [over] && own.placement.dims == lines && own.elem == whole.elem;
        if !(right && alone && pending && self.uses[&data.result()] == 1) {
            return None;
        }
        let (user, _) = self.users(data.result()).next()?;
        let exponential = &source.ops[user];
        let kind = match exponential.kind {
            OpKind::Schedule(ScheduleOp::Exp { .. } | ScheduleOp::Exp2 { .. }) => exponential.kind.clone(),
            _ => return None,
        };
        self.folds(exponential.result(), last).then_some((maximum, kind))
    }

    /// The operations that use a value, and where among their operands.
    fn users(&self, value: Value) -> impl Iterator<Item = (Op, usize)> + '_ {
        let source = self.source;
        source.linked_ops().into_iter().flat_map(move |op| {
            let found: SmallVec<[usize; 2]> =
                source.ops[op].operands.iter().enumerate().filter(|(_, operand)| **operand == value).map(|(at, _)| at).collect();
            found.into_iter().map(move |at| (op, at))
        })
    }

    /// Whether every use of a value sums it up along its last axis, possibly after operations that carry a factor.
    fn folds(&self, value: Value, last: usize) -> bool {
        self.users(value).all(|(user, at)| {
            let data = &self.source.ops[user];
            match &data.kind {
                OpKind::Graph(GraphOp::Reduce { axis, combine: Combine::Sum }) => *axis as usize == last,
                OpKind::Graph(GraphOp::Contract {}) => at == 0,
                OpKind::Schedule(ScheduleOp::FToF { .. } | ScheduleOp::NegF {}) => self.folds(data.result(), last),
                OpKind::Schedule(ScheduleOp::MulF { .. }) => {
                    data.operands[0] != data.operands[1] && self.folds(data.result(), last)
                }
                OpKind::Schedule(ScheduleOp::DivF { .. }) => at == 0 && self.folds(data.result(), last),
                _ => false,
            }
        })
    }
}

/// The bits of the least finite number.
fn least(elem: DType) -> Option<u64> {
    match elem {
        DType::F64 => Some(f64::MIN.to_bits()),
        DType::F32 => Some(u64::from(f32::MIN.to_bits())),
        DType::F16 => Some(0xfbff),
        DType::BF16 => Some(0xff7f),
        _ => None,
    }
}
