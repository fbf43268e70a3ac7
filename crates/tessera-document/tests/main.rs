//! The tests of `tessera-document` in one program, which is linked once: a module a subject.

mod hostile;
