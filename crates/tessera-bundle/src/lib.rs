//! Compiled kernels in a file: packed where there is a compiler, launched where there is none.
//!
//! A [`Bundle`] holds [`Variant`]s, each a kernel compiled for one target and one specialisation: types and ranks of its arrays,
//! constants, and what it assumes of sizes, strides and addresses. [`Bundle::choose`] finds the variant for the arguments of a
//! launch, by the check that every launch goes through ([`tessera_launch::Interface`]). `format.rs` says what the bytes are.
//!
//! ```
//! use tessera_bundle::{Bundle, BundleError};
//! let empty = Bundle::new(Vec::new())?.to_bytes();
//! assert_eq!(Bundle::read(&empty)?.variants().len(), 0);
//! assert!(matches!(Bundle::read(&empty[..70]), Err(BundleError::Truncated { .. })));
//! # Ok::<(), BundleError>(())
//! ```

mod bundle;
mod choose;
mod error;
mod format;
mod target;
mod variant;

pub use bundle::Bundle;
pub use choose::Chosen;
pub use error::BundleError;
pub use format::VERSION;
pub use variant::{Code, Fixed, Variant};
