//! Threads, warps and barriers.

use tessera_ir::{Elem, OpData, TileOp};
use tessera_ptx::ssa::Value as Reg;
use tessera_layout::Distribution;
use tessera_ptx::Special;
use tessera_ptx::Type as Ty;

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::remap::Remap;

impl Lowering<'_> {
    /// Lowers an operation on threads; false if it is none.
    pub(super) fn threads(&mut self, data: &OpData, kind: &TileOp) -> Lowered<bool> {
        let reg: Reg = match kind {
            TileOp::ThreadId {} => self.b.special(Special::TidX),
            TileOp::LaneId {} => self.b.special(Special::Laneid),
            TileOp::WarpId {} => {
                let thread = self.b.special(Special::TidX);
                let five = self.b.u32(5);
                self.b.shr(Ty::U32, thread, five)
            }
            TileOp::ConvertLayout {} => {
                self.convert_layout(data.one(0), data.result())?;
                return Ok(true);
            }
            TileOp::Barrier {} => {
                self.b.bar_sync_all();
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.bind_regs(data.result(), [reg]);
        Ok(true)
    }

    /// Elements that move within their warps only, by shuffles; `None` where some do not.
    pub(super) fn shuffled(
        &mut self,
        _elem: Elem,
        _source: (&Distribution, &Regs),
        _result: &Distribution,
        _map: &Remap,
    ) -> Lowered<Option<Regs>> {
        Ok(None)
    }
}
