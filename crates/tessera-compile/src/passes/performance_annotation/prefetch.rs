//! Loads whose latency nothing hides: in a loop whose threads meet, each round waits for its own loads.
//!
//! The address must be known a round ahead, from the counter alone, and the load must run in every round. Behind it stands a request for
//! the line that the next round loads, if there is a next round. Loops without a barrier need none: their rounds overlap as they are.
//!
//! ```text
//! for %c0, %n, %c8 (%k) {
//!   %v = load_ptr_tko %p                       %next = addi %k, %c8 ; %more = cmpi %next, %n {lt}
//!   ...                                        if %more { tile.prefetch (offset %p, 8) }
//!   tile.barrier
//! ```

use tessera_ir::attrs::{MemoryOrder, Overflow, Predicate, Signedness};
use tessera_ir::{Block, Const, Func, Op, OpKind, ScheduleOp, Shape, TileOp, Type, Value};
use tessera_types::DType;

use tessera_analysis::exits::loop_exits;
use tessera_analysis::facts::Facts;
use tessera_analysis::linear::{Linear, Wraps};

/// A load and how far its address moves in a round.
pub(super) struct Wanted {
    looped: Op,
    load: Op,
    pointer: Value,
    elements: i64,
}

/// The loads that are to be asked for a round ahead.
pub(super) fn wanted(func: &Func) -> Vec<Wanted> {
    let facts = Facts::of(func);
    let mut found = Vec::new();
    for looped in func.linked_ops() {
        let data = &func.ops[looped];
        let OpKind::Schedule(ScheduleOp::For { unsigned: false, unroll: None }) = data.kind else { continue };
        let body = data.regions[0];
        let step = func.constant(data.one(2)).and_then(Const::as_int);
        let (Some(step), false) = (step, func.known_rounds(data).is_some_and(|rounds| rounds < 2)) else { continue };
        if !meets(func, body) || loop_exits(func, looped).len() != 1 {
            continue;
        }
        let counter = func.blocks[body].args[0];
        for &load in &func.blocks[body].ops {
            if let Some((pointer, elements)) = moving(func, &facts, load, counter, step) {
                let asked = func.blocks[body].ops.iter().any(|&op| asks(func, op));
                if !asked {
                    found.push(Wanted { looped, load, pointer, elements });
                }
            }
        }
    }
    found
}

/// Whether an operation asks for memory already.
fn asks(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    matches!(data.kind, OpKind::Tile(TileOp::Prefetch {}))
        || data.regions.iter().any(|&region| func.blocks[region].ops.iter().any(|&op| asks(func, op)))
}

/// Whether all threads meet in each round.
fn meets(func: &Func, body: Block) -> bool {
    func.blocks[body].ops.iter().any(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Barrier {})))
}

/// The pointer of a thread's load, and by how many elements it moves from round to round.
fn moving(func: &Func, facts: &Facts, load: Op, counter: Value, step: i64) -> Option<(Value, i64)> {
    let data = &func.ops[load];
    let pointer = match &data.kind {
        OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, .. }) if data.optional(1).is_none() => data.one(0),
        OpKind::Tile(TileOp::LoadVector { .. }) => data.one(0),
        _ => return None,
    };
    if !func.ty(pointer).is_scalar() {
        return None;
    }
    let made = &func.ops[func.defining_op(pointer)?];
    let OpKind::Schedule(ScheduleOp::Offset {}) = made.kind else { return None };
    let sum = Linear::of(func, facts, made.one(1), Wraps::within(func, made.one(0)));
    let factor = sum.terms.iter().find(|(term, _)| *term == counter).map(|&(_, factor)| factor)?;
    // Nothing else may change: other terms stand before the loop.
    let fixed =
        sum.terms.iter().all(|&(term, _)| term == counter || !inside(func, counter, term)) && !inside(func, counter, made.one(0));
    fixed.then(|| factor.checked_mul(step)).flatten().map(|elements| (pointer, elements)).filter(|(_, elements)| *elements != 0)
}

/// Whether a value is defined in the loop of a counter.
fn inside(func: &Func, counter: Value, value: Value) -> bool {
    let tessera_ir::Def::Argument(body, _) = func.values[counter].def else { return true };
    fn defines(func: &Func, block: Block, value: Value) -> bool {
        func.blocks[block].args.contains(&value)
            || func.blocks[block].ops.iter().any(|&op| {
                func.ops[op].results.contains(&value) || func.ops[op].regions.iter().any(|&region| defines(func, region, value))
            })
    }
    defines(func, body, value)
}

/// Puts requests behind the loads.
pub(super) fn insert(func: &mut Func, wanted: &[Wanted]) {
    for Wanted { looped, load, pointer, elements } in wanted {
        let data = func.ops[*looped].clone();
        let (body, span) = (data.regions[0], func.ops[*load].span);
        let counter = func.blocks[body].args[0];
        let (ty, flag) = (func.ty(counter).clone(), Type::scalar(DType::B1));
        let mut made = Vec::new();
        let mut push = |func: &mut Func, kind: OpKind, operands: &[Value], ty: Type| {
            let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
            let op = func.make_op(kind, &groups, [ty], [], span);
            made.push(op);
            func.ops[op].result()
        };
        // What is left is compared, so that the sum cannot pass the type's greatest number.
        let sub = ScheduleOp::SubI { overflow: Overflow::Wraps };
        let left = push(func, sub.into(), &[data.one(1), counter], ty);
        let more = ScheduleOp::CmpI { predicate: Predicate::Gt, signedness: Signedness::Unsigned };
        let more = push(func, more.into(), &[left, data.one(2)], flag);
        let number = ScheduleOp::Constant { value: Const::int(DType::I64, *elements) };
        let distance = push(func, number.into(), &[], Type::tile(Shape::new(), DType::I64));
        let ahead = push(func, ScheduleOp::Offset {}.into(), &[*pointer, distance], func.ty(*pointer).clone());
        let (then, otherwise) = (func.new_block(), func.new_block());
        let request = func.make_op(TileOp::Prefetch {}.into(), &[&[ahead]], [], [], span);
        let ends = [(); 2].map(|()| func.make_op(ScheduleOp::Yield {}.into(), &[&[]], [], [], span));
        func.blocks[then].ops = vec![request, ends[0]];
        func.blocks[otherwise].ops = vec![ends[1]];
        let guard = func.make_op(ScheduleOp::If {}.into(), &[&[more]], [], [then, otherwise], span);
        made.push(guard);
        let at = func.blocks[body].place_of(*load) + 1;
        func.blocks[body].ops.splice(at..at, made);
    }
}
