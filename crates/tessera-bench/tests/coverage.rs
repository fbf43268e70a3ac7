//! Simulated truth: how often the reported interval holds the true median, and how often equal subjects look different.
//! The noise models are skewed and autocorrelated, as timings are.

use tessera_bench::Random;
use tessera_bench::stats::{Confidence, lag1, median, median_interval, paired_ratio};

fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

/// Multiplicative noise of 1 %: half its variance an AR(1) process, half white.
struct Correlated {
    rho: f64,
    state: f64,
}

impl Correlated {
    fn new(rho: f64, random: &mut Random) -> Correlated {
        Correlated { rho, state: normal(random) }
    }

    fn next(&mut self, random: &mut Random) -> f64 {
        self.state = self.rho * self.state + (1.0 - self.rho * self.rho).sqrt() * normal(random);
        (0.01 * std::f64::consts::FRAC_1_SQRT_2 * (self.state + normal(random))).exp()
    }

    /// `n` steps during which something else was measured.
    fn skip(&mut self, n: i32, random: &mut Random) {
        let decay = self.rho.powi(n);
        self.state = decay * self.state + (1.0 - decay * decay).sqrt() * normal(random);
    }
}

#[test]
fn interval_covers_the_median_of_skewed_data() {
    let mut random = Random::new(11);
    type Draw = fn(&mut Random) -> f64;
    let skewed: [(&str, Draw, f64); 3] = [
        ("white", |r| (0.01 * normal(r)).exp(), 1.0),
        ("exponential", |r| -(1.0 - r.unit()).ln(), std::f64::consts::LN_2),
        // One sample in twenty is up to several times longer; the true median moves to Phi^-1(0.5 / 0.95) = 0.06597 sd.
        ("heavy tail", |r| if r.unit() < 0.05 { 1.1 - (1.0 - r.unit()).ln() } else { (0.01 * normal(r)).exp() }, 1.000_66),
    ];
    for (name, draw, truth) in skewed {
        for n in [12, 24, 100] {
            let trials = 3000;
            let hits = (0..trials)
                .filter(|_| {
                    let sample: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
                    median_interval(&sample, Confidence::P95).unwrap().contains(truth)
                })
                .count();
            let coverage = hits as f64 / f64::from(trials);
            assert!((0.94..=0.98).contains(&coverage), "{name}, n = {n}: {coverage}");
        }
    }
}

/// The stopping rule of `sample.rs` on autocorrelated noise: blocks of 20 that lie 800 samples apart, looked at after 12, 24, 48
/// and 96, stop on the 99 % interval, report the 95 % one.
fn stop_rule_coverage(rho: f64, gap: i32, target: f64, trials: u32, random: &mut Random) -> (f64, f64) {
    let (mut converged, mut covered) = (0u32, 0u32);
    for _ in 0..trials {
        let mut noise = Correlated::new(rho, random);
        let mut medians = Vec::new();
        for stop in [12, 24, 48, 96] {
            while medians.len() < stop {
                let block: Vec<f64> = (0..20).map(|_| noise.next(random)).collect();
                medians.push(median(&block));
                noise.skip(gap, random);
            }
            let narrow = median_interval(&medians, Confidence::P99).unwrap();
            if narrow.half_width() <= target * median(&medians) {
                converged += 1;
                covered += u32::from(median_interval(&medians, Confidence::P95).unwrap().contains(1.0));
                break;
            }
        }
    }
    (f64::from(converged) / f64::from(trials), f64::from(covered) / f64::from(converged.max(1)))
}

#[test]
fn stopping_on_separated_blocks_keeps_the_coverage() {
    let mut random = Random::new(12);
    for (rho, target) in [(0.95, 0.005), (0.995, 0.005)] {
        let (converged, coverage) = stop_rule_coverage(rho, 800, target, 400, &mut random);
        assert!(converged > 0.9 && coverage > 0.925, "rho {rho}: converged {converged}, covered {coverage}");
    }
    // The same rule on blocks that follow each other stops early and is wrong: the gap is what makes it true.
    let (_, coverage) = stop_rule_coverage(0.995, 0, 0.005, 400, &mut random);
    assert!(coverage < 0.75, "back to back: {coverage}");
}

/// Two equal subjects in turns, under each kind of drift: at most 5 % look different, and +0.5 % is found.
#[test]
fn paired_blocks_ignore_what_moves_both_sides() {
    let mut random = Random::new(13);
    type Trend = fn(f64) -> f64;
    let trends: [(&str, Trend); 3] =
        [("none", |_| 1.0), ("ramp of 2 %", |t| 1.0 + 0.02 * t), ("step of 3 %", |t| if t < 0.4 { 1.0 } else { 1.03 })];
    for (name, trend) in trends {
        let (mut false_alarms, mut found) = (0, 0);
        for _ in 0..300 {
            let mut noise = Correlated::new(0.95, &mut random);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for pair in 0..24 {
                let a_first = random.below(2) == 0;
                for turn in 0..2 {
                    let t = (f64::from(pair) + f64::from(turn) / 2.0) / 24.0;
                    let block: Vec<f64> = (0..20).map(|_| trend(t) * noise.next(&mut random)).collect();
                    if (turn == 0) == a_first {
                        a.push(median(&block))
                    } else {
                        b.push(median(&block))
                    }
                    noise.skip(100, &mut random);
                }
            }
            let interval = paired_ratio(&a, &b).unwrap().ci95.unwrap();
            false_alarms += u32::from(!interval.contains(1.0));
            let slower: Vec<f64> = b.iter().map(|x| x * 1.01).collect();
            let interval = paired_ratio(&a, &slower).unwrap().ci95.unwrap();
            found += u32::from(interval.lo > 1.0);
        }
        assert!(false_alarms <= 18, "{name}: {false_alarms} false alarms in 300");
        assert!(found >= 285, "{name}: 1 % found {found} times in 300");
    }
}

#[test]
fn lag1_sees_correlation() {
    let mut random = Random::new(14);
    let mut noise = Correlated::new(0.95, &mut random);
    let correlated: Vec<f64> = (0..4000).map(|_| noise.next(&mut random)).collect();
    let white: Vec<f64> = (0..4000).map(|_| normal(&mut random)).collect();
    // Half the variance has lag-1 correlation 0.95.
    assert!((lag1(&correlated).unwrap() - 0.475).abs() < 0.06, "{:?}", lag1(&correlated));
    assert!(lag1(&white).unwrap().abs() < 0.05);
}
