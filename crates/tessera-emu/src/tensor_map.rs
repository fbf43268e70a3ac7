//! Tensor maps as the emulator encodes them: plain fields in 128 bytes, so that `tensormap.replace` can change one.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | a mark |
//! | 4, 5, 6, 7 | element type, rank, swizzle, what lies outside |
//! | 8-15 | address |
//! | 16-55 | extents |
//! | 56-87 | strides of dimensions 1 to 4 in bytes |
//! | 88-97 | the box |
//! | 98-107 | element strides |

use tessera_driver::{OutOfBounds, Swizzle, TensorMapSpec};
use tessera_ptx::Word;
use tessera_types::DType;

const MARK: [u8; 4] = *b"TMAP";

/// A tensor map, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) dtype: DType,
    pub(crate) rank: usize,
    pub(crate) swizzle: u8,
    pub(crate) nan_outside: bool,
    pub(crate) address: u64,
    pub(crate) extents: [u64; 5],
    /// Of every dimension: dimension 0 steps by an element.
    pub(crate) strides: [u64; 5],
    pub(crate) tile: [u32; 5],
    pub(crate) steps: [u32; 5],
}

pub(crate) fn encode(spec: &TensorMapSpec) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[..4].copy_from_slice(&MARK);
    bytes[4] = DType::ALL.iter().position(|dtype| *dtype == spec.dtype).unwrap_or(0) as u8;
    bytes[5] = spec.extents.len() as u8;
    bytes[6] = match spec.swizzle {
        Swizzle::None => 0,
        Swizzle::B32 => 1,
        Swizzle::B64 => 2,
        Swizzle::B128 => 3,
    };
    bytes[7] = u8::from(spec.outside == OutOfBounds::Nan);
    bytes[8..16].copy_from_slice(&spec.address.0.to_le_bytes());
    for (cell, extent) in bytes[16..56].chunks_exact_mut(8).zip(&spec.extents) {
        cell.copy_from_slice(&extent.to_le_bytes());
    }
    for (cell, stride) in bytes[56..88].chunks_exact_mut(8).zip(&spec.strides) {
        cell.copy_from_slice(&stride.to_le_bytes());
    }
    for (cell, side) in bytes[88..98].chunks_exact_mut(2).zip(&spec.tile) {
        cell.copy_from_slice(&(*side as u16).to_le_bytes());
    }
    for cell in bytes[98..108].chunks_exact_mut(2) {
        cell.copy_from_slice(&1u16.to_le_bytes());
    }
    bytes
}

/// Reads a map back; an error says what is wrong with the bytes.
pub(crate) fn decode(bytes: &[u8; 128]) -> Result<Map, String> {
    if bytes[..4] != MARK {
        return Err("the 128 bytes hold no tensor map".to_owned());
    }
    let word = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    let half = |at: usize| u32::from(bytes[at]) | u32::from(bytes[at + 1]) << 8;
    let (Some(&dtype), rank) = (DType::ALL.get(usize::from(bytes[4])), usize::from(bytes[5])) else {
        return Err("the tensor map names no element type".to_owned());
    };
    if !(1..=5).contains(&rank) {
        return Err(format!("the tensor map has {rank} dimensions"));
    }
    let mut map = Map {
        dtype,
        rank,
        swizzle: bytes[6],
        nan_outside: bytes[7] != 0,
        address: word(8),
        extents: [1; 5],
        strides: [u64::from(dtype.bits() / 8); 5],
        tile: [1; 5],
        steps: [1; 5],
    };
    for dim in 0..rank {
        map.extents[dim] = word(16 + 8 * dim);
        map.tile[dim] = half(88 + 2 * dim);
        map.steps[dim] = half(98 + 2 * dim);
        if dim > 0 {
            map.strides[dim] = word(48 + 8 * dim);
        }
        if map.tile[dim] == 0 || map.tile[dim] > 256 || map.steps[dim] != 1 {
            return Err(format!(
                "the tensor map's box has {} elements along dimension {dim} in steps of {}",
                map.tile[dim], map.steps[dim]
            ));
        }
    }
    Ok(map)
}

/// Changes one field, as `tensormap.replace` does.
pub(crate) fn replace(bytes: &mut [u8; 128], field: Word, index: u32, value: u64) -> Result<(), String> {
    let index = index as usize;
    if index > 4 {
        return Err(format!("a tensor map has no dimension {index}"));
    }
    // Kernels make maps of their own from zeros.
    if bytes[..4] == [0; 4] {
        bytes[..4].copy_from_slice(&MARK);
    }
    match field {
        Word::GlobalAddress => bytes[8..16].copy_from_slice(&value.to_le_bytes()),
        Word::Rank => bytes[5] = value as u8 + 1,
        Word::BoxDim => bytes[88 + 2 * index..90 + 2 * index].copy_from_slice(&(value as u16).to_le_bytes()),
        Word::GlobalDim => bytes[16 + 8 * index..24 + 8 * index].copy_from_slice(&value.to_le_bytes()),
        Word::GlobalStride if index < 4 => bytes[56 + 8 * index..64 + 8 * index].copy_from_slice(&value.to_le_bytes()),
        Word::ElementStride => bytes[98 + 2 * index..100 + 2 * index].copy_from_slice(&(value as u16).to_le_bytes()),
        Word::SwizzleMode if value < 4 => bytes[6] = value as u8,
        Word::FillMode if value < 2 => bytes[7] = value as u8,
        Word::InterleaveLayout if value == 0 => {}
        Word::Elemtype => {
            const TYPES: [DType; 12] = [
                DType::U8,
                DType::U16,
                DType::U32,
                DType::I32,
                DType::U64,
                DType::I64,
                DType::F16,
                DType::F32,
                DType::F32,
                DType::F64,
                DType::BF16,
                DType::TF32,
            ];
            let dtype = TYPES.get(value as usize).ok_or_else(|| format!("{value} is no element type of tensor maps"))?;
            bytes[4] = DType::ALL.iter().position(|other| other == dtype).unwrap_or(0) as u8;
        }
        _ => return Err(format!("`{field}` of a tensor map cannot be {value}")),
    }
    Ok(())
}

/// Where a byte of a swizzled box lies: 16-byte chunks change places by the address bits above them.
pub(crate) fn swizzle(address: u32, mode: u8) -> u32 {
    match mode {
        1 => address ^ (address >> 7 & 1) << 4,
        2 => address ^ (address >> 7 & 3) << 4,
        3 => address ^ (address >> 7 & 7) << 4,
        _ => address,
    }
}

/// The code that fills what lies outside.
pub(crate) fn outside(map: &Map) -> u64 {
    if !map.nan_outside {
        return 0;
    }
    match map.dtype {
        DType::F64 => 0x7ff8_0000_0000_0000,
        DType::F32 | DType::TF32 => 0x7fc0_0000,
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        _ => 0x7f,
    }
}
