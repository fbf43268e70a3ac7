//! Where ranks that are threads of one process meet: messages, names with values, and who has left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ranks::board::{Board, late};
use crate::ranks::call::{CallName, Group};
use crate::ranks::error::{ExchangeError, RendezvousError};
use crate::ranks::life::Limits;
use crate::ranks::linked::Message;

#[derive(Default)]
pub(super) struct Table {
    /// What was sent and not taken, by sender and receiver.
    pub(super) messages: BTreeMap<(usize, usize), VecDeque<Message>>,
    values: BTreeMap<String, Vec<u8>>,
    calls: BTreeMap<usize, (u64, String)>,
    made: BTreeMap<(usize, String), u64>,
    /// Who exchanges no more, and why.
    left: Vec<(usize, String)>,
}

impl Table {
    /// That a rank exchanges no more, if so.
    pub(super) fn left(&self, rank: usize, call: &CallName) -> Option<ExchangeError> {
        let (rank, reason) = self.left.iter().find(|(other, _)| *other == rank)?.clone();
        Some(ExchangeError::Left { rank, reason, call: call.clone() })
    }
}

/// Where the ranks of one process meet.
#[derive(Clone)]
pub struct Meeting {
    table: Arc<(Mutex<Table>, Condvar)>,
    ranks: usize,
    limits: Limits,
}

impl Meeting {
    /// A meeting of so many ranks.
    pub fn new(ranks: usize) -> Meeting {
        Meeting { table: Arc::default(), ranks, limits: Limits::default() }
    }

    /// A rank waits for another for no longer than so; else as [`Limits::default`] says.
    #[must_use]
    pub fn with_limit(self, call: Duration) -> Meeting {
        Meeting { limits: Limits { call, join: call, ..self.limits }, ..self }
    }

    /// How many ranks meet.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// A rank's view of it.
    pub fn seat(&self, rank: usize) -> Seat {
        Seat { meeting: self.clone(), rank }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait that something is new.
    pub(super) fn changed(&self) {
        self.table.1.notify_all();
    }

    /// Waits until something is new, or for `rest`.
    pub(super) fn wait<'a>(&self, table: MutexGuard<'a, Table>, rest: Duration) -> MutexGuard<'a, Table> {
        self.table.1.wait_timeout(table, rest).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// One rank's place in a [`Meeting`].
#[derive(Clone)]
pub struct Seat {
    pub(super) meeting: Meeting,
    pub(super) rank: usize,
}

impl Board for Seat {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.meeting.ranks
    }

    fn limits(&self) -> Limits {
        self.meeting.limits
    }

    fn is_one_process(&self) -> bool {
        true
    }

    fn set(&self, name: &str, value: &[u8]) -> Result<(), RendezvousError> {
        self.meeting.table().values.insert(name.to_string(), value.to_vec());
        self.meeting.changed();
        Ok(())
    }

    fn get(&self, name: &str, limit: Duration) -> Result<Option<Vec<u8>>, RendezvousError> {
        let start = Instant::now();
        let mut table = self.meeting.table();
        loop {
            if let Some(value) = table.values.get(name) {
                return Ok(Some(value.clone()));
            }
            let rest = limit.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return Ok(None);
            }
            table = self.meeting.wait(table, rest);
        }
    }

    fn forget(&self, prefix: &str) -> Result<(), RendezvousError> {
        self.meeting.table().values.retain(|name, _| !name.starts_with(prefix));
        Ok(())
    }

    fn next(&self, kind: &str) -> String {
        let mut table = self.meeting.table();
        let made = table.made.entry((self.rank, kind.to_string())).or_default();
        *made += 1;
        format!("{kind}/{made}")
    }

    fn begins(&self, call: &CallName) {
        self.meeting.table().calls.insert(self.rank, (call.number, call.signature.clone()));
    }

    fn progress(&self, rank: usize) -> Option<(u64, String)> {
        self.meeting.table().calls.get(&rank).cloned()
    }

    fn ended_by(&self, group: &Group, call: &CallName, start: Instant) -> Option<ExchangeError> {
        let left = {
            let table = self.meeting.table();
            group.ranks.iter().find_map(|&rank| table.left(rank, call))
        };
        let waited = start.elapsed();
        left.or_else(|| (waited >= self.meeting.limits.call).then(|| late(self, group, call, waited)))
    }

    /// Threads of one process are not lost: one that ends leaves.
    fn on_loss(&self, _alarm: Box<dyn FnMut(&str) + Send>) {}

    fn leave(&self, reason: &str) {
        self.meeting.table().left.push((self.rank, reason.to_string()));
        self.meeting.changed();
    }
}
