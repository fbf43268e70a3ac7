//! Programs for several ranks: kernels on each rank's parts, and exchanges between them.
//!
//! [`RankedKernel`] is a Graph function with a mesh, made into the program of a rank (the pass `collective-insertion`) and split into
//! kernels and exchanges. A rank runs it with [`RankedKernel::run_rank`] and a [`Communicator`]; [`RankedKernel::run`] simulates all
//! ranks on threads: it cuts the arguments into parts, and puts the results together.
//!
//! Invariant: what a rank computes depends on the arguments alone, not on which rank was faster.

mod call;
mod communicator;
mod environment;
mod error;
mod lanes;
mod life;
mod linked;
pub mod nvlink;
mod parts;
mod program;
mod simulated;
mod store;
mod tcp;
mod wire;
mod world;

pub use call::{Call, CallName, Group, Operation, Reduction};
pub use communicator::{Communicator, Pending, Work};
pub use environment::Placement;
pub use error::{ExchangeError, RendezvousError};
pub use lanes::Lanes;
pub use life::Limits;
pub use program::RankedKernel;
pub use simulated::{Meeting, SimulatedRank};
pub use tcp::TcpRank;
pub use world::World;
