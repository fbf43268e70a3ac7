//! `collective-insertion`: from one program over whole operands to the program that every rank of a mesh runs.
//!
//! Shardings of operands ([`tessera_ir::mesh`]) go forward dimension by dimension: each operation's loops (`roles`) are divided over
//! the mesh (`choose`), its operands are brought where that needs them and its result lies where that leaves it
//! ([`placement`](tessera_analysis::placement), `insert`). Where the axis that a maximum runs over is divided, exponentials of
//! differences from it are taken from each rank's own (`shift`). Then exchanges are removed, fused and joined (`simplify`). A function
//! that is a rank's program already is only simplified; one without a mesh stays.
//!
//! ```text
//! graph @f(%A: operand<128x64xbf16> {sharding = "[_, tp]"}, %B: operand<64x128xbf16>, %C: operand<128x128xf32>) ... mesh(tp=2) {
//!   %a = graph.load %A : tensor<128x64xbf16>
//!   %b = graph.load %B : tensor<64x128xbf16>
//!   %c = graph.contract %a, %b : tensor<128x128xf32>
//!   graph.store %c, %C
//! becomes
//! graph @f(%A: operand<128x32xbf16> {sharding = "[_, tp]"}, %B: operand<64x128xbf16>, %C: operand<128x128xf32>) ... ranks(tp=2) {
//!   %a = graph.load %A : tensor<128x32xbf16>
//!   %b = graph.load %B : tensor<64x128xbf16>
//!   %0 = graph.shard %b {over="tp", axis=0} : tensor<32x128xbf16>
//!   %c = graph.contract %a, %0 : tensor<128x128xf32>
//!   %1 = graph.all_reduce [%c] {over=["tp"], combine=sum} : tensor<128x128xf32>
//!   graph.store %1, %C
//! ```
//!
//! A result without a sharding follows its computation: what is divided stays so, and sums are completed on every rank.

use tessera_ir::{Changed, Func, Level, Pass, PassCx, Program};

mod choose;
mod insert;
pub(crate) mod pieces;
mod roles;
mod shift;
mod simplify;
mod wishes;

/// Insertion and simplification of exchanges between ranks.
pub(crate) const PASS: Pass = Pass {
    name: "collective-insertion",
    doc: "Turns a function over operands that are divided over a mesh into the program of each rank.",
    run,
};

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let Some(mesh) = func.mesh.clone().filter(|_| func.level == Level::Graph) else { return Changed(false) };
    match mesh.program {
        Program::Whole => {
            *func = insert::insert(func, &mesh);
            simplify::simplify(func);
            Changed(true)
        }
        Program::Rank => Changed(simplify::simplify(func)),
    }
}
