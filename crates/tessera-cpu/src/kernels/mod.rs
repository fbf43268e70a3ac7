//! Loops that the executor calls: elementary functions, reductions, matrix products, streaming stores.
//!
//! Results do not depend on the processor: sums have a fixed order of lanes, products are one chain of fused multiply-adds along
//! K for every element, functions are the same polynomials everywhere. Only the speed follows the instruction set.

#![allow(unsafe_code, reason = "vector instructions and operands in the caller's memory")]

pub(crate) mod copy;
pub(crate) mod dispatch;
pub(crate) mod math;
pub(crate) mod matmul;
mod micro;
mod pack;
pub(crate) mod reduce;
pub(crate) mod tape;
mod vector;
