//! The rows of the experiments: from launches that are over before they began to those that fill the machine.

use tessera_bench::{
    CaseSpec, Clock, ClockFacts, Lane, Library, Monotonic, Place, Poison, Selection, Shapes, Sizes, Subject, Suite, TESSERA,
    stats,
};
use tessera_runtime::{CompileOptions, Device};

use crate::{Outcome, device};

/// Operator, precision, extents and variant.
type Named = (&'static str, &'static str, &'static [(&'static str, u64)], &'static str);

const SMALL: [Named; 6] = [
    ("softmax", "bf16", &[("batch", 1), ("heads", 8), ("queries", 128), ("keys", 512)], ""),
    ("vector", "fp32", &[("n", 1 << 20)], "add"),
    ("vector", "fp32", &[("n", 1 << 20)], "reduce_sum"),
    ("gemm", "fp32", &[("batch", 1), ("m", 256), ("n", 256), ("k", 256)], "nn"),
    ("gemm", "fp32", &[("batch", 1), ("m", 512), ("n", 512), ("k", 512)], "nn"),
    ("bandwidth", "fp32", &[("bytes", 4 << 20)], "copy sequential"),
];

/// What fills a GPU.
const LARGE: [Named; 5] = [
    ("bandwidth", "fp32", &[("bytes", 256 << 20)], "copy sequential"),
    ("rms_norm", "bf16", &[("batch", 1), ("sequence", 8192), ("hidden", 4096)], ""),
    ("softmax", "fp32", &[("batch", 1), ("heads", 8), ("queries", 1024), ("keys", 4096)], ""),
    ("gemm", "bf16", &[("batch", 1), ("m", 4096), ("n", 4096), ("k", 4096)], "nn"),
    ("gemm", "bf16", &[("batch", 1), ("m", 2048), ("n", 2048), ("k", 2048)], "nt"),
];

/// One block.
pub(crate) struct Block {
    pub(crate) samples_ns: Vec<f64>,
    pub(crate) mhz: Option<f64>,
}

impl Block {
    pub(crate) fn figure(&self) -> f64 {
        stats::median(&self.samples_ns)
    }
}

struct Row {
    case: CaseSpec,
    subject: Box<dyn Subject>,
    launches: usize,
    samples: usize,
}

/// The rows, built.
pub(crate) struct Bench {
    pub(crate) machine: String,
    pub(crate) names: Vec<String>,
    pub(crate) estimate_ns: Vec<f64>,
    device: String,
    rows: Vec<Row>,
    clock: Monotonic,
}

impl Bench {
    pub(crate) fn build(name: &str, clock: Monotonic) -> Outcome<Bench> {
        let there = device(name)?;
        let named = SMALL.iter().chain(LARGE.iter().filter(|_| !there.is_cpu()));
        let facts = ClockFacts::measure(&clock);
        let (mut rows, mut names, mut estimate_ns) = (Vec::new(), Vec::new(), Vec::new());
        for named in named {
            let (row, estimate) = Row::build(named, there.clone(), &clock, facts)?;
            names.push(row.case.key.to_string());
            estimate_ns.push(estimate);
            rows.push(row);
        }
        let machine = there.to_string();
        Ok(Bench { machine, names, estimate_ns, device: name.to_string(), rows, clock })
    }

    pub(crate) fn on_device(&self) -> bool {
        self.device != "cpu"
    }

    /// A block of a row; where it is `hot`, after untimed launches.
    pub(crate) fn block(&mut self, row: usize, hot: bool) -> Outcome<Block> {
        let clock = self.clock;
        let row = &mut self.rows[row];
        if hot {
            let begin = clock.now_ns();
            while clock.now_ns() - begin < 1e6 {
                row.subject.launch()?;
            }
        }
        let samples_ns = match row.subject.time(row.samples, row.launches) {
            Some(times) => times?,
            None => {
                let mut samples_ns = Vec::new();
                for _ in 0..row.samples {
                    let begin = clock.now_ns();
                    for _ in 0..row.launches {
                        row.subject.launch()?;
                    }
                    samples_ns.push((clock.now_ns() - begin) / row.launches as f64);
                }
                samples_ns
            }
        };
        Ok(Block { samples_ns, mhz: row.subject.device_state().and_then(|state| state.mhz) })
    }

    pub(crate) fn relocate(&mut self, place: Place) -> Outcome<()> {
        (0..self.rows.len()).try_for_each(|row| self.relocate_row(row, Place { key: place.key.rotate_left(row as u32), ..place }))
    }

    pub(crate) fn relocate_row(&mut self, row: usize, place: Place) -> Outcome<()> {
        Ok(self.rows[row].subject.relocate(place)?)
    }

    /// Opens the device again and loads every kernel again, to another place; the old ones are still held while that is done.
    pub(crate) fn rebuild(&mut self) -> Outcome<()> {
        let there = device(&self.device)?;
        let named: Vec<&Named> = SMALL.iter().chain(&LARGE).collect();
        for (row, named) in self.rows.iter_mut().zip(named) {
            let launches = (row.launches, row.samples);
            *row = Row::build(named, there.clone(), &self.clock, ClockFacts::measure(&self.clock))?.0;
            (row.launches, row.samples) = launches;
        }
        Ok(())
    }
}

impl Row {
    fn build(
        (operator, precision, extents, variant): &Named,
        device: Device,
        clock: &dyn Clock,
        facts: ClockFacts,
    ) -> Outcome<(Row, f64)> {
        let extents = extents.iter().map(|(name, value)| (name.to_string(), vec![*value])).collect();
        let selection = Selection {
            operators: vec![operator.to_string()],
            precisions: vec![precision.to_string()],
            sizes: Sizes::Given(vec![Shapes {
                extents,
                variant: (!variant.is_empty()).then(|| variant.to_string()),
                ..Shapes::default()
            }]),
        };
        let on_cpu = device.is_cpu();
        let library = Library::select(&selection, CompileOptions::default(), device)?;
        let case = library.cases()[0].clone();
        let mut subject = library.build(&case, TESSERA)?;
        subject.refresh(1, Lane::Case)?;
        subject.poison(Poison::Ones)?;
        subject.launch()?;
        let mut times = Vec::new();
        for _ in 0..5 {
            let begin = clock.now_ns();
            let own = subject.time(1, 1);
            if own.is_none() {
                subject.launch()?;
            }
            times.push(match own {
                Some(times) => times?[0],
                None => clock.now_ns() - begin,
            });
        }
        let estimate = stats::median(&times);
        let launches = if on_cpu { (5e4f64.max(200.0 * facts.tick_ns) / estimate).ceil().max(1.0) as usize } else { 1 };
        let samples = (2e6 / (estimate * launches as f64).max(5e4)).clamp(4.0, 12.0) as usize;
        Ok((Row { case, subject, launches, samples }, estimate))
    }
}
