//! The lockfile's tests.

mod text;
