//! The crate's tests.

mod calls;
mod example;
mod header;
mod lists;
mod packed;
mod prepared;
