//! Arithmetic of block numbers and rounds: scalars of 32 bits, or of 64 where sums and products shall not wrap.

use tessera_ir::attrs::{Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{Block, Builder, Const, Func, Op, ScheduleOp, Shape, Span, Type, Value};
use tessera_types::DType;

/// A number that others are divided by, and what makes that quick: 2^32 - 1 over it, rounded down. A division takes a hundred clocks or more,
/// and each block that takes several tiles makes one after the other between them; the reciprocal is the same for all of them. A block that
/// divides once has no use of it.
#[derive(Clone, Copy)]
pub(super) struct Divisor {
    pub(super) by: Value,
    pub(super) reciprocal: Option<Value>,
}

/// Makes operations that are to be put somewhere, in order, and what comes of them.
pub(super) fn apart<T>(func: &mut Func, span: Span, make: impl FnOnce(&mut Builder<'_>) -> T) -> (Vec<Op>, T) {
    let block: Block = func.new_block();
    let made = make(&mut Builder { func, block, span });
    (std::mem::take(&mut func.blocks[block].ops), made)
}

/// Sums, quotients and choices of scalars, appended where a builder stands.
pub(super) trait Numbers {
    fn number(&mut self, number: i64) -> Value;
    /// A number of 64 bits.
    fn wide_number(&mut self, number: i64) -> Value;
    /// An integer in 64 bits.
    fn wide(&mut self, value: Value) -> Value;
    /// An integer that fits the type of another one, in that type.
    fn narrow(&mut self, value: Value, like: Value) -> Value;
    fn plus(&mut self, l: Value, r: Value) -> Value;
    fn minus(&mut self, l: Value, r: Value) -> Value;
    fn times(&mut self, l: Value, r: Value) -> Value;
    /// The quotient of numbers that are not negative, rounded down; the divisor is not zero.
    fn over(&mut self, l: Value, r: Value) -> Value;
    /// The same, rounded up.
    fn over_up(&mut self, l: Value, r: Value) -> Value;
    /// What the division leaves.
    fn modulo(&mut self, l: Value, r: Value) -> Value;
    /// A divisor that is not zero, and is divided by again and again where `often`.
    fn divisor(&mut self, by: Value, often: bool) -> Divisor;
    /// The quotient of a number that is not negative, rounded down, and what is left.
    fn divided(&mut self, number: Value, divisor: Divisor) -> [Value; 2];
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

    fn wide_number(&mut self, number: i64) -> Value {
        self.constant(Const::int(DType::I64, number), Shape::new())
    }

    fn wide(&mut self, value: Value) -> Value {
        match self.func.ty(value).num() {
            Some(DType::I64) => value,
            _ => self.value(ScheduleOp::ExtI { signedness: Signedness::Signed }, &[&[value]], Type::scalar(DType::I64)),
        }
    }

    fn narrow(&mut self, value: Value, like: Value) -> Value {
        let ty = self.func.ty(like).clone();
        match ty.num() {
            Some(DType::I64) => value,
            _ => self.value(ScheduleOp::TruncI { overflow: Overflow::Wraps }, &[&[value]], ty),
        }
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

    fn divisor(&mut self, by: Value, often: bool) -> Divisor {
        let reciprocal = often.then(|| {
            let most = self.number(-1);
            self.over(most, by)
        });
        Divisor { by, reciprocal }
    }

    fn divided(&mut self, number: Value, divisor: Divisor) -> [Value; 2] {
        let Some(reciprocal) = divisor.reciprocal else {
            return [self.over(number, divisor.by), self.modulo(number, divisor.by)];
        };
        // With n < 2^32 and m the reciprocal, n / d - n m / 2^32 is at least 0 and less than 1: the quotient is this one or the next.
        let quotient = self.same(ScheduleOp::MulHiI {}, &[number, reciprocal]);
        let product = self.times(quotient, divisor.by);
        let rest = self.minus(number, product);
        let more = self.is(rest, Predicate::Ge, divisor.by);
        let one = self.number(1);
        let next = self.plus(quotient, one);
        let less = self.minus(rest, divisor.by);
        [self.choose(more, next, quotient), self.choose(more, less, rest)]
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
