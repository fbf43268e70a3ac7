//! What a value of a Tile function is while the function runs.
//!
//! A scalar is a vector with one element a thread, whatever threads are active: who is not active has a meaningless element.
//! A tile with a layout is held once, whole and in row-major order, as it stands in memory: which thread holds which
//! element makes no difference to what a program means, and layouts that leave an element without an owner do not exist.

use std::cell::OnceCell;
use std::rc::Rc;

use smallvec::SmallVec;
use tessera_ir::{Elem, Op, TileType};
use tessera_types::packed::Packing;

use super::divided::Divided;
use super::mask::Mask;

/// Shared, immutable bytes, aligned to 8.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    words: Rc<Vec<u64>>,
    bytes: usize,
    /// Of elements of threads, those that come of a division by zero.
    pub(super) divided: Option<Rc<Divided>>,
}

impl Buffer {
    /// Zeros.
    pub(super) fn new(bytes: usize) -> Buffer {
        Buffer { words: Rc::new(vec![0; bytes.div_ceil(8).max(1)]), bytes, divided: None }
    }

    /// The same element `count` times.
    pub(super) fn splat(bits: u64, size: usize, count: usize) -> Buffer {
        let mut buffer = Buffer::new(size * count);
        let bytes = buffer.bytes_mut();
        for at in (0..size * count).step_by(size) {
            bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        buffer
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold at least `bytes` bytes, and any byte is a `u8`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }

    /// The bytes to write to; a copy of its own where others share them.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let words = Rc::make_mut(&mut self.words);
        // SAFETY: as in `bytes`; `make_mut` made the words this buffer's own.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), self.bytes) }
    }

    /// One element of `size` bytes, zero-extended.
    pub(super) fn get(&self, index: usize, size: usize) -> u64 {
        read(&self.bytes()[index * size..], size)
    }

    /// One integer of `size` bytes, sign-extended.
    pub(super) fn get_signed(&self, index: usize, size: usize) -> i64 {
        let shift = 64 - 8 * size as u32;
        ((self.get(index, size) << shift) as i64) >> shift
    }

    /// Takes the elements of these threads from another.
    pub(super) fn merge(&mut self, from: &Buffer, size: usize, threads: &Mask) {
        let bytes = self.bytes_mut();
        for thread in threads.iter() {
            let at = thread * size..(thread + 1) * size;
            bytes[at.clone()].copy_from_slice(&from.bytes()[at]);
        }
        if self.divided.is_some() || from.divided.is_some() {
            let kept = self.divided.as_deref().map(|own| Divided { threads: own.threads.without(threads), ..*own });
            let taken = from.divided.as_deref().map(|other| Divided { threads: other.threads.and(threads), ..*other });
            self.divided = Divided::of(kept.into_iter().chain(taken));
        }
    }
}

/// The number in the first `size` bytes.
pub(super) fn read(bytes: &[u8], size: usize) -> u64 {
    let mut bits = [0; 8];
    bits[..size].copy_from_slice(&bytes[..size]);
    u64::from_le_bytes(bits)
}

/// Bytes of one element of a thread's own.
pub(super) fn element_bytes(elem: Elem) -> usize {
    elem.bytes() as usize
}

/// Bytes of a tile as it stands in memory.
pub(super) fn tile_bytes(tile: &TileType) -> usize {
    match tile.elem {
        Elem::Num(dtype) if !dtype.is_byte_bool() => {
            Packing::of(dtype).map_or(tile.len() * dtype.unpacked_bytes(), |packing| packing.bytes(tile.len()))
        }
        elem => tile.len() * element_bytes(elem),
    }
}

/// A buffer in shared memory or a part of it: where its first element is for each thread, and how far neighbours are, in
/// elements of the allocation. How an allocation is swizzled makes no difference to its meaning.
#[derive(Clone, Debug)]
pub(super) struct SharedRef {
    pub(super) allocation: usize,
    pub(super) first: Rc<[i64]>,
    pub(super) shape: SmallVec<[u32; 4]>,
    pub(super) strides: SmallVec<[i64; 4]>,
}

/// A product that was started: its operands, and its value once it has been computed.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) op: Op,
    pub(super) lhs: Factor,
    pub(super) rhs: Factor,
    pub(super) acc: Data,
    /// Where a left factor stands that is stored by half.
    pub(super) places: Option<Buffer>,
    pub(super) value: OnceCell<Buffer>,
}

/// An operand of a product: registers as they were, or memory as it will be.
#[derive(Clone, Debug)]
pub(super) enum Factor {
    Tile(Buffer),
    Shared(Rc<SharedRef>),
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// One element a thread.
    Lanes(Buffer),
    /// A whole tile.
    Tile(Buffer),
    /// The address, then sizes and strides that the type leaves open: 64-bit numbers, one a thread.
    View(Rc<[Buffer]>),
    /// Orders operations, which are in order anyway.
    Token,
    /// Shared memory.
    Shared(Rc<SharedRef>),
    /// The number of an array of registers.
    Registers(usize),
    /// The number of a ring.
    Ring(usize),
    /// How many slots lie before this position.
    Cursor(u64),
    /// A product in flight.
    Flying(Rc<Flight>),
}
