//! The table: one row a slot. A row gives the field, the method that calls it, and its place in [`DriverTable::slots`].
//!
//! A back end sets fields (`table.mem_alloc = Some(Box::new(|bytes| ...))`); everything above calls the method of the same
//! name, which answers [`DriverError::Missing`] where the field is `None`. All calls but the ones before
//! `context_set_current` act in the calling thread's current context, as in the CUDA driver.

use std::fmt;

use crate::attribute::{DeviceAttribute, FunctionAttribute, PointerAttribute};
use crate::error::{DriverError, Result};
use crate::handle::{
    ContextHandle, DeviceOrdinal, DevicePtr, EventHandle, FunctionHandle, GraphHandle, HostPtr, ModuleHandle, SharedHandle,
    StreamHandle,
};
use crate::launch::LaunchSpec;
use crate::tensor_map::{TensorMap, TensorMapSpec};

macro_rules! table {
    ($($(#[$doc:meta])* $slot:ident ( $($arg:ident : $ty:ty),* ) $(-> $out:ty)?;)*) => {
        /// A driver as a struct of functions; see the module's head.
        pub struct DriverTable {
            /// Which back end filled the table, for messages: `libcuda.so.1`, `emulator`.
            pub backend: String,
            $(
                $(#[$doc])*
                #[allow(clippy::type_complexity, reason = "the row above is the readable form")]
                pub $slot: Option<Box<dyn Fn($($ty),*) -> Result<table!(@out $($out)?)> + Send + Sync>>,
            )*
        }

        impl DriverTable {
            /// A table in which every slot is absent.
            pub fn empty(backend: impl Into<String>) -> DriverTable {
                DriverTable { backend: backend.into(), $($slot: None),* }
            }

            /// Every slot's name and whether it is present, in declaration order.
            pub fn slots(&self) -> Vec<(&'static str, bool)> {
                vec![$((stringify!($slot), self.$slot.is_some())),*]
            }

            $(
                $(#[$doc])*
                #[allow(clippy::too_many_arguments, reason = "a row mirrors one driver function")]
                pub fn $slot(&self, $($arg: $ty),*) -> Result<table!(@out $($out)?)> {
                    match &self.$slot {
                        Some(call) => call($($arg),*),
                        None => Err(DriverError::Missing { backend: self.backend.clone(), slot: stringify!($slot) }),
                    }
                }
            )*
        }
    };
    (@out $out:ty) => { $out };
    (@out) => { () };
}

table! {
    /// The driver's version, `1000 * major + 10 * minor`.
    driver_version() -> u32;
    /// Tells a profiler that a range of this name begins in the calling thread.
    range_push(name: &str);
    /// Tells it that the thread's last range ends.
    range_pop();
    /// How many devices there are.
    device_count() -> u32;
    /// A device's name.
    device_name(device: DeviceOrdinal) -> String;
    /// A device's memory in bytes.
    device_memory(device: DeviceOrdinal) -> u64;
    /// One of a device's numbers.
    device_attribute(device: DeviceOrdinal, attribute: DeviceAttribute) -> i32;

    /// Where a device is plugged in (`0000:1b:00.0`), which is how other libraries name it.
    device_bus_id(device: DeviceOrdinal) -> String;

    /// Opens the device's shared context, or counts one more user of it.
    context_retain(device: DeviceOrdinal) -> ContextHandle;
    /// Counts one user fewer; the last one frees everything in the context.
    context_release(device: DeviceOrdinal);
    /// Throws away the context and all that is in it, also after a fault.
    context_reset(device: DeviceOrdinal);
    /// Makes a context the calling thread's current one.
    context_set_current(context: ContextHandle);
    /// Waits until all work of the current context is done.
    context_synchronize();

    /// Free and total device memory in bytes.
    mem_info() -> (u64, u64);
    /// Allocates device memory, aligned to 256 bytes at least.
    mem_alloc(bytes: u64) -> DevicePtr;
    /// Frees memory of `mem_alloc`.
    mem_free(pointer: DevicePtr);
    /// Allocates in stream order.
    mem_alloc_async(bytes: u64, stream: StreamHandle) -> DevicePtr;
    /// Frees memory of `mem_alloc_async` in stream order.
    mem_free_async(pointer: DevicePtr, stream: StreamHandle);
    /// Keeps freed stream-ordered memory up to so many bytes, instead of giving it back at each synchronisation.
    pool_keep(device: DeviceOrdinal, bytes: u64);
    /// Gives back what the stream-ordered pool holds beyond so many bytes.
    pool_trim(device: DeviceOrdinal, bytes: u64);
    /// Lets kernels of another device reach the memory of a device's pool, that of now and of later.
    pool_open(device: DeviceOrdinal, to: DeviceOrdinal);
    /// The allocation that an address lies in: its start and its size.
    pointer_range(pointer: DevicePtr) -> (DevicePtr, u64);
    /// One of an address's numbers.
    pointer_attribute(pointer: DevicePtr, attribute: PointerAttribute) -> u64;
    /// Counts bytes as never written; present where the driver keeps count of what is written.
    mem_forget(pointer: DevicePtr, bytes: u64);
    /// For each byte from an address on, whether it was written; `None` where a launch did not keep count.
    mem_written(pointer: DevicePtr, bytes: u64) -> Option<Vec<bool>>;
    /// Lets another process reach memory of `mem_alloc`.
    mem_share(pointer: DevicePtr) -> SharedHandle;
    /// Maps memory that another process shares into the current context.
    mem_open(shared: SharedHandle) -> DevicePtr;
    /// Unmaps memory of `mem_open`.
    mem_close(pointer: DevicePtr);

    /// Allocates pinned host memory that devices reach.
    host_alloc(bytes: u64) -> HostPtr;
    /// Frees memory of `host_alloc`.
    host_free(pointer: HostPtr);
    /// Writes pinned memory from the host, each aligned word at once.
    host_write(to: HostPtr, from: &[u8]);
    /// Reads pinned memory from the host.
    host_read(to: &mut [u8], from: HostPtr);

    /// Whether the first device's kernels can reach the second's memory.
    peer_can_access(from: DeviceOrdinal, to: DeviceOrdinal) -> bool;
    /// Lets the current context reach memory of another one.
    peer_enable(context: ContextHandle);
    /// Queues a copy between the memories of two contexts: target, its context, source, its context.
    copy_between(to: DevicePtr, there: ContextHandle, from: DevicePtr, here: ContextHandle, bytes: u64, stream: StreamHandle);

    /// Copies from the host and returns when the source may be reused.
    copy_to_device(to: DevicePtr, from: &[u8], stream: StreamHandle);
    /// Copies to the host and returns when the bytes are there.
    copy_to_host(to: &mut [u8], from: DevicePtr, stream: StreamHandle);
    /// Queues a copy on the device.
    copy_on_device(to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamHandle);
    /// Queues a fill with one byte.
    fill_u8(to: DevicePtr, value: u8, count: u64, stream: StreamHandle);
    /// Queues a fill with one 32-bit word; the address is a multiple of 4.
    fill_u32(to: DevicePtr, value: u32, count: u64, stream: StreamHandle);

    /// Makes a stream that does not wait for the default stream.
    stream_create() -> StreamHandle;
    /// Frees a stream once its work is done.
    stream_destroy(stream: StreamHandle);
    /// Waits until a stream's work is done; reports faults of its kernels.
    stream_synchronize(stream: StreamHandle);
    /// Whether a stream's work is done; reports faults of its kernels.
    stream_query(stream: StreamHandle) -> bool;
    /// Queues a wait for an event.
    stream_wait_event(stream: StreamHandle, event: EventHandle);

    /// Queues a wait until the 32-bit word at an address is at least `value`.
    stream_wait_value(stream: StreamHandle, at: DevicePtr, value: u32);
    /// Queues a write of a 32-bit word, which may lie in another device's memory: who sees it sees all that was queued before.
    stream_write_value(stream: StreamHandle, at: DevicePtr, value: u32);

    /// Makes an event that keeps time.
    event_create() -> EventHandle;
    /// Frees an event.
    event_destroy(event: EventHandle);
    /// Queues the event.
    event_record(event: EventHandle, stream: StreamHandle);
    /// Waits until the event was reached.
    event_synchronize(event: EventHandle);
    /// Whether the event was reached; reports faults of kernels before it.
    event_query(event: EventHandle) -> bool;
    /// Milliseconds between two reached events.
    event_elapsed_ms(start: EventHandle, end: EventHandle) -> f32;

    /// Assembles PTX text to a cubin for a device of the current context; without `optimized`, instruction by instruction.
    assemble(ptx: &str, optimized: bool) -> Vec<u8>;
    /// Loads PTX text or a cubin into the current context.
    module_load(image: &[u8]) -> ModuleHandle;
    /// Unloads a module.
    module_unload(module: ModuleHandle);
    /// Finds a kernel by name.
    module_function(module: ModuleHandle, name: &str) -> FunctionHandle;
    /// One of a kernel's numbers.
    function_attribute(function: FunctionHandle, attribute: FunctionAttribute) -> i32;
    /// Sets one of a kernel's settable numbers.
    function_set_attribute(function: FunctionHandle, attribute: FunctionAttribute, value: i32);
    /// Blocks of a kernel that fit one multiprocessor: threads of a block, dynamic shared bytes.
    function_occupancy(function: FunctionHandle, threads: u32, shared_bytes: u32) -> u32;
    /// Clusters of a launch that fit the device at once.
    function_clusters(spec: &LaunchSpec<'_>) -> u32;
    /// Queues a launch.
    launch(spec: &LaunchSpec<'_>);

    /// Encodes a tiled tensor map.
    tensor_map_encode(spec: &TensorMapSpec) -> TensorMap;

    /// Starts recording a stream's work instead of running it.
    capture_begin(stream: StreamHandle);
    /// Ends the recording and makes it launchable.
    capture_end(stream: StreamHandle) -> GraphHandle;
    /// Queues a recorded graph.
    graph_launch(graph: GraphHandle, stream: StreamHandle);
    /// Frees a graph.
    graph_destroy(graph: GraphHandle);
}

impl fmt::Debug for DriverTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.slots().iter().filter(|(_, present)| *present).count();
        write!(f, "DriverTable({}, {present} of {} slots)", self.backend, self.slots().len())
    }
}
