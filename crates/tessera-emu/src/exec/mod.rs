//! A cluster of blocks while it runs: warps, their registers, shared memory, barriers, and the copies under way.
//!
//! One host thread runs a cluster; clusters run in parallel. A warp is a set of **fragments**, each a program counter with the
//! lanes that share it. A branch on which lanes disagree makes two fragments that wait for each other where the paths meet
//! (a [`Join`]); meanwhile each of them runs on its own, so lanes that wait for other lanes of their warp make progress.
//! A fragment that waits for a barrier says for which one; the scheduler looks whether it may go on.

mod access;
mod asynchronous;
mod atomic;
mod barrier;
mod call;
mod collective;
mod diverge;
mod lanewise;
pub(crate) mod matrix;
mod print;
mod quad_pairs;
mod run;
mod schedule;
pub(crate) mod sparse;
mod step;
pub(crate) mod tensor;
mod texture;
pub(crate) mod undefined;
pub(crate) mod wgmma;
mod wmma;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tessera_driver::Dim3;
use tessera_ptx::Special;

use crate::advice::Counts;
use crate::finding::FindingKind;
use crate::findings::Findings;
use crate::lanes::{FULL, LANES, Slot};
use crate::memory::{Allocation, Heap, Owner};
use crate::options::{LaunchOptions, Schedule};
use crate::program::{Fill, NOWHERE, Program, RANK_SHIFT, RESERVED_OFFSETS, SHARED_START};
use crate::sanitize::{GlobalShadow, RunId, Sanitizer};

pub(crate) use access::Target;
pub(crate) use schedule::{Progress, Stopped};
pub(crate) use step::Actor;
use undefined::{Origins, Shadow, Undefined};

/// What all blocks of a launch share.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Program,
    pub(crate) heap: &'a Heap,
    pub(crate) params: Vec<u8>,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) cluster: Dim3,
    pub(crate) shared_bytes: u32,
    pub(crate) multiprocessors: u32,
    /// The device that runs it, and those whose memory it reaches, a bit each.
    pub(crate) device: u32,
    pub(crate) reach: u64,
    /// Whether the device has neighbours, which may write what it waits for.
    pub(crate) shared: bool,
    pub(crate) run: OnceLock<RunId>,
    pub(crate) options: &'a LaunchOptions,
    pub(crate) files: &'a BTreeMap<u32, String>,
    /// Who touched global memory, for sanitizers.
    pub(crate) shadow: Arc<Mutex<GlobalShadow>>,
    /// What the kernel printed, by block.
    pub(crate) output: Mutex<BTreeMap<u64, String>>,
    /// What the traced warp did.
    pub(crate) trace: Mutex<Vec<String>>,
}

impl Launch<'_> {
    /// The launch begins: sanitizers tell its accesses from those of launches that it overlaps.
    pub(crate) fn begin(&self) -> RunId {
        let watched = self.options.sanitize.any() || self.options.schedule == Schedule::Systematic;
        *self.run.get_or_init(|| match watched {
            true => self.shadow.lock().unwrap_or_else(PoisonError::into_inner).begin(self),
            false => RunId::default(),
        })
    }

    /// Which launch it is, once it has begun.
    pub(crate) fn run(&self) -> RunId {
        self.run.get().copied().unwrap_or_default()
    }

    /// Whether kernels here may touch an allocation.
    pub(crate) fn reaches(&self, allocation: &Allocation) -> bool {
        match allocation.owner {
            Owner::Host => true,
            Owner::Device(ordinal) => self.reach >> ordinal & 1 == 1,
        }
    }

    /// The index of the live allocation within reach that holds `bytes` bytes at an address.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<usize> {
        let found = self.heap.find(address, bytes)?;
        self.heap.get(found).is_some_and(|allocation| self.reaches(allocation)).then_some(found)
    }

    /// What is known about an address that `find` did not accept.
    pub(crate) fn describe(&self, address: u64) -> String {
        let known = self.heap.describe(address);
        match self.heap.find(address, 0).and_then(|index| self.heap.get(index)) {
            Some(Allocation { owner: Owner::Device(ordinal), .. }) if *ordinal != self.device => format!(
                "{known}, which is device {ordinal}'s, and device {} has no access to its memory (`cuCtxEnablePeerAccess`)",
                self.device
            ),
            _ => known,
        }
    }
}

/// Why a warp's instruction cannot be executed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FindingKind,
    pub(crate) message: String,
    /// The lane it happened in.
    pub(crate) lane: usize,
    /// The earlier operation of the warp that it conflicts with.
    pub(crate) earlier: Option<u32>,
}

impl Fault {
    pub(crate) fn new(kind: FindingKind, lane: usize, message: impl Into<String>) -> Fault {
        Fault { kind, lane, message: message.into(), earlier: None }
    }

    /// The same against an earlier operation of the warp.
    pub(crate) fn after(self, earlier: Option<u32>) -> Fault {
        Fault { earlier, ..self }
    }
}

/// A small generator (splitmix64) that makes a seed's choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// What a fragment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Ready,
    /// Other lanes of the warp at the same instruction; the mask is of its own lanes that execute it.
    Members {
        mask: u32,
    },
    /// A barrier of the block, in a generation.
    Barrier {
        id: u32,
        generation: u64,
    },
    /// An mbarrier, in a generation.
    Mbarrier {
        rank: usize,
        offset: u32,
        generation: u64,
    },
    Cluster {
        generation: u64,
    },
    /// Registers of the block's pool, for each thread of the warp.
    Registers {
        count: u32,
    },
    /// Products that all warps of the warpgroup must have issued.
    Products {
        issued: u64,
    },
}

/// Lanes with a common program counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) join: u32,
    /// The call that its routine answers; [`NOWHERE`] in the kernel.
    pub(crate) call: u32,
    pub(crate) wait: Wait,
    /// Set when a wait is over: the instruction at `pc` finishes without waiting again.
    pub(crate) woken: bool,
    /// Set when a wait was given up because nothing else could run.
    pub(crate) timed_out: bool,
    /// The wait on an mbarrier that was executed last.
    pub(crate) asked: u32,
}

/// Where fragments meet again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub(crate) pc: u32,
    /// The lanes that will meet, less those that have ended.
    pub(crate) expected: u32,
    pub(crate) arrived: u32,
    pub(crate) parent: u32,
    /// Only fragments inside the same call meet.
    pub(crate) call: u32,
}

/// A warp.
pub(crate) struct Warp {
    pub(crate) rank: usize,
    pub(crate) index: u32,
    pub(crate) regs: Vec<Slot>,
    pub(crate) result: Slot,
    pub(crate) predicates: Vec<u32>,
    pub(crate) carry: u32,
    /// Lanes that have not ended.
    pub(crate) live: u32,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) joins: Vec<Join>,
    pub(crate) calls: Vec<call::Open>,
    /// Local memory: each lane's bytes behind one another.
    pub(crate) local: Vec<u8>,
    /// The allocation that was touched last.
    pub(crate) recent: usize,
    pub(crate) executed: u64,
    pub(crate) asynchronous: asynchronous::WarpQueues,
    /// Registers that a thread holds, where the kernel fixes how many it starts with.
    pub(crate) registers: Option<u32>,
    /// Whether its operations are written down.
    pub(crate) traced: bool,
    /// Operations since lanes began to wait at a join, and whether atomics or strong loads were among them.
    pub(crate) apart: u64,
    pub(crate) strong: bool,
    /// What nobody wrote, where that is followed.
    pub(crate) undefined: Option<Box<Undefined>>,
}

/// A block.
pub(crate) struct Block {
    pub(crate) index: [u32; 3],
    pub(crate) shared: Vec<u8>,
    pub(crate) undefined: Shadow,
    pub(crate) warps: Vec<Option<Box<Warp>>>,
    pub(crate) barriers: Vec<barrier::BlockBarrier>,
    pub(crate) mbarriers: BTreeMap<u32, barrier::Mbarrier>,
    pub(crate) live_warps: u32,
    /// Registers that warps have given back: for each thread of a warp.
    pub(crate) free_registers: u32,
}

/// A cluster: one block where there are no clusters.
pub(crate) struct Cluster<'a> {
    pub(crate) launch: &'a Launch<'a>,
    pub(crate) number: u64,
    pub(crate) blocks: Vec<Block>,
    pub(crate) random: Random,
    /// Counts what could let another thread go on.
    pub(crate) progress: u64,
    /// The progress that was seen last, and when.
    pub(crate) idle: (u64, u64),
    pub(crate) clock: u64,
    spins: schedule::Spins,
    pub(crate) executed: u64,
    pub(crate) jobs: Vec<asynchronous::Job>,
    pub(crate) cluster_barrier: barrier::ClusterBarrier,
    pub(crate) next_warp: usize,
    pub(crate) findings: Findings,
    pub(crate) origins: Origins,
    pub(crate) sanitizer: Option<Box<Sanitizer>>,
    /// Transactions of memory accesses, where advice is asked for.
    pub(crate) advice: Option<Counts>,
}

impl<'a> Cluster<'a> {
    /// The blocks of a cluster, ready to start.
    pub(crate) fn new(launch: &'a Launch<'a>, number: u64) -> Cluster<'a> {
        let shape = launch.cluster;
        let across = [launch.grid.x / shape.x, launch.grid.y / shape.y].map(u64::from);
        let first = [
            (number % across[0]) as u32 * shape.x,
            (number / across[0] % across[1]) as u32 * shape.y,
            (number / across[0] / across[1]) as u32 * shape.z,
        ];
        let threads = launch.block.count() as u32;
        let shared = (launch.program.dynamic_start + launch.shared_bytes) as usize;
        let count = shape.count() as usize;
        let mut blocks = Vec::with_capacity(count);
        for rank in 0..count {
            let place = rank as u32;
            let index = [first[0] + place % shape.x, first[1] + place / shape.x % shape.y, first[2] + place / shape.x / shape.y];
            let warps = threads.div_ceil(LANES as u32);
            let mut block = Block {
                index,
                shared: vec![0; shared.max(SHARED_START as usize)],
                undefined: Shadow::of_block(shared.max(SHARED_START as usize), launch.options.sanitize.uninitialized),
                warps: Vec::new(),
                barriers: vec![barrier::BlockBarrier::default(); 16],
                mbarriers: BTreeMap::new(),
                live_warps: warps,
                free_registers: 0,
            };
            for warp in 0..warps {
                block.warps.push(Some(Box::new(Warp::new(launch, rank, index, warp))));
            }
            blocks.push(block);
        }
        let warps = blocks[0].warps.len();
        Cluster {
            launch,
            number,
            blocks,
            random: Random::new(launch.options.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9))),
            progress: 0,
            idle: (0, 0),
            clock: 0,
            spins: schedule::Spins::default(),
            executed: 0,
            jobs: Vec::new(),
            cluster_barrier: barrier::ClusterBarrier::default(),
            next_warp: 0,
            findings: Findings::default(),
            origins: Origins::default(),
            advice: launch.options.sanitize.advice.then(Counts::default),
            sanitizer: (launch.options.sanitize.any() || launch.options.schedule == Schedule::Systematic)
                .then(|| Box::new(Sanitizer::new(launch, number, count, warps, shared))),
        }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        self.launch.options.schedule
    }

    /// The linear number of a block in the grid.
    pub(crate) fn block_number(&self, rank: usize) -> u64 {
        number(self.launch, self.blocks[rank].index)
    }

    pub(crate) fn warp(&self, rank: usize, warp: usize) -> Option<&Warp> {
        self.blocks[rank].warps.get(warp)?.as_deref()
    }
}

fn number(launch: &Launch<'_>, block: [u32; 3]) -> u64 {
    let [x, y, z] = block.map(u64::from);
    x + u64::from(launch.grid.x) * (y + u64::from(launch.grid.y) * z)
}

impl Warp {
    fn new(launch: &Launch<'_>, rank: usize, block: [u32; 3], index: u32) -> Warp {
        let program = launch.program;
        let threads = launch.block.count() as u32;
        let lanes = (threads - index * LANES as u32).min(LANES as u32);
        let live = if lanes == LANES as u32 { FULL } else { (1 << lanes) - 1 };
        let regs: Vec<Slot> = program
            .slots
            .iter()
            .map(|fill| match *fill {
                Fill::Register => Slot::ZERO,
                Fill::Constant(value, true) => Slot::wide(value),
                Fill::Constant(value, false) => Slot::narrow(value as u32),
                Fill::Shared(at, true) => Slot::wide(u64::from(at) | (rank as u64) << RANK_SHIFT),
                Fill::Shared(at, false) => Slot::narrow(at | (rank as u32) << RANK_SHIFT),
                Fill::Special(special) => fill_special(launch, rank, block, index, special),
            })
            .collect();
        let mut predicates = vec![0; program.predicates as usize];
        predicates[0] = FULL;
        Warp {
            rank,
            index,
            regs,
            result: Slot::ZERO,
            predicates,
            carry: 0,
            live,
            fragments: vec![Fragment {
                pc: 0,
                mask: live,
                join: NOWHERE,
                call: NOWHERE,
                wait: Wait::Ready,
                woken: false,
                timed_out: false,
                asked: NOWHERE,
            }],
            joins: Vec::new(),
            calls: Vec::new(),
            local: vec![0; program.local_bytes as usize * LANES],
            recent: 0,
            executed: 0,
            asynchronous: asynchronous::WarpQueues::default(),
            registers: program.launch_registers(),
            traced: launch.options.trace == Some((number(launch, block), index)),
            apart: 0,
            strong: false,
            undefined: launch.options.sanitize.uninitialized.then(|| Box::new(Undefined::new(program))),
        }
    }
}

/// A special register that stays what it is while the warp runs.
fn fill_special(launch: &Launch<'_>, rank: usize, block: [u32; 3], warp: u32, special: Special) -> Slot {
    let (threads, grid, cluster) = (launch.block, launch.grid, launch.cluster);
    let first = warp * LANES as u32;
    let by_lane = |of: &dyn Fn(u32) -> u32| {
        let mut slot = Slot::ZERO;
        for (lane, value) in slot.n_mut().iter_mut().enumerate() {
            *value = of(lane as u32);
        }
        slot
    };
    let value = match special {
        Special::TidX if threads.y == 1 && threads.z == 1 => return by_lane(&|lane| first + lane),
        Special::TidX => return by_lane(&|lane| (first + lane) % threads.x),
        Special::TidY => return by_lane(&|lane| (first + lane) / threads.x % threads.y),
        Special::TidZ => return by_lane(&|lane| (first + lane) / threads.x / threads.y),
        Special::Laneid => return by_lane(&|lane| lane),
        Special::LanemaskEq => return by_lane(&|lane| 1 << lane),
        Special::LanemaskLe => return by_lane(&|lane| (1 << lane) | ((1 << lane) - 1)),
        Special::LanemaskLt => return by_lane(&|lane| (1 << lane) - 1),
        Special::LanemaskGe => return by_lane(&|lane| !((1 << lane) - 1)),
        Special::LanemaskGt => return by_lane(&|lane| !((1 << lane) | ((1 << lane) - 1))),
        Special::NtidX => threads.x,
        Special::NtidY => threads.y,
        Special::NtidZ => threads.z,
        Special::CtaidX => block[0],
        Special::CtaidY => block[1],
        Special::CtaidZ => block[2],
        Special::NctaidX => grid.x,
        Special::NctaidY => grid.y,
        Special::NctaidZ => grid.z,
        Special::ClusteridX => block[0] / cluster.x,
        Special::ClusteridY => block[1] / cluster.y,
        Special::ClusteridZ => block[2] / cluster.z,
        Special::NclusteridX => grid.x / cluster.x,
        Special::NclusteridY => grid.y / cluster.y,
        Special::NclusteridZ => grid.z / cluster.z,
        Special::ClusterCtaidX => block[0] % cluster.x,
        Special::ClusterCtaidY => block[1] % cluster.y,
        Special::ClusterCtaidZ => block[2] % cluster.z,
        Special::ClusterNctaidX => cluster.x,
        Special::ClusterNctaidY => cluster.y,
        Special::ClusterNctaidZ => cluster.z,
        Special::ClusterCtarank => rank as u32,
        Special::ClusterNctarank => cluster.count() as u32,
        Special::Warpid => warp,
        Special::Nwarpid => 64,
        Special::Smid => (block[0] + grid.x * (block[1] + grid.y * block[2])) % launch.multiprocessors.max(1),
        Special::Nsmid => launch.multiprocessors,
        Special::DynamicSmemSize => launch.shared_bytes,
        Special::TotalSmemSize | Special::AggrSmemSize => launch.program.dynamic_start + launch.shared_bytes,
        Special::IsExplicitCluster => u32::from(launch.program.cluster.is_some() || launch.options.cluster.is_some()),
        // What the driver keeps for itself lies at the start of a block's window.
        Special::ReservedBegin => 0,
        Special::ReservedEnd | Special::ReservedCap => SHARED_START,
        Special::Reserved0 => RESERVED_OFFSETS[0],
        Special::Reserved1 => RESERVED_OFFSETS[1],
        Special::Gridid
        | Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::Globaltimer
        | Special::GlobaltimerLo
        | Special::GlobaltimerHi
        | Special::CurrentGraphExec
        | Special::Environment(_)
        | Special::Counter(_)
        | Special::WideCounter(_) => 0,
    };
    if special.ty().bits() == 64 { Slot::wide(u64::from(value)) } else { Slot::narrow(value) }
}
