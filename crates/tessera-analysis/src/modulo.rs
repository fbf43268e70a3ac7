//! Integers up to multiples of a power of two: sums of products of values, of which a remainder is what it is taken of.
//!
//! ```text
//! %o = muli %i, %stride ; %s = remi %o, 8 ; %p = subi %o, %s        %p = 0 modulo 8, whatever %i and %stride are
//! ```
//!
//! Wrapping in 8 bits and more changes nothing modulo 16, so that sums and products are followed whatever their overflow. Rounds of a loop whose counter
//! goes up by a multiple of 8 are alike modulo 8, where it began.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::{Const, Func, OpKind, ScheduleOp, Value};

use super::facts::{Facts, power};

/// What numbers are told apart by: no access has more elements.
pub const MODULUS: u64 = 16;

/// How far a definition is followed.
const DEEPEST: u32 = 24;

/// A sum of products, modulo a power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residue {
    /// Factors that are no constants, in order, none at all for the constant; and what their product is multiplied by.
    terms: BTreeMap<SmallVec<[Value; 2]>, u64>,
    /// At most [`MODULUS`].
    modulus: u64,
}

impl Residue {
    /// A constant.
    pub fn number(number: i64) -> Residue {
        let mut residue = Residue { terms: BTreeMap::new(), modulus: MODULUS };
        residue.add(SmallVec::new(), number.rem_euclid(MODULUS as i64) as u64);
        residue
    }

    /// An integer.
    pub fn of(func: &Func, facts: &Facts, value: Value) -> Residue {
        followed(func, facts, value, 0)
    }

    /// What it is known modulo.
    pub fn modulus(&self) -> u64 {
        self.modulus
    }

    /// The products, each by what is no constant and what that is multiplied by.
    pub fn terms(&self) -> impl Iterator<Item = (&[Value], u64)> {
        self.terms.iter().map(|(factors, &times)| (factors.as_slice(), times))
    }

    /// The same modulo a power of two that may be smaller.
    pub fn modulo(mut self, modulus: u64) -> Residue {
        self.modulus = self.modulus.min(modulus);
        self.terms.values_mut().for_each(|times| *times %= self.modulus);
        self.terms.retain(|_, times| *times > 0);
        self
    }

    /// The sum of two.
    pub fn plus(self, other: &Residue) -> Residue {
        let mut sum = self.modulo(other.modulus);
        other.terms.iter().for_each(|(factors, &times)| sum.add(factors.clone(), times));
        sum
    }

    /// The product of two: what is not known of one counts as often as the other one divides.
    pub fn times(&self, other: &Residue, facts: &Facts) -> Residue {
        let unknown = [self.modulus * other.modulus, self.modulus * other.divisor(facts), other.modulus * self.divisor(facts)];
        let mut product = Residue::number(0).modulo(unknown.into_iter().fold(MODULUS, u64::min));
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
        let mut less = other.clone();
        less.terms.values_mut().for_each(|times| *times = less.modulus - *times);
        self.plus(&less)
    }

    /// The largest power of two modulo which both are known to be the same.
    fn alike(&self, other: &Residue) -> Option<u64> {
        let same = |modulus: &u64| self.clone().modulo(*modulus).terms == other.clone().modulo(*modulus).terms;
        let halves = std::iter::successors(Some(self.modulus.min(other.modulus)), |modulus| Some(modulus / 2));
        halves.take_while(|modulus| *modulus > 1).find(same)
    }

    /// The largest power of two, up to the modulus, that is known to divide it.
    pub fn divisor(&self, facts: &Facts) -> u64 {
        let of = |(factors, &times): (&SmallVec<[Value; 2]>, &u64)| {
            factors.iter().fold(power(times), |all, &value| (all * power(facts.fact(value).divisor).min(MODULUS)).min(MODULUS))
        };
        self.terms.iter().map(of).fold(self.modulus, u64::min)
    }

    fn add(&mut self, factors: SmallVec<[Value; 2]>, times: u64) {
        let all = self.terms.entry(factors.clone()).or_default();
        *all = (*all + times) % self.modulus;
        if *all == 0 {
            self.terms.remove(&factors);
        }
    }
}

/// The largest power of two, up to [`MODULUS`], whose multiples those of a number are; none where it is odd or zero.
fn within(number: u64) -> Option<u64> {
    Some(power(number).min(MODULUS)).filter(|&modulus| number > 0 && modulus > 1)
}

fn followed(func: &Func, facts: &Facts, value: Value, depth: u32) -> Residue {
    let itself = || Residue { terms: BTreeMap::from([(SmallVec::from_slice(&[value]), 1)]), modulus: MODULUS };
    // Of narrower integers, as truth values, wrapping and signs count.
    if func.ty(value).num().is_none_or(|dtype| dtype.bits() < 8) {
        return itself();
    }
    if let Some(number) = func.constant(value).and_then(Const::as_int) {
        return Residue::number(number);
    }
    if depth >= DEEPEST {
        return itself();
    }
    if let Some((first, step)) = facts.counter(value) {
        return match within(facts.fact(step).divisor) {
            Some(alike) => followed(func, facts, first, depth + 1).modulo(alike),
            None => itself(),
        };
    }
    let Some(data) = func.defining_op(value).map(|op| &func.ops[op]) else { return itself() };
    let OpKind::Schedule(kind) = &data.kind else { return itself() };
    let of = |at: usize| followed(func, facts, data.operands[at], depth + 1);
    let number = |at: usize| func.constant(data.operands[at]).and_then(Const::as_int);
    match kind {
        ScheduleOp::AddI { .. } => of(0).plus(&of(1)),
        ScheduleOp::SubI { .. } => of(0).minus(&of(1)),
        ScheduleOp::MulI { .. } => of(0).times(&of(1), facts),
        ScheduleOp::RemI { .. } => match number(1).and_then(|divisor| within(divisor.unsigned_abs())) {
            Some(modulus) => of(0).modulo(modulus),
            None => itself(),
        },
        // The low bits that a mask leaves.
        ScheduleOp::AndI {} => match number(1).and_then(|mask| within(mask.wrapping_add(1).unsigned_abs())) {
            Some(modulus) => of(0).modulo(modulus),
            None => itself(),
        },
        // As the remainder of a number that may be negative: one, or one more divisor.
        ScheduleOp::Select {} => match of(1).alike(&of(2)) {
            Some(modulus) => of(1).modulo(modulus),
            None => itself(),
        },
        ScheduleOp::ExtI { .. } | ScheduleOp::TruncI { .. } | ScheduleOp::Assume { .. } => of(0),
        _ => itself(),
    }
}
