//! Marks of functions that ask for a timeline: when the function, its roles and their loops begin and end, and in them what
//! is waited for and multiplied.
//!
//! Each pair has a name of what goes on, not of the operation: a role that fills slots *loads*, one that multiplies *multiplies*. Marks nest
//! as what they are about does, so that a warp's times make one row of a picture.

use tessera_ir::attrs::MarkPhase;
use tessera_ir::{Block, Diagnostic, Effects, Func, Op, OpKind, ScheduleOp, Span, TileOp};

/// Puts marks in; true if there were any to put.
pub(super) fn insert(func: &mut Func) -> bool {
    let marked = func.linked_ops().into_iter().any(|op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Mark { .. })));
    if func.hints.timeline.is_none() || marked {
        return false;
    }
    let (name, span, body) = (func.name.clone(), func.span, func.body);
    block(func, body, 0);
    around_block(func, body, &name, span);
    true
}

/// Marks that do not pair up: what begins in a block ends in it, the innermost first; a block that a `return`, `break` or `continue` leaves may end
/// what has begun around it too.
pub(super) fn check(func: &Func) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    pairs(func, func.body, &[], &mut wrong);
    wrong
}

/// Checks a block; `around` are the marks that have begun around it, innermost last.
fn pairs(func: &Func, block: Block, around: &[(&str, Span)], wrong: &mut Vec<Diagnostic>) {
    let mut open = around.to_vec();
    let mut ended_outer = false;
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Tile(TileOp::Mark { name, phase: MarkPhase::Begin }) => {
                if let Some(&(_, first)) = open.iter().find(|(known, _)| known == name) {
                    let message = format!("`{name}` begins again before it has ended");
                    wrong.push(
                        Diagnostic::error("mark-again", data.span, message)
                            .also(first, "it began here")
                            .help("give the inner one a name of its own"),
                    );
                }
                open.push((name, data.span));
            }
            OpKind::Tile(TileOp::Mark { name, phase: MarkPhase::End }) => match open.iter().rposition(|(known, _)| known == name)
            {
                Some(at) => {
                    if let Some((inner, first)) = open.get(at + 1) {
                        let message = format!("`{name}` ends while `{inner}` goes on, which began later");
                        wrong.push(
                            Diagnostic::error("mark-crossed", data.span, message)
                                .also(*first, "it began here")
                                .help("end the inner one first"),
                        );
                    }
                    ended_outer |= at < around.len();
                    open.remove(at);
                }
                None => {
                    let message = format!("`{name}` ends here and has not begun");
                    wrong.push(
                        Diagnostic::error("mark-unbegun", data.span, message)
                            .help("begin it in this block, or take this mark away"),
                    );
                }
            },
            OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }) => {}
            _ => data.regions.iter().for_each(|&region| pairs(func, region, &open, wrong)),
        }
    }
    let leaves = func.blocks[block].ops.last().map(|&last| &func.ops[last]);
    let jumps = leaves.is_some_and(|last| {
        matches!(last.kind, OpKind::Schedule(ScheduleOp::Return {} | ScheduleOp::Break {} | ScheduleOp::Continue {}))
    });
    if ended_outer && !jumps {
        let span = leaves.map_or(func.span, |last| last.span);
        let message = "a mark that began around this block ends in it, and control may come behind the block without that";
        wrong.push(Diagnostic::error("mark-unended", span, message).help("end it behind the block"));
    }
    for &(name, first) in open.iter().filter(|mark| !around.contains(mark)) {
        let message = format!("`{name}` begins here and does not end where the block does");
        wrong.push(Diagnostic::error("mark-unended", first, message).help("end it before control leaves the block"));
    }
}

fn mark(func: &mut Func, name: &str, phase: MarkPhase, span: Span) -> Op {
    func.make_op(TileOp::Mark { name: name.to_string(), phase }.into(), &[], [], [], span)
}

/// Marks a block's beginning and its end, also where a `return` leaves it.
fn around_block(func: &mut Func, block: Block, name: &str, span: Span) {
    let begin = mark(func, name, MarkPhase::Begin, span);
    before_returns(func, block, name, span);
    let ends = func.blocks[block].ops.last().copied();
    let returns = ends.is_some_and(|last| matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Return {})));
    if let Some(last) = ends.filter(|&last| !returns && func.ops[last].row().effects == Effects::Terminator) {
        let end = mark(func, name, MarkPhase::End, span);
        let at = func.blocks[block].place_of(last);
        func.blocks[block].ops.insert(at, end);
    }
    func.blocks[block].ops.insert(0, begin);
}

fn before_returns(func: &mut Func, block: Block, name: &str, span: Span) {
    let mut out = Vec::new();
    for op in func.blocks[block].ops.clone() {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Return {})) {
            out.push(mark(func, name, MarkPhase::End, span));
        }
        out.push(op);
        for region in func.ops[op].regions.clone() {
            before_returns(func, region, name, span);
        }
    }
    func.blocks[block].ops = out;
}

/// What an operation is called while it runs; `None` for those that are not marked.
fn named(func: &Func, op: Op, depth: u32) -> Option<&'static str> {
    match &func.ops[op].kind {
        OpKind::Tile(TileOp::Acquire {}) => Some("wait for a free slot"),
        OpKind::Tile(TileOp::Wait {}) => Some("wait for data"),
        OpKind::Tile(TileOp::WgmmaWait { .. }) => Some("wait for products"),
        OpKind::Tile(TileOp::WaitGroup { .. }) => Some("wait for copies"),
        OpKind::Tile(TileOp::TmaStoreWait { .. }) => Some("wait for stores"),
        OpKind::Tile(TileOp::MmaShared { .. } | TileOp::MmaSync { .. } | TileOp::WgmmaPromoted { .. })
        | OpKind::Schedule(
            ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled {} | ScheduleOp::MmaFSparse {},
        ) => Some("multiply"),
        OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) if depth == 0 => Some("loop"),
        _ => None,
    }
}

/// What a role does.
fn role(func: &Func, block: Block) -> &'static str {
    let mut ops = Vec::new();
    let mut open = vec![block];
    while let Some(block) = open.pop() {
        for &op in &func.blocks[block].ops {
            ops.push(op);
            open.extend(&func.ops[op].regions);
        }
    }
    let has = |what: fn(&TileOp) -> bool| ops.iter().any(|&op| func.ops[op].kind.tile().is_some_and(what));
    if has(|op| {
        matches!(op, TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. } | TileOp::MmaShared { .. } | TileOp::MmaSync { .. })
    }) {
        "multiplying warps"
    } else if has(|op| matches!(op, TileOp::Acquire {})) {
        "loading warps"
    } else {
        "warps"
    }
}

/// Marks what stands in a block; `depth` counts the loops around it in its role.
fn block(func: &mut Func, at: Block, depth: u32) {
    let mut out = Vec::new();
    for op in func.blocks[at].ops.clone() {
        let data = &func.ops[op];
        let (span, regions) = (data.span, data.regions.clone());
        let is_loop = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
        let is_role = matches!(data.kind, OpKind::Tile(TileOp::Role { .. }));
        let reduces = matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
        let name = named(func, op, depth);
        if let Some(name) = name {
            out.push(mark(func, name, MarkPhase::Begin, span));
        }
        out.push(op);
        if let Some(name) = name {
            out.push(mark(func, name, MarkPhase::End, span));
        }
        for region in regions.into_iter().filter(|_| !reduces) {
            block(func, region, if is_role { 0 } else { depth + u32::from(is_loop) });
            if is_role {
                let name = role(func, region);
                around_block(func, region, name, span);
            }
        }
    }
    func.blocks[at].ops = out;
}
