//! Objects of classes of the source: making them, their attributes, operators and comparisons.

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};

use super::control::Condition;
use super::expr::unsupported;
use super::names::missing_member;
use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::{BinaryOp, CompareOp, Ident, Passing};
use crate::bind::{Given, Slot, bind};
use crate::class::{Attribute, ClassKind, SourceClass};
use crate::diagnostics::id;
use crate::fixed;
use crate::value::Val;

/// The function of `dataclasses` that makes an object with some fields changed; `_replace` of named tuples is the same.
pub(crate) const REPLACE: &str = "dataclasses.replace";

/// The keyword with which a running program gives an object that it has made: it has its fields, and `__post_init__` has run.
const MADE: &str = "__made__";

impl Lowerer<'_> {
    /// `Class(...)`.
    pub(crate) fn instantiate(&mut self, class: &Rc<SourceClass>, given: &[Given], span: Span) -> Res<Val> {
        if class.kind == ClassKind::Enumeration {
            let [Given { keyword: None, value, span: place }] = given else {
                return Err(Box::new(Diagnostic::error(id::CALL, span, format!("`{}` is called with one value", class.name()))));
            };
            if let Val::Member(own, _) = value
                && own.is(class)
            {
                return Ok(value.clone());
            }
            self.require_fixed(&(value.plain(), *place))?;
            return match self.member_of_value(class, value, span)? {
                Some(at) => Ok(Val::Member(class.clone(), at)),
                None => Err(Box::new(
                    Diagnostic::error(id::VALUE_RANGE, *place, format!("`{}` has no member of this value", class.name()))
                        .label(format!("this is {}", value.describe()))
                        .also(class.class.name.span, "the enumeration"),
                )),
            };
        }
        let slots: Vec<Slot<'_>> = class
            .fields
            .iter()
            .map(|field| Slot {
                name: &field.name,
                passing: if field.is_keyword_only { Passing::Keyword } else { Passing::Either },
                has_default: field.default.is_some(),
            })
            .collect();
        let is_made = |given: &Given| given.keyword.as_ref().is_some_and(|keyword| keyword.name == MADE);
        let fields: Vec<Given> = given.iter().filter(|given| !is_made(given)).cloned().collect();
        let mut values = Vec::new();
        for (mut given, field) in bind(class.name(), &slots, &fields, span)?.into_iter().zip(&class.fields) {
            values.push(match given.pop() {
                Some(given) => {
                    self.check_kept(&given.value, given.span)?;
                    given.value
                }
                None => field.default.clone().unwrap_or(Val::None),
            });
        }
        let object = Val::Instance(class.clone(), values.into());
        let has_run = given.iter().any(is_made);
        if class.kind == ClassKind::Dataclass && class.method("__post_init__").is_some() && !has_run {
            self.call_method(&object, "__post_init__", Vec::new(), span)?;
        }
        Ok(object)
    }

    /// `dataclasses.replace(object, field=value, ...)`.
    pub(crate) fn replace(&mut self, given: &[Given], span: Span) -> Res<Val> {
        let Some((Given { keyword: None, value: Val::Instance(class, items), span: place }, changes)) = given.split_first()
        else {
            return Err(Box::new(Diagnostic::error(
                id::CALL,
                span,
                "`replace` takes an object of a dataclass and the fields to change by keyword",
            )));
        };
        let mut all = changes.to_vec();
        for (field, value) in class.fields.iter().zip(items.iter()) {
            if !changes.iter().any(|change| change.keyword.as_ref().is_some_and(|keyword| keyword.name == field.name)) {
                let keyword = Some(Ident { name: field.name.clone(), span: *place });
                all.push(Given { keyword, value: value.clone(), span: *place });
            }
        }
        self.instantiate(class, &all, span)
    }

    /// Calls a method that a class of the source defines.
    fn call_method(&mut self, object: &Val, name: &str, mut given: Vec<Given>, span: Span) -> Res<Val> {
        let (Val::Instance(class, _) | Val::Member(class, _)) = object else { return Ok(Val::None) };
        let Some(function) = class.method(name).cloned() else {
            return Err(missing_member(class.name(), name, [].into_iter(), span));
        };
        given.insert(0, Given { keyword: None, value: object.clone(), span });
        self.call_value(&function, given, span)
    }

    /// Whether an object's class defines a method.
    fn has_method(object: &Val, name: &str) -> bool {
        matches!(object, Val::Instance(class, _) | Val::Member(class, _) if class.method(name).is_some())
    }

    /// Calls a method of Python's data model, where the object's class defines it.
    pub(crate) fn special(&mut self, object: &Val, name: &str, args: &[At], span: Span) -> Res<Option<Val>> {
        if !Self::has_method(object, name) {
            return Ok(None);
        }
        let given = args.iter().map(|(value, span)| Given { keyword: None, value: value.clone(), span: *span }).collect();
        self.call_method(object, name, given, span).map(Some)
    }

    /// `object.name`.
    pub(crate) fn object_member(&mut self, object: &Val, name: &str, span: Span) -> Res<Val> {
        let (class, own): (&Rc<SourceClass>, Vec<&str>) = match object {
            Val::Instance(class, items) => {
                if let Some(at) = class.fields.iter().position(|field| field.name == name) {
                    return Ok(items[at].clone());
                }
                (class, class.fields.iter().map(|field| field.name.as_str()).collect())
            }
            Val::Member(class, at) => {
                match name {
                    "name" => return Ok(Val::str(&class.members[*at].0)),
                    "value" => return Ok(class.members[*at].1.clone()),
                    _ => {}
                }
                (class, vec!["name", "value"])
            }
            Val::SourceClass(class) => {
                if let Some(at) = class.member(name) {
                    return Ok(Val::Member(class.clone(), at));
                }
                if name == "__name__" {
                    return Ok(Val::str(class.name()));
                }
                (class, class.members.iter().map(|(member, _)| member.as_str()).collect())
            }
            _ => return Err(missing_member("value", name, [].into_iter(), span)),
        };
        let of_class = matches!(object, Val::SourceClass(_));
        let bound = |receiver: Val, function: &Val| Val::Bound(Rc::new(receiver), Rc::new(function.clone()));
        match class.attributes.get(name) {
            Some(Attribute::Value(value) | Attribute::Static(value)) => return Ok(value.clone()),
            Some(Attribute::OfClass(function)) => return Ok(bound(Val::SourceClass(class.clone()), function)),
            Some(Attribute::Method(function)) if of_class => return Ok(function.clone()),
            Some(Attribute::Method(function)) => return Ok(bound(object.clone(), function)),
            Some(Attribute::Property(getter)) if !of_class => {
                let getter = getter.clone();
                return self.call_value(&getter, vec![Given { keyword: None, value: object.clone(), span }], span);
            }
            Some(Attribute::Property(_)) | None => {}
        }
        let field = class.fields.iter().find(|field| field.name == name).filter(|_| of_class);
        if let Some(default) = field.and_then(|field| field.default.as_ref()) {
            return Ok(default.clone());
        }
        match name {
            "_fields" if class.is_tuple() => Ok(Val::tuple(class.fields.iter().map(|field| Val::str(&field.name)))),
            "_replace" if class.is_tuple() && !of_class => Ok(bound(object.clone(), &Val::Module(REPLACE.into()))),
            _ => {
                let known = own.into_iter().chain(class.attributes.keys().map(String::as_str));
                Err(missing_member(class.name(), name, known, span))
            }
        }
    }

    /// `Enumeration["NAME"]`.
    pub(crate) fn member_by_name(&mut self, class: &Rc<SourceClass>, index: &At) -> Res<Val> {
        let name = self.require_str(index)?;
        match class.kind {
            ClassKind::Enumeration => self.object_member(&Val::SourceClass(class.clone()), &name, index.1),
            // `Generic[T]`-like classes are the same class with any argument.
            ClassKind::Dataclass | ClassKind::NamedTuple | ClassKind::Plain => Ok(Val::SourceClass(class.clone())),
        }
    }

    /// `a op b` by a method of one of them.
    pub(crate) fn object_operator(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Option<Val>> {
        if !matches!((&a.0, &b.0), (Val::Instance(..), _) | (_, Val::Instance(..))) {
            return Ok(None);
        }
        let name = match op {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::MatMul => "matmul",
            BinaryOp::Div => "truediv",
            BinaryOp::FloorDiv => "floordiv",
            BinaryOp::Mod => "mod",
            BinaryOp::Pow => "pow",
            BinaryOp::Shl => "lshift",
            BinaryOp::Shr => "rshift",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Xor => "xor",
        };
        if let Some(value) = self.special(&a.0, &format!("__{name}__"), std::slice::from_ref(b), span)? {
            return Ok(Some(value));
        }
        self.special(&b.0, &format!("__r{name}__"), std::slice::from_ref(a), span)
    }

    /// `a op b` for comparisons, where one of them is an object that is not compared by a value that it stands for.
    pub(crate) fn compare_objects(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Option<Val>> {
        let is_object = |value: &Val| matches!(value, Val::Instance(..) | Val::Member(..) | Val::SourceClass(_));
        if matches!(op, CompareOp::In | CompareOp::NotIn) || !(is_object(&a.0) || is_object(&b.0)) {
            return Ok(None);
        }
        if matches!(op, CompareOp::Is | CompareOp::IsNot) {
            let same = match (&a.0, &b.0) {
                (Val::Instance(..), Val::Instance(..)) if !a.0.same(&b.0) || a.0.is_run_time() => {
                    return Err(Box::new(
                        Diagnostic::error(id::OPERAND_TYPE, span, "`is` compares identity, which these objects don't have")
                            .also(a.1, format!("this is {}", a.0.describe()))
                            .help("write `==`"),
                    ));
                }
                (x, y) => x.same(y),
            };
            return Ok(Some(Val::bool(same == (op == CompareOp::Is))));
        }
        let is_plain = |value: &Val| match value {
            Val::Instance(class, _) => class.is_tuple(),
            Val::Member(class, _) => class.is_plain,
            _ => true,
        };
        let (name, mirrored) = match op {
            CompareOp::Lt => ("__lt__", "__gt__"),
            CompareOp::Le => ("__le__", "__ge__"),
            CompareOp::Gt => ("__gt__", "__lt__"),
            CompareOp::Ge => ("__ge__", "__le__"),
            CompareOp::Ne if !Self::has_method(&a.0, "__ne__") && Self::has_method(&a.0, "__eq__") => {
                let equal = self.special(&a.0, "__eq__", std::slice::from_ref(b), span)?.unwrap_or(Val::None);
                return Ok(Some(match self.condition(&(equal, span))? {
                    Condition::Known(value) => Val::bool(!value),
                    Condition::AtRunTime(tile) => Val::Tile(self.complement(&tile, span)?),
                }));
            }
            CompareOp::Ne => ("__ne__", "__ne__"),
            _ => ("__eq__", "__eq__"),
        };
        if let Some(value) = self.special(&a.0, name, std::slice::from_ref(b), span)? {
            return Ok(Some(value));
        }
        if let Some(value) = self.special(&b.0, mirrored, std::slice::from_ref(a), span)? {
            return Ok(Some(value));
        }
        if is_plain(&a.0) && is_plain(&b.0) && !matches!((&a.0, &b.0), (Val::SourceClass(_), _) | (_, Val::SourceClass(_))) {
            return Ok(None);
        }
        let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        match (&a.0, &b.0) {
            (Val::Instance(x, _), Val::Instance(y, _))
                if x.is(y) && !(if is_equality { x.has_equality } else { x.has_order }) =>
            {
                Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, span, format!("objects of `{}` are not compared like this", x.name()))
                        .also(x.class.name.span, "the class")
                        .help(if is_equality { "leave out `eq=False`" } else { "write `@dataclass(order=True)`" }),
                ))
            }
            (Val::Instance(x, own), Val::Instance(y, others)) if x.is(y) => {
                let items = [own, others].map(|items| Val::Tuple(items.clone()));
                self.compare(op, &(items[0].clone(), a.1), &(items[1].clone(), b.1), span).map(Some)
            }
            (x, y) if is_equality => {
                let same = !matches!((x, y), (Val::Instance(..), Val::Instance(..))) && x.same(y);
                Ok(Some(Val::bool(same == (op == CompareOp::Eq))))
            }
            (x, y) => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("{} and {} have no order", x.describe(), y.describe()))
                    .also(a.1, format!("this is {}", x.describe()))
                    .also(b.1, format!("this is {}", y.describe())),
            )),
        }
    }

    /// What `str` shows for an object, as a value that shows itself; other values as they are.
    pub(crate) fn shown(&mut self, at: &At) -> Res<At> {
        let (value, span) = at;
        if !matches!(value, Val::Instance(..) | Val::Member(..)) {
            return Ok(at.clone());
        }
        if Self::has_method(value, "__format__") {
            return Err(unsupported("an object with a format of its own", *span));
        }
        if let Some(text) = self.special(value, "__str__", &[], *span)? {
            return Ok((text, *span));
        }
        match value {
            Val::Member(class, at) if !class.shows_value => {
                Ok((Val::str(&format!("{}.{}", class.name(), class.members[*at].0)), *span))
            }
            Val::Member(..) => Ok((value.plain(), *span)),
            _ => Ok((Val::str(&self.object_text(at)?), *span)),
        }
    }

    /// What `repr` shows for an object whose fields are known.
    fn object_text(&mut self, (value, span): &At) -> Res<String> {
        if let Some(text) = self.special(value, "__repr__", &[], *span)? {
            return self.require_str(&(text, *span)).map(|text| text.to_string());
        }
        match value {
            Val::Instance(class, items) => {
                let mut fields = Vec::new();
                for (field, item) in class.fields.iter().zip(items.iter()) {
                    fields.push(format!("{}={}", field.name, self.object_text(&(item.clone(), *span))?));
                }
                Ok(format!("{}({})", class.name(), fields.join(", ")))
            }
            Val::Member(class, at) => {
                let (name, value) = &class.members[*at];
                let value = fixed::repr(&self.require_fixed(&(value.clone(), *span))?, *span)?;
                Ok(format!("<{}.{name}: {value}>", class.name()))
            }
            _ => fixed::repr(&self.require_fixed(&(value.clone(), *span))?, *span),
        }
    }

    /// The members of an enumeration, over which it is iterated.
    pub(crate) fn members(class: &Rc<SourceClass>) -> Vec<Val> {
        (0..class.members.len()).map(|at| Val::Member(class.clone(), at)).collect()
    }
}
