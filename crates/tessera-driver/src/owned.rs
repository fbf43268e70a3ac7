//! Owned resources over a [`DriverTable`]: each keeps its table alive and gives its handle back when dropped.
//!
//! A method makes its context current in the calling thread first, so resources may move between threads. Errors in `drop`
//! are ignored: the only ones possible are those of a context that is already lost.
//!
//! ```no_run
//! # fn main() -> tessera_driver::Result<()> {
//! # let table = std::sync::Arc::new(tessera_driver::DriverTable::empty("none"));
//! use tessera_driver::{Context, DeviceOrdinal, Dim3, Params};
//! let context = Context::open(table, DeviceOrdinal(0))?;
//! let stream = context.stream()?;
//! let x = context.buffer(4096)?;
//! let kernel = context.module(b".version 9.0 ...")?.kernel("scale")?;
//! kernel.launch(&stream, Dim3::from(4), Dim3::from(256), 0, &Params::new().pointer(x.pointer()))?;
//! stream.synchronize()?;
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::attribute::{DeviceAttribute, FunctionAttribute};
use crate::buffer::{DeviceBuffer, PinnedBuffer};
use crate::error::{DriverCode, DriverError, Result};
use crate::handle::{
    ContextHandle, DeviceOrdinal, DevicePtr, EventHandle, FunctionHandle, GraphHandle, ModuleHandle, StreamHandle,
};
use crate::launch::{Dim3, LaunchSpec, Params};
use crate::table::DriverTable;
use crate::tensor_map::{TensorMap, TensorMapSpec};

#[derive(Debug)]
struct ContextInner {
    table: Arc<DriverTable>,
    device: DeviceOrdinal,
    handle: ContextHandle,
    lost: AtomicBool,
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        let _ = self.table.context_release(self.device);
    }
}

impl ContextInner {
    fn current(&self) -> Result<&DriverTable> {
        if self.lost.load(Ordering::Acquire) {
            return Err(DriverError::ContextLost { device: self.device });
        }
        self.table.context_set_current(self.handle)?;
        Ok(&self.table)
    }
}

/// A device's context. Clones share it; the last one releases it.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<ContextInner>,
}

impl Context {
    /// Opens the context of a device and makes it current.
    pub fn open(table: Arc<DriverTable>, device: DeviceOrdinal) -> Result<Context> {
        let count = table.device_count()?;
        if device.0 >= count {
            return Err(DriverError::NoSuchDevice { ordinal: device, count });
        }
        let handle = table.context_retain(device)?;
        let inner = ContextInner { table, device, handle, lost: AtomicBool::new(false) };
        inner.current()?;
        Ok(Context { inner: Arc::new(inner) })
    }

    /// Throws away everything in the context. Whatever still refers to it, clones included, answers
    /// [`DriverError::ContextLost`] from now on and frees nothing.
    ///
    /// Whether a fresh context can be opened after a *fault* is the driver's choice: `libcuda` 580 answers every attempt in
    /// the same process with the fault's code, so work must go on in another process, or without the device.
    pub fn reset(&self) -> Result<()> {
        self.inner.lost.store(true, Ordering::Release);
        self.inner.table.context_reset(self.inner.device)
    }

    /// The table below, with this context made current.
    pub fn table(&self) -> Result<&DriverTable> {
        self.inner.current()
    }

    /// Which device it is.
    pub fn device(&self) -> DeviceOrdinal {
        self.inner.device
    }

    /// The device's name.
    pub fn device_name(&self) -> Result<String> {
        self.inner.table.device_name(self.inner.device)
    }

    /// One of the device's numbers.
    pub fn attribute(&self, attribute: DeviceAttribute) -> Result<i32> {
        self.inner.table.device_attribute(self.inner.device, attribute)
    }

    /// Free and total device memory in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.table()?.mem_info()
    }

    /// Allocates device memory. Zero bytes give a buffer with a null pointer.
    pub fn buffer(&self, bytes: u64) -> Result<DeviceBuffer> {
        DeviceBuffer::new(self, bytes)
    }

    /// Allocates device memory of the driver's pool in the order of a stream, which also frees it in that order.
    pub fn ordered_buffer(&self, bytes: u64, stream: &Arc<Stream>) -> Result<DeviceBuffer> {
        DeviceBuffer::ordered(self, bytes, stream)
    }

    /// Memory of this context's device that somebody else has allocated, and frees.
    pub fn foreign_buffer(&self, pointer: DevicePtr, bytes: u64) -> DeviceBuffer {
        DeviceBuffer::foreign(self, pointer, bytes)
    }

    /// Allocates pinned host memory, all zero.
    pub fn pinned(&self, bytes: u64) -> Result<PinnedBuffer> {
        PinnedBuffer::new(self, bytes)
    }

    /// The raw handle.
    pub fn handle(&self) -> ContextHandle {
        self.inner.handle
    }

    /// Lets kernels of this context reach the memory of another device's context. False where the machine has no way; its own memory it reaches anyway.
    pub fn enable_peer(&self, other: &Context) -> Result<bool> {
        if self.device() == other.device() {
            return Ok(true);
        }
        if !self.table()?.peer_can_access(self.device(), other.device())? {
            return Ok(false);
        }
        match self.table()?.peer_enable(other.handle()) {
            Err(error) if error.code() == Some(DriverCode::PEER_ALREADY_ENABLED) => Ok(true),
            outcome => outcome.map(|()| true),
        }
    }

    /// Assembles PTX text to a cubin for this device.
    pub fn assemble(&self, ptx: &str) -> Result<Vec<u8>> {
        self.table()?.assemble(ptx, true)
    }

    /// The same instruction by instruction, so that the assembler's mistakes can be told from others.
    pub fn assemble_unoptimized(&self, ptx: &str) -> Result<Vec<u8>> {
        self.table()?.assemble(ptx, false)
    }

    /// Makes a stream.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream { handle: self.table()?.stream_create()?, context: self.clone() })
    }

    /// Makes an event.
    pub fn event(&self) -> Result<Event> {
        Ok(Event { handle: self.table()?.event_create()?, context: self.clone() })
    }

    /// Loads PTX text or a cubin.
    pub fn module(&self, image: &[u8]) -> Result<Module> {
        let handle = self.table()?.module_load(image)?;
        Ok(Module { inner: Arc::new(ModuleInner { context: self.clone(), handle }) })
    }

    /// Encodes a tensor map after checking its limits.
    pub fn tensor_map(&self, spec: &TensorMapSpec) -> Result<TensorMap> {
        spec.check().map_err(|error| DriverError::Argument(error.to_string()))?;
        self.table()?.tensor_map_encode(spec)
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.table()?.context_synchronize()
    }
}

/// A queue of work that runs in order.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    handle: StreamHandle,
}

impl Stream {
    /// The raw handle.
    pub fn handle(&self) -> StreamHandle {
        self.handle
    }

    /// Waits until its work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.context.table()?.stream_synchronize(self.handle)
    }

    /// Whether its work is done.
    pub fn is_done(&self) -> Result<bool> {
        self.context.table()?.stream_query(self.handle)
    }

    /// Queues a wait for an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context.table()?.stream_wait_event(self.handle, event.handle)
    }

    /// Queues a wait until the 32-bit word at an address is at least `value`.
    pub fn wait_value(&self, at: DevicePtr, value: u32) -> Result<()> {
        self.context.table()?.stream_wait_value(self.handle, at, value)
    }

    /// Queues a write of a 32-bit word, behind which all that was queued before is seen.
    pub fn write_value(&self, at: DevicePtr, value: u32) -> Result<()> {
        self.context.table()?.stream_write_value(self.handle, at, value)
    }

    /// Records what `work` queues here as a graph, instead of running it.
    pub fn record(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let table = self.context.table()?;
        table.capture_begin(self.handle)?;
        let outcome = work();
        let graph = table.capture_end(self.handle).map(|handle| Graph { context: self.context.clone(), handle });
        outcome.and(graph)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.table().and_then(|table| table.stream_destroy(self.handle));
    }
}

/// A recorded piece of work.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    handle: GraphHandle,
}

impl Graph {
    /// Queues it.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.table()?.graph_launch(self.handle, stream.handle)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.table().and_then(|table| table.graph_destroy(self.handle));
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: EventHandle,
}

impl Event {
    /// Queues the event.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.table()?.event_record(self.handle, stream.handle)
    }

    /// The same on a stream that is somebody else's.
    pub fn record_in(&self, stream: StreamHandle) -> Result<()> {
        self.context.table()?.event_record(self.handle, stream)
    }

    /// Queues a wait for it on a stream that is somebody else's.
    pub fn hold(&self, stream: StreamHandle) -> Result<()> {
        self.context.table()?.stream_wait_event(stream, self.handle)
    }

    /// Whether it was reached.
    pub fn is_reached(&self) -> Result<bool> {
        self.context.table()?.event_query(self.handle)
    }

    /// Waits until it was reached.
    pub fn synchronize(&self) -> Result<()> {
        self.context.table()?.event_synchronize(self.handle)
    }

    /// Milliseconds from `start` to this event; both must have been reached.
    pub fn elapsed_ms_since(&self, start: &Event) -> Result<f32> {
        self.context.table()?.event_elapsed_ms(start.handle, self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.table().and_then(|table| table.event_destroy(self.handle));
    }
}

#[derive(Debug)]
struct ModuleInner {
    context: Context,
    handle: ModuleHandle,
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        let _ = self.context.table().and_then(|table| table.module_unload(self.handle));
    }
}

/// A loaded module. Clones share it; its kernels keep it loaded.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<ModuleInner>,
}

impl Module {
    /// Finds a kernel.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let table = self.inner.context.table()?;
        let function = table.module_function(self.inner.handle, name).map_err(|error| error.in_kernel(name))?;
        Ok(Kernel { module: self.clone(), name: name.to_owned(), function })
    }
}

/// A kernel that can be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    module: Module,
    name: String,
    function: FunctionHandle,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The raw handle.
    pub fn handle(&self) -> FunctionHandle {
        self.function
    }

    /// One of its numbers.
    pub fn attribute(&self, attribute: FunctionAttribute) -> Result<i32> {
        self.table()?.function_attribute(self.function, attribute).map_err(|error| error.in_kernel(&self.name))
    }

    /// Allows launches with up to `bytes` of dynamic shared memory.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let value = i32::try_from(bytes)
            .map_err(|_| DriverError::Argument(format!("{bytes} bytes of shared memory are beyond any device")))?;
        self.table()?
            .function_set_attribute(self.function, FunctionAttribute::MaxDynamicShared, value)
            .map_err(|error| error.in_kernel(&self.name))
    }

    /// Allows clusters of more than eight blocks.
    pub fn allow_large_clusters(&self) -> Result<()> {
        self.table()?
            .function_set_attribute(self.function, FunctionAttribute::NonPortableCluster, 1)
            .map_err(|error| error.in_kernel(&self.name))
    }

    /// Blocks that fit one multiprocessor.
    pub fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        self.table()?.function_occupancy(self.function, threads, shared_bytes).map_err(|error| error.in_kernel(&self.name))
    }

    /// Clusters of a launch that fit the device at once.
    pub fn resident_clusters(&self, spec: &LaunchSpec<'_>) -> Result<u32> {
        self.table()?.function_clusters(spec).map_err(|error| error.in_kernel(&self.name))
    }

    /// The context it was loaded into.
    pub fn context(&self) -> &Context {
        &self.module.inner.context
    }

    /// Queues a launch without a cluster of its own.
    pub fn launch(&self, stream: &Stream, grid: Dim3, block: Dim3, shared_bytes: u32, params: &Params) -> Result<()> {
        self.launch_spec(&LaunchSpec {
            function: self.function,
            grid,
            block,
            cluster: None,
            shared_bytes,
            overlaps_predecessor: false,
            stream: stream.handle,
            params,
        })
    }

    /// Queues a launch described in full; `spec.function` is this kernel's handle.
    pub fn launch_spec(&self, spec: &LaunchSpec<'_>) -> Result<()> {
        spec.check()?;
        self.table()?.launch(spec).map_err(|error| error.in_kernel(&self.name))
    }

    fn table(&self) -> Result<&DriverTable> {
        self.module.inner.context.table()
    }
}
