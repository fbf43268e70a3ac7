//! The operators, a file each.

pub(crate) mod attention;
mod attention_tiles;
pub(crate) mod bandwidth;
mod decoded;
mod few_queries;
pub(crate) mod gemm;
pub(crate) mod gemm_grouped;
pub(crate) mod gemm_scaled;
mod gemm_tiles;
pub(crate) mod cross_entropy;
pub(crate) mod histogram;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod linear_w4;
pub(crate) mod log_softmax;
mod norm;
pub(crate) mod norm_backward;
pub(crate) mod permute;
mod product;
pub(crate) mod reduce;
pub(crate) mod reduce_columns;
pub(crate) mod rms_norm;
mod rows;
mod rowwise;
pub(crate) mod softmax;
pub(crate) mod vector;
