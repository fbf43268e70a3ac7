//! The tuner: candidates are listed, compiled on all processors, taken through the gate, and raced.
//!
//! ```text
//! field -> compile -> the same program once -> gate -> the same order of sums -> race, or cost -> an entry of a lockfile     (`trial.rs`)
//! ```
//!
//! An operator with several ways to cut a case into blocks has them tried first; then the launches of the best one have theirs.
//!
//! A candidate runs as a tuned kernel will: it is put into a lockfile that the case and its kernels look into, and these are planned and compiled
//! again. So what is measured is what is found later. All candidates use the same memory.
//!
//! Where time means nothing (the emulator) no race is run: the model's time decides, or, where the model says nothing of a candidate, the
//! instructions that were executed.

mod field;
mod race;
mod rank;
mod trial;

use std::sync::Arc;

use rayon::prelude::*;
use tessera_driver::DriverError;
use tessera_ops::{PossibleWay, Way};
use tessera_runtime::lock::{Bits, Entry, Key, Lockfile};
use tessera_runtime::{CompileOptions, Device, DriverDevice, KernelError, Lock, Question, Site, TensorError, Value};
use tessera_types::Device as Product;

pub use field::{Candidate, Field, Predicted, TunedLaunch};
pub use race::{RaceOptions, Raced, race};
pub use rank::rank_correlation;

use self::trial::{Made, Trial};
use crate::case::{Fault, Subject};
use crate::clock::Clock;
use crate::library::TESSERA;
use crate::suite::{CaseSpec, Suite};

/// The class of the order of sums of a kernel that has none.
const NO_SUMS: &str = "none";

/// A suite whose cases, and their kernels, look into a lockfile of the tuner's.
pub trait Tunable: Suite {
    /// The launches of a case, cut as the lockfile says.
    ///
    /// # Errors
    /// Where the case is not offered, or memory for it cannot be had.
    fn launches(&self, case: &CaseSpec) -> Result<Vec<TunedLaunch>, Fault>;

    /// The ways to cut a case into blocks; `None` where there is one alone.
    ///
    /// # Errors
    /// Where the case is not offered.
    fn ways(&self, _case: &CaseSpec) -> Result<Option<Ways<'_>>, Fault> {
        Ok(None)
    }
}

/// The launches in each of some ways, on arrays of the device that the ways share.
pub type LaunchesIn<'a> = Box<dyn Fn(&[&Way]) -> Result<Vec<Vec<TunedLaunch>>, Fault> + 'a>;

/// The ways to cut a case into blocks.
pub struct Ways<'a> {
    /// What a choice of one is found by.
    pub key: Key,
    /// The one that is taken without a choice, then the others by what they should take.
    pub list: Vec<PossibleWay>,
    /// What is launched in some of them.
    pub launches: LaunchesIn<'a>,
}

/// How candidates are compared.
pub enum Yardstick<'a> {
    /// By the time of launches.
    Time(&'a dyn Clock),
    /// By what they should take, or the instructions that were executed since the last question.
    Count(&'a mut dyn FnMut() -> u64),
}

/// What is asked of the tuner.
#[derive(Clone, Copy, Debug)]
pub struct TuneOptions {
    /// Candidates that are tried at most.
    pub most: usize,
    /// Which results they may have.
    pub bits: Bits,
    /// The race.
    pub race: RaceOptions,
    /// From which the gate's inputs are derived.
    pub seed: u64,
}

impl Default for TuneOptions {
    fn default() -> TuneOptions {
        TuneOptions { most: 32, bits: Bits::Any, race: RaceOptions::default(), seed: 1 }
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nanoseconds of a launch, the median of all blocks of samples.
    Time(f64),
    /// It is right; what it costs is what it should take, or so many executed instructions.
    Counted(u64),
    /// It gives other results.
    Wrong(String),
    /// A launch of it stopped with a fault, or did not end in time.
    Failed(String),
    /// It cannot be compiled or launched.
    Refused(String),
    /// It is the program of an earlier candidate.
    Same(usize),
    /// Its sums are in another order.
    OtherOrder(String),
    /// The model gave it no chance, so it was not tried.
    LeftOut,
}

/// What a choice is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The way to cut a case into blocks.
    Way,
    /// A launch's schedule and plan.
    Launch,
}

/// What was tried for a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// What the choice is of.
    pub sought: Sought,
    /// What the choice is for.
    pub key: Key,
    /// The candidates, and what became of each.
    pub candidates: Vec<(Candidate, Outcome)>,
    /// The one that is chosen.
    pub winner: usize,
    /// The entry for it.
    pub entry: Entry,
    /// What there was to choose among.
    pub field: Field,
    /// Rounds of the race.
    pub rounds: usize,
}

/// Why nothing could be tuned.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The kernel does not run as it is.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Arrays cannot be had or read.
    #[error(transparent)]
    Memory(#[from] TensorError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DriverError),
    /// The case cannot be built, or the harness failed.
    #[error("{0}")]
    Fault(Fault),
    /// The kernel is wrong without any choice.
    #[error("`{kernel}` is wrong as it is: {why}")]
    Wrong {
        /// The kernel.
        kernel: String,
        /// Why.
        why: String,
    },
    /// Stable bits were asked of a kernel that has none.
    #[error("`{kernel}` adds up floats in no fixed order ({order}), so no choice keeps its bits")]
    NoOrder {
        /// The kernel.
        kernel: String,
        /// The class of its sums.
        order: String,
    },
    /// There is but one way, whatever the sizes are.
    #[error("nothing of `{kernel}` can be chosen on {device}")]
    NoChoice {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
    },
}

impl From<Fault> for TuneError {
    fn from(fault: Fault) -> TuneError {
        TuneError::Fault(fault)
    }
}

/// A case that is tuned.
pub struct Tuning<'a> {
    /// The suite, made with `lock`.
    pub suite: &'a dyn Tunable,
    /// The case.
    pub case: &'a CaseSpec,
    /// Where candidates are put. Its contents are the tuner's.
    pub lock: Arc<Lock>,
    /// Choices of earlier times, which go first where times are equal.
    pub known: &'a Lockfile,
    /// Where it runs.
    pub device: &'a Device,
    /// What is asked.
    pub options: TuneOptions,
    /// Makes a device usable again that a candidate's fault has taken; false where that cannot be.
    pub recover: &'a dyn Fn() -> bool,
}

impl Tuning<'_> {
    /// Finds the way to cut the case, where there are several, then a choice for each launch, one after the other; `tell` is told of each candidate
    /// what became of it at first: its number, of how many.
    ///
    /// # Errors
    /// Where the case does not run, is wrong, or leaves nothing to choose.
    pub fn run(
        &self,
        yardstick: &mut Yardstick<'_>,
        tell: &mut dyn FnMut(usize, usize, &Outcome),
    ) -> Result<Vec<Tried>, TuneError> {
        self.lock.set(Lockfile::default());
        let mut subject = self.suite.build(self.case, TESSERA)?;
        let mut chosen = Lockfile::default();
        let mut all: Vec<Tried> = Vec::new();
        let mut keep = |tried: Tried, chosen: &mut Lockfile| {
            chosen.insert(tried.key.clone(), tried.entry.clone());
            all.push(tried);
        };
        if let Some(ways) = self.suite.ways(self.case)? {
            let tried = self.way(ways, subject.as_mut(), yardstick, tell)?;
            keep(tried, &mut chosen);
        }
        // Those of the way that was found, which the lockfile says by now.
        let launches = self.suite.launches(self.case)?;
        for launch in &launches {
            if let Some(tried) = self.launch(launch, subject.as_mut(), &chosen, yardstick, tell)? {
                keep(tried, &mut chosen);
            }
        }
        match (all.is_empty(), launches.first()) {
            (true, Some(first)) => {
                Err(TuneError::NoChoice { kernel: first.kernel.name().to_string(), device: self.device.to_string() })
            }
            _ => Ok(all),
        }
    }

    /// The best way to cut the case.
    fn way(
        &self,
        Ways { key, list, launches }: Ways<'_>,
        subject: &mut dyn Subject,
        yardstick: &mut Yardstick<'_>,
        tell: &mut dyn FnMut(usize, usize, &Outcome),
    ) -> Result<Tried, TuneError> {
        let (field, device) = (Field::of_ways(list, self.product()), self.device);
        let compile = |entries: &[&Entry]| {
            let ways: Vec<&Way> = entries.iter().map(|entry| &entry.config).collect();
            let launches = launches(&ways)?;
            let made = |launches: &Vec<TunedLaunch>| {
                let made = |launch: &TunedLaunch| compiled(launch, &launch.arguments, &launch.options, device);
                let all: Vec<Made> = launches.iter().map(made).collect::<Result<_, _>>()?;
                // A launch that only moves elements is of no order.
                let orders = all.iter().map(|made| made.order.clone()).filter(|order| order != NO_SUMS);
                let order = orders.collect::<Vec<_>>().join(", ");
                Ok(Made { programs: all.into_iter().flat_map(|made| made.programs).collect(), order })
            };
            Ok(launches.par_iter().map(made).collect())
        };
        let trial = Trial { tuning: self, sought: Sought::Way, key, field, chosen: &Lockfile::default() };
        trial.run(subject, &compile, yardstick, tell)
    }

    /// The best candidate of one launch; `None` where nothing can be chosen, or was chosen already.
    fn launch(
        &self,
        launch: &TunedLaunch,
        subject: &mut dyn Subject,
        chosen: &Lockfile,
        yardstick: &mut Yardstick<'_>,
        tell: &mut dyn FnMut(usize, usize, &Outcome),
    ) -> Result<Option<Tried>, TuneError> {
        let arguments = launch.by_name();
        let types = launch.kernel.argument_types(&arguments)?;
        let question = Question::of_launch(&arguments, &types);
        let key = launch.kernel.tuning_key(&question, &launch.options, Site::Device(self.device))?;
        let field = launch.field(self.product())?;
        if chosen.get(&key).is_some() || !launch.kernel.has_choice(self.device)? {
            return Ok(None);
        }
        let arguments = field::on_device(launch, self.device)?;
        let (lock, device) = (&self.lock, self.device);
        let made = |entry: &&Entry| compiled(launch, &arguments, &lock.apply(entry, &launch.options), device);
        let compile = |entries: &[&Entry]| Ok(entries.par_iter().map(made).collect());
        let trial = Trial { tuning: self, sought: Sought::Launch, key, field, chosen };
        trial.run(subject, &compile, yardstick, tell).map(Some)
    }

    fn product(&self) -> Option<&'static Product> {
        self.device.driver().and_then(DriverDevice::product)
    }
}

/// Compiles a launch.
fn compiled(
    launch: &TunedLaunch,
    arguments: &[(String, Value)],
    options: &CompileOptions,
    device: &Device,
) -> Result<Made, KernelError> {
    let arguments: Vec<(&str, Value)> = arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let prepared = launch.kernel.prepare(&arguments, launch.grid, options, device)?;
    Ok(Made { programs: vec![prepared.program_hash()], order: prepared.order_of_sums().to_string() })
}
