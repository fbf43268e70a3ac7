//! One file a subcommand.

pub(crate) mod bench;
pub(crate) mod check;
mod check_kernel;
pub(crate) mod compare;
pub(crate) mod compile;
mod device_report;
pub(crate) mod doctor;
pub(crate) mod duel;
pub(crate) mod emu;
mod emulation;
mod extents;
pub(crate) mod findings;
mod launch;
pub(crate) mod list;
mod locking;
pub(crate) mod manual;
pub(crate) mod opt;
mod progress;
mod ranks;
pub(crate) mod report;
pub(crate) mod run;
mod run_operator;
mod subjects;
mod tolerance;
pub(crate) mod tune;
mod tuned;
mod unwritten;
