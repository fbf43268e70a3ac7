//! Forms that recipes need not know: products and accumulators with one batch, and single elements loaded as tiles.
//!
//! ```text
//! %p = mmaf %a, %b, %c : tile<1x64x64xf32>      %q = mmaf (reshape %a), (reshape %b), (reshape %c) : tile<64x64xf32>;  %p = reshape %q
//! %t = load_view_tko %view, [%i] : tile<1xi32>   %s = load_ptr_tko (offset %base, %i), mask=(%i < %n) : tile<i32>;  %t = reshape %s
//! ```
//!
//! What a loop carries in one shape, and its body only looks at in another, is carried in that other shape.

use smallvec::SmallVec;
use tessera_ir::attrs::{MemoryOrder, Overflow, Predicate, Signedness};
use tessera_ir::{
    Changed, Const, Elem, Extent, Func, Op, OpKind, Padding, ScheduleOp, Shape, TileType, Trait, Type, Value, ViewKind,
};
use tessera_types::DType;

use crate::rewrite::{Step, drop_dead, make, rewrite};
use tessera_analysis::exits::loop_exits;

/// Drops batch axes of extent 1 from products, and loads single elements as scalars.
pub(super) fn flatten(func: &mut Func) -> Changed {
    let Changed(rewritten) = rewrite(func, |func, op, out| match func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }) => product(func, op, out),
        OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) => element(func, op, out).unwrap_or(Step::Keep),
        OpKind::Schedule(ScheduleOp::Reshape {}) => again(func, op).map_or(Step::Keep, Step::value),
        _ => Step::Keep,
    });
    let mut changed = rewritten | drop_dead(func).0;
    changed |= carry_otherwise(func);
    Changed(changed | drop_dead(func).0)
}

/// The value that a reshape of a reshape yields again.
fn again(func: &Func, op: Op) -> Option<Value> {
    let data = &func.ops[op];
    let before = &func.ops[func.defining_op(data.one(0))?];
    let reshaped = matches!(before.kind, OpKind::Schedule(ScheduleOp::Reshape {}));
    (reshaped && func.ty(before.one(0)) == func.ty(data.result())).then(|| before.one(0))
}

fn product(func: &mut Func, op: Op, out: &mut Vec<Op>) -> Step {
    let data = func.ops[op].clone();
    if func.ty(data.result()).as_tile().is_none_or(|tile| tile.shape.len() != 3 || tile.shape[0] != 1) {
        return Step::Keep;
    }
    let plain: SmallVec<[Value; 3]> = data.operands.iter().map(|&value| without_batch(func, op, value, out)).collect();
    let ty = func.ty(plain[2]).clone();
    let product = make(func, op, data.kind, &plain, ty, out);
    Step::value(reshape(func, op, product, |shape| [&[1], shape].concat(), out))
}

/// A tile without its first axis, of extent 1; what elements are computed by is computed so, too.
fn without_batch(func: &mut Func, at: Op, value: Value, out: &mut Vec<Op>) -> Value {
    let tile = func.ty(value).the_tile().clone();
    let own = Type::Tile(TileType { shape: tile.shape[1..].into(), ..tile.clone() });
    if let Some(op) = func.defining_op(value) {
        let data = func.ops[op].clone();
        let elements = data.row().has(Trait::Elementwise) && data.results.len() == 1;
        let broadcast = matches!(data.kind, OpKind::Schedule(ScheduleOp::Broadcast {}));
        match data.kind.clone() {
            OpKind::Schedule(ScheduleOp::Reshape {}) if *func.ty(data.one(0)) == own => return data.one(0),
            OpKind::Schedule(kind @ ScheduleOp::Constant { .. })
                if func.constant(value).and_then(Const::splat_bits).is_some() =>
            {
                return make(func, at, kind, &[], own, out);
            }
            kind if elements || broadcast => {
                let operands: Vec<Value> = data.operands.iter().map(|&value| without_batch(func, at, value, out)).collect();
                return make(func, at, kind, &operands, own, out);
            }
            _ => {}
        }
    }
    make(func, at, ScheduleOp::Reshape {}, &[value], own, out)
}

fn reshape(func: &mut Func, at: Op, value: Value, to: impl Fn(&[u32]) -> Vec<u32>, out: &mut Vec<Op>) -> Value {
    let mut tile = func.ty(value).the_tile().clone();
    tile.shape = to(&tile.shape).into();
    make(func, at, ScheduleOp::Reshape {}, &[value], Type::Tile(tile), out)
}

/// Has counting loops carry tiles in the shape that their bodies compute them in.
fn carry_otherwise(func: &mut Func) -> bool {
    let mut changed = false;
    let counts = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    for looped in func.linked_ops().into_iter().filter(counts).collect::<Vec<_>>() {
        let body = func.ops[looped].regions[0];
        let [end] = loop_exits(func, looped)[..] else { continue };
        for position in 0..func.ops[looped].results.len() {
            let arg = func.blocks[body].args[position + 1];
            let handed = func.ops[end].operands[position];
            let Some(reshaped) = func.defining_op(handed) else { continue };
            if !matches!(func.ops[reshaped].kind, OpKind::Schedule(ScheduleOp::Reshape {})) {
                continue;
            }
            let (before, after) = (func.ops[reshaped].one(0), func.ty(arg).clone());
            let own = func.ty(before).clone();
            let looks = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Reshape {}));
            let users: Vec<Op> = func.linked_ops().into_iter().filter(|&op| func.ops[op].operands.contains(&arg)).collect();
            if !users.iter().all(|op| looks(op) && *func.ty(func.ops[*op].result()) == own) {
                continue;
            }
            // The loop's own value, and what it was and becomes around it.
            let init = func.ops[looped].group(3)[position];
            let result = func.ops[looped].results[position];
            let mut ahead = Vec::new();
            let start = match func.constant(init).cloned() {
                Some(value) if value.splat_bits().is_some() => {
                    make(func, looped, ScheduleOp::Constant { value }, &[], own.clone(), &mut ahead)
                }
                _ => make(func, looped, ScheduleOp::Reshape {}, &[init], own.clone(), &mut ahead),
            };
            let mut behind = Vec::new();
            let shown = make(func, looped, ScheduleOp::Reshape {}, &[result], after, &mut behind);
            let looked: Vec<Value> = users.iter().map(|&op| func.ops[op].result()).collect();
            func.replace_uses(|value| match value {
                value if value == result => shown,
                value if looked.contains(&value) => arg,
                value => value,
            });
            changed = true;
            func.values[arg].ty = own.clone();
            func.values[result].ty = own;
            func.ops[end].operands[position] = before;
            func.ops[looped].operands[3 + position] = start;
            func.ops[behind[0]].operands[0] = result;
            let block = func.block_of(looped);
            let at = func.blocks[block].place_of(looped);
            func.blocks[block].ops.splice(at + 1..at + 1, behind);
            func.blocks[block].ops.splice(at..at, ahead);
        }
    }
    changed
}

/// A load of one element of an array of the kernel, as a load of a scalar where that lies inside.
fn element(func: &mut Func, op: Op, out: &mut Vec<Op>) -> Option<Step> {
    let data = func.ops[op].clone();
    let OpKind::Schedule(ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, scope, latency, cache, inbounds, .. }) = data.kind
    else {
        return None;
    };
    let Type::TileView(ty) = func.ty(data.one(0)).clone() else { return None };
    let one = ty.kind == ViewKind::Partition && ty.tile.iter().all(|&extent| extent == 1);
    let zero = matches!(ty.padding, Padding::Zero | Padding::Undetermined);
    if !one || !zero || ty.tensor.elem.bits() < 8 || ty.tile.is_empty() {
        return None;
    }
    let tensor = func.ops[func.defining_op(data.one(0))?].one(0);
    let array = func.ops[func.defining_op(tensor)?].clone();
    if !matches!(array.kind, OpKind::Schedule(ScheduleOp::MakeTensorView {})) {
        return None;
    }
    let scalar = |dtype: DType| Type::scalar(dtype);
    let wide = |func: &mut Func, value: Value, out: &mut Vec<Op>| match func.ty(value).num() {
        Some(DType::I64) => value,
        _ => make(func, op, ScheduleOp::ExtI { signedness: Signedness::Signed }, &[value], scalar(DType::I64), out),
    };
    let (mut sizes, mut strides) = (array.group(1).iter(), array.group(2).iter());
    let extent = |func: &mut Func, extent: Extent, open: &mut std::slice::Iter<'_, Value>, out: &mut Vec<Op>| match extent {
        Extent::Static(number) => {
            let value = Const::int(DType::I64, number);
            Some(make(func, op, ScheduleOp::Constant { value }, &[], scalar(DType::I64), out))
        }
        Extent::Dynamic => open.next().map(|&value| wide(func, value, out)),
    };
    let sizes: Vec<Value> = ty.tensor.shape.iter().map(|&size| extent(func, size, &mut sizes, out)).collect::<Option<_>>()?;
    let strides: Vec<Value> =
        ty.tensor.strides.iter().map(|&stride| extent(func, stride, &mut strides, out)).collect::<Option<_>>()?;
    let overflow = Overflow::Wraps;
    let (mut offset, mut mask) = (None, None);
    for (position, &index) in data.group(1).iter().enumerate() {
        let axis = ty.dim_map[position] as usize;
        let index = wide(func, index, out);
        let own = make(func, op, ScheduleOp::MulI { overflow }, &[index, strides[axis]], scalar(DType::I64), out);
        offset = Some(match offset {
            None => own,
            Some(sum) => make(func, op, ScheduleOp::AddI { overflow }, &[sum, own], scalar(DType::I64), out),
        });
        let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Unsigned };
        let inside = make(func, op, kind, &[index, sizes[axis]], scalar(DType::B1), out);
        mask = Some(match mask {
            None => inside,
            Some(all) => make(func, op, ScheduleOp::AndI {}, &[all, inside], scalar(DType::B1), out),
        });
    }
    let elem = ty.tensor.elem;
    let pointer = Type::Tile(TileType { shape: Shape::new(), elem: Elem::Ptr(elem) });
    let pointer = make(func, op, ScheduleOp::Offset {}, &[array.one(0), offset?], pointer, out);
    let padding = make(func, op, ScheduleOp::Constant { value: Const::splat(elem, 0) }, &[], scalar(elem), out);
    let guard: SmallVec<[Value; 1]> = if inbounds { SmallVec::new() } else { mask.into_iter().collect() };
    let padding: SmallVec<[Value; 1]> = if inbounds { SmallVec::new() } else { SmallVec::from_slice(&[padding]) };
    let kind = ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, scope, latency, cache };
    let groups: [&[Value]; 4] = [&[pointer], &guard, &padding, data.group(2)];
    let load = func.make_op(kind.into(), &groups, [scalar(elem), Type::Token], [], data.span);
    out.push(load);
    let tile = func.ty(data.results[0]).clone();
    let value = make(func, op, ScheduleOp::Reshape {}, &[func.ops[load].results[0]], tile, out);
    Some(Step::Replace(SmallVec::from_slice(&[value, func.ops[load].results[1]])))
}
