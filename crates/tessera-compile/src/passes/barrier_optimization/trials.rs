//! Barriers and waits on trial: a change stays where the analysis finds no pair of accesses that lost its order.
//!
//! Invariant: after each step no pair lacks an order that had one before it, apart from those that the next barrier of [`Work::complete`] is for.

use tessera_ir::bug;

use super::entries::Entries;
use super::flow::{Findings, Hazard, analyse};
use super::place::Need;
use super::program::{Kind, NodeId, Program};

/// What is to be changed in a function.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// New barriers: nodes that say where.
    pub(super) inserted: Vec<NodeId>,
    /// Barriers and waits that are to go.
    pub(super) removed: Vec<NodeId>,
    /// Waits that wait for less, and what they leave.
    pub(super) waits: Vec<(NodeId, u32)>,
}

/// Puts barriers into a program where they are missing, and takes out what nothing needs.
pub(super) fn improve(program: &mut Program) -> Changes {
    let mut work = Work::of(program);
    work.complete();
    work.wait_less();
    work.thin_out();
    work.lift();
    work.changes
}

/// Puts barriers into a program where they are missing, and yields them.
pub(super) fn completed(program: &mut Program) -> Vec<NodeId> {
    let mut work = Work::of(program);
    work.complete();
    work.changes.inserted
}

/// A program while it is changed.
struct Work<'p> {
    program: &'p mut Program,
    entries: Entries,
    /// What is known of it as it is.
    found: Findings,
    changes: Changes,
}

impl<'p> Work<'p> {
    fn of(program: &'p mut Program) -> Work<'p> {
        let mut entries = Entries::default();
        let found = analyse(program, &mut entries);
        Work { program, entries, found, changes: Changes::default() }
    }
}

impl Work<'_> {
    /// Puts barriers in until no pair needs another one.
    fn complete(&mut self) {
        while let Some(place) = self.missing(&self.found) {
            let node = self.program.insert(place);
            self.changes.inserted.push(node);
            self.found = analyse(self.program, &mut self.entries);
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
        // The outermost loop that the first access came before; the second access itself where it came before none.
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
        let at = nodes.iter().position(|&other| other == node).unwrap_or_else(|| bug!("a node outside of its list"));
        let same = |&&other: &&NodeId| self.program.nodes[other].op == data.op && !self.changes.inserted.contains(&other);
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
        for node in candidates {
            if self.is_pinned(node) {
                continue;
            }
            let list = self.program.nodes[node].list;
            let kept = self.program.lists[list].nodes.clone();
            self.program.remove(node);
            let after = analyse(self.program, &mut self.entries);
            if after.within(&self.found) {
                self.forget(node);
                self.found = after;
                continue;
            }
            // Others in its place, where they run less often.
            let (inserted, lists) = (self.changes.inserted.clone(), self.program.lists.clone());
            let limit = self.program.weight(node);
            let (mut now, mut weight) = (after, 0);
            while !now.within(&self.found) && weight < limit {
                let Some(place) = self.missing(&now) else { break };
                weight += self.program.weight(place);
                if weight < limit {
                    let new = self.program.insert(place);
                    self.changes.inserted.push(new);
                    now = analyse(self.program, &mut self.entries);
                }
            }
            if now.within(&self.found) && weight < limit {
                self.forget(node);
                self.found = now;
            } else {
                (self.changes.inserted, self.program.lists) = (inserted, lists);
                self.program.lists[list].nodes = kept;
            }
        }
    }

    /// Moves barriers out of branches, each before its branch, where that makes another one needless.
    fn lift(&mut self) {
        for node in 0..self.program.nodes.len() {
            let inner = self.program.nodes[node].list;
            let Some(branch) = self.program.lists[inner].parent.filter(|_| self.is_barrier(node)) else { continue };
            let Kind::Ways(ways) = self.program.nodes[branch].kind.clone() else { continue };
            if !self.program.nodes[branch].together || self.is_pinned(node) {
                continue;
            }
            // Those on the other way, and the first one behind.
            let outer = &self.program.lists[self.program.nodes[branch].list].nodes;
            let behind = outer.iter().skip_while(|&&other| other != branch).find(|&&other| self.is_barrier(other));
            let others = ways.iter().flat_map(|&way| &self.program.lists[way].nodes).chain(behind);
            let others: Vec<NodeId> = others.copied().filter(|&other| other != node && self.is_barrier(other)).collect();
            if others.is_empty() {
                continue;
            }
            let kept = (self.changes.inserted.clone(), self.changes.removed.clone(), self.program.lists.clone());
            self.program.remove(node);
            self.forget(node);
            let lifted = self.program.insert(branch);
            self.changes.inserted.push(lifted);
            let mut fewer = None;
            if analyse(self.program, &mut self.entries).within(&self.found) {
                for other in others {
                    if self.is_pinned(other) {
                        continue;
                    }
                    let lists = self.program.lists.clone();
                    self.program.remove(other);
                    let now = analyse(self.program, &mut self.entries);
                    if now.within(&self.found) {
                        self.forget(other);
                        fewer = Some(now);
                    } else {
                        self.program.lists = lists;
                    }
                }
            }
            match fewer {
                Some(now) => self.found = now,
                None => (self.changes.inserted, self.changes.removed, self.program.lists) = kept,
            }
        }
    }

    /// Whether a node is a barrier of its own that has not gone.
    fn is_barrier(&self, node: NodeId) -> bool {
        let data = &self.program.nodes[node];
        data.optional && data.kind == Kind::Meet && self.program.lists[data.list].nodes.contains(&node)
    }

    /// Notes that a node has gone for good.
    fn forget(&mut self, node: NodeId) {
        let before = self.changes.inserted.len();
        self.changes.inserted.retain(|&other| other != node);
        if self.changes.inserted.len() == before {
            self.changes.removed.push(node);
        }
    }

    /// Whether a barrier or wait may order a pair that has no order elsewhere, so that trials say nothing about it.
    fn is_pinned(&self, node: NodeId) -> bool {
        self.found.is_pinned(node, &self.entries)
    }

    /// Takes out waits that nothing needs, and lets others wait for less.
    fn wait_less(&mut self) {
        for node in 0..self.program.nodes.len() {
            let Kind::Await(pending) = self.program.nodes[node].kind else { continue };
            let data = &self.program.nodes[node];
            if !data.optional || !self.program.lists[data.list].nodes.contains(&node) || self.is_pinned(node) {
                continue;
            }
            let mut least = pending;
            for more in pending + 1..=MOST_PENDING {
                self.program.nodes[node].kind = Kind::Await(more);
                let now = analyse(self.program, &mut self.entries);
                if !now.within(&self.found) {
                    break;
                }
                (least, self.found) = (more, now);
            }
            self.program.nodes[node].kind = Kind::Await(least);
            if least == MOST_PENDING {
                self.program.remove(node);
                self.changes.removed.push(node);
            } else if least != pending {
                self.changes.waits.push((node, least));
            }
        }
    }
}

/// More groups than any wait leaves unfinished: a wait that could leave so many waits for nothing.
const MOST_PENDING: u32 = 8;
