//! Tensor maps in the chip's own 128 bytes, so that kernels make them of zeros with `tensormap.replace`, one field after another.
//!
//! Counts are held as one less, so a field that was left zero means one: one dimension, boxes of one element, steps of one;
//! element type 0 is `u8`. The fields were read on an H200: `tensormap.replace` on zeros, one field and value at a time (PTX
//! ISA, "tensormap.replace" names the values).
//!
//! | 32-bit word | bits | field |
//! |---|---|---|
//! | 0, 1 | | address |
//! | 2 | 4-6 | dimensions, less one |
//! | 2 | 7-10, 16 | element type; bit 16 is `tf32` |
//! | 2 | 11-12 | interleave |
//! | 2 | 13-14 | swizzle: none, 32, 64 or 128 bytes |
//! | 2 | 15 | NaN outside |
//! | 3 to 6 | | strides of dimensions 1 to 4 in units of 16 bytes, low words |
//! | 7 | 4 each | their high bits |
//! | 8 to 12 | | extents, less one |
//! | 13 | 3 each | steps through the five dimensions, less one |
//! | 13 | 24-31 | the box along dimension 0, less one |
//! | 14 | 8 each | the box along dimensions 1 to 4, less one |
//!
//! Maps of the im2col mode are made by the host alone; where the chip holds their fields is not known. Here bit 17 of word 2 says that a map is
//! one, bits 18 to 27 are its pixels, less one, bits 24 to 31 of word 13 its channels, less one, and word 14 holds the corners of the
//! bounding box, the lower one in its lower half: 16, 8 or 5 bits for each of one, two or three dimensions.

use std::ops::Range;

use tessera_driver::{OutOfBounds, Swizzle, TensorMapSpec};
use tessera_ptx::Word;
use tessera_types::DType;

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
    /// Elements that one copy moves: the box, in steps.
    pub(crate) tile: [u32; 5],
    pub(crate) steps: [u32; 5],
    /// Of the im2col mode: its `tile` is channels and pixels.
    pub(crate) pixels: Option<Pixels>,
}

/// The bounding box of base pixels: its corners from those of the tensor, along dimensions 1 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) lower: [i32; 3],
    pub(crate) upper: [i32; 3],
}

/// How a map walks, beyond what a [`TensorMapSpec`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Steps through the dimensions; empty for steps of one.
    pub steps: Vec<u32>,
    /// The im2col mode: the map's tile is channels and pixels then.
    pub im2col: Option<Im2col>,
}

/// The im2col mode (CUDA driver API, `cuTensorMapEncodeIm2col`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Im2col {
    /// The lower corner of the box of base pixels, from the tensor's first pixel: width first.
    pub lower: Vec<i32>,
    /// The upper corner, from the tensor's last pixel.
    pub upper: Vec<i32>,
    /// Channels of a pixel.
    pub channels: u32,
    /// Pixels of a copy.
    pub pixels: u32,
}

/// Bits of a corner's coordinate, for one, two or three spatial dimensions.
const CORNER_BITS: [u32; 3] = [16, 8, 5];

/// Element types by their code; 8 and 12 flush denormals, 13 and above are packed below a byte.
const TYPES: [DType; 13] = [
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
    DType::TF32,
];

/// The fields of a map's words.
struct Words([u32; 32]);

impl Words {
    fn of(bytes: &[u8; 128]) -> Words {
        let mut words = [0; 32];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Words(words)
    }

    fn bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    fn get(&self, word: usize, bit: usize, bits: u32) -> u32 {
        self.0[word] >> bit & (u32::MAX >> (32 - bits))
    }

    fn set(&mut self, word: usize, bit: usize, bits: u32, value: u32) {
        let mask = u32::MAX >> (32 - bits) << bit;
        self.0[word] = (self.0[word] & !mask) | (value << bit & mask);
    }

    /// `None` where the value is no element type.
    fn set_type(&mut self, code: u32) -> Option<()> {
        let (low, tf32) = match code {
            0..=10 => (code, 0),
            11 | 12 => (code - 4, 1),
            _ => return None,
        };
        self.set(2, 7, 4, low);
        self.set(2, 16, 1, tf32);
        Some(())
    }

    fn dtype(&self) -> Option<DType> {
        let (low, tf32) = (self.get(2, 7, 4), self.get(2, 16, 1));
        let code = if tf32 == 1 && matches!(low, 7 | 8) { low + 4 } else { low };
        TYPES.get(code as usize).copied().filter(|_| code < 11 || tf32 == 1)
    }

    fn set_address(&mut self, value: u64) {
        (self.0[0], self.0[1]) = (value as u32, (value >> 32) as u32);
    }

    /// The stride of dimension `below + 1`, in bytes.
    fn set_stride(&mut self, below: usize, bytes: u64) {
        self.0[3 + below] = (bytes >> 4) as u32;
        self.set(7, 4 * below, 4, (bytes >> 36) as u32);
    }

    /// The corners of the im2col mode, for so many spatial dimensions.
    fn set_pixels(&mut self, im2col: &Im2col) {
        let bits = CORNER_BITS[im2col.lower.len() - 1];
        self.set(2, 17, 1, 1);
        self.set(2, 18, 10, im2col.pixels.wrapping_sub(1));
        self.set(13, 24, 8, im2col.channels.wrapping_sub(1));
        for (half, corner) in [(0, &im2col.lower), (16, &im2col.upper)] {
            for (axis, &at) in corner.iter().enumerate() {
                self.set(14, half + axis * bits as usize, bits, at as u32);
            }
        }
    }

    fn pixels(&self, spatial: usize) -> Pixels {
        let bits = CORNER_BITS[spatial - 1];
        let corner = |half: usize| {
            std::array::from_fn(|axis| match axis < spatial {
                true => (self.get(14, half + axis * bits as usize, bits) << (32 - bits)) as i32 >> (32 - bits),
                false => 0,
            })
        };
        Pixels { lower: corner(0), upper: corner(16) }
    }

    fn set_extent(&mut self, dim: usize, extent: u64) {
        self.0[8 + dim] = extent.wrapping_sub(1) as u32;
    }

    fn set_step(&mut self, dim: usize, step: u32) {
        self.set(13, 3 * dim, 3, step.wrapping_sub(1));
    }

    fn set_side(&mut self, dim: usize, side: u32) {
        match dim.checked_sub(1) {
            None => self.set(13, 24, 8, side.wrapping_sub(1)),
            Some(above) => self.set(14, 8 * above, 8, side.wrapping_sub(1)),
        }
    }
}

pub(crate) fn encode(spec: &TensorMapSpec) -> [u8; 128] {
    let mut words = Words([0; 32]);
    words.set_address(spec.address.0);
    words.set(2, 4, 3, spec.extents.len() as u32 - 1);
    let code = match (spec.dtype, spec.dtype.bits()) {
        (DType::I32, _) => 3,
        (DType::I64, _) => 5,
        (DType::F16, _) => 6,
        (DType::F32, _) => 7,
        (DType::F64, _) => 9,
        (DType::BF16, _) => 10,
        (DType::TF32, _) => 11,
        (_, 64) => 4,
        (_, 32) => 2,
        (_, 16) => 1,
        _ => 0,
    };
    words.set_type(code).unwrap_or_default();
    let swizzle = match spec.swizzle {
        Swizzle::None => 0,
        Swizzle::B32 => 1,
        Swizzle::B64 => 2,
        Swizzle::B128 => 3,
    };
    words.set(2, 13, 2, swizzle);
    words.set(2, 15, 1, u32::from(spec.outside == OutOfBounds::Nan));
    for (dim, (&extent, &side)) in spec.extents.iter().zip(&spec.tile).enumerate() {
        words.set_extent(dim, extent);
        words.set_side(dim, side);
    }
    for (below, &stride) in spec.strides.iter().enumerate() {
        words.set_stride(below, stride);
    }
    words.bytes()
}

/// Why a walk is none that the engine takes, if it is none (CUDA driver API, `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`).
pub(crate) fn check_walk(spec: &TensorMapSpec, walk: &Walk) -> Result<(), String> {
    let rank = spec.extents.len();
    if !walk.steps.is_empty() && (walk.steps.len() != rank || walk.steps.iter().any(|step| !(1..=8).contains(step))) {
        return Err(format!("steps are 1 to 8, one for each of {rank} dimensions: got {:?}", walk.steps));
    }
    let Some(im2col) = &walk.im2col else { return Ok(()) };
    if !(3..=5).contains(&rank) {
        return Err(format!("the im2col mode has 3 to 5 dimensions (channels, width, ..., images), not {rank}"));
    }
    let spatial = rank - 2;
    let most = 1 << (CORNER_BITS[spatial - 1] - 1);
    let fits = |corner: &[i32]| corner.len() == spatial && corner.iter().all(|at| (-most..most).contains(at));
    if !fits(&im2col.lower) || !fits(&im2col.upper) {
        return Err(format!(
            "corners of the im2col mode have {spatial} coordinates from {} to {}: got {:?} and {:?}",
            -most,
            most - 1,
            im2col.lower,
            im2col.upper
        ));
    }
    if !(1..=256).contains(&im2col.channels) || !(1..=1024).contains(&im2col.pixels) {
        return Err(format!("{} channels of {} pixels: 1 to 256 of 1 to 1024 are possible", im2col.channels, im2col.pixels));
    }
    Ok(())
}

/// The same with a walk of its own.
pub(crate) fn encode_walk(spec: &TensorMapSpec, walk: &Walk) -> [u8; 128] {
    let mut words = Words::of(&encode(spec));
    for (dim, &step) in walk.steps.iter().enumerate() {
        words.set_step(dim, step);
    }
    if let Some(im2col) = &walk.im2col {
        words.0[14] = 0;
        words.set_pixels(im2col);
    }
    words.bytes()
}

/// Reads a map back; an error says what is wrong with the bytes.
pub(crate) fn decode(bytes: &[u8; 128]) -> Result<Map, String> {
    let words = Words::of(bytes);
    let dtype = words.dtype().ok_or("the tensor map's element type is none that is executed: `u8` to `tf32.ftz`")?;
    let rank = words.get(2, 4, 3) as usize + 1;
    if rank > 5 {
        return Err(format!("the tensor map has {rank} dimensions"));
    }
    if words.get(2, 11, 2) != 0 {
        return Err("the tensor map is interleaved, which is not executed by this emulator".to_owned());
    }
    let mut map = Map {
        dtype,
        rank,
        swizzle: words.get(2, 13, 2) as u8,
        nan_outside: words.get(2, 15, 1) == 1,
        address: u64::from(words.0[0]) | u64::from(words.0[1]) << 32,
        extents: [1; 5],
        strides: [u64::from(dtype.bits() / 8); 5],
        tile: [1; 5],
        steps: [1; 5],
        pixels: None,
    };
    if map.nan_outside && !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::TF32 | DType::F64) {
        return Err(format!("the tensor map fills what lies outside with NaN, which {dtype} does not have"));
    }
    for dim in 0..rank {
        map.extents[dim] = u64::from(words.0[8 + dim]) + 1;
        // Without interleaving the engine takes every element of dimension 0 (CUDA driver API, cuTensorMapEncodeTiled).
        map.steps[dim] = if dim == 0 { 1 } else { words.get(13, 3 * dim, 3) + 1 };
        let side = if dim == 0 { words.get(13, 24, 8) } else { words.get(14, 8 * (dim - 1), 8) } + 1;
        map.tile[dim] = side.div_ceil(map.steps[dim]);
        if let Some(below) = dim.checked_sub(1) {
            map.strides[dim] = (u64::from(words.0[3 + below]) | u64::from(words.get(7, 4 * below, 4)) << 32) << 4;
        }
    }
    if words.get(2, 17, 1) == 1 {
        let spatial = rank.checked_sub(2).filter(|spatial| (1..=3).contains(spatial));
        map.pixels = Some(words.pixels(spatial.ok_or("a tensor map of the im2col mode has 3 to 5 dimensions")?));
        // Steps are between pixels: they make nothing smaller.
        map.tile = [words.get(13, 24, 8) + 1, words.get(2, 18, 10) + 1, 1, 1, 1];
    }
    Ok(map)
}

/// Bytes of a map that say something.
pub(crate) const SAID: usize = 60;

/// Changes one field, as `tensormap.replace` does; gives the words that it lies in.
pub(crate) fn replace(bytes: &mut [u8; 128], field: Word, index: u32, value: u64) -> Result<Range<usize>, String> {
    let index = index as usize;
    if index > 4 {
        return Err(format!("a tensor map has no dimension {index}"));
    }
    let mut words = Words::of(bytes);
    let lies = match field {
        Word::GlobalAddress => 0..2,
        Word::GlobalDim => 8 + index..9 + index,
        Word::GlobalStride => 3 + index..8,
        Word::ElementStride => 13..14,
        Word::BoxDim => 13 + usize::from(index > 0)..14 + usize::from(index > 0),
        _ => 2..3,
    };
    match field {
        Word::GlobalAddress => words.set_address(value),
        Word::Rank if value < 5 => words.set(2, 4, 3, value as u32),
        Word::BoxDim => words.set_side(index, value as u32),
        Word::GlobalDim => words.set_extent(index, value),
        Word::GlobalStride if index < 4 => words.set_stride(index, value),
        Word::ElementStride => words.set_step(index, value as u32),
        Word::InterleaveLayout if value < 3 => words.set(2, 11, 2, value as u32),
        Word::SwizzleMode if value < 4 => words.set(2, 13, 2, value as u32),
        Word::FillMode if value < 2 => words.set(2, 15, 1, value as u32),
        Word::Elemtype => {
            let code = u32::try_from(value).ok().and_then(|code| words.set_type(code));
            code.ok_or_else(|| format!("element type {value} of tensor maps is not executed: 0 (`u8`) to 12 (`tf32.ftz`) are"))?;
        }
        _ => return Err(format!("`{field}` of a tensor map cannot be {value}")),
    }
    *bytes = words.bytes();
    Ok(lies)
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
    match map.dtype {
        _ if !map.nan_outside => 0,
        DType::F64 => 0x7ff8_0000_0000_0000,
        DType::F32 | DType::TF32 => 0x7fc0_0000,
        DType::F16 => 0x7e00,
        _ => 0x7fc0,
    }
}

#[cfg(test)]
mod tests {
    use tessera_driver::{DevicePtr, L2Promotion};

    use super::*;

    /// What an H200 made of 128 zeros by one `tensormap.replace`: field, dimension, value, word, the word's bits.
    const SEEN: [(Word, u32, u64, usize, u32); 34] = [
        (Word::GlobalAddress, 0, 0x1234_5678_9abc_de00, 0, 0x9abc_de00),
        (Word::GlobalAddress, 0, 0x1234_5678_9abc_de00, 1, 0x1234_5678),
        (Word::Rank, 0, 1, 2, 0x10),
        (Word::Rank, 0, 4, 2, 0x40),
        (Word::BoxDim, 0, 0x25, 13, 0x2400_0000),
        (Word::BoxDim, 0, 256, 13, 0xff00_0000),
        (Word::BoxDim, 1, 0x25, 14, 0x24),
        (Word::BoxDim, 4, 0x25, 14, 0x2400_0000),
        (Word::GlobalDim, 0, 0x0123_4567, 8, 0x0123_4566),
        (Word::GlobalDim, 4, 0x0123_4567, 12, 0x0123_4566),
        (Word::GlobalStride, 0, 0x12_3456_7890, 3, 0x2345_6789),
        (Word::GlobalStride, 0, 0x12_3456_7890, 7, 0x1),
        (Word::GlobalStride, 3, 0x12_3456_7890, 6, 0x2345_6789),
        (Word::GlobalStride, 3, 0x12_3456_7890, 7, 0x1000),
        (Word::ElementStride, 0, 3, 13, 0x2),
        (Word::ElementStride, 1, 3, 13, 0x10),
        (Word::ElementStride, 4, 3, 13, 0x2000),
        (Word::Elemtype, 0, 1, 2, 0x80),
        (Word::Elemtype, 0, 2, 2, 0x100),
        (Word::Elemtype, 0, 5, 2, 0x280),
        (Word::Elemtype, 0, 7, 2, 0x380),
        (Word::Elemtype, 0, 8, 2, 0x400),
        (Word::Elemtype, 0, 12, 2, 0x1_0400),
        (Word::InterleaveLayout, 0, 1, 2, 0x800),
        (Word::InterleaveLayout, 0, 2, 2, 0x1000),
        (Word::SwizzleMode, 0, 1, 2, 0x2000),
        (Word::SwizzleMode, 0, 2, 2, 0x4000),
        (Word::SwizzleMode, 0, 3, 2, 0x6000),
        (Word::FillMode, 0, 1, 2, 0x8000),
        (Word::Rank, 0, 0, 2, 0),
        (Word::BoxDim, 0, 1, 13, 0),
        (Word::GlobalDim, 0, 1, 8, 0),
        (Word::ElementStride, 0, 1, 13, 0),
        (Word::Elemtype, 0, 0, 2, 0),
    ];

    #[test]
    fn fields_lie_where_the_chip_has_them() {
        for (field, index, value, word, bits) in SEEN {
            let mut bytes = [0; 128];
            replace(&mut bytes, field, index, value).unwrap();
            assert_eq!(Words::of(&bytes).0[word], bits, "{field} {index} = {value:#x}");
        }
    }

    #[test]
    fn zeros_are_a_vector_of_one_byte() {
        let map = decode(&[0; 128]).unwrap();
        assert_eq!((map.dtype, map.rank, map.extents, map.tile), (DType::U8, 1, [1; 5], [1; 5]));
    }

    #[test]
    fn every_type_comes_back_with_its_width() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.bits() >= 8) {
            let spec = TensorMapSpec {
                dtype,
                address: DevicePtr(0x7_0000_0010),
                extents: vec![1 << 32, 7],
                strides: vec![(1 << 40) - 16],
                tile: vec![16, 256],
                swizzle: Swizzle::B64,
                l2: L2Promotion::None,
                outside: OutOfBounds::Zero,
            };
            let map = decode(&encode(&spec)).unwrap();
            assert_eq!((map.dtype.bits(), map.rank, map.swizzle), (dtype.bits(), 2, 2), "{dtype}");
            assert_eq!((map.extents[..2].to_vec(), map.strides[1], map.address), (spec.extents, spec.strides[0], spec.address.0));
            assert_eq!(map.tile[..2], spec.tile);
        }
    }
}
