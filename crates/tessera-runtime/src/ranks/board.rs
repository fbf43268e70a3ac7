//! What ranks tell each other beside exchanges: names with values, who is gone, what each one does.
//!
//! A [`Board`] stands behind communicators that exchange tensors in another way than messages: processes have that of a [`World`], threads
//! of one process that of a [`Meeting`](crate::ranks::Meeting).

use std::time::{Duration, Instant};

use crate::ranks::call::{CallName, Group};
use crate::ranks::error::{ExchangeError, RendezvousError};
use crate::ranks::life::Limits;
use crate::ranks::world::World;

/// One rank's view of what all can read and write.
pub trait Board: Send + Sync {
    /// This rank.
    fn rank(&self) -> usize;
    /// How many ranks there are.
    fn ranks(&self) -> usize;
    /// How long this rank waits for others.
    fn limits(&self) -> Limits;
    /// Whether the ranks are threads of one process, whose devices may use each other's memory as it is.
    fn is_one_process(&self) -> bool;
    /// Puts a value under a name.
    fn set(&self, name: &str, value: &[u8]) -> Result<(), RendezvousError>;
    /// The value of a name, as soon as some rank has set it; `None` where that takes longer than `limit`, or a rank is lost meanwhile.
    fn get(&self, name: &str, limit: Duration) -> Result<Option<Vec<u8>>, RendezvousError>;
    /// Removes all names that begin so.
    fn forget(&self, prefix: &str) -> Result<(), RendezvousError>;
    /// A name for the next communicator: the same on every rank.
    fn next(&self, kind: &str) -> String;
    /// Says which call this rank is in.
    fn begins(&self, call: &CallName);
    /// Which call a rank was last seen in: its number and what it is.
    fn progress(&self, rank: usize) -> Option<(u64, String)>;
    /// Why a wait that began at `start` for the ranks of a group has to end, if it has: one of them is lost or has left, or it took too
    /// long.
    fn ended_by(&self, group: &Group, call: &CallName, start: Instant) -> Option<ExchangeError>;
    /// Calls `alarm` from another thread as soon as a rank is lost.
    fn on_loss(&self, alarm: Box<dyn FnMut(&str) + Send>);
    /// Tells the others why this rank exchanges no more.
    fn leave(&self, reason: &str);
}

/// That ranks of a group do not take part in time: those that are not seen in this call.
pub(super) fn late(board: &dyn Board, group: &Group, call: &CallName, waited: Duration) -> ExchangeError {
    let others: Vec<usize> = group.ranks.iter().copied().filter(|&rank| rank != board.rank()).collect();
    let seen: Vec<(usize, Option<(u64, String)>)> = others.iter().map(|&rank| (rank, board.progress(rank))).collect();
    let elsewhere = |seen: &&(usize, Option<(u64, String)>)| seen.1.as_ref() != Some(&(call.number, call.signature.clone()));
    let behind: Vec<&(usize, Option<(u64, String)>)> = seen.iter().filter(elsewhere).collect();
    let told = |(rank, seen): &&(usize, Option<(u64, String)>)| {
        let (number, text) = seen.as_ref().filter(|(number, _)| *number > 0)?;
        Some(format!("; rank {rank} was last in its call {number}, {text}"))
    };
    let detail = behind.iter().filter_map(told).collect();
    let ranks = if behind.is_empty() { others } else { behind.iter().map(|(rank, _)| *rank).collect() };
    ExchangeError::Late { ranks, waited, detail, call: call.clone() }
}

impl Board for World {
    fn rank(&self) -> usize {
        self.rank()
    }

    fn ranks(&self) -> usize {
        self.ranks()
    }

    fn limits(&self) -> Limits {
        self.limits()
    }

    fn is_one_process(&self) -> bool {
        false
    }

    fn set(&self, name: &str, value: &[u8]) -> Result<(), RendezvousError> {
        self.set(name, value)
    }

    fn get(&self, name: &str, limit: Duration) -> Result<Option<Vec<u8>>, RendezvousError> {
        self.get(name, limit)
    }

    fn forget(&self, prefix: &str) -> Result<(), RendezvousError> {
        self.forget(prefix)
    }

    fn next(&self, kind: &str) -> String {
        self.next(kind)
    }

    fn begins(&self, call: &CallName) {
        self.watch().begins(call);
    }

    fn progress(&self, rank: usize) -> Option<(u64, String)> {
        self.progress(rank)
    }

    fn ended_by(&self, group: &Group, call: &CallName, start: Instant) -> Option<ExchangeError> {
        match self.watch().ended_by(Some(group), call, start)? {
            ExchangeError::Late { waited, .. } => Some(late(self, group, call, waited)),
            // Who leaves because another was lost is not to blame.
            ExchangeError::Left { rank, reason, call } => {
                self.watch().settle();
                match self.watch().lost() {
                    Some((rank, reason)) => Some(ExchangeError::Lost { rank, reason, call }),
                    None => Some(ExchangeError::Left { rank, reason, call }),
                }
            }
            other => Some(other),
        }
    }

    fn on_loss(&self, alarm: Box<dyn FnMut(&str) + Send>) {
        self.watch().on_loss(alarm);
    }

    fn leave(&self, reason: &str) {
        self.fail(reason);
    }
}
