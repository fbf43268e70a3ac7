//! Products of matrices: a warp's and a warpgroup's, and where their operands are.

use tessera_ptx::Type;

use super::{Pred, Reg};
use crate::ops::round::Directed;

/// A warp-level matrix product.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) shape: (u16, u16, u16),
    pub(crate) types: [Type; 4],
    pub(crate) d: Vec<Reg>,
    pub(crate) a: Vec<Reg>,
    pub(crate) b: Vec<Reg>,
    pub(crate) c: Vec<Reg>,
    pub(crate) saturate: bool,
    /// `.xor.popc` rather than `.and.popc`, for single bits.
    pub(crate) xor: bool,
    /// Of `f64` products.
    pub(crate) directed: Option<Directed>,
    /// Whether A and B are spread by rows, which `mma.m8n8k4` alone asks.
    pub(crate) by_rows: [bool; 2],
    /// For sparse A.
    pub(crate) sparse: Option<Metadata>,
}

/// Where the stored half of a sparse A stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metadata {
    pub(crate) reg: Reg,
    /// Which threads of a quad give it.
    pub(crate) selector: u32,
    /// Whether places must rise, as `.sp::ordered_metadata` promises.
    pub(crate) ordered: bool,
}

/// A warpgroup's matrix product.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) n: u16,
    pub(crate) k: u16,
    pub(crate) types: [Type; 3],
    pub(crate) d: Vec<Reg>,
    pub(crate) a: WgmmaA,
    pub(crate) b: Reg,
    pub(crate) accumulate: Pred,
    pub(crate) negate_a: bool,
    pub(crate) negate_b: bool,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
    pub(crate) saturate: bool,
    /// For sparse A.
    pub(crate) sparse: Option<Metadata>,
}

impl Wgmma {
    /// The registers of A, which a `wgmma.fence` orders as it does the accumulators.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Reg> {
        let a: &[Reg] = if let WgmmaA::Registers(regs) = &self.a { regs } else { &[] };
        a.iter()
    }

    /// The register that says where A stands: read while the product is under way. (On an H200 products of 64 rounds were wrong whose metadata the
    /// next round had written meanwhile.)
    pub(crate) fn metadata(&self) -> Option<&Reg> {
        self.sparse.as_ref().map(|metadata| &metadata.reg)
    }
}

/// Where operand A is.
#[derive(Clone, Debug)]
pub(crate) enum WgmmaA {
    Descriptor(Reg),
    Registers(Vec<Reg>),
}
