//! The measuring and checking harness: nothing is timed before it was shown right, every number has an interval, and an
//! impossible one is refused.
//!
//! A [`Suite`] knows cases and builds [`Subject`]s; [`run()`] takes them through the gate ([`check`]), timing ([`Sampler`]) and
//! judgement against the machine's measured [`Ceilings`], and hands out [`Record`]s, one line of a results file each.
//! [`Results`] reads such a file back; [`table()`], [`compare()`] and [`report`] show it.
//!
//! ```text
//! Suite --cases, build--> run --Record--> Writer --file--> Results --> table | compare | report::{html, csv, markdown}
//!                          |
//!       gate -> sample -> ceiling -> summary          statistics: stats; bounds: the operators'
//! ```
//!
//! What the numbers mean and why they are taken this way is said in the modules' own heads: the gate's element rules in
//! `gate.rs`, the schedule in `sample.rs`, intervals in [`stats`], verdicts in `compare.rs`.

/// The version and, where it is known, the commit that the program was built from: `0.1.0 (abc1234)`.
pub const VERSION: &str = env!("TESSERA_VERSION");

mod asked;
mod case;
mod ceiling;
pub mod checklist;
mod clock;
pub mod collectives;
mod compare;
mod conversation;
pub mod device;
pub mod duel;
mod environment;
mod exit;
mod gate;
mod gradient;
mod guarded;
mod hierarchy;
mod kernel_case;
mod kernel_suite;
mod library;
pub mod pages;
mod probe;
mod random;
mod real;
mod record;
pub mod report;
mod sample;
pub mod scale;
mod selection;
mod session;
mod specials;
pub mod stats;
mod status;
mod store;
mod suite;
mod table;
mod tolerance;
mod tune;
pub mod units;
mod values;

pub use case::*;
pub use ceiling::*;
pub use clock::*;
pub use compare::*;
pub use environment::*;
pub use exit::*;
pub use gate::*;
pub use gradient::{GradientCheck, check_gradient, hold, widest};
pub use hierarchy::*;
pub use kernel_case::{Against, KernelCase, KernelSuiteError, OtherKernel};
pub use kernel_suite::*;
pub use library::*;
pub use random::*;
pub use real::*;
pub use record::*;
pub use sample::*;
pub use selection::{Entry, Selection, SelectionError, Shapes, Sizes};
pub use session::*;
pub use status::*;
pub use store::*;
pub use suite::*;
pub use table::*;
pub use tolerance::*;
pub use tune::*;
