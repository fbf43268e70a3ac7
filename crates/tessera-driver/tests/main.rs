//! The tests of `tessera-driver` in one program, which is linked once: a module a subject.

mod machine;

mod fake;
