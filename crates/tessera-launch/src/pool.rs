//! Device memory of one device, in the order of its stream, counted.
//!
//! Memory comes from the driver's stream-ordered pool where it has one: freeing waits for nobody, and the next allocation
//! may take what the stream is about to be done with. When memory runs out, the pool gives back what it keeps and tries once
//! more; if that fails the error says how much was asked for, free and held, and everything stays usable.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tessera_driver::{Context, DeviceBuffer, DriverError, Stream};

use crate::error::MemoryError;

/// Freed memory that the driver keeps for the next allocation.
const KEPT_BYTES: u64 = 2 << 30;

#[derive(Debug, Default)]
struct Counters {
    held: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
    retries: AtomicU64,
    refused: AtomicU64,
}

/// What a device's memory was used for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Bytes held now.
    pub held: u64,
    /// Most bytes held at once.
    pub peak: u64,
    /// Allocations made.
    pub allocations: u64,
    /// Allocations given back.
    pub frees: u64,
    /// Allocations that succeeded only after the driver's pool was emptied.
    pub retries: u64,
    /// Allocations refused.
    pub refused: u64,
}

/// A device's memory.
#[derive(Debug)]
pub(crate) struct Pool {
    context: Context,
    stream: Arc<Stream>,
    ordered: bool,
    counters: Arc<Counters>,
}

/// Memory of a [`Pool`], given back when dropped.
#[derive(Debug)]
pub struct Pooled {
    buffer: DeviceBuffer,
    counters: Arc<Counters>,
}

impl Pool {
    /// The memory of a context, in the order of a stream.
    pub(crate) fn new(context: &Context, stream: &Arc<Stream>) -> Pool {
        // A driver without pools has plain memory; one that cannot keep freed memory is only slower.
        let kept = context.table().and_then(|table| table.pool_keep(context.device(), KEPT_BYTES));
        let ordered = kept.is_ok() && context.table().is_ok_and(|table| table.mem_alloc_async.is_some());
        Pool { context: context.clone(), stream: Arc::clone(stream), ordered, counters: Arc::default() }
    }

    /// `bytes` bytes with undefined contents.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Pooled, MemoryError> {
        self.take(bytes, self.ordered)
    }

    /// The same outside the driver's pool: for memory that other processes are let into.
    pub(crate) fn allocate_plain(&self, bytes: u64) -> Result<Pooled, MemoryError> {
        self.take(bytes, false)
    }

    fn take(&self, bytes: u64, ordered: bool) -> Result<Pooled, MemoryError> {
        let counters = &self.counters;
        let mut outcome = self.attempt(bytes, ordered);
        if outcome.as_ref().is_err_and(DriverError::is_out_of_memory) {
            self.stream.synchronize()?;
            let _ = self.trim(0);
            outcome = self.attempt(bytes, ordered);
            if outcome.is_ok() {
                counters.retries.fetch_add(1, Ordering::Relaxed);
            }
        }
        let buffer = outcome.map_err(|error| {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            if !error.is_out_of_memory() {
                return MemoryError::Driver(error);
            }
            let (free, total) = self.context.memory().unwrap_or_default();
            MemoryError::Short { bytes, free, total, held: counters.held.load(Ordering::Relaxed) }
        })?;
        let held = counters.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        counters.peak.fetch_max(held, Ordering::Relaxed);
        counters.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(Pooled { buffer, counters: Arc::clone(counters) })
    }

    fn attempt(&self, bytes: u64, ordered: bool) -> Result<DeviceBuffer, DriverError> {
        if ordered { self.context.ordered_buffer(bytes, &self.stream) } else { self.context.buffer(bytes) }
    }

    /// Gives freed memory beyond `bytes` back to the device.
    pub(crate) fn trim(&self, bytes: u64) -> Result<(), DriverError> {
        if self.ordered { self.context.table()?.pool_trim(self.context.device(), bytes) } else { Ok(()) }
    }

    pub(crate) fn counters(&self) -> PoolCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        PoolCounters {
            held: read(&c.held),
            peak: read(&c.peak),
            allocations: read(&c.allocations),
            frees: read(&c.frees),
            retries: read(&c.retries),
            refused: read(&c.refused),
        }
    }
}

impl Deref for Pooled {
    type Target = DeviceBuffer;
    fn deref(&self) -> &DeviceBuffer {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.counters.held.fetch_sub(self.buffer.bytes(), Ordering::Relaxed);
        self.counters.frees.fetch_add(1, Ordering::Relaxed);
    }
}
