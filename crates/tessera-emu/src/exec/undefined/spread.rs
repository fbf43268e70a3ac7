//! How undefined bits spread from operands to results, and where an instruction needs defined ones.
//!
//! An instruction whose operands are defined defines its results: that is the common case. Else arithmetic spreads them by the
//! rule of its operation ([`Spread`]): what depends on one bit is computed with the bit as 0 and as 1, and what differs is
//! undefined. Sums and comparisons are computed with the least and the greatest that the operands can be. Memory accesses,
//! matrix products and what lanes do together see to their data themselves; here their addresses and counts are looked at.

use super::{NOWHERE_YET, Origin, Sources, Undefined, Unwritten, Use, Who};
use crate::exec::{Cluster, Warp};
use crate::lanes::{LANES, Slot, lanes};
use crate::ops::{Comparison, MapFn, Spread, TestFn};
use crate::program::{Carry, Connective, Inst, Op, Pred, Reg, WgmmaA};

pub(super) fn ones(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Both slots' bits, word by word.
fn each(a: &Slot, b: &Slot, f: impl Fn(u64, u64) -> u64) -> Slot {
    let mut out = Slot::ZERO;
    for (out, (a, b)) in out.w_mut().iter_mut().zip(a.w().iter().zip(b.w())) {
        *out = f(*a, *b);
    }
    out
}

/// The least and the greatest unsigned values that operands can have.
fn bounds(values: &[Slot; 4], undefined: &[Slot; 4]) -> [[Slot; 4]; 2] {
    let low = std::array::from_fn(|index| each(&values[index], &undefined[index], |value, undefined| value & !undefined));
    let high = std::array::from_fn(|index| each(&values[index], &undefined[index], |value, undefined| value | undefined));
    [low, high]
}

fn apply(run: &MapFn, operands: [&Slot; 4]) -> Slot {
    let mut out = Slot::ZERO;
    (run.call)(&mut out, &operands);
    out
}

/// The undefined bits of an operation's result, for values and undefined bits of its operands in views of their own.
pub(super) fn spread(run: &MapFn, values: &[Slot; 4], undefined: &[Slot; 4], wide: [bool; 4], to_wide: bool) -> Slot {
    let [low, high] = bounds(values, undefined);
    let arity = run.from_bits.iter().take_while(|bits| **bits > 0).count();
    let union = |index: usize, lane: usize| undefined[index].get(wide[index], lane);
    let all = ones(u32::from(run.to_bits));
    let by_lane = |f: &dyn Fn(usize) -> u64| {
        let mut out = Slot::ZERO;
        (0..LANES).for_each(|lane| out.set(to_wide, lane, f(lane) & all));
        out
    };
    match run.spread {
        Spread::Whole => by_lane(&|lane| if (0..arity).any(|index| union(index, lane) != 0) { all } else { 0 }),
        Spread::Pieces(bits) => by_lane(&|lane| {
            let any = (0..arity).fold(0, |any, index| any | union(index, lane));
            let pieces = (0..64 / bits).filter(|piece| any >> (piece * bits) & ones(bits) != 0);
            pieces.fold(0, |out, piece| out | ones(bits) << (piece * bits))
        }),
        Spread::Bits(data) => {
            // Every way to set the undefined bits of the data operands to all zeros or all ones.
            let first = apply(run, [&low[0], &low[1], &low[2], &low[3]]);
            let mut differs = Slot::ZERO;
            for choice in 1..1u8 << arity {
                if choice & !data == 0 {
                    let pick = |index: usize| if choice >> index & 1 == 1 { &high[index] } else { &low[index] };
                    let other = apply(run, [pick(0), pick(1), pick(2), pick(3)]);
                    differs = each(&differs, &each(&first, &other, |a, b| a ^ b), |a, b| a | b);
                }
            }
            let controls = |lane: usize| (0..arity).any(|index| data >> index & 1 == 0 && union(index, lane) != 0);
            by_lane(&|lane| if controls(lane) { all } else { differs.get(to_wide, lane) })
        }
        Spread::Sum | Spread::Difference => {
            let other = if run.spread == Spread::Sum { [&low[1], &high[1]] } else { [&high[1], &low[1]] };
            let least = apply(run, [&low[0], other[0], other[0], other[0]]);
            let most = apply(run, [&high[0], other[1], other[1], other[1]]);
            by_lane(&|lane| least.get(to_wide, lane) ^ most.get(to_wide, lane) | union(0, lane) | union(1, lane))
        }
        Spread::Product => by_lane(&|lane| {
            let zeros = |index: usize| high[index].get(wide[index], lane).trailing_zeros();
            let from = |index: usize| match union(index, lane) {
                0 => 64,
                bits => bits.trailing_zeros(),
            };
            let product = (from(0) + zeros(1)).min(from(1) + zeros(0));
            let start = if arity > 2 { product.min(from(2)) } else { product };
            if start >= 64 { 0 } else { u64::MAX << start }
        }),
        Spread::Halves => by_lane(&|lane| {
            let half = |index: usize| if union(index, lane) != 0 { 0xffff } else { 0 };
            half(0) << 16 | half(1)
        }),
    }
}

/// Where the undefined bytes of an operation's result come from, for the lanes in which it has some. `from` says it of the
/// operands.
pub(super) fn sources(
    run: &MapFn,
    values: &[Slot; 4],
    undefined: &[Slot; 4],
    from: &dyn Fn(usize, usize) -> Sources,
    wide: [bool; 4],
    to: (bool, &Slot),
) -> [Sources; LANES] {
    let arity = run.from_bits.iter().take_while(|bits| **bits > 0).count();
    let (to_wide, result) = to;
    let mut known: [Sources; LANES] = [Sources::NONE; LANES];
    let data = if let Spread::Bits(data) = run.spread { data } else { 0 };
    let [low, _] = bounds(values, undefined);
    let first = apply(run, [&low[0], &low[1], &low[2], &low[3]]);
    // Byte by byte of what only moves: which bytes of the result it reaches.
    for index in (0..arity).filter(|index| data >> index & 1 == 1) {
        for byte in 0..if wide[index] { 8 } else { 4 } {
            let mut own = Slot::ZERO;
            (0..LANES).for_each(|lane| own.set(wide[index], lane, undefined[index].get(wide[index], lane) & 0xff << (8 * byte)));
            if own.w().iter().all(|bits| *bits == 0) {
                continue;
            }
            let high = each(&low[index], &own, |low, own| low | own);
            let other = apply(run, std::array::from_fn(|at| if at == index { &high } else { &low[at] }));
            for (lane, known) in known.iter_mut().enumerate() {
                let reached = first.get(to_wide, lane) ^ other.get(to_wide, lane);
                let origin = from(index, lane).0[byte];
                for (at, known) in known.0.iter_mut().enumerate().filter(|(_, known)| **known == NOWHERE_YET) {
                    if reached >> (8 * at) & 0xff != 0 {
                        *known = origin;
                    }
                }
            }
        }
    }
    // Else the same byte of an operand, or the first that it has.
    for lane in (0..LANES).filter(|&lane| result.get(to_wide, lane) != 0) {
        let lacks = |index: usize| undefined[index].get(wide[index], lane);
        let controls = (0..arity).find(|&index| data != 0 && data >> index & 1 == 0 && lacks(index) != 0);
        if let Some(index) = controls {
            known[lane] = from(index, lane).first(lacks(index)).into();
            continue;
        }
        let halves = run.spread == Spread::Halves;
        for at in 0..8 {
            if known[lane].0[at] != NOWHERE_YET {
                continue;
            }
            let same = (0..arity).find(|&index| lacks(index) >> (8 * at) & 0xff != 0 && !halves);
            let any = (0..arity).find(|&index| lacks(index) != 0 && (!halves || index == usize::from(at < 2)));
            known[lane].0[at] = match (same, any) {
                (Some(index), _) => from(index, lane).0[at],
                (None, Some(index)) => from(index, lane).first(lacks(index)),
                (None, None) => continue,
            };
        }
    }
    known
}

/// The lanes in which a condition is undefined.
fn undecided(run: &TestFn, values: &[Slot; 4], undefined: &[Slot; 4], wide: [bool; 4]) -> u32 {
    let mask = |index: usize| ones(u32::from(run.from_bits[index]));
    let any = |lane: usize| (0..4).any(|index| undefined[index].get(wide[index], lane) & mask(index) != 0);
    let by_lane = |f: &dyn Fn(usize) -> bool| (0..LANES).filter(|&lane| f(lane)).fold(0, |out, lane| out | 1 << lane);
    match run.comparison {
        Comparison::Whole => by_lane(&any),
        Comparison::Equality => by_lane(&|lane| {
            let [a, b] = [0, 1].map(|index| values[index].get(wide[index], lane));
            let [ua, ub] = [0, 1].map(|index| undefined[index].get(wide[index], lane));
            any(lane) && (a ^ b) & !(ua | ub) & mask(0) == 0
        }),
        Comparison::Order { signed } => {
            let [mut low, mut high] = bounds(values, undefined);
            if signed {
                let sign = 1u64 << (run.from_bits[0] - 1);
                for index in 0..2 {
                    for lane in 0..LANES {
                        let swap = undefined[index].get(wide[index], lane) & sign;
                        let (a, b) = (low[index].get(wide[index], lane), high[index].get(wide[index], lane));
                        low[index].set(wide[index], lane, a ^ swap);
                        high[index].set(wide[index], lane, b ^ swap);
                    }
                }
            }
            (run.call)(&[&low[0], &high[1], &low[1], &low[1]]) ^ (run.call)(&[&high[0], &low[1], &low[1], &low[1]])
        }
    }
}

/// The lanes in which a connective of two conditions, each with its undefined lanes, is undefined.
pub(super) fn undecided_pair(how: Connective, (a, ua): (u32, u32), (b, ub): (u32, u32)) -> u32 {
    match how {
        Connective::And => (ua & (ub | b)) | (ub & (ua | a)),
        Connective::Or => (ua & (ub | !b)) | (ub & (ua | !a)),
        Connective::Xor => ua | ub,
    }
}

/// Whether lanes exchange what they hold.
fn is_collective(op: &Op) -> bool {
    matches!(op, Op::Shuffle { .. } | Op::Vote { .. } | Op::Match { .. } | Op::Redux { .. })
}

/// Work on one instruction of a warp.
pub(super) struct Work<'w> {
    pub(super) warp: &'w Warp,
    pub(super) undefined: &'w mut Undefined,
    pc: u32,
    pub(super) active: u32,
    /// Where what is undefined comes from, by lane.
    origins: [Option<Origin>; LANES],
}

impl Work<'_> {
    pub(super) fn origin(&self, lane: usize) -> Origin {
        self.origins[lane].unwrap_or(NOWHERE_YET)
    }

    /// A register's undefined bits in its own view, of the lanes that execute.
    pub(super) fn bits(&self, slot: u32, wide: bool) -> Slot {
        self.undefined.slot(slot, wide)
    }

    /// The result of an operation, of the lanes that execute; all of it comes from one place.
    pub(super) fn result(&mut self, to: Reg, bits: impl Fn(usize) -> u64) {
        for lane in lanes(self.active) {
            let origin = self.origin(lane);
            self.undefined.set(to.slot, to.wide, lane, bits(lane), origin);
        }
    }

    /// The same where the bytes come from several places.
    pub(super) fn result_from(&mut self, to: Reg, bits: impl Fn(usize) -> (u64, Sources)) {
        for lane in lanes(self.active) {
            let (bits, sources) = bits(lane);
            self.undefined.set(to.slot, to.wide, lane, bits, sources);
        }
    }

    /// Where a register's undefined bits come from, by lane.
    pub(super) fn sources(&self, slot: u32) -> [Sources; LANES] {
        std::array::from_fn(|lane| self.undefined.sources(slot, lane))
    }

    /// Where the first undefined bits of a register come from, by lane.
    pub(super) fn firsts(&self, reg: Reg) -> [Sources; LANES] {
        let sources = self.sources(reg.slot);
        std::array::from_fn(|lane| sources[lane].first(self.undefined.bits(reg.slot, reg.wide, lane)).into())
    }

    /// Where a predicate's undefined lanes come from.
    pub(super) fn flags(&self, index: u32) -> [Origin; LANES] {
        self.undefined.predicate_origins[index as usize].as_deref().copied().unwrap_or([NOWHERE_YET; LANES])
    }

    pub(super) fn flag(&mut self, index: u32, undefined: u32) {
        let origins = self.origins;
        self.undefined.set_predicate(index, self.active, undefined, |lane| origins[lane].unwrap_or(NOWHERE_YET));
    }

    /// The lanes in which one of the registers is undefined.
    pub(super) fn any(&self, slots: &[u32]) -> u32 {
        slots.iter().fold(0, |any, &slot| any | self.undefined.lanes(slot))
    }

    /// Operands that an operation reads as an instruction does: values and undefined bits, with their views.
    pub(super) fn operands(&self, from: &[u32; 4], from_bits: &[u8; 4]) -> ([Slot; 4], [Slot; 4], [bool; 4]) {
        let wide = from_bits.map(|bits| bits == 64);
        let undefined = std::array::from_fn(|index| match from_bits[index] {
            0 => Slot::ZERO,
            bits => {
                let mut slot = self.bits(from[index], wide[index]);
                let mask = ones(u32::from(bits));
                (0..LANES).for_each(|lane| slot.set(wide[index], lane, slot.get(wide[index], lane) & mask));
                slot
            }
        });
        (from.map(|slot| self.warp.regs[slot as usize]), undefined, wide)
    }

    /// A comparison of the halves of packed operands that `half` covers.
    pub(super) fn test_half(&self, run: &TestFn, from: &[u32; 4], with: Option<(Connective, Pred)>, half: u64) -> u32 {
        let (values, undefined, wide) = self.operands(from, &run.from_bits);
        let lacks = |lane: usize| (0..4).any(|index| undefined[index].get(wide[index], lane) & half != 0);
        let own = (0..LANES).filter(|&lane| lacks(lane)).fold(0, |out, lane| out | 1 << lane);
        self.connected(run, &values, own, with, false)
    }

    pub(super) fn test(&self, run: &TestFn, from: &[u32; 4], with: Option<(Connective, Pred)>, negated: bool) -> u32 {
        let (values, undefined, wide) = self.operands(from, &run.from_bits);
        let own = undecided(run, &values, &undefined, wide);
        self.connected(run, &values, own, with, negated)
    }

    /// The lanes in which a condition is undefined that is itself so in some lanes, once it is joined with a predicate.
    fn connected(&self, run: &TestFn, values: &[Slot; 4], own: u32, with: Option<(Connective, Pred)>, negated: bool) -> u32 {
        let Some((how, with)) = with else { return own };
        let holds = (run.call)(&[&values[0], &values[1], &values[2], &values[3]]);
        let holds = if negated { !holds } else { holds };
        undecided_pair(how, (holds, own), (self.warp.predicate(with), self.undefined.predicate(with.index)))
    }
}

impl Cluster<'_> {
    /// Follows undefined bits through an instruction that is about to be executed by the lanes `active` of `mask`.
    #[inline]
    pub(in crate::exec) fn follow_bits(&mut self, warp: &mut Warp, pc: u32, active: u32, mask: u32) {
        let program = self.launch.program;
        let (Inst { op, guard }, meta) = (&program.code[pc as usize], &program.meta[pc as usize]);
        let Some(undefined) = &mut warp.undefined else { return };
        let mut any = undefined.predicate(guard.index) & mask;
        for &slot in &meta.reads {
            any |= undefined.lanes(slot) & active;
        }
        for &index in &meta.reads_predicates {
            any |= undefined.predicate(index) & active;
        }
        if undefined.carry.0 != 0
            && let Op::Carry(Carry { reads, writes, .. }) = op
        {
            any |= if *reads { undefined.carry.0 & active } else { 0 };
            if *writes && any == 0 {
                undefined.carry.0 &= !active;
            }
        }
        if any != 0 {
            let Some(mut undefined) = warp.undefined.take() else { return };
            self.spread(warp, &mut undefined, pc, active, mask);
            warp.undefined = Some(undefined);
            return;
        }
        // Products write their results when they run.
        if matches!(op, Op::Wgmma(_)) {
            return;
        }
        for &slot in &meta.writes {
            undefined.clear(slot, active);
        }
        for &index in &meta.writes_predicates {
            undefined.predicates[index as usize] &= !active;
        }
    }

    /// The same where an operand or the guard is undefined in some lane.
    #[cold]
    fn spread(&mut self, warp: &Warp, undefined: &mut Undefined, pc: u32, active: u32, mask: u32) {
        let program = self.launch.program;
        let (Inst { op, guard }, meta) = (&program.code[pc as usize], &program.meta[pc as usize]);
        let unsure = mask & undefined.predicate(guard.index);
        self.name_first_reads(warp, undefined, pc, active, unsure);
        let mut origins = [None; LANES];
        for lane in lanes(active | unsure) {
            let who = Who::lane(warp, lane, pc);
            let slot = meta.reads.iter().find(|&&slot| undefined.lanes(slot) >> lane & 1 == 1);
            let mut flags = meta.reads_predicates.iter().chain([&guard.index]);
            let flag = flags.find(|&&index| undefined.predicate(index) >> lane & 1 == 1);
            origins[lane] = match (slot, flag) {
                (Some(&slot), _) => Some(self.origin_of(undefined, who, slot, lane)),
                (None, Some(&index)) => Some(self.origin_of_predicate(undefined, who, index, lane)),
                (None, None) if undefined.carry.0 >> lane & 1 == 1 => Some(undefined.carry.1),
                (None, None) => None,
            };
        }
        let mut work = Work { warp, undefined, pc, active, origins };
        let pure = work.arithmetic(op);
        if pure {
            // Lanes that may have executed it or not hold what they held, or the result.
            for &slot in &meta.writes {
                for lane in lanes(unsure) {
                    let origin = work.origin(lane);
                    work.undefined.set(
                        slot,
                        program.is_wide(slot),
                        lane,
                        u64::MAX >> if program.is_wide(slot) { 0 } else { 32 },
                        origin,
                    );
                }
            }
            let origins = work.origins;
            for &index in &meta.writes_predicates {
                let origin = |lane: usize| origins[lane].unwrap_or(NOWHERE_YET);
                work.undefined.set_predicate(index, unsure, unsure, origin);
            }
            return;
        }
        if unsure != 0 {
            let how = if matches!(op, Op::Branch { .. } | Op::BranchTo { .. }) { Use::Branch } else { Use::Guard };
            self.need_predicate(&mut work, guard.index, unsure, how);
        }
        self.needs(&mut work, op);
        // These read what they write, or write it later.
        if !matches!(op, Op::Wgmma(_) | Op::Mma(_) | Op::Wmma(_) | Op::MoveMatrix { .. }) && !is_collective(op) {
            for &slot in &meta.writes {
                work.undefined.clear(slot, active);
            }
            for &index in &meta.writes_predicates {
                work.undefined.predicates[index as usize] &= !active;
            }
        }
    }

    /// Undefined operands that nobody has read come from here.
    fn name_first_reads(&mut self, warp: &Warp, undefined: &mut Undefined, pc: u32, active: u32, unsure: u32) {
        let program = self.launch.program;
        let (guard, meta) = (&program.code[pc as usize].guard, &program.meta[pc as usize]);
        for &slot in &meta.reads {
            for lane in lanes(undefined.lanes(slot) & active) {
                if undefined.sources(slot, lane) == Sources::NONE {
                    let origin = self.origin(Who::lane(warp, lane, pc), Unwritten::Register(slot));
                    let wide = program.is_wide(slot);
                    undefined.set(slot, wide, lane, undefined.bits(slot, wide, lane), origin);
                }
            }
        }
        for (&index, lanes_of) in meta.reads_predicates.iter().map(|index| (index, active)).chain([(&guard.index, unsure)]) {
            let missing = undefined.predicate(index) & lanes_of;
            for lane in lanes(missing) {
                let origin = self.origin_of_predicate(undefined, Who::lane(warp, lane, pc), index, lane);
                undefined.set_predicate(index, 1 << lane, 1 << lane, |_| origin);
            }
        }
    }

    /// A predicate must be defined in some lanes.
    fn need_predicate(&mut self, work: &mut Work<'_>, index: u32, lanes: u32, how: Use) {
        let missing = work.undefined.predicate(index) & lanes;
        if missing == 0 {
            return;
        }
        let lane = missing.trailing_zeros() as usize;
        let who = Who::lane(work.warp, lane, work.pc);
        let origin = self.origin_of_predicate(work.undefined, who, index, lane);
        let name = format!("`{}`", self.launch.program.predicate_names[index as usize]);
        self.use_undefined(who, &name, origin, how);
        work.undefined.predicates[index as usize] &= !missing;
    }

    /// A register must be defined in the lanes that execute.
    fn need(&mut self, work: &mut Work<'_>, slot: u32, how: Use) {
        let missing = work.undefined.lanes(slot) & work.active;
        if missing == 0 {
            return;
        }
        let lane = missing.trailing_zeros() as usize;
        let who = Who::lane(work.warp, lane, work.pc);
        let origin = self.origin_of(work.undefined, who, slot, lane);
        let name = self.name_of(work.undefined, slot, lane, work.pc);
        self.use_undefined(who, &name, origin, how);
        work.undefined.clear(slot, missing);
    }

    /// A register's name; of one that an instruction made for itself, that of the undefined operand.
    pub(in crate::exec) fn name_of(&self, undefined: &Undefined, slot: u32, lane: usize, pc: u32) -> String {
        let program = self.launch.program;
        let own = &program.names[slot as usize];
        let operand = || program.meta[pc as usize].reads.iter().find(|&&slot| undefined.lanes(slot) >> lane & 1 == 1);
        match if own == "scratch" { operand() } else { None } {
            Some(&slot) => format!("`{}`", program.names[slot as usize]),
            None => format!("`{own}`"),
        }
    }

    /// What an operation that is no arithmetic needs defined.
    fn needs(&mut self, work: &mut Work<'_>, op: &Op) {
        match op {
            Op::Load { addr, .. } | Op::Store { addr, .. } | Op::Atomic { addr, .. } => {
                self.need(work, addr.base.slot, Use::Address)
            }
            Op::LoadMatrix { addr, .. } | Op::StoreMatrix { addr, .. } => self.need(work, addr.base.slot, Use::Address),
            Op::WmmaLoad { addr, stride, .. } | Op::WmmaStore { addr, stride, .. } => {
                self.need(work, addr.base.slot, Use::Address);
                stride.iter().for_each(|reg| self.need(work, reg.slot, Use::Address));
            }
            Op::StoreAsync { addr, barrier, .. } => {
                self.need(work, addr.base.slot, Use::Address);
                self.need(work, barrier.base.slot, Use::Address);
            }
            Op::CpAsync { to, from, source, .. } => {
                self.need(work, to.base.slot, Use::Address);
                self.need(work, from.base.slot, Use::Address);
                source.iter().for_each(|reg| self.need(work, reg.slot, Use::Operand));
            }
            Op::Wgmma(wgmma) => {
                self.need(work, wgmma.b.slot, Use::Address);
                if let WgmmaA::Descriptor(reg) = &wgmma.a {
                    self.need(work, reg.slot, Use::Address);
                }
                self.need_predicate(work, wgmma.accumulate.index, work.active, Use::Operand);
            }
            Op::Shuffle { members, .. } | Op::Vote { members, .. } | Op::Match { members, .. } | Op::Redux { members, .. } => {
                self.need(work, *members, Use::Operand);
            }
            Op::Surface(surface) => {
                self.need(work, surface.image.base.slot, Use::Address);
                surface.at.iter().for_each(|reg| self.need(work, reg.slot, Use::Address));
            }
            // What they read is data.
            Op::Mma(_) | Op::Wmma(_) | Op::MoveMatrix { .. } | Op::Call(_) | Op::Print { .. } => {}
            _ => {
                let meta = &self.launch.program.meta[work.pc as usize];
                meta.reads.iter().for_each(|&slot| self.need(work, slot, Use::Operand));
                meta.reads_predicates.iter().for_each(|&index| self.need_predicate(work, index, work.active, Use::Operand));
            }
        }
    }
}
