//! Control that leaves an operation by another way than its end: a `continue`, `break` or `return` in a nested region.

use tessera_ir::{Block, Func, Op, OpKind, ScheduleOp};

/// True when control inside the operation can leave it other than by its results: a `return`, or an exit of a loop around it.
pub fn can_leave(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let is_loop = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
    data.regions.iter().any(|&region| block_leaves(func, region, is_loop))
}

fn block_leaves(func: &Func, block: Block, in_loop: bool) -> bool {
    func.blocks[block].ops.iter().any(|&op| match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::Return {}) => true,
        OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Break {}) => !in_loop,
        OpKind::Schedule(ScheduleOp::If {}) => func.ops[op].regions.iter().any(|&region| block_leaves(func, region, in_loop)),
        _ => can_leave(func, op),
    })
}

/// The `continue` and `break` operations that end rounds of this loop, in text order.
pub fn loop_exits(func: &Func, loop_op: Op) -> Vec<Op> {
    fn visit(func: &Func, block: Block, found: &mut Vec<Op>) {
        for &op in &func.blocks[block].ops {
            match &func.ops[op].kind {
                OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Break {}) => found.push(op),
                OpKind::Schedule(ScheduleOp::If {}) => {
                    for &region in &func.ops[op].regions {
                        visit(func, region, found);
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for &region in &func.ops[loop_op].regions {
        visit(func, region, &mut found);
    }
    found
}
