//! The operators, a file each.

pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod attention_decode;
mod attention_gradients;
pub(crate) mod attention_lse;
mod attention_tiles;
pub(crate) mod bandwidth;
mod by_row;
mod decoded;
pub(crate) mod embedding;
mod few_queries;
pub(crate) mod gemm;
pub(crate) mod gemm_grouped;
pub(crate) mod gemm_scaled;
mod gemm_tiles;
pub(crate) mod histogram;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod linear_w4;
pub(crate) mod moe;
mod norm;
pub(crate) mod permute;
mod product;
pub(crate) mod rms_norm;
mod rows;
pub(crate) mod softmax;
pub(crate) mod vector;
