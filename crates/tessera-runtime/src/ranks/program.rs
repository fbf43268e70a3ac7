//! Running a rank's program, and all of them at once.

use std::collections::BTreeMap;

use tessera_compile::{CompileOptions, Place, RankProgram, RankStep, passes, rank_program};
use tessera_ir::{Axis, Diagnostic, Func, GraphOp, Mesh, ParamKind, PassManager, Sharding, text};
use tessera_launch::{LaunchGrid, Report};

use crate::device::Device;
use crate::kernel::{Kernel, KernelError};
use crate::launch::LaunchOptions;
use crate::ranks::call::Group;
use crate::ranks::communicator::Communicator;
use crate::ranks::error::ExchangeError;
use crate::ranks::parts::part;
use crate::ranks::simulated::Meeting;
use crate::tensor::Tensor;
use crate::value::Value;

/// More ranks than this are not simulated: each is a thread.
const MAX_SIMULATED: usize = 256;

/// A function for several ranks, split into kernels and exchanges.
#[derive(Debug)]
pub struct RankedKernel {
    name: String,
    program: RankProgram,
    /// One for each step that is a kernel, in order.
    kernels: Vec<Kernel>,
}

impl RankedKernel {
    /// The program of a rank of a kernel with a mesh; `None` for other kernels.
    pub fn new(kernel: &Kernel) -> Result<Option<RankedKernel>, KernelError> {
        let Some(mut module) = kernel.module().filter(|module| module.funcs[0].mesh.is_some()).cloned() else { return Ok(None) };
        let insertion: Vec<_> = passes::find("collective-insertion").into_iter().collect();
        let mut manager = PassManager { verify_each: true, ..PassManager::default() };
        manager.run(&mut module, &insertion).map_err(|failure| kernel.rejected(failure.diagnostics))?;
        RankedKernel::split(kernel, &module.funcs[0]).map(Some)
    }

    /// A kernel that is the program of a rank, exchange by exchange as it is written.
    pub fn as_written(kernel: &Kernel) -> Result<RankedKernel, KernelError> {
        match kernel.module() {
            Some(module) => RankedKernel::split(kernel, &module.funcs[0]),
            None => Err(refused(Diagnostic::bare("ranks", format!("`{}` is not IR text", kernel.name())))),
        }
    }

    fn split(kernel: &Kernel, func: &Func) -> Result<RankedKernel, KernelError> {
        let program = rank_program(func).map_err(|diagnostics| kernel.rejected(diagnostics))?;
        let mut kernels = Vec::new();
        for step in &program.steps {
            if let RankStep::Kernel(func) = step {
                let name = format!("<{} of {}>", func.name, kernel.name());
                kernels.push(Kernel::from_ir(&name, &text::print_func(func), &func.name)?);
            }
        }
        Ok(RankedKernel { name: kernel.name().to_owned(), program, kernels })
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.program.mesh
    }

    /// The kernels and exchanges.
    pub fn program(&self) -> &RankProgram {
        &self.program
    }

    /// Runs one rank's program on the rank's parts of the arguments.
    pub fn run_rank(
        &self,
        rank: usize,
        args: &[(&str, Value)],
        communicator: &mut dyn Communicator,
        device: &Device,
        (compile, launch): (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        self.expect_arguments(args)?;
        let sizes = self.sizes(args);
        let mut held: BTreeMap<String, Value> = args.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let mut kernels = self.kernels.iter();
        for step in &self.program.steps {
            match step {
                RankStep::Kernel(func) => {
                    let Some(kernel) = kernels.next() else { break };
                    for param in &func.abi.params {
                        if !held.contains_key(&param.name) {
                            held.insert(param.name.clone(), Value::Tensor(self.buffer(&param.name, &sizes, device)?));
                        }
                    }
                    let own: Vec<(&str, Value)> =
                        func.abi.params.iter().map(|param| (param.name.as_str(), held[&param.name].clone())).collect();
                    kernel.prepare(&own, LaunchGrid::Auto, compile, device)?.run_with(launch)?;
                }
                RankStep::Exchange { kind, sources, results } => {
                    let sources = sources.iter().map(|place| taken(&held, place)).collect::<Result<Vec<_>, _>>()?;
                    let made = self.exchange(rank, kind, &sources, communicator)?;
                    for (name, tensor) in results.iter().zip(made) {
                        let there = tensor.to_device(device).map_err(ExchangeError::from)?;
                        held.insert(name.clone(), Value::Tensor(there));
                    }
                }
            }
        }
        Ok(())
    }

    fn exchange(
        &self,
        rank: usize,
        kind: &GraphOp,
        sources: &[Tensor],
        communicator: &mut dyn Communicator,
    ) -> Result<Vec<Tensor>, ExchangeError> {
        let mesh = &self.program.mesh;
        let group = |over: &[String]| {
            let ranks = mesh.group(rank, over);
            Group { position: ranks.iter().position(|&other| other == rank).unwrap_or(0), ranks }
        };
        let one = |over: &String| group(std::slice::from_ref(over));
        match kind {
            GraphOp::AllReduce { over, combine } => communicator.all_reduce(&group(over), (*combine).into(), sources),
            GraphOp::AllGather { over, axis } => communicator.all_gather(&one(over), *axis as usize, sources),
            GraphOp::ReduceScatter { over, axis, combine } => {
                communicator.reduce_scatter(&one(over), *axis as usize, (*combine).into(), sources)
            }
            GraphOp::AllToAll { over, split, join } => {
                communicator.all_to_all(&one(over), *split as usize, *join as usize, sources)
            }
            GraphOp::Shard { over, axis } => {
                let Group { ranks, position } = one(over);
                sources.iter().map(|tensor| part(tensor, *axis as usize, ranks.len(), position)).collect()
            }
            GraphOp::Load { .. } | GraphOp::Store {} | GraphOp::Contract {} | GraphOp::Reduce { .. } | GraphOp::Broadcast {} => {
                Err(ExchangeError::Mismatch { reason: format!("`{}` exchanges nothing", kind.row().mnemonic) })
            }
        }
    }

    /// Runs the programs of all ranks on threads of this process. Arguments are whole: parts are cut out of them, and what the
    /// ranks write is put together in them.
    pub fn run(
        &self,
        args: &[(&str, Value)],
        device: &Device,
        options: (&CompileOptions, &LaunchOptions),
    ) -> Result<(), KernelError> {
        self.expect_arguments(args)?;
        let count = self.program.mesh.ranks();
        if count > MAX_SIMULATED {
            let message = format!("`{}` is for {count} ranks, and {MAX_SIMULATED} can be simulated", self.name);
            return Err(refused(Diagnostic::bare("ranks", message).help("make the mesh smaller: shardings stay as they are")));
        }
        let mut parts: Vec<Vec<(&str, Value)>> = Vec::with_capacity(count);
        for rank in 0..count {
            parts.push(
                args.iter()
                    .map(|(name, value)| Ok((*name, self.part_of(rank, name, value)?)))
                    .collect::<Result<_, KernelError>>()?,
            );
        }
        let meeting = Meeting::new(count);
        let outcomes: Vec<Result<(), KernelError>> = std::thread::scope(|scope| {
            let ends: Vec<_> = (0..count).map(|rank| meeting.rank(rank)).collect();
            let threads: Vec<_> = ends
                .into_iter()
                .zip(&parts)
                .enumerate()
                .map(|(rank, (mut end, own))| scope.spawn(move || self.run_rank(rank, own, &mut end, device, options)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        // A rank that failed by itself says more than those who waited for it.
        let waited = |error: &KernelError| matches!(error, KernelError::Exchange(error) if error.is_of_another());
        let mut failures: Vec<KernelError> = outcomes.into_iter().filter_map(Result::err).collect();
        failures.sort_by_key(waited);
        if let Some(first) = failures.into_iter().next() {
            return Err(first);
        }
        for (position, param) in self.program.params.iter().enumerate() {
            if self.program.written[position] {
                self.collect(position, &param.name, args, &parts)?;
            }
        }
        Ok(())
    }

    /// A rank's part of an argument, in memory of its own where the rank writes it.
    fn part_of(&self, rank: usize, name: &str, value: &Value) -> Result<Value, KernelError> {
        let at = self.program.params.iter().position(|param| param.name == name);
        let (Value::Tensor(tensor), Some(at)) = (value, at) else { return Ok(value.clone()) };
        let sharding = self.program.shardings[at].as_ref().filter(|sharding| !sharding.is_whole());
        let view = match sharding {
            Some(sharding) => self.view(rank, tensor, sharding)?,
            None => tensor.clone(),
        };
        if sharding.is_none() && !self.program.written[at] {
            return Ok(value.clone());
        }
        Ok(Value::Tensor(view.contiguous().map_err(ExchangeError::from)?))
    }

    /// The view of a rank's part.
    fn view(&self, rank: usize, tensor: &Tensor, sharding: &Sharding) -> Result<Tensor, ExchangeError> {
        let mut view = tensor.clone();
        for (axis, dim) in sharding.dims.iter().enumerate() {
            if let Some(by) = dim.as_ref().and_then(|name| self.program.mesh.axis(name)) {
                view = part(&view, axis, by.size as usize, self.program.mesh.position(rank, &by.name))?;
            }
        }
        Ok(view)
    }

    /// Puts the ranks' parts of a result together.
    fn collect(&self, at: usize, name: &str, args: &[(&str, Value)], parts: &[Vec<(&str, Value)>]) -> Result<(), KernelError> {
        let find = |args: &[(&str, Value)]| match args.iter().find(|(own, _)| *own == name) {
            Some((_, Value::Tensor(tensor))) => Some(tensor.clone()),
            _ => None,
        };
        let Some(whole) = find(args) else { return Ok(()) };
        whole.memory.set_poisoned(false);
        for (rank, own) in parts.iter().enumerate() {
            let Some(part) = find(own) else { continue };
            match self.program.shardings[at].as_ref() {
                Some(sharding) => self.view(rank, &whole, sharding)?.copy_from(&part).map_err(ExchangeError::from)?,
                // Every rank has the same.
                None if rank == 0 => whole.copy_from(&part).map_err(ExchangeError::from)?,
                None => {}
            }
        }
        Ok(())
    }

    /// The size of each named axis, from the rank's parts.
    fn sizes(&self, args: &[(&str, Value)]) -> BTreeMap<String, usize> {
        let mut sizes = BTreeMap::new();
        for param in &self.program.params {
            let (ParamKind::Operand { axes, .. }, Some((_, Value::Tensor(tensor)))) =
                (&param.kind, args.iter().find(|(name, _)| *name == param.name))
            else {
                continue;
            };
            for (axis, &size) in axes.iter().zip(tensor.shape()) {
                sizes.entry(axis.clone()).or_insert(size);
            }
        }
        sizes
    }

    fn extent(&self, axis: &Axis, sizes: &BTreeMap<String, usize>) -> Option<usize> {
        let name = match axis {
            Axis::Fixed(extent) => return Some(*extent as usize),
            Axis::Symbol(name) => name,
        };
        if let Some(&size) = sizes.get(name) {
            return Some(size);
        }
        // A part from its whole, or a whole from any of its parts.
        let axes = &self.program.mesh.axes;
        let whole = axes.iter().find_map(|by| Some((name.strip_suffix(&by.name)?.strip_suffix('/')?, by.size as usize)));
        match whole {
            Some((whole, count)) => self.extent(&Axis::Symbol(whole.to_owned()), sizes).map(|size| size / count),
            None => axes.iter().find_map(|by| Some(sizes.get(&format!("{name}/{}", by.name))? * by.size as usize)),
        }
    }

    fn buffer(&self, name: &str, sizes: &BTreeMap<String, usize>, device: &Device) -> Result<Tensor, KernelError> {
        let buffer = self.program.buffers.iter().find(|buffer| buffer.name == name);
        let shape = buffer.and_then(|buffer| buffer.axes.iter().map(|axis| self.extent(axis, sizes)).collect::<Option<Vec<_>>>());
        let (Some(buffer), Some(shape)) = (buffer, shape) else {
            let message = format!("the sizes that `{}` needs for `{name}` follow from no argument", self.name);
            return Err(refused(Diagnostic::bare("ranks", message).help("give it an operand with that axis")));
        };
        Ok(Tensor::zeros_on(buffer.dtype, &shape, device).map_err(ExchangeError::from)?)
    }

    fn expect_arguments(&self, args: &[(&str, Value)]) -> Result<(), KernelError> {
        for param in &self.program.params {
            let Some((_, value)) = args.iter().find(|(name, _)| *name == param.name) else {
                return Err(refused(Diagnostic::bare("argument-missing", format!("`{}` needs `{}`", self.name, param.name))));
            };
            if let ParamKind::Operand { axes, .. } = &param.kind {
                let rank = axes.len();
                if !matches!(value, Value::Tensor(tensor) if tensor.rank() == rank) {
                    let message =
                        format!("`{}` is an array with {rank} dimensions, not {}", param.name, value.argument().describe());
                    return Err(refused(Diagnostic::bare("argument-type", message)));
                }
            }
        }
        match args.iter().find(|(name, _)| !self.program.params.iter().any(|param| param.name == *name)) {
            Some((name, _)) => {
                Err(refused(Diagnostic::bare("argument-unknown", format!("`{}` has no parameter `{name}`", self.name))))
            }
            None => Ok(()),
        }
    }
}

fn refused(diagnostic: Diagnostic) -> KernelError {
    KernelError::Rejected(Report { diagnostics: vec![diagnostic], sources: tessera_ir::SourceMap::default() })
}

/// The tensor at a place.
fn taken(held: &BTreeMap<String, Value>, place: &Place) -> Result<Tensor, ExchangeError> {
    let Some(Value::Tensor(tensor)) = held.get(&place.name) else {
        return Err(ExchangeError::Mismatch { reason: format!("`{}` is no array", place.name) });
    };
    let rank = tensor.rank();
    Ok(if place.transposed && rank >= 2 { tensor.transpose(rank - 2, rank - 1)? } else { tensor.clone() })
}
