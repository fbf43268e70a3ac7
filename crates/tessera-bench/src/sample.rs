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
//! (`tests/coverage.rs`).

use std::time::Duration;

use crate::case::{Fault, Subject};
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
}

/// The constants of a mode.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Samples in a block (fewer where one launch is long).
    pub samples: usize,
    /// Numbers of blocks after which convergence is looked at; the last is the maximum.
    pub checkpoints: &'static [usize],
    /// Half-width of the 99 % interval that is narrow enough, relative to the median.
    pub precision: f64,
    /// Measuring time of one subject after which no further block is begun.
    pub max_time: Duration,
    /// Shortest sample: launches are batched up to it.
    pub min_sample: Duration,
    /// Shortest round: with few subjects, time is let pass so that blocks lie apart.
    pub min_round: Duration,
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
                precision: 0.02,
                max_time: Duration::from_secs(1),
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(10),
                seeds: 2,
            },
            Mode::Ci => Plan {
                samples: 20,
                checkpoints: &[12, 24, 48],
                precision: 0.005,
                max_time: Duration::from_secs(10),
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(25),
                seeds: 5,
            },
            Mode::Publish => Plan {
                samples: 20,
                checkpoints: &[24, 48, 96],
                precision: 0.0025,
                max_time: Duration::from_secs(60),
                min_sample: Duration::from_micros(50),
                min_round: Duration::from_millis(25),
                seeds: 20,
            },
        }
    }

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Ci => "ci",
            Mode::Publish => "publish",
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
    /// Whether the interval became narrow enough.
    pub converged: bool,
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

/// A group's schedule: what is measured and with what.
pub struct Sampler<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// What the clock costs.
    pub facts: ClockFacts,
    /// The effort.
    pub plan: Plan,
    /// Decides the order of visits.
    pub random: Random,
}

/// Blocks of a subject that are measured again because the device's clock was held down.
const MOST_RETRIES: usize = 3;
/// How long a device is then left alone.
const COOL_DOWN_NS: f64 = 2e9;

struct Track {
    timed: Timed,
    samples: usize,
    spent_ns: f64,
    retries: usize,
    inspected: usize,
    fault: Option<Fault>,
    done: bool,
}

impl Sampler<'_> {
    /// Measures all `subjects` in randomised rounds. A subject that fails ends with its fault, the others go on.
    pub fn measure(&mut self, subjects: &mut [&mut dyn Subject], inspect: Inspector<'_>) -> Vec<Result<Timed, Fault>> {
        let mut tracks: Vec<Track> = Vec::with_capacity(subjects.len());
        for subject in subjects.iter_mut() {
            let mut track =
                Track { timed: Timed::default(), samples: 1, spent_ns: 0.0, retries: 0, inspected: 0, fault: None, done: false };
            let warmed = self.warm_up(*subject, &mut track);
            track.settle(warmed);
            tracks.push(track);
        }
        for &checkpoint in self.plan.checkpoints {
            for track in &mut tracks {
                let first = track.timed.blocks.len();
                track.inspected = first + self.random.below(checkpoint - first.min(checkpoint));
            }
            self.rounds(subjects, &mut tracks, checkpoint, inspect);
            for track in tracks.iter_mut().filter(|t| !t.done) {
                track.timed.reached = self.reached(&track.timed);
                let limit = self.plan.precision.max(self.facts.tick_ns / median(&track.timed.medians()));
                track.timed.converged = track.timed.reached.is_some_and(|r| r <= limit);
                track.done = track.timed.converged;
            }
        }
        tracks.into_iter().map(|t| t.fault.map_or(Ok(t.timed), Err)).collect()
    }

    /// Rounds until every unfinished subject has `checkpoint` blocks.
    fn rounds(&mut self, subjects: &mut [&mut dyn Subject], tracks: &mut [Track], checkpoint: usize, inspect: Inspector<'_>) {
        let max_ns = self.plan.max_time.as_nanos() as f64;
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
                let visited = self.visit(i, &mut *subjects[i], track, inspect);
                track.settle(visited);
                if track.spent_ns > max_ns && !track.done {
                    track.timed.reached = self.reached(&track.timed);
                    track.timed.converged = track.timed.reached.is_some_and(|r| r <= self.plan.precision);
                    track.done = true;
                }
            }
            let rest = self.plan.min_round.as_nanos() as f64 - (self.clock.now_ns() - start);
            if rest > 0.0 && tracks.iter().any(|t| !t.done) {
                self.clock.pause(rest);
            }
        }
    }

    fn reached(&self, timed: &Timed) -> Option<f64> {
        let medians = timed.medians();
        median_interval(&medians, Confidence::P99).map(|i| i.half_width() / median(&medians))
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
        track.timed.blocks.push(TimedBlock { start_ns, samples_ns, device });
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
