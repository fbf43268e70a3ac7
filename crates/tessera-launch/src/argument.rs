//! What a launch is given for a kernel's parameters, and what becomes of it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tessera_ir::item_name;
use tessera_types::DType;

use crate::array::Placed;

/// A value that is part of a compiled kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Constant {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float; written as the shortest text that is read as the same float.
    #[serde(with = "exact")]
    Float(f64),
    /// A string.
    Text(String),
    /// An element type.
    Type(DType),
    /// A tuple.
    Tuple(Vec<Constant>),
}

/// Floats as text, infinite ones and NaN included.
mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{value:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::None => f.write_str("None"),
            Constant::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Constant::Int(value) => write!(f, "{value}"),
            Constant::Float(value) => write!(f, "{value:?}"),
            Constant::Text(value) => write!(f, "{value:?}"),
            Constant::Type(value) => write!(f, "{value}"),
            Constant::Tuple(items) => {
                let items: Vec<String> = items.iter().map(Constant::to_string).collect();
                write!(f, "({})", items.join(","))
            }
        }
    }
}

/// A value for a parameter. Whether a number is a constant or passed at launch is the kernel's to say.
#[derive(Clone, Debug)]
pub enum Argument<A> {
    /// An array.
    Array(A),
    /// A list of arrays of one type and rank.
    List(Vec<A>),
    /// Anything else. Numbers may be passed at launch, the rest is a part of compiled kernels.
    Constant(Constant),
}

impl<A: Placed> Argument<A> {
    /// What a message calls it.
    pub fn describe(&self) -> String {
        match self {
            Argument::Array(array) => format!("an array `{}{:?}`", array.dtype(), array.sizes()),
            Argument::List(items) => format!("a list of {} arrays", items.len()),
            Argument::Constant(value) => match value {
                Constant::Int(_) => format!("the integer {value}"),
                Constant::Float(number) => format!("the float {number}"),
                Constant::Bool(_) => format!("the truth value {value}"),
                Constant::Text(_) => format!("the string {value}"),
                Constant::Type(_) => format!("the element type `{value}`"),
                Constant::Tuple(_) => "a tuple".to_owned(),
                Constant::None => "`None`".to_owned(),
            },
        }
    }
}

/// What a caller writes for a parameter.
#[derive(Clone, Debug)]
pub enum Written<A> {
    /// One argument.
    One(Argument<A>),
    /// A tuple.
    Tuple(Vec<Written<A>>),
}

impl<A> Written<A> {
    /// The arguments of a launch that it stands for: a tuple of constants is a constant, of one with arrays in it each item is an argument
    /// of its own, by the name that [`item_name`] gives it.
    pub fn by_name(self, name: String, into: &mut Vec<(String, Argument<A>)>) {
        match (self.constant(), self) {
            (Some(constant), _) => into.push((name, Argument::Constant(constant))),
            (None, Written::One(argument)) => into.push((name, argument)),
            (None, Written::Tuple(items)) => {
                items.into_iter().enumerate().for_each(|(at, item)| item.by_name(item_name(&name, at), into));
            }
        }
    }

    /// The constant, where there is no array in it.
    fn constant(&self) -> Option<Constant> {
        match self {
            Written::One(Argument::Constant(constant)) => Some(constant.clone()),
            Written::One(Argument::Array(_) | Argument::List(_)) => None,
            Written::Tuple(items) => items.iter().map(Written::constant).collect::<Option<_>>().map(Constant::Tuple),
        }
    }
}

/// One argument of the compiled function, checked.
#[derive(Clone, Debug)]
pub enum Flat<A> {
    /// The address of the parameter's array.
    Array(A),
    /// The address of a table with a record for each array: address, sizes, strides, in 64-bit words.
    Table(Vec<A>),
    /// Bits, zero-extended.
    Word(u64),
}
