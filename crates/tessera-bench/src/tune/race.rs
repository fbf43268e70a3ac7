//! Which of many candidates takes least, as surely as it matters.
//!
//! ```text
//! round 1   C A D B     one block of samples each, in random order
//! round 2   B D A C     who took much longer than the best in two rounds, and as long in both, is out, and after each round to the first look
//! ...
//! look      after 8, 12, 16, 24, 32, ... rounds: who is surely slower than the leader is out (`duel/evidence.rs`)
//! ```
//!
//! Rounds are the pairs of a duel: what the machine does meanwhile meets all that are in a round alike. It ends where one is left, or where those
//! that are left are surely within the margin of each other. Of these the first in the order of the candidates is taken, so that a second race
//! takes the same one: times that differ by less than anybody can tell decide nothing.
//!
//! A round that takes a candidate much longer than most of its own met somebody else's work, and says nothing of the candidate.

use crate::duel::{RowEvidence, bounds, level_at, pairs_at};
use crate::random::Random;
use crate::stats::median;

/// How a race is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaceOptions {
    /// The difference of two times, as a share, that does not matter.
    pub margin: f64,
    /// How sure it must be that nobody is put out for nothing.
    pub sure: f64,
    /// Rounds after which it ends whatever is known.
    pub most_rounds: usize,
    /// What takes so many times the best in each of the first rounds is out.
    pub much: f64,
    /// By how much two rounds of a candidate may differ, as a factor, to say the same of it.
    pub alike: f64,
    /// Decides the order in the rounds.
    pub seed: u64,
}

impl Default for RaceOptions {
    fn default() -> RaceOptions {
        RaceOptions { margin: 0.01, sure: 0.95, most_rounds: 64, much: 1.3, alike: 1.1, seed: 1 }
    }
}

/// How a race ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Raced {
    /// The candidate that was taken; none where there is none.
    pub winner: Option<usize>,
    /// The median time of each candidate, of as many rounds as it was in and was not disturbed in.
    pub times: Vec<f64>,
    /// Rounds that were run.
    pub rounds: usize,
}

/// Runs a race of `count` candidates; `take` measures one of them, in nanoseconds.
///
/// # Errors
/// What `take` says: the race ends with it.
pub fn race<E>(count: usize, options: RaceOptions, mut take: impl FnMut(usize) -> Result<f64, E>) -> Result<Raced, E> {
    let mut random = Random::new(options.seed);
    let mut blocks: Vec<Vec<f64>> = vec![Vec::new(); count];
    let mut runners: Vec<usize> = (0..count).collect();
    let (mut rounds, mut looks) = (0, 0);
    let alpha = 1.0 - options.sure;
    while runners.len() > 1 && rounds < options.most_rounds {
        let mut order = runners.clone();
        random.shuffle(&mut order);
        for runner in order {
            blocks[runner].push(take(runner)?);
        }
        rounds += 1;
        if looks == 0 {
            let best = blocks.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            runners.retain(|&runner| !is_much_longer(&blocks[runner], best, options));
        }
        if rounds == pairs_at(looks + 1, level_at(1, alpha)) {
            looks += 1;
            let against = against_leader(&runners, &blocks, level_at(looks, alpha), options);
            let is_open = |bound: &Relation| bound.high > options.margin;
            runners = runners.iter().zip(&against).filter(|(_, bound)| bound.low <= 0.0).map(|(&runner, _)| runner).collect();
            if against.iter().filter(|bound| bound.low <= 0.0).all(|bound| !is_open(bound)) {
                break;
            }
        }
    }
    if let ([only], 0) = (runners.as_slice(), rounds) {
        blocks[*only].push(take(*only)?);
    }
    let times: Vec<f64> =
        blocks.iter().map(|blocks| if blocks.is_empty() { f64::NAN } else { typical(blocks, options.much) }).collect();
    let against = against_leader(&runners, &blocks, 0.5, options);
    let is_near = |bound: &Relation| bound.middle <= options.margin / 2.0;
    let winner = runners.iter().zip(&against).find(|(_, bound)| is_near(bound)).map(|(&runner, _)| runner);
    Ok(Raced { winner, times, rounds })
}

/// Whether a candidate's rounds show that it takes much longer than the best. A round may have met somebody else's work, and two such rounds are
/// long by different times: its two shortest have to say the same.
fn is_much_longer(rounds: &[f64], best: f64, options: RaceOptions) -> bool {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    matches!(sorted[..], [least, next, ..] if least >= options.much * best && next <= options.alike * least)
}

/// The longest time that is a candidate's own: much longer than a quarter of its rounds took it is somebody else's doing.
fn undisturbed(rounds: &[f64], much: f64) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    much * sorted[sorted.len() / 4]
}

/// The median of the rounds that nobody disturbed.
fn typical(rounds: &[f64], much: f64) -> f64 {
    let most = undisturbed(rounds, much);
    median(&rounds.iter().copied().filter(|&round| round <= most).collect::<Vec<_>>())
}

/// What is known of `ln(time / the leader's time)`.
#[derive(Clone, Copy, Debug)]
struct Relation {
    low: f64,
    middle: f64,
    high: f64,
}

/// Each runner against the one whose time is least, by the rounds in which nobody disturbed either.
fn against_leader(runners: &[usize], blocks: &[Vec<f64>], level: f64, options: RaceOptions) -> Vec<Relation> {
    let time = |runner: usize| typical(&blocks[runner], options.much);
    let Some(&leader) = runners.iter().min_by(|&&a, &&b| time(a).total_cmp(&time(b))) else {
        return Vec::new();
    };
    let logs = |runner: usize| -> Vec<(usize, f64)> {
        let [most, most_leads] = [runner, leader].map(|of| undisturbed(&blocks[of], options.much));
        let pairs = blocks[runner].iter().zip(&blocks[leader]).enumerate();
        let calm = pairs.filter(|(_, (own, leads))| **own <= most && **leads <= most_leads);
        calm.map(|(round, (own, leads))| (round, (own / leads).ln())).collect()
    };
    let others: Vec<usize> = runners.iter().copied().filter(|&runner| runner != leader).collect();
    let evidence: Vec<RowEvidence> = others.iter().map(|&runner| RowEvidence { logs: logs(runner), resolution: 0.0 }).collect();
    let found = bounds(&evidence, level, options.seed);
    let relation = |runner: usize| {
        let Some(at) = others.iter().position(|&other| other == runner) else {
            return Relation { low: 0.0, middle: 0.0, high: 0.0 };
        };
        match found[at] {
            Some(bound) => Relation { low: bound.log - bound.half, middle: bound.log, high: bound.log + bound.half },
            // Too few rounds for a bound.
            None => {
                let middle = (time(runner) / time(leader)).ln();
                Relation { low: f64::NEG_INFINITY, middle, high: f64::INFINITY }
            }
        }
    };
    runners.iter().map(|&runner| relation(runner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with noise: a block's figure is off by some per cent, a round's by more, and now and then somebody else has the machine.
    struct Machine {
        times: Vec<f64>,
        noise: f64,
        /// Of a hundred blocks, how many wait for somebody who computes all the time: up to some hundred times as long.
        shared: usize,
        random: Random,
        taken: usize,
    }

    impl Machine {
        fn new(times: &[f64], noise: f64, seed: u64) -> Machine {
            Machine { times: times.to_vec(), noise, shared: 0, random: Random::new(seed), taken: 0 }
        }

        fn take(&mut self, candidate: usize) -> Result<f64, ()> {
            self.taken += 1;
            // Clocks drift slowly, by five per cent.
            let drift = 1.0 + 0.05 * (self.taken as f64 / 40.0).sin();
            let own = 1.0 + self.noise * (self.random.unit() + self.random.unit() + self.random.unit() - 1.5);
            let disturbed = if self.random.below(25) == 0 { 1.5 } else { 1.0 };
            let waited = if self.random.below(100) < self.shared { (6.0 * self.random.unit()).exp() } else { 1.0 };
            Ok(self.times[candidate] * drift * own * disturbed * waited)
        }

        fn race(mut self, seed: u64) -> (Raced, usize) {
            let options = RaceOptions { seed, ..RaceOptions::default() };
            let raced = race(self.times.len(), options, |candidate| self.take(candidate)).expect("no errors");
            (raced, self.taken)
        }
    }

    /// Tuning twice gives the same winner, or one within a per cent, in 95 of 100 cases: fields of all kinds, on a noisy machine.
    #[test]
    fn two_races_of_one_field_have_one_winner_or_two_within_a_per_cent() {
        let mut random = Random::new(11);
        let (mut close, mut best) = (0, 0);
        const FIELDS: usize = 80;
        for field in 0..FIELDS as u64 {
            let count = 2 + random.below(20);
            // From fields of near equals to fields whose slowest takes twice as long as the fastest.
            let spread = [0.004, 0.02, 0.1, 0.5, 1.0][random.below(5)];
            let times: Vec<f64> = (0..count).map(|_| 1e5 * (1.0 + spread * random.unit())).collect();
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let won = [2 * field + 1000, 2 * field + 1001].map(|seed| {
                let (raced, _) = Machine::new(&times, 0.02, seed).race(seed);
                times[raced.winner.expect("a winner")]
            });
            close += usize::from((won[0] / won[1]).ln().abs() <= 0.01);
            best += usize::from(won[0] <= 1.01 * least);
        }
        assert!(close * 100 >= FIELDS * 95, "{close} of {FIELDS}");
        assert!(best * 100 >= FIELDS * 95, "{best} of {FIELDS}");
    }

    /// On a machine that others use all the time no round by itself puts a candidate out.
    #[test]
    fn who_meets_somebody_else_s_work_stays_in() {
        let mut random = Random::new(12);
        const FIELDS: u64 = 100;
        let mut best = 0;
        for field in 0..FIELDS {
            let times: Vec<f64> = (0..12).map(|at| if at == 7 { 1e5 } else { 1e5 * (1.06 + random.unit()) }).collect();
            let machine = Machine { shared: 40, ..Machine::new(&times, 0.02, field) };
            let (raced, _) = machine.race(field);
            best += u64::from(raced.winner == Some(7));
        }
        assert!(best * 100 >= FIELDS * 95, "{best} of {FIELDS}");
    }

    #[test]
    fn who_takes_much_longer_is_timed_a_few_times_and_equals_go_to_the_first() {
        let (raced, taken) = Machine::new(&[3.0, 1.0, 2.0, 1.0], 0.001, 3).race(3);
        assert_eq!(raced.winner, Some(1));
        assert!(raced.rounds <= 12 && taken <= 2 * raced.rounds + 6, "{taken} in {} rounds", raced.rounds);
        assert!(raced.times[0] > 2.5 && raced.times[1] < 1.2, "{:?}", raced.times);
    }

    #[test]
    fn a_field_of_one_is_timed_and_an_empty_one_has_no_winner() {
        let (raced, taken) = Machine::new(&[5.0], 0.0, 1).race(1);
        assert_eq!((raced.winner, taken), (Some(0), 1));
        let (raced, _) = Machine::new(&[], 0.0, 1).race(1);
        assert_eq!((raced.winner, raced.rounds), (None, 0));
    }

    #[test]
    fn what_cannot_be_measured_ends_the_race() {
        assert_eq!(race(3, RaceOptions::default(), |candidate| if candidate == 2 { Err("lost") } else { Ok(1.0) }), Err("lost"));
    }
}
