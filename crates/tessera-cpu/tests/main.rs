//! The tests of `tessera-cpu` in one program, which is linked once: a module a subject.

mod harness;

mod chains;
mod checked;
mod elementwise;
mod lockstep;
mod races;
mod sanitizer;
mod tiles;
