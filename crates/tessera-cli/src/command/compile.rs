//! `tessera compile`: one kernel at one level, or a report of what was done.

use serde_json::{Value, json};
use tessera::compile::ptx::{Assembler, Assembly, FunctionUsage, Optimize, Target as PtxTarget, ToolSource};
use tessera::compile::{CompileOptions, DeviceCompiled, compile_for};
use tessera::ir::{Level, SourceMap, text};
use tessera::lang::{ArgType, ConstValue};
use tessera::runtime::argspec;
use tessera::runtime::{Chosen, Kernel};
use tessera::types::Target;

use crate::arguments::{Compile, Emit};
use crate::command::device_report::Report;
use crate::command::launch::{compile_options, kernel, kernel_failure, refuse_twice};
use crate::command::locking::{self, locked};
use crate::command::sass::Sass;
use crate::failure::{Failure, Outcome, remark, write_bytes, write_text};
use crate::finding::report as report_of;

pub(crate) fn compile(arguments: Compile) -> Outcome {
    let kernel = locked(kernel(&arguments.subject)?, &arguments.optimise.locking)?;
    let written = argument_types(&kernel, &arguments.arguments)?;
    let mut options = compile_options(&arguments.optimise, arguments.block)?;
    if arguments.target != "cpu" {
        Target::parse(&arguments.target).map_err(Failure::usage)?;
        options.target = Some(arguments.target.clone());
    }
    let Chosen { types, options, tuned } = kernel.tuned_for_types(&written, &options).map_err(kernel_failure)?;
    // What is printed is the kernel; that a lockfile has a part in it is said beside it.
    tuned.iter().for_each(|tuned| eprintln!("note: {}", locking::told(tuned)));

    let text = match arguments.emit {
        None => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            text::print_module(&compiled.module)
        }
        Some(Emit::Graph) => {
            let module = kernel.graph(&types, &options).map_err(kernel_failure)?;
            let module =
                module.ok_or_else(|| Failure::usage("only declarative kernels have Graph IR\nhelp: write `--emit schedule`"))?;
            text::print_module(&module)
        }
        Some(Emit::Schedule) => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            if compiled.func().level == Level::Tile {
                return Err(Failure::usage("a per-thread kernel has no Schedule IR\nhelp: write `--emit tile`"));
            }
            text::print_module(&compiled.module)
        }
        Some(Emit::Tile) if options.target.is_none() => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            match compiled.func().level {
                Level::Tile => text::print_module(&compiled.module),
                _ => text::print_module(&for_device(&kernel, &types, &options)?.tile),
            }
        }
        Some(Emit::Tile) => text::print_module(&for_device(&kernel, &types, &options)?.tile),
        Some(Emit::Plan) => {
            let device = for_device(&kernel, &types, &options)?;
            let none = "nothing of this kernel is planned: all warps do the same, and nothing is brought ahead of its use\n\
                        help: `--emit report` says why";
            device.plan.ok_or_else(|| Failure::usage(none))?
        }
        Some(Emit::Target) => for_device(&kernel, &types, &options)?.kernel.kernel.to_string(),
        Some(Emit::Ptx) => for_device(&kernel, &types, &options)?.kernel.ptx(),
        Some(Emit::Cubin) => {
            let Some(path) = &arguments.output else {
                return Err(Failure::usage("machine code does not belong on a terminal\nhelp: name a file: `-o kernel.cubin`"));
            };
            let assembly = assembled(&for_device(&kernel, &types, &options)?)?;
            write_bytes(path, &assembly.cubin)?;
            return told(&arguments, json!({ "output": path }));
        }
        Some(Emit::Sass) => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            let device = for_device(&kernel, &types, &options)?;
            let sass = Sass::new(&device, &compiled.module.sources)?;
            if arguments.json {
                return told(&arguments, sass.json());
            }
            sass.text()
        }
        Some(Emit::Report) if options.target.is_some() => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            let device = for_device(&kernel, &types, &options)?;
            let report = Report::new(&compiled, &device, assembled(&device));
            if arguments.json {
                return told(&arguments, report.json());
            }
            report.text()
        }
        Some(Emit::Report) => {
            let compiled = kernel.compile(&types, &options).map_err(kernel_failure)?;
            let refuse = |error| Failure::diagnostics(&[error], &compiled.module.sources);
            if compiled.func().level == Level::Tile {
                let notes = [format!("{} threads a block, in lock-step", compiled.func().hints.threads())];
                report(&compiled, &notes)
            } else {
                let program = tessera::cpu::Program::prepare(&compiled.module, compiled.func()).map_err(refuse)?;
                report(&compiled, program.notes())
            }
        }
    };
    match &arguments.output {
        Some(path) => {
            write_text(path, &text)?;
            told(&arguments, json!({ "output": path }))
        }
        None if arguments.json => told(&arguments, json!({ "text": text })),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// The types that are written for a kernel's arguments.
pub(crate) fn argument_types(kernel: &Kernel, texts: &[String]) -> Result<Vec<(String, ArgType)>, Failure> {
    let mut sources = SourceMap::default();
    let mut types: Vec<(String, ArgType)> = Vec::new();
    for text in texts {
        let typed = argspec::parse_type(&mut sources, text).map_err(|error| Failure::diagnostics(&[*error], &sources))?;
        refuse_twice(&typed.name, types.iter().map(|(name, _)| name.as_str()))?;
        // A type's name means a run-time scalar of it, except where the parameter is a constant: there it is the type itself.
        let ty = match typed.ty {
            ArgType::Scalar(dtype) if kernel.is_constant(&typed.name) => ArgType::Const(ConstValue::DType(dtype)),
            ty => ty,
        };
        types.push((typed.name, ty));
    }
    Ok(types)
}

/// Tells a program what came of it: on the terminal, or the report where `-o` wants it.
fn told(arguments: &Compile, data: Value) -> Outcome {
    let object = report_of(0, &[], &data);
    match &arguments.output {
        _ if !arguments.json => Ok(()),
        Some(path) if data.get("output").is_none() => write_text(path, &format!("{object}\n")),
        _ => {
            println!("{object}");
            Ok(())
        }
    }
}

/// The kernel for the GPU that `--target` names.
fn for_device(kernel: &Kernel, types: &[(String, ArgType)], options: &CompileOptions) -> Result<DeviceCompiled, Failure> {
    let name = options.target.as_deref().unwrap_or("cpu");
    let target = Target::parse(name)
        .map_err(|_| Failure::usage(format!("there is no GPU code for `{name}`\nhelp: name a target: `--target sm_90a`")))?;
    let compiled = kernel.compile(types, options).map_err(kernel_failure)?;
    let device = compile_for(&compiled, target.arch, compiled.level)
        .map_err(|found| Failure::diagnostics(&found, &compiled.module.sources))?;
    remark(device.remark().as_ref(), &compiled.module.sources);
    Ok(device)
}

/// Machine code of a target, by an assembler of this machine.
pub(crate) fn assemble(ptx: &str, target: &str) -> Result<Assembly, Failure> {
    let assembler = Assembler::find(&tools()).map_err(Failure::environment)?;
    assembler.assemble(ptx, assembled_for(target), Optimize::Full).map_err(Failure::environment)
}

/// What the assembler says that the kernel takes.
pub(crate) fn usage_of(assembly: &Assembly) -> Result<&FunctionUsage, Failure> {
    let silent = || Failure::environment("the assembler reports no registers of the kernel");
    assembly.report.functions.first().ok_or_else(silent)
}

/// Where NVIDIA's tools may be on this machine.
pub(crate) fn tools() -> ToolSource {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    ToolSource {
        ptxas: path("TESSERA_PTXAS").map(Into::into),
        nvdisasm: path("TESSERA_NVDISASM").map(Into::into),
        python: path("TESSERA_PYTHON").map(Into::into),
        cuda_home: path("CUDA_HOME").map(Into::into),
        path: path("PATH"),
    }
}

/// What the assembler is told of a target.
pub(crate) fn assembled_for(target: &str) -> PtxTarget {
    PtxTarget::parse(target).unwrap_or(PtxTarget::SM_90A)
}

/// A kernel's machine code.
fn assembled(device: &DeviceCompiled) -> Result<Assembly, Failure> {
    assemble(&device.kernel.ptx(), &device.kernel.image.target)
}

fn report(compiled: &tessera::compile::Compiled, notes: &[String]) -> String {
    let func = compiled.func();
    let mut text = format!("kernel {}, {}, {} operations\n\nstages\n", func.name, compiled.level, func.linked_ops().len());
    let mut total = 0.0;
    for stage in &compiled.stages {
        let microseconds = stage.time.as_secs_f64() * 1e6;
        total += microseconds;
        text.push_str(&format!("  {microseconds:>9.1} us  {}{}\n", stage.name, if stage.changed { "" } else { " (no change)" }));
    }
    text.push_str(&format!("  {total:>9.1} us  in all\n\non the CPU\n"));
    for note in notes {
        text.push_str(&format!("  {note}\n"));
    }
    if !func.config.is_empty() {
        let config: Vec<String> = func.config.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.push_str(&format!("\nconfiguration\n  {}\n", config.join(", ")));
    }
    text
}
