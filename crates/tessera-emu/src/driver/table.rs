//! The driver's calls, as closures over the emulated devices.

use std::sync::Arc;
use std::time::Instant;

use tessera_driver::{
    ContextHandle, DevicePtr, DriverCode, DriverTable, EventHandle, GraphHandle, HostPtr, LaunchSpec, PointerAttribute,
    SharedHandle, StreamHandle, TensorMap,
};

use super::{CURRENT, Driver, PTX_VERSION, Work, failed, invalid, word};

/// Fills a slot with a closure over the driver.
macro_rules! slot {
    ($slots:ident, $slot:ident, |$d:ident $(, $arg:ident $(: $ty:ty)?)*| $body:expr) => {{
        let $d = Arc::clone(&$slots.driver);
        $slots.table.$slot = Some(Box::new(move |$($arg $(: $ty)?),*| $body));
    }};
}

/// A table that is being filled.
struct Slots {
    table: DriverTable,
    driver: Arc<Driver>,
}

/// The table of a driver.
pub(super) fn of(driver: Arc<Driver>) -> DriverTable {
    let mut slots = Slots { table: DriverTable::empty("emulator"), driver };
    devices(&mut slots);
    memory(&mut slots);
    copies(&mut slots);
    streams(&mut slots);
    events(&mut slots);
    code(&mut slots);
    slots.table
}

/// Devices, contexts, and what one lets another reach.
fn devices(slots: &mut Slots) {
    slot!(slots, driver_version, |_d| Ok(PTX_VERSION.0 * 1000 + 4000));
    slot!(slots, device_count, |d| Ok(d.count()));
    slot!(slots, device_name, |d, device| d.only(device).map(|()| d.name()));
    slot!(slots, device_bus_id, |d, device| d.only(device).map(|()| format!("0000:{:02x}:00.0", device.0)));
    slot!(slots, device_memory, |d, device| d.only(device).map(|()| d.on(device.0).device().dram_bytes));
    slot!(slots, device_attribute, |d, device, attribute| d.only(device).map(|()| d.attribute(attribute)));
    slot!(slots, context_retain, |d, device| {
        d.only(device)?;
        *d.state().users.entry(device.0).or_insert(0) += 1;
        Ok(ContextHandle(1 + u64::from(device.0)))
    });
    slot!(slots, context_release, |d, device| {
        d.only(device)?;
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
    slot!(slots, context_reset, |d, device| {
        d.only(device)?;
        d.reset(device.0);
        Ok(())
    });
    slot!(slots, context_set_current, |d, context| {
        let device = d.device_of("context_set_current", context)?;
        CURRENT.with_borrow_mut(|current| current.insert(d.number, device));
        Ok(())
    });
    slot!(slots, peer_can_access, |d, from, to| {
        d.only(from)?;
        d.only(to)?;
        Ok(from != to)
    });
    slot!(slots, peer_enable, |d, context| {
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
    slot!(slots, copy_between, |d, to, _there, from, _here, bytes, stream| d.submit(stream, Work::Copy { to, from, bytes }));
    slot!(slots, mem_share, |d, pointer: DevicePtr| {
        let range = d.emulator().range(pointer).ok_or_else(|| invalid("mem_share", format!("{pointer} is in no allocation")))?;
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&d.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&range.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(SharedHandle(bytes))
    });
    slot!(slots, mem_open, |d, shared: SharedHandle| {
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
    slot!(slots, mem_close, |_d, _pointer| Ok(()));
    slot!(slots, context_synchronize, |d| d.healthy());
}

/// Memory of devices and of the host, and what is told of it.
fn memory(slots: &mut Slots) {
    slot!(slots, mem_info, |d| {
        let total = d.emulator().device().dram_bytes;
        Ok((total - d.emulator().used().min(total), total))
    });
    slot!(slots, mem_alloc, |d, bytes| d.alloc(bytes));
    slot!(slots, mem_free, |d, pointer| d.free(pointer));
    slot!(slots, mem_alloc_async, |d, bytes, _stream| d.alloc(bytes));
    slot!(slots, mem_free_async, |d, pointer, _stream| d.free(pointer));
    // Freed memory is given back at once: there is no pool to keep or trim.
    slot!(slots, pool_keep, |d, device, _bytes| d.only(device).and_then(|()| d.healthy()));
    slot!(slots, pool_trim, |d, device, _bytes| d.only(device).and_then(|()| d.healthy()));
    slot!(slots, mem_forget, |d, pointer, bytes| {
        d.emulator().forget(pointer, bytes).map_err(|error| Driver::memory("mem_forget", &error))
    });
    slot!(slots, mem_written, |d, pointer, bytes| {
        d.emulator().written(pointer, bytes).map_err(|error| Driver::memory("mem_written", &error))
    });
    slot!(slots, pointer_range, |d, pointer: DevicePtr| {
        let range =
            d.emulator().range(pointer).ok_or_else(|| invalid("pointer_range", format!("{pointer} is in no allocation")))?;
        Ok((DevicePtr(range.start), range.end - range.start))
    });
    slot!(slots, pointer_attribute, |d, pointer: DevicePtr, attribute| {
        let nowhere = || invalid("pointer_attribute", format!("{pointer} is in no allocation"));
        let range = d.emulator().range(pointer).ok_or_else(nowhere)?;
        // Memory of the host is said to be of the device that was current when it was allocated.
        let pinned = d.state().pinned.get(&range.start).copied();
        Ok(match attribute {
            PointerAttribute::MemoryType => {
                if pinned.is_some() {
                    1
                } else {
                    2
                }
            }
            PointerAttribute::Managed => 0,
            PointerAttribute::DeviceOrdinal => u64::from(pinned.or_else(|| d.emulator().owner(pointer)).ok_or_else(nowhere)?),
        })
    });
    // Pinned host memory is memory of the one address space that there is.
    slot!(slots, host_alloc, |d, bytes| {
        d.healthy()?;
        let pointer = d.allocated(d.emulator().alloc_pinned(bytes))?;
        let device = d.here();
        d.state().pinned.insert(pointer.0, device);
        Ok(HostPtr(pointer.0))
    });
    slot!(slots, host_free, |d, pointer: HostPtr| {
        d.state().pinned.remove(&pointer.0);
        d.free(pointer.on_device())
    });
}

/// Copies and fills.
fn copies(slots: &mut Slots) {
    slot!(slots, host_write, |d, to: HostPtr, from: &[u8]| {
        d.emulator().write(to.on_device(), from).map_err(|error| Driver::memory("host_write", &error))
    });
    slot!(slots, host_read, |d, to: &mut [u8], from: HostPtr| {
        d.emulator().read(from.on_device(), to).map_err(|error| Driver::memory("host_read", &error))
    });
    slot!(slots, copy_to_device, |d, to, from: &[u8], _stream| {
        d.healthy()?;
        d.emulator().write(to, from).map_err(|error| Driver::memory("copy_to_device", &error))
    });
    slot!(slots, copy_to_host, |d, to: &mut [u8], from, _stream| {
        d.healthy()?;
        d.emulator().read(from, to).map_err(|error| Driver::memory("copy_to_host", &error))
    });
    slot!(slots, copy_on_device, |d, to, from, bytes, stream| d.submit(stream, Work::Copy { to, from, bytes }));
    slot!(slots, fill_u8, |d, to, value, count, stream| d.submit(stream, Work::Fill { to, pattern: [value; 4], bytes: count }));
    slot!(slots, fill_u32, |d, to: DevicePtr, value: u32, count: u64, stream| {
        d.submit(stream, Work::Fill { to, pattern: value.to_le_bytes(), bytes: count * 4 })
    });
}

/// Streams, and graphs of what was recorded on one.
fn streams(slots: &mut Slots) {
    slot!(slots, stream_create, |d| {
        let mut state = d.state();
        let id = state.fresh();
        state.streams.insert(id, ());
        Ok(StreamHandle(id))
    });
    slot!(slots, stream_destroy, |d, stream: StreamHandle| {
        d.state().streams.remove(&stream.0);
        Ok(())
    });
    slot!(slots, stream_synchronize, |d, _stream| d.healthy());
    slot!(slots, stream_query, |d, _stream| d.healthy().map(|()| true));
    slot!(slots, stream_wait_event, |d, _stream, _event| d.healthy());
    slot!(slots, stream_wait_value, |d, _stream, at, value: u32| {
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
    slot!(slots, stream_write_value, |d, stream, at: DevicePtr, value: u32| {
        d.submit(stream, Work::Fill { to: at, pattern: value.to_le_bytes(), bytes: 4 })
    });
    slot!(slots, capture_begin, |d, stream: StreamHandle| {
        d.state().captures.insert(stream.0, Vec::new());
        Ok(())
    });
    slot!(slots, capture_end, |d, stream: StreamHandle| {
        let mut state = d.state();
        let recorded = state.captures.remove(&stream.0).ok_or_else(|| invalid("capture_end", "the stream records nothing"))?;
        let id = state.fresh();
        state.graphs.insert(id, recorded);
        Ok(GraphHandle(id))
    });
    slot!(slots, graph_launch, |d, graph: GraphHandle, stream| {
        let recorded = d.state().graphs.get(&graph.0).cloned().ok_or_else(|| invalid("graph_launch", "no such graph"))?;
        recorded.into_iter().try_for_each(|work| d.submit(stream, work))
    });
    slot!(slots, graph_destroy, |d, graph: GraphHandle| {
        d.state().graphs.remove(&graph.0);
        Ok(())
    });
}

/// Events.
fn events(slots: &mut Slots) {
    slot!(slots, event_create, |d| {
        let mut state = d.state();
        let id = state.fresh();
        state.events.insert(id, None);
        Ok(EventHandle(id))
    });
    slot!(slots, event_destroy, |d, event: EventHandle| {
        d.state().events.remove(&event.0);
        Ok(())
    });
    slot!(slots, event_record, |d, event: EventHandle, _stream| {
        d.healthy()?;
        d.state().events.insert(event.0, Some(Instant::now()));
        Ok(())
    });
    slot!(slots, event_synchronize, |d, _event| d.healthy());
    slot!(slots, event_query, |d, _event| d.healthy().map(|()| true));
    slot!(slots, event_elapsed_ms, |d, start: EventHandle, end: EventHandle| {
        let state = d.state();
        let at = |event: EventHandle| state.events.get(&event.0).copied().flatten();
        match (at(start), at(end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3),
            _ => Err(failed("event_elapsed_ms", DriverCode::NOT_READY, "CUDA_ERROR_NOT_READY", "an event was not recorded")),
        }
    });
}

/// Modules, kernels and their launches.
fn code(slots: &mut Slots) {
    // The emulator's machine code is the PTX text itself.
    slot!(slots, assemble, |d, ptx: &str, _optimized| {
        let module = d.load(ptx.as_bytes())?;
        d.unload(module);
        Ok(ptx.as_bytes().to_vec())
    });
    slot!(slots, module_load, |d, image: &[u8]| d.load(image));
    slot!(slots, module_unload, |d, module| {
        d.unload(module);
        Ok(())
    });
    slot!(slots, module_function, |d, module, name: &str| d.function(module, name));
    slot!(slots, function_attribute, |d, function, attribute| d.function_attribute(function, attribute));
    slot!(slots, function_set_attribute, |d, function, attribute, value| d.set_attribute(function, attribute, value));
    slot!(slots, function_occupancy, |d, function, threads, shared| {
        d.with_program("function_occupancy", function, |program, _, _| d.emulator().occupancy(program, threads, shared))
    });
    slot!(slots, function_clusters, |d, spec: &LaunchSpec<'_>| {
        let blocks = spec.cluster.map_or(1, |cluster| cluster.count() as u32).max(1);
        d.with_program("function_clusters", spec.function, |program, _, _| {
            let resident = d.emulator().occupancy(program, spec.block.count() as u32, spec.shared_bytes);
            resident * d.emulator().multiprocessors() / blocks
        })
    });
    slot!(slots, launch, |d, spec: &LaunchSpec<'_>| {
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
    slot!(slots, tensor_map_encode, |_d, spec: &tessera_driver::TensorMapSpec| {
        spec.check().map_err(|error| invalid("tensor_map_encode", error.to_string()))?;
        Ok(TensorMap::from_bytes(crate::tensor_map::encode(spec)))
    });
}
