//! Loops that only read carry no order.
//!
//! A loop that reads what is written behind it hands a token around, so that the write waits for the last round's reads. Recipes know
//! that without: what stands behind a loop comes behind its reads, on the generic road since threads do one after the other, and
//! between roles since who computes has waited for everything that was brought. So such a token is taken out, and the loop is what it
//! is without the write.
//!
//! ```text
//! %acc.1, %t = for ... [%zero, %none] (%k, %acc, %t0) {       %acc.1 = for ... [%zero] (%k, %acc) {
//!   %a, %ta = load_view_tko ...                                 %a, %ta = load_view_tko ...
//!   %t1 = join_tokens [%t0, %ta]
//!   continue [%next, %t1]                                       continue [%next]
//! }                                                           }
//! atomic_rmw_tko ..., token=%t                                atomic_rmw_tko ..., token=%none
//! ```
//!
//! Invariant: a read that waits for a write still says so.

use rustc_hash::FxHashMap;
use tessera_ir::{Changed, Def, Effects, Func, Op, OpKind, ScheduleOp, Type, Value};

use crate::rewrite::drop_dead;
use tessera_analysis::uses::Uses;

/// Takes out the tokens that counting loops carry for what is behind them alone.
pub(super) fn forget_reads(func: &mut Func) -> Changed {
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    let counts = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    // Inner loops first: what they hand on counts as read where they do nothing else.
    for op in func.linked_ops().into_iter().filter(counts).rev() {
        let data = &func.ops[op];
        for (position, &arg) in func.blocks[data.regions[0]].args[1..].iter().enumerate() {
            if *func.ty(arg) == Type::Token && only_handed_on(func, op, arg, position, &names) {
                names.insert(data.results[position], data.group(3)[position]);
            }
        }
    }
    if names.is_empty() {
        return Changed(false);
    }
    func.replace_uses(|mut value| {
        while let Some(&before) = names.get(&value) {
            value = before;
        }
        value
    });
    drop_dead(func);
    Changed(true)
}

/// Whether a carried token is joined with tokens of reads, handed to the next round at its position, and used by nothing else. `names` has
/// the tokens that loops inside were found to carry for reads alone.
fn only_handed_on(func: &Func, looped: Op, arg: Value, position: usize, names: &FxHashMap<Value, Value>) -> bool {
    let body = func.ops[looped].regions[0];
    let Some((&last, ops)) = func.blocks[body].ops.split_last() else { return false };
    let mut tokens = vec![arg];
    for &op in ops {
        let data = &func.ops[op];
        if !data.operands.iter().any(|value| tokens.contains(value)) {
            continue;
        }
        if !matches!(data.kind, OpKind::Schedule(ScheduleOp::JoinTokens {})) {
            return false;
        }
        if !data.operands.iter().all(|value| tokens.contains(value) || is_of_reads(func, *value, names)) {
            return false;
        }
        tokens.push(data.result());
    }
    let handed = func.ops[last].operands.iter().enumerate().filter(|(_, value)| tokens.contains(value));
    let uses = Uses::of(func);
    let inside = |value: &Value| {
        let here = ops.iter().chain([&last]).flat_map(|&op| &func.ops[op].operands).filter(|used| *used == value).count();
        uses.count(*value) as usize == here
    };
    handed.map(|(at, _)| at).eq([position]) && tokens.iter().all(inside)
}

/// The token is that of a read, or of several.
fn is_of_reads(func: &Func, token: Value, names: &FxHashMap<Value, Value>) -> bool {
    let Def::Result(op, position) = func.values[token].def else { return false };
    let data = &func.ops[op];
    match data.kind {
        OpKind::Schedule(ScheduleOp::MakeToken {}) => true,
        OpKind::Schedule(ScheduleOp::JoinTokens {}) => data.operands.iter().all(|&value| is_of_reads(func, value, names)),
        OpKind::Schedule(ScheduleOp::For { .. }) => names.contains_key(&token),
        OpKind::Schedule(ScheduleOp::If {}) => data.regions.iter().all(|&way| {
            let yielded = func.blocks[way].ops.last().and_then(|&end| func.ops[end].operands.get(position as usize));
            yielded.is_some_and(|&value| is_of_reads(func, value, names))
        }),
        _ => data.row().effects == Effects::Read,
    }
}
