//! Launches through a driver table, seen from outside it: what they found, and how the next ones run.
//!
//! A driver table has errors and no reports. Whoever made it with [`watched`](crate::watched) holds its console: reports of
//! all launches since they were last taken, the options of the launches to come, and what a fault has poisoned.
//!
//! ```
//! use tessera_emu::{EmuOptions, LaunchOptions, Schedule, watched};
//! let (table, console) = watched(&EmuOptions::default()).unwrap();
//! console.set(LaunchOptions { schedule: Schedule::Lazy, ..console.options() });
//! assert!(console.take().is_empty() && table.device_count().unwrap() == 1);
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tessera_driver::{Dim3, DriverError};

use crate::options::{LaunchOptions, Schedule};
use crate::report::Report;

/// A launch through a driver table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Launched {
    /// The kernel.
    pub kernel: String,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Which interleaving.
    pub schedule: Schedule,
    /// Its seed.
    pub seed: u64,
    /// Whether it ran to its end.
    pub finished: bool,
    /// What it did.
    pub report: Report,
}

/// See the module's head.
#[derive(Debug)]
pub struct Console {
    options: Mutex<LaunchOptions>,
    launches: Option<Mutex<Vec<Launched>>>,
    /// Devices whose context a fault has poisoned.
    poison: Mutex<BTreeMap<u32, DriverError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Console {
    /// `keeps`: whether somebody will take reports.
    pub(crate) fn new(options: LaunchOptions, keeps: bool) -> Console {
        Console { options: Mutex::new(options), launches: keeps.then(Mutex::default), poison: Mutex::default() }
    }

    /// How the next launches run.
    pub fn options(&self) -> LaunchOptions {
        lock(&self.options).clone()
    }

    /// Says how the next launches run. A launch's own cluster and shared memory replace those of the options.
    pub fn set(&self, options: LaunchOptions) {
        *lock(&self.options) = options;
    }

    /// The launches since this was last asked.
    pub fn take(&self) -> Vec<Launched> {
        self.launches.as_ref().map_or_else(Vec::new, |launches| std::mem::take(&mut *lock(launches)))
    }

    /// Makes contexts that a fault has poisoned usable again, which no chip can do: their memory, modules and streams are as the fault left them.
    pub fn recover(&self) {
        lock(&self.poison).clear();
    }

    pub(crate) fn is_well(&self, device: u32) -> Result<(), DriverError> {
        lock(&self.poison).get(&device).cloned().map_or(Ok(()), Err)
    }

    pub(crate) fn set_poison(&self, device: u32, error: Option<DriverError>) {
        match error {
            Some(error) => lock(&self.poison).insert(device, error),
            None => lock(&self.poison).remove(&device),
        };
    }

    /// Whether somebody takes reports.
    pub(crate) fn keeps(&self) -> bool {
        self.launches.is_some()
    }

    pub(crate) fn note(
        &self,
        kernel: &str,
        (grid, block): (Dim3, Dim3),
        options: &LaunchOptions,
        report: &Report,
        finished: bool,
    ) {
        let Some(launches) = &self.launches else { return };
        let extents = |dim: Dim3| [dim.x, dim.y, dim.z];
        lock(launches).push(Launched {
            kernel: kernel.to_owned(),
            grid: extents(grid),
            block: extents(block),
            schedule: options.schedule,
            seed: options.seed,
            finished,
            report: report.clone(),
        });
    }
}
