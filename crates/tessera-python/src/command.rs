//! The `tessera` command inside an interpreter.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tessera_cli::Invocation;

/// Runs the command: `again` starts it again in another process: a program, and what it is given before the command's arguments, `arguments` are its own. Its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, again: (OsString, Vec<OsString>), arguments: Vec<OsString>) -> PyResult<u8> {
    let invocation = Invocation { again: Some(again), arguments };
    let run = || std::panic::catch_unwind(AssertUnwindSafe(|| tessera_cli::main(invocation)));
    py.detach(run).map_err(|_| PyRuntimeError::new_err("the command was run before in this process"))
}
