//! What the bulk copy engine moves: lines of bytes and boxes of tensors, between global and shared memory.
//!
//! A box lies in shared memory with dimension 0 fastest and its 16-byte chunks swizzled by address bits. Elements outside the
//! tensor are read as the map's fill and not written; the byte count of a box is always that of the whole box.

use tessera_ptx::Type;
use tessera_types::DType;

use super::access::Target;
use super::{Cluster, Fault};
use crate::finding::FindingKind;
use crate::program::{Change, SHARED_START};
use crate::tensor_map::{Map, Pixels, outside, swizzle};

/// A side in global memory.
#[derive(Clone, Debug)]
pub(crate) enum Far {
    Line {
        address: u64,
        bytes: u32,
    },
    /// `offsets` are those of an im2col copy.
    Box {
        map: Box<Map>,
        at: [i32; 5],
        offsets: [u16; 3],
    },
}

impl Far {
    /// Bytes that the copy moves in shared memory.
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Far::Line { bytes, .. } => *bytes,
            Far::Box { map, .. } => map.tile.iter().product::<u32>() * (map.dtype.bits() / 8),
        }
    }

    pub(crate) fn swizzle(&self) -> u8 {
        match self {
            Far::Line { .. } => 0,
            Far::Box { map, .. } => map.swizzle,
        }
    }
}

fn refuse(lane: usize, message: String) -> Fault {
    Fault::new(FindingKind::BulkCopy, lane, message)
}

impl Cluster<'_> {
    /// Whether the copy is one that the engine takes, with its place in shared memory.
    pub(super) fn check_copy(&self, far: &Far, offset: u32, lane: usize) -> Result<(), Fault> {
        match far {
            Far::Line { address, bytes } => {
                if !bytes.is_multiple_of(16) || !address.is_multiple_of(16) || !offset.is_multiple_of(16) {
                    let message = format!(
                        "a bulk copy of {bytes} bytes between {address:#x} and shared {offset:#x}: multiples of 16 are needed"
                    );
                    return Err(refuse(lane, message));
                }
            }
            Far::Box { map, .. } => {
                // The engine asks for 128 bytes, the swizzle for its own pattern to start at the box.
                let align = match map.swizzle {
                    1 => 256,
                    2 => 512,
                    3 => 1024,
                    _ => 128,
                };
                let row = map.tile[0] * map.dtype.bits() / 8;
                if !offset.is_multiple_of(128) {
                    return Err(refuse(lane, format!("a box at shared {offset:#x}: a multiple of 128 is needed")));
                }
                if map.swizzle != 0
                    && row * 8 >= align
                    && !offset.is_multiple_of(align)
                    && map.tile[1] > 1
                    && self.launch.options.sanitize.any()
                {
                    let message = format!("a swizzled box at shared {offset:#x}: its pattern starts at multiples of {align}");
                    return Err(refuse(lane, message));
                }
                if !row.is_multiple_of(16) {
                    return Err(refuse(lane, format!("rows of {row} bytes in a box: a multiple of 16 is needed")));
                }
            }
        }
        Ok(())
    }

    fn global(&self, address: u64, bytes: u64, lane: usize) -> Result<usize, Fault> {
        self.launch.find(address, bytes).ok_or_else(|| {
            let message = format!("a bulk copy touches {bytes} bytes at {address:#x}: {}", self.launch.describe(address));
            Fault::new(self.outside(address), lane, message)
        })
    }

    /// Calls `row` for each row of a box: its byte offset in the box, its address, and the elements of it that lie inside.
    fn rows(
        &self,
        map: &Map,
        (at, offsets): (&[i32; 5], &[u16; 3]),
        mut row: impl FnMut(u32, u64, std::ops::Range<u32>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Some(pixels) = &map.pixels {
            return pixel_rows(map, pixels, (at, offsets), row);
        }
        let element = map.dtype.bits() / 8;
        let (width, inside) = (map.tile[0] * element, inside(map, at[0]));
        let mut offset = 0;
        for e in 0..map.tile[4] {
            for d in 0..map.tile[3] {
                for c in 0..map.tile[2] {
                    for b in 0..map.tile[1] {
                        let mut address = map.address as i64 + i64::from(at[0]) * i64::from(element);
                        let mut within = inside.clone();
                        for (dim, step) in [(1, b), (2, c), (3, d), (4, e)] {
                            let index = i64::from(at[dim]) + i64::from(step * map.steps[dim]);
                            if index < 0 || index >= map.extents[dim] as i64 {
                                within = 0..0;
                            }
                            if dim < map.rank {
                                address += index * map.strides[dim] as i64;
                            }
                        }
                        row(offset, address as u64, within)?;
                        offset += width;
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of the far side, in the order of the box.
    pub(super) fn fetch(&self, far: &Far, lane: usize) -> Result<Vec<u8>, Fault> {
        match far {
            Far::Line { address, bytes } => {
                let mut data = vec![0; *bytes as usize];
                if *bytes > 0 {
                    let index = self.global(*address, u64::from(*bytes), lane)?;
                    if let Some(memory) = self.launch.heap.get(index) {
                        memory.copy_out(*address, &mut data);
                    }
                }
                Ok(data)
            }
            Far::Box { map, at, offsets } => {
                let element = map.dtype.bits() / 8;
                let mut data = vec![0; far.bytes() as usize];
                if map.nan_outside {
                    let fill = outside(map).to_le_bytes();
                    for cell in data.chunks_exact_mut(element as usize) {
                        cell.copy_from_slice(&fill[..element as usize]);
                    }
                }
                self.rows(map, (at, offsets), |offset, address, inside| {
                    if inside.is_empty() {
                        return Ok(());
                    }
                    let from = address + u64::from(inside.start * element);
                    let bytes = (inside.end - inside.start) * element;
                    let index = self.global(from, u64::from(bytes), lane)?;
                    let to = (offset + inside.start * element) as usize;
                    if let Some(memory) = self.launch.heap.get(index) {
                        memory.copy_out(from, &mut data[to..to + bytes as usize]);
                    }
                    Ok(())
                })?;
                Ok(data)
            }
        }
    }

    /// The pieces of global memory that a far side is, where sanitizers follow them: what lies outside the tensor is not touched.
    /// Each with its bytes, and where it stands in the box.
    pub(super) fn far_places(&self, far: &Far) -> Vec<(Target, u32, u32)> {
        let mut places = Vec::new();
        if self.sanitizer.is_none() {
            return places;
        }
        let mut add = |address: u64, bytes: u32, at: u32| {
            if let Some(allocation) = self.launch.find(address, u64::from(bytes)).filter(|_| bytes > 0) {
                places.push((Target::Global { allocation, address }, bytes, at));
            }
        };
        match far {
            Far::Line { address, bytes } => add(*address, *bytes, 0),
            Far::Box { map, at, offsets } => {
                let element = map.dtype.bits() / 8;
                let outcome = self.rows(map, (at, offsets), |offset, address, inside| {
                    let start = inside.start * element;
                    add(address + u64::from(start), (inside.end - inside.start) * element, offset + start);
                    Ok(())
                });
                debug_assert!(outcome.is_ok(), "nothing is refused");
            }
        }
        places
    }

    /// Writes the far side, or combines with it.
    pub(super) fn deliver(
        &mut self,
        far: &Far,
        data: &[u8],
        reduce: Option<(Change, Option<Type>)>,
        lane: usize,
    ) -> Result<(), Fault> {
        match far {
            Far::Line { address, bytes } => {
                if *bytes == 0 {
                    return Ok(());
                }
                let index = self.global(*address, u64::from(*bytes), lane)?;
                match reduce {
                    None => {
                        if let Some(memory) = self.launch.heap.get(index) {
                            memory.copy_in(*address, data);
                        }
                    }
                    Some((how, ty)) => self.combine(index, *address, data, how, ty.unwrap_or(Type::U32)),
                }
                Ok(())
            }
            Far::Box { map, at, offsets } => {
                let element = map.dtype.bits() / 8;
                let mut parts = Vec::new();
                self.rows(map, (at, offsets), |offset, address, inside| {
                    if !inside.is_empty() {
                        let to = address + u64::from(inside.start * element);
                        let bytes = (inside.end - inside.start) * element;
                        let index = self.global(to, u64::from(bytes), lane)?;
                        parts.push((index, to, (offset + inside.start * element) as usize, bytes as usize));
                    }
                    Ok(())
                })?;
                for (index, to, from, bytes) in parts {
                    let row = &data[from..from + bytes];
                    match reduce {
                        None => {
                            if let Some(memory) = self.launch.heap.get(index) {
                                memory.copy_in(to, row);
                            }
                        }
                        Some((how, _)) => self.combine(index, to, row, how, element_type(map.dtype)),
                    }
                }
                Ok(())
            }
        }
    }

    fn combine(&mut self, allocation: usize, address: u64, data: &[u8], how: Change, ty: Type) {
        // Two halves that share a word are combined one by one: `update` takes 16 bits too.
        let width = (ty.bits() / 8) as usize;
        for (index, cell) in data.chunks_exact(width.max(1)).enumerate() {
            let mut word = [0; 8];
            word[..cell.len()].copy_from_slice(cell);
            let operand = u64::from_le_bytes(word);
            let target = Target::Global { allocation, address: address + (index * width) as u64 };
            self.update(target, width as u32, &mut |old| super::atomic::apply(how, ty, old, operand, 0));
        }
    }

    /// Reads a box or line from shared memory, undoing the swizzle.
    pub(super) fn read_near(&self, rank: usize, offset: u32, bytes: u32, mode: u8) -> Vec<u8> {
        unswizzled(&self.blocks[rank].shared, offset, bytes, mode)
    }

    /// Writes a box or line to shared memory, swizzled.
    pub(super) fn write_near(&mut self, rank: usize, offset: u32, data: &[u8], mode: u8) {
        let memory = &mut self.blocks[rank].shared;
        if mode == 0 {
            memory[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            return;
        }
        for (index, chunk) in data.chunks_exact(16).enumerate() {
            let at = swizzle(offset + index as u32 * 16, mode) as usize;
            memory[at..at + 16].copy_from_slice(chunk);
        }
    }

    /// Whether a box's swizzled chunks stay inside the block's memory.
    pub(super) fn check_near(&self, rank: usize, offset: u32, bytes: u32, lane: usize) -> Result<(), Fault> {
        let end = self.blocks[rank].shared.len() as u64;
        // A swizzle moves chunks within 128 bytes.
        if offset < SHARED_START
            || u64::from(offset).next_multiple_of(128) + u64::from(bytes) > end.next_multiple_of(128)
            || u64::from(offset) + u64::from(bytes) > end
        {
            let message = format!(
                "a bulk copy of {bytes} bytes at shared {offset:#x}: the block's memory is {SHARED_START:#x} to {end:#x}"
            );
            return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
        }
        Ok(())
    }
}

/// Which elements of a row along dimension 0 lie inside the tensor.
fn inside(map: &Map, first: i32) -> std::ops::Range<u32> {
    let (first, width) = (i64::from(first), i64::from(map.tile[0]));
    (-first).clamp(0, width) as u32..(map.extents[0] as i64 - first).clamp(0, width) as u32
}

/// Calls `row` for the channels of each pixel of an im2col copy (PTX ISA, "Tensors: im2col mode"). Base pixels are taken along dimension 1,
/// then 2 and 3, inside the bounding box, and on to the next image behind it; a pixel lies the offsets further on.
fn pixel_rows(
    map: &Map,
    pixels: &Pixels,
    (at, offsets): (&[i32; 5], &[u16; 3]),
    mut row: impl FnMut(u32, u64, std::ops::Range<u32>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let element = map.dtype.bits() / 8;
    let (width, channels) = (map.tile[0] * element, inside(map, at[0]));
    let spatial = map.rank - 2;
    let mut base: Vec<i64> = at[1..map.rank].iter().map(|&index| i64::from(index)).collect();
    for pixel in 0..map.tile[1] {
        let mut address = map.address as i64 + i64::from(at[0]) * i64::from(element);
        let mut within = channels.clone();
        for (axis, &index) in base.iter().enumerate() {
            let index = index + offsets.get(axis).filter(|_| axis < spatial).map_or(0, |&offset| i64::from(offset));
            if index < 0 || index >= map.extents[axis + 1] as i64 {
                within = 0..0;
            }
            address += index * map.strides[axis + 1] as i64;
        }
        row(pixel * width, address as u64, within)?;
        base[0] += i64::from(map.steps[1]);
        for axis in 0..spatial {
            let last = map.extents[axis + 1] as i64 - 1 + i64::from(pixels.upper[axis]);
            if base[axis] <= last {
                break;
            }
            base[axis] = i64::from(pixels.lower[axis]);
            base[axis + 1] += if axis + 1 < spatial { i64::from(map.steps[axis + 2]) } else { 1 };
        }
    }
    Ok(())
}

/// The bytes of a box that lies swizzled in memory.
pub(super) fn unswizzled(memory: &[u8], offset: u32, bytes: u32, mode: u8) -> Vec<u8> {
    if mode == 0 {
        return memory[offset as usize..(offset + bytes) as usize].to_vec();
    }
    let mut data = vec![0; bytes as usize];
    for (index, chunk) in data.chunks_exact_mut(16).enumerate() {
        let at = swizzle(offset + index as u32 * 16, mode) as usize;
        chunk.copy_from_slice(&memory[at..at + 16]);
    }
    data
}

fn element_type(dtype: DType) -> Type {
    match dtype {
        DType::F64 => Type::F64,
        DType::F32 | DType::TF32 => Type::F32,
        DType::F16 => Type::F16,
        DType::BF16 => Type::Bf16,
        DType::I32 => Type::S32,
        DType::U64 => Type::U64,
        DType::I64 => Type::S64,
        _ => Type::U32,
    }
}
