//! Values taken apart into what runs through a branch or loop, and put together again behind it.
//!
//! A [`Skeleton`] is the type of a variable where paths meet: tiles, arrays and tuples of them flow as IR values; everything
//! else (strings, functions, dtypes) must be the same on every path.

use tessera_ir::{Diagnostic, Extent, IndexType, Shape, Span, Type, Value};
use tessera_types::DType;

use super::{Lowerer, Res, signless, tile_type};
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::{dtype_name, literal_dtype};
use crate::value::{Dim, Tile, Val, show_shape};

/// The type of a variable where paths meet.
#[derive(Clone, Debug)]
pub(crate) enum Skeleton {
    Tile(DType, Shape),
    Tuple(Vec<Skeleton>),
    Array {
        dtype: DType,
        shape: Vec<Extent>,
        strides: Vec<Extent>,
        index: IndexType,
    },
    /// The same compile-time value on every path.
    Fixed(Val),
}

impl Skeleton {
    pub(crate) fn same(&self, other: &Skeleton) -> bool {
        match (self, other) {
            (Skeleton::Tile(a, x), Skeleton::Tile(b, y)) => a == b && x == y,
            (Skeleton::Tuple(a), Skeleton::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (
                Skeleton::Array { dtype, shape, strides, index },
                Skeleton::Array { dtype: dtype2, shape: shape2, strides: strides2, index: index2 },
            ) => dtype == dtype2 && shape == shape2 && strides == strides2 && index == index2,
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
            Skeleton::Array { dtype, shape, .. } => format!("an array of {} with rank {}", dtype_name(*dtype), shape.len()),
            Skeleton::Fixed(value) => value.describe(),
        }
    }

    /// IR types of the values that flow.
    pub(crate) fn types(&self, out: &mut Vec<Type>) {
        match self {
            Skeleton::Tile(dtype, shape) => out.push(tile_type(*dtype, shape)),
            Skeleton::Tuple(items) => items.iter().for_each(|item| item.types(out)),
            Skeleton::Array { dtype, shape, strides, index } => {
                out.push(Type::pointers(Shape::new(), signless(*dtype)));
                out.extend(shape.iter().chain(strides).map(|_| tile_type(index.dtype(), &[])));
            }
            Skeleton::Fixed(_) => {}
        }
    }
}

impl Lowerer<'_> {
    /// What a value is where paths meet.
    pub(crate) fn skeleton(&self, value: &Val, span: Span) -> Res<Skeleton> {
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
            Val::Tuple(items) => Skeleton::Tuple(items.iter().map(|item| self.skeleton(item, span)).collect::<Res<Vec<_>>>()?),
            Val::Array(array) => Skeleton::Array {
                dtype: array.dtype,
                shape: array.shape.iter().map(|dim| dim.extent).collect(),
                strides: array.strides.iter().map(|dim| dim.extent).collect(),
                index: array.index,
            },
            other => Skeleton::Fixed(other.clone()),
        })
    }

    /// The values that flow, in the order of [`Skeleton::types`]; numbers become constants here.
    pub(crate) fn flatten(&mut self, value: &Val, span: Span, out: &mut Vec<Value>) -> Res<()> {
        match value {
            Val::Tile(tile) => out.push(tile.value),
            Val::Num(_) => out.push(self.tile(&(value.clone(), span))?.value),
            Val::Tuple(items) => {
                for item in items.iter() {
                    self.flatten(item, span, out)?;
                }
            }
            Val::Array(array) => {
                out.push(array.base);
                out.extend(array.shape.iter().chain(&array.strides).map(|dim| dim.value));
            }
            _ => {}
        }
        Ok(())
    }

    /// A value from what flowed.
    pub(crate) fn rebuild(&mut self, skeleton: &Skeleton, values: &mut impl Iterator<Item = Value>) -> Val {
        match skeleton {
            Skeleton::Tile(dtype, shape) => {
                let value = values.next().expect("as many values flow as the skeleton has types");
                Val::Tile(Tile { value, dtype: *dtype, shape: shape.clone(), known: None })
            }
            Skeleton::Tuple(items) => Val::tuple(items.iter().map(|item| self.rebuild(item, values)).collect::<Vec<_>>()),
            Skeleton::Array { dtype, shape, strides, index } => {
                let base = values.next().expect("as many values flow as the skeleton has types");
                let mut dims = |extents: &[Extent]| -> Vec<Dim> {
                    extents.iter().zip(values.by_ref()).map(|(&extent, value)| Dim { extent, value }).collect()
                };
                let sizes = dims(shape);
                let steps = dims(strides);
                Val::Array(std::rc::Rc::new(self.make_array(*dtype, base, sizes, steps, *index)))
            }
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
            Skeleton::Fixed(value) => value.clone(),
            Skeleton::Array { .. } => {
                return Err(Box::new(
                    Diagnostic::error(id::UNSUPPORTED, span, "an array can't be returned from inside a loop")
                        .help("return the index that chooses it"),
                ));
            }
        })
    }
}
