//! Arrays of other libraries, as they lie in memory.
//!
//! | object | read by |
//! |---|---|
//! | PyTorch tensors | their attributes, which is fastest |
//! | NumPy arrays | `__array_interface__`; the type by its name, so that `ml_dtypes` count |
//! | CuPy, Numba and others on a GPU | `__cuda_array_interface__` |
//! | anything else | DLPack |
//!
//! Nothing is copied. An array of which a size is 0 has no address.

#![allow(unsafe_code, reason = "arrays of other libraries are addresses")]

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tessera::driver::{DevicePtr, StreamHandle};
use tessera::runtime::{DriverDevice, Tensor};
use tessera::types::DType;

use crate::dlpack;
use crate::dtype;
use crate::error::Failure;
use crate::torch;

/// An array of somebody else's.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<usize>,
    pub(crate) address: u64,
    /// The GPU it is on; none for host memory.
    pub(crate) gpu: Option<u32>,
    pub(crate) readonly: bool,
    /// The stream behind whose work its elements are there, where its library says one.
    pub(crate) ready: Option<StreamHandle>,
    /// What keeps the memory.
    pub(crate) owner: Py<PyAny>,
}

/// Keeps an object of Python's while a tensor stands on its memory.
struct Keep(#[allow(dead_code, reason = "it is there to be dropped")] Py<PyAny>);

/// Why an array cannot be taken.
pub(crate) fn refuse(py: Python<'_>, text: impl Into<String>) -> PyErr {
    Failure::plain("argument", text).raise(py)
}

/// The same because of an exception of the array's library, which stands as its cause.
pub(crate) fn because(py: Python<'_>, text: impl Into<String>, cause: PyErr) -> PyErr {
    let refused = refuse(py, text);
    refused.set_cause(py, Some(cause));
    refused
}

impl Given {
    /// The array that an object is; `None` where it is none. `stream` is the one on which it is going to be used, where one was named.
    pub(crate) fn of(object: &Bound<'_, PyAny>, stream: Option<u64>) -> PyResult<Option<Given>> {
        let py = object.py();
        if let Some(given) = torch::plain(object)? {
            return Ok(Some(given));
        }
        let module = object.get_type().module()?;
        let module = module.to_str()?;
        let library = module.split_once('.').map_or(module, |(library, _)| library);
        if torch::is_tensor(object)? {
            return torch::any(object).map(Some);
        }
        if module.starts_with("numpy.ma") {
            return Err(refuse(
                py,
                "a masked array has elements that count and others, which no kernel knows: pass its `data` or `filled()`",
            ));
        }
        if library == "numpy" && object.hasattr(intern!(py, "__array_interface__"))? && object.hasattr(intern!(py, "strides"))? {
            // A scalar of NumPy's is a number.
            return if object.hasattr(intern!(py, "resize"))? && object.hasattr(intern!(py, "ctypes"))? {
                of_interface(object, "__array_interface__").map(Some)
            } else {
                Ok(None)
            };
        }
        if object.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return of_interface(object, "__cuda_array_interface__").map(Some);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            return dlpack::of(object, stream).map(Some);
        }
        Ok(None)
    }

    /// A tensor over it on the host, which keeps it.
    pub(crate) fn on_host(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        let owner = Box::new(Keep(self.owner.clone_ref(py)));
        let base = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize))
            .unwrap_or(std::ptr::NonNull::dangling());
        // SAFETY: the array's library says that its elements lie there, and the owner keeps them. Others may use them meanwhile only as any two
        // threads of Python may use one array.
        let made = unsafe { Tensor::from_foreign(base, self.dtype, &self.shape, &self.strides, owner) };
        made.map_err(|error| refuse(py, format!("`{name}`: {error}")))
    }

    /// A tensor over it on its GPU, which keeps it.
    pub(crate) fn on_device(&self, py: Python<'_>, device: &DriverDevice, name: &str) -> PyResult<Tensor> {
        let bytes = element_bytes(self.dtype) as u64;
        if !self.address.is_multiple_of(bytes) {
            return Err(refuse(
                py,
                format!(
                    "`{name}` lies at 0x{:x}, and a GPU reads elements of {bytes} bytes at multiples of that: pass a copy",
                    self.address
                ),
            ));
        }
        let owner = Box::new(Keep(self.owner.clone_ref(py)));
        // SAFETY: as above.
        let made =
            unsafe { Tensor::from_foreign_on(device, DevicePtr(self.address), self.dtype, &self.shape, &self.strides, owner) };
        made.map_err(|error| refuse(py, format!("`{name}`: {error}")))
    }

    /// The same array at another address.
    pub(crate) fn at(&self, py: Python<'_>, address: u64) -> Given {
        let (shape, strides, owner) = (self.shape.clone(), self.strides.clone(), self.owner.clone_ref(py));
        Given { dtype: self.dtype, shape, strides, address, gpu: self.gpu, readonly: self.readonly, ready: self.ready, owner }
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes from the first element to behind the last; every type here has whole bytes.
    pub(crate) fn span(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let last: usize = self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        (last + 1) * element_bytes(self.dtype)
    }
}

/// Bytes of an element of the types that other libraries have.
pub(crate) fn element_bytes(dtype: DType) -> usize {
    (dtype.bits() as usize).div_ceil(8)
}

/// NumPy's interface, and that of arrays on GPUs.
fn of_interface(object: &Bound<'_, PyAny>, interface: &str) -> PyResult<Given> {
    let py = object.py();
    let dict = object.getattr(interface)?.cast_into();
    let dict: Bound<'_, PyDict> =
        dict.map_err(|_| refuse(py, format!("`{interface}` of `{}` is no dictionary", object.get_type())))?;
    let item = |name: &str| dict.get_item(name);
    let missing = |name: &str| refuse(py, format!("`{interface}` has no `{name}`"));
    let shape: Vec<usize> = item("shape")?.ok_or_else(|| missing("shape"))?.extract()?;
    let typestr: String = item("typestr")?.ok_or_else(|| missing("typestr"))?.extract()?;
    if typestr.starts_with('>') {
        return Err(refuse(
            py,
            format!("elements of `{typestr}` are in the other byte order: pass `x.astype(x.dtype.newbyteorder('='))`"),
        ));
    }
    let name = match object.getattr("dtype") {
        Ok(dtype) => dtype.getattr("name")?.extract::<String>()?,
        Err(_) => of_typestr(&typestr).to_owned(),
    };
    let dtype = dtype::parse(&name).ok_or_else(|| refuse(py, format!("no kernel takes elements of `{name}`")))?;
    let bytes = element_bytes(dtype);
    let strides = match item("strides")? {
        Some(given) if !given.is_none() => {
            let given: Vec<isize> = given.extract()?;
            let fits = |&stride: &isize| {
                usize::try_from(stride).ok().filter(|stride| stride.is_multiple_of(bytes)).map(|stride| stride / bytes)
            };
            let strides: Option<Vec<usize>> = given.iter().map(fits).collect();
            strides.ok_or_else(|| {
                refuse(
                    py,
                    format!("strides of {given:?} bytes run backwards, or are no whole elements of {bytes} bytes: pass a copy"),
                )
            })?
        }
        _ => row_major(&shape),
    };
    let data: Bound<'_, PyTuple> = item("data")?.ok_or_else(|| missing("data"))?.cast_into()?;
    let (address, readonly): (u64, bool) = (data.get_item(0)?.extract()?, data.get_item(1)?.is_truthy()?);
    let gpu = if interface == "__array_interface__" { None } else { Some(gpu_of(object)?) };
    let ready = if gpu.is_some() { ready(py, item("stream")?)? } else { None };
    Ok(Given { dtype, shape, strides, address, gpu, readonly, ready, owner: object.clone().unbind() })
}

/// What the interface of an array on a GPU says of its stream, from its third version on.
fn ready(py: Python<'_>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Option<StreamHandle>> {
    let Some(stream) = stream.filter(|stream| !stream.is_none()) else { return Ok(None) };
    match stream.extract::<u64>() {
        Ok(handle) if handle != 0 => Ok(Some(StreamHandle(handle))),
        _ => Err(refuse(
            py,
            format!("`__cuda_array_interface__` has the stream {stream}, which is none: it is 1, 2, a handle, or `None`"),
        )),
    }
}

/// The GPU of an array that has an interface, which does not say it.
fn gpu_of(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    let unknown = || {
        refuse(object.py(), format!("`{}` does not say on which GPU it is: it has no `device` with a number", object.get_type()))
    };
    let Ok(device) = object.getattr("device") else {
        // Where there is one it is on that.
        return if crate::device::gpus(object.py())? == 1 { Ok(0) } else { Err(unknown()) };
    };
    if let Ok(number) = device.extract::<u32>() {
        return Ok(number);
    }
    let number = device.getattr("id").or_else(|_| device.getattr("index")).map_err(|_| unknown())?;
    number.extract().map_err(|_| unknown())
}

/// The type of NumPy's short form.
fn of_typestr(typestr: &str) -> &'static str {
    match typestr.trim_start_matches(['<', '|', '=']) {
        "f2" => "float16",
        "f4" => "float32",
        "f8" => "float64",
        "i1" => "int8",
        "i2" => "int16",
        "i4" => "int32",
        "i8" => "int64",
        "u1" => "uint8",
        "u2" => "uint16",
        "u4" => "uint32",
        "u8" => "uint64",
        "b1" => "bool",
        _ => "an unknown type",
    }
}

/// Strides of an array whose elements follow each other.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}
