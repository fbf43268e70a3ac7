//! The compiler: passes over Graph and Schedule IR, tiling, and the driver from source to optimised Schedule IR and to PTX.
//!
//! - [`passes`] are plain data, one file each; [`OptLevel`] names the pipelines `-O0` to `-O3`.
//! - [`compile`] is the whole road; [`compile_module`] starts at IR.
//! - [`facts`] answers what is known about ranges and divisibility.
//! - [`generate`] makes random programs, for the tests of passes and executors.
//! - [`tile_and_schedule`] turns a Graph function into a block program and says how many blocks it needs ([`Grid`]).
//! - [`tile`] gives a block program's tiles layouts over threads, [`target`] makes one thread's instructions of that, and
//!   [`compile_for`] is both and the optimiser of Target IR: a kernel for a GPU.
//! - [`rank_program`] splits what `collective-insertion` made into kernels and exchanges between ranks ([`RankProgram`]).
//! - [`report`] says what is known of such a kernel without running it.
//!
//! Invariants: a pass leaves a module that verifies; every level of optimisation computes the same bits; the same input and
//! options give the same output.

#![allow(clippy::result_large_err, reason = "a kernel is refused once, and what is reported is a plain value")]

mod choices;
mod device;
mod driver;
mod fold;
pub mod generate;
mod ladder;
pub mod passes;
mod pipeline;
pub mod report;
mod rewrite;
mod sharding;
mod sums;
pub mod tile;
mod tiling;

pub use choices::{Choices, choices};
pub use device::{DeviceCompiled, PossiblePlan, compile_for, own_plan, possible_plans, reproducible};
pub use driver::{CompileOptions, Compiled, Stage, compile, compile_ir, compile_module};
pub use ladder::{Attempt, Partition};
pub use pipeline::{OptLevel, UnknownLevel, named_pipeline, pipeline_names};
pub use sharding::pieces::{Buffer, Place, RankProgram, RankStep, rank_program};
pub use sums::{is_fixed_order, order_of_sums};
pub use tessera_analysis::facts;
pub use tessera_ir::Sharing;
pub use tessera_ptx as ptx;
pub use tessera_target as target;
pub use tile::{Launch, Time};
pub use tiling::{Grid, OperandFacts, tile_and_schedule};
