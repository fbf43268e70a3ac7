//! Where a block holds more at once than the registers that it was left, elements are loaded and computed piece by piece.
//!
//! Operations on tiles come one after the other, each for all elements, so that between a load and what becomes of it every element is
//! alive:
//!
//! ```text
//! ld a0; ...; ld a99; mul b0, a0, s; ...; mul b99, a99, s
//! ld a0; ...; ld a7; bar.warp.sync; ld a8; ...; ld a15; mul b0, a0, s; ...; mul b7, a7, s; bar.warp.sync; ...
//! ```
//!
//! An instruction moves down to the first one that needs it, loads a piece ahead of that. Between pieces the warp meets: that costs next
//! to nothing, and no load moves up over it, where the assembler would otherwise hoist them all.
//!
//! Where a block that begins with half of its registers full has effects, as an epilogue with arithmetic has that stores a product's
//! sums, only arithmetic moves down, so that one element goes all the way before the next. Outside of loops a jump that is never taken stands
//! between pieces of such a block: an assembler sees each element's arithmetic ready at once, and starts it all.
//!
//! Invariant: instructions with effects, and reads between them, keep their order, and what products of warpgroups read is computed before
//! they start; the threads that meet are those that run the block together.

use rustc_hash::FxHashMap;
use tessera_types::Limits;

use super::super::cfg::Cfg;
use super::super::code::Code;
use super::super::effects::Effects;
use super::super::inst::{Arg, InstData, Target, Terminator};
use super::super::kernel::{Block, Class, Inst, Kernel, Origin, Value};
use super::super::liveness::Liveness;
use super::words;
use crate::mnemonic::Mnemonic;
use crate::model::Limit;
use crate::types::Type;
use crate::word::{Special, Word};

/// Registers of a multiprocessor, and the most of a thread.
const FILE: u32 = Limits::REGISTERS;
const MOST: u32 = Limits::THREAD_REGISTERS;

/// Registers for addresses, predicates and what the assembler loads ahead.
const SPARE: u32 = 24;

/// Registers that a piece loads at least, and at most: what is on its way from memory at a time is as much as two pieces load.
const PIECE: [u32; 2] = [16, 64];

/// Instructions of a piece that only computes and stores.
const ALONE: usize = 256;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let budgets = budgets(kernel, &cfg);
    // A value takes two registers at most: short blocks hold no more than they find.
    let long = |&(block, budget): &(Block, u32)| kernel.block(block).insts.len() as u32 > budget.saturating_sub(SPARE) / 2;
    let long: Vec<(Block, u32)> = budgets.into_iter().filter(long).collect();
    if long.is_empty() {
        return 0;
    }
    let live = Liveness::new(kernel, &cfg);
    let better = |(block, budget): (Block, u32)| {
        let Held { most, first, last } = Held::of(kernel, &live, block, &kernel.block(block).insts);
        let (loads, pieces) = if most + SPARE <= budget {
            return None;
        } else if budget < MOST && has_no_effects(kernel, block) {
            // Two pieces beside what the block begins or ends with.
            let free = budget.saturating_sub(first.max(last) + SPARE) / 2;
            (true, in_pieces(kernel, block, (free / 8 * 8).clamp(PIECE[0], PIECE[1])))
        } else if most > budget && 2 * first >= budget {
            let inside_loop = cfg.depth[block.index()] > 0;
            (false, one_by_one(kernel, block, if inside_loop { usize::MAX } else { ALONE }))
        } else {
            return None;
        };
        (Held::of(kernel, &live, block, &pieces.concat()).most < most).then_some((block, loads, pieces))
    };
    let better: Vec<(Block, bool, Vec<Vec<Inst>>)> = long.into_iter().filter_map(better).collect();
    let count = better.len();
    for (block, loads, pieces) in better {
        if loads {
            kernel.block_mut(block).insts = meetings(kernel, pieces);
        } else {
            separate(kernel, block, pieces);
        }
    }
    count
}

/// The pieces as blocks of their own, each behind a jump to the end that no thread takes: no launch has 2^31 blocks along an axis. Each jump
/// asks for another number, since what one of them has found out decides all that ask the same.
fn separate(kernel: &mut Kernel, block: Block, pieces: Vec<Vec<Inst>>) {
    let blocks = kernel.leaf(Class::B32, Origin::Special(Special::NctaidX));
    let loc = kernel.block(block).insts.first().and_then(|&inst| kernel.inst(inst).loc);
    let end = kernel.new_block();
    kernel.block_mut(end).terminator = Some(Terminator::Return);
    let last = kernel.block_mut(block).terminator.take();
    let to = |block| Target { block, args: Vec::new() };
    let (mut current, mut number) = (block, u64::from(u32::MAX));
    kernel.block_mut(block).insts.clear();
    for piece in pieces {
        let (never, none) = (kernel.new_value(Class::Pred, Origin::Undef), kernel.leaf(Class::B32, Origin::Const(number)));
        let args = vec![Arg::Def(never), Arg::Use(blocks), Arg::Use(none)];
        let test =
            kernel.resolve(&Code::Setp(Word::Eq, Type::U32).text(), &args).filter(|_| !kernel.block(current).insts.is_empty());
        if let Some(op) = test {
            let test = kernel.new_inst(InstData { op, guard: None, args, hidden: Vec::new(), loc, exact: false });
            let next = kernel.new_block();
            let data = kernel.block_mut(current);
            data.insts.push(test);
            data.terminator = Some(Terminator::Branch { condition: never, then: to(end), otherwise: to(next) });
            let place = kernel.layout.iter().position(|&other| other == current).unwrap_or_default();
            kernel.layout.insert(place + 1, next);
            (current, number) = (next, number - 1);
        }
        kernel.block_mut(current).insts.extend(piece);
    }
    kernel.block_mut(current).terminator = last;
    if current != block {
        kernel.layout.push(end);
    }
}

/// The pieces in a row. The warp's threads that run the block meet between them.
fn meetings(kernel: &mut Kernel, pieces: Vec<Vec<Inst>>) -> Vec<Inst> {
    let mask = kernel.new_value(Class::B32, Origin::Undef);
    let (active, meet) = ([Arg::Def(mask)], [Arg::Use(mask)]);
    let ops = kernel.resolve("activemask.b32", &active).zip(kernel.resolve("bar.warp.sync", &meet));
    let Some((active_op, meet_op)) = ops.filter(|_| pieces.len() > 1) else { return pieces.concat() };
    let mut insts = Vec::new();
    for (number, piece) in pieces.into_iter().enumerate() {
        let loc = piece.first().and_then(|&inst| kernel.inst(inst).loc);
        let (op, args) = if number == 0 { (active_op, active.to_vec()) } else { (meet_op, meet.to_vec()) };
        insts.push(kernel.new_inst(InstData { op, guard: None, args, hidden: Vec::new(), loc, exact: false }));
        insts.extend(piece);
    }
    insts
}

/// Registers of a thread in each block: those that the limits leave, until an instruction moves some.
fn budgets(kernel: &Kernel, cfg: &Cfg) -> Vec<(Block, u32)> {
    let (mut threads, mut blocks, mut most) = (1, 1, MOST);
    for limit in &kernel.limits {
        match limit {
            Limit::MaxThreads(sizes) | Limit::RequiredThreads(sizes) => threads = sizes.iter().product::<u32>().max(1),
            Limit::MinBlocks(count) => blocks = (*count).max(1),
            Limit::MaxRegisters(count) => most = most.min(*count),
            _ => {}
        }
    }
    let start = (FILE / (threads * blocks).max(1) / 8 * 8).min(most);
    let mut behind = vec![start; kernel.blocks.len()];
    for &block in &cfg.order {
        let before = cfg.idom[block.index()].map_or(start, |above| behind[above.index()]);
        let moved = kernel.block(block).insts.iter().rev().find_map(|&inst| match kernel.inst(inst).args[..] {
            [Arg::Int(registers)] if kernel.op(inst).mnemonic() == Mnemonic::Setmaxnreg => u32::try_from(registers).ok(),
            _ => None,
        });
        behind[block.index()] = moved.unwrap_or(before).min(MOST);
    }
    cfg.order.iter().map(|&block| (block, behind[block.index()])).collect()
}

/// 32-bit registers that are held in a block: the most at once, and those at its start and its end.
struct Held {
    most: u32,
    first: u32,
    last: u32,
}

impl Held {
    /// In a block whose instructions stand in this order.
    fn of(kernel: &Kernel, live: &Liveness, block: Block, order: &[Inst]) -> Held {
        let mut alive = vec![false; kernel.values.len()];
        let mut now = 0;
        let enter = |value: Value, alive: &mut [bool], now: &mut u32| {
            if !kernel.origin(value).is_leaf() && !std::mem::replace(&mut alive[value.index()], true) {
                *now += words(kernel.class(value));
            }
        };
        for value in (0..kernel.values.len() as u32).map(Value).filter(|&value| live.is_live_out(value, block)) {
            enter(value, &mut alive, &mut now);
        }
        kernel.block(block).terminator.iter().for_each(|end| end.each_use(|value| enter(value, &mut alive, &mut now)));
        let last = now;
        let mut most = now;
        for &inst in order.iter().rev() {
            let data = kernel.inst(inst);
            data.each_def(|value| {
                if std::mem::replace(&mut alive[value.index()], false) {
                    now -= words(kernel.class(value));
                }
            });
            data.each_use(|value| enter(value, &mut alive, &mut now));
            most = most.max(now);
        }
        Held { most, first: now, last }
    }
}

/// A block's instructions, by their places in it.
#[derive(Clone)]
struct Pieces<'k> {
    kernel: &'k Kernel,
    insts: &'k [Inst],
    /// Where a value is defined.
    home: FxHashMap<Value, usize>,
    placed: Vec<bool>,
    order: Vec<usize>,
}

fn has_no_effects(kernel: &Kernel, block: Block) -> bool {
    let none = |&inst: &Inst| matches!(kernel.effects(inst), Effects::Pure | Effects::ReadConstant | Effects::Read);
    kernel.block(block).insts.iter().all(none)
}

/// The instructions of a block without effects in their new order, in pieces between which the warp meets; each loads so many registers.
fn in_pieces(kernel: &Kernel, block: Block, size: u32) -> Vec<Vec<Inst>> {
    let pieces = Pieces::of(kernel, block);
    let needed = pieces.needed();
    let mut late = pieces.clone();
    (0..needed.len()).filter(|&at| !needed[at]).for_each(|at| late.place(at));
    pieces.ahead(&late.order, size)
}

/// The instructions of a block with arithmetic moved down to the first one that needs it, in pieces of so many.
fn one_by_one(kernel: &Kernel, block: Block, size: usize) -> Vec<Vec<Inst>> {
    let mut late = Pieces::of(kernel, block);
    let (insts, needed) = (late.insts, late.needed());
    let (mut first, mut pieces) = (0, Vec::new());
    for (at, &inst) in insts.iter().enumerate() {
        // Products of warpgroups read and write registers while they run: what stands before them is done before them.
        if kernel.op(inst).mnemonic() == Mnemonic::Wgmma {
            (first..at).for_each(|before| late.place(before));
            first = at;
        }
        if !needed[at] || !matches!(kernel.effects(inst), Effects::Pure | Effects::ReadConstant) {
            late.place(at);
            if late.order.len() >= size {
                pieces.push(late.taken());
            }
        }
    }
    pieces.push(late.taken());
    pieces
}

impl<'k> Pieces<'k> {
    fn of(kernel: &'k Kernel, block: Block) -> Pieces<'k> {
        let insts = &kernel.block(block).insts[..];
        let mut home: FxHashMap<Value, usize> = FxHashMap::default();
        for (at, &inst) in insts.iter().enumerate() {
            kernel.inst(inst).each_def(|value| {
                home.insert(value, at);
            });
        }
        Pieces { kernel, insts, home, placed: vec![false; insts.len()], order: Vec::new() }
    }

    /// Which instructions others of the block need.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.insts.len()];
        for &inst in self.insts {
            self.kernel.inst(inst).each_use(|value| self.home.get(&value).into_iter().for_each(|&place| needed[place] = true));
        }
        needed
    }

    /// Places an instruction behind what it needs.
    fn place(&mut self, at: usize) {
        let mut stack = vec![at];
        while let Some(&top) = stack.last() {
            let mut missing = None;
            if !self.placed[top] {
                self.kernel.inst(self.insts[top]).each_use(|value| {
                    let place = self.home.get(&value).copied().filter(|&place| !self.placed[place]);
                    missing = missing.or(place);
                });
            }
            match missing {
                Some(place) => stack.push(place),
                None => {
                    stack.pop();
                    if !std::mem::replace(&mut self.placed[top], true) {
                        self.order.push(top);
                    }
                }
            }
        }
    }

    /// The same order, with each piece's loads in front of what is computed from the piece before.
    fn ahead(mut self, order: &[usize], size: u32) -> Vec<Vec<Inst>> {
        let mut loads: Vec<Vec<usize>> = Vec::new();
        let mut held = size;
        for &at in order.iter().filter(|&&at| self.kernel.effects(self.insts[at]) == Effects::Read) {
            if held >= size {
                loads.push(Vec::new());
                held = 0;
            }
            loads.iter_mut().last().into_iter().for_each(|piece| piece.push(at));
            self.kernel.inst(self.insts[at]).each_def(|value| held += words(self.kernel.class(value)));
        }
        let begins: FxHashMap<usize, usize> = loads.iter().enumerate().map(|(piece, loads)| (loads[0], piece)).collect();
        let mut pieces = Vec::new();
        loads.first().into_iter().flatten().for_each(|&at| self.place(at));
        for &at in order {
            // The first load of a piece is needed: those of the next one come before what is computed from this one.
            if let Some(&piece) = begins.get(&at) {
                pieces.push(self.taken());
                loads.get(piece + 1).into_iter().flatten().for_each(|&at| self.place(at));
            }
            self.place(at);
        }
        pieces.push(self.taken());
        pieces
    }

    /// What was placed since this was asked last.
    fn taken(&mut self) -> Vec<Inst> {
        self.order.drain(..).map(|at| self.insts[at]).collect()
    }
}
