//! `libnvidia-ml`: what a device says of its clocks, power and heat. Only read, never set.
//!
//! Every reading may be absent: the library, the function, or the device's support for it. That is data, not an error.
//!
//! ```
//! match tessera_cuda::Nvml::load() {
//!     Ok(nvml) => println!("{:?}", nvml.device("0000:1b:00.0").map(|device| device.readings())),
//!     Err(reason) => println!("no readings: {reason}"),
//! }
//! ```

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;

use libloading::Library;

type Status = c_uint;
type Handle = *mut c_void;

symbols! {
    init = "nvmlInit_v2": fn();
    shutdown = "nvmlShutdown": fn();
    driver_version = "nvmlSystemGetDriverVersion": fn(*mut c_char, c_uint);
    by_bus_id = "nvmlDeviceGetHandleByPciBusId_v2": fn(*const c_char, *mut Handle);
    uuid = "nvmlDeviceGetUUID": fn(Handle, *mut c_char, c_uint);
    clock = "nvmlDeviceGetClockInfo": fn(Handle, c_uint, *mut c_uint);
    max_clock = "nvmlDeviceGetMaxClockInfo": fn(Handle, c_uint, *mut c_uint);
    power = "nvmlDeviceGetPowerUsage": fn(Handle, *mut c_uint);
    power_limit = "nvmlDeviceGetEnforcedPowerLimit": fn(Handle, *mut c_uint);
    energy = "nvmlDeviceGetTotalEnergyConsumption": fn(Handle, *mut c_ulonglong);
    temperature = "nvmlDeviceGetTemperature": fn(Handle, c_uint, *mut c_uint);
    reasons = "nvmlDeviceGetCurrentClocksThrottleReasons": fn(Handle, *mut c_ulonglong);
    processes = "nvmlDeviceGetComputeRunningProcesses_v3": fn(Handle, *mut c_uint, *mut c_void);
    persistence = "nvmlDeviceGetPersistenceMode": fn(Handle, *mut c_int);
}

impl Drop for Symbols {
    fn drop(&mut self) {
        if let Some(shutdown) = self.shutdown {
            // SAFETY: matches the call of `init`; no handle is used afterwards.
            unsafe { shutdown() };
        }
    }
}

/// The management library.
#[derive(Clone)]
pub struct Nvml {
    symbols: Arc<Symbols>,
}

/// Why nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmlError {
    /// The library is not there.
    #[error("`{library}` cannot be loaded ({reason})")]
    Library {
        /// Its name.
        library: &'static str,
        /// The loader's message.
        reason: String,
    },
    /// It does not start.
    #[error("the management library does not start (code {0})")]
    Start(u32),
}

/// A device as the management library sees it.
#[derive(Clone)]
pub struct NvmlDevice {
    symbols: Arc<Symbols>,
    handle: Handle,
}

// SAFETY: NVML may be called from any thread, and its handles are the same in all of them.
unsafe impl Send for NvmlDevice {}
// SAFETY: as above.
unsafe impl Sync for NvmlDevice {}

/// One look at a device. What it does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// Clock of the multiprocessors.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_mhz: Option<u32>,
    /// Power in watts.
    pub power_w: Option<f64>,
    /// Energy since the driver was loaded, in joules.
    pub energy_j: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Why the clock is not higher: the driver's bits (0x4 power limit, 0x8 hardware, 0x20 and 0x40 heat, 0x80 power brake).
    pub reasons: Option<u64>,
    /// Processes that compute on the device.
    pub processes: Option<u32>,
}

/// What does not change while a program runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceFacts {
    /// The device's own number.
    pub uuid: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// Highest clock of the multiprocessors.
    pub max_sm_mhz: Option<u32>,
    /// Power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Whether the driver keeps the device ready between programs.
    pub persistence: Option<bool>,
}

const SM_CLOCK: c_uint = 1;
const MEMORY_CLOCK: c_uint = 2;

impl Nvml {
    /// Loads and starts the library.
    pub fn load() -> Result<Nvml, NvmlError> {
        let library = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };
        // SAFETY: loading the vendor's library runs its initialisers.
        let loaded = unsafe { Library::new(library) }.map_err(|error| {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            NvmlError::Library { library, reason }
        })?;
        let symbols = Symbols::find(loaded);
        // SAFETY: no arguments.
        match symbols.init.map_or(u32::MAX, |init| unsafe { init() }) {
            0 => Ok(Nvml { symbols: Arc::new(symbols) }),
            code => Err(NvmlError::Start(code)),
        }
    }

    /// The device at a bus address, as [`DriverTable::device_bus_id`](tessera_driver::DriverTable::device_bus_id) gives it.
    pub fn device(&self, bus_id: &str) -> Option<NvmlDevice> {
        let (name, mut handle) = (CString::new(bus_id).ok()?, ptr::null_mut());
        // SAFETY: reads a terminated string and writes one handle.
        let status = unsafe { self.symbols.by_bus_id?(name.as_ptr(), &mut handle) };
        (status == 0).then(|| NvmlDevice { symbols: Arc::clone(&self.symbols), handle })
    }
}

/// What a function that fills a text says.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> Status) -> Option<String> {
    let mut bytes = [0u8; 96];
    if call(bytes.as_mut_ptr().cast(), bytes.len() as c_uint) != 0 {
        return None;
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// What a function that fills a number says.
fn value<T: Default>(call: impl FnOnce(*mut T) -> Status) -> Option<T> {
    let mut value = T::default();
    (call(&mut value) == 0).then_some(value)
}

impl NvmlDevice {
    /// Looks at the device.
    pub fn readings(&self) -> Readings {
        let (s, device) = (&*self.symbols, self.handle);
        // SAFETY: here and below, each call writes one number of the type that its signature says.
        let clock = |kind| s.clock.and_then(|call| value(|out| unsafe { call(device, kind, out) }));
        let power: Option<c_uint> = s.power.and_then(|call| value(|out| unsafe { call(device, out) }));
        let energy: Option<u64> = s.energy.and_then(|call| value(|out| unsafe { call(device, out) }));
        Readings {
            sm_mhz: clock(SM_CLOCK),
            memory_mhz: clock(MEMORY_CLOCK),
            power_w: power.map(|milliwatts| f64::from(milliwatts) / 1e3),
            energy_j: energy.map(|millijoules| millijoules as f64 / 1e3),
            temperature_c: s.temperature.and_then(|call| value(|out| unsafe { call(device, 0, out) })),
            reasons: s.reasons.and_then(|call| value(|out| unsafe { call(device, out) })),
            processes: s.processes.and_then(|call| {
                const TOO_SMALL: Status = 7;
                let mut count = 0;
                // SAFETY: with room for none, the call writes the count alone.
                let status = unsafe { call(device, &mut count, ptr::null_mut()) };
                matches!(status, 0 | TOO_SMALL).then_some(count)
            }),
        }
    }

    /// What does not change.
    pub fn facts(&self) -> DeviceFacts {
        let (s, device) = (&*self.symbols, self.handle);
        // SAFETY: here and below, each call writes one number, or at most as many bytes as it is told.
        let limit: Option<c_uint> = s.power_limit.and_then(|call| value(|out| unsafe { call(device, out) }));
        DeviceFacts {
            uuid: s.uuid.and_then(|call| text(|out, bytes| unsafe { call(device, out, bytes) })),
            driver: s.driver_version.and_then(|call| text(|out, bytes| unsafe { call(out, bytes) })),
            max_sm_mhz: s.max_clock.and_then(|call| value(|out| unsafe { call(device, SM_CLOCK, out) })),
            power_limit_w: limit.map(|milliwatts| f64::from(milliwatts) / 1e3),
            persistence: s.persistence.and_then(|call| value::<c_int>(|out| unsafe { call(device, out) })).map(|mode| mode != 0),
        }
    }
}
