//! A pretended device for tests: memory is an array, kernels are Rust functions, work runs when it is queued, and time passes
//! by what a kernel is said to take. Shared by the tests of the crates above.
#![allow(dead_code, reason = "each crate whose tests use this uses a part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tessera_driver::{
    ContextHandle, DeviceAttribute, DevicePtr, DriverCode, DriverError, DriverTable, EventHandle, FunctionAttribute,
    FunctionHandle, GraphHandle, HostPtr, LaunchSpec, ModuleHandle, SharedHandle, StreamHandle, TensorMap,
};

/// Address of the first byte.
pub(crate) const BASE: u64 = 0x10_0000;

/// What a kernel does to memory: its parameters as bytes, one after the other, and the number of its threads.
pub(crate) type Body = fn(&mut [u8], &[Vec<u8>], u64) -> Result<(), DriverCode>;

/// A kernel of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Pretended {
    pub(crate) body: Body,
    pub(crate) nanoseconds: f64,
}

/// A launch: the kernel, its parameters and its threads.
type Queued = (FunctionHandle, Vec<Vec<u8>>, u64);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) memory: Vec<u8>,
    pub(crate) limit: u64,
    pub(crate) live: BTreeMap<u64, u64>,
    pub(crate) next: u64,
    pub(crate) clock_ns: f64,
    pub(crate) events: BTreeMap<u64, f64>,
    pub(crate) kernels: Vec<(String, Pretended)>,
    pub(crate) graphs: Vec<Vec<Queued>>,
    pub(crate) capturing: Option<Vec<Queued>>,
    pub(crate) pinned: Vec<u8>,
    pub(crate) launches: usize,
    pub(crate) assembled: usize,
    pub(crate) poisoned: Option<DriverCode>,
    pub(crate) trimmed: usize,
    /// Bytes that the driver's pool keeps of what was freed.
    pub(crate) kept: u64,
    pub(crate) last: Option<(u32, u32, [u32; 3])>,
}

pub(crate) type Machine = Arc<Mutex<State>>;

fn failed(code: DriverCode) -> DriverError {
    DriverError::Failed { call: "pretended", code, name: format!("CODE_{}", code.0), message: "as told".into(), kernel: None }
}

/// A machine with so much memory and these kernels.
pub(crate) fn machine(bytes: u64, kernels: &[(&str, Pretended)]) -> Machine {
    Arc::new(Mutex::new(State {
        limit: bytes,
        memory: vec![0; bytes as usize * 2],
        next: BASE,
        kernels: kernels.iter().map(|(name, kernel)| (name.to_string(), *kernel)).collect(),
        ..State::default()
    }))
}

impl State {
    fn place(&self, pointer: DevicePtr, bytes: usize) -> Result<std::ops::Range<usize>, DriverError> {
        let inside = self.live.iter().any(|(&start, &length)| pointer.0 >= start && pointer.0 + bytes as u64 <= start + length);
        if !inside {
            return Err(failed(DriverCode::INVALID_VALUE));
        }
        let at = (pointer.0 - BASE) as usize;
        Ok(at..at + bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<DevicePtr, DriverError> {
        let held: u64 = self.live.values().sum();
        if held + self.kept + bytes > self.limit || self.next - BASE + bytes + 256 > self.memory.len() as u64 {
            return Err(failed(DriverCode::OUT_OF_MEMORY));
        }
        let pointer = self.next;
        self.next = (self.next + bytes).next_multiple_of(256);
        self.live.insert(pointer, bytes);
        Ok(DevicePtr(pointer))
    }

    fn free(&mut self, pointer: DevicePtr) -> Result<u64, DriverError> {
        self.live.remove(&pointer.0).ok_or_else(|| failed(DriverCode::INVALID_VALUE))
    }

    fn run(&mut self, function: FunctionHandle, params: &[Vec<u8>], threads: u64) -> Result<(), DriverError> {
        let (_, kernel) = self.kernels[function.0 as usize].clone();
        self.launches += 1;
        self.clock_ns += kernel.nanoseconds;
        if let Err(code) = (kernel.body)(&mut self.memory, params, threads) {
            self.poisoned = Some(code);
        }
        Ok(())
    }
}

/// Where an address lies in the machine's memory.
pub(crate) fn at(pointer: u64) -> usize {
    (pointer - BASE) as usize
}

fn params(spec: &LaunchSpec<'_>) -> Vec<Vec<u8>> {
    let (bytes, offsets) = (spec.params.bytes(), spec.params.offsets());
    let ends = offsets.iter().skip(1).copied().chain([bytes.len()]);
    offsets.iter().zip(ends).map(|(&start, end)| bytes[start..end].to_vec()).collect()
}

/// A driver for the machine.
pub(crate) fn table(machine: &Machine) -> DriverTable {
    let mut table = DriverTable::empty("pretended");
    macro_rules! slot {
        ($name:ident, |$state:ident $(, $arg:pat_param)*| $body:expr) => {
            let m = machine.clone();
            table.$name = Some(Box::new(move |$($arg),*| {
                #[allow(unused_mut, unused_variables, reason = "not every slot changes the machine")]
                let mut $state = m.lock().unwrap();
                $body
            }));
        };
    }
    slot!(driver_version, |_s| Ok(13000));
    slot!(device_count, |_s| Ok(1));
    slot!(device_name, |_s, _| Ok("Pretended".to_owned()));
    slot!(device_memory, |s, _| Ok(s.limit));
    slot!(device_attribute, |_s, _, attribute| Ok(match attribute {
        DeviceAttribute::CapabilityMajor => 9,
        DeviceAttribute::CapabilityMinor => 0,
        DeviceAttribute::Multiprocessors => 4,
        DeviceAttribute::MaxThreadsPerBlock => 1024,
        DeviceAttribute::SharedPerBlockOptIn => 232_448,
        DeviceAttribute::L2Bytes => 4096,
        _ => 1,
    }));
    slot!(context_retain, |_s, _| Ok(ContextHandle(1)));
    slot!(context_release, |_s, _| Ok(()));
    slot!(context_reset, |s, _| {
        s.live.clear();
        s.poisoned = None;
        Ok(())
    });
    slot!(context_set_current, |_s, _| Ok(()));
    slot!(mem_info, |s| Ok((s.limit - s.live.values().sum::<u64>(), s.limit)));
    slot!(mem_alloc, |s, bytes| s.allocate(bytes));
    slot!(mem_free, |s, pointer| s.free(pointer).map(drop));
    slot!(mem_alloc_async, |s, bytes, _| s.allocate(bytes));
    slot!(mem_free_async, |s, pointer, _| {
        let bytes = s.free(pointer)?;
        s.kept += bytes;
        Ok(())
    });
    slot!(pool_keep, |_s, _, _| Ok(()));
    slot!(pool_trim, |s, _, _| {
        s.trimmed += 1;
        s.kept = 0;
        Ok(())
    });
    slot!(mem_share, |_s, pointer| {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&pointer.0.to_le_bytes());
        Ok(SharedHandle(bytes))
    });
    slot!(host_alloc, |s, bytes| {
        let start = s.pinned.len() as u64;
        s.pinned.resize((start + bytes).next_multiple_of(16) as usize, 0);
        Ok(HostPtr(start))
    });
    slot!(host_free, |_s, _| Ok(()));
    slot!(host_write, |s, to, from| {
        s.pinned[to.0 as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    });
    slot!(host_read, |s, to, from| {
        to.copy_from_slice(&s.pinned[from.0 as usize..][..to.len()]);
        Ok(())
    });
    slot!(copy_to_device, |s, to, from, _| {
        let range = s.place(to, from.len())?;
        s.memory[range].copy_from_slice(from);
        Ok(())
    });
    slot!(copy_to_host, |s, to, from, _| {
        if let Some(code) = s.poisoned {
            return Err(failed(code));
        }
        let range = s.place(from, to.len())?;
        to.copy_from_slice(&s.memory[range]);
        Ok(())
    });
    slot!(copy_on_device, |s, to, from, bytes, _| {
        let (from, to) = (s.place(from, bytes as usize)?, s.place(to, bytes as usize)?);
        let data = s.memory[from].to_vec();
        s.memory[to].copy_from_slice(&data);
        s.clock_ns += 60_000.0;
        Ok(())
    });
    slot!(fill_u8, |s, to, value, count, _| {
        let range = s.place(to, count as usize)?;
        s.memory[range].fill(value);
        Ok(())
    });
    slot!(fill_u32, |s, to, value, count, _| {
        let range = s.place(to, 4 * count as usize)?;
        s.memory[range].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
        Ok(())
    });
    slot!(stream_create, |_s| Ok(StreamHandle(7)));
    slot!(stream_destroy, |_s, _| Ok(()));
    slot!(stream_synchronize, |s, _| s.poisoned.map_or(Ok(()), |code| Err(failed(code))));
    slot!(stream_wait_value, |_s, _, _, _| Ok(()));
    slot!(event_create, |s| {
        let id = s.events.len() as u64;
        s.events.insert(id, 0.0);
        Ok(EventHandle(id))
    });
    slot!(event_destroy, |_s, _| Ok(()));
    slot!(event_record, |s, event, _| {
        let now = s.clock_ns;
        s.events.insert(event.0, now);
        Ok(())
    });
    slot!(event_synchronize, |_s, _| Ok(()));
    slot!(event_elapsed_ms, |s, start, end| Ok(((s.events[&end.0] - s.events[&start.0]) / 1e6) as f32));
    slot!(assemble, |s, ptx, _optimized| {
        s.assembled += 1;
        if ptx.contains("broken") {
            return Err(DriverError::Module { code: DriverCode::INVALID_PTX, name: "INVALID_PTX".into(), log: "line 1".into() });
        }
        Ok(format!("machine code of {ptx}").into_bytes())
    });
    slot!(module_load, |_s, image| {
        if image.windows(6).any(|part| part == b"broken") {
            return Err(DriverError::Module { code: DriverCode::INVALID_PTX, name: "INVALID_PTX".into(), log: "line 1".into() });
        }
        Ok(ModuleHandle(1))
    });
    slot!(module_unload, |_s, _| Ok(()));
    slot!(module_function, |s, _, name| {
        let found = s.kernels.iter().position(|(own, _)| own == name);
        found.map(|index| FunctionHandle(index as u64)).ok_or_else(|| failed(DriverCode::NOT_FOUND))
    });
    slot!(function_attribute, |_s, _, attribute| Ok(match attribute {
        FunctionAttribute::MaxThreadsPerBlock => 256,
        FunctionAttribute::Registers => 32,
        _ => 0,
    }));
    slot!(function_set_attribute, |_s, _, _, _| Ok(()));
    slot!(function_occupancy, |_s, _, _, _| Ok(2));
    slot!(launch, |s, spec| {
        let (params, threads) = (params(spec), spec.grid.count() * spec.block.count());
        s.last = Some((spec.grid.x, spec.shared_bytes, [spec.block.x, spec.block.y, spec.block.z]));
        if let Some(recorded) = &mut s.capturing {
            recorded.push((spec.function, params, threads));
            return Ok(());
        }
        s.run(spec.function, &params, threads)
    });
    slot!(tensor_map_encode, |_s, spec| {
        let mut bytes = [0u8; 128];
        bytes[..8].copy_from_slice(&spec.address.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&spec.extents[0].to_le_bytes());
        Ok(TensorMap::from_bytes(bytes))
    });
    slot!(capture_begin, |s, _| {
        s.capturing = Some(Vec::new());
        Ok(())
    });
    slot!(capture_end, |s, _| {
        let recorded = s.capturing.take().unwrap_or_default();
        s.graphs.push(recorded);
        Ok(GraphHandle(s.graphs.len() as u64 - 1))
    });
    slot!(graph_launch, |s, graph, _| {
        for (function, params, threads) in s.graphs[graph.0 as usize].clone() {
            s.run(function, &params, threads)?;
        }
        Ok(())
    });
    slot!(graph_destroy, |_s, _| Ok(()));
    table
}

/// The number in a parameter of four or eight bytes.
pub(crate) fn word(param: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = param.len().min(8);
    bytes[..length].copy_from_slice(&param[..length]);
    u64::from_le_bytes(bytes)
}
