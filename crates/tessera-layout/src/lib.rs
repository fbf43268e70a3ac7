//! Layouts of tiles: which thread holds which element, and where it lies in shared memory. Pure mathematics, no IR.
//!
//! - [`LinearLayout`] is the algebra: linear maps over F2 from registers, lanes, warps, blocks or shared-memory offsets to
//!   coordinates, with product, composition, inverse and division.
//! - [`Distribution`] is a tile of any extents over the threads of a block: a linear core, repeated. [`Distribution::blocked`] makes
//!   the one for global memory; [`MmaAtom`] those that matrix instructions take and give.
//! - [`SharedLayout`] places a tile in shared memory; [`Swizzle`] and [`bank_conflicts`] say what an access costs there, and
//!   [`matrix_access`] whether `ldmatrix` and `stmatrix` apply. [`WgmmaOperand`] gives the layouts and descriptors of `wgmma`.
//! - [`conversion`] finds the way from one distribution to another: renaming, shuffles, or a round trip through shared memory.

mod banks;
mod blocked;
mod conversion;
mod distribution;
mod error;
mod fragment;
mod linear;
mod matrix;
mod matrix_access;
mod part;
mod reshape;
mod scratch;
mod shared;
mod shuffle;
mod swizzle;
mod text;
mod vector;
mod wgmma;

pub use banks::{Access, BANK_BYTES, BANKS, Conflicts, bank_conflicts, wavefronts};
pub use conversion::{Conversion, conversion, register_map};
pub use distribution::{Along, Distribution, Owner, WARP};
pub use error::LayoutError;
pub use fragment::{MmaAtom, Operand, WarpGrid};
pub use linear::{Axis, Dims, LinearLayout};
pub use matrix_access::{MatrixAccess, matrix_access, matrix_conflicts};
pub use scratch::{RoundTrip, round_trip, shared_for};
pub use shared::SharedLayout;
pub use shuffle::{LaneMap, Round, Shuffle};
pub use swizzle::Swizzle;
pub use vector::{Vector, widest_global_vector, widest_shared_vector};
pub use wgmma::{MatrixDescriptor, WgmmaOperand};
