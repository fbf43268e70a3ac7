//! What a multiprocessor's parts take: clocks until a result is there, and how much goes through a clock.
//!
//! Only figures with a source are here, beside it; where an architecture has no row, nobody has measured it. Tensor cores are among the
//! products' peaks ([`Device::peak`](crate::Device::peak)), from which [`MatrixInstruction::clocks`](crate::MatrixInstruction::clocks) follows.
//!
//! ```
//! use tessera_types::{Arch, Part};
//! let special = Arch::Sm90a.cost(Part::Special).unwrap();
//! assert_eq!((special.per_clock, special.latency), (Some(16), None));
//! assert!(Arch::Sm75.cost(Part::Special).is_none());
//! ```

use crate::arch::Arch;

/// A part of a multiprocessor, or what it reaches memory through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Multiply-adds of `f32`: operations a clock.
    MultiplyAdd,
    /// Exponentials, reciprocals and roots: operations a clock.
    Special,
    /// A warp's 16 x 8 x 16 product of 16-bit floats: multiply-adds a clock, for narrower types too.
    WarpProduct,
    /// A warpgroup's 64 x 256 x 16 product of 16-bit floats.
    WarpgroupProduct,
    /// Shared memory: bytes a clock.
    SharedMemory,
    /// The first-level cache: bytes a clock.
    FirstCache,
    /// The second-level cache: bytes a clock and multiprocessor.
    SecondCache,
    /// The same where all multiprocessors ask for as much as they get.
    SharedSecondCache,
    /// Results on their way to memory from all multiprocessors: bytes a clock and multiprocessor.
    Results,
    /// The start of a block, until its first tiles are there.
    BlockStart,
    /// What the start of a cluster takes longer.
    ClusterStart,
    /// What a slot takes beside its copy, from where it is free until its product starts.
    SlotTurn,
    /// Words that threads spill and load again: words a clock of a block.
    Spills,
    /// The memory of the device.
    DeviceMemory,
    /// Shared memory of another block of the cluster.
    ClusterMemory,
    /// What a load by the copy engine takes longer than one by threads.
    CopyEngine,
    /// One way from threads that arrive at an `mbarrier` to threads that wait there.
    SlotBarrier,
    /// One way through a named barrier of 256 threads.
    NamedBarrier,
}

/// What one part takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The part.
    pub part: Part,
    /// Clocks from the start to where a result can be used.
    pub latency: Option<u32>,
    /// How much goes through a clock, in what the part counts.
    pub per_clock: Option<u32>,
    /// Who says so.
    pub source: &'static str,
}

impl Arch {
    /// What a part takes, where that is known.
    pub fn cost(self, part: Part) -> Option<&'static Cost> {
        self.costs().iter().find(|cost| cost.part == part)
    }
}

const fn latency(part: Part, clocks: u32, source: &'static str) -> Cost {
    Cost { part, latency: Some(clocks), per_clock: None, source }
}

const fn rate(part: Part, per_clock: u32, source: &'static str) -> Cost {
    Cost { part, latency: None, per_clock: Some(per_clock), source }
}

/// Luo and others, measured on an H800 and an A100.
const LUO: &str = "arXiv 2402.13499";
/// The same authors' longer paper.
const LUO_LONG: &str = "arXiv 2501.12084";

/// Products of this project, timed on an H100 and an H200.
const OURS: &str = "results/products-in-flight-h100.txt, results/clusters-h200.txt";

/// Plans of seven kernels, timed on an H100.
const PLANS: &str = "results/plans";

/// Nothing measured.
pub(crate) const UNKNOWN: &[Cost] = &[];

/// Ampere, data centre.
pub(crate) const AMPERE: &[Cost] = &[latency(Part::WarpProduct, 25, LUO)];

/// Hopper.
pub(crate) const HOPPER: &[Cost] = &[
    rate(Part::MultiplyAdd, 128, "H100 data sheet: 67 Tflop/s of fp32 at the highest clock"),
    rate(Part::Special, 16, "FlashAttention-3, arXiv 2407.08608: 3.9 Tflop/s of special functions on an H100"),
    Cost { part: Part::WarpProduct, latency: Some(24), per_clock: Some(850), source: PLANS },
    latency(Part::WarpgroupProduct, 128, LUO),
    Cost { part: Part::SharedMemory, latency: Some(29), per_clock: Some(128), source: LUO },
    Cost { part: Part::FirstCache, latency: Some(41), per_clock: Some(124), source: LUO },
    Cost {
        part: Part::SecondCache,
        latency: Some(263),
        per_clock: Some(64),
        source: "arXiv 2402.13499; DeepGEMM's model of its rate",
    },
    rate(Part::SharedSecondCache, 50, PLANS),
    rate(Part::Results, 16, OURS),
    latency(Part::BlockStart, 2500, OURS),
    latency(Part::ClusterStart, 3000, PLANS),
    latency(Part::SlotTurn, 500, PLANS),
    latency(Part::NamedBarrier, 40, PLANS),
    rate(Part::Spills, 2, PLANS),
    latency(Part::DeviceMemory, 479, LUO),
    latency(Part::ClusterMemory, 180, LUO),
    latency(Part::CopyEngine, 170, LUO_LONG),
];

/// Blackwell, data centre.
pub(crate) const BLACKWELL: &[Cost] = &[
    latency(Part::SlotBarrier, 92, "facebookexperimental/triton, pull request 1913, on a B200"),
    latency(Part::NamedBarrier, 30, "facebookexperimental/triton, pull request 1913, on a B200"),
];
