//! Memory that is given back when dropped: on a device, and on the host within a device's reach.
//!
//! Every access is checked against the buffer's size before the driver sees it.

use std::sync::Arc;

use crate::error::{DriverError, Result};
use crate::handle::{DevicePtr, HostPtr, SharedHandle};
use crate::owned::{Context, Stream};

/// Device memory that is freed when dropped, unless it is somebody else's.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Context,
    pointer: DevicePtr,
    bytes: u64,
    owner: Owner,
}

/// Whose memory it is.
#[derive(Debug)]
enum Owner {
    /// The buffer's.
    Own,
    /// The driver's pool's; allocation and freeing keep the stream's order.
    Pool(Arc<Stream>),
    /// Somebody else's, who frees it.
    Foreign,
}

/// Refuses a part that does not lie inside `size` bytes.
fn within(offset: u64, bytes: u64, size: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DriverError::Argument(format!("{bytes} bytes at offset {offset} do not fit a buffer of {size} bytes"))),
    }
}

impl DeviceBuffer {
    pub(crate) fn new(context: &Context, bytes: u64) -> Result<DeviceBuffer> {
        let pointer = if bytes == 0 { DevicePtr(0) } else { context.table()?.mem_alloc(bytes)? };
        Ok(DeviceBuffer { context: context.clone(), pointer, bytes, owner: Owner::Own })
    }

    pub(crate) fn ordered(context: &Context, bytes: u64, stream: &Arc<Stream>) -> Result<DeviceBuffer> {
        if bytes == 0 {
            return DeviceBuffer::new(context, 0);
        }
        let pointer = context.table()?.mem_alloc_async(bytes, stream.handle())?;
        Ok(DeviceBuffer { context: context.clone(), pointer, bytes, owner: Owner::Pool(Arc::clone(stream)) })
    }

    pub(crate) fn foreign(context: &Context, pointer: DevicePtr, bytes: u64) -> DeviceBuffer {
        DeviceBuffer { context: context.clone(), pointer, bytes, owner: Owner::Foreign }
    }

    /// Where it starts.
    pub fn pointer(&self) -> DevicePtr {
        self.pointer
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies from the host to `offset`.
    pub fn write(&self, offset: u64, from: &[u8], stream: &Stream) -> Result<()> {
        within(offset, from.len() as u64, self.bytes)?;
        if from.is_empty() {
            return Ok(());
        }
        self.context.table()?.copy_to_device(self.pointer.offset(offset), from, stream.handle())
    }

    /// Copies to the host from `offset`.
    pub fn read(&self, offset: u64, to: &mut [u8], stream: &Stream) -> Result<()> {
        within(offset, to.len() as u64, self.bytes)?;
        if to.is_empty() {
            return Ok(());
        }
        self.context.table()?.copy_to_host(to, self.pointer.offset(offset), stream.handle())
    }

    /// Queues a fill of the whole buffer with one byte.
    pub fn fill(&self, value: u8, stream: &Stream) -> Result<()> {
        self.fill_part(0, self.bytes, value, stream)
    }

    /// Queues a fill of `bytes` bytes at `offset` with one byte.
    pub fn fill_part(&self, offset: u64, bytes: u64, value: u8, stream: &Stream) -> Result<()> {
        within(offset, bytes, self.bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.table()?.fill_u8(self.pointer.offset(offset), value, bytes, stream.handle())
    }

    /// Queues a copy of all of `from` to the start of this buffer.
    pub fn copy_from(&self, from: &DeviceBuffer, stream: &Stream) -> Result<()> {
        self.copy_part(0, from, 0, from.bytes, stream)
    }

    /// Queues a copy of `bytes` bytes of `from` at `start` to `offset` here. The parts must not overlap.
    pub fn copy_part(&self, offset: u64, from: &DeviceBuffer, start: u64, bytes: u64, stream: &Stream) -> Result<()> {
        within(offset, bytes, self.bytes)?;
        within(start, bytes, from.bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (self.pointer.offset(offset), from.pointer.offset(start));
        self.context.table()?.copy_on_device(to, from, bytes, stream.handle())
    }

    /// Counts every byte as never written, where the driver keeps count.
    pub fn forget(&self) -> Result<()> {
        let table = self.context.table()?;
        if table.mem_forget.is_some() && self.bytes != 0 { table.mem_forget(self.pointer, self.bytes) } else { Ok(()) }
    }

    /// For each byte, whether it was written; `None` where nobody kept count.
    pub fn written(&self) -> Result<Option<Vec<bool>>> {
        let table = self.context.table()?;
        match table.mem_written.is_some() {
            true if self.bytes == 0 => Ok(Some(Vec::new())),
            true => table.mem_written(self.pointer, self.bytes),
            false => Ok(None),
        }
    }

    /// What another process needs to reach this memory while it lives here.
    pub fn share(&self) -> Result<SharedHandle> {
        self.context.table()?.mem_share(self.pointer)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.bytes != 0 {
            let _ = self.context.table().and_then(|table| match &self.owner {
                Owner::Own => table.mem_free(self.pointer),
                Owner::Pool(stream) => table.mem_free_async(self.pointer, stream.handle()),
                Owner::Foreign => Ok(()),
            });
        }
    }
}

/// Pinned host memory that is freed when dropped. A device may read and write it at any time: what the host reads is a snapshot.
#[derive(Debug)]
pub struct PinnedBuffer {
    context: Context,
    pointer: HostPtr,
    bytes: u64,
}

impl PinnedBuffer {
    pub(crate) fn new(context: &Context, bytes: u64) -> Result<PinnedBuffer> {
        let pointer = context.table()?.host_alloc(bytes.max(1))?;
        let buffer = PinnedBuffer { context: context.clone(), pointer, bytes };
        buffer.write(0, &vec![0; bytes as usize])?;
        Ok(buffer)
    }

    /// The address as a kernel sees it.
    pub fn on_device(&self) -> DevicePtr {
        self.pointer.on_device()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes at `offset`.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        within(offset, from.len() as u64, self.bytes)?;
        self.context.table()?.host_write(HostPtr(self.pointer.0 + offset), from)
    }

    /// Reads at `offset`.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        within(offset, to.len() as u64, self.bytes)?;
        self.context.table()?.host_read(to, HostPtr(self.pointer.0 + offset))
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let _ = self.context.table().and_then(|table| table.host_free(self.pointer));
    }
}
