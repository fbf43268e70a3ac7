//! How the lanes of a warp part at branches and meet again: where the branch's paths do, or at an instruction that all must come to.

use super::{Fragment, Join, Wait, Warp};
use crate::program::NOWHERE;

impl Warp {
    fn new_join(&mut self, join: Join) -> u32 {
        match self.joins.iter().position(|join| join.expected == 0) {
            Some(index) => {
                self.joins[index] = join;
                index as u32
            }
            None => {
                self.joins.push(join);
                self.joins.len() as u32 - 1
            }
        }
    }

    pub(super) fn ready(pc: u32, mask: u32, join: u32, call: u32) -> Fragment {
        Fragment { pc, mask, join, call, wait: Wait::Ready, woken: false, timed_out: false, asked: NOWHERE }
    }

    /// A fragment reached its join.
    pub(super) fn arrive(&mut self, fragment: usize) {
        let Fragment { mask, join, .. } = self.fragments.swap_remove(fragment);
        let meeting = &mut self.joins[join as usize];
        meeting.arrived |= mask;
        if meeting.arrived == meeting.expected {
            let Join { pc, expected, parent, call, .. } = *meeting;
            meeting.expected = 0;
            self.fragments.push(Self::ready(pc, expected, parent, call));
        }
    }

    /// Lanes end.
    pub(super) fn end(&mut self, fragment: usize, mask: u32) {
        self.live &= !mask;
        for call in &mut self.calls {
            call.pending &= !mask;
        }
        self.fragments[fragment].mask &= !mask;
        if self.fragments[fragment].mask == 0 {
            self.fragments.swap_remove(fragment);
        }
        for index in 0..self.joins.len() {
            let join = &mut self.joins[index];
            if join.expected & mask == 0 {
                continue;
            }
            join.expected &= !mask;
            if join.expected != 0 && join.arrived == join.expected {
                let Join { pc, expected, parent, call, .. } = *join;
                join.expected = 0;
                self.fragments.push(Self::ready(pc, expected, parent, call));
            }
        }
        for other in &mut self.fragments {
            if matches!(other.wait, Wait::Members { .. }) {
                other.wait = Wait::Ready;
            }
        }
    }

    /// Lanes that wait at a join go on alone where the others may be waiting for them: those run long and touch memory that
    /// others change.
    pub(super) fn leave_joins(&mut self, steps: u64) {
        const PATIENCE: u64 = 4096;
        if self.joins.iter().all(|join| join.expected == 0 || join.arrived == 0) {
            self.apart = 0;
            self.strong = false;
            return;
        }
        self.apart += steps;
        if self.apart < PATIENCE || !self.strong {
            return;
        }
        self.apart = 0;
        self.strong = false;
        for join in &mut self.joins {
            if join.expected != 0 && join.arrived != 0 {
                self.fragments.insert(0, Self::ready(join.pc, join.arrived, join.parent, join.call));
                join.expected &= !join.arrived;
                join.arrived = 0;
            }
        }
    }

    /// Lanes come to an instruction at which all of the warp must stand. Whether the others wait there: then they are one again, which
    /// executes it. Nobody is left whom a join could wait for.
    pub(super) fn meet(&mut self, fragment: usize, active: u32) -> bool {
        let Fragment { pc, call, .. } = self.fragments[fragment];
        let waits = |part: &Fragment| match part.wait {
            Wait::Members { mask } if (part.pc, part.call) == (pc, call) => mask,
            _ => 0,
        };
        if self.fragments.iter().fold(active, |mask, part| mask | waits(part)) != self.live {
            return false;
        }
        self.joins.clear();
        self.fragments.clear();
        self.fragments.push(Self::ready(pc, self.live, NOWHERE, call));
        true
    }

    /// Lanes part: each group goes on at its place, the first as this fragment, until all meet.
    pub(super) fn part(&mut self, fragment: usize, groups: &[(u32, u32)], meets: u32) {
        let Fragment { mask, join, call, .. } = self.fragments[fragment];
        let same = join != NOWHERE && self.joins[join as usize].pc == meets && self.joins[join as usize].call == call;
        let join = if meets == NOWHERE || same {
            join
        } else {
            self.new_join(Join { pc: meets, expected: mask, arrived: 0, parent: join, call })
        };
        let mut ready = groups.iter().map(|&(pc, mask)| Self::ready(pc, mask, join, call));
        if let Some(first) = ready.next() {
            self.fragments[fragment] = first;
        }
        self.fragments.extend(ready);
    }
}
