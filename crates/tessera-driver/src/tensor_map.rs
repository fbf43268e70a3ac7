//! Tensor maps: what the bulk tensor copy engine needs to know about a tensor in device memory.
//!
//! A [`TensorMapSpec`] states it in plain values; [`TensorMapSpec::check`] applies the engine's published limits, so that a
//! wrong map is an error that says which limit, whichever back end encodes it. Dimension 0 is the contiguous one.

use tessera_types::{DType, L2Promotion, OutOfBounds, Swizzle};

use crate::handle::DevicePtr;

/// A tiled tensor map, before it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// The element type; sub-byte types have no tiled map here.
    pub dtype: DType,
    /// Where element 0 is.
    pub address: DevicePtr,
    /// Elements along each dimension, the contiguous one first.
    pub extents: Vec<u64>,
    /// Bytes between neighbours along dimensions 1 and up.
    pub strides: Vec<u64>,
    /// Elements of the box that one copy moves.
    pub tile: Vec<u32>,
    /// The permutation in shared memory.
    pub swizzle: Swizzle,
    /// Cache promotion.
    pub l2: L2Promotion,
    /// What lies outside.
    pub outside: OutOfBounds,
}

/// Which of the engine's limits a [`TensorMapSpec`] breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorMapError {
    /// The rank is not 1 to 5, or the lists disagree about it.
    #[error("a tensor map has 1 to 5 dimensions: got {extents} extents, {strides} strides, a box of {tile}")]
    Rank {
        /// Length of `extents`.
        extents: usize,
        /// Length of `strides`.
        strides: usize,
        /// Length of `tile`.
        tile: usize,
    },
    /// The element type has no tensor map.
    #[error("no tensor map holds elements of type `{0}`")]
    Type(DType),
    /// The address is not aligned to 16 bytes.
    #[error("the tensor at {0} is not aligned to 16 bytes")]
    Address(DevicePtr),
    /// An extent is 0 or beyond 2^32.
    #[error("dimension {dim} has {extent} elements: 1 to 2^32 are possible")]
    Extent {
        /// Which dimension.
        dim: usize,
        /// Its extent.
        extent: u64,
    },
    /// A stride is not a multiple of 16 bytes or beyond 2^40.
    #[error("dimension {dim} has a stride of {bytes} bytes: a multiple of 16 below 2^40 is needed")]
    Stride {
        /// Which dimension.
        dim: usize,
        /// Its stride.
        bytes: u64,
    },
    /// A side of the box is not 1 to 256.
    #[error("the box has {side} elements along dimension {dim}: 1 to 256 are possible")]
    Side {
        /// Which dimension.
        dim: usize,
        /// The side.
        side: u32,
    },
    /// The contiguous side of the box has a wrong size in bytes.
    #[error("the box's rows of {bytes} bytes must be a multiple of 16{}", at_most(*span))]
    Row {
        /// Bytes of a row of the box.
        bytes: u32,
        /// The swizzle's span, where there is one.
        span: Option<u32>,
    },
    /// NaN was asked for integers.
    #[error("elements of type `{0}` have no NaN to fill with")]
    Fill(DType),
}

fn at_most(span: Option<u32>) -> String {
    span.map(|bytes| format!(" and at most the swizzle's {bytes}")).unwrap_or_default()
}

impl TensorMapSpec {
    /// Applies the engine's limits.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let rank = self.extents.len();
        if !(1..=5).contains(&rank) || self.strides.len() + 1 != rank || self.tile.len() != rank {
            return Err(TensorMapError::Rank { extents: rank, strides: self.strides.len(), tile: self.tile.len() });
        }
        if self.dtype.bits() < 8 {
            return Err(TensorMapError::Type(self.dtype));
        }
        if !self.address.0.is_multiple_of(16) {
            return Err(TensorMapError::Address(self.address));
        }
        for (dim, &extent) in self.extents.iter().enumerate() {
            if extent == 0 || extent > 1 << 32 {
                return Err(TensorMapError::Extent { dim, extent });
            }
        }
        for (below, &bytes) in self.strides.iter().enumerate() {
            if !bytes.is_multiple_of(16) || bytes >= 1 << 40 {
                return Err(TensorMapError::Stride { dim: below + 1, bytes });
            }
        }
        for (dim, &side) in self.tile.iter().enumerate() {
            if !(1..=256).contains(&side) {
                return Err(TensorMapError::Side { dim, side });
            }
        }
        let bytes = self.tile[0] * (self.dtype.bits() / 8);
        let span = self.swizzle.span();
        if !bytes.is_multiple_of(16) || span.is_some_and(|span| bytes > span) {
            return Err(TensorMapError::Row { bytes, span });
        }
        // Formats of 8 bits are bytes to the engine.
        let has_nan = self.dtype.class() == tessera_types::NumberClass::Float && self.dtype.bits() > 8;
        if self.outside == OutOfBounds::Nan && !has_nan {
            return Err(TensorMapError::Fill(self.dtype));
        }
        Ok(())
    }

    /// Bytes that one box occupies in shared memory, which is also what its arrival counts.
    pub fn tile_bytes(&self) -> u64 {
        self.tile.iter().map(|&side| u64::from(side)).product::<u64>() * u64::from(self.dtype.bits()) / 8
    }
}

/// An encoded tensor map: 128 bytes that a kernel takes by value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct TensorMap {
    bytes: [u8; 128],
}

impl TensorMap {
    /// Takes bytes that a back end encoded.
    pub const fn from_bytes(bytes: [u8; 128]) -> TensorMap {
        TensorMap { bytes }
    }

    /// The bytes.
    pub const fn bytes(&self) -> &[u8; 128] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TensorMapSpec {
        TensorMapSpec {
            dtype: DType::BF16,
            address: DevicePtr(0x1000),
            extents: vec![4096, 4096],
            strides: vec![8192],
            tile: vec![64, 128],
            swizzle: Swizzle::B128,
            l2: L2Promotion::B256,
            outside: OutOfBounds::Zero,
        }
    }

    #[test]
    fn a_swizzled_box_of_64_bf16_is_legal() {
        assert_eq!(spec().check(), Ok(()));
        assert_eq!(spec().tile_bytes(), 16384);
    }

    #[test]
    fn each_limit_is_named() {
        type Breakage = fn(&mut TensorMapSpec);
        let broken: [(Breakage, TensorMapError); 8] = [
            (|s| s.tile[0] = 72, TensorMapError::Row { bytes: 144, span: Some(128) }),
            (|s| s.tile[1] = 257, TensorMapError::Side { dim: 1, side: 257 }),
            (|s| s.strides[0] = 8200, TensorMapError::Stride { dim: 1, bytes: 8200 }),
            (|s| s.extents[1] = 0, TensorMapError::Extent { dim: 1, extent: 0 }),
            (|s| s.address = DevicePtr(8), TensorMapError::Address(DevicePtr(8))),
            (|s| s.strides.clear(), TensorMapError::Rank { extents: 2, strides: 0, tile: 2 }),
            (|s| s.dtype = DType::F4E2M1, TensorMapError::Type(DType::F4E2M1)),
            (
                |s| {
                    s.dtype = DType::I32;
                    s.tile[0] = 32;
                    s.outside = OutOfBounds::Nan;
                },
                TensorMapError::Fill(DType::I32),
            ),
        ];
        for (breakage, expected) in broken {
            let mut spec = spec();
            breakage(&mut spec);
            assert_eq!(spec.check(), Err(expected));
        }
    }
}
