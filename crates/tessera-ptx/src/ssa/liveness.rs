//! Which values are live where, exact to the instruction.
//!
//! Positions inside a block: parameters are defined at 0; instruction `i` takes over tied registers at `4i + 4` and reads and
//! writes everything else at `4i + 5`; the terminator reads behind all of them. An instruction's source and its result may
//! therefore share a register, a source and a tied result may not.

use super::cfg::Cfg;
use super::kernel::{Block, Kernel, Value};

/// Where a value is defined: block and position.
pub(crate) type Place = (Block, u32);

#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    words: usize,
    live_out: Vec<u64>,
    /// For each value, the last position at which each block reads it.
    last_use: Vec<Vec<(Block, u32)>>,
    definition: Vec<Option<Place>>,
}

/// The position at which instruction `index` takes over tied registers.
fn takes(index: usize) -> u32 {
    4 * index as u32 + 4
}

impl Liveness {
    pub(crate) fn new(kernel: &Kernel, cfg: &Cfg) -> Liveness {
        let (blocks, values) = (kernel.blocks.len(), kernel.values.len());
        let words = values.div_ceil(64);
        let mut found = Liveness {
            words,
            live_out: vec![0; blocks * words],
            last_use: vec![Vec::new(); values],
            definition: vec![None; values],
        };
        for &block in &cfg.order {
            found.scan(kernel, block);
        }
        found.spread(kernel, cfg);
        found
    }

    fn scan(&mut self, kernel: &Kernel, block: Block) {
        let data = kernel.block(block);
        for &param in &data.params {
            self.definition[param.index()] = Some((block, 0));
        }
        let mut read = |value: Value, at: u32| {
            if !kernel.origin(value).is_leaf() {
                let list = &mut self.last_use[value.index()];
                match list.last_mut() {
                    Some((last, position)) if *last == block => *position = (*position).max(at),
                    _ => list.push((block, at)),
                }
            }
        };
        for (index, &inst) in data.insts.iter().enumerate() {
            let inst = kernel.inst(inst);
            let at = takes(index);
            let mut tied = 0usize;
            inst.each_tied(|_, _| tied += 1);
            inst.each_def(|value| self.definition[value.index()] = Some((block, at + 1)));
            if tied == 0 {
                inst.each_use(|value| read(value, at + 1));
                continue;
            }
            let mut inputs: Vec<Value> = Vec::with_capacity(tied);
            inst.each_tied(|input, output| {
                inputs.push(input);
                self.definition[output.index()] = Some((block, at));
            });
            // A tied source that is named once is read as the register is taken over; named again, also behind that.
            inputs.sort_unstable();
            let mut named: Vec<Value> = Vec::new();
            inst.each_use(|value| named.push(value));
            named.sort_unstable();
            for run in named.chunk_by(|a, b| a == b) {
                let only_tied = inputs.binary_search(&run[0]).is_ok() && run.len() == 1;
                read(run[0], if only_tied { at } else { at + 1 });
            }
        }
        let end = takes(data.insts.len()) + 1;
        data.terminator.iter().for_each(|terminator| terminator.each_use(|value| read(value, end)));
    }

    /// A value that is read where it is not defined is live out of every block on the way.
    fn spread(&mut self, kernel: &Kernel, cfg: &Cfg) {
        for index in 0..kernel.values.len() {
            let Some((home, _)) = self.definition[index] else { continue };
            let uses = std::mem::take(&mut self.last_use[index]);
            let mut work: Vec<Block> = uses.iter().map(|(block, _)| *block).filter(|&block| block != home).collect();
            while let Some(block) = work.pop() {
                for &pred in &cfg.preds[block.index()] {
                    let word = &mut self.live_out[pred.index() * self.words + index / 64];
                    let bit = 1u64 << (index % 64);
                    if *word & bit == 0 {
                        *word |= bit;
                        if pred != home {
                            work.push(pred);
                        }
                    }
                }
            }
            self.last_use[index] = uses;
        }
    }

    pub(crate) fn is_live_out(&self, value: Value, block: Block) -> bool {
        self.live_out[block.index() * self.words + value.index() / 64] & (1 << (value.index() % 64)) != 0
    }

    /// The values that are alive at a block's end.
    pub(crate) fn live_out(&self, block: Block) -> impl Iterator<Item = Value> + '_ {
        let row = &self.live_out[block.index() * self.words..][..self.words];
        (0u32..)
            .zip(row)
            .flat_map(|(place, &word)| (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| Value(place * 64 + bit)))
    }

    /// Where a value is defined; leaves and values of unreachable blocks have no place.
    pub(crate) fn definition(&self, value: Value) -> Option<Place> {
        self.definition[value.index()]
    }

    /// Whether the value is still needed behind a place that its definition dominates.
    pub(crate) fn is_live_behind(&self, value: Value, (block, position): Place) -> bool {
        self.is_live_out(value, block) || self.last_use[value.index()].iter().any(|&(used, at)| used == block && at > position)
    }
}
