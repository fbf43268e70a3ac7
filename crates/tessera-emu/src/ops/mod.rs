//! What each arithmetic instruction computes, one lane at a time, turned into functions over all 32 lanes.
//!
//! An operation is written once as an expression over typed elements; the macro `map!` makes a loop over the lanes of it that
//! the compiler vectorises, `test!` one that gives a predicate. Typed elements ([`Element`]) know which view of a register
//! they live in and how they are stored there.

pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod round;
pub(crate) mod video;

use crate::lanes::Slot;

/// Which bits of a result undefined bits of the operands reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Any reaches all.
    Whole,
    /// Pieces of so many bits are computed each from the same pieces of the operands.
    Pieces(u32),
    /// A bit of the result is one bit of an operand in the mask, or a function of such bits that stand at one place; the other
    /// operands say which.
    Bits(u8),
    /// `a + b`.
    Sum,
    /// `a - b`.
    Difference,
    /// `a * b`, or `a * b + c`, the low part: from some bit upwards.
    Product,
    /// The first operand makes the high half of the result, the second the low one.
    Halves,
}

/// How undefined bits of the operands of a condition reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Any does.
    Whole,
    /// `a == b` or `a != b`: not where defined bits differ.
    Equality,
    /// Integers in order: not where the largest and the least that they can be give the same.
    Order { signed: bool },
}

/// An operation over all lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapFn {
    /// The result's slot and up to four operands.
    pub(crate) call: fn(&mut Slot, &[&Slot; 4]),
    pub(crate) spread: Spread,
    /// The bits of each operand that are read; 0 behind the last.
    pub(crate) from_bits: [u8; 4],
    pub(crate) to_bits: u8,
}

/// A condition over all lanes: one bit a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestFn {
    pub(crate) call: fn(&[&Slot; 4]) -> u32,
    pub(crate) comparison: Comparison,
    pub(crate) from_bits: [u8; 4],
}

/// An operation with the views of its result and operands: `true` is a 64-bit register.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) run: MapFn,
    pub(crate) wide: bool,
    pub(crate) sources: &'static [bool],
}

impl Map {
    /// The same with another rule for undefined bits.
    pub(crate) fn spreads(self, spread: Spread) -> Map {
        Map { run: MapFn { spread, ..self.run }, ..self }
    }
}

/// A condition with the views of its operands.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) run: TestFn,
    pub(crate) sources: &'static [bool],
}

impl Test {
    /// The same with another rule for undefined bits.
    pub(crate) fn compares(self, comparison: Comparison) -> Test {
        Test { run: TestFn { comparison, ..self.run }, ..self }
    }
}

/// A type of value that a lane holds.
pub(crate) trait Element: Copy {
    /// Whether it lives in a 64-bit register.
    const WIDE: bool;
    const BITS: u8;
    /// How undefined bits reach a result of the type, unless the operation says it better.
    const SPREAD: Spread = Spread::Whole;
    fn get(slot: &Slot, lane: usize) -> Self;
    fn put(self, slot: &mut Slot, lane: usize);
}

macro_rules! elements {
    ($($ty:ty, $wide:literal, $read:ident, $write:ident, |$bits:ident| $from:expr, |$value:ident| $to:expr;)*) => {$(
        impl Element for $ty {
            const WIDE: bool = $wide;
            const BITS: u8 = 8 * size_of::<$ty>() as u8;
            #[inline(always)]
            fn get(slot: &Slot, lane: usize) -> Self {
                let $bits = slot.$read()[lane];
                $from
            }
            #[inline(always)]
            fn put(self, slot: &mut Slot, lane: usize) {
                let $value = self;
                slot.$write()[lane] = $to;
            }
        }
    )*};
}

elements! {
    u16, false, n, n_mut, |bits| bits as u16, |value| u32::from(value);
    i16, false, n, n_mut, |bits| bits as i16, |value| u32::from(value as u16);
    u32, false, n, n_mut, |bits| bits, |value| value;
    i32, false, n, n_mut, |bits| bits as i32, |value| value as u32;
    f32, false, n, n_mut, |bits| f32::from_bits(bits), |value| value.to_bits();
    u64, true, w, w_mut, |bits| bits, |value| value;
    i64, true, w, w_mut, |bits| bits as i64, |value| value as u64;
    f64, true, w, w_mut, |bits| f64::from_bits(bits), |value| value.to_bits();
}

/// `map!(|a: u32, b: u32| -> u32 { a + b })`: a [`Map`] that applies the expression to each lane.
macro_rules! map {
    (|$($a:ident : $t:ty),+| -> $r:ty $body:block) => {{
        #[allow(unused_assignments, reason = "the last operand's index is not read again")]
        fn run(to: &mut $crate::lanes::Slot, from: &[&$crate::lanes::Slot; 4]) {
            for lane in 0..$crate::lanes::LANES {
                let mut index = 0;
                $(
                    let $a = <$t as $crate::ops::Element>::get(from[index], lane);
                    index += 1;
                )+
                let result: $r = $body;
                <$r as $crate::ops::Element>::put(result, to, lane);
            }
        }
        let mut from_bits = [0; 4];
        for (to, from) in from_bits.iter_mut().zip([$(<$t as $crate::ops::Element>::BITS),+]) {
            *to = from;
        }
        $crate::ops::Map {
            run: $crate::ops::MapFn {
                call: run,
                spread: <$r as $crate::ops::Element>::SPREAD,
                from_bits,
                to_bits: <$r as $crate::ops::Element>::BITS,
            },
            wide: <$r as $crate::ops::Element>::WIDE,
            sources: &[$(<$t as $crate::ops::Element>::WIDE),+],
        }
    }};
}

/// `test!(|a: u32, b: u32| { a < b })`: a [`Test`].
macro_rules! test {
    (|$($a:ident : $t:ty),+| $body:block) => {{
        #[allow(unused_assignments, reason = "the last operand's index is not read again")]
        fn run(from: &[&$crate::lanes::Slot; 4]) -> u32 {
            let mut bits = [0u32; $crate::lanes::LANES];
            for lane in 0..$crate::lanes::LANES {
                let mut index = 0;
                $(
                    let $a = <$t as $crate::ops::Element>::get(from[index], lane);
                    index += 1;
                )+
                let holds: bool = $body;
                bits[lane] = u32::from(holds).wrapping_neg() & (1 << lane);
            }
            bits.iter().fold(0, |mask, bit| mask | bit)
        }
        let mut from_bits = [0; 4];
        for (to, from) in from_bits.iter_mut().zip([$(<$t as $crate::ops::Element>::BITS),+]) {
            *to = from;
        }
        $crate::ops::Test {
            run: $crate::ops::TestFn { call: run, comparison: $crate::ops::Comparison::Whole, from_bits },
            sources: &[$(<$t as $crate::ops::Element>::WIDE),+],
        }
    }};
}

/// `by_int!(ty, T => expression)`: the expression with `T` standing for the Rust type of a PTX integer type.
macro_rules! by_int {
    ($ty:expr, $t:ident => $body:expr) => {
        match $ty {
            tessera_ptx::Type::U16 | tessera_ptx::Type::B16 => {
                type $t = u16;
                Some($body)
            }
            tessera_ptx::Type::S16 => {
                type $t = i16;
                Some($body)
            }
            tessera_ptx::Type::U32 | tessera_ptx::Type::B32 => {
                type $t = u32;
                Some($body)
            }
            tessera_ptx::Type::S32 => {
                type $t = i32;
                Some($body)
            }
            tessera_ptx::Type::U64 | tessera_ptx::Type::B64 => {
                type $t = u64;
                Some($body)
            }
            tessera_ptx::Type::S64 => {
                type $t = i64;
                Some($body)
            }
            _ => None,
        }
    };
}

pub(crate) use {by_int, map, test};
