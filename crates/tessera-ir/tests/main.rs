//! The tests of `tessera-ir` in one program, which is linked once: a module a subject.

mod roundtrip;
