//! Layouts of tiles: which thread holds which element, and where it lies in shared memory. Pure mathematics, no IR.
//!
//! - [`LinearLayout`] is the algebra: linear maps over F2 from registers, lanes, warps, blocks or shared-memory offsets to
//!   coordinates, with product, composition, inverse and division.
//! - [`Distribution`] is a tile of any extents over the threads of a block: a linear core, repeated. [`Distribution::blocked`] makes
//!   the one for global memory; [`MmaAtom`] those that matrix instructions take and give.

mod blocked;
mod distribution;
mod error;
mod fragment;
mod linear;
mod matrix;
mod reshape;
mod text;

pub use distribution::{Along, Distribution, Owner, WARP};
pub use error::LayoutError;
pub use fragment::{MmaAtom, Operand, WarpGrid};
pub use linear::{Axis, Dims, LinearLayout};
