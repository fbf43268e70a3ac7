//! A communicator of processes that exchange tensors on the CPU over TCP: one connection between each two ranks.
//!
//! What arrives is read by a thread a connection into memory, so that no two ranks wait for each other to read; a message stays there until its
//! call takes it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tessera_driver::StreamHandle;

use crate::device::Device;
use crate::ranks::call::{Call, CallName};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::{ExchangeError, RendezvousError};
use crate::ranks::linked::{Linked, Links, Message};
use crate::ranks::wire::{Frame, Greeting, Kind, Purpose, Unwelcome, greet, welcome};
use crate::ranks::world::{World, broken};

/// How often a wait looks whether it has to end.
const LOOK: Duration = Duration::from_millis(20);
/// More than any tensor has.
const LONGEST_BODY: u64 = 1 << 44;

/// What came from one rank.
#[derive(Default)]
struct Inbox {
    messages: VecDeque<Message>,
    /// Why nothing more comes: a farewell with its reason, or the end of the connection.
    ended: Option<End>,
}

#[derive(Clone)]
enum End {
    Left(String),
    Broken(String),
}

#[derive(Default)]
struct Inboxes {
    by_rank: Mutex<Vec<Inbox>>,
    changed: Condvar,
}

impl Inboxes {
    fn all(&self) -> MutexGuard<'_, Vec<Inbox>> {
        self.by_rank.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TcpLinks {
    world: World,
    inboxes: Arc<Inboxes>,
    /// By rank; none to this one.
    streams: Vec<Option<TcpStream>>,
}

/// One rank's end: see the module's head.
pub struct TcpRank(Linked<TcpLinks>);

impl World {
    /// Connects all ranks with each other. All of them call it at the same point.
    pub fn tcp(&self) -> Result<TcpRank, RendezvousError> {
        let (rank, ranks, name) = (self.rank(), self.ranks(), self.next("tcp"));
        let fail = |what: &str, error: &io::Error| broken(rank, what, error);
        let listener = TcpListener::bind((self.address(), 0)).map_err(|error| fail("listening for other ranks", &error))?;
        let own = listener.local_addr().map_err(|error| fail("listening for other ranks", &error))?;
        self.set(&format!("{name}/{rank}"), own.to_string().as_bytes())?;
        let mut streams: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
        let start = Instant::now();
        let limit = self.limits().join;
        let greeting = Greeting { purpose: Purpose::Data, rank, ranks, of: self.of() };
        for (other, place) in streams.iter_mut().enumerate().take(rank) {
            let address = self.get(&format!("{name}/{other}"), limit.saturating_sub(start.elapsed()))?;
            let Some(address) = address.and_then(|text| String::from_utf8(text).ok()?.parse().ok()) else {
                return Err(self.missing(vec![other], start));
            };
            let what = format!("connecting to rank {other} at {address}");
            let mut stream = TcpStream::connect_timeout(&address, limit).map_err(|error| fail(&what, &error))?;
            greet(&mut stream, greeting).map_err(|error| match error {
                Unwelcome::Io(error) => fail(&what, &error),
                Unwelcome::Refused(reason) => RendezvousError::Refused { rank, reason },
            })?;
            *place = Some(stream);
        }
        self.accept(&listener, &mut streams, start)?;
        let inboxes =
            Arc::new(Inboxes { by_rank: Mutex::new((0..ranks).map(|_| Inbox::default()).collect()), changed: Condvar::new() });
        for (other, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            stream.set_write_timeout(Some(LOOK)).map_err(|error| fail("a connection", &error))?;
            let mut own = stream.try_clone().map_err(|error| fail("a connection", &error))?;
            let inboxes = Arc::clone(&inboxes);
            let spawned =
                thread::Builder::new().name(format!("from rank {other}")).spawn(move || read_all(&mut own, other, &inboxes));
            spawned.map_err(|error| fail("a thread that reads", &error))?;
        }
        Ok(TcpRank(Linked::new(TcpLinks { world: self.clone(), inboxes, streams }, rank, ranks)))
    }

    /// Takes connections of all higher ranks. Who is no rank is turned away.
    fn accept(&self, listener: &TcpListener, streams: &mut [Option<TcpStream>], start: Instant) -> Result<(), RendezvousError> {
        let (rank, ranks, of) = (self.rank(), self.ranks(), self.of());
        let fail = |error: &io::Error| broken(rank, "listening for other ranks", error);
        listener.set_nonblocking(true).map_err(|error| fail(&error))?;
        while streams[rank + 1..].iter().any(Option::is_none) {
            let missing = || (rank + 1..ranks).filter(|&other| streams[other].is_none()).collect();
            if start.elapsed() >= self.limits().join || self.watch().lost().is_some() {
                return Err(self.missing(missing(), start));
            }
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                }
                Err(error) => return Err(fail(&error)),
            };
            stream.set_nonblocking(false).map_err(|error| fail(&error))?;
            let judge = |greeting: &Greeting| match (greeting.of == of, greeting.purpose, greeting.rank > rank) {
                (true, Purpose::Data, true) if greeting.rank < ranks && streams[greeting.rank].is_none() => Ok(()),
                _ => Err(format!("rank {rank} does not expect it")),
            };
            if let Some(greeting) = welcome(&mut stream, judge) {
                streams[greeting.rank] = Some(stream);
            }
        }
        Ok(())
    }

    fn missing(&self, missing: Vec<usize>, start: Instant) -> RendezvousError {
        match self.watch().lost() {
            Some((lost, reason)) => RendezvousError::Connection {
                rank: self.rank(),
                what: "connecting to the other ranks".to_string(),
                reason: format!("rank {lost} is lost: {reason}"),
            },
            None => RendezvousError::Missing { rank: self.rank(), missing, waited: start.elapsed() },
        }
    }
}

/// Reads a rank's messages until it leaves or the connection ends.
fn read_all(stream: &mut TcpStream, from: usize, inboxes: &Inboxes) {
    loop {
        let arrived = match Frame::read(stream, LONGEST_BODY) {
            Ok(Frame { kind: Kind::Elements, name, body }) => Ok(Message { signature: name.into(), bytes: Arc::new(body) }),
            Ok(Frame { kind: Kind::Leave, name, .. }) => Err(End::Left(name)),
            Ok(_) => Err(End::Broken("it sent something else than elements".to_string())),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(End::Broken(error.to_string())),
            Err(_) => Err(End::Broken("its process ended".to_string())),
        };
        let mut all = inboxes.all();
        let ends = arrived.is_err();
        match arrived {
            Ok(message) => all[from].messages.push_back(message),
            Err(end) => all[from].ended = Some(end),
        }
        drop(all);
        inboxes.changed.notify_all();
        if ends {
            return;
        }
    }
}

impl TcpLinks {
    /// The error for a rank of which nothing more comes. That another one was lost before says more.
    fn gone(&self, from: usize, end: End, call: &CallName) -> ExchangeError {
        self.world.watch().settle();
        match (self.world.watch().lost(), end) {
            (Some((rank, reason)), _) => ExchangeError::Lost { rank, reason, call: call.clone() },
            (None, End::Left(reason)) => ExchangeError::Left { rank: from, reason, call: call.clone() },
            (None, End::Broken(reason)) => ExchangeError::Lost { rank: from, reason, call: call.clone() },
        }
    }

    /// Why a wait for one rank ends early, if it does.
    fn ended(&self, other: usize, call: &CallName, start: Instant) -> Option<ExchangeError> {
        match self.world.watch().ended_by(None, call, start)? {
            ExchangeError::Late { waited, call, .. } => {
                let seen = self.world.progress(other);
                let detail = seen
                    .filter(|(number, _)| *number > 0)
                    .map(|(number, text)| format!("; it was last in its call {number}, {text}"));
                Some(ExchangeError::Late { ranks: vec![other], waited, detail: detail.unwrap_or_default(), call })
            }
            other => Some(other),
        }
    }

    fn write(&mut self, to: usize, bytes: &[u8], call: &CallName) -> Result<(), ExchangeError> {
        let (start, mut rest) = (Instant::now(), bytes);
        while !rest.is_empty() {
            let Some(stream) = &mut self.streams[to] else {
                return Err(self.gone(to, End::Broken("there is no connection to it".to_string()), call));
            };
            match stream.write(rest) {
                Ok(0) => return Err(self.gone(to, End::Broken("its process ended".to_string()), call)),
                Ok(written) => rest = &rest[written..],
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    if let Some(error) = self.ended(to, call, start) {
                        return Err(error);
                    }
                }
                Err(_) => {
                    let end = self.inboxes.all()[to].ended.clone();
                    return Err(self.gone(to, end.unwrap_or_else(|| End::Broken("its process ended".to_string())), call));
                }
            }
        }
        Ok(())
    }
}

impl Links for TcpLinks {
    fn send(&mut self, to: usize, message: Message, call: &CallName) -> Result<(), ExchangeError> {
        self.world.watch().begins(call);
        let head = Frame::head(Kind::Elements, &message.signature, message.bytes.len());
        self.write(to, &head, call)?;
        self.write(to, &message.bytes, call)
    }

    fn receive(&mut self, from: usize, call: &CallName) -> Result<Message, ExchangeError> {
        self.world.watch().begins(call);
        let start = Instant::now();
        let mut all = self.inboxes.all();
        loop {
            if let Some(message) = all[from].messages.pop_front() {
                return Ok(message);
            }
            if let Some(end) = all[from].ended.clone() {
                drop(all);
                return Err(self.gone(from, end, call));
            }
            all = self.inboxes.changed.wait_timeout(all, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if all[from].messages.is_empty() && all[from].ended.is_none() {
                drop(all);
                if let Some(error) = self.ended(from, call, start) {
                    return Err(error);
                }
                all = self.inboxes.all();
            }
        }
    }

    fn leave(&mut self, reason: Option<&str>) {
        let reason: String = reason.unwrap_or_default().chars().take(1000).collect();
        for stream in self.streams.iter_mut().flatten() {
            // Whoever does not take it sees the end of the connection.
            let _ = Frame::write(stream, Kind::Leave, &reason, &[]);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

impl Communicator for TcpRank {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        self.0.start(calls, stream)
    }

    fn abort(&mut self, reason: &str) {
        self.0.abort(reason);
    }
}
