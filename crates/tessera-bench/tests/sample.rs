//! The schedule on a clock that only moves when a subject says so.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use tessera_bench::{
    Clock, ClockFacts, Entrant, Expected, Fault, Lane, Mode, Moment, Output, Phase, Plan, Poison, Random, Sampler, Status,
    Subject,
};

#[derive(Default)]
struct Hands {
    now: Cell<f64>,
    visits: RefCell<Vec<char>>,
}

impl Clock for Hands {
    fn now_ns(&self) -> f64 {
        self.now.get()
    }
    fn pause(&self, ns: f64) {
        self.now.set(self.now.get() + ns);
    }
}

/// A launch takes `ns`, noisily, and fails after `life` launches.
struct Sleeper {
    name: char,
    hands: Rc<Hands>,
    ns: f64,
    noise: f64,
    random: Random,
    life: usize,
}

impl Sleeper {
    fn new(name: char, hands: &Rc<Hands>, ns: f64, noise: f64) -> Sleeper {
        Sleeper { name, hands: hands.clone(), ns, noise, random: Random::new(u64::from(name)), life: usize::MAX }
    }
}

impl Subject for Sleeper {
    fn outputs(&self) -> &[Output] {
        &[]
    }
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }
    fn refresh(&mut self, _seed: u64, _lane: Lane) -> Result<(), Fault> {
        Ok(())
    }
    fn poison(&mut self, _poison: Poison) -> Result<(), Fault> {
        Ok(())
    }
    fn launch(&mut self) -> Result<(), Fault> {
        self.life = self.life.checked_sub(1).ok_or_else(|| Fault::new(Status::RuntimeError, "worn out"))?;
        self.hands.pause(self.ns * (1.0 + self.noise * (self.random.unit() - 0.5)));
        let mut visits = self.hands.visits.borrow_mut();
        if visits.last() != Some(&self.name) {
            visits.push(self.name);
        }
        Ok(())
    }
    fn read(&self, _output: usize, _rows: Range<usize>, _codes: &mut [u64]) -> Result<(), Fault> {
        Ok(())
    }
    fn expect(&self, _output: usize, _rows: Range<usize>, _expected: Expected<'_>) -> Result<(), Fault> {
        Ok(())
    }
    fn input_digest(&self) -> Result<u64, Fault> {
        Ok(0)
    }
    fn damaged_guard(&self) -> Option<String> {
        None
    }
}

/// Subjects of cases of their own.
fn entrants(subjects: Vec<&mut dyn Subject>) -> Vec<Entrant<'_>> {
    subjects.into_iter().enumerate().map(|(case, subject)| Entrant { subject, case, movable: true }).collect()
}

fn sampler<'a>(hands: &'a Hands, plan: Plan) -> Sampler<'a> {
    Sampler { clock: hands, facts: ClockFacts { tick_ns: 10.0, floor_ns: 20.0 }, plan, spread: &|_| 0.0, random: Random::new(1) }
}

#[test]
fn quiet_subjects_stop_early_and_noisy_ones_are_not_called_converged() {
    let hands = Rc::new(Hands::default());
    let mut quiet = Sleeper::new('q', &hands, 1e5, 0.001);
    let mut noisy = Sleeper::new('n', &hands, 1e5, 3.0);
    let measured =
        sampler(&hands, Mode::Quick.plan()).measure(&mut entrants(vec![&mut quiet, &mut noisy]), &mut |_, _, _| Ok(()));
    let quiet = measured[0].as_ref().unwrap();
    assert!(quiet.converged && quiet.blocks.len() == 8 && quiet.blocks.iter().all(|b| b.samples_ns.len() == 10));
    assert!((quiet.medians()[0] - 1e5).abs() < 100.0);
    let noisy = measured[1].as_ref().unwrap();
    assert!(!noisy.converged && noisy.blocks.len() == 16 && noisy.reached.unwrap() > 0.02);
}

#[test]
fn short_launches_are_batched_and_long_ones_get_fewer_samples() {
    let hands = Rc::new(Hands::default());
    let mut short = Sleeper::new('s', &hands, 500.0, 0.01);
    let mut long = Sleeper::new('l', &hands, 3e8, 0.001);
    let measured = sampler(&hands, Mode::Quick.plan()).measure(&mut entrants(vec![&mut short, &mut long]), &mut |_, _, _| Ok(()));
    let short = measured[0].as_ref().unwrap();
    assert!((95..=106).contains(&short.batch), "50 us of half a microsecond each: {}", short.batch);
    assert!((short.medians()[0] - 500.0).abs() < 10.0, "a sample is the time of one launch");
    // 300 ms a launch: a second is over after a few blocks of one sample, too few for an interval.
    let long = measured[1].as_ref().unwrap();
    assert!(long.blocks.len() < 6 && long.blocks[0].samples_ns.len() == 1 && long.reached.is_none() && !long.converged);
}

#[test]
fn rounds_visit_everyone_in_changing_order_and_take_their_time() {
    let hands = Rc::new(Hands::default());
    let mut subjects: Vec<Sleeper> = ['a', 'b', 'c'].map(|n| Sleeper::new(n, &hands, 1e5, 0.01)).into();
    let mut plan = Mode::Ci.plan();
    plan.min_round = Duration::from_secs(1);
    let mut inspected = Vec::new();
    {
        let subjects: Vec<&mut dyn Subject> = subjects.iter_mut().map(|s| s as &mut dyn Subject).collect();
        let measured = sampler(&hands, plan).measure(&mut entrants(subjects), &mut |i, _, moment| {
            inspected.push((i, moment));
            Ok(())
        });
        let starts: Vec<f64> = measured[0].as_ref().unwrap().blocks.iter().map(|b| b.start_ns).collect();
        assert_eq!(starts.len(), 12);
        assert!(starts.windows(2).all(|w| w[1] - w[0] > 0.9e9), "blocks lie apart");
    }
    // The warm-up visits a, b, c; each round then is a permutation (equal neighbours merge in the log).
    let visits: String = hands.visits.borrow().iter().collect();
    let orders = ["abc", "acb", "bac", "bca", "cab", "cba"];
    let seen = orders.iter().filter(|order| visits[3..].contains(*order)).count();
    assert!(seen >= 3, "{visits}");
    for i in 0..3 {
        let moments: Vec<Moment> = inspected.iter().filter(|(j, _)| *j == i).map(|(_, m)| *m).collect();
        assert_eq!(moments, [Moment::Before, Moment::After]);
    }
}

#[test]
fn one_failure_leaves_the_others_alone() {
    let hands = Rc::new(Hands::default());
    let mut dying = Sleeper::new('d', &hands, 1e5, 0.01);
    dying.life = 60;
    let mut other = Sleeper::new('o', &hands, 1e5, 0.001);
    let measured =
        sampler(&hands, Mode::Quick.plan()).measure(&mut entrants(vec![&mut dying, &mut other]), &mut |_, _, _| Ok(()));
    assert_eq!(measured[0].as_ref().unwrap_err().status, Status::RuntimeError);
    assert!(measured[1].as_ref().unwrap().converged);

    let mut stale = Sleeper::new('s', &hands, 1e5, 0.001);
    let refuse = &mut |_: usize, _: &mut dyn Subject, moment: Moment| match moment {
        Moment::Before => Ok(()),
        Moment::After => Err(Fault::new(Status::Incorrect, "stale")),
    };
    let measured = sampler(&hands, Mode::Quick.plan()).measure(&mut entrants(vec![&mut stale]), refuse);
    assert_eq!(measured[0].as_ref().unwrap_err().status, Status::Incorrect);
}
