//! Lowering of declarative kernels to Graph IR: whole operands in, whole operands out.
//!
//! A kernel's body is straight-line code over whole operands. A parameter is an operand in memory until `tile.load` makes a
//! value of it; arithmetic combines values of equal axes, scalars are repeated. `if` on a compile-time condition is decided;
//! on a run-time scalar it becomes an `if` operation whose regions hold what stands in the branches, loads included, so a
//! branch that is not taken reads nothing. Helper functions are inlined.
//!
//! The annotation of a parameter names the axes of its value. A parameter that is loaded with `transpose=True` lies in memory with
//! its last two axes the other way round; the function's interface states the order in memory.
//!
//! ```text
//! a = tile.load(A, transpose=True)          %a = graph.load %A {transpose=true} : tensor<@Mx@Kxbf16>
//! c = tile.mma(a, b, accum=fp32)            %c = graph.contract %a, %b : tensor<@Mx@Nxf32>
//! tile.store(C, alpha * c)                  graph.store %2, %C
//! ```

mod data;
mod expr;
mod functions;
mod power;
mod stmts;

use std::rc::Rc;

use indexmap::IndexMap;
use smallvec::SmallVec;
use tessera_ir::{
    AbiParam, Axis, Block, Builder, Def, Diagnostic, Extent, Func, FuncHints, Level, Module, Op, OpKind, ParamKind, ScheduleOp,
    Span, TensorType, Type, Value,
};
use tessera_types::DType;

use crate::args::{ArgType, LowerOptions};
use crate::ast::Function;
use crate::diagnostics::id;
use crate::file::{Kernel, ParsedFile};
use crate::fixed::{Fixed, evaluate};
use crate::lower::{Lowered, Res};
use crate::promote::dtype_name;
use crate::scopes::{Closure, Scope};
use crate::signature::{self, Bound, Signature, check_extents};
use crate::style::{decorator_args, decorator_path};
use crate::tuning;

/// Axes of a value.
pub(crate) type Axes = SmallVec<[Axis; 4]>;

/// Operations that one kernel may become.
const MAX_OPS: usize = 50_000;

/// A run-time value: a scalar, or a whole operand's value where it has axes.
#[derive(Clone, Debug)]
struct Data {
    value: Value,
    dtype: DType,
    axes: Option<Axes>,
}

/// What an expression is.
#[derive(Clone, Debug)]
enum Item {
    Fixed(Fixed),
    Data(Data),
    /// A parameter that lies in memory.
    Operand(String),
    /// The sizes of a parameter that lies in memory.
    Shape(String),
    /// What `tile.context()` yields; it has no use but to be named.
    Context,
    Function(Rc<Closure<Item>>),
    /// A variable that can't be used, and why.
    Missing(Rc<Missing>),
}

/// Why a variable can't be used.
#[derive(Debug)]
struct Missing {
    id: &'static str,
    message: String,
    place: Span,
    help: String,
}

/// An item with the place it was written.
type At = (Item, Span);

/// A parameter in memory.
struct Memory {
    argument: Value,
    operand: signature::Operand,
    span: Span,
    /// Whether it lies transposed, once something says so, and what says so.
    transposed: Option<(bool, Span)>,
}

/// Variables of one function, and where its names are read.
struct Frame {
    scope: Scope,
    locals: IndexMap<String, Item>,
    /// Names read in the function with the offsets where.
    reads: Vec<(String, u32)>,
}

impl Frame {
    fn new(serial: usize, function: &Function, outer: Option<usize>, locals: IndexMap<String, Item>) -> Frame {
        Frame { scope: Scope::new(serial, function, outer), locals, reads: stmts::reads(&function.body) }
    }
}

struct Walk<'f> {
    file: &'f ParsedFile,
    func: Func,
    block: Block,
    span: Span,
    params: IndexMap<String, Item>,
    memory: IndexMap<String, Memory>,
    /// Operations that yield an operand's sizes.
    sizes: Vec<(String, Op)>,
    /// Compile-time names of the configuration and of dtype variables.
    named: IndexMap<String, Fixed>,
    frames: Vec<Frame>,
    /// Calls that were walked so far.
    calls: usize,
    /// Regions of run-time branches that are open here.
    branches: u32,
}

/// Lowers a declarative kernel.
pub(crate) fn lower(file: &ParsedFile, kernel: &Kernel, args: &[(String, ArgType)], options: &LowerOptions) -> Res<Lowered> {
    let at = kernel.function.name.span;
    if let Some((what, place)) = kernel.function.unsupported {
        return Err(Box::new(Diagnostic::error(id::UNSUPPORTED, place, format!("a kernel can't use {what}"))));
    }
    let signature = signature::bind(file, kernel, args)?;
    let operand = signature.params.values().find_map(|(bound, _)| match bound {
        Bound::Tensor(operand) => Some(operand.dtype),
        _ => None,
    });
    let config = tuning::choose(file, kernel, operand.unwrap_or(DType::F32), options)?;
    let mut func = Func::new(kernel.name.clone(), Level::Graph, at);
    func.hints = hints(file, kernel)?;
    func.config = config;
    let mut walk = Walk::new(file, func, signature);
    walk.frames.push(Frame::new(0, &kernel.function, None, IndexMap::new()));
    walk.body(&kernel.function.body)?;
    walk.span = at;
    walk.emit(ScheduleOp::Return {}, &[], []);
    walk.settle_memory()?;
    let module = Module { sources: file.sources.clone(), globals: Vec::new(), funcs: vec![walk.func] };
    Ok(Lowered { module, notes: Vec::new() })
}

/// Options of `@tessera.kernel(...)`, which kernels of threads take, too.
pub(crate) fn hints(file: &ParsedFile, kernel: &Kernel) -> Res<FuncHints> {
    let mut hints = FuncHints::default();
    for decorator in &kernel.function.decorators {
        if decorator_path(file, decorator, kernel.at).as_deref() != Some("tessera.kernel") {
            continue;
        }
        for arg in decorator_args(decorator) {
            let Some(name) = &arg.keyword else {
                return Err(Box::new(
                    Diagnostic::error(id::KERNEL_OPTION, arg.value.span, "kernel options are given by keyword")
                        .help("write `@tessera.kernel(num_warps=8)`"),
                ));
            };
            let value = evaluate(file, &arg.value, kernel.at)?.as_int().and_then(|value| u32::try_from(value).ok());
            match value.filter(|value| (1..=32).contains(value)) {
                Some(value) if hints.set(&name.name, value) => {}
                Some(_) => {
                    return Err(Box::new(
                        Diagnostic::error(id::KERNEL_OPTION, name.span, format!("there is no kernel option `{}`", name.name))
                            .help("options: `occupancy`, `num_ctas`, `num_warps`, `num_stages`"),
                    ));
                }
                None => {
                    return Err(Box::new(Diagnostic::error(
                        id::KERNEL_OPTION,
                        arg.value.span,
                        format!("`{}` must be an integer from 1 to 32", name.name),
                    )));
                }
            }
        }
    }
    Ok(hints)
}

/// The order in memory of axes that a transposed load reads.
fn swap_last(axes: &mut Axes) {
    let rank = axes.len();
    if rank >= 2 {
        axes.swap(rank - 1, rank - 2);
    }
}

impl<'f> Walk<'f> {
    fn new(file: &'f ParsedFile, func: Func, signature: Signature) -> Walk<'f> {
        let (block, span) = (func.body, func.span);
        let mut named: IndexMap<String, Fixed> =
            func.config.iter().map(|(name, value)| (name.clone(), Fixed::int(i128::from(*value)))).collect();
        named.extend(signature.dtypes.iter().map(|(name, dtype)| (name.clone(), Fixed::DType(*dtype))));
        let mut walk = Walk {
            file,
            func,
            block,
            span,
            params: IndexMap::new(),
            memory: IndexMap::new(),
            sizes: Vec::new(),
            named,
            frames: Vec::new(),
            calls: 0,
            branches: 0,
        };
        for (name, (bound, span)) in signature.params {
            let item = match bound {
                Bound::Fixed(value) => Item::Fixed(value),
                Bound::Scalar(dtype) => {
                    let value = walk.func.add_arg(block, Type::scalar(dtype.signless()), Some(&name));
                    walk.func.abi.params.push(AbiParam { name: name.clone(), kind: ParamKind::Scalar { dtype } });
                    Item::Data(Data { value, dtype, axes: None })
                }
                Bound::Tensor(operand) => {
                    let argument = walk.func.add_arg(block, operand_type(&operand.axes, operand.dtype), Some(&name));
                    let kind = ParamKind::Operand { dtype: operand.dtype, axes: Vec::new() };
                    walk.func.abi.params.push(AbiParam { name: name.clone(), kind });
                    walk.memory.insert(name.clone(), Memory { argument, operand, span, transposed: None });
                    Item::Operand(name.clone())
                }
            };
            walk.params.insert(name, item);
        }
        walk
    }

    /// Gives operands their order in memory, which is known once every use was seen.
    fn settle_memory(&mut self) -> Res<()> {
        let mut lying: Vec<(String, Axes, SmallVec<[Extent; 4]>, Span)> = Vec::new();
        for (name, memory) in &self.memory {
            let mut axes = memory.operand.axes.clone();
            if memory.transposed.is_some_and(|(transposed, _)| transposed) {
                swap_last(&mut axes);
            }
            self.func.values[memory.argument].ty = operand_type(&axes, memory.operand.dtype);
            lying.push((name.clone(), axes, memory.operand.shape.clone(), memory.span));
        }
        // Sizes come in memory's order; the source counts axes as annotated.
        for (name, op) in &self.sizes {
            let results = &mut self.func.ops[*op].results;
            let rank = results.len();
            if rank >= 2 && self.memory[name.as_str()].transposed.is_some_and(|(transposed, _)| transposed) {
                results.swap(rank - 1, rank - 2);
                for (position, &value) in results.iter().enumerate() {
                    self.func.values[value].def = Def::Result(*op, position as u32);
                }
            }
        }
        check_extents(lying.iter().map(|(name, axes, shape, span)| (name.as_str(), axes.as_slice(), shape.as_slice(), *span)))?;
        for param in &mut self.func.abi.params {
            if let ParamKind::Operand { axes, .. } = &mut param.kind
                && let Some((_, order, _, _)) = lying.iter().find(|(name, ..)| *name == param.name)
            {
                *axes = order
                    .iter()
                    .map(|axis| match axis {
                        Axis::Symbol(name) => name.clone(),
                        Axis::Fixed(extent) => extent.to_string(),
                    })
                    .collect();
            }
        }
        Ok(())
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a frame exists while a function is lowered")
    }

    fn emit(&mut self, kind: impl Into<OpKind>, groups: &[&[Value]], results: impl IntoIterator<Item = Type>) -> Op {
        Builder { func: &mut self.func, block: self.block, span: self.span }.op(kind, groups, results)
    }

    /// Appends an operation with one result.
    fn data(&mut self, kind: impl Into<OpKind>, operands: &[Value], dtype: DType, axes: Option<Axes>) -> Data {
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let op = self.emit(kind, &groups, [data_type(axes.as_deref(), dtype)]);
        Data { value: self.func.ops[op].result(), dtype, axes }
    }

    /// Refuses kernels that inlining makes too large.
    fn bounded(&self, span: Span) -> Res<()> {
        if self.func.ops.len() <= MAX_OPS {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(id::TOO_LARGE, span, "the kernel becomes too large")
                .label("lowering stopped here")
                .note(format!("the limit is {MAX_OPS} operations")),
        ))
    }
}

fn operand_type(axes: &[Axis], dtype: DType) -> Type {
    Type::Operand(Box::new(TensorType { axes: SmallVec::from(axes.to_vec()), elem: dtype.signless() }))
}

fn data_type(axes: Option<&[Axis]>, dtype: DType) -> Type {
    match axes {
        None => Type::scalar(dtype.signless()),
        Some(axes) => Type::Tensor(Box::new(TensorType { axes: SmallVec::from(axes.to_vec()), elem: dtype.signless() })),
    }
}

/// Axes as a Python tuple of names.
fn show(axes: &[Axis]) -> String {
    let items: Vec<String> = axes
        .iter()
        .map(|axis| match axis {
            Axis::Symbol(name) => name.clone(),
            Axis::Fixed(extent) => extent.to_string(),
        })
        .collect();
    match items.as_slice() {
        [only] => format!("({only},)"),
        _ => format!("({})", items.join(", ")),
    }
}

impl Item {
    /// What it is, for messages.
    fn describe(&self) -> String {
        match self {
            Item::Fixed(value) => value.describe(),
            Item::Data(Data { dtype, axes: None, .. }) => format!("a scalar of {}", dtype_name(*dtype)),
            Item::Data(Data { dtype, axes: Some(axes), .. }) => format!("a {} value of {}", show(axes), dtype_name(*dtype)),
            Item::Operand(name) => format!("the operand `{name}`, which lies in memory"),
            Item::Shape(name) => format!("the sizes of `{name}`"),
            Item::Context => "a context".to_string(),
            Item::Function(closure) => format!("the function `{}`", closure.function.name.name),
            Item::Missing(_) => "a variable without a value".to_string(),
        }
    }
}
