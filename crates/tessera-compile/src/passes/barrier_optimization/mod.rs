//! `barrier-optimization`: threads meet where memory that they share asks for it, and nowhere else.
//!
//! What a Tile program means is told without barriers: one operation after another over all threads. This pass makes it true on a machine. It finds
//! the accesses of different threads that have no order although they need one ([`flow`], on the [`program`]; [`place`] says which pairs those are and
//! [`index`] which elements threads choose), puts barriers between them, takes out barriers and waits that nothing needs, and lets copies run on
//! where a wait would stop them too early.
//!
//! ```text
//! tile.store_shared %a, %buffer          tile.store_shared %a, %buffer
//!                                        tile.barrier
//! %b = tile.load_shared %buffer     ->   %b = tile.load_shared %buffer
//! tile.barrier
//! return                                 return
//! ```
//!
//! 1. **Barriers that are missing**, those deep in loops first. One stands directly before the second access; where the first one came
//!    before a loop, before that loop; where not all threads come to the place, before the branch or role that they divide in.
//! 2. **Waits**: one that nothing needs goes, one that waits for more groups than anything needs waits for fewer, and at last it moves down to
//!    where it is needed.
//! 3. **Barriers that are not needed**: each is taken out on trial. It stays out where no pair of accesses loses its order, or where the pairs that
//!    do are put right by barriers that run less often.
//!
//! A pair that cannot be put right (its threads have parted) stays as it is, with every barrier that may order it. Barriers inside operations that
//! exchange elements are theirs; this pass counts on them.

mod flow;
mod index;
mod place;
mod program;

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Changed, Func, Level, Op, OpKind, Pass, PassCx, TileOp};

use self::flow::{Findings, Hazard, analyse};
use self::place::Need;
use self::program::{Kind, NodeId, Program};

/// Barrier optimization.
pub(super) const PASS: Pass = Pass {
    name: "barrier-optimization",
    doc: "Puts barriers where threads share memory, takes out those that nothing needs, and lets waits come late.",
    run,
};

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let mut program = Program::of(func);
    let mut work = Work { program: &mut program, inserted: Vec::new(), removed: Vec::new(), waits: Vec::new() };
    work.complete();
    work.wait_less();
    work.thin_out();
    let Work { inserted, removed, waits, .. } = work;
    let mut changed = !inserted.is_empty() || !removed.is_empty();
    for &(node, pending) in &waits {
        func.ops[program.nodes[node].op].kind = TileOp::WaitGroup { pending }.into();
        changed = true;
    }
    let place = places(func);
    for &node in &inserted {
        let at = program.nodes[node].op;
        let barrier = func.make_op(TileOp::Barrier {}.into(), &[], [], [], func.ops[at].span);
        let ops = &mut func.blocks[place[&at]].ops;
        let position = ops.iter().position(|&op| op == at).unwrap_or(ops.len());
        ops.insert(position, barrier);
    }
    for &node in &removed {
        let op = program.nodes[node].op;
        func.blocks[place[&op]].ops.retain(|&other| other != op);
    }
    changed |= sink_waits(func);
    Changed(changed)
}

/// The block that each operation stands in.
fn places(func: &Func) -> FxHashMap<Op, Block> {
    let blocks = func.linked_blocks();
    blocks.iter().flat_map(|&block| func.blocks[block].ops.iter().map(move |&op| (op, block))).collect()
}

/// A program while it is changed.
struct Work<'p> {
    program: &'p mut Program,
    /// Barriers that are new.
    inserted: Vec<NodeId>,
    /// Barriers and waits that are to go.
    removed: Vec<NodeId>,
    /// Waits that wait for less.
    waits: Vec<(NodeId, u32)>,
}

impl Work<'_> {
    /// Puts barriers in until no pair needs another one.
    fn complete(&mut self) {
        while let Some(place) = self.missing(&analyse(self.program)) {
            let node = self.program.insert(place);
            self.inserted.push(node);
        }
    }

    /// The node before which the next barrier must stand.
    fn missing(&self, found: &Findings) -> Option<NodeId> {
        let places = found.hazards.iter().filter_map(|hazard| self.place(hazard));
        // Deep ones may make others needless; of two in a row the first does.
        let order = |&node: &NodeId| {
            let list = &self.program.lists[self.program.nodes[node].list];
            (std::cmp::Reverse(list.depth), self.program.nodes[node].list, list.nodes.iter().position(|&other| other == node))
        };
        places.min_by_key(order)
    }

    /// Where a barrier puts a pair right: the node that it stands before. `None` where there is no such place.
    fn place(&self, hazard: &Hazard) -> Option<NodeId> {
        if hazard.under_way || hazard.need == Need::Keep {
            return None;
        }
        let program = &*self.program;
        let (first, then) = (program.node_of[hazard.first], program.node_of[hazard.then]);
        let line: Vec<NodeId> = program.ancestors(then).collect();
        // The outermost loop that the first access came before.
        let apart = |node: NodeId| !program.is_inside(first, node);
        let is_loop = |node: NodeId| matches!(program.nodes[node].kind, Kind::Rounds(..));
        let mut level = (1..line.len()).rev().find(|&level| is_loop(line[level]) && apart(line[level])).unwrap_or(0);
        if hazard.outer {
            let roles = line.iter().position(|&node| matches!(program.nodes[node].kind, Kind::Roles(_)))?;
            level = level.max(roles);
        }
        let free = line[level..].iter().position(|&node| program.nodes[node].together)?;
        let node = line[level + free];
        (level + free == 0 || apart(node)).then(|| self.first_of(node))
    }

    /// The first node of an operation that has several.
    fn first_of(&self, node: NodeId) -> NodeId {
        let data = &self.program.nodes[node];
        let nodes = &self.program.lists[data.list].nodes;
        let at = nodes.iter().position(|&other| other == node).unwrap_or(0);
        let same = |&&other: &&NodeId| self.program.nodes[other].op == data.op && !self.inserted.contains(&other);
        nodes[..=at].iter().rev().take_while(same).last().copied().unwrap_or(node)
    }

    /// Takes out each barrier that can be, those that run most often first.
    fn thin_out(&mut self) {
        let mut candidates: Vec<NodeId> = Vec::new();
        for list in &self.program.lists {
            candidates.extend(list.nodes.iter().copied().filter(|&node| {
                let data = &self.program.nodes[node];
                data.optional && data.kind == Kind::Meet
            }));
        }
        candidates.sort_by_key(|&node| (std::cmp::Reverse(self.program.weight(node)), node));
        let mut base = analyse(self.program);
        for node in candidates {
            if Self::is_pinned(&base, node) {
                continue;
            }
            let list = self.program.nodes[node].list;
            let kept = self.program.lists[list].nodes.clone();
            self.program.remove(node);
            let after = analyse(self.program);
            if after.within(&base) {
                self.forget(node);
                base = after;
                continue;
            }
            // Others in its place, where they run less often.
            let (inserted, lists) = (self.inserted.clone(), self.program.lists.clone());
            let limit = self.program.weight(node);
            let (mut now, mut weight) = (after, 0);
            while !now.within(&base) && weight < limit {
                let Some(place) = self.missing(&now) else { break };
                weight += self.program.weight(place);
                if weight < limit {
                    let new = self.program.insert(place);
                    self.inserted.push(new);
                    now = analyse(self.program);
                }
            }
            if now.within(&base) && weight < limit {
                self.forget(node);
                base = now;
            } else {
                (self.inserted, self.program.lists) = (inserted, lists);
                self.program.lists[list].nodes = kept;
            }
        }
    }

    /// Notes that a node has gone for good.
    fn forget(&mut self, node: NodeId) {
        let before = self.inserted.len();
        self.inserted.retain(|&other| other != node);
        if self.inserted.len() == before {
            self.removed.push(node);
        }
    }

    /// Whether a barrier or wait may order a pair that has no order elsewhere, so that trials say nothing about it.
    fn is_pinned(base: &Findings, node: NodeId) -> bool {
        let ordered = |access| base.ordered.binary_search(&(node, access)).is_ok();
        base.hazards.iter().any(|hazard| ordered(hazard.first))
    }

    /// Takes out waits that nothing needs, and lets others wait for less.
    fn wait_less(&mut self) {
        let base = analyse(self.program);
        for node in 0..self.program.nodes.len() {
            let Kind::Await(pending) = self.program.nodes[node].kind else { continue };
            let data = &self.program.nodes[node];
            if !data.optional || !self.program.lists[data.list].nodes.contains(&node) || Self::is_pinned(&base, node) {
                continue;
            }
            let mut least = pending;
            for more in pending + 1..=MOST_PENDING {
                self.program.nodes[node].kind = Kind::Await(more);
                if !analyse(self.program).within(&base) {
                    break;
                }
                least = more;
            }
            self.program.nodes[node].kind = Kind::Await(least);
            if least == MOST_PENDING {
                self.program.remove(node);
                self.removed.push(node);
            } else if least != pending {
                self.waits.push((node, least));
            }
        }
    }
}

/// More groups than any wait leaves unfinished: a wait that could leave so many waits for nothing.
const MOST_PENDING: u32 = 8;

/// Moves waits for groups down behind what has nothing to do with copies or shared memory.
fn sink_waits(func: &mut Func) -> bool {
    let mut changed = false;
    for block in func.linked_blocks() {
        for at in (0..func.blocks[block].ops.len()).rev() {
            let ops = &func.blocks[block].ops;
            if !matches!(func.ops[ops[at]].kind, OpKind::Tile(TileOp::WaitGroup { .. })) {
                continue;
            }
            let free = |&&op: &&Op| {
                let data = &func.ops[op];
                let pure = data.row().effects == tessera_ir::Effects::Pure && data.through.is_none();
                let global = matches!(&data.kind, OpKind::Schedule(_)) && data.row().effects == tessera_ir::Effects::Read;
                (pure || global) && data.regions.is_empty()
            };
            let count = ops[at + 1..].iter().take_while(free).count();
            if count > 0 {
                func.blocks[block].ops[at..=at + count].rotate_left(1);
                changed = true;
            }
        }
    }
    changed
}
