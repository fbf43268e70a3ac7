//! The tests of `tessera-ops` in one program, which is linked once: a module a subject.

mod calls;
mod in_place;
mod mailed;
mod packed;
mod ranked;
mod repeated;
mod shared;
mod sort;
mod suite;
mod values;
mod ways;
