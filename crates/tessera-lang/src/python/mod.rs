//! Python source to our syntax tree: the only folder that sees the parser crate.
//!
//! Hostile input is stopped before it reaches the recursive parser: [`crate::nesting`] bounds how deep a text can nest.

mod names;

use std::cell::RefCell;
use std::sync::Arc;

use indexmap::IndexMap;
use ruff_python_ast as py;
use ruff_text_size::{Ranged, TextRange};
use tessera_ir::{Diagnostic, SourceId, Span};

use crate::ast::{
    Arg, BinaryOp, BoolOp, Class, Clause, CompareOp, Expr, ExprKind, FPart, Function, Ident, Import, Parameter, Passing, Stmt,
    StmtKind, UnaryOp,
};
use crate::diagnostics::id;
use crate::nesting;

/// A module's text as a tree.
pub(crate) struct Module {
    /// Its statements, each with the names that it may bind.
    pub(crate) stmts: Vec<(Stmt, Vec<String>)>,
    /// The names that functions of the module declare `global`, and so may change.
    pub(crate) changed: IndexMap<String, Span>,
}

/// A module's statements, or the first syntax error.
pub(crate) fn parse(source: SourceId, text: &str) -> Result<Module, Box<Diagnostic>> {
    nesting::check(source, text)?;
    let converter = Converter { source, loops: RefCell::default() };
    let module = ruff_python_parser::parse_module(text).map_err(|error| {
        let mut span = converter.span(error.location);
        if span.start == span.end {
            span.end = (span.end + 1).min(text.len() as u32).max(span.start);
        }
        let message = format!("invalid syntax: {}", decapitalise(&error.error.to_string()));
        Box::new(
            Diagnostic::error(id::SYNTAX, span, message)
                .label("the parser stopped here")
                .help("kernel files are written in the syntax of Python 3.12"),
        )
    })?;
    let body = module.into_syntax().body;
    let with_names = |stmt: &py::Stmt| {
        let binds = names::bound(stmt);
        converter
            .stmts(std::slice::from_ref(stmt))
            .into_iter()
            .map(move |converted| (converted, binds.clone()))
            .collect::<Vec<_>>()
    };
    let changed = names::globals(&body).into_iter().map(|(name, range)| (name, converter.span(range))).collect();
    Ok(Module { stmts: body.iter().flat_map(always).flat_map(with_names).collect(), changed })
}

/// What a statement of a module comes to: below `if True:`, its body. Texts of definitions that stand indented in their file begin so.
fn always(stmt: &py::Stmt) -> &[py::Stmt] {
    match stmt {
        py::Stmt::If(s) if matches!(&*s.test, py::Expr::BooleanLiteral(test) if test.value) => &s.body,
        _ => std::slice::from_ref(stmt),
    }
}

fn decapitalise(message: &str) -> String {
    let mut chars = message.chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(|c: char| c.is_uppercase()) => {
            first.to_lowercase().chain(chars).collect::<String>().trim_end_matches('.').to_string()
        }
        _ => message.trim_end_matches('.').to_string(),
    }
}

struct Converter {
    source: SourceId,
    /// For each loop around this place, innermost last, the variable that says whether it was left by `break`, if that matters.
    loops: RefCell<Vec<Option<String>>>,
}

/// The variable that says whether the loop at a place was left by `break`; no name of Python starts like this.
fn broke(loop_: &impl Ranged) -> String {
    format!("$broke{}", loop_.start().to_u32())
}

impl Converter {
    fn span(&self, range: TextRange) -> Span {
        Span { source: self.source, start: range.start().into(), end: range.end().into() }
    }

    fn ident(&self, ident: &py::Identifier) -> Ident {
        Ident { name: ident.id.to_string(), span: self.span(ident.range()) }
    }

    fn stmts(&self, stmts: &[py::Stmt]) -> Vec<Stmt> {
        let mut list = Vec::new();
        for stmt in stmts {
            match stmt {
                py::Stmt::For(py::StmtFor { body, orelse, .. }) | py::Stmt::While(py::StmtWhile { body, orelse, .. }) => {
                    self.loop_with_else(stmt, body, orelse, &mut list);
                }
                py::Stmt::Break(_) => {
                    let left = self.loops.borrow().last().cloned().flatten();
                    list.extend(left.map(|name| self.flag(&name, true, self.span(stmt.range()))));
                    list.push(self.stmt(stmt));
                }
                _ => list.push(self.stmt(stmt)),
            }
        }
        list
    }

    /// A loop, and behind it what runs unless a `break` left it.
    fn loop_with_else(&self, stmt: &py::Stmt, body: &[py::Stmt], orelse: &[py::Stmt], list: &mut Vec<Stmt>) {
        let span = self.span(stmt.range());
        let name = (!orelse.is_empty() && names::breaks(body)).then(|| broke(stmt));
        list.extend(name.iter().map(|name| self.flag(name, false, span)));
        self.loops.borrow_mut().push(name.clone());
        list.push(self.stmt(stmt));
        self.loops.borrow_mut().pop();
        let orelse = self.stmts(orelse);
        match name {
            None => list.extend(orelse),
            Some(name) => {
                let test = Expr { kind: ExprKind::Name(name), span };
                list.push(Stmt { kind: StmtKind::If { test, body: Vec::new(), orelse }, span });
            }
        }
    }

    /// `name = value`, for a variable of ours.
    fn flag(&self, name: &str, value: bool, span: Span) -> Stmt {
        let target = Expr { kind: ExprKind::Name(name.to_string()), span };
        Stmt { kind: StmtKind::Assign(vec![target], Expr { kind: ExprKind::Bool(value), span }), span }
    }

    fn stmt(&self, stmt: &py::Stmt) -> Stmt {
        let kind = match stmt {
            py::Stmt::Assign(s) => StmtKind::Assign(self.exprs(&s.targets), self.expr(&s.value)),
            py::Stmt::AugAssign(s) => StmtKind::AugAssign(self.expr(&s.target), binary(s.op), self.expr(&s.value)),
            py::Stmt::AnnAssign(s) => {
                StmtKind::AnnAssign(self.expr(&s.target), self.expr(&s.annotation), s.value.as_ref().map(|v| self.expr(v)))
            }
            py::Stmt::Expr(s) => StmtKind::Expr(self.expr(&s.value)),
            py::Stmt::For(s) if s.is_async => StmtKind::Unsupported("`async for`"),
            py::Stmt::For(s) => {
                StmtKind::For { target: self.expr(&s.target), iterable: self.expr(&s.iter), body: self.stmts(&s.body) }
            }
            py::Stmt::While(s) => StmtKind::While { test: self.expr(&s.test), body: self.stmts(&s.body) },
            py::Stmt::If(s) => self.conditional(&s.test, &s.body, &s.elif_else_clauses),
            py::Stmt::Break(_) => StmtKind::Break,
            py::Stmt::Continue(_) => StmtKind::Continue,
            py::Stmt::Return(s) => StmtKind::Return(s.value.as_ref().map(|v| self.expr(v))),
            py::Stmt::Pass(_) => StmtKind::Pass,
            py::Stmt::Raise(s) => StmtKind::Raise(s.exc.as_ref().map(|v| self.expr(v))),
            py::Stmt::Assert(s) => StmtKind::Assert(self.expr(&s.test), s.msg.as_ref().map(|v| self.expr(v))),
            py::Stmt::FunctionDef(s) => StmtKind::Function(Arc::new(self.function(s))),
            py::Stmt::Import(_) | py::Stmt::ImportFrom(_) => StmtKind::Import(self.imports(stmt)),
            py::Stmt::ClassDef(s) => StmtKind::Class(Arc::new(self.class(s))),
            py::Stmt::Delete(_) => StmtKind::Unsupported("`del`"),
            py::Stmt::TypeAlias(_) => StmtKind::Unsupported("`type`"),
            py::Stmt::With(s) if s.is_async => StmtKind::Unsupported("`async with`"),
            py::Stmt::With(s) => {
                let item = |item: &py::WithItem| {
                    (self.expr(&item.context_expr), item.optional_vars.as_ref().map(|target| self.expr(target)))
                };
                StmtKind::With { items: s.items.iter().map(item).collect(), body: self.stmts(&s.body) }
            }
            py::Stmt::Match(_) => StmtKind::Unsupported("`match`"),
            // What is imported if it is there, and done without if it is not.
            py::Stmt::Try(s) if s.body.iter().all(|stmt| matches!(stmt, py::Stmt::Import(_) | py::Stmt::ImportFrom(_))) => {
                StmtKind::Import(s.body.iter().flat_map(|stmt| self.imports(stmt)).collect())
            }
            py::Stmt::Try(_) => StmtKind::Unsupported("`try`"),
            py::Stmt::Global(_) => StmtKind::Unsupported("`global`"),
            py::Stmt::Nonlocal(_) => StmtKind::Unsupported("`nonlocal`"),
            py::Stmt::IpyEscapeCommand(_) => StmtKind::Unsupported("a shell escape"),
        };
        Stmt { kind, span: self.span(stmt.range()) }
    }

    /// The names that an import statement binds; none for other statements.
    fn imports(&self, stmt: &py::Stmt) -> Vec<Import> {
        match stmt {
            py::Stmt::Import(s) => {
                let import = |alias: &py::Alias| {
                    let module = alias.name.id.to_string();
                    let top = module.split('.').next().unwrap_or_default().to_string();
                    let name = alias.asname.as_ref().map_or(top, |name| name.id.to_string());
                    Import {
                        name,
                        level: 0,
                        module,
                        member: None,
                        binds_top: alias.asname.is_none(),
                        span: self.span(alias.range()),
                    }
                };
                s.names.iter().map(import).collect()
            }
            py::Stmt::ImportFrom(s) => {
                let import = |alias: &py::Alias| Import {
                    name: alias.asname.as_ref().unwrap_or(&alias.name).id.to_string(),
                    level: s.level,
                    module: s.module.as_ref().map_or(String::new(), |module| module.id.to_string()),
                    member: Some(alias.name.id.to_string()),
                    binds_top: false,
                    span: self.span(alias.range()),
                };
                s.names.iter().map(import).collect()
            }
            _ => Vec::new(),
        }
    }

    /// `elif` and `else` become nested `if`s, built from the last clause back so that long chains don't recurse.
    fn conditional(&self, test: &py::Expr, body: &[py::Stmt], clauses: &[py::ElifElseClause]) -> StmtKind {
        let mut orelse: Vec<Stmt> = Vec::new();
        for clause in clauses.iter().rev() {
            let body = self.stmts(&clause.body);
            orelse = match &clause.test {
                None => body,
                Some(test) => {
                    vec![Stmt { kind: StmtKind::If { test: self.expr(test), body, orelse }, span: self.span(clause.range()) }]
                }
            };
        }
        StmtKind::If { test: self.expr(test), body: self.stmts(body), orelse }
    }

    fn class(&self, s: &py::StmtClassDef) -> Class {
        let arguments = s.arguments.as_deref();
        Class {
            name: self.ident(&s.name),
            decorators: s.decorator_list.iter().map(|d| self.expr(&d.expression)).collect(),
            bases: arguments.map_or(Vec::new(), |arguments| self.arguments(arguments)),
            body: self.stmts(&s.body),
            span: self.span(s.range()),
        }
    }

    fn function(&self, s: &py::StmtFunctionDef) -> Function {
        let span = self.span(s.range());
        let scope = names::Scope::of(&s.parameters, &s.body);
        let declared = scope.declared.map(|(what, range)| (what, self.span(range)));
        // A `break` in the function leaves no loop around it.
        let around = std::mem::take(&mut *self.loops.borrow_mut());
        let body = self.stmts(&s.body);
        *self.loops.borrow_mut() = around;
        Function {
            name: self.ident(&s.name),
            decorators: s.decorator_list.iter().map(|d| self.expr(&d.expression)).collect(),
            params: self.params(&s.parameters),
            unsupported: if s.is_async { Some(("`async def`", self.span(s.name.range()))) } else { declared },
            names: Arc::new(scope.names()),
            body,
            span,
        }
    }

    fn params(&self, params: &py::Parameters) -> Vec<Parameter> {
        let mut list = Vec::new();
        let named = |param: &py::ParameterWithDefault, passing| Parameter {
            name: self.ident(&param.parameter.name),
            passing,
            annotation: param.parameter.annotation.as_ref().map(|a| self.expr(a)),
            default: param.default.as_ref().map(|d| self.expr(d)),
        };
        list.extend(params.posonlyargs.iter().map(|p| named(p, Passing::Positional)));
        list.extend(params.args.iter().map(|p| named(p, Passing::Either)));
        list.extend(params.vararg.iter().map(|p| Parameter {
            name: self.ident(&p.name),
            passing: Passing::Variadic,
            annotation: None,
            default: None,
        }));
        list.extend(params.kwonlyargs.iter().map(|p| named(p, Passing::Keyword)));
        list.extend(params.kwarg.iter().map(|p| Parameter {
            name: self.ident(&p.name),
            passing: Passing::Keywords,
            annotation: None,
            default: None,
        }));
        list
    }

    fn exprs(&self, exprs: &[py::Expr]) -> Vec<Expr> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&self, expr: &py::Expr) -> Box<Expr> {
        Box::new(self.expr(expr))
    }

    fn expr(&self, expr: &py::Expr) -> Expr {
        let span = self.span(expr.range());
        let kind = match expr {
            py::Expr::Name(e) => ExprKind::Name(e.id.to_string()),
            py::Expr::NumberLiteral(e) => match &e.value {
                py::Number::Int(value) => match integer(value) {
                    Some(value) => ExprKind::Int(value),
                    None => ExprKind::Unsupported("an integer of more than 127 bits"),
                },
                py::Number::Float(value) => ExprKind::Float(*value),
                py::Number::Complex { .. } => ExprKind::Unsupported("a complex number"),
            },
            py::Expr::BooleanLiteral(e) => ExprKind::Bool(e.value),
            py::Expr::StringLiteral(e) => ExprKind::Str(e.value.to_str().to_string()),
            py::Expr::FString(e) => ExprKind::FString(self.fstring(&e.value)),
            py::Expr::NoneLiteral(_) => ExprKind::None,
            py::Expr::EllipsisLiteral(_) => ExprKind::Ellipsis,
            py::Expr::Tuple(e) => ExprKind::Tuple(self.exprs(&e.elts)),
            py::Expr::List(e) => ExprKind::List(self.exprs(&e.elts)),
            py::Expr::Starred(e) => ExprKind::Starred(self.boxed(&e.value)),
            py::Expr::Dict(e) => {
                let items: Option<Vec<_>> =
                    e.items.iter().map(|item| item.key.as_ref().map(|key| (self.expr(key), self.expr(&item.value)))).collect();
                items.map_or(ExprKind::Unsupported("`**` in a dictionary"), ExprKind::Dict)
            }
            py::Expr::UnaryOp(e) => ExprKind::Unary(
                match e.op {
                    py::UnaryOp::Invert => UnaryOp::Invert,
                    py::UnaryOp::Not => UnaryOp::Not,
                    py::UnaryOp::UAdd => UnaryOp::Pos,
                    py::UnaryOp::USub => UnaryOp::Neg,
                },
                self.boxed(&e.operand),
            ),
            py::Expr::BinOp(e) => ExprKind::Binary(binary(e.op), self.boxed(&e.left), self.boxed(&e.right)),
            py::Expr::BoolOp(e) => ExprKind::BoolOp(
                match e.op {
                    py::BoolOp::And => BoolOp::And,
                    py::BoolOp::Or => BoolOp::Or,
                },
                self.exprs(&e.values),
            ),
            py::Expr::Compare(e) => ExprKind::Compare(
                self.boxed(&e.left),
                e.ops.iter().zip(&e.comparators).map(|(op, right)| (compare(*op), self.expr(right))).collect(),
            ),
            py::Expr::Call(e) => ExprKind::Call(self.boxed(&e.func), self.arguments(&e.arguments)),
            py::Expr::Attribute(e) => ExprKind::Attribute(self.boxed(&e.value), self.ident(&e.attr)),
            py::Expr::Subscript(e) => ExprKind::Subscript(self.boxed(&e.value), self.boxed(&e.slice)),
            py::Expr::Slice(e) => {
                ExprKind::Slice([&e.lower, &e.upper, &e.step].map(|part| part.as_ref().map(|part| self.boxed(part))))
            }
            py::Expr::If(e) => {
                ExprKind::IfElse { test: self.boxed(&e.test), body: self.boxed(&e.body), orelse: self.boxed(&e.orelse) }
            }
            py::Expr::Lambda(e) => {
                let body = self.expr(&e.body);
                let body_span = body.span;
                ExprKind::Lambda(Arc::new(Function {
                    name: Ident { name: "<lambda>".to_string(), span },
                    decorators: Vec::new(),
                    params: e.parameters.as_ref().map_or(Vec::new(), |p| self.params(p)),
                    names: Arc::new(names::Scope::of_lambda(e).names()),
                    unsupported: None,
                    body: vec![Stmt { kind: StmtKind::Return(Some(body)), span: body_span }],
                    span,
                }))
            }
            py::Expr::ListComp(e) => self.comprehension(&e.elt, &e.generators, false),
            py::Expr::Generator(e) => self.comprehension(&e.elt, &e.generators, true),
            py::Expr::Named(_) => ExprKind::Unsupported("`:=`"),
            py::Expr::Set(_) | py::Expr::SetComp(_) => ExprKind::Unsupported("a set"),
            py::Expr::DictComp(_) => ExprKind::Unsupported("a dictionary comprehension"),
            py::Expr::Await(_) => ExprKind::Unsupported("`await`"),
            py::Expr::Yield(e) => ExprKind::Yield(e.value.as_ref().map(|value| self.boxed(value))),
            py::Expr::YieldFrom(_) => ExprKind::Unsupported("`yield from`"),
            py::Expr::TString(_) => ExprKind::Unsupported("a template string"),
            py::Expr::BytesLiteral(_) => ExprKind::Unsupported("a bytes literal"),
            py::Expr::IpyEscapeCommand(_) => ExprKind::Unsupported("a shell escape"),
        };
        Expr { kind, span }
    }

    /// The arguments of a call, or the bases of a class.
    fn arguments(&self, arguments: &py::Arguments) -> Vec<Arg> {
        let positional = arguments.args.iter().map(|arg| Arg { keyword: None, value: self.expr(arg) });
        let keywords = arguments.keywords.iter().map(|k| match &k.arg {
            Some(name) => Arg { keyword: Some(self.ident(name)), value: self.expr(&k.value) },
            None => {
                let kind = ExprKind::DoubleStarred(self.boxed(&k.value));
                Arg { keyword: None, value: Expr { kind, span: self.span(k.range()) } }
            }
        });
        positional.chain(keywords).collect()
    }

    fn comprehension(&self, element: &py::Expr, clauses: &[py::Comprehension], lazy: bool) -> ExprKind {
        if clauses.iter().any(|clause| clause.is_async) {
            return ExprKind::Unsupported("`async for`");
        }
        ExprKind::Comprehension {
            element: self.boxed(element),
            names: Arc::new(names::Scope::of_comprehension(&[element], clauses).names()),
            lazy,
            clauses: clauses
                .iter()
                .map(|clause| Clause {
                    target: self.expr(&clause.target),
                    iterable: self.expr(&clause.iter),
                    conditions: self.exprs(&clause.ifs),
                })
                .collect(),
        }
    }

    fn fstring(&self, value: &py::FStringValue) -> Vec<FPart> {
        let mut parts = Vec::new();
        for part in value {
            match part {
                py::FStringPart::Literal(text) => parts.push(FPart::Text(text.value.to_string())),
                py::FStringPart::FString(fstring) => {
                    for element in &fstring.elements {
                        match element {
                            py::InterpolatedStringElement::Literal(text) => parts.push(FPart::Text(text.value.to_string())),
                            py::InterpolatedStringElement::Interpolation(hole) => {
                                let mut format = String::new();
                                let mut value = self.expr(&hole.expression);
                                for element in hole.format_spec.iter().flat_map(|spec| &spec.elements) {
                                    match element {
                                        py::InterpolatedStringElement::Literal(text) => format.push_str(&text.value),
                                        py::InterpolatedStringElement::Interpolation(_) => {
                                            value.kind = ExprKind::Unsupported("a format that is computed");
                                        }
                                    }
                                }
                                parts.extend(hole.debug_text.iter().map(|text| FPart::Text(text.as_str().to_string())));
                                let conversion = match hole.conversion {
                                    // `{x=}` shows the value as `repr` does, unless a format asks for something else.
                                    py::ConversionFlag::None if hole.debug_text.is_some() && format.is_empty() => Some('r'),
                                    flag => flag.to_char(),
                                };
                                parts.push(FPart::Value { value, conversion, format });
                            }
                        }
                    }
                }
            }
        }
        parts
    }
}

/// An integer literal of up to 127 bits.
fn integer(value: &py::Int) -> Option<i128> {
    if let Some(value) = value.as_i64() {
        return Some(i128::from(value));
    }
    let text = value.to_string().replace('_', "").to_ascii_lowercase();
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        Some("0b") => (&text[2..], 2),
        _ => (text.as_str(), 10),
    };
    i128::from_str_radix(digits, radix).ok()
}

fn binary(op: py::Operator) -> BinaryOp {
    match op {
        py::Operator::Add => BinaryOp::Add,
        py::Operator::Sub => BinaryOp::Sub,
        py::Operator::Mult => BinaryOp::Mul,
        py::Operator::MatMult => BinaryOp::MatMul,
        py::Operator::Div => BinaryOp::Div,
        py::Operator::FloorDiv => BinaryOp::FloorDiv,
        py::Operator::Mod => BinaryOp::Mod,
        py::Operator::Pow => BinaryOp::Pow,
        py::Operator::LShift => BinaryOp::Shl,
        py::Operator::RShift => BinaryOp::Shr,
        py::Operator::BitAnd => BinaryOp::And,
        py::Operator::BitOr => BinaryOp::Or,
        py::Operator::BitXor => BinaryOp::Xor,
    }
}

fn compare(op: py::CmpOp) -> CompareOp {
    match op {
        py::CmpOp::Eq => CompareOp::Eq,
        py::CmpOp::NotEq => CompareOp::Ne,
        py::CmpOp::Lt => CompareOp::Lt,
        py::CmpOp::LtE => CompareOp::Le,
        py::CmpOp::Gt => CompareOp::Gt,
        py::CmpOp::GtE => CompareOp::Ge,
        py::CmpOp::Is => CompareOp::Is,
        py::CmpOp::IsNot => CompareOp::IsNot,
        py::CmpOp::In => CompareOp::In,
        py::CmpOp::NotIn => CompareOp::NotIn,
    }
}
