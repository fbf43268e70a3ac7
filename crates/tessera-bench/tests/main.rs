//! The tests of `tessera-bench` in one program, which is linked once: a module a subject.

mod broken;
#[path = "../../tessera-driver/tests/machine/mod.rs"]
mod machine;
mod synthetic;
mod toy;

mod arrays;
mod collectives;
mod coverage;
mod device;
mod duel;
mod emulated;
mod gate;
mod gradients;
mod hierarchy;
mod mutants;
mod pages;
mod patterns;
mod recorded;
mod relocate;
mod report;
mod sample;
mod scale;
mod session;
mod specials;
mod supervise;
mod tolerance;
mod ways;
