//! The emulator by itself: other people's PTX, on memory that holds the arrays of a program.
//!
//! Which array lies where, what a parameter's bytes are and what becomes of findings is `tessera/emu`'s affair. Here is the machine: memory,
//! modules, launches, with what they found as JSON.

#![allow(unsafe_code, reason = "copies from and to arrays of other libraries")]

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use tessera::driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera::emu::{EmuError, EmuOptions, Emulator, LaunchOptions, Module, Suppressions, Walk};
use tessera::types::{DType, TimeLimit};

use crate::array::{Given, element_bytes, refuse};
use crate::device::product;
use crate::dtype;
use crate::error::Failure;
use crate::stage::bytes;
use crate::value::array;

/// An emulated GPU.
#[pyclass(frozen)]
pub(crate) struct Machine {
    emulator: Emulator,
}

/// A module of PTX that a machine has loaded.
#[pyclass(frozen)]
pub(crate) struct Loaded {
    module: Module,
    text: String,
}

/// How a launch runs, see `tessera/emu/_machine.py`.
#[derive(FromPyObject)]
pub(crate) struct How {
    shared: u32,
    cluster: Option<[u32; 3]>,
    sanitize: String,
    schedule: String,
    seed: u64,
    timeout: Option<f64>,
    keep_going: bool,
    suppress: Option<String>,
    most_schedules: u64,
}

impl How {
    fn options(&self, py: Python<'_>) -> PyResult<LaunchOptions> {
        let limit = match self.timeout {
            None => TimeLimit::PATIENT,
            Some(seconds) => TimeLimit::within(
                Duration::try_from_secs_f64(seconds).map_err(|_| refuse(py, format!("a timeout of {seconds} s cannot be")))?,
            ),
        };
        let suppress = match &self.suppress {
            None => Suppressions::default(),
            Some(text) => Suppressions::parse(text).map_err(|error| refuse(py, format!("suppressions: {error}")))?,
        };
        Ok(LaunchOptions {
            cluster: self.cluster.map(dim),
            shared_bytes: self.shared,
            schedule: self.schedule.parse().map_err(|text: String| refuse(py, text))?,
            seed: self.seed,
            sanitize: self.sanitize.parse().map_err(|text: String| refuse(py, text))?,
            keep_going: self.keep_going,
            suppress: Arc::new(suppress),
            limit,
            most_schedules: self.most_schedules,
            ..LaunchOptions::default()
        })
    }
}

#[pymethods]
impl Machine {
    /// The machine of a product (`h200`) or a target (`sm_80`).
    #[new]
    fn new(py: Python<'_>, target: &str, multiprocessors: Option<u32>) -> PyResult<Machine> {
        let options = EmuOptions { device: product(py, target)?.to_owned(), multiprocessors, ..EmuOptions::default() };
        Emulator::new(&options).map(|emulator| Machine { emulator }).map_err(|error| refuse(py, error.to_string()))
    }

    /// The product that is emulated.
    #[getter]
    fn device(&self) -> &'static str {
        self.emulator.device().name
    }

    /// Reads a module.
    fn load(&self, py: Python<'_>, ptx: String) -> PyResult<Loaded> {
        match py.detach(|| self.emulator.load(&ptx)) {
            Ok(module) => Ok(Loaded { module, text: ptx }),
            Err(error) => Err(raise(py, &error, &ptx)),
        }
    }

    /// Memory of some bytes, which counts as not written.
    fn alloc(&self, py: Python<'_>, bytes: u64) -> PyResult<u64> {
        self.emulator.alloc(bytes).map(|at| at.0).map_err(|error| refuse(py, error.to_string()))
    }

    /// Frees memory of `alloc`.
    fn free(&self, py: Python<'_>, at: u64) -> PyResult<()> {
        self.emulator.free(DevicePtr(at)).map_err(|error| refuse(py, error.to_string()))
    }

    /// Writes bytes.
    fn write(&self, py: Python<'_>, at: u64, bytes: &[u8]) -> PyResult<()> {
        self.emulator.write(DevicePtr(at), bytes).map_err(|error| refuse(py, error.to_string()))
    }

    /// Reads bytes.
    fn read<'py>(&self, py: Python<'py>, at: u64, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, bytes, |to| self.emulator.read(DevicePtr(at), to).map_err(|error| refuse(py, error.to_string())))
    }

    /// Counts bytes as never written.
    fn forget(&self, py: Python<'_>, at: u64, bytes: u64) -> PyResult<()> {
        self.emulator.forget(DevicePtr(at), bytes).map_err(|error| refuse(py, error.to_string()))
    }

    /// Puts an array's elements where they lie on the machine. Elements that are there already are not written again, so that what no kernel
    /// has written goes on counting as that; `whole` writes all.
    fn upload(&self, py: Python<'_>, at: u64, object: &Bound<'_, PyAny>, name: &str, whole: bool) -> PyResult<()> {
        let given = on_host(object, name)?;
        // SAFETY: the array spans the range, and the object keeps it.
        let here = unsafe { bytes(given.address, given.address + given.span() as u64) };
        let wrong = |error: EmuError| refuse(py, format!("`{name}`: {error}"));
        if whole {
            return self.emulator.write(DevicePtr(at), here).map_err(wrong);
        }
        let mut there = vec![0; here.len()];
        self.emulator.read(DevicePtr(at), &mut there).map_err(wrong)?;
        // Element by element only where something differs.
        let width = element_bytes(given.dtype);
        let part = width << 10;
        for (number, (new, old)) in here.chunks(part).zip(there.chunks(part)).enumerate().filter(|(_, (new, old))| new != old) {
            for (index, (new, _)) in new.chunks(width).zip(old.chunks(width)).enumerate().filter(|(_, (new, old))| new != old) {
                self.emulator.write(DevicePtr(at + (number * part + index * width) as u64), new).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Brings an array's elements back. An array that must not be written and would be is refused.
    fn download(&self, py: Python<'_>, at: u64, object: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
        let given = on_host(object, name)?;
        let mut there = vec![0; given.span()];
        self.emulator.read(DevicePtr(at), &mut there).map_err(|error| refuse(py, format!("`{name}`: {error}")))?;
        if given.readonly {
            // SAFETY: as above.
            let here = unsafe { bytes(given.address, given.address + there.len() as u64) };
            if here != there {
                return Err(refuse(py, format!("the kernel writes `{name}`, and that array must not be written: pass a copy")));
            }
            return Ok(());
        }
        if !there.is_empty() {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(given.address as usize);
            // SAFETY: the array spans as many bytes, may be written, and the object keeps it.
            unsafe { std::ptr::copy_nonoverlapping(there.as_ptr(), to, there.len()) };
        }
        Ok(())
    }

    /// Runs a kernel; gives whether it came to its end, and its report as JSON.
    #[expect(clippy::too_many_arguments, reason = "Python's call has them")]
    fn launch(
        &self,
        py: Python<'_>,
        loaded: &Loaded,
        entry: &str,
        grid: [u32; 3],
        block: [u32; 3],
        arguments: Vec<Vec<u8>>,
        how: How,
    ) -> PyResult<(bool, String)> {
        let options = how.options(py)?;
        let params = arguments.iter().fold(Params::new(), |params, bytes| params.aligned(bytes, 64));
        match py.detach(|| self.emulator.launch(&loaded.module, entry, dim(grid), dim(block), &params, &options)) {
            Ok(report) => Ok((true, report.to_json())),
            Err(EmuError::Fault { report, .. }) => Ok((false, report.to_json())),
            Err(error) => Err(raise(py, &error, &loaded.text)),
        }
    }
}

#[pymethods]
impl Loaded {
    /// The names of its kernels.
    fn kernels(&self) -> Vec<&str> {
        self.module.kernels().collect()
    }

    /// A kernel's parameters: name, type as PTX names it, bytes.
    fn parameters(&self, py: Python<'_>, entry: &str) -> PyResult<Vec<(String, &'static str, u32)>> {
        let found = py.detach(|| self.module.parameters(entry)).map_err(|error| raise(py, &error, &self.text))?;
        Ok(found.into_iter().map(|parameter| (parameter.name, parameter.ty, parameter.bytes)).collect())
    }
}

/// What there is to know of an array.
#[pyclass(frozen, get_all)]
pub(crate) struct Description {
    address: u64,
    /// Bytes from the first element to behind the last.
    span: usize,
    dtype: &'static str,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    readonly: bool,
}

/// Looks at an array of the host.
#[pyfunction]
pub(crate) fn describe(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Description> {
    let given = on_host(object, name)?;
    let (span, dtype) = (given.span(), dtype::name(given.dtype));
    Ok(Description { address: given.address, span, dtype, shape: given.shape, strides: given.strides, readonly: given.readonly })
}

/// The 128 bytes of a tensor map: extents, tile and steps with the contiguous dimension first; strides of the others in bytes; `swizzle` 0, 32,
/// 64 or 128 bytes.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "as many as a map has fields")]
pub(crate) fn tensor_map<'py>(
    py: Python<'py>,
    element: &str,
    address: u64,
    extents: Vec<u64>,
    strides: Vec<u64>,
    tile: Vec<u32>,
    swizzle: u32,
    nan_outside: bool,
    steps: Vec<u32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let spec = TensorMapSpec {
        dtype: DType::parse(element).ok_or_else(|| refuse(py, format!("no tensor map holds elements of `{element}`")))?,
        address: DevicePtr(address),
        extents,
        strides,
        tile,
        swizzle: match swizzle {
            0 => Swizzle::None,
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            other => return Err(refuse(py, format!("`{other}` is no swizzle: 0, 32, 64 or 128 bytes"))),
        },
        l2: L2Promotion::None,
        outside: if nan_outside { OutOfBounds::Nan } else { OutOfBounds::Zero },
    };
    let map = Emulator::tensor_map_walking(&spec, &Walk { steps, im2col: None });
    map.map(|map| PyBytes::new(py, &map)).map_err(|error| refuse(py, error.to_string()))
}

/// The array that an object is, on the host.
fn on_host(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Given> {
    let given = array(object, name, None)?;
    match given.gpu {
        None => Ok(given),
        Some(gpu) => Err(refuse(
            object.py(),
            format!("`{name}` is on GPU {gpu}, and the emulator runs on arrays of the host: pass a copy on the CPU"),
        )),
    }
}

fn dim([x, y, z]: [u32; 3]) -> Dim3 {
    Dim3::new(x, y, z)
}

/// The exception of PTX that is not executed, with its line; the file is called `<ptx>`.
fn raise(py: Python<'_>, error: &EmuError, ptx: &str) -> PyErr {
    let (kind, id, line, column, message) = match error {
        EmuError::Parse(at) => ("compile", "ptx-syntax", at.line, at.column, at.message.clone()),
        EmuError::Unsupported { line, message, .. } => ("compile", "unsupported", *line, 1, message.clone()),
        EmuError::Target { .. } => return Failure::plain("device", format!("{error}: say another `target`")).raise(py),
        EmuError::Launch(text) | EmuError::Memory(text) => return refuse(py, text.clone()),
        EmuError::Fault { .. } => return Failure::plain("fault", error.to_string()).raise(py),
    };
    let made = || -> PyResult<PyErr> {
        let entry = PyDict::new(py);
        // An end that came too soon is behind the last line.
        let source = ptx.lines().nth(line.saturating_sub(1) as usize);
        for (key, value) in [("id", id), ("severity", "error"), ("message", &*message), ("file", "<ptx>")] {
            entry.set_item(key, value)?;
        }
        entry.set_item("source", source)?;
        entry.set_item("help", None::<&str>)?;
        for (key, value) in [("line", line), ("end_line", line), ("column", column), ("end_column", column + 1)] {
            entry.set_item(key, value)?;
        }
        let shown = source.map(|source| format!("\n  {}", source.trim()));
        let text = format!("PTX line {line}: {message}{}", shown.as_deref().unwrap_or(""));
        let arguments = (kind, text, PyList::new(py, [entry])?, None::<[u32; 3]>, Vec::<String>::new());
        Ok(PyErr::from_value(py.import("tessera.errors")?.getattr("make")?.call1(arguments)?))
    };
    made().unwrap_or_else(|error| error)
}
