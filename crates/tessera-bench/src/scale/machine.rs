//! A machine of nodes: links inside a node as they were fitted, and a network between nodes.
//!
//! Steps of NCCL's ring in a network overlap with each other, so that latency and bandwidth do not add up: the longer of the two is what a
//! ring takes. That is what the published times of 1,024 GPUs show: 19 ms at 1 and 2 GiB, then the time of the bytes.

use tessera_ir::bug;

use super::algorithm::Algorithm;
use super::fit::fit;
use super::points::{MEASURED, Measured, points_of};
use crate::collectives::Collective;

/// A link with an algorithm on it: `base + steps * step + bytes / rate` microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Microseconds before the first step.
    pub base: f64,
    /// Microseconds of a step.
    pub step: f64,
    /// Bytes in a microsecond.
    pub rate: f64,
    /// The largest relative error of a point that it was fitted to.
    pub worst: f64,
}

impl Link {
    /// Fitted to the points of an algorithm. Where they tell no time of a step (all have as many steps, or what they tell is less than
    /// nothing), a step takes what `step` says.
    fn fitted(points: &[Measured], algorithm: Algorithm, step: f64) -> Option<Link> {
        let own = points_of(points, algorithm);
        let free = fit(&own).and_then(|fit| Some((fit.base, fit.step?, fit.rate)));
        let (base, step, rate) = match free.filter(|(base, step, _)| *base >= 0.0 && *step >= 0.0) {
            Some(free) => free,
            None => {
                let rest: Vec<_> = own.iter().map(|&(steps, bytes, us)| (0.0, bytes, us - steps * step)).collect();
                fit(&rest).map(|fit| (fit.base, step, fit.rate))?
            }
        };
        let mut link = Link { base, step, rate, worst: 0.0 };
        link.worst = own.iter().map(|&(steps, bytes, us)| (link.time((steps, bytes)) / us - 1.0).abs()).fold(0.0, f64::max);
        Some(link)
    }

    fn time(&self, (steps, bytes): (f64, f64)) -> f64 {
        self.base + steps * self.step + bytes / self.rate
    }
}

/// The network between nodes, with the constants by which NCCL 2.30 chooses (`src/graph/tuning.cc`): microseconds, bytes in a microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// What a node sends at most, all its cards together.
    pub node_rate: f64,
    /// A step of a ring between nodes: low latency, else.
    pub ring_step: [f64; 2],
    /// A step of a tree between nodes, and of a ring with one rank a node: low latency, else.
    pub tree_step: [f64; 2],
    /// What one more message costs its sender.
    pub message: f64,
    /// Bus bandwidth of the low-latency protocol between nodes.
    pub ll_rate: f64,
}

/// The share of a card's rated bandwidth that NCCL's maintainers call its peak: 46 to 48 of 50 GB/s, 24 of 25.
const CARD_SHARE: f64 = 0.94;
/// Before the first step: ring and tree, low latency and else.
const RING_BASE: [f64; 2] = [6.6, 8.4];
const TREE_BASE: [f64; 2] = [6.8, 8.4];
/// Steps over NVLink: ring (low latency, 128-byte lines, whole buffers), tree (low latency, whole buffers).
const NVLINK_RING: [f64; 3] = [0.6, 1.9, 3.4];
const NVLINK_TREE: [f64; 2] = [0.6, 4.0];
/// A large all-reduce over a ring between nodes takes longer for its steps.
const PLATEAU: f64 = 1.9;
/// Trees reach this share of a link.
const TREE_SHARE: f64 = 0.92;
/// The parallel aggregated trees of gathers with one rank a node: share of a link, microseconds of a rank.
const PAT: (f64, f64) = (0.75, 2.8);
/// NCCL's low-latency protocol is measured up to 256 KiB, and the next at 1 MiB.
const LL_BYTES: u64 = 512 << 10;
/// Pieces that are tried.
const PIECES: [usize; 6] = [1, 2, 4, 8, 16, 32];

impl Network {
    /// Cards with so many GB/s together in each node.
    pub fn rated(gigabytes: f64) -> Network {
        Network {
            node_rate: gigabytes * 1e3 * CARD_SHARE,
            ring_step: [2.7, 14.0],
            tree_step: [5.0, 14.0],
            message: 1.0,
            ll_rate: 19e3,
        }
    }
}

/// Nodes of GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// GPUs of a node.
    pub gpus: usize,
    /// One-shot kernels inside a node: PyTorch's were measured, and ours are taken to be as fast.
    pub one_shot: Link,
    /// Two-shot kernels inside a node, likewise.
    pub two_shot: Link,
    /// NCCL's ring inside a node, low latency.
    pub ring_ll: Link,
    /// NCCL's ring inside a node.
    pub ring: Link,
    /// Between nodes.
    pub network: Network,
}

impl Machine {
    /// Nodes of 8 H200 with a 400 Gbit/s card each, fitted to [`MEASURED`].
    pub fn hopper() -> Machine {
        Machine::fitted(MEASURED, 8, 400.0).expect("the points in the table are enough")
    }

    /// Nodes of GPUs whose links are fitted to these points, and whose cards send so many GB/s together. `None` where the points do not
    /// tell the four links.
    pub fn fitted(points: &[Measured], gpus: usize, gigabytes: f64) -> Option<Machine> {
        Some(Machine {
            gpus,
            one_shot: Link::fitted(points, Algorithm::OneShot, 0.0)?,
            two_shot: Link::fitted(points, Algorithm::TwoShot, 0.0)?,
            ring_ll: Link::fitted(points, Algorithm::RingLl, NVLINK_RING[0])?,
            ring: Link::fitted(points, Algorithm::Ring, NVLINK_RING[1])?,
            network: Network::rated(gigabytes),
        })
    }

    /// Microseconds of an algorithm, or `None` where it does not do that collective among so many ranks.
    pub fn time(&self, algorithm: Algorithm, collective: Collective, ranks: usize, bytes: u64) -> Option<f64> {
        if ranks <= 1 {
            return Some(0.0);
        }
        if ranks <= self.gpus {
            return self.inside(algorithm, collective, ranks, bytes as f64);
        }
        if !ranks.is_multiple_of(self.gpus) {
            return None;
        }
        let nodes = ranks / self.gpus;
        match algorithm {
            Algorithm::OneShot | Algorithm::TwoShot => None,
            Algorithm::Direct if collective == Collective::SendRecv => Some(self.hop(bytes as f64)),
            Algorithm::Direct => (collective == Collective::AllToAll).then(|| self.scattered(ranks, bytes as f64)),
            Algorithm::RingLl | Algorithm::Ring => {
                let is_of_all = !matches!(collective, Collective::AllToAll | Collective::SendRecv);
                is_of_all.then(|| self.flat_ring(algorithm, collective, nodes, bytes as f64))
            }
            Algorithm::TreeLl | Algorithm::Tree => {
                (collective == Collective::AllReduce).then(|| self.tree(algorithm, self.gpus, nodes, bytes as f64))
            }
            Algorithm::Hierarchical { pieces } => {
                (collective != Collective::SendRecv).then(|| self.hierarchical(collective, nodes, bytes as f64, pieces))
            }
        }
    }

    /// The algorithm that takes least, and its microseconds.
    pub fn best(&self, collective: Collective, ranks: usize, bytes: u64) -> (Algorithm, f64) {
        let flat = [
            Algorithm::OneShot,
            Algorithm::TwoShot,
            Algorithm::Direct,
            Algorithm::RingLl,
            Algorithm::Ring,
            Algorithm::TreeLl,
            Algorithm::Tree,
        ];
        let pieces = PIECES.map(|pieces| Algorithm::Hierarchical { pieces });
        let timed = flat.into_iter().chain(pieces).filter_map(|own| Some((own, self.time(own, collective, ranks, bytes)?)));
        self.least(timed, collective, ranks)
    }

    /// The same among NCCL's own algorithms.
    pub fn best_of_nccl(&self, collective: Collective, ranks: usize, bytes: u64) -> (Algorithm, f64) {
        let own = match collective {
            Collective::AllToAll | Collective::SendRecv => vec![Algorithm::Direct],
            _ => vec![Algorithm::RingLl, Algorithm::Ring, Algorithm::TreeLl, Algorithm::Tree],
        };
        let timed = own.into_iter().filter_map(|own| Some((own, self.time(own, collective, ranks, bytes)?)));
        self.least(timed, collective, ranks)
    }

    /// The one that takes least. Ring and direct exchanges are done among the ranks of a node or of whole nodes.
    fn least(&self, timed: impl Iterator<Item = (Algorithm, f64)>, collective: Collective, ranks: usize) -> (Algorithm, f64) {
        timed
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or_else(|| bug!("no algorithm does {collective} among {ranks} ranks of nodes of {}", self.gpus))
    }

    fn inside(&self, algorithm: Algorithm, collective: Collective, ranks: usize, bytes: f64) -> Option<f64> {
        let moves = algorithm.moves(collective, ranks, bytes as u64);
        let is_of_all = !matches!(collective, Collective::AllToAll | Collective::SendRecv);
        match algorithm {
            Algorithm::OneShot if collective == Collective::AllReduce => Some(self.one_shot.time(moves)),
            Algorithm::TwoShot if collective == Collective::AllReduce => Some(self.two_shot.time(moves)),
            // One phase of the two-shot kernels: one barrier, as the one-shot kernels have.
            Algorithm::Direct if collective != Collective::AllReduce => {
                Some(moves.0 * self.one_shot.base + moves.1 / self.two_shot.rate)
            }
            Algorithm::RingLl if is_of_all && bytes <= LL_BYTES as f64 => Some(self.ring_ll.time(moves)),
            Algorithm::Ring if is_of_all => Some(self.ring.time(moves)),
            _ => None,
        }
    }

    fn inside_best(&self, collective: Collective, bytes: f64) -> f64 {
        let all = [Algorithm::Direct, Algorithm::RingLl, Algorithm::Ring];
        all.into_iter().filter_map(|own| self.inside(own, collective, self.gpus, bytes)).fold(f64::INFINITY, f64::min)
    }

    fn flat_ring(&self, algorithm: Algorithm, collective: Collective, nodes: usize, bytes: f64) -> f64 {
        let (steps, moved) = algorithm.moves(collective, nodes * self.gpus, bytes as u64);
        let rounds = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
        let between = rounds * (nodes as f64 - 1.0);
        if algorithm == Algorithm::RingLl {
            let own = NVLINK_RING[0].max(self.network.message);
            return RING_BASE[0] + (steps - between) * own + between * self.network.ring_step[0] + moved / self.network.ll_rate;
        }
        let latency = (steps - between) * NVLINK_RING[2] + between * self.network.ring_step[1];
        let latency = if collective == Collective::AllReduce { PLATEAU * latency } else { latency };
        RING_BASE[1] + latency.max(moved / self.ring.rate.min(self.network.node_rate))
    }

    /// A double binary tree over nodes, with chains of `gpus` inside. Between two nodes each byte crosses the network once.
    fn tree(&self, algorithm: Algorithm, gpus: usize, nodes: usize, bytes: f64) -> f64 {
        let (at, share) = if algorithm == Algorithm::TreeLl { (0, 1.0) } else { (1, TREE_SHARE) };
        let levels = (nodes as f64).log2().ceil();
        let latency = 2.0 * ((gpus as f64 - 1.0) * NVLINK_TREE[at] + levels * self.network.tree_step[at]);
        let crossings = if nodes == 2 { 1.0 } else { 2.0 };
        let network = self.network.node_rate * gpus as f64 / self.gpus as f64;
        let rate = if algorithm == Algorithm::TreeLl { self.network.ll_rate.min(network) } else { network };
        let inside = if gpus > 1 { 2.0 * bytes / self.ring.rate } else { 0.0 };
        TREE_BASE[at] + latency + (crossings * bytes / (share * rate)).max(inside)
    }

    /// Every rank sends to every other.
    fn scattered(&self, ranks: usize, bytes: f64) -> f64 {
        let share = (ranks - self.gpus) as f64 / ranks as f64;
        let card = self.network.node_rate / self.gpus as f64;
        RING_BASE[1] + self.network.tree_step[1] + (ranks - 1) as f64 * self.network.message + share * bytes / card
    }

    /// One rank sends to the next, the last of a node over its card.
    fn hop(&self, bytes: f64) -> f64 {
        RING_BASE[1] + self.network.tree_step[1] + bytes * self.gpus as f64 / self.network.node_rate
    }

    /// A collective among one GPU of each node, over that GPU's card.
    fn rail(&self, collective: Collective, nodes: usize, bytes: f64) -> f64 {
        let (steps, moved) = Algorithm::Ring.moves(collective, nodes, bytes as u64);
        let card = self.network.node_rate / self.gpus as f64;
        let [ll, whole] = self.network.tree_step;
        let plateau = if collective == Collective::AllReduce { PLATEAU } else { 1.0 };
        let low = RING_BASE[0] + steps * ll + moved / self.network.ll_rate.min(card);
        let ring = RING_BASE[1] + (plateau * steps * whole).max(moved / card);
        match collective {
            Collective::AllReduce => {
                let trees = [Algorithm::TreeLl, Algorithm::Tree].map(|tree| self.tree(tree, 1, nodes, bytes));
                trees.into_iter().chain([low, ring]).fold(f64::INFINITY, f64::min)
            }
            Collective::ReduceScatter | Collective::AllGather => {
                let levels = (nodes as f64).log2().ceil();
                let pat = RING_BASE[1] + levels * whole / 3.5 + nodes as f64 * PAT.1 + moved / (PAT.0 * card);
                low.min(ring).min(pat)
            }
            Collective::AllToAll => RING_BASE[1] + whole + (nodes as f64 - 1.0) * self.network.message + moved / card,
            Collective::Broadcast => low.min(RING_BASE[1] + steps * whole + moved / card),
            Collective::SendRecv => self.hop(bytes),
        }
    }

    /// Stages inside and between nodes, whose pieces follow each other as on a belt: all stages of one piece, then the slowest for each other.
    fn hierarchical(&self, collective: Collective, nodes: usize, bytes: f64, pieces: usize) -> f64 {
        let piece = bytes / pieces as f64;
        let rail = |collective, bytes| self.rail(collective, nodes, bytes);
        let own = piece / self.gpus as f64;
        let stages = match collective {
            Collective::AllReduce => vec![
                self.inside_best(Collective::ReduceScatter, piece),
                rail(Collective::AllReduce, own),
                self.inside_best(Collective::AllGather, piece),
            ],
            Collective::ReduceScatter => {
                vec![self.inside_best(Collective::ReduceScatter, piece), rail(Collective::ReduceScatter, own)]
            }
            Collective::AllGather => vec![rail(Collective::AllGather, own), self.inside_best(Collective::AllGather, piece)],
            Collective::AllToAll => vec![self.inside_best(Collective::AllToAll, piece), rail(Collective::AllToAll, piece)],
            Collective::SendRecv => vec![rail(Collective::SendRecv, piece)],
            // A scatter moves what a gather does.
            Collective::Broadcast => vec![
                self.inside_best(Collective::AllGather, piece),
                rail(Collective::Broadcast, own),
                self.inside_best(Collective::AllGather, piece),
            ],
        };
        let slowest = stages.iter().copied().fold(0.0, f64::max);
        stages.iter().sum::<f64>() + (pieces as f64 - 1.0) * slowest
    }

    /// The first size at which NCCL takes less than our kernels inside a node, among powers of two from 4 KiB to 1 GiB.
    pub fn stops(&self, ranks: usize) -> Option<u64> {
        let sizes = (12..=30).map(|power| 1u64 << power);
        let own = |bytes| self.one_shot_or_two_shot(ranks, bytes).1;
        sizes.into_iter().find(|&bytes| self.best_of_nccl(Collective::AllReduce, ranks, bytes).1 < own(bytes))
    }

    /// The better of our all-reduce kernels.
    pub fn one_shot_or_two_shot(&self, ranks: usize, bytes: u64) -> (Algorithm, f64) {
        let both = [Algorithm::OneShot, Algorithm::TwoShot];
        let timed = both.into_iter().filter_map(|own| Some((own, self.inside(own, Collective::AllReduce, ranks, bytes as f64)?)));
        self.least(timed, Collective::AllReduce, ranks)
    }
}
