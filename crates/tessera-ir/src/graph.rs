//! The Graph dialect: whole-operand programs over named axes, before tiling.
//!
//! A value of type `tensor<@Mx@Kxbf16>` is a whole operand; elementwise operations of the Schedule dialect apply to tensors
//! as they do to tiles. A scalar becomes a tensor by `graph.broadcast`. Tiling turns a `graph.store` and what it needs into
//! a block program.
//!
//! ```text
//! %a = graph.load %A : tensor<@Mx@Kxbf16>
//! %b = graph.load %B : tensor<@Kx@Nxbf16>
//! %c = graph.contract %a, %b : tensor<@Mx@Nxf32>
//! graph.store %c, %C
//! ```

use crate::attrs::Combine;

dialect! {
    /// An operation of the Graph dialect.
    GraphOp;

    /// The whole operand's value. With `transpose`, the last two axes of memory are the reverse of the value's.
    Load = "graph.load" (operand) { transpose: bool } -> One : Special, Read;
    /// Writes the whole operand.
    Store = "graph.store" (value, operand) {} -> None : Special, Write;
    /// Matrix product over the last axis of `lhs` and the last but one of `rhs`; axes before are batch axes. Accumulates in
    /// the result's element type.
    Contract = "graph.contract" (lhs, rhs) {} -> One : Special, Pure;
    /// Combines along an axis, which the result keeps with extent 1.
    Reduce = "graph.reduce" (source) { axis: u32, combine: Combine } -> One : Special, Pure;
    /// A scalar, or a tensor with axes of extent 1, repeated to the result's axes.
    Broadcast = "graph.broadcast" (source) {} -> One : Special, Pure;
}
