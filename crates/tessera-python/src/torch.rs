//! PyTorch's tensors. Launching a kernel on five of them should take a few microseconds: so they are read by the functions that PyTorch offers
//! to C (DLPack's, from 2.10 on), and by their attributes where it has none, or says no, which leaves what to say to the attributes.

use std::collections::HashMap;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};
use tessera::types::DType;

use crate::array::{Given, refuse};
use crate::dlpack::Exchange;
use crate::dtype;

/// What is known of PyTorch, once it is imported.
struct Torch {
    tensor: Py<PyAny>,
    parameter: Py<PyAny>,
    stream: Option<Py<PyAny>>,
    exchange: Option<&'static Exchange>,
    /// Tells autograd that tensors of a list were changed.
    increment: Py<PyAny>,
    /// Element types by the addresses of PyTorch's objects, which live as long as the process.
    dtypes: HashMap<usize, DType>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

fn torch(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
    if let Some(known) = TORCH.get(py) {
        return Ok(Some(known));
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Ok(module) = modules.get_item(intern!(py, "torch")) else { return Ok(None) };
    // It is there, and not yet whole, while it is being imported.
    let (Ok(tensor), Ok(nn)) = (module.getattr("Tensor"), module.getattr("nn")) else { return Ok(None) };
    let Ok(parameter) = nn.getattr("Parameter") else { return Ok(None) };
    let mut dtypes = HashMap::new();
    for dtype in DType::ALL {
        if let Ok(object) = module.getattr(dtype::name(*dtype))
            && *dtype != DType::TF32
        {
            dtypes.insert(object.as_ptr() as usize, *dtype);
        }
    }
    let exchange = Exchange::of(&tensor);
    // Autograd is imported behind the tensors. What its function calls takes a third of its time; older versions' takes no lists.
    let Ok(graph) = module.getattr("autograd").and_then(|autograd| autograd.getattr("graph")) else { return Ok(None) };
    let quick = module.getattr("_C").and_then(|native| native.getattr("_increment_version"));
    let quick = quick.ok().filter(|quick| quick.call1((PyTuple::empty(py),)).is_ok());
    let increment = quick.map_or_else(|| graph.getattr("increment_version"), Ok)?.unbind();
    let stream = module.getattr("cuda").and_then(|cuda| cuda.getattr("Stream")).ok().map(Bound::unbind);
    let known = Torch { tensor: tensor.unbind(), parameter: parameter.unbind(), stream, exchange, increment, dtypes };
    Ok(Some(TORCH.get_or_init(py, || known)))
}

/// A tensor or a parameter of PyTorch's own class; `None` where it is something else.
pub(crate) fn plain(object: &Bound<'_, PyAny>) -> PyResult<Option<Given>> {
    let py = object.py();
    let Some(torch) = torch(py)? else { return Ok(None) };
    let class = object.get_type();
    if !class.is(&torch.tensor) && !class.is(&torch.parameter) {
        return Ok(None);
    }
    if let Some(exchange) = torch.exchange
        && let Some(given) = exchange.view(object)
    {
        return whole(object, given).map(Some);
    }
    any(object).map(Some)
}

/// Refuses what is no array for all that it has an address.
fn whole(tensor: &Bound<'_, PyAny>, given: Given) -> PyResult<Given> {
    let py = tensor.py();
    // Such a tensor is the imaginary part of complex numbers: its neighbours are an even number of elements apart.
    // The stride of an axis of one element says nothing.
    let mut axes = given.shape.iter().zip(&given.strides);
    let may_be_negated = given.dtype.is_float() && axes.all(|(size, stride)| *size <= 1 || stride % 2 == 0);
    if may_be_negated && tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
        return Err(refuse(py, "a tensor that is negated lazily is no array: pass `resolve_neg()`"));
    }
    if given.address == 0 && given.len() > 0 {
        let layout = tensor.getattr("layout")?.str()?;
        if layout != "torch.strided" {
            return Err(refuse(
                py,
                format!("a tensor of layout `{layout}` has no memory that a kernel could use: pass `to_dense()`"),
            ));
        }
        let class = tensor.get_type().name()?;
        return Err(refuse(
            py,
            format!(
                "the `{class}` has no memory, or it was freed: under `torch.compile` and its like tensors are only traced; launch outside of them, or in \
                 an operator made by `torch.library.custom_op`"
            ),
        ));
    }
    Ok(given)
}

/// Tells autograd that those of some objects which are tensors are going to be changed, so that it does not use them as what they were.
pub(crate) fn change<'a>(py: Python<'_>, objects: impl Iterator<Item = &'a Py<PyAny>>) -> PyResult<()> {
    let Some(torch) = torch(py)? else { return Ok(()) };
    let mut tensors = Vec::new();
    for object in objects {
        if is_tensor(object.bind(py))? {
            tensors.push(object);
        }
    }
    if tensors.is_empty() {
        return Ok(());
    }
    torch.increment.call1(py, (PyTuple::new(py, tensors)?,)).map(drop)
}

/// The handle of a stream of PyTorch's own class.
pub(crate) fn stream(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = object.py();
    let of_torch = torch(py)?.and_then(|torch| torch.stream.as_ref()).is_some_and(|class| object.get_type().is(class));
    if of_torch { object.getattr(intern!(py, "cuda_stream"))?.extract().map(Some) } else { Ok(None) }
}

/// PyTorch's current stream on a GPU, where it says so quickly and has used one.
pub(crate) fn current_stream(py: Python<'_>, ordinal: u32) -> PyResult<Option<u64>> {
    Ok(torch(py)?.and_then(|torch| torch.exchange).and_then(|exchange| exchange.current_stream(py, ordinal)))
}

/// Whether an object is a tensor of PyTorch's, or of a class made from it, wherever that was defined.
pub(crate) fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    torch(py)?.map_or(Ok(false), |torch| object.is_instance(torch.tensor.bind(py)))
}

/// A tensor of PyTorch's, or of a class made from it.
pub(crate) fn any(tensor: &Bound<'_, PyAny>) -> PyResult<Given> {
    let py = tensor.py();
    let says = |name: &Bound<'_, PyString>| -> PyResult<bool> { tensor.getattr(name)?.is_truthy() };
    // A program that runs on the host by `--cpu` is told that its tensors are on a GPU.
    let gpu = if says(intern!(py, "is_cpu"))? {
        None
    } else if says(intern!(py, "is_cuda"))? {
        Some(tensor.call_method0(intern!(py, "get_device"))?.extract::<u32>()?)
    } else {
        let device = tensor.getattr("device")?.str()?;
        let text = format!("a tensor on `{device}` has no memory that a kernel could use: it is on the CPU or a CUDA device");
        return Err(refuse(py, text));
    };
    let address = match tensor.call_method0(intern!(py, "data_ptr")) {
        Ok(address) => address.extract::<u64>()?,
        Err(error) => {
            let layout = tensor.getattr("layout")?.str()?;
            return Err(refuse(
                py,
                format!("a tensor of layout `{layout}` has no memory of its own: pass its parts, or a copy ({error})"),
            ));
        }
    };
    let object = tensor.getattr(intern!(py, "dtype"))?;
    let known = torch(py)?.and_then(|torch| torch.dtypes.get(&(object.as_ptr() as usize)).copied());
    let dtype = known.ok_or_else(|| refuse(py, format!("no kernel takes elements of `{object}`")))?;
    let shape: Vec<usize> = tensor.getattr(intern!(py, "shape"))?.extract()?;
    let strides: Vec<usize> = tensor.call_method0(intern!(py, "stride"))?.extract()?;
    whole(tensor, Given { dtype, shape, strides, address, gpu, readonly: false, ready: None, owner: tensor.clone().unbind() })
}
