//! What lanes of a warp do together: shuffles, votes, matches, reductions, and warp-level matrix instructions.
//!
//! Such an instruction names its lanes. Where they are spread over fragments, each fragment waits until all that are alive
//! have come to the same instruction; the last one executes it for all.

use super::run::Outcome;
use super::{Cluster, Fault, Wait, Warp};
use crate::finding::FindingKind;
use crate::lanes::{FULL, lanes};
use crate::program::{Change, Op, Shuffle, Vote};

impl Cluster<'_> {
    /// The lanes that execute a collective instruction now, or none where the fragment must wait for others.
    pub(super) fn gather(&self, warp: &mut Warp, fragment: usize, pc: u32, active: u32, members: u32) -> Option<u32> {
        let wanted = members & warp.live;
        let mut together = active;
        if wanted & !active != 0 {
            for (index, other) in warp.fragments.iter().enumerate() {
                if let Wait::Members { mask } = other.wait
                    && index != fragment
                    && other.pc == pc
                {
                    together |= mask;
                }
            }
            if wanted & !together != 0 {
                return None;
            }
            for (index, other) in warp.fragments.iter_mut().enumerate() {
                if index != fragment && other.pc == pc && matches!(other.wait, Wait::Members { .. }) {
                    other.wait = Wait::Ready;
                    other.pc += 1;
                }
            }
        }
        Some(together)
    }

    pub(super) fn collective(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        pc: u32,
        active: u32,
        op: &Op,
    ) -> Result<Outcome, Fault> {
        let first = active.trailing_zeros() as usize;
        let members = match op {
            Op::Shuffle { members, .. }
            | Op::Vote { members, .. }
            | Op::Match { members, .. }
            | Op::Redux { members, .. }
            | Op::Elect { members, .. }
            | Op::WarpBarrier { members } => {
                let members = warp.narrow(*members, first);
                let outside = active & !members;
                if outside != 0 {
                    let lane = outside.trailing_zeros() as usize;
                    let message =
                        format!("lane {lane} executes an instruction for the lanes {members:#010x}, to which it does not belong");
                    return Err(Fault::new(FindingKind::WarpMask, lane, message));
                }
                members
            }
            Op::ActiveMask { .. } => active,
            // `.aligned`: all lanes.
            _ => FULL,
        };
        let Some(mask) = self.gather(warp, fragment, pc, active, members) else {
            return Ok(Outcome::Park(Wait::Members { mask: active }));
        };
        match op {
            Op::Shuffle { how, to, valid, value, lane, clamp, .. } => {
                let source = warp.regs[*value as usize];
                let written = warp.written.get(*value as usize).copied();
                for own in lanes(mask) {
                    let b = warp.narrow(*lane, own) & 31;
                    let c = warp.narrow(*clamp, own);
                    let (limit, segment) = (c & 31, c >> 8 & 31);
                    let most = (own as u32 & segment) | (limit & !segment);
                    let least = own as u32 & segment;
                    let own = own as u32;
                    let (from, inside) = match how {
                        Shuffle::Up => (own.wrapping_sub(b), own as i32 - b as i32 >= most as i32),
                        Shuffle::Down => (own + b, own + b <= most),
                        Shuffle::Butterfly => (own ^ b, own ^ b <= most),
                        Shuffle::Index => (least | (b & !segment), least | (b & !segment) <= most),
                    };
                    let from = if inside { from } else { own };
                    if mask >> from & 1 == 0 && self.launch.options.sanitize.uninitialized {
                        let message = format!("lane {own} takes the value of lane {from}, which does not take part");
                        return Err(Fault::new(FindingKind::WarpMask, own as usize, message));
                    }
                    if let Some(to) = to {
                        warp.set(*to, own as usize, u64::from(source.n()[from as usize]));
                        match written {
                            Some(written) if written >> from & 1 == 0 => {
                                warp.written[to.slot as usize] &= !(1 << own);
                                warp.origins[to.slot as usize] = warp.origins[*value as usize];
                            }
                            Some(_) => warp.written[to.slot as usize] |= 1 << own,
                            None => {}
                        }
                    }
                    if let Some(valid) = valid {
                        warp.set_predicate(*valid, 1 << own, if inside { 1 << own } else { 0 });
                    }
                }
            }
            Op::Vote { how, to, flag, by, .. } => {
                let votes = warp.predicate(*by) & mask;
                let result = match how {
                    Vote::All => votes == mask,
                    Vote::Any => votes != 0,
                    Vote::Uniform => votes == mask || votes == 0,
                    Vote::Ballot => false,
                };
                if let Some(to) = to {
                    for lane in lanes(mask) {
                        warp.set(*to, lane, u64::from(votes));
                    }
                }
                if let Some(flag) = flag {
                    warp.set_predicate(*flag, mask, if result { FULL } else { 0 });
                }
            }
            Op::Match { all, to, flag, value, .. } => {
                let values: Vec<(usize, u64)> = lanes(mask).map(|lane| (lane, warp.value(*value, lane))).collect();
                let same = values.iter().all(|(_, other)| *other == values[0].1);
                for &(lane, value) in &values {
                    let equal = values.iter().filter(|(_, other)| *other == value).fold(0u32, |mask, (lane, _)| mask | 1 << lane);
                    let result = if *all { if same { mask } else { 0 } } else { equal };
                    if let Some(to) = to {
                        warp.set(*to, lane, u64::from(result));
                    }
                }
                if let Some(flag) = flag {
                    warp.set_predicate(*flag, mask, if same { FULL } else { 0 });
                }
            }
            Op::Redux { how, signed, to, value, .. } => {
                let values = lanes(mask).map(|lane| warp.narrow(*value, lane));
                let result = values
                    .reduce(|a, b| match (how, signed) {
                        (Change::Add, _) => a.wrapping_add(b),
                        (Change::Min, true) => (a as i32).min(b as i32) as u32,
                        (Change::Max, true) => (a as i32).max(b as i32) as u32,
                        (Change::Min, false) => a.min(b),
                        (Change::Max, false) => a.max(b),
                        (Change::And, _) => a & b,
                        (Change::Or, _) => a | b,
                        _ => a ^ b,
                    })
                    .unwrap_or(0);
                for lane in lanes(mask) {
                    warp.set(*to, lane, u64::from(result));
                }
            }
            Op::ActiveMask { to } => {
                for lane in lanes(mask) {
                    warp.set(*to, lane, u64::from(mask));
                }
            }
            Op::Elect { to, flag, .. } => {
                let leader = mask.trailing_zeros();
                if let Some(to) = to {
                    for lane in lanes(mask) {
                        warp.set(*to, lane, u64::from(leader));
                    }
                }
                if let Some(flag) = flag {
                    warp.set_predicate(*flag, mask, 1 << leader);
                }
            }
            Op::WarpBarrier { .. } => {
                self.progress += 1;
                self.join_lanes(warp, mask);
            }
            _ => self.matrix(warp, mask, pc, op)?,
        }
        Ok(Outcome::Next)
    }
}
