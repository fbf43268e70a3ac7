//! Accesses that are wrong whatever the kernel is given: an index that never lies in its axis, a vector that never lies where vectors of its size
//! lie.
//!
//! Only what runs whenever the function does is looked at: what a condition or an early exit may skip may be right where it runs.
//!
//! ```text
//! %i = addi (remi %t, 4), 4 ; tile.load_element %a, [%i]      registers<4xf32>: at least 4, and 3 is the last
//! ```

use tessera_ir::{Block, Diagnostic, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};

use tessera_analysis::exits::can_leave;
use tessera_analysis::facts::{Facts, power};
use tessera_analysis::linear::{Linear, Wraps};

/// An access by indices.
struct Access<'f> {
    target: Value,
    indices: &'f [Value],
    /// Neighbours that it takes.
    count: u64,
}

/// Every access that is always wrong.
pub(super) fn check(func: &Func) -> Vec<Diagnostic> {
    let ops = always(func, func.body);
    if ops.iter().all(|&op| access(func, op).is_none()) {
        return Vec::new();
    }
    let facts = Facts::of(func);
    ops.into_iter().filter_map(|op| outside(func, &facts, op).or_else(|| misplaced(func, &facts, op))).collect()
}

/// What runs whenever a block does, up to where control may leave it.
fn always(func: &Func, block: Block) -> Vec<Op> {
    let mut ops = Vec::new();
    for &op in &func.blocks[block].ops {
        ops.push(op);
        if can_leave(func, op) {
            break;
        }
        let data = &func.ops[op];
        let runs = match &data.kind {
            OpKind::Tile(TileOp::Role { .. }) => true,
            OpKind::Schedule(ScheduleOp::For { .. }) => func.known_rounds(data).is_some_and(|rounds| rounds > 0),
            _ => false,
        };
        if runs {
            ops.extend(data.regions.iter().flat_map(|&region| always(func, region)));
        }
    }
    ops
}

fn access(func: &Func, op: Op) -> Option<Access<'_>> {
    let data = &func.ops[op];
    let touches = func.touches(data);
    data.kind.tile()?;
    let (chosen, at) = touches.iter().find_map(|touch| Some((touch, touch.effect.at?)))?;
    let count = func.moved(data, chosen).len() as u64;
    (count > 0).then(|| Access { target: chosen.value, indices: data.group(at), count })
}

/// An index that never lies in its axis.
fn outside(func: &Func, facts: &Facts, op: Op) -> Option<Diagnostic> {
    let Access { target, indices, count } = access(func, op)?;
    let (shape, fastest) = match func.ty(target) {
        Type::Shared(ty) => (&ty.shape, ty.order.last().map(|&axis| axis as usize)),
        Type::Registers(tile) => (&tile.shape, None),
        _ => return None,
    };
    indices.iter().zip(shape).enumerate().find_map(|(axis, (&index, &extent))| {
        let (fact, extent) = (facts.fact(index), i64::from(extent));
        let further = if fastest == Some(axis) { count as i64 - 1 } else { 0 };
        let which = match (fact.least == fact.greatest, fact.greatest < 0) {
            (true, _) => format!("{}", fact.least),
            (_, true) => format!("at most {}", fact.greatest),
            _ => format!("at least {}", fact.least),
        };
        let name = func.ops[op].row().mnemonic;
        let wrong = fact.greatest < 0 || fact.least.saturating_add(further) >= extent;
        wrong.then(|| {
            let elements = if further > 0 { format!(", and {further} elements more are taken") } else { String::new() };
            let message = format!("`{name}`: index {axis} is {which}{elements}, outside of `{}`", func.ty(target));
            Diagnostic::error("element-range", func.ops[op].span, message)
                .help(format!("indices along this axis go from 0 to {}", extent - 1))
        })
    })
}

/// A vector whose first element never lies at a multiple of the vector's bytes.
fn misplaced(func: &Func, facts: &Facts, op: Op) -> Option<Diagnostic> {
    let Access { target, indices, count } = access(func, op)?;
    let (bytes, place, divisor) = match func.ty(target) {
        Type::Shared(ty) if count > 1 => {
            let bytes = ty.elem.unpacked_bytes() as u64;
            let (mut sum, mut divisor) = (0i64, 16);
            for (&index, stride) in indices.iter().zip(ty.strides()) {
                let index = Linear::of(func, facts, index, Wraps::Ignored);
                let step = (stride * bytes) as i64;
                divisor = divisor.min(index.terms_divisor(facts).saturating_mul(power(stride * bytes)));
                sum = sum.wrapping_add(index.constant.wrapping_mul(step));
            }
            (bytes, sum, divisor)
        }
        ty if count > 1 && ty.is_scalar() => {
            let made = func.defining_op(target).map(|op| &func.ops[op])?;
            let tessera_ir::Elem::Ptr(dtype) = ty.as_tile()?.elem else { return None };
            let (OpKind::Schedule(ScheduleOp::Offset {}), bytes) = (&made.kind, dtype.unpacked_bytes() as u64) else {
                return None;
            };
            let sum = Linear::of(func, facts, made.one(1), Wraps::within(func, made.one(0)));
            let divisor = power(facts.fact(made.one(0)).divisor).min(sum.terms_divisor(facts).saturating_mul(bytes));
            (bytes, sum.constant.wrapping_mul(bytes as i64), divisor)
        }
        _ => return None,
    };
    let size = count * bytes;
    let behind = place.rem_euclid(size as i64);
    (divisor.is_multiple_of(size) && behind != 0).then(|| {
        let name = func.ops[op].row().mnemonic;
        let message = format!("`{name}` of {size} bytes begins {behind} bytes behind a multiple of {size}");
        Diagnostic::error("element-align", func.ops[op].span, message)
            .help("take fewer elements at once, or begin at an element that such a vector can begin at")
    })
}
