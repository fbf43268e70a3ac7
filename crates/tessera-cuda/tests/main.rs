//! The tests of `tessera-cuda` in one program, which is linked once: a module a subject.

mod driver;
