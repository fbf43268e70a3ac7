//! The form of the Tile IR document: functions over memrefs in memory spaces, with operations that change what a memref holds.
//!
//! ```text
//! func @product(%A: memref<64x64xbf16>, %B: memref<64x64xbf16, 3>) -> memref<64x64xf32, 5> attributes {num_warps = 4} {
//!   %a = tile.alloc_shared {swizzle = "xor"} : memref<64x64xbf16, 3>
//!   %sum = tile.alloc_register : memref<64x64xf32, 5>
//!   tile.cp_async %A, %a {bypass_l1 = true} : memref<64x64xbf16>, memref<64x64xbf16, 3>
//!   tile.cp_commit_group
//!   tile.cp_wait_group 0
//!   tile.barrier
//!   %r = tile.mma %a, %B, %sum {transpose_b = true} : memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, memref<64x64xf32, 5> -> memref<64x64xf32, 5>
//!   return %r : memref<64x64xf32, 5>
//! }
//! ```
//!
//! There is no second IR: such a function is parsed into a Tile function, or, where it multiplies memrefs that are arrays of the
//! interface, into a Graph function over whole operands.
//!
//! | written | becomes |
//! |---|---|
//! | a parameter in global memory | an array of the interface, with a view |
//! | a parameter in shared memory or registers | an array that the block reads when it begins |
//! | a returned register memref | an array behind the parameters, called `result` |
//! | `index` | `i32` |
//!
//! Register memrefs begin as zeros. `docs/tile-ir-document.md` lists the operations and what the document's own examples needed.
//!
//! Invariant: whatever the text, the outcome is a function or one diagnostic with its place.

mod control;
mod emit;
mod function;
mod interface;
mod memory;
mod memref;
mod slices;
mod syntax;
mod tiles;
mod values;

use tessera_ir::text::{Form, parse_with};
use tessera_ir::{Diagnostic, Module};

/// Functions of this form, for the parser of the IR's text.
pub const FORM: Form = Form { words: &["func", "func.func"], function: function::function };

/// Reads a module whose functions are written in the IR's text form or in this one, as [`tessera_ir::text::parse_module`] does.
pub fn parse_module(name: &str, text: &str) -> Result<Module, (Module, Box<Diagnostic>)> {
    parse_with(name, text, &[FORM])
}
