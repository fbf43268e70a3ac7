//! Launches.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use tessera_driver::{DriverError, DriverTable, LaunchSpec};

use super::{Handle, Status, Symbols, handle};

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
pub(super) struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *mut LaunchAttribute,
    attribute_count: c_uint,
}

pub(super) fn fill(table: &mut DriverTable, symbols: &Arc<Symbols>) {
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
        let mut attributes = Attributes::of(spec);
        let config = attributes.config(spec);
        // SAFETY: the configuration, its attributes and the parameters outlive the call, which copies them.
        let status = with_params(spec, |params| unsafe { extended(&config, handle(spec.function.0), params, ptr::null_mut()) });
        cu.check("cuLaunchKernelEx", status)
    }));
    slot!(table, symbols, function_clusters, [function_clusters], |cu, spec| {
        let mut attributes = Attributes::of(spec);
        let config = attributes.config(spec);
        let mut clusters = 0;
        // SAFETY: writes one int; the configuration and its attributes outlive the call.
        let status = unsafe { function_clusters(&mut clusters, handle(spec.function.0), &config) };
        cu.check("cuOccupancyMaxActiveClusters", status)?;
        Ok(clusters.unsigned_abs())
    });
}

/// The attributes of a launch; they outlive the configuration that points to them.
struct Attributes {
    list: [LaunchAttribute; 2],
    count: usize,
}

impl Attributes {
    fn of(spec: &LaunchSpec<'_>) -> Attributes {
        let mut attributes = Attributes { list: [LaunchAttribute { id: 0, pad: 0, value: [0; 16] }; 2], count: 0 };
        if let Some(cluster) = spec.cluster {
            attributes.add(CLUSTER_DIMENSION, &[cluster.x, cluster.y, cluster.z]);
        }
        if spec.overlaps_predecessor {
            attributes.add(PROGRAMMATIC_STREAM_SERIALIZATION, &[1]);
        }
        attributes
    }

    fn add(&mut self, id: c_uint, value: &[u32]) {
        let attribute = &mut self.list[self.count];
        attribute.id = id;
        attribute.value[..value.len()].copy_from_slice(value);
        self.count += 1;
    }

    fn config(&mut self, spec: &LaunchSpec<'_>) -> LaunchConfig {
        LaunchConfig {
            grid: [spec.grid.x, spec.grid.y, spec.grid.z],
            block: [spec.block.x, spec.block.y, spec.block.z],
            shared_bytes: spec.shared_bytes,
            stream: handle(spec.stream.0),
            attributes: self.list.as_mut_ptr(),
            attribute_count: self.count as c_uint,
        }
    }
}

/// Hands over the parameters one by one, as the driver takes them: the assembler has decided where each goes. Few of them
/// need no allocation: a launch costs microseconds.
fn with_params<R>(spec: &LaunchSpec<'_>, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
    const FEW: usize = 48;
    let (bytes, offsets) = (spec.params.bytes(), spec.params.offsets());
    let at = |offset: usize| bytes[offset..].as_ptr().cast_mut().cast();
    if offsets.len() <= FEW {
        let mut few = [ptr::null_mut(); FEW];
        few.iter_mut().zip(offsets).for_each(|(pointer, &offset)| *pointer = at(offset));
        return call(few.as_mut_ptr());
    }
    let mut many: Vec<*mut c_void> = offsets.iter().map(|&offset| at(offset)).collect();
    call(many.as_mut_ptr())
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
    let (grid, block) = (spec.grid, spec.block);
    with_params(spec, |params| {
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
                params,
                ptr::null_mut(),
            )
        }
    })
}
