//! The tests of `tessera-layout` in one program, which is linked once: a module a subject.

mod random;

mod algebra;
mod conversions;
mod distributions;
mod fragments;
mod shared_memory;
