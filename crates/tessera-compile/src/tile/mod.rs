//! Schedule IR to Tile IR, the generic road: every tile gets a layout over the block's threads, and where two layouts meet stands
//! a `tile.convert_layout`.
//!
//! 0. [`strips`] cuts tiles that are too large for what a block has. [`blocks`] makes tiles of views of pointers that cover one. [`flatten`] drops batch axes of extent 1 from matrix products and loads single elements as scalars. [`sink`] moves into branches what only they use.
//!    [`roles`] splits a loop that is a matrix product into warps that load and warps that compute, through a loop [`around`] it as well,
//!    [`chain`] one with two products of which the second takes what became of the first; [`factor`], [`slots`] and [`queue`] have what recipes build such roles from;
//!    [`guard`] leaves masks out of the rounds that do not need them. Where there are no roles, [`stages`] has all
//!    warps copy ahead of what they multiply, by tensor instructions of a warp or, with accumulators laid out by [`outer`], by
//!    multiply-adds of threads; [`spread`] is how factors lie in shared memory where no recipe has brought them there.
//! 1. [`threads`] chooses how many warps a block has.
//! 2. [`anchors`] states layouts that an operation asks for by itself: memory accesses by what is contiguous, matrix products
//!    by their instruction's fragments.
//! 3. [`infer`] carries layouts forward from the anchors, through loops until nothing changes. A value that no anchor reaches is
//!    *flexible*: a constant, a count, a broadcast, and what is computed from those alone.
//! 4. [`rewrite`] gives each operand the layout that its operation needs: a flexible value is computed again in that layout,
//!    any other is converted. Both stand directly behind the definition, so a conversion is made once and never in a loop that
//!    it does not need.
//! 5. [`overlap`] runs chained products of warpgroups under the work between them, [`abreast`] others beside each other.
//! 6. [`late`] moves loads behind the mask that throws some of their elements away.
//! 7. [`residence`] says how many blocks shall be resident at once.
//!
//! Invariant: afterwards every tile with axes has a layout, and the operands of an operation agree as the verifier asks.

mod abreast;
mod anchors;
mod apart;
mod around;
mod blocks;
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
mod spread;
mod stages;
pub mod strips;
mod threads;
mod tokens;
mod turned;

use tessera_ir::{Changed, Diagnostic, Func, Level, Op, OpKind, Pass, PassCx, TileOp, Type, Value};

pub use anchors::Units;
pub use remark::{Reason, Remark, Remarks};
pub(crate) use slots::swizzle as engine_swizzle;

/// Gives every tile of a Schedule function a layout over the threads of a block, and says what the recipes said.
///
/// # Errors
/// An operation that has no form on the units that the target has.
pub fn to_tile(func: &Func, units: &Units) -> Result<(Func, Remarks), Diagnostic> {
    laid_out(plain(func), units, Recipes::All)
}

/// The function in the forms that recipes know.
pub(crate) fn plain(func: &Func) -> Func {
    let mut func = func.clone();
    blocks::from_pointers(&mut func);
    flatten::flatten(&mut func);
    tokens::forget_reads(&mut func);
    sink::into_branches(&mut func);
    func
}

/// Which recipes are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipes {
    /// All.
    #[default]
    All,
    /// Those in which all warps do the same.
    WithoutRoles,
    /// None: the generic road.
    Generic,
}

/// A recipe: the warps that compute, or why it does not take the function.
type Recipe = fn(&mut Func, &Units) -> Result<u32, Reason>;

impl Recipes {
    /// By their names, the best first; those with roles come before the others.
    const ALL: [(&'static str, Recipe); 3] =
        [("roles", roles::separate), ("chain", chain::separate), ("stages", stages::pipeline)];

    fn asked(self) -> &'static [(&'static str, Recipe)] {
        match self {
            Recipes::All => &Self::ALL,
            Recipes::WithoutRoles => &Self::ALL[2..],
            Recipes::Generic => &[],
        }
    }
}

/// Gives every tile of a [`plain`] function a layout.
pub(crate) fn laid_out(mut func: Func, units: &Units, recipes: Recipes) -> Result<(Func, Remarks), Diagnostic> {
    let mut remarks = Remarks::default();
    let split = recipes.asked().iter().find_map(|(name, recipe)| remarks.ask(name, || recipe(&mut func, units)));
    let warps = match split {
        Some(computing) => computing,
        None => *func.hints.num_warps.insert(threads::warps(&func)),
    };
    func.level = Level::Tile;
    let layouts = infer::infer(&func, anchors::Anchors::new(&func, units, warps)?)?;
    rewrite::rewrite(&mut func, &layouts)?;
    overlap::overlap(&mut func);
    abreast::start_together(&mut func);
    late::delay_masked_loads(&mut func);
    if split.is_none() && func.hints.occupancy.is_none() {
        func.hints.occupancy = residence::blocks(&func, units, warps);
    }
    Ok((func, remarks))
}

/// The pass that [`to_tile`] is on its own.
pub(crate) const PASS: Pass = Pass {
    name: "layouts",
    doc: "Gives the tiles of block programs layouts over threads, by a recipe where one applies: Schedule IR becomes Tile IR.",
    run: lay_out,
};

fn lay_out(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Schedule {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PASS.name, func) else { return Changed(false) };
    match to_tile(func, &Units::of(arch, arch.limits().shared_per_block)) {
        Ok((laid_out, _)) => {
            *func = laid_out;
            Changed(true)
        }
        Err(diagnostic) => {
            cx.diagnostics.push(diagnostic);
            Changed(false)
        }
    }
}

/// A product that would have an instruction if its tiles lay otherwise.
pub(crate) fn has_better_product(func: &Func, op: Op, units: &Units) -> bool {
    anchors::instruction_for(func, op, units)
}

/// The function with its tiles laid out anew: the layouts that it has, and the conversions between them, are forgotten.
///
/// # Errors
/// A tile that no layout covers.
pub(crate) fn relay(func: &Func, units: &Units) -> Result<Func, Diagnostic> {
    let mut func = func.clone();
    let warps = func.hints.num_warps.unwrap_or(4);
    let mut sources: rustc_hash::FxHashMap<Value, Value> = rustc_hash::FxHashMap::default();
    for op in func.linked_ops() {
        if matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {})) {
            let source = func.ops[op].one(0);
            let source = sources.get(&source).copied().unwrap_or(source);
            sources.insert(func.ops[op].result(), source);
        }
    }
    func.replace_uses(|value| sources.get(&value).copied().unwrap_or(value));
    for block in func.linked_blocks() {
        let kept = func.blocks[block].ops.iter().copied();
        let kept = kept.filter(|&op| !matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {}))).collect();
        func.blocks[block].ops = kept;
    }
    for value in func.values.ids().collect::<Vec<_>>() {
        if let Type::Distributed(ty) = func.ty(value).clone() {
            func.values[value].ty = Type::Tile(ty.tile);
        }
    }
    let layouts = infer::infer(&func, anchors::Anchors::new(&func, units, warps)?)?;
    rewrite::rewrite(&mut func, &layouts)?;
    Ok(func)
}
