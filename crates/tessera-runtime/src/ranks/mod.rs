//! Programs for several ranks: kernels on each rank's parts, and exchanges between them.
//!
//! [`RankedKernel`] is a Graph function with a mesh, made into the program of a rank (the pass `collective-insertion`) and split into
//! kernels and exchanges. A rank runs it with [`RankedKernel::run_rank`] and a [`Communicator`]. With whole arguments, all ranks run it as threads
//! on the CPU ([`RankedKernel::run`]) or with a device each ([`RankedKernel::run_on`], [`RankedKernel::run_on_peers`]), or as processes of a [`World`]
//! ([`RankedKernel::run_as_rank`]): arguments are cut into parts, and results put together.
//!
//! | communicator | ranks are | tensors are exchanged |
//! |---|---|---|
//! | [`SimulatedRank`] | threads of one process, that meet in a [`Meeting`] | on the CPU, in memory |
//! | [`TcpRank`] | processes, that meet in a [`World`] | on the CPU, over TCP |
//! | [`NcclRank`] | threads or processes with a CUDA device each | by NCCL |
//! | [`nvlink::NvlinkCommunicator`] | the same, on one host | by our own kernels, where they are faster |
//! | [`Checked`] | those of another one | after the ranks have compared their calls |
//!
//! Invariant: what a rank computes depends on the arguments and the kind of communicator alone, not on which rank was faster.

mod board;
mod call;
mod checked;
mod communicator;
mod environment;
mod error;
mod lanes;
mod life;
mod linked;
mod meeting;
mod nccl;
mod nccl_places;
pub mod nvlink;
mod parts;
mod program;
mod simulated;
mod staged;
mod store;
mod tcp;
mod whole;
mod wire;
mod world;

pub use board::Board;
pub use call::{Call, CallName, Group, Operation, Reduction};
pub use checked::Checked;
pub use communicator::{Communicator, Pending, Work};
pub use environment::Placement;
pub use error::{ExchangeError, RendezvousError};
pub use lanes::Lanes;
pub use life::Limits;
pub use meeting::{Meeting, Seat};
pub use nccl::{NcclRank, start_together};
pub use nccl_places::nccl_places;
pub use program::RankedKernel;
pub use simulated::SimulatedRank;
pub use tcp::TcpRank;
pub use world::World;

pub use tessera_cuda::{Nccl, NcclError};
