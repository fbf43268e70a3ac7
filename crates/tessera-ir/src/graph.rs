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
//!
//! In the program of a rank ([`crate::mesh`]) values can be exchanged between ranks:
//! ```text
//! %whole = graph.all_gather [%part] {over="tp", axis=1} : tensor<@Mx@Nxf32>
//! ```

use crate::attrs::Combine;

dialect! {
    /// An operation of the Graph dialect.
    GraphOp;

    /// The whole operand's value. With `transpose`, the last two axes of memory are the reverse of the value's.
    Load = "graph.load" (operand) { transpose: bool } -> One : Special, Read [read(global, operand)];
    /// Writes the whole operand.
    Store = "graph.store" (value, operand) {} -> None : Special, Write [write(global, operand)];
    /// Matrix product over the last axis of `lhs` and the last but one of `rhs`; axes before are batch axes. Accumulates in
    /// the result's element type.
    Contract = "graph.contract" (lhs, rhs) {} -> One : Special, Pure;
    /// Combines along an axis, which the result keeps with extent 1.
    Reduce = "graph.reduce" (source) { axis: u32, combine: Combine } -> One : Special, Pure;
    /// A scalar, or a tensor with axes of extent 1, repeated to the result's axes.
    Broadcast = "graph.broadcast" (source) {} -> One : Special, Pure;

    // Between ranks: `over` names axes of the mesh. Ranks that differ along those alone exchange with each other; every rank
    // runs the operation, with as many results as sources.

    /// Combines the ranks' tensors element by element, in the order of ranks; every rank gets the result.
    AllReduce = "graph.all_reduce" (sources: many) { over: Vec<String>, combine: Combine } -> Many : Special, Pure;
    /// Joins the ranks' parts along an axis, in the order of ranks; every rank gets the whole.
    AllGather = "graph.all_gather" (sources: many) { over: String, axis: u32 } -> Many : Special, Pure;
    /// Combines as `graph.all_reduce` does, and gives each rank its part along an axis.
    ReduceScatter = "graph.reduce_scatter" (sources: many) { over: String, axis: u32, combine: Combine } -> Many : Special, Pure;
    /// Splits along one axis, gives each rank its part, and joins what comes from the ranks along another axis.
    AllToAll = "graph.all_to_all" (sources: many) { over: String, split: u32, join: u32 } -> Many : Special, Pure;
    /// The rank's own part along an axis of what every rank holds whole; nothing is exchanged.
    Shard = "graph.shard" (source) { over: String, axis: u32 } -> One : Special, Pure;
}
