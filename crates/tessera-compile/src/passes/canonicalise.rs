//! `canonicalise`: algebra that holds for every bit pattern, shape operations that do nothing, and control whose way is known.
//!
//! | from | to |
//! |---|---|
//! | `x + 0`, `x * 1`, `x \| 0`, `x << 0`, integers | `x` |
//! | `x * 0`, `x & 0`, `x - x`, `x ^ x`, integers | `0` |
//! | `x - 0.0`, `x + -0.0`, `x * 1.0`, `x / 1.0` | `x` (`x + 0.0` is not: it changes `-0.0`) |
//! | `x ** 2`, floats | `x * x` |
//! | a constant left of a commutative operation | right of it |
//! | `broadcast`, `reshape`, `permute` that change nothing; two in a row | their source; one |
//! | `select` with a known condition or equal choices | the choice |
//! | `if` with a known condition; `for` without rounds, or with one | the region that runs |
//! | a value that a loop hands on unchanged | the value itself |

use smallvec::SmallVec;
use tessera_ir::attrs::Rounding;
use tessera_ir::{Block, Changed, Const, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Shape, Trait, Type, Value, bug};
use tessera_types::{DType, FloatFormat};

use crate::rewrite::{Step, make, rewrite};
use tessera_analysis::exits::loop_exits;
use tessera_analysis::facts::Facts;
use tessera_analysis::uses::Uses;

/// Canonicalisation.
pub(super) const PASS: Pass =
    Pass { name: "canonicalise", doc: "Removes what algebra, shapes and known conditions make superfluous.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let (facts, uses) = (Facts::of(func), Uses::of(func));
    let mut swapped = false;
    let Changed(changed) = rewrite(func, |func, op, out| {
        let OpKind::Schedule(kind) = func.ops[op].kind.clone() else { return Step::Keep };
        swapped |= order_operands(func, op);
        match &kind {
            ScheduleOp::If {} => known_condition(func, op),
            ScheduleOp::For { unsigned, .. } => counted(func, op, *unsigned, &facts, &uses),
            _ if func.ops[op].results.len() == 1 => match simpler(func, op, &kind, out) {
                Some(value) => Step::value(value),
                None => Step::Keep,
            },
            _ => Step::Keep,
        }
    });
    Changed(changed || swapped)
}

/// Constants stand right. Of two zeros of different sign, `maxf` and `minf` may yield either: their operands keep their places.
fn order_operands(func: &mut Func, op: Op) -> bool {
    let data = &func.ops[op];
    let ordered = matches!(data.kind, OpKind::Schedule(ScheduleOp::MaxF { .. } | ScheduleOp::MinF { .. }));
    let swaps = data.row().has(Trait::Commutative)
        && !ordered
        && func.constant(data.operands[0]).is_some()
        && func.constant(data.operands[1]).is_none();
    if swaps {
        func.ops[op].operands.swap(0, 1);
    }
    swaps
}

fn splat(func: &Func, value: Value) -> Option<(DType, u64)> {
    let constant = func.constant(value)?;
    Some((constant.dtype, constant.splat_bits()?))
}

fn simpler(func: &mut Func, op: Op, kind: &ScheduleOp, out: &mut Vec<Op>) -> Option<Value> {
    let operands = func.ops[op].operands.clone();
    let ty = func.ty(func.ops[op].result()).clone();
    let right_int = || func.constant(*operands.get(1)?)?.as_int();
    let right_float = || {
        let (dtype, bits) = splat(func, *operands.get(1)?)?;
        let value = FloatFormat::of(dtype)?.decode(bits);
        Some((value, value.is_sign_negative()))
    };
    let zero = |func: &mut Func, out: &mut Vec<Op>| {
        let value = Const::int(ty.num()?, 0);
        Some(make(func, op, ScheduleOp::Constant { value }, &[], ty.clone(), out))
    };
    match kind {
        ScheduleOp::AddI { .. } | ScheduleOp::ShlI { .. } | ScheduleOp::ShrI { .. } if right_int() == Some(0) => {
            Some(operands[0])
        }
        ScheduleOp::OrI {} | ScheduleOp::XorI {} if right_int() == Some(0) => Some(operands[0]),
        ScheduleOp::SubI { .. } if right_int() == Some(0) => Some(operands[0]),
        ScheduleOp::SubI { .. } | ScheduleOp::XorI {} if operands[0] == operands[1] => zero(func, out),
        ScheduleOp::MulI { .. } if right_int() == Some(1) && ty.num() != Some(DType::B1) => Some(operands[0]),
        ScheduleOp::MulI { .. } | ScheduleOp::AndI {} if right_int() == Some(0) => zero(func, out),
        ScheduleOp::AndI {} if right_int() == Some(if ty.num() == Some(DType::B1) { 1 } else { -1 }) => Some(operands[0]),
        ScheduleOp::AndI {} | ScheduleOp::OrI {} | ScheduleOp::MaxI { .. } | ScheduleOp::MinI { .. }
            if operands[0] == operands[1] =>
        {
            Some(operands[0])
        }
        ScheduleOp::DivI { .. } if right_int() == Some(1) && ty.num() != Some(DType::B1) => Some(operands[0]),
        ScheduleOp::RemI { .. } if right_int() == Some(1) && ty.num() != Some(DType::B1) => zero(func, out),
        ScheduleOp::SubF { flush_to_zero: false, .. } if right_float() == Some((0.0, false)) => Some(operands[0]),
        ScheduleOp::AddF { flush_to_zero: false, .. } if right_float() == Some((0.0, true)) => Some(operands[0]),
        ScheduleOp::MulF { flush_to_zero: false, .. } | ScheduleOp::DivF { flush_to_zero: false, .. }
            if right_float().is_some_and(|(value, _)| value == 1.0) =>
        {
            Some(operands[0])
        }
        ScheduleOp::FPowI {} if right_int() == Some(2) => {
            let kind = ScheduleOp::MulF { rounding: Rounding::NearestEven, flush_to_zero: false };
            Some(make(func, op, kind, &[operands[0], operands[0]], ty, out))
        }
        ScheduleOp::NegF {} => inverse(func, operands[0], |kind| matches!(kind, ScheduleOp::NegF {})),
        ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::Permute { .. } => {
            shape(func, op, kind, &operands, &ty, out)
        }
        ScheduleOp::TruncI { .. } => {
            let source = inverse(func, operands[0], |kind| matches!(kind, ScheduleOp::ExtI { .. }))?;
            (*func.ty(source) == ty).then_some(source)
        }
        ScheduleOp::Select {} => {
            if operands[1] == operands[2] {
                return Some(operands[1]);
            }
            let (_, condition) = splat(func, operands[0])?;
            Some(if condition != 0 { operands[1] } else { operands[2] })
        }
        ScheduleOp::JoinTokens {} if operands.len() == 1 => Some(operands[0]),
        _ => None,
    }
}

/// The operand of the operation that defines a value, if that is of the wanted kind.
fn inverse(func: &Func, value: Value, wanted: impl Fn(&ScheduleOp) -> bool) -> Option<Value> {
    let data = &func.ops[func.defining_op(value)?];
    data.kind.schedule().filter(|kind| wanted(kind)).map(|_| data.operands[0])
}

fn shape(func: &mut Func, op: Op, kind: &ScheduleOp, operands: &[Value], ty: &Type, out: &mut Vec<Op>) -> Option<Value> {
    let source = operands[0];
    let identity = match kind {
        ScheduleOp::Permute { permutation } => permutation.iter().enumerate().all(|(i, &axis)| i == axis as usize),
        _ => func.ty(source) == ty,
    };
    if identity {
        return Some(source);
    }
    let before = &func.ops[func.defining_op(source)?];
    let inner = *before.operands.first()?;
    let merged = match (kind, before.kind.schedule()?) {
        (ScheduleOp::Reshape {}, ScheduleOp::Reshape {}) => ScheduleOp::Reshape {},
        (ScheduleOp::Broadcast {}, ScheduleOp::Broadcast {}) => ScheduleOp::Broadcast {},
        (ScheduleOp::Permute { permutation: outer }, ScheduleOp::Permute { permutation: first }) => {
            let permutation: Shape = outer.iter().map(|&axis| first[axis as usize]).collect();
            ScheduleOp::Permute { permutation }
        }
        _ => return None,
    };
    Some(make(func, op, merged, &[inner], ty.clone(), out))
}

fn known_condition(func: &Func, op: Op) -> Step {
    let data = &func.ops[op];
    match splat(func, data.one(0)) {
        Some((_, condition)) => Step::Inline(data.regions[usize::from(condition == 0)], SmallVec::new()),
        None => Step::Keep,
    }
}

/// A loop whose number of rounds is known to be none or one, and values that every round passes on unchanged.
fn counted(func: &mut Func, op: Op, unsigned: bool, facts: &Facts, uses: &Uses) -> Step {
    let data = &func.ops[op];
    let bounds = [data.one(0), data.one(1), data.one(2)].map(|value| facts.fact(value));
    let known = !unsigned || bounds.iter().all(|fact| fact.is_non_negative());
    let init: SmallVec<[Value; 4]> = SmallVec::from_slice(data.group(3));
    if known && bounds[0].least >= bounds[1].greatest {
        return Step::Replace(init.into_iter().collect());
    }
    let body = data.regions[0];
    let once = matches!((bounds[0].value(), bounds[1].value(), bounds[2].value()),
        (Some(lower), Some(upper), Some(step)) if lower < upper && step > 0 && lower.checked_add(step).is_none_or(|next| next >= upper))
        || ends_at_next(func, [data.one(0), data.one(1)], bounds[0].greatest, bounds[2].value());
    if known && once && loop_exits(func, op).len() == 1 && ends_with_continue(func, body) {
        let args = std::iter::once(data.one(0)).chain(init).collect();
        return Step::Inline(body, args);
    }
    let forwarded = hand_on(func, op, uses);
    if forwarded.is_empty() { Step::Keep } else { Step::Forward(forwarded) }
}

/// The upper bound is the lower one and at most a step.
fn ends_at_next(func: &Func, [lower, upper]: [Value; 2], greatest: i64, step: Option<i64>) -> bool {
    let (Some(op), Some(step)) = (func.defining_op(upper), step) else { return false };
    let sum = &func.ops[op];
    let adds = matches!(sum.kind, OpKind::Schedule(ScheduleOp::AddI { .. })) && sum.one(0) == lower;
    let added = adds.then(|| func.constant(sum.one(1)).and_then(Const::as_int)).flatten();
    let dtype = func.ty(lower).num().unwrap_or_else(|| bug!("a counter that is no number"));
    let most = i64::MAX >> (64 - dtype.bits().min(64));
    added.is_some_and(|added| (1..=step).contains(&added) && greatest <= most - added)
}

fn ends_with_continue(func: &Func, block: Block) -> bool {
    func.blocks[block].ops.last().is_some_and(|&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Continue {})))
}

/// Uses of a carried value that never changes become uses of where it starts; `dce` then drops it.
fn hand_on(func: &mut Func, op: Op, uses: &Uses) -> SmallVec<[(Value, Value); 2]> {
    let body = func.ops[op].regions[0];
    let exits = loop_exits(func, op);
    let init: SmallVec<[Value; 4]> = SmallVec::from_slice(func.ops[op].group(3));
    let mut forwarded = SmallVec::new();
    for (position, &start) in init.iter().enumerate() {
        let (arg, result) = (func.blocks[body].args[position + 1], func.ops[op].results[position]);
        let unchanged = exits.iter().all(|&exit| [arg, start].contains(&func.ops[exit].operands[position]));
        if unchanged && uses.count(arg) + uses.count(result) > 0 {
            replace_in(func, body, arg, start);
            forwarded.push((result, start));
        }
    }
    forwarded
}

fn replace_in(func: &mut Func, block: Block, from: Value, to: Value) {
    for op in func.blocks[block].ops.clone() {
        for operand in &mut func.ops[op].operands {
            if *operand == from {
                *operand = to;
            }
        }
        for region in func.ops[op].regions.clone() {
            replace_in(func, region, from, to);
        }
    }
}
