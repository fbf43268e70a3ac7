//! Packed integers in one register: four bytes or two halves (PTX ISA, "SIMD Video Instructions").
//!
//! Each part of `a` and `b` is extended by its operand's type; the part's result is cut or saturated to the result's type, or
//! all results are added to `c`. With `vadd4.u32.u32.u32`: `0x01ff_0203 + 0x0101_0101 = 0x0200_0304`.

use tessera_ptx::Word;

/// What is computed of each pair of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Add,
    Subtract,
    Average,
    Difference,
    Least,
    Most,
    Set(Word),
}

/// An instruction: which sides are signed, and what becomes of the results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Video {
    pub(crate) how: How,
    /// Four bytes rather than two halves.
    pub(crate) bytes: bool,
    pub(crate) to: bool,
    pub(crate) a: bool,
    pub(crate) b: bool,
    pub(crate) saturate: bool,
    pub(crate) sum: bool,
}

impl Video {
    pub(crate) fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let bits = if self.bytes { 8 } else { 16 };
        let (mut packed, mut sum) = (0, c);
        for part in 0..32 / bits {
            let take = |word: u32, signed: bool| {
                let value = word >> (part * bits) & ((1 << bits) - 1);
                if signed { (value << (32 - bits)) as i32 >> (32 - bits) } else { value as i32 }
            };
            let mut value = self.one(take(a, self.a), take(b, self.b));
            if self.saturate {
                let (low, high) = if self.to { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
                value = value.clamp(low, high);
            }
            packed |= (value as u32 & ((1 << bits) - 1)) << (part * bits);
            sum = sum.wrapping_add(value as u32);
        }
        if self.sum { sum } else { packed }
    }

    fn one(&self, a: i32, b: i32) -> i32 {
        match self.how {
            How::Add => a + b,
            How::Subtract => a - b,
            How::Average => (a + b + i32::from(a + b >= 0)) >> 1,
            How::Difference => (a - b).abs(),
            How::Least => a.min(b),
            How::Most => a.max(b),
            How::Set(how) => i32::from(match how {
                Word::Eq => a == b,
                Word::Ne => a != b,
                Word::Lt => a < b,
                Word::Le => a <= b,
                Word::Gt => a > b,
                _ => a >= b,
            }),
        }
    }
}
