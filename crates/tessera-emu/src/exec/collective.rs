//! What lanes of a warp do together: shuffles, votes, matches, reductions, and warp-level matrix instructions.
//!
//! Such an instruction names its lanes in a mask, which each lane gives itself: lanes of one instruction may belong to several
//! groups, as tiles of a warp do. A group's lanes may be spread over fragments; each fragment waits until all of the group that
//! are alive have come to an instruction of the same form with the same mask. That may be another one of the text: since
//! compute capability 7.0 the lanes of a shuffle, vote, match, reduction or `bar.warp.sync` need not stand at one place (an
//! H200 exchanges values between two branches so). The last one to come executes it for all. `.aligned` instructions are
//! for all lanes at one place.

use smallvec::SmallVec;

use super::run::Outcome;
use super::undefined::{Sources, Unwritten, Who};
use super::{Cluster, Fault, Wait, Warp};
use crate::finding::FindingKind;
use crate::lanes::{FULL, LANES, Slot, lanes};
use crate::program::{Change, Op, Reg, Shuffle, Vote};

/// Lanes at an instruction that execute it together with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) pc: u32,
    pub(super) mask: u32,
}

type Parts = SmallVec<[Part; 2]>;

/// The slot of an instruction's mask, where it has one.
fn members_of(op: &Op) -> Option<u32> {
    match op {
        Op::Shuffle { members, .. }
        | Op::Vote { members, .. }
        | Op::Match { members, .. }
        | Op::Redux { members, .. }
        | Op::Elect { members, .. }
        | Op::WarpBarrier { members } => Some(*members),
        _ => None,
    }
}

impl Cluster<'_> {
    /// Whether lanes that wait at an instruction wait for this one.
    fn is_same(&self, warp: &Warp, (pc, members): (u32, u32), (other, lane): (u32, usize)) -> bool {
        let program = self.launch.program;
        match members_of(&program.code[other as usize].op) {
            Some(slot) => {
                warp.narrow(slot, lane) == members
                    && (pc == other || program.meta[pc as usize].mnemonic == program.meta[other as usize].mnemonic)
            }
            None => pc == other,
        }
    }

    /// The lanes that execute a collective instruction now, own ones first, or none where the fragment must wait for others.
    pub(super) fn gather(&self, warp: &mut Warp, fragment: usize, pc: u32, active: u32, members: u32) -> Option<Parts> {
        let wanted = members & warp.live;
        let mut parts: Parts = SmallVec::from_slice(&[Part { pc, mask: active }]);
        if wanted & !active == 0 {
            return Some(parts);
        }
        let mut joined: SmallVec<[usize; 4]> = SmallVec::new();
        for (index, other) in warp.fragments.iter().enumerate() {
            if let Wait::Members { mask } = other.wait
                && index != fragment
                && self.is_same(warp, (pc, members), (other.pc, mask.trailing_zeros() as usize % LANES))
            {
                parts.push(Part { pc: other.pc, mask });
                joined.push(index);
            }
        }
        if wanted & !parts.iter().fold(0, |together, part| together | part.mask) != 0 {
            return None;
        }
        for index in joined {
            let other = &mut warp.fragments[index];
            other.wait = Wait::Ready;
            other.pc += 1;
        }
        Some(parts)
    }

    pub(super) fn collective(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        pc: u32,
        active: u32,
        op: &Op,
    ) -> Result<Outcome, Fault> {
        let Some(slot) = members_of(op) else {
            // `.aligned`: all lanes.
            let members = if matches!(op, Op::ActiveMask { .. }) { active } else { FULL };
            let Some(parts) = self.gather(warp, fragment, pc, active, members) else {
                return Ok(Outcome::Park(Wait::Members { mask: active }));
            };
            let mask = parts.iter().fold(0, |mask, part| mask | part.mask);
            match op {
                Op::ActiveMask { to } => lanes(mask).for_each(|lane| warp.set(*to, lane, u64::from(mask))),
                _ => self.matrix(warp, mask, pc, op)?,
            }
            return Ok(Outcome::Next);
        };
        let groups = self.groups(warp, pc, active, slot)?;
        if let [(members, mask)] = groups[..] {
            let Some(parts) = self.gather(warp, fragment, pc, mask, members) else {
                return Ok(Outcome::Park(Wait::Members { mask }));
            };
            self.together(warp, &parts);
            return Ok(Outcome::Next);
        }
        // Groups that are all here: each by itself. Else they part, and wait each for its own.
        if groups.iter().all(|(members, mask)| members & warp.live & !mask == 0) {
            for &(_, mask) in &groups {
                self.together(warp, &SmallVec::from_slice(&[Part { pc, mask }]));
            }
            return Ok(Outcome::Next);
        }
        let mut ways: SmallVec<[(u32, u32); 4]> = groups.iter().map(|&(_, mask)| (pc, mask)).collect();
        let rest = warp.fragments[fragment].mask & !active;
        if rest != 0 {
            ways.push((pc + 1, rest));
        }
        warp.part(fragment, &ways, pc + 1);
        Ok(Outcome::Parted)
    }

    /// The masks that lanes give, each with the lanes that give it.
    fn groups(&mut self, warp: &Warp, pc: u32, active: u32, slot: u32) -> Result<SmallVec<[(u32, u32); 4]>, Fault> {
        let mut groups: SmallVec<[(u32, u32); 4]> = SmallVec::new();
        for lane in lanes(active) {
            let mut members = warp.narrow(slot, lane);
            if members >> lane & 1 == 0 {
                let message =
                    format!("lane {lane} executes an instruction for the lanes {members:#010x}, to which it does not belong");
                self.pass(warp, pc, Fault::new(FindingKind::WarpMask, lane, message))?;
                members |= 1 << lane;
            }
            match groups.iter_mut().find(|(own, _)| *own == members) {
                Some((_, mask)) => *mask |= 1 << lane,
                None => groups.push((members, 1 << lane)),
            }
        }
        Ok(groups)
    }

    /// Executes an instruction for lanes that may stand at several places of the text.
    fn together(&mut self, warp: &mut Warp, parts: &Parts) {
        let program = self.launch.program;
        let op = |part: &Part| &program.code[part.pc as usize].op;
        let mask = parts.iter().fold(0, |mask, part| mask | part.mask);
        match op(&parts[0]) {
            Op::Shuffle { .. } => self.shuffle(warp, parts, mask),
            Op::Vote { how, .. } => self.vote(warp, parts, mask, *how),
            Op::Match { all, .. } => self.match_values(warp, parts, mask, *all),
            Op::Redux { how, signed, .. } => self.reduce(warp, parts, *how, *signed),
            Op::Elect { .. } => self.elect(warp, parts, mask),
            _ => {
                self.progress += 1;
                self.join_lanes(warp, mask);
            }
        }
    }

    /// What all lanes know of a predicate of each.
    fn vote(&mut self, warp: &mut Warp, parts: &Parts, mask: u32, how: Vote) {
        let program = self.launch.program;
        let op = |part: &Part| &program.code[part.pc as usize].op;
        let (mut votes, mut unsure, mut origin) = (0, 0, None);
        for part in parts {
            let Op::Vote { by, .. } = op(part) else { continue };
            votes |= warp.predicate(*by) & part.mask;
            if let Some(undefined) = &warp.undefined {
                let own = undefined.predicate(by.index) & part.mask;
                unsure |= own;
                if let (0.., Some(lane), None) = (own, lanes(own).next(), origin) {
                    origin = Some(self.origin_of_predicate(undefined, Who::lane(warp, lane, part.pc), by.index, lane));
                }
            }
        }
        let (no, sure) = (mask & !votes, mask & !unsure);
        let (result, decided) = match how {
            Vote::All => (no == 0, no & sure != 0),
            Vote::Any => (votes != 0, votes & sure != 0),
            Vote::Uniform => (no == 0 || votes == 0, no & sure != 0 && votes & sure != 0),
            Vote::Ballot => (false, false),
        };
        for part in parts {
            let Op::Vote { to, flag, .. } = op(part) else { continue };
            self.give(warp, part.mask, *to, u64::from(votes), (u64::from(unsure), origin));
            if let Some(flag) = flag {
                warp.set_predicate(*flag, part.mask, if result { FULL } else { 0 });
                let lanes = if unsure == 0 || decided { 0 } else { part.mask };
                if let Some(undefined) = &mut warp.undefined {
                    undefined.set_predicate(*flag, part.mask, lanes, |_| origin.unwrap_or_default());
                }
            }
        }
    }

    /// Which lanes hold the same value as each, or whether all do.
    fn match_values(&mut self, warp: &mut Warp, parts: &Parts, mask: u32, all: bool) {
        let program = self.launch.program;
        let op = |part: &Part| &program.code[part.pc as usize].op;
        let value_of = |part: &Part| match op(part) {
            Op::Match { value, .. } => *value,
            _ => Reg { slot: 0, wide: true },
        };
        let values: Vec<(usize, u64)> =
            parts.iter().flat_map(|part| lanes(part.mask).map(|lane| (lane, warp.value(value_of(part), lane)))).collect();
        let (lacks, origin) = self.lack(warp, parts, |part| value_of(part).slot);
        let bits = if lacks { 0xffff_ffff } else { 0 };
        let same = values.iter().all(|(_, other)| *other == values[0].1);
        for part in parts {
            let Op::Match { to, flag, .. } = op(part) else { continue };
            for lane in lanes(part.mask) {
                let own = warp.value(value_of(part), lane);
                let equal = values.iter().filter(|(_, value)| *value == own).fold(0u32, |mask, (lane, _)| mask | 1 << lane);
                let result = if all { if same { mask } else { 0 } } else { equal };
                self.give(warp, 1 << lane, *to, u64::from(result), (bits, origin));
            }
            if let Some(flag) = flag {
                warp.set_predicate(*flag, part.mask, if same { FULL } else { 0 });
                let unsure = if lacks { part.mask } else { 0 };
                if let Some(undefined) = &mut warp.undefined {
                    undefined.set_predicate(*flag, part.mask, unsure, |_| origin.unwrap_or_default());
                }
            }
        }
    }

    /// One value of those of all lanes.
    fn reduce(&mut self, warp: &mut Warp, parts: &Parts, how: Change, signed: bool) {
        let program = self.launch.program;
        let op = |part: &Part| &program.code[part.pc as usize].op;
        let value_of = |part: &Part| if let Op::Redux { value, .. } = op(part) { *value } else { 0 };
        let values = parts.iter().flat_map(|part| lanes(part.mask).map(|lane| warp.narrow(value_of(part), lane)));
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
        let (lacks, origin) = self.lack(warp, parts, value_of);
        for part in parts {
            let Op::Redux { to, .. } = op(part) else { continue };
            self.give(warp, part.mask, Some(*to), u64::from(result), (if lacks { 0xffff_ffff } else { 0 }, origin));
        }
    }

    /// The first of the lanes.
    fn elect(&mut self, warp: &mut Warp, parts: &Parts, mask: u32) {
        let program = self.launch.program;
        let op = |part: &Part| &program.code[part.pc as usize].op;
        let leader = mask.trailing_zeros();
        for part in parts {
            let Op::Elect { to, flag, .. } = op(part) else { continue };
            self.give(warp, part.mask, *to, u64::from(leader), (0, None));
            if let Some(flag) = flag {
                warp.set_predicate(*flag, part.mask, 1 << leader);
            }
        }
    }

    /// Gives lanes one result, with its undefined bits.
    fn give(&mut self, warp: &mut Warp, mask: u32, to: Option<Reg>, value: u64, (bits, origin): (u64, Option<u32>)) {
        let Some(to) = to else { return };
        for lane in lanes(mask) {
            warp.set(to, lane, value);
            if let Some(undefined) = &mut warp.undefined {
                undefined.set(to.slot, to.wide, lane, bits, origin.unwrap_or_default());
            }
        }
    }

    /// Whether a lane's operand has undefined bits, and where they come from.
    fn lack(&mut self, warp: &Warp, parts: &Parts, slot: impl Fn(&Part) -> u32) -> (bool, Option<u32>) {
        let Some(undefined) = &warp.undefined else { return (false, None) };
        let found = parts.iter().find_map(|part| {
            let lane = lanes(undefined.lanes(slot(part)) & part.mask).next()?;
            Some((slot(part), lane, part.pc))
        });
        let Some((slot, lane, pc)) = found else { return (false, None) };
        (true, Some(self.origin_of(undefined, Who::lane(warp, lane, pc), slot, lane)))
    }

    fn shuffle(&mut self, warp: &mut Warp, parts: &Parts, mask: u32) {
        let program = self.launch.program;
        // What each lane offers.
        let (mut source, mut bits, mut sources) = (Slot::ZERO, Slot::ZERO, [Sources::NONE; LANES]);
        for part in parts {
            let Op::Shuffle { value, .. } = &program.code[part.pc as usize].op else { continue };
            source.take(&warp.regs[*value as usize], false, part.mask);
            let Some(undefined) = &warp.undefined else { continue };
            for lane in lanes(undefined.lanes(*value) & part.mask) {
                bits.set(false, lane, undefined.bits(*value, false, lane));
                sources[lane] = self.sources_of(undefined, Who::lane(warp, lane, part.pc), *value, lane);
            }
        }
        for part in parts {
            let Op::Shuffle { how, to, valid, lane, clamp, .. } = &program.code[part.pc as usize].op else { continue };
            for own in lanes(part.mask) {
                let b = warp.narrow(*lane, own) & 31;
                let c = warp.narrow(*clamp, own);
                let (limit, segment) = (c & 31, c >> 8 & 31);
                let most = (own as u32 & segment) | (limit & !segment);
                let least = own as u32 & segment;
                let number = own as u32;
                let (from, inside) = match how {
                    Shuffle::Up => (number.wrapping_sub(b), number as i32 - b as i32 >= most as i32),
                    Shuffle::Down => (number + b, number + b <= most),
                    Shuffle::Butterfly => (number ^ b, number ^ b <= most),
                    Shuffle::Index => (least | (b & !segment), least | (b & !segment) <= most),
                };
                let from = if inside { from as usize } else { own };
                let taken = source.n()[from];
                let who = Who::lane(warp, own, part.pc);
                let shadow = warp.undefined.as_ref().map(|undefined| {
                    let unsure = [*lane, *clamp].into_iter().find(|&slot| undefined.lanes(slot) >> own & 1 == 1);
                    match unsure {
                        _ if mask >> from & 1 == 0 => (0xffff_ffff, self.origin(who, Unwritten::Absent(from)).into()),
                        Some(slot) => (0xffff_ffff, self.sources_of(undefined, who, slot, own)),
                        None => (bits.get(false, from), sources[from]),
                    }
                });
                if let (Some((bits, sources)), Some(undefined), Some(to)) = (shadow, &mut warp.undefined, to) {
                    undefined.set(to.slot, to.wide, own, bits, sources);
                }
                if let Some(to) = to {
                    warp.set(*to, own, u64::from(taken));
                }
                if let Some(valid) = valid {
                    warp.set_predicate(*valid, 1 << own, if inside { 1 << own } else { 0 });
                }
            }
        }
    }
}
