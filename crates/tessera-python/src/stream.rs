//! Streams of the caller's.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tessera::driver::{DriverError, StreamHandle};
use tessera::runtime::{DeviceError, DriverDevice, KernelError, PreparedLaunch};

use crate::array::{Given, refuse};
use crate::torch;

/// The driver's handle of a stream of any library's; none where none is named.
#[pyfunction(name = "stream")]
pub(crate) fn named(stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = stream.py();
    if stream.is_none() {
        return Ok(None);
    }
    if let Ok(handle) = stream.cast::<PyInt>() {
        let wide = |_| refuse(py, format!("{handle} is no stream: a handle has 64 bits and no sign"));
        return handle.extract().map(Some).map_err(wide);
    }
    if let Some(handle) = torch::stream(stream)? {
        return Ok(Some(handle));
    }
    if let Some(protocol) = stream.getattr_opt(intern!(py, "__cuda_stream__"))? {
        return protocol.call0()?.get_item(1)?.extract().map(Some);
    }
    for name in ["cuda_stream", "ptr", "handle"] {
        if let Some(handle) = stream.getattr_opt(name)?.filter(|handle| !handle.is_none()) {
            return handle.extract().map(Some);
        }
    }
    let name = stream.get_type().name()?;
    Err(refuse(py, format!("`{name}` is no stream: pass one of PyTorch or CuPy, its handle, or `None`")))
}

/// The stream that a launch goes to: that which is named, else PyTorch's current one, else the device's default stream.
pub(crate) fn handle(py: Python<'_>, named: Option<u64>, ordinal: u32) -> PyResult<StreamHandle> {
    if let Some(handle) = named {
        return Ok(StreamHandle(handle));
    }
    if let Some(handle) = torch::current_stream(py, ordinal)? {
        return Ok(StreamHandle(handle));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(torch) = modules.get_item("torch") else { return Ok(StreamHandle::DEFAULT) };
    // PyTorch has no current stream where nobody has used a GPU through it.
    if !torch.getattr("cuda")?.call_method0("is_initialized")?.is_truthy()? {
        return Ok(StreamHandle::DEFAULT);
    }
    let stream = torch.getattr("cuda")?.call_method1("current_stream", (ordinal,))?;
    Ok(StreamHandle(stream.getattr("cuda_stream")?.extract()?))
}

/// Has a stream wait for what makes the elements of arrays on streams of their own.
pub(crate) fn wait_for<'a>(
    device: &DriverDevice,
    stream: StreamHandle,
    arrays: impl Iterator<Item = &'a Given>,
) -> Result<(), KernelError> {
    let of_driver = |error: DriverError| KernelError::Device(DeviceError::from(error));
    // The default stream has two handles.
    let own = StreamHandle(stream.0.max(1));
    let mut others: Vec<StreamHandle> = arrays.filter_map(|given| given.ready).filter(|ready| *ready != own).collect();
    others.sort_unstable_by_key(|other| other.0);
    others.dedup();
    others.into_iter().try_for_each(|other| {
        let made = device.context().event().map_err(of_driver)?;
        made.record_in(other).and_then(|()| made.hold(stream)).map_err(of_driver)
    })
}

/// Queues launches on a stream. What a call keeps to itself (workspace, counters, copies) is made and freed in the order of the device's own stream,
/// which waits for the caller's, and the other way round.
pub(crate) fn enqueue(device: &DriverDevice, launches: &[PreparedLaunch], stream: StreamHandle) -> Result<(), KernelError> {
    let of_driver = |error: DriverError| KernelError::Device(DeviceError::from(error));
    let made = device.context().event().map_err(of_driver)?;
    made.record(device.stream()).and_then(|()| made.hold(stream)).map_err(of_driver)?;
    for launch in launches.iter().filter_map(|launch| launch.on_device()) {
        launch.enqueue_in(stream).map_err(of_driver)?;
    }
    let_go_behind(device, stream)
}

/// Has what the device's own stream does from now on, freeing memory that is let go of above all, wait for all that a stream was given so far.
pub(crate) fn let_go_behind(device: &DriverDevice, stream: StreamHandle) -> Result<(), KernelError> {
    let of_driver = |error: DriverError| KernelError::Device(DeviceError::from(error));
    let used = device.context().event().map_err(of_driver)?;
    used.record_in(stream).and_then(|()| device.stream().wait(&used)).map_err(of_driver)
}
