//! Reductions.

use tessera_ir::{OpData, ScheduleOp};

use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    pub(super) fn reductions(&mut self, _data: &OpData, _kind: &ScheduleOp) -> Lowered<bool> {
        Ok(false)
    }
}
