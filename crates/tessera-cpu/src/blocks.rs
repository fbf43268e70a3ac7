//! The blocks of a launch handed to threads: batches of neighbours, less and less so that all end together. A launch stops at its
//! first failing block, and prints what the blocks up to that one printed, in block order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tessera_ir::Diagnostic;

use crate::launch::{Fault, RunOptions};
use crate::pace::Crowd;

/// Blocks handed to a thread at once, at most: neighbours mostly read neighbouring memory, which is then on its way already.
const BATCH: u64 = 32;

/// The blocks that are left, and what became of the others.
pub(crate) struct Blocks {
    grid: [u32; 3],
    count: u64,
    workers: u64,
    next: AtomicU64,
    /// The first block that failed; blocks after it need not run.
    failed: AtomicU64,
    faults: Mutex<Vec<(u64, Fault)>>,
    texts: Mutex<Vec<(u64, String)>>,
}

impl Blocks {
    /// All blocks of a grid, for so many threads.
    pub(crate) fn new(grid: [u32; 3], threads: usize) -> Blocks {
        let count = block_count(grid);
        Blocks {
            grid,
            count,
            workers: (threads.max(1) as u64).min(count).max(1),
            next: AtomicU64::new(0),
            failed: AtomicU64::new(u64::MAX),
            faults: Mutex::default(),
            texts: Mutex::default(),
        }
    }

    /// The blocks, where not all of them run at once.
    pub(crate) fn crowd(&self) -> Option<Crowd> {
        (self.workers < self.count).then_some(Crowd { blocks: self.count, at_once: self.workers })
    }

    /// Runs the work on every thread; each calls [`Blocks::drain`].
    pub(crate) fn run(&self, work: impl Fn() + Sync) {
        if self.workers <= 1 {
            return work();
        }
        rayon::scope(|scope| {
            for _ in 1..self.workers {
                scope.spawn(|_| work());
            }
            work();
        });
    }

    /// Runs blocks one after another until none is left; `block` yields what it printed beside its outcome.
    pub(crate) fn drain(&self, mut block: impl FnMut([u32; 3]) -> (String, Result<(), Box<Diagnostic>>)) {
        let batch = |start: u64| ((self.count - start) / (8 * self.workers)).clamp(1, BATCH);
        let end = |start| (start < self.count).then(|| start + batch(start));
        while let Ok(start) = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
            if start > self.failed.load(Ordering::Relaxed) {
                break;
            }
            for index in start..start + batch(start) {
                let place = block_at(self.grid, index);
                let (text, outcome) = block(place);
                if !text.is_empty()
                    && let Ok(mut texts) = self.texts.lock()
                {
                    texts.push((index, text));
                }
                if let Err(diagnostic) = outcome {
                    self.failed.fetch_min(index, Ordering::Relaxed);
                    if let Ok(mut faults) = self.faults.lock() {
                        faults.push((index, Fault { diagnostic: *diagnostic, block: Some(place) }));
                    }
                    break;
                }
            }
        }
    }

    /// Prints, and yields the first block's mistake.
    pub(crate) fn finish(self, options: &RunOptions<'_>) -> Result<(), Fault> {
        let mut texts = self.texts.into_inner().unwrap_or_default();
        texts.sort_by_key(|(index, _)| *index);
        let stop = self.failed.load(Ordering::Relaxed);
        let text: String = texts.into_iter().filter(|(index, _)| *index <= stop).map(|(_, text)| text).collect();
        emit(options, &text);
        let mut faults = self.faults.into_inner().unwrap_or_default();
        faults.sort_by_key(|(index, _)| *index);
        match faults.into_iter().next() {
            Some((_, fault)) => Err(fault),
            None => Ok(()),
        }
    }
}

pub(crate) fn emit(options: &RunOptions<'_>, text: &str) {
    if let Some(output) = options.output
        && let Ok(mut output) = output.lock()
    {
        output.push_str(text);
    }
}

pub(crate) fn block_count(grid: [u32; 3]) -> u64 {
    u64::from(grid[0]) * u64::from(grid[1]) * u64::from(grid[2])
}

pub(crate) fn block_at(grid: [u32; 3], index: u64) -> [u32; 3] {
    let (x, y) = (u64::from(grid[0]).max(1), u64::from(grid[1]).max(1));
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}
