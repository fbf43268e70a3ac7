//! The tests of `tessera-cli` in one program, which is linked once: a module a subject.

mod bench_kernels;
mod bundles;
mod checks;
mod collectives;
mod command_line;
mod deterministic;
mod documents;
mod endings;
mod help;
mod launches;
mod lock;
mod numpy;
mod operators;
mod projects;
mod ranks;
mod report;
mod sass;
mod tune;
