//! Arguments: what a kernel or an operator is given, before it is known where it runs.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};
use tessera::ir::item_name;
use tessera::lang::ConstValue;
use tessera::runtime::{Tensor, Value};
use tessera::types::DType;

use crate::array::{Given, refuse};
use crate::dtype;
use crate::torch;

/// An argument.
#[derive(Debug)]
pub(crate) enum Argument {
    Array(Given),
    List(Vec<Given>),
    Constant(ConstValue),
}

impl Argument {
    /// Adds what an object is to a kernel, by name. Items of a tuple with arrays in it are arguments of their own.
    /// `stream` is the one that the launch goes to, where one was named.
    pub(crate) fn collect<'a>(
        object: &Bound<'_, PyAny>,
        name: Cow<'a, str>,
        stream: Option<u64>,
        named: &mut Vec<(Cow<'a, str>, Argument)>,
    ) -> PyResult<()> {
        if let Ok(tuple) = object.cast::<PyTuple>()
            && constant(object, &name)?.is_none()
        {
            let mut items = tuple.iter().enumerate();
            return items.try_for_each(|(at, item)| Argument::collect(&item, item_name(&name, at).into(), stream, named));
        }
        let argument = Argument::of(object, &name, stream)?;
        named.push((name, argument));
        Ok(())
    }

    /// What an object that is no tuple with arrays in it is to a kernel; `name` is the parameter's.
    fn of(object: &Bound<'_, PyAny>, name: &str, stream: Option<u64>) -> PyResult<Argument> {
        // The most frequent first.
        if let Some(given) = torch::plain(object)? {
            return Ok(Argument::Array(given));
        }
        if let Ok(list) = object.cast::<PyList>() {
            let named = list.iter().enumerate().map(|(at, item)| array(&item, &format!("{name}[{at}]"), stream));
            let items = named.collect::<PyResult<Vec<_>>>()?;
            return Ok(Argument::List(items));
        }
        if let Some(value) = constant(object, name)? {
            return Ok(Argument::Constant(value));
        }
        array(object, name, stream).map(Argument::Array)
    }

    /// The arrays.
    pub(crate) fn arrays(&self) -> &[Given] {
        match self {
            Argument::Array(given) => std::slice::from_ref(given),
            Argument::List(items) => items,
            Argument::Constant(_) => &[],
        }
    }

    /// The argument with other arrays in the places of its own.
    pub(crate) fn staged(&self, mut other: impl FnMut(&Given) -> PyResult<Given>) -> PyResult<Argument> {
        Ok(match self {
            Argument::Array(given) => Argument::Array(other(given)?),
            Argument::List(items) => Argument::List(items.iter().map(other).collect::<PyResult<_>>()?),
            Argument::Constant(value) => Argument::Constant(value.clone()),
        })
    }

    /// The argument with tensors in the places of its arrays.
    pub(crate) fn value(&self, mut tensor: impl FnMut(&Given) -> PyResult<Tensor>) -> PyResult<Value> {
        Ok(match self {
            Argument::Array(given) => Value::Tensor(tensor(given)?),
            Argument::List(items) => Value::List(items.iter().map(tensor).collect::<PyResult<_>>()?),
            Argument::Constant(value) => value.clone().into(),
        })
    }
}

/// The array that an object is. `stream` is the one on which it is going to be used, where one was named.
pub(crate) fn array(object: &Bound<'_, PyAny>, name: &str, stream: Option<u64>) -> PyResult<Given> {
    Given::of(object, stream)?.ok_or_else(|| {
        let text = format!(
            "`{name}` is a `{}`, and a kernel takes arrays (NumPy, PyTorch, CuPy, JAX, DLPack), numbers, truth values, strings, types, tuples of these and lists of arrays",
            object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
        );
        refuse(object.py(), text)
    })
}

/// The constant that an object is; `None` where it is or holds an array, or what is not known.
pub(crate) fn constant(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<ConstValue>> {
    let py = object.py();
    if object.is_none() {
        return Ok(Some(ConstValue::None));
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(ConstValue::Bool(value.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        let value = object.extract::<i64>();
        return value
            .map(|value| Some(ConstValue::Int(value)))
            .map_err(|_| refuse(py, format!("`{name}` is {object}, and an argument has 64 bits")));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(ConstValue::Float(object.extract()?)));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(ConstValue::Str(text.to_str()?.to_owned())));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        let items = tuple.iter().map(|item| constant(&item, name)).collect::<PyResult<Option<Vec<_>>>>()?;
        return Ok(items.map(ConstValue::Tuple));
    }
    // A scalar of NumPy's.
    let is_numpy = matches!(object.get_type().module()?.to_str()?, "numpy" | "ml_dtypes");
    if is_numpy
        && !object.hasattr(intern!(py, "ctypes"))?
        && object.hasattr(intern!(py, "item"))?
        && !object.hasattr(intern!(py, "__call__"))?
    {
        return constant(&object.call_method0(intern!(py, "item"))?, name);
    }
    Ok(dtype::of(object)?.map(|dtype: DType| ConstValue::DType(dtype)))
}
