//! Values taken apart into what runs through a branch or loop, and put together again behind it.
//!
//! A [`Skeleton`] is the type of a variable where paths meet: tiles, arrays and tuples of them flow as IR values, and so does what one
//! function was made with; everything else (strings, dtypes, which function it is) must be the same on every path.

use std::rc::Rc;
use std::sync::Arc;

use tessera_ir::{Diagnostic, Extent, IndexType, Shape, Span, Type, Value};
use tessera_types::DType;

use super::{Locals, Lowerer, Res, Scope, tile_type};
use crate::ast::{Function, Names};
use crate::class::SourceClass;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::{dtype_name, literal_dtype};
use crate::value::{Array, Binding, Closure, Dim, ScopeId, Tile, TiledView, Val, show_shape};

/// The type of a variable where paths meet.
#[derive(Clone, Debug)]
pub(crate) enum Skeleton {
    Tile(DType, Shape),
    Tuple(Vec<Skeleton>),
    List(Vec<Skeleton>),
    /// An object of a class of the source, with the types of its fields.
    Instance(Rc<SourceClass>, Vec<Skeleton>),
    Array {
        dtype: DType,
        shape: Vec<Extent>,
        strides: Vec<Extent>,
        index: IndexType,
    },
    /// A tiled view of an array, with all that is not the array.
    View(Box<Skeleton>, Rc<TiledView>),
    /// Raw memory of an array.
    Memory(Box<Skeleton>),
    /// One function of the source; its defaults and the variables that it keeps of calls that are over may differ.
    Function(Box<FunctionSkeleton>),
    /// The same compile-time value on every path.
    Fixed(Val),
}

/// The type of a function where paths meet.
#[derive(Clone, Debug)]
pub(crate) struct FunctionSkeleton {
    function: Arc<Function>,
    defaults: Vec<Option<Skeleton>>,
    is_context: bool,
    /// The scopes of calls that are over, innermost first.
    left: Vec<LeftSkeleton>,
    /// The scope around them, of a call that is not.
    around: Option<ScopeId>,
}

/// The type of what a call left to a function.
#[derive(Clone, Debug)]
struct LeftSkeleton {
    names: Arc<Names>,
    locals: Vec<(String, Span, Skeleton)>,
}

impl Skeleton {
    fn of_array(array: &Array) -> Skeleton {
        Skeleton::Array {
            dtype: array.dtype,
            shape: array.shape.iter().map(|dim| dim.extent).collect(),
            strides: array.strides.iter().map(|dim| dim.extent).collect(),
            index: array.index,
        }
    }

    pub(crate) fn same(&self, other: &Skeleton) -> bool {
        match (self, other) {
            (Skeleton::Tile(a, x), Skeleton::Tile(b, y)) => a == b && x == y,
            (Skeleton::Tuple(a), Skeleton::Tuple(b)) | (Skeleton::List(a), Skeleton::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
            }
            (Skeleton::Instance(c, a), Skeleton::Instance(d, b)) => c.is(d) && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (
                Skeleton::Array { dtype, shape, strides, index },
                Skeleton::Array { dtype: dtype2, shape: shape2, strides: strides2, index: index2 },
            ) => dtype == dtype2 && shape == shape2 && strides == strides2 && index == index2,
            (Skeleton::View(a, x), Skeleton::View(b, y)) => {
                a.same(b) && x.tile == y.tile && x.steps == y.steps && x.padding == y.padding && x.scalar == y.scalar
            }
            (Skeleton::Memory(a), Skeleton::Memory(b)) => a.same(b),
            (Skeleton::Function(a), Skeleton::Function(b)) => a.same(b),
            (Skeleton::Fixed(a), Skeleton::Fixed(b)) => a.same(b),
            _ => false,
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Skeleton::Tile(dtype, shape) if shape.is_empty() => format!("a scalar of {}", dtype_name(*dtype)),
            Skeleton::Tile(dtype, shape) => format!("a {} tile of {}", show_shape(shape), dtype_name(*dtype)),
            Skeleton::Tuple(items) => {
                let items: Vec<String> = items.iter().map(Skeleton::describe).collect();
                format!("a tuple of {}", items.join(" and "))
            }
            Skeleton::List(items) => format!("a list of {} items", items.len()),
            Skeleton::Instance(class, items) => {
                let items: Vec<String> = items.iter().map(Skeleton::describe).collect();
                format!("an object of `{}` with {}", class.name(), items.join(" and "))
            }
            Skeleton::Array { dtype, shape, .. } => format!("an array of {} with rank {}", dtype_name(*dtype), shape.len()),
            Skeleton::View(_, view) => Val::View(view.clone()).describe(),
            Skeleton::Memory(array) => format!("raw memory of {}", array.describe()),
            Skeleton::Function(shape) => format!("the function `{}`", shape.function.name.name),
            Skeleton::Fixed(value) => value.describe(),
        }
    }

    /// IR types of the values that flow.
    pub(crate) fn types(&self, out: &mut Vec<Type>) {
        match self {
            Skeleton::Tile(dtype, shape) => out.push(tile_type(*dtype, shape)),
            Skeleton::Tuple(items) | Skeleton::List(items) | Skeleton::Instance(_, items) => {
                items.iter().for_each(|item| item.types(out));
            }
            Skeleton::Array { dtype, shape, strides, index } => {
                out.push(Type::pointers(Shape::new(), dtype.signless()));
                out.extend(shape.iter().chain(strides).map(|_| tile_type(index.dtype(), &[])));
            }
            Skeleton::View(array, _) | Skeleton::Memory(array) => array.types(out),
            Skeleton::Function(shape) => shape.parts().for_each(|part| part.types(out)),
            Skeleton::Fixed(_) => {}
        }
    }
}

impl FunctionSkeleton {
    fn same(&self, other: &FunctionSkeleton) -> bool {
        let default = |pair: (&Option<Skeleton>, &Option<Skeleton>)| match pair {
            (Some(a), Some(b)) => a.same(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let left = |(a, b): (&LeftSkeleton, &LeftSkeleton)| {
            a.locals.len() == b.locals.len() && a.locals.iter().zip(&b.locals).all(|(a, b)| a.0 == b.0 && a.2.same(&b.2))
        };
        Arc::ptr_eq(&self.function, &other.function)
            && self.around == other.around
            && self.left.len() == other.left.len()
            && self.left.iter().zip(&other.left).all(left)
            && self.defaults.iter().zip(&other.defaults).all(default)
    }

    /// Everything that can flow, in one order.
    fn parts(&self) -> impl Iterator<Item = &Skeleton> {
        self.defaults.iter().flatten().chain(self.left.iter().flat_map(|scope| scope.locals.iter().map(|(.., local)| local)))
    }
}

impl Lowerer<'_> {
    /// What a value is where paths meet.
    pub(crate) fn skeleton(&self, value: &Val, span: Span) -> Res<Skeleton> {
        self.skeleton_of(value, span, &mut Vec::new())
    }

    /// The same inside functions that keep the variables of some scopes.
    fn skeleton_of(&self, value: &Val, span: Span, inside: &mut Vec<ScopeId>) -> Res<Skeleton> {
        Ok(match value {
            Val::Tile(tile) => Skeleton::Tile(tile.dtype, tile.shape.clone()),
            Val::Num(number) => match literal_dtype(*number) {
                Some(dtype) => Skeleton::Tile(dtype, Shape::new()),
                None => {
                    return Err(Box::new(Diagnostic::error(
                        id::CONSTANT_OVERFLOW,
                        span,
                        format!("{number} does not fit any integer type"),
                    )));
                }
            },
            Val::Tuple(items) => {
                Skeleton::Tuple(items.iter().map(|item| self.skeleton_of(item, span, inside)).collect::<Res<Vec<_>>>()?)
            }
            Val::Sequence(items) => {
                Skeleton::List(items.iter().map(|item| self.skeleton_of(item, span, inside)).collect::<Res<Vec<_>>>()?)
            }
            Val::Instance(class, items) => {
                let items = items.iter().map(|item| self.skeleton_of(item, span, inside)).collect::<Res<Vec<_>>>()?;
                Skeleton::Instance(class.clone(), items)
            }
            Val::Closure(closure) => Skeleton::Function(Box::new(self.function_skeleton(closure, span, inside)?)),
            Val::Array(array) => Skeleton::of_array(array),
            Val::View(view) => Skeleton::View(Box::new(Skeleton::of_array(&view.array)), view.clone()),
            Val::RawMemory(array) => Skeleton::Memory(Box::new(Skeleton::of_array(array))),
            other => Skeleton::Fixed(other.clone()),
        })
    }

    fn function_skeleton(&self, closure: &Closure, span: Span, inside: &mut Vec<ScopeId>) -> Res<FunctionSkeleton> {
        let mut defaults = Vec::new();
        for default in &closure.defaults {
            defaults.push(default.as_ref().map(|default| self.skeleton_of(default, span, inside)).transpose()?);
        }
        let (mut left, mut around) = (Vec::new(), closure.scope);
        while let Some((id, locals)) = around.and_then(|id| Some((id, self.scopes[id.0].left.as_ref()?))) {
            if inside.contains(&id) {
                return Err(Box::new(
                    Diagnostic::error(id::UNSUPPORTED, span, "a function that refers to itself can't be chosen at run time")
                        .help("decide which function it is when the kernel is compiled"),
                ));
            }
            inside.push(id);
            let mut shapes = Vec::new();
            for (name, binding) in locals {
                shapes.push((name.clone(), binding.span, self.skeleton_of(&binding.value, binding.span, inside)?));
            }
            inside.pop();
            left.push(LeftSkeleton { names: self.scopes[id.0].names.clone(), locals: shapes });
            around = self.scopes[id.0].outer;
        }
        Ok(FunctionSkeleton { function: closure.function.clone(), defaults, is_context: closure.is_context, left, around })
    }

    /// The values of a function's parts, in the order of [`FunctionSkeleton::parts`].
    fn function_parts(&self, closure: &Closure) -> Vec<Val> {
        let mut parts: Vec<Val> = closure.defaults.iter().flatten().cloned().collect();
        let mut scope = closure.scope;
        while let Some((id, locals)) = scope.and_then(|id| Some((id, self.scopes[id.0].left.as_ref()?))) {
            parts.extend(locals.values().map(|binding| binding.value.clone()));
            scope = self.scopes[id.0].outer;
        }
        parts
    }

    /// The values that flow, in the order of [`Skeleton::types`]; numbers become constants here.
    pub(crate) fn flatten(&mut self, value: &Val, span: Span, out: &mut Vec<Value>) -> Res<()> {
        match value {
            Val::Tile(tile) => out.push(tile.value),
            Val::Num(_) => out.push(self.tile(&(value.clone(), span))?.value),
            Val::Tuple(items) | Val::Sequence(items) | Val::Instance(_, items) => {
                for item in items.iter() {
                    self.flatten(item, span, out)?;
                }
            }
            Val::Array(array) | Val::RawMemory(array) => out.extend(array.parts()),
            Val::View(view) => out.extend(view.array.parts()),
            Val::Closure(closure) => {
                for part in self.function_parts(closure) {
                    self.flatten(&part, span, out)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rebuild_function(&mut self, shape: &FunctionSkeleton, values: &mut dyn Iterator<Item = Value>) -> Val {
        let mut defaults = Vec::new();
        for default in &shape.defaults {
            defaults.push(default.as_ref().map(|default| self.rebuild(default, values)));
        }
        let mut scopes = Vec::new();
        for left in &shape.left {
            let mut locals = Locals::new();
            for (name, span, local) in &left.locals {
                let value = self.rebuild(local, values);
                locals.insert(name.clone(), Binding { value, span: *span });
            }
            scopes.push((left.names.clone(), locals));
        }
        let mut scope = shape.around;
        for (names, locals) in scopes.into_iter().rev() {
            self.scopes.push(Scope { names, outer: scope, captured: true, left: Some(locals) });
            scope = Some(ScopeId(self.scopes.len() - 1));
        }
        Val::Closure(Rc::new(Closure { function: shape.function.clone(), scope, defaults, is_context: shape.is_context }))
    }

    /// A value from what flowed.
    pub(crate) fn rebuild(&mut self, skeleton: &Skeleton, values: &mut dyn Iterator<Item = Value>) -> Val {
        match skeleton {
            Skeleton::Tile(dtype, shape) => {
                let value = values.next().expect("as many values flow as the skeleton has types");
                Val::Tile(Tile { value, dtype: *dtype, shape: shape.clone(), known: None })
            }
            Skeleton::Tuple(items) => Val::tuple(items.iter().map(|item| self.rebuild(item, values)).collect::<Vec<_>>()),
            Skeleton::List(items) => Val::Sequence(items.iter().map(|item| self.rebuild(item, values)).collect()),
            Skeleton::Instance(class, items) => {
                Val::Instance(class.clone(), items.iter().map(|item| self.rebuild(item, values)).collect())
            }
            Skeleton::Array { dtype, shape, strides, index } => {
                let base = values.next().expect("as many values flow as the skeleton has types");
                let mut dims = |extents: &[Extent]| -> Vec<Dim> {
                    extents.iter().zip(&mut *values).map(|(&extent, value)| Dim { extent, value }).collect()
                };
                let sizes = dims(shape);
                let steps = dims(strides);
                Val::Array(Rc::new(self.make_array(*dtype, base, sizes, steps, *index)))
            }
            Skeleton::View(array, view) => match self.rebuild(array, values) {
                Val::Array(array) => Val::View(Rc::new(TiledView { array, ..(**view).clone() })),
                other => other,
            },
            Skeleton::Memory(array) => match self.rebuild(array, values) {
                Val::Array(array) => Val::RawMemory(array),
                other => other,
            },
            Skeleton::Function(shape) => self.rebuild_function(shape, values),
            Skeleton::Fixed(value) => value.clone(),
        }
    }

    /// Values that are never read, for variables without one on some path.
    pub(crate) fn placeholder(&mut self, skeleton: &Skeleton, span: Span) -> Res<Val> {
        Ok(match skeleton {
            Skeleton::Tile(dtype, shape) => Val::Tile(self.constant(Num::Int(0), *dtype, shape.clone(), span)?),
            Skeleton::Tuple(items) => {
                let items: Res<Vec<Val>> = items.iter().map(|item| self.placeholder(item, span)).collect();
                Val::tuple(items?)
            }
            Skeleton::List(items) => {
                Val::Sequence(items.iter().map(|item| self.placeholder(item, span)).collect::<Res<Vec<Val>>>()?.into())
            }
            Skeleton::Instance(class, items) => {
                let items: Res<Vec<Val>> = items.iter().map(|item| self.placeholder(item, span)).collect();
                Val::Instance(class.clone(), items?.into())
            }
            Skeleton::Fixed(value) => value.clone(),
            Skeleton::Array { .. } | Skeleton::View(..) | Skeleton::Memory(_) | Skeleton::Function(_) => {
                return Err(Box::new(
                    Diagnostic::error(
                        id::UNSUPPORTED,
                        span,
                        format!("{} can't be returned from inside a loop", skeleton.describe()),
                    )
                    .help("return the index that chooses it"),
                ));
            }
        })
    }
}
