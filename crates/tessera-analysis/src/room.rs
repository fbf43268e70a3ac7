//! What a buffer in shared memory takes: bytes, and an alignment; and what the blocks of a cluster give each other numbers in.

use tessera_ir::{SharedType, TileType};

/// What buffers are aligned to at least, and large ones, of which copies want whole lines.
pub const LEAST_ALIGN: u64 = 16;
const LARGE_ALIGN: u64 = 128;
const LARGE: u64 = 1024;
/// No buffer's alignment needs to be larger: the block's shared memory itself has no more.
pub const MOST_ALIGN: u64 = 1024;

/// Bytes that a buffer takes.
pub fn buffer_bytes(ty: &SharedType) -> u64 {
    let elements = ty.bytes() * 8 / u64::from(ty.elem.bits());
    let bytes = ty.bytes().max(elements * ty.elem.unpacked_bytes() as u64);
    // Mixing moves bytes within blocks of this size.
    if ty.swizzle.bits == 0 { bytes } else { bytes.next_multiple_of(1 << (ty.swizzle.base + ty.swizzle.bits)) }
}

/// The alignment that a buffer's swizzle and size ask for: addresses must mix as offsets do.
pub fn buffer_align(ty: &SharedType, wanted: u32) -> u64 {
    let least = if buffer_bytes(ty) >= LARGE { LARGE_ALIGN } else { LEAST_ALIGN };
    ty.swizzle.span().max(u64::from(wanted)).max(least).min(MOST_ALIGN)
}

/// Bytes of the two mbarriers of a sum of a cluster's blocks: the buffers of all blocks are free; all has landed in this one's.
pub const SUM_BARRIERS: u64 = 16;

/// Where slots begin in what a gather of a cluster's blocks has to itself, behind an mbarrier; and what its first byte is a multiple of.
pub const GATHER_SLOTS: u64 = 16;

/// Bytes that a gather has to itself which yields these numbers.
pub fn gathered_bytes(numbers: &TileType) -> u64 {
    GATHER_SLOTS + numbers.len() as u64 * numbers.elem.bytes()
}
