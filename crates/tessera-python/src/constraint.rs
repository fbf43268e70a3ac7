//! What a kernel is compiled for where there are no arguments yet: the constraints of `tessera.tile.compilation`, as tuples.
//!
//! | tuple | parameter |
//! |---|---|
//! | `("constant", value)` | a value that is known now |
//! | `("scalar", dtype)` | a number of a type |
//! | `("array", dtype, sizes, strides, align, wide, disjoint)` | an array; sizes and strides, in elements, are `None` where they are not known |
//! | `("list", dtype, rank, wide)` | a list of arrays |
//! | `("tuple", items)` | a tuple of these |

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tessera::ir::{Extent, IndexType};
use tessera::lang::ArgType;
use tessera::types::DType;

use crate::array::refuse;
use crate::{dtype, value};

/// `(dtype, sizes, strides, align, wide, disjoint)`.
type Array = (String, Vec<Option<i64>>, Vec<Option<i64>>, u32, bool, bool);

/// The type of a parameter.
pub(crate) fn argument_type(given: &Bound<'_, PyAny>, name: &str) -> PyResult<ArgType> {
    let py = given.py();
    let tuple = given.cast::<PyTuple>()?;
    let (kind, rest) = (tuple.get_item(0)?.extract::<String>()?, tuple.get_slice(1, tuple.len()));
    let parse = |dtype: &str| -> PyResult<DType> {
        dtype::parse(dtype).ok_or_else(|| refuse(py, format!("`{name}`: no kernel takes elements of `{dtype}`")))
    };
    let index = |wide: bool| if wide { IndexType::I64 } else { IndexType::I32 };
    match kind.as_str() {
        "constant" => {
            let constant = value::constant(&rest.get_item(0)?, name)?;
            constant.map(ArgType::Const).ok_or_else(|| refuse(py, format!("`{name}` is given no constant")))
        }
        "scalar" => Ok(ArgType::Scalar(parse(&rest.get_item(0)?.extract::<String>()?)?)),
        "array" => {
            let (dtype, sizes, strides, align, wide, disjoint): Array = rest.extract()?;
            let extents = |numbers: Vec<Option<i64>>| {
                numbers.into_iter().map(|known| known.map_or(Extent::Dynamic, Extent::Static)).collect()
            };
            let (shape, strides) = (extents(sizes), extents(strides));
            Ok(ArgType::Array { dtype: parse(&dtype)?, shape, strides, align, lines: align, index: index(wide), disjoint })
        }
        "list" => {
            let (dtype, rank, wide): (String, u32, bool) = rest.extract()?;
            Ok(ArgType::List { dtype: parse(&dtype)?, rank, index: index(wide) })
        }
        "tuple" => {
            let items: Vec<Bound<'_, PyAny>> = rest.get_item(0)?.extract()?;
            items.iter().map(|item| argument_type(item, name)).collect::<PyResult<_>>().map(ArgType::Tuple)
        }
        other => Err(refuse(py, format!("`{name}`: `{other}` is no kind of parameter"))),
    }
}
