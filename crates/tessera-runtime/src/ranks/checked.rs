//! The checked mode: before a call the ranks compare what they are about to do, so that calls that do not match are found before
//! they hang or mix up elements.
//!
//! Each rank writes its call to the board, reads that of every other rank of the group, and makes the call where all are the same. That
//! takes a round trip to the board for each rank of the group: it is for finding mistakes, not for speed.
//!
//! ```text
//! checked/1/[0-1]/7/0    all_reduce(128 x f32, sum) over [0-1]       the 7th call of the group, by rank 0
//! checked/1/[0-1]/7/1    all_reduce(128 x f16, sum) over [0-1]       rank 1's: an error on both
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_driver::StreamHandle;

use crate::device::Device;
use crate::ranks::board::Board;
use crate::ranks::call::{Call, CallName, Group, Operation};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::ExchangeError;

/// A communicator whose calls are compared first.
pub struct Checked<C: Communicator> {
    inner: C,
    board: Arc<dyn Board>,
    name: String,
    calls: u64,
    groups: BTreeMap<Vec<usize>, Counts>,
}

/// How many calls of a group this rank has written, said to have read, and removed.
#[derive(Default)]
struct Counts {
    written: u64,
    told: u64,
    removed: u64,
}

/// After how many calls a rank says what it has read, so that it can be removed.
const TELL: u64 = 32;

impl<C: Communicator> Checked<C> {
    /// Checks the calls of a communicator. All ranks check, or none.
    pub fn new(inner: C, board: Arc<dyn Board>) -> Checked<C> {
        let name = board.next("checked");
        Checked { inner, board, name, calls: 0, groups: BTreeMap::new() }
    }

    /// Compares a list of calls with those of the other ranks. All of this rank's are written before any is read: a list is one step.
    /// Messages between two ranks are numbered in the order of their directions, since one end may list its `send` first and the other
    /// end too.
    fn compare(&mut self, calls: &[Call]) -> Result<(), ExchangeError> {
        let rank = self.inner.rank();
        let mut written = Vec::new();
        let direction = |call: &&Call| match call.operation {
            Operation::Send { to } => Some((rank, to)),
            Operation::Recv { from } => Some((from, rank)),
            _ => None,
        };
        let mut ordered: Vec<&Call> = calls.iter().collect();
        ordered.sort_by_key(direction);
        for call in ordered {
            self.calls += 1;
            // A message concerns its two ends alone.
            let group = match call.operation {
                Operation::Send { to: other } | Operation::Recv { from: other } => {
                    let mut ends = vec![rank, other];
                    ends.sort_unstable();
                    Group::of(ends, rank).unwrap_or_else(|| call.group.clone())
                }
                _ => call.group.clone(),
            };
            let signature = call.signature();
            let own = CallName { rank, number: self.calls, signature: signature.clone() };
            let counts = self.groups.entry(group.ranks.clone()).or_default();
            counts.written += 1;
            let prefix = format!("{}/{group}/{}/", self.name, counts.written);
            self.board.begins(&own);
            self.board.set(&format!("{prefix}{rank}"), signature.as_bytes())?;
            written.push((prefix, group, own));
        }
        for (prefix, group, own) in &written {
            let start = Instant::now();
            for &other in group.ranks.iter().filter(|&&other| other != rank) {
                let theirs = self.read(&format!("{prefix}{other}"), group, own, start)?;
                if theirs != own.signature {
                    return Err(ExchangeError::Differ { rank: other, theirs, call: own.clone() });
                }
            }
        }
        written.iter().try_for_each(|(_, group, _)| self.remove(group))
    }

    /// Says from time to time what this rank has read; a group's first rank removes what all have.
    fn remove(&mut self, group: &Group) -> Result<(), ExchangeError> {
        let Some(counts) = self.groups.get_mut(&group.ranks) else { return Ok(()) };
        if counts.written < counts.told + TELL {
            return Ok(());
        }
        counts.told = counts.written;
        let read = format!("{}/{group}/read/", self.name);
        self.board.set(&format!("{read}{}", self.inner.rank()), &counts.told.to_le_bytes())?;
        if group.position != 0 {
            return Ok(());
        }
        let mut by_all = counts.told;
        for rank in &group.ranks {
            let told = self.board.get(&format!("{read}{rank}"), Duration::ZERO)?.and_then(|bytes| bytes.try_into().ok());
            by_all = by_all.min(told.map_or(0, u64::from_le_bytes));
        }
        while counts.removed < by_all {
            counts.removed += 1;
            self.board.forget(&format!("{}/{group}/{}/", self.name, counts.removed))?;
        }
        Ok(())
    }

    fn read(&self, name: &str, group: &Group, own: &CallName, start: Instant) -> Result<String, ExchangeError> {
        const LOOK: Duration = Duration::from_millis(50);
        loop {
            if let Some(value) = self.board.get(name, LOOK)? {
                return Ok(String::from_utf8_lossy(&value).into_owned());
            }
            if let Some(error) = self.board.ended_by(group, own, start) {
                // What a rank wrote before it left says more than that it left.
                return match self.board.get(name, Duration::ZERO)? {
                    Some(value) => Ok(String::from_utf8_lossy(&value).into_owned()),
                    None => Err(error),
                };
            }
        }
    }

    fn first(&mut self, calls: &[Call]) -> Result<(), ExchangeError> {
        calls.iter().try_for_each(|call| call.check(self.inner.rank(), self.inner.ranks()))?;
        self.compare(calls).inspect_err(|error| self.inner.abort(&error.to_string()))
    }
}

impl<C: Communicator> Communicator for Checked<C> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn device(&self) -> &Device {
        self.inner.device()
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        self.first(calls)?;
        self.inner.start(calls, stream)
    }

    fn enqueue(&mut self, calls: &[Call], stream: StreamHandle) -> Result<(), ExchangeError> {
        self.first(calls)?;
        self.inner.enqueue(calls, stream)
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
    }
}
