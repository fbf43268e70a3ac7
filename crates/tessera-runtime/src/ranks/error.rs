//! Why ranks could not exchange. Every error of a call that had begun names the rank, the call and who is to blame.

use std::time::Duration;

use crate::error::TensorError;
use crate::ranks::call::CallName;

/// Why an exchange did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Another rank stopped before it took part.
    #[error("{call}: rank {rank} stopped, and this rank waits for it{}", because(reason))]
    Left {
        /// The rank that stopped.
        rank: usize,
        /// What it said; empty where its program just ended.
        reason: String,
        /// The call that waits.
        call: CallName,
    },
    /// Another rank is gone: its process died, hangs, or cannot be reached.
    #[error("{call}: rank {rank} is lost: {reason}")]
    Lost {
        /// The rank that is lost.
        rank: usize,
        /// How that was seen.
        reason: String,
        /// The call that was under way, or came next.
        call: CallName,
    },
    /// Other ranks live, and did not take part in time.
    #[error("{call}: {} did not take part within {:.1} s{detail}", ranks_text(ranks), waited.as_secs_f64())]
    Late {
        /// Who is missing.
        ranks: Vec<usize>,
        /// How long was waited.
        waited: Duration,
        /// What they were last seen doing, after a semicolon; may be empty.
        detail: String,
        /// The call that waited.
        call: CallName,
    },
    /// Two ranks call different things.
    #[error(
        "{call}: rank {rank} calls {theirs} instead\nhelp: all ranks of a group make the same calls in the same order, with the same sizes, types, reduction and root"
    )]
    Differ {
        /// The other rank.
        rank: usize,
        /// What it calls.
        theirs: String,
        /// What this rank calls.
        call: CallName,
    },
    /// The arguments of a call do not fit each other.
    #[error("`{call}`: {reason}")]
    Refused {
        /// The operation.
        call: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// Tensors of the ranks do not fit each other or the operation.
    #[error("the ranks' tensors do not fit: {reason}")]
    Mismatch {
        /// In what.
        reason: String,
    },
    /// A tensor's memory cannot be used.
    #[error(transparent)]
    Memory(#[from] TensorError),
    /// The library between the ranks' devices, or the network, reported an error.
    #[error("{call}: the exchange failed: {reason}")]
    Transport {
        /// What it says.
        reason: String,
        /// The call.
        call: CallName,
    },
    /// An earlier call failed, and the communicator can do nothing any more.
    #[error("{call}: the communicator was aborted after: {reason}\nhelp: make a new communicator")]
    Aborted {
        /// The earlier failure.
        reason: String,
        /// The call that came after it.
        call: CallName,
    },
    /// No communicator could be made.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
}

impl ExchangeError {
    /// Whether it says that another rank failed, which is to be asked why.
    pub fn is_of_another(&self) -> bool {
        match self {
            ExchangeError::Left { .. }
            | ExchangeError::Lost { .. }
            | ExchangeError::Late { .. }
            | ExchangeError::Aborted { .. } => true,
            ExchangeError::Differ { .. }
            | ExchangeError::Refused { .. }
            | ExchangeError::Mismatch { .. }
            | ExchangeError::Memory(_)
            | ExchangeError::Transport { .. }
            | ExchangeError::Rendezvous(_) => false,
        }
    }
}

/// Why the ranks did not find each other.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// The environment names no ranks, or contradicts itself.
    #[error("{reason}")]
    Environment {
        /// What is wrong, and what to set.
        reason: String,
    },
    /// A connection could not be made or broke.
    #[error("rank {rank}: {what}: {reason}")]
    Connection {
        /// The rank that says so.
        rank: usize,
        /// What it tried.
        what: String,
        /// The system's message.
        reason: String,
    },
    /// The ranks did not all come.
    #[error("rank {rank}: after {:.1} s {} not there", waited.as_secs_f64(), match missing.as_slice() { [_] => format!("{} is", ranks_text(missing)), _ => format!("{} are", ranks_text(missing)) })]
    Missing {
        /// The rank that waited.
        rank: usize,
        /// Who is missing.
        missing: Vec<usize>,
        /// How long was waited.
        waited: Duration,
    },
    /// Ranks that do not belong together.
    #[error("rank {rank} cannot join: {reason}")]
    Refused {
        /// The rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The library for the ranks' devices cannot be used.
    #[error("rank {rank}: {reason}")]
    Library {
        /// The rank that says so.
        rank: usize,
        /// Why.
        reason: String,
    },
}

/// "rank 3", "ranks 1, 2 and 5".
pub(super) fn ranks_text(ranks: &[usize]) -> String {
    match ranks {
        [] => "some rank".to_string(),
        [one] => format!("rank {one}"),
        [first @ .., last] => {
            format!("ranks {} and {last}", first.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The reason of another rank, told after a statement.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" (it says: {reason})") }
}
