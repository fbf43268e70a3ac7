//! Collectives by our own kernels over memory that all ranks of a machine reach: NVLink, or devices of the emulator.
//!
//! - [`SymmetricMemory`] is a region of each rank that all reach.
//! - [`Variant`] is a kernel of `kernels/nvlink.py` with what is known when it is compiled; [`Numbers`] is what it is given.
//! - [`Choice`] says up to which size which [`Algorithm`] is the fastest.
//! - [`NvlinkCommunicator`] is a [`Communicator`](super::Communicator) that does the rest through another one.
//! - [`Mailbox`] is a region into which other kernels and copies put what their rank is to have, for programs that compute meanwhile.
//!
//! Invariant: all ranks get equal bits, and which kernel a call is done by depends on the call alone.

mod choice;
mod communicator;
mod mailbox;
mod region;
mod variant;

pub use choice::Choice;
pub use communicator::NvlinkCommunicator;
pub use mailbox::{Mailbox, Turn};
pub use region::{Layout, SymmetricMemory};
pub use variant::{Algorithm, Combining, FILE, Form, MOST_BLOCKS, MOST_RANKS, Numbers, SOURCE, THREADS, Variant};
