//! How a number that a format cannot hold becomes one that it can.
//!
//! Every conversion in this crate rounds once, from the exact value: an `f64` goes to `f16` directly, never by way of `f32`.

/// Which of the two neighbours a number between them becomes. `.rn`, `.rz`, `.rm`, `.rp` and `.rna` of PTX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rounding {
    /// The nearer one; of two equally near, the one whose last bit is zero.
    #[default]
    NearestEven,
    /// The one nearer to zero.
    TowardZero,
    /// The lower one.
    Down,
    /// The upper one.
    Up,
    /// The nearer one; of two equally near, the one further from zero.
    NearestAway,
}

impl Rounding {
    /// Every mode.
    pub const ALL: [Rounding; 5] =
        [Rounding::NearestEven, Rounding::TowardZero, Rounding::Down, Rounding::Up, Rounding::NearestAway];

    /// Whether a magnitude beyond the largest finite one moves away from zero (to infinity) rather than back to it.
    pub(crate) const fn overflows_away(self, negative: bool) -> bool {
        match self {
            Rounding::NearestEven | Rounding::NearestAway => true,
            Rounding::TowardZero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        }
    }

    /// Whether a magnitude with integer part `floor` and the given remainder (against one half) rounds up.
    const fn increments(self, negative: bool, floor: u64, remainder: Remainder) -> bool {
        match (self, remainder) {
            (_, Remainder::Zero) | (Rounding::TowardZero, _) => false,
            (Rounding::Down, _) => negative,
            (Rounding::Up, _) => !negative,
            (Rounding::NearestEven | Rounding::NearestAway, Remainder::BelowHalf) => false,
            (Rounding::NearestEven | Rounding::NearestAway, Remainder::AboveHalf) => true,
            (Rounding::NearestEven, Remainder::Half) => floor & 1 == 1,
            (Rounding::NearestAway, Remainder::Half) => true,
        }
    }
}

/// What happens to a number whose magnitude, rounded, exceeds the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overflow {
    /// It becomes the largest finite number of its sign, and so does an infinity. `.satfinite` of PTX.
    Saturate,
    /// It becomes an infinity where the rounding mode points away from zero; NaN where the format has no infinity; the
    /// largest finite number where it has neither.
    Ieee,
}

/// What is left of a number below its last kept bit.
#[derive(Clone, Copy)]
enum Remainder {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

/// A number without rounding: what every conversion starts from.
///
/// ```
/// use tessera_types::Exact;
/// assert_eq!(Exact::from(-6.0_f64), Exact::from(-6_i64));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Exact {
    /// Not a number.
    Nan,
    /// An infinity.
    Infinite {
        /// Whether it lies below zero.
        negative: bool,
    },
    /// `significand * 2^exponent` with a sign; zero has one too.
    Finite {
        /// Whether it lies below zero, or is the zero that does.
        negative: bool,
        /// The integer part of the product.
        significand: u64,
        /// The power of two in the product.
        exponent: i32,
    },
}

impl From<f64> for Exact {
    fn from(value: f64) -> Exact {
        let bits = value.to_bits();
        let negative = value.is_sign_negative();
        let fraction = bits & ((1 << 52) - 1);
        match (bits >> 52) as i32 & 0x7ff {
            0x7ff if fraction != 0 => Exact::Nan,
            0x7ff => Exact::Infinite { negative },
            0 => Exact::Finite { negative, significand: fraction, exponent: -1074 },
            field => Exact::Finite { negative, significand: fraction | (1 << 52), exponent: field - 1075 },
        }
    }
}

impl From<f32> for Exact {
    fn from(value: f32) -> Exact {
        Exact::from(f64::from(value))
    }
}

impl From<i64> for Exact {
    fn from(value: i64) -> Exact {
        Exact::Finite { negative: value < 0, significand: value.unsigned_abs(), exponent: 0 }
    }
}

impl From<u64> for Exact {
    fn from(value: u64) -> Exact {
        Exact::Finite { negative: false, significand: value, exponent: 0 }
    }
}

impl PartialEq for Exact {
    /// Equality of values: the two zeros are equal, NaN equals nothing.
    fn eq(&self, other: &Exact) -> bool {
        let normal = |e: &Exact| match *e {
            Exact::Nan => None,
            Exact::Infinite { negative } => Some((negative, u64::MAX, i32::MAX)),
            Exact::Finite { significand: 0, .. } => Some((false, 0, 0)),
            Exact::Finite { negative, significand, exponent } => {
                let zeros = significand.trailing_zeros();
                Some((negative, significand >> zeros, exponent + zeros as i32))
            }
        };
        normal(self).is_some() && normal(self) == normal(other)
    }
}

/// `significand * 2^exponent / 2^quantum` rounded to an integer, or `None` where that exceeds 64 bits.
pub(crate) const fn round_magnitude(
    negative: bool,
    significand: u64,
    exponent: i32,
    quantum: i32,
    rounding: Rounding,
) -> Option<u64> {
    if significand == 0 {
        return Some(0);
    }
    let shift = quantum - exponent;
    if shift <= 0 {
        let left = shift.unsigned_abs();
        return if left <= significand.leading_zeros() { Some(significand << left) } else { None };
    }
    let (floor, remainder) = if shift > 64 {
        (0, Remainder::BelowHalf)
    } else {
        let wide = significand as u128;
        let floor = (wide >> shift) as u64;
        let rest = wide & ((1 << shift) - 1);
        let half = 1_u128 << (shift - 1);
        let remainder = if rest == 0 {
            Remainder::Zero
        } else if rest < half {
            Remainder::BelowHalf
        } else if rest == half {
            Remainder::Half
        } else {
            Remainder::AboveHalf
        };
        (floor, remainder)
    };
    // With shift > 0 the floor is below 2^63: adding one cannot overflow.
    Some(floor + rounding.increments(negative, floor, remainder) as u64)
}
