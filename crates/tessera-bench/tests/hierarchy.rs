//! Simulated machines of known variance: intervals hold the truth as often as they say, whatever processes and blocks differ by,
//! and files of equal programs raise no alarm.

use tessera_bench::stats::holm;
use tessera_bench::{Common, ProcessFigure, Random};

fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

/// Standard deviations of logarithms: between processes, and between blocks of one.
#[derive(Clone, Copy, Debug)]
struct Machine {
    between: f64,
    within: f64,
}

impl Machine {
    /// A process's figure of a program whose logarithm is `truth`; `common` is what its rows share.
    fn figure(self, truth: f64, common: f64, random: &mut Random) -> ProcessFigure {
        let own = truth + common + self.between * normal(random);
        let blocks: Vec<f64> = (0..12).map(|_| (own + self.within * normal(random)).exp()).collect();
        ProcessFigure::of(&blocks).unwrap()
    }
}

#[test]
fn intervals_hold_what_another_process_would_say() {
    let mut random = Random::new(21);
    for (between, within) in [(0.01, 0.002), (0.01, 0.02), (0.05, 0.01), (0.002, 0.0005)] {
        let machine = Machine { between, within };
        for processes in [1, 2, 3, 8] {
            // What is stated is the truth, or half of it again more or less.
            for (stated, least, most) in [(1.0, 0.94, 1.0), (1.5, 0.95, 1.0), (0.67, 0.82, 1.0)] {
                let trials = 1500;
                let covered = (0..trials).filter(|_| {
                    let figures: Vec<_> = (0..processes).map(|_| machine.figure(0.0, 0.0, &mut random)).collect();
                    Common::of(&figures, between * stated).unwrap().interval().contains(1.0)
                });
                let share = covered.count() as f64 / f64::from(trials);
                assert!((least..=most).contains(&share), "{machine:?}, {processes} processes, stated {stated}: {share}");
            }
        }
    }
}

#[test]
fn many_processes_need_not_be_told_how_much_they_differ() {
    let mut random = Random::new(22);
    let machine = Machine { between: 0.02, within: 0.002 };
    for (stated, least) in [(0.005, 0.92), (0.08, 0.95)] {
        let covered = (0..1000).filter(|_| {
            let figures: Vec<_> = (0..40).map(|_| machine.figure(0.0, 0.0, &mut random)).collect();
            Common::of(&figures, stated).unwrap().interval().contains(1.0)
        });
        assert!(covered.count() as f64 >= least * 1000.0, "stated {stated}");
    }
}

/// Seventy rows, of which a process moves all alike by as much as each by itself.
#[test]
fn equal_programs_raise_no_alarm_and_a_change_is_found() {
    let mut random = Random::new(23);
    let machine = Machine { between: 0.007, within: 0.004 };
    for (sessions, change, often) in [(1, 0.12, 0.9), (5, 0.045, 0.95)] {
        let (mut alarms, mut found) = (0, 0);
        for _ in 0..200 {
            let mut side = |changed: f64| -> Vec<Vec<ProcessFigure>> {
                let commons: Vec<f64> = (0..sessions).map(|_| 0.007 * normal(&mut random)).collect();
                let row = |row: usize, random: &mut Random| {
                    let truth = if row == 0 { changed } else { 0.0 };
                    commons.iter().map(|&common| machine.figure(truth, common, random)).collect()
                };
                (0..70).map(|index| row(index, &mut random)).collect()
            };
            let (base, new) = (side(0.0), side(change));
            let p: Vec<f64> = base.iter().zip(&new).map(|(a, b)| Common::difference(a, b, 0.01).unwrap().p()).collect();
            let told = holm(&p, 0.05);
            found += usize::from(told[0]);
            alarms += usize::from(told[1..].contains(&true));
        }
        assert!(alarms <= 16, "{sessions} sessions: {alarms} of 200 comparisons of equal programs had an alarm");
        assert!(found as f64 >= often * 200.0, "{sessions} sessions: {change} was found {found} times of 200");
    }
}
