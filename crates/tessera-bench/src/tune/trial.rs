//! One choice: its candidates compiled, taken through the gate, and raced.

use tessera_runtime::KernelError;
use tessera_runtime::is_fixed_order;
use tessera_runtime::lock::{Bits, Entry, Key, Lockfile};

use super::field::{Candidate, Field};
use super::race::{Raced, race};
use super::{Outcome, Sought, Tried, TuneError, Tuning, Yardstick};
use crate::case::{Place, Poison, Subject};
use crate::clock::Clock;
use crate::gate::{self, GateOptions};
use crate::sample::{first_launches, samples};
use crate::stats::median;
use crate::status::Status;

/// Samples of a block, and the least time of one.
const SAMPLES: usize = 5;
const SAMPLE_NS: f64 = 200e3;
/// Launches for as long as this say how long one takes.
const FIRST_NS: f64 = 5e6;

/// A candidate that compiled.
pub(super) struct Made {
    /// The hash of each launch's program.
    pub(super) programs: Vec<[u8; 32]>,
    /// The class of the order of its sums.
    pub(super) order: String,
}

/// A choice that is looked for.
pub(super) struct Trial<'a> {
    pub(super) tuning: &'a Tuning<'a>,
    pub(super) sought: Sought,
    /// What it is for.
    pub(super) key: Key,
    /// What there is to choose among.
    pub(super) field: Field,
    /// What was chosen before.
    pub(super) chosen: &'a Lockfile,
}

/// Compiles candidates on all processors, as the lockfile with the entry of each will; they are found compiled then.
pub(super) type Compile<'a> = &'a dyn Fn(&[&Entry]) -> Result<Vec<Result<Made, KernelError>>, TuneError>;

/// Candidates on their way through the gate.
struct Judged<'a> {
    entries: &'a [Entry],
    /// The class of the order of each one's sums.
    orders: &'a [String],
    /// The one that is taken without a choice.
    own: usize,
}

impl Trial<'_> {
    /// The best candidate; the subject has it at the end.
    pub(super) fn run(
        mut self,
        subject: &mut dyn Subject,
        compile: Compile<'_>,
        yardstick: &mut Yardstick<'_>,
        tell: &mut dyn FnMut(usize, usize, &Outcome),
    ) -> Result<Tried, TuneError> {
        let own = self.incumbent_first();
        let entries: Vec<Entry> = self.field.candidates.iter().map(entry_of).collect();
        let (orders, mut outcomes) = self.compiled(&entries, own, compile)?;
        // The way without a choice is tried by itself or as the program of an earlier candidate.
        let own = if let Some(Outcome::Same(first)) = outcomes[own] { first } else { own };
        let counts = self.judge(subject, &Judged { entries: &entries, orders: &orders, own }, &mut outcomes, yardstick, tell)?;
        let open: Vec<usize> = (0..entries.len()).filter(|&at| outcomes[at].is_none()).collect();
        let mut rounds = 0;
        let winner = match yardstick {
            Yardstick::Time(clock) => {
                let raced = self.race(subject, *clock, &open, &entries)?;
                rounds = raced.rounds;
                open.iter().zip(&raced.times).for_each(|(&at, &time)| outcomes[at] = Some(Outcome::Time(time)));
                raced.winner.map_or(own, |winner| open[winner])
            }
            Yardstick::Count(_) => {
                open.iter().for_each(|&at| outcomes[at] = Some(Outcome::Counted(counts[at])));
                let predicted = |at: usize| self.field.candidates[at].predicted.map(|predicted| predicted.micros);
                let is_predicted = open.iter().all(|&at| predicted(at).is_some());
                let cost = |at: usize| predicted(at).filter(|_| is_predicted).unwrap_or(counts[at] as f64);
                open.iter().copied().min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(own)
            }
        };
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::LeftOut)).collect();
        let mut entry = Entry {
            bits: self.tuning.options.bits,
            order: orders[winner].clone(),
            candidates: open.len() as u64,
            ..entries[winner].clone()
        };
        match outcomes[winner] {
            Outcome::Time(nanos) => entry.measured_us = Some(rounded(nanos / 1e3)),
            Outcome::Counted(instructions) => entry.counted = Some(instructions),
            _ => {}
        }
        self.put(&entry);
        subject.rebuild()?;
        let Trial { sought, key, field, .. } = self;
        let candidates = field.candidates.clone().into_iter().zip(outcomes).collect();
        Ok(Tried { sought, key, candidates, winner, entry, field, rounds })
    }

    /// Has the tuner's lockfile say an entry, beside what was chosen before.
    fn put(&self, entry: &Entry) {
        let mut lockfile = self.chosen.clone();
        lockfile.insert(self.key.clone(), entry.clone());
        self.tuning.lock.set(lockfile);
    }

    /// Puts an earlier choice in front, and gives the place of the way without one.
    fn incumbent_first(&mut self) -> usize {
        let Some(known) = self.tuning.known.get(&self.key) else { return 0 };
        let is_known = |candidate: &Candidate| {
            let entry = entry_of(candidate);
            (&entry.config, &entry.plan) == (&known.config, &known.plan)
        };
        match self.field.candidates.iter().position(is_known) {
            Some(at) if at > 0 => {
                self.field.candidates[..=at].rotate_right(1);
                1
            }
            _ => 0,
        }
    }

    /// Compiles the candidates that are tried. Gives the class of the order of each one's sums, and what became of those that are not tried further.
    fn compiled(
        &self,
        entries: &[Entry],
        own: usize,
        compile: Compile<'_>,
    ) -> Result<(Vec<String>, Vec<Option<Outcome>>), TuneError> {
        // Ways stand in the order of what they should take even where nobody knows the product's clock.
        let is_ordered =
            self.sought == Sought::Way || self.field.candidates.iter().any(|candidate| candidate.predicted.is_some());
        let most = self.tuning.options.most;
        let tried: Vec<usize> = (0..entries.len()).filter(|&at| !is_ordered || at < most || at == own).collect();
        let made = compile(&tried.iter().map(|&at| &entries[at]).collect::<Vec<_>>())?;
        let mut outcomes = vec![Some(Outcome::LeftOut); entries.len()];
        let mut orders = vec![String::new(); entries.len()];
        let mut seen: Vec<(Vec<[u8; 32]>, usize)> = Vec::new();
        let mut count = 0;
        for (at, made) in tried.into_iter().zip(made) {
            outcomes[at] = match made {
                Err(error) if at == own => return Err(error.into()),
                Err(error) => Some(Outcome::Refused(error.to_string())),
                Ok(made) => {
                    orders[at] = made.order;
                    let same =
                        seen.iter().find(|(programs, _)| *programs == made.programs).map(|(_, first)| Outcome::Same(*first));
                    let outcome = same.or_else(|| (count >= most && at != own).then_some(Outcome::LeftOut));
                    if outcome.is_none() {
                        seen.push((made.programs, at));
                        count += 1;
                    }
                    outcome
                }
            };
        }
        Ok((orders, outcomes))
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
        let Judged { entries, orders, own } = *judged;
        let Tuning { suite, options, recover, .. } = self.tuning;
        let stable = options.bits == Bits::Stable;
        let kernel = || self.key.kernel.clone();
        if stable && !is_fixed_order(&orders[own]) {
            return Err(TuneError::NoOrder { kernel: kernel(), order: orders[own].clone() });
        }
        let mut counts = vec![0; entries.len()];
        let mut digests: Vec<Option<u64>> = vec![None; entries.len()];
        let gate_options = GateOptions { seeds: 1, suite_seed: options.seed, tolerance: None, specials: false };
        // The way without a choice goes first: others are held against its bits.
        for at in std::iter::once(own).chain((0..entries.len()).filter(|&at| at != own)) {
            if outcomes[at].is_some() {
                continue;
            }
            self.put(&entries[at]);
            let report = subject.rebuild().and_then(|()| gate::check(subject, gate_options));
            let wrong = match report {
                Ok(report) if report.passed() => {
                    digests[at] = Some(report.output_digest);
                    None
                }
                Ok(report) => Some(Outcome::Wrong(report.reason.unwrap_or_else(|| report.status.to_string()))),
                // What is left running on a chip has it until the process ends, and whoever asks the chip waits for that.
                Err(fault) if fault.status == Status::Timeout => return Err(fault.into()),
                Err(fault) if suite.is_lost() && !recover() => return Err(fault.into()),
                Err(fault) if fault.status.is_wrong() || fault.status == Status::RuntimeError => {
                    Some(Outcome::Failed(fault.message))
                }
                Err(fault) => Some(Outcome::Refused(fault.message)),
            };
            if let (Some(Outcome::Wrong(why) | Outcome::Failed(why) | Outcome::Refused(why)), true) = (&wrong, at == own) {
                return Err(TuneError::Wrong { kernel: kernel(), why: why.clone() });
            }
            if let Some(Outcome::Wrong(_) | Outcome::Failed(_)) = wrong {
                // It may have written into the guards, of which others are not accused.
                self.put(&entries[own]);
                subject.relocate(Place { fresh: false, key: 0 })?;
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

    fn race(&self, subject: &mut dyn Subject, clock: &dyn Clock, open: &[usize], entries: &[Entry]) -> Result<Raced, TuneError> {
        let mut launches: Vec<Option<usize>> = vec![None; open.len()];
        race(open.len(), self.tuning.options.race, |runner| {
            self.put(&entries[open[runner]]);
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

fn entry_of(candidate: &Candidate) -> Entry {
    Entry {
        config: candidate.config.clone(),
        plan: candidate.plan.as_ref().filter(|_| candidate.is_planned).map(|plan| plan.text.clone()),
        predicted_us: candidate.predicted.map(|predicted| rounded(predicted.micros)),
        ..Entry::default()
    }
}

/// Four digits: more are not known.
fn rounded(micros: f64) -> f64 {
    format!("{micros:.3e}").parse().unwrap_or(micros)
}
