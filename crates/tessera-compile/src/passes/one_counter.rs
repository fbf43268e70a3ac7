//! `one-counter`: what a loop carries beside its counter, and steps by a constant, follows from the counter.
//!
//! ```text
//! for %i in (%zero, %n, %one) iter(%k = %first) {        for %i in (%zero, %n, %one) iter(%k = %first) {
//!                                                          %away = muli %i, %c;  %own = addi %first, %away
//!   ... %k ...                                             ... %own ...
//!   %more = addi %k, %c                                    %more = addi %own, %c
//!   continue [%more]                                       continue [%more]
//! }                                                      }
//! ```
//!
//! Requires: nothing. Preserves: every bit, since integers wrap. Whether the integer is still carried is for `dce` to find out.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{Overflow, Rounding, Signedness};
use tessera_ir::{Block, Changed, Const, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Value, bug};

use tessera_analysis::exits::loop_exits;

/// Carried integers that follow from a loop's counter.
pub(super) const PASS: Pass =
    Pass { name: "one-counter", doc: "Computes carried integers that step by constants from the loop's counter.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let counts = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    let loops: Vec<Op> = func.linked_ops().into_iter().filter(counts).collect();
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    for looped in loops {
        follow(func, looped, &mut names);
    }
    func.replace_uses(|value| names.get(&value).copied().unwrap_or(value));
    Changed(!names.is_empty())
}

/// Puts what carried integers follow from at the start of a loop's body; `names` learns what stands for them.
fn follow(func: &mut Func, looped: Op, names: &mut FxHashMap<Value, Value>) {
    let data = func.ops[looped].clone();
    let body: Block = data.regions[0];
    let number = |func: &Func, value| func.constant(value).and_then(Const::as_int);
    let (Some(first), Some(step)) = (number(func, data.one(0)), number(func, data.one(2))) else { return };
    let [end] = loop_exits(func, looped)[..] else { return };
    let args = func.blocks[body].args.clone();
    let mut before = Vec::new();
    for (position, &arg) in args[1..].iter().enumerate() {
        if first != 0 || func.ty(arg) != func.ty(args[0]) {
            continue;
        }
        let Some(next) = func.defining_op(func.ops[end].operands[position]).map(|op| &func.ops[op]) else { continue };
        let adds = matches!(next.kind, OpKind::Schedule(ScheduleOp::AddI { .. }));
        let Some(away) = number(func, next.operands.get(1).copied().unwrap_or(arg)) else { continue };
        if !adds || next.one(0) != arg || step <= 0 {
            continue;
        }
        let (ty, overflow) = (func.ty(arg).clone(), Overflow::Wraps);
        let mut make = |func: &mut Func, kind: ScheduleOp, operands: &[&[Value]]| {
            let op = func.make_op(kind.into(), operands, [ty.clone()], [], data.span);
            before.push(op);
            func.ops[op].result()
        };
        let dtype = ty.num().unwrap_or_else(|| bug!("a loop that counts with `{ty}`"));
        // Rounds before this one, or the counter where a round's step is a multiple of its own.
        let (mut rounds, mut by) = (args[0], away / step);
        if away % step != 0 {
            let step = make(func, ScheduleOp::Constant { value: Const::int(dtype, step) }, &[]);
            let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::Zero };
            (rounds, by) = (make(func, kind, &[&[rounds], &[step]]), away);
        }
        let by = make(func, ScheduleOp::Constant { value: Const::int(dtype, by) }, &[]);
        let distance = make(func, ScheduleOp::MulI { overflow }, &[&[rounds], &[by]]);
        let own = make(func, ScheduleOp::AddI { overflow }, &[&[data.group(3)[position]], &[distance]]);
        names.insert(arg, own);
    }
    func.blocks[body].ops.splice(0..0, before);
}
