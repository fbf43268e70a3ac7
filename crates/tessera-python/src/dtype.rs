//! Element types by the names that libraries have for them.

use pyo3::prelude::*;
use pyo3::types::PyString;
use tessera::types::DType;

/// The type of a name: this package's, NumPy's, `ml_dtypes`' or PyTorch's.
pub(crate) fn parse(name: &str) -> Option<DType> {
    match name {
        "bool" | "bool_" => Some(DType::B1),
        "half" => Some(DType::F16),
        // Packed elements of these have other sizes in NumPy, which gives each a byte.
        "float4_e2m1fn" | "int4" | "uint4" | "float6_e2m3fn" | "float6_e3m2fn" => None,
        other => DType::parse(other),
    }
}

/// The name by which NumPy (with `ml_dtypes`) and PyTorch know a type.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::B1 => "bool",
        DType::TF32 => "float32",
        other => other
            .aliases()
            .iter()
            .copied()
            .find(|alias| {
                alias.starts_with("float") || alias.starts_with("int") || alias.starts_with("uint") || alias.starts_with("bfloat")
            })
            .unwrap_or_else(|| other.name()),
    }
}

/// The type that an object stands for; `None` where it is none.
pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let found = object.py().import("tessera.dtypes")?.getattr("of")?.call1((object,))?;
    if found.is_none() {
        return Ok(None);
    }
    let name: Bound<'_, PyString> = found.getattr("name")?.cast_into()?;
    let name = name.to_str()?.to_owned();
    Ok(if name == "bool_" { Some(DType::B1) } else { DType::parse(&name) })
}
