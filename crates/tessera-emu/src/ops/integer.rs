//! Integer arithmetic, bit operations and comparisons.

use tessera_ptx::{Type, Word};

use super::{Comparison, Map, Spread, Test, by_int, map, test};

/// What is needed of an integer beyond Rust's methods of the same name.
trait Int: Copy {
    const BITS: u32;
    const SIGNED: bool;
    fn wide(self) -> i128;
    fn narrow(value: i128) -> Self;
}

macro_rules! ints {
    ($($ty:ty, $signed:literal;)*) => {$(
        impl Int for $ty {
            const BITS: u32 = <$ty>::BITS;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn wide(self) -> i128 { i128::from(self) }
            #[inline(always)]
            fn narrow(value: i128) -> $ty { value as $ty }
        }
    )*};
}

ints! { u16, false; i16, true; u32, false; i32, true; u64, false; i64, true; }

#[inline(always)]
fn high<T: Int>(product: i128) -> T {
    T::narrow(product >> T::BITS)
}

/// `a / b`; all ones by zero, as the chip gives.
#[inline(always)]
fn quotient<T: Int>(a: T, b: T) -> T {
    if b.wide() == 0 { T::narrow(-1) } else { T::narrow(a.wide() / b.wide()) }
}

/// `a % b`; all ones by zero, as the chip gives.
#[inline(always)]
fn remainder<T: Int>(a: T, b: T) -> T {
    if b.wide() == 0 { T::narrow(-1) } else { T::narrow(a.wide() % b.wide()) }
}

/// A two-operand instruction.
pub(crate) fn two(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    let spread = match (mnemonic, part) {
        ("add", None) => Spread::Sum,
        ("sub", None) => Spread::Difference,
        ("mul", Some(Word::Lo | Word::Wide)) => Spread::Product,
        ("and" | "or" | "xor", _) => Spread::Bits(0b11),
        ("shl" | "shr", _) => Spread::Bits(0b1),
        _ => Spread::Whole,
    };
    two_alone(mnemonic, part, ty).map(|map| map.spreads(spread))
}

fn two_alone(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    match (mnemonic, part, ty) {
        ("add", Some(Word::Sat), _) => return Some(map!(|a: i32, b: i32| -> i32 { a.saturating_add(b) })),
        ("sub", Some(Word::Sat), _) => return Some(map!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) })),
        ("mul", Some(Word::Wide), Type::U16) => return Some(map!(|a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) })),
        ("mul", Some(Word::Wide), Type::S16) => return Some(map!(|a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) })),
        ("mul", Some(Word::Wide), Type::U32) => return Some(map!(|a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) })),
        ("mul", Some(Word::Wide), Type::S32) => return Some(map!(|a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) })),
        ("mul24", Some(part), _) => return Some(multiply_24(part, ty)),
        _ => {}
    }
    match mnemonic {
        "add" => by_int!(ty, T => map!(|a: T, b: T| -> T { a.wrapping_add(b) })),
        "sub" => by_int!(ty, T => map!(|a: T, b: T| -> T { a.wrapping_sub(b) })),
        "mul" if part == Some(Word::Hi) => by_int!(ty, T => map!(|a: T, b: T| -> T { high::<T>(a.wide() * b.wide()) })),
        "mul" => by_int!(ty, T => map!(|a: T, b: T| -> T { a.wrapping_mul(b) })),
        "div" => match ty {
            Type::U32 => Some(map!(|a: u32, b: u32| -> u32 { a.checked_div(b).unwrap_or(u32::MAX) })),
            _ => by_int!(ty, T => map!(|a: T, b: T| -> T { quotient::<T>(a, b) })),
        },
        "rem" => match ty {
            Type::U32 => Some(map!(|a: u32, b: u32| -> u32 { a.checked_rem(b).unwrap_or(u32::MAX) })),
            _ => by_int!(ty, T => map!(|a: T, b: T| -> T { remainder::<T>(a, b) })),
        },
        "min" if part == Some(Word::Relu) && ty == Type::S32 => Some(map!(|a: i32, b: i32| -> i32 { a.min(b).max(0) })),
        "max" if part == Some(Word::Relu) && ty == Type::S32 => Some(map!(|a: i32, b: i32| -> i32 { a.max(b).max(0) })),
        "min" => by_int!(ty, T => map!(|a: T, b: T| -> T { a.min(b) })),
        "max" => by_int!(ty, T => map!(|a: T, b: T| -> T { a.max(b) })),
        "and" => by_int!(ty, T => map!(|a: T, b: T| -> T { a & b })),
        "or" => by_int!(ty, T => map!(|a: T, b: T| -> T { a | b })),
        "xor" => by_int!(ty, T => map!(|a: T, b: T| -> T { a ^ b })),
        "shl" => by_int!(ty, T => map!(|a: T, b: u32| -> T { if b >= T::BITS { 0 } else { a << b } })),
        "shr" => by_int!(ty, T => map!(|a: T, b: u32| -> T {
            if b < T::BITS { a >> b } else if <T as Int>::SIGNED { a >> (T::BITS - 1) } else { 0 }
        })),
        "bmsk" => Some(if part == Some(Word::Wrap) {
            map!(|a: u32, b: u32| -> u32 { bit_mask(a & 31, b & 31) })
        } else {
            map!(|a: u32, b: u32| -> u32 { if a > 31 { 0 } else { bit_mask(a, b.min(32)) } })
        }),
        "szext" => Some(sign_extend(part == Some(Word::Wrap), ty == Type::S32)),
        _ => None,
    }
}

fn bit_mask(from: u32, length: u32) -> u32 {
    (((1u64 << length) - 1) << from) as u32
}

fn sign_extend(wrap: bool, signed: bool) -> Map {
    fn extend(value: u32, bits: u32, signed: bool) -> u32 {
        match bits {
            0 => 0,
            32.. => value,
            _ if signed => ((value << (32 - bits)) as i32 >> (32 - bits)) as u32,
            _ => value & ((1 << bits) - 1),
        }
    }
    match (wrap, signed) {
        (true, true) => map!(|a: u32, b: u32| -> u32 { extend(a, b & 31, true) }),
        (true, false) => map!(|a: u32, b: u32| -> u32 { extend(a, b & 31, false) }),
        (false, true) => map!(|a: u32, b: u32| -> u32 { extend(a, b, true) }),
        (false, false) => map!(|a: u32, b: u32| -> u32 { extend(a, b, false) }),
    }
}

fn multiply_24(part: Word, ty: Type) -> Map {
    #[inline(always)]
    fn signed(a: i32) -> i64 {
        i64::from(a << 8 >> 8)
    }
    #[inline(always)]
    fn unsigned(a: u32) -> u64 {
        u64::from(a & 0xff_ffff)
    }
    match (part, ty) {
        (Word::Hi, Type::S32) => map!(|a: i32, b: i32| -> i32 { ((signed(a) * signed(b)) >> 16) as i32 }),
        (Word::Hi, _) => map!(|a: u32, b: u32| -> u32 { ((unsigned(a) * unsigned(b)) >> 16) as u32 }),
        (_, Type::S32) => map!(|a: i32, b: i32| -> i32 { (signed(a) * signed(b)) as i32 }),
        _ => map!(|a: u32, b: u32| -> u32 { (unsigned(a) * unsigned(b)) as u32 }),
    }
}

/// A one-operand instruction.
pub(crate) fn one(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    let spread = if matches!(mnemonic, "mov" | "not" | "brev") { Spread::Bits(0b1) } else { Spread::Whole };
    one_alone(mnemonic, part, ty).map(|map| map.spreads(spread))
}

fn one_alone(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    match mnemonic {
        "mov" => by_int!(ty, T => map!(|a: T| -> T { a })),
        "abs" => by_int!(ty, T => map!(|a: T| -> T { if a.wide() < 0 { (0 as T).wrapping_sub(a) } else { a } })),
        "neg" => by_int!(ty, T => map!(|a: T| -> T { (0 as T).wrapping_sub(a) })),
        "not" => by_int!(ty, T => map!(|a: T| -> T { !a })),
        "cnot" => by_int!(ty, T => map!(|a: T| -> T { T::from(a == 0) })),
        "popc" if ty == Type::B64 => Some(map!(|a: u64| -> u32 { a.count_ones() })),
        "popc" => Some(map!(|a: u32| -> u32 { a.count_ones() })),
        "clz" if ty == Type::B64 => Some(map!(|a: u64| -> u32 { a.leading_zeros() })),
        "clz" => Some(map!(|a: u32| -> u32 { a.leading_zeros() })),
        "brev" if ty == Type::B64 => Some(map!(|a: u64| -> u64 { a.reverse_bits() })),
        "brev" => Some(map!(|a: u32| -> u32 { a.reverse_bits() })),
        "bfind" => {
            let shift = part == Some(Word::ShiftAmt);
            Some(match (ty, shift) {
                (Type::U64, false) => map!(|a: u64| -> u32 { find(a, 64, false) }),
                (Type::U64, true) => map!(|a: u64| -> u32 { find(a, 64, true) }),
                (Type::S64, false) => map!(|a: i64| -> u32 { find((a ^ (a >> 63)) as u64, 64, false) }),
                (Type::S64, true) => map!(|a: i64| -> u32 { find((a ^ (a >> 63)) as u64, 64, true) }),
                (Type::S32, false) => map!(|a: i32| -> u32 { find(u64::from((a ^ (a >> 31)) as u32), 32, false) }),
                (Type::S32, true) => map!(|a: i32| -> u32 { find(u64::from((a ^ (a >> 31)) as u32), 32, true) }),
                (_, false) => map!(|a: u32| -> u32 { find(u64::from(a), 32, false) }),
                (_, true) => map!(|a: u32| -> u32 { find(u64::from(a), 32, true) }),
            })
        }
        _ => None,
    }
}

/// The position of the highest one, or how far left it has to go to reach the top.
fn find(value: u64, bits: u32, shift: bool) -> u32 {
    match value.checked_ilog2() {
        None => u32::MAX,
        Some(position) if shift => bits - 1 - position,
        Some(position) => position,
    }
}

/// A three- or four-operand instruction; immediates come as operands too.
pub(crate) fn more(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    let spread = match (mnemonic, part) {
        ("mad", Some(Word::Lo | Word::Wide)) => Spread::Product,
        ("bfe", _) => Spread::Bits(0b1),
        ("bfi" | "prmt", _) => Spread::Bits(0b11),
        ("lop3", _) => Spread::Bits(0b111),
        _ => Spread::Whole,
    };
    more_alone(mnemonic, part, ty).map(|map| map.spreads(spread))
}

fn more_alone(mnemonic: &str, part: Option<Word>, ty: Type) -> Option<Map> {
    match (mnemonic, part, ty) {
        ("mad", Some(Word::Wide), Type::U16) => {
            Some(map!(|a: u16, b: u16, c: u32| -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) }))
        }
        ("mad", Some(Word::Wide), Type::S16) => {
            Some(map!(|a: i16, b: i16, c: i32| -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) }))
        }
        ("mad", Some(Word::Wide), Type::U32) => {
            Some(map!(|a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) }))
        }
        ("mad", Some(Word::Wide), Type::S32) => {
            Some(map!(|a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) }))
        }
        ("mad", Some(Word::Hi), _) => {
            by_int!(ty, T => map!(|a: T, b: T, c: T| -> T { high::<T>(a.wide() * b.wide()).wrapping_add(c) }))
        }
        ("mad", _, _) => by_int!(ty, T => map!(|a: T, b: T, c: T| -> T { a.wrapping_mul(b).wrapping_add(c) })),
        ("mad24", Some(Word::Hi), Type::S32) => Some(map!(|a: i32, b: i32, c: i32| -> i32 {
            (((i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)) >> 16) as i32).wrapping_add(c)
        })),
        ("mad24", Some(Word::Hi), _) => Some(map!(|a: u32, b: u32, c: u32| -> u32 {
            (((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 16) as u32).wrapping_add(c)
        })),
        ("mad24", _, Type::S32) => Some(map!(|a: i32, b: i32, c: i32| -> i32 {
            ((i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)) as i32).wrapping_add(c)
        })),
        ("mad24", _, _) => Some(map!(|a: u32, b: u32, c: u32| -> u32 {
            ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) as u32).wrapping_add(c)
        })),
        ("sad", _, _) => {
            by_int!(ty, T => map!(|a: T, b: T, c: T| -> T { c.wrapping_add(T::narrow((a.wide() - b.wide()).abs())) }))
        }
        ("bfe", _, Type::S32) => Some(map!(|a: i32, b: u32, c: u32| -> i32 { extract(i128::from(a), b, c, 32, true) as i32 })),
        ("bfe", _, Type::S64) => Some(map!(|a: i64, b: u32, c: u32| -> i64 { extract(i128::from(a), b, c, 64, true) as i64 })),
        ("bfe", _, Type::U64) => Some(map!(|a: u64, b: u32, c: u32| -> u64 { extract(i128::from(a), b, c, 64, false) as u64 })),
        ("bfe", _, _) => Some(map!(|a: u32, b: u32, c: u32| -> u32 { extract(i128::from(a), b, c, 32, false) as u32 })),
        ("bfi", _, Type::B64) => Some(map!(|a: u64, b: u64, c: u32, d: u32| -> u64 { insert(a, b, c, d, 64) })),
        ("bfi", _, _) => {
            Some(map!(|a: u32, b: u32, c: u32, d: u32| -> u32 { insert(u64::from(a), u64::from(b), c, d, 32) as u32 }))
        }
        ("fns", _, _) => Some(map!(|a: u32, b: u32, c: i32| -> u32 { nth_set(a, b, c) })),
        ("lop3", _, _) => Some(map!(|a: u32, b: u32, c: u32, d: u32| -> u32 { logic(a, b, c, d) })),
        ("prmt", mode, _) => Some(match mode {
            Some(Word::F4e) => {
                map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, [0x3210, 0x4321, 0x5432, 0x6543][(c & 3) as usize]) })
            }
            Some(Word::B4e) => {
                map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, [0x5670, 0x6701, 0x7012, 0x0123][(c & 3) as usize]) })
            }
            Some(Word::Rc8) => map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, (c & 3) * 0x1111) }),
            Some(Word::Ecl) => {
                map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, [0x3210, 0x3211, 0x3222, 0x3333][(c & 3) as usize]) })
            }
            Some(Word::Ecr) => {
                map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, [0x0000, 0x1110, 0x2210, 0x3210][(c & 3) as usize]) })
            }
            Some(Word::Rc16) => map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, if c & 1 == 0 { 0x1010 } else { 0x3232 }) }),
            _ => map!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, c) }),
        }),
        _ => None,
    }
}

/// The funnel shift: `left`, and whether the amount wraps at 32.
pub(crate) fn funnel(left: bool, wrap: bool) -> Map {
    #[inline(always)]
    fn both(a: u32, b: u32) -> u64 {
        u64::from(b) << 32 | u64::from(a)
    }
    let map = match (left, wrap) {
        (true, true) => map!(|a: u32, b: u32, c: u32| -> u32 { (both(a, b) << (c & 31) >> 32) as u32 }),
        (true, false) => map!(|a: u32, b: u32, c: u32| -> u32 { (both(a, b) << c.min(32) >> 32) as u32 }),
        (false, true) => map!(|a: u32, b: u32, c: u32| -> u32 { (both(a, b) >> (c & 31)) as u32 }),
        (false, false) => map!(|a: u32, b: u32, c: u32| -> u32 { (both(a, b) >> c.min(32)) as u32 }),
    };
    map.spreads(Spread::Bits(0b11))
}

/// Bits `position..position + length`; signed fields repeat their top bit, or the value's where the field reaches beyond it.
fn extract(value: i128, position: u32, length: u32, bits: u32, signed: bool) -> i128 {
    let (position, length) = ((position & 0xff) as i32, (length & 0xff) as i32);
    let top = bits as i32 - 1;
    let unsigned = value & ((1 << bits) - 1);
    if length == 0 {
        return 0;
    }
    let sign = signed && (unsigned >> (position + length - 1).min(top)) & 1 == 1;
    let mut result = if position > top { 0 } else { unsigned >> position };
    let kept = length.min((top - position + 1).max(0));
    result &= (1i128 << kept) - 1;
    if sign {
        result |= -1i128 << kept;
    }
    result
}

fn insert(field: u64, into: u64, position: u32, length: u32, bits: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= bits || length == 0 {
        return into;
    }
    let mask = (((1u128 << length.min(64)) - 1) << position) as u64;
    (into & !mask) | (((u128::from(field) << position) as u64) & mask)
}

/// The position of the n-th one at or beyond a base, counted upwards for positive n and downwards for negative.
fn nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let step = offset.signum();
    let (mut position, mut left) = (base as i32, offset.abs());
    while (0..32).contains(&position) {
        if mask >> position & 1 == 1 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += step;
    }
    u32::MAX
}

/// The bit of `table` that the three operands' bits select.
#[inline(always)]
fn logic(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    for row in 0..8u32 {
        let chosen = (table >> row & 1).wrapping_neg();
        let pick = |value: u32, bit: u32| value ^ (bit.wrapping_sub(1));
        result |= chosen & pick(a, row >> 2 & 1) & pick(b, row >> 1 & 1) & pick(c, row & 1);
    }
    result
}

fn permute(a: u32, b: u32, control: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut result = 0;
    for index in 0..4 {
        let selector = control >> (4 * index);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        result |= u32::from(byte) << (8 * index);
    }
    result
}

/// `dp4a` and `dp2a`: whether each side is signed, and the two bytes that `dp2a` takes.
pub(crate) fn dot(four: bool, a_signed: bool, b_signed: bool, high: bool) -> Map {
    #[inline(always)]
    fn byte(value: u32, index: u32, signed: bool) -> i32 {
        let byte = (value >> (8 * index)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    }
    #[inline(always)]
    fn pair(value: u32, index: u32, signed: bool) -> i32 {
        let part = (value >> (16 * index)) as u16;
        if signed { i32::from(part as i16) } else { i32::from(part) }
    }
    #[inline(always)]
    fn four_way<const A: bool, const B: bool>(a: u32, b: u32, c: u32) -> u32 {
        (0..4).fold(c, |sum, index| sum.wrapping_add((byte(a, index, A) * byte(b, index, B)) as u32))
    }
    #[inline(always)]
    fn two_way<const A: bool, const B: bool>(a: u32, b: u32, c: u32, from: u32) -> u32 {
        (0..2).fold(c, |sum, index| sum.wrapping_add(pair(a, index, A).wrapping_mul(byte(b, index + from, B)) as u32))
    }
    match (four, a_signed, b_signed, high) {
        (true, true, true, _) => map!(|a: u32, b: u32, c: u32| -> u32 { four_way::<true, true>(a, b, c) }),
        (true, true, false, _) => map!(|a: u32, b: u32, c: u32| -> u32 { four_way::<true, false>(a, b, c) }),
        (true, false, true, _) => map!(|a: u32, b: u32, c: u32| -> u32 { four_way::<false, true>(a, b, c) }),
        (true, false, false, _) => map!(|a: u32, b: u32, c: u32| -> u32 { four_way::<false, false>(a, b, c) }),
        (false, true, true, false) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<true, true>(a, b, c, 0) }),
        (false, true, false, false) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<true, false>(a, b, c, 0) }),
        (false, false, true, false) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<false, true>(a, b, c, 0) }),
        (false, false, false, false) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<false, false>(a, b, c, 0) }),
        (false, true, true, true) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<true, true>(a, b, c, 2) }),
        (false, true, false, true) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<true, false>(a, b, c, 2) }),
        (false, false, true, true) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<false, true>(a, b, c, 2) }),
        (false, false, false, true) => map!(|a: u32, b: u32, c: u32| -> u32 { two_way::<false, false>(a, b, c, 2) }),
    }
}

/// Two 16-bit integers in one register.
pub(crate) fn pairs(mnemonic: &str, relu: bool, signed: bool) -> Option<Map> {
    #[inline(always)]
    fn each(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
        u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
    }
    let map = match (mnemonic, signed, relu) {
        ("add", ..) => map!(|a: u32, b: u32| -> u32 { each(a, b, u16::wrapping_add) }),
        ("min", true, false) => map!(|a: u32, b: u32| -> u32 { each(a, b, |a, b| (a as i16).min(b as i16) as u16) }),
        ("min", true, true) => map!(|a: u32, b: u32| -> u32 { each(a, b, |a, b| (a as i16).min(b as i16).max(0) as u16) }),
        ("min", false, _) => map!(|a: u32, b: u32| -> u32 { each(a, b, u16::min) }),
        ("max", true, false) => map!(|a: u32, b: u32| -> u32 { each(a, b, |a, b| (a as i16).max(b as i16) as u16) }),
        ("max", true, true) => map!(|a: u32, b: u32| -> u32 { each(a, b, |a, b| (a as i16).max(b as i16).max(0) as u16) }),
        ("max", false, _) => map!(|a: u32, b: u32| -> u32 { each(a, b, u16::max) }),
        _ => return None,
    };
    Some(map.spreads(Spread::Pieces(16)))
}

/// `cvt.pack`: `a` above `b`, saturated to a type of 8 or 16 bits, below the low bits of `c`.
pub(crate) fn pack(ty: Type) -> Option<Map> {
    macro_rules! saturated {
        ($t:ty, $u:ty) => {
            map!(|a: i32, b: i32, c: u32| -> u32 {
                let [a, b] = [a, b].map(|v| u32::from(v.clamp(i32::from(<$t>::MIN), i32::from(<$t>::MAX)) as $t as $u));
                let kept = if <$t>::BITS == 16 { 0 } else { c << (2 * (<$t>::BITS % 16)) };
                kept | a << <$t>::BITS | b
            })
        };
    }
    // Of a word with n bits of each: `c` moves up by 2n.
    macro_rules! narrow {
        ($bits:literal, $low:literal, $high:literal) => {
            map!(|a: i32, b: i32, c: u32| -> u32 {
                let [a, b] = [a, b].map(|v| v.clamp($low, $high) as u32 & ((1 << $bits) - 1));
                c << (2 * $bits) | a << $bits | b
            })
        };
    }
    match ty {
        Type::U4 => Some(narrow!(4, 0, 15)),
        Type::S4 => Some(narrow!(4, -8, 7)),
        Type::U2 => Some(narrow!(2, 0, 3)),
        Type::S2 => Some(narrow!(2, -2, 1)),
        Type::U8 => Some(saturated!(u8, u8)),
        Type::S8 => Some(saturated!(i8, u8)),
        Type::U16 => Some(saturated!(u16, u16)),
        Type::S16 => Some(saturated!(i16, u16)),
        _ => None,
    }
}

/// A comparison of integers.
pub(crate) fn compare(how: Word, ty: Type) -> Option<Test> {
    // `lo`, `ls`, `hi`, `hs` are unsigned whatever the type says.
    let unsigned = match ty {
        Type::S16 => Type::U16,
        Type::S32 => Type::U32,
        Type::S64 => Type::U64,
        other => other,
    };
    let test = match how {
        Word::Eq => by_int!(ty, T => test!(|a: T, b: T| { a == b })),
        Word::Ne => by_int!(ty, T => test!(|a: T, b: T| { a != b })),
        Word::Lt => by_int!(ty, T => test!(|a: T, b: T| { a < b })),
        Word::Le => by_int!(ty, T => test!(|a: T, b: T| { a <= b })),
        Word::Gt => by_int!(ty, T => test!(|a: T, b: T| { a > b })),
        Word::Ge => by_int!(ty, T => test!(|a: T, b: T| { a >= b })),
        Word::Lo => by_int!(unsigned, T => test!(|a: T, b: T| { a < b })),
        Word::Ls => by_int!(unsigned, T => test!(|a: T, b: T| { a <= b })),
        Word::Hi => by_int!(unsigned, T => test!(|a: T, b: T| { a > b })),
        Word::Hs => by_int!(unsigned, T => test!(|a: T, b: T| { a >= b })),
        _ => None,
    };
    let comparison = match how {
        Word::Eq | Word::Ne => Comparison::Equality,
        Word::Lo | Word::Ls | Word::Hi | Word::Hs => Comparison::Order { signed: false },
        _ => Comparison::Order { signed: matches!(ty, Type::S16 | Type::S32 | Type::S64) },
    };
    test.map(|test| test.compares(comparison))
}

/// A copy between registers of different width, or to a narrower integer type: what `cvt` does between integers.
pub(crate) fn resize(from: Type, to_wide: bool) -> Option<Map> {
    #[inline(always)]
    fn low<const BITS: u32, const SIGNED: bool>(value: u64) -> u64 {
        let unused = 64 - BITS;
        if SIGNED { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
    }
    macro_rules! both {
        ($bits:literal, $signed:literal) => {
            if to_wide {
                map!(|a: u32| -> u64 { low::<$bits, $signed>(u64::from(a)) })
            } else {
                map!(|a: u32| -> u32 { low::<$bits, $signed>(u64::from(a)) as u32 })
            }
        };
    }
    let map = match from {
        Type::U8 | Type::B8 => both!(8, false),
        Type::S8 => both!(8, true),
        Type::U16 | Type::B16 => both!(16, false),
        Type::S16 => both!(16, true),
        Type::U32 | Type::B32 => both!(32, false),
        Type::S32 => both!(32, true),
        Type::U64 | Type::S64 | Type::B64 if to_wide => map!(|a: u64| -> u64 { a }),
        Type::U64 | Type::S64 | Type::B64 => map!(|a: u64| -> u32 { a as u32 }),
        _ => return None,
    };
    Some(map.spreads(Spread::Bits(0b1)))
}

/// The low 32 bits of a 64-bit register, and a 32-bit register in a 64-bit one: registers of another width than the type.
pub(crate) fn narrow() -> Map {
    map!(|a: u64| -> u32 { a as u32 }).spreads(Spread::Bits(0b1))
}

/// See [`narrow`].
pub(crate) fn widen() -> Map {
    map!(|a: u32| -> u64 { u64::from(a) }).spreads(Spread::Bits(0b1))
}

/// Keeps the low bits of a 32-bit lane: 8 or 16.
pub(crate) fn truncate(bits: u32) -> Option<Map> {
    let map = match bits {
        8 => map!(|a: u32| -> u32 { a & 0xff }),
        16 => map!(|a: u32| -> u32 { a & 0xffff }),
        _ => return None,
    };
    Some(map.spreads(Spread::Bits(0b1)))
}
