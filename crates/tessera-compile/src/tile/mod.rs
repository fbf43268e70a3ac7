//! Schedule IR to Tile IR, the generic road: every tile gets a layout over the block's threads, and where two layouts meet stands
//! a `tile.convert_layout`.
//!
//! 0. [`flatten`] drops batch axes of extent 1 from matrix products. [`sink`] moves into branches what only they use.
//!    [`roles`] splits a loop that is a matrix product into warps that load and warps that compute, through a loop [`around`] it as well,
//!    [`chain`] one with two products of which the second takes what became of the first; [`factor`], [`slots`] and [`queue`] have what recipes build such roles from;
//!    [`guard`] leaves masks out of the rounds that do not need them. Where there are no roles, [`stages`] has all
//!    warps copy ahead of what they multiply, by tensor instructions of a warp or, with accumulators laid out by [`outer`], by
//!    multiply-adds of threads.
//! 1. [`threads`] chooses how many warps a block has.
//! 2. [`anchors`] states layouts that an operation asks for by itself: memory accesses by what is contiguous, matrix products
//!    by their instruction's fragments.
//! 3. [`infer`] carries layouts forward from the anchors, through loops until nothing changes. A value that no anchor reaches is
//!    *flexible*: a constant, a count, a broadcast, and what is computed from those alone.
//! 4. [`rewrite`] gives each operand the layout that its operation needs: a flexible value is computed again in that layout,
//!    any other is converted. Both stand directly behind the definition, so a conversion is made once and never in a loop that
//!    it does not need.
//! 5. [`overlap`] runs chained products of warpgroups under the work between them.
//! 6. [`late`] moves loads behind the mask that throws some of their elements away.
//! 7. [`residence`] says how many blocks shall be resident at once.
//!
//! Invariant: afterwards every tile with axes has a layout, and the operands of an operation agree as the verifier asks.

mod anchors;
mod around;
mod chain;
mod factor;
mod feed;
mod flatten;
mod guard;
mod infer;
mod late;
mod makers;
mod order;
mod outer;
mod overlap;
mod queue;
mod relation;
mod remark;
mod residence;
mod rewrite;
mod roles;
mod sink;
mod slots;
mod stages;
mod threads;

use tessera_ir::{Diagnostic, Func, Level};

pub use anchors::Units;
pub use remark::{Reason, Remark, Remarks};

/// Gives every tile of a Schedule function a layout over the threads of a block, and says what the recipes said.
///
/// # Errors
/// An operation that has no form on the units that the target has.
pub fn to_tile(func: &Func, units: &Units) -> Result<(Func, Remarks), Diagnostic> {
    let mut func = func.clone();
    let mut remarks = Remarks::default();
    flatten::flatten(&mut func);
    sink::into_branches(&mut func);
    let split = remarks.ask("roles", || roles::separate(&mut func, units));
    let split = split.or_else(|| remarks.ask("chain", || chain::separate(&mut func, units)));
    let split = split.or_else(|| remarks.ask("stages", || stages::pipeline(&mut func, units)));
    let warps = match split {
        Some(computing) => computing,
        None => *func.hints.num_warps.insert(threads::warps(&func)),
    };
    func.level = Level::Tile;
    let layouts = infer::infer(&func, anchors::Anchors::new(&func, units, warps)?)?;
    rewrite::rewrite(&mut func, &layouts)?;
    overlap::overlap(&mut func);
    late::delay_masked_loads(&mut func);
    if split.is_none() && func.hints.occupancy.is_none() {
        func.hints.occupancy = residence::blocks(&func, units, warps);
    }
    Ok((func, remarks))
}
