//! Lowering of block-style kernels to Schedule IR.
//!
//! [`Lowerer`] walks the syntax tree once, evaluating expressions to [`Val`]s and appending operations to the current block.
//! The first mistake ends the walk: one mistake, one diagnostic. Fixed budgets bound recursion, unrolling and the number of
//! operations, so hostile sources end in a diagnostic too.

mod arith;
mod assign;
mod atomics;
mod call;
mod classes;
mod compare;
mod construct;
mod control;
mod convert;
mod dictionary;
mod entry;
mod expr;
mod functions;
mod gather;
mod host;
mod index;
mod launch;
mod loops;
mod matrix;
mod members;
mod memory;
pub(crate) mod names;
mod objects;
mod operand;
mod option;
mod print;
mod python;
mod reduce;
mod require;
mod shape;
mod skeleton;
mod statics;
mod stmt;
mod unary;
mod view;
mod with;

pub(crate) use arith::{Arith, FloatMode};
pub(crate) use assign::changed_list;
pub(crate) use compare::comparison;
pub(crate) use entry::truth_values;
pub(crate) use operand::encode;
pub use option::{kernel_option_takes, kernel_options};

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{
    Block, Builder, Const, Diagnostic, Elem, Func, Module, Op, OpKind, ScheduleOp, Shape, Span, TileType, Type, Value,
};
use tessera_types::DType;

use crate::args::{ArgType, LowerOptions};
use crate::ast::{Expr, Names};
use crate::builtins::Space;
use crate::diagnostics::id;
use crate::file::{Definition, Moment, ParsedFile};
use crate::fixed::Fixed;
use crate::style::Style;
use crate::value::{Binding, ScopeId, Tile, Val};

/// The result of anything that can find a mistake.
pub(crate) type Res<T> = Result<T, Box<Diagnostic>>;

/// Calls, statements and expressions nest at most this deep.
const MAX_DEPTH: u32 = 8000;
/// The same for an expression of module level that another style asks for.
const MAX_MODULE_DEPTH: u32 = 64;
/// Functions are inlined at most this deep, as by NVIDIA's front end.
const MAX_CALLS: usize = 1000;
/// Loops and branches of the kernel nest at most this deep: what comes after walks them on stacks of its own.
const MAX_REGIONS: u32 = 150;
/// Operations that one kernel may become, unlinked ones included.
const MAX_OPS: usize = 200_000;
/// Steps of evaluation that one kernel may take.
const MAX_STEPS: u64 = 4_000_000;
/// Rounds of a compile-time loop.
const MAX_UNROLL: usize = 1000;
/// Items of a compile-time tuple, those of tuples in it included.
const MAX_ITEMS: usize = 10_000;
/// Bytes of a compile-time string.
const MAX_TEXT: usize = 1 << 20;
/// Stack of the thread that lowers: enough for [`MAX_DEPTH`] with room to spare.
const STACK_BYTES: usize = 256 << 20;

/// A lowered kernel with what was noted on the way.
#[derive(Debug)]
pub struct Lowered {
    /// One function.
    pub module: Module,
    /// Notes and warnings.
    pub notes: Vec<Diagnostic>,
}

/// Lowers one kernel for the given arguments; missing arguments take their defaults.
pub fn lower(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &LowerOptions,
) -> Result<Module, Vec<Diagnostic>> {
    lower_with_notes(file, kernel, args, options).map(|lowered| lowered.module)
}

/// Like [`lower`], with the notes of the walk.
pub fn lower_with_notes(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &LowerOptions,
) -> Result<Lowered, Vec<Diagnostic>> {
    if file.has_errors() {
        return Err(file.diagnostics.iter().filter(|d| d.severity == tessera_ir::Severity::Error).cloned().collect());
    }
    on_own_stack(|| entry::kernel(file, kernel, args, options).map_err(|error| vec![*error]))
}

/// Runs a walk that recurses with the source; its own stack makes its depth independent of the caller's.
pub(crate) fn on_own_stack<T: Send>(work: impl Fn() -> T + Send + Copy) -> T {
    std::thread::scope(|scope| match std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => work(),
    })
}

/// The compile-time value of an expression of module level, for the styles that are lowered elsewhere.
pub(crate) fn constant(file: &ParsedFile, expr: &Expr, moment: Moment) -> Res<Fixed> {
    at_module_level(file, moment, |lowerer| lowerer.at(expr))
}

/// The compile-time value of a definition of module level.
pub(crate) fn global_constant(file: &ParsedFile, definition: &Definition) -> Res<Fixed> {
    let source = definition.at.source();
    let start = Span { source, start: 0, end: 0 };
    at_module_level(file, Moment::end(source), |lowerer| Ok((lowerer.definition(definition, &definition.name, start)?, start)))
}

fn at_module_level(file: &ParsedFile, moment: Moment, work: impl FnOnce(&mut Lowerer<'_>) -> Res<operand::At>) -> Res<Fixed> {
    let options = LowerOptions::default();
    let start = Span { source: file.source, start: 0, end: 0 };
    let func = Func::new("module", tessera_ir::Level::Schedule, start);
    let mut lowerer = Lowerer::new(file, &options, func, Style::Simt);
    // The caller's stack is what it is.
    lowerer.depth = MAX_DEPTH - MAX_MODULE_DEPTH;
    let (value, span) = lowerer.at_module(moment, work)?;
    match (value.fixed(), &value) {
        (Some(Fixed::Path(path)), _) => Ok(crate::fixed::of_path(&path)),
        (Some(value), _) => Ok(value),
        // `from math import sqrt`: who calls it knows the functions of `math`.
        (None, Val::Builtin(builtin)) if builtin.row().space == Space::Math => {
            Ok(Fixed::Path(format!("math.{}", builtin.row().name).into()))
        }
        (None, _) => Err(Box::new(
            Diagnostic::error(id::NOT_CONSTANT, span, "this is not known when the kernel is compiled")
                .label(format!("this is {}", value.describe()))
                .help("use numbers, strings, dtypes, tuples and arithmetic on them"),
        )),
    }
}

/// How control leaves a list of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It goes on behind them.
    Falls,
    /// It never does: every path ended in a jump or a return.
    Exits,
    /// It leaves the loop around them, which is unrolled.
    Breaks,
    /// It goes on with the next round of the loop around them, which is unrolled.
    Continues,
}

/// A loop being lowered, innermost last in its frame.
pub(crate) struct LoopContext {
    /// The block that it stands in.
    pub(crate) block: Block,
    /// Names carried, with the shape of their values.
    pub(crate) carried: Vec<(String, skeleton::Skeleton, Span)>,
    pub(crate) kind: LoopKind,
    /// What a `return` inside an inlined function's loop leaves here.
    pub(crate) returns: bool,
}

/// How rounds of a loop end.
pub(crate) enum LoopKind {
    /// A `for` operation: no `break`.
    For,
    /// A `loop` operation with a counter: the induction value and the step.
    Counted { induction: Value, step: Value },
    /// A `loop` operation without a counter.
    While,
    /// Unrolled when compiled: jumps are decided then, too.
    Unrolled,
}

/// One function being lowered: the kernel, an inlined call, a comprehension, or an expression of module level.
pub(crate) struct Frame {
    pub(crate) locals: Locals,
    /// Its variables as functions defined in it see them.
    pub(crate) scope: ScopeId,
    pub(crate) loops: Vec<LoopContext>,
    /// True for the kernel itself.
    pub(crate) is_kernel: bool,
    /// The value that an inlined function returned.
    pub(crate) returned: Option<(Val, Span)>,
    /// The shape of values returned from inside loops, once known.
    pub(crate) return_shape: Option<skeleton::Skeleton>,
}

/// Variables by name.
pub(crate) type Locals = IndexMap<String, Binding>;

/// The variables of one frame, as functions defined in it see them: those of the frame while it is there, so that a variable assigned
/// after a function's definition is seen by it, and what it left when it went.
pub(crate) struct Scope {
    pub(crate) names: Arc<Names>,
    /// The scope around it.
    pub(crate) outer: Option<ScopeId>,
    /// True when a function was defined in it.
    pub(crate) captured: bool,
    /// What a frame that is gone left to the functions defined in it.
    pub(crate) left: Option<Locals>,
}

/// The walk's state.
pub(crate) struct Lowerer<'f> {
    pub(crate) file: &'f ParsedFile,
    pub(crate) options: &'f LowerOptions,
    pub(crate) func: Func,
    pub(crate) block: Block,
    pub(crate) span: Span,
    pub(crate) frames: Vec<Frame>,
    pub(crate) scopes: Vec<Scope>,
    /// What names of module level were found to be, by the moment of their definitions.
    pub(crate) globals: IndexMap<(String, Moment), Val>,
    /// Which definitions of module level exist: all of them where a kernel runs.
    pub(crate) moment: Moment,
    /// True where the limits of cuTile hold.
    pub(crate) cutile: bool,
    /// True where `fp32` and its like are dtypes without being imported.
    pub(crate) short_dtypes: bool,
    /// What body of a reduction or scan is being lowered.
    pub(crate) combining: Option<&'static str>,
    /// True inside `static_eval` and its kin.
    pub(crate) is_static: bool,
    /// True while a compile-time message is made, which shows run-time values by their types.
    pub(crate) telling: bool,
    pub(crate) depth: u32,
    pub(crate) steps: u64,
    pub(crate) notes: Vec<Diagnostic>,
}

impl<'f> Lowerer<'f> {
    pub(crate) fn new(file: &'f ParsedFile, options: &'f LowerOptions, func: Func, style: Style) -> Lowerer<'f> {
        let (block, span) = (func.body, func.span);
        Lowerer {
            file,
            options,
            func,
            block,
            span,
            frames: Vec::new(),
            scopes: Vec::new(),
            globals: IndexMap::new(),
            moment: Moment::end(span.source),
            cutile: matches!(style, Style::Block { cutile: true }),
            short_dtypes: !matches!(style, Style::Block { .. }),
            combining: None,
            is_static: false,
            telling: false,
            depth: 0,
            steps: 0,
            notes: Vec::new(),
        }
    }

    pub(crate) fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a frame exists while a function is lowered")
    }

    /// Opens a frame inside a scope.
    pub(crate) fn enter(&mut self, names: Arc<Names>, outer: Option<ScopeId>, locals: Locals, is_kernel: bool) {
        let scope = ScopeId(self.scopes.len());
        self.scopes.push(Scope { names, outer, captured: false, left: None });
        self.frames.push(Frame { locals, scope, loops: Vec::new(), is_kernel, returned: None, return_shape: None });
    }

    /// Closes the innermost frame; functions defined in it keep the variables that they read.
    pub(crate) fn leave(&mut self) -> Option<Frame> {
        let mut frame = self.frames.pop()?;
        let at = frame.scope.0;
        if self.scopes[at].captured {
            let mut left = std::mem::take(&mut frame.locals);
            left.retain(|name, _| self.scopes[at].names.shared.contains(name));
            self.scopes[at].left = Some(left);
        } else if at + 1 == self.scopes.len() {
            self.scopes.pop();
        }
        Some(frame)
    }

    /// Runs `work` as an expression of module level at a moment.
    pub(crate) fn at_module<T>(&mut self, moment: Moment, work: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        let moment = std::mem::replace(&mut self.moment, moment);
        let is_static = std::mem::replace(&mut self.is_static, true);
        self.enter(Arc::default(), None, Locals::new(), false);
        let result = work(self);
        self.leave();
        (self.moment, self.is_static) = (moment, is_static);
        result
    }

    /// Runs `work` one level deeper.
    pub(crate) fn deeper<T>(&mut self, span: Span, work: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        self.steps += 1;
        if self.depth >= MAX_DEPTH {
            return Err(Box::new(
                Diagnostic::error(id::TOO_DEEP, span, "the kernel nests too deeply")
                    .label(format!("the limit of {MAX_DEPTH} nested expressions and calls is passed here")),
            ));
        }
        if self.steps > MAX_STEPS || self.func.ops.len() > MAX_OPS {
            return Err(Box::new(
                Diagnostic::error(id::TOO_LARGE, span, "the kernel becomes too large")
                    .label("lowering stopped here")
                    .note(format!("the limit is {MAX_OPS} operations"))
                    .help("use a run-time loop instead of unrolling"),
            ));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Appends an operation to the current block.
    pub(crate) fn emit(&mut self, kind: ScheduleOp, groups: &[&[Value]], results: impl IntoIterator<Item = Type>) -> Op {
        self.emit_with_regions(kind, groups, results, [])
    }

    /// Appends an operation with regions.
    pub(crate) fn emit_with_regions(
        &mut self,
        kind: ScheduleOp,
        groups: &[&[Value]],
        results: impl IntoIterator<Item = Type>,
        regions: impl IntoIterator<Item = Block>,
    ) -> Op {
        let mut builder = Builder { func: &mut self.func, block: self.block, span: self.span };
        builder.op_with_regions(OpKind::Schedule(kind), groups, results, regions)
    }

    /// Appends an operation with one result.
    pub(crate) fn emit_value(&mut self, kind: ScheduleOp, groups: &[&[Value]], ty: Type) -> Value {
        let op = self.emit(kind, groups, [ty]);
        self.func.ops[op].result()
    }

    /// Appends an operation and yields the tile that it computes.
    pub(crate) fn emit_tile(&mut self, kind: ScheduleOp, operands: &[Value], dtype: DType, shape: Shape) -> Tile {
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let value = self.emit_value(kind, &groups, tile_type(dtype, &shape));
        Tile { value, dtype, shape, known: None }
    }

    /// A constant with the given bits.
    pub(crate) fn emit_constant(&mut self, value: Const, dtype: DType, shape: Shape) -> Value {
        self.emit_value(ScheduleOp::Constant { value }, &[], tile_type(dtype, &shape))
    }

    /// Runs `work` with operations going to another block.
    pub(crate) fn within<T>(&mut self, block: Block, work: impl FnOnce(&mut Self) -> T) -> T {
        let outside = std::mem::replace(&mut self.block, block);
        let result = work(self);
        self.block = outside;
        result
    }

    /// Gives a value its name in the source, if it has none.
    pub(crate) fn name_value(&mut self, value: Value, name: &str) {
        let slot = &mut self.func.values[value].name;
        if slot.is_none() && !name.starts_with('$') {
            *slot = Some(name.to_string());
        }
    }
}

/// The IR's type of a tile: integers lose their sign.
pub(crate) fn tile_type(dtype: DType, shape: &[u32]) -> Type {
    Type::Tile(TileType { shape: Shape::from_slice(shape), elem: Elem::signless(dtype) })
}

/// How the IR's operations read the integers of a type.
pub(crate) fn signedness(dtype: DType) -> tessera_ir::attrs::Signedness {
    if dtype.is_signed() { tessera_ir::attrs::Signedness::Signed } else { tessera_ir::attrs::Signedness::Unsigned }
}
