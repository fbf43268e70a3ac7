//! The crate's tests.

mod calls;
mod example;
mod header;
mod packed;
