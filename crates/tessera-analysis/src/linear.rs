//! Integers as sums: constants times values, and a constant. Two indices with the same terms are a known distance apart.
//!
//! ```text
//! %a = muli %t, 4 ; %b = addi %a, %k ; %c = addi %b, 3        %c = 4 %t + %k + 3
//! ```
//!
//! Sums of 64-bit integers wrap as addresses do, so they are followed always. Narrower ones are followed where they cannot wrap,
//! or where the caller says that wrapping makes no difference ([`Wraps::Ignored`]).

use smallvec::SmallVec;
use tessera_ir::attrs::{Overflow, Signedness};
use tessera_ir::{Const, Func, IndexType, OpKind, ParamKind, ScheduleOp, Value};

use super::arrays::array_at;
use super::facts::{Facts, power};

/// How far a definition is followed.
const DEEPEST: u32 = 24;

/// Whether a narrow sum that may wrap is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wraps {
    /// It is, since all who look at it count as it does.
    Ignored,
    /// It is a term of its own.
    Kept,
}

impl Wraps {
    /// For indices from a pointer on: elements of an array with 32-bit sizes are less than 2^31 apart, so that what differs by one in
    /// 32 bits differs by one.
    pub fn within(func: &Func, pointer: Value) -> Wraps {
        match array_at(func, pointer).map(|position| &func.abi.params[position].kind) {
            Some(ParamKind::Array { index: IndexType::I32, .. }) => Wraps::Ignored,
            _ => Wraps::Kept,
        }
    }
}

/// A sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linear {
    /// Values and what they are multiplied by, in the order of values, none by zero.
    pub terms: SmallVec<[(Value, i64); 4]>,
    /// What is added to them.
    pub constant: i64,
}

impl Linear {
    /// The sum that an integer is.
    pub fn of(func: &Func, facts: &Facts, value: Value, wraps: Wraps) -> Linear {
        let mut sum = Linear::default();
        let walk = Walk { func, facts };
        walk.add(&mut sum, value, 1, wraps, 0);
        sum.terms.sort_unstable();
        sum
    }

    /// A power of two (at most 2^20) that divides the terms together, whatever the constant is.
    pub fn terms_divisor(&self, facts: &Facts) -> u64 {
        let of = |&(value, factor): &(Value, i64)| power(facts.fact(value).divisor) * power(factor.unsigned_abs());
        self.terms.iter().map(of).fold(power(0), u64::min)
    }

    /// The sum of two sums.
    pub fn plus(mut self, other: &Linear) -> Linear {
        other.terms.iter().for_each(|&(value, factor)| self.term(value, factor));
        self.terms.sort_unstable();
        self.constant = self.constant.wrapping_add(other.constant);
        self
    }

    fn term(&mut self, value: Value, factor: i64) {
        if factor == 0 {
            return;
        }
        match self.terms.iter().position(|&(known, _)| known == value) {
            Some(at) => {
                self.terms[at].1 = self.terms[at].1.wrapping_add(factor);
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
            None => self.terms.push((value, factor)),
        }
    }
}

struct Walk<'f> {
    func: &'f Func,
    facts: &'f Facts,
}

impl Walk<'_> {
    fn add(&self, sum: &mut Linear, value: Value, factor: i64, wraps: Wraps, depth: u32) {
        if let Some(number) = self.func.constant(value).and_then(Const::as_int) {
            sum.constant = sum.constant.wrapping_add(number.wrapping_mul(factor));
            return;
        }
        let parts = if depth < DEEPEST { self.parts(value, wraps) } else { None };
        match parts {
            Some(parts) => {
                for (part, times, wraps) in parts {
                    self.add(sum, part, factor.wrapping_mul(times), wraps, depth + 1);
                }
            }
            None => sum.term(value, factor),
        }
    }

    /// What a value is the sum of.
    fn parts(&self, value: Value, wraps: Wraps) -> Option<SmallVec<[(Value, i64, Wraps); 2]>> {
        let func = self.func;
        let data = &func.ops[func.defining_op(value)?];
        let OpKind::Schedule(kind) = &data.kind else { return None };
        let bits = func.ty(value).num()?.bits();
        let number = |at: usize| func.constant(data.operands[at]).and_then(Const::as_int);
        let fact = |at: usize| self.facts.fact(data.operands[at]);
        let range = |at: usize| [i128::from(fact(at).least), i128::from(fact(at).greatest)];
        let fits = |ends: &[i128], overflow: &Overflow| {
            let most = (1i128 << (bits - 1)) - 1;
            bits == 64
                || wraps == Wraps::Ignored
                || matches!(overflow, Overflow::NoSigned | Overflow::NoWrap)
                || ends.iter().all(|&end| -most - 1 <= end && end <= most)
        };
        let two = |a: i64, b: i64| Some(SmallVec::from_slice(&[(data.operands[0], a, wraps), (data.operands[1], b, wraps)]));
        match kind {
            ScheduleOp::AddI { overflow } => {
                let (a, b) = (range(0), range(1));
                if fits(&[a[0] + b[0], a[1] + b[1]], overflow) { two(1, 1) } else { None }
            }
            ScheduleOp::SubI { overflow } => {
                let (a, b) = (range(0), range(1));
                if fits(&[a[0] - b[1], a[1] - b[0]], overflow) { two(1, -1) } else { None }
            }
            ScheduleOp::MulI { overflow } => {
                let (at, by) = match (number(0), number(1)) {
                    (_, Some(by)) => (0, by),
                    (Some(by), None) => (1, by),
                    (None, None) => return None,
                };
                let ends = range(at).map(|end| end * i128::from(by));
                fits(&ends, overflow).then(|| SmallVec::from_slice(&[(data.operands[at], by, wraps)]))
            }
            ScheduleOp::ShlI { overflow } => {
                let by = number(1).filter(|by| (0..i64::from(bits) - 1).contains(by))?;
                let ends = range(0).map(|end| end << by);
                fits(&ends, overflow).then(|| SmallVec::from_slice(&[(data.operands[0], 1 << by, wraps)]))
            }
            ScheduleOp::ExtI { signedness } => {
                let plain = *signedness == Signedness::Signed || fact(0).is_non_negative();
                plain.then(|| SmallVec::from_slice(&[(data.operands[0], 1, Wraps::Kept)]))
            }
            ScheduleOp::Assume { .. } => Some(SmallVec::from_slice(&[(data.operands[0], 1, wraps)])),
            _ => None,
        }
    }
}
