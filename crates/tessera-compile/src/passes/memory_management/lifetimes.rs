//! When each buffer holds something that is still needed, which buffers may therefore not share bytes, and what sharing would cost.
//!
//! A buffer is *occupied* at an operation that touches it, where something has been written to it on some way there and is read on some
//! way on, and while what an operation started there goes on (copies, stores and products until they have been waited for). Two
//! buffers that are occupied at one operation are apart. So are all that are occupied in
//!
//! - different ones of roles that run at the same time, and in all of these those that several of them touch;
//! - regions that only some threads run, or run a different number of times: others are elsewhere meanwhile, and no barrier can stand
//!   there.
//!
//! Where one buffer takes over another's bytes, threads must have met since the last touch of the former one. Where they have not, sharing
//! costs a barrier, in the innermost loop that holds both operations:
//!
//! ```text
//! for .. {
//!   %u = tile.convert_layout %x through %a        writes %a, meets, reads %a
//!   %v = tile.convert_layout %u through %b        %a and %b apart: the meeting in %b's exchange also frees %a
//! }                                               %a and %b in the same bytes: two barriers more in every round
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Block, EntityId, Func, Op, OpKind, ScheduleOp, TileOp};

use crate::analysis::buffers::{Access, Buffers, Queue, accesses};
use crate::analysis::set::Set;

/// More groups behind an operation are not told apart.
const MANY: u32 = 64;

/// When buffers are occupied.
#[derive(Clone, Debug)]
pub(crate) struct Lifetimes {
    /// The buffers.
    pub(crate) buffers: Buffers,
    /// What is occupied at each operation that touches or keeps any, in text order.
    pub(crate) occupied: Vec<(Op, Set)>,
    apart: Vec<Set>,
    /// The number of loops around the barrier that sharing would need, and one more; by pairs of buffers, the lower number first.
    barriers: BTreeMap<(usize, usize), u32>,
}

impl Lifetimes {
    /// Analyses a Tile function.
    pub(crate) fn of(func: &Func) -> Lifetimes {
        let buffers = Buffers::of(func);
        let count = buffers.allocs.len();
        let nothing = || vec![Set::default(); func.ops.len()];
        let mut walk = Walk {
            func,
            touches: touches(func, &buffers),
            live: nothing(),
            occupied: nothing(),
            loops: vec![Vec::new(); func.ops.len()],
            touched_at: Vec::new(),
            numbers: vec![0..0; func.ops.len()],
            barriers: BTreeMap::new(),
            found: Lifetimes { buffers, occupied: Vec::new(), apart: vec![Set::default(); count], barriers: BTreeMap::new() },
        };
        if count > 1 {
            walk.find_loops(func.body, &mut Vec::new());
            walk.backward(func.body, &Exits::default(), Set::default());
            walk.forward(func.body, Flow::default(), &mut Jumps::default());
            walk.roles(func.body);
            let map = UniformityMap::new(func);
            let body = &func.blocks[func.body].ops;
            if body.iter().any(|&op| map.condition(op).uniformity > Uniformity::Block) {
                let all = body.iter().fold(Set::default(), |all, &op| all.with(&walk.inside(op)));
                walk.separate(&all, &all);
            } else {
                walk.uneven(func.body, &map, Uniformity::Block);
            }
        } else if count == 1 {
            for op in func.linked_ops() {
                walk.occupied[op.index()] = walk.touched(op);
            }
        }
        walk.finish()
    }

    /// The buffers may not share bytes.
    pub(crate) fn are_apart(&self, a: usize, b: usize) -> bool {
        self.apart[a].contains(b)
    }

    /// Sharing bytes would need a barrier within this many loops; `None` where it costs nothing.
    pub(crate) fn barrier(&self, a: usize, b: usize) -> Option<u32> {
        self.barriers.get(&(a.min(b), a.max(b))).map(|loops| loops - 1)
    }
}

/// Every operation's accesses with the buffers that each may touch.
fn touches(func: &Func, buffers: &Buffers) -> Vec<Vec<(Access, Set)>> {
    let mut found = vec![Vec::new(); func.ops.len()];
    for op in func.linked_ops() {
        let of_op = accesses(func, &func.ops[op]).into_iter();
        found[op.index()] = of_op.map(|access| (access, buffers.parts(access.buffer).clone())).collect();
    }
    found
}

/// What is needed where control leaves a region.
#[derive(Clone, Default)]
struct Exits {
    /// Behind the region's end.
    end: Set,
    /// Where the next round of the loop around begins.
    next: Set,
    /// Behind the loop around.
    out: Set,
}

/// What is known on the way to an operation.
#[derive(Clone, Default, PartialEq)]
struct Flow {
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
struct Jumps {
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

struct Walk<'f> {
    func: &'f Func,
    touches: Vec<Vec<(Access, Set)>>,
    /// What is needed behind each operation.
    live: Vec<Set>,
    occupied: Vec<Set>,
    /// The loops around each operation, outermost first.
    loops: Vec<Vec<Op>>,
    /// Touches by number: the operation and the buffer.
    touched_at: Vec<(Op, usize)>,
    /// The numbers of each operation's touches.
    numbers: Vec<Range<usize>>,
    barriers: BTreeMap<(usize, usize), u32>,
    found: Lifetimes,
}

fn is_role(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Role { .. }))
}

/// The operations of a block in steps: roles that follow each other are one.
fn steps(func: &Func, block: Block) -> Vec<&[Op]> {
    func.blocks[block].ops.chunk_by(|&a, &b| is_role(func, a) && is_role(func, b)).collect()
}

impl Walk<'_> {
    fn find_loops(&mut self, block: Block, around: &mut Vec<Op>) {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            self.loops[op.index()] = around.clone();
            let repeats = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
            if repeats {
                around.push(op);
            }
            func.ops[op].regions.iter().for_each(|&region| self.find_loops(region, around));
            if repeats {
                around.pop();
            }
            let first = self.touched_at.len();
            for (_, parts) in &self.touches[op.index()] {
                self.touched_at.extend(parts.iter().map(|buffer| (op, buffer)));
            }
            self.numbers[op.index()] = first..self.touched_at.len();
        }
    }

    /// The buffers that an operation, or one inside it, touches.
    fn touched(&self, op: Op) -> Set {
        let own = self.touches[op.index()].iter().fold(Set::default(), |all, (_, parts)| all.with(parts));
        self.nested(op).fold(own, |all, inner| all.with(&self.touched(inner)))
    }

    /// The operations of an operation's regions.
    fn nested(&self, op: Op) -> impl Iterator<Item = Op> + '_ {
        self.func.ops[op].regions.iter().flat_map(|&region| self.func.blocks[region].ops.iter().copied())
    }

    /// Those that more than one of some roles touch.
    fn shared_by(&self, roles: &[Op]) -> Set {
        let (mut once, mut twice) = (Set::default(), Set::default());
        for &role in roles {
            for buffer in self.touched(role).iter() {
                if !once.insert(buffer) {
                    twice.insert(buffer);
                }
            }
        }
        twice
    }

    // --- what is needed further on

    /// What is needed before a block, when `end` is needed behind it.
    fn backward(&mut self, block: Block, exits: &Exits, end: Set) -> Set {
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

    // --- what has happened so far

    /// What holds behind a block.
    fn forward(&mut self, block: Block, mut flow: Flow, jumps: &mut Jumps) -> Flow {
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
                    _ => {}
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

    // --- what goes on at the same time

    /// All buffers that are occupied somewhere inside an operation.
    fn inside(&self, op: Op) -> Set {
        self.nested(op).fold(self.occupied[op.index()].clone(), |all, inner| all.with(&self.inside(inner)))
    }

    fn separate(&mut self, some: &Set, others: &Set) {
        for a in some.iter() {
            for b in others.iter().filter(|&b| a != b) {
                self.found.apart[a].insert(b);
                self.found.apart[b].insert(a);
            }
        }
    }

    fn roles(&mut self, block: Block) {
        let func = self.func;
        for step in steps(func, block) {
            if is_role(func, step[0]) {
                let both = self.shared_by(step);
                let inside: Vec<Set> = step.iter().map(|&role| self.inside(role)).collect();
                for (position, some) in inside.iter().enumerate() {
                    self.separate(&both, some);
                    inside[..position].iter().for_each(|others| self.separate(some, others));
                }
                self.separate(&both, &both);
            }
            for &op in step {
                func.ops[op].regions.iter().for_each(|&region| self.roles(region));
            }
        }
    }

    /// Regions that not all threads run together.
    fn uneven(&mut self, block: Block, map: &UniformityMap, scope: Uniformity) {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            let scope = if is_role(func, op) { Uniformity::Role } else { scope };
            let inner = |region: &Block| func.blocks[*region].ops.iter().any(|&op| map.condition(op).uniformity > scope);
            if func.ops[op].regions.iter().any(inner) {
                let all = self.inside(op);
                self.separate(&all, &all);
            } else {
                func.ops[op].regions.iter().for_each(|&region| self.uneven(region, map, scope));
            }
        }
    }

    fn finish(mut self) -> Lifetimes {
        for op in self.func.linked_ops() {
            let occupied = std::mem::take(&mut self.occupied[op.index()]);
            self.separate(&occupied, &occupied);
            if !occupied.is_empty() {
                self.found.occupied.push((op, occupied));
            }
        }
        self.found.barriers = self.barriers;
        self.found
    }
}
