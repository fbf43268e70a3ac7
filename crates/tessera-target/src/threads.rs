//! Threads, warps and barriers, and tiles that change their layout within warps.

use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, Rounding, ShuffleMode, Signedness, TurnStep};
use tessera_ir::{Elem, HiddenParam, OpData, ScheduleOp, TileOp, bug};
use tessera_layout::{Conversion, Distribution, LaneMap, conversion};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Special, Type as Ty, Word};
use tessera_types::{Arch, DType};

use super::bound::{Regs, class_of};
use super::lowering::{Lowered, Lowering, Team};
use super::operation::astray;
use super::remap::{Remap, row_major};
use tessera_analysis::facts::WORKSPACE_ALIGN;

impl Lowering<'_> {
    /// Numbers of threads, and what lanes hand each other.
    pub(super) fn lanes(&mut self, data: &OpData, kind: &TileOp) -> Lowered<()> {
        let reg: Reg = match kind {
            TileOp::ThreadId {} => self.thread(),
            TileOp::LaneId {} => self.lane(),
            TileOp::Worker {} => self.b.special(Special::CtaidX),
            TileOp::ClusterRank {} => self.b.special(Special::ClusterCtarank),
            TileOp::ClusterNumber {} => {
                let (Some(split), Some(among)) = (self.func.hints.split, self.func.hints.among) else {
                    bug!("a cluster's number where no clusters share a block's work")
                };
                let (place, split, among) = (self.b.special(Special::CtaidX), self.b.u32(split), self.b.u32(among));
                let cluster = self.b.div(Ty::U32, place, split);
                self.b.rem(Ty::U32, cluster, among)
            }
            TileOp::Workers {} => self.b.special(Special::NctaidX),
            TileOp::Workspace { number, bytes_per_block } => {
                let address = self.b.pointer_param(&format!("workspace_{number}"), WORKSPACE_ALIGN);
                self.hidden.push(HiddenParam::Workspace { bytes: 0, bytes_per_block: u64::from(*bytes_per_block) });
                self.maps.push(address);
                address
            }
            TileOp::WarpId {} => {
                let thread = self.b.special(Special::TidX);
                let five = self.b.u32(5);
                self.b.shr(Ty::U32, thread, five)
            }
            TileOp::Vary {} => {
                // Of any device so far this is more than a block has threads.
                let (count, more) = (self.b.special(Special::Nsmid), self.b.u32(1 << 16));
                let (thread, most) = (self.b.special(Special::TidX), self.b.xor(count, more));
                let is_one = self.b.setp(Word::Lt, Ty::U32, thread, most);
                let (source, zero) = (self.reg(data.one(0))?, self.b.u32(0));
                self.b.select(is_one, source, zero)
            }
            TileOp::WarpReduce { combine, signedness, redux } => self.warp_reduce(data, *combine, *signedness, *redux)?,
            TileOp::Shuffle { mode } => self.shuffle(data, *mode)?,
            TileOp::MatchAny { bits } => self.match_any(data, *bits)?,
            TileOp::Popcount {} => {
                let value = self.reg(data.one(0))?;
                self.b.popc(value)
            }
            _ => astray(kind),
        };
        self.bind_regs(data.result(), [reg]);
        Ok(())
    }

    /// The words of a tile, each with a zero added that nobody can know to be one: no device has 2^20 multiprocessors.
    pub(super) fn renew(&mut self, data: &OpData, number: u32) -> Lowered<()> {
        const BITS: u32 = 20;
        let (count, bits) = (self.b.special(Special::Nsmid), self.b.u32(BITS + number % (32 - BITS)));
        let zero = self.b.shr(Ty::U32, count, bits);
        let mut renewed = Regs::new();
        for pair in self.regs(data.one(0))?.chunks(2) {
            let word = match pair {
                &[alone] => self.b.cvt(Ty::U32, Ty::U16, alone),
                pair => self.words.get(pair).copied().unwrap_or_else(|| self.b.pack(pair)),
            };
            let word = self.b.xor(word, zero);
            renewed.extend(self.halves(word).into_iter().take(pair.len()));
        }
        self.bind_regs(data.result(), renewed);
        Ok(())
    }

    /// Lowers a barrier of the function, or a fence.
    pub(super) fn meeting(&mut self, kind: &TileOp) {
        match kind {
            TileOp::Barrier {} => self.meet(),
            TileOp::ClusterBarrier {} => {
                // Lanes may have come by different ways.
                self.b.warp_sync();
                self.b.cluster_arrive(false);
                self.b.cluster_wait();
            }
            TileOp::ClusterWait {} => {
                self.b.warp_sync();
                self.b.cluster_wait();
            }
            TileOp::NamedBarrier { id, threads } => {
                let id = self.b.u32(*id);
                self.b.bar_sync(id, *threads);
            }
            TileOp::NamedArrive { id, threads } => {
                let id = self.b.u32(*id);
                self.b.bar_arrive(id, *threads);
            }
            TileOp::FenceAsync {} => {
                if self.arch.has_tma() {
                    self.b.fence("proxy.async.shared::cta");
                }
            }
            _ => astray(kind),
        }
    }

    /// A warpgroup of a role takes its turn, or gives it on: at a barrier of two groups, of which the one before comes without waiting.
    pub(super) fn group_turn(&mut self, id: u32, groups: u32, step: TurnStep) -> Lowered<()> {
        let Team { warp: Some(warp), .. } = self.team else { return Err(self.broken("turns of warpgroups outside of a role")) };
        let (threads, two) = (2 * Arch::WARPGROUP, self.b.u32((Arch::WARPGROUP / Arch::WARP).ilog2()));
        let group = self.b.shr(Ty::U32, warp, two);
        // Each group has an instruction of its own: a predicate takes no register, a barrier's number does.
        for own in 0..groups {
            let number = self.b.u32(own);
            let is_own = self.b.setp(Word::Eq, Ty::U32, group, number);
            let (mine, next) = (self.b.u32(id + own), self.b.u32(id + (own + 1) % groups));
            match step {
                TurnStep::Open if own + 1 < groups => {}
                TurnStep::Open | TurnStep::Give => self.b.guarded(is_own, |b| b.bar_arrive(next, threads)),
                TurnStep::Take => self.b.guarded(is_own, |b| b.bar_sync(mine, threads)),
            }
        }
        Ok(())
    }

    /// This thread's number in its warp.
    pub(super) fn lane(&mut self) -> Reg {
        let (thread, mask) = (self.b.special(Special::TidX), self.b.u32(31));
        self.b.and(thread, mask)
    }

    fn warp_reduce(&mut self, data: &OpData, combine: Combine, signedness: Signedness, redux: bool) -> Lowered<Reg> {
        if redux {
            return self.redux(data, combine, signedness);
        }
        let (value, elem, dtype) = (data.one(0), self.elem(data.one(0))?, self.dtype(data.one(0))?);
        let mut reg = self.reg(value)?;
        let overflow = tessera_ir::attrs::Overflow::Wraps;
        let (rounding, flush_to_zero) = (Rounding::NearestEven, false);
        let kind = match (combine, dtype.is_float()) {
            (Combine::Sum, true) => ScheduleOp::AddF { rounding, flush_to_zero },
            (Combine::Prod, true) => ScheduleOp::MulF { rounding, flush_to_zero },
            (Combine::Max, true) => ScheduleOp::MaxF { propagate_nan: false, flush_to_zero },
            (Combine::Min, true) => ScheduleOp::MinF { propagate_nan: false, flush_to_zero },
            (Combine::Sum, false) => ScheduleOp::AddI { overflow },
            (Combine::Prod, false) => ScheduleOp::MulI { overflow },
            (Combine::Max, false) => ScheduleOp::MaxI { signedness },
            (Combine::Min, false) => ScheduleOp::MinI { signedness },
        };
        for bits in [16, 8, 4, 2, 1] {
            let other = self.shuffled_element(elem, reg, |b, word| b.shfl_xor(word, bits));
            reg = match dtype.is_float() {
                true => self.float(&kind, dtype, &[reg, other])?,
                false => self.integer(&kind, dtype, &[reg, other]),
            };
        }
        Ok(reg)
    }

    /// The warp's sum, greatest or least integer by one instruction.
    fn redux(&mut self, data: &OpData, combine: Combine, signedness: Signedness) -> Lowered<Reg> {
        let ty = if signedness == Signedness::Signed { Ty::S32 } else { Ty::U32 };
        let operation = match combine {
            Combine::Sum => Word::Add,
            Combine::Max => Word::Max,
            Combine::Min => Word::Min,
            Combine::Prod => return Err(self.unsupported("`redux` has no products")),
        };
        if !self.arch.has_redux() {
            return Err(self.unsupported("there is no `redux`"));
        }
        let reg = self.reg(data.one(0))?;
        Ok(self.b.redux(operation, ty, reg))
    }

    fn shuffle(&mut self, data: &OpData, mode: ShuffleMode) -> Lowered<Reg> {
        let (elem, reg) = (self.elem(data.one(0))?, self.reg(data.one(0))?);
        let lane = self.index_in_shared(data.one(1))?;
        let (word, clamp) = match mode {
            ShuffleMode::Index => (Word::Idx, 31),
            ShuffleMode::Up => (Word::Up, 0),
            ShuffleMode::Down => (Word::Down, 31),
            ShuffleMode::Xor => (Word::Bfly, 31),
        };
        Ok(self.shuffled_element(elem, reg, |b, value| b.shfl(word, value, lane, clamp)))
    }

    /// By a vote on each bit: of few bits that is faster than the instruction that compares whole words, which looks at one value after the other.
    fn match_any(&mut self, data: &OpData, bits: u32) -> Lowered<Reg> {
        let (value, zero) = (self.reg(data.one(0))?, self.b.u32(0));
        let mut same: Option<Reg> = None;
        for bit in 0..bits {
            let mask = self.b.u32(1 << bit);
            let own = self.b.and(value, mask);
            let is_set = self.b.setp(Word::Ne, Ty::U32, own, zero);
            let set = self.b.ballot(is_set);
            let clear = self.b.not(set);
            let agree = self.b.select(is_set, set, clear);
            same = Some(same.map_or(agree, |same| self.b.and(same, agree)));
        }
        same.ok_or_else(|| self.broken("lanes that are matched by no bits"))
    }

    // --- layouts within warps

    /// Elements that move within their warps only, by shuffles; `None` where some do not.
    pub(super) fn shuffled(
        &mut self,
        elem: Elem,
        source: (&Distribution, &Regs),
        result: &Distribution,
        map: &Remap,
    ) -> Lowered<Option<Regs>> {
        let same = source.0.shape() == result.shape() && map.offset == 0 && map.strides == row_major(result.shape());
        if !same {
            return Ok(None);
        }
        let Ok(Conversion::Shuffle(plan)) = conversion(source.0, result, elem.bytes()) else { return Ok(None) };
        let zero = self.bits(elem, 0);
        // Truth values travel as numbers.
        let mut from: Vec<Reg> = Vec::new();
        for &register in &plan.from {
            let reg = register.map_or(zero, |register| source.1[register as usize]);
            from.push(self.stored_element(elem, reg));
        }
        let moved_elem = if class_of(elem) == Class::Pred { Elem::Num(DType::I32) } else { elem };
        let filler = self.stored_element(elem, zero);
        let mut to: Vec<Reg> = vec![filler; plan.to.len()];
        for round in &plan.rounds {
            let offered = self.by_lane(&round.offer, &from);
            let value = if round.stays() {
                offered
            } else if round.source.lane == [1, 2, 4, 8, 16] {
                self.shuffled_element(moved_elem, offered, |b, word| b.shfl_xor(word, round.source.base))
            } else {
                let lane = self.lane_map(&round.source);
                self.shuffled_element(moved_elem, offered, |b, word| b.shfl(Word::Idx, word, lane, 31))
            };
            if round.write.is_constant() {
                to[round.write.base as usize] = value;
                continue;
            }
            let target = self.lane_map(&round.write);
            let mut targets: Vec<u32> = (0..32).map(|lane| round.write.at(lane)).collect();
            targets.sort_unstable();
            targets.dedup();
            for index in targets {
                let number = self.b.u32(index);
                let here = self.b.setp(Word::Eq, Ty::U32, target, number);
                to[index as usize] = self.b.select(here, value, to[index as usize]);
            }
        }
        let mut regs: Regs = SmallVec::from_elem(zero, result.registers() as usize);
        for (&register, value) in plan.to.iter().zip(to) {
            if let Some(register) = register {
                regs[register as usize] = self.read_element(elem, value);
            }
        }
        Ok(Some(regs))
    }

    /// The register whose number a map gives for this lane.
    fn by_lane(&mut self, map: &LaneMap, registers: &[Reg]) -> Reg {
        let bits: Vec<u32> = (0..5).filter(|&bit| map.lane[bit as usize] != 0).collect();
        self.chosen_by(&bits, map, map.base, registers)
    }

    fn chosen_by(&mut self, bits: &[u32], map: &LaneMap, index: u32, registers: &[Reg]) -> Reg {
        let Some((&bit, rest)) = bits.split_first() else { return registers[index as usize] };
        let clear = self.chosen_by(rest, map, index, registers);
        let set = self.chosen_by(rest, map, index ^ map.lane[bit as usize], registers);
        if clear == set {
            return clear;
        }
        let (lane, mask, zero) = (self.lane(), self.b.u32(1 << bit), self.b.u32(0));
        let found = self.b.and(lane, mask);
        let is_set = self.b.setp(Word::Ne, Ty::U32, found, zero);
        self.b.select(is_set, set, clear)
    }

    /// The number that a map gives for this lane.
    fn lane_map(&mut self, map: &LaneMap) -> Reg {
        let mut value = self.b.u32(map.base);
        let (one, zero) = (self.b.u32(1), self.b.u32(0));
        for bit in 0..5u32 {
            let change = map.lane[bit as usize];
            if change == 0 {
                continue;
            }
            let lane = self.lane();
            let count = self.b.u32(bit);
            let shifted = self.b.shr(Ty::U32, lane, count);
            let set = self.b.and(shifted, one);
            let mask = self.b.sub(Ty::U32, zero, set);
            let change = self.b.u32(change);
            let part = self.b.and(mask, change);
            value = self.b.xor(value, part);
        }
        value
    }
}
