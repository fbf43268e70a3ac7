//! The verifier: what a well-formed module is, as rules that can be read from top to bottom.
//!
//! | file | says what is right about |
//! |---|---|
//! | `structure` | definitions before uses, operand and region counts, how blocks end |
//! | `types` | types of values, the ABI, globals |
//! | `elementwise` | operations whose row states the type rule, rounding modes |
//! | `tiles` | constants, shapes, matrix products, reductions |
//! | `memory` | views, loads, stores, atomics, tokens |
//! | `control` | loops and conditions |
//! | `graph` | whole operands |
//! | `mesh` | ranks, shardings, exchanges between ranks |
//! | `layout` | which layouts of tiles fit each other |
//! | `tile` | threads, shared memory, barriers, rings, roles |
//! | `wgmma` | products on the tensor cores of warpgroups |
//!
//! A Tile function that passes is then asked whether the threads that its operations need come together
//! ([`crate::uniformity`]). One diagnostic an operation, all operations of all functions. After [`verify`] finds nothing, no later stage panics on
//! the module: every group of operands has its declared count, every type is one that the operation can have, every
//! extent is positive and every tile has a size that a machine can hold. Powers of two are nobody's rule here.
//!
//! ```
//! use tessera_ir::{text::parse_module, verify};
//! let text = "schedule @k() abi() {\n  %a = constant {value=f32(1.0)} : tile<4xi32>\n  return\n}\n";
//! let module = parse_module("k.tir", text).unwrap();
//! let found = verify(&module);
//! assert_eq!(found[0].render_line(&module.sources), "k.tir:2:3: error[ir-result-type]: `constant`: a constant of `f32` cannot be a `tile<4xi32>`");
//! ```

use std::fmt::Display;

use crate::attrs::Attr;
use crate::diag::Diagnostic;
use crate::func::{Func, Level, Module, OpData, Value};
use crate::op::OpKind;
use crate::types::{TensorType, TileType, Type};
use crate::uniformity;

mod control;
mod elementwise;
mod graph;
mod layout;
mod memory;
mod mesh;
mod structure;
mod tile;
mod tiles;
mod types;
mod wgmma;

/// Everything that is wrong with a module; nothing when later stages can rely on it.
pub fn verify(module: &Module) -> Vec<Diagnostic> {
    let mut found = types::globals(module);
    for (i, func) in module.funcs.iter().enumerate() {
        if module.funcs[..i].iter().any(|earlier| earlier.name == func.name) {
            found.push(Diagnostic::error("ir-duplicate", func.span, format!("`@{}` is defined twice", func.name)));
        }
        found.extend(verify_func(module, func));
    }
    found
}

/// Everything that is wrong with one function of a module.
pub fn verify_func(module: &Module, func: &Func) -> Vec<Diagnostic> {
    let mut found = types::signature(func);
    found.extend(mesh::check(func));
    structure::check(module, func, &mut found);
    if found.is_empty() && func.level == Level::Tile {
        found = uniformity::check(func);
    }
    found
}

/// What is wrong with one operation: an id and a message, to which the caller adds place and mnemonic.
pub(crate) struct Wrong {
    pub(crate) id: &'static str,
    pub(crate) message: String,
}

pub(crate) type Rule = Result<(), Wrong>;

/// Returns [`Wrong`] with an id and a formatted message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $id:literal, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verify::Wrong { id: $id, message: format!($($message)+) });
        }
    };
}
pub(crate) use ensure;

/// One operation with the function around it: how rules look at operands and results.
pub(crate) struct Site<'m> {
    pub(crate) module: &'m Module,
    pub(crate) func: &'m Func,
    pub(crate) op: &'m OpData,
}

impl<'m> Site<'m> {
    fn ty(&self, value: Value) -> &'m Type {
        self.func.ty(value)
    }

    /// The type of the declared operand at a position.
    fn operand(&self, position: usize) -> &'m Type {
        self.ty(self.op.one(position))
    }

    fn operand_name(&self, position: usize) -> &'static str {
        self.op.row().operands[position].name
    }

    /// The type of a result.
    fn result(&self, position: usize) -> &'m Type {
        self.ty(self.op.results[position])
    }

    fn tile(&self, position: usize) -> Result<&'m TileType, Wrong> {
        let ty = self.operand(position);
        ty.as_tile().ok_or_else(|| self.wrong_operand(position, "a tile", ty))
    }

    fn result_tile(&self, position: usize) -> Result<&'m TileType, Wrong> {
        let ty = self.result(position);
        ty.as_tile().ok_or_else(|| Wrong { id: "ir-result-type", message: format!("the result is a tile, not `{ty}`") })
    }

    fn tensor(&self, position: usize) -> Result<&'m TensorType, Wrong> {
        match self.operand(position) {
            Type::Tensor(tensor) => Ok(tensor),
            ty => Err(self.wrong_operand(position, "a tensor", ty)),
        }
    }

    fn wrong_operand(&self, position: usize, wanted: &str, found: impl Display) -> Wrong {
        Wrong { id: "ir-operand-type", message: format!("`{}` must be {wanted}, not `{found}`", self.operand_name(position)) }
    }

    /// The result at a position must have this type.
    fn result_is(&self, position: usize, wanted: &Type) -> Rule {
        let found = self.result(position);
        ensure!(found == wanted, "ir-result-type", "the result must be `{wanted}`, not `{found}`");
        Ok(())
    }

    /// The result at a position must be this tile, whatever its layout.
    fn result_tile_is(&self, position: usize, wanted: &TileType) -> Rule {
        let found = self.result(position);
        ensure!(found.as_tile() == Some(wanted), "ir-result-type", "the result must be `{wanted}`, not `{found}`");
        Ok(())
    }

    /// An optional operand, when present, is a token.
    fn token(&self, position: usize) -> Rule {
        match self.op.optional(position).map(|value| self.ty(value)) {
            None | Some(Type::Token) => Ok(()),
            Some(ty) => Err(self.wrong_operand(position, "a token", ty)),
        }
    }
}

/// `kind` is allowed where `allowed` lists it.
fn one_of<T: Attr + Copy>(what: &str, value: T, allowed: &[T]) -> Rule {
    let show = |value: &T| {
        let mut text = String::new();
        value.print(&mut text);
        text
    };
    if allowed.contains(&value) {
        return Ok(());
    }
    let list: Vec<String> = allowed.iter().map(|value| format!("`{}`", show(value))).collect();
    Err(Wrong { id: "ir-attribute", message: format!("{what} `{}` is not one of {}", show(&value), list.join(", ")) })
}

/// The rule of an operation beyond structure.
fn operation(site: &Site<'_>) -> Rule {
    match &site.op.kind {
        OpKind::Graph(kind) => graph::check(site, kind),
        OpKind::Schedule(kind) => {
            elementwise::check(site, kind)?;
            tiles::check(site, kind)?;
            memory::check(site, kind)?;
            control::check(site, kind)?;
            layout::check(site, kind)
        }
        OpKind::Tile(kind) => tile::check(site, kind),
    }
}
