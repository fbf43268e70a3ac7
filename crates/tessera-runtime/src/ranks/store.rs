//! The store in rank 0's process: names with values that ranks wait for, and what is known of every rank's life.
//!
//! Each rank has two connections to it: one for questions, which may wait, and one for signs of life, which never does. A rank
//! is lost when its sign of life does not come for as long as `patience`, or that connection ends without a farewell. The first
//! rank that is lost is told to all others, whose waits end.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ranks::life::Limits;
use crate::ranks::wire::{Frame, Greeting, Kind, Purpose, welcome};

/// The most bytes that a value may have. Values are addresses and identifiers.
pub(super) const LONGEST_VALUE: u64 = 16 << 20;

/// What is known of a rank.
#[derive(Clone, Debug, Default)]
struct Life {
    seen: Option<Instant>,
    /// The call that it said it is in, and how many it has begun.
    call: (u64, String),
    left: Option<String>,
    lost: bool,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, Vec<u8>>,
    lives: Vec<Life>,
    lost: Option<(usize, String)>,
    /// Set when rank 0 has no more use for the store.
    closed: bool,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    ranks: usize,
    of: u64,
    limits: Limits,
}

/// The store, for as long as rank 0 keeps it.
pub(super) struct Store {
    inner: Arc<Inner>,
    port: u16,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, rank: usize, reason: String) {
        let mut state = self.state();
        state.lives[rank].lost = true;
        if state.lost.is_none() && state.lives[rank].left.is_none() {
            state.lost = Some((rank, reason));
        }
        self.changed.notify_all();
    }
}

impl Store {
    /// Listens, and serves the ranks from then on.
    pub(super) fn serve(listener: TcpListener, ranks: usize, of: u64, limits: Limits) -> std::io::Result<Store> {
        let port = listener.local_addr()?.port();
        let state = State { lives: vec![Life::default(); ranks], ..State::default() };
        let inner = Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new(), ranks, of, limits });
        let shared = Arc::clone(&inner);
        thread::Builder::new().name("store".to_string()).spawn(move || {
            for stream in listener.incoming() {
                if shared.state().closed {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { continue };
                // A connection that says nothing holds up nobody else. Without a thread for it, it is closed.
                let _ = thread::Builder::new().name("store connection".to_string()).spawn(move || shared.connection(stream));
            }
        })?;
        Ok(Store { inner, port })
    }

    /// Waits until every other rank has left or is lost: whoever lives on needs the store, and hears here who is lost. One that hangs
    /// does not keep rank 0 for ever, and not for long where rank 0 has failed.
    fn wait_for_others(&self) {
        let lives = |life: &Life| life.seen.is_some() && life.left.is_none() && !life.lost;
        let (start, mut state) = (Instant::now(), self.inner.state());
        let failed = state.lives[0].left.as_ref().is_some_and(|reason| !reason.is_empty());
        let limit = if failed { 2 * self.inner.limits.patience } else { self.inner.limits.call };
        while start.elapsed() < limit && state.lives.iter().skip(1).any(lives) {
            state = self.inner.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.wait_for_others();
        self.inner.state().closed = true;
        // The thread that accepts connections sees it with the next one.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Inner {
    fn connection(self: Arc<Inner>, mut stream: TcpStream) {
        let judge = |greeting: &Greeting| {
            let Greeting { rank, ranks, of, purpose, .. } = *greeting;
            if of != self.of {
                return Err("it belongs to another program or run: give each run a port of its own".to_string());
            }
            if ranks != self.ranks || rank >= ranks {
                return Err(format!("it is rank {rank} of {ranks}, and rank 0 waits for {} ranks", self.ranks));
            }
            if purpose == Purpose::Life && self.state().lives[rank].seen.replace(Instant::now()).is_some() {
                return Err(format!("rank {rank} is there already: give each process a number of its own"));
            }
            Ok(())
        };
        let Some(greeting) = welcome(&mut stream, judge) else { return };
        match greeting.purpose {
            Purpose::Store => while self.answer(&mut stream, greeting.rank).is_some() {},
            Purpose::Life => self.attend(&mut stream, greeting.rank),
            Purpose::Data => {}
        }
    }

    fn answer(&self, stream: &mut TcpStream, own: usize) -> Option<()> {
        let Frame { kind, name, body } = Frame::read(stream, LONGEST_VALUE).ok()?;
        let number = body.as_slice().try_into().map(u64::from_le_bytes).unwrap_or(0);
        let (kind, name, body) = match kind {
            Kind::Set => {
                let mut state = self.state();
                state.values.insert(name, body);
                self.changed.notify_all();
                (Kind::Value, String::new(), Vec::new())
            }
            Kind::Get => self.wait_for(&name, Duration::from_millis(number), own),
            Kind::Forget => {
                self.state().values.retain(|own, _| !own.starts_with(&name));
                (Kind::Value, String::new(), Vec::new())
            }
            Kind::Progress => {
                let state = self.state();
                let life = usize::try_from(number).ok().and_then(|rank| state.lives.get(rank));
                let (number, text) = life.map(|life| life.call.clone()).unwrap_or_default();
                (Kind::Value, text, number.to_le_bytes().to_vec())
            }
            Kind::Welcome
            | Kind::Refused
            | Kind::Value
            | Kind::TimedOut
            | Kind::Alive
            | Kind::Fates
            | Kind::Leave
            | Kind::Elements => (Kind::Refused, "no question to a store".to_string(), Vec::new()),
        };
        Frame::write(stream, kind, &name, &body).ok()
    }

    fn wait_for(&self, name: &str, limit: Duration, own: usize) -> (Kind, String, Vec<u8>) {
        let start = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(value) = state.values.get(name) {
                return (Kind::Value, String::new(), value.clone());
            }
            let rest = limit.saturating_sub(start.elapsed());
            if rest.is_zero() || state.closed || state.lost.as_ref().is_some_and(|(rank, _)| *rank != own) {
                return (Kind::TimedOut, String::new(), Vec::new());
            }
            state = self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a rank's signs of life until it leaves or is lost.
    fn attend(&self, stream: &mut TcpStream, rank: usize) {
        let _ = stream.set_read_timeout(Some(self.limits.patience));
        loop {
            let frame = match Frame::read(stream, 8) {
                Ok(frame) => frame,
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    return self.lose(rank, format!("no sign of life for {:.1} s", self.limits.patience.as_secs_f64()));
                }
                Err(_) => return self.lose(rank, "its process ended".to_string()),
            };
            let mut state = self.state();
            state.lives[rank].seen = Some(Instant::now());
            match frame.kind {
                Kind::Leave => {
                    state.lives[rank].left = Some(frame.name);
                    self.changed.notify_all();
                    return;
                }
                _ => {
                    let number = frame.body.as_slice().try_into().map(u64::from_le_bytes).unwrap_or(0);
                    state.lives[rank].call = (number, frame.name);
                }
            }
            let fates = Fates {
                lost: state.lost.clone(),
                left: (0..).zip(&state.lives).filter_map(|(rank, life)| Some((rank, life.left.clone()?))).collect(),
            };
            drop(state);
            if Frame::write(stream, Kind::Fates, &fates.text(), &[]).is_err() {
                return self.lose(rank, "its process ended".to_string());
            }
        }
    }
}

/// Who is lost, and who has left of their own accord and why (an empty text: at the program's end).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    pub(super) lost: Option<(usize, String)>,
    pub(super) left: Vec<(usize, String)>,
}

impl Fates {
    /// One line a rank.
    fn text(&self) -> String {
        let line = |word: &str, (rank, reason): &(usize, String)| {
            // A name of a frame has a greatest length; what is cut off here is the tail of a reason.
            let reason: String = reason.replace('\n', " ").chars().take(400).collect();
            format!("{word} {rank} {reason}\n")
        };
        self.lost.iter().map(|lost| line("lost", lost)).chain(self.left.iter().take(64).map(|left| line("left", left))).collect()
    }

    pub(super) fn parse(text: &str) -> Fates {
        let mut fates = Fates::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(word), Some(Ok(rank)), Some(reason)) = (words.next(), words.next().map(str::parse), words.next()) else {
                continue;
            };
            match word {
                "lost" => fates.lost = Some((rank, reason.to_string())),
                _ => fates.left.push((rank, reason.to_string())),
            }
        }
        fates
    }
}
