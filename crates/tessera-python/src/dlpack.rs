//! DLPack: arrays of any library that speaks it (<https://dmlc.github.io/dlpack/latest/>, versions 0.8 to 1).

#![allow(unsafe_code, reason = "reads C structures behind a capsule")]

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use tessera::types::DType;

use crate::array::{Given, because, refuse, row_major};
use crate::stream;

/// `DLTensor`.
#[repr(C)]
pub(crate) struct Array {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    array: Array,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    array: Array,
}

/// `DLPackExchangeAPI`, of DLPack 1.3: what a library offers for arrays of its own class without a capsule.
#[repr(C)]
pub(crate) struct Exchange {
    major: u32,
    minor: u32,
    older: *const Exchange,
    allocate: *const c_void,
    owned: *const c_void,
    object: *const c_void,
    view: Option<unsafe extern "C" fn(*mut c_void, *mut Array) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: the structure is never written, and its functions may be called from any thread that has the interpreter.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// What a class offers; none where it offers nothing that is understood.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<&'static Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
        let pointer = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        // SAFETY: a capsule of this name holds this structure, which lives as long as the process.
        let found = unsafe { pointer.cast::<Exchange>().as_ref() };
        (found.major == 1).then_some(found)
    }

    /// The array that an object of the class is; none where the library says no, or it is nothing that a kernel takes. The object is the owner.
    pub(crate) fn view(&self, object: &Bound<'_, PyAny>) -> Option<Given> {
        let view = self.view?;
        let mut array = std::mem::MaybeUninit::<Array>::uninit();
        // SAFETY: the object is of the class that offered this, and the array has room.
        if unsafe { view(object.as_ptr().cast(), array.as_mut_ptr()) } != 0 {
            drop(PyErr::take(object.py()));
            return None;
        }
        // SAFETY: it says that it has written the array, whose sizes and strides live as long as the object.
        let array = unsafe { array.assume_init_ref() };
        array.given(object.py(), false, || object.clone().unbind()).ok()
    }

    /// The library's current stream on a GPU; none where it does not say.
    pub(crate) fn current_stream(&self, py: Python<'_>, ordinal: u32) -> Option<u64> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        if unsafe { self.current_stream?(CUDA, ordinal.cast_signed(), &raw mut stream) } != 0 {
            drop(PyErr::take(py));
            return None;
        }
        Some(stream as u64)
    }
}

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";
const HOST: i32 = 1;
const CUDA: i32 = 2;
const PINNED: i32 = 3;
const MANAGED: i32 = 13;

/// The array of an object that has `__dlpack__`. The capsule is the array's owner and stays unused: dropping it gives the array back.
///
/// One on a GPU is asked for on the stream on which it is going to be used: its library has that wait for what makes the elements.
pub(crate) fn of(object: &Bound<'_, PyAny>, stream: Option<u64>) -> PyResult<Given> {
    let py = object.py();
    let (oldest, keywords) = (PyDict::new(py), PyDict::new(py));
    if let Some(gpu) = gpu_of(object) {
        // The default stream has the number 1 here, since 0 could mean another one.
        oldest.set_item("stream", stream::handle(py, stream, gpu)?.0.max(1))?;
    }
    keywords.update(oldest.as_mapping())?;
    keywords.set_item("max_version", (1, 0))?;
    // Libraries from before version 1 do not know that keyword; arrays that must not be written cannot be given by these.
    let asked = |keywords| object.call_method("__dlpack__", (), Some(keywords));
    let capsule = asked(&keywords).or_else(|error| match error.is_instance_of::<PyTypeError>(py) {
        true => asked(&oldest),
        false => Err(error),
    });
    let capsule = capsule.map_err(|error| match error.is_instance_of::<PyException>(py) {
        true => because(py, format!("`{}` gives no array by DLPack: {error}", object.get_type()), error),
        // An interrupt, or the end of the program.
        false => error,
    })?;
    let no_capsule = || refuse(py, format!("`__dlpack__` of `{}` gives no capsule with an array", object.get_type()));
    let capsule: Bound<'_, PyCapsule> = capsule.cast_into().map_err(|_| no_capsule())?;
    let (array, readonly) = if capsule.is_valid_checked(Some(NEW)) {
        // SAFETY: a capsule of this name holds this structure, and lives.
        let versioned = unsafe { capsule.pointer_checked(Some(NEW))?.cast::<Versioned>().as_ref() };
        if versioned.major > 1 {
            return Err(refuse(
                py,
                format!("the array speaks DLPack {}.{}, and 1 is understood", versioned.major, versioned.minor),
            ));
        }
        (&versioned.array, versioned.flags & 1 != 0)
    } else {
        if !capsule.is_valid_checked(Some(OLD)) {
            return Err(no_capsule());
        }
        // SAFETY: as above.
        (unsafe { &capsule.pointer_checked(Some(OLD))?.cast::<Managed>().as_ref().array }, false)
    };
    // JAX's arrays never change, and its older versions have no way to say so.
    let never_changes = object.get_type().module()?.to_str()?.starts_with("jax");
    array.given(py, readonly || never_changes, || capsule.into_any().unbind())
}

impl Array {
    fn given(&self, py: Python<'_>, readonly: bool, owner: impl FnOnce() -> Py<PyAny>) -> PyResult<Given> {
        let gpu = match self.device_type {
            HOST | PINNED => None,
            CUDA | MANAGED => Some(self.device_id.unsigned_abs()),
            other => {
                return Err(refuse(
                    py,
                    format!("the array is on a device of DLPack's kind {other}: it is on the CPU or a CUDA device"),
                ));
            }
        };
        let dtype = dtype_of(self.code, self.bits, self.lanes).ok_or_else(|| {
            refuse(
                py,
                format!(
                    "no kernel takes elements of DLPack's code {} with {} bits in {} lanes",
                    self.code, self.bits, self.lanes
                ),
            )
        })?;
        let rank = usize::try_from(self.ndim).map_err(|_| refuse(py, "an array of fewer than 0 axes"))?;
        // SAFETY: `ndim` numbers are there, unless it is 0.
        let numbers = |first: *const i64| if rank == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(first, rank) } };
        let whole = |numbers: &[i64]| numbers.iter().map(|&number| usize::try_from(number).ok()).collect::<Option<Vec<usize>>>();
        let backwards = || refuse(py, "strides that run backwards: pass a copy");
        let shape = whole(numbers(self.shape)).ok_or_else(backwards)?;
        let strides =
            if self.strides.is_null() { row_major(&shape) } else { whole(numbers(self.strides)).ok_or_else(backwards)? };
        let address = self.data as u64 + self.byte_offset;
        Ok(Given { dtype, shape, strides, address, gpu, readonly, ready: None, owner: owner() })
    }
}

/// The GPU on which an object says that its array is.
fn gpu_of(object: &Bound<'_, PyAny>) -> Option<u32> {
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__").ok()?.extract().ok()?;
    matches!(kind, CUDA | MANAGED).then_some(number.unsigned_abs())
}

/// `DLDataTypeCode` with a width.
fn dtype_of(code: u8, bits: u8, lanes: u16) -> Option<DType> {
    Some(match (code, bits, lanes) {
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::BF16,
        (6, 8, 1) => DType::B1,
        (10, 8, 1) => DType::F8E4M3,
        (12, 8, 1) => DType::F8E5M2,
        (14, 8, 1) => DType::E8M0,
        _ => return None,
    })
}
