//! Integers up to multiples of a power of two: sums of products of values, of which a remainder is what it is taken of.
//!
//! ```text
//! %o = muli %i, %stride ; %s = remi %o, 8 ; %p = subi %o, %s        %p = 0 modulo 8, whatever %i and %stride are
//! ```
//!
//! Wrapping in 8 bits and more changes nothing modulo 16, so that sums and products are followed whatever their overflow.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::{Const, Func, OpKind, ScheduleOp, Value};

use super::facts::{Facts, power};

/// What numbers are told apart by: no access has more elements.
pub const MODULUS: u64 = 16;

/// How far a definition is followed.
const DEEPEST: u32 = 24;

/// A sum of products, modulo [`MODULUS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Factors that are no constants, in order, none at all for the constant; and what their product is multiplied by.
    terms: BTreeMap<SmallVec<[Value; 2]>, u64>,
}

impl Residue {
    /// A constant.
    pub fn number(number: i64) -> Residue {
        let mut residue = Residue::default();
        residue.add(SmallVec::new(), number.rem_euclid(MODULUS as i64) as u64);
        residue
    }

    /// An integer.
    pub fn of(func: &Func, value: Value) -> Residue {
        followed(func, value, 0)
    }

    /// The sum of two.
    pub fn plus(mut self, other: &Residue) -> Residue {
        other.terms.iter().for_each(|(factors, &times)| self.add(factors.clone(), times));
        self
    }

    /// The product of two.
    pub fn times(&self, other: &Residue) -> Residue {
        let mut product = Residue::default();
        for (a, &by) in &self.terms {
            for (b, &times) in &other.terms {
                let mut factors: SmallVec<[Value; 2]> = a.iter().chain(b).copied().collect();
                factors.sort_unstable();
                product.add(factors, by * times);
            }
        }
        product
    }

    /// The difference of two.
    pub fn minus(self, other: &Residue) -> Residue {
        self.plus(&other.times(&Residue::number(-1)))
    }

    /// The largest power of two, up to the modulus, that is known to divide it.
    pub fn divisor(&self, facts: &Facts) -> u64 {
        let of = |(factors, &times): (&SmallVec<[Value; 2]>, &u64)| {
            factors.iter().fold(power(times), |all, &value| (all * power(facts.fact(value).divisor).min(MODULUS)).min(MODULUS))
        };
        self.terms.iter().map(of).fold(MODULUS, u64::min)
    }

    fn add(&mut self, factors: SmallVec<[Value; 2]>, times: u64) {
        let all = self.terms.entry(factors.clone()).or_default();
        *all = (*all + times) % MODULUS;
        if *all == 0 {
            self.terms.remove(&factors);
        }
    }
}

fn followed(func: &Func, value: Value, depth: u32) -> Residue {
    let itself = || Residue { terms: BTreeMap::from([(SmallVec::from_slice(&[value]), 1)]) };
    // Of narrower integers, as truth values, wrapping and signs count.
    if func.ty(value).num().is_none_or(|dtype| dtype.bits() < 8) {
        return itself();
    }
    if let Some(number) = func.constant(value).and_then(Const::as_int) {
        return Residue::number(number);
    }
    let Some(data) = func.defining_op(value).filter(|_| depth < DEEPEST).map(|op| &func.ops[op]) else { return itself() };
    let OpKind::Schedule(kind) = &data.kind else { return itself() };
    let of = |at: usize| followed(func, data.operands[at], depth + 1);
    let number = |at: usize| func.constant(data.operands[at]).and_then(Const::as_int);
    let is_multiple = |number: i64| number > 0 && (number as u64).is_multiple_of(MODULUS);
    match kind {
        ScheduleOp::AddI { .. } => of(0).plus(&of(1)),
        ScheduleOp::SubI { .. } => of(0).minus(&of(1)),
        ScheduleOp::MulI { .. } => of(0).times(&of(1)),
        ScheduleOp::RemI { .. } if number(1).is_some_and(is_multiple) => of(0),
        ScheduleOp::AndI {} if number(1).is_some_and(|mask| is_multiple(mask.wrapping_add(1))) => of(0),
        ScheduleOp::ExtI { .. } | ScheduleOp::TruncI { .. } | ScheduleOp::Assume { .. } => of(0),
        _ => itself(),
    }
}
