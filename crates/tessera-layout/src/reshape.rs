//! Distributions of derived tiles: a reduction's result, a broadcast operand, a transposed or reshaped tile.
//!
//! None of these moves data between threads. `permute` and `broadcast` may number the registers anew where two dimensions repeat
//! (repeats are row-major over dimensions); `conversion` between the old and the new then is a register permutation, which costs
//! nothing.

use crate::LayoutError;
use crate::distribution::{Distribution, dims};
use crate::linear::{Axis, Dims, LinearLayout};
use crate::matrix::Echelon;

impl Distribution {
    /// The layout of a reduction's result along `dim` (which disappears): every thread that held a part holds the whole, so lanes and
    /// warps that moved along `dim` hold copies. Registers that became copies within a thread are dropped.
    ///
    /// # Errors
    /// `dim` is not a dimension.
    pub fn slice(&self, dim: usize) -> Result<Distribution, LayoutError> {
        self.check(dim)?;
        let mut shape = dims(self.shape().iter().copied());
        shape.remove(dim);
        Distribution::new(&shape, without_copies(&self.core().slice(dim)), self.warps())
    }

    /// A dimension of extent 1 put in before dimension `dim`.
    ///
    /// # Errors
    /// `dim` is beyond the rank.
    pub fn expand(&self, dim: usize) -> Result<Distribution, LayoutError> {
        if dim > self.rank() {
            return Err(LayoutError::Rank { expected: self.rank(), found: dim });
        }
        let mut shape = dims(self.shape().iter().copied());
        shape.insert(dim, 1);
        Distribution::new(&shape, self.core().expand(dim), self.warps())
    }

    /// Dimensions of extent 1 stretched to `shape`: each thread holds all the copies of what it had.
    ///
    /// # Errors
    /// Another rank, or a dimension that changes and was not 1.
    pub fn broadcast(&self, shape: &[u64]) -> Result<Distribution, LayoutError> {
        if shape.len() != self.rank() {
            return Err(LayoutError::Rank { expected: self.rank(), found: shape.len() });
        }
        let mut core = self.core().clone();
        for dim in (0..shape.len()).rev().filter(|&dim| shape[dim] != self.shape()[dim]) {
            if self.shape()[dim] != 1 || shape[dim] == 0 {
                return Err(LayoutError::Reshape);
            }
            core = without_copies(&core.slice(dim)).expand(dim);
            core = core.product(&LinearLayout::identity(Axis::Register, 1 << shape[dim].trailing_zeros(), dim, shape.len()));
        }
        Distribution::new(shape, core, self.warps())
    }

    /// Dimension `d` of the result is dimension `order[d]` of `self`.
    ///
    /// # Errors
    /// `order` is no permutation of the dimensions.
    pub fn permute(&self, order: &[usize]) -> Result<Distribution, LayoutError> {
        let mut sorted: Vec<usize> = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.rank()) {
            return Err(LayoutError::Rank { expected: self.rank(), found: order.len() });
        }
        let shape = dims(order.iter().map(|&dim| self.shape()[dim]));
        Distribution::new(&shape, self.core().permute(order), self.warps())
    }

    /// The same elements in row-major order under another shape of the same product.
    ///
    /// # Errors
    /// The product differs, or a dimension would be split or merged that has holes, an odd factor or repeats: such a tile changes
    /// its layout first.
    pub fn reshape(&self, shape: &[u64]) -> Result<Distribution, LayoutError> {
        let extents = self.core_under(shape).ok_or(LayoutError::Reshape)?;
        Distribution::new(shape, self.core().reshape(&extents)?, self.warps())
    }

    /// The core's extents when the tile has the shape `to`. Dimensions are taken in groups of equal product: a group with the same
    /// extents on both sides keeps its core, any other one has to be covered by the core exactly.
    fn core_under(&self, to: &[u64]) -> Option<Dims> {
        let from = self.shape();
        let mut extents = Dims::new();
        let (mut i, mut j) = (0, 0);
        while i < from.len() || j < to.len() {
            let (first, start) = (i, j);
            let (mut a, mut b) = (1u64, 1u64);
            while a != b || (i == first && j == start) {
                if a <= b && i < from.len() {
                    a = a.checked_mul(from[i])?;
                    i += 1;
                } else if j < to.len() {
                    b = b.checked_mul(to[j])?;
                    j += 1;
                } else {
                    return None;
                }
                if i == from.len() && j == to.len() && a != b {
                    return None;
                }
            }
            let mut kept = (first..i).filter(|&dim| from[dim] != 1);
            let one = (kept.next(), kept.next());
            let unit_cores = (first..i).all(|dim| from[dim] != 1 || self.core().extent(dim) == 1);
            let same =
                to[start..j].iter().filter(|extent| **extent != 1).eq(from[first..i].iter().filter(|extent| **extent != 1));
            if let (Some(dim), None) = one
                && same
                && unit_cores
            {
                let core = self.core().extent(dim);
                extents.extend(to[start..j].iter().map(|&extent| if extent == 1 { 1 } else { core }));
            } else if (first..i).all(|dim| self.core().extent(dim) == from[dim]) {
                extents.extend(to[start..j].iter().copied());
            } else {
                return None;
            }
        }
        Some(extents)
    }

    fn check(&self, dim: usize) -> Result<(), LayoutError> {
        if dim < self.rank() { Ok(()) } else { Err(LayoutError::Rank { expected: self.rank(), found: dim }) }
    }
}

/// The layout without register bits whose elements lower registers of the same thread hold already.
pub(crate) fn without_copies(layout: &LinearLayout) -> LinearLayout {
    let dependent = Echelon::new(layout.packed_bases(Axis::Register)).dependent();
    layout.restrict(Axis::Register, !dependent)
}
