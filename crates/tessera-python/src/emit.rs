//! A kernel's text at a level.

use tessera::compile::{CompileOptions, compile_for};
use tessera::ir::text::print_module;
use tessera::lang::ArgType;
use tessera::runtime::{Kernel, KernelError, Report};
use tessera::types::Arch;

use crate::kernel::Stopped;

pub(crate) fn text(kernel: &Kernel, types: &[(String, ArgType)], target: &str, emit: &str) -> Result<String, Stopped> {
    let arch: Arch = target.parse().map_err(|_| {
        let known: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
        Stopped::Asked(format!("`{target}` is no target: one of {}", known.join(", ")))
    })?;
    let options = CompileOptions { target: Some(arch.name().to_owned()), ..CompileOptions::default() };
    let compiled = kernel.compile(types, &options).map_err(Stopped::Kernel)?;
    match emit {
        "schedule" => Ok(print_module(&compiled.module)),
        "ptx" => {
            let sources = compiled.module.sources.clone();
            let device = compile_for(&compiled, arch, compiled.level)
                .map_err(|diagnostics| Stopped::Kernel(KernelError::Rejected(Report { diagnostics, sources })))?;
            Ok(String::from_utf8_lossy(device.kernel.image().code.bytes()).into_owned())
        }
        other => Err(Stopped::Asked(format!("`{other}` is no level: `schedule` or `ptx`"))),
    }
}
