//! The tests of `tessera-types` in one program, which is linked once: a module a subject.

mod against_apfloat;
mod against_ml_dtypes;
mod float_formats;
mod integers;
mod packing;
mod policies;
mod slices;
mod targets;
