//! Attributes of values: `x.shape`, `tile.astype`, `view.load`, members of modules.

use tessera_ir::{Diagnostic, Extent, Shape, Span};

use super::names::missing_member;
use super::{Lowerer, Res};
use crate::builtins::{Builtin, Space};
use crate::diagnostics::id;
use crate::fixed;
use crate::modules::Target;
use crate::value::{Array, Dim, Tile, Val};

/// Attributes that are not methods, by class.
const ARRAY: &[&str] = &["dtype", "shape", "strides", "ndim"];
const TILE: &[&str] = &["dtype", "shape", "ndim"];
/// Those of arrays in `cuda.tile` 1.7.0 that kernels can't use, with the reason.
const REFUSED_MEMBERS: &[(&str, &str)] =
    &[("foreign_pointer", "pointers to foreign code have no meaning where a kernel may run on a CPU")];
const VIEW: &[&str] = &["dtype", "tile_shape", "traversal_steps"];

impl Lowerer<'_> {
    /// `value.name`.
    pub(crate) fn member(&mut self, value: &Val, name: &str, span: Span) -> Res<Val> {
        let method =
            |space: Space| Builtin::find(space, name).map(|builtin| Val::Method(std::rc::Rc::new(value.clone()), builtin));
        let (class, space, own): (&str, Option<Space>, &[&str]) = match value {
            Val::Module(path) => {
                let path = format!("{path}.{name}");
                return self.path(&path, span);
            }
            Val::Project(module, _) => {
                let file = self.file;
                return match file.member_of(*module, name) {
                    Some(definition) => self.definition(definition, name, span),
                    None => Err(file.lost(&Target::Member(*module, name.to_string()), span, span)),
                };
            }
            Val::Array(array) => match name {
                "dtype" => return Ok(Val::DType(array.dtype)),
                "ndim" => return Ok(Val::int(array.shape.len() as i64)),
                "shape" => return Ok(dims(array, &array.shape)),
                "strides" => return Ok(dims(array, &array.strides)),
                _ => ("Array", Some(Space::ArrayMethod), ARRAY),
            },
            Val::Tile(tile) => match name {
                "dtype" => return Ok(Val::DType(tile.dtype)),
                "ndim" => return Ok(Val::int(tile.shape.len() as i64)),
                "shape" => return Ok(Val::tuple(tile.shape.iter().map(|&extent| Val::int(extent)))),
                _ => ("Tile", Some(Space::TileMethod), TILE),
            },
            Val::Num(_) if Builtin::find(Space::TileMethod, name).is_some() => {
                let tile = self.tile(&(value.clone(), span))?;
                return self.member(&Val::Tile(tile), name, span);
            }
            Val::View(view) => match name {
                "dtype" => return Ok(Val::DType(view.array.dtype)),
                "tile_shape" if view.scalar => return Ok(Val::tuple([])),
                "tile_shape" => return Ok(Val::tuple(view.tile.iter().map(|&extent| Val::int(extent)))),
                "traversal_steps" => return Ok(Val::tuple(view.steps.iter().map(|&step| Val::int(step)))),
                _ => ("TiledView", Some(Space::ViewMethod), VIEW),
            },
            Val::RawMemory(array) => match name {
                "dtype" => return Ok(Val::DType(array.dtype)),
                _ => ("RawArrayMemory", Some(Space::RawMethod), &["dtype"]),
            },
            Val::Class("Array") if name == "from_foreign" => {
                return Err(missing_member("Array", name, [].into_iter(), span));
            }
            Val::DType(dtype) => match name {
                "bitwidth" => return Ok(Val::int(dtype.bits())),
                "name" => return Ok(Val::str(crate::promote::dtype_name(*dtype))),
                _ => ("DType", None, &["bitwidth", "name"]),
            },
            Val::SourceClass(_) | Val::Instance(..) | Val::Member(..) => return self.object_member(value, name, span),
            Val::Enum(_, member) if name == "name" => return Ok(Val::str(member)),
            Val::Num(number) => match fixed::of_number(*number, name, false).filter(|_| self.is_static) {
                Some(value) => return Ok(Val::Num(value)),
                None => ("number", None, &[]),
            },
            Val::Str(_) => ("str", None, &[]),
            Val::Tuple(_) => ("tuple", None, &[]),
            Val::None => ("None", None, &[]),
            Val::List(_) => ("list", None, &[]),
            Val::Dict(_) => ("dict", None, &["get", "items", "keys", "values"]),
            Val::Closure(_) | Val::Builtin(_) | Val::Method(..) | Val::Bound(..) => ("function", None, &[]),
            _ => ("value", None, &[]),
        };
        if let Some((_, reason)) = REFUSED_MEMBERS.iter().find(|(refused, _)| class == "Array" && *refused == name) {
            let message = format!("`{name}` of an array is not available in kernels");
            return Err(Box::new(Diagnostic::error(id::REFUSED, span, message).label("used here").note(*reason)));
        }
        if let Some(found) = space.and_then(method) {
            return Ok(found);
        }
        let methods = Builtin::ALL.iter().filter(|b| Some(b.row().space) == space).map(|b| b.row().name);
        Err(missing_member(class, name, own.iter().copied().chain(methods), span))
    }
}

/// Sizes or strides of an array: constants where they are known.
fn dims(array: &Array, dims: &[Dim]) -> Val {
    Val::tuple(dims.iter().map(|dim| match dim.extent {
        Extent::Static(value) => Val::int(value),
        Extent::Dynamic => Val::Tile(Tile { value: dim.value, dtype: array.index.dtype(), shape: Shape::new(), known: None }),
    }))
}
