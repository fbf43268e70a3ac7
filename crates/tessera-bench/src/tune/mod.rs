//! The tuner: candidates are listed, compiled on all processors, taken through the gate, and raced.
//!
//! ```text
//! field -> compile -> the same program once -> gate -> the same order of sums -> race, or cost -> an entry of a lockfile
//! ```
//!
//! A candidate runs as a tuned kernel will: it is put into a lockfile that the kernels of the case look into, and these compile again. So what
//! is measured is what is found later. All candidates use the same memory.
//!
//! Where time means nothing (the emulator) no race is run: the model's time decides, or, where the model says nothing of a candidate, the
//! instructions that were executed.

mod field;
mod race;
mod rank;

use std::sync::Arc;

use rayon::prelude::*;
use tessera_driver::DriverError;
use tessera_runtime::lock::{Bits, Entry, Key, Lockfile};
use tessera_runtime::{Device, DriverDevice, KernelError, Lock, Question, TensorError, Value, is_fixed_order};

pub use field::{Candidate, Field, TunedLaunch};
pub use race::{RaceOptions, Raced, race};
pub use rank::rank_correlation;

use crate::case::{Fault, Poison, Subject};
use crate::clock::Clock;
use crate::gate::{self, GateOptions};
use crate::library::TESSERA;
use crate::sample::{first_launches, samples};
use crate::stats::median;
use crate::suite::{CaseSpec, Suite};

/// Samples of a block, and the least time of one.
const SAMPLES: usize = 5;
const SAMPLE_NS: f64 = 200e3;
/// Launches for as long as this say how long one takes.
const FIRST_NS: f64 = 5e6;

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
    /// It cannot be compiled or launched.
    Refused(String),
    /// It is the program of an earlier candidate.
    Same(usize),
    /// Its sums are in another order.
    OtherOrder(String),
    /// The model gave it no chance, so it was not tried.
    LeftOut,
}

/// What was tried for a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
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

/// A case whose kernels look into a lockfile of the tuner's own.
pub struct Tuning<'a> {
    /// The suite, made for kernels with `lock`.
    pub suite: &'a dyn Suite,
    /// The case.
    pub case: &'a CaseSpec,
    /// Its launches.
    pub launches: Vec<TunedLaunch>,
    /// Where candidates are put. Its contents are the tuner's.
    pub lock: Arc<Lock>,
    /// Choices of earlier times, which go first where times are equal.
    pub known: &'a Lockfile,
    /// Where it runs.
    pub device: &'a Device,
    /// What is asked.
    pub options: TuneOptions,
}

/// A candidate that compiled.
struct Made {
    hash: [u8; 32],
    order: String,
}

/// Candidates on their way through the gate.
struct Judged<'a> {
    entries: &'a [Entry],
    /// The class of the order of each one's sums.
    orders: &'a [String],
    /// The one that is taken without a choice.
    own: usize,
    /// Puts one into the lockfile.
    put: &'a dyn Fn(&Entry),
}

impl Tuning<'_> {
    /// Finds a choice for each launch, one after the other; `tell` is told of each candidate what became of it at first: its number, of how many.
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
        for launch in &self.launches {
            let tried = self.launch(launch, subject.as_mut(), &chosen, yardstick, tell)?;
            if let Some(tried) = tried {
                chosen.insert(tried.key.clone(), tried.entry.clone());
                all.push(tried);
            }
        }
        match (all.is_empty(), self.launches.first()) {
            (true, Some(first)) => {
                Err(TuneError::NoChoice { kernel: first.kernel.name().to_string(), device: self.device.to_string() })
            }
            _ => Ok(all),
        }
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
        let key = launch.kernel.tuning_key(&Question::of_launch(&arguments, &types), &launch.options, self.device)?;
        let product = self.device.driver().and_then(DriverDevice::product);
        let mut field = launch.field(product)?;
        if chosen.get(&key).is_some() || !launch.kernel.has_choice(self.device)? {
            return Ok(None);
        }
        let own = self.incumbent_first(&mut field.candidates, &key);
        let entries: Vec<Entry> = field.candidates.iter().map(entry_of).collect();
        let predicts = field.candidates.iter().any(|candidate| candidate.predicted.is_some());
        let most = self.options.most;
        let tried = |at: usize| !predicts || at < most || at == own;
        let arguments = field::on_device(launch, self.device)?;
        let (lock, device) = (&self.lock, self.device);
        let made = |at: usize| tried(at).then(|| compile((lock, device), launch, &arguments, &entries[at]));
        let made: Vec<Option<Result<Made, KernelError>>> = (0..entries.len()).into_par_iter().map(made).collect();
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        let mut orders: Vec<String> = Vec::new();
        let (mut seen, mut count): (Vec<([u8; 32], usize)>, usize) = (Vec::new(), 0);
        for (at, made) in made.into_iter().enumerate() {
            let (order, outcome) = match made {
                None => (String::new(), Some(Outcome::LeftOut)),
                Some(Err(error)) if at == own => return Err(error.into()),
                Some(Err(error)) => (String::new(), Some(Outcome::Refused(error.to_string()))),
                Some(Ok(made)) => {
                    let same = seen.iter().find(|(hash, _)| *hash == made.hash).map(|(_, first)| Outcome::Same(*first));
                    let outcome = same.or_else(|| (count >= most && at != own).then_some(Outcome::LeftOut));
                    if outcome.is_none() {
                        seen.push((made.hash, at));
                        count += 1;
                    }
                    (made.order, outcome)
                }
            };
            orders.push(order);
            outcomes.push(outcome);
        }
        // The way without a choice is tried by itself or as the program of an earlier candidate.
        let own = if let Some(Outcome::Same(first)) = outcomes[own] { first } else { own };
        let put = |entry: &Entry| {
            let mut lockfile = chosen.clone();
            lockfile.insert(key.clone(), entry.clone());
            self.lock.set(lockfile);
        };
        let judged = Judged { entries: &entries, orders: &orders, own, put: &put };
        let counts = self.judge(subject, &judged, &mut outcomes, yardstick, tell)?;
        let open: Vec<usize> = (0..entries.len()).filter(|&at| outcomes[at].is_none()).collect();
        let mut rounds = 0;
        let winner = match yardstick {
            Yardstick::Time(clock) => {
                let raced = self.race(subject, *clock, &open, &mut |at| put(&entries[at]))?;
                rounds = raced.rounds;
                open.iter().zip(&raced.times).for_each(|(&at, &time)| outcomes[at] = Some(Outcome::Time(time)));
                raced.winner.map_or(own, |winner| open[winner])
            }
            Yardstick::Count(_) => {
                open.iter().for_each(|&at| outcomes[at] = Some(Outcome::Counted(counts[at])));
                let is_predicted = open.iter().all(|&at| field.candidates[at].predicted.is_some());
                let cost = |at: usize| match field.candidates[at].predicted {
                    Some((micros, _)) if is_predicted => micros,
                    _ => counts[at] as f64,
                };
                open.iter().copied().min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(own)
            }
        };
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::LeftOut)).collect();
        let mut entry = Entry {
            bits: self.options.bits,
            order: orders[winner].clone(),
            candidates: open.len() as u64,
            ..entries[winner].clone()
        };
        match outcomes[winner] {
            Outcome::Time(nanos) => entry.measured_us = Some(rounded(nanos / 1e3)),
            Outcome::Counted(instructions) => entry.counted = Some(instructions),
            _ => {}
        }
        put(&entry);
        subject.rebuild()?;
        let candidates = field.candidates.clone().into_iter().zip(outcomes).collect();
        Ok(Some(Tried { key, candidates, winner, entry, field, rounds }))
    }

    /// Puts an earlier choice in front, and gives the place of the way without one.
    fn incumbent_first(&self, candidates: &mut [Candidate], key: &Key) -> usize {
        let Some(known) = self.known.get(key) else { return 0 };
        let is_known = |candidate: &Candidate| {
            let entry = entry_of(candidate);
            (&entry.config, &entry.plan) == (&known.config, &known.plan)
        };
        match candidates.iter().position(is_known) {
            Some(at) if at > 0 => {
                candidates[..=at].rotate_right(1);
                1
            }
            _ => 0,
        }
    }

    /// Takes every candidate through the gate. What is not right, or adds up in another order than it may, gets its outcome; of the others the
    /// executed instructions of a launch are given, where these are counted.
    fn judge(
        &self,
        subject: &mut dyn Subject,
        judged: &Judged<'_>,
        outcomes: &mut [Option<Outcome>],
        yardstick: &mut Yardstick<'_>,
        tell: &mut dyn FnMut(usize, usize, &Outcome),
    ) -> Result<Vec<u64>, TuneError> {
        let Judged { entries, orders, own, put } = *judged;
        let stable = self.options.bits == Bits::Stable;
        let kernel = || self.launches.first().map_or(String::new(), |launch| launch.kernel.name().to_string());
        if stable && !is_fixed_order(&orders[own]) {
            return Err(TuneError::NoOrder { kernel: kernel(), order: orders[own].clone() });
        }
        let mut counts = vec![0; entries.len()];
        let mut digests: Vec<Option<u64>> = vec![None; entries.len()];
        let gate_options = GateOptions { seeds: 1, suite_seed: self.options.seed, tolerance: None };
        // The way without a choice goes first: others are held against its bits.
        for at in std::iter::once(own).chain((0..entries.len()).filter(|&at| at != own)) {
            if outcomes[at].is_some() {
                continue;
            }
            put(&entries[at]);
            let report = subject.rebuild().and_then(|()| gate::check(subject, gate_options));
            let wrong = match report {
                Ok(report) if report.passed() => {
                    digests[at] = Some(report.output_digest);
                    None
                }
                Ok(report) => Some(Outcome::Wrong(report.reason.unwrap_or_else(|| report.status.to_string()))),
                Err(fault) if self.suite.is_lost() => return Err(fault.into()),
                Err(fault) => Some(Outcome::Refused(fault.message)),
            };
            if let (Some(Outcome::Wrong(why) | Outcome::Refused(why)), true) = (&wrong, at == own) {
                return Err(TuneError::Wrong { kernel: kernel(), why: why.clone() });
            }
            let other = (orders[at] != orders[own] || digests[at] != digests[own]) && stable;
            outcomes[at] = wrong.or_else(|| other.then(|| Outcome::OtherOrder(orders[at].clone())));
            if let (Yardstick::Count(count), None) = (&mut *yardstick, &outcomes[at]) {
                count();
                subject.poison(Poison::Ones)?;
                subject.launch()?;
                counts[at] = count();
            }
            tell(at, entries.len(), outcomes[at].as_ref().unwrap_or(&Outcome::Counted(counts[at])));
        }
        Ok(counts)
    }

    fn race(
        &self,
        subject: &mut dyn Subject,
        clock: &dyn Clock,
        open: &[usize],
        put: &mut dyn FnMut(usize),
    ) -> Result<Raced, TuneError> {
        let mut launches: Vec<Option<usize>> = vec![None; open.len()];
        race(open.len(), self.options.race, |runner| {
            put(open[runner]);
            subject.rebuild()?;
            let batch = match launches[runner] {
                Some(batch) => batch,
                None => {
                    let (nanos, _) = first_launches(clock, subject, FIRST_NS)?;
                    let batch = ((SAMPLE_NS / nanos).ceil() as usize).clamp(1, subject.most_launches());
                    *launches[runner].insert(batch)
                }
            };
            subject.launch()?;
            Ok(median(&samples(clock, subject, SAMPLES, batch)?))
        })
    }
}

/// Compiles a candidate as the lockfile with its entry will; it is found compiled then.
fn compile(
    (lock, device): (&Lock, &Device),
    launch: &TunedLaunch,
    arguments: &[(String, Value)],
    entry: &Entry,
) -> Result<Made, KernelError> {
    let arguments: Vec<(&str, Value)> = arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let prepared = launch.kernel.prepare(&arguments, launch.grid, &lock.apply(entry, &launch.options), device)?;
    Ok(Made { hash: prepared.program_hash(), order: prepared.order_of_sums().to_string() })
}

fn entry_of(candidate: &Candidate) -> Entry {
    Entry {
        config: candidate.config.clone(),
        plan: candidate.plan.as_ref().filter(|_| candidate.is_planned).map(|plan| plan.text.clone()),
        predicted_us: candidate.predicted.map(|(micros, _)| rounded(micros)),
        ..Entry::default()
    }
}

/// Four digits: more are not known.
fn rounded(micros: f64) -> f64 {
    format!("{micros:.3e}").parse().unwrap_or(micros)
}
