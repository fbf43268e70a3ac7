//! Which of two sides is faster, row by row, as surely as was asked.
//!
//! ```text
//! pair 1     seat both (a coin says who first) | gate | move to fresh memory | row 7: A B  row 2: B A ... | digests
//! pair 2     seat both, fresh processes        |        move to fresh memory | row 2: A B  row 7: B A ... | digests
//! ...        after 8, 12, 16, 24, ... pairs: a look at all rows (`evidence.rs`); decided rows are left out from then on
//! ```
//!
//! What differs from process to process of one program (where memory and code lie, what the machine is doing) differs from
//! pair to pair, so it is in the spread of what pairs say. What changes while a pair runs (clocks, heat, other people's work)
//! meets both sides alike, since their blocks take turns. Both sides stay seated while one is timed; who is not asked keeps still.
//!
//! The first pair takes every row of each side through the gate. Later ones compare the digest of what the row leaves with
//! that of the result that was judged.

mod evidence;
mod local;
mod pair;
mod record;
mod serve;
mod side;
mod verdict;

pub use evidence::{Bound, RowEvidence, bounds, level_at, pairs_at};
pub use local::LocalSitting;
pub use pair::{PairRecord, PairRow};
pub use record::DuelRecord;
pub use serve::{ProcessSide, serve};
pub use side::{About, Ask, Checked, Lost, Offer, Readiness, Reading, Side, Sitting};
pub use verdict::{DuelOutcome, RowOutcome};

use std::time::Duration;

use self::pair::{Figure, RowPlan};
use crate::clock::Clock;
use crate::compare::Verdict;
use crate::random::Random;

/// What is asked of a duel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuelOptions {
    /// How sure all verdicts together must be.
    pub sure: f64,
    /// The smallest change of a time that matters, as a share.
    pub least: f64,
    /// No pair is begun that would end after this.
    pub time_limit: Option<Duration>,
    /// Pairs after which a row stays undecided.
    pub most_pairs: usize,
    /// Decides who begins, the order of rows and where memory lies.
    pub seed: u64,
    /// Measuring time of a pair that is filled with further rounds where there are few rows.
    pub pair_time: Duration,
}

impl Default for DuelOptions {
    fn default() -> DuelOptions {
        DuelOptions {
            sure: 0.99,
            least: 0.01,
            time_limit: Some(Duration::from_secs(120)),
            most_pairs: 512,
            seed: 1,
            pair_time: Duration::from_millis(600),
        }
    }
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DuelError {
    /// A side cannot be started, or ends again and again.
    #[error("{0}")]
    Lost(Lost),
    /// No row occurs on both sides.
    #[error("{a} and {b} have no row in common")]
    Disjoint {
        /// The one side.
        a: String,
        /// The other.
        b: String,
    },
    /// The sides run on different devices.
    #[error("{a} runs on {on_a}, {b} on {on_b}")]
    Devices {
        /// The one side.
        a: String,
        /// Its device.
        on_a: String,
        /// The other side.
        b: String,
        /// Its device.
        on_b: String,
    },
    /// Asked for what cannot be.
    #[error("{0}")]
    Options(String),
}

/// What has just happened.
#[derive(Clone, Debug)]
pub enum DuelProgress<'a> {
    /// Both sides said what they are.
    Met(&'a DuelRecord),
    /// A row of the first pair is being checked: its number and of how many.
    Checking(usize, usize),
    /// A pair was measured.
    Pair(&'a PairRecord),
    /// A pair was given up, and why.
    GivenUp(&'a Lost),
    /// All rows were looked at; so many are open.
    Look {
        /// Pairs so far.
        pairs: usize,
        /// Rows without a verdict.
        open: usize,
        /// Seconds since the beginning.
        seconds: f64,
    },
}

/// Sittings that may be lost before a duel is given up.
const MOST_LOSSES: usize = 3;

/// A row of both sides.
struct Row {
    outcome: RowOutcome,
    /// The row's number on either side.
    at: [usize; 2],
    bytes: u64,
    plan: Option<RowPlan>,
    /// Digest of the judged result of either side.
    digests: [Option<u64>; 2],
    evidence: RowEvidence,
    times: [Vec<f64>; 2],
    decided: bool,
}

/// A duel under way.
pub struct Duel<'a> {
    options: DuelOptions,
    clock: &'a dyn Clock,
    random: Random,
    rows: Vec<Row>,
    notes: Vec<String>,
    memory: u64,
    figure: Figure,
    names: [String; 2],
    /// Pairs that counted.
    pairs: usize,
    looks: usize,
}

impl<'a> Duel<'a> {
    /// A duel with these options.
    pub fn new(options: DuelOptions, clock: &'a dyn Clock) -> Result<Duel<'a>, DuelError> {
        if !(0.5..1.0).contains(&options.sure) {
            return Err(DuelError::Options(format!(
                "{} is no probability to be sure with; it lies between 0.5 and 1",
                options.sure
            )));
        }
        if !(options.least > 0.0 && options.least < 1.0) {
            return Err(DuelError::Options(format!("{} is no smallest change; it lies between 0 and 1", options.least)));
        }
        Ok(Duel {
            random: Random::new(options.seed),
            options,
            clock,
            rows: Vec::new(),
            notes: Vec::new(),
            memory: u64::MAX,
            figure: Figure::Median,
            names: [String::new(), String::new()],
            pairs: 0,
            looks: 0,
        })
    }

    /// Seats pair after pair of `a` and `b` until every row has its verdict or the time is up.
    pub fn run(
        mut self,
        a: &mut dyn Side,
        b: &mut dyn Side,
        observe: &mut dyn FnMut(DuelProgress<'_>),
    ) -> Result<DuelOutcome, DuelError> {
        self.names = [a.name().to_string(), b.name().to_string()];
        let begin = self.clock.now_ns();
        let (mut longest_ns, mut losses) = (0.0f64, 0);
        while self.rows.is_empty() || self.is_open() && self.pairs < self.options.most_pairs {
            let pair_begin = self.clock.now_ns();
            if self.options.time_limit.is_some_and(|limit| pair_begin + longest_ns - begin > limit.as_nanos() as f64) {
                let least = pairs_at(1, level_at(1, 1.0 - self.options.sure));
                let few = if self.pairs < least { format!("; verdicts need {least}") } else { String::new() };
                self.notes.push(format!("the time limit was reached after {} pairs{few}", self.pairs));
                break;
            }
            match self.pair(a, b, observe) {
                Ok(record) => observe(DuelProgress::Pair(&record)),
                Err(pair::Stop::Error(error)) => return Err(error),
                Err(pair::Stop::Lost(lost)) => {
                    observe(DuelProgress::GivenUp(&lost));
                    losses += 1;
                    if lost.for_good || losses > MOST_LOSSES {
                        return Err(DuelError::Lost(lost));
                    }
                    self.notes.push(format!("a pair was given up: {lost}"));
                    continue;
                }
            }
            // The first pair goes through the gate and is no measure of the others.
            if self.pairs > 1 {
                longest_ns = longest_ns.max(self.clock.now_ns() - pair_begin);
            }
            if self.pairs == pairs_at(self.looks + 1, level_at(1, 1.0 - self.options.sure)) {
                self.look();
                let open = self.rows.iter().filter(|row| !row.decided).count();
                observe(DuelProgress::Look { pairs: self.pairs, open, seconds: (self.clock.now_ns() - begin) / 1e9 });
            }
        }
        if self.is_open() {
            self.look();
        }
        let seconds = (self.clock.now_ns() - begin) / 1e9;
        Ok(self.conclude(seconds))
    }

    fn is_open(&self) -> bool {
        self.rows.iter().any(|row| !row.decided)
    }

    /// Looks at all rows and decides those that can be.
    fn look(&mut self) {
        self.looks += 1;
        let all = self.rows.iter().filter(|row| row.plan.is_some()).count();
        let open: Vec<&mut Row> = self.rows.iter_mut().filter(|row| !row.decided).collect();
        let evidence: Vec<RowEvidence> = open.iter().map(|row| row.evidence.clone()).collect();
        let level = level_at(self.looks, 1.0 - self.options.sure) * open.len() as f64 / all.max(1) as f64;
        for (row, bound) in open.into_iter().zip(bounds(&evidence, level, self.options.seed)) {
            if let Some(bound) = bound {
                row.outcome.bound = Some(bound).filter(|bound| bound.half.is_finite());
                row.outcome.estimate = Some(bound.log);
                row.outcome.verdict = verdict::of(bound, row.outcome.least);
                row.decided = row.outcome.verdict != Verdict::Undecided;
            }
        }
    }

    fn conclude(self, seconds: f64) -> DuelOutcome {
        let mut rows: Vec<RowOutcome> = self.rows.into_iter().map(|row| row.outcome).collect();
        verdict::sort(&mut rows);
        DuelOutcome {
            names: self.names,
            sure: self.options.sure,
            least: self.options.least,
            seed: self.options.seed,
            rows,
            pairs: self.pairs,
            looks: self.looks,
            seconds,
            notes: self.notes,
        }
    }
}
