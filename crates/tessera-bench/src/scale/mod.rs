//! Collectives on paper: how long they take on machines that are not here.
//!
//! A collective's time is latency and bandwidth, `t = base + steps * alpha + bytes / beta`, with steps and bytes from the algorithm
//! ([`Link`], [`Algorithm`]). What one node does is fitted to measured points by least squares ([`fit()`], [`MEASURED`]); the network's
//! constants are those that NCCL chooses its algorithms with. [`PUBLISHED`] figures of larger machines check the model, and none of
//! them is fitted. [`document()`] prints the tables of `docs/scale.md`.
//!
//! ```
//! use tessera_bench::collectives::Collective;
//! use tessera_bench::scale::Machine;
//! let machine = Machine::hopper();
//! let (best, time) = machine.best(Collective::AllReduce, 1024, 1 << 30);
//! assert_eq!(best.name(), "NCCL tree");
//! assert!((5e3..20e3).contains(&time), "{time} us");
//! ```

mod algorithm;
mod document;
mod fit;
mod machine;
mod operators;
mod points;

pub use algorithm::Algorithm;
pub use document::document;
pub use fit::{Fit, fit};
pub use machine::{Link, Machine, Network};
pub use operators::{Overlap, Product, RingAttention};
pub use points::{MEASURED, Measured, PUBLISHED, Published, points_of, recorded};
