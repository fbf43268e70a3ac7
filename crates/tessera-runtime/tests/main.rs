//! The tests of `tessera-runtime` in one program, which is linked once: a module a subject.

#[path = "../../tessera-driver/tests/machine/mod.rs"]
mod machine;

mod device;
mod empty;
mod emulated;
mod files;
mod kernels;
mod never_ends;
mod prepared;
mod projects;
mod ranks;
mod rows;
mod tensors;
mod threads;
mod timeline;
mod tuned;
