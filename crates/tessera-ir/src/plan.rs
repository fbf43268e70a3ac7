//! The plan of a function: which warps do what, and how what they load gets to them.
//!
//! ```text
//! plan @gemm {
//!   partition copy {warps=4, registers=40}
//!   partition compute {warps=8, registers=232}
//!   ring copy -> compute {by=tma, slots=4} [%a, %b]
//! }
//! ```
//!
//! A plan stands behind its function and names values of it. It is chosen by passes or written by hand, and carried out by one
//! pass (`pipelining`), which makes roles, rings, copies and barriers of it; what it does not name stays as the function has it.
//! A plan changes no result: what it asks for and cannot be done is refused.

use crate::attrs::RingProducer;
use crate::bug;
use crate::diag::Span;
use crate::func::Value;

/// How the work of one function is spread over warps and over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Who works. One partition is all warps, doing the same; of several, the first fills rings.
    pub partitions: Vec<Partition>,
    /// What is brought ahead of its use.
    pub rings: Vec<RingPlan>,
    /// Blocks that shall be resident on a multiprocessor at once, where the plan says so.
    pub resident: Option<u32>,
    /// So many blocks a multiprocessor are launched, and share the work of those that are asked for.
    pub persistent: Option<u32>,
    /// They share the rounds of the function's product, not only its tiles, where that saves more rounds than this.
    pub stream_k: Option<u32>,
    /// So many neighbours along x are a cluster, whose blocks bring what all of them load once, each a part of it for all.
    pub cluster: Option<u32>,
    /// So many blocks are a cluster that takes one of the function's blocks: each has a part of its product's rounds, and they add up their sums; or,
    /// without rings, of the columns of its row.
    pub split: Option<u32>,
    /// So many such clusters take each of the function's blocks, and add up their parts of the sums through the launch's memory.
    pub among: Option<u32>,
    /// Where it is written.
    pub span: Span,
}

impl Plan {
    /// A plan in which nobody works yet.
    pub fn new(span: Span) -> Plan {
        Plan {
            partitions: Vec::new(),
            rings: Vec::new(),
            resident: None,
            persistent: None,
            stream_k: None,
            cluster: None,
            split: None,
            among: None,
            span,
        }
    }
}

impl Plan {
    /// Who computes: of several partitions the last.
    pub fn computing(&self) -> &Partition {
        self.partitions.last().unwrap_or_else(|| bug!("a plan in which nobody works"))
    }

    /// The plan in one line, without what rings hold.
    pub fn summary(&self) -> String {
        let partition = |partition: &Partition| {
            let teams = partition.turns.map_or(String::new(), |teams| format!("{teams} x "));
            let registers = partition.registers.map_or(String::new(), |registers| format!(" of {registers} registers"));
            format!("{} {teams}{} warps{registers}", partition.name, partition.warps)
        };
        let mut parts: Vec<String> = self.partitions.iter().map(partition).collect();
        let slots: Vec<String> = self.rings.iter().map(|ring| ring.slots.to_string()).collect();
        parts.push(format!("slots {}", slots.join(" ")));
        let settings = [
            ("resident", self.resident),
            ("persistent", self.persistent),
            ("stream_k", self.stream_k),
            ("cluster", self.cluster),
            ("split", self.split),
            ("among", self.among),
        ];
        parts.extend(settings.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))));
        parts.join(", ")
    }
}

/// Warps with one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name in the plan.
    pub name: String,
    /// How many warps.
    pub warps: u32,
    /// Registers of each of their threads, where they are moved between partitions (`setmaxnreg`).
    pub registers: Option<u32>,
    /// So many teams of these warps take a block's tiles in turn: one stores while another one multiplies.
    pub turns: Option<u32>,
    /// Where it is written.
    pub span: Span,
}

impl Partition {
    /// Teams that do the same for different tiles.
    pub fn teams(&self) -> u32 {
        self.turns.unwrap_or(1)
    }

    /// Warps of all teams.
    pub fn all_warps(&self) -> u32 {
        self.warps.saturating_mul(self.teams())
    }
}

/// A ring of slots in shared memory: values that one partition puts there some rounds before another one uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// The partition that fills slots, by position.
    pub from: usize,
    /// The partition that uses them.
    pub to: usize,
    /// What brings the values.
    pub by: RingProducer,
    /// How many slots.
    pub slots: u32,
    /// What a slot holds. Each entry is one place in the program that fills a slot in each of its rounds; places have equal types.
    pub fills: Vec<Vec<Value>>,
    /// Where it is written.
    pub span: Span,
}
