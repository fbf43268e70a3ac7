//! The operator library: one kernel file and one Rust file an operator.
//!
//! An [`Operator`] states everything the rest of the project works from: its kernels' source, the suite's problem sizes, the
//! precisions, and, for one problem in one precision, a [`Plan`]: tensors, launches, useful work, and an f64 [`Reference`] with
//! the error that a correct implementation may make. Suites, checks, listings and bindings pick operators up from
//! [`OPERATORS`]; adding one is a kernel file, a Rust file under `set/`, and a line there.
//!
//! A [`Call`] has the same plans on one's own arrays, with the choices of a lockfile where it has one; [`softmax`], [`gemm`] and the other functions are calls.
//! [`ranked`] has programs of several ranks that are made of them.

mod ahead;
mod call;
mod draw;
mod element;
mod functions;
mod launches;
mod matrix;
mod operator;
mod outline;
mod packing;
mod pattern;
mod problem;
pub mod ranked;
mod repeated;
mod set;
mod shared;
mod signature;
mod tuned;
mod work;

pub use ahead::{Ahead, AheadError};
pub use call::{Call, CallError, OutputArray, Resolved};
pub use draw::Draw;
pub use functions::*;
pub use matrix::{Matrices, Matrix};
pub use operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, OPERATORS, Operator, OutputRows, Plan, PossibleWay,
    Reference, Role, RowIdentity, Rung, TensorSpec, Unsupported, Way, find,
};
pub use outline::{Outline, OutlineCall};
pub use packing::{PackError, pack_int4};
pub use pattern::{Pattern, Spread, places_of_fours};
pub use problem::Problem;
pub use repeated::{Repeated, Source};
pub use shared::SharedFiles;
pub use signature::{Calls, Operand, Signature};
pub use tuned::{PlanError, Planned};
pub use work::{Metric, Work};
