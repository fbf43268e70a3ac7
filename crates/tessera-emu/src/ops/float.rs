//! Arithmetic and comparisons of `f32` and `f64`.
//!
//! Results are those of IEEE 754 with the chip's NaN. `.ftz` takes and gives subnormal numbers as zeros of their sign; `.sat`
//! clamps to 0..1 and makes NaN zero. Approximations are computed in `f64` and rounded, which is inside the bounds of the PTX
//! manual (sections "Floating Point Instructions": `ex2`, `lg2`, `sin`, `cos`, `rcp`, `rsqrt`, `sqrt`, `div`, `tanh`).

use tessera_ptx::{Type, Word};

use super::round::{self, Directed, NAN_F32, NAN_F64, Operation, fma_odd};
use super::{Map, Spread, Test, map, test};

/// Modifiers that change the value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    pub(crate) relu: bool,
    /// NaN where an operand is NaN (`min`, `max`).
    pub(crate) nan: bool,
    pub(crate) directed: Option<Directed>,
}

#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

#[inline(always)]
fn input<const FTZ: bool>(x: f32) -> f32 {
    if FTZ { flush(x) } else { x }
}

#[inline(always)]
fn output<const FTZ: bool, const SAT: bool>(x: f32) -> f32 {
    let x = if FTZ { flush(x) } else { x };
    if SAT {
        // NaN compares as false and becomes +0.
        return if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 };
    }
    if x.is_nan() { f32::from_bits(NAN_F32) } else { x }
}

/// The NaN of `f64` arithmetic: an operand's, made quiet, else the chip's own.
#[inline(always)]
fn output_64(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(NAN_F64 & !(1 << 63)) } else { x }
}

macro_rules! by_flags {
    ($flags:expr, $f:ident, $s:ident => $body:expr) => {
        match ($flags.ftz, $flags.sat) {
            (false, false) => {
                const $f: bool = false;
                const $s: bool = false;
                $body
            }
            (false, true) => {
                const $f: bool = false;
                const $s: bool = true;
                $body
            }
            (true, false) => {
                const $f: bool = true;
                const $s: bool = false;
                $body
            }
            (true, true) => {
                const $f: bool = true;
                const $s: bool = true;
                $body
            }
        }
    };
}

macro_rules! directed {
    ($flags:expr, $mode:expr, $operation:ident, ($($a:ident),+)) => {
        match $mode {
            Directed::Zero => directed!(@ $flags, Zero, $operation, ($($a),+)),
            Directed::Down => directed!(@ $flags, Down, $operation, ($($a),+)),
            Directed::Up => directed!(@ $flags, Up, $operation, ($($a),+)),
        }
    };
    (@ $flags:expr, $mode:ident, $operation:ident, ($a:ident)) => {
        by_flags!($flags, F, S => map!(|$a: f32| -> f32 {
            output::<F, S>(round::single(Operation::$operation, Directed::$mode, input::<F>($a), 0.0, 0.0))
        }))
    };
    (@ $flags:expr, $mode:ident, $operation:ident, ($a:ident, $b:ident)) => {
        by_flags!($flags, F, S => map!(|$a: f32, $b: f32| -> f32 {
            output::<F, S>(round::single(Operation::$operation, Directed::$mode, input::<F>($a), input::<F>($b), 0.0))
        }))
    };
    (@ $flags:expr, $mode:ident, $operation:ident, ($a:ident, $b:ident, $c:ident)) => {
        by_flags!($flags, F, S => map!(|$a: f32, $b: f32, $c: f32| -> f32 {
            output::<F, S>(round::single(Operation::$operation, Directed::$mode, input::<F>($a), input::<F>($b), input::<F>($c)))
        }))
    };
}

macro_rules! directed_64 {
    ($mode:expr, $operation:ident) => {
        match $mode {
            Directed::Zero => {
                map!(|a: f64, b: f64| -> f64 { output_64(round::double(Operation::$operation, Directed::Zero, a, b, 0.0)) })
            }
            Directed::Down => {
                map!(|a: f64, b: f64| -> f64 { output_64(round::double(Operation::$operation, Directed::Down, a, b, 0.0)) })
            }
            Directed::Up => {
                map!(|a: f64, b: f64| -> f64 { output_64(round::double(Operation::$operation, Directed::Up, a, b, 0.0)) })
            }
        }
    };
}

macro_rules! two_32 {
    ($flags:expr, |$a:ident, $b:ident| $body:expr) => {
        by_flags!($flags, F, S => map!(|x: f32, y: f32| -> f32 {
            let ($a, $b) = (input::<F>(x), input::<F>(y));
            output::<F, S>($body)
        }))
    };
}

macro_rules! one_32 {
    ($flags:expr, |$a:ident| $body:expr) => {
        by_flags!($flags, F, S => map!(|x: f32| -> f32 {
            let $a = input::<F>(x);
            output::<F, S>($body)
        }))
    };
}

/// The smaller; of two zeros the negative one; the number where one operand is NaN.
#[inline(always)]
pub(crate) fn least(a: f32, b: f32) -> f32 {
    let smaller = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        smaller
    }
}

/// The larger, as [`least`].
#[inline(always)]
pub(crate) fn most(a: f32, b: f32) -> f32 {
    let larger = if a > b || (a == b && a.is_sign_positive()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        larger
    }
}

/// `f`, but NaN where an operand is.
#[inline(always)]
pub(crate) fn or_nan(a: f32, b: f32, f: fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { f(a, b) }
}

fn least_64(a: f64, b: f64) -> f64 {
    let smaller = if a < b || (a == b && a.is_sign_negative()) || b.is_nan() { a } else { b };
    if a.is_nan() { b } else { smaller }
}

fn most_64(a: f64, b: f64) -> f64 {
    let larger = if a > b || (a == b && a.is_sign_positive()) || b.is_nan() { a } else { b };
    if a.is_nan() { b } else { larger }
}

/// A two-operand instruction on `f32`.
pub(crate) fn two(mnemonic: &str, flags: Flags) -> Option<Map> {
    if let Some(mode) = flags.directed {
        return match mnemonic {
            "add" => Some(directed!(flags, mode, Add, (a, b))),
            "sub" => Some(directed!(flags, mode, Sub, (a, b))),
            "mul" => Some(directed!(flags, mode, Mul, (a, b))),
            "div" => Some(directed!(flags, mode, Div, (a, b))),
            _ => None,
        };
    }
    match mnemonic {
        "add" => Some(two_32!(flags, |a, b| a + b)),
        "sub" => Some(two_32!(flags, |a, b| a - b)),
        "mul" => Some(two_32!(flags, |a, b| a * b)),
        "div" => Some(two_32!(flags, |a, b| a / b)),
        "min" if flags.nan => Some(two_32!(flags, |a, b| or_nan(a, b, least))),
        "max" if flags.nan => Some(two_32!(flags, |a, b| or_nan(a, b, most))),
        "min" => Some(two_32!(flags, |a, b| least(a, b))),
        "max" => Some(two_32!(flags, |a, b| most(a, b))),
        // The first operand gives the sign, the second the magnitude.
        "copysign" => Some(map!(|a: u32, b: u32| -> u32 { (a & 0x8000_0000) | (b & 0x7fff_ffff) }).spreads(Spread::Bits(0b11))),
        _ => None,
    }
}

/// `min` and `max` of magnitudes, with the product of the signs where asked for.
pub(crate) fn extreme_magnitude(max: bool, xor_sign: bool, flags: Flags) -> Map {
    #[inline(always)]
    fn sign(a: f32, b: f32, magnitude: f32) -> f32 {
        f32::from_bits(magnitude.to_bits() | ((a.to_bits() ^ b.to_bits()) & 0x8000_0000))
    }
    match (max, xor_sign, flags.nan) {
        (false, false, false) => two_32!(flags, |a, b| least(a.abs(), b.abs())),
        (false, false, true) => two_32!(flags, |a, b| or_nan(a.abs(), b.abs(), least)),
        (false, true, false) => two_32!(flags, |a, b| sign(a, b, least(a.abs(), b.abs()))),
        (false, true, true) => two_32!(flags, |a, b| sign(a, b, or_nan(a.abs(), b.abs(), least))),
        (true, false, false) => two_32!(flags, |a, b| most(a.abs(), b.abs())),
        (true, false, true) => two_32!(flags, |a, b| or_nan(a.abs(), b.abs(), most)),
        (true, true, false) => two_32!(flags, |a, b| sign(a, b, most(a.abs(), b.abs()))),
        (true, true, true) => two_32!(flags, |a, b| sign(a, b, or_nan(a.abs(), b.abs(), most))),
    }
}

/// A two-operand instruction on `f64`.
pub(crate) fn two_64(mnemonic: &str, flags: Flags) -> Option<Map> {
    if let Some(mode) = flags.directed {
        return match mnemonic {
            "add" => Some(directed_64!(mode, Add)),
            "sub" => Some(directed_64!(mode, Sub)),
            "mul" => Some(directed_64!(mode, Mul)),
            "div" => Some(directed_64!(mode, Div)),
            _ => None,
        };
    }
    match mnemonic {
        "add" => Some(map!(|a: f64, b: f64| -> f64 { output_64(a + b) })),
        "sub" => Some(map!(|a: f64, b: f64| -> f64 { output_64(a - b) })),
        "mul" => Some(map!(|a: f64, b: f64| -> f64 { output_64(a * b) })),
        "div" => Some(map!(|a: f64, b: f64| -> f64 { output_64(a / b) })),
        "min" => Some(map!(|a: f64, b: f64| -> f64 { output_64(least_64(a, b)) })),
        "max" => Some(map!(|a: f64, b: f64| -> f64 { output_64(most_64(a, b)) })),
        "copysign" => Some(map!(|a: f64, b: f64| -> f64 { b.copysign(a) })),
        _ => None,
    }
}

/// `2^x` to about 40 bits, in a form that vectorises: the integer part is an exponent, the rest a polynomial.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let x = f64::from(x);
    let bounded = x.clamp(-1000.0, 1000.0);
    let shifted = bounded + ROUND;
    let f = (bounded - (shifted - ROUND)) * std::f64::consts::LN_2;
    // exp(f) for |f| <= ln(2) / 2: the next term is below 4e-15.
    let mut p = 1.0 / 3_628_800.0;
    for divisor in [362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        p = p * f + 1.0 / divisor;
    }
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    p * scale
}

/// A one-operand instruction on `f32`.
pub(crate) fn one(mnemonic: &str, flags: Flags) -> Option<Map> {
    if let Some(mode) = flags.directed {
        return match mnemonic {
            "sqrt" => Some(directed!(flags, mode, Sqrt, (a))),
            "rcp" => Some(match mode {
                Directed::Zero => one_32!(flags, |a| round::single(Operation::Div, Directed::Zero, 1.0, a, 0.0)),
                Directed::Down => one_32!(flags, |a| round::single(Operation::Div, Directed::Down, 1.0, a, 0.0)),
                Directed::Up => one_32!(flags, |a| round::single(Operation::Div, Directed::Up, 1.0, a, 0.0)),
            }),
            _ => None,
        };
    }
    match mnemonic {
        "mov" => Some(map!(|a: u32| -> u32 { a }).spreads(Spread::Bits(0b1))),
        "abs" => Some(one_32!(flags, |a| a.abs())),
        "neg" => Some(one_32!(flags, |a| -a)),
        "rcp" => Some(one_32!(flags, |a| 1.0 / a)),
        "sqrt" => Some(one_32!(flags, |a| a.sqrt())),
        // `.approx` takes subnormal operands as they are only without `.ftz`.
        "rsqrt" => Some(one_32!(flags, |a| (1.0 / f64::from(a).sqrt()) as f32)),
        "sin" => Some(one_32!(flags, |a| f64::from(a).sin() as f32)),
        "cos" => Some(one_32!(flags, |a| f64::from(a).cos() as f32)),
        "lg2" => Some(one_32!(flags, |a| f64::from(a).log2() as f32)),
        "ex2" => Some(one_32!(flags, |a| exp2(a) as f32)),
        "tanh" => Some(one_32!(flags, |a| f64::from(a).tanh() as f32)),
        _ => None,
    }
}

/// A one-operand instruction on `f64`.
pub(crate) fn one_64(mnemonic: &str, flags: Flags) -> Option<Map> {
    match (mnemonic, flags.directed) {
        ("mov", _) => Some(map!(|a: u64| -> u64 { a }).spreads(Spread::Bits(0b1))),
        ("abs", _) => Some(map!(|a: f64| -> f64 { a.abs() })),
        ("neg", _) => Some(map!(|a: f64| -> f64 { -a })),
        ("rcp", None) => Some(map!(|a: f64| -> f64 { output_64(1.0 / a) })),
        ("rcp", Some(Directed::Zero)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Div, Directed::Zero, 1.0, a, 0.0)) }))
        }
        ("rcp", Some(Directed::Down)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Div, Directed::Down, 1.0, a, 0.0)) }))
        }
        ("rcp", Some(Directed::Up)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Div, Directed::Up, 1.0, a, 0.0)) }))
        }
        ("sqrt", None) => Some(map!(|a: f64| -> f64 { output_64(a.sqrt()) })),
        ("sqrt", Some(Directed::Zero)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Sqrt, Directed::Zero, a, 0.0, 0.0)) }))
        }
        ("sqrt", Some(Directed::Down)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Sqrt, Directed::Down, a, 0.0, 0.0)) }))
        }
        ("sqrt", Some(Directed::Up)) => {
            Some(map!(|a: f64| -> f64 { output_64(round::double(Operation::Sqrt, Directed::Up, a, 0.0, 0.0)) }))
        }
        ("rsqrt", _) => Some(map!(|a: f64| -> f64 { output_64(1.0 / a.sqrt()) })),
        _ => None,
    }
}

/// `a * b + c`, rounded once.
pub(crate) fn fused(flags: Flags) -> Map {
    if let Some(mode) = flags.directed {
        return directed!(flags, mode, Fma, (a, b, c));
    }
    by_flags!(flags, F, S => map!(|a: f32, b: f32, c: f32| -> f32 {
        output::<F, S>(fma_odd(input::<F>(a), input::<F>(b), input::<F>(c)) as f32)
    }))
}

/// As [`fused`], on `f64`.
pub(crate) fn fused_64(flags: Flags) -> Map {
    match flags.directed {
        None => map!(|a: f64, b: f64, c: f64| -> f64 { output_64(a.mul_add(b, c)) }),
        Some(Directed::Zero) => {
            map!(|a: f64, b: f64, c: f64| -> f64 { output_64(round::double(Operation::Fma, Directed::Zero, a, b, c)) })
        }
        Some(Directed::Down) => {
            map!(|a: f64, b: f64, c: f64| -> f64 { output_64(round::double(Operation::Fma, Directed::Down, a, b, c)) })
        }
        Some(Directed::Up) => {
            map!(|a: f64, b: f64, c: f64| -> f64 { output_64(round::double(Operation::Fma, Directed::Up, a, b, c)) })
        }
    }
}

macro_rules! comparisons {
    ($how:expr, |$a:ident: $t:ty, $b:ident| ($x:expr, $y:expr)) => {
        match $how {
            Word::Eq => Some(test!(|$a: $t, $b: $t| { $x == $y })),
            Word::Ne => Some(test!(|$a: $t, $b: $t| { $x != $y && !$x.is_nan() && !$y.is_nan() })),
            Word::Lt => Some(test!(|$a: $t, $b: $t| { $x < $y })),
            Word::Le => Some(test!(|$a: $t, $b: $t| { $x <= $y })),
            Word::Gt => Some(test!(|$a: $t, $b: $t| { $x > $y })),
            Word::Ge => Some(test!(|$a: $t, $b: $t| { $x >= $y })),
            Word::Equ => Some(test!(|$a: $t, $b: $t| { $x == $y || $x.is_nan() || $y.is_nan() })),
            Word::Neu => Some(test!(|$a: $t, $b: $t| { $x != $y })),
            Word::Ltu => Some(test!(|$a: $t, $b: $t| { $x < $y || $x.is_nan() || $y.is_nan() })),
            Word::Leu => Some(test!(|$a: $t, $b: $t| { $x <= $y || $x.is_nan() || $y.is_nan() })),
            Word::Gtu => Some(test!(|$a: $t, $b: $t| { $x > $y || $x.is_nan() || $y.is_nan() })),
            Word::Geu => Some(test!(|$a: $t, $b: $t| { $x >= $y || $x.is_nan() || $y.is_nan() })),
            Word::Num => Some(test!(|$a: $t, $b: $t| { !$x.is_nan() && !$y.is_nan() })),
            Word::Unordered => Some(test!(|$a: $t, $b: $t| { $x.is_nan() || $y.is_nan() })),
            _ => None,
        }
    };
}
pub(super) use comparisons;

/// A comparison.
pub(crate) fn compare(how: Word, ty: Type, ftz: bool) -> Option<Test> {
    match (ty, ftz) {
        (Type::F64, _) => comparisons!(how, |a: f64, b| (a, b)),
        (Type::F32, false) => comparisons!(how, |a: f32, b| (a, b)),
        (Type::F32, true) => comparisons!(how, |a: f32, b| (flush(a), flush(b))),
        _ => None,
    }
}

/// `testp`
pub(crate) fn classify(what: Word, ty: Type) -> Option<Test> {
    macro_rules! kinds {
        ($t:ty) => {
            match what {
                Word::Finite => Some(test!(|a: $t| { a.is_finite() })),
                Word::Infinite => Some(test!(|a: $t| { a.is_infinite() })),
                Word::Number => Some(test!(|a: $t| { !a.is_nan() })),
                Word::Notanumber => Some(test!(|a: $t| { a.is_nan() })),
                // Zeros count as normal numbers.
                Word::Normal => Some(test!(|a: $t| { a.is_normal() || a == 0.0 })),
                Word::Subnormal => Some(test!(|a: $t| { a.is_subnormal() })),
                _ => None,
            }
        };
    }
    if ty == Type::F64 { kinds!(f64) } else { kinds!(f32) }
}
