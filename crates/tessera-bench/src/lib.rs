//! The measuring and checking harness.

mod case;
mod ceiling;
mod clock;
mod compare;
mod environment;
mod exit;
mod gate;
mod probe;
mod random;
mod real;
mod record;
mod sample;
mod session;
pub mod stats;
mod status;
mod store;
mod suite;
mod table;
pub mod tolerance;
pub mod units;

pub use case::*;
pub use ceiling::*;
pub use clock::*;
pub use compare::*;
pub use environment::*;
pub use exit::*;
pub use gate::*;
pub use random::*;
pub use real::*;
pub use record::*;
pub use sample::*;
pub use session::*;
pub use status::*;
pub use store::*;
pub use suite::*;
pub use table::*;
