//! The way in: a kernel's parameters become function arguments or compile-time values, its decorator becomes hints.

use smallvec::SmallVec;
use tessera_ir::attrs::Assumption;
use tessera_ir::{
    AbiParam, Diagnostic, Extent, Func, IndexType, Level, Module, ParamKind, ScheduleOp, Shape, Span, Stated, TensorViewType,
    Type, item_name,
};

use super::{Flow, Locals, Lowered, Lowerer, MAX_REGIONS, Res, tile_type};
use crate::annotation::{Annotation, ConstKind};
use crate::args::{ArgType, ConstValue, LowerOptions};
use crate::ast::Passing;
use crate::diagnostics::id;
use crate::file::{Definition, Global, Kernel, Moment, Param, ParsedFile};
use crate::number::Num;
use crate::style::Style;
use crate::value::{Array, Binding, Dim, List, Tile, Val};

/// Lowers a kernel; see [`super::lower`].
pub(crate) fn kernel(file: &ParsedFile, name: &str, args: &[(String, ArgType)], options: &LowerOptions) -> Res<Lowered> {
    let start = Span { source: file.source, start: 0, end: 0 };
    let Some(kernel) = file.kernels.get(name) else {
        let moment = Moment::end(file.source);
        if let Some(definition) = file.global(name, moment) {
            return Err(no_kernel(file, name, definition));
        }
        let names: Vec<String> = file.kernels.keys().map(|name| format!("`{name}`")).collect();
        let help = if names.is_empty() {
            "a kernel is a function with the decorator `@ct.kernel`".to_string()
        } else {
            format!("the file has {}", names.join(", "))
        };
        return Err(Box::new(Diagnostic::error(id::NO_KERNEL, start, format!("there is no kernel `{name}`")).help(help)));
    };
    let at = kernel.function.name.span;
    if let Some(param) = kernel.function.params.iter().find(|param| param.passing == Passing::Keywords) {
        return Err(Box::new(Diagnostic::error(id::UNSUPPORTED, param.name.span, "a kernel can't use `**` parameters")));
    }
    match kernel.style {
        Style::Block { .. } => {}
        Style::Declarative => return crate::declarative::lower(file, kernel, args, options),
        Style::Simt => return crate::simt::lower(file, kernel, args, options),
    }
    if let Some((what, place)) = kernel.function.unsupported {
        return Err(Box::new(Diagnostic::error(id::UNSUPPORTED, place, format!("a kernel can't use {what}"))));
    }
    let func = Func::new(name, Level::Schedule, at);
    let mut lowerer = Lowerer::new(file, options, func, kernel.style);
    lowerer.enter(kernel.function.names.clone(), None, Locals::new(), true);
    lowerer.hints(kernel)?;
    lowerer.bind_parameters(kernel, args)?;
    let function = kernel.function.clone();
    let flow = lowerer.stmts(&function.body)?;
    if flow == Flow::Falls {
        lowerer.span = at;
        lowerer.emit(ScheduleOp::Return {}, &[], []);
    }
    check_nesting(&lowerer.func)?;
    let module = Module { sources: file.sources.clone(), globals: Vec::new(), funcs: vec![lowerer.func] };
    Ok(Lowered { module, notes: lowerer.notes })
}

/// Refuses loops and branches that nest too deeply, as those of functions do that call themselves under a run-time condition.
fn check_nesting(func: &Func) -> Res<()> {
    let mut blocks = vec![(func.body, 0)];
    while let Some((block, depth)) = blocks.pop() {
        for &op in &func.blocks[block].ops {
            let regions = &func.ops[op].regions;
            if depth >= MAX_REGIONS && !regions.is_empty() {
                return Err(Box::new(
                    Diagnostic::error(id::TOO_DEEP, func.ops[op].span, "loops and branches nest too deeply")
                        .label(format!("there are {MAX_REGIONS} around this one, those of called functions included")),
                ));
            }
            blocks.extend(regions.iter().map(|&region| (region, depth + 1)));
        }
    }
    Ok(())
}

/// What a name stands for that is asked for as a kernel.
fn no_kernel(file: &ParsedFile, name: &str, definition: &Definition) -> Box<Diagnostic> {
    let error = |place: Span| Diagnostic::error(id::NO_KERNEL, place, format!("`{name}` is no kernel"));
    Box::new(match &definition.what {
        Global::Function(function) => error(function.name.span)
            .label("this is a function without a kernel's decorator")
            .help("write `@ct.kernel` (of `cuda.tile`) or `@tessera.kernel` before it"),
        Global::Class(class) | Global::Plain(class) => {
            error(class.name.span).label("this is a class").help("name a function with a kernel's decorator")
        }
        Global::Value(value, _) => error(value.span).label("this is a value").help("name a function with a kernel's decorator"),
        Global::Unknown(what, place) => {
            error(*place).label(format!("{what} binds it")).help("name a function with a kernel's decorator")
        }
        Global::Import(target, import) => return file.lost(target, *import, *import),
    })
}

impl Lowerer<'_> {
    /// An option, with `ct.ByTarget(...)` resolved for the target.
    pub(super) fn option_value(&mut self, expr: &crate::ast::Expr) -> Res<Val> {
        if let crate::ast::ExprKind::Call(function, args) = &expr.kind
            && matches!(self.file.path_of(function).as_deref(), Some("cuda.tile.ByTarget" | "tessera.tile.ByTarget"))
        {
            let find =
                |key: Option<&str>| args.iter().find(|arg| arg.keyword.as_ref().map(|k| k.name.as_str()) == key && key.is_some());
            // `sm_90` stands for `sm_90a`, too.
            let target = self.options.target.as_deref();
            let family = target.map(|name| name.trim_end_matches(['a', 'f']));
            return match find(target).or_else(|| find(family)).or_else(|| find(Some("default"))) {
                Some(arg) => self.expr(&arg.value),
                None => Ok(Val::None),
            };
        }
        self.expr(expr)
    }

    fn bind_parameters(&mut self, kernel: &Kernel, args: &[(String, ArgType)]) -> Res<()> {
        if let Some((name, _)) = args.iter().find(|(name, _)| !kernel.params.iter().any(|param| param.name == *name)) {
            let names: Vec<String> = kernel.params.iter().map(|param| format!("`{}`", param.name)).collect();
            return Err(Box::new(
                Diagnostic::error(
                    id::UNKNOWN_ARGUMENT,
                    kernel.function.name.span,
                    format!("`{}` has no parameter `{name}`", kernel.name),
                )
                .label("this kernel")
                .help(if names.is_empty() {
                    "it takes no arguments".to_string()
                } else {
                    format!("its parameters: {}", names.join(", "))
                }),
            ));
        }
        let function = kernel.function.clone();
        for (param, declared) in kernel.params.iter().zip(&function.params) {
            self.span = param.span;
            let given = args.iter().find(|(name, _)| *name == param.name).map(|(_, arg)| arg);
            let value = match (given, &declared.default) {
                (Some(arg), _) => self.argument(param, &param.name, arg)?,
                (None, Some(default)) => self.at_module(kernel.at, |lowerer| lowerer.expr(default))?,
                (None, None) => {
                    return Err(Box::new(
                        Diagnostic::error(id::MISSING_ARGUMENT, param.span, format!("the argument `{}` is missing", param.name))
                            .label("this parameter has no default")
                            .help(match param.annotation {
                                Annotation::Constant(_) => format!("give it a value, such as `{}=64`", param.name),
                                _ => "give every parameter an argument".to_string(),
                            }),
                    ));
                }
            };
            self.frame().locals.insert(param.name.clone(), Binding { value, span: param.span });
        }
        Ok(())
    }

    /// The value of a parameter, or of an item of its tuple by that name, inside the kernel, with the function arguments that it needs.
    fn argument(&mut self, param: &Param, name: &str, arg: &ArgType) -> Res<Val> {
        let refuse = |wanted: &str, found: &str| {
            Err(Box::new(
                Diagnostic::error(id::ARGUMENT_KIND, param.span, format!("`{}` takes {wanted}, not {found}", param.name))
                    .label("as its annotation says"),
            ))
        };
        match (&param.annotation, arg) {
            (Annotation::Constant(kind), ArgType::Const(value)) => of_kind(param, *kind, value)?,
            (Annotation::Constant(_), _) => return refuse("a value known when the kernel is compiled", describe(arg)),
            // A parameter of any kind may be left out.
            (Annotation::Plain(_), ArgType::Const(ConstValue::None)) => {}
            (Annotation::Plain(kind), ArgType::Const(value)) => of_kind(param, *kind, value)?,
            _ => {}
        }
        // A dot in a value's name is the text form's own.
        let label = name.replace('.', "_");
        match arg {
            ArgType::Stated { of, most, like } => {
                let value = self.argument(param, name, of)?;
                let stated = &mut self.func.abi.stated;
                stated.extend(most.map(|most| Stated::AtMost { param: name.to_owned(), most }));
                stated.extend(like.clone().map(|other| Stated::Alike { array: name.to_owned(), other }));
                Ok(value)
            }
            ArgType::Const(value) => Ok(const_value(value)),
            ArgType::Tuple(items) => {
                match param.annotation {
                    Annotation::Array { .. } => return refuse("an array", describe(arg)),
                    Annotation::List { .. } => return refuse("a list of arrays", describe(arg)),
                    Annotation::Scalar(_) => return refuse("a scalar", describe(arg)),
                    _ => {}
                }
                let items = items.iter().enumerate();
                let items = items.map(|(position, item)| self.argument(param, &item_name(name, position), item));
                Ok(Val::tuple(items.collect::<Res<Vec<_>>>()?))
            }
            ArgType::Scalar(dtype) => {
                let dtype = match param.annotation {
                    Annotation::Scalar(wide) if dtype.is_integer() => wide,
                    Annotation::Array { .. } | Annotation::List { .. } => return refuse("an array", describe(arg)),
                    _ => *dtype,
                };
                let value = self.func.add_arg(self.func.body, tile_type(dtype, &[]), Some(&label));
                self.func.abi.params.push(AbiParam { name: name.to_owned(), kind: ParamKind::Scalar { dtype } });
                Ok(Val::Tile(Tile { value, dtype, shape: Shape::new(), known: None }))
            }
            ArgType::List { dtype, rank, index } => {
                let index = widest(*index, param.index_type());
                let body = self.func.body;
                let table = self.func.add_arg(body, Type::pointers(Shape::new(), tessera_types::DType::I64), Some(&label));
                let length = self.func.add_arg(body, tile_type(index.dtype(), &[]), Some(&format!("{label}_len")));
                let kind = ParamKind::List { dtype: *dtype, rank: *rank, index };
                self.func.abi.params.push(AbiParam { name: name.to_owned(), kind });
                Ok(Val::List(std::rc::Rc::new(List { dtype: *dtype, rank: *rank, index, table, length })))
            }
            ArgType::Array { dtype, shape, strides, align, lines, index, disjoint } => {
                if matches!(param.annotation, Annotation::Scalar(_)) {
                    return refuse("a scalar", describe(arg));
                }
                let index = widest(*index, param.index_type());
                let body = self.func.body;
                let mut base = self.func.add_arg(body, Type::pointers(Shape::new(), dtype.signless()), Some(&label));
                let mut dims = |extents: &[Extent], letter: char| -> Vec<Dim> {
                    extents
                        .iter()
                        .enumerate()
                        .map(|(i, &extent)| Dim {
                            extent,
                            value: self.func.add_arg(body, tile_type(index.dtype(), &[]), Some(&format!("{label}_{letter}{i}"))),
                        })
                        .collect()
                };
                let sizes = dims(shape, 'n');
                let steps = dims(strides, 's');
                self.func.abi.params.push(AbiParam {
                    name: name.to_owned(),
                    kind: ParamKind::Array {
                        dtype: *dtype,
                        shape: shape.clone(),
                        strides: strides.clone(),
                        index,
                        align: *align,
                        lines: *lines,
                        disjoint: *disjoint,
                    },
                });
                if *align > 1 {
                    let ty = self.func.ty(base).clone();
                    base = self.emit_value(
                        ScheduleOp::Assume { predicate: Assumption::DivisibleBy((*align).into()) },
                        &[&[base]],
                        ty,
                    );
                }
                let array = self.make_array(*dtype, base, sizes, steps, index);
                Ok(Val::Array(std::rc::Rc::new(array)))
            }
        }
    }

    /// An array over memory, with its tensor view.
    pub(crate) fn make_array(
        &mut self,
        dtype: tessera_types::DType,
        base: tessera_ir::Value,
        shape: Vec<Dim>,
        strides: Vec<Dim>,
        index: IndexType,
    ) -> Array {
        let extents = |dims: &[Dim]| dims.iter().map(|dim| dim.extent).collect::<SmallVec<[Extent; 4]>>();
        let open =
            |dims: &[Dim]| dims.iter().filter(|dim| dim.extent == Extent::Dynamic).map(|dim| dim.value).collect::<Vec<_>>();
        let tensor_ty = TensorViewType { elem: dtype.signless(), shape: extents(&shape), strides: extents(&strides) };
        let tensor = self.emit_value(
            ScheduleOp::MakeTensorView {},
            &[&[base], &open(&shape), &open(&strides)],
            Type::TensorView(Box::new(tensor_ty.clone())),
        );
        Array { dtype, base, shape, strides, index, tensor, tensor_ty }
    }
}

/// Refuses a constant of another kind than a parameter's annotation names.
fn of_kind(param: &Param, kind: ConstKind, value: &ConstValue) -> Res<()> {
    let fits = match (kind, value) {
        (ConstKind::Any, _)
        | (ConstKind::Int | ConstKind::Bool, ConstValue::Int(_) | ConstValue::Bool(_))
        | (ConstKind::Float, ConstValue::Float(_) | ConstValue::Int(_))
        | (ConstKind::Str, ConstValue::Str(_)) => true,
        (ConstKind::Int | ConstKind::Float | ConstKind::Bool | ConstKind::Str, _) => false,
    };
    if fits {
        return Ok(());
    }
    let wanted = match kind {
        ConstKind::Int => "a constant integer",
        ConstKind::Float => "a constant float",
        ConstKind::Bool => "a constant truth value",
        ConstKind::Str | ConstKind::Any => "a constant string",
    };
    let found = const_value(value).describe();
    let message = format!("`{}` takes {wanted}, not {found}", param.name);
    let refusal = Diagnostic::error(id::ARGUMENT_KIND, param.span, message).label("as its annotation says");
    Err(Box::new(if kind == ConstKind::Bool { refusal.help(truth_values(&param.name)) } else { refusal }))
}

/// How a truth value is given.
pub(crate) fn truth_values(name: &str) -> String {
    format!("write `{name}=True` or `{name}=False`")
}

fn widest(a: IndexType, b: IndexType) -> IndexType {
    if a == IndexType::I64 || b == IndexType::I64 { IndexType::I64 } else { IndexType::I32 }
}

fn describe(arg: &ArgType) -> &'static str {
    match arg {
        ArgType::Array { .. } => "an array",
        ArgType::List { .. } => "a list",
        ArgType::Tuple(_) => "a tuple",
        ArgType::Scalar(_) => "a run-time scalar",
        ArgType::Const(_) => "a constant",
        ArgType::Stated { of, .. } => describe(of),
    }
}

/// The value of a compile-time argument.
pub(crate) fn const_value(value: &ConstValue) -> Val {
    match value {
        ConstValue::None => Val::None,
        ConstValue::Bool(value) => Val::bool(*value),
        ConstValue::Int(value) => Val::int(*value),
        ConstValue::Float(value) => Val::Num(Num::Float(*value)),
        ConstValue::Str(text) => Val::str(text),
        ConstValue::DType(dtype) => Val::DType(*dtype),
        ConstValue::Tuple(items) => Val::tuple(items.iter().map(const_value)),
    }
}
