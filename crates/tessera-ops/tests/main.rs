//! The tests of `tessera-ops` in one program, which is linked once: a module a subject.

mod in_place;
mod shared;
mod suite;
mod ways;
