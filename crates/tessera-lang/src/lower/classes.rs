//! Classes of the source: what their bodies make.
//!
//! A class's body is evaluated once, at module level, where its definition stands; its names are variables to what follows in it, and to
//! nothing else.
//!
//! ```text
//! @dataclass
//! class Tiling:
//!     rows: int                     a field
//!     columns: int = 64             a field with a default
//!     LARGEST: ClassVar[int] = 256  a value of the class
//!     @property
//!     def size(self): ...           evaluated where `t.size` stands
//! ```

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};

use super::{Lowerer, Res};
use crate::ast::{Arg, Class, CompareOp, Expr, ExprKind, Function, Stmt, StmtKind};
use crate::class::{Attribute, ClassKind, Field, SourceClass, base_path, kind_of};
use crate::diagnostics::id;
use crate::file::{Definition, Global, Moment};
use crate::fixed;
use crate::style::{decorator_args, decorator_path};
use crate::value::Val;

/// What the annotation of a field makes of it.
enum FieldKind {
    Field,
    OfClass,
    /// Fields behind it are passed by keyword only.
    Marker,
}

/// What `field(...)` says.
#[derive(Default)]
struct FieldOptions<'a> {
    default: Option<&'a Expr>,
    is_keyword_only: Option<bool>,
}

impl Lowerer<'_> {
    /// What a class is; to be evaluated as an expression of its module at the moment of its definition.
    pub(crate) fn class(&mut self, class: &Arc<Class>, at: Moment) -> Res<Val> {
        let kind = kind_of(self.file, class, at).unwrap_or(ClassKind::Plain);
        let mut made = SourceClass {
            class: class.clone(),
            kind,
            fields: Vec::new(),
            members: Vec::new(),
            aliases: Vec::new(),
            attributes: IndexMap::new(),
            bases: Vec::new(),
            has_equality: true,
            has_order: false,
            is_plain: false,
            shows_value: false,
        };
        let is_keyword_only = self.class_options(&mut made, at)?;
        self.bases(&mut made, at)?;
        self.class_body(&mut made, at, is_keyword_only)?;
        Ok(Val::SourceClass(Rc::new(made)))
    }

    /// Reads the decorators; whether the fields are passed by keyword only.
    fn class_options(&mut self, made: &mut SourceClass, at: Moment) -> Res<bool> {
        let class = made.class.clone();
        let mut is_keyword_only = false;
        for decorator in &class.decorators {
            match decorator_path(self.file, decorator, at).as_deref() {
                Some("dataclasses.dataclass") => {
                    for arg in decorator_args(decorator) {
                        let value = self.at(&arg.value)?;
                        let value = self.constant_truth(&value)?;
                        match arg.keyword.as_ref().map(|keyword| keyword.name.as_str()) {
                            Some("eq") => made.has_equality = value,
                            Some("order") => made.has_order = value,
                            Some("kw_only") => is_keyword_only = value,
                            // Objects never change, and nothing shows how they lie in memory.
                            Some("frozen" | "slots" | "repr" | "unsafe_hash" | "match_args" | "weakref_slot") => {}
                            Some("init") if value => {}
                            _ => return Err(refused("this option of a dataclass", arg.value.span)),
                        }
                    }
                }
                Some("enum.unique" | "typing.final" | "typing.runtime_checkable") => {}
                _ => return Err(refused("this decorator of a class", decorator.span)),
            }
        }
        Ok(is_keyword_only)
    }

    /// Takes over what the bases have, from the last to the first: what an earlier one has counts.
    fn bases(&mut self, made: &mut SourceClass, at: Moment) -> Res<()> {
        let class = made.class.clone();
        for base in class.bases.iter().rev() {
            let span = base.value.span;
            if base.keyword.is_some() {
                return Err(refused("an option of a class", span));
            }
            match base_path(self.file, &base.value, at).as_deref() {
                Some("typing.NamedTuple" | "typing_extensions.NamedTuple") => continue,
                Some("typing.Generic" | "typing.Protocol" | "abc.ABC" | "enum.Enum") => continue,
                Some("enum.IntEnum" | "enum.StrEnum") => {
                    (made.is_plain, made.shows_value) = (true, true);
                    continue;
                }
                _ => {}
            }
            if let ExprKind::Name(name) = &base.value.kind
                && matches!(name.as_str(), "int" | "str" | "float" | "object")
                && self.file.global(name, at).is_none()
            {
                made.is_plain |= name != "object";
                continue;
            }
            match self.base(&base.value)? {
                Val::SourceClass(base)
                    if (base.kind == made.kind || base.kind == ClassKind::Plain)
                        && made.kind != ClassKind::NamedTuple
                        && base.members.is_empty() =>
                {
                    if base.bases.iter().chain([&base.class]).any(|own| made.bases.iter().any(|known| Arc::ptr_eq(own, known))) {
                        return Err(refused("a class that two bases of a class are made from", span));
                    }
                    made.is_plain |= base.is_plain;
                    made.shows_value |= base.shows_value;
                    base.fields.iter().for_each(|field| made.put(field.clone()));
                    made.attributes.extend(base.attributes.iter().map(|(name, value)| (name.clone(), value.clone())));
                    made.bases.push(base.class.clone());
                    made.bases.extend(base.bases.iter().cloned());
                }
                other => {
                    return Err(Box::new(
                        Diagnostic::error(id::UNSUPPORTED, span, "this base of a class can't be used in a kernel")
                            .label(format!("this is {}", other.describe()))
                            .help("dataclasses are made from dataclasses and plain classes, enumerations from plain ones and such without members"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The value of a base, which alone may be a plain class.
    fn base(&mut self, base: &Expr) -> Res<Val> {
        let file = self.file;
        match file.elsewhere(base) {
            Some(Definition { what: Global::Plain(class), at, .. }) => {
                self.deeper(base.span, |lowerer| lowerer.at_module(*at, |lowerer| lowerer.class(class, *at)))
            }
            _ => self.expr(base),
        }
    }

    fn class_body(&mut self, made: &mut SourceClass, at: Moment, mut is_keyword_only: bool) -> Res<()> {
        let class = made.class.clone();
        for stmt in &class.body {
            match &stmt.kind {
                StmtKind::Pass => {}
                StmtKind::Expr(expr) if matches!(expr.kind, ExprKind::Str(_) | ExprKind::Ellipsis) => {}
                StmtKind::Function(function) => self.method_definition(made, function, at)?,
                StmtKind::AnnAssign(Expr { kind: ExprKind::Name(name), .. }, annotation, value)
                    if !matches!(made.kind, ClassKind::Enumeration | ClassKind::Plain) =>
                {
                    match self.field_kind(annotation, at)? {
                        FieldKind::Field => self.field(made, name, value.as_ref(), is_keyword_only, stmt.span, at)?,
                        FieldKind::OfClass => {
                            if let Some(value) = value {
                                self.class_value(made, name, value)?;
                            }
                        }
                        FieldKind::Marker => is_keyword_only = true,
                    }
                }
                StmtKind::AnnAssign(Expr { kind: ExprKind::Name(_), .. }, _, None) => {}
                StmtKind::AnnAssign(Expr { kind: ExprKind::Name(name), .. }, _, Some(value)) if made.kind == ClassKind::Plain => {
                    self.class_value(made, name, value)?;
                }
                StmtKind::Assign(targets, value) => match targets.as_slice() {
                    [Expr { kind: ExprKind::Name(name), .. }]
                        if made.kind == ClassKind::Enumeration && !name.starts_with('_') =>
                    {
                        self.enumerated(made, name, value, at)?;
                    }
                    [Expr { kind: ExprKind::Name(name), .. }] => self.class_value(made, name, value)?,
                    _ => return Err(refused("this assignment in a class", stmt.span)),
                },
                _ => return Err(not_in_a_class(stmt)),
            }
        }
        let order = |field: &Field| (field.is_keyword_only, field.default.is_some());
        let positional: Vec<&Field> = made.fields.iter().filter(|field| !field.is_keyword_only).collect();
        if let Some(pair) = positional.windows(2).find(|pair| order(pair[0]) > order(pair[1])) {
            return Err(Box::new(
                Diagnostic::error(
                    id::CALL,
                    pair[1].span,
                    format!("the field `{}` has no default, but `{}` before it has one", pair[1].name, pair[0].name),
                )
                .also(pair[0].span, "this one has a default")
                .help("give it a default, or place it before"),
            ));
        }
        Ok(())
    }

    fn field_kind(&mut self, annotation: &Expr, at: Moment) -> Res<FieldKind> {
        Ok(match base_path(self.file, annotation, at).as_deref() {
            Some("typing.ClassVar") => FieldKind::OfClass,
            Some("dataclasses.KW_ONLY") => FieldKind::Marker,
            Some("dataclasses.InitVar") => return Err(refused("`InitVar`", annotation.span)),
            _ => FieldKind::Field,
        })
    }

    fn field(
        &mut self,
        made: &mut SourceClass,
        name: &str,
        value: Option<&Expr>,
        is_keyword_only: bool,
        span: Span,
        at: Moment,
    ) -> Res<()> {
        let options = match value {
            None => FieldOptions::default(),
            Some(value) => match &value.kind {
                ExprKind::Call(function, args) if self.file.path_at(function, at).as_deref() == Some("dataclasses.field") => {
                    self.field_options(args)?
                }
                _ => FieldOptions { default: Some(value), is_keyword_only: None },
            },
        };
        let default = match options.default {
            Some(default) => {
                let value = self.expr(default)?;
                self.check_kept(&value, default.span)?;
                self.bind(name, value.clone(), span);
                Some(value)
            }
            None => None,
        };
        let field =
            Field { name: name.to_string(), default, is_keyword_only: options.is_keyword_only.unwrap_or(is_keyword_only), span };
        made.put(field);
        Ok(())
    }

    fn field_options<'a>(&mut self, args: &'a [Arg]) -> Res<FieldOptions<'a>> {
        let mut options = FieldOptions::default();
        for arg in args {
            match arg.keyword.as_ref().map(|keyword| keyword.name.as_str()) {
                Some("default") => options.default = Some(&arg.value),
                Some("kw_only") => {
                    let value = self.at(&arg.value)?;
                    options.is_keyword_only = Some(self.constant_truth(&value)?);
                }
                Some("repr" | "hash" | "metadata" | "doc") => {}
                Some(name @ ("init" | "compare")) => {
                    let value = self.at(&arg.value)?;
                    if !self.constant_truth(&value)? {
                        let what = if name == "init" { "a field without a parameter" } else { "a field that is not compared" };
                        return Err(refused(what, arg.value.span));
                    }
                }
                Some("default_factory") => {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::UNSUPPORTED,
                            arg.value.span,
                            "a field that a function makes can't be used in a kernel",
                        )
                        .label("called for every object")
                        .help("write a value, which can be a tuple: `field(default=())`"),
                    ));
                }
                _ => return Err(refused("this option of a field", arg.value.span)),
            }
        }
        Ok(options)
    }

    /// `name = value` in a class that makes no field or member of it.
    fn class_value(&mut self, made: &mut SourceClass, name: &str, value: &Expr) -> Res<()> {
        let span = value.span;
        let value = self.expr(value)?;
        self.check_kept(&value, span)?;
        self.bind(name, value.clone(), span);
        made.attributes.insert(name.to_string(), Attribute::Value(value));
        Ok(())
    }

    /// A member of an enumeration; one with the value of another is another name of it.
    fn enumerated(&mut self, made: &mut SourceClass, name: &str, value: &Expr, at: Moment) -> Res<()> {
        let is_auto = matches!(&value.kind, ExprKind::Call(function, args)
            if args.is_empty() && self.file.path_at(function, at).as_deref() == Some("enum.auto"));
        let number = if is_auto {
            let last = made.members.last().map_or(Some(0), |(_, value)| value.fixed().and_then(|value| value.as_int()));
            let last = last.ok_or_else(|| refused("`auto()` behind a member that is no number", value.span))?;
            Val::int(last + 1)
        } else {
            self.expr(value)?
        };
        if number.fixed().is_none() {
            return Err(Box::new(
                Diagnostic::error(id::NOT_CONSTANT, value.span, "the value of a member is known when the kernel is compiled")
                    .label(format!("this is {}", number.describe())),
            ));
        }
        self.bind(name, number.clone(), value.span);
        match self.member_of_value(made, &number, value.span)? {
            Some(first) => made.aliases.push((name.to_string(), first)),
            None => made.members.push((name.to_string(), number)),
        }
        Ok(())
    }

    /// The position of the member with a value.
    pub(crate) fn member_of_value(&mut self, class: &SourceClass, value: &Val, span: Span) -> Res<Option<usize>> {
        let Some(wanted) = value.plain().fixed() else { return Ok(None) };
        for (at, (_, own)) in class.members.iter().enumerate() {
            if let Some(own) = own.fixed()
                && fixed::compare(CompareOp::Eq, &own, &wanted, span)?
            {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn method_definition(&mut self, made: &mut SourceClass, function: &Arc<Function>, at: Moment) -> Res<()> {
        let name = &function.name.name;
        if made.kind == ClassKind::Plain && name == "__init__" {
            // What is made from it has one of its own.
            return Ok(());
        }
        if matches!(name.as_str(), "__init__" | "__new__" | "__getattr__" | "__getattribute__" | "__setattr__") {
            return Err(Box::new(
                Diagnostic::error(
                    id::UNSUPPORTED,
                    function.name.span,
                    format!("a class with `{name}` can't be used in a kernel"),
                )
                .label("this changes what its objects are")
                .help("leave it to `@dataclass`, and make other objects in functions"),
            ));
        }
        let mut plain = Function::clone(function);
        let kind = plain.decorators.first().map(|first| {
            let is_builtin = |wanted: &str| matches!(&first.kind, ExprKind::Name(name) if name == wanted);
            match decorator_path(self.file, first, at).as_deref() {
                Some("functools.cached_property") => Some(Attribute::Property as fn(Val) -> Attribute),
                _ if is_builtin("property") => Some(Attribute::Property as fn(Val) -> Attribute),
                _ if is_builtin("staticmethod") => Some(Attribute::Static as fn(Val) -> Attribute),
                _ if is_builtin("classmethod") => Some(Attribute::OfClass as fn(Val) -> Attribute),
                _ => None,
            }
        });
        let kind = match kind.flatten() {
            Some(kind) => {
                plain.decorators.remove(0);
                kind
            }
            None => Attribute::Method,
        };
        let value = self.method_function(&Arc::new(plain))?;
        made.attributes.insert(name.clone(), kind(value));
        Ok(())
    }
}

fn refused(what: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNSUPPORTED, span, format!("{what} can't be used in a kernel")).label("the kernel uses this class"),
    )
}

fn not_in_a_class(stmt: &Stmt) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNSUPPORTED, stmt.span, "this statement of a class can't be used in a kernel")
            .label("the kernel uses this class")
            .help("classes in kernels have fields, members of enumerations, values and methods"),
    )
}
