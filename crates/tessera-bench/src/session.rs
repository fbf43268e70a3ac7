//! A run: every case through gate, timing and judgement, written down as it happens.
//!
//! ```text
//! for each group of cases:
//!     build -> gate -> (passed)            a failure at any stage is a row with its reason
//!     time all that passed, in common randomised rounds
//!     check what the timed launches left -> hold against the ceilings -> summary
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::case::{CaseKey, Fault, Poison, Subject};
use crate::ceiling::{Ceilings, ProbeOptions};
use crate::clock::{Clock, ClockFacts};
use crate::environment::{Accelerator, Environment};
use crate::gate::{self, CheckResult, GateOptions, GateReport};
use crate::hierarchy::between_processes;
use crate::random::{Random, mix};
use crate::record::{
    BlockRecord, CaseRecord, EndRecord, GateRecord, Record, SCHEMA, SessionRecord, SummaryRecord, Tool, Versus, utc,
};
use crate::sample::{Entrant, Mode, Moment, Plan, Sampler, Timed};
use crate::stats::{Summary, TimedBlock, median, paired_ratio};
use crate::status::{Flag, Status};
use crate::store::{Results, StoreError};
use crate::suite::{CaseSpec, Suite, fair_order, groups, suite_hash};

/// How to run a suite.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The effort.
    pub mode: Mode,
    /// From which inputs are derived.
    pub seed: u64,
    /// From which the order of rows and places in memory are derived.
    pub order: u64,
    /// Which process of the figures this is: the first one takes every seed through the gate, later ones the one that is timed.
    pub process: usize,
    /// How many cases, in the order of the run, are timed beside their baselines; the rest are checked alone. All by default.
    pub timed: Option<usize>,
    /// No further group is begun after this.
    pub time_limit: Option<Duration>,
    /// Memory that may be used; by default what the system can still give.
    pub memory_limit: Option<u64>,
    /// The device's name.
    pub device: String,
    /// The command line, for the record.
    pub argv: Vec<String>,
    /// Settings that influence speed, for the record.
    pub knobs: BTreeMap<String, String>,
    /// Seconds since 1970.
    pub now: u64,
}

/// What has just happened, for a progress bar.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// So many rows are to be run, which takes about so long where that is known.
    Begin(usize, Option<Duration>),
    /// The ceilings are being measured.
    Ceilings,
    /// A row is being built and checked: its number, of how many, and what it is.
    Checking(usize, usize, &'a CaseSpec, &'a str),
    /// Some rows are being timed.
    Timing(usize),
    /// A row is finished.
    Finished(&'a CaseSpec, &'a SummaryRecord),
}

/// Takes each record as it is made.
pub type Sink<'a> = &'a mut dyn FnMut(Record) -> Result<(), StoreError>;

/// Runs `suite` on `clock`, sending records to `sink`. Rows that `previous` has are not run again.
pub fn run(
    suite: &dyn Suite,
    options: &RunOptions,
    clock: &dyn Clock,
    previous: Option<&Results>,
    sink: Sink<'_>,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<EndRecord, StoreError> {
    let environment = Environment::detect();
    let facts = suite.device_clock().unwrap_or_else(|| ClockFacts::measure(clock));
    let floor_ns = launch_floor(suite, clock).unwrap_or(facts.floor_ns);
    let cases = suite.cases();
    // A run that is continued keeps its order, so that the cases it has are a prefix.
    let earlier = previous.map(Results::session).map(|session| session.order.unwrap_or(session.seed));
    let order_seed = earlier.unwrap_or(options.order);
    let keys: Vec<&CaseKey> = cases.iter().map(|case| &case.key).collect();
    // Which cases are timed is the same in every run, the order in which they are is not.
    let timed: BTreeSet<usize> = fair_order(&keys, options.seed).into_iter().take(options.timed.unwrap_or(cases.len())).collect();
    let (order, untimed): (Vec<usize>, Vec<usize>) = fair_order(&keys, order_seed).into_iter().partition(|at| timed.contains(at));
    let mut session = session_record(suite, options, environment, facts, floor_ns);
    session.order = Some(order_seed);
    // Beside what is not timed stands nothing, but where no time means anything: there all are checked.
    let rows_of = |case: &CaseSpec, timed: bool| if timed || !suite.has_time() { case.implementations.len() } else { 1 };
    let planned = |cases_of: &[usize], timed: bool| cases_of.iter().map(|&i| rows_of(&cases[i], timed)).sum::<usize>();
    session.planned = planned(&order, true) + planned(&untimed, false);
    let mut end = EndRecord { planned: session.planned, ..EndRecord::default() };
    let done = match previous {
        Some(results) => {
            results.resumable_by(&session)?;
            let done = results.finished_by(options.process);
            for (row, summary) in results.rows.iter().filter_map(|row| Some((row, row.summary.as_ref()?))) {
                if done.contains(&(row.case.case.clone(), row.case.implementation.clone())) {
                    end.run += 1;
                    *end.by_status.entry(summary.status).or_default() += 1;
                }
            }
            done
        }
        None => BTreeSet::new(),
    };
    let earlier = previous.map(|results| results.blocks_before(options.process)).unwrap_or_default();
    // What an earlier run did not come back from is run by itself, so that it is known which row it was.
    let suspects = previous.map(Results::unfinished).unwrap_or_default();
    let largest = cases.iter().map(|c| c.work.min_bytes()).max().unwrap_or(0);
    let probe = ProbeOptions::for_cases(session.last_level_bytes(), largest);
    sink(Record::Session(Box::new(session.clone())))?;
    let timed_rows = planned(&order, true);
    let expected = options.mode.plan().row_time.filter(|_| suite.has_time());
    observe(Progress::Begin(session.planned - end.run, expected.map(|each| each * timed_rows.saturating_sub(end.run) as u32)));
    observe(Progress::Ceilings);
    let ceilings = if suite.has_time() { suite.ceilings(probe) } else { Ceilings::default() };
    sink(Record::Ceilings(ceilings.clone()))?;

    let started = clock.now_ns();
    let rows = session.planned - end.run;
    let mut runner =
        Runner { suite, options, clock, facts, session, ceilings, probe, sink, observe, end, started, rows, earlier };
    let grouped = |order: &[usize], timed: bool| groups(cases, order, suite.group_bytes()).into_iter().map(move |g| (g, timed));
    for (group, timed) in grouped(&order, true).chain(grouped(&untimed, false)) {
        let late = |limit: Duration| clock.now_ns() - started > limit.as_nanos() as f64;
        if let Some(limit) = options.time_limit.filter(|&limit| late(limit)) {
            runner.end.reason = Some(format!("the time limit of {} s was reached", limit.as_secs_f64()));
            break;
        }
        let wanted = group.iter().flat_map(|&i| {
            let names = cases[i].implementations.iter().take(rows_of(&cases[i], timed));
            names.map(move |name| (&cases[i], name.as_str()))
        });
        let open: Vec<(&CaseSpec, &str)> =
            wanted.filter(|(case, name)| !done.contains(&(case.key.id(), name.to_string()))).collect();
        let (alone, together): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(case, name)| suspects.contains(&(case.key.id(), name.to_string())));
        for rows in alone.chunks(1).chain([together.as_slice()]) {
            if timed {
                runner.group(rows)?
            } else {
                runner.check(rows)?
            }
            if suite.is_lost() {
                // No end is written: another process has to go on, with the rows that have no outcome.
                runner.end.reason = Some("the device, or a team of ranks, was lost to a fault".into());
                return Ok(runner.end);
            }
        }
    }
    let end = runner.end;
    (runner.sink)(Record::End(end.clone()))?;
    Ok(end)
}

fn session_record(
    suite: &dyn Suite,
    options: &RunOptions,
    environment: Environment,
    facts: ClockFacts,
    floor_ns: f64,
) -> SessionRecord {
    let cases = suite.cases();
    let accelerator = suite.accelerator();
    SessionRecord {
        schema: SCHEMA.into(),
        id: format!("{:016x}", Random::new(options.now ^ u64::from(std::process::id()) << 40).next_u64()),
        start: utc(options.now),
        tool: Tool::current(),
        suite: suite.name().into(),
        suite_hash: suite_hash(cases),
        seed: options.seed,
        order: None,
        process: options.process,
        mode: options.mode,
        device: options.device.clone(),
        argv: options.argv.clone(),
        knobs: options.knobs.clone(),
        fingerprint: accelerator.as_ref().map_or_else(|| environment.fingerprint(), Accelerator::fingerprint),
        environment,
        accelerator,
        tick_ns: facts.tick_ns,
        floor_ns,
        planned: 0,
    }
}

/// The median time of an empty launch.
fn launch_floor(suite: &dyn Suite, clock: &dyn Clock) -> Option<f64> {
    let mut launch = suite.empty_launch()?;
    let times: Vec<f64> = (0..500)
        .map(|_| {
            let start = clock.now_ns();
            launch();
            clock.now_ns() - start
        })
        .collect();
    Some(median(&times[100..]))
}

struct Runner<'a> {
    suite: &'a dyn Suite,
    options: &'a RunOptions,
    clock: &'a dyn Clock,
    facts: ClockFacts,
    session: SessionRecord,
    ceilings: Ceilings,
    probe: ProbeOptions,
    sink: Sink<'a>,
    observe: &'a mut dyn FnMut(Progress<'_>),
    end: EndRecord,
    /// When the first row was begun.
    started: f64,
    /// Rows that this process has to run.
    rows: usize,
    /// What earlier processes measured, by case and implementation.
    earlier: BTreeMap<(String, String), Vec<TimedBlock>>,
}

/// A subject that passed its gate.
struct Live<'a> {
    case: &'a CaseSpec,
    name: &'a str,
    subject: Box<dyn Subject>,
    report: GateReport,
}

/// What remains of a subject when its tensors are gone.
struct Checked<'a> {
    case: &'a CaseSpec,
    name: &'a str,
    report: GateReport,
}

impl Runner<'_> {
    /// Takes rows through the gate alone.
    fn check(&mut self, open: &[(&CaseSpec, &str)]) -> Result<(), StoreError> {
        for &(case, name) in open {
            (self.observe)(Progress::Checking(self.end.run + 1, self.end.planned, case, name));
            let row = match self.prepare(case, name)? {
                Ok(_) => summary(case, name, Status::Checked, None),
                Err(fault) => summary(case, name, fault.status, Some(fault.message)),
            };
            self.finish(case, row)?;
            if self.suite.is_lost() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn group(&mut self, open: &[(&CaseSpec, &str)]) -> Result<(), StoreError> {
        let mut live = Vec::new();
        for &(case, name) in open {
            (self.observe)(Progress::Checking(self.end.run + live.len() + 1, self.end.planned, case, name));
            match self.prepare(case, name)? {
                Ok(subject) => live.push(subject),
                Err(fault) => self.finish(case, summary(case, name, fault.status, Some(fault.message)))?,
            }
            if self.suite.is_lost() {
                return Ok(());
            }
        }
        if live.is_empty() {
            return Ok(());
        }
        (self.observe)(Progress::Timing(live.len()));
        let range = live.first().and_then(|first| self.suite.range(&format!("time {}", first.case.key)));
        let measured = self.time(&mut live);
        drop(range);
        // Of several rows that were timed in turn, it is not known which one lost the device.
        if self.suite.is_lost() && live.len() > 1 {
            return Ok(());
        }
        self.judge(live, measured)
    }

    /// Builds and checks one subject. The outer error is the file's, the inner one the row's.
    fn prepare<'c>(&mut self, case: &'c CaseSpec, name: &'c str) -> Result<Result<Live<'c>, Fault>, StoreError> {
        let built = self.fits(case).and_then(|()| self.suite.build(case, name));
        let (config, phases) = built.as_ref().map_or((String::new(), Vec::new()), |s| (s.config(), s.phases()));
        (self.sink)(Record::Case(Box::new(CaseRecord {
            case: case.key.id(),
            implementation: name.into(),
            key: case.key.clone(),
            work: case.work.clone(),
            config,
            phases,
        })))?;
        let mut subject = match built {
            Ok(subject) => subject,
            Err(fault) => return Ok(Err(fault)),
        };
        let seeds = if self.suite.has_time() { self.options.mode.plan().seeds } else { 1 };
        let options = match self.options.process {
            0 => GateOptions { seeds, suite_seed: self.options.seed, tolerance: None, specials: false },
            _ => GateOptions { seeds: 1, suite_seed: self.options.seed + seeds as u64 - 1, tolerance: None, specials: false },
        };
        let range = self.suite.range(&format!("check {} {name}", case.key));
        let report = gate::check(subject.as_mut(), options);
        drop(range);
        let report = match report {
            Ok(report) => report,
            Err(fault) => return Ok(Err(fault)),
        };
        (self.sink)(gate_record(case, name, report.clone()))?;
        if report.passed() {
            Ok(Ok(Live { case, name, subject, report }))
        } else {
            Ok(Err(Fault::new(report.status, report.reason.unwrap_or_default())))
        }
    }

    /// Memory that is still there.
    fn memory(&self) -> Option<u64> {
        self.options.memory_limit.or_else(|| self.suite.available_bytes())
    }

    /// The mode's plan, with the time that the next rows may take of what is left for all.
    fn plan(&self, rows: usize) -> Plan {
        let mut plan = self.options.mode.plan();
        if let Some(each) = plan.row_time {
            let each = each.as_nanos() as f64;
            let done = self.rows - (self.session.planned - self.end.run).min(self.rows);
            let ahead = each * (done + rows) as f64 - (self.clock.now_ns() - self.started);
            // Between a third of a row's time and the mode's most.
            let own = (ahead / rows as f64).clamp(each / 3.0, plan.max_time.as_nanos() as f64);
            plan.fair_time = Duration::from_nanos(own as u64);
        }
        plan
    }

    fn fits(&self, case: &CaseSpec) -> Result<(), Fault> {
        let needed = case.work.tensor_bytes.saturating_add(case.work.tensor_bytes / 10 * 3).saturating_add(64 << 20);
        match self.memory() {
            Some(there) if needed > there => {
                let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
                Err(Fault::new(Status::Skipped, format!("needs {:.1} GiB of memory, {:.1} are free", gib(needed), gib(there))))
            }
            _ => Ok(()),
        }
    }

    /// Times all subjects together; around one random block of each stage, outputs are poisoned before and checked after.
    fn time(&self, live: &mut [Live<'_>]) -> Vec<Result<Timed, Fault>> {
        let reports: Vec<GateReport> = live.iter().map(|l| l.report.clone()).collect();
        let on_device = self.session.accelerator.is_some();
        let mut sampler = Sampler {
            clock: self.clock,
            facts: self.facts,
            plan: self.plan(live.len()),
            spread: &|ns| between_processes(on_device, ns),
            random: Random::new(self.session.order.unwrap_or(0) ^ mix(self.end.run as u64)),
        };
        let memory = self.memory();
        let ids: Vec<String> = live.iter().map(|l| l.case.key.id()).collect();
        let number = |id: &String| ids.iter().position(|own| own == id).unwrap_or(0);
        let mut entrants: Vec<Entrant<'_>> = live
            .iter_mut()
            .zip(&ids)
            .map(|(l, id)| Entrant {
                movable: memory.is_none_or(|there| l.case.work.tensor_bytes.saturating_add(64 << 20) <= there),
                case: number(id),
                subject: l.subject.as_mut(),
            })
            .collect();
        let mut inspect = |index: usize, subject: &mut dyn Subject, moment: Moment| match moment {
            Moment::Before => subject.poison(Poison::Ones),
            Moment::After if subject.repeatable() => verify_timed(subject, &reports[index]),
            Moment::After => Ok(()),
        };
        let measured = sampler.measure(&mut entrants, &mut inspect);
        // Results that pile up cannot be checked after a block: one more launch on fresh content stands for them.
        let last = |(index, outcome): (usize, Result<Timed, Fault>)| {
            let timed = outcome?;
            let subject = &mut *entrants[index].subject;
            if !subject.repeatable() {
                subject.poison(Poison::Ones)?;
                subject.launch()?;
            }
            verify_timed(subject, &reports[index])?;
            Ok(timed)
        };
        measured.into_iter().enumerate().map(last).collect()
    }

    fn judge(&mut self, live: Vec<Live<'_>>, measured: Vec<Result<Timed, Fault>>) -> Result<(), StoreError> {
        // The tensors go first: judging may measure the ceilings again.
        let checked: Vec<Checked<'_>> =
            live.into_iter().map(|Live { case, name, report, .. }| Checked { case, name, report }).collect();
        let mut rows: Vec<(&CaseSpec, SummaryRecord, Vec<TimedBlock>)> = Vec::new();
        for (Checked { case, name, mut report }, outcome) in checked.into_iter().zip(measured) {
            let row = match outcome {
                Ok(mut timed) => {
                    let check = CheckResult { name: "timed_output".into(), ok: true, detail: None };
                    report.checks.push(check);
                    for (i, block) in timed.blocks.iter().enumerate() {
                        (self.sink)(Record::Block(BlockRecord {
                            case: case.key.id(),
                            implementation: name.into(),
                            i,
                            start_ns: block.start_ns,
                            samples_ns: block.samples_ns.clone(),
                            device: block.device,
                            place: block.place,
                            process: self.options.process,
                        }))?;
                    }
                    timed.blocks.iter_mut().for_each(|block| block.process = self.options.process);
                    let mut blocks = self.earlier.remove(&(case.key.id(), name.to_string())).unwrap_or_default();
                    blocks.append(&mut timed.blocks);
                    timed.blocks = blocks;
                    (case, self.row(case, name, &timed, &report)?, timed.blocks)
                }
                Err(fault) => {
                    let detail = Some(fault.message.clone());
                    report.checks.push(CheckResult { name: "timed_output".into(), ok: false, detail });
                    report.status = fault.status;
                    report.reason = Some(fault.message.clone());
                    (case, summary(case, name, fault.status, Some(fault.message)), Vec::new())
                }
            };
            (self.sink)(gate_record(case, name, report))?;
            rows.push(row);
        }
        for i in 0..rows.len() {
            rows[i].1.versus = versus(&rows, i);
        }
        rows.into_iter().try_for_each(|(case, row, _)| self.finish(case, row))
    }

    /// Turns a measurement into its row: summary, ceilings, refusal.
    fn row(&mut self, case: &CaseSpec, name: &str, timed: &Timed, report: &GateReport) -> Result<SummaryRecord, StoreError> {
        let on_device = self.session.accelerator.is_some();
        let Some(times) = Summary::of(&timed.blocks, self.facts.tick_ns, &|ns| between_processes(on_device, ns)) else {
            return Ok(summary(case, name, Status::HarnessError, Some("no sample was taken".into())));
        };
        let mut row = summary(case, name, Status::Ok, None);
        if self.ceilings.refuse(&case.work, times.median_ns).is_some() {
            // Perhaps the ceiling was measured in a bad moment.
            self.ceilings.raise(&self.suite.ceilings(self.probe));
            (self.sink)(Record::Ceilings(self.ceilings.clone()))?;
            row.flags.push(Flag::ProbeStale);
        }
        if let Some(why) = self.ceilings.refuse(&case.work, times.median_ns) {
            row.status = Status::OverPeak;
            row.reason = Some(why);
            return Ok(row);
        }
        if !timed.converged {
            row.status = Status::NotConverged;
            row.reason = Some(match timed.reached {
                Some(reached) => format!("the 99 % interval is +-{:.1} % after {} blocks", reached * 100.0, times.n_blocks),
                None => format!("time was up after {} blocks, too few for a 99 % interval", times.n_blocks),
            });
        }
        if timed.throttled {
            row.status = Status::Throttled;
            row.reason = Some("heat, hardware or the power supply held the clock down in block after block".into());
        }
        let attainable = self.ceilings.attainable(&case.work, self.session.floor_ns);
        row.flags.extend(self.flags(case, &times, report));
        row.flags.extend(timed.by_ratio.then_some(Flag::ByRatio));
        if timed.blocks.iter().any(|block| block.device.is_some_and(|state| state.is_power_capped())) {
            row.flags.push(Flag::PowerCapped);
        }
        row.batch = Some(timed.batch);
        row.first_launch_ns = Some(timed.first_launch_ns);
        row.bytes_s = Some(case.work.min_bytes() as f64 / times.median_ns * 1e9);
        row.bus_bytes_s = row.bytes_s.zip(case.key.bus_factor()).map(|(rate, factor)| rate * factor);
        row.flops_s = Some(case.work.flops as f64 / times.median_ns * 1e9);
        row.efficiency = attainable.map(|a| a.ns / times.median_ns);
        row.bound = attainable.map(|a| a.bound);
        row.times = Some(times);
        Ok(row)
    }

    fn flags(&self, case: &CaseSpec, times: &Summary, report: &GateReport) -> Vec<Flag> {
        let last_level = self.session.last_level_bytes();
        let drifts = times.drift_pct_s.is_some_and(|d| d.abs() > 1.0) && times.rho1.is_some_and(|r| r > 0.7);
        let all = [
            (times.median_ns < 3.0 * self.session.floor_ns, Flag::LatencyBound),
            (last_level > 0 && case.work.min_bytes() <= last_level, Flag::CacheResident),
            (times.bimodal, Flag::Bimodal),
            (drifts, Flag::Drift),
            (report.elements >= 64 && report.bias.is_some_and(|b| b.abs() > 0.5), Flag::Biased),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, flag)| flag).collect()
    }

    fn finish(&mut self, case: &CaseSpec, row: SummaryRecord) -> Result<(), StoreError> {
        self.end.run += 1;
        *self.end.by_status.entry(row.status).or_default() += 1;
        (self.observe)(Progress::Finished(case, &row));
        (self.sink)(Record::Summary(Box::new(row)))
    }
}

fn verify_timed(subject: &dyn Subject, report: &GateReport) -> Result<(), Fault> {
    let check = gate::check_timed(subject, report)?;
    if check.ok { Ok(()) } else { Err(Fault::new(Status::Incorrect, check.detail.unwrap_or_default())) }
}

fn gate_record(case: &CaseSpec, name: &str, report: GateReport) -> Record {
    Record::Gate(Box::new(GateRecord { case: case.key.id(), implementation: name.into(), report }))
}

fn summary(case: &CaseSpec, name: &str, status: Status, reason: Option<String>) -> SummaryRecord {
    SummaryRecord::untimed(&case.key.id(), name, status, reason)
}

/// Medians of two subjects' blocks of the same process and round.
fn together(a: &[TimedBlock], b: &[TimedBlock]) -> (Vec<f64>, Vec<f64>) {
    let of = |blocks: &[TimedBlock]| -> BTreeMap<(usize, usize), f64> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let numbered = blocks.iter().map(|block| {
            let count = counts.entry(block.process).or_default();
            *count += 1;
            ((block.process, *count), median(&block.samples_ns))
        });
        numbered.collect()
    };
    let (a, b) = (of(a), of(b));
    a.iter().filter_map(|(place, a)| Some((*a, *b.get(place)?))).unzip()
}

/// The ratio of row `i` to the fastest other valid implementation of its case; only the case's product gets one. It comes from
/// blocks that took turns, so it stands where times themselves drift.
fn versus(rows: &[(&CaseSpec, SummaryRecord, Vec<TimedBlock>)], i: usize) -> Option<Versus> {
    let (case, row, blocks) = &rows[i];
    if !row.status.has_time() || case.implementations.first() != Some(&row.implementation) {
        return None;
    }
    let time = |row: &SummaryRecord| row.times.as_ref().map_or(f64::INFINITY, |t| t.median_ns);
    let valid = |r: &SummaryRecord| r.status.has_time() && r.case == row.case && r.implementation != row.implementation;
    let best = rows.iter().filter(|(_, r, _)| valid(r)).min_by(|a, b| time(&a.1).total_cmp(&time(&b.1)))?;
    let (theirs, ours) = together(&best.2, blocks);
    Some(Versus { baseline: best.1.implementation.clone(), ratio: paired_ratio(&theirs, &ours)? })
}
