//! Programs for several ranks: kernels on each rank's parts, and exchanges between them.
//!
//! [`RankedKernel`] is a Graph function with a mesh, made into the program of a rank (the pass `collective-insertion`) and split into
//! kernels and exchanges. A rank runs it with [`RankedKernel::run_rank`] and a [`Communicator`]; [`RankedKernel::run`] simulates all
//! ranks on threads: it cuts the arguments into parts, and puts the results together.
//!
//! Invariant: what a rank computes depends on the arguments alone, not on which rank was faster.

mod call;
mod communicator;
mod error;
mod linked;
pub mod nvlink;
mod parts;
mod program;
mod simulated;

pub use call::{Call, CallName, Group, Operation, Reduction};
pub use communicator::{Communicator, Pending, Work};
pub use error::{ExchangeError, RendezvousError};
pub use program::RankedKernel;
pub use simulated::{Meeting, SimulatedRank};
