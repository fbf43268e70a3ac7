//! Running a rank's program.

use std::collections::{BTreeMap, BTreeSet};

use tessera_compile::{CompileOptions, Place, RankProgram, RankStep, passes, rank_program};
use tessera_ir::{Axis, Diagnostic, Func, GraphOp, Mesh, ParamKind, PassManager, Program, bug, text, verify};
use tessera_launch::{LaunchGrid, Report};

use crate::device::Device;
use crate::kernel::{Kernel, KernelError};
use crate::launch::LaunchOptions;
use crate::ranks::call::Group;
use crate::ranks::communicator::Communicator;
use crate::ranks::error::ExchangeError;
use crate::ranks::parts::part;
use crate::tensor::Tensor;
use crate::value::Value;
use crate::written::read_params;

/// A function for several ranks, split into kernels and exchanges.
#[derive(Clone, Debug)]
pub struct RankedKernel {
    pub(super) name: String,
    pub(super) program: RankProgram,
    /// One for each step that is a kernel, in order.
    kernels: Vec<Kernel>,
    /// Whether the ranks compare their calls before they make them.
    pub(super) checks_calls: bool,
}

impl RankedKernel {
    /// The program of a rank of a kernel with a mesh; `None` for other kernels.
    pub fn new(kernel: &Kernel) -> Result<Option<RankedKernel>, KernelError> {
        RankedKernel::for_ranks(kernel, None)
    }

    /// The same for another number of ranks: a mesh of one axis becomes as large. A mesh of several has the number it has.
    pub fn for_ranks(kernel: &Kernel, ranks: Option<usize>) -> Result<Option<RankedKernel>, KernelError> {
        let Some(mut module) = kernel.module().filter(|module| module.funcs[0].mesh.is_some()).cloned() else { return Ok(None) };
        if let (Some(mesh), Some(ranks)) = (&mut module.funcs[0].mesh, ranks) {
            match (mesh.axes.len(), u32::try_from(ranks)) {
                _ if mesh.ranks() == ranks => {}
                (1, Ok(size)) if mesh.program == Program::Whole && size > 0 => mesh.axes[0].size = size,
                _ => {
                    let message = format!("`{}` is for {} ranks, {mesh}, not for {ranks}", kernel.name(), mesh.ranks());
                    let help = "a mesh of one axis of a whole program can be made larger or smaller";
                    return Err(refused(Diagnostic::bare("ranks", message).help(help)));
                }
            }
        }
        // A mesh of another size may divide what it does not fit.
        let wrong = verify(&module);
        if !wrong.is_empty() {
            return Err(kernel.rejected(wrong));
        }
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
        Ok(RankedKernel { name: kernel.name().to_owned(), program, kernels, checks_calls: false })
    }

    /// The same, whose ranks compare their calls before each exchange where `checks` is true: see [`Checked`](crate::ranks::Checked).
    #[must_use]
    pub fn checking_calls(self, checks: bool) -> RankedKernel {
        RankedKernel { checks_calls: checks, ..self }
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.program.mesh
    }

    /// The kernels and exchanges.
    pub fn program(&self) -> &RankProgram {
        &self.program
    }

    /// Names of the arguments that a rank's kernels may read, or that ranks exchange.
    pub fn read(&self) -> BTreeSet<&str> {
        fn names(step: &RankStep) -> Vec<&str> {
            match step {
                RankStep::Kernel(func) => {
                    let params = func.abi.params.iter().zip(read_params(func));
                    params.filter(|(_, read)| *read).map(|(param, _)| param.name.as_str()).collect()
                }
                RankStep::Exchange { sources, .. } => sources.iter().map(|place| place.name.as_str()).collect(),
            }
        }
        self.program.steps.iter().flat_map(names).collect()
    }

    /// Names of the arguments that the program writes.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        let params = self.program.params.iter().zip(&self.program.written);
        params.filter(|(_, written)| **written).map(|(param, _)| param.name.as_str())
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
            Group::of(ranks, rank).unwrap_or_else(|| bug!("the group of rank {rank} over {over:?} is without it"))
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

    pub(super) fn expect_arguments(&self, args: &[(&str, Value)]) -> Result<(), KernelError> {
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

pub(super) fn refused(diagnostic: Diagnostic) -> KernelError {
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
