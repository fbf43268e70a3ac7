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

use tessera_driver::DriverError;
use tessera_emu::{Console, EmuOptions};

pub use tessera_launch::{DeviceProperties, DriverDevice};

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

    /// Every CUDA device with what it is, or why it does not work.
    pub fn all_cuda() -> Result<Vec<Result<Device, DriverError>>, DriverError> {
        let table = Arc::new(tessera_cuda::driver()?);
        let open = |ordinal| {
            let device = DriverDevice::open(Arc::clone(&table), ordinal)?;
            device.probe()?;
            Ok(Device::Driver(device))
        };
        Ok((0..table.device_count()?).map(open).collect())
    }

    /// The PTX emulator, as the device of its default options.
    pub fn emulator() -> Result<Device, DriverError> {
        Device::emulated(&EmuOptions::default())
    }

    /// The PTX emulator as another device, or with other schedules and checks.
    pub fn emulated(options: &EmuOptions) -> Result<Device, DriverError> {
        let table = tessera_emu::driver(options).map_err(|error| DriverError::Argument(error.to_string()))?;
        Ok(Device::Driver(DriverDevice::open(Arc::new(table), 0)?))
    }

    /// The same, with the console that keeps what its launches found.
    pub fn watched_emulator(options: &EmuOptions) -> Result<(Device, Arc<Console>), DriverError> {
        let (mut devices, console) = Device::watched_emulators(options)?;
        Ok((Device::Driver(devices.swap_remove(0)), console))
    }

    /// As many emulated devices as the options say, which reach each other's memory.
    pub fn watched_emulators(options: &EmuOptions) -> Result<(Vec<DriverDevice>, Arc<Console>), DriverError> {
        let (table, console) = tessera_emu::watched(options).map_err(|error| DriverError::Argument(error.to_string()))?;
        let table = Arc::new(table);
        let devices = (0..options.devices.max(1)).map(|ordinal| DriverDevice::open(Arc::clone(&table), ordinal));
        Ok((devices.collect::<Result<_, _>>()?, console))
    }

    /// The first CUDA device if it works, else the CPU.
    pub fn best() -> DeviceChoice {
        match Device::cuda(0) {
            Ok(device) => DeviceChoice { device, reason: "the first CUDA device works".into() },
            Err(error) => DeviceChoice { device: Device::Cpu, reason: format!("no CUDA device works: {error}") },
        }
    }

    /// The device behind a driver table, where it is one.
    pub fn driver(&self) -> Option<&DriverDevice> {
        match self {
            Device::Cpu => None,
            Device::Driver(device) => Some(device),
        }
    }

    /// True for the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Device::Cpu)
    }
}
