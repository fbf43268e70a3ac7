//! Functions of compile-time values that stand where an expression is evaluated when the kernel is compiled, by their paths.

use tessera_ir::{Diagnostic, Span};

use super::{Fixed, fault, function};
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::lower::Res;
use crate::number::{Fault, Num};

/// The functions that [`host`] knows.
pub(crate) const HOST: &[&str] = &[
    "builtins.bin",
    "builtins.chr",
    "builtins.hex",
    "builtins.oct",
    "builtins.ord",
    "builtins.pow",
    "math.comb",
    "math.factorial",
    "math.isqrt",
    "math.lcm",
    "math.perm",
    "math.trunc",
    "numpy.abs",
    "numpy.ceil",
    "numpy.exp",
    "numpy.floor",
    "numpy.log",
    "numpy.log10",
    "numpy.log2",
    "numpy.sqrt",
];

/// The value of a function of [`HOST`].
pub(crate) fn host(path: &str, args: &[Fixed], span: Span) -> Res<Fixed> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let whole = |value: Option<i128>| value.map(Fixed::int).ok_or_else(|| fault(Fault::Overflow, name, span));
    let integers: Option<Vec<i128>> = args.iter().map(Fixed::as_int).collect();
    match (path, integers.as_deref(), args) {
        ("builtins.bin", Some([value]), _) => Ok(Fixed::str(&based(*value, "0b", format!("{:b}", value.unsigned_abs())))),
        ("builtins.oct", Some([value]), _) => Ok(Fixed::str(&based(*value, "0o", format!("{:o}", value.unsigned_abs())))),
        ("builtins.hex", Some([value]), _) => Ok(Fixed::str(&based(*value, "0x", format!("{:x}", value.unsigned_abs())))),
        ("builtins.chr", Some([value]), _) => {
            let letter = u32::try_from(*value).ok().and_then(char::from_u32).ok_or_else(|| fault(Fault::Domain, name, span))?;
            Ok(Fixed::str(letter.encode_utf8(&mut [0; 4])))
        }
        ("builtins.ord", _, [Fixed::Str(text)]) if text.chars().count() == 1 => {
            Ok(Fixed::int(text.chars().next().map_or(0, u32::from)))
        }
        ("builtins.pow", Some([base, exponent, modulus]), _) => {
            power_modulo(*base, *exponent, *modulus).map(Fixed::int).map_err(|kind| fault(kind, name, span))
        }
        ("math.isqrt", Some([value]), _) if *value >= 0 => Ok(Fixed::int(value.isqrt())),
        ("math.factorial", Some([value]), _) if *value >= 0 => whole(falling(*value, *value)),
        ("math.perm", Some([n, k]), _) if *n >= 0 && *k >= 0 => whole(falling(*n, *k)),
        ("math.comb", Some([n, k]), _) if *n >= 0 && *k >= 0 => whole(choices(*n, *k)),
        ("math.lcm", Some(values), _) => whole(values.iter().try_fold(1_i128, |total, value| {
            if total == 0 || *value == 0 { Some(0) } else { (total / divisor(total, *value)).checked_mul(*value)?.checked_abs() }
        })),
        ("math.trunc", _, [Fixed::Num(Num::Float(value))]) if value.is_finite() && value.abs() < 1e30 => {
            Ok(Fixed::int(value.trunc() as i128))
        }
        ("math.trunc", Some([value]), _) => Ok(Fixed::int(*value)),
        // NumPy's have floats of them, too.
        ("numpy.ceil", _, [Fixed::Num(value)]) => Ok(Fixed::Num(Num::Float(value.as_f64().ceil()))),
        ("numpy.floor", _, [Fixed::Num(value)]) => Ok(Fixed::Num(Num::Float(value.as_f64().floor()))),
        ("numpy.abs", _, [Fixed::Num(value)]) => number(Builtin::Abs, *value, name, span),
        ("numpy.exp", _, [Fixed::Num(value)]) => number(Builtin::MathExp, *value, name, span),
        ("numpy.log", _, [Fixed::Num(value)]) => number(Builtin::MathLog, *value, name, span),
        ("numpy.log10", _, [Fixed::Num(value)]) => number(Builtin::MathLog10, *value, name, span),
        ("numpy.log2", _, [Fixed::Num(value)]) => number(Builtin::MathLog2, *value, name, span),
        ("numpy.sqrt", _, [Fixed::Num(value)]) => number(Builtin::MathSqrt, *value, name, span),
        _ => {
            let given: Vec<String> = args.iter().map(Fixed::describe).collect();
            let message = format!("`{name}` does not take these arguments");
            Err(Box::new(Diagnostic::error(id::CALL, span, message).label(given.join(", "))))
        }
    }
}

fn number(builtin: Builtin, value: Num, name: &str, span: Span) -> Res<Fixed> {
    function(builtin, value).map(Fixed::Num).map_err(|kind| fault(kind, name, span))
}

fn based(value: i128, prefix: &str, digits: String) -> String {
    format!("{}{prefix}{digits}", if value < 0 { "-" } else { "" })
}

fn divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a.wrapping_rem(b));
    }
    a.saturating_abs()
}

/// `n (n - 1) ... (n - k + 1)`
fn falling(n: i128, k: i128) -> Option<i128> {
    if k > n {
        return Some(0);
    }
    // More factors than any integer here holds.
    if k > 128 && n > 128 {
        return None;
    }
    (n - k + 1..=n).try_fold(1_i128, i128::checked_mul)
}

fn choices(n: i128, k: i128) -> Option<i128> {
    if k > n {
        return Some(0);
    }
    let k = k.min(n - k);
    if k > 128 {
        return None;
    }
    // Each product of neighbours is divided by a number that divides it.
    (1..=k).try_fold(1_i128, |total, at| Some(total.checked_mul(n - k + at)? / at))
}

/// `base ** exponent % modulus`; of a negative power the inverse is taken.
fn power_modulo(base: i128, exponent: i128, modulus: i128) -> Result<i128, Fault> {
    if modulus == 0 {
        return Err(Fault::ZeroDivision);
    }
    // Products of two remainders must fit.
    if modulus.unsigned_abs() > 1 << 63 {
        return Err(Fault::Overflow);
    }
    let m = modulus.abs();
    let base = match exponent < 0 {
        true => inverse(base.rem_euclid(m), m).ok_or(Fault::Domain)?,
        false => base.rem_euclid(m),
    };
    let product = crate::number::power(base, exponent.unsigned_abs(), |a, b| a * b % m).unwrap_or(1) % m;
    // The sign is the modulus's.
    Ok(if modulus < 0 && product != 0 { product - m } else { product })
}

/// What a number is multiplied with to leave 1, by Euclid's algorithm.
fn inverse(value: i128, m: i128) -> Option<i128> {
    let (mut rest, mut next, mut factor, mut other) = (m, value, 0, 1);
    while next != 0 {
        let quotient = rest / next;
        (rest, next) = (next, rest - quotient * next);
        (factor, other) = (other, factor - quotient * other);
    }
    (rest == 1).then(|| factor.rem_euclid(m))
}

#[cfg(test)]
mod tests {
    use super::{choices, falling, power_modulo};
    use crate::number::Fault;

    #[test]
    fn integers() {
        assert_eq!(
            (choices(5, 2), choices(2, 5), choices(100, 50), choices(1000, 500)),
            (Some(10), Some(0), Some(100_891_344_545_564_193_334_812_497_256), None)
        );
        assert_eq!((falling(5, 5), falling(5, 2), falling(0, 0), falling(40, 40)), (Some(120), Some(20), Some(1), None));
        assert_eq!(power_modulo(3, -1, 7), Ok(5));
        assert_eq!((power_modulo(2, 200, 1000), power_modulo(-2, 3, 5), power_modulo(2, 3, -5)), (Ok(376), Ok(2), Ok(-2)));
        assert_eq!((power_modulo(2, -1, 4), power_modulo(2, 0, 1)), (Err(Fault::Domain), Ok(0)));
    }
}
