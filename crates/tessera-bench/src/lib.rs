//! The measuring and checking harness.

mod case;
mod gate;
mod random;
mod real;
pub mod stats;
mod status;
pub mod tolerance;

pub use case::*;
pub use gate::*;
pub use random::*;
pub use real::*;
pub use status::*;
