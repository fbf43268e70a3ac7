//! Loads whose elements a selection throws away in part move behind what computes its mask, so that the mask can guard them.
//!
//! The load and the conversions up to the selection go directly before it, where nothing between writes memory or has another effect.

use rustc_hash::FxHashSet;
use tessera_ir::{Changed, Effects, Func, Op};

use tessera_analysis::masks::masked_loads;

/// Moves the loads.
pub(super) fn delay_masked_loads(func: &mut Func) -> Changed {
    let masked = masked_loads(func);
    let mut changed = false;
    let blocks: Vec<_> = func.blocks.ids().collect();
    for block in blocks {
        let mut ops = func.blocks[block].ops.clone();
        for load in func.blocks[block].ops.clone() {
            let Some(found) = masked.get(&load) else { continue };
            let place = |ops: &[Op], op| ops.iter().position(|&other| other == op);
            let (Some(from), Some(to)) = (place(&ops, load), place(&ops, found.selection)) else { continue };
            let moved: FxHashSet<Op> = found.chain.iter().copied().collect();
            let results: FxHashSet<_> = moved.iter().flat_map(|&op| func.ops[op].results.iter().copied()).collect();
            let passed = || ops[from..to].iter().filter(|op| !moved.contains(op));
            let harmless = passed().all(|&op| {
                let data = &func.ops[op];
                matches!(data.row().effects, Effects::Pure | Effects::MayTrap | Effects::Read)
                    && !data.operands.iter().any(|operand| results.contains(operand))
            });
            if harmless {
                let rest: Vec<Op> = passed().copied().collect();
                ops.splice(from..to, rest.into_iter().chain(found.chain.iter().copied()));
            }
        }
        changed |= func.blocks[block].ops != ops;
        func.blocks[block].ops = ops;
    }
    Changed(changed)
}
