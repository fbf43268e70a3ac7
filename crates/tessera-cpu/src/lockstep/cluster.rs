//! Blocks of a cluster that share the work of one.
//!
//! They run one after the other: a block that comes to a place where blocks meet, to which another one has not come yet, leaves what it holds and ends
//! there, and is run again when all have. Before such a place blocks do nothing but load and compute, so nobody sees that.

use tessera_ir::{Op, TileOp, bug};
use tessera_types::DType;

use super::machine::{Machine, fault};
use super::mask::Mask;
use super::micro::scalar_bytes;
use super::value::{Buffer, Data};
use crate::exec::Ran;
use crate::launch::Arg;

/// Bytes of an element that is added up.
const SIZE: usize = 4;

/// What the blocks of a cluster have left for each other.
#[derive(Default)]
pub(super) struct Meeting {
    /// The number of the running block in its cluster.
    pub(super) rank: u32,
    /// Which of the clusters that share the work of one it is in.
    pub(super) cluster: u32,
    /// By the operation that adds up and the block's number.
    left: rustc_hash::FxHashMap<(Op, u32), Vec<Buffer>>,
    /// The block ended before others had come.
    waits: bool,
}

impl Machine<'_> {
    /// Runs the blocks that share the work of one.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn run_cluster(&mut self, block: [u32; 3], args: &[Arg]) -> Ran<()> {
        for cluster in 0..self.func.hints.among.unwrap_or(1) {
            self.meeting = Meeting { cluster, ..Meeting::default() };
            // SAFETY: passed on.
            unsafe { self.run_ranks(block, args)? };
        }
        Ok(())
    }

    /// Runs the blocks of one cluster.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn run_ranks(&mut self, block: [u32; 3], args: &[Arg]) -> Ran<()> {
        let mut ranks: Vec<u32> = (0..self.func.hints.split.unwrap_or(1)).collect();
        while !ranks.is_empty() {
            let mut others = Vec::new();
            for rank in ranks {
                (self.meeting.rank, self.meeting.waits) = (rank, false);
                let printed = self.text.len();
                // SAFETY: passed on.
                match unsafe { self.run(block, args) } {
                    Err(_) if self.meeting.waits => {
                        self.text.truncate(printed);
                        others.push(rank);
                    }
                    outcome => outcome?,
                }
            }
            ranks = others;
        }
        Ok(())
    }

    /// What the blocks of the cluster do together.
    pub(super) fn meet(&mut self, op: Op, kind: &TileOp, active: &Mask) -> Ran<()> {
        match kind {
            TileOp::ClusterSum { parts } => self.cluster_sum(op, *parts),
            TileOp::ClusterGather {} => self.cluster_gather(op, active),
            _ => bug!("{kind:?} is not done by a cluster"),
        }
    }

    /// Leaves what this block has for an operation of the cluster, and takes what all have, in the order of their ranks.
    fn share(&mut self, op: Op, own: Vec<Buffer>) -> Ran<Vec<&Vec<Buffer>>> {
        let (rank, blocks) = (self.meeting.rank, self.func.hints.split.unwrap_or(1));
        self.meeting.left.insert((op, rank), own);
        if (0..blocks).any(|rank| !self.meeting.left.contains_key(&(op, rank))) {
            self.meeting.waits = true;
            return Err(fault("cpu-cluster", self.func.ops[op].span, "a block waits for the others of its cluster"));
        }
        Ok((0..blocks).filter_map(|rank| self.meeting.left.get(&(op, rank))).collect())
    }

    /// The numbers of all blocks.
    fn cluster_gather(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let func = self.func;
        let data = &func.ops[op];
        let size = scalar_bytes(func.ty(data.one(0)));
        let own = match self.data(data.one(0), data.span)? {
            Data::Lanes(lanes) => Buffer::splat(self.uniform(lanes, size, active, data.one(0), data.span)?, size, 1),
            Data::Tile(line) => line.clone(),
            _ => return Err(fault("cpu-type", data.span, "numbers were expected")),
        };
        let all = self.share(op, vec![own])?;
        let line = all[0][0].bytes().len();
        let mut found = Buffer::new(line * all.len());
        for (to, from) in found.bytes_mut().chunks_exact_mut(line).zip(all) {
            to.copy_from_slice(from[0].bytes());
        }
        self.bind(op, vec![found], false);
        Ok(())
    }

    /// The part of the sums of all blocks that is this one's.
    fn cluster_sum(&mut self, op: Op, parts: u32) -> Ran<()> {
        let func = self.func;
        let data = &func.ops[op];
        let rank = self.meeting.rank;
        let own: Vec<Buffer> = data.group(0).iter().map(|&value| self.whole(value, data.span).cloned()).collect::<Ran<_>>()?;
        let all = self.share(op, own)?;
        let mut found = Vec::new();
        for position in 0..data.results.len() {
            let tile = func.ty(data.group(0)[position]).the_tile();
            let floats = tile.elem.num().is_some_and(DType::is_float);
            let Some(&columns) = tile.shape.last() else { bug!("sums without columns") };
            let line = SIZE * columns as usize;
            let own = line / parts as usize;
            let mut total = part(&all[0][position], line, own, (rank % parts) as usize);
            for held in &all[1..] {
                add(&mut total, &part(&held[position], line, own, (rank % parts) as usize), floats);
            }
            found.push(total);
        }
        self.bind(op, found, false);
        Ok(())
    }
}

/// The part with a number of each line.
fn part(whole: &Buffer, line: usize, own: usize, number: usize) -> Buffer {
    let mut part = Buffer::new(whole.bytes().len() / line * own);
    for (to, from) in part.bytes_mut().chunks_exact_mut(own).zip(whole.bytes().chunks_exact(line)) {
        to.copy_from_slice(&from[number * own..(number + 1) * own]);
    }
    part
}

fn add(total: &mut Buffer, more: &Buffer, floats: bool) {
    for (to, from) in total.bytes_mut().as_chunks_mut::<SIZE>().0.iter_mut().zip(more.bytes().as_chunks::<SIZE>().0) {
        *to = match floats {
            true => (f32::from_le_bytes(*to) + f32::from_le_bytes(*from)).to_le_bytes(),
            false => i32::from_le_bytes(*to).wrapping_add(i32::from_le_bytes(*from)).to_le_bytes(),
        };
    }
}
