//! What a selection throws away of a loaded tile: its memory need not be read.
//!
//! ```text
//! %v = load_view_tko ...        nothing else uses %v
//! %f = ftof %v                  nothing else uses %f
//! %s = select %keep, %f, %x     where %keep is false, %v is not needed
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Effects, Func, Op, OpKind, ScheduleOp, Trait, Value};

/// A load all of whose elements go through one selection.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    /// The truth values that decide.
    pub(crate) mask: Value,
    /// The element is needed where the mask has this value.
    pub(crate) needed: bool,
    /// The load, and the operations between it and the selection.
    pub(crate) chain: Vec<Op>,
    /// The selection.
    pub(crate) selection: Op,
}

/// The masked loads of a function, by load.
pub(crate) fn masked_loads(func: &Func) -> FxHashMap<Op, Masked> {
    let ops = func.linked_ops();
    let mut users: FxHashMap<Value, (Op, u32)> = FxHashMap::default();
    for &op in &ops {
        for &operand in &func.ops[op].operands {
            let entry = users.entry(operand).or_insert((op, 0));
            entry.1 += 1;
        }
    }
    let weak = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, .. }));
    ops.into_iter().filter(weak).filter_map(|load| Some((load, selection(func, &users, load)?))).collect()
}

fn selection(func: &Func, users: &FxHashMap<Value, (Op, u32)>, load: Op) -> Option<Masked> {
    let mut chain = vec![load];
    let mut value = func.ops[load].results[0];
    loop {
        let &(user, 1) = users.get(&value)? else { return None };
        let data = &func.ops[user];
        if func.ty(value).layout() != data.results.first().and_then(|&result| func.ty(result).layout()) {
            return None;
        }
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Select {}) => {
                let mask = data.one(0);
                let needed = data.one(1) == value;
                return (mask != value).then_some(Masked { mask, needed, chain, selection: user });
            }
            OpKind::Schedule(_)
                if data.operands.len() == 1
                    && data.results.len() == 1
                    && data.row().effects == Effects::Pure
                    && data.row().has(Trait::Elementwise) =>
            {
                chain.push(user);
                value = data.result();
            }
            _ => return None,
        }
    }
}
