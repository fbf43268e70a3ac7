//! `libcuda`: the CUDA driver, loaded by name and called through typed function pointers.
//!
//! Every foreign function is one row of `symbols!` with its C signature; a row that the library lacks is `None` and its slot
//! of the table stays absent. Nothing here keeps a handle: the owned resources above do.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use libloading::Library;
use tessera_driver::{
    ContextHandle, DevicePtr, DriverCode, DriverError, DriverTable, EventHandle, FunctionHandle, GraphHandle, L2Promotion,
    LaunchSpec, ModuleHandle, OutOfBounds, Result, StreamHandle, Swizzle, TensorMap, TensorMapSpec,
};
use tessera_types::DType;

type Status = c_uint;
type Handle = *mut c_void;

macro_rules! symbols {
    ($($field:ident = $symbol:literal : fn($($ty:ty),*);)*) => {
        /// The functions found in the library, by their C names.
        struct Symbols {
            $($field: Option<unsafe extern "C" fn($($ty),*) -> Status>,)*
            // Declared last: the pointers above are valid as long as the library is loaded.
            _library: Library,
        }

        impl Symbols {
            fn find(library: Library) -> Symbols {
                Symbols {
                    // SAFETY: the signatures are those of the CUDA 12 driver's header for these versioned names.
                    $($field: unsafe { library.get(concat!($symbol, "\0")).ok().map(|symbol| *symbol) },)*
                    _library: library,
                }
            }
        }
    };
}

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
    stream_wait_event = "cuStreamWaitEvent": fn(Handle, Handle, c_uint);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_synchronize = "cuEventSynchronize": fn(Handle);
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

/// `CUlaunchAttribute`: an id, padding to 8 bytes and a 64-byte union.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchAttribute {
    id: c_uint,
    pad: u32,
    value: [u32; 16],
}

const CLUSTER_DIMENSION: c_uint = 4;
const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *mut LaunchAttribute,
    attribute_count: c_uint,
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

fn fill(name: &str, symbols: Arc<Symbols>) -> Result<DriverTable> {
    let mut table = DriverTable::empty(name);
    if let Some(init) = symbols.init {
        // SAFETY: no arguments but the flags, which must be 0.
        symbols.check("cuInit", unsafe { init(0) })?;
    }
    fill_device(&mut table, &symbols);
    fill_memory(&mut table, &symbols);
    fill_order(&mut table, &symbols);
    fill_module(&mut table, &symbols);
    Ok(table)
}

fn fill_device(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, driver_version, [driver_version], |cu| {
        let mut version = 0;
        // SAFETY: writes one int.
        cu.check("cuDriverGetVersion", unsafe { driver_version(&mut version) })?;
        Ok(version.unsigned_abs())
    });
    slot!(table, symbols, device_count, [device_count], |cu| {
        let mut count = 0;
        // SAFETY: writes one int.
        cu.check("cuDeviceGetCount", unsafe { device_count(&mut count) })?;
        Ok(count.unsigned_abs())
    });
    slot!(table, symbols, device_name, [device_get, device_name], |cu, device| {
        let mut text = [0u8; 256];
        let (mut id, length) = (0, text.len() as c_int);
        // SAFETY: writes one int.
        cu.check("cuDeviceGet", unsafe { device_get(&mut id, device.0.cast_signed()) })?;
        // SAFETY: writes at most `length` bytes, the terminator included.
        cu.check("cuDeviceGetName", unsafe { device_name(text.as_mut_ptr().cast(), length, id) })?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    });
    slot!(table, symbols, device_memory, [device_get, device_memory], |cu, device| {
        let (mut id, mut bytes) = (0, 0usize);
        // SAFETY: writes one int.
        cu.check("cuDeviceGet", unsafe { device_get(&mut id, device.0.cast_signed()) })?;
        // SAFETY: writes one size.
        cu.check("cuDeviceTotalMem", unsafe { device_memory(&mut bytes, id) })?;
        Ok(bytes as u64)
    });
    slot!(table, symbols, device_attribute, [device_get, device_attribute], |cu, device, attribute| {
        let (mut id, mut value) = (0, 0);
        // SAFETY: writes one int.
        cu.check("cuDeviceGet", unsafe { device_get(&mut id, device.0.cast_signed()) })?;
        // SAFETY: writes one int.
        cu.check("cuDeviceGetAttribute", unsafe { device_attribute(&mut value, attribute.number(), id) })?;
        Ok(value)
    });
    slot!(table, symbols, context_retain, [context_retain], |cu, device| {
        let mut context = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuDevicePrimaryCtxRetain", unsafe { context_retain(&mut context, device.0.cast_signed()) })?;
        Ok(ContextHandle(number(context)))
    });
    slot!(table, symbols, context_release, [context_release], |cu, device| {
        // SAFETY: no pointers.
        cu.check("cuDevicePrimaryCtxRelease", unsafe { context_release(device.0.cast_signed()) })
    });
    slot!(table, symbols, context_reset, [context_reset], |cu, device| {
        // SAFETY: no pointers.
        cu.check("cuDevicePrimaryCtxReset", unsafe { context_reset(device.0.cast_signed()) })
    });
    slot!(table, symbols, context_set_current, [context_set_current], |cu, context| {
        // SAFETY: the handle came from this driver.
        cu.check("cuCtxSetCurrent", unsafe { context_set_current(handle(context.0)) })
    });
    slot!(table, symbols, context_synchronize, [context_synchronize], |cu| {
        // SAFETY: no arguments.
        cu.check("cuCtxSynchronize", unsafe { context_synchronize() })
    });
}

fn fill_memory(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, mem_info, [mem_info], |cu| {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two sizes.
        cu.check("cuMemGetInfo", unsafe { mem_info(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    });
    slot!(table, symbols, mem_alloc, [mem_alloc], |cu, bytes| {
        let mut pointer = 0;
        // SAFETY: writes one address.
        cu.check("cuMemAlloc", unsafe { mem_alloc(&mut pointer, bytes as usize) })?;
        Ok(DevicePtr(pointer))
    });
    slot!(table, symbols, mem_free, [mem_free], |cu, pointer| {
        // SAFETY: device addresses are checked by the driver.
        cu.check("cuMemFree", unsafe { mem_free(pointer.0) })
    });
    slot!(table, symbols, mem_alloc_async, [mem_alloc_async], |cu, bytes, stream| {
        let mut pointer = 0;
        // SAFETY: writes one address.
        cu.check("cuMemAllocAsync", unsafe { mem_alloc_async(&mut pointer, bytes as usize, handle(stream.0)) })?;
        Ok(DevicePtr(pointer))
    });
    slot!(table, symbols, mem_free_async, [mem_free_async], |cu, pointer, stream| {
        // SAFETY: device addresses are checked by the driver.
        cu.check("cuMemFreeAsync", unsafe { mem_free_async(pointer.0, handle(stream.0)) })
    });
    slot!(table, symbols, copy_to_device, [copy_to_device, stream_synchronize], |cu, to, from, stream| {
        // SAFETY: reads `from.len()` host bytes, which stay borrowed until the stream was waited for.
        let status = unsafe { copy_to_device(to.0, from.as_ptr().cast(), from.len(), handle(stream.0)) };
        cu.check("cuMemcpyHtoDAsync", status)?;
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamSynchronize", unsafe { stream_synchronize(handle(stream.0)) })
    });
    slot!(table, symbols, copy_to_host, [copy_to_host, stream_synchronize], |cu, to, from, stream| {
        // SAFETY: writes `to.len()` host bytes, which stay borrowed until the stream was waited for.
        let status = unsafe { copy_to_host(to.as_mut_ptr().cast(), from.0, to.len(), handle(stream.0)) };
        cu.check("cuMemcpyDtoHAsync", status)?;
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamSynchronize", unsafe { stream_synchronize(handle(stream.0)) })
    });
    slot!(table, symbols, copy_on_device, [copy_on_device], |cu, to, from, bytes, stream| {
        // SAFETY: device addresses are checked by the driver.
        let status = unsafe { copy_on_device(to.0, from.0, bytes as usize, handle(stream.0)) };
        cu.check("cuMemcpyDtoDAsync", status)
    });
    slot!(table, symbols, fill_u8, [fill_u8], |cu, to, value, count, stream| {
        // SAFETY: device addresses are checked by the driver.
        cu.check("cuMemsetD8Async", unsafe { fill_u8(to.0, value, count as usize, handle(stream.0)) })
    });
    slot!(table, symbols, fill_u32, [fill_u32], |cu, to, value, count, stream| {
        // SAFETY: device addresses are checked by the driver.
        cu.check("cuMemsetD32Async", unsafe { fill_u32(to.0, value, count as usize, handle(stream.0)) })
    });
}

fn fill_order(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, stream_create, [stream_create], |cu| {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuStreamCreate", unsafe { stream_create(&mut stream, NON_BLOCKING) })?;
        Ok(StreamHandle(number(stream)))
    });
    slot!(table, symbols, stream_destroy, [stream_destroy], |cu, stream| {
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamDestroy", unsafe { stream_destroy(handle(stream.0)) })
    });
    slot!(table, symbols, stream_synchronize, [stream_synchronize], |cu, stream| {
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamSynchronize", unsafe { stream_synchronize(handle(stream.0)) })
    });
    slot!(table, symbols, stream_wait_event, [stream_wait_event], |cu, stream, event| {
        // SAFETY: the handles came from this driver.
        cu.check("cuStreamWaitEvent", unsafe { stream_wait_event(handle(stream.0), handle(event.0), 0) })
    });
    slot!(table, symbols, event_create, [event_create], |cu| {
        let mut event = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuEventCreate", unsafe { event_create(&mut event, 0) })?;
        Ok(EventHandle(number(event)))
    });
    slot!(table, symbols, event_destroy, [event_destroy], |cu, event| {
        // SAFETY: the handle came from this driver.
        cu.check("cuEventDestroy", unsafe { event_destroy(handle(event.0)) })
    });
    slot!(table, symbols, event_record, [event_record], |cu, event, stream| {
        // SAFETY: the handles came from this driver.
        cu.check("cuEventRecord", unsafe { event_record(handle(event.0), handle(stream.0)) })
    });
    slot!(table, symbols, event_synchronize, [event_synchronize], |cu, event| {
        // SAFETY: the handle came from this driver.
        cu.check("cuEventSynchronize", unsafe { event_synchronize(handle(event.0)) })
    });
    slot!(table, symbols, event_elapsed_ms, [event_elapsed], |cu, start, end| {
        let mut milliseconds = 0.0;
        // SAFETY: writes one float; the handles came from this driver.
        let status = unsafe { event_elapsed(&mut milliseconds, handle(start.0), handle(end.0)) };
        cu.check("cuEventElapsedTime", status)?;
        Ok(milliseconds)
    });
    slot!(table, symbols, capture_begin, [capture_begin], |cu, stream| {
        const THREAD_LOCAL: c_uint = 1;
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamBeginCapture", unsafe { capture_begin(handle(stream.0), THREAD_LOCAL) })
    });
    slot!(table, symbols, capture_end, [capture_end, graph_instantiate, graph_free], |cu, stream| {
        let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes one handle.
        cu.check("cuStreamEndCapture", unsafe { capture_end(handle(stream.0), &mut graph) })?;
        // SAFETY: the graph came from the call above.
        let status = unsafe { graph_instantiate(&mut ready, graph, 0) };
        // SAFETY: an instantiated graph does not need its template any more.
        cu.check("cuGraphDestroy", unsafe { graph_free(graph) })?;
        cu.check("cuGraphInstantiate", status)?;
        Ok(GraphHandle(number(ready)))
    });
    slot!(table, symbols, graph_launch, [graph_launch], |cu, graph, stream| {
        // SAFETY: the handles came from this driver.
        cu.check("cuGraphLaunch", unsafe { graph_launch(handle(graph.0), handle(stream.0)) })
    });
    slot!(table, symbols, graph_destroy, [graph_destroy], |cu, graph| {
        // SAFETY: the handle came from this driver.
        cu.check("cuGraphExecDestroy", unsafe { graph_destroy(handle(graph.0)) })
    });
}

fn fill_module(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, module_load, [module_load], |cu, image| {
        // PTX must end in NUL; a cubin says its own length.
        let image: Vec<u8> = image.iter().copied().chain([0]).collect();
        let mut log = vec![0u8; 16384];
        const ERROR_LOG: c_uint = 5;
        const ERROR_LOG_BYTES: c_uint = 6;
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut module = ptr::null_mut();
        // SAFETY: the image is terminated; the log has the length that the second option states.
        let status = unsafe { module_load(&mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        if status != 0 {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let mut log = String::from_utf8_lossy(&log[..end]).into_owned();
            if log.trim().is_empty() {
                log = cu.text(cu.error_string, status).unwrap_or_default();
            }
            return Err(DriverError::Module { code: DriverCode(status), name: cu.name_of(status), log });
        }
        Ok(ModuleHandle(number(module)))
    });
    slot!(table, symbols, module_unload, [module_unload], |cu, module| {
        // SAFETY: the handle came from this driver.
        cu.check("cuModuleUnload", unsafe { module_unload(handle(module.0)) })
    });
    slot!(table, symbols, module_function, [module_function], |cu, module, name| {
        let name = CString::new(name).map_err(|_| DriverError::Argument("a kernel's name has no NUL character".to_owned()))?;
        let mut function = ptr::null_mut();
        // SAFETY: writes one handle; the name is terminated.
        let status = unsafe { module_function(&mut function, handle(module.0), name.as_ptr()) };
        cu.check("cuModuleGetFunction", status)?;
        Ok(FunctionHandle(number(function)))
    });
    slot!(table, symbols, function_attribute, [function_attribute], |cu, function, attribute| {
        let mut value = 0;
        // SAFETY: writes one int.
        let status = unsafe { function_attribute(&mut value, attribute.number(), handle(function.0)) };
        cu.check("cuFuncGetAttribute", status)?;
        Ok(value)
    });
    slot!(table, symbols, function_set_attribute, [function_set_attribute], |cu, function, attribute, value| {
        // SAFETY: the handle came from this driver.
        let status = unsafe { function_set_attribute(handle(function.0), attribute.number(), value) };
        cu.check("cuFuncSetAttribute", status)
    });
    slot!(table, symbols, function_occupancy, [function_occupancy], |cu, function, threads, shared_bytes| {
        let mut blocks = 0;
        // SAFETY: writes one int.
        let status = unsafe { function_occupancy(&mut blocks, handle(function.0), threads.cast_signed(), shared_bytes as usize) };
        cu.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        Ok(blocks.unsigned_abs())
    });
    fill_launch(table, symbols);
    slot!(table, symbols, tensor_map_encode, [tensor_map_encode], |cu, spec| {
        spec.check().map_err(|error| DriverError::Argument(error.to_string()))?;
        let mut bytes = TensorMap::from_bytes([0; 128]);
        let ones = [1u32; 5];
        // SAFETY: writes 128 bytes aligned to 64; the arrays have `rank` (strides: `rank - 1`) elements, as checked.
        let status = unsafe {
            tensor_map_encode(
                (&raw mut bytes).cast(),
                tensor_map_type(spec),
                spec.extents.len() as c_uint,
                handle(spec.address.0),
                spec.extents.as_ptr(),
                spec.strides.as_ptr(),
                spec.tile.as_ptr(),
                ones.as_ptr(),
                0,
                match spec.swizzle {
                    Swizzle::None => 0,
                    Swizzle::B32 => 1,
                    Swizzle::B64 => 2,
                    Swizzle::B128 => 3,
                },
                match spec.l2 {
                    L2Promotion::None => 0,
                    L2Promotion::B64 => 1,
                    L2Promotion::B128 => 2,
                    L2Promotion::B256 => 3,
                },
                match spec.outside {
                    OutOfBounds::Zero => 0,
                    OutOfBounds::Nan => 1,
                },
            )
        };
        cu.check("cuTensorMapEncodeTiled", status)?;
        Ok(bytes)
    });
}

/// The `CUtensorMapDataType` of a spec that passed its check.
fn tensor_map_type(spec: &TensorMapSpec) -> c_uint {
    const U8: c_uint = 0;
    const U16: c_uint = 1;
    const U32: c_uint = 2;
    const U64: c_uint = 4;
    match spec.dtype {
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::TF32 => 11,
        // The engine only copies these, so any type of the same width will do.
        other => match other.bits() {
            64 => U64,
            32 => U32,
            16 => U16,
            _ => U8,
        },
    }
}

fn fill_launch(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    let (Some(extended), plain) = (symbols.launch, symbols.launch_plain) else {
        // Drivers before 11.8 have no clusters and no attributes.
        slot!(table, symbols, launch, [launch_plain], |cu, spec| {
            if spec.cluster.is_some() || spec.overlaps_predecessor {
                return Err(DriverError::Missing { backend: "libcuda".to_owned(), slot: "launch" });
            }
            cu.check("cuLaunchKernel", launch_plainly(launch_plain, spec))
        });
        return;
    };
    let cu = symbols.clone();
    table.launch = Some(Box::new(move |spec| {
        if let (Some(plain), None, false) = (plain, spec.cluster, spec.overlaps_predecessor) {
            return cu.check("cuLaunchKernel", launch_plainly(plain, spec));
        }
        let mut attributes = [LaunchAttribute { id: 0, pad: 0, value: [0; 16] }; 2];
        let mut count = 0;
        if let Some(cluster) = spec.cluster {
            attributes[count].id = CLUSTER_DIMENSION;
            attributes[count].value[..3].copy_from_slice(&[cluster.x, cluster.y, cluster.z]);
            count += 1;
        }
        if spec.overlaps_predecessor {
            attributes[count].id = PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[count].value[0] = 1;
            count += 1;
        }
        let config = LaunchConfig {
            grid: [spec.grid.x, spec.grid.y, spec.grid.z],
            block: [spec.block.x, spec.block.y, spec.block.z],
            shared_bytes: spec.shared_bytes,
            stream: handle(spec.stream.0),
            attributes: attributes.as_mut_ptr(),
            attribute_count: count as c_uint,
        };
        let mut params = pointers(spec);
        // SAFETY: the configuration, its attributes and the parameters outlive the call, which copies them.
        let status = unsafe { extended(&config, handle(spec.function.0), params.as_mut_ptr(), ptr::null_mut()) };
        cu.check("cuLaunchKernelEx", status)
    }));
}

/// The parameters one by one, as the driver takes them: the assembler has decided where each goes.
fn pointers(spec: &LaunchSpec<'_>) -> Vec<*mut c_void> {
    let bytes = spec.params.bytes();
    spec.params.offsets().iter().map(|&offset| bytes[offset..].as_ptr().cast_mut().cast()).collect()
}

type PlainLaunch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;

fn launch_plainly(call: PlainLaunch, spec: &LaunchSpec<'_>) -> Status {
    let mut params = pointers(spec);
    let (grid, block) = (spec.grid, spec.block);
    // SAFETY: the parameters outlive the call, which copies them.
    unsafe {
        call(
            handle(spec.function.0),
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            spec.shared_bytes,
            handle(spec.stream.0),
            params.as_mut_ptr(),
            ptr::null_mut(),
        )
    }
}
