//! Arithmetic of block numbers and rounds: scalars of 32 bits.

use tessera_ir::attrs::{Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{Builder, Const, ScheduleOp, Shape, Type, Value};
use tessera_types::DType;

/// Sums, quotients and choices of scalars, appended where a builder stands.
pub(super) trait Numbers {
    fn number(&mut self, number: i64) -> Value;
    fn plus(&mut self, l: Value, r: Value) -> Value;
    fn minus(&mut self, l: Value, r: Value) -> Value;
    fn times(&mut self, l: Value, r: Value) -> Value;
    /// The quotient of numbers that are not negative, rounded down; the divisor is not zero.
    fn over(&mut self, l: Value, r: Value) -> Value;
    /// The same, rounded up.
    fn over_up(&mut self, l: Value, r: Value) -> Value;
    /// What the division leaves.
    fn modulo(&mut self, l: Value, r: Value) -> Value;
    fn least(&mut self, l: Value, r: Value) -> Value;
    fn most(&mut self, l: Value, r: Value) -> Value;
    fn is(&mut self, l: Value, predicate: Predicate, r: Value) -> Value;
    fn both(&mut self, l: Value, r: Value) -> Value;
    fn choose(&mut self, condition: Value, yes: Value, no: Value) -> Value;
}

impl Numbers for Builder<'_> {
    fn number(&mut self, number: i64) -> Value {
        self.constant(Const::int(DType::I32, number), Shape::new())
    }

    fn plus(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[l, r])
    }

    fn minus(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::SubI { overflow: Overflow::Wraps }, &[l, r])
    }

    fn times(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[l, r])
    }

    fn over(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::DivI { signedness: Signedness::Unsigned, rounding: Rounding::Zero }, &[l, r])
    }

    fn over_up(&mut self, l: Value, r: Value) -> Value {
        let one = self.number(1);
        let most = self.minus(r, one);
        let raised = self.plus(l, most);
        self.over(raised, r)
    }

    fn modulo(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::RemI { signedness: Signedness::Unsigned }, &[l, r])
    }

    fn least(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::MinI { signedness: Signedness::Signed }, &[l, r])
    }

    fn most(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::MaxI { signedness: Signedness::Signed }, &[l, r])
    }

    fn is(&mut self, l: Value, predicate: Predicate, r: Value) -> Value {
        let kind = ScheduleOp::CmpI { predicate, signedness: Signedness::Signed };
        self.value(kind, &[&[l], &[r]], Type::scalar(DType::B1))
    }

    fn both(&mut self, l: Value, r: Value) -> Value {
        self.same(ScheduleOp::AndI {}, &[l, r])
    }

    fn choose(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        let ty = self.func.ty(yes).clone();
        self.value(ScheduleOp::Select {}, &[&[condition], &[yes], &[no]], ty)
    }
}
