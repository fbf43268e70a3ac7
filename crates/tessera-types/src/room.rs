//! How a block's shared memory is given out where copies run ahead of products: what the compiler does, and who chooses tiles for it has to know.
//!
//! ```text
//! | slot | slot | slot | slot |.....| what results leave through | barriers |
//!   a round's factors each                                         [`FRAME`]
//! ```
//!
//! Sums of a cluster that splits a product's rounds lie where the slots were, and each block adds up [some of the columns](split_parts).

/// Bytes of shared memory for barriers and for aligning buffers.
pub const FRAME: u32 = 1 << 10;

/// The most slots that were found useful.
pub const USEFUL_SLOTS: u32 = 6;

/// Bytes through which a warpgroup sends results: two parts of 64 lines of 128 bytes, one of which leaves while the other one is filled.
pub const SENT_BY_WARPGROUP: u32 = 2 * 64 * 128;

/// The most clusters that share the rounds of a tile.
pub const MOST_CLUSTERS: u32 = 64;

/// Columns of sums that threads of a warp share: a part has some of them, or threads would exchange elements.
const COLUMNS: u32 = 8;

/// Slots of so many bytes that fit into a block's shared memory beside other bytes.
pub fn slots_that_fit(shared: u32, slot: u32, others: u32) -> u32 {
    shared.saturating_sub(FRAME + others) / slot.max(1)
}

/// The parts of so many columns of sums that blocks of a cluster can get: each of some eight of them.
pub fn split_parts(columns: u32, blocks: u32) -> u32 {
    let mut parts = blocks;
    while !columns.is_multiple_of(COLUMNS * parts) && parts > 1 {
        parts /= 2;
    }
    parts
}

/// What a block's columns of a shared row are a multiple of: what a warp's widest accesses take in 8 bits, so that every part begins at a whole vector.
pub const ROW_COLUMNS: u64 = 512;

/// The columns of a row that each block of a cluster has, but for the last one, which may have fewer; `None` where it would have none.
pub fn row_part(columns: u64, blocks: u64) -> Option<u64> {
    let part = columns.div_ceil(blocks).next_multiple_of(ROW_COLUMNS);
    (part * (blocks - 1) < columns).then_some(part)
}
