//! `libcuda`: the CUDA driver, loaded by name and called through typed function pointers.
//!
//! Every foreign function is one row of `symbols!` with its C signature; a row that the library lacks is `None` and its slot
//! of the table stays absent. Nothing here keeps a handle: the owned resources above do.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use libloading::Library;
use tessera_driver::{DriverCode, DriverError, DriverTable, Result, SharedHandle};

/// Sets one slot where all the symbols it needs were found. The body sees the symbols as `cu` and each named function
/// pointer under its own name.
macro_rules! slot {
    ($table:ident, $symbols:ident, $slot:ident, [$($needed:ident),+], |$cu:ident $(, $arg:ident)*| $body:block) => {
        if let ($(Some($needed)),+,) = ($($symbols.$needed),+,) {
            let $cu = $symbols.clone();
            $table.$slot = Some(Box::new(move |$($arg),*| {
                // Captured so that the library outlives the function pointers.
                let _loaded = &$cu;
                $body
            }));
        }
    };
}

mod device;
mod launch;
mod memory;
mod module;
mod order;

use launch::LaunchConfig;

type Status = c_uint;
type Handle = *mut c_void;

symbols! {
    init = "cuInit": fn(c_uint);
    error_name = "cuGetErrorName": fn(Status, *mut *const c_char);
    error_string = "cuGetErrorString": fn(Status, *mut *const c_char);
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_uint, c_int);
    device_bus_id = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int);
    device_pool = "cuDeviceGetDefaultMemPool": fn(*mut Handle, c_int);
    pool_set_attribute = "cuMemPoolSetAttribute": fn(Handle, c_uint, *mut c_void);
    pool_trim = "cuMemPoolTrimTo": fn(Handle, usize);
    pool_set_access = "cuMemPoolSetAccess": fn(Handle, *const [c_int; 3], usize);
    pointer_range = "cuMemGetAddressRange_v2": fn(*mut u64, *mut usize, u64);
    pointer_attribute = "cuPointerGetAttribute": fn(*mut c_void, c_uint, u64);
    mem_share = "cuIpcGetMemHandle": fn(*mut SharedHandle, u64);
    mem_open = "cuIpcOpenMemHandle_v2": fn(*mut u64, SharedHandle, c_uint);
    mem_close = "cuIpcCloseMemHandle": fn(u64);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    peer_can_access = "cuDeviceCanAccessPeer": fn(*mut c_int, c_int, c_int);
    peer_enable = "cuCtxEnablePeerAccess": fn(Handle, c_uint);
    copy_between = "cuMemcpyPeerAsync": fn(u64, Handle, u64, Handle, usize, Handle);
    stream_wait_value = "cuStreamWaitValue32_v2": fn(Handle, u64, c_uint, c_uint);
    stream_write_value = "cuStreamWriteValue32_v2": fn(Handle, u64, c_uint, c_uint);
    link_create = "cuLinkCreate_v2": fn(c_uint, *mut c_uint, *mut *mut c_void, *mut Handle);
    link_add = "cuLinkAddData_v2": fn(
        Handle, c_uint, *mut c_void, usize, *const c_char, c_uint, *mut c_uint, *mut *mut c_void
    );
    link_complete = "cuLinkComplete": fn(Handle, *mut *mut c_void, *mut usize);
    link_destroy = "cuLinkDestroy": fn(Handle);
    function_clusters = "cuOccupancyMaxActiveClusters": fn(*mut c_int, Handle, *const LaunchConfig);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    context_reset = "cuDevicePrimaryCtxReset_v2": fn(c_int);
    context_set_current = "cuCtxSetCurrent": fn(Handle);
    context_synchronize = "cuCtxSynchronize": fn();
    mem_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    mem_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    mem_free = "cuMemFree_v2": fn(u64);
    mem_alloc_async = "cuMemAllocAsync": fn(*mut u64, usize, Handle);
    mem_free_async = "cuMemFreeAsync": fn(u64, Handle);
    copy_to_device = "cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, Handle);
    copy_on_device = "cuMemcpyDtoDAsync_v2": fn(u64, u64, usize, Handle);
    fill_u8 = "cuMemsetD8Async": fn(u64, u8, usize, Handle);
    fill_u32 = "cuMemsetD32Async": fn(u64, c_uint, usize, Handle);
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(Handle);
    stream_synchronize = "cuStreamSynchronize": fn(Handle);
    stream_query = "cuStreamQuery": fn(Handle);
    stream_wait_event = "cuStreamWaitEvent": fn(Handle, Handle, c_uint);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_synchronize = "cuEventSynchronize": fn(Handle);
    event_query = "cuEventQuery": fn(Handle);
    event_elapsed = "cuEventElapsedTime": fn(*mut f32, Handle, Handle);
    module_load = "cuModuleLoadDataEx": fn(*mut Handle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute": fn(*mut c_int, c_uint, Handle);
    function_set_attribute = "cuFuncSetAttribute": fn(Handle, c_uint, c_int);
    function_occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor": fn(*mut c_int, Handle, c_int, usize);
    launch = "cuLaunchKernelEx": fn(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
    launch_plain = "cuLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    tensor_map_encode = "cuTensorMapEncodeTiled": fn(
        *mut c_void, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const c_uint, *const c_uint,
        c_uint, c_uint, c_uint, c_uint
    );
    capture_begin = "cuStreamBeginCapture_v2": fn(Handle, c_uint);
    capture_end = "cuStreamEndCapture": fn(Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut Handle, Handle, u64);
    graph_free = "cuGraphDestroy": fn(Handle);
    graph_launch = "cuGraphLaunch": fn(Handle, Handle);
    graph_destroy = "cuGraphExecDestroy": fn(Handle);
}

fn handle(number: u64) -> Handle {
    number as usize as Handle
}

fn number(handle: Handle) -> u64 {
    handle as usize as u64
}

impl Symbols {
    fn text(&self, lookup: Option<unsafe extern "C" fn(Status, *mut *const c_char) -> Status>, status: Status) -> Option<String> {
        let mut text = ptr::null();
        // SAFETY: the call writes one pointer to a static string, or leaves it null.
        let found = unsafe { lookup?(status, &mut text) };
        if found != 0 || text.is_null() {
            return None;
        }
        // SAFETY: the driver's strings are static and NUL-terminated.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    fn name_of(&self, status: Status) -> String {
        self.text(self.error_name, status).unwrap_or_else(|| format!("CUDA_ERROR_{status}"))
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let message = self.text(self.error_string, status).unwrap_or_else(|| "unknown error".to_owned());
        Err(DriverError::Failed { call, code: DriverCode(status), name: self.name_of(status), message, kernel: None })
    }
}

/// Loads the CUDA driver and fills a table from it.
///
/// The driver is initialised; that there is no device is an error of the driver (`CUDA_ERROR_NO_DEVICE`).
pub fn driver() -> Result<DriverTable> {
    let names: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };
    let mut reason = String::new();
    for &name in names {
        // SAFETY: loading the vendor's driver runs its initialisers, as every CUDA program does.
        match unsafe { Library::new(name) } {
            Ok(library) => return fill(name, Arc::new(Symbols::find(library))),
            Err(error) if reason.is_empty() => {
                reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            }
            Err(_) => {}
        }
    }
    Err(DriverError::NoDriver { library: names[0].to_owned(), reason })
}

fn fill(name: &str, symbols: Arc<Symbols>) -> Result<DriverTable> {
    let mut table = DriverTable::empty(name);
    if let Some(init) = symbols.init {
        // SAFETY: no arguments but the flags, which must be 0.
        symbols.check("cuInit", unsafe { init(0) })?;
    }
    device::fill(&mut table, &symbols);
    memory::fill(&mut table, &symbols);
    order::fill(&mut table, &symbols);
    module::fill(&mut table, &symbols);
    launch::fill(&mut table, &symbols);
    crate::nvtx::fill(&mut table);
    Ok(table)
}
