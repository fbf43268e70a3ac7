//! One pair of sittings: both are seated, take turns row by row, and leave one number a row.

use serde::{Deserialize, Serialize};

use super::side::{About, Ask, Lost, Offer, Readiness, Side, Sitting};
use super::{Duel, DuelError, DuelProgress, DuelRecord, Row, RowOutcome};
use crate::case::{Fault, Pace, Place};
use crate::compare::Verdict;
use crate::stats::{lower_quartile, median};
use crate::status::Status;

/// Rounds of a pair, each with a block of either side for every row: half of them before the rows move to other memory.
const ROUNDS: usize = 8;
/// The same where rows are few and time is left.
const MOST_ROUNDS: usize = 64;
/// How often rows are moved to fresh memory in a pair.
const PLACES: usize = 2;
/// Below so many times an empty launch, launches are timed in a steady row.
const NEAR_FLOOR: f64 = 3.0;
/// A change of time smaller than this matters in no row.
const LEAST_NS: f64 = 200.0;
/// What a block costs beside its launches.
const OVERHEAD_NS: f64 = 3e5;
/// Launches that are timed in a block, as far as one takes no longer.
const BLOCK_NS: f64 = 1.5e6;
/// Launches before them, unless one takes longer than a block.
const WARM_NS: f64 = 2e5;

/// One pair, for the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRecord {
    /// Its number.
    pub pair: usize,
    /// Which side was seated first.
    pub first: usize,
    /// What it took.
    pub seconds: f64,
    /// Its rows.
    pub rows: Vec<PairRow>,
}

/// One row of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRow {
    /// Hash of the case.
    pub case: String,
    /// What the pair says of `ln(b / a)`.
    pub log: f64,
    /// Time of a launch in each block of either side, in the order of rounds: the median of its samples, on the CPU the least.
    pub blocks_ns: [Vec<f64>; 2],
    /// Clock of the device's multiprocessors in MHz, the median over blocks of either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mhz: Option<[f64; 2]>,
}

/// Why a pair does not count.
pub(super) enum Stop {
    Lost(Lost),
    Error(DuelError),
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Stop {
        Stop::Lost(lost)
    }
}

/// How blocks become numbers.
///
/// A GPU is ours alone while it runs a launch, and its clock moves both ways: medians of samples, and of ratios of neighbouring
/// blocks. Processors are shared with whatever else runs, which only ever adds time: the least sample of a block, and the
/// lower quartile of blocks, are a process's own. (On two cores with fifteen processes that want them, medians of eight blocks
/// differed by 11 to 58 % from one eight to the next, lower quartiles of least samples by 2 to 11 %.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Median,
    Least,
}

impl Figure {
    fn of_block(self, samples_ns: &[f64]) -> f64 {
        match self {
            Figure::Median => median(samples_ns),
            Figure::Least => samples_ns.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }

    /// The time that blocks of one side stand for.
    fn of_side(self, blocks_ns: &[f64]) -> f64 {
        match self {
            Figure::Median => median(blocks_ns),
            Figure::Least => lower_quartile(blocks_ns),
        }
    }

    fn log_ratio(self, [a, b]: &[Vec<f64>; 2]) -> f64 {
        match self {
            Figure::Median => median(&a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect::<Vec<_>>()),
            Figure::Least => (lower_quartile(b) / lower_quartile(a)).ln(),
        }
    }
}

/// How a row's blocks are timed, the same throughout a duel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowPlan {
    pub(super) pace: Pace,
    pub(super) samples: usize,
    pub(super) launches: usize,
    pub(super) warm_ns: f64,
    pub(super) block_ns: f64,
    /// What the clock's step leaves open of a ratio.
    pub(super) resolution: f64,
}

impl RowPlan {
    /// A block of one or two milliseconds: samples of at least 50 us and 200 steps of the clock.
    fn of(sides: [Readiness; 2], figure: Figure) -> RowPlan {
        let on_device = figure == Figure::Median;
        let launch_ns = sides[0].estimate_ns.min(sides[1].estimate_ns).max(1.0);
        let tick_ns = sides[0].tick_ns.max(sides[1].tick_ns);
        let near_floor = on_device && launch_ns < NEAR_FLOOR * sides[0].floor_ns.max(sides[1].floor_ns);
        let pace = if near_floor { Pace::Steady } else { Pace::Isolated };
        let sample_ns = if near_floor { 2e5 } else { 5e4f64.max(200.0 * tick_ns) };
        let launches = match (near_floor, on_device) {
            (true, _) => (sample_ns / launch_ns).ceil().clamp(16.0, 100.0) as usize,
            (false, true) => 1,
            (false, false) => (sample_ns / launch_ns).ceil().clamp(1.0, 1e6) as usize,
        };
        let sample_ns = launch_ns * launches as f64;
        let samples = (BLOCK_NS / sample_ns.max(5e4)).clamp(1.0, 30.0) as usize;
        let warm_ns = if launch_ns > BLOCK_NS { 0.0 } else { WARM_NS };
        RowPlan {
            pace,
            samples,
            launches,
            warm_ns,
            block_ns: warm_ns + samples as f64 * sample_ns + OVERHEAD_NS,
            resolution: tick_ns / sample_ns / 12f64.sqrt(),
        }
    }

    fn ask(&self, row: usize) -> Ask {
        Ask { row, pace: self.pace, samples: self.samples, launches: self.launches, warm_ns: self.warm_ns }
    }
}

/// Both sittings of a pair.
struct Seats<'s> {
    sittings: [Box<dyn Sitting + 's>; 2],
    first: usize,
}

impl Seats<'_> {
    /// Both, in the order in which they were seated.
    fn in_turn(&mut self) -> impl Iterator<Item = (usize, &mut dyn Sitting)> {
        let [a, b] = &mut self.sittings;
        let mut both: Vec<(usize, &mut dyn Sitting)> = vec![(0, a.as_mut()), (1, b.as_mut())];
        if self.first == 1 {
            both.swap(0, 1);
        }
        both.into_iter()
    }
}

impl Duel<'_> {
    /// Measures one pair. The first one takes rows through the gate.
    pub(super) fn pair(
        &mut self,
        a: &mut dyn Side,
        b: &mut dyn Side,
        observe: &mut dyn FnMut(DuelProgress<'_>),
    ) -> Result<PairRecord, Stop> {
        let begin = self.clock.now_ns();
        let first = self.random.below(2);
        let mut seats = if first == 0 {
            let left = a.sit()?;
            Seats { sittings: [left, b.sit()?], first }
        } else {
            let right = b.sit()?;
            Seats { sittings: [a.sit()?, right], first }
        };
        if self.rows.is_empty() {
            let [a, b] = &mut seats.sittings;
            let abouts = [a.about()?, b.about()?];
            self.meet(&abouts).map_err(Stop::Error)?;
            observe(DuelProgress::Met(&DuelRecord::of(abouts, self.names.clone(), &self.options)));
        }
        let mut measured = Vec::new();
        for group in self.groups() {
            let open = self.ready(&mut seats, &group)?;
            let open = if self.pairs == 0 { self.check(&mut seats, open, observe)? } else { open };
            let taken = self.take_turns(&mut seats, &open)?;
            let right = self.compare_digests(&mut seats, &open)?;
            measured.extend(taken.into_iter().zip(right).filter(|(_, right)| *right).filter_map(|(row, _)| row));
        }
        let mut rows = Vec::with_capacity(measured.len());
        for (at, row) in measured {
            let own = &mut self.rows[at];
            own.evidence.logs.push((self.pairs, row.log));
            own.outcome.pairs += 1;
            for side in 0..2 {
                own.times[side].push(self.figure.of_side(&row.blocks_ns[side]));
                own.outcome.median_ns[side] = Some(median(&own.times[side]));
            }
            rows.push(row);
        }
        let record = PairRecord { pair: self.pairs, first, seconds: (self.clock.now_ns() - begin) / 1e9, rows };
        self.pairs += 1;
        Ok(record)
    }

    /// Rows that both sides have: those of the same name, or, of two lists that share none, those in the same place.
    fn meet(&mut self, [a, b]: &[About; 2]) -> Result<(), DuelError> {
        if a.device != b.device {
            let [name_a, name_b] = self.names.clone();
            return Err(DuelError::Devices { a: name_a, on_a: a.device.clone(), b: name_b, on_b: b.device.clone() });
        }
        self.memory = [a.memory, b.memory].into_iter().flatten().min().unwrap_or(u64::MAX);
        self.figure = if a.accelerator.is_some() { Figure::Median } else { Figure::Least };
        let named_alike = |offer: &Offer| b.rows.iter().position(|own| own.case == offer.case);
        let in_order =
            a.listed && b.listed && a.rows.len() == b.rows.len() && !a.rows.iter().any(|own| named_alike(own).is_some());
        for (index, offer) in a.rows.iter().enumerate() {
            let other = if in_order { Some(index) } else { named_alike(offer) };
            let title = match other {
                Some(other) if b.rows[other].title != offer.title => format!("{}, {}", offer.title, b.rows[other].title),
                _ => offer.title.clone(),
            };
            let mut outcome = RowOutcome::new(offer.case.clone(), title, self.options.least);
            if other.is_none() {
                outcome.verdict = Verdict::Missing;
                outcome.note = Some(format!("{} does not have it", self.names[1]));
            }
            let bytes = offer.bytes.max(other.map_or(0, |other| b.rows[other].bytes));
            self.rows.push(Row::new(outcome, [index, other.unwrap_or(usize::MAX)], bytes));
        }
        let shared = self.rows.iter().filter(|row| !row.decided).count();
        for (index, offer) in b.rows.iter().enumerate() {
            if !self.rows.iter().any(|row| row.at[1] == index) {
                let mut outcome = RowOutcome::new(offer.case.clone(), offer.title.clone(), self.options.least);
                outcome.verdict = Verdict::New;
                outcome.note = Some(format!("{} does not have it", self.names[0]));
                self.rows.push(Row::new(outcome, [usize::MAX, index], offer.bytes));
            }
        }
        let [a, b] = self.names.clone();
        if shared == 0 { Err(DuelError::Disjoint { a, b }) } else { Ok(()) }
    }

    /// Open rows in groups whose tensors fit beside each other.
    fn groups(&self) -> Vec<Vec<usize>> {
        let most = self.memory / 3;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut bytes = 0u64;
        for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.decided) {
            match groups.last_mut() {
                Some(group) if bytes.saturating_add(row.bytes) <= most => {
                    group.push(at);
                    bytes += row.bytes;
                }
                _ => {
                    groups.push(vec![at]);
                    bytes = row.bytes;
                }
            }
        }
        groups
    }

    /// Has both sides build a group's rows, at the same time; rows that one of them cannot build are out.
    fn ready(&mut self, seats: &mut Seats<'_>, group: &[usize]) -> Result<Vec<usize>, Stop> {
        for (side, sitting) in seats.in_turn() {
            let theirs: Vec<usize> = group.iter().map(|&at| self.rows[at].at[side]).collect();
            sitting.prepare(&theirs)?;
        }
        let mut outcomes = [Vec::new(), Vec::new()];
        for (side, sitting) in seats.in_turn() {
            outcomes[side] = sitting.ready()?;
            if outcomes[side].len() != group.len() {
                return Err(Lost::for_good(format!("{} answers for other rows than it was asked", self.names[side])).into());
            }
        }
        let [a, b] = outcomes;
        let mut open = Vec::new();
        for ((&at, a), b) in group.iter().zip(a).zip(b) {
            match (a, b) {
                (Ok(a), Ok(b)) => {
                    let row = &mut self.rows[at];
                    if row.plan.is_none() {
                        let plan = RowPlan::of([a, b], self.figure);
                        row.evidence.resolution = plan.resolution;
                        row.outcome.pace = Some(plan.pace);
                        row.outcome.least = self.options.least.max(LEAST_NS / a.estimate_ns.min(b.estimate_ns));
                        row.plan = Some(plan);
                    }
                    open.push(at);
                }
                (a, b) => self.fail(at, [a.err(), b.err()]),
            }
        }
        Ok(open)
    }

    /// Takes rows through the gate on both sides; those that do not pass are out.
    fn check(
        &mut self,
        seats: &mut Seats<'_>,
        open: Vec<usize>,
        observe: &mut dyn FnMut(DuelProgress<'_>),
    ) -> Result<Vec<usize>, Stop> {
        let (mut passed, all) = (Vec::new(), self.rows.len());
        for at in open {
            observe(DuelProgress::Checking(at + 1, all));
            let mut faults = [None, None];
            for (side, sitting) in seats.in_turn() {
                match sitting.check(self.rows[at].at[side])? {
                    Ok(checked) if checked.report.passed() => self.rows[at].digests[side] = checked.digest,
                    Ok(checked) => {
                        faults[side] = Some(Fault::new(checked.report.status, checked.report.reason.unwrap_or_default()));
                    }
                    Err(fault) => faults[side] = Some(fault),
                }
            }
            if faults == [None, None] { passed.push(at) } else { self.fail(at, faults) }
        }
        Ok(passed)
    }

    /// Blocks of both sides in turn, row by row in an order of chance, in memory that is moved meanwhile.
    fn take_turns(&mut self, seats: &mut Seats<'_>, open: &[usize]) -> Result<Vec<Option<(usize, PairRow)>>, Stop> {
        let round_ns: f64 = open.iter().filter_map(|&at| self.rows[at].plan).map(|plan| 2.0 * plan.block_ns).sum();
        let affordable = self.options.pair_time.as_nanos() as f64 / round_ns.max(1.0);
        let rounds = (affordable as usize).clamp(ROUNDS, MOST_ROUNDS).next_multiple_of(2 * PLACES);
        let mut tracks: Vec<Track> = open.iter().map(|_| Track::new(self.random.below(2))).collect();
        for round in 0..rounds {
            if round % (rounds / PLACES) == 0 {
                for (_, sitting) in seats.in_turn() {
                    sitting.relocate(Place { fresh: true, key: self.random.next_u64() })?;
                }
                // New memory is touched, and the machine brought to work, before anything counts.
                self.round(seats, open, &mut tracks, None)?;
            }
            self.round(seats, open, &mut tracks, Some(round))?;
        }
        Ok(open.iter().zip(tracks).map(|(&at, track)| Some((at, track.row(&self.rows[at].outcome.case, self.figure)?))).collect())
    }

    /// One block of either side for every row; a round without a number only warms up.
    fn round(&mut self, seats: &mut Seats<'_>, open: &[usize], tracks: &mut [Track], number: Option<usize>) -> Result<(), Stop> {
        let mut order: Vec<usize> = (0..open.len()).collect();
        self.random.shuffle(&mut order);
        for index in order {
            let (row, track) = (&self.rows[open[index]], &mut tracks[index]);
            let Some(plan) = row.plan.filter(|_| track.fault.is_none()) else { continue };
            let begins = (track.begins + number.unwrap_or(0)) % 2;
            let mut times = [None, None];
            for side in [begins, 1 - begins] {
                let mut ask = plan.ask(row.at[side]);
                if number.is_none() {
                    ask.samples = 1;
                }
                match seats.sittings[side].block(ask)? {
                    Ok(reading) => {
                        let throttled = reading.device.is_some_and(|state| state.is_throttled());
                        let mhz = reading.device.and_then(|state| state.mhz);
                        times[side] = (!throttled && !reading.samples_ns.is_empty())
                            .then(|| (self.figure.of_block(&reading.samples_ns), mhz));
                    }
                    Err(fault) => track.fault = Some((side, fault)),
                }
            }
            // What heat or the power supply disturbed on one side says nothing of the other.
            if let (Some(a), Some(b), true) = (times[0], times[1], number.is_some()) {
                track.push(a, b);
            }
        }
        let failed: Vec<(usize, usize, Fault)> = tracks
            .iter()
            .zip(open)
            .filter(|(_, at)| !self.rows[**at].decided)
            .filter_map(|(track, &at)| track.fault.clone().map(|(side, fault)| (at, side, fault)))
            .collect();
        for (at, side, fault) in failed {
            let mut faults = [None, None];
            faults[side] = Some(fault);
            self.fail(at, faults);
        }
        Ok(())
    }

    /// Whether what each row leaves is what was judged.
    fn compare_digests(&mut self, seats: &mut Seats<'_>, open: &[usize]) -> Result<Vec<bool>, Stop> {
        let mut right = Vec::with_capacity(open.len());
        for &at in open {
            if self.rows[at].decided {
                right.push(false);
                continue;
            }
            let mut faults = [None, None];
            for (side, sitting) in seats.in_turn() {
                match sitting.digest(self.rows[at].at[side])? {
                    Ok(digest) if digest == self.rows[at].digests[side] || digest.is_none() => {}
                    Ok(_) => {
                        let message = "a later process left another result than the one that was checked";
                        faults[side] = Some(Fault::new(Status::Nondeterministic, message));
                    }
                    Err(fault) => faults[side] = Some(fault),
                }
            }
            right.push(faults == [None, None]);
            if faults != [None, None] {
                self.fail(at, faults);
            }
        }
        Ok(right)
    }

    /// A row that one side or both cannot have timed.
    fn fail(&mut self, at: usize, faults: [Option<Fault>; 2]) {
        let is_bad = |fault: &Option<Fault>| {
            let failed = |status: Status| {
                status.is_wrong() || matches!(status, Status::RuntimeError | Status::Timeout | Status::CompileError)
            };
            fault.as_ref().is_some_and(|fault| failed(fault.status))
        };
        let row = &mut self.rows[at];
        row.outcome.verdict = match (is_bad(&faults[0]), is_bad(&faults[1])) {
            (false, true) => Verdict::Broken,
            (true, false) if faults[1].is_none() => Verdict::Fixed,
            _ => Verdict::Invalid,
        };
        let told = faults.iter().zip(&self.names).filter_map(|(fault, name)| Some(format!("{name}: {}", fault.as_ref()?)));
        row.outcome.note = Some(told.collect::<Vec<_>>().join("; "));
        (row.outcome.bound, row.outcome.estimate) = (None, None);
        row.evidence.logs.clear();
        row.decided = true;
    }
}

impl Row {
    fn new(outcome: RowOutcome, at: [usize; 2], bytes: u64) -> Row {
        let decided = outcome.verdict != Verdict::Undecided;
        Row {
            outcome,
            at,
            bytes,
            plan: None,
            digests: [None, None],
            evidence: Default::default(),
            times: [Vec::new(), Vec::new()],
            decided,
        }
    }
}

impl RowOutcome {
    fn new(case: String, title: String, least: f64) -> RowOutcome {
        RowOutcome {
            case,
            title,
            verdict: Verdict::Undecided,
            estimate: None,
            bound: None,
            least,
            pairs: 0,
            median_ns: [None, None],
            pace: None,
            note: None,
        }
    }
}

/// A row's blocks within a pair.
struct Track {
    /// The side that begins in even rounds.
    begins: usize,
    blocks_ns: [Vec<f64>; 2],
    mhz: [Vec<f64>; 2],
    fault: Option<(usize, Fault)>,
}

impl Track {
    fn new(begins: usize) -> Track {
        Track { begins, blocks_ns: Default::default(), mhz: Default::default(), fault: None }
    }

    fn push(&mut self, a: (f64, Option<f64>), b: (f64, Option<f64>)) {
        for (side, (time, mhz)) in [a, b].into_iter().enumerate() {
            self.blocks_ns[side].push(time);
            self.mhz[side].extend(mhz);
        }
    }

    fn row(self, case: &str, figure: Figure) -> Option<PairRow> {
        let log = figure.log_ratio(&self.blocks_ns);
        let mhz = [median(&self.mhz[0]), median(&self.mhz[1])];
        let mhz = (!self.mhz[0].is_empty() && !self.mhz[1].is_empty()).then_some(mhz);
        log.is_finite().then(|| PairRow { case: case.to_string(), log, blocks_ns: self.blocks_ns, mhz })
    }
}
