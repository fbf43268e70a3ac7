//! The collectives, and what each of them moves where.
//!
//! A message of `S` bytes is what NCCL's tests call one: each rank's buffer in an all-reduce, a broadcast and a send, all parts together in the
//! others. With `n` ranks and a message of `c` elements:
//!
//! | collective | a rank gives | a rank gets | bus bandwidth over algorithm bandwidth |
//! |---|---|---|---|
//! | `all_reduce` | c | c | 2 (n - 1) / n |
//! | `reduce_scatter` | c | c / n | (n - 1) / n |
//! | `all_gather` | c / n | c | (n - 1) / n |
//! | `all_to_all` | c | c | (n - 1) / n |
//! | `broadcast` from rank 0 | c | c | 1 |
//! | `send_recv` to the next rank | c | c | 1 |

use std::fmt;

use serde::{Deserialize, Serialize};
use tessera_types::DType;

/// An operation that all ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank gets all parts.
    AllGather,
    /// Every rank gets its part of each rank's.
    AllToAll,
    /// Every rank gets the first one's.
    Broadcast,
    /// Every rank sends to the next and receives from the one before.
    SendRecv,
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 6] = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Broadcast,
        Collective::SendRecv,
    ];

    /// The name of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::AllToAll => "all_to_all",
            Collective::Broadcast => "broadcast",
            Collective::SendRecv => "send_recv",
        }
    }

    /// The one of a name.
    pub fn parse(name: &str) -> Option<Collective> {
        Collective::ALL.into_iter().find(|collective| collective.name() == name)
    }

    /// Whether elements are added up.
    pub const fn adds(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::ReduceScatter)
    }

    /// Bus bandwidth over algorithm bandwidth: what a rank's link carries at least, in messages.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let share = (ranks.max(1) - 1) as f64 / ranks.max(1) as f64;
        match self {
            Collective::AllReduce => 2.0 * share,
            Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => share,
            Collective::Broadcast | Collective::SendRecv => 1.0,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A collective on so many elements of a type among so many ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// What is done.
    pub collective: Collective,
    /// How many ranks do it.
    pub ranks: usize,
    /// Elements of the message, of which each rank has an equal part.
    pub count: usize,
    /// Their type.
    pub dtype: DType,
}

/// Where an element of a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// All ranks' elements at an index, added up.
    Sum(usize),
    /// A rank's element at an index.
    Of(usize, usize),
}

/// Parts are whole 16-byte words, as vector loads want them.
const PART_BYTES: usize = 16;

impl Form {
    /// The largest message of at most so many bytes that divides among the ranks; `None` where there is none.
    pub fn of_bytes(collective: Collective, ranks: usize, bytes: u64, dtype: DType) -> Option<Form> {
        let unit = ranks * PART_BYTES;
        let bytes = usize::try_from(bytes).ok()? / unit * unit;
        (bytes > 0).then(|| Form { collective, ranks, count: bytes * 8 / dtype.bits() as usize, dtype })
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        self.count * self.dtype.bits() as usize / 8
    }

    /// Elements that a rank gives.
    pub fn given(&self) -> usize {
        if self.collective == Collective::AllGather { self.count / self.ranks } else { self.count }
    }

    /// Elements that a rank gets.
    pub fn got(&self) -> usize {
        if self.collective == Collective::ReduceScatter { self.count / self.ranks } else { self.count }
    }

    /// Where an element of a rank's result comes from.
    pub(crate) fn origin(&self, rank: usize, index: usize) -> Origin {
        let part = self.count / self.ranks;
        match self.collective {
            Collective::AllReduce => Origin::Sum(index),
            Collective::ReduceScatter => Origin::Sum(rank * part + index),
            Collective::AllGather => Origin::Of(index / part, index % part),
            Collective::AllToAll => Origin::Of(index / part, rank * part + index % part),
            Collective::Broadcast => Origin::Of(0, index),
            Collective::SendRecv => Origin::Of((rank + self.ranks - 1) % self.ranks, index),
        }
    }
}
