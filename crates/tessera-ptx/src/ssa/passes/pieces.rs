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
//! Invariant: such a block has no effects, so that its instructions may stand in any order; the threads that meet are those that run
//! the block together.

use rustc_hash::FxHashMap;

use super::super::cfg::Cfg;
use super::super::effects::Effects;
use super::super::inst::{Arg, InstData};
use super::super::kernel::{Block, Class, Inst, Kernel, Origin, Value};
use super::super::liveness::Liveness;
use super::words;
use crate::model::Limit;

/// Registers of a multiprocessor, and the most of a thread.
const FILE: u32 = 1 << 16;
const MOST: u32 = 255;

/// Registers for addresses, predicates and what the assembler loads ahead.
const SPARE: u32 = 24;

/// Registers that a piece loads.
const PIECE: u32 = 16;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let budgets = budgets(kernel, &cfg);
    // A value takes two registers at most: short blocks hold no more than they find. With all that a thread may have, the assembler finds
    // a better order itself.
    let long = |&(block, budget): &(Block, u32)| {
        budget < MOST && kernel.block(block).insts.len() as u32 > budget.saturating_sub(SPARE) / 2
    };
    let long: Vec<(Block, u32)> = budgets.into_iter().filter(long).collect();
    if long.is_empty() {
        return 0;
    }
    let live = Liveness::new(kernel, &cfg);
    let better = |(block, budget): (Block, u32)| {
        let most = held(kernel, &live, block, &kernel.block(block).insts);
        let pieces = if most + SPARE > budget { in_pieces(kernel, block)? } else { return None };
        (held(kernel, &live, block, &pieces.concat()) < most).then_some((block, pieces))
    };
    let better: Vec<(Block, Vec<Vec<Inst>>)> = long.into_iter().filter_map(better).collect();
    let count = better.len();
    for (block, pieces) in better {
        kernel.block_mut(block).insts = meetings(kernel, pieces);
    }
    count
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
            [Arg::Int(registers)] if kernel.text(inst).starts_with("setmaxnreg") => u32::try_from(registers).ok(),
            _ => None,
        });
        behind[block.index()] = moved.unwrap_or(before).min(MOST);
    }
    cfg.order.iter().map(|&block| (block, behind[block.index()])).collect()
}

/// The most 32-bit registers that are held at once in a block whose instructions stand in this order.
fn held(kernel: &Kernel, live: &Liveness, block: Block, order: &[Inst]) -> u32 {
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
    most
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

/// A block's instructions in their new order, in pieces between which the warp meets; none where it has effects.
fn in_pieces(kernel: &Kernel, block: Block) -> Option<Vec<Vec<Inst>>> {
    let insts = &kernel.block(block).insts[..];
    let movable = |&inst: &Inst| matches!(kernel.effects(inst), Effects::Pure | Effects::ReadConstant | Effects::Read);
    if !insts.iter().all(movable) {
        return None;
    }
    let mut home: FxHashMap<Value, usize> = FxHashMap::default();
    let mut needed = vec![false; insts.len()];
    for (at, &inst) in insts.iter().enumerate() {
        kernel.inst(inst).each_use(|value| home.get(&value).into_iter().for_each(|&place| needed[place] = true));
        kernel.inst(inst).each_def(|value| {
            home.insert(value, at);
        });
    }
    let pieces = Pieces { kernel, insts, home, placed: vec![false; insts.len()], order: Vec::new() };
    let mut late = pieces.clone();
    (0..insts.len()).filter(|&at| !needed[at]).for_each(|at| late.place(at));
    Some(pieces.ahead(&late.order))
}

impl Pieces<'_> {
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
    fn ahead(mut self, order: &[usize]) -> Vec<Vec<Inst>> {
        let mut loads: Vec<Vec<usize>> = Vec::new();
        let mut held = PIECE;
        for &at in order.iter().filter(|&&at| self.kernel.effects(self.insts[at]) == Effects::Read) {
            if held >= PIECE {
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
