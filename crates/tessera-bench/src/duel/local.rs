//! A sitting in this process: the rows of a suite, as a child serves them and as tests use them.

use super::side::{About, Ask, Checked, Lost, Offer, Readiness, Reading, Sitting};
use crate::case::{Fault, Lane, Pace, Place, Poison, Subject};
use crate::clock::{Clock, ClockFacts};
use crate::gate::{self, GateOptions};
use crate::random::mix;
use crate::record::Tool;
use crate::sample::{first_launches, samples};
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};

/// Seeds that the gate looks at; the inputs of the last one are timed.
const SEEDS: usize = 2;
/// Launching a row for the first time may take so long before its time is read off.
const FIRST_NS: f64 = 30e6;

/// A suite's rows, each with its product's implementation alone.
pub struct LocalSitting<'a> {
    suite: &'a dyn Suite,
    clock: &'a dyn Clock,
    facts: ClockFacts,
    seed: u64,
    device: String,
    /// Memory that this sitting's tensors may take.
    memory: Option<u64>,
    subjects: Vec<Option<Box<dyn Subject>>>,
    asked: Vec<usize>,
}

impl<'a> LocalSitting<'a> {
    /// A sitting over `suite`, with inputs of `seed`. Half of the memory that is free is left to the other side.
    pub fn new(suite: &'a dyn Suite, device: &str, clock: &'a dyn Clock, seed: u64) -> LocalSitting<'a> {
        LocalSitting {
            facts: suite.device_clock().unwrap_or_else(|| ClockFacts::measure(clock)),
            memory: suite.available_bytes().map(|bytes| bytes / 2),
            subjects: suite.cases().iter().map(|_| None).collect(),
            asked: Vec::new(),
            device: device.to_string(),
            suite,
            clock,
            seed,
        }
    }

    fn timed_seed(&self) -> u64 {
        self.seed.wrapping_add(SEEDS as u64 - 1)
    }

    fn build(&mut self, row: usize) -> Result<Readiness, Fault> {
        let case = &self.suite.cases()[row];
        // Moving a row holds its tensors twice.
        let needed = case.work.tensor_bytes.saturating_mul(2).saturating_add(64 << 20);
        if let Some(there) = self.memory.filter(|&there| needed > there) {
            let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
            let message = format!("needs {:.1} GiB of memory, {:.1} are free for each side", gib(needed), gib(there));
            return Err(Fault::new(Status::Skipped, message));
        }
        let name = case.implementations.first().map_or("", String::as_str);
        let mut subject = self.suite.build(case, name)?;
        subject.refresh(self.timed_seed(), Lane::Case)?;
        subject.poison(Poison::Ones)?;
        let (estimate_ns, _) = first_launches(self.clock, subject.as_mut(), FIRST_NS)?;
        self.subjects[row] = Some(subject);
        Ok(Readiness { estimate_ns, floor_ns: self.facts.floor_ns, tick_ns: self.facts.tick_ns })
    }

    fn subject(&mut self, row: usize) -> Result<&mut dyn Subject, Fault> {
        let there = self.subjects.get_mut(row).and_then(Option::as_mut);
        match there {
            Some(subject) => Ok(subject.as_mut()),
            None => Err(Fault::new(Status::HarnessError, format!("row {row} was not prepared"))),
        }
    }

    fn judge(&mut self, row: usize) -> Result<Checked, Fault> {
        let options = GateOptions { seeds: SEEDS, suite_seed: self.seed, tolerance: None, specials: false };
        let subject = self.subject(row)?;
        let report = gate::check(subject, options)?;
        // What the gate's last launch left is what was judged.
        let digest = if report.passed() && subject.deterministic() { Some(gate::result_digest(subject)?) } else { None };
        Ok(Checked { report, digest })
    }

    fn take(&mut self, ask: Ask) -> Result<Reading, Fault> {
        let clock = self.clock;
        let subject = self.subject(ask.row)?;
        subject.set_pace(ask.pace);
        let begin = clock.now_ns();
        while clock.now_ns() - begin < ask.warm_ns {
            subject.launch()?;
        }
        let launches = ask.launches.min(if ask.pace == Pace::Isolated { subject.most_launches() } else { usize::MAX });
        let samples_ns = samples(clock, subject, ask.samples.max(1), launches.max(1))?;
        Ok(Reading { samples_ns, device: subject.device_state() })
    }

    fn last_result(&mut self, row: usize) -> Result<Option<u64>, Fault> {
        let subject = self.subject(row)?;
        if !subject.deterministic() {
            return Ok(None);
        }
        // A result that piles up begins again from its first content, too.
        subject.poison(Poison::Ones)?;
        subject.launch()?;
        gate::result_digest(subject).map(Some)
    }

    /// A fault of one row, or the end of the sitting where the device is lost with it.
    fn settled<T>(&self, outcome: Result<T, Fault>) -> Result<Result<T, Fault>, Lost> {
        match outcome {
            Err(fault) if self.suite.is_lost() => Err(Lost::once(format!("the device was lost to a fault: {fault}"))),
            other => Ok(other),
        }
    }
}

impl Sitting for LocalSitting<'_> {
    fn about(&mut self) -> Result<About, Lost> {
        let offer = |case: &CaseSpec| Offer { case: case.key.id(), title: case.key.to_string(), bytes: case.work.tensor_bytes };
        Ok(About {
            tool: Tool::current(),
            device: self.device.clone(),
            accelerator: self.suite.accelerator(),
            listed: self.suite.is_listed(),
            memory: self.memory,
            rows: self.suite.cases().iter().map(offer).collect(),
        })
    }

    fn prepare(&mut self, rows: &[usize]) -> Result<(), Lost> {
        self.subjects.iter_mut().for_each(|subject| *subject = None);
        self.asked = rows.to_vec();
        Ok(())
    }

    fn ready(&mut self) -> Result<Vec<Result<Readiness, Fault>>, Lost> {
        let asked = std::mem::take(&mut self.asked);
        asked
            .into_iter()
            .map(|row| {
                let built = match row < self.subjects.len() {
                    true => self.build(row),
                    false => Err(Fault::new(Status::HarnessError, format!("there is no row {row}"))),
                };
                self.settled(built)
            })
            .collect()
    }

    fn check(&mut self, row: usize) -> Result<Result<Checked, Fault>, Lost> {
        let judged = self.judge(row);
        self.settled(judged)
    }

    fn relocate(&mut self, place: Place) -> Result<(), Lost> {
        for (row, subject) in self.subjects.iter_mut().enumerate() {
            let Some(subject) = subject else { continue };
            let moved = subject.relocate(Place { key: mix(place.key ^ row as u64), ..place });
            moved.map_err(|fault| Lost::once(format!("row {row} cannot be moved to fresh memory: {fault}")))?;
        }
        Ok(())
    }

    fn block(&mut self, ask: Ask) -> Result<Result<Reading, Fault>, Lost> {
        let taken = self.take(ask);
        self.settled(taken)
    }

    fn digest(&mut self, row: usize) -> Result<Result<Option<u64>, Fault>, Lost> {
        let digest = self.last_result(row);
        self.settled(digest)
    }
}
