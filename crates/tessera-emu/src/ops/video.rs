//! Video instructions: integers of bytes and halves of registers, one at a time or several at once (PTX ISA, "Scalar Video
//! Instructions", "SIMD Video Instructions").
//!
//! Each selected part of `a` and `b` is extended by its operand's type. Of several, the parts' results are cut or saturated to the
//! result's type and packed, `c` keeping what the mask leaves out, or all are added to `c`. With `vadd4.u32.u32.u32`:
//! `0x01ff_0203 + 0x0101_0101 = 0x0200_0304`. One alone is merged into `c` as a part, or added to it. With `vadd.u32.u32.u32 d.b1, a.b0, b.h1, c`: the sum's low byte
//! as byte 1 of `c`.

use tessera_ptx::{Part, Word};

/// A video instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Video {
    Several(Several),
    One(One),
    Mad(Mad),
}

impl Video {
    pub(crate) fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        match self {
            Video::Several(video) => video.apply(a, b, c),
            Video::One(video) => video.apply(a, b, c),
            Video::Mad(video) => video.apply(a, b, c),
        }
    }

    /// The undefined bits of the result, for those of the operands.
    pub(crate) fn spread(&self, a: u32, b: u32, c: u32) -> u32 {
        let whole = |any: u32| if any == 0 { 0 } else { u32::MAX };
        match self {
            Video::Several(video) => video.spread(a, b, c),
            Video::One(One { a: side_a, b: side_b, then: Then::Merge(part), .. }) => {
                let (bits, place) = bits_and_place(Some(*part));
                let mask = ((1u32 << bits) - 1) << (place * bits);
                let reaches = (side_a.bits(a) | side_b.bits(b)) != 0;
                (c & !mask) | if reaches { mask } else { 0 }
            }
            Video::One(One { a: side_a, b: side_b, then: Then::Nothing, .. }) => whole(side_a.bits(a) | side_b.bits(b)),
            Video::One(One { a: side_a, b: side_b, .. }) | Video::Mad(Mad { a: side_a, b: side_b, .. }) => {
                whole(side_a.bits(a) | side_b.bits(b) | c)
            }
        }
    }
}

/// What is computed of each pair of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Add,
    Subtract,
    Average,
    Difference,
    Least,
    Most,
    /// By more than 31 places, or modulo 32.
    ShiftLeft {
        wrap: bool,
    },
    ShiftRight {
        wrap: bool,
    },
    Set(Word),
}

impl How {
    /// The operation's name is its mnemonic without `v` and the number of parts.
    pub(crate) fn of(name: &str, wrap: bool, compare: Option<Word>) -> Option<How> {
        Some(match (name, compare) {
            ("set", Some(compare)) => How::Set(compare),
            ("add", _) => How::Add,
            ("sub", _) => How::Subtract,
            ("avrg", _) => How::Average,
            ("absdiff", _) => How::Difference,
            ("min", _) => How::Least,
            ("max", _) => How::Most,
            ("shl", _) => How::ShiftLeft { wrap },
            ("shr", _) => How::ShiftRight { wrap },
            _ => return None,
        })
    }

    fn apply(self, a: i128, b: i128) -> i128 {
        let by = |wrap: bool| if wrap { b & 31 } else { b.clamp(0, 32) };
        match self {
            How::Add => a + b,
            How::Subtract => a - b,
            How::Average => (a + b + i128::from(a + b >= 0)) >> 1,
            How::Difference => (a - b).abs(),
            How::Least => a.min(b),
            How::Most => a.max(b),
            How::ShiftLeft { wrap } => a << by(wrap),
            How::ShiftRight { wrap } => a >> by(wrap),
            How::Set(how) => i128::from(match how {
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

/// The bits from a place on, extended.
fn take(word: u64, bits: u32, place: u32, signed: bool) -> i128 {
    let value = i128::from(word >> (place * bits)) & ((1 << bits) - 1);
    if signed && value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
}

/// The nearest number of the type.
fn saturate(value: i128, bits: u32, signed: bool) -> i128 {
    let (low, high) = if signed { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    value.clamp(low, high)
}

/// Four bytes or two halves at once: which sides are signed, and what becomes of the results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Several {
    pub(crate) how: How,
    /// Four bytes rather than two halves.
    pub(crate) bytes: bool,
    pub(crate) to: bool,
    pub(crate) a: bool,
    pub(crate) b: bool,
    pub(crate) saturate: bool,
    pub(crate) sum: bool,
    /// Which parts of the two registers each side takes; those of `b` are counted on from those of `a`.
    pub(crate) places: [Option<Part>; 2],
    /// Which results are used.
    pub(crate) mask: Option<Part>,
}

impl Several {
    /// Bits of a part, and how many there are.
    fn parts(&self) -> (u32, u32) {
        if self.bytes { (8, 4) } else { (16, 2) }
    }

    /// Where in the two registers a side takes what it makes a part of.
    fn place(&self, side: usize, part: u32) -> u32 {
        match self.places[side] {
            Some(places) => u32::from(places.places().nth(part as usize).unwrap_or(0)),
            None => side as u32 * self.parts().1 + part,
        }
    }

    fn uses(&self, part: u32) -> bool {
        self.mask.is_none_or(|mask| mask.places().any(|place| u32::from(place) == part))
    }

    fn spread(&self, a: u32, b: u32, c: u32) -> u32 {
        let (bits, parts) = self.parts();
        let both = u64::from(a) | u64::from(b) << 32;
        let (mut packed, mut any) = (0, c);
        for part in 0..parts {
            let mask = ((1u32 << bits) - 1) << (part * bits);
            if !self.uses(part) {
                packed |= c & mask;
            } else if (0..2).any(|side| take(both, bits, self.place(side, part), false) != 0) {
                packed |= mask;
                any |= mask;
            }
        }
        match self.sum {
            true if any != 0 => u32::MAX,
            true => 0,
            false => packed,
        }
    }

    fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let (bits, parts) = self.parts();
        let both = u64::from(a) | u64::from(b) << 32;
        let (mut packed, mut sum) = (0, c);
        for part in 0..parts {
            let mask = ((1u32 << bits) - 1) << (part * bits);
            if !self.uses(part) {
                packed |= c & mask;
                continue;
            }
            let side = |side: usize, signed: bool| take(both, bits, self.place(side, part), signed);
            let mut value = self.how.apply(side(0, self.a), side(1, self.b));
            if self.saturate {
                value = saturate(value, bits, self.to);
            }
            packed |= (value as u32) << (part * bits) & mask;
            sum = sum.wrapping_add(value as u32);
        }
        if self.sum { sum } else { packed }
    }
}

/// An operand of one alone: a word, or a byte or half of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) signed: bool,
    pub(crate) part: Option<Part>,
}

/// Bits of a part, and its place.
fn bits_and_place(part: Option<Part>) -> (u32, u32) {
    match part {
        None => (32, 0),
        Some(part) => (if part.bytes { 8 } else { 16 }, part.places().next().map_or(0, u32::from)),
    }
}

impl Side {
    fn take(self, word: u32) -> i128 {
        let (bits, place) = bits_and_place(self.part);
        take(word.into(), bits, place, self.signed)
    }

    /// The bits of a word that it takes.
    fn bits(self, word: u32) -> u32 {
        let (bits, place) = bits_and_place(self.part);
        take(word.into(), bits, place, false) as u32
    }
}

/// What is done with the result and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    Add,
    /// The result replaces a byte or half of `c`.
    Merge(Part),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One {
    pub(crate) how: How,
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) then: Then,
}

impl One {
    fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let value = self.how.apply(self.a.take(a), self.b.take(b)) as u32;
        match self.then {
            Then::Nothing => value,
            Then::Add => value.wrapping_add(c),
            Then::Merge(part) => {
                let (bits, place) = bits_and_place(Some(part));
                let mask = ((1u32 << bits) - 1) << (place * bits);
                (c & !mask) | (value << (place * bits) & mask)
            }
        }
    }
}

/// `vmad`: the low 32 bits of a product and a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mad {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) negate_product: bool,
    pub(crate) negate_c: bool,
    pub(crate) plus_one: bool,
}

impl Mad {
    fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let product = (self.a.take(a) * self.b.take(b)) as u32;
        let c = if self.negate_c { !c } else { c };
        let one = u32::from(self.plus_one || self.negate_product || self.negate_c);
        (if self.negate_product { !product } else { product }).wrapping_add(c).wrapping_add(one)
    }
}
