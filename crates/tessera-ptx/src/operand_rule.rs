//! Operand patterns of the table's rows.
//!
//! A pattern is a list of rules separated by blanks. A rule is a kind, perhaps a type, perhaps `?` for an operand that may
//! be left out:
//!
//! | kind | takes |
//! |---|---|
//! | `d` | a destination register, or `_` |
//! | `a` | a source: register, immediate, special register, a variable's address |
//! | `r` | a register |
//! | `i` | an integer immediate |
//! | `b` | a predicate as source, or 0 or 1 |
//! | `p` / `q` | a predicate as source (also `!p`) / as destination |
//! | `m` / `T` | an address / an address with tensor coordinates |
//! | `l` | a name: a label or function |
//! | `v` | a vector in braces |
//! | `D` / `V` | a destination / source that is a vector or a single value |
//! | `L` | a list in parentheses |
//! | `d\|q`, `q\|q` | two destinations |
//!
//! The type is `:t` (the instruction's last type, which is the default), `:t0` (its first), `:t1`, `:w` (twice as wide),
//! `:u32` (that one), `:-` (not checked); `~` behind it lets any register serve that is wide enough.

use crate::form::types_of;
use crate::model::{Base, Operand, RegId};
use crate::types::{Kind, Type};
use crate::word::Modifier;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Destination,
    Source,
    Register,
    Immediate,
    Predicate,
    PredicateOrBit,
    PredicateDestination,
    Address,
    TensorAddress,
    Symbol,
    Vector,
    DestinationOrVector,
    SourceOrVector,
    List,
    DestinationAndPredicate,
    TwoPredicates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeRule {
    Main,
    Nth(usize),
    Wide,
    Fixed(Type),
    Unchecked,
}

/// One rule of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperandRule {
    what: What,
    ty: TypeRule,
    loose: bool,
    optional: bool,
}

impl OperandRule {
    pub(crate) fn parse(text: &str) -> Result<OperandRule, String> {
        let (text, optional) = text.strip_suffix('?').map_or((text, false), |rest| (rest, true));
        let (text, loose) = text.strip_suffix('~').map_or((text, false), |rest| (rest, true));
        let (kind, ty) = text.split_once(':').map_or((text, None), |(kind, ty)| (kind, Some(ty)));
        let (what, default) = match kind {
            "d" => (What::Destination, TypeRule::Main),
            "a" => (What::Source, TypeRule::Main),
            "r" => (What::Register, TypeRule::Main),
            "i" => (What::Immediate, TypeRule::Unchecked),
            "p" => (What::Predicate, TypeRule::Fixed(Type::Pred)),
            "b" => (What::PredicateOrBit, TypeRule::Fixed(Type::Pred)),
            "q" => (What::PredicateDestination, TypeRule::Fixed(Type::Pred)),
            "m" => (What::Address, TypeRule::Unchecked),
            "T" => (What::TensorAddress, TypeRule::Unchecked),
            "l" => (What::Symbol, TypeRule::Unchecked),
            "v" => (What::Vector, TypeRule::Unchecked),
            "D" => (What::DestinationOrVector, TypeRule::Main),
            "V" => (What::SourceOrVector, TypeRule::Main),
            "L" => (What::List, TypeRule::Unchecked),
            "d|q" => (What::DestinationAndPredicate, TypeRule::Main),
            "q|q" => (What::TwoPredicates, TypeRule::Fixed(Type::Pred)),
            other => return Err(format!("`{other}` is no operand kind")),
        };
        let ty = match ty {
            None => default,
            Some("t") => TypeRule::Main,
            Some("w") => TypeRule::Wide,
            Some("-") => TypeRule::Unchecked,
            Some("t0") => TypeRule::Nth(0),
            Some("t1") => TypeRule::Nth(1),
            Some(name) => TypeRule::Fixed(Type::parse(name).ok_or_else(|| format!("`{name}` is no type"))?),
        };
        Ok(OperandRule { what, ty, loose, optional })
    }

    /// Whether a result stands here, one value or two.
    pub(crate) fn defines(self) -> bool {
        match self.what {
            What::Destination
            | What::PredicateDestination
            | What::DestinationOrVector
            | What::DestinationAndPredicate
            | What::TwoPredicates => true,
            What::Source
            | What::Register
            | What::Immediate
            | What::Predicate
            | What::PredicateOrBit
            | What::Address
            | What::TensorAddress
            | What::Symbol
            | What::Vector
            | What::SourceOrVector
            | What::List => false,
        }
    }

    /// What may stand here for a constant.
    pub(crate) fn immediate(self, modifiers: &[Modifier]) -> Immediate {
        match self.what {
            What::Source | What::SourceOrVector => self.wanted(modifiers).map_or(Immediate::Bits, Immediate::Of),
            What::Destination
            | What::Register
            | What::Immediate
            | What::Predicate
            | What::PredicateOrBit
            | What::PredicateDestination
            | What::Address
            | What::TensorAddress
            | What::Symbol
            | What::Vector
            | What::DestinationOrVector
            | What::List
            | What::DestinationAndPredicate
            | What::TwoPredicates => Immediate::None,
        }
    }

    /// The type that the rule asks for.
    pub(crate) fn wanted(self, modifiers: &[Modifier]) -> Option<Type> {
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
    walk(rules, modifiers, operands, 0, register, &mut Vec::new())
}

/// The rule of each operand, where they fit.
pub(crate) fn assign(
    rules: &[OperandRule],
    modifiers: &[Modifier],
    operands: &[Operand],
    register: &dyn Fn(RegId) -> Type,
) -> Result<Vec<OperandRule>, (usize, String)> {
    let mut taken = Vec::with_capacity(operands.len());
    walk(rules, modifiers, operands, 0, register, &mut taken).map(|()| taken)
}

fn walk(
    rules: &[OperandRule],
    modifiers: &[Modifier],
    operands: &[Operand],
    at: usize,
    register: &dyn Fn(RegId) -> Type,
    chosen: &mut Vec<OperandRule>,
) -> Result<(), (usize, String)> {
    let Some((rule, later)) = rules.split_first() else {
        return if at == operands.len() { Ok(()) } else { Err((at, "is one too many".to_owned())) };
    };
    let taken = match operands.get(at) {
        Some(operand) => match fits(*rule, modifiers, operand, register) {
            Ok(()) => {
                chosen.push(*rule);
                walk(later, modifiers, operands, at + 1, register, chosen)
            }
            Err(problem) => Err((at, problem)),
        },
        None => Err((at, "is missing".to_owned())),
    };
    match taken {
        Err(problem) if rule.optional => {
            chosen.truncate(at);
            walk(later, modifiers, operands, at, register, chosen)
                .map_err(|second| if second.0 >= problem.0 { second } else { problem })
        }
        other => other,
    }
}

fn fits(rule: OperandRule, modifiers: &[Modifier], operand: &Operand, register: &dyn Fn(RegId) -> Type) -> Result<(), String> {
    let wanted = rule.wanted(modifiers);
    let typed = |id: &RegId| -> Result<(), String> {
        let (has, Some(wanted)) = (register(*id), wanted) else { return Ok(()) };
        if has.serves(wanted, rule.loose) { Ok(()) } else { Err(format!("is `.{has}` where `.{wanted}` is needed")) }
    };
    let value = |operand: &Operand| -> Result<(), String> {
        match operand {
            Operand::Register(id) => typed(id),
            Operand::Special(special) => match wanted {
                Some(wanted) if !special.ty().serves(wanted, true) => {
                    Err(format!("is `.{}` where `.{wanted}` is needed", special.ty()))
                }
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
    };
    let destination = |operand: &Operand| match operand {
        Operand::Register(id) => typed(id),
        Operand::Sink => Ok(()),
        _ => Err("must be a register".to_owned()),
    };
    let predicate = |operand: &Operand| match operand {
        Operand::Register(id) if register(*id) == Type::Pred => Ok(()),
        Operand::Sink => Ok(()),
        _ => Err("must be a predicate register".to_owned()),
    };
    match (rule.what, operand) {
        (What::Destination, _) => destination(operand),
        (What::Source, _) => value(operand),
        (What::Register, Operand::Register(id)) => typed(id),
        (What::Register, _) => Err("must be a register".to_owned()),
        (What::Immediate, Operand::Int(_)) => Ok(()),
        (What::Immediate, _) => Err("must be an integer".to_owned()),
        (What::Predicate | What::PredicateOrBit, Operand::Not(id) | Operand::Register(id)) if register(*id) == Type::Pred => {
            Ok(())
        }
        (What::PredicateOrBit, Operand::Int(0 | 1)) => Ok(()),
        (What::Predicate | What::PredicateOrBit, _) => Err("must be a predicate".to_owned()),
        (What::PredicateDestination, _) => predicate(operand),
        (What::Address | What::TensorAddress, Operand::Address(address)) => {
            let tensor = rule.what == What::TensorAddress;
            if address.coordinates.is_some() != tensor {
                return Err(if tensor { "needs coordinates" } else { "has coordinates" }.to_owned());
            }
            match &address.base {
                Base::Register(id) => {
                    let ty = register(*id);
                    let pointer = matches!(ty.bits(), 32 | 64) && matches!(ty.kind(), Kind::Int | Kind::Untyped);
                    if pointer { Ok(()) } else { Err(format!("counts from a `.{ty}`, which is no address")) }
                }
                Base::Symbol(_) | Base::Zero => Ok(()),
            }
        }
        (What::Address | What::TensorAddress, _) => Err("must be an address in brackets".to_owned()),
        (What::Symbol, Operand::Symbol(_, 0)) => Ok(()),
        (What::Symbol, _) => Err("must be a name".to_owned()),
        (What::Vector | What::DestinationOrVector, Operand::Vector(parts)) => parts.iter().try_for_each(|part| {
            // A vector holds destinations or sources; which one, the row's other operands say.
            if matches!(part, Operand::Sink) { Ok(()) } else { value(part) }
        }),
        (What::Vector, _) => Err("must be a vector in braces".to_owned()),
        (What::DestinationOrVector, _) => destination(operand),
        (What::SourceOrVector, Operand::Vector(parts)) => parts.iter().try_for_each(value),
        (What::SourceOrVector, _) => value(operand),
        (What::List, Operand::List(_)) => Ok(()),
        (What::List, _) => Err("must be a list in parentheses".to_owned()),
        (What::DestinationAndPredicate, Operand::Pair(pair)) => destination(&pair.0).and(predicate(&pair.1)),
        (What::DestinationAndPredicate, _) => destination(operand),
        (What::TwoPredicates, Operand::Pair(pair)) => predicate(&pair.0).and(predicate(&pair.1)),
        (What::TwoPredicates, _) => predicate(operand),
    }
}
