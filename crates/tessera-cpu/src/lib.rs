//! Executes Schedule IR on the CPU.
//!
//! [`Program::prepare`] turns a function into a plan: scalars in registers, tiles in buffers of an arena whose places follow from
//! their lifetimes, chains of elementwise operations fused into groups that run strip by strip, or in registers where they are
//! `f32` arithmetic (`plan`, `build`, `kernels::tape`).
//! [`Program::run`] runs the plan for every block of a grid, blocks in parallel; results do not depend on how many threads there
//! are. Checked launches run an unfused plan one block after another and report what would otherwise be undefined (`check`).
//!
//! # What operations mean here
//! As in CUDA Tile IR 13.3, and where that leaves room:
//! - Every operation on `f16`, `bf16` and smaller floats is rounded to its type, to nearest even. `free` sums and products of
//!   narrow floats are kept in `f32` and rounded once.
//! - Hardware approximations (`approx`, `full`) are computed to full precision. `tf32` operands of products are rounded to
//!   nearest even.
//! - Shift counts of the width or more shift everything out; checked launches report them.
//! - A quotient or remainder by zero is all ones, before a quotient is rounded, as on GPUs; checked launches report the division where it decides something.
//! - Memory is only touched inside the arguments and allocations of the launch: every other access is reported, checked or not.

#![allow(clippy::collapsible_if, clippy::collapsible_match, reason = "a condition with a binding of its own stands by itself")]
#![allow(clippy::result_large_err, reason = "launches fail once, and what is reported is a plain value")]
#![allow(unsafe_code, reason = "tiles live in raw memory that plans lay out; every block says why it holds")]

mod blocks;
mod build;
mod check;
mod exec;
mod kernels;
mod lanes;
mod launch;
pub mod lockstep;
mod pace;
mod plan;
mod program;
mod touched;

pub use kernels::dispatch::Level;
pub use launch::{Allocation, Arg, Fault, RunOptions};
pub use program::Program;
