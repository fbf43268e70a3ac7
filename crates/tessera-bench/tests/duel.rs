//! Duels of imagined sides whose truth is known: equal ones raise no alarm, whatever the noise; a planted change is found.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tessera_bench::duel::{
    About, Ask, Checked, Duel, DuelError, DuelOptions, DuelOutcome, Lost, Offer, Readiness, Reading, Side, Sitting,
};
use tessera_bench::{Accelerator, Clock, Exit, Fault, GateReport, Place, Random, Status, Verdict};

fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

/// What makes times differ although the programs are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// Every process and every place in memory has a speed of its own, 1 % each way.
    White,
    /// The machine gets slower all the time, by 2 % a second.
    Drift,
    /// A process is fast or slow, by 6 %, in every other row; all its rows together.
    Bimodal,
    /// The machine's speed wanders: half of the variance is a process with a correlation of 0.98 from block to block.
    Wander,
    /// Effects of processes have the tails of a Cauchy distribution.
    Heavy,
    /// One process in twelve is disturbed by somebody else: up to twice the time in all rows.
    Outliers,
    /// The clock has steps of 2 % of the time.
    Coarse,
}

const ALL: [Noise; 7] = [Noise::White, Noise::Drift, Noise::Bimodal, Noise::Wander, Noise::Heavy, Noise::Outliers, Noise::Coarse];

/// A machine: its clock moves only when something runs.
struct World {
    now: Cell<f64>,
    random: RefCell<Random>,
    noise: Noise,
    wander: Cell<f64>,
}

impl Clock for World {
    fn now_ns(&self) -> f64 {
        self.now.get()
    }
    fn pause(&self, ns: f64) {
        self.now.set(self.now.get() + ns);
    }
}

const LAUNCH_NS: f64 = 2e5;

impl World {
    /// The clock's step.
    fn step_ns(&self) -> f64 {
        if self.noise == Noise::Coarse { 0.02 * LAUNCH_NS } else { 20.0 }
    }
}

struct Imagined {
    name: &'static str,
    world: Rc<World>,
    /// Factor on the time of each row.
    factors: Vec<f64>,
    /// What goes wrong: in which row and how.
    flaw: Option<(usize, Flaw)>,
    sittings: usize,
    on: &'static str,
    /// Whether that is a device of its own, whose times are taken by medians.
    accelerated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Wrong,
    Fails,
    OtherResultLater,
    DiesOnce,
    DiesAlways,
}

impl Imagined {
    fn new(name: &'static str, world: &Rc<World>, factors: Vec<f64>) -> Imagined {
        Imagined { name, world: Rc::clone(world), factors, flaw: None, sittings: 0, on: "cpu", accelerated: false }
    }
}

impl Side for Imagined {
    fn name(&self) -> &str {
        self.name
    }

    fn sit(&mut self) -> Result<Box<dyn Sitting + '_>, Lost> {
        self.sittings += 1;
        self.world.pause(2e8);
        let mut random = self.world.random.borrow_mut();
        let rows = self.factors.len();
        let own: Vec<f64> = match self.world.noise {
            Noise::White => (0..rows).map(|_| 0.01 * normal(&mut random)).collect(),
            Noise::Heavy => (0..rows).map(|_| 0.004 * normal(&mut random) / normal(&mut random)).collect(),
            Noise::Bimodal => {
                let slow = random.below(2) as f64;
                (0..rows).map(|row| 0.06 * slow * (row % 2) as f64 + 0.002 * normal(&mut random)).collect()
            }
            Noise::Outliers => {
                let disturbed = if random.below(12) == 0 { random.unit() } else { 0.0 };
                (0..rows).map(|_| disturbed + 0.004 * normal(&mut random)).collect()
            }
            Noise::Drift | Noise::Wander | Noise::Coarse => (0..rows).map(|_| 0.003 * normal(&mut random)).collect(),
        };
        let number = self.sittings;
        Ok(Box::new(Seat { places: vec![0.0; rows], own, asked: Vec::new(), number, side: self }))
    }
}

struct Seat<'a> {
    side: &'a Imagined,
    own: Vec<f64>,
    places: Vec<f64>,
    asked: Vec<usize>,
    number: usize,
}

impl Seat<'_> {
    fn has(&self, row: usize, flaw: Flaw) -> bool {
        self.side.flaw == Some((row, flaw))
    }
}

impl Sitting for Seat<'_> {
    fn about(&mut self) -> Result<About, Lost> {
        let offer = |row: usize| Offer { case: format!("{row:016x}"), title: format!("row {row}"), bytes: 1 << 20 };
        let rows = (0..self.own.len()).map(offer).collect();
        let accelerator = self.side.accelerated.then(Accelerator::default);
        Ok(About { device: self.side.on.into(), accelerator, memory: Some(64 << 20), rows, ..About::default() })
    }

    fn prepare(&mut self, rows: &[usize]) -> Result<(), Lost> {
        self.asked = rows.to_vec();
        Ok(())
    }

    fn ready(&mut self) -> Result<Vec<Result<Readiness, Fault>>, Lost> {
        if self.has(0, Flaw::DiesAlways) || self.has(0, Flaw::DiesOnce) && self.number == 3 {
            return Err(Lost::once("it died"));
        }
        let readiness = |row: &usize| match self.has(*row, Flaw::Fails) {
            true => Err(Fault::new(Status::CompileError, "does not compile")),
            false => Ok(Readiness { estimate_ns: LAUNCH_NS, floor_ns: 30.0, tick_ns: self.side.world.step_ns() }),
        };
        Ok(self.asked.iter().map(readiness).collect())
    }

    fn check(&mut self, row: usize) -> Result<Result<Checked, Fault>, Lost> {
        assert_eq!(self.number, 1, "only the first process of a side checks");
        let wrong = self.has(row, Flaw::Wrong);
        let report = GateReport {
            status: if wrong { Status::Incorrect } else { Status::Ok },
            reason: wrong.then(|| "3 elements are outside the bound".into()),
            checks: Vec::new(),
            worst: None,
            bias: None,
            elements: 1,
            failed: u64::from(wrong),
            seeds: vec![1],
            output_digest: 5,
            phases: Vec::new(),
        };
        Ok(Ok(Checked { report, digest: Some(5) }))
    }

    fn relocate(&mut self, place: Place) -> Result<(), Lost> {
        assert!(place.fresh);
        let mut random = Random::new(place.key);
        self.places.iter_mut().for_each(|place| *place = 0.002 * normal(&mut random));
        Ok(())
    }

    fn block(&mut self, ask: Ask) -> Result<Result<Reading, Fault>, Lost> {
        let world = &self.side.world;
        let mut random = world.random.borrow_mut();
        let mut factor = self.side.factors[ask.row] * (self.own[ask.row] + self.places[ask.row]).exp();
        world.wander.set(0.98 * world.wander.get() + 0.199 * normal(&mut random));
        match world.noise {
            Noise::Drift => factor *= 1.0 + 0.02 * world.now.get() / 1e9,
            Noise::Wander => factor *= (0.03 * world.wander.get()).exp(),
            _ => {}
        }
        let mut samples = Vec::new();
        for _ in 0..ask.samples {
            let launches = ask.launches as f64;
            let sample = launches * LAUNCH_NS * factor * (0.01 * normal(&mut random)).exp();
            let step = world.step_ns();
            samples.push((sample / step).round() * step / launches);
        }
        world.pause(samples.iter().sum::<f64>() + ask.warm_ns);
        Ok(Ok(Reading { samples_ns: samples, device: None }))
    }

    fn digest(&mut self, row: usize) -> Result<Result<Option<u64>, Fault>, Lost> {
        Ok(Ok(Some(if self.has(row, Flaw::OtherResultLater) && self.number > 2 { 6 } else { 5 })))
    }
}

fn world(noise: Noise, seed: u64) -> Rc<World> {
    Rc::new(World { now: Cell::new(0.0), random: RefCell::new(Random::new(seed)), noise, wander: Cell::new(0.0) })
}

fn options(seed: u64, most_pairs: usize) -> DuelOptions {
    DuelOptions { sure: 0.95, seed, most_pairs, time_limit: None, ..DuelOptions::default() }
}

fn duel(options: DuelOptions, a: &mut Imagined, b: &mut Imagined) -> Result<DuelOutcome, DuelError> {
    let world = Rc::clone(&a.world);
    Duel::new(options, &*world).unwrap().run(a, b, &mut |_| {})
}

/// Of equal sides, at most one duel in twenty may have any row SLOWER or FASTER, whatever the noise.
#[test]
fn equal_sides_raise_no_alarm() {
    let (trials, rows) = (40, 10);
    let mut all = 0;
    for noise in ALL {
        let mut alarms = 0;
        for trial in 0..trials {
            let world = world(noise, 100 + trial);
            let mut a = Imagined::new("a", &world, vec![1.0; rows]);
            let mut b = Imagined::new("b", &world, vec![1.0; rows]);
            (a.accelerated, b.accelerated) = (trial % 2 == 0, trial % 2 == 0);
            let outcome = duel(options(trial, 16), &mut a, &mut b).unwrap();
            alarms += usize::from(outcome.rows.iter().any(|row| matches!(row.verdict, Verdict::Slower | Verdict::Faster)));
        }
        println!("{noise:?}: {alarms} alarms in {trials} duels");
        assert!(alarms <= 6, "{noise:?}: {alarms} alarms in {trials} duels");
        all += alarms;
    }
    // 280 duels: one in twenty are 14, three standard deviations more are 25.
    assert!(all <= 25, "{all} alarms in {} duels", 40 * ALL.len());
}

/// A planted 3 % is found in 19 of 20 duels, in the right row and direction, and its interval holds the truth.
#[test]
fn planted_changes_are_found_and_measured() {
    for noise in [Noise::White, Noise::Drift, Noise::Wander, Noise::Outliers, Noise::Coarse] {
        let (mut found, mut held, trials) = (0, 0, 20);
        for trial in 0..trials {
            let world = world(noise, 500 + trial);
            let mut a = Imagined::new("a", &world, vec![1.0; 10]);
            let mut factors = vec![1.0; 10];
            (factors[3], factors[7]) = (1.03, 0.97);
            let mut b = Imagined::new("b", &world, factors);
            (a.accelerated, b.accelerated) = (trial % 2 == 0, trial % 2 == 0);
            // Where somebody disturbs one pair in six, twice as many are needed.
            let most = if noise == Noise::Outliers { 64 } else { 32 };
            let outcome = duel(options(trial, most), &mut a, &mut b).unwrap();
            let row = |name: &str| outcome.rows.iter().find(|row| row.title == name).unwrap();
            let verdicts = (row("row 3").verdict, row("row 7").verdict);
            found += usize::from(verdicts == (Verdict::Slower, Verdict::Faster));
            assert!(verdicts.0 != Verdict::Faster && verdicts.1 != Verdict::Slower, "{noise:?}: {verdicts:?}");
            let hits = |name: &str, truth: f64| row(name).interval_pct().is_some_and(|ci| ci.contains(truth));
            held += usize::from(hits("row 3", 3.0) && hits("row 7", -3.0));
        }
        println!("{noise:?}: {found} found, {held} held");
        assert!(found >= 19, "{noise:?}: found in {found} of {trials}");
        assert!(held >= 18, "{noise:?}: the interval holds the truth in {held} of {trials}");
    }
}

/// A quiet row is decided early, as the same, and costs nothing from then on; sides that differ by little are not the same.
#[test]
fn sure_rows_stop_early_and_small_changes_are_not_called_the_same() {
    let world = world(Noise::Drift, 7);
    let mut a = Imagined::new("a", &world, vec![1.0; 4]);
    let mut b = Imagined::new("b", &world, vec![1.0, 1.0, 1.0, 1.2]);
    let outcome = duel(options(1, 64), &mut a, &mut b).unwrap();
    assert_eq!(outcome.exit(), Exit::Regression);
    assert_eq!((outcome.counts()[&Verdict::Slower], outcome.counts()[&Verdict::Same]), (1, 3), "{:?}", outcome.rows);
    assert_eq!(outcome.rows[0].pairs, 8, "20 % are seen at the first look");
    assert!(outcome.pairs <= 24 && a.sittings == outcome.pairs);

    let mut called_same = 0;
    for seed in 0..20 {
        let world = self::world(Noise::Wander, 900 + seed);
        let mut a = Imagined::new("a", &world, vec![1.0; 5]);
        let mut b = Imagined::new("b", &world, vec![1.013; 5]);
        let outcome = duel(options(seed, 32), &mut a, &mut b).unwrap();
        called_same += usize::from(outcome.counts().contains_key(&Verdict::Same));
    }
    assert!(called_same <= 1, "1.3 % was called the same (within 1 %) in {called_same} of 20 duels");
}

#[test]
fn what_goes_wrong_is_a_verdict_or_an_error() {
    let with = |flaw: Option<(usize, Flaw)>, on_b: bool| {
        let world = world(Noise::Drift, 3);
        let mut sides = [Imagined::new("a", &world, vec![1.0; 3]), Imagined::new("b", &world, vec![1.0; 3])];
        sides[usize::from(on_b)].flaw = flaw;
        let [mut a, mut b] = sides;
        duel(options(2, 12), &mut a, &mut b)
    };
    let verdict = |outcome: &DuelOutcome, row: &str| outcome.rows.iter().find(|own| own.title == row).unwrap().verdict;
    for flaw in [Flaw::Wrong, Flaw::Fails, Flaw::OtherResultLater] {
        let broken = with(Some((1, flaw)), true).unwrap();
        assert_eq!((verdict(&broken, "row 1"), broken.exit()), (Verdict::Broken, Exit::Incorrect), "{flaw:?}");
        assert!(broken.rows[0].note.as_ref().unwrap().starts_with("b: "), "{:?}", broken.rows[0]);
        assert!(broken.rows[0].estimate.is_none(), "a wrong row has no speed");
        let fixed = with(Some((1, flaw)), false).unwrap();
        assert_eq!((verdict(&fixed, "row 1"), fixed.exit()), (Verdict::Fixed, Exit::Ok), "{flaw:?}");
    }
    let once = with(Some((0, Flaw::DiesOnce)), true).unwrap();
    assert!(once.notes.iter().any(|note| note.contains("a pair was given up: it died")), "{:?}", once.notes);
    assert_eq!(once.rows[0].pairs, once.pairs, "what was lost does not count");
    assert!(matches!(with(Some((0, Flaw::DiesAlways)), false), Err(DuelError::Lost(lost)) if lost.message == "it died"));
}

#[test]
fn rows_of_one_side_are_listed_and_strangers_are_refused() {
    let world = world(Noise::Drift, 3);
    let mut a = Imagined::new("a", &world, vec![1.0; 3]);
    let mut b = Imagined::new("b", &world, vec![1.0; 4]);
    let outcome = duel(options(2, 8), &mut a, &mut b).unwrap();
    assert_eq!(outcome.counts()[&Verdict::New], 1);
    let mut a = Imagined::new("a", &world, vec![1.0; 3]);
    let mut b = Imagined::new("b", &world, vec![1.0; 4]);
    let fewer = duel(options(2, 8), &mut b, &mut a).unwrap();
    assert_eq!((fewer.counts()[&Verdict::Missing], fewer.exit()), (1, Exit::Invalid));

    let mut none = Imagined::new("none", &world, Vec::new());
    assert!(matches!(duel(options(2, 8), &mut a, &mut none), Err(DuelError::Disjoint { .. })));
    let mut far = Imagined::new("far", &world, vec![1.0; 3]);
    far.on = "gpu";
    assert!(matches!(duel(options(2, 8), &mut a, &mut far), Err(DuelError::Devices { .. })));
    for (sure, least) in [(1.0, 0.01), (0.2, 0.01), (0.95, 0.0), (0.95, f64::NAN)] {
        let wrong = Duel::new(DuelOptions { sure, least, ..DuelOptions::default() }, &*world);
        assert!(matches!(wrong, Err(DuelError::Options(_))), "{sure} {least}");
    }
}

#[test]
fn a_duel_ends_in_time_and_says_so() {
    let world = world(Noise::White, 3);
    let mut a = Imagined::new("a", &world, vec![1.0; 3]);
    let mut b = Imagined::new("b", &world, vec![1.0; 3]);
    let brief = DuelOptions { time_limit: Some(Duration::from_secs(6)), ..options(5, 512) };
    let outcome = duel(brief, &mut a, &mut b).unwrap();
    assert!(outcome.seconds <= 6.0 && outcome.pairs < 8, "{} pairs in {} s", outcome.pairs, outcome.seconds);
    assert_eq!(outcome.exit(), Exit::Invalid, "too few pairs for any verdict");
    assert!(outcome.notes.iter().any(|note| note.contains("time limit")));
    // The same seed is the same duel.
    let again = |seed: u64| {
        let world = self::world(Noise::White, 3);
        let mut a = Imagined::new("a", &world, vec![1.0; 3]);
        let mut b = Imagined::new("b", &world, vec![1.0; 3]);
        duel(options(seed, 8), &mut a, &mut b).unwrap()
    };
    assert_eq!(again(4), again(4));
    assert_ne!(again(4).rows, again(5).rows);
}
