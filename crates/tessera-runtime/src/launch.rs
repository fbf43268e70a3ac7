//! A launch that passed every check: runs as often as it is asked to.

#![allow(unsafe_code, reason = "hands addresses of borrowed memory to the executor")]

use std::sync::{Arc, Mutex};

use tessera_compile::{Compiled, Stage};
use tessera_cpu::{Allocation, Arg, RunOptions};
use tessera_driver::DriverError;
use tessera_ir::text::print_module;
use tessera_ir::{Assertion, Diagnostic, Func, Level, OpKind, ScheduleOp, SourceMap, Span, TileOp};
use tessera_launch::{Flat, Interface, Report};
use tessera_types::TimeLimit;

use crate::device_launch::DeviceLaunch;
use crate::error::{DeviceError, TensorError};
use crate::kernel::{Code, Executable, KernelError};
use crate::layout::{storage_bits, storage_bytes};
use crate::memory::{Memory, Reader, Writer};
use crate::tensor::Tensor;
use crate::tuned::Tuned;
use crate::unwritten::Unwritten;
use crate::written::read_params;

/// How a launch runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Report undefined behaviour (out of bounds, uninitialised or undetermined elements, blocks that write each other's memory)
    /// instead of leaving it undefined; slower.
    pub checked: bool,
    /// Threads that run blocks; all when absent. Results do not depend on it.
    pub threads: Option<usize>,
    /// How long the launch may take. On the emulator its own limit counts, see [`tessera_emu::LaunchOptions`]; on other devices what has not
    /// ended by then is left behind, see [`KernelError::NeverEnds`].
    pub limit: TimeLimit,
}

/// What a launch did beside filling its arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// What the kernel printed; on a CUDA device that has gone to the program's own output.
    pub printed: String,
    /// Of arrays that held nothing before, those that it did not write whole; `None` where nobody kept count.
    pub unwritten: Option<Vec<Unwritten>>,
}

/// What is left to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// To run the executor's program on these arguments.
    Cpu(Vec<Flat<Tensor>>),
    /// To queue a launch on a device.
    Device(Box<DeviceLaunch>),
}

/// A compiled kernel with checked arguments.
#[derive(Debug)]
pub struct PreparedLaunch {
    executable: Arc<Executable>,
    work: Work,
    /// Parameters of the interface, in order, and whether each may be written.
    params: Vec<(String, bool)>,
    /// For each flat argument, the parameter that it belongs to.
    owners: Vec<usize>,
    grid: [u32; 3],
    cached: bool,
    tuned: Option<Tuned>,
    sources: SourceMap,
}

/// What is said of a launch that stopped with an error, and perhaps by an assertion of its kernel's.
pub(crate) fn stopped(failed: Option<(&Assertion, [u32; 3])>, sources: &SourceMap, error: DriverError) -> KernelError {
    let Some((assertion, block)) = failed else { return DeviceError::from(error).into() };
    let text = if assertion.message.is_empty() { "" } else { ": " };
    let message = format!("assertion failed{text}{}", assertion.message);
    let diagnostics = vec![Diagnostic::error("device-assert", assertion.span, message)];
    KernelError::Fault { report: Report { diagnostics, sources: sources.clone() }, block: Some(block), printed: String::new() }
}

/// Access to one memory for as long as a launch runs.
enum Access<'a> {
    Read(Reader<'a>),
    Write(Writer<'a>),
}

impl Access<'_> {
    fn base(&self) -> Result<*mut u8, TensorError> {
        match self {
            Access::Read(reader) => reader.base(),
            Access::Write(writer) => writer.base(),
        }
    }
}

impl PreparedLaunch {
    pub(crate) fn new(
        executable: Arc<Executable>,
        work: Work,
        grid: [u32; 3],
        (cached, tuned): (bool, Option<Tuned>),
        sources: SourceMap,
    ) -> PreparedLaunch {
        let Interface { abi, written, .. } = &executable.interface;
        let params = abi.params.iter().zip(written).map(|(param, &written)| (param.name.clone(), written)).collect();
        let owners = abi
            .params
            .iter()
            .enumerate()
            .flat_map(|(position, param)| std::iter::repeat_n(position, param.kind.argument_count()))
            .collect();
        PreparedLaunch { executable, work, params, owners, grid, cached, tuned, sources }
    }

    /// Blocks along x, y and z.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// The compiled kernel.
    pub fn compiled(&self) -> &Compiled {
        &self.executable.compiled
    }

    /// What compilation took, stage by stage, when it was done.
    pub fn stages(&self) -> &[Stage] {
        &self.executable.compiled.stages
    }

    /// True when an earlier compilation was found.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// The choice of a lockfile that it was compiled with.
    pub fn tuned(&self) -> Option<&Tuned> {
        self.tuned.as_ref()
    }

    /// The class of the order in which the kernel adds up floats ([`order_of_sums`](tessera_compile::order_of_sums)).
    pub fn order_of_sums(&self) -> &str {
        &self.executable.order
    }

    /// A hash of what runs: launches of one hash on one device do the same, whatever they were asked to be.
    pub fn program_hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        match &self.executable.code {
            Code::Device(image) => {
                hasher.update(image.code.bytes());
            }
            // The CPU knows no warps and stages.
            Code::Cpu(_) | Code::Threads(_) => {
                let mut module = self.executable.compiled.module.clone();
                for func in &mut module.funcs {
                    func.config.clear();
                    if func.level == Level::Schedule {
                        func.hints = Default::default();
                    }
                }
                hasher.update(print_module(&module).as_bytes());
            }
        }
        hasher.update(format!("{:?}", self.grid).as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What the executor recognised: fused chains and products, one line each.
    pub fn notes(&self) -> &[String] {
        match &self.executable.code {
            Code::Cpu(program) => program.notes(),
            Code::Threads(_) | Code::Device(_) => &[],
        }
    }

    /// What the compiler gave up to make the kernel fit the device, and what would do without; `None` where nothing was.
    pub fn remark(&self) -> Option<&Diagnostic> {
        self.executable.remark.as_ref()
    }

    /// The launch on a device, where it is one.
    pub fn on_device(&self) -> Option<&DeviceLaunch> {
        match &self.work {
            Work::Cpu(_) => None,
            Work::Device(launch) => Some(launch),
        }
    }

    /// The texts that the kernel's diagnostics point into.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Names of the arguments that the kernel may write.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        self.params.iter().filter(|(_, written)| *written).map(|(name, _)| name.as_str())
    }

    /// Names of the arguments that the kernel may read.
    pub fn read(&self) -> impl Iterator<Item = &str> {
        let read = read_params(self.compiled().func());
        self.params.iter().zip(read).filter(|(_, read)| *read).map(|((name, _), _)| name.as_str())
    }

    /// Runs every block; what the kernel prints is dropped.
    pub fn run(&self) -> Result<(), KernelError> {
        self.run_with(&LaunchOptions::default()).map(drop)
    }

    /// Runs every block and gives what the kernel printed; with a grid without blocks that is nothing.
    ///
    /// On a device it waits until the kernel is done; what it printed has gone to the program's own output.
    pub fn run_with(&self, options: &LaunchOptions) -> Result<String, KernelError> {
        self.run_counted(options).map(|ran| ran.printed)
    }

    /// Runs every block and says what became of arrays that held nothing before.
    pub fn run_counted(&self, options: &LaunchOptions) -> Result<Ran, KernelError> {
        match (&self.work, &self.executable.code) {
            (Work::Device(launch), _) if options.checked => Err(KernelError::Unsupported {
                device: launch.kernel().device().name().to_owned(),
                reason: "checked execution is the CPU's; use `cpu`",
            }),
            (Work::Device(launch), _) => {
                let held_nothing = launch.poisoned();
                match launch.run_within(options.limit.longest()) {
                    Ok(true) => {}
                    Ok(false) => return Err(self.never_ends(launch, options.limit)),
                    Err(error) => return Err(self.stopped(launch, error)),
                }
                let unwritten = launch.unwritten(&held_nothing).map_err(|error| KernelError::Device(error.into()))?;
                Ok(Ran { printed: String::new(), unwritten })
            }
            (Work::Cpu(flat), code) => self.run_on_cpu(code, flat, options),
        }
    }

    /// Why a launch stopped: an assertion, if one has left its mark. A fault is the context's end all the same.
    fn stopped(&self, launch: &DeviceLaunch, error: DriverError) -> KernelError {
        stopped(launch.failed_assertion(), &self.sources, error)
    }

    /// What is said of a kernel that is left running on a device: where it may be.
    fn never_ends(&self, launch: &DeviceLaunch, limit: TimeLimit) -> KernelError {
        let device = launch.kernel().device();
        device.leave_open();
        let seconds = limit.longest().unwrap_or_default().as_secs_f64();
        let message = format!("the kernel has not ended after {seconds} s, and is left running on {}", device.name());
        let mut diagnostic = match may_wait(self.executable.compiled.func()).as_slice() {
            [] => Diagnostic::bare("never-ends", message),
            [first, others @ ..] => {
                let diagnostic = Diagnostic::error("never-ends", first.0, message).label(first.1);
                others.iter().fold(diagnostic, |diagnostic, &(span, what)| diagnostic.also(span, what))
            }
        };
        diagnostic = diagnostic.help("`--device emu` says where it is, if it never ends; `--timeout SECONDS` gives it more time");
        KernelError::NeverEnds(Report { diagnostics: vec![diagnostic], sources: self.sources.clone() })
    }

    fn run_on_cpu(&self, code: &Code, flat: &[Flat<Tensor>], options: &LaunchOptions) -> Result<Ran, KernelError> {
        let memories = self.memories(flat);
        let guards = self.borrow(&memories)?;
        let base_of = |tensor: &Tensor, owner: usize| {
            let at = memories.iter().position(|(memory, ..)| std::ptr::eq(*memory, Arc::as_ptr(&tensor.memory))).unwrap_or(0);
            guards[at].base().map_err(|error| self.memory_error(owner, error))
        };
        let mut tables: Vec<Vec<u64>> = Vec::new();
        let mut allocations = Vec::new();
        // Memory that holds nothing yet: where the executor finds it, and what it is.
        let mut empty: Vec<(usize, String, &Tensor)> = Vec::new();
        for (flat, &owner) in flat.iter().zip(&self.owners) {
            let Flat::Table(items) = flat else { continue };
            let mut table = Vec::new();
            for (position, item) in items.iter().enumerate() {
                if item.is_poisoned() {
                    empty.push((self.owners.len() + allocations.len(), format!("{}[{position}]", self.params[owner].0), item));
                }
                let (base, bytes) = region(item, base_of(item, owner)?);
                table.push(base as u64);
                table.extend(item.shape().iter().chain(item.strides()).map(|&extent| extent as u64));
                allocations.push(Allocation { base, bytes });
            }
            tables.push(table);
        }
        let mut next_table = tables.iter_mut();
        let mut args = Vec::with_capacity(flat.len());
        for (position, (flat, &owner)) in flat.iter().zip(&self.owners).enumerate() {
            args.push(match flat {
                Flat::Word(bits) => Arg::Scalar(*bits),
                Flat::Array(tensor) => {
                    if tensor.is_poisoned() {
                        empty.push((position, self.params[owner].0.clone(), tensor));
                    }
                    let (base, bytes) = region(tensor, base_of(tensor, owner)?);
                    Arg::Pointer { base, bytes }
                }
                Flat::Table(_) => match next_table.next() {
                    Some(table) => Arg::Pointer { base: table.as_mut_ptr().cast(), bytes: table.len() * 8 },
                    None => Arg::Scalar(0),
                },
            });
        }
        let uninitialised: Vec<usize> = empty.iter().map(|(position, ..)| *position).collect();
        let (output, written) = (Mutex::new(String::new()), Mutex::new(Vec::new()));
        let run = RunOptions {
            checked: options.checked,
            threads: options.threads,
            allocations: &allocations,
            uninitialised: &uninitialised,
            written: Some(&written),
            output: Some(&output),
            limit: options.limit,
        };
        // SAFETY: each pointer lies in memory that a guard holds until the end of this function, for writing wherever the kernel
        // may write; tables and their items live as long.
        let outcome = unsafe {
            match code {
                Code::Cpu(program) => program.run(self.grid, &args, &run),
                Code::Threads(program) => program.run(self.grid, &args, &run),
                Code::Device(_) => Ok(()),
            }
        };
        let printed = output.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        memories.iter().filter(|(_, written, _)| *written).for_each(|(memory, ..)| memory.set_poisoned(false));
        match outcome {
            Ok(()) => {
                let is_counted = options.checked && matches!(code, Code::Cpu(_));
                let written = written.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
                let unwritten = is_counted.then(|| {
                    let of = |((_, name, tensor), written): (&(usize, String, &Tensor), Vec<bool>)| {
                        // What was counted begins at the tensor's first element.
                        let first = tensor.layout.span().unwrap_or(0..0).start * storage_bits(tensor.dtype()) / 8;
                        Unwritten::by_bytes(name, tensor, |byte| written.get(byte - first).is_none_or(|&written| written))
                    };
                    empty.iter().zip(written).filter_map(of).collect()
                });
                Ok(Ran { printed, unwritten })
            }
            Err(fault) => {
                let report = Report { diagnostics: vec![fault.diagnostic], sources: self.sources.clone() };
                Err(KernelError::Fault { report, block: fault.block, printed })
            }
        }
    }

    /// Each memory once, with whether anything in it may be written and a parameter that uses it.
    fn memories<'a>(&self, flat: &'a [Flat<Tensor>]) -> Vec<(&'a Memory, bool, usize)> {
        let mut memories: Vec<(&Memory, bool, usize)> = Vec::new();
        for (flat, &owner) in flat.iter().zip(&self.owners) {
            let tensors = match flat {
                Flat::Array(tensor) => std::slice::from_ref(tensor),
                Flat::Table(items) => items,
                Flat::Word(_) => continue,
            };
            let written = self.params[owner].1;
            for tensor in tensors {
                match memories.iter_mut().find(|(memory, ..)| std::ptr::eq(*memory, &*tensor.memory)) {
                    Some((_, known, _)) => *known |= written,
                    None => memories.push((&tensor.memory, written, owner)),
                }
            }
        }
        memories
    }

    fn borrow<'a>(&self, memories: &[(&'a Memory, bool, usize)]) -> Result<Vec<Access<'a>>, KernelError> {
        memories
            .iter()
            .map(|&(memory, written, owner)| {
                let access = if written { memory.writer().map(Access::Write) } else { memory.reader().map(Access::Read) };
                access.map_err(|error| self.memory_error(owner, error))
            })
            .collect()
    }

    fn memory_error(&self, owner: usize, error: TensorError) -> KernelError {
        KernelError::Memory { argument: self.params[owner].0.clone(), error }
    }
}

/// The places of a kernel that may take for ever: its loops without a count, else those that count, and its barriers.
fn may_wait(func: &Func) -> Vec<(Span, &'static str)> {
    let of = |op: &OpKind| match op {
        OpKind::Schedule(ScheduleOp::Loop {}) => Some((0, "this loop may never end")),
        OpKind::Schedule(ScheduleOp::For { .. }) => Some((1, "this loop may take that long")),
        OpKind::Tile(TileOp::Barrier {}) => Some((2, "some threads may never come here")),
        _ => None,
    };
    let found: Vec<_> =
        func.linked_ops().into_iter().filter_map(|op| Some((of(&func.ops[op].kind)?, func.ops[op].span))).collect();
    let least = found.iter().map(|((rank, _), _)| *rank).min();
    let mut places: Vec<(Span, &str)> = found
        .into_iter()
        .filter(|((rank, _), _)| Some(*rank) == least || *rank == 2)
        .map(|((_, what), span)| (span, what))
        .collect();
    places.dedup();
    places
}

/// First byte and number of bytes from a tensor's first element to its last.
fn region(tensor: &Tensor, base: *mut u8) -> (*mut u8, usize) {
    let bytes = |elements: usize| storage_bytes(tensor.dtype(), elements).unwrap_or(0);
    let span = tensor.layout.span().unwrap_or(0..0);
    let start = bytes(span.start);
    (base.wrapping_add(start), bytes(span.end) - start)
}
