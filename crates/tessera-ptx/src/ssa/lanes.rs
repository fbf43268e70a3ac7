//! Which addresses of memory the lanes of a warp ask for.
//!
//! The kernel is walked once as the first warp would run it, with a value for each lane: the thread's number is the lane's, addresses of
//! shared variables and all that the launch gives are numbers that are aligned as they are, and a loop's values are those of its first
//! and of its second round. A value that memory decides is not known, and an access that depends on one is told without addresses.
//! What all lanes add to their addresses moves them alike; the addresses are right up to that.
//!
//! ```text
//! %4:b32 = shl.b32 %tid, 2
//! %5:b32 = ld.shared.b32 [%4+64]        addresses 64, 68, 72, ...
//! ```

use super::cfg::Cfg;
use super::evaluate::evaluate;
use super::inst::{Arg, Target, Terminator};
use super::kernel::{Block, Class, Inst, Kernel, Origin, Value};
use crate::mnemonic::Mnemonic;
use crate::model::Loc;
use crate::word::{Special, Word};

/// Lanes of a warp.
const LANES: usize = 32;

/// A memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// That of a block.
    Shared,
    /// That of the device.
    Global,
}

/// One instruction that a warp reads or writes a memory with.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The memory; a copy from one into the other touches both.
    pub space: Space,
    /// Its place in the source.
    pub loc: Option<Loc>,
    /// Its operation, such as `ld.shared.v4.b32`.
    pub text: String,
    /// It writes.
    pub stores: bool,
    /// Bytes at each address.
    pub bytes: u32,
    /// How many loops it lies in.
    pub loops: u32,
    /// What each lane asks for in the first and in the second round of the loops around it; `None` where the lane takes no part. Empty where
    /// memory decides.
    pub rounds: Vec<[Option<u64>; LANES]>,
}

/// A value in the lanes of a warp.
#[derive(Clone, Debug, PartialEq)]
enum Lanes {
    Same(u64),
    Each(Box<[u64; LANES]>),
    Unknown,
}

impl Lanes {
    fn get(&self, lane: usize) -> Option<u64> {
        match self {
            Lanes::Same(value) => Some(*value),
            Lanes::Each(values) => Some(values[lane]),
            Lanes::Unknown => None,
        }
    }

    fn of(values: [u64; LANES]) -> Lanes {
        if values.iter().all(|value| *value == values[0]) { Lanes::Same(values[0]) } else { Lanes::Each(Box::new(values)) }
    }
}

/// Every instruction of a kernel that reads or writes memory by lanes, in the order of the blocks.
pub fn touches(kernel: &Kernel) -> Vec<Touch> {
    let cfg = Cfg::new(kernel);
    let mut walk = Walk { kernel, cfg: &cfg, values: vec![None; kernel.values.len()], active: vec![0; kernel.blocks.len()] };
    let mut found: Vec<(Inst, Touch)> = Vec::new();
    for round in 0..2 {
        for &block in &cfg.order {
            walk.enter(block, round);
            for &inst in &kernel.block(block).insts {
                for touch in [Space::Shared, Space::Global].into_iter().filter_map(|space| walk.touch(block, inst, space)) {
                    match found.iter_mut().find(|(known, other)| *known == inst && other.space == touch.space) {
                        Some((_, known)) if known.loops > 0 => known.rounds.extend(touch.rounds),
                        Some(_) => {}
                        None => found.push((inst, touch)),
                    }
                }
                walk.compute(inst);
            }
        }
    }
    found.into_iter().map(|(_, touch)| touch).collect()
}

struct Walk<'k> {
    kernel: &'k Kernel,
    cfg: &'k Cfg,
    values: Vec<Option<Lanes>>,
    /// The lanes that come to each block.
    active: Vec<u32>,
}

impl Walk<'_> {
    fn value(&self, value: Value) -> Lanes {
        let class = self.kernel.class(value);
        match self.kernel.origin(value) {
            Origin::Const(bits) => Lanes::Same(bits),
            Origin::Undef => Lanes::Same(0),
            Origin::Special(Special::TidX | Special::Laneid) => Lanes::Each(Box::new(std::array::from_fn(|lane| lane as u64))),
            Origin::Special(_) => Lanes::Same(1),
            // Sizes that are multiples of what vectors want, addresses far apart.
            Origin::Param(number) => Lanes::Same(if class == Class::B64 { (u64::from(number) + 1) << 32 } else { 4096 }),
            Origin::ParamAddress(number) => Lanes::Same((u64::from(number) + 1) << 40),
            Origin::Shared(_, offset) => Lanes::Same(offset as u64),
            Origin::Data(number) => Lanes::Same((u64::from(number) + 1) << 48),
            Origin::Frame => Lanes::Unknown,
            Origin::BlockParam(..) | Origin::Result(_) => self.values[value.index()].clone().unwrap_or(Lanes::Unknown),
        }
    }

    /// The lanes that an edge takes, out of those that come to its start.
    fn taken(&self, from: Block, to: &Target) -> u32 {
        let active = self.active[from.index()];
        let Some(Terminator::Branch { condition, then, otherwise }) = &self.kernel.block(from).terminator else { return active };
        let Lanes::Each(values) = self.value(*condition) else { return active };
        let holds = (0..LANES).filter(|&lane| values[lane] & 1 == 1).fold(0u32, |all, lane| all | 1 << lane);
        match (std::ptr::eq(to, then), std::ptr::eq(to, otherwise)) {
            (true, _) => active & holds,
            _ => active & !holds,
        }
    }

    /// Comes to a block, by the ways into it in a loop's first round, by those round it in the second.
    fn enter(&mut self, block: Block, round: u32) {
        let kernel = self.kernel;
        if block == kernel.entry() {
            self.active[block.index()] = u32::MAX;
            return;
        }
        let is_back = |from: &Block| self.cfg.dominates(block, *from);
        let all = &self.cfg.preds[block.index()];
        let loops = all.iter().any(is_back);
        let ways: Vec<Block> = all.iter().copied().filter(|from| !loops || is_back(from) == (round > 0)).collect();
        let mut active = 0;
        let mut params: Vec<Option<Lanes>> = vec![None; kernel.block(block).params.len()];
        for from in ways {
            let targets = kernel.block(from).terminator.iter().flat_map(|end| end.targets());
            for to in targets.filter(|to| to.block == block) {
                let lanes = self.taken(from, to);
                active |= lanes;
                for (slot, &arg) in params.iter_mut().zip(&to.args) {
                    let value = self.value(arg);
                    *slot = Some(match slot.take() {
                        None => value,
                        Some(known) if known == value => known,
                        Some(known) => merged(&known, &value, lanes),
                    });
                }
            }
        }
        // Where every lane seems to stay away, another warp comes.
        self.active[block.index()] = if active == 0 { u32::MAX } else { active };
        for (&param, value) in kernel.block(block).params.iter().zip(params) {
            self.values[param.index()] = value;
        }
    }

    fn compute(&mut self, inst: Inst) {
        let data = self.kernel.inst(inst);
        let Some(result) = data.single_def() else {
            let values = &mut self.values;
            data.each_def(|value| values[value.index()] = Some(Lanes::Unknown));
            return;
        };
        let mut args = Vec::new();
        for arg in &data.args {
            match arg {
                Arg::Def(_) => {}
                Arg::Use(value) => args.push(self.value(*value)),
                Arg::Int(number) => args.push(Lanes::Same(*number as u64)),
                _ => args.push(Lanes::Unknown),
            }
        }
        let op = self.kernel.op(inst);
        let class = self.kernel.class(result);
        let known = match op.mnemonic() {
            // What all lanes have, each of them gets.
            Mnemonic::Shfl => args.first().filter(|value| matches!(value, Lanes::Same(_))).cloned().unwrap_or(Lanes::Unknown),
            Mnemonic::Cvta => args.first().cloned().unwrap_or(Lanes::Unknown),
            _ if args.contains(&Lanes::Unknown) => Lanes::Unknown,
            mnemonic => {
                let at = |lane: usize| {
                    let args: Vec<u64> = args.iter().filter_map(|arg| arg.get(lane)).collect();
                    evaluate(mnemonic, &op.modifiers, &args).map(|value| value & class.mask())
                };
                if args.iter().all(|arg| matches!(arg, Lanes::Same(_))) {
                    at(0).map_or(Lanes::Unknown, Lanes::Same)
                } else {
                    let all: Option<Vec<u64>> = (0..LANES).map(at).collect();
                    all.and_then(|all| <[u64; LANES]>::try_from(all).ok()).map_or(Lanes::Unknown, Lanes::of)
                }
            }
        };
        self.values[result.index()] = Some(known);
    }

    /// What an instruction asks of a memory.
    fn touch(&self, block: Block, inst: Inst, space: Space) -> Option<Touch> {
        let (data, op) = (self.kernel.inst(inst), self.kernel.op(inst));
        let any = |words: &[Word]| words.iter().any(|&word| op.has(word));
        let named = match space {
            Space::Shared => any(&[Word::Shared, Word::SharedCta, Word::SharedCluster]),
            Space::Global => op.has(Word::Global),
        };
        let (matrices, copies, writes) = match op.mnemonic() {
            Mnemonic::Ldmatrix => (true, false, false),
            Mnemonic::Stmatrix => (true, false, true),
            // Not those of the copy engine.
            Mnemonic::Cp if any(&[Word::Ca, Word::Cg]) => (false, true, space == Space::Shared),
            Mnemonic::Ld => (false, false, false),
            Mnemonic::St | Mnemonic::Atom | Mnemonic::Red => (false, false, true),
            _ => return None,
        };
        if !named {
            return None;
        }
        // A copy names where it goes to, in shared memory, before where it comes from.
        let mut addresses = data.args.iter().filter_map(|arg| match arg {
            Arg::Address(address) => Some(address),
            _ => None,
        });
        let address = addresses.nth(usize::from(copies && space == Space::Global))?;
        let count = |words: [(Word, u32); 3]| words.into_iter().find(|(word, _)| op.has(*word)).map_or(1, |(_, count)| count);
        let bytes = match op.mnemonic() {
            _ if matrices => 16,
            _ if copies => data.args.iter().find_map(|arg| match arg {
                Arg::Int(bytes) => Some(*bytes as u32),
                _ => None,
            })?,
            _ => {
                let ty = crate::form::types_of(&op.modifiers).next_back()?;
                ty.bits() / 8 * count([(Word::V2, 2), (Word::V4, 4), (Word::V8, 8)])
            }
        };
        let taking = if matrices { 8 * count([(Word::X1, 1), (Word::X2, 2), (Word::X4, 4)]) as usize } else { LANES };
        let base = self.value(address.base);
        let guard = data.guard.map(|guard| (self.value(guard.value), guard.negated));
        let runs = |lane: usize| match &guard {
            Some((Lanes::Each(values), negated)) => (values[lane] & 1 == 1) != *negated,
            _ => true,
        };
        let active = self.active[block.index()];
        let lane = |lane: usize| {
            let there = lane < taking && (matrices || active >> lane & 1 == 1) && runs(lane);
            let mask = if space == Space::Shared { 0xFFFF_FFFF } else { u64::MAX };
            base.get(lane).filter(|_| there).map(|base| base.wrapping_add(address.offset as u64) & mask)
        };
        let rounds = if base == Lanes::Unknown { Vec::new() } else { vec![std::array::from_fn(lane)] };
        let loops = self.cfg.depth[block.index()];
        Some(Touch { space, loc: data.loc, text: op.text.to_string(), stores: writes, bytes, loops, rounds })
    }
}

/// What a parameter is where ways meet: the newer value in the lanes that come by its way.
fn merged(old: &Lanes, new: &Lanes, lanes: u32) -> Lanes {
    if matches!(old, Lanes::Unknown) || matches!(new, Lanes::Unknown) {
        return Lanes::Unknown;
    }
    let pick = |lane: usize| if lanes != u32::MAX && lanes >> lane & 1 == 1 { new.get(lane) } else { old.get(lane) };
    Lanes::of(std::array::from_fn(|lane| pick(lane).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::{Space, touches};
    use crate::ssa::{Builder, CacheOptions};
    use crate::types::Type;
    use crate::word::Special;

    #[test]
    fn a_copy_touches_both_memories() {
        let mut b = Builder::new("k");
        let to = b.dynamic_shared("memory", 128);
        let from = b.u64(1 << 20);
        let thread = b.special(Special::TidX);
        let sixteen = b.u32(16);
        let to = b.mad(Type::U32, thread, sixteen, to);
        b.cp_async(to, from, 16, None, CacheOptions::default());
        b.ret();
        let found = touches(&b.finish().expect("a kernel"));
        assert_eq!(
            found.iter().map(|touch| (touch.space, touch.stores)).collect::<Vec<_>>(),
            [(Space::Shared, true), (Space::Global, false)]
        );
        assert_eq!((found[0].rounds[0][2], found[1].rounds[0][2]), (Some(32), Some(1 << 20)));
    }

    #[test]
    fn addresses_follow_from_the_lane() {
        let mut b = Builder::new("k");
        let base = b.dynamic_shared("memory", 128);
        let thread = b.special(Special::TidX);
        let (eight, two) = (b.u32(8), b.u32(2));
        let address = b.mad(Type::U32, thread, eight, base);
        let value = b.ld("shared", Type::B32, (address, 64));
        let other = b.shl(thread, two);
        let other = b.xor(address, other);
        b.st_vector("shared", Type::B32, other, &[value, value]);
        b.ret();
        let kernel = b.finish().expect("a kernel");
        let found = touches(&kernel);
        assert_eq!(found.len(), 2);
        assert!(!found[0].stores && found[1].stores);
        assert_eq!((found[0].bytes, found[1].bytes), (4, 8));
        assert_eq!(found[0].rounds[0][3], Some(64 + 24));
        assert_eq!(found[1].rounds[0][3], Some(24 ^ 12));
    }
}
