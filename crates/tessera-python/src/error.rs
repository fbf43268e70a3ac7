//! Errors of the library as exceptions. The classes are Python's (`tessera/errors.py`); here is what they are made of.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tessera::ir::{Diagnostic, Severity, SourceMap};
use tessera::ops::CallError;
use tessera::runtime::{DeviceError, KernelError, Report};

/// What an exception is made of.
pub(crate) struct Failure<'a> {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    pub(crate) report: Option<&'a Report>,
    pub(crate) block: Option<[u32; 3]>,
    /// What sanitizers found, each as JSON.
    pub(crate) findings: Vec<String>,
}

impl Failure<'_> {
    pub(crate) fn plain(kind: &'static str, text: impl Into<String>) -> Failure<'static> {
        Failure { kind, text: text.into(), report: None, block: None, findings: Vec::new() }
    }

    pub(crate) fn with_findings(self, findings: Vec<String>) -> Self {
        Failure { findings, ..self }
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        self.make(py).unwrap_or_else(|error| error)
    }

    fn make(self, py: Python<'_>) -> PyResult<PyErr> {
        let list = PyList::empty(py);
        if let Some(report) = self.report {
            for diagnostic in &report.diagnostics {
                list.append(entry(py, diagnostic, &report.sources)?)?;
            }
        }
        let made =
            py.import("tessera.errors")?.getattr("make")?.call1((self.kind, self.text, list, self.block, self.findings))?;
        Ok(PyErr::from_value(made))
    }
}

fn entry<'py>(py: Python<'py>, diagnostic: &Diagnostic, sources: &SourceMap) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("id", diagnostic.id)?;
    let severity = match diagnostic.severity {
        Severity::Bug => "bug",
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    entry.set_item("severity", severity)?;
    entry.set_item("message", &diagnostic.message)?;
    entry.set_item("help", &diagnostic.help)?;
    entry.set_item("file", None::<&str>)?;
    if let Some(primary) = &diagnostic.primary {
        let source = sources.get(primary.span.source);
        let ((line, column), (end_line, end_column)) =
            (source.line_column(primary.span.start), source.line_column(primary.span.end));
        entry.set_item("file", &source.name)?;
        entry.set_item("line", line)?;
        entry.set_item("column", column)?;
        entry.set_item("end_line", end_line)?;
        entry.set_item("end_column", end_column)?;
        // A place behind the last line has no text.
        let text = source.text.lines().nth(line.saturating_sub(1));
        entry.set_item("source", text)?;
    }
    Ok(entry)
}

fn of_report<'a>(kind: &'static str, report: &'a Report) -> Failure<'a> {
    Failure { kind, text: report.render(false), report: Some(report), block: None, findings: Vec::new() }
}

/// Gives what a kernel printed before it stopped to where the program's own output goes. Where that takes nothing, the exception of the kernel counts.
pub(crate) fn show(py: Python<'_>, printed: &str) {
    if !printed.is_empty()
        && let Ok(output) = py.import("sys").and_then(|sys| sys.getattr("stdout"))
    {
        let _ = output.call_method1("write", (printed,));
    }
}

/// The exception of a kernel that does not run.
pub(crate) fn of_kernel(py: Python<'_>, error: &KernelError) -> PyErr {
    match error {
        KernelError::Rejected(report) | KernelError::Device(DeviceError::Rejected(report)) => of_report("compile", report),
        KernelError::Fault { report, block, .. } => Failure { block: *block, ..of_report("fault", report) },
        KernelError::NeverEnds(report) => of_report("fault", report),
        KernelError::Memory { .. } => Failure::plain("argument", error.to_string()),
        KernelError::Io { .. } => Failure::plain("source", error.to_string()),
        other => Failure::plain("device", other.to_string()),
    }
    .raise(py)
}

/// The exception of an operator that does not take a call.
pub(crate) fn of_call(py: Python<'_>, error: &CallError) -> PyErr {
    match error {
        CallError::Kernel(error) => of_kernel(py, error),
        other => Failure::plain("argument", other.to_string()).raise(py),
    }
}
