//! Kernels: from a source file or IR text to launches.
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

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tessera_compile::{CompileOptions, Compiled, Launch, PossiblePlan, compile_for, order_of_sums, possible_plans};
use tessera_cpu::{Program, lockstep};
use tessera_driver::DriverError;
use tessera_ir::{Const, Diagnostic, KernelImage, Level, Module, ParamKind, SourceMap, Span, bug};
use tessera_lang::{ArgType, ModuleText, Modules};
use tessera_launch::{Array, DeviceKernel, Flat, Interface, LaunchGrid, Placed, Prepared, Report};
use tessera_lock::Key as LockKey;
use tessera_types::Arch;

use crate::cache::{KernelCache, Key};
use crate::device::{Device, DriverDevice};
use crate::device_launch::DeviceLaunch;
use crate::error::{DeviceError, TensorError};
use crate::launch::{self, PreparedLaunch, Work};
use crate::module_cache::module_cache;
use crate::origin::{Origin, Refusal};
use crate::ranks::ExchangeError;
use crate::search_path::SearchPath;
use crate::specialise::open_numbers;
use crate::tensor::Tensor;
use crate::tuned::{Config, Lock, Question, Site, Tuned};
use crate::value::{Value, arguments};
use crate::written::written_params;

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
    /// The kernel takes longer than it was given. It is left running: its device can do nothing else until it ends, or the process does.
    #[error("{0}")]
    NeverEnds(Report),
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
    /// The device refused the kernel, or stopped it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Ranks could not exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The kernel was to be tuned, and its lockfile has no entry for the launch.
    #[error("`{lock}` has no choice for {key}")]
    Untuned {
        /// The lockfile.
        lock: String,
        /// What was looked for.
        key: Box<LockKey>,
    },
    /// Products of a target have different choices.
    #[error("the choices that `{lock}` has for `{kernel}` differ: {}", devices.join(", "))]
    SeveralTuned {
        /// The kernel.
        kernel: String,
        /// The lockfile.
        lock: String,
        /// What they were made for.
        devices: Vec<String>,
    },
    /// The kernel was to be tuned, and the types that it is compiled for leave sizes open.
    #[error("choices of `{lock}` are made for sizes, and some of `{kernel}` are open")]
    OpenSizes {
        /// The kernel.
        kernel: String,
        /// The lockfile.
        lock: String,
    },
    /// The file cannot be read or written.
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

/// What a kernel was compiled to.
#[derive(Debug)]
pub(crate) enum Code {
    /// A program of the CPU executor.
    Cpu(Box<Program>),
    /// A program of threads, run in lock-step on the CPU.
    Threads(Box<lockstep::Program>),
    /// Code for a device.
    Device(Arc<KernelImage>),
}

/// A compiled kernel, ready to run.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) compiled: Compiled,
    pub(crate) code: Code,
    /// What was given up to make it fit the device.
    pub(crate) remark: Option<Diagnostic>,
    /// The class of the order of its sums.
    pub(crate) order: String,
    /// What a launch must be.
    pub(crate) interface: Interface,
}

/// What is left of a launch's arguments when they were compiled for and checked.
struct Launchable {
    executable: Arc<Executable>,
    cached: bool,
    tuned: Option<Tuned>,
    flat: Vec<Flat<Tensor>>,
    grid: [u32; 3],
}

/// Which numbers the launches behind a first one come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// Any that their types hold.
    Any,
    /// Of the same [class](tessera_lang::number_class) as its own, for which a block program may be compiled; others are refused.
    Alike,
}

/// A launch on a device for other arguments of the same form.
#[derive(Debug)]
pub struct Often {
    /// The launch.
    pub prepared: Prepared<Array>,
    /// What was given up to make it fit the device, where it was compiled for this.
    pub remark: Option<Report>,
    sources: SourceMap,
}

impl Often {
    /// Why a launch was refused.
    pub fn refused(&self, error: DeviceError) -> KernelError {
        match error {
            DeviceError::Driver(error) => self.stopped(error),
            other => KernelError::Device(other),
        }
    }

    /// Why a launch stopped with an error: an assertion, if one has left its mark.
    pub fn stopped(&self, error: DriverError) -> KernelError {
        launch::stopped(self.prepared.launch().failed_assertion(), &self.sources, error)
    }
}

/// A kernel of a source file or of IR text.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) origin: Arc<Origin>,
    name: String,
    hash: [u8; 32],
    pub(crate) lock: Option<Arc<Lock>>,
    /// What was taken where nobody had chosen, by a hash of the launch.
    pub(crate) first: Arc<Mutex<BTreeMap<[u8; 32], Config>>>,
}

impl Kernel {
    /// The kernel of a name in a source text; `file` names the text in messages.
    pub fn from_source(file: &str, text: &str, kernel: &str) -> Result<Kernel, KernelError> {
        Kernel::new(file, text, kernel, Origin::python(tessera_lang::parse_file(file, text), kernel))
    }

    /// The same of a text that imports others, which `modules` finds.
    pub fn from_project(file: &str, text: &str, kernel: &str, modules: &dyn Modules) -> Result<Kernel, KernelError> {
        Kernel::new(file, text, kernel, Origin::python(tessera_lang::parse_project(file, text, modules), kernel))
    }

    /// The function of a name in IR text of any level; `file` names the text in messages. Its interface says what it takes.
    pub fn from_ir(file: &str, text: &str, kernel: &str) -> Result<Kernel, KernelError> {
        Kernel::new(file, text, kernel, Origin::ir(file, text, kernel))
    }

    fn new(file: &str, text: &str, kernel: &str, origin: Result<Origin, Refusal>) -> Result<Kernel, KernelError> {
        let origin = origin.map_err(|(diagnostics, sources)| KernelError::Rejected(Report { diagnostics, sources }))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(file.len() as u64).to_le_bytes());
        hasher.update(file.as_bytes());
        hasher.update(text.as_bytes());
        // What the file imports is part of what it says, and the names of these files of what its code says of places.
        for source in origin.sources().iter().skip(1) {
            for part in [source.name.as_str(), &source.text] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        Ok(Kernel {
            origin: Arc::new(origin),
            name: kernel.to_owned(),
            hash: *hasher.finalize().as_bytes(),
            lock: None,
            first: Arc::default(),
        })
    }

    /// The kernel of a name in a file: IR where the name ends in `.tir`, else a source file, with the modules of its project that it
    /// imports (`search_path.rs` says where they are looked for).
    pub fn from_file(path: impl AsRef<Path>, kernel: &str) -> Result<Kernel, KernelError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| KernelError::Io { path: name.clone(), error })?;
        let text = String::from_utf8_lossy(&bytes);
        if path.extension().is_some_and(|extension| extension == "tir") {
            Kernel::from_ir(&name, &text, kernel)
        } else {
            let parsed = tessera_lang::parse_project(&name, &text, &SearchPath::of(path));
            Kernel::new(&name, &text, kernel, Origin::python(parsed, kernel))
        }
    }

    /// A kernel of a running program, which has the texts of its functions and says what their names stand for
    /// ([`parse_live`](tessera_lang::parse_live)).
    pub fn from_live(root: ModuleText, modules: &dyn Modules, kernel: &str) -> Result<Kernel, KernelError> {
        let (name, text) = (root.file.clone(), root.text.clone());
        Kernel::new(&name, &text, kernel, Origin::python(tessera_lang::parse_live(root, kernel, modules), kernel))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The texts that its diagnostics point into.
    pub fn sources(&self) -> &SourceMap {
        self.origin.sources()
    }

    /// Its parameters with their places in the text of [`PreparedLaunch::sources`].
    pub fn parameters(&self) -> Vec<(&str, Span)> {
        self.origin.places(&self.name)
    }

    /// Whether a parameter takes constants of its own; false where no parameter has that name.
    pub fn is_constant(&self, param: &str) -> bool {
        match &*self.origin {
            Origin::File(file) => file.kernels[&self.name].params.iter().any(|own| own.name == param && own.is_constant()),
            Origin::Ir(_) => false,
        }
    }

    /// The types that a launch with these arguments compiles for.
    pub fn argument_types<A: Placed>(&self, args: &[(&str, Value<A>)]) -> Result<Vec<(String, ArgType)>, KernelError> {
        self.origin.argument_types(&self.name, args).map_err(|diagnostics| self.rejected(diagnostics))
    }

    /// Compiles for the arguments and checks them: what is left is to run.
    pub fn prepare(
        &self,
        args: &[(&str, Value)],
        grid: impl Into<LaunchGrid>,
        options: &CompileOptions,
        device: &Device,
    ) -> Result<PreparedLaunch, KernelError> {
        let types = self.argument_types(args)?;
        let Launchable { executable, cached, tuned, flat, grid } = self.launchable(args, &types, grid.into(), options, device)?;
        let work = match (&executable.code, device) {
            (Code::Device(image), Device::Driver(device)) => {
                let kernel = DeviceKernel::load(device, Arc::clone(image), module_cache())?;
                Work::Device(Box::new(DeviceLaunch::new(kernel, &executable.interface, &flat, grid)?))
            }
            (Code::Cpu(_) | Code::Threads(_) | Code::Device(_), _) => Work::Cpu(flat),
        };
        Ok(PreparedLaunch::new(executable, work, grid, (cached, tuned), self.origin.sources().clone()))
    }

    /// The same for launches on a device that are asked for again and again, with other memory and numbers: `later` says which.
    pub fn prepare_often(
        &self,
        args: &[(&str, Value)],
        (grid, later): (LaunchGrid, Later),
        options: &CompileOptions,
        device: &DriverDevice,
    ) -> Result<Often, KernelError> {
        let mut types = self.argument_types(args)?;
        if later == Later::Any {
            open_numbers(&mut types);
        }
        let Launchable { executable, cached, flat, grid, .. } =
            self.launchable(args, &types, grid, options, &Device::Driver(device.clone()))?;
        let Code::Device(image) = &executable.code else { bug!("a device runs device code") };
        let kernel = DeviceKernel::load(device, Arc::clone(image), module_cache())?;
        // By their addresses alone: what is launched often keeps nobody's memory.
        let by_address = |tensor: &Tensor| {
            let made = Array::new(tensor.dtype(), tensor.start(), tensor.shape(), Some(tensor.strides()));
            made.unwrap_or_else(|why| bug!("a tensor is an array: {why}"))
        };
        let flat: Vec<Flat<Array>> = flat
            .iter()
            .map(|flat| match flat {
                Flat::Word(word) => Flat::Word(*word),
                Flat::Array(tensor) => Flat::Array(by_address(tensor)),
                Flat::Table(items) => Flat::Table(items.iter().map(by_address).collect()),
            })
            .collect();
        let prepared = Prepared::new(kernel, executable.interface.clone(), &flat, grid)?;
        let remark = executable.remark.clone().filter(|_| !cached);
        let remark = remark.map(|remark| Report { diagnostics: vec![remark], sources: self.origin.sources().clone() });
        Ok(Often { prepared, remark, sources: self.origin.sources().clone() })
    }

    /// Compiles for the arguments, of these types, and checks them.
    fn launchable(
        &self,
        args: &[(&str, Value)],
        types: &[(String, ArgType)],
        grid: LaunchGrid,
        options: &CompileOptions,
        device: &Device,
    ) -> Result<Launchable, KernelError> {
        let (options, tuned) = match &self.lock {
            Some(_) => self.tuned_options(&Question::of_launch(args, types), options, Site::Device(device))?,
            None => (Cow::Borrowed(options), None),
        };
        let options = self.first_choice(args, grid, options, device)?;
        let arch = match device {
            Device::Cpu => None,
            Device::Driver(device) => Some(architecture(device)?),
        };
        let (executable, cached) = self.executable(types, &options, arch)?;
        let (flat, grid) = self.checked(&executable.interface, args, grid)?;
        Ok(Launchable { executable, cached, tuned, flat, grid })
    }

    /// The flat arguments and the blocks of a launch.
    fn checked(
        &self,
        interface: &Interface,
        args: &[(&str, Value)],
        grid: LaunchGrid,
    ) -> Result<(Vec<Flat<Tensor>>, [u32; 3]), KernelError> {
        let args = arguments(args);
        let flat = interface.check(&self.origin.places(&self.name), &args).map_err(|found| self.rejected(found))?;
        let blocks = interface.blocks(&self.name, grid, &args).map_err(|found| self.rejected(vec![*found]))?;
        Ok((flat, blocks))
    }

    /// Compiles for the arguments, checks them and runs once.
    pub fn launch(&self, args: &[(&str, Value)], grid: impl Into<LaunchGrid>) -> Result<(), KernelError> {
        self.prepare(args, grid, &CompileOptions::default(), &Device::Cpu)?.run()
    }

    /// Compiles without running; nothing is cached.
    pub fn compile(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Compiled, KernelError> {
        self.origin.compile(&self.name, types, options).map_err(|diagnostics| self.rejected(diagnostics))
    }

    /// The compiled kernel for the CPU, or for the architecture of a device.
    fn executable(
        &self,
        types: &[(String, ArgType)],
        options: &CompileOptions,
        arch: Option<Arch>,
    ) -> Result<(Arc<Executable>, bool), KernelError> {
        let mut options = options.clone();
        if let (None, Some(arch)) = (&options.target, arch) {
            options.target = Some(arch.name().to_owned());
        }
        let key = Key::new(&self.hash, &self.name, types, &options, arch);
        KernelCache::global().get(key, || {
            let mut compiled = self.compile(types, &options)?;
            let mut remark = None;
            let mut order = order_of_sums(compiled.func(), None);
            let code = match arch {
                None if compiled.func().level == Level::Tile => {
                    let program = lockstep::Program::prepare(&compiled.module, &compiled.in_lockstep());
                    Code::Threads(Box::new(program.map_err(|error| self.rejected(vec![error]))?.with_all_barriers()))
                }
                None => {
                    let program = Program::prepare(&compiled.module, compiled.func());
                    Code::Cpu(Box::new(program.map_err(|error| self.rejected(vec![error]))?))
                }
                Some(arch) => {
                    // A plan by hand is among the module's texts, and not among the file's.
                    let rejected =
                        |diagnostics| KernelError::Rejected(Report { diagnostics, sources: compiled.module.sources.clone() });
                    let device = compile_for(&compiled, arch, compiled.level).map_err(rejected)?;
                    remark = device.remark();
                    let threads = device.kernel.image.launch.threads.iter().product();
                    order = order_of_sums(compiled.func(), Some(threads));
                    if device.plan.as_ref().is_some_and(|plan| plan.contains("stream_k")) {
                        order.push_str(", in shared rounds");
                    }
                    let [blocks, ..] = device.kernel.image.launch.grid.blocks;
                    if blocks > 1 {
                        order.push_str(&format!(", in {blocks} blocks"));
                    }
                    compiled.stages.extend(device.stages);
                    Code::Device(Arc::new(device.kernel.image()))
                }
            };
            let interface = self.interface(&compiled, types, &options)?;
            Ok(Executable { compiled, code, remark, order, interface })
        })
    }

    /// What a launch of the compiled kernel must be.
    pub(crate) fn interface(
        &self,
        compiled: &Compiled,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Interface, KernelError> {
        Ok(Interface {
            abi: compiled.func().abi.clone(),
            written: written_params(compiled.func()),
            axes: self.origin.operands(&self.name, types, options).map_err(|found| self.rejected(found))?,
            tiles: compiled.grid.as_ref().map(|grid| grid.tiles.clone()),
        })
    }

    /// The plans that the kernel can have for these arguments on a product, those first that should take least.
    pub fn possible_plans(
        &self,
        args: &[(&str, Value)],
        grid: impl Into<LaunchGrid>,
        options: &CompileOptions,
        device: &tessera_types::Device,
    ) -> Result<Vec<PossiblePlan>, KernelError> {
        let (compiled, launch) = self.known_launch(args, grid.into(), options, device)?;
        possible_plans(&compiled, device, compiled.level, &launch).map_err(|diagnostics| self.rejected(diagnostics))
    }

    /// The kernel compiled for a product, and what is known of a launch.
    pub(crate) fn known_launch(
        &self,
        args: &[(&str, Value)],
        grid: LaunchGrid,
        options: &CompileOptions,
        device: &tessera_types::Device,
    ) -> Result<(Compiled, Launch), KernelError> {
        let types = self.argument_types(args)?;
        let target = options.target.clone().or_else(|| Some(device.arch.name().to_owned()));
        let compiled = self.compile(&types, &CompileOptions { target, plan: None, ..options.clone() })?;
        let interface = self.interface(&compiled, &types, options)?;
        let (flat, grid) = self.checked(&interface, args, grid)?;
        let kinds = interface.abi.params.iter().flat_map(|param| std::iter::repeat_n(&param.kind, param.kind.argument_count()));
        let number = |(flat, kind): (&Flat<Tensor>, &ParamKind)| match (flat, kind) {
            (&Flat::Word(bits), ParamKind::Scalar { dtype }) => Const::splat(*dtype, bits).as_int(),
            (&Flat::Word(bits), _) => i64::try_from(bits).ok(),
            (Flat::Array(_) | Flat::Table(_), _) => None,
        };
        let arguments = flat.iter().zip(kinds).map(number).collect();
        Ok((compiled, Launch { grid, arguments }))
    }

    /// The kernel as Graph IR; `None` where it was not written on whole operands.
    pub fn graph(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Option<Module>, KernelError> {
        self.origin.graph(&self.name, types, options).map_err(|diagnostics| self.rejected(diagnostics))
    }

    /// The IR that the kernel was read from, where it was; the kernel is its only function.
    pub(crate) fn module(&self) -> Option<&Module> {
        match &*self.origin {
            Origin::File(_) => None,
            Origin::Ir(module) => Some(module),
        }
    }

    pub(crate) fn rejected(&self, diagnostics: Vec<Diagnostic>) -> KernelError {
        KernelError::Rejected(Report { diagnostics, sources: self.origin.sources().clone() })
    }
}

/// What to compile for.
fn architecture(device: &DriverDevice) -> Result<Arch, KernelError> {
    let target = device.properties().target();
    Arch::ALL.iter().copied().find(|arch| arch.name() == target).ok_or_else(|| KernelError::Unsupported {
        device: format!("{} ({target})", device.name()),
        reason: "its architecture is unknown to this version; use `cpu`",
    })
}
