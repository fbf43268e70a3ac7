//! Number formats, precision policies and targets: the plain facts everything else stands on.
//!
//! - [`DType`] names an element type; [`FloatFormat`] and [`IntFormat`] say what its bits mean and convert one element with
//!   any rounding; [`convert`] and [`element`] do the usual conversions fast; [`packed`] stores sub-byte elements.
//! - [`Policy`] pairs what is stored with what is accumulated: `fp8_e4m3@accum(fp32)`.
//! - [`printf`] takes formats of C apart and prints numbers by them.
//! - [`room`] gives out a block's shared memory where copies run ahead of products.
//! - [`TimeLimit`] says how long a launch may take.
//! - [`Target`] is what a kernel is compiled for: an [`Arch`] with limits, features, [matrix instructions](MatrixInstruction),
//!   [copies](AsyncCopy) and [costs](Cost), and, where known, a [`Device`] with clocks and peaks.

mod arch;
mod async_copy;
mod bulk_copy;
mod cast;
mod cost;
mod device;
mod dtype;
mod format;
mod integer;
mod matrix;
mod policy;
mod rounding;
mod target;
mod time_limit;
mod tolerance;

pub mod convert;
pub mod element;
pub mod packed;
pub mod printf;
pub mod room;

pub use arch::{Arch, Feature, Limits};
pub use async_copy::{AsyncCopy, Mover};
pub use bulk_copy::{L2Promotion, OutOfBounds, Swizzle};
pub use cast::{cast, default_rounding};
pub use cost::{Cost, Part};
pub use device::{Device, Peak, Unit};
pub use dtype::{DType, NumberClass, UnknownDType};
pub use format::{FloatFormat, Specials};
pub use integer::IntFormat;
pub use matrix::{Issuer, MatrixInstruction, OperandPlace};
pub use packed::packed_bytes;
pub use policy::{BlockScaled, Policy, PolicyError, Storage, policy_name};
pub use rounding::{Exact, Overflow, Rounding};
pub use target::{Target, UnknownTarget};
pub use time_limit::{TimeLimit, Watch};
pub use tolerance::{ErrorModel, RowMoments, smallest_positive, unit_roundoff};
