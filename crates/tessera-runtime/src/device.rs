//! Where kernels run: the CPU, or a device behind a driver function table.
//!
//! [`Device::best`] takes a CUDA device if one works and the CPU otherwise, and says why: the choice is data, for a report's
//! first line. A device works when its driver loads, answers, and memory can be allocated, written and read back.
//!
//! ```
//! let choice = tessera_runtime::Device::best();
//! println!("{}: {}", choice.device, choice.reason);
//! ```

use std::fmt;
use std::sync::Arc;

use tessera_driver::{Context, DeviceOrdinal, DriverError, DriverTable, Stream};

/// A device behind a driver table, with its context and one stream. Clones share them.
#[derive(Clone, Debug)]
pub struct DriverDevice {
    inner: Arc<DriverInner>,
}

#[derive(Debug)]
struct DriverInner {
    name: String,
    context: Context,
    stream: Stream,
}

impl DriverDevice {
    /// Opens a device of a table.
    pub fn open(table: Arc<DriverTable>, ordinal: u32) -> Result<DriverDevice, DriverError> {
        let context = Context::open(table, DeviceOrdinal(ordinal))?;
        let name = context.device_name()?;
        let stream = context.stream()?;
        Ok(DriverDevice { inner: Arc::new(DriverInner { name, context, stream }) })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The stream that copies and launches use.
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    fn probe(&self) -> Result<(), DriverError> {
        let sent = [0x5a_u8; 64];
        let buffer = self.context().buffer(sent.len() as u64)?;
        buffer.write(0, &sent, self.stream())?;
        let mut back = [0; 64];
        buffer.read(0, &mut back, self.stream())?;
        self.stream().synchronize()?;
        if back == sent { Ok(()) } else { Err(DriverError::Argument("device memory does not keep what is written".into())) }
    }
}

/// Where a kernel runs and a tensor lies.
#[derive(Clone, Debug)]
pub enum Device {
    /// The processor this program runs on.
    Cpu,
    /// A device behind a driver table.
    Driver(DriverDevice),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Driver(device) => f.write_str(device.name()),
        }
    }
}

/// A device and why it was taken.
#[derive(Clone, Debug)]
pub struct DeviceChoice {
    /// The device.
    pub device: Device,
    /// One clause: what was found, or why the CPU stands in.
    pub reason: String,
}

impl Device {
    /// The CUDA device of a number.
    pub fn cuda(ordinal: u32) -> Result<Device, DriverError> {
        let device = DriverDevice::open(Arc::new(tessera_cuda::driver()?), ordinal)?;
        device.probe()?;
        Ok(Device::Driver(device))
    }

    /// The first CUDA device if it works, else the CPU.
    pub fn best() -> DeviceChoice {
        match Device::cuda(0) {
            Ok(device) => DeviceChoice { device, reason: "the first CUDA device works".into() },
            Err(error) => DeviceChoice { device: Device::Cpu, reason: format!("no CUDA device works: {error}") },
        }
    }

    /// True for the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Device::Cpu)
    }
}
