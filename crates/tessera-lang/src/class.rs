//! Classes of the source that kernels use: dataclasses, named tuples and enumerations.
//!
//! Which of them a class is, its decorators and bases say; [`crate::lower`] evaluates its body where a kernel needs it. Objects never
//! change, so that two names of one object and two equal objects can't be told apart.

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::Span;

use crate::ast::{Class, Expr, ExprKind};
use crate::file::{Global, Moment, ParsedFile};
use crate::style::decorator_path;
use crate::value::Val;

/// Bases of classes of the source are followed this far.
const MAX_BASES: usize = 16;

/// What kernels can make of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassKind {
    Dataclass,
    NamedTuple,
    Enumeration,
    /// None of these: a class from which others are made, as mixins and protocols are.
    Plain,
}

/// A field of a dataclass or named tuple.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) default: Option<Val>,
    pub(crate) is_keyword_only: bool,
    pub(crate) span: Span,
}

/// What a class has under a name beside its fields and members.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Value(Val),
    Method(Val),
    Property(Val),
    Static(Val),
    OfClass(Val),
}

impl Attribute {
    pub(crate) fn value(&self) -> &Val {
        let (Attribute::Value(value)
        | Attribute::Method(value)
        | Attribute::Property(value)
        | Attribute::Static(value)
        | Attribute::OfClass(value)) = self;
        value
    }
}

/// A class after its body was evaluated.
#[derive(Clone, Debug)]
pub(crate) struct SourceClass {
    pub(crate) class: Arc<Class>,
    pub(crate) kind: ClassKind,
    pub(crate) fields: Vec<Field>,
    /// Members of an enumeration with their values.
    pub(crate) members: Vec<(String, Val)>,
    /// Further names of members.
    pub(crate) aliases: Vec<(String, usize)>,
    pub(crate) attributes: IndexMap<String, Attribute>,
    /// The classes of the source that it is made from, itself not among them.
    pub(crate) bases: Vec<Arc<Class>>,
    /// True where objects are equal when their fields are.
    pub(crate) has_equality: bool,
    /// True where objects have the order of their fields.
    pub(crate) has_order: bool,
    /// True where members of the enumeration are numbers or strings, too.
    pub(crate) is_plain: bool,
    /// True where the text of such a member is that of its value.
    pub(crate) shows_value: bool,
}

impl SourceClass {
    pub(crate) fn name(&self) -> &str {
        &self.class.name.name
    }

    pub(crate) fn is_tuple(&self) -> bool {
        self.kind == ClassKind::NamedTuple
    }

    /// True when both are the same class.
    pub(crate) fn is(&self, other: &SourceClass) -> bool {
        Arc::ptr_eq(&self.class, &other.class)
    }

    /// True when its objects are objects of the other class, too.
    pub(crate) fn is_a(&self, other: &SourceClass) -> bool {
        self.is(other) || self.bases.iter().any(|base| Arc::ptr_eq(base, &other.class))
    }

    /// The position of the member of a name.
    pub(crate) fn member(&self, name: &str) -> Option<usize> {
        let own = self.members.iter().position(|(member, _)| member == name);
        own.or_else(|| self.aliases.iter().find(|(alias, _)| alias == name).map(|(_, at)| *at))
    }

    /// Adds a field; one of a base that is declared again keeps its place.
    pub(crate) fn put(&mut self, field: Field) {
        match self.fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => *known = field,
            None => self.fields.push(field),
        }
    }

    /// A method that its body or a base defines.
    pub(crate) fn method(&self, name: &str) -> Option<&Val> {
        match self.attributes.get(name) {
            Some(Attribute::Method(function)) => Some(function),
            _ => None,
        }
    }
}

/// What kernels can make of a class; `None` for classes that are the host's.
pub(crate) fn kind_of(file: &ParsedFile, class: &Class, at: Moment) -> Option<ClassKind> {
    kind(file, class, at, MAX_BASES)
}

fn kind(file: &ParsedFile, class: &Class, at: Moment, bases: usize) -> Option<ClassKind> {
    let is_dataclass = |decorator: &Expr| decorator_path(file, decorator, at).as_deref() == Some("dataclasses.dataclass");
    if class.decorators.iter().any(is_dataclass) {
        return Some(ClassKind::Dataclass);
    }
    class.bases.iter().filter(|base| base.keyword.is_none()).find_map(|base| match base_path(file, &base.value, at).as_deref() {
        Some("typing.NamedTuple" | "typing_extensions.NamedTuple") => Some(ClassKind::NamedTuple),
        Some("enum.Enum" | "enum.IntEnum" | "enum.StrEnum") => Some(ClassKind::Enumeration),
        Some(_) => None,
        None => match file.elsewhere(&base.value).map(|definition| (&definition.what, definition.at)) {
            Some((Global::Class(base), at)) => {
                kind(file, base, at, bases.checked_sub(1)?).filter(|kind| *kind == ClassKind::Enumeration)
            }
            _ => None,
        },
    })
}

/// The dotted path of a base class that is none of the source's, without its subscript: `typing.Generic[T]`.
pub(crate) fn base_path(file: &ParsedFile, base: &Expr, at: Moment) -> Option<String> {
    match &base.kind {
        ExprKind::Subscript(base, _) => file.path_at(base, at),
        _ => file.path_at(base, at),
    }
}
