//! Compile-time numbers with Python's arithmetic.
//!
//! A literal has no element type yet: it is a [`Num`], and operations between two of them follow Python (`7 // -2 == -4`,
//! `1 / 2 == 0.5`, integers don't wrap). It takes an element type when it meets a tile.

use std::cmp::Ordering;
use std::fmt;

use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use crate::ast::{BinaryOp, CompareOp};
use crate::diagnostics::id;
use crate::lower::Res;

/// A compile-time number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Num {
    Bool(bool),
    Int(i128),
    Float(f64),
}

/// Why a compile-time operation has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Division by zero.
    ZeroDivision,
    /// Integers of more than 127 bits.
    Overflow,
    /// The operator does not take these kinds.
    Kind,
    /// Outside the function's domain.
    Domain,
}

impl PartialEq for Num {
    /// Same kind and same bits: what makes two compile-time values interchangeable.
    fn eq(&self, other: &Num) -> bool {
        match (self, other) {
            (Num::Bool(a), Num::Bool(b)) => a == b,
            (Num::Int(a), Num::Int(b)) => a == b,
            (Num::Float(a), Num::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Num::Bool(true) => f.write_str("True"),
            Num::Bool(false) => f.write_str("False"),
            Num::Int(value) => write!(f, "{value}"),
            Num::Float(value) => f.write_str(&show_float(*value)),
        }
    }
}

impl Num {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Num::Bool(value) => f64::from(u8::from(value)),
            Num::Int(value) => value as f64,
            Num::Float(value) => value,
        }
    }

    /// The integer, for integers and truth values.
    pub(crate) fn as_int(self) -> Option<i128> {
        match self {
            Num::Bool(value) => Some(i128::from(value)),
            Num::Int(value) => Some(value),
            Num::Float(_) => None,
        }
    }

    pub(crate) fn truth(self) -> bool {
        match self {
            Num::Bool(value) => value,
            Num::Int(value) => value != 0,
            Num::Float(value) => value != 0.0,
        }
    }

    pub(crate) fn compare(self, other: Num) -> Option<Ordering> {
        match (self.as_int(), other.as_int()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            (Some(a), None) => compare_mixed(a, other.as_f64()),
            (None, Some(b)) => compare_mixed(b, self.as_f64()).map(Ordering::reverse),
            (None, None) => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }

    /// The value of a comparison by order; `None` for `is` and `in`.
    pub(crate) fn test(self, op: CompareOp, other: Num) -> Option<bool> {
        let order = self.compare(other);
        Some(match op {
            CompareOp::Eq | CompareOp::Is => order == Some(Ordering::Equal),
            CompareOp::Ne | CompareOp::IsNot => order != Some(Ordering::Equal),
            CompareOp::Lt => order == Some(Ordering::Less),
            CompareOp::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            CompareOp::Gt => order == Some(Ordering::Greater),
            CompareOp::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            CompareOp::In | CompareOp::NotIn => return None,
        })
    }

    pub(crate) fn binary(self, op: BinaryOp, other: Num) -> Result<Num, Fault> {
        if let (Num::Bool(a), Num::Bool(b)) = (self, other) {
            match op {
                BinaryOp::And => return Ok(Num::Bool(a & b)),
                BinaryOp::Or => return Ok(Num::Bool(a | b)),
                BinaryOp::Xor => return Ok(Num::Bool(a ^ b)),
                _ => {}
            }
        }
        match (self.as_int(), other.as_int()) {
            (Some(a), Some(b)) => int_binary(op, a, b),
            _ => float_binary(op, self.as_f64(), other.as_f64()),
        }
    }

    pub(crate) fn neg(self) -> Result<Num, Fault> {
        match self.as_int() {
            Some(value) => value.checked_neg().map(Num::Int).ok_or(Fault::Overflow),
            None => Ok(Num::Float(-self.as_f64())),
        }
    }
}

/// A float as Python writes it: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn show_float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_string();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The order of an integer and a float as real numbers.
fn compare_mixed(a: i128, b: f64) -> Option<Ordering> {
    // Beyond 2^126 there is no fraction to look at.
    if b.is_nan() || b.abs() >= 2f64.powi(126) {
        return (a as f64).partial_cmp(&b);
    }
    Some(a.cmp(&(b.floor() as i128)).then(if b.fract() == 0.0 { Ordering::Equal } else { Ordering::Less }))
}

/// The quotient of two integers, rounded once.
fn divide(a: i128, b: i128) -> f64 {
    let exact = |value: i128| value.unsigned_abs() <= 1 << 53;
    if exact(a) && exact(b) {
        return a as f64 / b as f64;
    }
    let divisor = b.unsigned_abs();
    let (mut quotient, mut rest, mut exponent) = (a.unsigned_abs() / divisor, a.unsigned_abs() % divisor, 0);
    while quotient < 1 << 55 && rest != 0 {
        rest <<= 1;
        quotient = quotient << 1 | u128::from(rest >= divisor);
        rest -= if rest >= divisor { divisor } else { 0 };
        exponent -= 1;
    }
    // Below the 53 bits that are kept, one bit says whether anything follows.
    let value = (quotient | u128::from(rest != 0)) as f64 * 2f64.powi(exponent);
    if (a < 0) != (b < 0) { -value } else { value }
}

/// Floor division of integers, Python's `//`.
pub(crate) fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn int_binary(op: BinaryOp, a: i128, b: i128) -> Result<Num, Fault> {
    let value = match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => {
            return if b == 0 { Err(Fault::ZeroDivision) } else { Ok(Num::Float(divide(a, b))) };
        }
        BinaryOp::FloorDiv | BinaryOp::Mod if b == 0 => return Err(Fault::ZeroDivision),
        BinaryOp::FloorDiv => floor_div(a, b),
        BinaryOp::Mod => floor_div(a, b).and_then(|q| q.checked_mul(b)).and_then(|p| a.checked_sub(p)),
        BinaryOp::Pow if b < 0 => {
            return if a == 0 { Err(Fault::ZeroDivision) } else { Ok(Num::Float((a as f64).powf(b as f64))) };
        }
        BinaryOp::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        BinaryOp::Shl => u32::try_from(b).ok().filter(|&b| b < 127).and_then(|b| a.checked_mul(1i128 << b)),
        BinaryOp::Shr => u32::try_from(b).ok().map(|b| a >> b.min(127)),
        BinaryOp::And => Some(a & b),
        BinaryOp::Or => Some(a | b),
        BinaryOp::Xor => Some(a ^ b),
        BinaryOp::MatMul => return Err(Fault::Kind),
    };
    value.map(Num::Int).ok_or(if b < 0 && matches!(op, BinaryOp::Shl | BinaryOp::Shr) { Fault::Domain } else { Fault::Overflow })
}

/// A power by repeated multiplication; `None` to the power 0, which is the caller's 1.
pub(crate) fn power<T: Clone>(base: T, exponent: u128, mut multiply: impl FnMut(T, T) -> T) -> Option<T> {
    let (mut square, mut left, mut product) = (base, exponent, None);
    while left > 0 {
        if left & 1 == 1 {
            product = Some(match product {
                None => square.clone(),
                Some(product) => multiply(product, square.clone()),
            });
        }
        left >>= 1;
        if left > 0 {
            square = multiply(square.clone(), square);
        }
    }
    product
}

/// Refuses a known divisor of integers that is zero, and a known count of a shift that is negative: the operation's place, the number's.
pub(crate) fn divides_or_shifts(name: &str, number: Num, dtype: DType, (span, at): (Span, Span)) -> Res<()> {
    match name {
        "//" | "%" | "divmod" if dtype.is_integer() && !number.truth() => Err(Box::new(
            Diagnostic::error(id::DIVISION_BY_ZERO, span, format!("`{name}` divides by zero")).also(at, "this is zero"),
        )),
        "<<" | ">>" if number.as_int().is_some_and(|count| count < 0) => Err(Box::new(
            Diagnostic::error(id::VALUE_RANGE, span, format!("`{name}` by a negative count")).also(at, "this is negative"),
        )),
        _ => Ok(()),
    }
}

/// The refusal of a power of integers that need not be an integer: to a negative one Python has a float.
pub(crate) fn power_of_integers(name: &str, base: Option<Num>, span: Span) -> Diagnostic {
    let message = format!("`{name}` of integers takes a power that is known when the kernel is compiled, and not negative");
    Diagnostic::error(id::OPERAND_TYPE, span, message).help(match base {
        Some(Num::Int(2)) => "write `1 << n`, or `tile.cast(n, fp32)` for a power in floats",
        _ => "write `tile.cast(x, fp32)` for a power in floats",
    })
}

/// The remainder with the divisor's sign, Python's `%`.
fn floor_mod(a: f64, b: f64) -> f64 {
    match a % b {
        0.0 => 0f64.copysign(b),
        rest if (rest < 0.0) != (b < 0.0) => rest + b,
        rest => rest,
    }
}

/// The quotient rounded down, Python's `//`: of what the remainder leaves, since `a / b` may have been rounded up.
fn floor_quotient(a: f64, b: f64) -> f64 {
    let rest = a % b;
    let one_less = rest != 0.0 && (rest < 0.0) != (b < 0.0);
    let whole = (a - rest) / b - f64::from(u8::from(one_less));
    match whole.floor() {
        _ if whole == 0.0 => 0f64.copysign(a / b),
        floor if whole - floor > 0.5 => floor + 1.0,
        floor => floor,
    }
}

fn float_binary(op: BinaryOp, a: f64, b: f64) -> Result<Num, Fault> {
    let value = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod if b == 0.0 => return Err(Fault::ZeroDivision),
        BinaryOp::Div => a / b,
        BinaryOp::FloorDiv => floor_quotient(a, b),
        BinaryOp::Mod => floor_mod(a, b),
        BinaryOp::Pow if a == 0.0 && b < 0.0 => return Err(Fault::ZeroDivision),
        BinaryOp::Pow if a < 0.0 && b.fract() != 0.0 => return Err(Fault::Domain),
        BinaryOp::Pow => a.powf(b),
        _ => return Err(Fault::Kind),
    };
    Ok(Num::Float(value))
}

#[cfg(test)]
mod tests {
    use super::{Fault, Num};
    use crate::ast::BinaryOp;

    fn int(op: BinaryOp, a: i128, b: i128) -> Result<i128, Fault> {
        Num::Int(a).binary(op, Num::Int(b)).map(|value| value.as_int().unwrap_or(i128::MIN))
    }

    #[test]
    fn python_division() {
        assert_eq!(int(BinaryOp::FloorDiv, 7, -2), Ok(-4));
        assert_eq!(int(BinaryOp::Mod, 7, -2), Ok(-1));
        assert_eq!(int(BinaryOp::Mod, -7, 3), Ok(2));
        assert_eq!(int(BinaryOp::FloorDiv, 1, 0), Err(Fault::ZeroDivision));
        assert_eq!(Num::Int(1).binary(BinaryOp::Div, Num::Int(2)), Ok(Num::Float(0.5)));
        assert_eq!(int(BinaryOp::Pow, 2, 200), Err(Fault::Overflow));
        assert_eq!(int(BinaryOp::FloorDiv, i128::MIN, -1), Err(Fault::Overflow));
        assert_eq!(int(BinaryOp::Shl, 1, 1000), Err(Fault::Overflow));
    }
}
