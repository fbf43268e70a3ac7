//! Which algorithm does a call: all ranks choose alike, so nothing but the call decides.

use super::region::Layout;
use super::variant::{Algorithm, Combining, MOST_RANKS, Variant};
use crate::ranks::call::{Call, Operation};

/// Up to how many bytes an algorithm is the fastest. What is beyond all of them goes to the inner communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// `all_reduce` in lines: bytes of a rank's source.
    pub small: u64,
    /// `all_reduce` in one shot.
    pub one_shot: u64,
    /// `all_reduce` in two shots.
    pub two_shot: u64,
    /// `reduce_scatter`: bytes of a rank's result.
    pub reduce_scatter: u64,
    /// `all_gather`: bytes of a rank's source.
    pub all_gather: u64,
}

impl Choice {
    /// Nothing is done here.
    pub const NONE: Choice = Choice { small: 0, one_shot: 0, two_shot: 0, reduce_scatter: 0, all_gather: 0 };

    /// For so many ranks whose devices NVLink connects all to all.
    ///
    /// A line costs twice the bytes and saves a flag's way (2 us); a second shot costs a flag's way and saves bytes. At 300 GB/s a
    /// flag's way is worth 600 KiB. For two ranks that was measured (`results/collectives/nvlink-2-h200.txt`): lines are the fastest up to
    /// 256 KiB, one shot up to 8 MiB, and all of them faster than NCCL up to 16 MiB. For four (`nvlink-4-h200.txt`) lines are up to 128 KiB and not at
    /// 256, one shot at 512 KiB and not at 1 MiB, and all are faster than NCCL up to 16 MiB. For other numbers the thresholds go with what the
    /// others send.
    pub fn of_ranks(ranks: usize) -> Choice {
        let others = ranks.saturating_sub(1).max(1) as u64;
        let total = 16 << 20;
        Choice {
            small: if ranks <= 2 { 256 << 10 } else { (512 << 10) / others },
            one_shot: if ranks <= 2 { 8 << 20 } else { (2 << 20) / others },
            two_shot: total,
            reduce_scatter: total / others.max(1),
            all_gather: total / others.max(1),
        }
    }

    /// What does a call of all ranks, and how its elements are combined; `None` where the inner communicator is to do it.
    pub fn algorithm(&self, call: &Call, ranks: usize, layout: Layout) -> Option<(Algorithm, Combining)> {
        let dtype = call.dtype().filter(|dtype| Variant::DTYPES.contains(dtype))?;
        if !(2..=MOST_RANKS).contains(&ranks) || call.group.size() != ranks {
            return None;
        }
        let (part, combine) = match call.operation {
            Operation::AllReduce(reduction) => (call.source.as_ref()?, Combining::of(reduction)?),
            Operation::ReduceScatter(reduction) => (call.result.as_ref()?, Combining::of(reduction)?),
            Operation::AllGather => (call.source.as_ref()?, Combining::Sum),
            Operation::AllToAll
            | Operation::Broadcast { .. }
            | Operation::Send { .. }
            | Operation::Recv { .. }
            | Operation::Barrier => return None,
        };
        let bytes = part.len() as u64 * dtype.unpacked_bytes() as u64;
        let steps: &[(u64, Algorithm)] = match call.operation {
            Operation::ReduceScatter(_) => &[(self.reduce_scatter, Algorithm::ReduceScatter)],
            Operation::AllGather => &[(self.all_gather, Algorithm::AllGather)],
            _ => &[
                (self.small, Algorithm::SmallAllReduce),
                (self.one_shot, Algorithm::OneShotAllReduce),
                (self.two_shot, Algorithm::TwoShotAllReduce),
            ],
        };
        let fits = |algorithm: Algorithm| {
            let room = if algorithm == Algorithm::SmallAllReduce { layout.lines_bytes } else { layout.set_bytes };
            algorithm.set_bytes(bytes, ranks as u64) <= room
        };
        steps.iter().find(|(most, algorithm)| bytes <= *most && fits(*algorithm)).map(|(_, algorithm)| (*algorithm, combine))
    }
}
