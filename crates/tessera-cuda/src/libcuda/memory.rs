//! Device memory, pinned host memory, copies and fills.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::Arc;

use tessera_driver::{DevicePtr, DriverTable, HostPtr, SharedHandle};

use super::{Symbols, handle, number};

pub(super) fn fill(table: &mut DriverTable, symbols: &Arc<Symbols>) {
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
    slot!(table, symbols, copy_between, [copy_between], |cu, to, there, from, here, bytes, stream| {
        let (there, here, stream) = (handle(there.0), handle(here.0), handle(stream.0));
        // SAFETY: device addresses are checked by the driver; the handles came from it.
        let status = unsafe { copy_between(to.0, there, from.0, here, bytes as usize, stream) };
        cu.check("cuMemcpyPeerAsync", status)
    });
    fill_pool(table, symbols);
    fill_pinned(table, symbols);
    slot!(table, symbols, pointer_range, [pointer_range], |cu, pointer| {
        let (mut start, mut bytes) = (0, 0usize);
        // SAFETY: writes an address and a size.
        cu.check("cuMemGetAddressRange", unsafe { pointer_range(&mut start, &mut bytes, pointer.0) })?;
        Ok((DevicePtr(start), bytes as u64))
    });
    slot!(table, symbols, pointer_attribute, [pointer_attribute], |cu, pointer, attribute| {
        let mut value = 0u64;
        // SAFETY: writes at most eight bytes for the attributes of the table.
        let status = unsafe { pointer_attribute((&raw mut value).cast(), attribute.number(), pointer.0) };
        cu.check("cuPointerGetAttribute", status)?;
        Ok(value)
    });
    slot!(table, symbols, mem_share, [mem_share], |cu, pointer| {
        let mut shared = SharedHandle([0; 64]);
        // SAFETY: writes 64 bytes.
        cu.check("cuIpcGetMemHandle", unsafe { mem_share(&mut shared, pointer.0) })?;
        Ok(shared)
    });
    slot!(table, symbols, mem_open, [mem_open], |cu, shared| {
        // The driver lets this device reach the other one's memory, where it can.
        const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
        let mut pointer = 0;
        // SAFETY: writes one address; the handle is 64 bytes, passed as the C structure is.
        cu.check("cuIpcOpenMemHandle", unsafe { mem_open(&mut pointer, shared, LAZY_ENABLE_PEER_ACCESS) })?;
        Ok(DevicePtr(pointer))
    });
    slot!(table, symbols, mem_close, [mem_close], |cu, pointer| {
        // SAFETY: the address came from `mem_open`.
        cu.check("cuIpcCloseMemHandle", unsafe { mem_close(pointer.0) })
    });
}

fn fill_pool(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, pool_keep, [device_pool, pool_set_attribute], |cu, device, bytes| {
        const RELEASE_THRESHOLD: c_uint = 4;
        let (mut pool, mut bytes) = (ptr::null_mut(), bytes);
        // SAFETY: writes one handle.
        cu.check("cuDeviceGetDefaultMemPool", unsafe { device_pool(&mut pool, device.0.cast_signed()) })?;
        // SAFETY: the attribute's value is a 64-bit number, which is read.
        let status = unsafe { pool_set_attribute(pool, RELEASE_THRESHOLD, (&raw mut bytes).cast()) };
        cu.check("cuMemPoolSetAttribute", status)
    });
    slot!(table, symbols, pool_trim, [device_pool, pool_trim], |cu, device, bytes| {
        let mut pool = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuDeviceGetDefaultMemPool", unsafe { device_pool(&mut pool, device.0.cast_signed()) })?;
        // SAFETY: the handle came from the call above.
        cu.check("cuMemPoolTrimTo", unsafe { pool_trim(pool, bytes as usize) })
    });
    slot!(table, symbols, pool_open, [device_pool, pool_set_access], |cu, device, to| {
        // `CUmemAccessDesc`: the kind of place, which one, and what is allowed there.
        const DEVICE: c_int = 1;
        const READ_AND_WRITE: c_int = 3;
        let mut pool = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuDeviceGetDefaultMemPool", unsafe { device_pool(&mut pool, device.0.cast_signed()) })?;
        let access = [DEVICE, to.0.cast_signed(), READ_AND_WRITE];
        // SAFETY: the handle came from the call above; reads one description.
        cu.check("cuMemPoolSetAccess", unsafe { pool_set_access(pool, &access, 1) })
    });
}

fn fill_pinned(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, host_alloc, [host_alloc], |cu, bytes| {
        const PORTABLE_AND_MAPPED: c_uint = 3;
        let mut pointer = ptr::null_mut();
        // SAFETY: writes one address.
        cu.check("cuMemHostAlloc", unsafe { host_alloc(&mut pointer, bytes as usize, PORTABLE_AND_MAPPED) })?;
        Ok(HostPtr(number(pointer)))
    });
    slot!(table, symbols, host_free, [host_free], |cu, pointer| {
        // SAFETY: the address came from `host_alloc`.
        cu.check("cuMemFreeHost", unsafe { host_free(handle(pointer.0)) })
    });
    table.host_write = Some(Box::new(|to, from| {
        let words = if to.0.is_multiple_of(4) { from.len() / 4 } else { 0 };
        for (index, word) in from.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            // SAFETY: the caller keeps to the allocation, the word is aligned; volatile because a device may look at any time.
            unsafe { handle(to.0).cast::<u32>().add(index).write_volatile(value) };
        }
        for (index, &byte) in from[4 * words..].iter().enumerate() {
            // SAFETY: as above.
            unsafe { handle(to.0).cast::<u8>().add(4 * words + index).write_volatile(byte) };
        }
        Ok(())
    }));
    table.host_read = Some(Box::new(|to, from| {
        for (index, byte) in to.iter_mut().enumerate() {
            // SAFETY: the caller keeps to the allocation; volatile because a device may write at any time.
            *byte = unsafe { handle(from.0).cast::<u8>().add(index).read_volatile() };
        }
        Ok(())
    }));
}
