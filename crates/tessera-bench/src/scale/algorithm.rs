//! What a collective does: how many steps, and how many bytes a rank sends.
//!
//! A message of `S` bytes is what NCCL's tests call one: each rank's buffer in an all-reduce and a broadcast, all parts together in the
//! others. With `p` ranks:
//!
//! | algorithm | collective | steps | bytes of a rank |
//! |---|---|---|---|
//! | one-shot | all-reduce | 1 | (p - 1) S |
//! | two-shot | all-reduce | 2 | 2 (p - 1) / p S |
//! | ring | all-reduce | 2 (p - 1) | 2 (p - 1) / p S |
//! | ring | reduce-scatter, all-gather | p - 1 | (p - 1) / p S |
//! | direct | reduce-scatter, all-gather, all-to-all | 1 | (p - 1) / p S |
//! | tree | all-reduce | 2 log2 p | 2 S |

use crate::collectives::Collective;

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Every rank gets what all others have, and combines it for itself. Our kernels write it to their peers, PyTorch's read it there.
    OneShot,
    /// Every rank combines a part and gets the others'. Our kernels write parts and results to their peers.
    TwoShot,
    /// Every rank exchanges with every other at once: our kernels, or NCCL's sends and receives.
    Direct,
    /// NCCL's ring with its low-latency protocol.
    RingLl,
    /// NCCL's ring.
    Ring,
    /// NCCL's double binary tree with its low-latency protocol.
    TreeLl,
    /// NCCL's double binary tree.
    Tree,
    /// Inside each node, then between nodes over as many rails as a node has GPUs, then inside again, in so many pieces that overlap.
    Hierarchical {
        /// The pieces.
        pieces: usize,
    },
}

impl Algorithm {
    /// A name for tables.
    pub fn name(self) -> String {
        match self {
            Algorithm::OneShot => "one-shot".into(),
            Algorithm::TwoShot => "two-shot".into(),
            Algorithm::Direct => "direct".into(),
            Algorithm::RingLl => "NCCL ring, LL".into(),
            Algorithm::Ring => "NCCL ring".into(),
            Algorithm::TreeLl => "NCCL tree, LL".into(),
            Algorithm::Tree => "NCCL tree".into(),
            Algorithm::Hierarchical { pieces: 1 } => "hierarchical".into(),
            Algorithm::Hierarchical { pieces } => format!("hierarchical in {pieces}"),
        }
    }

    /// Steps one after another and bytes that a rank sends, among ranks that are all alike.
    pub fn moves(self, collective: Collective, ranks: usize, bytes: u64) -> (f64, f64) {
        let (p, s) = (ranks as f64, bytes as f64);
        let share = (p - 1.0) / p;
        match (self, collective) {
            (Algorithm::OneShot, _) => (1.0, (p - 1.0) * s),
            (Algorithm::TwoShot, _) => (2.0, 2.0 * share * s),
            (_, Collective::SendRecv) => (1.0, s),
            (Algorithm::Direct, Collective::Broadcast) => (2.0, 2.0 * share * s),
            (Algorithm::Direct, _) => (1.0, share * s),
            (Algorithm::RingLl | Algorithm::Ring, Collective::AllReduce) => (2.0 * (p - 1.0), 2.0 * share * s),
            (Algorithm::RingLl | Algorithm::Ring, Collective::Broadcast) => (p - 1.0, s),
            (Algorithm::RingLl | Algorithm::Ring, _) => (p - 1.0, share * s),
            (Algorithm::TreeLl | Algorithm::Tree | Algorithm::Hierarchical { .. }, _) => (2.0 * p.log2().ceil(), 2.0 * s),
        }
    }
}
