//! The class of the order in which a kernel adds up floats. Kernels that differ in nothing but their schedule and are of one class add the same
//! numbers in the same order, and give the same bits.
//!
//! | part | depends on |
//! |---|---|
//! | `mma 64` | how much of the contraction an instruction takes: the tiles' rows and columns do not matter |
//! | `sum 16x128 along 1` | the tile, and on a device the threads that share it |
//! | `tree 16x128 along 1` | the tile alone: a balanced tree is the same everywhere |
//! | `256 threads` | a program of threads adds up what its threads hold |
//! | `atomics` | nothing: they come in any order |
//!
//! Maxima and sums of integers are the same in any order.

use tessera_ir::attrs::{AtomicMode, ReduceOrder};
use tessera_ir::{Func, Level, OpData, OpKind, ScheduleOp, TileOp, Type};

/// What stands for a sum whose order nobody fixes.
const ATOMICS: &str = "atomics";

/// The class of an optimised kernel of Schedule or Tile IR; `threads` of a block where it is spread over threads. `none` where it adds up no floats.
pub fn order_of_sums(func: &Func, threads: Option<u32>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut spread = func.level == Level::Tile;
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let part = match &data.kind {
            OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaFScaled {} | ScheduleOp::MmaFSparse {}) => {
                let Type::Tile(tile) = func.ty(data.one(0)) else { continue };
                tile.shape.last().map(|depth| format!("mma {depth}"))
            }
            OpKind::Schedule(ScheduleOp::Reduce { dim, order, .. }) if adds_floats(func, data) => {
                spread |= *order == ReduceOrder::Free;
                let name = if *order == ReduceOrder::Tree { "tree" } else { "sum" };
                along(func, data, *dim).map(|along| format!("{name} {along}"))
            }
            OpKind::Schedule(ScheduleOp::Scan { dim, .. }) if adds_floats(func, data) => {
                spread = true;
                along(func, data, *dim).map(|along| format!("scan {along}"))
            }
            OpKind::Schedule(ScheduleOp::AtomicRedViewTko { mode, .. } | ScheduleOp::AtomicRmwTko { mode, .. })
            | OpKind::Tile(TileOp::AtomicElement { mode }) => (*mode == AtomicMode::AddF).then(|| ATOMICS.to_string()),
            _ => None,
        };
        if let Some(part) = part.filter(|part| !parts.contains(part)) {
            parts.push(part);
        }
    }
    let threads = if func.level == Level::Tile { Some(func.hints.threads()) } else { threads };
    if let Some(threads) = threads.filter(|_| spread) {
        parts.push(format!("{threads} threads"));
    }
    if parts.is_empty() { "none".to_string() } else { parts.join(", ") }
}

/// Whether the order of a class's sums is fixed: two launches give the same bits.
pub fn is_fixed_order(class: &str) -> bool {
    class.split(", ").all(|part| part != ATOMICS)
}

/// Whether what a reduction combines is rounded, so that the order shows.
fn adds_floats(func: &Func, data: &OpData) -> bool {
    let rounds = |mnemonic: &str| matches!(mnemonic, "addf" | "subf" | "mulf" | "fma");
    let blocks = data.regions.iter().flat_map(|&block| &func.blocks[block].ops);
    blocks.into_iter().any(|&op| rounds(func.ops[op].row().mnemonic))
}

/// `16x128 along 1`: the tile that is reduced.
fn along(func: &Func, data: &OpData, dim: u32) -> Option<String> {
    let Type::Tile(tile) = func.ty(*data.operands.first()?) else { return None };
    let extents: Vec<String> = tile.shape.iter().map(u32::to_string).collect();
    Some(format!("{} along {dim}", extents.join("x")))
}
