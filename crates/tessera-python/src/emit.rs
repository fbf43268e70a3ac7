//! A kernel's text at a level.

use pyo3::prelude::*;
use tessera::compile::{CompileOptions, compile_for};
use tessera::ir::text::print_module;
use tessera::lang::ArgType;
use tessera::runtime::{Kernel, KernelError, Report};
use tessera::types::Arch;

use crate::error::{Failure, of_kernel};

/// Why there is no text.
pub(crate) enum Refused {
    Kernel(KernelError),
    Asked(String),
}

impl Refused {
    pub(crate) fn raise(&self, py: Python<'_>, indent: usize) -> PyErr {
        match self {
            Refused::Kernel(error) => of_kernel(py, error, indent),
            Refused::Asked(text) => Failure::plain("argument", text.clone()).raise(py),
        }
    }
}

pub(crate) fn text(kernel: &Kernel, types: &[(String, ArgType)], target: &str, emit: &str) -> Result<String, Refused> {
    let arch: Arch = target.parse().map_err(|_| {
        let known: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
        Refused::Asked(format!("`{target}` is no target: one of {}", known.join(", ")))
    })?;
    let options = CompileOptions { target: Some(arch.name().to_owned()), ..CompileOptions::default() };
    let compiled = kernel.compile(types, &options).map_err(Refused::Kernel)?;
    match emit {
        "schedule" => Ok(print_module(&compiled.module)),
        "ptx" => {
            let sources = compiled.module.sources.clone();
            let device = compile_for(&compiled, arch, options.level)
                .map_err(|diagnostics| Refused::Kernel(KernelError::Rejected(Report { diagnostics, sources })))?;
            Ok(String::from_utf8_lossy(device.kernel.image().code.bytes()).into_owned())
        }
        other => Err(Refused::Asked(format!("`{other}` is no level: `schedule` or `ptx`"))),
    }
}
