//! `tile-and-schedule`: from whole operands to a block program.
//!
//! The axes that every store has, and that nothing is reduced over, are cut into tiles and spread over the grid; one block
//! computes one tile of each. Other axes of a store become loops in the block. A tile is computed on demand: elementwise
//! operations tile by tile, a `graph.contract` as a loop over K with an accumulator, a `graph.reduce` as a loop over its axis, what
//! does not depend on a loop before it. Loads pad with zeros, stores drop what lies outside, and what a padded element could
//! change is masked, so ragged edges are right. The function's config gives the tile sizes:
//!
//! | name | tile extent of | default |
//! |---|---|---|
//! | `BLOCK_M` | the last axis but one | 128 with a product, else 16 |
//! | `BLOCK_N` (or `BLOCK_SIZE`) | the last axis | 128 with a product, 128 for matrices, else 1024 |
//! | `BLOCK_K` | the summed axis of a product | 64 |
//!
//! ```text
//! graph.store (graph.contract %a, %b), %C
//! for %k = 0 .. cdiv(K, 64): %acc = mmaf (load A[m, k]), (load B[k, n]), %acc;  store %acc, C[m, n]
//! ```

use smallvec::SmallVec;
use tessera_ir::{Changed, Diagnostic, Extent, Func, IndexType, Level, Pass, PassCx, TileCount};

mod emit;
mod loops;
mod operand;
mod plan;

pub(crate) use plan::yielded;

/// Tiling with the facts that the function states.
pub(crate) const PASS: Pass =
    Pass { name: "tile-and-schedule", doc: "Turns a function over whole operands into a block program.", run };

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Graph {
        return Changed(false);
    }
    match tile_and_schedule(func, &[]) {
        Ok((tiled, _)) => *func = tiled,
        Err(diagnostics) => cx.diagnostics.extend(diagnostics),
    }
    Changed(true)
}

/// What is known about the array behind an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandFacts {
    /// Sizes, in memory order.
    pub shape: SmallVec<[Extent; 4]>,
    /// Strides in elements.
    pub strides: SmallVec<[Extent; 4]>,
    /// Type of sizes and strides.
    pub index: IndexType,
    /// Alignment of the base address in bytes.
    pub align: u32,
    /// The same of every stride that is not known, and of the size of the axis of unit stride.
    pub lines: u32,
    /// True when no two elements share memory and no other argument overlaps.
    pub disjoint: bool,
}

/// How many blocks a tiled kernel needs: the product of these counts, all along the grid's first axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Counts, slowest first.
    pub tiles: Vec<TileCount>,
}

impl Grid {
    /// The number of blocks for arrays of these sizes, `size(param, axis)`; `None` when it exceeds what a grid can have.
    pub fn blocks(&self, size: impl Fn(usize, usize) -> i64) -> Option<u32> {
        TileCount::blocks(&self.tiles, size)
    }
}

/// Tiles a Graph function that verifies. `facts` has an entry for each parameter of the ABI, or none at all; where nothing is
/// given, an operand is row-major and aligned to 16 bytes.
pub fn tile_and_schedule(func: &Func, facts: &[Option<OperandFacts>]) -> Result<(Func, Grid), Vec<Diagnostic>> {
    let plan = plan::Plan::of(func)?;
    Ok(emit::emit(func, plan, facts))
}
