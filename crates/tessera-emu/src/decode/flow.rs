//! Where the paths of a branch meet: the immediate post-dominator of each conditional or indexed branch.
//!
//! Blocks of straight code are the nodes, the kernel's end is the root of the reversed graph. A place from which the end
//! cannot be reached (an endless loop) has no post-dominator: threads that part there stay apart.

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

/// For each conditional branch: its position, and where its paths meet.
pub(super) fn joins(code: &[Inst]) -> Vec<(usize, u32)> {
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
    let exit = starts.len() - 1;
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
    for node in 0..exit {
        let last = starts[node + 1] - 1;
        successors(code, last, &mut next);
        for &start in &next {
            let to = node_at(start.min(end));
            after[node].push(to);
            before[to].push(node);
        }
    }
    let dominators = post_dominators(&before, &after, exit);
    let mut found = Vec::new();
    for node in 0..exit {
        let last = starts[node + 1] - 1;
        let parts = match code[last].op {
            Op::Branch { .. } => code[last].guard != Pred::TRUE,
            Op::BranchTo { .. } => true,
            _ => false,
        };
        if parts {
            let meets = match dominators[node] {
                Some(meet) if meet != exit => starts[meet] as u32,
                _ => NOWHERE,
            };
            found.push((last, meets));
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
