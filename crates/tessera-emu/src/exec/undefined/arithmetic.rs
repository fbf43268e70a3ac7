//! How undefined bits spread through each operation that only computes.

use super::Sources;
use super::spread::{Work, ones, sources, spread, undecided_pair};
use crate::lanes::{LANES, Slot};
use crate::ops::convert::Conversion;
use crate::ops::video::Video;
use crate::ops::{MapFn, TestFn};
use crate::program::{Carry, Connective, LogicPredicate, Op, Pred, Reg, Set};

impl Work<'_> {
    /// Spreads through an operation that only computes; whether it is one.
    pub(super) fn arithmetic(&mut self, op: &Op) -> bool {
        match op {
            Op::Map { run, to, from } => self.map(run, *to, from),
            Op::Test { run, from, to, other, combine } => {
                let (yes, no) = (self.test(run, from, *combine, false), self.test(run, from, *combine, true));
                to.iter().for_each(|&index| self.flag(index, yes));
                other.iter().for_each(|&index| self.flag(index, no));
            }
            Op::TestPair { run, from, to, other, combine } => self.test_pair(run, from, [to, other], *combine),
            Op::Set(set) => self.set_where(set),
            Op::Video { video, to, from } => self.video(video, *to, *from),
            Op::Convert { conversion, to, from } => self.convert(conversion, *to, *from),
            Op::ConvertPair { conversion, to, high, low } => self.convert_pair(conversion, *to, [*high, *low]),
            Op::ConvertSplit { conversion, to, from } => self.convert_halves(conversion, *to, *from),
            Op::Select { to, a, b, by } => self.select(*to, [*a, *b], *by),
            Op::Predicate { to, how, a, b } => {
                let of = |pred: &Pred| (self.warp.predicate(*pred), self.undefined.predicate(pred.index));
                let flags = undecided_pair(*how, of(a), of(b));
                self.flag(*to, flags);
            }
            Op::LogicPredicate(logic) => self.logic(logic),
            Op::Unpack { to, from, bits } => self.unpack(to, *from, *bits),
            Op::Pack { to, from, bits } => self.pack(*to, from, *bits),
            Op::Carry(carry) => self.carry(carry),
            Op::Generic { to, from, .. } => {
                let (bits, sources) = (self.bits(from.slot, from.wide), self.sources(from.slot));
                self.result_from(*to, |lane| (bits.get(from.wide, lane), sources[lane]));
            }
            Op::RankOf { to, from } => {
                let any = self.any(&[from.slot]);
                self.result(*to, |lane| if any >> lane & 1 == 1 { 0xff } else { 0 });
            }
            Op::IsSpace { to, from, .. } => {
                let any = self.any(&[from.slot]);
                self.flag(*to, any);
            }
            _ => return false,
        }
        true
    }

    fn map(&mut self, run: &MapFn, to: Reg, from: &[u32; 4]) {
        let (values, undefined, wide) = self.operands(from, &run.from_bits);
        let bits = spread(run, &values, &undefined, wide, to.wide);
        let from = |index: usize, lane: usize| self.undefined.sources(from[index], lane);
        let sources = sources(run, &values, &undefined, &from, wide, (to.wide, &bits));
        self.result_from(to, |lane| (bits.get(to.wide, lane), sources[lane]));
    }

    fn test_pair(&mut self, run: &[TestFn; 2], from: &[u32; 4], to: [&Option<u32>; 2], combine: Option<(Connective, Pred)>) {
        for ((run, index), half) in run.iter().zip(to).zip([0xffff, 0xffff_0000]) {
            let flags = self.test_half(run, from, combine, half);
            index.iter().for_each(|&index| self.flag(index, flags));
        }
    }

    fn set_where(&mut self, set: &Set) {
        let Set { run, from, to, high, combine, value } = set;
        let parts = match high {
            None => [(self.test(run, from, *combine, false), *value), (0, 0)],
            Some((run_high, high)) => [
                (self.test_half(run, from, *combine, 0xffff), *value),
                (self.test_half(run_high, from, *combine, 0xffff_0000), *high),
            ],
        };
        self.result(*to, |lane| {
            let part = |(lanes, value): (u32, u32)| if lanes >> lane & 1 == 1 { u64::from(value) } else { 0 };
            part(parts[0]) | part(parts[1])
        });
    }

    fn video(&mut self, video: &Video, to: Reg, from: [u32; 3]) {
        let [a, b, c] = from.map(|slot| self.bits(slot, false));
        self.result(to, |lane| {
            let [a, b, c] = [&a, &b, &c].map(|slot| slot.get(false, lane) as u32);
            u64::from(video.spread(a, b, c))
        });
    }

    fn convert(&mut self, conversion: &Conversion, to: Reg, from: Reg) {
        let any = self.bits(from.slot, from.wide);
        let (read, made) = (ones(conversion.from.bits()), ones(conversion.to.bits()));
        self.result(to, |lane| if any.get(from.wide, lane) & read != 0 { made } else { 0 });
    }

    fn convert_pair(&mut self, conversion: &Conversion, to: Reg, from: [Reg; 2]) {
        let (bits, [upper, lower]) = (conversion.to.bits() / 2, from.map(|reg| self.any(&[reg.slot])));
        let [from_high, from_low] = from.map(|reg| self.firsts(reg));
        self.result_from(to, |lane| {
            let half = |lanes: u32| if lanes >> lane & 1 == 1 { ones(bits) } else { 0 };
            (half(upper) << bits | half(lower), from_low[lane].above(from_high[lane], bits / 8))
        });
    }

    fn convert_halves(&mut self, conversion: &Conversion, to: Reg, from: Reg) {
        let (read, made) = (conversion.from.bits() / 2, conversion.to.bits() / 2);
        let any = self.bits(from.slot, from.wide);
        self.result(to, |lane| {
            let part = |at: u32| if any.get(from.wide, lane) >> (at * read) & ones(read) != 0 { ones(made) } else { 0 };
            part(1) << made | part(0)
        });
    }

    fn select(&mut self, to: Reg, from: [u32; 2], by: Pred) {
        let (chosen, unsure) = (self.warp.predicate(by), self.undefined.predicate(by.index));
        let [ua, ub] = from.map(|slot| self.bits(slot, to.wide));
        let [va, vb] = from.map(|slot| self.warp.regs[slot as usize]);
        let ([from_a, from_b], origins) = (from.map(|slot| self.sources(slot)), self.flags(by.index));
        self.result_from(to, |lane| {
            let [ua, ub] = [&ua, &ub].map(|slot| slot.get(to.wide, lane));
            match (unsure >> lane & 1, chosen >> lane & 1) {
                (0, 1) => (ua, from_a[lane]),
                (0, _) => (ub, from_b[lane]),
                _ => (ua | ub | (va.get(to.wide, lane) ^ vb.get(to.wide, lane)), origins[lane].into()),
            }
        });
    }

    fn logic(&mut self, logic: &LogicPredicate) {
        let LogicPredicate { to, flag, from, with, .. } = logic;
        let any = self.any(from) | self.undefined.predicate(with.index);
        to.iter().for_each(|&to| self.result(to, |lane| if any >> lane & 1 == 1 { 0xffff_ffff } else { 0 }));
        flag.iter().for_each(|&index| self.flag(index, any));
    }

    fn unpack(&mut self, to: &[Option<Reg>], from: Reg, bits: u32) {
        let (source, sources) = (self.bits(from.slot, from.wide), self.sources(from.slot));
        for (index, to) in to.iter().enumerate() {
            let shift = index as u32 * bits;
            if let Some(to) = to {
                let part = |lane: usize| source.get(from.wide, lane) >> shift & ones(bits);
                self.result_from(*to, |lane| (part(lane), sources[lane].down(shift / 8)));
            }
        }
    }

    fn pack(&mut self, to: Reg, from: &[Reg], bits: u32) {
        let parts: Vec<(Slot, bool)> = from.iter().map(|reg| (self.bits(reg.slot, reg.wide), reg.wide)).collect();
        let sources: Vec<[Sources; LANES]> = from.iter().map(|reg| self.sources(reg.slot)).collect();
        self.result_from(to, |lane| {
            let part = |(slot, wide): &(Slot, bool)| slot.get(*wide, lane) & ones(bits);
            let all = parts.iter().enumerate().fold(0, |out, (index, own)| out | part(own) << (index as u32 * bits));
            let from = sources.iter().enumerate();
            (all, from.fold(Sources::NONE, |from, (index, own)| from.above(own[lane], index as u32 * bits / 8)))
        });
    }

    fn carry(&mut self, carry: &Carry) {
        let Carry { to, a, b, c, reads, writes, .. } = carry;
        let slots: Vec<u32> = [*a, *b].iter().chain(c).map(|reg| reg.slot).collect();
        let any = self.any(&slots) | if *reads { self.undefined.carry.0 } else { 0 };
        self.result(*to, |lane| if any >> lane & 1 == 1 { u64::MAX >> if to.wide { 0 } else { 32 } } else { 0 });
        if *writes {
            let (before, origin) = self.undefined.carry;
            let lane = (any & self.active).trailing_zeros() as usize;
            let origin = if any & self.active == 0 { origin } else { self.origin(lane) };
            self.undefined.carry = ((before & !self.active) | (any & self.active), origin);
        }
    }
}
