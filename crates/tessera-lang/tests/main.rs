//! The tests of `tessera-lang` in one program, which is linked once: a module a subject.

mod support;

mod declarative;
mod deterministic;
mod edges;
mod hostile;
mod language;
mod oracle;
mod simt;
mod snapshots;
mod stub;
mod styles;
mod tuning;
