//! Global memory's words that were touched, and the launches that did it.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tessera_driver::Dim3;

use super::cell::Cell;
use crate::exec::Launch;
use crate::finding::Place;
use crate::program::Meta;

const PAGE: u64 = 1024;

/// A launch, counted over the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

/// A cluster of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClusterId {
    pub(super) run: RunId,
    pub(super) number: u64,
}

/// Up to when each cluster's accesses are visible.
pub(super) type Seen = FxHashMap<ClusterId, u64>;

/// A launch that runs, or one that such a launch overlapped.
struct Run {
    device: u32,
    clusters: u64,
    ended: bool,
    /// Those that ran when it began. What had ended by then comes before it.
    beside: BTreeSet<RunId>,
    origin: Origin,
}

/// Where a launch's operations stand, for messages about launches that may have ended.
#[derive(Clone)]
pub(crate) struct Origin {
    kernel: String,
    meta: Arc<Vec<Meta>>,
    files: BTreeMap<u32, String>,
    grid: Dim3,
    block: Dim3,
    device: Option<u32>,
}

impl Origin {
    pub(crate) fn of(launch: &Launch<'_>) -> Origin {
        Origin {
            kernel: launch.program.name.clone(),
            meta: Arc::clone(&launch.program.meta),
            files: launch.files.clone(),
            grid: launch.grid,
            block: launch.block,
            device: launch.shared.then_some(launch.device),
        }
    }

    /// An operation's place, with the block and the thread that executed it.
    pub(crate) fn place(&self, block: [u32; 3], thread: Option<usize>, pc: u32) -> Place {
        let meta = self.meta.get(pc as usize);
        Place {
            kernel: self.kernel.clone(),
            line: meta.map_or(0, |meta| meta.line),
            instruction: meta.map_or(String::new(), |meta| meta.mnemonic.clone()),
            source: meta.and_then(|meta| meta.loc).map(|loc| {
                (self.files.get(&loc.file).cloned().unwrap_or_else(|| format!("file {}", loc.file)), loc.line, loc.column)
            }),
            device: self.device,
            block,
            thread: thread.map(|thread| {
                let thread = thread as u32;
                [thread % self.block.x, thread / self.block.x % self.block.y, thread / self.block.x / self.block.y]
            }),
        }
    }

    /// The index of a block by its number in the grid.
    pub(super) fn block(&self, number: u64) -> [u32; 3] {
        let (x, y) = (u64::from(self.grid.x), u64::from(self.grid.y));
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }
}

/// The launches that run, and those that they overlapped.
#[derive(Default)]
pub(super) struct Runs(BTreeMap<RunId, Run>);

impl Runs {
    /// Whether all of a launch comes before what another one does now.
    pub(super) fn is_over(&self, earlier: RunId, now: RunId) -> bool {
        earlier < now && self.0.get(&now).is_none_or(|now| !now.beside.contains(&earlier))
    }

    /// Whether two launches run on one device.
    pub(super) fn share_device(&self, a: RunId, b: RunId) -> bool {
        a == b || self.0.get(&a).map(|run| run.device) == self.0.get(&b).map(|run| run.device)
    }

    /// Where a launch's operations stand.
    pub(super) fn origin(&self, run: RunId) -> Option<&Origin> {
        self.0.get(&run).map(|run| &run.origin)
    }
}

/// The words of global memory that were touched.
#[derive(Default)]
pub(crate) struct GlobalShadow {
    pages: FxHashMap<u64, Vec<Cell>>,
    pub(super) time: u64,
    /// What releases at a word have published: to threads of the writer's device, and to those of all devices.
    pub(super) published: FxHashMap<(Option<u32>, u64), Seen>,
    runs: Runs,
    last: u64,
    /// What launches of a device saw of others, and that they ended: what comes next there knows it.
    known: FxHashMap<u32, Seen>,
}

impl GlobalShadow {
    /// A launch begins.
    pub(crate) fn begin(&mut self, launch: &Launch<'_>) -> RunId {
        self.last += 1;
        let run = RunId(self.last);
        let beside = self.runs.0.iter().filter(|(_, other)| !other.ended).map(|(&id, _)| id).collect();
        let clusters = launch.grid.count() / launch.cluster.count();
        let own = Run { device: launch.device, clusters, ended: false, beside, origin: Origin::of(launch) };
        self.runs.0.insert(run, own);
        run
    }

    /// A launch has ended. When none runs any more, the next one comes after everything.
    pub(crate) fn end(&mut self, run: RunId) {
        let time = self.time;
        if let Some(own) = self.runs.0.get_mut(&run) {
            own.ended = true;
        }
        if self.runs.0.values().all(|run| run.ended) {
            *self = GlobalShadow { last: self.last, ..GlobalShadow::default() };
            return;
        }
        if let Some(own) = self.runs.0.get(&run) {
            let known = self.known.entry(own.device).or_default();
            known.extend((0..own.clusters).map(|number| (ClusterId { run, number }, time)));
        }
        self.forget();
    }

    /// Forgets launches that nothing is compared with any more: who was over before all that run began.
    fn forget(&mut self) {
        let runs = &self.runs.0;
        let is_running = |id: &RunId| runs.get(id).is_some_and(|run| !run.ended);
        let mut open: BTreeSet<RunId> = BTreeSet::new();
        for (&id, run) in runs {
            if !run.ended {
                open.extend(run.beside.iter().copied().chain([id]));
            } else if run.beside.iter().any(is_running) {
                open.insert(id);
            }
        }
        self.runs.0.retain(|id, _| open.contains(id));
        let seen = self.known.values_mut().chain(self.published.values_mut());
        seen.for_each(|seen| seen.retain(|cluster, _| open.contains(&cluster.run)));
    }

    /// What a cluster of a launch knows when it begins.
    pub(super) fn known(&self, device: u32) -> Seen {
        self.known.get(&device).cloned().unwrap_or_default()
    }

    /// What a cluster that has ended saw is known to what comes next on its device.
    pub(super) fn keep(&mut self, device: u32, seen: &Seen) {
        super::later(self.known.entry(device).or_default(), seen);
    }
}

impl GlobalShadow {
    pub(super) fn cell(&mut self, address: u64) -> (&mut Cell, &Runs) {
        let word = address / 4;
        let page = self.pages.entry(word / PAGE).or_insert_with(|| vec![Cell::default(); PAGE as usize]);
        (&mut page[(word % PAGE) as usize], &self.runs)
    }
}
