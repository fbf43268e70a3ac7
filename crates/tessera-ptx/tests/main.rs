//! The tests of `tessera-ptx` in one program, which is linked once: a module a subject.

mod ssa;

mod acceptance;
mod anchors;
mod assembler;
mod parse;
mod ssa_errors;
mod ssa_kernels;
mod ssa_passes;
mod ssa_time;
