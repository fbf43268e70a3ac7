//! What has happened to buffers on some way to each operation: which have been written, which copies, stores and products go on, and which touches no
//! meeting of the threads has followed. Forwards over a function's structure, loops until nothing changes.

use std::collections::BTreeMap;

use tessera_ir::{Block, EntityId, Op, OpKind, Queue, ScheduleOp, TileOp, bug};

use super::{Walk, is_role, steps};
use tessera_analysis::buffers::Access;
use tessera_analysis::set::Set;

/// More groups behind an operation are not told apart.
const MANY: u32 = 64;

/// What is known on the way to an operation.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Flow {
    /// Buffers that something has been written to.
    written: Set,
    /// What operations have started that may go on, and how many groups at least have been made of their queue since.
    open: BTreeMap<Op, (Queue, u32)>,
    /// Touches since which threads have not met, by their number.
    fresh: Set,
    /// No way leads here.
    unreachable: bool,
}

impl Flow {
    fn join(&mut self, other: &Flow) {
        if other.unreachable {
            return;
        }
        if std::mem::take(&mut self.unreachable) {
            *self = other.clone();
            return;
        }
        self.written.extend(&other.written);
        self.fresh.extend(&other.fresh);
        for (&op, &(queue, count)) in &other.open {
            let known = self.open.entry(op).or_insert((queue, count));
            known.1 = known.1.min(count);
        }
    }

    /// A group more has been made in a queue.
    fn group(&mut self, wanted: Queue) {
        for (queue, count) in self.open.values_mut() {
            if *queue == wanted {
                *count = (*count + 1).min(MANY);
            }
        }
    }

    /// At most so many of a queue's newest groups go on.
    fn wait(&mut self, wanted: Queue, pending: u32) {
        self.open.retain(|_, (queue, count)| *queue != wanted || *count <= pending.min(MANY - 1));
    }
}

/// What flows along jumps out of a region.
#[derive(Default)]
pub(super) struct Jumps {
    yields: Option<Flow>,
    continues: Option<Flow>,
    breaks: Option<Flow>,
}

impl Jumps {
    fn add(slot: &mut Option<Flow>, flow: &Flow) {
        match slot {
            Some(known) => known.join(flow),
            None => *slot = Some(flow.clone()),
        }
    }
}

impl Walk<'_> {
    /// What holds behind a block.
    pub(super) fn forward(&mut self, block: Block, mut flow: Flow, jumps: &mut Jumps) -> Flow {
        let func = self.func;
        for step in steps(func, block) {
            match step {
                [op] if !is_role(func, *op) => self.behind(*op, &mut flow, jumps),
                roles => {
                    let mut start = flow.clone();
                    start.written.extend(&self.shared_by(roles));
                    for &role in roles {
                        let mut inner = Jumps::default();
                        self.forward(func.ops[role].regions[0], start.clone(), &mut inner);
                        inner.yields.iter().for_each(|behind| flow.join(behind));
                    }
                    // All threads meet behind roles.
                    flow.fresh = Set::default();
                }
            }
        }
        flow
    }

    fn behind(&mut self, op: Op, flow: &mut Flow, jumps: &mut Jumps) {
        let func = self.func;
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Schedule(
                kind @ (ScheduleOp::Yield {} | ScheduleOp::Continue {} | ScheduleOp::Break {} | ScheduleOp::Return {}),
            ) => {
                self.keep(op, flow);
                match kind {
                    ScheduleOp::Yield {} => Jumps::add(&mut jumps.yields, flow),
                    ScheduleOp::Continue {} => Jumps::add(&mut jumps.continues, flow),
                    ScheduleOp::Break {} => Jumps::add(&mut jumps.breaks, flow),
                    ScheduleOp::Return {} => {}
                    _ => bug!("an exit that leads nowhere"),
                }
                *flow = Flow { unreachable: true, ..Flow::default() };
            }
            OpKind::Schedule(ScheduleOp::If {}) => {
                let mut inner = Jumps::default();
                for &region in &data.regions {
                    self.forward(region, flow.clone(), &mut inner);
                }
                *flow = inner.yields.unwrap_or(Flow { unreachable: true, ..Flow::default() });
                for (slot, found) in [(&mut jumps.continues, inner.continues), (&mut jumps.breaks, inner.breaks)] {
                    if let Some(found) = found {
                        Jumps::add(slot, &found);
                    }
                }
            }
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                let counts = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
                let mut head = flow.clone();
                let inner = loop {
                    let mut inner = Jumps::default();
                    self.forward(data.regions[0], head.clone(), &mut inner);
                    let before = head.clone();
                    if let Some(next) = &inner.continues {
                        head.join(next);
                    }
                    if head == before {
                        break inner;
                    }
                };
                *flow = match inner.breaks {
                    _ if counts => head,
                    Some(out) => out,
                    None => Flow { unreachable: true, ..Flow::default() },
                };
            }
            OpKind::Tile(TileOp::Barrier {}) => {
                flow.fresh = Set::default();
                self.keep(op, flow);
            }
            OpKind::Tile(TileOp::CommitGroup {}) => {
                flow.group(Queue::Copies);
                self.keep(op, flow);
            }
            OpKind::Tile(TileOp::WaitGroup { pending }) => {
                self.keep(op, flow);
                flow.wait(Queue::Copies, *pending);
            }
            OpKind::Tile(TileOp::TmaStoreWait { pending, .. }) => {
                self.keep(op, flow);
                flow.wait(Queue::Stores, *pending);
            }
            OpKind::Tile(TileOp::WgmmaWait { pending }) => {
                self.keep(op, flow);
                flow.wait(Queue::Products, *pending);
            }
            _ => self.touch(op, flow),
        }
    }

    /// An operation on buffers.
    fn touch(&mut self, op: Op, flow: &mut Flow) {
        let data = &self.func.ops[op];
        let all = self.touches[op.index()].clone();
        for (access, parts) in &all {
            if access.writes {
                for buffer in parts.iter().filter(|&buffer| access.whole || !flow.written.contains(buffer)) {
                    self.takes_over(op, buffer, flow);
                }
                flow.written.extend(parts);
            }
        }
        self.keep(op, flow);
        let reads_fresh = |(access, parts): &(Access, Set)| {
            access.reads
                && flow.fresh.iter().any(|number| {
                    let (at, buffer) = self.touched_at[number];
                    let wrote = self.touches[at.index()].iter().any(|(access, parts)| access.writes && parts.contains(buffer));
                    parts.contains(buffer) && at != op && wrote
                })
        };
        let meets = data.through.is_some() || data.row().has(tessera_ir::Trait::Together) && all.iter().any(reads_fresh);
        if meets {
            flow.fresh = Set::default();
        }
        self.numbers[op.index()].clone().for_each(|number| {
            flow.fresh.insert(number);
        });
        match all.iter().find_map(|(access, _)| access.queue) {
            // Each is a group of its own.
            Some(queue @ (Queue::Stores | Queue::Products)) => {
                flow.group(queue);
                flow.open.insert(op, (queue, 1));
            }
            Some(queue @ (Queue::Copies | Queue::Loads)) => {
                flow.open.insert(op, (queue, 0));
            }
            None => {}
        }
    }

    /// Notes what is occupied at an operation.
    fn keep(&mut self, op: Op, flow: &Flow) {
        let mut occupied = self.live[op.index()].clone();
        occupied.intersect(&flow.written);
        for (_, parts) in &self.touches[op.index()] {
            occupied.extend(parts);
        }
        for open in flow.open.keys() {
            for (_, parts) in self.touches[open.index()].iter().filter(|(access, _)| access.queue.is_some()) {
                occupied.extend(parts);
            }
        }
        self.occupied[op.index()].extend(&occupied);
    }

    /// A buffer is written at an operation: whatever was touched since threads met would have to be met for.
    fn takes_over(&mut self, op: Op, buffer: usize, flow: &Flow) {
        for number in flow.fresh.iter() {
            let (at, other) = self.touched_at[number];
            if other == buffer {
                continue;
            }
            let common = self.loops[at.index()].iter().zip(&self.loops[op.index()]).take_while(|(a, b)| a == b).count();
            let known = self.barriers.entry((buffer.min(other), buffer.max(other))).or_insert(0);
            *known = (*known).max(common as u32 + 1);
        }
    }
}
