//! Functions of numbers: `math`'s, and those of tiles where what they are given is known.

use tessera_ir::Span;

use super::{Fixed, binary, fault};
use crate::ast::BinaryOp;
use crate::builtins::Builtin;
use crate::lower::Res;
use crate::number::{Fault, Num};

/// A function of `math` of compile-time values.
pub(crate) fn math(builtin: Builtin, args: &[Fixed], span: Span) -> Res<Fixed> {
    let name = builtin.row().name;
    if let (Builtin::MathProd, [items]) = (builtin, args) {
        let items = items.iterate(span)?;
        return items.iter().try_fold(Fixed::int(1), |total, item| binary(BinaryOp::Mul, &total, item, span));
    }
    let numbers: Option<Vec<Num>> =
        args.iter().map(|arg| if let Fixed::Num(number) = arg { Some(*number) } else { None }).collect();
    let value = match numbers.as_deref() {
        Some([x]) => function(builtin, *x),
        Some([x, y]) => function_of_two(builtin, *x, *y),
        _ => Err(Fault::Kind),
    };
    value.map(Fixed::Num).map_err(|kind| fault(kind, name, span))
}

/// The value of a function of one number.
pub(crate) fn function(builtin: Builtin, x: Num) -> Result<Num, Fault> {
    let v = x.as_f64();
    let domain = |holds: bool, value: f64| if holds { Ok(Num::Float(value)) } else { Err(Fault::Domain) };
    match builtin {
        Builtin::Negative => x.neg(),
        Builtin::Abs | Builtin::PyAbs => match x.as_int() {
            Some(value) => value.checked_abs().map(Num::Int).ok_or(Fault::Overflow),
            None => Ok(Num::Float(v.abs())),
        },
        Builtin::BitNot => match x {
            Num::Bool(value) => Ok(Num::Bool(!value)),
            Num::Int(value) => Ok(Num::Int(!value)),
            Num::Float(_) => Err(Fault::Kind),
        },
        Builtin::Floor | Builtin::MathFloor | Builtin::Ceil | Builtin::MathCeil => match x.as_int() {
            Some(value) => Ok(Num::Int(value)),
            None if !v.is_finite() || v.abs() > 1e30 => Err(Fault::Domain),
            None if matches!(builtin, Builtin::Floor | Builtin::MathFloor) => Ok(Num::Int(v.floor() as i128)),
            None => Ok(Num::Int(v.ceil() as i128)),
        },
        Builtin::IsNan | Builtin::MathIsNan => Ok(Num::Bool(v.is_nan())),
        Builtin::MathIsInf => Ok(Num::Bool(v.is_infinite())),
        Builtin::MathFabs => Ok(Num::Float(v.abs())),
        Builtin::Exp | Builtin::MathExp => Ok(Num::Float(v.exp())),
        Builtin::Exp2 => Ok(Num::Float(v.exp2())),
        Builtin::Log | Builtin::MathLog => domain(v > 0.0, v.ln()),
        Builtin::Log2 | Builtin::MathLog2 => domain(v > 0.0, v.log2()),
        Builtin::MathLog10 => domain(v > 0.0, v.log10()),
        Builtin::Sqrt | Builtin::MathSqrt => domain(v >= 0.0, v.sqrt()),
        Builtin::Rsqrt => domain(v > 0.0, 1.0 / v.sqrt()),
        Builtin::Sin | Builtin::MathSin => Ok(Num::Float(v.sin())),
        Builtin::Cos | Builtin::MathCos => Ok(Num::Float(v.cos())),
        Builtin::Tan => Ok(Num::Float(v.tan())),
        Builtin::Sinh => Ok(Num::Float(v.sinh())),
        Builtin::Cosh => Ok(Num::Float(v.cosh())),
        Builtin::Tanh | Builtin::MathTanh => Ok(Num::Float(v.tanh())),
        _ => Err(Fault::Kind),
    }
}

/// The value of a function of `math` of two numbers.
pub(crate) fn function_of_two(builtin: Builtin, x: Num, y: Num) -> Result<Num, Fault> {
    let (a, b) = (x.as_f64(), y.as_f64());
    let domain = |holds: bool, value: f64| if holds { Ok(Num::Float(value)) } else { Err(Fault::Domain) };
    match builtin {
        Builtin::MathLog => domain(a > 0.0 && b > 0.0 && b != 1.0, a.ln() / b.ln()),
        Builtin::MathPow => domain(!a.powf(b).is_nan(), a.powf(b)),
        Builtin::MathGcd => {
            let (Some(mut a), Some(mut b)) = (x.as_int(), y.as_int()) else { return Err(Fault::Kind) };
            while b != 0 {
                (a, b) = (b, a.wrapping_rem(b));
            }
            Ok(Num::Int(a.saturating_abs()))
        }
        _ => Err(Fault::Kind),
    }
}
