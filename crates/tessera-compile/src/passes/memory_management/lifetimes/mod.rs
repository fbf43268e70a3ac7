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
//!
//! [`needed`] goes backwards and says what is read further on, [`so_far`] forwards: what has been written, what goes on, and since which touches
//! threads have not met.

mod needed;
mod so_far;

use std::collections::BTreeMap;
use std::ops::Range;

use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Block, EntityId, Func, Op, OpKind, ScheduleOp, TileOp};

use self::needed::Exits;
use self::so_far::{Flow, Jumps};
use tessera_analysis::buffers::{Access, Buffers, accesses};
use tessera_analysis::set::Set;

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
