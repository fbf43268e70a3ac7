//! Where the paths of a branch meet again: for each conditional or indexed branch, the first place that all of its paths come
//! to which do not end before.
//!
//! Blocks of straight code are the nodes. Mostly that place is the immediate post-dominator. Paths that end in `trap` keep
//! nobody from meeting: they are left out of the graph. Where a path leaves by `exit`, or by a jump to the kernel's last `ret`,
//! only the end post-dominates the branch; then one way out counts and the others do not ([`Graph::way_out`]):
//!
//! ```text
//! branch on p     p: branch on q      q: exit            the branch on p meets at `both`, whether q holds or not;
//!                                     not q: bra both    the branch on q has no meeting place, nor needs one
//!                 not p: bra both
//! both:  bar.sync 0; ret
//! ```
//! A place from which no end can be reached (an endless loop) has none: threads that part there stay apart.

use std::collections::BTreeSet;

use crate::program::{Inst, NOWHERE, Op, Pred, Program};

/// The successors of an operation; `code.len()` is the end.
fn successors(code: &[Inst], at: usize, out: &mut Vec<usize>) {
    out.clear();
    let inst = &code[at];
    let always = inst.guard == Pred::TRUE;
    match &inst.op {
        Op::Branch { target, .. } => {
            out.push(*target as usize);
            if !always {
                out.push(at + 1);
            }
        }
        Op::BranchTo { targets, .. } => {
            out.extend(targets.iter().map(|&target| target as usize));
            if !always {
                out.push(at + 1);
            }
        }
        Op::Exit | Op::Trap | Op::Return => {
            out.push(code.len());
            if !always {
                out.push(at + 1);
            }
        }
        _ => out.push(at + 1),
    }
}

/// Straight pieces of code and what follows each; the last node is the end.
struct Graph {
    starts: Vec<usize>,
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// Nodes in which a thread does nothing but end.
    leaves: Vec<bool>,
}

impl Graph {
    fn new(code: &[Inst]) -> Graph {
        let end = code.len();
        let mut starts = BTreeSet::from([0, end]);
        let mut next = Vec::new();
        for at in 0..end {
            if matches!(code[at].op, Op::Branch { .. } | Op::BranchTo { .. } | Op::Exit | Op::Trap | Op::Return) {
                successors(code, at, &mut next);
                starts.extend(next.iter().copied().filter(|&start| start <= end));
                starts.insert(at + 1);
            }
        }
        let starts: Vec<usize> = starts.into_iter().collect();
        let node_at = |start: usize| starts.binary_search(&start).unwrap_or(starts.len() - 1);
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
        let mut leaves = vec![false; starts.len()];
        for node in 0..starts.len() - 1 {
            let last = starts[node + 1] - 1;
            successors(code, last, &mut next);
            for &start in &next {
                let to = node_at(start.min(end));
                after[node].push(to);
                before[to].push(node);
            }
            let ends = code[last].guard == Pred::TRUE && matches!(code[last].op, Op::Exit);
            leaves[node] = ends && (starts[node]..last).all(|at| matches!(code[at].op, Op::Nop));
        }
        let mut graph = Graph { starts, after, before, leaves };
        graph.cut_traps(code);
        graph
    }

    fn exit(&self) -> usize {
        self.starts.len() - 1
    }

    /// Takes out the nodes from which every path ends in a trap, as long as others are left.
    fn cut_traps(&mut self, code: &[Inst]) {
        let mut doomed = vec![false; self.after.len()];
        let mut waiting: Vec<usize> = (0..self.exit())
            .filter(|&node| {
                let last = &code[self.starts[node + 1] - 1];
                last.guard == Pred::TRUE && matches!(last.op, Op::Trap)
            })
            .collect();
        while let Some(node) = waiting.pop() {
            doomed[node] = true;
            let all_doomed = |&from: &usize| !doomed[from] && self.after[from].iter().all(|&to| doomed[to]);
            waiting.extend(self.before[node].iter().copied().filter(all_doomed));
        }
        if doomed[0] {
            return;
        }
        for node in 0..doomed.len() {
            if doomed[node] {
                self.after[node].clear();
            }
            self.after[node].retain(|&to| !doomed[to]);
            self.before[node].retain(|&from| !doomed[from]);
        }
    }

    /// Whether an edge leads out of the kernel.
    fn leaves_by(&self, to: usize) -> bool {
        to == self.exit() || self.leaves[to]
    }

    /// Edges that lead backwards in a depth-first walk from the kernel's start and from those that nothing leads to.
    fn back_edges(&self) -> BTreeSet<(usize, usize)> {
        let mut back = BTreeSet::new();
        // Not seen, on the path, done.
        let mut state = vec![0u8; self.after.len()];
        for root in 0..self.after.len() {
            if state[root] != 0 {
                continue;
            }
            let mut path = vec![(root, 0)];
            state[root] = 1;
            while let Some((node, child)) = path.last_mut() {
                let node = *node;
                match self.after[node].get(*child) {
                    Some(&to) => {
                        *child += 1;
                        match state[to] {
                            0 => {
                                state[to] = 1;
                                path.push((to, 0));
                            }
                            1 => drop(back.insert((node, to))),
                            _ => {}
                        }
                    }
                    None => {
                        state[node] = 2;
                        path.pop();
                    }
                }
            }
        }
        back
    }

    /// Nodes from which a node is reached without going back.
    fn upstream(&self, of: usize, back: &BTreeSet<(usize, usize)>) -> Vec<bool> {
        let mut seen = vec![false; self.after.len()];
        let mut waiting = vec![of];
        while let Some(node) = waiting.pop() {
            if !std::mem::replace(&mut seen[node], true) {
                waiting.extend(self.before[node].iter().copied().filter(|&from| !back.contains(&(from, node))));
            }
        }
        seen
    }

    /// The way out that counts for a branch: the one that most of its sides come to without going back, and most of the kernel.
    /// None where no two sides have one in common.
    fn way_out(&self, node: usize, ways: &[WayOut]) -> Option<usize> {
        let mut sides = self.after[node].clone();
        sides.sort_unstable();
        sides.dedup();
        let inside = |way: &WayOut| sides.iter().filter(|&&side| !self.leaves_by(side) && way.upstream[side]).count();
        let best = (0..ways.len()).max_by_key(|&at| (inside(&ways[at]), ways[at].size, ways[at].from))?;
        (inside(&ways[best]) > 1).then_some(best)
    }

    /// The ways out, by the nodes that lead there.
    fn ways_out(&self) -> Vec<WayOut> {
        let back = self.back_edges();
        let leads_out = |&node: &usize| !self.leaves[node] && self.after[node].iter().any(|&to| self.leaves_by(to));
        let nodes = (0..self.exit()).rev().filter(leads_out).take(MOST_WAYS);
        nodes
            .map(|from| {
                let upstream = self.upstream(from, &back);
                WayOut { from, size: upstream.iter().filter(|seen| **seen).count(), upstream, dominators: None }
            })
            .collect()
    }

    /// Post-dominators where one way out counts.
    fn dominators_of(&self, way: usize) -> Vec<Option<usize>> {
        let exit = self.exit();
        let mut after = self.after.clone();
        for (node, list) in after.iter_mut().enumerate() {
            list.retain(|&to| !self.leaves_by(to));
            if node == way {
                list.push(exit);
            }
        }
        let mut before = vec![Vec::new(); after.len()];
        for (node, list) in after.iter().enumerate() {
            list.iter().for_each(|&to| before[to].push(node));
        }
        post_dominators(&before, &after, exit)
    }
}

/// Ways out that are looked at, from the kernel's end back: real kernels have a handful.
const MOST_WAYS: usize = 64;

/// A node that leads out of the kernel.
struct WayOut {
    from: usize,
    /// Nodes from which it is reached without going back, and how many.
    upstream: Vec<bool>,
    size: usize,
    dominators: Option<Vec<Option<usize>>>,
}

/// For each conditional branch: its position, and where its paths meet.
pub(super) fn joins(code: &[Inst]) -> Vec<(usize, u32)> {
    let graph = Graph::new(code);
    let exit = graph.exit();
    let dominators = post_dominators(&graph.before, &graph.after, exit);
    let mut ways: Option<Vec<WayOut>> = None;
    let mut found = Vec::new();
    for (node, &dominator) in dominators[..exit].iter().enumerate() {
        let last = graph.starts[node + 1] - 1;
        let parts = match code[last].op {
            Op::Branch { .. } => code[last].guard != Pred::TRUE,
            Op::BranchTo { .. } => true,
            _ => false,
        };
        if parts {
            let meets = match dominator {
                Some(meet) if meet != exit && !graph.leaves[meet] => Some(meet),
                Some(_) => {
                    let ways = ways.get_or_insert_with(|| graph.ways_out());
                    graph.way_out(node, ways).and_then(|at| {
                        let WayOut { from, dominators, .. } = &mut ways[at];
                        dominators.get_or_insert_with(|| graph.dominators_of(*from))[node].filter(|&meet| meet != exit)
                    })
                }
                None => None,
            };
            found.push((last, meets.map_or(NOWHERE, |meet| graph.starts[meet] as u32)));
        }
    }
    found
}

/// Immediate post-dominators by the iteration of Cooper, Harvey and Kennedy on the reversed graph.
fn post_dominators(before: &[Vec<usize>], after: &[Vec<usize>], exit: usize) -> Vec<Option<usize>> {
    let mut order = vec![usize::MAX; before.len()];
    let mut postorder = Vec::new();
    let mut visited = vec![false; before.len()];
    let mut stack = vec![(exit, 0usize)];
    visited[exit] = true;
    while let Some((node, child)) = stack.last_mut() {
        match before[*node].get(*child) {
            Some(&to) => {
                *child += 1;
                if !visited[to] {
                    visited[to] = true;
                    stack.push((to, 0));
                }
            }
            None => {
                order[*node] = postorder.len();
                postorder.push(*node);
                stack.pop();
            }
        }
    }
    let mut dominator: Vec<Option<usize>> = vec![None; before.len()];
    dominator[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for &node in postorder.iter().rev().filter(|&&node| node != exit) {
            let mut meet: Option<usize> = None;
            for &to in after[node].iter().filter(|&&to| dominator[to].is_some()) {
                meet = Some(match meet {
                    None => to,
                    Some(other) => {
                        let (mut a, mut b) = (to, other);
                        while a != b {
                            while order[a] < order[b] {
                                a = dominator[a].unwrap_or(exit);
                            }
                            while order[b] < order[a] {
                                b = dominator[b].unwrap_or(exit);
                            }
                        }
                        a
                    }
                });
            }
            if meet.is_some() && dominator[node] != meet {
                dominator[node] = meet;
                changed = true;
            }
        }
    }
    dominator
}

/// A guess at the registers a thread needs: what a straight reading of the code keeps alive at once, in 32-bit units.
pub(super) fn pressure(program: &Program) -> u32 {
    let count = program.slots.len();
    let mut first = vec![usize::MAX; count];
    let mut last = vec![0usize; count];
    for (at, meta) in program.meta.iter().enumerate() {
        for &slot in meta.reads.iter().chain(&meta.writes) {
            first[slot as usize] = first[slot as usize].min(at);
            last[slot as usize] = at;
        }
    }
    let mut change = vec![0i64; program.code.len() + 2];
    for slot in 0..count {
        if first[slot] <= last[slot] && matches!(program.slots[slot], crate::program::Fill::Register) {
            change[first[slot]] += 1;
            change[last[slot] + 1] -= 1;
        }
    }
    let (mut alive, mut most) = (0i64, 0i64);
    for step in change {
        alive += step;
        most = most.max(alive);
    }
    (most as u32 + 10).clamp(16, 255)
}
