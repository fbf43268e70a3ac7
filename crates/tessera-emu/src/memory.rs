//! Device memory: allocations at addresses that no other allocation is near, so that a stray address belongs to none.
//!
//! Blocks run on several host threads and may touch the same bytes; every access to global memory is therefore an atomic
//! access of its width, relaxed for plain loads and stores. An address is checked before each access: inside one live
//! allocation, aligned to the access.

#![allow(unsafe_code, reason = "shared memory of many threads in accesses of several widths")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::texture::{self, Bound};

/// Where the first allocation may lie.
const FIRST: u64 = 0x7_0000_0000;
/// Allocations start at multiples of this, and the gap between two is at least as large.
const SPACING: u64 = 4096;

/// The memory of one allocation.
pub(crate) struct Bytes {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is only touched through atomic accesses (see `read` and `write`).
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new(bytes: u64) -> Option<Bytes> {
        let size = usize::try_from(bytes).ok()?.max(1).checked_next_multiple_of(256)?;
        let layout = Layout::from_size_align(size, 256).ok()?;
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Bytes { at, layout })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

/// Whose memory it is: kernels of other devices reach it only where they are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Pinned memory of the host, which every device reaches.
    Host,
    /// The device of a number.
    Device(u32),
}

/// One allocation.
#[derive(Clone)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) freed: bool,
    pub(crate) owner: Owner,
    bytes: Arc<Bytes>,
    written: Arc<Written>,
}

/// Which bytes of an allocation were written: a bit each.
struct Written {
    bits: Bytes,
    /// Nobody kept count for a while.
    all: AtomicBool,
}

impl Written {
    fn new(bytes: u64) -> Option<Written> {
        Some(Written { bits: Bytes::new(bytes.div_ceil(8))?, all: AtomicBool::new(false) })
    }

    /// The bits of eight bytes.
    fn cell(&self, index: u64) -> &AtomicU8 {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        assert!(index < self.bits.layout.size());
        // SAFETY: inside the memory, as just checked, which lives as long as `self`; all accesses to it are atomic.
        unsafe { AtomicU8::from_ptr(self.bits.at.as_ptr().add(index)) }
    }
}

impl Allocation {
    pub(crate) fn holds(&self, address: u64, width: u64) -> bool {
        address >= self.base && address - self.base <= self.size && width <= self.size - (address - self.base)
    }

    fn pointer(&self, address: u64, width: u64) -> *mut u8 {
        assert!(!self.freed && self.holds(address, width) && address.is_multiple_of(width.max(1)), "accesses are checked before");
        // SAFETY: inside the allocation, as just checked.
        unsafe { self.bytes.at.as_ptr().add((address - self.base) as usize) }
    }

    /// Reads 1, 2, 4 or 8 bytes at an address that `holds` and is aligned.
    pub(crate) fn read(&self, address: u64, width: u64) -> u64 {
        let at = self.pointer(address, width);
        // SAFETY: `pointer` checked bounds and alignment; all accesses to the memory are atomic.
        unsafe {
            match width {
                1 => u64::from(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
                2 => u64::from(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
                4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
                _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
            }
        }
    }

    /// Writes 1, 2, 4 or 8 bytes at an address that `holds` and is aligned.
    pub(crate) fn write(&self, address: u64, width: u64, value: u64) {
        let at = self.pointer(address, width);
        // SAFETY: as in `read`.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Relaxed),
                _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Relaxed),
            }
        }
    }

    /// Reads consecutive 32-bit words; `address` is a multiple of 4 and the words lie inside.
    pub(crate) fn read_words(&self, address: u64, words: &mut [u32]) {
        assert!(self.holds(address, words.len() as u64 * 4));
        let at = self.pointer(address, 4).cast::<u32>();
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: inside the allocation and aligned, as just checked.
            *word = unsafe { AtomicU32::from_ptr(at.add(index)).load(Ordering::Relaxed) };
        }
    }

    /// Writes consecutive 32-bit words; as `read_words`.
    pub(crate) fn write_words(&self, address: u64, words: &[u32]) {
        assert!(self.holds(address, words.len() as u64 * 4));
        let at = self.pointer(address, 4).cast::<u32>();
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: as in `read_words`.
            unsafe { AtomicU32::from_ptr(at.add(index)).store(word, Ordering::Relaxed) };
        }
    }

    /// Replaces a value by a function of it, in one step; gives the old value.
    pub(crate) fn update(&self, address: u64, width: u64, change: &mut dyn FnMut(u64) -> u64) -> u64 {
        let at = self.pointer(address, width);
        // SAFETY: as in `read`.
        unsafe {
            match width {
                2 => {
                    let cell = AtomicU16::from_ptr(at.cast());
                    u64::from(fetch(
                        || cell.load(Ordering::SeqCst),
                        |old, new| cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst),
                        |old| change(u64::from(old)) as u16,
                    ))
                }
                4 => {
                    let cell = AtomicU32::from_ptr(at.cast());
                    u64::from(fetch(
                        || cell.load(Ordering::SeqCst),
                        |old, new| cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst),
                        |old| change(u64::from(old)) as u32,
                    ))
                }
                _ => {
                    let cell = AtomicU64::from_ptr(at.cast());
                    fetch(
                        || cell.load(Ordering::SeqCst),
                        |old, new| cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst),
                        change,
                    )
                }
            }
        }
    }

    /// Notes that bytes were written.
    pub(crate) fn mark(&self, address: u64, bytes: u64) {
        let (mut at, end) = (address - self.base, address - self.base + bytes);
        while at < end {
            let cell = self.written.cell(at / 8);
            if at.is_multiple_of(8) && end - at >= 8 {
                cell.store(0xff, Ordering::Relaxed);
                at += 8;
            } else {
                cell.fetch_or(1 << (at % 8), Ordering::Relaxed);
                at += 1;
            }
        }
    }

    /// Counts bytes as never written; the whole allocation, where a launch kept no count.
    pub(crate) fn forget(&self, address: u64, bytes: u64) {
        let (start, end) = (address - self.base, address - self.base + bytes);
        (start..end).for_each(|at| {
            self.written.cell(at / 8).fetch_and(!(1 << (at % 8)), Ordering::Relaxed);
        });
        if bytes == self.size {
            self.written.all.store(false, Ordering::Relaxed);
        }
    }

    /// For each byte of a range, whether it was written; `None` where a launch kept no count.
    pub(crate) fn written(&self, address: u64, bytes: u64) -> Option<Vec<bool>> {
        let start = address - self.base;
        let is_written = |at: u64| self.written.cell(at / 8).load(Ordering::Relaxed) >> (at % 8) & 1 == 1;
        (!self.written.all.load(Ordering::Relaxed)).then(|| (start..start + bytes).map(is_written).collect())
    }

    /// From now on every byte counts as written.
    pub(crate) fn assume_written(&self) {
        self.written.all.store(true, Ordering::Relaxed);
    }

    /// The first byte of a range that nobody wrote.
    pub(crate) fn unwritten(&self, address: u64, bytes: u64) -> Option<u64> {
        if self.written.all.load(Ordering::Relaxed) {
            return None;
        }
        let (mut at, end) = (address - self.base, address - self.base + bytes);
        while at < end {
            let bits = self.written.cell(at / 8).load(Ordering::Relaxed);
            match (bits == 0xff, bits >> (at % 8) & 1) {
                (true, _) => at = (at / 8 + 1) * 8,
                (_, 1) => at += 1,
                _ => return Some(self.base + at),
            }
        }
        None
    }

    /// The contents, and which bytes were written.
    pub(crate) fn save(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.copy_out(self.base, &mut bytes);
        bytes.extend((0..self.size.div_ceil(8)).map(|index| self.written.cell(index).load(Ordering::Relaxed)));
        bytes
    }

    /// Puts back what [`Allocation::save`] gave.
    pub(crate) fn restore(&self, saved: &[u8]) {
        let (bytes, written) = saved.split_at(self.size as usize);
        self.copy_in(self.base, bytes);
        for (index, &bits) in written.iter().enumerate() {
            self.written.cell(index as u64).store(bits, Ordering::Relaxed);
        }
    }

    /// Copies bytes out.
    pub(crate) fn copy_out(&self, address: u64, to: &mut [u8]) {
        let mut index = 0;
        while index < to.len() {
            let here = address + index as u64;
            if here.is_multiple_of(8) && to.len() - index >= 8 {
                to[index..index + 8].copy_from_slice(&self.read(here, 8).to_le_bytes());
                index += 8;
            } else {
                to[index] = self.read(here, 1) as u8;
                index += 1;
            }
        }
    }

    /// Copies bytes in.
    pub(crate) fn copy_in(&self, address: u64, from: &[u8]) {
        let mut index = 0;
        while index < from.len() {
            let here = address + index as u64;
            if let (true, Some(word)) = (here.is_multiple_of(8), from[index..].first_chunk::<8>()) {
                self.write(here, 8, u64::from_le_bytes(*word));
                index += 8;
            } else if let (true, Some(word)) = (here.is_multiple_of(4), from[index..].first_chunk::<4>()) {
                self.write(here, 4, u64::from(u32::from_le_bytes(*word)));
                index += 4;
            } else {
                self.write(here, 1, u64::from(from[index]));
                index += 1;
            }
        }
    }
}

fn fetch<T: Copy>(load: impl Fn() -> T, exchange: impl Fn(T, T) -> Result<T, T>, mut change: impl FnMut(T) -> T) -> T {
    let mut old = load();
    loop {
        match exchange(old, change(old)) {
            Ok(old) => return old,
            Err(now) => old = now,
        }
    }
}

/// Every allocation, in order of address. A launch works on a copy of the list; freed ones stay in it for messages.
#[derive(Clone, Default)]
pub(crate) struct Heap {
    list: Vec<Allocation>,
    next: u64,
    /// Bytes in live allocations.
    used: BTreeMap<Owner, u64>,
    /// What handles of textures and surfaces name.
    bound: Vec<Arc<Bound>>,
}

/// Freed allocations that are remembered for messages.
const REMEMBERED: usize = 256;

impl Heap {
    /// Gives a texture, surface or sampler a handle.
    pub(crate) fn bind(&mut self, bound: Bound) -> u64 {
        self.bound.push(Arc::new(bound));
        texture::handle(self.bound.len() - 1)
    }

    /// What a handle names, by its place in the list.
    pub(crate) fn bound(&self, index: usize) -> Option<&Bound> {
        self.bound.get(index).map(Arc::as_ref)
    }

    /// Allocates; `None` when the host has no memory left.
    pub(crate) fn alloc(&mut self, size: u64, owner: Owner) -> Option<u64> {
        let bytes = Arc::new(Bytes::new(size)?);
        let written = Arc::new(Written::new(size)?);
        let base = self.next.max(FIRST);
        self.next = base.checked_add(size)?.checked_next_multiple_of(SPACING)?.checked_add(SPACING)?;
        *self.used.entry(owner).or_insert(0) += size;
        self.list.push(Allocation { base, size, freed: false, owner, bytes, written });
        Some(base)
    }

    /// Frees the allocation that starts at `base`; whether there was one.
    pub(crate) fn free(&mut self, base: u64) -> bool {
        let Ok(index) = self.list.binary_search_by_key(&base, |allocation| allocation.base) else { return false };
        let found = &mut self.list[index];
        if found.freed {
            return false;
        }
        found.freed = true;
        if let Some(used) = self.used.get_mut(&found.owner) {
            *used -= found.size;
        }
        if let Some(empty) = Bytes::new(1) {
            found.bytes = Arc::new(empty);
        }
        if self.list.iter().filter(|allocation| allocation.freed).count() > REMEMBERED
            && let Some(oldest) = self.list.iter().position(|allocation| allocation.freed)
        {
            self.list.remove(oldest);
        }
        true
    }

    /// A launch that kept no count may have written anything.
    pub(crate) fn assume_written(&self) {
        for allocation in &self.list {
            allocation.assume_written();
        }
    }

    /// Bytes in live allocations of an owner.
    pub(crate) fn used(&self, owner: Owner) -> u64 {
        self.used.get(&owner).copied().unwrap_or(0)
    }

    /// The index of the live allocation that holds `width` bytes at an address.
    pub(crate) fn find(&self, address: u64, width: u64) -> Option<usize> {
        let after = self.list.partition_point(|allocation| allocation.base <= address);
        let index = after.checked_sub(1)?;
        let found = &self.list[index];
        (!found.freed && found.holds(address, width)).then_some(index)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Allocation> {
        self.list.get(index)
    }

    /// Every allocation in order; `None` for freed ones.
    pub(crate) fn live(&self) -> impl Iterator<Item = Option<&Allocation>> {
        self.list.iter().map(|allocation| (!allocation.freed).then_some(allocation))
    }

    /// Whether an address lies in memory that was freed.
    pub(crate) fn was_freed(&self, address: u64) -> bool {
        let after = self.list.partition_point(|allocation| allocation.base <= address);
        after
            .checked_sub(1)
            .is_some_and(|index| self.list[index].freed && address - self.list[index].base < self.list[index].size)
    }

    /// What is known about an address that `find` did not accept.
    pub(crate) fn describe(&self, address: u64) -> String {
        let after = self.list.partition_point(|allocation| allocation.base <= address);
        let Some(found) = after.checked_sub(1).map(|index| &self.list[index]) else {
            return "below every allocation".to_owned();
        };
        let distance = address - found.base;
        let state = if found.freed { "freed " } else { "" };
        if distance < found.size {
            format!("byte {distance} of {state}memory of {} bytes at {:#x}", found.size, found.base)
        } else {
            format!(
                "{} bytes behind the end of {state}memory of {} bytes at {:#x}",
                distance - found.size,
                found.size,
                found.base
            )
        }
    }
}
