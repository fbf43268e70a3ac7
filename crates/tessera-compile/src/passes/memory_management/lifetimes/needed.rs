//! Which buffers are read on some way on from each operation, before they are written anew: liveness backwards over a function's structure, loops
//! until nothing changes.

use tessera_ir::{Block, EntityId, Op, OpKind, ScheduleOp};

use super::{Walk, is_role, steps};
use tessera_analysis::set::Set;

/// What is needed where control leaves a region.
#[derive(Clone, Default)]
pub(super) struct Exits {
    /// Behind the region's end.
    end: Set,
    /// Where the next round of the loop around begins.
    next: Set,
    /// Behind the loop around.
    out: Set,
}

impl Walk<'_> {
    /// What is needed before a block, when `end` is needed behind it.
    pub(super) fn backward(&mut self, block: Block, exits: &Exits, end: Set) -> Set {
        let func = self.func;
        let mut live = end;
        for step in steps(func, block).into_iter().rev() {
            live = match step {
                [op] if !is_role(func, *op) => self.before(*op, exits, live),
                roles => {
                    let mut before = live.clone();
                    for &role in roles {
                        self.live[role.index()].extend(&live);
                        let inner = Exits { end: live.clone(), ..Exits::default() };
                        let inside = self.backward(func.ops[role].regions[0], &inner, live.clone());
                        before.extend(&inside);
                    }
                    before
                }
            };
        }
        live
    }

    fn before(&mut self, op: Op, exits: &Exits, mut live: Set) -> Set {
        let func = self.func;
        self.live[op.index()].extend(&live);
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Yield {}) => exits.end.clone(),
            OpKind::Schedule(ScheduleOp::Continue {}) => exits.next.clone(),
            OpKind::Schedule(ScheduleOp::Break {}) => exits.out.clone(),
            OpKind::Schedule(ScheduleOp::Return {}) => Set::default(),
            OpKind::Schedule(ScheduleOp::If {}) => {
                let inner = Exits { end: live.clone(), ..exits.clone() };
                let mut before = Set::default();
                for &region in &data.regions {
                    before.extend(&self.backward(region, &inner, live.clone()));
                }
                before
            }
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                let counts = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
                let mut head = if counts { live.clone() } else { Set::default() };
                loop {
                    let inner = Exits { end: head.clone(), next: head.clone(), out: live.clone() };
                    let inside = self.backward(data.regions[0], &inner, head.clone());
                    if !head.extend(&inside) {
                        return head;
                    }
                }
            }
            _ => {
                for (access, parts) in &self.touches[op.index()] {
                    let all = access.writes && access.whole && !access.reads;
                    if data.through == Some(access.buffer) {
                        parts.iter().for_each(|buffer| live.remove(buffer));
                    } else if let Some(buffer) = self.found.buffers.whole(func, access.buffer).filter(|_| all) {
                        live.remove(buffer);
                    }
                }
                for (_, parts) in self.touches[op.index()].iter().filter(|(access, _)| access.reads) {
                    live.extend(parts);
                }
                live
            }
        }
    }
}
