//! The crate's tests.

mod choose;
mod format;
mod samples;
