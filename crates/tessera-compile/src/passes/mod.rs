//! The passes: one file each, and one line here. The order of [`ALL`] is the order of the reference page; what runs when is
//! the pipelines' business ([`crate::pipeline`]).

use tessera_ir::{Pass, bug};

use crate::tile;

pub(crate) mod barrier_optimization;
mod canonicalise;
mod constant_fold;
mod count_loops;
mod cse;
mod exchange;
mod fma_contract;
mod intrinsic_lowering;
pub(crate) mod memory_management;
mod narrow_integers;
mod one_counter;
mod performance_annotation;
mod program_packing;
mod register_coalescing;
mod specialise_abi;
mod token_order;

/// Every pass.
pub const ALL: &[&Pass] = &[
    &crate::sharding::PASS,
    &crate::tiling::PASS,
    &fma_contract::PASS,
    &specialise_abi::PASS,
    &constant_fold::PASS,
    &canonicalise::PASS,
    &narrow_integers::PASS,
    &cse::PASS,
    &crate::rewrite::licm::PASS,
    &count_loops::PASS,
    &one_counter::PASS,
    &crate::rewrite::dce::PASS,
    &token_order::PASS,
    &tile::POINTER_VIEWS,
    &tile::UNIT_AXES,
    &tile::PRODUCT_PADDING,
    &tile::READ_TOKENS,
    &tile::CODE_SINKING,
    &tile::SINGLE_ROUNDS,
    &tile::LOAD_PORTIONS,
    &tile::WARP_SPECIALIZATION,
    &tile::MULTISTAGE_PIPELINE,
    &tile::ROW_NARROWING,
    &tile::LINE_ALIGNMENT,
    &tile::CLUSTER_ROWS,
    &tile::MASK_ELISION,
    &tile::PIPELINING,
    &tile::LOAD_BATCHING,
    &tile::LAYOUTS,
    &tile::PRODUCT_OVERLAP,
    &tile::PRODUCT_ALTERNATION,
    &tile::LOOP_SPLITTING,
    &tile::PRODUCT_GROUPING,
    &tile::PRODUCT_PIPELINING,
    &tile::LOAD_PREFETCHING,
    &tile::PREDICATED_LOAD_SINKING,
    &tile::REMATERIALIZATION,
    &tile::OCCUPANCY,
    &intrinsic_lowering::PASS,
    &register_coalescing::PASS,
    &exchange::PASS,
    &memory_management::PASS,
    &barrier_optimization::PASS,
    &performance_annotation::PASS,
    &program_packing::PASS,
];

/// The passes of a pipeline.
pub(crate) fn all_of<'n>(names: impl IntoIterator<Item = &'n &'n str>) -> Vec<&'static Pass> {
    names.into_iter().map(|name| find(name).unwrap_or_else(|| bug!("a pipeline with a pass `{name}`"))).collect()
}

/// The pass of a name.
pub fn find(name: &str) -> Option<&'static Pass> {
    ALL.iter().copied().find(|pass| pass.name == name)
}
