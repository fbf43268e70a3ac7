//! Buffers in shared memory.

use tessera_ir::{OpData, TileOp};

use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    pub(super) fn reserve_buffers(&mut self) -> Lowered<()> {
        Ok(())
    }

    pub(super) fn shared(&mut self, _data: &OpData, _kind: &TileOp) -> Lowered<bool> {
        Ok(false)
    }
}
