//! The emulator behind the driver function table.
//!
//! Streams run in order and each call does its work at once, which every program that is right under asynchronous streams
//! allows. A fault poisons its context as on the chip: later calls give the same error until the context is reset, or
//! whoever holds the console says that it is well again. The message of the error is the finding, with PTX line, block and thread.

mod table;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tessera_driver::{
    ContextHandle, DeviceAttribute, DeviceOrdinal, DevicePtr, DriverCode, DriverError, DriverTable, FunctionAttribute,
    FunctionHandle, ModuleHandle, Params, Result, StreamHandle,
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
    /// The same of the host's, for each the device that was current.
    pinned: BTreeMap<u64, u32>,
    users: BTreeMap<u32, u32>,
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
    /// How many devices there are.
    fn count(&self) -> u32 {
        self.emulators.len() as u32
    }

    /// What all of them are called.
    fn name(&self) -> String {
        let product = self.emulators[0].device();
        format!("{} (emulated)", product.aliases.last().copied().unwrap_or(product.name))
    }

    /// Refuses a device that is not there.
    fn only(&self, device: DeviceOrdinal) -> Result<()> {
        let count = self.count();
        if device.0 < count { Ok(()) } else { Err(DriverError::NoSuchDevice { ordinal: device, count }) }
    }

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
        self.console.is_well(device)
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
        self.console.set_poison(device, None);
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
                    self.console.set_poison(device, Some(error.clone()));
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
    let number = DRIVERS.fetch_add(1, Ordering::Relaxed);
    Ok(table::of(Arc::new(Driver { number, emulators, console, state: Mutex::new(State::default()) })))
}
