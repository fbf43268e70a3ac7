//! A rank's signs of life, and what it hears of the others: the watchdog.
//!
//! A thread tells the store that this rank lives and which call it is in, and hears who is lost or has left. Every wait of the
//! rank looks at [`Watch::ended_by`]; what cannot look (a device's library) asks to be called.

use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::ranks::call::{CallName, Group};
use crate::ranks::error::ExchangeError;
use crate::ranks::store::Fates;
use crate::ranks::wire::{Frame, Kind};

/// How long a rank waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all ranks to come, when they meet.
    pub join: Duration,
    /// For the others in a call.
    pub call: Duration,
    /// Without a sign of life, after which a rank is lost.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { join: Duration::from_secs(300), call: Duration::from_secs(600), patience: Duration::from_secs(10) }
    }
}

impl Limits {
    /// Time between two signs of life.
    fn interval(&self) -> Duration {
        (self.patience / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

type Alarm = Box<dyn FnMut(&str) + Send>;

#[derive(Default)]
struct State {
    fates: Fates,
    call: (u64, String),
    ending: Option<String>,
    alarms: Vec<Alarm>,
}

/// What a rank knows of the others.
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) limits: Limits,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which call this rank is in.
    pub(super) fn begins(&self, call: &CallName) {
        self.state().call = (call.number, call.signature.clone());
    }

    /// Who is lost, if anybody is.
    pub(super) fn lost(&self) -> Option<(usize, String)> {
        self.state().fates.lost.clone()
    }

    /// Calls `alarm` as soon as a rank is lost, from another thread; at once where one is already.
    pub(super) fn on_loss(&self, mut alarm: impl FnMut(&str) + Send + 'static) {
        let mut state = self.state();
        match &state.fates.lost {
            Some((rank, reason)) => alarm(&format!("rank {rank} is lost: {reason}")),
            None => state.alarms.push(Box::new(alarm)),
        }
    }

    /// Why a wait for ranks of a group has to end, if it has: somebody is lost, has left, or it took too long.
    pub(super) fn ended_by(&self, group: Option<&Group>, call: &CallName, start: Instant) -> Option<ExchangeError> {
        let state = self.state();
        if let Some((rank, reason)) = state.fates.lost.clone() {
            return Some(ExchangeError::Lost { rank, reason, call: call.clone() });
        }
        let gone = state.fates.left.iter().find(|(rank, _)| group.is_some_and(|group| group.ranks.contains(rank)));
        if let Some((rank, reason)) = gone.cloned() {
            return Some(ExchangeError::Left { rank, reason, call: call.clone() });
        }
        None.or_else(|| {
            let waited = start.elapsed();
            (waited >= self.limits.call).then(|| ExchangeError::Late {
                ranks: Vec::new(),
                waited,
                detail: String::new(),
                call: call.clone(),
            })
        })
    }

    /// Waits a moment for news of who is lost: a connection that ends is seen before its rank is known to be lost.
    pub(super) fn settle(&self) {
        let (start, limit) = (Instant::now(), 3 * self.limits.interval());
        let mut state = self.state();
        while state.fates.lost.is_none() && start.elapsed() < limit {
            state = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hears(&self, fates: Fates) {
        let mut state = self.state();
        if state.fates.lost.is_none() && fates.lost.is_some() {
            let alarms = std::mem::take(&mut state.alarms);
            state.fates = fates;
            let (rank, reason) = state.fates.lost.clone().unwrap_or_default();
            self.changed.notify_all();
            drop(state);
            for mut alarm in alarms {
                alarm(&format!("rank {rank} is lost: {reason}"));
            }
            return;
        }
        if state.fates.lost.is_none() {
            state.fates = fates;
        }
        self.changed.notify_all();
    }

    /// Hears that a rank is lost.
    fn lose(&self, rank: usize, reason: &str) {
        let left = self.state().fates.left.clone();
        self.hears(Fates { lost: Some((rank, reason.to_string())), left });
    }
}

/// The thread that gives signs of life. Dropped, it says farewell.
pub(super) struct Life {
    pub(super) watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    /// Begins to give signs of life on a connection to the store.
    pub(super) fn begin(mut stream: TcpStream, limits: Limits) -> std::io::Result<Life> {
        let watch = Arc::new(Watch { state: Mutex::default(), changed: Condvar::new(), limits });
        stream.set_read_timeout(Some(limits.patience))?;
        stream.set_write_timeout(Some(limits.patience))?;
        let own = Arc::clone(&watch);
        let thread = thread::Builder::new().name("signs of life".to_string()).spawn(move || own.give_signs(&mut stream))?;
        Ok(Life { watch, thread: Some(thread) })
    }

    /// Gives a reason for the farewell; the first one counts.
    pub(super) fn ends(&self, reason: &str) {
        let mut state = self.watch.state();
        state.ending.get_or_insert_with(|| reason.to_string());
        self.watch.changed.notify_all();
    }
}

impl Watch {
    fn give_signs(&self, stream: &mut TcpStream) {
        loop {
            let (call, ending) = {
                let state = self.state();
                (state.call.clone(), state.ending.clone())
            };
            if let Some(reason) = ending {
                let reason: String = reason.chars().take(1000).collect();
                let _ = Frame::write(stream, Kind::Leave, &reason, &[]);
                return;
            }
            let heard = Frame::write(stream, Kind::Alive, &call.1, &call.0.to_le_bytes()).and_then(|()| Frame::read(stream, 0));
            match heard {
                Ok(frame) => self.hears(Fates::parse(&frame.name)),
                // The store is rank 0's.
                Err(error) => {
                    let silent = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
                    let seconds = self.limits.patience.as_secs_f64();
                    let reason =
                        if silent { format!("no sign of life for {seconds:.1} s") } else { "its process ended".to_string() };
                    return self.lose(0, &reason);
                }
            }
            let state = self.state();
            if state.ending.is_none() {
                drop(self.changed.wait_timeout(state, self.limits.interval()));
            }
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.ends("");
        if let Some(thread) = self.thread.take() {
            // It ends after the farewell, or at the latest when the store has not answered for `patience`.
            let _ = thread.join();
        }
    }
}
