//! How far a right result may be from a reference, see `tessera_types::ErrorModel`.

use pyo3::prelude::*;
use tessera::types::{DType, ErrorModel};

use crate::array::refuse;
use crate::dtype;

/// The error model of results in one format that are accumulated in another: the unit round-off of each, the share by which an accumulator
/// that truncates is worse, and the absolute error that is always allowed.
#[pyfunction]
pub(crate) fn error_model(py: Python<'_>, out: &str, accumulator: &str) -> PyResult<(f64, f64, f64, f64)> {
    let parse = |name: &str| -> PyResult<DType> {
        dtype::parse(name).ok_or_else(|| refuse(py, format!("no kernel takes elements of `{name}`")))
    };
    let model = ErrorModel::nearest(parse(out)?, parse(accumulator)?);
    Ok((model.u_out, model.u_acc, model.beta, model.floor))
}
