//! A device behind a driver's table: its context, one stream, its memory, and the modules that were loaded there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tessera_driver::{Context, DeviceAttribute, DeviceOrdinal, DriverError, DriverTable, Module, Stream};
use tessera_types::Arch;

use crate::error::MemoryError;
use crate::module_cache::ModuleKey;
use crate::pool::{Pool, PoolCounters, Pooled};

/// What a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Its name.
    pub name: String,
    /// Its place in the driver's list.
    pub ordinal: u32,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of second-level cache.
    pub l2_bytes: u64,
    /// Shared memory a block may have, in bytes.
    pub shared_per_block: u32,
    /// Highest clock in MHz.
    pub clock_mhz: u32,
    /// The driver's version, `1000 * major + 10 * minor`.
    pub driver: u32,
    /// Where it is plugged in, where the driver says so.
    pub bus_id: Option<String>,
}

impl DeviceProperties {
    /// The target that uses everything the device has: `sm_90a`.
    pub fn target(&self) -> String {
        Arch::target_of(self.capability)
    }
}

/// A device behind a driver table, with its context, one stream and its memory. Clones share them.
#[derive(Clone, Debug)]
pub struct DriverDevice {
    inner: Arc<DriverInner>,
}

#[derive(Debug)]
struct DriverInner {
    properties: DeviceProperties,
    modules: Mutex<BTreeMap<ModuleKey, Module>>,
    last_kernel: Mutex<Option<Arc<str>>>,
    pool: Pool,
    stream: Arc<Stream>,
    context: Context,
}

impl DriverDevice {
    /// Opens a device of a table.
    pub fn open(table: Arc<DriverTable>, ordinal: u32) -> Result<DriverDevice, DriverError> {
        let context = Context::open(table, DeviceOrdinal(ordinal))?;
        let stream = Arc::new(context.stream()?);
        let properties = properties(&context)?;
        let pool = Pool::new(&context, &stream);
        let (modules, last_kernel) = (Mutex::default(), Mutex::default());
        Ok(DriverDevice { inner: Arc::new(DriverInner { properties, modules, last_kernel, pool, stream, context }) })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.properties.name
    }

    /// The product that it is, or the largest of its architecture; `None` where nothing is known of it.
    pub fn product(&self) -> Option<&'static tessera_types::Device> {
        let (all, target) = (tessera_types::Device::ALL, self.properties().target());
        tessera_types::Device::by_name(self.name()).or_else(|| all.iter().rfind(|product| product.arch.name() == target))
    }

    /// What it is.
    pub fn properties(&self) -> &DeviceProperties {
        &self.inner.properties
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The stream that copies and launches use.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.inner.stream
    }

    /// Whether it is the emulator: it executes PTX text and no machine code, and its launches take the time of no machine.
    pub fn is_emulated(&self) -> bool {
        self.context().table().is_ok_and(|table| table.backend == "emulator")
    }

    /// What its memory was used for so far.
    pub fn memory_counters(&self) -> PoolCounters {
        self.inner.pool.counters()
    }

    /// Gives freed memory beyond `bytes` back to the device.
    pub fn trim_memory(&self, bytes: u64) -> Result<(), DriverError> {
        self.inner.pool.trim(bytes)
    }

    /// Waits until everything queued is done. A fault names the kernel that was queued last.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.stream().synchronize().map_err(|error| match &*lock(&self.inner.last_kernel) {
            Some(name) if error.poisons_context() => error.in_kernel(name),
            _ => error,
        })
    }

    /// Waits as [`DriverDevice::synchronize`] does, but for no longer than so; false where not everything is done by then.
    pub fn wait_at_most(&self, limit: Option<Duration>) -> Result<bool, DriverError> {
        const LONGEST_PAUSE: Duration = Duration::from_millis(10);
        let Some(limit) = limit else { return self.synchronize().map(|()| true) };
        let (start, mut pause) = (Instant::now(), Duration::from_micros(10));
        // A fault is left to `synchronize`, which names the kernel.
        while self.stream().is_done().is_ok_and(|done| !done) {
            if start.elapsed() >= limit {
                return Ok(false);
            }
            std::thread::sleep(pause.min(limit.saturating_sub(start.elapsed())));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        self.synchronize().map(|()| true)
    }

    /// Keeps the device open for as long as the process lives: closing it would wait for a kernel that never ends.
    pub fn leave_open(&self) {
        std::mem::forget(self.clone());
    }

    /// Gives up a context that a fault has made useless and opens a fresh one. Whether that works in the same process is the
    /// driver's choice; where it does not, the error is the fault's again, and the CPU or another process has to go on.
    pub fn reopen(self, table: Arc<DriverTable>) -> Result<DriverDevice, DriverError> {
        self.context().reset()?;
        let ordinal = self.inner.properties.ordinal;
        drop(self);
        DriverDevice::open(table, ordinal)
    }

    /// True when both are one opening of one device, so that memory of the one is memory of the other.
    pub fn is(&self, other: &DriverDevice) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Memory with undefined contents, in the order of the device's stream.
    ///
    /// # Errors
    /// Where the device has not that much.
    pub fn allocate(&self, bytes: u64) -> Result<Pooled, MemoryError> {
        self.inner.pool.allocate(bytes)
    }

    /// The same outside the driver's pool: for memory that other processes are let into.
    ///
    /// # Errors
    /// Where the device has not that much.
    pub fn allocate_plain(&self, bytes: u64) -> Result<Pooled, MemoryError> {
        self.inner.pool.allocate_plain(bytes)
    }

    /// A module loaded earlier.
    pub(crate) fn loaded(&self, key: ModuleKey) -> Option<Module> {
        lock(&self.inner.modules).get(&key).cloned()
    }

    /// Keeps a module loaded for as long as the device is open; the first of two that were loaded at once stays.
    pub(crate) fn keep(&self, key: ModuleKey, module: Module) -> Module {
        lock(&self.inner.modules).entry(key).or_insert(module).clone()
    }

    /// Notes what was queued last, for the message of a fault.
    pub(crate) fn queued(&self, kernel: &Arc<str>) {
        let mut last = lock(&self.inner.last_kernel);
        if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, kernel)) {
            *last = Some(Arc::clone(kernel));
        }
    }

    /// Writes memory and reads it back: a device that cannot is none.
    ///
    /// # Errors
    /// What the driver says, or that memory does not keep what is written.
    pub fn probe(&self) -> Result<(), DriverError> {
        let sent = [0x5a_u8; 64];
        let buffer = self.context().buffer(sent.len() as u64)?;
        buffer.write(0, &sent, self.stream())?;
        let mut back = [0; 64];
        buffer.read(0, &mut back, self.stream())?;
        self.stream().synchronize()?;
        if back == sent { Ok(()) } else { Err(DriverError::Argument("device memory does not keep what is written".into())) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a back end does not tell is 0.
fn properties(context: &Context) -> Result<DeviceProperties, DriverError> {
    let table = context.table()?;
    let number = |attribute| context.attribute(attribute).map_or(0, i32::unsigned_abs);
    Ok(DeviceProperties {
        name: context.device_name()?,
        ordinal: context.device().0,
        capability: (number(DeviceAttribute::CapabilityMajor), number(DeviceAttribute::CapabilityMinor)),
        multiprocessors: number(DeviceAttribute::Multiprocessors),
        memory_bytes: table.device_memory(context.device()).unwrap_or(0),
        l2_bytes: u64::from(number(DeviceAttribute::L2Bytes)),
        shared_per_block: number(DeviceAttribute::SharedPerBlockOptIn).max(number(DeviceAttribute::SharedPerBlock)),
        clock_mhz: number(DeviceAttribute::ClockKhz) / 1000,
        driver: table.driver_version().unwrap_or(0),
        bus_id: table.device_bus_id(context.device()).ok(),
    })
}
