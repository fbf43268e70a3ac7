//! Number formats, precision policies and targets: the plain facts everything else stands on.

mod dtype;

pub use dtype::{DType, NumberClass, UnknownDType};
