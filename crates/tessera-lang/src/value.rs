//! What an expression of a kernel can be while it is compiled: tiles that exist at run time, and everything that exists
//! only now, such as tuples, element types, functions and literals.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tessera_ir::{Extent, IndexType, Padding, Shape, SourceId, Span, TensorViewType, Value};
use tessera_types::DType;

use crate::ast::Function;
use crate::builtins::Builtin;
use crate::class::SourceClass;
use crate::fixed::Fixed;
use crate::number::Num;
use crate::promote::dtype_name;

/// A tile with the element type that the language sees (the IR's integers have no sign).
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) value: Value,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The number every element is, where that is known.
    pub(crate) known: Option<Num>,
}

/// A size or stride of an array: what is known, and the value at run time.
#[derive(Clone, Debug)]
pub(crate) struct Dim {
    pub(crate) extent: Extent,
    /// A scalar of the array's index type.
    pub(crate) value: Value,
}

/// An array in memory.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) base: Value,
    pub(crate) shape: Vec<Dim>,
    pub(crate) strides: Vec<Dim>,
    pub(crate) index: IndexType,
    /// The tensor view over all of it.
    pub(crate) tensor: Value,
    pub(crate) tensor_ty: TensorViewType,
}

impl Array {
    /// The values at run time that make it: the address, sizes, strides.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Value> {
        std::iter::once(self.base).chain(self.shape.iter().chain(&self.strides).map(|dim| dim.value))
    }
}

/// A list of arrays.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) dtype: DType,
    pub(crate) rank: u32,
    pub(crate) index: IndexType,
    pub(crate) table: Value,
    pub(crate) length: Value,
}

/// An array seen as tiles of one shape.
#[derive(Clone, Debug)]
pub(crate) struct TiledView {
    pub(crate) array: Rc<Array>,
    pub(crate) tile: Shape,
    pub(crate) steps: SmallVec<[u32; 4]>,
    pub(crate) padding: Padding,
    /// True when the tile shape was given as `()`.
    pub(crate) scalar: bool,
}

/// A function of the source as its definition made it.
#[derive(Clone, Debug)]
pub(crate) struct Closure {
    pub(crate) function: Arc<Function>,
    /// The variables that it sees from outside; none for a function of module level.
    pub(crate) scope: Option<ScopeId>,
    /// The values of its parameters' defaults, which the definition evaluated.
    pub(crate) defaults: Vec<Option<Val>>,
    /// True for a generator that `contextlib.contextmanager` made a context manager.
    pub(crate) is_context: bool,
}

/// The variables of one call of a function, as functions defined in it see them: see [`crate::lower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeId(pub(crate) usize);

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) value: Val,
    /// Where it was assigned.
    pub(crate) span: Span,
}

/// Why a variable can't be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) id: &'static str,
    pub(crate) message: String,
    pub(crate) places: Vec<(Span, String)>,
    pub(crate) help: String,
}

/// Bounds of a `range`.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start: Val,
    pub(crate) stop: Val,
    pub(crate) step: Val,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Tile(Tile),
    /// A number without an element type.
    Num(Num),
    Str(Rc<str>),
    None,
    Ellipsis,
    DType(DType),
    Tuple(Rc<[Val]>),
    /// A list; it never changes.
    Sequence(Rc<[Val]>),
    /// What `zip`, `enumerate`, `reversed` and generator expressions make: items that are taken once.
    Iterator(Rc<[Val]>),
    Array(Rc<Array>),
    List(Rc<List>),
    View(Rc<TiledView>),
    /// Base pointer of an array, addressed by element offset.
    RawMemory(Rc<Array>),
    Range(Rc<Range>),
    /// `ct.Slice(start, length)`.
    Span(Rc<(Val, u32)>),
    /// `a:b:c` in a subscript; true for a bare `:`.
    Colon(Rc<[Val; 3]>),
    Closure(Rc<Closure>),
    Builtin(Builtin),
    Method(Rc<Val>, Builtin),
    /// A function that gets a value as its first argument: a method of an object.
    Bound(Rc<Val>, Rc<Val>),
    /// What a `**` parameter collects, or a display that is evaluated when the kernel is compiled; it never changes.
    Dict(Rc<[(Val, Val)]>),
    /// A class of the source.
    SourceClass(Rc<SourceClass>),
    /// An object of a dataclass or a named tuple: the values of its fields.
    Instance(Rc<SourceClass>, Rc<[Val]>),
    /// A member of an enumeration of the source, by its position.
    Member(Rc<SourceClass>, usize),
    /// A known module or a path inside one that is none of its members.
    Module(Rc<str>),
    /// A module of the project, by its text, with its file's name.
    Project(SourceId, Rc<str>),
    /// A member of an enumeration such as `PaddingMode.ZERO`.
    Enum(&'static str, &'static str),
    /// A class used in `isinstance` and annotations.
    Class(&'static str),
    /// An exception made in `static_exception`.
    Exception(&'static str, Rc<str>),
    Unusable(Rc<Unusable>),
}

impl Val {
    pub(crate) fn int(value: impl Into<i128>) -> Val {
        Val::Num(Num::Int(value.into()))
    }

    pub(crate) fn bool(value: bool) -> Val {
        Val::Num(Num::Bool(value))
    }

    pub(crate) fn str(text: &str) -> Val {
        Val::Str(text.into())
    }

    pub(crate) fn tuple(items: impl IntoIterator<Item = Val>) -> Val {
        Val::Tuple(items.into_iter().collect())
    }

    /// The number, where it is known now.
    pub(crate) fn number(&self) -> Option<Num> {
        match self {
            Val::Num(value) => Some(*value),
            Val::Tile(tile) if tile.shape.is_empty() => tile.known,
            _ => None,
        }
    }

    /// The value, where nothing of it is made at run time.
    pub(crate) fn fixed(&self) -> Option<Fixed> {
        let all = |items: &[Val]| items.iter().map(Val::fixed).collect::<Option<Rc<[Fixed]>>>();
        Some(match self {
            Val::Num(number) => Fixed::Num(*number),
            Val::Str(text) => Fixed::Str(text.clone()),
            Val::None => Fixed::None,
            Val::DType(dtype) => Fixed::DType(*dtype),
            Val::Tuple(items) => Fixed::Tuple(all(items)?),
            Val::Sequence(items) => Fixed::List(all(items)?),
            Val::Iterator(items) => Fixed::Iterator(all(items)?),
            Val::Range(range) => {
                let mut bounds = [0; 3];
                for (bound, value) in bounds.iter_mut().zip([&range.start, &range.stop, &range.step]) {
                    *bound = value.fixed()?.as_int()?;
                }
                Fixed::Range(bounds)
            }
            Val::Module(path) => Fixed::Path(path.clone()),
            _ => return None,
        })
    }

    /// The items of a tuple, a named one too, or of a compile-time list.
    pub(crate) fn items(&self) -> Option<&Rc<[Val]>> {
        match self {
            Val::Tuple(items) | Val::Sequence(items) => Some(items),
            Val::Instance(class, items) if class.is_tuple() => Some(items),
            _ => None,
        }
    }

    /// The value as operators and built-ins take it: a named tuple is a tuple, a member of an enumeration of numbers or strings is
    /// its value.
    pub(crate) fn plain(&self) -> Val {
        let has_name = |item: &Val| matches!(item, Val::Instance(..) | Val::Member(..));
        match self {
            Val::Instance(class, items) if class.is_tuple() => Val::Tuple(items.iter().map(Val::plain).collect()),
            Val::Member(class, at) if class.is_plain => class.members[*at].1.clone(),
            Val::Tuple(items) if items.iter().any(has_name) => Val::Tuple(items.iter().map(Val::plain).collect()),
            Val::Sequence(items) if items.iter().any(has_name) => Val::Sequence(items.iter().map(Val::plain).collect()),
            _ => self.clone(),
        }
    }

    /// True when a part of it is made at run time.
    pub(crate) fn is_run_time(&self) -> bool {
        match self {
            Val::Tile(_) | Val::Array(_) | Val::List(_) | Val::View(_) | Val::RawMemory(_) => true,
            Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items) | Val::Instance(_, items) => {
                items.iter().any(Val::is_run_time)
            }
            Val::Dict(items) => items.iter().any(|(_, item)| item.is_run_time()),
            Val::Bound(receiver, function) => receiver.is_run_time() || function.is_run_time(),
            _ => self.is_bound_to_block(),
        }
    }

    /// True when a part of it that no branch or loop yields is made at run time.
    pub(crate) fn is_bound_to_block(&self) -> bool {
        match self {
            Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items) | Val::Instance(_, items) => {
                items.iter().any(Val::is_bound_to_block)
            }
            Val::Dict(_) | Val::Bound(..) => self.is_run_time(),
            Val::Range(range) => [&range.start, &range.stop, &range.step].into_iter().any(|bound| matches!(bound, Val::Tile(_))),
            Val::Span(span) => matches!(span.0, Val::Tile(_)),
            Val::Colon(parts) => parts.iter().any(|part| matches!(part, Val::Tile(_))),
            Val::Method(receiver, _) => receiver.is_bound_to_block() || matches!(**receiver, Val::Tile(_) | Val::Array(_)),
            Val::Tile(_)
            | Val::Array(_)
            | Val::List(_)
            | Val::View(_)
            | Val::RawMemory(_)
            | Val::Closure(_)
            | Val::Num(_)
            | Val::Str(_)
            | Val::None
            | Val::Ellipsis
            | Val::DType(_)
            | Val::Builtin(_)
            | Val::Module(_)
            | Val::Project(..)
            | Val::Enum(..)
            | Val::Class(_)
            | Val::SourceClass(_)
            | Val::Member(..)
            | Val::Exception(..)
            | Val::Unusable(_) => false,
        }
    }

    /// True for tiles, and for numbers, which become tiles where one is needed.
    pub(crate) fn is_numeric(&self) -> bool {
        matches!(self, Val::Tile(_) | Val::Num(_))
    }

    /// True when both are the same compile-time value or the same run-time value.
    pub(crate) fn same(&self, other: &Val) -> bool {
        match (self, other) {
            (Val::Tile(a), Val::Tile(b)) => a.value == b.value,
            (Val::Num(a), Val::Num(b)) => a == b,
            (Val::Str(a), Val::Str(b)) => a == b,
            (Val::Module(a), Val::Module(b)) => a == b,
            (Val::Project(a, _), Val::Project(b, _)) => a == b,
            (Val::None, Val::None) | (Val::Ellipsis, Val::Ellipsis) => true,
            (Val::DType(a), Val::DType(b)) => a == b,
            (Val::Tuple(a), Val::Tuple(b)) | (Val::Sequence(a), Val::Sequence(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.same(b))
            }
            (Val::Instance(c, a), Val::Instance(d, b)) => c.is(d) && a.iter().zip(b.iter()).all(|(a, b)| a.same(b)),
            (Val::Member(c, a), Val::Member(d, b)) => c.is(d) && a == b,
            (Val::SourceClass(a), Val::SourceClass(b)) => a.is(b),
            (Val::Bound(a, f), Val::Bound(b, g)) => a.same(b) && f.same(g),
            (Val::Dict(a), Val::Dict(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|((k, a), (l, b))| k.same(l) && a.same(b))
            }
            (Val::Array(a), Val::Array(b)) => Rc::ptr_eq(a, b) || a.tensor == b.tensor,
            (Val::List(a), Val::List(b)) => Rc::ptr_eq(a, b),
            (Val::View(a), Val::View(b)) => Rc::ptr_eq(a, b),
            (Val::RawMemory(a), Val::RawMemory(b)) => a.base == b.base,
            (Val::Range(a), Val::Range(b)) => Rc::ptr_eq(a, b),
            (Val::Span(a), Val::Span(b)) => Rc::ptr_eq(a, b),
            (Val::Closure(a), Val::Closure(b)) => {
                let default = |pair: (&Option<Val>, &Option<Val>)| match pair {
                    (Some(a), Some(b)) => a.same(b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                Rc::ptr_eq(a, b)
                    || Arc::ptr_eq(&a.function, &b.function)
                        && a.scope == b.scope
                        && a.defaults.iter().zip(&b.defaults).all(default)
            }
            (Val::Builtin(a), Val::Builtin(b)) => a == b,
            (Val::Enum(a, x), Val::Enum(b, y)) => a == b && x == y,
            (Val::Class(a), Val::Class(b)) => a == b,
            (Val::Unusable(a), Val::Unusable(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// What the value is, for a message: `a (64, 64) tile of float32`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Val::Tile(tile) if tile.shape.is_empty() => format!("{} scalar", with_article(dtype_name(tile.dtype))),
            Val::Tile(tile) => format!("a {} tile of {}", show_shape(&tile.shape), dtype_name(tile.dtype)),
            Val::Num(value) => format!("the constant {value}"),
            Val::Str(text) => format!("the string {text:?}"),
            Val::None => "`None`".to_string(),
            Val::Ellipsis => "`...`".to_string(),
            Val::DType(dtype) => format!("the dtype `{}`", dtype_name(*dtype)),
            Val::Tuple(items) => format!("a tuple of {} item{}", items.len(), plural(items.len())),
            Val::Sequence(items) => format!("a list of {} item{}", items.len(), plural(items.len())),
            Val::Iterator(_) => "an iterator".to_string(),
            Val::Array(array) => format!("an array of {} with rank {}", dtype_name(array.dtype), array.shape.len()),
            Val::List(list) => format!("a list of {} arrays with rank {}", dtype_name(list.dtype), list.rank),
            Val::View(view) => {
                format!("a tiled view with {} tiles of {}", show_shape(&view.tile), dtype_name(view.array.dtype))
            }
            Val::RawMemory(array) => format!("raw memory of {}", dtype_name(array.dtype)),
            Val::Range(_) => "a range".to_string(),
            Val::Span(_) => "a `Slice`".to_string(),
            Val::Colon(_) => "a subscript slice".to_string(),
            Val::Closure(closure) => format!("the function `{}`", closure.function.name.name),
            Val::Builtin(builtin) => format!("the function `{}`", builtin.row().name),
            Val::Method(_, builtin) => format!("the method `{}`", builtin.row().name),
            Val::Bound(_, function) => match &**function {
                Val::Closure(closure) => format!("the method `{}`", closure.function.name.name),
                other => other.describe(),
            },
            Val::Dict(items) => format!("a dictionary of {} item{}", items.len(), plural(items.len())),
            Val::SourceClass(class) => format!("the class `{}`", class.name()),
            Val::Instance(class, _) => format!("an object of `{}`", class.name()),
            Val::Member(class, at) => format!("`{}.{}`", class.name(), class.members[*at].0),
            Val::Module(path) => format!("the imported `{path}`"),
            Val::Project(_, file) => format!("the module `{file}`"),
            Val::Enum(kind, member) => format!("`{kind}.{member}`"),
            Val::Class(name) => format!("the class `{name}`"),
            Val::Exception(..) => "an exception".to_string(),
            Val::Unusable(_) => "a variable without a value".to_string(),
        }
    }

    /// The short form that `reveal_type` reports.
    pub(crate) fn reveal(&self) -> String {
        match self {
            Val::Tile(tile) => {
                let text = format!("tile[{}, {}]", dtype_name(tile.dtype), show_shape(&tile.shape));
                match tile.known.filter(|_| tile.shape.is_empty()) {
                    Some(known) => format!("{text} = {known}"),
                    None => text,
                }
            }
            Val::Num(Num::Bool(_)) => format!("const bool {}", self.number().map_or(String::new(), |n| n.to_string())),
            Val::Num(Num::Int(value)) => format!("const int {value}"),
            Val::Num(Num::Float(value)) => format!("const float {value:?}"),
            Val::Str(text) => format!("const str {text:?}"),
            Val::None => "None".to_string(),
            Val::DType(dtype) => format!("dtype {}", dtype_name(*dtype)),
            Val::Tuple(items) => {
                let items: Vec<String> = items.iter().map(Val::reveal).collect();
                format!("({})", items.join(", "))
            }
            Val::Instance(class, items) => {
                let fields = class.fields.iter().zip(items.iter());
                let items: Vec<String> = fields.map(|(field, item)| format!("{}={}", field.name, item.reveal())).collect();
                format!("{}({})", class.name(), items.join(", "))
            }
            Val::Array(array) => {
                let dims: Vec<String> = array.shape.iter().map(|dim| dim.extent.to_string()).collect();
                format!("array[{}, ({})]", dtype_name(array.dtype), dims.join(", "))
            }
            other => other.describe(),
        }
    }
}

impl From<Fixed> for Val {
    fn from(value: Fixed) -> Val {
        let all = |items: &[Fixed]| items.iter().cloned().map(Val::from).collect::<Rc<[Val]>>();
        match value {
            Fixed::Num(number) => Val::Num(number),
            Fixed::Str(text) => Val::Str(text),
            Fixed::None => Val::None,
            Fixed::DType(dtype) => Val::DType(dtype),
            Fixed::Tuple(items) => Val::Tuple(all(&items)),
            Fixed::List(items) => Val::Sequence(all(&items)),
            Fixed::Iterator(items) => Val::Iterator(all(&items)),
            Fixed::Range([start, stop, step]) => {
                Val::Range(Rc::new(Range { start: Val::int(start), stop: Val::int(stop), step: Val::int(step) }))
            }
            Fixed::Path(path) => Val::Module(path),
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn with_article(name: &str) -> String {
    if name.starts_with('i') || name.starts_with('u') && !name.starts_with("uint") {
        format!("an {name}")
    } else {
        format!("a {name}")
    }
}

/// A shape as a Python tuple.
pub(crate) fn show_shape(shape: &[u32]) -> String {
    match shape {
        [only] => format!("({only},)"),
        _ => {
            let items: Vec<String> = shape.iter().map(u32::to_string).collect();
            format!("({})", items.join(", "))
        }
    }
}
