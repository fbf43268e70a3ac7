//! Kernels: from a source file to launches.
//!
//! [`Kernel::prepare`] compiles for the arguments at hand (or finds the compiled kernel of an earlier call), checks everything
//! that the kernel assumes of them, and gives a [`PreparedLaunch`] that runs any number of times.
//!
//! ```
//! use tessera_runtime::{CompileOptions, Device, Kernel, Tensor, Value};
//! use tessera_types::DType;
//! let source = "
//! import cuda.tile as ct
//!
//! @ct.kernel
//! def add(x, y, out, TILE: ct.Constant[int]):
//!     i = ct.bid(0)
//!     total = ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,))
//!     ct.store(out, (i,), total)
//! ";
//! let kernel = Kernel::from_source("add.py", source, "add")?;
//! let (x, y) = (Tensor::arange(DType::F32, &[100])?, Tensor::ones(DType::F32, &[100])?);
//! let out = Tensor::empty(DType::F32, &[100])?;
//! let args = [("x", (&x).into()), ("y", (&y).into()), ("out", (&out).into()), ("TILE", Value::Int(32))];
//! let launch = kernel.prepare(&args, [4, 1, 1], &CompileOptions::default(), &Device::Cpu)?;
//! launch.run()?;
//! assert_eq!(out.read::<f32>()?[99], 100.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tessera_compile::{CompileOptions, Compiled, Grid, compile};
use tessera_cpu::Program;
use tessera_ir::{Diagnostic, ParamKind, Severity, SourceMap};
use tessera_lang::{ArgType, ParsedFile, Style, lower};

use crate::cache::{KernelCache, Key};
use crate::check::{Checker, check_grid};
use crate::device::Device;
use crate::error::TensorError;
use crate::launch::PreparedLaunch;
use crate::specialise::argument_types;
use crate::value::Value;
use crate::written::written_params;

/// Diagnostics with the texts that they point into.
#[derive(Clone, Debug)]
pub struct Report {
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts.
    pub sources: SourceMap,
}

impl Report {
    /// Source lines with carets, notes and help; with colours when `styled`.
    pub fn render(&self, styled: bool) -> String {
        let texts: Vec<String> = self.diagnostics.iter().map(|diagnostic| diagnostic.render(&self.sources, styled)).collect();
        texts.join("\n\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.diagnostics.iter().map(|diagnostic| diagnostic.render_line(&self.sources)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Why a kernel does not run, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel or its arguments are not right; nothing ran.
    #[error("{0}")]
    Rejected(Report),
    /// The kernel did something wrong while it ran.
    #[error("{report}{}", in_block(block))]
    Fault {
        /// What, and where in the source.
        report: Report,
        /// The block that did it.
        block: Option<[u32; 3]>,
        /// What the kernel printed before.
        printed: String,
    },
    /// An argument's memory cannot be used.
    #[error("`{argument}`: {error}")]
    Memory {
        /// The argument.
        argument: String,
        /// Why.
        error: TensorError,
    },
    /// The device cannot run kernels.
    #[error("kernels cannot run on `{device}`: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// Why.
        reason: &'static str,
    },
    /// The file cannot be read.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

fn in_block(block: &Option<[u32; 3]>) -> String {
    block.map_or(String::new(), |[x, y, z]| format!(" (in block {x}, {y}, {z})"))
}

/// How many blocks a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchGrid {
    /// As many as the kernel's tiles need; for kernels whose tiles the compiler chose.
    Auto,
    /// Along x, y and z.
    Blocks([u32; 3]),
}

impl From<[u32; 3]> for LaunchGrid {
    fn from(blocks: [u32; 3]) -> LaunchGrid {
        LaunchGrid::Blocks(blocks)
    }
}

/// A compiled kernel, ready to run on the CPU.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) compiled: Compiled,
    pub(crate) program: Program,
    written: Vec<bool>,
    operands: Vec<(String, Vec<String>)>,
}

/// A kernel in a source file.
#[derive(Clone, Debug)]
pub struct Kernel {
    file: Arc<ParsedFile>,
    name: String,
    hash: [u8; 32],
}

impl Kernel {
    /// The kernel of a name in a source text; `file` names the text in messages.
    pub fn from_source(file: &str, text: &str, kernel: &str) -> Result<Kernel, KernelError> {
        let parsed = tessera_lang::parse_file(file, text);
        if parsed.has_errors() {
            let errors = parsed.diagnostics.iter().filter(|d| d.severity == Severity::Error).cloned().collect();
            return Err(KernelError::Rejected(Report { diagnostics: errors, sources: parsed.sources }));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(file.len() as u64).to_le_bytes());
        hasher.update(file.as_bytes());
        hasher.update(text.as_bytes());
        let found = Kernel { file: Arc::new(parsed), name: kernel.to_owned(), hash: *hasher.finalize().as_bytes() };
        if found.file.kernels.contains_key(kernel) {
            return Ok(found);
        }
        // The front end knows what to say of a kernel that is not there.
        let diagnostics = match lower(&found.file, kernel, &[], &Default::default()) {
            Err(diagnostics) => diagnostics,
            Ok(_) => vec![Diagnostic::bare("no-kernel", format!("there is no kernel `{kernel}`"))],
        };
        Err(found.rejected(diagnostics))
    }

    /// The kernel of a name in a source file.
    pub fn from_file(path: impl AsRef<Path>, kernel: &str) -> Result<Kernel, KernelError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Kernel::from_source(&name, &String::from_utf8_lossy(&bytes), kernel),
            Err(error) => Err(KernelError::Io { path: name, error }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that it is in.
    pub fn file(&self) -> &ParsedFile {
        &self.file
    }

    /// The types that a launch with these arguments compiles for.
    pub fn argument_types(&self, args: &[(&str, Value)]) -> Result<Vec<(String, ArgType)>, KernelError> {
        argument_types(&self.file.kernels[&self.name], args).map_err(|diagnostics| self.rejected(diagnostics))
    }

    /// Compiles for the arguments and checks them: what is left is to run.
    pub fn prepare(
        &self,
        args: &[(&str, Value)],
        grid: impl Into<LaunchGrid>,
        options: &CompileOptions,
        device: &Device,
    ) -> Result<PreparedLaunch, KernelError> {
        if let Device::Driver(device) = device {
            let reason = "this version compiles for the CPU alone; use `cpu`";
            return Err(KernelError::Unsupported { device: device.name().to_owned(), reason });
        }
        let types = self.argument_types(args)?;
        let (executable, cached) = self.executable(&types, options)?;
        let checker = Checker {
            kernel: &self.file.kernels[&self.name],
            abi: &executable.compiled.func().abi,
            written: &executable.written,
            operands: &executable.operands,
            args,
        };
        let flat = checker.flatten().map_err(|diagnostics| self.rejected(diagnostics))?;
        let grid = self.blocks(grid.into(), &executable.compiled, args)?;
        let params = executable.compiled.func().abi.params.iter().zip(&executable.written);
        let written = params.map(|(param, &written)| (param.name.clone(), written)).collect();
        Ok(PreparedLaunch::new(executable, flat, written, grid, cached, self.file.sources.clone()))
    }

    /// Compiles for the arguments, checks them and runs once.
    pub fn launch(&self, args: &[(&str, Value)], grid: impl Into<LaunchGrid>) -> Result<(), KernelError> {
        self.prepare(args, grid, &CompileOptions::default(), &Device::Cpu)?.run()
    }

    /// Compiles without running; nothing is cached.
    pub fn compile(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Compiled, KernelError> {
        compile(&self.file, &self.name, types, options).map_err(|diagnostics| self.rejected(diagnostics))
    }

    fn executable(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<(Arc<Executable>, bool), KernelError> {
        let key = Key::new(&self.hash, &self.name, types, options);
        KernelCache::global().get(key, || {
            let compiled = self.compile(types, options)?;
            let program = Program::prepare(&compiled.module, compiled.func()).map_err(|error| self.rejected(vec![error]))?;
            let written = written_params(compiled.func());
            let operands = self.operands(types, options)?;
            Ok(Executable { compiled, program, written, operands })
        })
    }

    /// Named axes of whole operands: they are gone once a kernel is tiled.
    fn operands(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Vec<(String, Vec<String>)>, KernelError> {
        if self.file.kernels[&self.name].style != Style::Declarative {
            return Ok(Vec::new());
        }
        let lower_options = tessera_lang::LowerOptions {
            target: options.target.clone(),
            config: options.config.clone(),
            block: options.block,
            ..Default::default()
        };
        let module = lower(&self.file, &self.name, types, &lower_options).map_err(|diagnostics| self.rejected(diagnostics))?;
        let params = module.funcs.into_iter().next().map(|func| func.abi.params).unwrap_or_default();
        Ok(params
            .into_iter()
            .filter_map(|param| match param.kind {
                ParamKind::Operand { axes, .. } => Some((param.name, axes)),
                ParamKind::Array { .. } | ParamKind::List { .. } | ParamKind::Scalar { .. } => None,
            })
            .collect())
    }

    fn blocks(&self, grid: LaunchGrid, compiled: &Compiled, args: &[(&str, Value)]) -> Result<[u32; 3], KernelError> {
        let needed = compiled.grid.as_ref().map(|grid| needed_blocks(grid, compiled, args));
        let outcome = match (grid, needed) {
            (LaunchGrid::Blocks(blocks), None) => check_grid(blocks).map(|()| blocks),
            (LaunchGrid::Auto, None) => {
                let message = format!("the grid of `{}` cannot be chosen for it", self.name);
                Err(Box::new(
                    Diagnostic::bare("grid", message)
                        .note("the kernel says itself what a block does, so only its author knows how many are needed")
                        .help("give the number of blocks, such as `--grid 128`"),
                ))
            }
            (_, Some(None)) => Err(Box::new(Diagnostic::bare("grid", "the arrays need more blocks than a grid can have"))),
            (LaunchGrid::Auto, Some(Some(blocks))) => Ok([blocks.max(1), 1, 1]),
            (LaunchGrid::Blocks(given), Some(Some(blocks))) => {
                if given == [blocks.max(1), 1, 1] {
                    Ok(given)
                } else {
                    let message = format!("`{}` needs a grid of {blocks}, {given:?} is given", self.name);
                    Err(Box::new(Diagnostic::bare("grid", message).help("write `--grid auto`")))
                }
            }
        };
        outcome.map_err(|diagnostic| self.rejected(vec![*diagnostic]))
    }

    fn rejected(&self, diagnostics: Vec<Diagnostic>) -> KernelError {
        KernelError::Rejected(Report { diagnostics, sources: self.file.sources.clone() })
    }
}

fn needed_blocks(grid: &Grid, compiled: &Compiled, args: &[(&str, Value)]) -> Option<u32> {
    grid.blocks(|param, axis| {
        let name = &compiled.func().abi.params[param].name;
        match args.iter().find(|(given, _)| given == name) {
            Some((_, Value::Tensor(tensor))) => tensor.shape().get(axis).map_or(0, |&size| size as i64),
            _ => 0,
        }
    })
}
