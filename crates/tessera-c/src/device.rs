//! Devices: opened, their memory, and waiting for them.

#![allow(unsafe_code, reason = "hands out handles and takes them back, and copies from and to the caller's memory")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tessera_driver::{DevicePtr, DriverError};
use tessera_launch::{DeviceKernel, DeviceLaunch, DriverDevice, Pooled};

use crate::bundle::give_handle;
use crate::status::{Failure, Status, give, guarded, handle, text};

/// Launches that are kept until somebody waits for them.
const MOST_KEPT: usize = 256;

/// An open device.
pub struct TesseraDevice {
    pub(crate) device: DriverDevice,
    /// Kernels by the opening of their bundle and their position in it.
    pub(crate) loaded: Mutex<BTreeMap<(u64, usize), DeviceKernel>>,
    memory: Mutex<BTreeMap<u64, Pooled>>,
    pub(crate) kept: Arc<Kept>,
}

/// Launches with memory of their own, which must stay until they are done.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Arc<DeviceLaunch>>>);

impl Kept {
    /// Keeps a launch until somebody waits, and says how many are kept then.
    pub(crate) fn remember(&self, launch: &Arc<DeviceLaunch>) -> usize {
        let mut kept = lock(&self.0);
        if !kept.iter().any(|other| Arc::ptr_eq(other, launch)) {
            kept.push(Arc::clone(launch));
        }
        kept.len()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change leaves the collection whole, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TesseraDevice {
    fn new(device: DriverDevice) -> TesseraDevice {
        TesseraDevice { device, loaded: Mutex::default(), memory: Mutex::default(), kept: Arc::default() }
    }

    /// Keeps a launch until it is done.
    pub(crate) fn keep(&self, launch: DeviceLaunch) -> Result<(), Failure> {
        let is_full = self.kept.remember(&Arc::new(launch)) >= MOST_KEPT;
        if is_full { self.synchronize() } else { Ok(()) }
    }

    /// Waits until everything on the device is done.
    fn synchronize(&self) -> Result<(), Failure> {
        // What is queued from here on stays for the next time.
        let kept = std::mem::take(&mut *lock(&self.kept.0));
        let outcome = self.device.synchronize().and_then(|()| self.device.context().synchronize());
        outcome.map_err(|error| match kept.iter().find_map(|launch| launch.failed_assertion()) {
            Some((assertion, [x, y, z])) => {
                let message = format!("assertion failed: {} (in block {x}, {y}, {z})", assertion.message);
                Failure::new(Status::DeviceFailed, message)
            }
            None => error.into(),
        })
    }

    /// Refuses a part that leaves the allocation that it begins in. Memory that others allocated is theirs to know.
    fn within(&self, at: u64, bytes: usize) -> Result<(), Failure> {
        let memory = lock(&self.memory);
        let Some((start, own)) = memory.range(..=at).next_back() else { return Ok(()) };
        let offset = at - start;
        if offset < own.bytes() && own.bytes() - offset < bytes as u64 {
            let left = own.bytes() - offset;
            return Err(Failure::call(format!("{bytes} bytes are copied where {left} are left of the allocation")));
        }
        Ok(())
    }
}

/// Opens a device: `cuda`, `cuda:1`; with the emulator also `emu`, or `emu:a100` for another product.
///
/// # Safety
/// `name` is null or a text that ends with a zero; `device` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_device_open(name: *const c_char, device: *mut *mut TesseraDevice) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let name = unsafe { text(name, "the device's name") }?;
        let opened = open(name)?;
        // SAFETY: the caller's promises.
        unsafe { give_handle(device, || Box::into_raw(Box::new(TesseraDevice::new(opened)))) }
    })
}

fn open(name: &str) -> Result<DriverDevice, Failure> {
    let missing = |error: DriverError| Failure::new(Status::NoDevice, error.to_string());
    let (kind, which) = name.split_once(':').map_or((name, None), |(kind, which)| (kind, Some(which)));
    match kind {
        "cuda" => {
            let number = which.unwrap_or("0").parse().map_err(|_| unknown(name))?;
            let device = DriverDevice::open(Arc::new(tessera_cuda::driver().map_err(missing)?), number).map_err(missing)?;
            device.probe()?;
            Ok(device)
        }
        "emu" => emulator(which),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(Status::NoDevice, format!("`{name}` is not a device: write `cuda`, `cuda:NUMBER`, `emu` or `emu:PRODUCT`"))
}

#[cfg(feature = "emulator")]
fn emulator(product: Option<&str>) -> Result<DriverDevice, Failure> {
    let mut options = tessera_emu::EmuOptions::default();
    if let Some(product) = product {
        options.device = product.to_owned();
    }
    let table = tessera_emu::driver(&options).map_err(|error| Failure::new(Status::NoDevice, error.to_string()))?;
    Ok(DriverDevice::open(Arc::new(table), 0)?)
}

#[cfg(not(feature = "emulator"))]
fn emulator(_product: Option<&str>) -> Result<DriverDevice, Failure> {
    Err(Failure::new(Status::NoDevice, "this library was built without the emulator: build it with the feature `emulator`"))
}

/// Waits until the device is done with everything, and closes it, with memory that was not freed; null is nothing to close.
///
/// # Safety
/// `device` is null or an open handle that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_device_close(device: *mut TesseraDevice) {
    if !device.is_null() {
        // SAFETY: made by `tessera_device_open`, and closed once.
        let device = unsafe { Box::from_raw(device) };
        // What still fails has nobody left to be told.
        guarded(|| device.synchronize());
        guarded(|| {
            drop(device);
            Ok(())
        });
    }
}

/// Allocates memory of the device with undefined contents. No bytes are the null pointer.
///
/// # Safety
/// `device` is null or an open handle; `memory` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_alloc(device: *const TesseraDevice, bytes: usize, memory: *mut *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let device = unsafe { handle(device, "the device") }?;
        if memory.is_null() {
            return Err(Failure::call("there is no place for the memory's address: a null pointer"));
        }
        // Other streams than the device's own may use it, so it does not come from the pool in that stream's order.
        let own = device.device.allocate_plain(bytes as u64)?;
        let address = own.pointer().0;
        if bytes > 0 {
            lock(&device.memory).insert(address, own);
        }
        // SAFETY: the caller's promises.
        unsafe { give(memory, std::ptr::without_provenance_mut(address as usize)) }
    })
}

/// Frees memory of `tessera_alloc`; null is nothing to free.
///
/// # Safety
/// `device` is null or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_free(device: *const TesseraDevice, memory: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { handle(device, "the device") }?;
        if memory.is_null() {
            return Ok(());
        }
        let own = lock(&device.memory).remove(&(memory.addr() as u64));
        own.map(drop).ok_or_else(|| Failure::call(format!("{memory:p} is no memory of `tessera_alloc` on this device")))
    })
}

/// Copies from the host to the device, in the order of the device's own stream. `from` may be reused afterwards.
///
/// # Safety
/// `device` is null or an open handle; `from` is null or points at `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_copy_to(
    device: *const TesseraDevice,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { handle(device, "the device") }?;
        if !is_copy(to, from, bytes)? {
            return Ok(());
        }
        let to = to.addr() as u64;
        device.within(to, bytes)?;
        // SAFETY: the caller's promise; it is no null pointer.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
        let stream = device.device.stream().handle();
        Ok(device.device.context().table()?.copy_to_device(DevicePtr(to), from, stream)?)
    })
}

/// Copies from the device to the host, behind everything in the device's own stream. The bytes are there afterwards.
///
/// # Safety
/// `device` is null or an open handle; `to` is null or points at `bytes` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_copy_from(
    device: *const TesseraDevice,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { handle(device, "the device") }?;
        if !is_copy(to, from, bytes)? {
            return Ok(());
        }
        let from = from.addr() as u64;
        device.within(from, bytes)?;
        // SAFETY: the caller's promise; it is no null pointer.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
        let stream = device.device.stream().handle();
        Ok(device.device.context().table()?.copy_to_host(to, DevicePtr(from), stream)?)
    })
}

/// Whether there is something to copy.
fn is_copy(to: *const c_void, from: *const c_void, bytes: usize) -> Result<bool, Failure> {
    if bytes > 0 && (to.is_null() || from.is_null()) {
        return Err(Failure::call(format!("{bytes} bytes are copied from or to a null pointer")));
    }
    if isize::try_from(bytes).is_err() {
        return Err(Failure::call(format!("no memory has {bytes} bytes")));
    }
    Ok(bytes > 0)
}

/// Waits until everything on the device is done, in all streams. Tells of kernels that failed.
///
/// # Safety
/// `device` is null or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_synchronize(device: *const TesseraDevice) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(device, "the device") }?.synchronize()
    })
}
