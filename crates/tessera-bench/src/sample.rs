//! Timing: blocks of samples, in randomised rounds over all subjects of a group, until the interval is narrow.
//!
//! A *sample* is one launch, or a batch of `N` launches divided by `N` where one is too short for the clock. A *block* is a run
//! of consecutive samples of one subject; before it come untimed launches. A *round* visits every subject that is not done, in
//! random order, so that blocks of one subject lie apart in time and sides of a comparison see the same machine:
//!
//! ```text
//! round 1   B A C        A, B, C: blocks of the three subjects
//! round 2   A C B
//! ...                    after 12, 24, 48, 96 blocks: 99 % interval of the block medians narrow enough? then done
//! ```
//!
//! Looking only at fixed counts, and at a stricter interval than the one reported, keeps the reported interval honest
//! (`tests/coverage.rs`). After every few blocks a subject's tensors move to fresh memory, so that a figure is not that of one
//! lucky place.
//!
//! *Narrow enough* is measured by what the row is for. A figure is compared with that of another process, and processes of one
//! program differ ([`between_processes`](crate::between_processes)): what is known to half of that gets no surer by further blocks. A row with a baseline is
//! there for the ratio: where that is narrow, blocks that took turns have said what they can, however the machine drifts.

use std::time::Duration;

use crate::case::{Fault, Place, Poison, Subject};
use crate::clock::{Clock, ClockFacts};
use crate::random::Random;
use crate::stats::{Confidence, TimedBlock, median, median_interval};

/// How much effort a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A look: the whole quick suite in under a minute.
    Quick,
    /// A gate for changes.
    Ci,
    /// Numbers to print.
    Publish,
    /// Steps of a model that answers, which are long: 16 samples.
    Inference,
    /// Steps of a model that learns, which are longer: 8 samples.
    Training,
}

/// The constants of a mode.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Samples in a block (fewer where one launch is long).
    pub samples: usize,
    /// Numbers of blocks after which convergence is looked at; the last is the maximum.
    pub checkpoints: &'static [usize],
    /// Half-width of the 99 % interval that is narrow enough, relative to the median, where processes do not differ by more.
    pub precision: f64,
    /// Measuring time of one subject after which no further block is begun.
    pub max_time: Duration,
    /// The same for one that has as many blocks as the first look needs.
    pub fair_time: Duration,
    /// What a row may take on average, its gate included: what some leave, others may take. None where rows take what they need.
    pub row_time: Option<Duration>,
    /// Shortest sample: launches are batched up to it.
    pub min_sample: Duration,
    /// Shortest round: with few subjects, time is let pass so that blocks lie apart.
    pub min_round: Duration,
    /// Processes that a figure is made of.
    pub processes: usize,
    /// Seeds of the correctness gate.
    pub seeds: usize,
}

impl Mode {
    /// Its constants.
    pub const fn plan(self) -> Plan {
        match self {
            Mode::Quick => Plan {
                samples: 10,
                checkpoints: &[8, 16],
                precision: 0.05,
                max_time: Duration::from_secs(1),
                fair_time: Duration::from_secs(1),
                row_time: Some(Duration::from_millis(500)),
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(10),
                processes: 1,
                seeds: 2,
            },
            Mode::Ci => Plan {
                samples: 20,
                checkpoints: &[12, 24, 48],
                precision: 0.01,
                max_time: Duration::from_secs(4),
                fair_time: Duration::from_secs(4),
                row_time: Some(Duration::from_millis(800)),
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(25),
                processes: 1,
                seeds: 3,
            },
            Mode::Publish => Plan {
                samples: 20,
                checkpoints: &[24, 48, 96],
                precision: 0.0025,
                max_time: Duration::from_secs(60),
                fair_time: Duration::from_secs(60),
                row_time: None,
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(25),
                processes: 3,
                seeds: 20,
            },
            Mode::Inference => Plan { samples: 2, ..Mode::STEPS },
            Mode::Training => Mode::STEPS,
        }
    }

    /// What both modes of models have: eight blocks, as many as an interval takes, of a sample each.
    const STEPS: Plan = Plan {
        samples: 1,
        checkpoints: &[8],
        precision: 0.05,
        max_time: Duration::from_secs(60),
        fair_time: Duration::from_secs(60),
        row_time: None,
        min_sample: Duration::from_micros(50),
        min_round: Duration::from_millis(10),
        processes: 1,
        seeds: 2,
    };

    /// Whether whole models are measured, whose steps are long and few.
    pub const fn is_of_models(self) -> bool {
        matches!(self, Mode::Inference | Mode::Training)
    }

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Ci => "ci",
            Mode::Publish => "publish",
            Mode::Inference => "inference",
            Mode::Training => "training",
        }
    }
}

/// Where in the schedule a subject is, for checks between timed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the block's untimed launches.
    Before,
    /// After its last timed launch.
    After,
}

/// What may look at a subject around one randomly chosen block of each stage; gets its index. An error ends that subject.
pub type Inspector<'a> = &'a mut dyn FnMut(usize, &mut dyn Subject, Moment) -> Result<(), Fault>;

/// The raw measurement of one subject.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Blocks in the order in which they were measured; block `i` belongs to round `i`.
    pub blocks: Vec<TimedBlock>,
    /// Launches in a sample.
    pub batch: usize,
    /// The first launch of all, apart from the others.
    pub first_launch_ns: f64,
    /// Time spent on untimed launches.
    pub warmup_ns: f64,
    /// Whether the interval became narrow enough, or that of the ratio to a baseline.
    pub converged: bool,
    /// Whether it is the ratio alone that is known well enough.
    pub by_ratio: bool,
    /// Whether blocks were given up because the device's clock was held down again and again.
    pub throttled: bool,
    /// Half-width of the 99 % interval reached, relative to the median; none below eight blocks.
    pub reached: Option<f64>,
}

impl Timed {
    /// The median of each block.
    pub fn medians(&self) -> Vec<f64> {
        self.blocks.iter().map(|b| median(&b.samples_ns)).collect()
    }
}

/// A subject in a group.
pub struct Entrant<'a> {
    /// What is launched.
    pub subject: &'a mut dyn Subject,
    /// The case it is an implementation of: a number within the group. The first of a case is held against the others.
    pub case: usize,
    /// Whether there is memory to hold its tensors twice for a moment.
    pub movable: bool,
}

/// A group's schedule: what is measured and with what.
pub struct Sampler<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// What the clock costs.
    pub facts: ClockFacts,
    /// The effort.
    pub plan: Plan,
    /// How much processes differ here, by the time of a launch: relative standard deviation.
    pub spread: &'a dyn Fn(f64) -> f64,
    /// Decides the order of visits and the places in memory.
    pub random: Random,
}

/// Blocks of a subject that are measured again because the device's clock was held down.
const MOST_RETRIES: usize = 3;
/// How long a device is then left alone.
const COOL_DOWN_NS: f64 = 2e9;
/// Blocks in one place of memory.
const BLOCKS_OF_PLACE: usize = 4;

#[derive(Default)]
struct Track {
    timed: Timed,
    samples: usize,
    spent_ns: f64,
    retries: usize,
    place: usize,
    inspected: usize,
    fault: Option<Fault>,
    done: bool,
}

impl Sampler<'_> {
    /// Measures all `entrants` in randomised rounds. A subject that fails ends with its fault, the others go on.
    pub fn measure(&mut self, entrants: &mut [Entrant<'_>], inspect: Inspector<'_>) -> Vec<Result<Timed, Fault>> {
        let mut tracks: Vec<Track> = Vec::with_capacity(entrants.len());
        for entrant in entrants.iter_mut() {
            let mut track = Track { samples: 1, ..Track::default() };
            let warmed = self.warm_up(entrant.subject, &mut track);
            track.settle(warmed);
            tracks.push(track);
        }
        for &checkpoint in self.plan.checkpoints {
            for track in &mut tracks {
                let first = track.timed.blocks.len();
                track.inspected = first + self.random.below(checkpoint - first.min(checkpoint));
            }
            self.rounds(entrants, &mut tracks, checkpoint, inspect);
            tracks.iter_mut().filter(|track| !track.done).for_each(|track| self.look(track));
            self.look_at_ratios(entrants, &mut tracks);
        }
        tracks.into_iter().map(|t| t.fault.map_or(Ok(t.timed), Err)).collect()
    }

    /// Rounds until every unfinished subject has `checkpoint` blocks.
    fn rounds(&mut self, entrants: &mut [Entrant<'_>], tracks: &mut [Track], checkpoint: usize, inspect: Inspector<'_>) {
        let max_ns = self.plan.max_time.as_nanos() as f64;
        let fair_ns = self.plan.fair_time.as_nanos() as f64;
        loop {
            let mut order: Vec<usize> =
                (0..tracks.len()).filter(|&i| !tracks[i].done && tracks[i].timed.blocks.len() < checkpoint).collect();
            if order.is_empty() {
                return;
            }
            self.random.shuffle(&mut order);
            let start = self.clock.now_ns();
            for i in order {
                let track = &mut tracks[i];
                let visited = self.move_on(&mut entrants[i], track);
                let visited = visited.and_then(|()| self.visit(i, entrants[i].subject, track, inspect));
                track.settle(visited);
                let looked_at = track.timed.blocks.len() >= self.plan.checkpoints[0];
                if track.spent_ns > if looked_at { fair_ns } else { max_ns } && !track.done {
                    self.look(track);
                    track.done = true;
                }
            }
            let rest = self.plan.min_round.as_nanos() as f64 - (self.clock.now_ns() - start);
            if rest > 0.0 && tracks.iter().any(|t| !t.done) {
                self.clock.pause(rest);
            }
        }
    }

    /// Whether a subject's interval is narrow enough for what may be done with its figure.
    fn look(&self, track: &mut Track) {
        let medians = track.timed.medians();
        let middle = median(&medians);
        track.timed.reached = median_interval(&medians, Confidence::P99).map(|i| i.half_width() / middle);
        let limit = self.plan.precision.max(self.facts.tick_ns / middle).max((self.spread)(middle) / 2.0);
        track.timed.converged = track.timed.reached.is_some_and(|r| r <= limit);
        track.done = track.timed.converged;
    }

    /// Whether the ratios of a case's first implementation to all its others are known well enough.
    fn look_at_ratios(&self, entrants: &[Entrant<'_>], tracks: &mut [Track]) {
        for first in 0..tracks.len() {
            let others: Vec<usize> = (first + 1..tracks.len()).filter(|&i| entrants[i].case == entrants[first].case).collect();
            if others.is_empty() || entrants[..first].iter().any(|entrant| entrant.case == entrants[first].case) {
                continue;
            }
            let own = tracks[first].timed.medians();
            let is_narrow = |&other: &usize| {
                let logs: Vec<f64> = own.iter().zip(tracks[other].timed.medians()).map(|(a, b)| (a / b).ln()).collect();
                let interval = median_interval(&logs, Confidence::P99);
                tracks[other].fault.is_some() || interval.is_some_and(|interval| interval.half_width() <= self.plan.precision)
            };
            if tracks[first].fault.is_none() && others.iter().all(is_narrow) {
                for i in others.into_iter().chain([first]) {
                    let track = &mut tracks[i];
                    track.timed.by_ratio = track.fault.is_none() && !track.timed.converged;
                    track.timed.converged |= track.timed.by_ratio;
                    track.done = true;
                }
            }
        }
    }

    /// Moves a subject's tensors when it has been in their place for long enough; what cannot be held twice stays.
    fn move_on(&mut self, entrant: &mut Entrant<'_>, track: &mut Track) -> Result<(), Fault> {
        let due = track.timed.blocks.len() / BLOCKS_OF_PLACE > track.place;
        if !due || !entrant.movable {
            return Ok(());
        }
        track.place += 1;
        entrant.subject.relocate(Place { fresh: true, key: self.random.next_u64() })
    }

    /// First launches: until two successive groups of four agree within 5 %, or for 100 ms. Fixes batch and block length.
    fn warm_up(&self, subject: &mut dyn Subject, track: &mut Track) -> Result<(), Fault> {
        let begin = self.clock.now_ns();
        let (launch_ns, first_ns) = first_launches(self.clock, subject, 100e6)?;
        track.timed.first_launch_ns = first_ns;
        let sample_ns = (self.plan.min_sample.as_nanos() as f64).max(200.0 * self.facts.tick_ns);
        let needed = (sample_ns / launch_ns).ceil().clamp(1.0, 1e6) as usize;
        track.timed.batch = needed.min(subject.most_launches()).max(1);
        // Blocks share the time limit, so that a slow case still gets its rounds.
        let most = self.plan.checkpoints.last().copied().unwrap_or(1) as f64;
        let block_ns = self.plan.max_time.as_nanos() as f64 / most;
        let affordable = block_ns / (launch_ns * track.timed.batch as f64);
        track.samples = (affordable as usize).clamp(1, self.plan.samples);
        track.timed.warmup_ns = self.clock.now_ns() - begin - track.timed.first_launch_ns;
        Ok(())
    }

    /// One block: at least three launches and 2 ms untimed (20 ms are enough in any case), then the samples.
    fn visit(&self, index: usize, subject: &mut dyn Subject, track: &mut Track, inspect: Inspector<'_>) -> Result<(), Fault> {
        let inspected = track.timed.blocks.len() == track.inspected;
        if inspected {
            inspect(index, subject, Moment::Before)?;
        } else if !subject.repeatable() {
            // What piles up begins anew with every block, so that it stays finite.
            subject.poison(Poison::Ones)?;
        }
        let begin = self.clock.now_ns();
        let (mut launches, mut elapsed) = (0, 0.0);
        while (launches < 3 || elapsed < 2e6) && elapsed < 20e6 {
            subject.launch()?;
            launches += 1;
            elapsed = self.clock.now_ns() - begin;
        }
        let start_ns = self.clock.now_ns();
        let samples_ns = samples(self.clock, subject, track.samples, track.timed.batch)?;
        track.timed.warmup_ns += start_ns - begin;
        track.spent_ns += self.clock.now_ns() - begin;
        let device = subject.device_state();
        if device.is_some_and(|state| state.is_throttled()) {
            if track.retries < MOST_RETRIES {
                track.retries += 1;
                self.clock.pause(COOL_DOWN_NS);
                return Ok(());
            }
            track.timed.throttled = true;
        }
        track.timed.blocks.push(TimedBlock { start_ns, samples_ns, device, place: track.place, process: 0 });
        if inspected {
            inspect(index, subject, Moment::After)?;
        }
        Ok(())
    }
}

/// Times `count` samples of `launches` launches each, by the subject's clock or by `clock`.
pub(crate) fn samples(clock: &dyn Clock, subject: &mut dyn Subject, count: usize, launches: usize) -> Result<Vec<f64>, Fault> {
    if let Some(times) = subject.time(count, launches) {
        return times;
    }
    let mut samples_ns = Vec::with_capacity(count);
    for _ in 0..count {
        let start = clock.now_ns();
        for _ in 0..launches {
            subject.launch()?;
        }
        samples_ns.push((clock.now_ns() - start) / launches as f64);
    }
    Ok(samples_ns)
}

/// Launches a subject that was not launched before, in groups of four until two successive ones agree within 5 %, or for
/// `most_ns`: the time of one launch, roughly, and that of the very first.
pub(crate) fn first_launches(clock: &dyn Clock, subject: &mut dyn Subject, most_ns: f64) -> Result<(f64, f64), Fault> {
    let begin = clock.now_ns();
    subject.launch()?;
    let first_ns = clock.now_ns() - begin;
    let (mut recent, mut previous) = (Vec::new(), f64::INFINITY);
    let mut launch_ns = first_ns;
    while clock.now_ns() - begin < most_ns {
        recent.extend(samples(clock, subject, 1, 1)?);
        if recent.len() == 4 {
            launch_ns = median(&recent);
            if (launch_ns - previous).abs() <= 0.05 * previous {
                break;
            }
            previous = launch_ns;
            recent.clear();
        }
    }
    if !recent.is_empty() && recent.len() < 4 {
        launch_ns = launch_ns.min(median(&recent));
    }
    Ok((launch_ns.max(1.0), first_ns))
}

impl Track {
    fn settle(&mut self, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome {
            self.fault = Some(fault);
            self.done = true;
        }
    }
}
