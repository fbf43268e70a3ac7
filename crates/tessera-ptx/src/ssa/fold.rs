//! Folding: instructions on constants, and identities of integers and predicates.
//!
//! ```text
//! add.u32 (add.u32 x, 4), 8   ->  add.u32 x, 12        mul.lo.u32 x, 8   ->  shl.b32 x, 3
//! mad.lo.u32 x, y, 0          ->  mul.lo.u32 x, y      rem.u32 x, 16     ->  and.b32 x, 15
//! cvt.u32.u64 (cvt.u64.u32 x) ->  x                    not.pred (setp.lt.s32 a, b)  ->  setp.ge.s32 a, b
//! ```
//! Floating point is folded only where all operands are constants.

use super::code::{Code, Half};
use super::evaluate::evaluate;
use super::inst::Arg;
use super::kernel::{Class, Kernel, Value};
use super::op::{Op, OpData};
use crate::mnemonic::Mnemonic;
use crate::types::{Kind, Type};
use crate::word::{Modifier, Word};

/// What an instruction folds to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Folded {
    /// A value that exists.
    Value(Value),
    /// A cheaper instruction with the same result, and its sources.
    Instruction(Code, Vec<Arg>),
}

/// What a pure instruction with one result folds to; the result is its first argument.
pub(crate) fn fold(kernel: &mut Kernel, op: Op, args: &[Arg]) -> Option<Folded> {
    let [Arg::Def(_), sources @ ..] = args else { return None };
    let data = kernel.ops.get(op);
    if let Some(bits) = constant_result(kernel, data, sources) {
        let class = result_class(data)?;
        return Some(Folded::Value(kernel.const_bits(class, bits)));
    }
    let found = match (data.mnemonic(), data.code) {
        (Mnemonic::Mov, _) => moved(sources)?,
        (_, Some(code)) => Folder { kernel, sources, code, ty: code.ty() }.identity()?,
        (_, None) => return None,
    };
    Some(match found {
        Found::Value(value) => Folded::Value(value),
        Found::Const(class, bits) => Folded::Value(kernel.const_bits(class, bits)),
        Found::Instruction(code, parts) => {
            let args = parts
                .into_iter()
                .map(|part| match part {
                    Part::Value(value) => Arg::Use(value),
                    Part::Const(class, bits) => Arg::Use(kernel.const_bits(class, bits)),
                })
                .collect();
            Folded::Instruction(code, args)
        }
    })
}

fn result_class(data: &OpData) -> Option<Class> {
    let rule = crate::form::form(data.row).operands.first()?;
    rule.wanted(&data.modifiers).map(Class::of)
}

fn constant_result(kernel: &Kernel, data: &OpData, sources: &[Arg]) -> Option<u64> {
    let mut bits = [0u64; 4];
    // Packing: `mov.b64 d, {low, high}`.
    if let (Mnemonic::Mov, [Arg::Vector(parts)]) = (data.mnemonic(), sources) {
        let mut packed = 0;
        let mut at = 0;
        for part in parts {
            let Arg::Use(value) = part else { return None };
            packed |= kernel.constant(*value)? << at;
            at += kernel.class(*value).bits();
        }
        return Some(packed);
    }
    let bits = bits.get_mut(..sources.len())?;
    for (bits, source) in bits.iter_mut().zip(sources) {
        *bits = match source {
            Arg::Use(value) => kernel.constant(*value)?,
            Arg::Not(value) => kernel.constant(*value)? ^ 1,
            Arg::Int(value) => *value as u64,
            _ => return None,
        };
    }
    evaluate(data.mnemonic(), &data.modifiers, bits)
}

/// What is moved from one register to another is the same value.
fn moved(sources: &[Arg]) -> Option<Found> {
    match sources {
        [Arg::Use(value)] => Some(Found::Value(*value)),
        [Arg::Vector(parts)] => match parts[..] {
            [Arg::Use(value)] => Some(Found::Value(value)),
            _ => None,
        },
        _ => None,
    }
}

enum Found {
    Value(Value),
    Const(Class, u64),
    Instruction(Code, Vec<Part>),
}

enum Part {
    Value(Value),
    Const(Class, u64),
}

struct Folder<'a> {
    kernel: &'a Kernel,
    sources: &'a [Arg],
    code: Code,
    /// The type that it computes in.
    ty: Type,
}

impl Folder<'_> {
    fn value(&self, index: usize) -> Option<Value> {
        match self.sources.get(index) {
            Some(Arg::Use(value)) => Some(*value),
            _ => None,
        }
    }

    fn constant(&self, index: usize) -> Option<u64> {
        self.kernel.constant(self.value(index)?)
    }

    /// The class of integers of the instruction's type.
    fn class(&self) -> Class {
        Class::of(self.ty)
    }

    /// The variable and the constant of a commutative pair.
    fn pair(&self) -> Option<(Value, u64)> {
        match (self.constant(0), self.constant(1)) {
            (_, Some(constant)) => Some((self.value(0)?, constant)),
            (Some(constant), None) => Some((self.value(1)?, constant)),
            (None, None) => None,
        }
    }

    fn instruction(&self, code: Code, parts: Vec<Part>) -> Option<Found> {
        Some(Found::Instruction(code, parts))
    }

    fn zero(&self) -> Option<Found> {
        Some(Found::Const(self.class(), 0))
    }

    fn identity(&self) -> Option<Found> {
        match self.code {
            Code::Selp(_) => self.choice(),
            Code::Cvt(to, from) => self.conversion(to, from),
            code if !code.is_whole() => None,
            Code::Add(_) => self.sum(),
            Code::Sub(_) => self.difference(),
            Code::Mul(half, _) => self.product(half),
            Code::Mad(half, _) => self.product_and_sum(half),
            Code::Div(_) | Code::Rem(_) => self.quotient(),
            Code::Not(_) => self.inverse(),
            Code::And(_) | Code::Or(_) | Code::Xor(_) => self.bits(),
            Code::Shl(_) | Code::Shr(_) => self.shift(),
            Code::Min(_) | Code::Max(_) if self.value(0).is_some() && self.value(0) == self.value(1) => {
                Some(Found::Value(self.value(0)?))
            }
            Code::Setp(compare, _) => self.comparison(compare),
            Code::Min(_) | Code::Max(_) | Code::Neg(_) | Code::Popc(_) | Code::Clz(_) => None,
        }
    }

    fn sum(&self) -> Option<Found> {
        let (x, constant) = self.pair()?;
        if constant == 0 {
            return Some(Found::Value(x));
        }
        let (inner, sources) = self.kernel.expression(x)?;
        let [y, z] = sources[..] else { return None };
        if !matches!(inner, Code::Add(ty) if inner.is_whole() && Class::of(ty) == self.class()) {
            return None;
        }
        let (y, more) = match (self.kernel.constant(y), self.kernel.constant(z)) {
            (_, Some(more)) => (y, more),
            (Some(more), None) => (z, more),
            (None, None) => return None,
        };
        let total = Part::Const(self.class(), constant.wrapping_add(more));
        self.instruction(self.code, vec![Part::Value(y), total])
    }

    fn difference(&self) -> Option<Found> {
        let (a, b) = (self.value(0)?, self.value(1)?);
        if a == b {
            return self.zero();
        }
        let constant = self.constant(1)?;
        self.instruction(Code::Add(self.ty), vec![Part::Value(a), Part::Const(self.class(), constant.wrapping_neg())])
    }

    fn product(&self, half: Half) -> Option<Found> {
        let (x, constant) = self.pair()?;
        match (half, constant) {
            (Half::Low | Half::High, 0) => self.zero(),
            (Half::Wide, 0) => Some(Found::Const(Class::of(self.ty.wide()?), 0)),
            (Half::Wide, 1) => self.instruction(Code::Cvt(self.ty.wide()?, self.ty), vec![Part::Value(x)]),
            (Half::Low, 1) => Some(Found::Value(x)),
            (Half::Low, power) if power.is_power_of_two() => self.instruction(
                Code::Shl(self.class().ty()),
                vec![Part::Value(x), Part::Const(Class::B32, power.trailing_zeros().into())],
            ),
            (Half::Low | Half::High | Half::Wide, _) => None,
        }
    }

    fn product_and_sum(&self, half: Half) -> Option<Found> {
        let (a, b, c) = (self.value(0)?, self.value(1)?, self.value(2)?);
        let result = match half {
            Half::Low => self.ty,
            Half::Wide => self.ty.wide()?,
            Half::High => return None,
        };
        let product = Code::Mul(half, self.ty);
        if self.kernel.constant(c) == Some(0) {
            return self.instruction(product, vec![Part::Value(a), Part::Value(b)]);
        }
        let (x, constant) = self.pair()?;
        if constant == 0 {
            return Some(Found::Value(c));
        }
        if let Some(other) = self.kernel.constant(x) {
            let sum = Class::of(result).index()?;
            let product = evaluate(Mnemonic::Mul, &[Modifier::Word(half.word()), Modifier::Type(self.ty)], &[other, constant])?;
            return self.instruction(Code::Add(sum), vec![Part::Value(c), Part::Const(Class::of(sum), product)]);
        }
        if constant == 1 && half == Half::Low {
            return self.instruction(Code::Add(self.ty), vec![Part::Value(x), Part::Value(c)]);
        }
        None
    }

    fn quotient(&self) -> Option<Found> {
        let (x, divisor) = (self.value(0)?, self.constant(1)?);
        let unsigned = matches!(self.ty, Type::U16 | Type::U32 | Type::U64);
        match (self.code, divisor) {
            (Code::Div(_), 1) => Some(Found::Value(x)),
            (Code::Rem(_), 1) => self.zero(),
            (Code::Div(ty), power) if unsigned && power.is_power_of_two() => {
                let amount = Part::Const(Class::B32, power.trailing_zeros().into());
                self.instruction(Code::Shr(ty), vec![Part::Value(x), amount])
            }
            (Code::Rem(_), power) if unsigned && power.is_power_of_two() => {
                let parts = vec![Part::Value(x), Part::Const(self.class(), power - 1)];
                self.instruction(Code::And(self.class().ty()), parts)
            }
            _ => None,
        }
    }

    fn inverse(&self) -> Option<Found> {
        let (inner, sources) = self.kernel.expression(self.value(0)?)?;
        match (inner, &sources[..]) {
            (Code::Not(_), &[value]) => Some(Found::Value(value)),
            (Code::Setp(compare, ty), &[a, b]) => self.opposite(compare, ty, a, b),
            _ => None,
        }
    }

    /// A predicate's source may be negated: then nothing is known of it.
    fn bits(&self) -> Option<Found> {
        let class = self.class();
        let (x, y) = (self.value(0)?, self.value(1)?);
        if x == y {
            return if matches!(self.code, Code::Xor(_)) { self.zero() } else { Some(Found::Value(x)) };
        }
        let (x, constant) = self.pair()?;
        match (self.code, constant) {
            (Code::And(_), 0) => self.zero(),
            (Code::Or(_) | Code::Xor(_), 0) => Some(Found::Value(x)),
            (Code::And(_), all) if all == class.mask() => Some(Found::Value(x)),
            (Code::Or(_), all) if all == class.mask() => Some(Found::Const(class, all)),
            (Code::Xor(_), all) if all == class.mask() => self.instruction(Code::Not(class.ty()), vec![Part::Value(x)]),
            (Code::And(_), mask) => {
                let Some((Code::And(_), inner)) = self.kernel.expression(x) else { return None };
                let [y, z] = inner[..] else { return None };
                let more = self.kernel.constant(z)?;
                self.instruction(Code::And(class.ty()), vec![Part::Value(y), Part::Const(class, mask & more)])
            }
            _ => None,
        }
    }

    /// The comparison that is true where another one is false.
    fn opposite(&self, compare: Word, ty: Type, a: Value, b: Value) -> Option<Found> {
        let float = ty.kind() == Kind::Float;
        let opposite = match (compare, float) {
            (Word::Eq, false) => Word::Ne,
            (Word::Ne, false) => Word::Eq,
            (Word::Lt, false) => Word::Ge,
            (Word::Le, false) => Word::Gt,
            (Word::Gt, false) => Word::Le,
            (Word::Ge, false) => Word::Lt,
            (Word::Eq, true) => Word::Neu,
            (Word::Lt, true) => Word::Geu,
            (Word::Le, true) => Word::Gtu,
            (Word::Gt, true) => Word::Leu,
            (Word::Ge, true) => Word::Ltu,
            (Word::Neu, true) => Word::Eq,
            _ => return None,
        };
        self.instruction(Code::Setp(opposite, ty), vec![Part::Value(a), Part::Value(b)])
    }

    fn shift(&self) -> Option<Found> {
        let (x, amount) = (self.value(0)?, self.constant(1)?);
        if amount == 0 {
            return Some(Found::Value(x));
        }
        let signed = matches!(self.ty, Type::S16 | Type::S32 | Type::S64);
        if amount >= self.ty.bits().into() {
            return if signed { None } else { self.zero() };
        }
        let (inner, sources) = self.kernel.expression(x)?;
        let [y, z] = sources[..] else { return None };
        let total = amount + self.kernel.constant(z)?;
        if inner != self.code || total >= self.ty.bits().into() {
            return None;
        }
        self.instruction(self.code, vec![Part::Value(y), Part::Const(Class::B32, total)])
    }

    fn choice(&self) -> Option<Found> {
        let (yes, no) = (self.value(0)?, self.value(1)?);
        if yes == no {
            return Some(Found::Value(yes));
        }
        let predicate = self.value(2)?;
        if let Some(bit) = self.kernel.constant(predicate) {
            return Some(Found::Value(if bit == 1 { yes } else { no }));
        }
        let inverse = self.kernel.negated(predicate)?;
        self.instruction(self.code, vec![Part::Value(no), Part::Value(yes), Part::Value(inverse)])
    }

    fn comparison(&self, compare: Word) -> Option<Found> {
        let (a, b) = (self.value(0)?, self.value(1)?);
        if a != b || self.sources.len() != 2 || self.ty.kind() == Kind::Float {
            return None;
        }
        match compare {
            Word::Eq | Word::Le | Word::Ge | Word::Ls | Word::Hs => Some(Found::Const(Class::Pred, 1)),
            Word::Ne | Word::Lt | Word::Gt | Word::Lo | Word::Hi => Some(Found::Const(Class::Pred, 0)),
            _ => None,
        }
    }

    /// Conversions between integers that keep the bits, and narrowing of what was widened.
    fn conversion(&self, to: Type, from: Type) -> Option<Found> {
        let x = self.value(0)?;
        if to.kind() != Kind::Int || from.kind() != Kind::Int || to.bits() < 16 || from.bits() < 16 {
            return None;
        }
        if to.bits() == from.bits() && self.kernel.class(x) == Class::of(to) {
            return Some(Found::Value(x));
        }
        let Some((Code::Cvt(middle, first), sources)) = self.kernel.expression(x) else { return None };
        let [source] = sources[..] else { return None };
        let narrows_back = to.bits() == first.bits() && middle.bits() > first.bits() && from.bits() == middle.bits();
        (first.kind() == Kind::Int && narrows_back && self.kernel.class(source) == Class::of(to)).then_some(Found::Value(source))
    }
}
