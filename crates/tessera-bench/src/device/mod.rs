//! The harness on a device: the same gate, schedule, records and reports, with a device's own clock.
//!
//! ```text
//! DeviceLibrary --build--> DeviceSubject { tensors with guards, Launcher }      a Subject like any other
//!                              |
//!                 DeviceTimer: blocker -> (read twice the L2 -> event -> launch -> event) x n -> release
//! ```
//!
//! - **Isolated** samples (the default): a whole block is queued behind a wait that the host releases, so that the time
//!   between a sample's two events holds no host work. *Cold* samples are preceded by reading twice the second-level cache:
//!   reading leaves nothing dirty that would be written back during the launch.
//! - **Batched** and **graph** samples divide many launches by their number; data is warm.
//! - The floor is an event pair around an empty kernel. It is reported, never subtracted.
//! - Every block carries the multiprocessor's clock from its own counters and the driver's readings.
//!
//! Inputs beyond 2^26 elements repeat with a period that no power of two divides, so that a reference needs no host copy of
//! them. Of outputs beyond 2^22 elements or 2^31 multiply-adds, a stratified sample of rows is compared; a digest over all of
//! them, taken on the device under both poisons, shows what was not written. What a product's reference sums up is summed up on
//! the device (`sums.rs`), by kernels that share nothing with those that are judged.

mod blas;
mod ceiling;
mod kernels;
mod library;
mod subject;
mod sums;
mod supervise;
mod tensor;
mod timer;
mod worker;

pub(crate) use ceiling::measure as measure_ceilings;
pub(crate) use library::Compiled;
pub use library::{DeviceLibrary, DeviceOptions};
pub(crate) use subject::launch_fault;
pub use subject::{DeviceSubject, Launcher, Prepared};
pub use supervise::{Supervised, Supervisor, supervise};
pub use tensor::DeviceTensors;
pub use timer::{CacheState, DeviceTimer, Method, Timing};
pub use worker::Worker;
