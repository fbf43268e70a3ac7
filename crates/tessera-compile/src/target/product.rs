//! Matrix products.

use tessera_ir::{OpData, ScheduleOp, TileOp};

use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    pub(super) fn products(&mut self, _data: &OpData, _kind: &ScheduleOp) -> Lowered<bool> {
        Ok(false)
    }

    pub(super) fn shared_products(&mut self, _data: &OpData, _kind: &TileOp) -> Lowered<bool> {
        Ok(false)
    }
}
