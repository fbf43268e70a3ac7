//! Matrix instructions: which a target has, for which factors and sums, in which shapes, and where each operand lies.
//!
//! A row is an instruction of PTX (ISA, "Matrix multiply-accumulate" and "Asynchronous warpgroup level matrix multiply-accumulate") for one depth;
//! among those of one factor the row that does most at once stands first. How long one takes follows from the product's peak: a
//! warpgroup's 64 x 256 x 16 product of `bf16` on an H200 holds the tensor cores for 128 clocks.
//!
//! ```
//! use tessera_types::{Arch, DType, Device, Issuer};
//! let device = Device::by_name("h200").unwrap();
//! let row = device.arch.matrix_instructions(Issuer::Warpgroup, DType::BF16).next().unwrap();
//! assert_eq!((row.rows, row.depth), (64, 16));
//! assert_eq!(row.clocks(256, device, DType::F32), Some(128.0));
//! assert!(Arch::Sm100a.matrix_instructions(Issuer::Warpgroup, DType::BF16).next().is_none());
//! ```

use crate::arch::Arch;
use crate::device::{Device, Unit};
use crate::dtype::DType;

/// Who issues a matrix instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Issuer {
    /// A warp, which waits for the result: `mma.sync`.
    Warp,
    /// Four warps, which go on meanwhile: `wgmma.mma_async`.
    Warpgroup,
}

/// Where an operand of a matrix instruction may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperandPlace {
    /// Registers of the threads that issue it.
    Registers,
    /// Shared memory.
    Shared,
}

/// A matrix instruction: `rows x depth` times `depth x columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixInstruction {
    /// Who issues it.
    pub issuer: Issuer,
    /// Types of the factors.
    pub factors: &'static [DType],
    /// Types that products are summed in.
    pub sums: &'static [DType],
    /// Rows of the left factor.
    pub rows: u32,
    /// Columns of the right factor that it can be issued for, ascending.
    pub columns: &'static [u32],
    /// Extent of the contraction.
    pub depth: u32,
    /// Where the left factor may lie.
    pub left: &'static [OperandPlace],
    /// Where the right factor may lie.
    pub right: &'static [OperandPlace],
    /// Where the sums lie.
    pub sum: OperandPlace,
}

impl MatrixInstruction {
    /// Clocks for which it holds the tensor cores of a multiprocessor, which follow from the product's peak; `None` where the product
    /// states none.
    pub fn clocks(&self, columns: u32, device: &Device, sum: DType) -> Option<f64> {
        let peak = device.peak_of(Unit::Tensor, *self.factors.first()?, sum)?;
        Some(f64::from(2 * self.rows * columns * self.depth) / f64::from(peak.per_clock_sm))
    }
}

impl Arch {
    /// The instructions for factors of a type, the largest first. Signs are a matter of the instruction's words: `i8` stands for both.
    pub fn matrix_instructions(self, issuer: Issuer, factor: DType) -> impl Iterator<Item = &'static MatrixInstruction> {
        self.products().iter().copied().flatten().filter(move |row| row.issuer == issuer && row.factors.contains(&factor))
    }
}

use OperandPlace::{Registers, Shared};

const HALF: &[DType] = &[DType::F16];
const BF16: &[DType] = &[DType::BF16];
const TF32: &[DType] = &[DType::TF32];
const FP8: &[DType] = &[DType::F8E4M3, DType::F8E5M2];
const I8: &[DType] = &[DType::I8];
const F64: &[DType] = &[DType::F64];
const F32: &[DType] = &[DType::F32];
const I32: &[DType] = &[DType::I32];
const F16_OR_F32: &[DType] = &[DType::F16, DType::F32];

/// An instruction of a warp, of which all operands lie in registers.
const fn warp(factors: &'static [DType], sums: &'static [DType], [rows, columns, depth]: [u32; 3]) -> MatrixInstruction {
    let columns: &'static [u32] = if columns == 8 { &[8] } else { panic!("a shape that no row has") };
    MatrixInstruction {
        issuer: Issuer::Warp,
        factors,
        sums,
        rows,
        columns,
        depth,
        left: &[Registers],
        right: &[Registers],
        sum: Registers,
    }
}

/// An instruction of a warpgroup, whose right factor lies in shared memory.
const fn warpgroup(factors: &'static [DType], sums: &'static [DType], columns: &'static [u32], depth: u32) -> MatrixInstruction {
    let left: &'static [OperandPlace] = &[Shared, Registers];
    MatrixInstruction {
        issuer: Issuer::Warpgroup,
        factors,
        sums,
        rows: 64,
        columns,
        depth,
        left,
        right: &[Shared],
        sum: Registers,
    }
}

/// Multiples of 8 up to 256.
const EIGHTS: &[u32] = &[
    8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216,
    224, 232, 240, 248, 256,
];

/// What integers take: 8, 24 and multiples of 16.
const SIXTEENS: &[u32] = &[8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];

const TURING_HALVES: &[MatrixInstruction] = &[warp(HALF, F16_OR_F32, [16, 8, 8])];

const HALVES: &[MatrixInstruction] = &[
    warp(HALF, F16_OR_F32, [16, 8, 16]),
    warp(HALF, F16_OR_F32, [16, 8, 8]),
    warp(BF16, F32, [16, 8, 16]),
    warp(BF16, F32, [16, 8, 8]),
];

const TF32S: &[MatrixInstruction] = &[warp(TF32, F32, [16, 8, 8]), warp(TF32, F32, [16, 8, 4])];

const BYTES: &[MatrixInstruction] = &[warp(I8, I32, [16, 8, 32]), warp(I8, I32, [16, 8, 16])];

const FLOATS_OF_A_BYTE: &[MatrixInstruction] = &[warp(FP8, F16_OR_F32, [16, 8, 32])];

const SMALL_DOUBLES: &[MatrixInstruction] = &[warp(F64, F64, [8, 8, 4])];

const LARGE_DOUBLES: &[MatrixInstruction] =
    &[warp(F64, F64, [16, 8, 16]), warp(F64, F64, [16, 8, 8]), warp(F64, F64, [16, 8, 4])];

const OF_WARPGROUPS: &[MatrixInstruction] = &[
    warpgroup(HALF, F16_OR_F32, EIGHTS, 16),
    warpgroup(BF16, F32, EIGHTS, 16),
    warpgroup(TF32, F32, EIGHTS, 8),
    warpgroup(FP8, F16_OR_F32, EIGHTS, 32),
    warpgroup(I8, I32, SIXTEENS, 32),
];

/// The instructions of a target, in groups.
pub(crate) type Products = &'static [&'static [MatrixInstruction]];

pub(crate) const VOLTA: Products = &[];
pub(crate) const TURING: Products = &[TURING_HALVES];
pub(crate) const AMPERE: Products = &[HALVES, TF32S, BYTES, SMALL_DOUBLES];
pub(crate) const ADA: Products = &[HALVES, TF32S, BYTES, SMALL_DOUBLES, FLOATS_OF_A_BYTE];
/// Hopper's instructions of a warp, which Blackwell has too.
pub(crate) const HOPPER: Products = &[HALVES, TF32S, BYTES, FLOATS_OF_A_BYTE, LARGE_DOUBLES, SMALL_DOUBLES];
pub(crate) const HOPPER_A: Products = &[HALVES, TF32S, BYTES, FLOATS_OF_A_BYTE, LARGE_DOUBLES, SMALL_DOUBLES, OF_WARPGROUPS];
