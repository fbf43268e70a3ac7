//! Calls: of functions of the source, which are inlined, and of built-ins, one arm each.

use tessera_ir::{Diagnostic, Span};

use super::arith::{Arith, FloatMode};
use super::atomics::Update;
use super::objects::REPLACE;
use super::{Lowerer, Res};
use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, Ident};
use crate::bind::{Args, Given, bind_row};
use crate::builtins::{Builtin, EXCEPTIONS, Space};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::value::{Array, TiledView, Val};

impl Lowerer<'_> {
    /// A call as written.
    pub(crate) fn call(&mut self, function: &Expr, args: &[Arg], span: Span) -> Res<Val> {
        if let ExprKind::Attribute(base, name) = &function.kind {
            let receiver = self.expr(base)?;
            if let Val::Str(_) = receiver {
                return self.text_method(&receiver, name, args, span);
            }
            if let (Val::Num(number), [], true) = (&receiver, args, self.is_static)
                && let Some(value) = fixed::of_number(*number, &name.name, true)
            {
                return Ok(Val::Num(value));
            }
            if let Val::Dict(items) = &receiver {
                return self.dictionary_method(items, name, args, span);
            }
            let callee = self.member(&receiver, &name.name, name.span)?;
            return self.call_as_written(&callee, function, args, span);
        }
        let callee = self.expr(function)?;
        self.call_as_written(&callee, function, args, span)
    }

    /// `"...".method(...)`.
    fn text_method(&mut self, receiver: &Val, name: &Ident, args: &[Arg], span: Span) -> Res<Val> {
        let mut given = Vec::new();
        for arg in self.arguments(args)? {
            if let Some(keyword) = arg.keyword {
                return Err(Box::new(Diagnostic::error(id::CALL, keyword.span, "methods of strings take no keyword arguments")));
            }
            given.push(self.require_fixed(&(arg.value, arg.span))?);
        }
        let receiver = self.require_fixed(&(receiver.clone(), span))?;
        fixed::method(&receiver, name, &given, span).map(Val::from)
    }

    fn call_as_written(&mut self, callee: &Val, function: &Expr, args: &[Arg], span: Span) -> Res<Val> {
        if let Val::Builtin(builtin) = callee {
            match builtin {
                Builtin::TilePrint | Builtin::PyPrint => return self.print_call(args, span),
                Builtin::StaticAssert => return self.static_assert(args, span),
                Builtin::StaticEval => return self.static_eval(args, span),
                Builtin::StaticIter => {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::MISPLACED,
                            span,
                            "`static_iter` stands only where a `for` loop names what it iterates over",
                        )
                        .help("write `for i in ct.static_iter(range(4)):`"),
                    ));
                }
                Builtin::StaticException => {
                    return Err(Box::new(
                        Diagnostic::error(id::MISPLACED, span, "`static_exception` stands only after `raise`")
                            .help("write `raise ct.static_exception(ValueError(\"...\"))`"),
                    ));
                }
                _ => {
                    if let [Arg { keyword: None, value }] = args
                        && let Some(result) = self.over_generator(*builtin, value, span)?
                    {
                        return Ok(result);
                    }
                }
            }
        }
        let given = self.arguments(args)?;
        let outside = std::mem::replace(&mut self.span, span);
        let result = self.call_value(callee, given, span);
        self.span = outside;
        result.map_err(|mut error| {
            // A value that is no function is pointed at itself.
            if error.id == id::NOT_CALLABLE
                && let Some(primary) = &mut error.primary
            {
                primary.span = function.span;
            }
            error
        })
    }

    /// Evaluated arguments, with `*x` and `**x` spread.
    pub(crate) fn arguments(&mut self, args: &[Arg]) -> Res<Vec<Given>> {
        let mut given = Vec::new();
        for arg in args {
            match &arg.value.kind {
                ExprKind::Starred(inner) => {
                    let inner = self.at(inner)?;
                    let span = inner.1;
                    given.extend(self.sequence(&inner)?.into_iter().map(|value| Given { keyword: None, value, span }));
                }
                ExprKind::DoubleStarred(inner) => {
                    let (value, span) = self.at(inner)?;
                    let Val::Dict(items) = &value else {
                        return Err(Box::new(
                            Diagnostic::error(
                                id::ARGUMENT_TYPE,
                                span,
                                format!("`**` spreads a dictionary, not {}", value.describe()),
                            )
                            .help("pass on what a `**` parameter collected, or write the keywords"),
                        ));
                    };
                    for (key, value) in items.iter() {
                        let name = self.require_str(&(key.clone(), span))?.to_string();
                        given.push(Given { keyword: Some(Ident { name, span }), value: value.clone(), span });
                    }
                }
                _ => {
                    let value = self.expr(&arg.value)?;
                    given.push(Given { keyword: arg.keyword.clone(), value, span: arg.value.span });
                }
            }
        }
        Ok(given)
    }

    /// Calls a value.
    pub(crate) fn call_value(&mut self, callee: &Val, given: Vec<Given>, span: Span) -> Res<Val> {
        if let Some(path) = self.host_call(callee, &given) {
            return self.call_host(&path, given, span);
        }
        match callee {
            Val::Builtin(builtin) => {
                if let ([object], Some(special)) = (given.as_slice(), special_of(*builtin))
                    && let Some(value) = self.special(&object.value, special, &[], span)?
                {
                    return Ok(value);
                }
                let given = if takes_objects(*builtin) { given } else { plain(given) };
                let args = bind_row(builtin.row(), &given, span)?;
                self.builtin(*builtin, &args)
            }
            Val::Method(receiver, builtin) => {
                let args = bind_row(builtin.row(), &plain(given), span)?;
                self.method(receiver, *builtin, &args)
            }
            Val::Closure(closure) => self.inline(closure, &given, span),
            Val::Bound(receiver, function) => {
                let receiver = Given { keyword: None, value: Val::clone(receiver), span };
                self.call_value(function, std::iter::once(receiver).chain(given).collect(), span)
            }
            Val::SourceClass(class) => self.instantiate(class, &given, span),
            Val::Instance(class, _) if class.method("__call__").is_some() => {
                let function = self.member(callee, "__call__", span)?;
                self.call_value(&function, given, span)
            }
            Val::Module(path) if &**path == REPLACE => self.replace(&given, span),
            Val::Module(path) if &**path == "dataclasses.astuple" => match given.as_slice() {
                [Given { keyword: None, value: Val::Instance(_, items), .. }] => Ok(Val::Tuple(items.clone())),
                _ => Err(Box::new(Diagnostic::error(id::CALL, span, "`astuple` takes an object of a dataclass"))),
            },
            // `ct.float32(x)`: the number or scalar in that type.
            Val::DType(dtype) => match plain(given).as_slice() {
                // A text as Python's `float` or `int` reads it.
                [Given { keyword: None, value: Val::Str(text), span }] => {
                    let reader = if dtype.is_float() {
                        "float"
                    } else if *dtype == tessera_types::DType::B1 {
                        "bool"
                    } else {
                        "int"
                    };
                    let number = Val::from(fixed::builtin(reader, &[Fixed::Str(text.clone())], *span)?);
                    self.tile_as(&(number, *span), *dtype).map(Val::Tile)
                }
                [only] if only.keyword.is_none() => {
                    let at = (only.value.clone(), only.span);
                    if !self.shape_of(&at)?.is_empty() {
                        return Err(Box::new(
                            Diagnostic::error(id::ARGUMENT_TYPE, only.span, "a dtype converts scalars when it is called")
                                .label(format!("this is {}", only.value.describe()))
                                .help(format!("write `.astype(ct.{})`", crate::promote::dtype_name(*dtype))),
                        ));
                    }
                    self.tile_as(&at, *dtype).map(Val::Tile)
                }
                [] => self.tile_as(&(Val::int(0), span), *dtype).map(Val::Tile),
                _ => Err(Box::new(Diagnostic::error(id::CALL, span, "a dtype is called with one value"))),
            },
            Val::Class(class) if EXCEPTIONS.contains(class) => {
                let text = given.first().map_or(String::new(), |given| self.text_of(&given.value));
                Ok(Val::Exception(class, text.into()))
            }
            other => Err(Box::new(
                Diagnostic::error(id::NOT_CALLABLE, span, format!("{} can't be called in a kernel", other.describe()))
                    .label("called here")
                    .help(match other {
                        Val::Module(_) => {
                            "kernels call the functions of `cuda.tile`, of `math` on constants, and functions of this file"
                        }
                        _ => "only functions are called",
                    }),
            )),
        }
    }

    /// One arm for each function.
    fn builtin(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let span = args.call;
        let plain = FloatMode::default();
        match builtin {
            Builtin::Bid => self.bid(args),
            Builtin::NumBlocks => self.num_blocks(args),
            Builtin::NumTiles => self.num_tiles(args),
            Builtin::AssumeDivisibleBy => self.assume_divisible_by(args),
            Builtin::Load => self.load(args),
            Builtin::Store => self.store(args),
            Builtin::LoadAdvancedIndexing => self.load_advanced(args),
            Builtin::StoreAdvancedIndexing => self.store_advanced(args),
            Builtin::Gather => self.gather(args),
            Builtin::Scatter => self.scatter(args),
            Builtin::Slice => {
                let length = self.require_shape(&args.at(1))?;
                self.tile_index_scalar(&args.at(0), tessera_types::DType::I32)?;
                Ok(Val::Span(std::rc::Rc::new((args.val(0).clone(), length.first().copied().unwrap_or(1)))))
            }
            Builtin::AtomicCas => {
                self.check_effects("atomic_cas", span)?;
                let array = self.require_array(&args.at(0), "atomic_cas")?;
                let elements = self.elements(&array, &args.at(1), &args.at(4), &(Val::None, span))?;
                self.atomic_cas(&elements, &args.at(2), &args.at(3), &args.at(5), &args.at(6), span)
            }
            Builtin::AtomicXchg => self.atomic(Update::Xchg, args),
            Builtin::AtomicAdd => self.atomic(Update::Add, args),
            Builtin::AtomicMax => self.atomic(Update::Max, args),
            Builtin::AtomicMin => self.atomic(Update::Min, args),
            Builtin::AtomicAnd => self.atomic(Update::And, args),
            Builtin::AtomicOr => self.atomic(Update::Or, args),
            Builtin::AtomicXor => self.atomic(Update::Xor, args),
            Builtin::Arange => self.arange(args),
            Builtin::Full => self.full(args),
            Builtin::Zeros => self.filled(args, 0),
            Builtin::Ones => self.filled(args, 1),
            Builtin::AsTile => self.astile(args),
            Builtin::Reshape => self.reshape(&args.at(0), &args.at(1)),
            Builtin::Permute => self.permute(&args.at(0), &args.at(1)),
            Builtin::Transpose => self.transpose(&args.at(0), &args.at(1), &args.at(2)),
            Builtin::ExpandDims => self.expand_dims(args),
            Builtin::BroadcastTo => self.broadcast_to(args),
            Builtin::Cat => self.cat(args),
            Builtin::Extract => self.extract(&args.at(0), &args.at(1), &args.at(2)),
            Builtin::Insert => self.insert(&args.at(0), &args.at(1), &args.at(2)),
            Builtin::Mma => self.mma(args),
            Builtin::MmaScaled => self.mma_scaled(args),
            Builtin::MmaSparse => self.mma_sparse(args),
            Builtin::MatMul => self.matmul(&args.at(0), &args.at(1), span),
            Builtin::Sum | Builtin::Prod | Builtin::Max | Builtin::Min => self.reduce_named(builtin, args),
            Builtin::ArgMax | Builtin::ArgMin => self.arg_extreme(builtin, args),
            Builtin::Reduce => self.combine_with_function("reduction", args),
            Builtin::CumSum | Builtin::CumProd => self.scan_named(builtin, args),
            Builtin::Scan => self.combine_with_function("scan", args),
            Builtin::Add => self.rounded(Arith::Add, args),
            Builtin::Sub => self.rounded(Arith::Sub, args),
            Builtin::Mul => self.rounded(Arith::Mul, args),
            Builtin::TrueDiv => self.rounded(Arith::TrueDiv, args),
            Builtin::FloorDiv => self.arith(Arith::FloorDiv, &args.at(0), &args.at(1), plain, span),
            Builtin::Mod => self.arith(Arith::Mod, &args.at(0), &args.at(1), plain, span),
            Builtin::Pow | Builtin::PyPow => self.arith(Arith::Pow, &args.at(0), &args.at(1), plain, span),
            Builtin::CDiv => self.arith(Arith::CDiv, &args.at(0), &args.at(1), plain, span),
            Builtin::Atan2 => self.arith(Arith::Atan2, &args.at(0), &args.at(1), plain, span),
            Builtin::DivMod | Builtin::PyDivMod => self.divmod(args),
            Builtin::Minimum | Builtin::Maximum => {
                let mode = FloatMode {
                    rounding: None,
                    flush_to_zero: self.require_bool(&args.at(2))?,
                    propagate_nan: self.require_bool(&args.at(3))?,
                };
                let op = if builtin == Builtin::Minimum { Arith::Min } else { Arith::Max };
                self.arith(op, &args.at(0), &args.at(1), mode, span)
            }
            Builtin::BitAnd => self.bitwise(BinaryOp::And, &args.at(0), &args.at(1), span),
            Builtin::BitOr => self.bitwise(BinaryOp::Or, &args.at(0), &args.at(1), span),
            Builtin::BitXor => self.bitwise(BinaryOp::Xor, &args.at(0), &args.at(1), span),
            Builtin::ShiftLeft => self.shift(BinaryOp::Shl, &args.at(0), &args.at(1), span),
            Builtin::ShiftRight => self.shift(BinaryOp::Shr, &args.at(0), &args.at(1), span),
            Builtin::Equal => self.compare(CompareOp::Eq, &args.at(0), &args.at(1), span),
            Builtin::NotEqual => self.compare(CompareOp::Ne, &args.at(0), &args.at(1), span),
            Builtin::Less => self.compare(CompareOp::Lt, &args.at(0), &args.at(1), span),
            Builtin::LessEqual => self.compare(CompareOp::Le, &args.at(0), &args.at(1), span),
            Builtin::Greater => self.compare(CompareOp::Gt, &args.at(0), &args.at(1), span),
            Builtin::GreaterEqual => self.compare(CompareOp::Ge, &args.at(0), &args.at(1), span),
            Builtin::Where => self.where_(&args.at(0), &args.at(1), &args.at(2)),
            Builtin::Negative
            | Builtin::BitNot
            | Builtin::Abs
            | Builtin::PyAbs
            | Builtin::Exp
            | Builtin::Exp2
            | Builtin::Log
            | Builtin::Log2
            | Builtin::Sqrt
            | Builtin::Rsqrt
            | Builtin::Sin
            | Builtin::Cos
            | Builtin::Tan
            | Builtin::Sinh
            | Builtin::Cosh
            | Builtin::Tanh
            | Builtin::Floor
            | Builtin::Ceil
            | Builtin::IsNan => self.unary(builtin, args),
            Builtin::AsType => self.astype(&args.at(0), &args.at(1), &args.at(2)),
            Builtin::BitCast => self.bitcast(args),
            Builtin::PackToBytes => self.pack(args),
            Builtin::UnpackFromBytes => self.unpack(args),
            Builtin::EnsureConstant => self.ensure_constant(args),
            Builtin::Printf => self.printf(args),
            Builtin::Assert => self.assert(args),
            Builtin::GridWait => self.grid_wait(args),
            Builtin::GridLaunch => self.grid_launch(args),
            _ => match builtin.row().space {
                Space::Math => self.math(builtin, args),
                Space::Operator => self.operator(builtin, args),
                _ => self.python(builtin, args),
            },
        }
    }

    fn rounded(&mut self, op: Arith, args: &Args) -> Res<Val> {
        let mode = FloatMode {
            rounding: self.rounding_mode(&args.at(2))?,
            flush_to_zero: self.require_bool(&args.at(3))?,
            propagate_nan: false,
        };
        self.arith(op, &args.at(0), &args.at(1), mode, args.call)
    }

    fn divmod(&mut self, args: &Args) -> Res<Val> {
        let (a, b, plain) = (args.at(0), args.at(1), FloatMode::default());
        if matches!((&a.0, &b.0), (Val::Tile(_), _) | (_, Val::Tile(_))) && self.common_dtype(&a, &b, false)?.is_float() {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, args.call, "`divmod` takes integers")
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .help("use `//` and `%`"),
            ));
        }
        let quotient = self.arith(Arith::FloorDiv, &a, &b, plain, args.call)?;
        let rest = self.arith(Arith::Mod, &a, &b, plain, args.call)?;
        Ok(Val::tuple([quotient, rest]))
    }

    fn atomic(&mut self, update: Update, args: &Args) -> Res<Val> {
        self.check_effects("an atomic operation", args.call)?;
        let array = self.require_array(&args.at(0), "an atomic operation")?;
        let elements = self.elements(&array, &args.at(1), &args.at(3), &(Val::None, args.call))?;
        self.atomic_rmw(&elements, &args.at(2), update, &args.at(4), &args.at(5), args.call)
    }

    fn raw_atomic(&mut self, array: &Array, update: Update, args: &Args) -> Res<Val> {
        self.check_effects("an atomic operation", args.call)?;
        let elements = self.raw_elements(array, &args.at(0), &args.at(2))?;
        self.atomic_rmw(&elements, &args.at(1), update, &args.at(3), &args.at(4), args.call)
    }

    /// One arm for each method.
    fn method(&mut self, receiver: &Val, builtin: Builtin, args: &Args) -> Res<Val> {
        let span = args.call;
        match receiver {
            Val::Array(array) => match builtin {
                Builtin::ArraySlice => self.array_slice(array, args),
                Builtin::ArrayTiledView => self.tiled_view(array, args),
                _ => Ok(Val::RawMemory(array.clone())),
            },
            Val::View(view) => self.view_method(view, builtin, args),
            Val::RawMemory(array) => self.raw_method(array, builtin, args),
            _ => {
                let x = (receiver.clone(), span);
                match builtin {
                    Builtin::TileItem => self.reshape(&x, &(Val::tuple([]), span)),
                    Builtin::TileReshape => self.reshape(&x, &args.at(0)),
                    Builtin::TilePermute => self.permute(&x, &args.at(0)),
                    Builtin::TileTranspose => self.transpose(&x, &args.at(0), &args.at(1)),
                    Builtin::TileAsType => self.astype(&x, &args.at(0), &args.at(1)),
                    Builtin::TileExtract => self.extract(&x, &args.at(0), &args.at(1)),
                    _ => self.insert(&x, &args.at(0), &args.at(1)),
                }
            }
        }
    }

    fn view_method(&mut self, view: &TiledView, builtin: Builtin, args: &Args) -> Res<Val> {
        let update = match builtin {
            Builtin::ViewNumTiles => return self.view_num_tiles(view, args),
            Builtin::ViewLoad => return self.view_load(view, args),
            Builtin::ViewStore => return self.view_store(view, args),
            Builtin::ViewAtomicMax => Update::Max,
            Builtin::ViewAtomicMin => Update::Min,
            Builtin::ViewAtomicAnd => Update::And,
            Builtin::ViewAtomicOr => Update::Or,
            Builtin::ViewAtomicXor => Update::Xor,
            _ => Update::Add,
        };
        self.view_atomic(view, update, args)
    }

    fn raw_method(&mut self, array: &Array, builtin: Builtin, args: &Args) -> Res<Val> {
        let update = match builtin {
            Builtin::RawLoad => {
                self.check_effects("load_offset", args.call)?;
                let elements = self.raw_elements(array, &args.at(0), &args.at(1))?;
                return self.load_elements(&elements, &args.at(2), &args.at(3));
            }
            Builtin::RawStore => {
                self.check_effects("store_offset", args.call)?;
                let elements = self.raw_elements(array, &args.at(0), &args.at(2))?;
                return self.store_elements(&elements, &args.at(1), &args.at(3));
            }
            Builtin::RawCas => {
                self.check_effects("atomic_cas_offset", args.call)?;
                let elements = self.raw_elements(array, &args.at(0), &args.at(3))?;
                return self.atomic_cas(&elements, &args.at(1), &args.at(2), &args.at(4), &args.at(5), args.call);
            }
            Builtin::RawXchg => Update::Xchg,
            Builtin::RawMax => Update::Max,
            Builtin::RawMin => Update::Min,
            Builtin::RawAnd => Update::And,
            Builtin::RawOr => Update::Or,
            Builtin::RawXor => Update::Xor,
            _ => Update::Add,
        };
        self.raw_atomic(array, update, args)
    }
}

/// Arguments as built-ins take them: [`Val::plain`].
fn plain(given: Vec<Given>) -> Vec<Given> {
    given.into_iter().map(|given| Given { value: given.value.plain(), ..given }).collect()
}

/// Built-ins that ask what an object is, or hand it on.
fn takes_objects(builtin: Builtin) -> bool {
    matches!(
        builtin,
        Builtin::PyIsInstance
            | Builtin::PyStr
            | Builtin::PyTuple
            | Builtin::PyList
            | Builtin::PyEnumerate
            | Builtin::PyZip
            | Builtin::PyReversed
            | Builtin::EnsureConstant
            | Builtin::RevealType
            | Builtin::PyGetAttr
            | Builtin::OperatorGetItem
            | Builtin::OperatorIs
            | Builtin::OperatorIsNot
            | Builtin::OperatorNot
    )
}

/// The method of an object by which a built-in is defined for it.
fn special_of(builtin: Builtin) -> Option<&'static str> {
    match builtin {
        Builtin::PyLen => Some("__len__"),
        Builtin::PyAbs => Some("__abs__"),
        Builtin::PyBool => Some("__bool__"),
        _ => None,
    }
}
