//! Measured points, and published figures of larger machines.

use super::algorithm::Algorithm;
use crate::collectives::Collective;
use crate::store::Results;

/// One measured time on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What was done.
    pub collective: Collective,
    /// By which algorithm.
    pub algorithm: Algorithm,
    /// Ranks.
    pub ranks: usize,
    /// The message, as NCCL's tests count it: what all ranks together give or get.
    pub bytes: u64,
    /// Microseconds.
    pub us: f64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// All-reduce by an algorithm on four H200.
const fn x4(algorithm: Algorithm, bytes: u64, us: f64) -> Measured {
    Measured { collective: Collective::AllReduce, algorithm, ranks: 4, bytes, us }
}

/// Time of a bus bandwidth in GB/s on four H200; `factor` is that of the collective.
const fn bus(collective: Collective, algorithm: Algorithm, bytes: u64, rate: f64, factor: f64) -> Measured {
    Measured { collective, algorithm, ranks: 4, bytes, us: bytes as f64 * factor / (rate * 1e3) }
}

/// 4 x H200 over NVLink without multicast, bf16: NCCL in a graph, and the one-shot and two-shot kernels of PyTorch's symmetric memory.
/// None is of our own kernels, which write to their peers' memory where PyTorch's one-shot kernel reads it; as many bytes cross the links.
pub const MEASURED: &[Measured] = &[
    x4(Algorithm::OneShot, 4 * KIB, 7.5),
    x4(Algorithm::OneShot, 64 * KIB, 8.7),
    x4(Algorithm::OneShot, 256 * KIB, 11.3),
    x4(Algorithm::OneShot, MIB, 19.1),
    x4(Algorithm::OneShot, 4 * MIB, 48.6),
    x4(Algorithm::OneShot, 16 * MIB, 167.0),
    x4(Algorithm::TwoShot, 4 * KIB, 7.3),
    x4(Algorithm::TwoShot, 64 * KIB, 9.5),
    x4(Algorithm::TwoShot, 256 * KIB, 9.5),
    x4(Algorithm::TwoShot, MIB, 13.4),
    x4(Algorithm::TwoShot, 4 * MIB, 28.7),
    x4(Algorithm::TwoShot, 16 * MIB, 90.7),
    bus(Collective::AllReduce, Algorithm::TwoShot, 64 * MIB, 300.0, 1.5),
    x4(Algorithm::RingLl, 4 * KIB, 14.9),
    x4(Algorithm::RingLl, 64 * KIB, 16.4),
    x4(Algorithm::RingLl, 256 * KIB, 17.0),
    x4(Algorithm::Ring, MIB, 31.8),
    x4(Algorithm::Ring, 4 * MIB, 44.2),
    x4(Algorithm::Ring, 16 * MIB, 99.0),
    bus(Collective::AllReduce, Algorithm::Ring, 64 * MIB, 308.0, 1.5),
    bus(Collective::AllReduce, Algorithm::Ring, 256 * MIB, 300.0, 1.5),
    bus(Collective::AllReduce, Algorithm::Ring, GIB, 353.0, 1.5),
    bus(Collective::ReduceScatter, Algorithm::Ring, GIB, 319.0, 0.75),
    bus(Collective::AllGather, Algorithm::Ring, GIB, 324.0, 0.75),
    bus(Collective::AllToAll, Algorithm::Direct, GIB, 334.0, 0.75),
];

/// The points that a results file of `tessera bench all_reduce` tells: rows of NCCL, and of PyTorch's one-shot and two-shot kernels
/// (`baselines/collectives.py`). Rows of our own kernels do not say which of them ran, and tell none.
pub fn recorded(results: &Results) -> Vec<Measured> {
    let point = |row: &crate::store::Row| {
        let key = &row.case.key;
        let (ranks, bytes) = (key.size.get("ranks")? as usize, key.size.get("bytes")?);
        let us = row.summary.as_ref()?.times.as_ref()?.median_ns / 1e3;
        let algorithm = match row.case.implementation.rsplit(' ').next()? {
            "one-shot" => Algorithm::OneShot,
            "two-shot" => Algorithm::TwoShot,
            // Which protocol NCCL takes between these sizes, its times do not tell.
            "nccl" if bytes <= 256 * KIB => Algorithm::RingLl,
            "nccl" if bytes >= MIB => Algorithm::Ring,
            _ => return None,
        };
        (key.operator == Collective::AllReduce.name()).then_some(Measured {
            collective: Collective::AllReduce,
            algorithm,
            ranks,
            bytes,
            us,
        })
    };
    results.rows.iter().filter_map(point).collect()
}

/// The all-reduce points of an algorithm, as [`super::fit()`] takes them.
pub fn points_of(points: &[Measured], algorithm: Algorithm) -> Vec<(f64, f64, f64)> {
    let own = points.iter().filter(|point| point.algorithm == algorithm && point.collective == Collective::AllReduce);
    own.map(|point| {
        let (steps, moved) = algorithm.moves(point.collective, point.ranks, point.bytes);
        (steps, moved, point.us)
    })
    .collect()
}

/// A figure that somebody published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Where.
    pub source: &'static str,
    /// The machine.
    pub machine: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// GPUs of a node that took part.
    pub gpus: usize,
    /// GB/s of a node's network in one direction, as its cards are rated; 0 for one node.
    pub network: f64,
    /// By which algorithm; `None` where NCCL chose.
    pub algorithm: Option<Algorithm>,
    /// Bytes of the all-reduce.
    pub bytes: u64,
    /// Microseconds.
    pub us: f64,
}

const fn h20(bytes: u64, us: f64) -> Published {
    let source = "kvcache-ai/Mooncake, pull request 3484 (NCCL's table)";
    Published { source, machine: "8 x H20", nodes: 1, gpus: 8, network: 0.0, algorithm: None, bytes, us }
}

const fn h100_1024(bytes: u64, us: f64) -> Published {
    let source = "NVIDIA/nccl-tests, issue 322";
    let algorithm = Some(Algorithm::Ring);
    Published { source, machine: "128 x 8 H100, 8 x NDR 400", nodes: 128, gpus: 8, network: 400.0, algorithm, bytes, us }
}

/// Published all-reduce times of NCCL.
pub const PUBLISHED: &[Published] = &[
    h20(32 * KIB, 18.66),
    h20(256 * KIB, 19.54),
    h20(4 * MIB, 53.24),
    h20(16 * MIB, 121.33),
    h20(128 * MIB, 700.25),
    h20(GIB, 5252.64),
    Published {
        source: "NVIDIA/nccl-tests, issue 252",
        machine: "2 x 4 A100, 4 x HDR 200",
        nodes: 2,
        gpus: 4,
        network: 100.0,
        algorithm: Some(Algorithm::Ring),
        bytes: GIB,
        us: 19265.0,
    },
    Published {
        source: "NVIDIA/nccl-tests, issue 119",
        machine: "3 x 8 A100, 4 x HDR 200",
        nodes: 3,
        gpus: 8,
        network: 100.0,
        algorithm: None,
        bytes: 133_169_160,
        us: 2675.0,
    },
    Published {
        source: "lessizzmore/create-a3mega-ztan-fork, ztan-NCCL-test-result",
        machine: "2 x 8 H100, 8 x 200 Ethernet",
        nodes: 2,
        gpus: 8,
        network: 200.0,
        algorithm: Some(Algorithm::Tree),
        bytes: 8 * GIB,
        us: 47535.0,
    },
    Published {
        source: "NVIDIA/nccl, issue 1469",
        machine: "16 x 8 H100, 8 x 400",
        nodes: 16,
        gpus: 8,
        network: 400.0,
        algorithm: None,
        bytes: 64,
        us: 62.0,
    },
    Published {
        source: "NVIDIA/nccl, issue 1469",
        machine: "16 x 8 H100, 8 x 400",
        nodes: 16,
        gpus: 8,
        network: 400.0,
        algorithm: None,
        bytes: 4 * KIB,
        us: 76.6,
    },
    h100_1024(GIB, 19355.0),
    h100_1024(2 * GIB, 20218.0),
    h100_1024(4 * GIB, 25377.0),
    h100_1024(8 * GIB, 47078.0),
    h100_1024(16 * GIB, 93457.0),
];
