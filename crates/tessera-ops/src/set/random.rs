//! Random numbers, and dropout, whose mask is never in memory: kernel and reference make the same words from seed, offset and place.

use std::f64::consts::PI;
use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{Arch, DType, FloatFormat, Policy, unit_roundoff};

use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::philox::{COUNTERS, OFFSET, SEED, Stream};
use crate::set::{pointwise, rows};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static DROPOUT: Operator = Operator {
    name: "dropout",
    about: "x / (1 - p), or 0 with probability p, by a counter-based generator",
    calls: Calls {
        signature: |_| Signature::new(&[Operand("x", "..n")], &[Operand("y", "..n")]).scalars(&["p", "seed", "offset"]),
        ..CALLS
    },
    quick: || pointwise::quick(DROPOUT.precisions),
    plan: |problem, policy, _| dropped(["x", "y"], problem, policy),
    gradient: Some(&DROPOUT_BACKWARD),
    ..OPERATOR
};

pub(crate) static DROPOUT_BACKWARD: Operator = Operator {
    name: "dropout_backward",
    about: "gradient of dropout with the same seed and offset",
    calls: Calls {
        signature: |_| Signature::new(&[Operand("dy", "..n")], &[Operand("dx", "..n")]).scalars(&["p", "seed", "offset"]),
        ..CALLS
    },
    quick: || pointwise::quick(DROPOUT_BACKWARD.precisions),
    plan: |problem, policy, _| dropped(["dy", "dx"], problem, policy),
    ..OPERATOR
};

pub(crate) static RANDOM_UNIFORM: Operator = Operator {
    name: "random_uniform",
    about: "numbers from 0 to 1, without 1, by a counter-based generator",
    further_precisions: &["fp64"],
    calls: DRAWN_CALLS,
    quick: || pointwise::quick(RANDOM_UNIFORM.precisions),
    numbers: &[SEED, OFFSET],
    plan: |problem, policy, _| drawn(Distribution::Uniform, problem, policy),
    ..OPERATOR
};

pub(crate) static RANDOM_NORMAL: Operator = Operator {
    name: "random_normal",
    about: "normal numbers of mean 0 and deviation 1, by a counter-based generator",
    further_precisions: &[],
    calls: DRAWN_CALLS,
    quick: || pointwise::quick(RANDOM_NORMAL.precisions),
    numbers: &[SEED, OFFSET],
    plan: |problem, policy, _| drawn(Distribution::Normal, problem, policy),
    ..OPERATOR
};

/// Of random numbers, which are as many as the array has that is given for them.
const DRAWN_CALLS: Calls =
    Calls { signature: |_| Signature::new(&[], &[Operand("y", "..n")]).scalars(&["seed", "offset"]), ..CALLS };

/// What all of them have.
const OPERATOR: Operator = Operator {
    name: "",
    about: "",
    file: "random.py",
    source: include_str!("../../kernels/random.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite: pointwise::further_suite,
    quick: Vec::new,
    edges: pointwise::edges,
    draw: pointwise::draw,
    calls: CALLS,
    numbers: &[PROBABILITY, SEED, OFFSET],
    plan: |problem, policy, _| dropped(["x", "y"], problem, policy),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

const CALLS: Calls = Calls {
    variants: &[""],
    default: Some(""),
    signature: |_| Signature::new(&[], &[]),
    problem: |sizes| Ok(pointwise::problem(sizes.get("n"))),
};

/// How likely an element is dropped. Which are counts by the nearest multiple of 2^-31; what is kept is divided by the number itself.
const PROBABILITY: (&str, f64) = ("p", 0.5);

/// The probability 1 in units of what a word is compared with.
const CERTAIN: f64 = 2147483648.0;

/// Elements that a counter serves in dropout.
const HALVES: usize = 8;

fn dropped([x, y]: [&'static str; 2], problem: &Problem, policy: Policy) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "dropout")?;
    let n = problem.get("n") as usize;
    let p = problem.number(PROBABILITY.0).unwrap_or(PROBABILITY.1);
    if !(0.0..=1.0).contains(&p) {
        return Err(Unsupported(format!("a probability is from 0 to 1, not {p}")));
    }
    let threshold = (p * CERTAIN).round();
    // Where all are dropped it is not used.
    let scale = if threshold < CERTAIN { 1.0 / (1.0 - p) } else { 0.0 };
    let stream = Stream::of(problem)?;
    let mut arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1))];
    arguments.extend(stream.arguments());
    // Its bits, in a number with a sign.
    arguments.push(("threshold", Argument::Int((threshold as u32 as i32).into())));
    arguments.extend([("scale", Argument::Float(scale)), ("ACC", Argument::Type(acc))]);
    let bytes = packed_bytes(storage, n as u64);
    Ok(Plan {
        tensors: vec![TensorSpec::new(x, storage, [n], Role::Input), TensorSpec::new(y, storage, [n], Role::Output)],
        launches: vec![launch("dropout", arguments, n, HALVES, storage)?],
        outputs: vec![OutputRows { tensor: 1, rows: n, row_len: 1, exact: false }],
        work: work(bytes, bytes, n),
        exact_lane: false,
        reference: Box::new(Dropped { stream, threshold: threshold as u32, scale, out: storage, acc }),
    })
}

/// Blocks of as many threads as have a vector of each lane: with more, several would make the same words.
fn launch(
    kernel: &'static str,
    arguments: Vec<(&'static str, Argument)>,
    n: usize,
    lanes: usize,
    storage: DType,
) -> Result<LaunchSpec, Unsupported> {
    let warps = (COUNTERS * storage.bits() as usize / (rows::VECTOR_BITS * Arch::WARP as usize)).max(1) as u32;
    Ok(LaunchSpec { warps, ..LaunchSpec::new(kernel, arguments, rows::grid(n, lanes * COUNTERS)?) })
}

fn work(read_bytes: u64, write_bytes: u64, n: usize) -> Work {
    let formula = "each array read or written once";
    Work { read_bytes, write_bytes, flops: n as u64, compute: None, metric: Metric::Bandwidth, formula }
}

struct Dropped {
    stream: Stream,
    threshold: u32,
    scale: f64,
    out: DType,
    acc: DType,
}

impl Reference for Dropped {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        // The factor and the product are rounded, and what is stored in a narrower type.
        let of_store = if self.out == self.acc { 0.0 } else { unit_roundoff(self.out) };
        let u = of_store + 2.0 * unit_roundoff(self.acc);
        inputs.numbers(0, rows.start, want);
        want.par_iter_mut().zip(bound).enumerate().for_each(|(at, (want, bound))| {
            let (words, lane) = self.stream.of_element(rows.start + at, HALVES);
            let word = words[lane / 2].rotate_left(if lane.is_multiple_of(2) { 16 } else { 0 });
            if word >> 1 < self.threshold {
                (*want, *bound) = (0.0, 0.0);
            } else {
                *want = storable(self.out, *want * self.scale);
                *bound = u * want.abs() + underflow(self.out);
            }
        });
    }
}

/// How numbers are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distribution {
    Uniform,
    Normal,
}

/// Digits of a uniform number: as many as its type has.
fn digits(dtype: DType) -> u32 {
    // The roundoff is half of the distance between 1 and the next number.
    (-unit_roundoff(dtype).log2()) as u32
}

fn drawn(distribution: Distribution, problem: &Problem, policy: Policy) -> Result<Plan, Unsupported> {
    let (storage, _) = rows::storage(policy, "random numbers")?;
    let n = problem.get("n") as usize;
    let stream = Stream::of(problem)?;
    let mut arguments = vec![("y", Argument::Tensor(0))];
    arguments.extend(stream.arguments());
    let wide = storage == DType::F64;
    let (kernel, lanes) = match distribution {
        Distribution::Uniform => {
            arguments.push(("DIGITS", Argument::Int(i64::from(digits(storage)))));
            ("random_uniform", if wide { 2 } else { 4 })
        }
        Distribution::Normal if wide => return Err(Unsupported("random_normal gives numbers of up to 32 bits".into())),
        Distribution::Normal => ("random_normal", 4),
    };
    let exact = distribution == Distribution::Uniform;
    Ok(Plan {
        tensors: vec![TensorSpec::new("y", storage, [n], Role::Output)],
        launches: vec![launch(kernel, arguments, n, lanes, storage)?],
        outputs: vec![OutputRows { tensor: 0, rows: n, row_len: 1, exact }],
        work: work(0, packed_bytes(storage, n as u64), n),
        exact_lane: false,
        reference: Box::new(Drawn { stream, lanes, out: storage }),
    })
}

struct Drawn {
    stream: Stream,
    lanes: usize,
    out: DType,
}

impl Drawn {
    fn uniform(&self, element: usize) -> f64 {
        let (words, lane) = self.stream.of_element(element, self.lanes);
        match digits(self.out) {
            53 => ((u64::from(words[2 * lane]) << 21) | u64::from(words[2 * lane + 1] >> 11)) as f64 * 0.5f64.powi(53),
            digits => f64::from(words[lane] >> (32 - digits)) * 0.5f64.powi(digits as i32),
        }
    }

    fn normal(&self, element: usize) -> f64 {
        let (words, lane) = self.stream.of_element(element, self.lanes);
        let [first, second] = [words[lane & 2], words[lane & 2 | 1]];
        // As kernels round it.
        let u = f64::from(first as f32 * 0.5f32.powi(32) + 0.5f32.powi(33));
        let angle = 2.0 * PI * (f64::from(second) - 0.5f64.powi(-29)) * 0.5f64.powi(32);
        (-2.0 * u.ln()).sqrt() * if lane.is_multiple_of(2) { angle.cos() } else { angle.sin() }
    }
}

impl Reference for Drawn {
    fn rows(&self, _inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        match expected {
            Expected::Codes(codes) => {
                let format = FloatFormat::of(self.out).expect("random numbers are floats");
                codes
                    .par_iter_mut()
                    .enumerate()
                    .for_each(|(at, code)| *code = format.encode_nearest(self.uniform(rows.start + at)));
            }
            Expected::Bounded { want, bound } => want.par_iter_mut().zip(bound).enumerate().for_each(|(at, (want, bound))| {
                // The logarithm is off by 8, its root by half of that and by 2, sine and cosine by 6, and where they are 0 by their argument's.
                *want = self.normal(rows.start + at);
                *bound = (unit_roundoff(self.out) + 16.0 * unit_roundoff(DType::F32)) * want.abs() + underflow(self.out);
            }),
        }
    }
}
