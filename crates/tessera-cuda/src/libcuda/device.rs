//! Devices and contexts.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use tessera_driver::{ContextHandle, DriverTable};

use super::{Symbols, handle, number};

pub(super) fn fill(table: &mut DriverTable, symbols: &Arc<Symbols>) {
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
    slot!(table, symbols, device_bus_id, [device_get, device_bus_id], |cu, device| {
        let mut text = [0u8; 32];
        let (mut id, length) = (0, text.len() as c_int);
        // SAFETY: writes one int.
        cu.check("cuDeviceGet", unsafe { device_get(&mut id, device.0.cast_signed()) })?;
        // SAFETY: writes at most `length` bytes, the terminator included.
        cu.check("cuDeviceGetPCIBusId", unsafe { device_bus_id(text.as_mut_ptr().cast(), length, id) })?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    });
    slot!(table, symbols, peer_can_access, [peer_can_access], |cu, from, to| {
        let mut can = 0;
        // SAFETY: writes one int.
        let status = unsafe { peer_can_access(&mut can, from.0.cast_signed(), to.0.cast_signed()) };
        cu.check("cuDeviceCanAccessPeer", status)?;
        Ok(can != 0)
    });
    slot!(table, symbols, peer_enable, [peer_enable], |cu, context| {
        // SAFETY: the handle came from this driver; the flags must be 0.
        cu.check("cuCtxEnablePeerAccess", unsafe { peer_enable(handle(context.0), 0) })
    });
}
