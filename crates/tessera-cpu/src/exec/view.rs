//! Tiles of arrays: which part of a tile lies in its array, and the walk through memory.
//!
//! A tile is walked as rows along its last axis. Rows that lie next to each other in memory, as the tile has them, are borrowed;
//! others are gathered, and what lies outside is filled with the padding.

use smallvec::SmallVec;
use tessera_ir::Diagnostic;
use tessera_types::packed::Packing;
use tessera_types::{DType, element};

use super::{Machine, Ran, Range, sign_extend};
use crate::kernels::copy;
use crate::plan::Access;
use crate::touched::Kind;

/// One axis of a tile at a known index.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) extent: usize,
    /// The part inside the array.
    pub(super) inside: std::ops::Range<usize>,
    pub(super) stride: i64,
    /// Indices of this axis, where a tile gives them; negative where they lie outside.
    pub(super) gather: Option<Vec<i64>>,
}

/// A tile of an array at a known index.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Address of the array's element at the tile's corner; elements outside are not reached.
    pub(super) base: u64,
    pub(super) sides: SmallVec<[Side; 4]>,
    pub(super) bytes: usize,
    /// Elements of sub-byte types share bytes.
    pub(super) packing: Option<Packing>,
    pub(super) signed4: bool,
    /// Element offset of the corner, for packed elements, whose address is the array's.
    pub(super) first: i64,
    /// The whole tile is inside and stands in memory in its own order.
    pub(super) linear: bool,
    pub(super) empty: bool,
    pub(super) padding: u64,
    /// The memory is large enough that stores should pass the caches.
    pub(super) stream: bool,
    /// Undetermined padding, for checked execution.
    pub(super) undetermined: bool,
}

/// A stretch of a row: where it stands in the strip and in memory.
pub(super) struct Segment {
    /// First element in the strip.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Address of the first element (for packed elements: its number), `None` outside the array.
    pub(super) from: Option<i64>,
    /// Distance of neighbours, in elements.
    pub(super) stride: i64,
}

/// Memory of this size and more is not worth keeping in caches.
const STREAM_BYTES: u64 = 24 << 20;

impl Machine<'_> {
    /// The memory that a range of addresses lies in.
    pub(super) fn owner(&self, start: u64, end: u64, origin: Option<u16>) -> Option<Range> {
        let inside = |range: &Range| start >= range.start && end <= range.end;
        if let Some(range) = origin.and_then(|origin| self.launch.ranges.get(origin as usize)) {
            // Positions of arguments only: the ranges after them are found by address.
            if (origin.unwrap_or(0) as usize) < self.launch.plan.arguments.len() {
                return Some(*range).filter(inside);
            }
        }
        self.launch.ranges.iter().chain(&self.local).copied().find(inside)
    }

    pub(super) fn window(&mut self, access: &Access, kind: Kind) -> Ran<Window> {
        let mut sides: SmallVec<[Side; 4]> = SmallVec::new();
        let mut first = 0_i64;
        let (mut least, mut greatest) = (0_i64, 0_i64);
        let mut empty = false;
        if let Some(check) = self.check.as_ref() {
            check.address(access.base, access.span)?;
            for axis in &access.axes {
                check.address(axis.index, access.span)?;
                if let Some((place, _)) = axis.gather {
                    check.address_place(place, axis.extent, access.span)?;
                }
            }
        }
        for axis in &access.axes {
            let (size, stride) = (self.get(axis.size) as i64, self.get(axis.stride) as i64);
            let side = match axis.gather {
                None => {
                    let start = (self.get(axis.index) as i64).wrapping_mul(axis.step);
                    first = first.wrapping_add(start.wrapping_mul(stride));
                    let low = start.wrapping_neg().clamp(0, axis.extent as i64);
                    let high = size.wrapping_sub(start).clamp(low, axis.extent as i64);
                    least += if stride < 0 { (high - 1) * stride } else { low * stride };
                    greatest += if stride < 0 { low * stride } else { (high - 1) * stride };
                    empty |= low >= high;
                    Side { extent: axis.extent, inside: low as usize..high as usize, stride, gather: None }
                }
                Some((place, bytes)) => {
                    let indices = self.indices(place, bytes, axis.extent, size);
                    let inside = indices.iter().copied().filter(|&i| i >= 0);
                    match (inside.clone().min(), inside.max()) {
                        (Some(low), Some(high)) => {
                            least += if stride < 0 { high * stride } else { low * stride };
                            greatest += if stride < 0 { low * stride } else { high * stride };
                        }
                        _ => empty = true,
                    }
                    Side { extent: axis.extent, inside: 0..axis.extent, stride, gather: Some(indices) }
                }
            };
            sides.push(side);
        }
        let packing = if access.dtype.is_byte_bool() { None } else { Packing::of(access.dtype) };
        let bytes = access.bytes as usize;
        let array = self.get(access.base);
        let mut stream = false;
        if let Some(check) = self.check.as_ref() {
            if access.inbounds && sides.iter().any(|side| side.inside != (0..side.extent)) {
                check.promised_inside(access, kind)?;
            }
            // No index is inside an array without elements.
            if empty && access.axes.iter().all(|axis| self.get(axis.size) != 0) {
                check.outside(access, kind)?;
            }
        }
        if !empty {
            let (low, high) = match packing {
                None => ((first + least).wrapping_mul(bytes as i64), (first + greatest + 1).wrapping_mul(bytes as i64)),
                Some(packing) => {
                    let bits = i64::from(packing.bits());
                    (((first + least) * bits).div_euclid(8), ((first + greatest + 1) * bits + 7).div_euclid(8))
                }
            };
            let (start, end) = (array.wrapping_add(low as u64), array.wrapping_add(high as u64));
            match self.owner(start, end, access.origin) {
                Some(range) => stream = range.end - range.start >= STREAM_BYTES,
                None => return Err(outside_memory(access.span, kind)),
            }
        }
        let base = match packing {
            None => array.wrapping_add(first.wrapping_mul(bytes as i64) as u64),
            Some(_) => array,
        };
        let mut linear = packing.is_none() && !empty && base % bytes as u64 == 0;
        let mut expected = 1;
        for side in sides.iter().rev() {
            linear &= side.gather.is_none() && side.inside == (0..side.extent) && (side.stride == expected || side.extent == 1);
            expected *= side.extent as i64;
        }
        Ok(Window {
            base,
            sides,
            bytes,
            packing,
            signed4: access.dtype == DType::I4,
            first: if packing.is_some() { first } else { 0 },
            linear,
            empty,
            padding: access.padding.unwrap_or(0),
            stream,
            undetermined: access.padding.is_none(),
        })
    }

    /// Indices of a tile, -1 where they lie outside.
    fn indices(&self, place: crate::plan::Place, bytes: u8, len: usize, size: i64) -> Vec<i64> {
        let from = self.place(place);
        (0..len)
            .map(|i| {
                let mut bits = [0; 8];
                // SAFETY: the place holds `len` indices of so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(from.add(i * bytes as usize), bits.as_mut_ptr(), bytes as usize) };
                let index = sign_extend(u64::from_le_bytes(bits), bytes);
                if (0..size).contains(&index) { index } else { -1 }
            })
            .collect()
    }
}

impl Window {
    /// Calls `visit` for every stretch of the elements `start..start + len` that lies wholly inside or outside the array.
    pub(super) fn segments(&self, start: usize, len: usize, mut visit: impl FnMut(Segment)) {
        let scale = if self.packing.is_some() { 1 } else { self.bytes as i64 };
        let origin = if self.packing.is_some() { self.first } else { self.base as i64 };
        let Some((last, outer)) = self.sides.split_last() else {
            visit(Segment { at: 0, len: 1, from: (!self.empty).then_some(origin), stride: 1 });
            return;
        };
        let mut at = 0;
        while at < len {
            let position = start + at;
            let (mut row, column) = (position / last.extent, position % last.extent);
            let count = (last.extent - column).min(len - at);
            let mut offset = 0_i64;
            let mut inside = !self.empty;
            for side in outer.iter().rev() {
                let index = row % side.extent;
                row /= side.extent;
                match &side.gather {
                    None => {
                        inside &= side.inside.contains(&index);
                        offset += index as i64 * side.stride;
                    }
                    Some(indices) => {
                        inside &= indices[index] >= 0;
                        offset += indices[index] * side.stride;
                    }
                }
            }
            if !inside {
                visit(Segment { at, len: count, from: None, stride: 1 });
            } else if let Some(indices) = &last.gather {
                for (i, &index) in indices[column..column + count].iter().enumerate() {
                    let from = (index >= 0).then(|| origin + (offset + index * last.stride) * scale);
                    visit(Segment { at: at + i, len: 1, from, stride: 1 });
                }
            } else {
                let (low, high) =
                    (last.inside.start.clamp(column, column + count), last.inside.end.clamp(column, column + count));
                if low > column {
                    visit(Segment { at, len: low - column, from: None, stride: 1 });
                }
                if high > low {
                    let from = origin + (offset + low as i64 * last.stride) * scale;
                    visit(Segment { at: at + low - column, len: high - low, from: Some(from), stride: last.stride });
                }
                if high < column + count {
                    visit(Segment {
                        at: at + high.max(low) - column,
                        len: column + count - high.max(low),
                        from: None,
                        stride: 1,
                    });
                }
            }
            at += count;
        }
    }

    /// The elements `start..start + len`: borrowed where they stand together in memory, else gathered into the strip.
    ///
    /// # Safety
    /// The window's memory can be read, and `strip` has room.
    pub(super) unsafe fn fetch(&self, start: usize, len: usize, strip: *mut u8) -> *const u8 {
        if self.linear {
            let from = (self.base as usize + start * self.bytes) as *const u8;
            if self.stream {
                ahead(from.wrapping_add(len * self.bytes), len * self.bytes);
            }
            return from;
        }
        let mut borrowed: Option<*const u8> = None;
        self.segments(start, len, |segment| {
            // SAFETY: segments with an address lie inside the checked range; the strip holds `len` elements.
            unsafe {
                let to = strip.add(segment.at * self.bytes);
                match segment.from {
                    None => fill(to, segment.len, self.bytes, self.padding),
                    Some(from) if self.packing.is_none() => {
                        if segment.stride == 1 && segment.len == len && (from as usize).is_multiple_of(self.bytes) {
                            borrowed = Some(from as usize as *const u8);
                        } else {
                            gather(to, from as usize as *const u8, segment.stride as isize, segment.len, self.bytes);
                        }
                    }
                    Some(from) => {
                        for i in 0..segment.len {
                            *to.add(i) = self.unpacked(from + i as i64 * segment.stride);
                        }
                    }
                }
            }
        });
        borrowed.unwrap_or(strip)
    }

    /// A packed element by its number in the array.
    unsafe fn unpacked(&self, number: i64) -> u8 {
        let Some(packing) = self.packing else { return 0 };
        let bit = number * i64::from(packing.bits());
        let (byte, shift) = ((self.base as i64 + bit.div_euclid(8)) as usize as *const u8, bit.rem_euclid(8) as u32);
        // SAFETY: the element's bytes lie inside the checked range; the second byte is read only if it has bits of it.
        let code = unsafe {
            let mut window = u16::from(*byte);
            if shift + packing.bits() > 8 {
                window |= u16::from(*byte.add(1)) << 8;
            }
            (window >> shift) as u8 & (0xff >> (8 - packing.bits()))
        };
        if self.signed4 { element::i4_to_i8(code) as u8 } else { code }
    }

    /// Writes the elements `start..start + len` that lie inside the array.
    ///
    /// # Safety
    /// The window's memory can be written, and `strip` holds the elements.
    pub(super) unsafe fn store(&self, start: usize, len: usize, strip: *const u8) {
        if self.linear {
            // SAFETY: the whole tile is inside.
            unsafe { put(strip, (self.base as usize + start * self.bytes) as *mut u8, len * self.bytes, self.stream) };
            return;
        }
        self.segments(start, len, |segment| {
            let Some(to) = segment.from else { return };
            // SAFETY: as in `fetch`.
            unsafe {
                let from = strip.add(segment.at * self.bytes);
                match self.packing {
                    None if segment.stride == 1 => put(from, to as usize as *mut u8, segment.len * self.bytes, self.stream),
                    None => scatter(to as usize as *mut u8, from, segment.stride as isize, segment.len, self.bytes),
                    Some(packing) => {
                        for i in 0..segment.len {
                            self.pack(packing, to + i as i64 * segment.stride, *from.add(i));
                        }
                    }
                }
            }
        });
    }

    unsafe fn pack(&self, packing: Packing, number: i64, code: u8) {
        use std::sync::atomic::{AtomicU8, Ordering};
        let bits = packing.bits();
        let keep = 0xff_u8 >> (8 - bits);
        let bit = number * i64::from(bits);
        let (byte, shift) = ((self.base as i64 + bit.div_euclid(8)) as usize as *mut u8, bit.rem_euclid(8) as u32);
        // Neighbours in a byte may belong to another block: their bits are kept whatever it does.
        // SAFETY: the element's bytes lie inside the checked range.
        unsafe {
            let merge = |byte: *mut u8, mask: u8, value: u8| {
                let _ = AtomicU8::from_ptr(byte)
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | value & mask));
            };
            merge(byte, keep << shift, (code & keep) << shift);
            if shift + bits > 8 {
                merge(byte.add(1), keep >> (8 - shift), (code & keep) >> (8 - shift));
            }
        }
    }
}

fn outside_memory(span: tessera_ir::Span, kind: Kind) -> Box<Diagnostic> {
    let what = match kind {
        Kind::Read | Kind::Look => "this load reads",
        Kind::Write | Kind::Atomic => "this store writes",
    };
    Box::new(
        Diagnostic::error("cpu-bounds", span, format!("{what} outside the array's memory"))
            .help("the sizes and strides of the view must describe memory that the argument has"),
    )
}

/// Asks for the bytes that the next strip reads: arrays that no cache holds come in while this strip is computed.
fn ahead(from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches no memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(offset).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, bytes);
}

/// Writes the same bits into every element.
pub(super) unsafe fn fill(to: *mut u8, len: usize, bytes: usize, bits: u64) {
    // SAFETY: the caller has room for `len` aligned elements.
    unsafe {
        match bytes {
            1 => std::slice::from_raw_parts_mut(to, len).fill(bits as u8),
            2 => std::slice::from_raw_parts_mut(to.cast::<u16>(), len).fill(bits as u16),
            4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), len).fill(bits as u32),
            _ => std::slice::from_raw_parts_mut(to.cast::<u64>(), len).fill(bits),
        }
    }
}

/// Elements from strided memory into a strip.
pub(super) unsafe fn gather(to: *mut u8, from: *const u8, stride: isize, len: usize, bytes: usize) {
    unsafe fn typed<T: Copy>(to: *mut u8, from: *const u8, stride: isize, len: usize) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        for i in 0..len {
            // SAFETY: passed on from `gather`.
            unsafe { *to.add(i) = from.offset(i as isize * stride).read_unaligned() };
        }
    }
    // SAFETY: the caller vouches for the source elements and the room.
    unsafe {
        match (stride, bytes) {
            (1, _) => std::ptr::copy_nonoverlapping(from, to, len * bytes),
            (_, 1) => typed::<u8>(to, from, stride, len),
            (_, 2) => typed::<u16>(to, from, stride, len),
            (_, 4) => typed::<u32>(to, from, stride, len),
            _ => typed::<u64>(to, from, stride, len),
        }
    }
}

unsafe fn scatter(to: *mut u8, from: *const u8, stride: isize, len: usize, bytes: usize) {
    unsafe fn typed<T: Copy>(to: *mut u8, from: *const u8, stride: isize, len: usize) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        for i in 0..len {
            // SAFETY: passed on from `scatter`.
            unsafe { to.offset(i as isize * stride).write_unaligned(from.add(i).read_unaligned()) };
        }
    }
    // SAFETY: the caller vouches for the elements on both sides.
    unsafe {
        match bytes {
            1 => typed::<u8>(to, from, stride, len),
            2 => typed::<u16>(to, from, stride, len),
            4 => typed::<u32>(to, from, stride, len),
            _ => typed::<u64>(to, from, stride, len),
        }
    }
}

/// Copies bytes, past the caches where asked for.
unsafe fn put(from: *const u8, to: *mut u8, bytes: usize, stream: bool) {
    // SAFETY: the caller vouches for both sides.
    unsafe { if stream { copy::stream(to, from, bytes) } else { std::ptr::copy_nonoverlapping(from, to, bytes) } }
}
