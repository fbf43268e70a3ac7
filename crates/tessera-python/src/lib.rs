//! `tessera._native`: what the Python package needs of the toolkit. Arrays, kernels, operators, the emulator and the command line, with
//! exceptions in place of errors. What a user sees is written in Python (`python/tessera`); here is nothing that Python could do as well.

mod array;
mod command;
mod constraint;
mod device;
mod dlpack;
mod dtype;
mod emit;
mod emulator;
mod error;
mod finding;
mod grid;
mod guard;
mod kernel;
mod live;
mod often;
mod operator;
mod stage;
mod stream;
mod tolerance;
mod torch;
mod value;

use pyo3::prelude::*;

/// The functions and classes of `tessera._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::command::command;
    #[pymodule_export]
    use super::emulator::{Loaded, Machine, describe, tensor_map};
    #[pymodule_export]
    use super::kernel::{Kernel, builtins, set_compiler_timeout};
    #[pymodule_export]
    use super::operator::{Call, operators, outline};
    #[pymodule_export]
    use super::stream::named;
    #[pymodule_export]
    use super::tolerance::error_model;
    #[pymodule_export]
    use super::version;
}

/// The package's version.
#[pyfunction]
fn version() -> &'static str {
    tessera::bench::VERSION
}
