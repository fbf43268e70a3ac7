//! What a pure instruction computes from constants.
//!
//! Only results that every device gives bit for bit are computed: integers, and IEEE operations rounded to nearest whose
//! result is a number (devices choose their own NaN). Everything else stays an instruction.

use tessera_types::{DType, FloatFormat, Overflow, Rounding};

use crate::form::types_of;
use crate::mnemonic::Mnemonic;
use crate::types::{Kind, Type};
use crate::word::{Modifier, Word};

/// The result of an operation on constants, zero-extended to the width of its class.
pub(crate) fn evaluate(mnemonic: Mnemonic, modifiers: &[Modifier], args: &[u64]) -> Option<u64> {
    let has = |word: Word| modifiers.contains(&Modifier::Word(word));
    let inexact =
        [Word::Ftz, Word::Sat, Word::Satfinite, Word::Relu, Word::Cc, Word::Approx, Word::Full, Word::Rz, Word::Rm, Word::Rp];
    if inexact.into_iter().any(has) {
        return None;
    }
    let ty = types_of(modifiers).next_back()?;
    let arg = |index: usize| args.get(index).copied();
    match mnemonic {
        Mnemonic::Mov => arg(0),
        Mnemonic::Selp => Some(if arg(2)? & 1 == 1 { arg(0)? } else { arg(1)? }),
        Mnemonic::Setp if args.len() == 2 => compare(modifiers, ty, arg(0)?, arg(1)?).map(u64::from),
        Mnemonic::Cvt if args.len() == 1 => convert(modifiers, arg(0)?),
        Mnemonic::Lop3 => {
            let (a, b, c, table) = (arg(0)?, arg(1)?, arg(2)?, arg(3)?);
            let minterm = |index: u32| {
                let pick = |value: u64, bit: u32| if index >> bit & 1 == 1 { value } else { !value };
                if table >> index & 1 == 1 { pick(a, 2) & pick(b, 1) & pick(c, 0) } else { 0 }
            };
            Some((0..8).map(minterm).fold(0, |all, one| all | one) & 0xFFFF_FFFF)
        }
        Mnemonic::Prmt if modifiers.len() == 1 => Some(permute(arg(0)?, arg(1)?, arg(2)?)),
        Mnemonic::Shf => {
            let (low, high, amount) = (arg(0)?, arg(1)?, arg(2)?);
            let amount = if has(Word::Wrap) { amount & 31 } else { amount.min(32) };
            let both = high << 32 | low;
            Some(if has(Word::L) { (u128::from(both) << amount >> 32) as u64 } else { both >> amount } & 0xFFFF_FFFF)
        }
        Mnemonic::Popc => Some(arg(0)?.count_ones().into()),
        Mnemonic::Clz => Some((arg(0)?.leading_zeros() - (64 - ty.bits())).into()),
        _ => match ty.kind() {
            Kind::Int | Kind::Untyped | Kind::Predicate | Kind::Handle => integer(mnemonic, has, ty, args),
            Kind::Float => match ty {
                Type::F32 => single(mnemonic, args).map(u64::from),
                Type::F64 => double(mnemonic, args),
                _ => None,
            },
        },
    }
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S4 | Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

/// A value of a type, extended.
fn wide(ty: Type, value: u64) -> i128 {
    let unused = 64 - ty.bits();
    if is_signed(ty) { (((value << unused) as i64) >> unused).into() } else { (value & mask(ty.bits())).into() }
}

fn integer(mnemonic: Mnemonic, has: impl Fn(Word) -> bool, ty: Type, args: &[u64]) -> Option<u64> {
    if matches!(ty, Type::U16x2 | Type::S16x2) {
        return None;
    }
    let bits = ty.bits();
    let arg = |index: usize| args.get(index).map(|&value| wide(ty, value));
    let raw = |index: usize| args.get(index).copied();
    let product = || Some(arg(0)?.wrapping_mul(arg(1)?));
    if has(Word::Wide) {
        let sum = match mnemonic {
            Mnemonic::Mul => product()?,
            Mnemonic::Mad => product()?.wrapping_add(raw(2)?.into()),
            _ => return None,
        };
        return Some(sum as u64 & mask(2 * bits));
    }
    let result = match mnemonic {
        Mnemonic::Add => arg(0)? + arg(1)?,
        Mnemonic::Sub => arg(0)? - arg(1)?,
        Mnemonic::Mul if has(Word::Hi) => product()? >> bits,
        Mnemonic::Mul => product()?,
        Mnemonic::Mad if has(Word::Lo) => product()?.wrapping_add(arg(2)?),
        Mnemonic::Div if arg(1)? != 0 => arg(0)? / arg(1)?,
        Mnemonic::Rem if arg(1)? != 0 => arg(0)? % arg(1)?,
        Mnemonic::Min => arg(0)?.min(arg(1)?),
        Mnemonic::Max => arg(0)?.max(arg(1)?),
        Mnemonic::Neg => -arg(0)?,
        Mnemonic::Abs => arg(0)?.abs(),
        Mnemonic::And => arg(0)? & arg(1)?,
        Mnemonic::Or => arg(0)? | arg(1)?,
        Mnemonic::Xor => arg(0)? ^ arg(1)?,
        Mnemonic::Not => !arg(0)?,
        Mnemonic::Shl => arg(0)? << (raw(1)? & 0xFFFF_FFFF).min(64),
        Mnemonic::Shr => arg(0)? >> (raw(1)? & 0xFFFF_FFFF).min(bits.into()),
        _ => return None,
    };
    Some(result as u64 & mask(bits))
}

fn single(mnemonic: Mnemonic, args: &[u64]) -> Option<u32> {
    let arg = |index: usize| args.get(index).map(|&bits| f32::from_bits(bits as u32));
    // Signs are bits: they change on NaN too.
    match mnemonic {
        Mnemonic::Neg if !arg(0)?.is_nan() => return Some((-arg(0)?).to_bits()),
        Mnemonic::Abs if !arg(0)?.is_nan() => return Some(arg(0)?.abs().to_bits()),
        _ => {}
    }
    let result = match mnemonic {
        Mnemonic::Add => arg(0)? + arg(1)?,
        Mnemonic::Sub => arg(0)? - arg(1)?,
        Mnemonic::Mul => arg(0)? * arg(1)?,
        Mnemonic::Fma => arg(0)?.mul_add(arg(1)?, arg(2)?),
        Mnemonic::Div => arg(0)? / arg(1)?,
        Mnemonic::Sqrt => arg(0)?.sqrt(),
        _ => return None,
    };
    (!result.is_nan()).then_some(result.to_bits())
}

fn double(mnemonic: Mnemonic, args: &[u64]) -> Option<u64> {
    let arg = |index: usize| args.get(index).map(|&bits| f64::from_bits(bits));
    let result = match mnemonic {
        Mnemonic::Add => arg(0)? + arg(1)?,
        Mnemonic::Sub => arg(0)? - arg(1)?,
        Mnemonic::Mul => arg(0)? * arg(1)?,
        Mnemonic::Fma => arg(0)?.mul_add(arg(1)?, arg(2)?),
        Mnemonic::Div => arg(0)? / arg(1)?,
        Mnemonic::Sqrt => arg(0)?.sqrt(),
        Mnemonic::Neg => -arg(0)?,
        Mnemonic::Abs => arg(0)?.abs(),
        _ => return None,
    };
    (!result.is_nan()).then_some(result.to_bits())
}

fn compare(modifiers: &[Modifier], ty: Type, a: u64, b: u64) -> Option<bool> {
    let word = modifiers.iter().find_map(|modifier| match modifier {
        Modifier::Word(word) => Some(*word),
        Modifier::Type(_) | Modifier::Shape { .. } => None,
    })?;
    let order = match (ty, ty.kind()) {
        (Type::F32, _) => f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32)),
        (Type::F64, _) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (_, Kind::Int | Kind::Untyped) => {
            let unsigned = matches!(word, Word::Lo | Word::Ls | Word::Hi | Word::Hs);
            let (a, b) =
                if unsigned { ((a & mask(ty.bits())).into(), (b & mask(ty.bits())).into()) } else { (wide(ty, a), wide(ty, b)) };
            Some(a.cmp(&b))
        }
        _ => return None,
    };
    let ordered = order.is_some();
    let (less, equal, greater) =
        (order.is_some_and(|o| o.is_lt()), order.is_some_and(|o| o.is_eq()), order.is_some_and(|o| o.is_gt()));
    Some(match word {
        Word::Eq => equal,
        Word::Ne => ordered && !equal,
        Word::Lt | Word::Lo => less,
        Word::Le | Word::Ls => less || equal,
        Word::Gt | Word::Hi => greater,
        Word::Ge | Word::Hs => greater || equal,
        Word::Equ => equal || !ordered,
        Word::Neu => !equal,
        Word::Ltu => less || !ordered,
        Word::Leu => !greater,
        Word::Gtu => greater || !ordered,
        Word::Geu => !less,
        Word::Num => ordered,
        Word::Unordered => !ordered,
        _ => return None,
    })
}

fn convert(modifiers: &[Modifier], value: u64) -> Option<u64> {
    let mut types = types_of(modifiers);
    let (to, from) = (types.next()?, types.next()?);
    // Only what is exact or rounded to nearest is computed here, and floats cut to integers.
    let modified = modifiers.iter().any(|modifier| match modifier {
        Modifier::Word(Word::Rn) => false,
        Modifier::Word(Word::Rzi) => to.kind() != Kind::Int,
        Modifier::Word(_) => true,
        Modifier::Type(_) | Modifier::Shape { .. } => false,
    });
    if modified {
        return None;
    }
    if let (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) = (to, from) {
        return pair_of_halves(from, value);
    }
    let register = super::kernel::Class::of(to).mask();
    let float = match from {
        Type::F32 => Some(f64::from(f32::from_bits(value as u32))),
        Type::F64 => Some(f64::from_bits(value)),
        _ => None,
    };
    match (float, to) {
        (None, _) if from.kind() == Kind::Float => None,
        (None, Type::F32) => Some((wide(from, value) as f32).to_bits().into()),
        (None, Type::F64) => Some((wide(from, value) as f64).to_bits()),
        (None, _) if to.kind() == Kind::Int => Some(wide(to, wide(from, value) as u64) as u64 & register),
        (Some(float), _) if float.is_nan() => None,
        (Some(float), Type::F32) => Some((float as f32).to_bits().into()),
        (Some(float), Type::F64) => Some(float.to_bits()),
        (Some(float), Type::S32) if modifiers.contains(&Modifier::Word(Word::Rzi)) => Some(u64::from(float as i32 as u32)),
        (Some(float), Type::U32) if modifiers.contains(&Modifier::Word(Word::Rzi)) => Some(u64::from(float as u32)),
        _ => None,
    }
}

/// Two numbers of 8 bits as halves, which have them exactly. An assembler makes other numbers of some constants (`number`).
fn pair_of_halves(from: Type, value: u64) -> Option<u64> {
    let own = FloatFormat::of(if from == Type::E4m3x2 { DType::F8E4M3 } else { DType::F8E5M2 })?;
    let half = FloatFormat::of(DType::F16)?;
    let part = |code: u64| {
        let number = own.decode(code & 0xff);
        (!number.is_nan()).then(|| half.encode(number, Rounding::NearestEven, Overflow::Ieee))
    };
    Some(part(value)? | part(value >> 8)? << 16)
}

fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = b << 32 | a;
    (0..4).fold(0, |result, index| {
        let nibble = selector >> (4 * index) & 0xF;
        let byte = bytes >> (8 * (nibble & 7)) & 0xFF;
        let picked = if nibble & 8 == 0 { byte } else { 0xFF * (byte >> 7) };
        result | picked << (8 * index)
    })
}
