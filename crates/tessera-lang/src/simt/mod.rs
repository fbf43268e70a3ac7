//! Per-thread kernels: checked, then lowered to Tile IR.
//!
//! [`check`] walks a kernel with its compile-time arguments and yields a [`SimtKernel`], in which everything has a type;
//! `emit` makes a Tile function of it, in which rank-0 tiles are one value a thread. The walk repeats until the types of variables settle: a variable has one type, the common type of all that is assigned
//! to it, so `total = 0.0` followed by `total += x[i]` is `f32` for a `bf16` array and `f64` for an `f64` one.
//!
//! ```text
//! i = tile.linear_id()                    i: i64, per thread
//! if i < x.shape[0]:                      x.shape[0]: i32, uniform
//!     y[i] = alpha * x[i]                 bf16 element, f32 product, stored as bf16
//! ```

mod calls;
mod emit;
mod env;
mod expr;
mod functions;
mod loops;
mod math;
mod memory;
mod ordered;
mod power;
mod program;
mod python;
mod sequence;
mod stmts;
mod unroll;
mod value;

use std::collections::BTreeSet;

use indexmap::IndexMap;
use tessera_ir::{Abi, AbiParam, Axis, Diagnostic, Module, ParamKind, Span};
use tessera_types::{Arch, DType};

pub use program::{
    Addressed, Allocation, Binary, Combine, Expression, ExpressionKind, Identity, Local, Memory, Place, Role, Shuffle,
    SimtKernel, Space, Statement, Unary,
};

use crate::args::{ArgType, LowerOptions};
use crate::declarative::hints;
use crate::diagnostics::id;
use crate::file::{Kernel, ParsedFile};
use crate::fixed::Fixed;
use crate::lower::{Lowered, Res, on_own_stack};
use crate::scopes::Scope;
use crate::signature::{self, Bound, check_extents};
use crate::tuning;
use env::{Frame, Item};

/// Warps of a block where nothing says how many.
const DEFAULT_WARPS: u32 = 4;
/// Types widen along a short chain, so they settle in a few rounds.
const MAX_ROUNDS: usize = 16;

/// A variable's type, as far as the walks have seen.
#[derive(Clone, Debug, PartialEq)]
struct Settled {
    dtype: DType,
    uniform: bool,
    span: Span,
}

/// What a variable's type is known by.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// What is assigned to its name, from walk to walk.
    Named,
    /// It holds one value.
    Once { dtype: DType, uniform: bool },
}

/// One walk over a kernel.
struct Check<'f> {
    file: &'f ParsedFile,
    arch: Arch,
    threads: u32,
    params: IndexMap<String, Item>,
    /// Shapes, dtypes and index types of array parameters, by position in the interface.
    arrays: IndexMap<usize, signature::Operand>,
    /// Compile-time names of the configuration and of dtype variables.
    named: IndexMap<String, Fixed>,
    frames: Vec<Frame>,
    /// Calls that were walked so far.
    calls: usize,
    /// Types of variables by frame and name, from this walk and those before.
    settled: IndexMap<String, Settled>,
    /// The variables.
    locals: IndexMap<String, Held>,
    allocations: Vec<Allocation>,
    addressed: Vec<Addressed>,
    /// Statements of the block being walked.
    out: Vec<Statement>,
    /// What makes threads of a block disagree about being here.
    divergent: Option<Span>,
    /// Where some threads of a block ended before others.
    ended: Option<Span>,
    /// Where some threads of a block left the innermost loop or its round before others.
    strayed: Option<Span>,
    /// Fragments that elements were put into, and those that elements were taken from in a loop before that.
    filled: BTreeSet<usize>,
    unfilled: Vec<(usize, Span)>,
    /// Loops open here.
    loops: u32,
    /// Run-time branches open here.
    branches: u32,
    /// Where the innermost loop is walked round by round, the branches that were open at its begin.
    round: Option<u32>,
    /// The block of statements being walked, and how many there were.
    block: usize,
    /// Bodies of loops that run, the innermost one last.
    bodies: Vec<env::Body>,
    blocks: usize,
    /// Steps taken, against hostile inlining.
    steps: u32,
}

/// Checks a per-thread kernel for the given arguments; missing arguments take their defaults.
///
/// # Errors
/// The first mistake, with its place.
pub fn check(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &LowerOptions,
) -> Result<SimtKernel, Vec<Diagnostic>> {
    if file.has_errors() {
        return Err(file.diagnostics.clone());
    }
    let Some(found) = file.kernels.get(kernel) else {
        return Err(vec![Diagnostic::bare(id::NO_KERNEL, format!("there is no kernel `{kernel}`"))]);
    };
    on_own_stack(|| check_kernel(file, found, args, options).map_err(|error| vec![*error]))
}

/// Lowers a kernel to a Tile function.
pub(crate) fn lower(file: &ParsedFile, kernel: &Kernel, args: &[(String, ArgType)], options: &LowerOptions) -> Res<Lowered> {
    let checked = check_kernel(file, kernel, args, options)?;
    let func = emit::emit(file, &checked, options)?;
    let module = Module { sources: file.sources.clone(), globals: Vec::new(), funcs: vec![func] };
    // Who comes to a barrier in a later round of a loop, and which lanes of a warp come where, the analysis of the result knows.
    match tessera_ir::verify(&module).into_iter().find(|found| found.id == "ir-divergent") {
        Some(found) => Err(Box::new(Diagnostic { id: id::DIVERGENT, ..found })),
        None => Ok(Lowered { module, notes: Vec::new() }),
    }
}

fn check_kernel(file: &ParsedFile, kernel: &Kernel, args: &[(String, ArgType)], options: &LowerOptions) -> Res<SimtKernel> {
    let at = kernel.function.name.span;
    if let Some((what, place)) = kernel.function.unsupported {
        return Err(Box::new(Diagnostic::error(id::UNSUPPORTED, place, format!("a kernel can't use {what}"))));
    }
    let signature = signature::bind(file, kernel, args)?;
    let tensors = signature.params.iter().filter_map(|(name, (bound, span))| match bound {
        Bound::Tensor(operand) => Some((name.as_str(), operand, *span)),
        _ => None,
    });
    check_extents(tensors.clone().map(|(name, operand, span)| (name, operand.axes.as_slice(), operand.shape.as_slice(), span)))?;
    let operand = tensors.clone().next().map_or(DType::F32, |(_, operand, _)| operand.dtype);
    let config = tuning::choose(file, kernel, operand, options)?;
    let arch = tuning::arch(options);
    let hints = hints(file, kernel)?;
    if let Some(other) =
        [("num_ctas", hints.num_ctas), ("num_stages", hints.num_stages)].iter().find(|(_, given)| given.is_some())
    {
        let message = format!("a kernel of threads does by itself what `{}` asks for", other.0);
        return Err(Box::new(Diagnostic::error(id::KERNEL_OPTION, at, message).help("options: `num_warps`, `occupancy`")));
    }
    let threads = threads(&config, (options, hints.num_warps), arch, at)?;
    let mut named: IndexMap<String, Fixed> =
        config.iter().map(|(name, value)| (name.clone(), Fixed::int(i128::from(*value)))).collect();
    named.extend(signature.dtypes.iter().map(|(name, dtype)| (name.clone(), Fixed::DType(*dtype))));

    let mut abi = Abi::default();
    let mut params = IndexMap::new();
    let mut arrays = IndexMap::new();
    for (name, (bound, span)) in &signature.params {
        let item = match bound {
            Bound::Fixed(value) => Item::Fixed(value.clone()),
            Bound::Scalar(dtype) => {
                abi.params.push(AbiParam { name: name.clone(), kind: ParamKind::Scalar { dtype: *dtype } });
                let kind = ExpressionKind::Scalar(abi.params.len() - 1);
                Item::Value(value::readable(Expression { kind, dtype: *dtype, uniform: true, span: *span }))
            }
            Bound::Tensor(operand) => {
                arrays.insert(abi.params.len(), operand.clone());
                abi.params.push(AbiParam { name: name.clone(), kind: array_kind(name, args, operand) });
                Item::Array(Memory::Param(abi.params.len() - 1))
            }
        };
        params.insert(name.clone(), item);
    }

    let mut settled = IndexMap::new();
    for _ in 0..MAX_ROUNDS {
        let mut check = Check {
            file,
            arch,
            threads,
            params: params.clone(),
            arrays: arrays.clone(),
            named: named.clone(),
            frames: vec![Frame::new(Scope::new(0, &kernel.function, None), String::new(), &kernel.function)],
            calls: 0,
            settled: settled.clone(),
            locals: IndexMap::new(),
            allocations: Vec::new(),
            addressed: Vec::new(),
            out: Vec::new(),
            divergent: None,
            ended: None,
            strayed: None,
            filled: BTreeSet::new(),
            unfilled: Vec::new(),
            loops: 0,
            branches: 0,
            round: None,
            block: 0,
            bodies: Vec::new(),
            blocks: 0,
            steps: 0,
        };
        check.reassigned_parameters()?;
        check.stmts(&kernel.function.body)?;
        if check.settled == settled {
            check.all_filled()?;
            let locals = check
                .locals
                .iter()
                .map(|(key, held)| match *held {
                    Held::Named => Local {
                        name: sequence::in_ir(key.rsplit('/').next().unwrap_or(key)),
                        dtype: settled.get(key).map_or(DType::F32, |own| own.dtype),
                        uniform: settled.get(key).is_some_and(|own| own.uniform),
                    },
                    Held::Once { dtype, uniform } => Local { name: String::new(), dtype, uniform },
                })
                .collect();
            let checked = SimtKernel {
                name: kernel.name.clone(),
                abi,
                config,
                threads,
                occupancy: hints.occupancy,
                allocations: check.allocations,
                addressed: check.addressed,
                locals,
                axes: axes(&signature),
                body: check.out,
                span: at,
            };
            return Ok(checked);
        }
        settled = check.settled;
    }
    Err(Box::new(Diagnostic::error(id::LOOP_TYPE, at, "the types of this kernel's variables don't settle")))
}

/// Array parameters with the names of their axes.
fn axes(signature: &signature::Signature) -> Vec<(String, Vec<String>)> {
    let arrays = signature.params.iter().filter_map(|(name, (bound, _))| match bound {
        Bound::Tensor(operand) => Some((name.clone(), operand.axes.iter().map(axis_name).collect())),
        Bound::Scalar(_) | Bound::Fixed(_) => None,
    });
    arrays.collect()
}

fn axis_name(axis: &Axis) -> String {
    match axis {
        Axis::Symbol(name) => name.clone(),
        Axis::Fixed(extent) => extent.to_string(),
    }
}

/// The interface of an array parameter: what the caller said about it.
fn array_kind(name: &str, args: &[(String, ArgType)], operand: &signature::Operand) -> ParamKind {
    match args.iter().find(|(given, _)| given == name) {
        Some((_, ArgType::Array { dtype, shape, strides, align, lines, index, disjoint })) => ParamKind::Array {
            dtype: *dtype,
            shape: shape.clone(),
            strides: strides.clone(),
            index: *index,
            align: *align,
            lines: *lines,
            disjoint: *disjoint,
        },
        _ => ParamKind::Operand { dtype: operand.dtype, axes: Vec::new() },
    }
}

/// Threads a block: what the caller asks for, else `BLOCK_SIZE`, else 32 for each of `num_warps`, of the configuration or of the decorator.
fn threads(config: &IndexMap<String, i64>, (options, warps): (&LowerOptions, Option<u32>), arch: Arch, at: Span) -> Res<u32> {
    let configured = tuning::threads(config).and_then(|threads| u32::try_from(threads).ok());
    let threads = options.block.or(configured).unwrap_or(warps.unwrap_or(DEFAULT_WARPS) * Arch::WARP);
    let limit = arch.limits().threads_per_block;
    if !(1..=limit).contains(&threads) {
        return Err(Box::new(
            Diagnostic::error(id::BLOCK_SIZE, at, format!("a block can't have {threads} threads"))
                .help(format!("{arch} allows 1 to {limit} threads a block")),
        ));
    }
    Ok(threads)
}
