//! What each lane computes from its own registers: arithmetic, comparisons, selections, conversions, addresses.

use super::Warp;
use crate::lanes::lanes;
use crate::ops::convert::Conversion;
use crate::ops::video::Video;
use crate::ops::{MapFn, TestFn};
use crate::program::{
    Carry, Connective, LOCAL_WINDOW, LogicPredicate, PARAM_WINDOW, Pred, RANK_SHIFT, Reg, SHARED_WINDOW, Set, Space,
};

/// The predicate that a condition is joined with.
type Combine = Option<(Connective, Pred)>;

impl Warp {
    #[inline(always)]
    pub(super) fn map(&mut self, active: u32, run: &MapFn, to: Reg, from: [u32; 4]) {
        let regs = &self.regs;
        let operands = [&regs[from[0] as usize], &regs[from[1] as usize], &regs[from[2] as usize], &regs[from[3] as usize]];
        (run.call)(&mut self.result, &operands);
        self.regs[to.slot as usize].take(&self.result, to.wide, active);
    }

    /// A condition and its opposite as predicates.
    #[inline(always)]
    pub(super) fn test(&mut self, active: u32, run: &TestFn, from: [u32; 4], to: [Option<u32>; 2], combine: Combine) {
        let regs = &self.regs;
        let operands = [&regs[from[0] as usize], &regs[from[1] as usize], &regs[from[2] as usize], &regs[from[3] as usize]];
        let holds = (run.call)(&operands);
        let (yes, no) = match combine {
            None => (holds, !holds),
            Some((how, with)) => {
                let with = self.predicate(with);
                (connect(how, holds, with), connect(how, !holds, with))
            }
        };
        if let Some(to) = to[0] {
            self.set_predicate(to, active, yes);
        }
        if let Some(other) = to[1] {
            self.set_predicate(other, active, no);
        }
    }

    /// The first register where a predicate holds, else the second.
    #[inline(always)]
    pub(super) fn select(&mut self, active: u32, to: Reg, from: [u32; 2], by: Pred) {
        let by = self.predicate(by);
        self.result = self.regs[from[1] as usize];
        let chosen = self.regs[from[0] as usize];
        self.result.take(&chosen, to.wide, by);
        self.regs[to.slot as usize].take(&self.result, to.wide, active);
    }

    /// A condition, joined with a predicate where the instruction says so.
    fn combined(&self, holds: u32, with: Combine) -> u32 {
        with.map_or(holds, |(how, with)| connect(how, holds, self.predicate(with)))
    }

    /// `setp` on packed halves: a condition for each.
    pub(super) fn test_pair(&mut self, active: u32, run: &[TestFn; 2], from: [u32; 4], to: [Option<u32>; 2], combine: Combine) {
        let operands = from.map(|slot| &self.regs[slot as usize]);
        let holds = run.map(|run| (run.call)(&operands)).map(|holds| self.combined(holds, combine));
        for (index, holds) in to.into_iter().zip(holds) {
            if let Some(index) = index {
                self.set_predicate(index, active, holds);
            }
        }
    }

    /// A condition as a number.
    pub(super) fn set_where(&mut self, active: u32, set: &Set) {
        let Set { run, from, to, value, high, combine } = set;
        let operands = from.map(|slot| &self.regs[slot as usize]);
        let holds = self.combined((run.call)(&operands), *combine);
        let high = high.map(|(run, value)| (self.combined((run.call)(&operands), *combine), value));
        for lane in lanes(active) {
            let mut result = if holds >> lane & 1 == 1 { *value } else { 0 };
            if let Some((holds, value)) = high
                && holds >> lane & 1 == 1
            {
                result |= value;
            }
            self.set(*to, lane, u64::from(result));
        }
    }

    pub(super) fn video(&mut self, active: u32, video: &Video, to: Reg, from: [u32; 3]) {
        for lane in lanes(active) {
            let [a, b, c] = from.map(|slot| self.narrow(slot, lane));
            self.set(to, lane, u64::from(video.apply(a, b, c)));
        }
    }

    pub(super) fn convert(&mut self, active: u32, conversion: &Conversion, to: Reg, from: Reg) {
        let source = self.regs[from.slot as usize];
        conversion.run(&mut self.regs[to.slot as usize], to.wide, &source, from.wide, active);
    }

    /// Two numbers become the halves of a register, the upper one first.
    pub(super) fn convert_pair(&mut self, active: u32, conversion: &Conversion, to: Reg, from: [Reg; 2]) {
        let bits = conversion.to.bits() / 2;
        for lane in lanes(active) {
            let [high, low] = from.map(|reg| conversion.apply(self.value(reg, lane)));
            self.set(to, lane, high << bits | low);
        }
    }

    /// Each half of a register becomes a half of the result.
    pub(super) fn convert_halves(&mut self, active: u32, conversion: &Conversion, to: Reg, from: Reg) {
        let (from_bits, to_bits) = (conversion.from.bits() / 2, conversion.to.bits() / 2);
        for lane in lanes(active) {
            let value = self.value(from, lane);
            let [high, low] = [value >> from_bits, value].map(|code| conversion.apply(code & ((1 << from_bits) - 1)));
            self.set(to, lane, high << to_bits | low);
        }
    }

    /// Bits by a table, and whether any of them is set.
    pub(super) fn logic(&mut self, active: u32, logic: &LogicPredicate) {
        let LogicPredicate { to, flag, from, table, how, with } = logic;
        let with = self.predicate(*with);
        for lane in lanes(active) {
            let [a, b, c] = from.map(|slot| self.narrow(slot, lane));
            let value = (0..32).fold(0, |value, bit| {
                let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
                value | (table >> row & 1) << bit
            });
            if let Some(to) = to {
                self.set(*to, lane, u64::from(value));
            }
            if let Some(flag) = flag {
                let holds = if value != 0 { 1 << lane } else { 0 };
                self.set_predicate(*flag, 1 << lane, connect(*how, holds, with));
            }
        }
    }

    /// Parts of a register, the lowest first.
    pub(super) fn unpack(&mut self, active: u32, to: &[Option<Reg>], from: Reg, bits: u32) {
        let source = self.regs[from.slot as usize];
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        for (index, to) in to.iter().enumerate() {
            let Some(to) = to else { continue };
            for lane in lanes(active) {
                self.set(*to, lane, source.get(from.wide, lane) >> (index as u32 * bits) & mask);
            }
        }
    }

    /// A register of parts, the lowest first.
    pub(super) fn pack(&mut self, active: u32, to: Reg, from: &[Reg], bits: u32) {
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        for lane in lanes(active) {
            let value = from
                .iter()
                .enumerate()
                .fold(0, |value, (index, reg)| value | (self.value(*reg, lane) & mask) << (index as u32 * bits));
            self.set(to, lane, value);
        }
    }

    /// A sum, a difference, or a product and a sum, with the carry in and out.
    pub(super) fn add_with_carry(&mut self, active: u32, carry: &Carry) {
        let Carry { to, a, b, c, subtract, high, signed, reads, writes } = carry;
        let bits = if to.wide { 64 } else { 32 };
        let mask = (1u128 << bits) - 1;
        for lane in lanes(active) {
            let [x, y] = [a, b].map(|reg| u128::from(self.value(*reg, lane)));
            let carry = if *reads { u128::from(self.carry >> lane & 1) } else { 0 };
            let sum = match c {
                Some(c) => product(x, y, bits, *signed, *high) + u128::from(self.value(*c, lane)) + carry,
                // A subtraction adds the complement: its flag says that nothing was borrowed. nvcc reads it by `addc`.
                None if *subtract => x + (!y & mask) + if *reads { carry } else { 1 },
                None => x + y + carry,
            };
            self.set(*to, lane, (sum & mask) as u64);
            if *writes {
                self.carry = (self.carry & !(1 << lane)) | ((sum >> bits & 1) as u32) << lane;
            }
        }
    }

    /// A generic address from one of a state space, or back.
    pub(super) fn convert_address(&mut self, active: u32, to: Reg, from: Reg, space: Space, back: bool) {
        let window = match space {
            Space::Shared | Space::Cluster => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Param => PARAM_WINDOW,
            Space::Generic | Space::Global => 0,
        };
        for lane in lanes(active) {
            let value = self.value(from, lane);
            let value = if back { value.wrapping_sub(window) } else { value.wrapping_add(window) };
            self.set(to, lane, value);
        }
    }

    /// Whether a generic address lies in a state space.
    pub(super) fn is_in_space(&mut self, active: u32, to: u32, from: Reg, space: Space) {
        for lane in lanes(active) {
            let address = self.value(from, lane);
            let window = address >> 32;
            let inside = match space {
                Space::Shared => window == SHARED_WINDOW >> 32 && (address & 0xffff_ffff) >> RANK_SHIFT == self.rank as u64,
                Space::Cluster => window == SHARED_WINDOW >> 32,
                Space::Local => window == LOCAL_WINDOW >> 32,
                Space::Param => window == PARAM_WINDOW >> 32,
                Space::Generic | Space::Global => {
                    ![SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW].iter().any(|start| start >> 32 == window)
                }
            };
            self.set_predicate(to, 1 << lane, if inside { 1 << lane } else { 0 });
        }
    }

    /// The block of the cluster that an address of shared memory lies in.
    pub(super) fn rank_of(&mut self, active: u32, to: Reg, from: Reg) {
        for lane in lanes(active) {
            self.set(to, lane, self.value(from, lane) >> RANK_SHIFT & 0xff);
        }
    }
}

fn product(x: u128, y: u128, bits: u32, signed: bool, high: bool) -> u128 {
    let mask = (1u128 << bits) - 1;
    let product = if signed {
        let extend = |value: u128| (value << (128 - bits)) as i128 >> (128 - bits);
        extend(x).wrapping_mul(extend(y)) as u128
    } else {
        x.wrapping_mul(y)
    };
    if high { product >> bits & mask } else { product & mask }
}

pub(super) fn connect(how: Connective, a: u32, b: u32) -> u32 {
    match how {
        Connective::And => a & b,
        Connective::Or => a | b,
        Connective::Xor => a ^ b,
    }
}
