//! Processes that are ranks of one program: how they meet, and what they ask each other beside exchanges.
//!
//! Rank 0 listens; the others connect to it as soon as it does. From then on there is a store of names and values in rank 0's
//! process, and everybody's signs of life ([`crate::ranks::life`]). Communicators are made from a [`World`]: [`World::tcp`] for tensors on the
//! CPU. Every rank makes the same communicators in the same order; each may be made again after it failed.
//!
//! ```no_run
//! use tessera_runtime::Knobs;
//! use tessera_runtime::ranks::{Communicator, Limits, World};
//! let placement = Knobs::placement()?.expect("a launcher's variables");
//! let world = World::join(&placement, Limits::default())?;
//! let mut ranks = world.tcp()?;
//! let everyone = ranks.world();
//! ranks.barrier(&everyone)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ranks::environment::Placement;
use crate::ranks::error::RendezvousError;
use crate::ranks::life::{Life, Limits, Watch};
use crate::ranks::store::{LONGEST_VALUE, Store};
use crate::ranks::wire::{Frame, Greeting, Kind, Purpose, Unwelcome, greet};

/// This process as one of the ranks. Clones are the same; the last one says farewell, and rank 0's waits there for the others.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    rank: usize,
    ranks: usize,
    of: u64,
    questions: Mutex<TcpStream>,
    /// This process's address as rank 0 sees it.
    address: IpAddr,
    /// How many communicators were made.
    made: AtomicU64,
    // Dropped in this order: the farewell, then the store.
    life: Life,
    _store: Option<Store>,
}

impl World {
    /// Meets the other ranks. Returns when all are there.
    pub fn join(placement: &Placement, limits: Limits) -> Result<World, RendezvousError> {
        let Placement { rank, ranks, .. } = *placement;
        let start = Instant::now();
        let store = (rank == 0).then(|| listen(placement, &limits)).transpose()?;
        let (host, port) = match &store {
            Some((_, port)) => ("127.0.0.1".to_string(), *port),
            None => (placement.address.clone(), placement.port),
        };
        let connect =
            |purpose| connect_to_store((&host, port), Greeting { purpose, rank, ranks, of: TO_THE_STORE }, (start, limits.join));
        let questions = connect(Purpose::Store)?;
        let unusable = |error: io::Error| broken(rank, "the connection to rank 0", &error);
        // The store answers within a stretch; one that does not is gone, though its connection may not say so.
        questions.set_read_timeout(Some(STRETCH + limits.patience)).map_err(unusable)?;
        let address = questions.local_addr().map_err(unusable)?.ip();
        let life = Life::begin(connect(Purpose::Life)?, limits).map_err(|error| broken(rank, "signs of life", &error))?;
        let mut world = World {
            inner: Arc::new(Inner {
                rank,
                ranks,
                of: TO_THE_STORE,
                questions: Mutex::new(questions),
                address,
                made: AtomicU64::new(0),
                life,
                _store: store.map(|(store, _)| store),
            }),
        };
        if rank == 0 {
            world.set("run", &run().to_le_bytes())?;
        }
        let named = world.get("run", limits.join.saturating_sub(start.elapsed()))?;
        let named = named.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        match (Arc::get_mut(&mut world.inner), named) {
            (Some(inner), Some(of)) => inner.of = of,
            _ => return Err(RendezvousError::Missing { rank, missing: vec![0], waited: start.elapsed() }),
        }
        world.set(&format!("here/{rank}"), &[])?;
        let mut missing = Vec::new();
        for other in 0..ranks {
            let rest = limits.join.saturating_sub(start.elapsed());
            if world.get(&format!("here/{other}"), rest)?.is_none() {
                missing.push(other);
            }
        }
        match (missing.is_empty(), world.watch().lost()) {
            (true, _) => {}
            (false, Some((lost, reason))) => {
                let what = "waiting for all ranks".to_string();
                return Err(RendezvousError::Connection { rank, what, reason: format!("rank {lost} is lost: {reason}") });
            }
            (false, None) => return Err(RendezvousError::Missing { rank, missing, waited: start.elapsed() }),
        }
        Ok(world)
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.inner.ranks
    }

    /// How long this rank waits for others.
    pub fn limits(&self) -> Limits {
        self.inner.life.watch.limits
    }

    /// Says why this rank ends; the others hear it instead of guessing.
    pub fn fail(&self, reason: &str) {
        self.inner.life.ends(reason);
    }

    /// Puts a value under a name. It is kept until [`World::forget`].
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), RendezvousError> {
        self.ask(Kind::Set, name, value).map(drop)
    }

    /// The value of a name, as soon as some rank has set it; `None` where that takes longer than `limit`, or a rank is lost meanwhile.
    pub fn get(&self, name: &str, limit: Duration) -> Result<Option<Vec<u8>>, RendezvousError> {
        let start = Instant::now();
        loop {
            let rest = limit.saturating_sub(start.elapsed());
            let stretch = rest.min(STRETCH).as_millis() as u64;
            let answer = self.ask(Kind::Get, name, &stretch.to_le_bytes())?;
            match answer.kind {
                Kind::Value => return Ok(Some(answer.body)),
                _ if rest <= STRETCH || self.watch().lost().is_some() => return Ok(None),
                _ => {}
            }
        }
    }

    /// Removes all names that begin so.
    pub fn forget(&self, prefix: &str) -> Result<(), RendezvousError> {
        self.ask(Kind::Forget, prefix, &[]).map(drop)
    }

    /// Which call a rank was last seen in: its number and what it is.
    pub(super) fn progress(&self, rank: usize) -> Option<(u64, String)> {
        let answer = self.ask(Kind::Progress, "", &(rank as u64).to_le_bytes()).ok()?;
        Some((u64::from_le_bytes(answer.body.as_slice().try_into().ok()?), answer.name))
    }

    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.inner.life.watch
    }

    pub(super) fn address(&self) -> IpAddr {
        self.inner.address
    }

    /// What connections of this program's ranks belong to.
    pub(super) fn of(&self) -> u64 {
        self.inner.of
    }

    /// A name for the next communicator: on every rank the same.
    pub(super) fn next(&self, kind: &str) -> String {
        format!("{kind}/{}", self.inner.made.fetch_add(1, Ordering::Relaxed))
    }

    fn ask(&self, kind: Kind, name: &str, body: &[u8]) -> Result<Frame, RendezvousError> {
        let mut stream = self.inner.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = Frame::write(&mut *stream, kind, name, body).and_then(|()| Frame::read(&mut *stream, LONGEST_VALUE));
        let rank = self.inner.rank;
        match answer {
            Ok(frame) if frame.kind == Kind::Refused => Err(RendezvousError::Refused { rank, reason: frame.name }),
            Ok(frame) => Ok(frame),
            Err(error) => {
                // An answer that comes late must not be taken for the next question's.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                Err(match self.watch().lost() {
                    Some((lost, reason)) => RendezvousError::Connection {
                        rank,
                        what: "a question to rank 0".to_string(),
                        reason: format!("rank {lost} is lost: {reason}"),
                    },
                    None => broken(rank, "a question to rank 0", &error),
                })
            }
        }
    }
}

/// How long a question waits at the store: one at a time may wait, and short ones let others in between.
const STRETCH: Duration = Duration::from_millis(200);

/// What connections to the store belong to: who comes there does not know the run yet.
const TO_THE_STORE: u64 = 0;

/// A number that no other run has: ranks that meet by mistake refuse each other.
fn run() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    (time ^ u64::from(std::process::id()).rotate_left(40)) | 1
}

pub(super) fn broken(rank: usize, what: &str, error: &io::Error) -> RendezvousError {
    RendezvousError::Connection { rank, what: what.to_string(), reason: error.to_string() }
}

/// Rank 0's store, and its port.
fn listen(placement: &Placement, limits: &Limits) -> Result<(Store, u16), RendezvousError> {
    let what = format!("listening on port {}", placement.port);
    let taken = |error: io::Error| {
        let help = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "\nhelp: another program has this port: set `TESSERA_RANKS_PORT` to a free one, on every rank the same"
            }
            _ => "",
        };
        RendezvousError::Connection { rank: 0, what: what.clone(), reason: format!("{error}{help}") }
    };
    let listener = TcpListener::bind(("0.0.0.0", placement.port)).map_err(taken)?;
    let port = listener.local_addr().map_err(taken)?.port();
    Ok((Store::serve(listener, placement.ranks, TO_THE_STORE, *limits).map_err(taken)?, port))
}

/// Connects to rank 0's store as soon as it is there.
fn connect_to_store(
    (host, port): (&str, u16),
    greeting: Greeting,
    (start, limit): (Instant, Duration),
) -> Result<TcpStream, RendezvousError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let rank = greeting.rank;
    loop {
        let attempt = (host, port).to_socket_addrs().and_then(|mut addresses| {
            let address =
                addresses.find(std::net::SocketAddr::is_ipv4).ok_or_else(|| io::Error::other("it has no IPv4 address"))?;
            TcpStream::connect_timeout(&address, limit.saturating_sub(start.elapsed()).max(PAUSE))
        });
        let reason = match attempt {
            Ok(mut stream) => match greet(&mut stream, greeting) {
                Ok(()) => return Ok(stream),
                Err(Unwelcome::Refused(reason)) => return Err(RendezvousError::Refused { rank, reason }),
                // Whoever listens there is not rank 0, or not any more.
                Err(Unwelcome::Io(error)) => error,
            },
            Err(error) => error,
        };
        if start.elapsed() >= limit {
            let what = format!("connecting to rank 0 at {host}:{port} for {:.1} s", start.elapsed().as_secs_f64());
            return Err(broken(rank, &what, &reason));
        }
        thread::sleep(PAUSE);
    }
}
