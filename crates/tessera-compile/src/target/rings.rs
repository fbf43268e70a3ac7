//! Queues between roles.

use tessera_ir::{Op, OpData, TileOp};

use super::lowering::{Lowered, Lowering};

/// A queue of slots.
#[derive(Clone, Debug)]
pub(super) struct Ring {}

impl Lowering<'_> {
    pub(super) fn queues(&mut self, _data: &OpData, _kind: &TileOp) -> Lowered<bool> {
        Ok(false)
    }

    /// Lowers roles that follow each other; how many operations they are.
    pub(super) fn roles(&mut self, _ops: &[Op]) -> Lowered<usize> {
        Ok(0)
    }
}
