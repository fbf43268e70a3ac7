//! What a selection throws away of a loaded tile: its memory need not be read.
//!
//! ```text
//! %v = load_view_tko ...        nothing else uses %v
//! %f = ftof %v                  nothing else uses %f
//! %s = select %keep, %f, %x     where %keep is false, %v is not needed
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{MemoryOrder, Predicate, Signedness};
use tessera_ir::{Effects, Func, Op, OpKind, ScheduleOp, Trait, Value};

/// A load all of whose elements go through one selection.
#[derive(Clone, Debug)]
pub struct Masked {
    /// The truth values that decide.
    pub mask: Value,
    /// The element is needed where the mask has this value.
    pub needed: bool,
    /// The load, and the operations between it and the selection.
    pub chain: Vec<Op>,
    /// The selection.
    pub selection: Op,
}

impl Masked {
    /// The axis along which elements are needed up to some place only: the mask is `count <= limit` or `count < limit`, where the limit is one
    /// along the axis.
    pub fn falls_along(&self, func: &Func) -> Option<usize> {
        let data = &func.ops[func.defining_op(self.mask)?];
        let OpKind::Schedule(ScheduleOp::CmpI { predicate, signedness: Signedness::Signed }) = data.kind else { return None };
        let (count, limit) = match predicate {
            Predicate::Le | Predicate::Lt => (data.one(0), data.one(1)),
            Predicate::Ge | Predicate::Gt => (data.one(1), data.one(0)),
            Predicate::Eq | Predicate::Ne => return None,
        };
        let axis = counted_axis(func, count)?;
        (self.needed && is_one_along(func, limit, axis)).then_some(axis)
    }
}

/// The axis along which a tile is 0, 1, 2, ..
fn counted_axis(func: &Func, value: Value) -> Option<usize> {
    let data = &func.ops[func.defining_op(value)?];
    match data.kind {
        OpKind::Schedule(ScheduleOp::Iota {}) => Some(0),
        OpKind::Schedule(ScheduleOp::Broadcast {}) => {
            let axis = counted_axis(func, data.one(0))?;
            (extent(func, data.one(0), axis)? == extent(func, value, axis)?).then_some(axis)
        }
        OpKind::Schedule(ScheduleOp::Reshape {}) => {
            // Axes of extent 1 come and go.
            let axis = counted_axis(func, data.one(0))?;
            let all = extent(func, data.one(0), axis)?;
            let shape = &func.ty(value).as_tile()?.shape;
            let found = shape.iter().position(|&extent| extent == all)?;
            (shape.iter().map(|&extent| u64::from(extent)).product::<u64>() == u64::from(all)).then_some(found)
        }
        _ => None,
    }
}

/// All elements along the axis are the same one.
fn is_one_along(func: &Func, value: Value, axis: usize) -> bool {
    let Some(op) = func.defining_op(value) else { return false };
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Schedule(ScheduleOp::Broadcast {}) => {
            extent(func, data.one(0), axis) == Some(1) || is_one_along(func, data.one(0), axis)
        }
        OpKind::Schedule(ScheduleOp::Constant { value }) => value.splat_bits().is_some(),
        _ => func.ty(value).as_tile().is_some_and(|tile| tile.shape.is_empty() || tile.shape.get(axis) == Some(&1)),
    }
}

fn extent(func: &Func, value: Value, axis: usize) -> Option<u32> {
    func.ty(value).as_tile()?.shape.get(axis).copied()
}

/// The masked loads of a function, by load.
pub fn masked_loads(func: &Func) -> FxHashMap<Op, Masked> {
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
