//! The CPU executor against NumPy and against the machine's copy rate, both sides taking turns on the same cores.
//!
//! `TESSERA_PYTHON=... cargo bench -p tessera-bench --bench against_numpy`
//!
//! Products: the median of NumPy's times over the median of ours, one of each a round, with a pause after NumPy's turn since its
//! threads spin for a while after each call. Other rows: useful bytes a second over the measured copy rate (read and
//! written bytes counted in both; the faster of memcpy and a non-temporal loop on all threads).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tessera_bench::{
    Ceilings, Lane, Library, Poison, ProbeOptions, Selection, Shapes, Sizes, Subject, Suite, TESSERA, stats::median,
};
use tessera_runtime::{CompileOptions, Device, Knobs};

/// Rounds of every comparison.
const ROUNDS: usize = 15;
/// How long NumPy's threads may spin after a call.
const PAUSE: Duration = Duration::from_millis(250);

struct Numpy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Numpy {
    fn start() -> Option<Numpy> {
        let python = std::env::var_os("TESSERA_PYTHON")?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/blas.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Some(Numpy { child, input, output })
    }

    fn gemm(&mut self, n: u64) -> f64 {
        writeln!(self.input, "gemm {n}").expect("NumPy reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("NumPy answers");
        line.trim().parse().expect("seconds")
    }
}

impl Drop for Numpy {
    fn drop(&mut self) {
        // It ends by itself when its input closes; a process that is gone already is no loss.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One case of the library, ready to be launched.
fn subject(operator: &str, precision: &str, extents: &[(&str, u64)], variant: &str) -> (Box<dyn Subject>, u64) {
    let selection = Selection {
        operators: vec![operator.to_string()],
        precisions: vec![precision.to_string()],
        sizes: Sizes::Given(vec![Shapes {
            extents: extents.iter().map(|(name, value)| (name.to_string(), vec![*value])).collect(),
            variant: Some(variant.to_string()),
            ..Shapes::default()
        }]),
    };
    let library = Library::select(&selection, CompileOptions::default(), Device::Cpu).expect("a case of the library");
    let case = &library.cases()[0];
    let mut subject = library.build(case, TESSERA).expect("the case builds");
    subject.refresh(1, Lane::Case).expect("inputs");
    subject.poison(Poison::Ones).expect("outputs");
    (subject, case.work.min_bytes())
}

fn seconds(subject: &mut dyn Subject) -> f64 {
    let start = Instant::now();
    subject.launch().expect("the launch runs");
    start.elapsed().as_secs_f64()
}

fn products(numpy: &mut Numpy) {
    for (n, bar) in [(1024u64, 0.80), (2048, 0.75)] {
        let extents = [("batch", 1), ("m", n), ("n", n), ("k", n)];
        let precisions = ["fp32", "bf16", "fp16", "int8"];
        let mut subjects: Vec<Box<dyn Subject>> = precisions.iter().map(|p| subject("gemm", p, &extents, "nn").0).collect();
        let mut theirs = Vec::new();
        let mut ours = vec![Vec::new(); precisions.len()];
        for round in 0..=ROUNDS {
            let time = numpy.gemm(n);
            std::thread::sleep(PAUSE);
            let times: Vec<f64> = subjects.iter_mut().map(|subject| seconds(&mut **subject)).collect();
            if round > 0 {
                theirs.push(time);
                ours.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
            }
        }
        let rate = |times: &[f64]| 2.0 * (n as f64).powi(3) / median(times) * 1e-9;
        let (numpy_rate, f32_rate) = (rate(&theirs), rate(&ours[0]));
        println!(
            "gemm {n} fp32   {f32_rate:7.1} GFLOP/s, NumPy {numpy_rate:7.1}: {:.2} of NumPy (bar {bar})",
            f32_rate / numpy_rate
        );
        for ((precision, times), bar) in precisions.iter().zip(&ours).zip([1.0, 0.85, 0.65, 2.0]).skip(1) {
            println!("gemm {n} {precision:6} {:7.1} Gop/s: {:.2} of our fp32 (bar {bar})", rate(times), rate(times) / f32_rate);
        }
    }
}

/// A memory-bound case and the share of the copy rate that it should reach.
struct Row {
    operator: &'static str,
    extents: &'static [(&'static str, u64)],
    variant: &'static str,
    bar: f64,
}

const MIB: u64 = 1 << 20;
const NORM: &[(&str, u64)] = &[("batch", 1), ("sequence", 4096), ("hidden", 4096)];
const SCORES: &[(&str, u64)] = &[("batch", 1), ("heads", 1), ("queries", 4096), ("keys", 4096)];
const BUFFER: &[(&str, u64)] = &[("bytes", 64 * MIB)];

const STREAMS: [Row; 5] = [
    Row { operator: "softmax", extents: SCORES, variant: "", bar: 0.45 },
    Row { operator: "layer_norm", extents: NORM, variant: "", bar: 0.55 },
    Row { operator: "rms_norm", extents: NORM, variant: "", bar: 0.55 },
    Row { operator: "bandwidth", extents: BUFFER, variant: "copy sequential", bar: 0.90 },
    Row { operator: "bandwidth", extents: BUFFER, variant: "triad sequential", bar: 0.85 },
];

fn streams() {
    for Row { operator, extents, variant, bar } in STREAMS {
        let (mut subject, bytes) = subject(operator, "fp32", extents, variant);
        let (mut rates, mut copies) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let probe = Ceilings::measure(ProbeOptions { max_bytes: 128 * MIB, trials: 3 });
            let time = (0..3).map(|_| seconds(&mut *subject)).fold(f64::INFINITY, f64::min);
            if round > 0 {
                copies.push(probe.copy.last().map_or(f64::NAN, |rate| rate.best));
                rates.push(bytes as f64 / time);
            }
        }
        let (rate, copy) = (median(&rates) * 1e-9, median(&copies) * 1e-9);
        println!("{operator} {variant} fp32 {rate:6.1} GB/s, copy {copy:6.1}: {:.2} of the copy rate (bar {bar})", rate / copy);
    }
}

fn main() {
    Knobs::from_env().expect("the environment's settings").apply();
    match Numpy::start() {
        Some(mut numpy) => products(&mut numpy),
        None => println!("products skipped: TESSERA_PYTHON names no interpreter with NumPy (`cargo xtask tools` prints one)"),
    }
    streams();
}
