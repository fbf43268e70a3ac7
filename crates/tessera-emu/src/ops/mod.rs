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

/// An operation over all lanes: the result's slot and up to four operands.
pub(crate) type MapFn = fn(&mut Slot, &[&Slot; 4]);
/// A condition over all lanes: one bit a lane.
pub(crate) type TestFn = fn(&[&Slot; 4]) -> u32;

/// An operation with the views of its result and operands: `true` is a 64-bit register.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) run: MapFn,
    pub(crate) wide: bool,
    pub(crate) sources: &'static [bool],
}

/// A condition with the views of its operands.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) run: TestFn,
    pub(crate) sources: &'static [bool],
}

/// A type of value that a lane holds.
pub(crate) trait Element: Copy {
    /// Whether it lives in a 64-bit register.
    const WIDE: bool;
    fn get(slot: &Slot, lane: usize) -> Self;
    fn put(self, slot: &mut Slot, lane: usize);
}

macro_rules! elements {
    ($($ty:ty, $wide:literal, $read:ident, $write:ident, |$bits:ident| $from:expr, |$value:ident| $to:expr;)*) => {$(
        impl Element for $ty {
            const WIDE: bool = $wide;
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
        $crate::ops::Map {
            run,
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
        $crate::ops::Test { run, sources: &[$(<$t as $crate::ops::Element>::WIDE),+] }
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
