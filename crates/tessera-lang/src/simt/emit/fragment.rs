//! Fragments: matrices of 16 x 16 spread over a warp, eight elements a lane.

use tessera_ir::{Diagnostic, Span};

use super::Emit;
use crate::diagnostics::id;
use crate::lower::Res;
use crate::simt::program::{Expression, Place};

/// Elements of a fragment that a lane holds.
pub(super) const PER_LANE: usize = 8;

impl Emit<'_> {
    fn refused(&self, span: Span) -> Res<()> {
        Err(Box::new(
            Diagnostic::error(id::STYLE, span, "matrix fragments are checked, not lowered")
                .help("sum the products in variables, or write the product in block style with `ct.mma`"),
        ))
    }

    pub(super) fn fragment_fill(&mut self, position: usize, _: &Expression) -> Res<()> {
        self.refused(self.kernel.allocations[position].span)
    }

    pub(super) fn fragment_load(&mut self, position: usize, _: &Place) -> Res<()> {
        self.refused(self.kernel.allocations[position].span)
    }

    pub(super) fn fragment_store(&mut self, place: &Place, _: usize) -> Res<()> {
        self.refused(place.span)
    }

    pub(super) fn fragment_product(&mut self, [sum, ..]: [usize; 3]) -> Res<()> {
        self.refused(self.kernel.allocations[sum].span)
    }
}
