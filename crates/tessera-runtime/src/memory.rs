//! Memory that tensors stand on: aligned host memory, memory of somebody else, or a device's.
//!
//! Invariant: while a [`Reader`] lives nobody holds a [`Writer`] of the same memory, and a writer is alone. Both are taken
//! without waiting: what is in use is refused, so a launch that would race with a borrowed slice is an error, not a fault.
//!
//! Host memory starts at a multiple of 64 bytes; from 4 MiB on at a multiple of 2 MiB, with huge pages advised.

#![allow(unsafe_code, reason = "owns raw allocations; kernels write through addresses")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use tessera_driver::{DeviceBuffer, DevicePtr};
use tessera_launch::Pooled;

use crate::device::DriverDevice;
use crate::error::TensorError;

/// Alignment of every host allocation in bytes.
pub const HOST_ALIGN: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
const HUGE_FROM: usize = 4 << 20;

/// Owned host bytes.
pub(crate) struct HostBytes {
    base: NonNull<u8>,
    bytes: usize,
    layout: Option<Layout>,
}

impl HostBytes {
    fn zeroed(bytes: usize) -> Result<HostBytes, TensorError> {
        if bytes == 0 {
            // Any aligned non-null address does for no bytes.
            let base = NonNull::new(std::ptr::without_provenance_mut(HOST_ALIGN)).unwrap_or(NonNull::dangling());
            return Ok(HostBytes { base, bytes, layout: None });
        }
        let align = if bytes >= HUGE_FROM { HUGE_PAGE } else { HOST_ALIGN };
        let too_large = || TensorError::OutOfMemory { bytes };
        let padded = bytes.checked_next_multiple_of(align).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(padded, align).map_err(|_| too_large())?;
        // SAFETY: the layout has a size.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_large)?;
        if align == HUGE_PAGE {
            advise_huge_pages(base, padded);
        }
        Ok(HostBytes { base, bytes, layout: Some(layout) })
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated with this layout and freed once.
            unsafe { dealloc(self.base.as_ptr(), layout) }
        }
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(base: NonNull<u8>, bytes: usize) {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    const MADV_HUGEPAGE: c_int = 14;
    // SAFETY: the range is one allocation of whole pages; the advice changes no contents, and its failure changes nothing.
    unsafe { madvise(base.as_ptr().cast(), bytes, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_base: NonNull<u8>, _bytes: usize) {}

/// Host bytes that somebody else owns, kept alive by `owner`.
pub(crate) struct ForeignBytes {
    base: NonNull<u8>,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

enum Place {
    Host(HostBytes),
    Foreign(ForeignBytes),
    Device(DriverDevice, Pooled),
    ForeignDevice(DriverDevice, ForeignBuffer),
}

/// A device's memory that somebody else owns, kept alive by `owner`.
pub(crate) struct ForeignBuffer {
    buffer: DeviceBuffer,
    _owner: Box<dyn Any + Send + Sync>,
}

/// One piece of memory with its borrow state.
pub(crate) struct Memory {
    place: Place,
    /// Readers, or -1 for one writer.
    borrows: AtomicIsize,
    /// True while the contents are poison that nobody has written over.
    poisoned: AtomicBool,
}

// SAFETY: the bytes are reached through `Reader` and `Writer` only, which exclude each other across threads.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Host(_) => "host",
            Place::Foreign(_) => "foreign",
            Place::Device(..) => "device",
            Place::ForeignDevice(..) => "foreign, device",
        };
        write!(f, "{} bytes ({place})", self.bytes())
    }
}

impl Memory {
    fn new(place: Place) -> Memory {
        Memory { place, borrows: AtomicIsize::new(0), poisoned: AtomicBool::new(false) }
    }

    /// Host memory, all zero.
    pub(crate) fn host(bytes: usize) -> Result<Memory, TensorError> {
        Ok(Memory::new(Place::Host(HostBytes::zeroed(bytes)?)))
    }

    /// Device memory with undefined contents.
    pub(crate) fn on_device(device: &DriverDevice, bytes: usize) -> Result<Memory, TensorError> {
        Ok(Memory::new(Place::Device(device.clone(), device.allocate(bytes as u64)?)))
    }

    /// Device memory with undefined contents that other processes can be let into.
    pub(crate) fn shareable(device: &DriverDevice, bytes: usize) -> Result<Memory, TensorError> {
        Ok(Memory::new(Place::Device(device.clone(), device.allocate_plain(bytes as u64)?)))
    }

    /// Somebody else's host memory.
    ///
    /// # Safety
    /// `base..base + bytes` stays readable and writable while `owner` lives, and nobody else touches it meanwhile.
    pub(crate) unsafe fn foreign(base: NonNull<u8>, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Memory {
        Memory::new(Place::Foreign(ForeignBytes { base, bytes, _owner: owner }))
    }

    /// Somebody else's memory on a device.
    pub(crate) fn foreign_on(
        device: &DriverDevice,
        address: DevicePtr,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Memory {
        let buffer = device.context().foreign_buffer(address, bytes as u64);
        Memory::new(Place::ForeignDevice(device.clone(), ForeignBuffer { buffer, _owner: owner }))
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        match &self.place {
            Place::Host(host) => host.bytes,
            Place::Foreign(foreign) => foreign.bytes,
            Place::Device(_, buffer) => buffer.bytes() as usize,
            Place::ForeignDevice(_, foreign) => foreign.buffer.bytes() as usize,
        }
    }

    /// Its address, in the address space of its device.
    pub(crate) fn address(&self) -> u64 {
        match &self.place {
            Place::Host(host) => host.base.as_ptr() as u64,
            Place::Foreign(foreign) => foreign.base.as_ptr() as u64,
            Place::Device(_, buffer) => buffer.pointer().0,
            Place::ForeignDevice(_, foreign) => foreign.buffer.pointer().0,
        }
    }

    /// The device's buffer, for device memory.
    pub(crate) fn device(&self) -> Option<(&DriverDevice, &DeviceBuffer)> {
        match &self.place {
            Place::Device(device, buffer) => Some((device, buffer)),
            Place::ForeignDevice(device, foreign) => Some((device, &foreign.buffer)),
            Place::Host(_) | Place::Foreign(_) => None,
        }
    }

    fn host_base(&self) -> Result<*mut u8, TensorError> {
        match &self.place {
            Place::Host(host) => Ok(host.base.as_ptr()),
            Place::Foreign(foreign) => Ok(foreign.base.as_ptr()),
            Place::Device(device, _) | Place::ForeignDevice(device, _) => {
                Err(TensorError::OnDevice { device: device.name().to_owned() })
            }
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_poisoned(&self, poisoned: bool) {
        self.poisoned.store(poisoned, Ordering::Relaxed);
    }

    /// Shares the memory for reading, on whatever device it is.
    pub(crate) fn reader(&self) -> Result<Reader<'_>, TensorError> {
        let mut readers = self.borrows.load(Ordering::Relaxed);
        loop {
            if readers < 0 {
                return Err(TensorError::InUse { writing: true });
            }
            match self.borrows.compare_exchange_weak(readers, readers + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Reader { memory: self }),
                Err(now) => readers = now,
            }
        }
    }

    /// Takes the memory for writing, on whatever device it is.
    pub(crate) fn writer(&self) -> Result<Writer<'_>, TensorError> {
        match self.borrows.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Writer { memory: self }),
            Err(now) => Err(TensorError::InUse { writing: now < 0 }),
        }
    }
}

/// Shared access to a [`Memory`].
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    memory: &'a Memory,
}

impl<'a> Reader<'a> {
    /// The bytes, where the host can reach them.
    pub(crate) fn bytes(&self) -> Result<&[u8], TensorError> {
        let base = self.memory.host_base()?;
        // SAFETY: the memory is initialised (zeroed, or as `foreign` demands) and lives; this guard excludes writers.
        Ok(unsafe { std::slice::from_raw_parts(base, self.memory.bytes()) })
    }

    /// The first byte's address for a kernel that only reads.
    pub(crate) fn base(&self) -> Result<*mut u8, TensorError> {
        self.memory.host_base()
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.memory.borrows.fetch_sub(1, Ordering::Release);
    }
}

/// Sole access to a [`Memory`].
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    memory: &'a Memory,
}

impl Writer<'_> {
    /// The bytes, where the host can reach them. They count as written from here on.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        let base = self.memory.host_base()?;
        self.memory.set_poisoned(false);
        // SAFETY: as in `Reader::bytes`, and this guard excludes everybody else.
        Ok(unsafe { std::slice::from_raw_parts_mut(base, self.memory.bytes()) })
    }

    /// The first byte's address for a kernel.
    pub(crate) fn base(&self) -> Result<*mut u8, TensorError> {
        self.memory.host_base()
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.memory.borrows.store(0, Ordering::Release);
    }
}
