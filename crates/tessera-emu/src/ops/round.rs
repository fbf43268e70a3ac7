//! Rounding: fused sums through `f64`, directed modes through an exact library, roots by their remainders.
//!
//! `f64` holds the product of two `f32` (or narrower) numbers exactly. [`add_odd`] adds to it and rounds to odd: where digits
//! are lost, the last bit becomes one. Any later rounding to at most 51 bits then gives what one rounding would have given.

use rustc_apfloat::ieee::{Double, Single};
use rustc_apfloat::{Float, Round};
use tessera_ptx::Word;

/// The NaN that the chip's `f32` instructions give.
pub(crate) const NAN_F32: u32 = 0x7fff_ffff;
/// The NaN that the chip's `f64` instructions give.
pub(crate) const NAN_F64: u64 = 0xfff8_0000_0000_0000;

/// `a + b`, rounded to odd.
#[inline(always)]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    let bits = sum.to_bits();
    let away = (error > 0.0) == (sum > 0.0);
    let moved = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let inexact = error != 0.0 && sum.is_finite() && error.is_finite() && bits & 1 == 0;
    f64::from_bits(if inexact { moved } else { bits })
}

/// `a * b + c` for operands of at most 26 significant bits, rounded to odd.
#[inline(always)]
pub(crate) fn fma_odd(a: f32, b: f32, c: f32) -> f64 {
    add_odd(f64::from(a) * f64::from(b), f64::from(c))
}

/// A rounding mode other than to nearest even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directed {
    Zero,
    Down,
    Up,
}

impl Directed {
    pub(crate) fn of(word: Word) -> Option<Directed> {
        match word {
            Word::Rz | Word::Rzi => Some(Directed::Zero),
            Word::Rm | Word::Rmi => Some(Directed::Down),
            Word::Rp | Word::Rpi => Some(Directed::Up),
            _ => None,
        }
    }

    const fn round(self) -> Round {
        match self {
            Directed::Zero => Round::TowardZero,
            Directed::Down => Round::TowardNegative,
            Directed::Up => Round::TowardPositive,
        }
    }
}

/// An operation with a directed mode: mnemonic and operands; a fused one takes all three.
pub(crate) fn single(mnemonic: Operation, mode: Directed, a: f32, b: f32, c: f32) -> f32 {
    let [a, b, c] = [a, b, c].map(|x| Single::from_bits(u128::from(x.to_bits())));
    f32::from_bits(apply(mnemonic, mode.round(), a, b, c).to_bits() as u32)
}

/// As [`single`].
pub(crate) fn double(mnemonic: Operation, mode: Directed, a: f64, b: f64, c: f64) -> f64 {
    let [a, b, c] = [a, b, c].map(|x| Double::from_bits(u128::from(x.to_bits())));
    f64::from_bits(apply(mnemonic, mode.round(), a, b, c).to_bits() as u64)
}

/// What a directed rounding is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Fma,
    Sqrt,
}

fn apply<F: Float>(operation: Operation, round: Round, a: F, b: F, c: F) -> F {
    match operation {
        Operation::Add => a.add_r(b, round).value,
        Operation::Sub => a.sub_r(b, round).value,
        Operation::Mul => a.mul_r(b, round).value,
        Operation::Div => a.div_r(b, round).value,
        Operation::Fma => a.mul_add_r(b, c, round).value,
        Operation::Sqrt => sqrt(a, round),
    }
}

/// The root by bisection over the format's codes: the largest number whose square is no more than `x`, then the mode.
fn sqrt<F: Float>(x: F, round: Round) -> F {
    if x.is_nan() || x.is_zero() || (x.is_infinite() && !x.is_negative()) {
        return x;
    }
    if x.is_negative() {
        return F::NAN;
    }
    let (mut low, mut high) = (0u128, F::INFINITY.to_bits());
    while high - low > 1 {
        let middle = (low + high) / 2;
        let root = F::from_bits(middle);
        // Rounding the square down keeps the comparison exact: a square beyond x stays at or beyond it.
        if root.mul_r(root, Round::TowardPositive).value <= x { low = middle } else { high = middle }
    }
    let root = F::from_bits(low);
    let exact = root.mul_r(root, Round::TowardZero).value == x && root.mul_r(root, Round::TowardPositive).value == x;
    if round == Round::TowardPositive && !exact { F::from_bits(low + 1) } else { root }
}
