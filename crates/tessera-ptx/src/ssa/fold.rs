//! Folding: instructions on constants, and identities of integers and predicates.
//!
//! ```text
//! add.u32 (add.u32 x, 4), 8   ->  add.u32 x, 12        mul.lo.u32 x, 8   ->  shl.b32 x, 3
//! mad.lo.u32 x, y, 0          ->  mul.lo.u32 x, y      rem.u32 x, 16     ->  and.b32 x, 15
//! cvt.u32.u64 (cvt.u64.u32 x) ->  x                    not.pred (setp.lt.s32 a, b)  ->  setp.ge.s32 a, b
//! ```
//! Floating point is folded only where all operands are constants.

use super::evaluate::evaluate;
use super::inst::{Arg, InstData};
use super::kernel::{Class, Kernel, Value};
use super::op::{Op, OpData};
use crate::form::types_of;
use crate::types::{Kind, Type};
use crate::word::{Modifier, Word};

/// What an instruction folds to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Folded {
    /// A value that exists.
    Value(Value),
    /// A cheaper instruction with the same result: its text and its sources.
    Instruction(String, Vec<Arg>),
}

/// What a pure instruction with one result folds to; the result is its first argument.
pub(crate) fn fold(kernel: &mut Kernel, op: Op, args: &[Arg]) -> Option<Folded> {
    let [Arg::Def(_), sources @ ..] = args else { return None };
    let data = kernel.ops.get(op);
    if data.row.row().operands.starts_with("d|") && data.mnemonic() != "setp" {
        return None;
    }
    if let Some(bits) = constant_result(kernel, data, sources) {
        let class = result_class(data)?;
        return Some(Folded::Value(kernel.const_bits(class, bits)));
    }
    let found = Folder { kernel, data, sources, ty: types_of(&data.modifiers).next_back()? }.identity()?;
    Some(match found {
        Found::Value(value) => Folded::Value(value),
        Found::Const(class, bits) => Folded::Value(kernel.const_bits(class, bits)),
        Found::Instruction(text, parts) => {
            let args = parts
                .into_iter()
                .map(|part| match part {
                    Part::Value(value) => Arg::Use(value),
                    Part::Const(class, bits) => Arg::Use(kernel.const_bits(class, bits)),
                })
                .collect();
            Folded::Instruction(text, args)
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
    if let ("mov", [Arg::Vector(parts)]) = (data.mnemonic(), sources) {
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

enum Found {
    Value(Value),
    Const(Class, u64),
    Instruction(String, Vec<Part>),
}

enum Part {
    Value(Value),
    Const(Class, u64),
}

struct Folder<'a> {
    kernel: &'a Kernel,
    data: &'a OpData,
    sources: &'a [Arg],
    ty: Type,
}

impl Folder<'_> {
    fn has(&self, word: Word) -> bool {
        self.data.modifiers.contains(&Modifier::Word(word))
    }

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

    /// The instruction that defines a value, when it has this mnemonic.
    fn defined_by(&self, value: Value, mnemonic: &str) -> Option<(&InstData, &OpData)> {
        let inst = self.kernel.inst(self.kernel.definition(value)?);
        let data = self.kernel.ops.get(inst.op);
        (data.mnemonic() == mnemonic && inst.guard.is_none()).then_some((inst, data))
    }

    fn instruction(&self, text: String, parts: Vec<Part>) -> Option<Found> {
        Some(Found::Instruction(text, parts))
    }

    fn zero(&self) -> Option<Found> {
        Some(Found::Const(self.class(), 0))
    }

    fn identity(&self) -> Option<Found> {
        let integer = matches!(self.ty.kind(), Kind::Int | Kind::Untyped | Kind::Predicate)
            && !matches!(self.ty, Type::U16x2 | Type::S16x2)
            && !self.has(Word::Sat)
            && !self.has(Word::Relu);
        if !integer && !matches!(self.data.mnemonic(), "selp" | "cvt" | "mov") {
            return None;
        }
        match self.data.mnemonic() {
            "mov" => match self.sources {
                [Arg::Use(value)] => Some(Found::Value(*value)),
                [Arg::Vector(parts)] if parts.len() == 1 => match parts[0] {
                    Arg::Use(value) => Some(Found::Value(value)),
                    _ => None,
                },
                _ => None,
            },
            "add" | "sub" => self.sum(),
            "mul" => self.product(),
            "mad" => self.product_and_sum(),
            "div" | "rem" => self.quotient(),
            "and" | "or" | "xor" | "not" => self.bits(),
            "shl" | "shr" => self.shift(),
            "min" | "max" if self.value(0).is_some() && self.value(0) == self.value(1) => Some(Found::Value(self.value(0)?)),
            "selp" => self.choice(),
            "setp" => self.comparison(),
            "cvt" => self.conversion(),
            _ => None,
        }
    }

    fn sum(&self) -> Option<Found> {
        let (a, b) = (self.value(0)?, self.value(1)?);
        let class = self.class();
        if self.data.mnemonic() == "sub" {
            if a == b {
                return self.zero();
            }
            let constant = self.constant(1)?;
            let parts = vec![Part::Value(a), Part::Const(class, constant.wrapping_neg())];
            return self.instruction(format!("add.{}", self.ty), parts);
        }
        let (x, constant) = self.pair()?;
        if constant == 0 {
            return Some(Found::Value(x));
        }
        let (inner, data) = self.defined_by(x, "add")?;
        if types_of(&data.modifiers).next_back().map(Class::of) != Some(class) || data.modifiers.len() != 1 {
            return None;
        }
        let [_, Arg::Use(y), Arg::Use(z)] = inner.args[..] else { return None };
        let (y, more) = match (self.kernel.constant(y), self.kernel.constant(z)) {
            (_, Some(more)) => (y, more),
            (Some(more), None) => (z, more),
            (None, None) => return None,
        };
        let total = Part::Const(class, constant.wrapping_add(more));
        self.instruction(format!("add.{}", self.ty), vec![Part::Value(y), total])
    }

    fn product(&self) -> Option<Found> {
        let (x, constant) = self.pair()?;
        if self.has(Word::Hi) {
            return if constant == 0 { self.zero() } else { None };
        }
        if self.has(Word::Wide) {
            let wide = Class::of(self.ty).bits() * 2;
            return match constant {
                0 => Some(Found::Const(if wide == 64 { Class::B64 } else { Class::B32 }, 0)),
                1 => {
                    let sign = if matches!(self.ty, Type::S16 | Type::S32) { 's' } else { 'u' };
                    self.instruction(format!("cvt.{sign}{wide}.{}", self.ty), vec![Part::Value(x)])
                }
                _ => None,
            };
        }
        match constant {
            0 => self.zero(),
            1 => Some(Found::Value(x)),
            power if power.is_power_of_two() => self.instruction(
                format!("shl.b{}", self.ty.bits()),
                vec![Part::Value(x), Part::Const(Class::B32, power.trailing_zeros().into())],
            ),
            _ => None,
        }
    }

    fn product_and_sum(&self) -> Option<Found> {
        let (a, b, c) = (self.value(0)?, self.value(1)?, self.value(2)?);
        let wide = self.has(Word::Wide);
        if self.has(Word::Hi) || self.data.modifiers.len() != 2 {
            return None;
        }
        let part = if wide { "wide" } else { "lo" };
        if self.kernel.constant(c) == Some(0) {
            return self.instruction(format!("mul.{part}.{}", self.ty), vec![Part::Value(a), Part::Value(b)]);
        }
        let (x, constant) = self.pair()?;
        if constant == 0 {
            return Some(Found::Value(c));
        }
        let result = if wide { Class::of(self.ty).bits() * 2 } else { self.ty.bits() };
        if let Some(other) = self.kernel.constant(x) {
            let product = evaluate("mul", &self.data.modifiers, &[other, constant])?;
            let class = if result == 64 { Class::B64 } else { Class::B32 };
            if result < 32 {
                return None;
            }
            return self.instruction(format!("add.u{result}"), vec![Part::Value(c), Part::Const(class, product)]);
        }
        if constant == 1 && !wide {
            return self.instruction(format!("add.{}", self.ty), vec![Part::Value(x), Part::Value(c)]);
        }
        None
    }

    fn quotient(&self) -> Option<Found> {
        let (x, divisor) = (self.value(0)?, self.constant(1)?);
        let unsigned = matches!(self.ty, Type::U16 | Type::U32 | Type::U64);
        match (self.data.mnemonic(), divisor) {
            ("div", 1) => Some(Found::Value(x)),
            ("rem", 1) => self.zero(),
            ("div", power) if unsigned && power.is_power_of_two() => {
                let amount = Part::Const(Class::B32, power.trailing_zeros().into());
                self.instruction(format!("shr.{}", self.ty), vec![Part::Value(x), amount])
            }
            ("rem", power) if unsigned && power.is_power_of_two() => {
                let parts = vec![Part::Value(x), Part::Const(self.class(), power - 1)];
                self.instruction(format!("and.b{}", self.ty.bits()), parts)
            }
            _ => None,
        }
    }

    /// A predicate's source may be negated: then nothing is known of it.
    fn bits(&self) -> Option<Found> {
        let class = self.class();
        let x = self.value(0)?;
        if self.data.mnemonic() == "not" {
            if let Some((inner, _)) = self.defined_by(x, "not")
                && let [_, Arg::Use(value)] = inner.args[..]
            {
                return Some(Found::Value(value));
            }
            return if class == Class::Pred { self.opposite(x) } else { None };
        }
        let y = self.value(1)?;
        if x == y {
            return match self.data.mnemonic() {
                "xor" => self.zero(),
                _ => Some(Found::Value(x)),
            };
        }
        let (x, constant) = self.pair()?;
        match (self.data.mnemonic(), constant) {
            ("and", 0) => self.zero(),
            ("or" | "xor", 0) => Some(Found::Value(x)),
            ("and", all) if all == class.mask() => Some(Found::Value(x)),
            ("or", all) if all == class.mask() => Some(Found::Const(class, all)),
            ("xor", all) if all == class.mask() => self.instruction(format!("not.{}", class.ty()), vec![Part::Value(x)]),
            ("and", mask) => {
                let (inner, _) = self.defined_by(x, "and")?;
                let [_, Arg::Use(y), Arg::Use(z)] = inner.args[..] else { return None };
                let more = self.kernel.constant(z)?;
                self.instruction(format!("and.{}", class.ty()), vec![Part::Value(y), Part::Const(class, mask & more)])
            }
            _ => None,
        }
    }

    /// The comparison that is true where another one is false.
    fn opposite(&self, predicate: Value) -> Option<Found> {
        let (inner, data) = self.defined_by(predicate, "setp")?;
        let ([_, Arg::Use(a), Arg::Use(b)], [Modifier::Word(word), Modifier::Type(ty)]) = (&inner.args[..], &data.modifiers[..])
        else {
            return None;
        };
        if !matches!(inner.args[0], Arg::Def(_)) {
            return None;
        }
        let float = ty.kind() == Kind::Float;
        let opposite = match (word, float) {
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
        self.instruction(format!("setp.{opposite}.{ty}"), vec![Part::Value(*a), Part::Value(*b)])
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
        let (inner, data) = self.defined_by(x, self.data.mnemonic())?;
        let [_, Arg::Use(y), Arg::Use(z)] = inner.args[..] else { return None };
        let total = amount + self.kernel.constant(z)?;
        if data.modifiers != self.data.modifiers || total >= self.ty.bits().into() {
            return None;
        }
        self.instruction(self.data.text.to_string(), vec![Part::Value(y), Part::Const(Class::B32, total)])
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
        let (inner, _) = self.defined_by(predicate, "not")?;
        let [_, Arg::Use(inverse)] = inner.args[..] else { return None };
        self.instruction(self.data.text.to_string(), vec![Part::Value(no), Part::Value(yes), Part::Value(inverse)])
    }

    fn comparison(&self) -> Option<Found> {
        let (a, b) = (self.value(0)?, self.value(1)?);
        if a != b || self.sources.len() != 2 || self.ty.kind() == Kind::Float {
            return None;
        }
        let Modifier::Word(word) = self.data.modifiers[0] else { return None };
        match word {
            Word::Eq | Word::Le | Word::Ge | Word::Ls | Word::Hs => Some(Found::Const(Class::Pred, 1)),
            Word::Ne | Word::Lt | Word::Gt | Word::Lo | Word::Hi => Some(Found::Const(Class::Pred, 0)),
            _ => None,
        }
    }

    /// Conversions between integers that keep the bits, and narrowing of what was widened.
    fn conversion(&self) -> Option<Found> {
        let [Modifier::Type(to), Modifier::Type(from)] = self.data.modifiers[..] else { return None };
        let x = self.value(0)?;
        if to.kind() != Kind::Int || from.kind() != Kind::Int || to.bits() < 16 || from.bits() < 16 {
            return None;
        }
        if to.bits() == from.bits() && self.kernel.class(x) == Class::of(to) {
            return Some(Found::Value(x));
        }
        let (inner, data) = self.defined_by(x, "cvt")?;
        let [Modifier::Type(middle), Modifier::Type(first)] = data.modifiers[..] else { return None };
        let [_, Arg::Use(source)] = inner.args[..] else { return None };
        let narrows_back = to.bits() == first.bits() && middle.bits() > first.bits() && from.bits() == middle.bits();
        (first.kind() == Kind::Int && narrows_back && self.kernel.class(source) == Class::of(to)).then_some(Found::Value(source))
    }
}
