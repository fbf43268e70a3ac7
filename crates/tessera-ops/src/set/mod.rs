//! The operators, a file each.

pub(crate) mod attention;
mod attention_tiles;
pub(crate) mod bandwidth;
mod few_queries;
pub(crate) mod gemm;
mod gemm_tiles;
pub(crate) mod layer_norm;
pub(crate) mod linear;
mod norm;
pub(crate) mod permute;
pub(crate) mod rms_norm;
mod rows;
pub(crate) mod softmax;
pub(crate) mod vector;
