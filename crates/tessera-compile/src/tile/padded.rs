//! Products of fewer rows, columns or steps than their instruction has, as products of so many.
//!
//! ```text
//! %s = mmaf %q, %k, %c : tile<8x64xf32>      %r = mmaf (cat %q, zeros), %k, (cat %c, zeros) : tile<16x64xf32>;  %s = extract %r, [0, 0]
//! ```
//!
//! An instruction of a warp multiplies 16 rows. A decoder has eight queries a head of keys, and without an instruction a thread multiplies element by
//! element, from factors in shared memory. Eight rows of a fragment are half of each thread's registers, so that nothing moves; the other half are zeros.

use tessera_ir::{Changed, Const, Func, Op, OpKind, ScheduleOp, Type, Value};
use tessera_types::{Arch, DType};

use crate::rewrite::{Step, drop_dead, make, rewrite};
use tessera_analysis::sharing::instructions;

/// As much as an extent is padded to: a thread then does at most so many times the work, which an instruction is faster by many times.
const MOST: u64 = 4;

/// Pads the products of a function.
pub(super) fn pad(func: &mut Func, arch: Arch) -> Changed {
    let Changed(changed) = rewrite(func, |func, op, out| match func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }) => product(func, arch, op, out).unwrap_or(Step::Keep),
        _ => Step::Keep,
    });
    Changed(changed | drop_dead(func).0)
}

fn product(func: &mut Func, arch: Arch, op: Op, out: &mut Vec<Op>) -> Option<Step> {
    let data = func.ops[op].clone();
    let [lhs, rhs, acc] = [0, 1, 2].map(|at| data.one(at));
    let (factor, sums) = (func.ty(lhs).the_tile().clone(), func.ty(acc).the_tile().clone());
    let (&[m, k], &[_, n]) = (&factor.shape[..], &sums.shape[..]) else { return None };
    let dtype = factor.elem.num()?;
    let divides = |extent: u32, by: u64| u64::from(extent).is_multiple_of(by);
    if instructions(arch, dtype).any(|(rows, columns, depth)| divides(m, rows) && divides(n, columns) && divides(k, depth)) {
        return None;
    }
    let (least_m, least_n, least_k) = instructions(arch, dtype).next()?;
    let padded = |extent: u32, least: u64| match u64::from(extent) {
        enough if enough.is_multiple_of(least) => Some(extent),
        few if few < least && few * MOST >= least && least.is_multiple_of(few) => u32::try_from(least).ok(),
        _ => None,
    };
    let [to_m, to_n, to_k] = [padded(m, least_m)?, padded(n, least_n)?, padded(k, least_k)?];
    if [to_m, to_n, to_k] == [m, n, k] {
        return None;
    }
    let lhs = widen(func, op, lhs, [to_m, to_k], out)?;
    let rhs = widen(func, op, rhs, [to_k, to_n], out)?;
    let acc = widen(func, op, acc, [to_m, to_n], out)?;
    let ty = func.ty(acc).clone();
    let sum = make(func, op, data.kind, &[lhs, rhs, acc], ty, out);
    if [to_m, to_n] == [m, n] {
        return Some(Step::value(sum));
    }
    let zero = ScheduleOp::Constant { value: Const::int(DType::I32, 0) };
    let zero = make(func, op, zero, &[], Type::scalar(DType::I32), out);
    let part = func.make_op(ScheduleOp::Extract {}.into(), &[&[sum], &[zero, zero]], [Type::Tile(sums)], [], func.ops[op].span);
    out.push(part);
    Some(Step::value(func.ops[part].result()))
}

/// A matrix of these extents, of which the first are those of a tile and the others are zeros.
fn widen(func: &mut Func, at: Op, mut value: Value, extents: [u32; 2], out: &mut Vec<Op>) -> Option<Value> {
    for (axis, &extent) in extents.iter().enumerate() {
        loop {
            let tile = func.ty(value).the_tile().clone();
            if tile.shape[axis] == extent {
                break;
            }
            let zeros = ScheduleOp::Constant { value: Const::splat(tile.elem.num()?, 0) };
            let zeros = make(func, at, zeros, &[], Type::Tile(tile.clone()), out);
            let mut wider = tile;
            wider.shape[axis] *= 2;
            value = make(func, at, ScheduleOp::Cat { dim: axis as u32 }, &[value, zeros], Type::Tile(wider), out);
        }
    }
    Some(value)
}
