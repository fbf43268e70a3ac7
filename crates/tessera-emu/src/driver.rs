//! The emulator behind the driver function table.
//!
//! Streams run in order and each call does its work at once, which every program that is right under asynchronous streams
//! allows. A fault poisons its context as on the chip: later calls give the same error until the context is reset. The
//! message of the error is the finding, with PTX line, block and thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tessera_driver::{
    ContextHandle, DeviceAttribute, DeviceOrdinal, DevicePtr, DriverCode, DriverError, DriverTable, EventHandle,
    FunctionAttribute, FunctionHandle, GraphHandle, HostPtr, LaunchSpec, ModuleHandle, Params, PointerAttribute, Result,
    SharedHandle, StreamHandle, TensorMap,
};

use crate::console::Console;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::module::Module;
use crate::options::{EmuOptions, LaunchOptions};
use crate::program::SHARED_START;
use crate::report::EmuError;

const PTX_VERSION: (u32, u32) = (9, 0);

struct Function {
    module: u64,
    device: u32,
    name: String,
    max_dynamic: u32,
}

/// Recorded work.
#[derive(Clone)]
enum Work {
    Launch {
        function: u64,
        grid: tessera_driver::Dim3,
        block: tessera_driver::Dim3,
        cluster: Option<tessera_driver::Dim3>,
        shared: u32,
        params: Params,
    },
    Copy {
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
    },
    Fill {
        to: DevicePtr,
        pattern: [u8; 4],
        bytes: u64,
    },
}

#[derive(Default)]
struct State {
    next: u64,
    modules: BTreeMap<u64, (u32, Arc<Module>)>,
    functions: BTreeMap<u64, Function>,
    events: BTreeMap<u64, Option<Instant>>,
    streams: BTreeMap<u64, ()>,
    captures: BTreeMap<u64, Vec<Work>>,
    graphs: BTreeMap<u64, Vec<Work>>,
    /// The device of each allocation.
    allocations: BTreeMap<u64, u32>,
    pinned: BTreeMap<u64, ()>,
    users: BTreeMap<u32, u32>,
    poison: BTreeMap<u32, DriverError>,
}

struct Driver {
    /// Tells the drivers of a process apart.
    number: u64,
    emulators: Vec<Emulator>,
    console: Arc<Console>,
    state: Mutex<State>,
}

fn failed(call: &'static str, code: DriverCode, name: &str, message: impl Into<String>) -> DriverError {
    DriverError::Failed { call, code, name: name.to_owned(), message: message.into(), kernel: None }
}

fn invalid(call: &'static str, message: impl Into<String>) -> DriverError {
    failed(call, DriverCode::INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", message)
}

impl Driver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device whose context is the calling thread's current one; the first where none was made so.
    fn here(&self) -> u32 {
        CURRENT.with_borrow(|current| current.get(&self.number).copied().unwrap_or(0))
    }

    /// The device of a number, which exists.
    fn on(&self, device: u32) -> &Emulator {
        &self.emulators[device as usize]
    }

    /// The current device. Memory of all of them is one address space, which each of them gives.
    fn emulator(&self) -> &Emulator {
        self.on(self.here())
    }

    fn healthy(&self) -> Result<()> {
        self.is_well(self.here())
    }

    fn is_well(&self, device: u32) -> Result<()> {
        self.state().poison.get(&device).cloned().map_or(Ok(()), Err)
    }

    fn memory(call: &'static str, error: &EmuError) -> DriverError {
        invalid(call, error.to_string())
    }

    fn alloc(&self, bytes: u64) -> Result<DevicePtr> {
        self.healthy()?;
        let pointer = self.emulator().alloc(bytes);
        self.allocated(pointer)
    }

    fn allocated(&self, pointer: std::result::Result<DevicePtr, EmuError>) -> Result<DevicePtr> {
        let pointer = pointer
            .map_err(|error| failed("mem_alloc", DriverCode::OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", error.to_string()))?;
        self.state().allocations.insert(pointer.0, self.here());
        Ok(pointer)
    }

    fn free(&self, pointer: DevicePtr) -> Result<()> {
        self.state().allocations.remove(&pointer.0);
        self.emulator().free(pointer).map_err(|error| Self::memory("mem_free", &error))
    }

    fn reset(&self, device: u32) {
        let mut state = self.state();
        let emulator = self.on(device);
        for (&pointer, _) in state.allocations.iter().filter(|(_, owner)| **owner == device) {
            let _ = emulator.free(DevicePtr(pointer));
        }
        for (_, module) in state.modules.values().filter(|(owner, _)| *owner == device) {
            emulator.unload(module);
        }
        state.allocations.retain(|_, owner| *owner != device);
        state.modules.retain(|_, (owner, _)| *owner != device);
        state.functions.retain(|_, function| function.device != device);
        state.poison.remove(&device);
        // No other device's user is left who could name one of these.
        if state.users.iter().all(|(&other, users)| other == device || *users == 0) {
            let (next, users) = (state.next, std::mem::take(&mut state.users));
            *state = State { next, users, ..State::default() };
        }
    }

    /// Does work now, or records it where the stream records.
    fn submit(&self, stream: StreamHandle, work: Work) -> Result<()> {
        self.healthy()?;
        if let Some(recorded) = self.state().captures.get_mut(&stream.0) {
            recorded.push(work);
            return Ok(());
        }
        self.perform(&work)
    }

    fn perform(&self, work: &Work) -> Result<()> {
        match work {
            Work::Launch { function, grid, block, cluster, shared, params } => {
                let (module, name, device) = {
                    let state = self.state();
                    let function = state.functions.get(function).ok_or_else(|| invalid("launch", "no such kernel"))?;
                    let allowed =
                        function.max_dynamic.max(self.on(function.device).device().arch.limits().shared_per_block_default);
                    if *shared > allowed {
                        return Err(invalid("launch", format!("{shared} bytes of dynamic shared memory: {allowed} are allowed"))
                            .in_kernel(&function.name));
                    }
                    let (_, module) =
                        state.modules.get(&function.module).ok_or_else(|| invalid("launch", "the module was unloaded"))?;
                    (Arc::clone(module), function.name.clone(), function.device)
                };
                self.is_well(device)?;
                let options = LaunchOptions { cluster: *cluster, shared_bytes: *shared, ..self.console.options() };
                let result = self.on(device).launch(&module, &name, *grid, *block, params, &options);
                let note = |report, finished| self.console.note(&name, (*grid, *block), &options, report, finished);
                let error = match result {
                    Ok(report) => {
                        note(&report, true);
                        // Who takes the reports has what was printed.
                        if !report.output.is_empty() && !self.console.keeps() {
                            print!("{}", report.output);
                        }
                        match report.failing(options.fail_on).next() {
                            Some(finding) if !options.keep_going => fault(finding.kind, finding.to_string()),
                            _ => return Ok(()),
                        }
                    }
                    Err(EmuError::Fault { finding, report }) => {
                        note(&report, false);
                        fault(finding.kind, finding.to_string())
                    }
                    Err(error) => invalid("launch", error.to_string()),
                };
                let error = error.in_kernel(&name);
                if error.poisons_context() {
                    self.state().poison.insert(device, error.clone());
                }
                Err(error)
            }
            Work::Copy { to, from, bytes } => {
                let mut buffer = vec![0; *bytes as usize];
                self.emulator().read(*from, &mut buffer).map_err(|error| Self::memory("copy_on_device", &error))?;
                self.emulator().write(*to, &buffer).map_err(|error| Self::memory("copy_on_device", &error))
            }
            Work::Fill { to, pattern, bytes } => {
                let buffer: Vec<u8> = pattern.iter().copied().cycle().take(*bytes as usize).collect();
                self.emulator().write(*to, &buffer).map_err(|error| Self::memory("fill", &error))
            }
        }
    }

    /// The device of a context.
    fn device_of(&self, call: &'static str, context: ContextHandle) -> Result<u32> {
        let device = context.0.checked_sub(1).and_then(|device| u32::try_from(device).ok());
        device.filter(|&device| (device as usize) < self.emulators.len()).ok_or_else(|| invalid(call, "no such context"))
    }

    fn attribute(&self, attribute: DeviceAttribute) -> i32 {
        let device = self.emulator().device();
        let (arch, limits) = (device.arch, device.arch.limits());
        let (major, minor) = arch.compute_capability();
        (match attribute {
            DeviceAttribute::MaxThreadsPerBlock => limits.threads_per_block,
            DeviceAttribute::SharedPerBlock => limits.shared_per_block_default,
            DeviceAttribute::WarpSize => 32,
            DeviceAttribute::RegistersPerBlock => limits.registers_per_block,
            DeviceAttribute::ClockKhz => device.boost_mhz * 1000,
            DeviceAttribute::Multiprocessors => self.emulator().multiprocessors(),
            DeviceAttribute::MemoryClockKhz => 0,
            DeviceAttribute::MemoryBusBits => 0,
            DeviceAttribute::L2Bytes => device.l2_bytes as u32,
            DeviceAttribute::ThreadsPerMultiprocessor => limits.threads_per_sm,
            DeviceAttribute::CapabilityMajor => major,
            DeviceAttribute::CapabilityMinor => minor,
            DeviceAttribute::SharedPerMultiprocessor => limits.shared_per_sm,
            DeviceAttribute::RegistersPerMultiprocessor => limits.registers_per_sm,
            DeviceAttribute::SharedPerBlockOptIn => limits.shared_per_block,
            DeviceAttribute::BlocksPerMultiprocessor => limits.blocks_per_sm,
            DeviceAttribute::MemoryPools | DeviceAttribute::UnifiedAddressing => 1,
            DeviceAttribute::Ecc | DeviceAttribute::CooperativeLaunch => 0,
            DeviceAttribute::ClusterLaunch => u32::from(arch.has_clusters()),
            DeviceAttribute::TensorMaps => u32::from(arch.has_tma()),
        }) as i32
    }

    fn load(&self, image: &[u8]) -> Result<ModuleHandle> {
        self.healthy()?;
        let refuse = |code, name: &str, log: String| DriverError::Module { code, name: name.to_owned(), log };
        let text = std::str::from_utf8(image).map(|text| text.trim_end_matches('\0')).map_err(|_| {
            refuse(DriverCode::NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image is no PTX text".to_owned())
        })?;
        let module = self.emulator().load(text).map_err(|error| match error {
            EmuError::Target { .. } => refuse(DriverCode::NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", error.to_string()),
            error => refuse(DriverCode::INVALID_PTX, "CUDA_ERROR_INVALID_PTX", error.to_string()),
        })?;
        let (version, _) = module.header();
        if (version.major, version.minor) > PTX_VERSION {
            let log = format!("PTX {version} is newer than {}.{}", PTX_VERSION.0, PTX_VERSION.1);
            return Err(refuse(DriverCode::UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", log));
        }
        let (mut state, device) = (self.state(), self.here());
        let id = state.fresh();
        state.modules.insert(id, (device, Arc::new(module)));
        Ok(ModuleHandle(id))
    }

    fn unload(&self, module: ModuleHandle) {
        let mut state = self.state();
        if let Some((device, found)) = state.modules.remove(&module.0) {
            self.on(device).unload(&found);
        }
        state.functions.retain(|_, function| function.module != module.0);
    }

    fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        let mut state = self.state();
        let (device, found) = state.modules.get(&module.0).ok_or_else(|| invalid("module_function", "no such module"))?;
        let device = *device;
        if !found.kernels().any(|kernel| kernel == name) {
            return Err(failed(
                "module_function",
                DriverCode::NOT_FOUND,
                "CUDA_ERROR_NOT_FOUND",
                format!("the module has no kernel `{name}`"),
            ));
        }
        let id = state.fresh();
        state.functions.insert(id, Function { module: module.0, device, name: name.to_owned(), max_dynamic: 0 });
        Ok(FunctionHandle(id))
    }

    fn with_program<T>(
        &self,
        call: &'static str,
        handle: FunctionHandle,
        f: impl FnOnce(&crate::program::Program, &Function, &Module) -> T,
    ) -> Result<T> {
        let state = self.state();
        let function = state.functions.get(&handle.0).ok_or_else(|| invalid(call, "no such kernel"))?;
        let (_, module) = state.modules.get(&function.module).ok_or_else(|| invalid(call, "the module was unloaded"))?;
        let program =
            module.program(&function.name).map_err(|error| invalid(call, error.to_string()).in_kernel(&function.name))?;
        Ok(f(program, function, module))
    }

    fn function_attribute(&self, handle: FunctionHandle, attribute: FunctionAttribute) -> Result<i32> {
        let device = self.emulator().device();
        let (major, minor) = device.arch.compute_capability();
        self.with_program("function_attribute", handle, |program, function, module| {
            let (version, _) = module.header();
            let threads = program.required_threads.or(program.max_threads).map(|[x, y, z]| x * y * z);
            (match attribute {
                FunctionAttribute::MaxThreadsPerBlock => threads.unwrap_or(device.arch.limits().threads_per_block),
                FunctionAttribute::SharedBytes => program.dynamic_start - SHARED_START,
                FunctionAttribute::ConstBytes | FunctionAttribute::NonPortableCluster => 0,
                FunctionAttribute::LocalBytes => program.local_bytes,
                FunctionAttribute::Registers => program.registers(device.arch.limits().registers_per_sm),
                FunctionAttribute::PtxVersion => version.major * 10 + version.minor,
                FunctionAttribute::BinaryVersion => major * 10 + minor,
                FunctionAttribute::MaxDynamicShared => function.max_dynamic.max(device.arch.limits().shared_per_block_default),
            }) as i32
        })
    }

    fn set_attribute(&self, handle: FunctionHandle, attribute: FunctionAttribute, value: i32) -> Result<()> {
        let limit = self.emulator().device().arch.limits().shared_per_block;
        let mut state = self.state();
        let function = state.functions.get_mut(&handle.0).ok_or_else(|| invalid("function_set_attribute", "no such kernel"))?;
        match (attribute, u32::try_from(value)) {
            (FunctionAttribute::MaxDynamicShared, Ok(bytes)) if bytes <= limit => function.max_dynamic = bytes,
            (FunctionAttribute::NonPortableCluster, Ok(_)) => {}
            _ => return Err(invalid("function_set_attribute", format!("{attribute:?} cannot be set to {value}"))),
        }
        Ok(())
    }
}

/// Numbers that were given to drivers.
static DRIVERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The device whose context is current, of each driver that the thread used.
    static CURRENT: RefCell<BTreeMap<u64, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// A number of up to eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl State {
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// A fault as the driver would name it, with the finding as its message.
fn fault(kind: FindingKind, message: String) -> DriverError {
    let (code, name) = match kind {
        FindingKind::OutOfBounds | FindingKind::UseAfterFree => (DriverCode::ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        FindingKind::Misaligned => (DriverCode(716), "CUDA_ERROR_MISALIGNED_ADDRESS"),
        FindingKind::Deadlock | FindingKind::DivergentBarrier | FindingKind::NeverEnds => {
            (DriverCode(702), "CUDA_ERROR_LAUNCH_TIMEOUT")
        }
        FindingKind::Trap => (DriverCode(710), "CUDA_ERROR_ASSERT"),
        FindingKind::Uninitialized
        | FindingKind::Race
        | FindingKind::ProxyFence
        | FindingKind::InFlight
        | FindingKind::Barrier
        | FindingKind::WarpMask
        | FindingKind::Mbarrier
        | FindingKind::BulkCopy
        | FindingKind::Matrix
        | FindingKind::Texture
        | FindingKind::Nondeterministic
        | FindingKind::BankConflicts
        | FindingKind::Uncoalesced => (DriverCode(719), "CUDA_ERROR_LAUNCH_FAILED"),
    };
    failed("launch", code, name, message)
}

/// A driver table whose device is emulated.
///
/// # Errors
/// An unknown product's name.
pub fn driver(options: &EmuOptions) -> std::result::Result<DriverTable, EmuError> {
    table(options, Arc::new(Console::new(options.launch.clone(), false)))
}

/// The same, with the console that keeps its launches' reports.
///
/// # Errors
/// An unknown product's name.
pub fn watched(options: &EmuOptions) -> std::result::Result<(DriverTable, Arc<Console>), EmuError> {
    let console = Arc::new(Console::new(options.launch.clone(), true));
    Ok((table(options, Arc::clone(&console))?, console))
}

fn table(options: &EmuOptions, console: Arc<Console>) -> std::result::Result<DriverTable, EmuError> {
    let emulators = Emulator::group(options, options.devices)?;
    let (count, product) = (emulators.len() as u32, emulators[0].device());
    let name = format!("{} (emulated)", product.aliases.last().copied().unwrap_or(product.name));
    let number = DRIVERS.fetch_add(1, Ordering::Relaxed);
    let driver = Arc::new(Driver { number, emulators, console, state: Mutex::new(State::default()) });
    let mut table = DriverTable::empty("emulator");
    /// Fills a slot with a closure over the driver.
    macro_rules! slot {
        ($slot:ident, |$d:ident $(, $arg:ident $(: $ty:ty)?)*| $body:expr) => {{
            let $d = Arc::clone(&driver);
            table.$slot = Some(Box::new(move |$($arg $(: $ty)?),*| $body));
        }};
    }
    let only = move |device: DeviceOrdinal| {
        if device.0 < count { Ok(()) } else { Err(DriverError::NoSuchDevice { ordinal: device, count }) }
    };
    table.driver_version = Some(Box::new(|| Ok(PTX_VERSION.0 * 1000 + 4000)));
    table.device_count = Some(Box::new(move || Ok(count)));
    table.device_name = Some(Box::new(move |device| only(device).map(|()| name.clone())));
    slot!(device_bus_id, |_d, device| only(device).map(|()| format!("0000:{:02x}:00.0", device.0)));
    slot!(device_memory, |d, device| only(device).map(|()| d.on(device.0).device().dram_bytes));
    slot!(device_attribute, |d, device, attribute| only(device).map(|()| d.attribute(attribute)));
    slot!(context_retain, |d, device| {
        only(device)?;
        *d.state().users.entry(device.0).or_insert(0) += 1;
        Ok(ContextHandle(1 + u64::from(device.0)))
    });
    slot!(context_release, |d, device| {
        only(device)?;
        let last = {
            let mut state = d.state();
            let users = state.users.entry(device.0).or_insert(0);
            *users = users.saturating_sub(1);
            *users == 0
        };
        if last {
            d.reset(device.0);
        }
        Ok(())
    });
    slot!(context_reset, |d, device| {
        only(device)?;
        d.reset(device.0);
        Ok(())
    });
    slot!(context_set_current, |d, context| {
        let device = d.device_of("context_set_current", context)?;
        CURRENT.with_borrow_mut(|current| current.insert(d.number, device));
        Ok(())
    });
    slot!(peer_can_access, |_d, from, to| {
        only(from)?;
        only(to)?;
        Ok(from != to)
    });
    slot!(peer_enable, |d, context| {
        let other = d.device_of("peer_enable", context)?;
        match d.here() {
            own if own == other => Err(invalid("peer_enable", "a context reaches its own memory without")),
            own if d.on(own).let_in(other) => Ok(()),
            own => Err(failed(
                "peer_enable",
                DriverCode::PEER_ALREADY_ENABLED,
                "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
                format!("device {own} reaches the memory of device {other} already"),
            )),
        }
    });
    slot!(copy_between, |d, to, _there, from, _here, bytes, stream| d.submit(stream, Work::Copy { to, from, bytes }));
    slot!(mem_share, |d, pointer: DevicePtr| {
        let range = d.emulator().range(pointer).ok_or_else(|| invalid("mem_share", format!("{pointer} is in no allocation")))?;
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&d.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&range.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(SharedHandle(bytes))
    });
    slot!(mem_open, |d, shared: SharedHandle| {
        let (number, start) = (word(&shared.0[..8]), DevicePtr(word(&shared.0[8..16])));
        let here = word(&shared.0[16..20]) == u64::from(std::process::id());
        if !here || number != d.number || d.emulator().range(start).is_none() {
            return Err(invalid(
                "mem_open",
                "emulated memory is opened by the process and the driver that shared it, while it lives",
            ));
        }
        let own = d.here();
        if let Some(owner) = d.emulator().owner(start).filter(|owner| *owner != own) {
            d.on(own).let_in(owner);
        }
        Ok(start)
    });
    slot!(mem_close, |_d, _pointer| Ok(()));
    slot!(context_synchronize, |d| d.healthy());
    slot!(mem_info, |d| {
        let total = d.emulator().device().dram_bytes;
        Ok((total - d.emulator().used().min(total), total))
    });
    slot!(mem_alloc, |d, bytes| d.alloc(bytes));
    slot!(mem_free, |d, pointer| d.free(pointer));
    slot!(mem_alloc_async, |d, bytes, _stream| d.alloc(bytes));
    slot!(mem_free_async, |d, pointer, _stream| d.free(pointer));
    // Freed memory is given back at once: there is no pool to keep or trim.
    slot!(pool_keep, |d, device, _bytes| only(device).and_then(|()| d.healthy()));
    slot!(pool_trim, |d, device, _bytes| only(device).and_then(|()| d.healthy()));
    slot!(mem_forget, |d, pointer, bytes| {
        d.emulator().forget(pointer, bytes).map_err(|error| Driver::memory("mem_forget", &error))
    });
    slot!(mem_written, |d, pointer, bytes| {
        d.emulator().written(pointer, bytes).map_err(|error| Driver::memory("mem_written", &error))
    });
    slot!(pointer_range, |d, pointer: DevicePtr| {
        let range =
            d.emulator().range(pointer).ok_or_else(|| invalid("pointer_range", format!("{pointer} is in no allocation")))?;
        Ok((DevicePtr(range.start), range.end - range.start))
    });
    slot!(pointer_attribute, |d, pointer: DevicePtr, attribute| {
        if d.emulator().range(pointer).is_none() {
            return Err(invalid("pointer_attribute", format!("{pointer} is in no allocation")));
        }
        Ok(match attribute {
            PointerAttribute::MemoryType => {
                if d.state().pinned.contains_key(&pointer.0) {
                    1
                } else {
                    2
                }
            }
            PointerAttribute::Managed => 0,
            PointerAttribute::DeviceOrdinal => u64::from(d.emulator().owner(pointer).unwrap_or(0)),
        })
    });
    // Pinned host memory is memory of the one address space that there is.
    slot!(host_alloc, |d, bytes| {
        d.healthy()?;
        let pointer = d.allocated(d.emulator().alloc_pinned(bytes))?;
        d.state().pinned.insert(pointer.0, ());
        Ok(HostPtr(pointer.0))
    });
    slot!(host_free, |d, pointer: HostPtr| {
        d.state().pinned.remove(&pointer.0);
        d.free(pointer.on_device())
    });
    slot!(host_write, |d, to: HostPtr, from: &[u8]| {
        d.emulator().write(to.on_device(), from).map_err(|error| Driver::memory("host_write", &error))
    });
    slot!(host_read, |d, to: &mut [u8], from: HostPtr| {
        d.emulator().read(from.on_device(), to).map_err(|error| Driver::memory("host_read", &error))
    });
    slot!(copy_to_device, |d, to, from: &[u8], _stream| {
        d.healthy()?;
        d.emulator().write(to, from).map_err(|error| Driver::memory("copy_to_device", &error))
    });
    slot!(copy_to_host, |d, to: &mut [u8], from, _stream| {
        d.healthy()?;
        d.emulator().read(from, to).map_err(|error| Driver::memory("copy_to_host", &error))
    });
    slot!(copy_on_device, |d, to, from, bytes, stream| d.submit(stream, Work::Copy { to, from, bytes }));
    slot!(fill_u8, |d, to, value, count, stream| d.submit(stream, Work::Fill { to, pattern: [value; 4], bytes: count }));
    slot!(fill_u32, |d, to: DevicePtr, value: u32, count: u64, stream| {
        d.submit(stream, Work::Fill { to, pattern: value.to_le_bytes(), bytes: count * 4 })
    });
    slot!(stream_create, |d| {
        let mut state = d.state();
        let id = state.fresh();
        state.streams.insert(id, ());
        Ok(StreamHandle(id))
    });
    slot!(stream_destroy, |d, stream: StreamHandle| {
        d.state().streams.remove(&stream.0);
        Ok(())
    });
    slot!(stream_synchronize, |d, _stream| d.healthy());
    slot!(stream_query, |d, _stream| d.healthy().map(|()| true));
    slot!(stream_wait_event, |d, _stream, _event| d.healthy());
    slot!(stream_wait_value, |d, _stream, at, value: u32| {
        d.healthy()?;
        let mut word = [0; 4];
        d.emulator().read(at, &mut word).map_err(|error| Driver::memory("stream_wait_value", &error))?;
        // Everything that was queued has run; what another device still writes is not waited for.
        if u32::from_le_bytes(word) >= value {
            return Ok(());
        }
        Err(failed(
            "stream_wait_value",
            DriverCode::NOT_READY,
            "CUDA_ERROR_NOT_READY",
            format!("the word at {at} is not {value} yet"),
        ))
    });
    slot!(event_create, |d| {
        let mut state = d.state();
        let id = state.fresh();
        state.events.insert(id, None);
        Ok(EventHandle(id))
    });
    slot!(event_destroy, |d, event: EventHandle| {
        d.state().events.remove(&event.0);
        Ok(())
    });
    slot!(event_record, |d, event: EventHandle, _stream| {
        d.healthy()?;
        d.state().events.insert(event.0, Some(Instant::now()));
        Ok(())
    });
    slot!(event_synchronize, |d, _event| d.healthy());
    slot!(event_query, |d, _event| d.healthy().map(|()| true));
    slot!(event_elapsed_ms, |d, start: EventHandle, end: EventHandle| {
        let state = d.state();
        let at = |event: EventHandle| state.events.get(&event.0).copied().flatten();
        match (at(start), at(end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3),
            _ => Err(failed("event_elapsed_ms", DriverCode::NOT_READY, "CUDA_ERROR_NOT_READY", "an event was not recorded")),
        }
    });
    // The emulator's machine code is the PTX text itself.
    slot!(assemble, |d, ptx: &str, _optimized| {
        let module = d.load(ptx.as_bytes())?;
        d.unload(module);
        Ok(ptx.as_bytes().to_vec())
    });
    slot!(module_load, |d, image: &[u8]| d.load(image));
    slot!(module_unload, |d, module| {
        d.unload(module);
        Ok(())
    });
    slot!(module_function, |d, module, name: &str| d.function(module, name));
    slot!(function_attribute, |d, function, attribute| d.function_attribute(function, attribute));
    slot!(function_set_attribute, |d, function, attribute, value| d.set_attribute(function, attribute, value));
    slot!(function_occupancy, |d, function, threads, shared| {
        d.with_program("function_occupancy", function, |program, _, _| d.emulator().occupancy(program, threads, shared))
    });
    slot!(function_clusters, |d, spec: &LaunchSpec<'_>| {
        let blocks = spec.cluster.map_or(1, |cluster| cluster.count() as u32).max(1);
        d.with_program("function_clusters", spec.function, |program, _, _| {
            let resident = d.emulator().occupancy(program, spec.block.count() as u32, spec.shared_bytes);
            resident * d.emulator().multiprocessors() / blocks
        })
    });
    slot!(launch, |d, spec: &LaunchSpec<'_>| {
        spec.check()?;
        let work = Work::Launch {
            function: spec.function.0,
            grid: spec.grid,
            block: spec.block,
            cluster: spec.cluster,
            shared: spec.shared_bytes,
            params: spec.params.clone(),
        };
        d.submit(spec.stream, work)
    });
    slot!(tensor_map_encode, |_d, spec: &tessera_driver::TensorMapSpec| {
        spec.check().map_err(|error| invalid("tensor_map_encode", error.to_string()))?;
        Ok(TensorMap::from_bytes(crate::tensor_map::encode(spec)))
    });
    slot!(capture_begin, |d, stream: StreamHandle| {
        d.state().captures.insert(stream.0, Vec::new());
        Ok(())
    });
    slot!(capture_end, |d, stream: StreamHandle| {
        let mut state = d.state();
        let recorded = state.captures.remove(&stream.0).ok_or_else(|| invalid("capture_end", "the stream records nothing"))?;
        let id = state.fresh();
        state.graphs.insert(id, recorded);
        Ok(GraphHandle(id))
    });
    slot!(graph_launch, |d, graph: GraphHandle, stream| {
        let recorded = d.state().graphs.get(&graph.0).cloned().ok_or_else(|| invalid("graph_launch", "no such graph"))?;
        recorded.into_iter().try_for_each(|work| d.submit(stream, work))
    });
    slot!(graph_destroy, |d, graph: GraphHandle| {
        d.state().graphs.remove(&graph.0);
        Ok(())
    });
    Ok(table)
}
