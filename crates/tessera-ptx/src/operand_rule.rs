//! Operand patterns of the table's rows.
//!
//! A pattern is a list of rules separated by blanks. A rule is a kind, perhaps a type, perhaps `?` for an operand that may
//! be left out, or `@` and modifiers with which alone it is there:
//!
//! | kind | takes |
//! |---|---|
//! | `d` | a destination register, or `_` |
//! | `_` | `_` alone |
//! | `a` | a source: register, immediate, special register, a variable's address |
//! | `r` | a register |
//! | `i` / `i16` | an integer immediate / this one |
//! | `b` | a predicate as source, or 0 or 1 |
//! | `p` / `q` | a predicate as source (also `!p`) / as destination |
//! | `m` / `T` / `X` | an address / one with tensor coordinates / one with coordinates in a texture or surface |
//! | `l` | a name: a label or function |
//! | `v`, `v2`, `vA` | a vector in braces: of any length, of 2, of as many as [`Count`] says |
//! | `D` / `V` | a destination / source: a single value, or the vector that `.v2`, `.v4` or `.v8` asks for |
//! | `L` | a list in parentheses |
//! | `d\|q`, `w4\|q`, `q\|q` | one or two destinations; `w4` is a vector of 4 |
//! | `d+q` | two destinations |
//! | `s`, `s2`, `s4` | a source of a video instruction, perhaps with selected bytes or halves: one, two, four |
//! | `x`, `x2`, `x4` | the same as a destination |
//! | `n` / `n0` | `s`, perhaps negated / a register, perhaps negated |
//!
//! The type is `:t` (the instruction's last type, which is the default), `:t0` (its first), `:t1`, `:w` (twice as wide),
//! `:u32` (that one), `:-` (not checked); `~` behind it lets any register serve that is wide enough.

use crate::form::{choices, lanes_of, types_of};
use crate::fragment::Count;
use crate::model::{Base, Operand, RegId};
use crate::types::{Kind, Type};
use crate::word::Modifier;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Destination,
    NoResult,
    Source,
    Register,
    Immediate(Option<i64>),
    Predicate,
    PredicateOrBit,
    PredicateDestination,
    Address,
    TensorAddress,
    TextureAddress,
    Symbol,
    Vector(Count),
    DestinationOrVector,
    SourceOrVector,
    List,
    DestinationAndPredicate,
    BothDestinations,
    VectorAndPredicate(u32),
    TwoPredicates,
    /// With how many selected bytes or halves, and whether a minus may stand in front.
    Selected(u8, bool),
    SelectedDestination(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeRule {
    Main,
    Nth(usize),
    Wide,
    Fixed(Type),
    Unchecked,
}

/// Whether an operand is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Always,
    Optional,
    /// With one of these modifiers, and not without.
    With(Vec<Modifier>),
}

/// One rule of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperandRule {
    pub(crate) what: What,
    ty: TypeRule,
    loose: bool,
    pub(crate) presence: Presence,
}

impl OperandRule {
    pub(crate) fn parse(text: &str) -> Result<OperandRule, String> {
        let (text, presence) = match text.split_once('@') {
            Some((rest, words)) => (rest, Presence::With(choices(words)?)),
            None => match text.strip_suffix('?') {
                Some(rest) => (rest, Presence::Optional),
                None => (text, Presence::Always),
            },
        };
        let (text, loose) = text.strip_suffix('~').map_or((text, false), |rest| (rest, true));
        // `w4:t0|q` has its type in the middle.
        let (kind, ty) = match text.split_once(':') {
            Some((kind, ty)) => match ty.split_once('|') {
                Some((ty, second)) => (format!("{kind}|{second}"), Some(ty)),
                None => (kind.to_owned(), Some(ty)),
            },
            None => (text.to_owned(), None),
        };
        let (what, default) = what(&kind)?;
        let ty = match ty {
            None => default,
            Some("t") => TypeRule::Main,
            Some("w") => TypeRule::Wide,
            Some("-") => TypeRule::Unchecked,
            Some("t0") => TypeRule::Nth(0),
            Some("t1") => TypeRule::Nth(1),
            Some(name) => TypeRule::Fixed(Type::parse(name).ok_or_else(|| format!("`{name}` is no type"))?),
        };
        Ok(OperandRule { what, ty, loose, presence })
    }

    /// Whether a result stands here, one value or two.
    pub(crate) fn defines(&self) -> bool {
        match self.what {
            What::Destination
            | What::NoResult
            | What::PredicateDestination
            | What::DestinationOrVector
            | What::DestinationAndPredicate
            | What::BothDestinations
            | What::VectorAndPredicate(_)
            | What::SelectedDestination(_)
            | What::TwoPredicates => true,
            What::Source
            | What::Register
            | What::Immediate(_)
            | What::Predicate
            | What::PredicateOrBit
            | What::Address
            | What::TensorAddress
            | What::TextureAddress
            | What::Symbol
            | What::Vector(_)
            | What::SourceOrVector
            | What::Selected(..)
            | What::List => false,
        }
    }

    /// What may stand here for a constant.
    pub(crate) fn immediate(&self, modifiers: &[Modifier]) -> Immediate {
        match self.what {
            What::Source | What::SourceOrVector => self.wanted(modifiers).map_or(Immediate::Bits, Immediate::Of),
            _ => Immediate::None,
        }
    }

    /// The type that the rule asks for.
    pub(crate) fn wanted(&self, modifiers: &[Modifier]) -> Option<Type> {
        match self.ty {
            TypeRule::Main => types_of(modifiers).next_back(),
            TypeRule::Nth(index) => types_of(modifiers).nth(index),
            TypeRule::Wide => types_of(modifiers).next_back().map(|ty| match ty {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::U32 => Type::U64,
                Type::S32 => Type::S64,
                other => other,
            }),
            TypeRule::Fixed(ty) => Some(ty),
            TypeRule::Unchecked => None,
        }
    }

    /// Whether the operand is there, as far as the modifiers say.
    fn stands(&self, modifiers: &[Modifier]) -> Option<bool> {
        match &self.presence {
            Presence::Always => Some(true),
            Presence::Optional => None,
            Presence::With(words) => Some(words.iter().any(|word| modifiers.contains(word))),
        }
    }
}

fn what(kind: &str) -> Result<(What, TypeRule), String> {
    let predicate = TypeRule::Fixed(Type::Pred);
    let word = TypeRule::Fixed(Type::B32);
    Ok(match kind {
        "d" => (What::Destination, TypeRule::Main),
        "_" => (What::NoResult, TypeRule::Unchecked),
        "a" => (What::Source, TypeRule::Main),
        "r" => (What::Register, TypeRule::Main),
        "i" => (What::Immediate(None), TypeRule::Unchecked),
        "i16" => (What::Immediate(Some(16)), TypeRule::Unchecked),
        "i128" => (What::Immediate(Some(128)), TypeRule::Unchecked),
        "p" => (What::Predicate, predicate),
        "b" => (What::PredicateOrBit, predicate),
        "q" => (What::PredicateDestination, predicate),
        "m" => (What::Address, TypeRule::Unchecked),
        "T" => (What::TensorAddress, TypeRule::Unchecked),
        "X" => (What::TextureAddress, TypeRule::Main),
        "l" => (What::Symbol, TypeRule::Unchecked),
        "D" => (What::DestinationOrVector, TypeRule::Main),
        "V" => (What::SourceOrVector, TypeRule::Main),
        "L" => (What::List, TypeRule::Unchecked),
        "d|q" => (What::DestinationAndPredicate, TypeRule::Main),
        "d+q" => (What::BothDestinations, TypeRule::Main),
        "w2|q" => (What::VectorAndPredicate(2), TypeRule::Main),
        "w4|q" => (What::VectorAndPredicate(4), TypeRule::Main),
        "q|q" => (What::TwoPredicates, predicate),
        "s" => (What::Selected(1, false), word),
        "n" => (What::Selected(1, true), word),
        "n0" => (What::Selected(0, true), word),
        "s2" => (What::Selected(2, false), word),
        "s4" => (What::Selected(4, false), word),
        "x" => (What::SelectedDestination(1), word),
        "x2" => (What::SelectedDestination(2), word),
        "x4" => (What::SelectedDestination(4), word),
        _ => {
            let count = kind.strip_prefix('v').and_then(Count::parse);
            (What::Vector(count.ok_or_else(|| format!("`{kind}` is no operand kind"))?), TypeRule::Unchecked)
        }
    })
}

/// What may stand for a constant in an operand's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Immediate {
    /// Only a register.
    None,
    /// Its bits.
    Bits,
    /// A number of this type.
    Of(Type),
}

/// Checks operands against a pattern. `Err` names the first operand (from 0) that does not fit, and why.
pub(crate) fn matches(
    rules: &[OperandRule],
    modifiers: &[Modifier],
    operands: &[Operand],
    register: &dyn Fn(RegId) -> Type,
) -> Result<(), (usize, String)> {
    assign(rules, modifiers, operands, register).map(drop)
}

/// The rule of each operand, where they fit.
pub(crate) fn assign<'r>(
    rules: &'r [OperandRule],
    modifiers: &[Modifier],
    operands: &[Operand],
    register: &dyn Fn(RegId) -> Type,
) -> Result<Vec<&'r OperandRule>, (usize, String)> {
    let mut taken = Vec::with_capacity(operands.len());
    let fitting = Fitting { modifiers, operands, register };
    fitting.walk(rules, 0, &mut taken).map(|()| taken)
}

struct Fitting<'a> {
    modifiers: &'a [Modifier],
    operands: &'a [Operand],
    register: &'a dyn Fn(RegId) -> Type,
}

impl Fitting<'_> {
    fn walk<'r>(&self, rules: &'r [OperandRule], at: usize, chosen: &mut Vec<&'r OperandRule>) -> Result<(), (usize, String)> {
        let Some((rule, later)) = rules.split_first() else {
            return if at == self.operands.len() { Ok(()) } else { Err((at, "is one too many".to_owned())) };
        };
        let stands = rule.stands(self.modifiers);
        if stands == Some(false) {
            return self.walk(later, at, chosen);
        }
        let taken = match self.operands.get(at) {
            Some(operand) => match self.fits(rule, operand) {
                Ok(()) => {
                    chosen.push(rule);
                    self.walk(later, at + 1, chosen)
                }
                Err(problem) => Err((at, problem)),
            },
            None => Err((at, "is missing".to_owned())),
        };
        match taken {
            Err(problem) if stands.is_none() => {
                chosen.truncate(at);
                self.walk(later, at, chosen).map_err(|second| if second.0 >= problem.0 { second } else { problem })
            }
            other => other,
        }
    }

    fn typed(&self, id: RegId, wanted: Option<Type>, loose: bool) -> Result<(), String> {
        let (has, Some(wanted)) = ((self.register)(id), wanted) else { return Ok(()) };
        if has.serves(wanted, loose) { Ok(()) } else { Err(format!("is `.{has}` where `.{wanted}` is needed")) }
    }

    fn value(&self, operand: &Operand, wanted: Option<Type>, loose: bool) -> Result<(), String> {
        match operand {
            Operand::Register(id) => self.typed(*id, wanted, loose),
            Operand::Special(special) => match wanted {
                Some(wanted) if !special.serves(wanted) => Err(format!("is `.{}` where `.{wanted}` is needed", special.ty())),
                _ => Ok(()),
            },
            Operand::Int(_) | Operand::Symbol(..) => match wanted {
                Some(Type::Pred) => Err("is no predicate".to_owned()),
                _ => Ok(()),
            },
            Operand::F32(_) | Operand::F64(_) => match wanted.map(Type::kind) {
                Some(Kind::Int | Kind::Predicate) => Err("is a floating-point number".to_owned()),
                _ => Ok(()),
            },
            _ => Err("is no value".to_owned()),
        }
    }

    fn destination(&self, operand: &Operand, wanted: Option<Type>, loose: bool) -> Result<(), String> {
        match operand {
            Operand::Register(id) => self.typed(*id, wanted, loose),
            Operand::Sink => Ok(()),
            _ => Err("must be a register".to_owned()),
        }
    }

    fn predicate(&self, operand: &Operand) -> Result<(), String> {
        match operand {
            Operand::Register(id) if (self.register)(*id) == Type::Pred => Ok(()),
            Operand::Sink => Ok(()),
            _ => Err("must be a predicate register".to_owned()),
        }
    }

    /// The elements of a vector, each a value or nothing wanted.
    fn elements(&self, parts: &[Operand], count: Option<usize>, wanted: Option<Type>, loose: bool) -> Result<(), String> {
        if let Some(count) = count
            && parts.len() != count
        {
            return Err(format!("has {} elements: {count} are needed", parts.len()));
        }
        parts.iter().try_for_each(|part| {
            // A vector holds destinations or sources; which one, the row's other operands say.
            if matches!(part, Operand::Sink) { Ok(()) } else { self.value(part, wanted, loose) }
        })
    }

    fn address(&self, rule: &OperandRule, operand: &Operand) -> Result<(), String> {
        let Operand::Address(address) = operand else { return Err("must be an address in brackets".to_owned()) };
        match (rule.what, &address.coordinates) {
            (What::Address, Some(_)) => return Err("has coordinates".to_owned()),
            (What::TensorAddress | What::TextureAddress, None) => return Err("needs coordinates".to_owned()),
            (What::TensorAddress, Some(list)) => {
                self.elements(list, Count::Coordinates.of(self.modifiers), Some(Type::S32), false)?;
            }
            (What::TextureAddress, Some(list)) => {
                let count = Count::TextureCoordinates.of(self.modifiers);
                if let Some(count) = count
                    && list.len() != count
                {
                    return Err(format!("has {} coordinates: {count} are needed", list.len()));
                }
                list.iter().try_for_each(|part| self.value(part, None, false))?;
            }
            _ => {}
        }
        if rule.what != What::TextureAddress && address.sampler.is_some() {
            return Err("names a sampler".to_owned());
        }
        [Some(&address.base), address.sampler.as_ref()].into_iter().flatten().try_for_each(|base| match base {
            Base::Register(id) => {
                let ty = (self.register)(*id);
                let pointer = matches!(ty.bits(), 32 | 64) && matches!(ty.kind(), Kind::Int | Kind::Untyped);
                if pointer { Ok(()) } else { Err(format!("counts from a `.{ty}`, which is no address")) }
            }
            Base::Symbol(_) | Base::Zero => Ok(()),
        })
    }

    /// A register of a video instruction with the bytes or halves that are selected.
    fn selected(&self, operand: &Operand, lanes: u8, source: bool, negatable: bool) -> Result<(), String> {
        let Operand::Part { register, part, negated } = operand else {
            return if source && lanes <= 1 {
                self.value(operand, Some(Type::B32), false)
            } else {
                self.destination(operand, Some(Type::B32), false)
            };
        };
        if *negated && !negatable {
            return Err("cannot be negated".to_owned());
        }
        if let Some(part) = part {
            part.suits(lanes, source)?;
        }
        self.typed(*register, Some(Type::B32), false)
    }

    fn fits(&self, rule: &OperandRule, operand: &Operand) -> Result<(), String> {
        let wanted = rule.wanted(self.modifiers);
        let loose = rule.loose;
        let lanes = || match lanes_of(self.modifiers) {
            1 => None,
            lanes => Some(lanes as usize),
        };
        match (rule.what, operand) {
            (What::Destination, _) => self.destination(operand, wanted, loose),
            (What::NoResult, Operand::Sink) => Ok(()),
            (What::NoResult, _) => Err("must be `_`".to_owned()),
            (What::Source, _) => self.value(operand, wanted, loose),
            (What::Register, Operand::Register(id)) => self.typed(*id, wanted, loose),
            (What::Register, _) => Err("must be a register".to_owned()),
            (What::Immediate(None), Operand::Int(_)) => Ok(()),
            (What::Immediate(Some(only)), Operand::Int(value)) if *value == only => Ok(()),
            (What::Immediate(Some(only)), _) => Err(format!("must be {only}")),
            (What::Immediate(None), _) => Err("must be an integer".to_owned()),
            (What::Predicate | What::PredicateOrBit, Operand::Not(id) | Operand::Register(id))
                if (self.register)(*id) == Type::Pred =>
            {
                Ok(())
            }
            (What::Predicate | What::PredicateOrBit, Operand::Int(0 | 1)) => Ok(()),
            (What::Predicate, Operand::Special(special)) if special.ty() == Type::Pred => Ok(()),
            (What::Predicate | What::PredicateOrBit, _) => Err("must be a predicate".to_owned()),
            (What::PredicateDestination, _) => self.predicate(operand),
            (What::Address | What::TensorAddress | What::TextureAddress, _) => self.address(rule, operand),
            (What::Symbol, Operand::Symbol(_, 0)) => Ok(()),
            (What::Symbol, _) => Err("must be a name".to_owned()),
            (What::Vector(count), Operand::Vector(parts)) => self.elements(parts, count.of(self.modifiers), wanted, loose),
            (What::Vector(_), _) => Err("must be a vector in braces".to_owned()),
            (What::DestinationOrVector | What::SourceOrVector, Operand::Vector(parts)) => match lanes() {
                None if parts.len() != 1 => Err("is a vector without `.v2` or `.v4`".to_owned()),
                lanes => self.elements(parts, lanes, wanted, loose),
            },
            (What::DestinationOrVector | What::SourceOrVector, _) if lanes().is_some() => {
                Err("must be a vector in braces".to_owned())
            }
            (What::DestinationOrVector, _) => self.destination(operand, wanted, loose),
            (What::SourceOrVector, _) => self.value(operand, wanted, loose),
            (What::List, Operand::List(_)) => Ok(()),
            (What::List, _) => Err("must be a list in parentheses".to_owned()),
            (What::DestinationAndPredicate | What::BothDestinations, Operand::Pair(pair)) => {
                self.destination(&pair.0, wanted, loose).and_then(|()| self.predicate(&pair.1))
            }
            (What::BothDestinations, _) => Err("must be two destinations, `d|p`".to_owned()),
            (What::DestinationAndPredicate, _) => self.destination(operand, wanted, loose),
            (What::VectorAndPredicate(count), Operand::Pair(pair)) => match &pair.0 {
                Operand::Vector(parts) => {
                    self.elements(parts, Some(count as usize), wanted, loose).and_then(|()| self.predicate(&pair.1))
                }
                _ => Err("must be a vector in braces".to_owned()),
            },
            (What::VectorAndPredicate(count), Operand::Vector(parts)) => {
                self.elements(parts, Some(count as usize), wanted, loose)
            }
            (What::VectorAndPredicate(_), _) => Err("must be a vector in braces".to_owned()),
            (What::TwoPredicates, Operand::Pair(pair)) => self.predicate(&pair.0).and_then(|()| self.predicate(&pair.1)),
            (What::TwoPredicates, _) => self.predicate(operand),
            (What::Selected(lanes, negatable), _) => self.selected(operand, lanes, true, negatable),
            (What::SelectedDestination(lanes), _) => self.selected(operand, lanes, false, false),
        }
    }
}
