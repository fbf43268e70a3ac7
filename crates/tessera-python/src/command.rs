//! The `tessera` command inside an interpreter.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tessera_cli::Invocation;

/// Runs the command: `program` starts it again in another process, `arguments` are its own. Its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, program: Vec<OsString>, arguments: Vec<OsString>) -> PyResult<u8> {
    let run = || std::panic::catch_unwind(AssertUnwindSafe(|| tessera_cli::main(Invocation { program, arguments })));
    py.detach(run).map_err(|_| PyRuntimeError::new_err("the command was run before in this process"))
}
