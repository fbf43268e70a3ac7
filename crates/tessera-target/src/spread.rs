//! Factors of products that threads hold, and that no instruction takes from there: they go through the operation's buffer in shared memory, where
//! it is small in parts ([`parts`](super::parts)).
//!
//! ```text
//! 128 x 256 by 256 x 128 of bf16 through 32768 bytes: four times
//!     st.shared of 64 columns of the left factor and 64 rows of the right one     meet     multiply, add to the sums     meet
//! ```
//!
//! Invariant: sums are those of a product by all steps at once, bit by bit. They stay in the type that they are added up in from part to part.

use tessera_ir::{Elem, Shape, SharedType, Value, bug};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::Value as Reg;

use super::bound::{Buffer, Regs};
use super::lowering::{Lowered, Lowering};
use super::parts::Spot;
use super::product::Signs;

/// A factor that threads hold, on its way through shared memory in equal parts of its steps.
pub(super) struct Spread {
    elem: Elem,
    /// Each element, and where it lies among all: steps one behind the other, where there is more than one part.
    elements: Vec<(Reg, Spot)>,
    /// How a part lies there.
    lies: SharedType,
    /// Bytes of a part.
    pub(super) bytes: u64,
}

impl Lowering<'_> {
    /// A product of factors that threads hold, and of their scales. They go through shared memory, as many steps of the contraction at a time as
    /// the operation's buffer has room for: each part is added to the sums of the part before.
    pub(super) fn of_registers(&mut self, factors: &[Value], acc: Value, signs: Signs) -> Lowered<Regs> {
        let (mut sizes, mut steps) = (Vec::new(), Vec::new());
        for (position, &factor) in factors.iter().enumerate() {
            let (layout, elem) = (self.layout(factor)?, self.elem(factor)?);
            sizes.push(layout.elements() * elem.bytes());
            steps.push(layout.shape()[contraction(position, layout.rank())]);
        }
        let fewest = steps.iter().copied().min().unwrap_or_else(|| bug!("a product without factors"));
        let possible = (1..=fewest).filter(|&parts| steps.iter().all(|steps| steps.is_multiple_of(parts)));
        let taken = |parts: u64| (parts, sizes.iter().map(|size| (size / parts).next_multiple_of(16)).sum::<u64>());
        let ways: Vec<(u64, u64)> = possible.map(taken).collect();
        let ((_, whole), (_, least)) = (ways[0], ways[ways.len() - 1]);
        let room = self.room_below(whole).unwrap_or(whole);
        let fits = ways.into_iter().find(|&(_, bytes)| bytes <= room);
        let (parts, bytes) = fits.ok_or_else(|| self.broken("a buffer that has no room for a step of the contraction"))?;

        let base = self.exchange_of(bytes, least, 16)?;
        let mut spread = Vec::new();
        for (position, &factor) in factors.iter().enumerate() {
            spread.push(self.spread_factor(factor, position, parts)?);
        }
        let mut sums = self.wide_sums(acc)?;
        for part in 0..parts {
            if part > 0 {
                self.meet();
            }
            let sides = self.spread_part(&spread, part, base);
            sums = self.added(&sides, acc, sums, signs)?;
        }
        self.narrow_sums(acc, sums)
    }

    /// The factor or scale at a position among a product's, to be written to shared memory: row-major, or by its steps where it goes there in parts.
    pub(super) fn spread_factor(&mut self, factor: Value, position: usize, parts: u64) -> Lowered<Spread> {
        let (layout, regs, elem, dtype) = (self.layout(factor)?, self.regs(factor)?, self.elem(factor)?, self.dtype(factor)?);
        let axis = contraction(position, layout.rank());
        let mut shape: Shape = layout.shape().iter().map(|&extent| extent as u32).collect();
        shape[axis] /= parts as u32;
        let mut lies = SharedType::new(shape, dtype);
        if parts > 1 {
            lies.order =
                [axis].into_iter().chain((0..layout.rank()).filter(|&other| other != axis)).map(|axis| axis as u32).collect();
        }
        let elements = self.given(elem, (&layout, &regs), &lies.strides());
        Ok(Spread { elem, elements, lies, bytes: layout.elements() / parts * elem.bytes() })
    }

    /// A part of factors in shared memory, after all threads have written it.
    pub(super) fn spread_part(&mut self, factors: &[Spread], part: u64, base: Reg) -> Vec<Buffer> {
        let mut offset = 0;
        let mut buffers = Vec::new();
        for factor in factors {
            let start = self.b.u32(offset as u32);
            let corner = self.b.add(Ty::U32, base, start);
            self.put_part(factor.elem, &factor.elements, part * factor.bytes..(part + 1) * factor.bytes, corner);
            buffers.push(Buffer::whole(corner, &factor.lies));
            offset += factor.bytes.next_multiple_of(16);
        }
        self.meet();
        buffers
    }
}

/// The axis that is summed over, of the factor or scale at a position: left ones and right ones take turns.
fn contraction(position: usize, rank: usize) -> usize {
    if position.is_multiple_of(2) { rank - 1 } else { rank - 2 }
}
