//! How a dialect is declared: one row an operation.
//!
//! The [`dialect!`] macro turns rows into an enum whose variants carry the attributes, and a table of [`Row`]s from which
//! parser, printer, verifier, effect queries and the reference page work:
//!
//! ```text
//! /// Adds two tiles.
//! AddF = "addf" (lhs, rhs) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure, [Commutative];
//! ```
//!
//! Rows of operations that touch memory say by what operand, and how; [`crate::effect`] has the words. A row that does not say does not compile.
//!
//! ```text
//! /// Writes a tile to the whole buffer.
//! StoreShared = "tile.store_shared" (value, buffer) { .. } -> None : Special, Write [write(shared, buffer, from(value))], [Together];
//! ```
//!
//! Text form of every operation: results, mnemonic, operands in the row's order, attributes that are not implied, result
//! types, regions. A variadic operand is a bracketed list, an optional one is `name=%x` and is left out when absent.
//!
//! ```text
//! %sum = addf %a, %b {rounding=zero} : tile<64xf32>
//! %tile, %after = load_view_tko %view, [%i, %j], token=%before : tile<64x64xf32>, token
//! ```

use crate::effect::Effect;

/// How many values an operand stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    /// Exactly one.
    One,
    /// Any number.
    Many,
    /// One or none.
    Optional,
}

/// A declared operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandSpec {
    /// Its name in messages and, when optional, in the text form.
    pub name: &'static str,
    /// How many values it stands for.
    pub kind: OperandKind,
}

/// How many results an operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// None.
    None,
    /// One.
    One,
    /// Two.
    Two,
    /// Any number.
    Many,
}

/// What an operation does besides computing its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: it can be removed, repeated, moved anywhere its operands are visible.
    Pure,
    /// Nothing, but some inputs are an error (a zero divisor): it can be removed, but not moved out of a condition.
    MayTrap,
    /// Reads memory.
    Read,
    /// Writes memory, or reads and writes it.
    Write,
    /// Visible outside (printing, assertions, launch order): keeps its place.
    Observable,
    /// Ends its block.
    Terminator,
    /// Has the effects of what is in its regions.
    Regions,
}

/// Which element types an elementwise operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Floats.
    Float,
    /// Integers, truth values included.
    Int,
    /// Numbers of any kind, and pointers.
    Any,
}

/// How result types follow from operands; what a rule can't say is checked by the verifier's arm for the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeRule {
    /// All operands and the result have one tile type, with elements of this class.
    Elementwise(Class),
    /// Operands have one tile type of this class; the result has the shape with truth values.
    Compare(Class),
    /// Same shape, other element type: from a class to a class.
    Convert(Class, Class),
    /// The verifier has an arm of its own.
    Special,
}

/// A property that passes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// The first two operands can be swapped.
    Commutative,
    /// The result's element `i` depends on the operands' elements `i` alone.
    Elementwise,
    /// Its first region runs any number of times.
    Loop,
    /// All lanes of a warp run it together.
    Convergent,
    /// All threads of a role (of the block, outside roles) run it together.
    Together,
    /// Elements of its tiles may go from one thread to another, through memory that they share ([`crate::OpData::through`]).
    Exchanges,
    /// One thread may do it for all where memory is ordered, and hands on what it gets.
    OneForAll,
}

/// Everything declared about an operation.
#[derive(Debug)]
pub struct Row {
    /// The word that names it in text.
    pub mnemonic: &'static str,
    /// One paragraph of documentation.
    pub doc: &'static str,
    /// Operands in order.
    pub operands: &'static [OperandSpec],
    /// Number of results.
    pub results: Results,
    /// Number of regions.
    pub regions: usize,
    /// How result types follow.
    pub rule: TypeRule,
    /// What it does besides.
    pub effects: Effects,
    /// What it does to which memory.
    pub memory: &'static [Effect],
    /// Further properties.
    pub traits: &'static [Trait],
}

impl Row {
    /// True when the operation has the property.
    pub fn has(&self, property: Trait) -> bool {
        self.traits.contains(&property)
            || (property == Trait::Elementwise
                && matches!(self.rule, TypeRule::Elementwise(_) | TypeRule::Compare(_) | TypeRule::Convert(..)))
    }
}

/// Declares a dialect. See the module's documentation for the row's form.
macro_rules! dialect {
    (
        $(#[$edoc:meta])* $enum:ident;
        $(
            $(#[doc = $doc:literal])+
            $variant:ident = $mnemonic:literal ( $($operand:ident $(: $kind:ident)?),* )
                { $($attr:ident : $attr_ty:ty),* } -> $results:ident
                $(regions $regions:literal)? : $rule:expr, $effects:ident $([$($memory:tt)*])? $(, [$($prop:ident),*])? ;
        )*
    ) => {
        $(#[$edoc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "attributes are documented with the operation")]
        pub enum $enum {
            $( $(#[doc = $doc])+ $variant { $($attr: $attr_ty),* }, )*
        }

        impl $enum {
            /// The rows of the dialect, in declaration order.
            pub const ROWS: &'static [$crate::dialect::Row] = {
                #[allow(unused_imports, reason = "a dialect may have special rules only")]
                use $crate::dialect::{Class::*, TypeRule::*};
                &[ $( $crate::dialect::Row {
                    mnemonic: $mnemonic,
                    doc: concat!($($doc, "\n"),+),
                    operands: &[ $( $crate::dialect::OperandSpec {
                        name: stringify!($operand),
                        kind: dialect!(@kind $($kind)?),
                    } ),* ],
                    results: $crate::dialect::Results::$results,
                    regions: 0 $(+ $regions)?,
                    rule: $rule,
                    effects: $crate::dialect::Effects::$effects,
                    memory: dialect!(@memory [$(stringify!($operand)),*], $effects $([$($memory)*])?),
                    traits: &[ $($($crate::dialect::Trait::$prop),*)? ],
                } ),* ]
            };

            /// What is declared about the operation.
            pub fn row(&self) -> &'static $crate::dialect::Row {
                #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "indices of rows, never seen outside")]
                enum At { $($variant),* }
                let at = match self { $( $enum::$variant { .. } => At::$variant as usize, )* };
                &Self::ROWS[at]
            }

            /// Appends `name=value` for every attribute that is not implied, separated by commas.
            pub(crate) fn print_attrs(&self, out: &mut String) {
                #[allow(unused_variables, unused_mut, reason = "rows without attributes")]
                match self { $(
                    $enum::$variant { $($attr),* } => {
                        $( $crate::op::print_attr(stringify!($attr), $attr, out); )*
                    }
                )* }
            }

            /// Builds the operation of a mnemonic from its parsed attributes; `None` when there is no such mnemonic.
            pub(crate) fn parse(
                mnemonic: &str,
                attrs: &mut $crate::op::AttrTexts<'_>,
            ) -> Option<$crate::text::cursor::Parsed<$enum>> {
                $(
                    if mnemonic == $mnemonic {
                        let build = |attrs: &mut $crate::op::AttrTexts<'_>| {
                            let _ = &attrs;
                            $( let $attr: $attr_ty = attrs.take(stringify!($attr))?; )*
                            Ok($enum::$variant { $($attr),* })
                        };
                        return Some(build(attrs));
                    }
                )*
                None
            }
        }
    };
    // What a row does to memory. `Read`, `Write` and `Observable` alone match nothing.
    (@memory $names:expr, Pure) => { &[] };
    (@memory $names:expr, MayTrap) => { &[] };
    (@memory $names:expr, Terminator) => { &[] };
    (@memory $names:expr, Regions) => { &[] };
    (@memory $names:expr, $class:ident [ $( $does:ident ( $($space:ident)|+ $(, $operand:ident $($how:tt)*)? ) ),* ]) => {
        &[ $( dialect!(@how $names,
            $crate::effect::Effect::new(dialect!(@does $does), &[$(dialect!(@space $space)),+])
            $(.of(&$names, stringify!($operand)))?; $($($how)*)?) ),* ]
    };
    (@how $names:expr, $effect:expr;) => { $effect };
    (@how $names:expr, $effect:expr; , at($indices:ident) $($rest:tt)*) => {
        dialect!(@how $names, $effect.at(&$names, stringify!($indices)); $($rest)*)
    };
    (@how $names:expr, $effect:expr; , from($value:ident) $($rest:tt)*) => {
        dialect!(@how $names, $effect.from(&$names, stringify!($value)); $($rest)*)
    };
    (@how $names:expr, $effect:expr; , to(result) $($rest:tt)*) => { dialect!(@how $names, $effect.to_results(); $($rest)*) };
    (@how $names:expr, $effect:expr; , $word:ident $($rest:tt)*) => { dialect!(@how $names, $effect.$word(); $($rest)*) };
    (@does read) => { $crate::effect::Does::Read };
    (@does write) => { $crate::effect::Does::Write };
    (@does update) => { $crate::effect::Does::Update };
    (@does make) => { $crate::effect::Does::Make };
    (@does order) => { $crate::effect::Does::Order };
    (@space global) => { $crate::effect::Space::Global };
    (@space shared) => { $crate::effect::Space::Shared };
    (@space registers) => { $crate::effect::Space::Registers };
    (@space ring) => { $crate::effect::Space::Ring };
    (@kind) => { $crate::dialect::OperandKind::One };
    (@kind one) => { $crate::dialect::OperandKind::One };
    (@kind many) => { $crate::dialect::OperandKind::Many };
    (@kind optional) => { $crate::dialect::OperandKind::Optional };
}
