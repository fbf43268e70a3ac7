//! What operations exchange elements through: a recording of the lowering.
//!
//! How much an operation exchanges stands in its lowering alone, so a recording lowers it and notes what it asks for. Only operations that may
//! ask are lowered; what they take stands for itself, in registers that nothing has written, and so no instruction before them is needed.
//!
//! ```text
//! %p = tile.wgmma ...                               nothing
//! %s = tile.wgmma_wait [%p] : tile<.., #0>          nothing
//! %t = tile.convert_layout %s : tile<.., #1>        %s: 64 registers; asks for 16896 bytes
//! ```
//!
//! Invariant: an operation for which [`may_exchange`] is false calls neither [`Lowering::exchange`] nor [`Lowering::exchanged_through`]. The
//! lowering of the whole refuses an operation that exchanges and has no buffer.

use std::collections::BTreeMap;

use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Block, Diagnostic, Effects, EntityId, Func, Module, Op, OpData, OpKind, ScheduleOp, TileOp, Trait, Value, bug};
use tessera_types::Arch;

use super::lowering::{Lowered, Lowering};
use super::scratch::Exchange;

/// What each operation of a Tile function exchanges elements through.
///
/// # Errors
/// What the target does not have.
pub fn exchanges(module: &Module, func: &Func, arch: Arch) -> Result<BTreeMap<Op, Exchange>, Diagnostic> {
    if !func.linked_ops().into_iter().any(|op| may_exchange(func, &func.ops[op])) {
        return Ok(BTreeMap::new());
    }
    let mut lowering = Lowering::new(module, func, arch);
    lowering.scratch.asked = Some(BTreeMap::new());
    lowering.record(func.body).map_err(|diagnostic| *diagnostic)?;
    Ok(lowering.scratch.asked.unwrap_or_else(|| bug!("a recording without its notes")))
}

/// Whether threads may exchange elements in an operation.
fn may_exchange(func: &Func, data: &OpData) -> bool {
    let row = data.row();
    let tiles = |values: &[Value]| values.iter().any(|&value| func.ty(value).layout().is_some());
    let strong = data.kind.schedule().and_then(ScheduleOp::memory_order).is_some_and(|order| order != MemoryOrder::Weak);
    // Updates are atomic whatever their order.
    let once = strong || row.effects != Effects::Read;
    row.has(Trait::Exchanges) && (tiles(&data.operands) || strong && tiles(&data.results)) || row.has(Trait::OneForAll) && once
}

impl Lowering<'_> {
    /// Whether instructions are of no interest, only what exchanges ask for.
    pub(super) fn is_recording(&self) -> bool {
        self.scratch.asked.is_some()
    }

    fn record(&mut self, block: Block) -> Lowered<()> {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            let data = self.data(op);
            if may_exchange(func, data) {
                (self.op, self.scratch.last, self.span) = (op, None, data.span);
                let inner = data.regions.iter().flat_map(|&region| &func.blocks[region].ops).flat_map(|&op| func.ops[op].used());
                for value in data.used().chain(inner) {
                    self.stand_in(value)?;
                }
                self.operation(op)?;
                continue;
            }
            let outer = self.team;
            if let OpKind::Tile(TileOp::Role { first_warp, warps, .. }) = data.kind {
                (self.team.first_warp, self.team.warps) = (first_warp, warps);
            }
            for &region in &data.regions {
                self.record(region)?;
            }
            self.team = outer;
        }
        Ok(())
    }

    /// Registers that nothing has written, for a value that nothing has bound.
    fn stand_in(&mut self, value: Value) -> Lowered<()> {
        if self.bound[value.index()].is_some() {
            return Ok(());
        }
        let classes = self.classes(self.func.ty(value))?;
        let block = self.b.new_block(&classes);
        let regs = self.b.block_params(block);
        self.rebuild(value, &regs, None)
    }
}
