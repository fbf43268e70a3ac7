//! The suite of collectives: all ranks do one thing together, checked and timed as operators are.
//!
//! ```text
//! CollectiveSuite --build--> Exchanged (a Subject) --Ask--> Team --Ask--> rank 0: Member with its Communicator
//!      |                         ^                            |           rank 1: Member ...
//!   cases: collective,           '------ Answers -------------'           threads, processes, or a baseline's processes
//!   precision, bytes, ranks
//! ```
//! A *team* is as many ranks as there are, on one way of exchanging: threads of this process, processes over TCP, GPUs with NCCL, or the
//! processes of a baseline, which speak the same words (`ask.rs`). Teams of one case take turns, as implementations do.
//!
//! Invariant: inputs are a function of seed, rank and index (`data.rs`), so that nobody sends them, and what a rank should have is known
//! wherever it is asked for. A time is that of the slowest rank.

mod ask;
mod data;
mod kind;
mod lines;
mod member;
mod stopwatch;
mod subject;
mod suite;
mod team;

pub use ask::{Answer, Ask, Offer};
pub use data::{Inputs, digest_of};
pub use kind::{Collective, Form};
pub use lines::{Lines, Make};
pub use member::{Member, serve_member};
pub use suite::{CollectiveError, CollectiveSelection, CollectiveSuite, Way};
pub use team::{Team, Wired, serve_wired};
