//! Rotary position embedding, in an array of its own or in place, its gradient, and the norm of queries' and keys' heads before it.
//!
//! A variant says how elements are paired, `halves` or `interleaved`, and `_theta` behind that says that no tables are given.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, RowMoments, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::norm::eps;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ROPE: Operator = Operator {
    name: "rope",
    about: "rotary position embedding, from tables or from theta, of all or the first elements of heads",
    calls: Calls { signature: |variant| signature(variant, &FORWARD, &[Operand("y", "..batch tokens heads dim")]), ..CALLS },
    quick: || quick(ROPE.precisions),
    plan: |problem, policy, machine| plan(To::Other(["x", "y"]), 1.0, problem, policy, machine),
    gradient: Some(&ROPE_BACKWARD),
    ..OPERATOR
};

pub(crate) static ROPE_BACKWARD: Operator = Operator {
    name: "rope_backward",
    about: "gradient of rope",
    calls: Calls { signature: |variant| signature(variant, &BACKWARD, &[Operand("dx", "..batch tokens heads dim")]), ..CALLS },
    quick: || quick(ROPE_BACKWARD.precisions),
    plan: |problem, policy, machine| plan(To::Other(["dy", "dx"]), -1.0, problem, policy, machine),
    ..OPERATOR
};

pub(crate) static ROPE_INPLACE: Operator = Operator {
    name: "rope_inplace",
    about: "rope whose results take the place of what was given",
    calls: Calls {
        signature: |variant| {
            let tables: &'static [Operand] = if variant.ends_with("_theta") { &[] } else { &FORWARD[1..] };
            let signature = Signature::new(tables, &FORWARD[..1]).updated(&["x"]);
            match variant.ends_with("_theta") {
                true => signature.scalars(&["start", "theta", "dims"]),
                false => signature.types(TABLES).scalars(&["start"]),
            }
        },
        ..CALLS
    },
    quick: || quick(ROPE_INPLACE.precisions),
    plan: |problem, policy, machine| plan(To::Itself("x"), 1.0, problem, policy, machine),
    ..OPERATOR
};

pub(crate) static QK_NORM_ROPE: Operator = Operator {
    name: "qk_norm_rope",
    about: "root-mean-square normalisation of the heads of queries and keys, and rope of both, in one launch",
    calls: Calls {
        variants: &PAIRINGS,
        default: Some("halves"),
        signature: |_| {
            let inputs = &[
                Operand("q", "..batch tokens heads dim"),
                Operand("k", "..batch tokens shared dim"),
                Operand("q_weight", "dim"),
                Operand("k_weight", "dim"),
                Operand("cos", "positions half"),
                Operand("sin", "positions half"),
            ];
            let outputs = &[Operand("q_out", "..batch tokens heads dim"), Operand("k_out", "..batch tokens shared dim")];
            Signature::new(inputs, outputs).types(TABLES).scalars(&["start", "eps"])
        },
        problem: |sizes| {
            let extents = ["batch", "tokens", "heads", "shared", "dim", "half", "positions"].map(|name| (name, sizes.get(name)));
            Ok(Problem::new(&extents, sizes.variant))
        },
    },
    further_suite: || vec![of_both([1, 8192, 32, 8, 128, 64], "halves"), of_both([4, 4096, 64, 4, 128, 64], "halves")],
    quick: || QK_NORM_ROPE.precisions.iter().map(|&precision| (of_both([2, 16, 4, 2, 64, 32], "halves"), precision)).collect(),
    edges: || {
        let sizes =
            [[1, 1, 1, 1, 2, 1], [2, 17, 6, 2, 64, 32], [1, 33, 12, 3, 100, 50], [3, 5, 4, 1, 80, 16], [1, 7, 24, 8, 128, 64]];
        let mut cases: Vec<Problem> = sizes.iter().flat_map(|&sizes| PAIRINGS.map(|pairing| of_both(sizes, pairing))).collect();
        cases.push(of_both([1, 5, 4, 2, 64, 32], "halves").with("positions", 9).expect("an extent").with_number(START, 4.0));
        cases
    },
    draw: |draw| {
        let [tokens, heads, half, batch] = draw.extents(draw.elements() / 4, [2048, 40, 128, 8]);
        let rest = draw.one_of(&[0, 0, 1, 16]);
        let pairing = draw.one_of(&PAIRINGS);
        of_both([batch, tokens, heads, heads.div_ceil(4), 2 * half + rest, half], pairing)
    },
    numbers: &[START],
    plan: plan_both,
    gradient: None,
    ..OPERATOR
};

/// What all of them have.
const OPERATOR: Operator = Operator {
    name: "",
    about: "",
    file: "rope.py",
    source: include_str!("../../kernels/rope.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite,
    quick: Vec::new,
    edges,
    draw,
    calls: CALLS,
    numbers: &[START, THETA, DIMS],
    plan: |problem, policy, machine| plan(To::Other(["x", "y"]), 1.0, problem, policy, machine),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

/// The position of the first token; the base of angles; how many elements of a head are turned where no table says it, 0 for all.
const START: (&str, f64) = ("start", 0.0);
const THETA: (&str, f64) = ("theta", 10000.0);
const DIMS: (&str, f64) = ("dims", 0.0);

const PAIRINGS: [&str; 2] = ["halves", "interleaved"];
const VARIANTS: [&str; 4] = ["halves", "interleaved", "halves_theta", "interleaved_theta"];
const TABLES: &[(&str, DType)] = &[("cos", DType::F32), ("sin", DType::F32)];

static FORWARD: [Operand; 3] =
    [Operand("x", "..batch tokens heads dim"), Operand("cos", "positions half"), Operand("sin", "positions half")];
static BACKWARD: [Operand; 3] =
    [Operand("dy", "..batch tokens heads dim"), Operand("cos", "positions half"), Operand("sin", "positions half")];

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("halves"),
    signature: |variant| signature(variant, &FORWARD, &[]),
    problem: |sizes| {
        let extents = ["batch", "tokens", "heads", "dim", "half", "positions"].map(|name| (name, sizes.get(name)));
        Ok(Problem::new(&extents, sizes.variant))
    },
};

fn signature(variant: &str, inputs: &'static [Operand; 3], outputs: &'static [Operand]) -> Signature {
    match variant.ends_with("_theta") {
        true => Signature::new(&inputs[..1], outputs).scalars(&["start", "theta", "dims"]),
        false => Signature::new(inputs, outputs).types(TABLES).scalars(&["start"]),
    }
}

/// A problem whose tables have as many rows as there are tokens.
fn problem([batch, tokens, heads, dim, half]: [u64; 5], variant: &str) -> Problem {
    let (half, positions) = if variant.ends_with("_theta") { (0, 0) } else { (half, tokens) };
    let extents =
        [("batch", batch), ("tokens", tokens), ("heads", heads), ("dim", dim), ("half", half), ("positions", positions)];
    Problem::new(&extents, variant)
}

fn of_both([batch, tokens, heads, shared, dim, half]: [u64; 6], variant: &str) -> Problem {
    let extents = [
        ("batch", batch),
        ("tokens", tokens),
        ("heads", heads),
        ("shared", shared),
        ("dim", dim),
        ("half", half),
        ("positions", tokens),
    ];
    Problem::new(&extents, variant)
}

/// Heads of language models: before tokens in memory, then tokens before heads.
fn further_suite() -> Vec<Problem> {
    let sizes = [[1, 8192, 32, 128, 64], [4, 4096, 32, 128, 64], [32, 8192, 1, 128, 64], [1, 8192, 64, 64, 32]];
    sizes.iter().flat_map(|&sizes| VARIANTS.map(|variant| problem(sizes, variant))).collect()
}

fn quick(precisions: &'static [&'static str]) -> Vec<(Problem, &'static str)> {
    precisions.iter().map(|&precision| (problem([2, 64, 4, 64, 32], "halves"), precision)).collect()
}

fn edges() -> Vec<Problem> {
    let sizes =
        [[1, 1, 1, 2, 1], [2, 17, 6, 64, 32], [16, 33, 1, 128, 64], [1, 33, 12, 100, 50], [3, 5, 4, 80, 16], [1, 7, 24, 128, 64]];
    let mut cases: Vec<Problem> = sizes.iter().flat_map(|&sizes| VARIANTS.map(|variant| problem(sizes, variant))).collect();
    cases.push(problem([1, 5, 4, 64, 32], "halves").with("positions", 9).expect("an extent").with_number(START, 4.0));
    cases.push(problem([1, 9, 4, 64, 32], "interleaved_theta").with_number(START, 100_000.0).with_number(DIMS, 48.0));
    cases.push(problem([1, 9, 4, 64, 32], "halves_theta").with_number(THETA, 500_000.0).with_number(START, 7.0));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [tokens, heads, half, batch] = draw.extents(draw.elements() / 4, [2048, 40, 128, 8]);
    let rest = draw.one_of(&[0, 0, 1, 16]);
    let start = draw.extent(1000) as f64;
    let drawn = problem([batch, tokens, heads, 2 * half + rest, half], draw.one_of(&VARIANTS));
    if drawn.get("half") == 0 { drawn.with_number(DIMS, 2.0 * half as f64).with_number(START, start) } else { drawn }
}

/// Sizes of a problem.
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    tokens: usize,
    heads: usize,
    dim: usize,
    /// Pairs of a head.
    half: usize,
    start: i64,
    theta: Option<f64>,
    interleaved: bool,
}

impl Shape {
    fn of(problem: &Problem, heads: &str) -> Result<Shape, Unsupported> {
        let [batch, tokens, heads, dim, half] = ["batch", "tokens", heads, "dim", "half"].map(|name| problem.get(name) as usize);
        let most = i64::from(i32::MAX);
        let (start, dims) = (problem.whole(START, 0..=most)?, problem.whole(DIMS, 0..=most)?);
        let theta = problem.number(THETA.0).unwrap_or(THETA.1);
        let kind = problem.kind();
        let is_made = kind.ends_with("_theta");
        let half = match (is_made, dims == 0) {
            (false, _) => half,
            (true, true) => dim / 2,
            (true, false) if dims % 2 == 1 => {
                return Err(Unsupported(format!("`dims` is {dims}, and elements are turned in pairs")));
            }
            (true, false) => dims as usize / 2,
        };
        if half == 0 || 2 * half > dim {
            return Err(Unsupported(format!("heads of {dim} elements have no {half} pairs")));
        }
        let (positions, end) = (problem.get("positions"), start as u64 + tokens as u64);
        if end > most as u64 {
            return Err(Unsupported(format!("{tokens} tokens from {start} on have positions that 32 bits do not count")));
        }
        if !is_made && end > positions {
            return Err(Unsupported(format!(
                "the tables have {positions} positions, and {tokens} tokens from {start} on need more"
            )));
        }
        let (theta, interleaved) = (is_made.then_some(f64::from(theta as f32)), kind.starts_with("interleaved"));
        Ok(Shape { batch, tokens, heads, dim, half, start, theta, interleaved })
    }

    /// Sequences, tokens and heads of a tile: a few thousand elements, heads first, since they share angles.
    fn tile(self, machine: Machine) -> [usize; 3] {
        let pairs = if machine == Machine::Cpu { 8192 } else { 2048 };
        let left = (pairs / self.half.next_power_of_two()).max(1);
        let even = 1 << self.heads.max(1).trailing_zeros();
        let heads = if even >= 4 { even } else { self.heads.next_power_of_two() }.min(left);
        let sequences = self.batch.next_power_of_two().min(left / heads).min(16);
        let tokens = self.tokens.next_power_of_two().min(left / heads / sequences);
        [sequences, tokens, heads].map(|extent| extent.max(1))
    }

    fn grid(self, [sequences, tokens, heads]: [usize; 3]) -> usize {
        self.batch.div_ceil(sequences) * self.tokens.div_ceil(tokens) * self.heads.div_ceil(heads)
    }

    fn array(self) -> [usize; 4] {
        [self.batch, self.tokens, self.heads, self.dim]
    }

    fn len(self) -> usize {
        self.array().iter().product()
    }

    /// What all kernels are told.
    fn arguments(self, acc: DType) -> Vec<(&'static str, Argument)> {
        vec![
            ("start", Argument::Int(self.start)),
            ("ACC", Argument::Type(acc)),
            ("INTERLEAVED", Argument::Bool(self.interleaved)),
            ("HALF", Argument::Int(self.half as i64)),
            ("REST", Argument::Int((self.dim - 2 * self.half) as i64)),
        ]
    }

    /// The token of a head, counted through the array.
    fn token(self, head: usize) -> usize {
        head / self.heads % self.tokens
    }
}

fn table(name: &'static str, positions: u64, half: usize) -> TensorSpec {
    TensorSpec {
        fill: Fill::Normal { mean: 0.0, sd: 0.7 },
        ..TensorSpec::new(name, DType::F32, [positions as usize, half], Role::Input)
    }
}

/// Where the results of an array go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// From one into another.
    Other([&'static str; 2]),
    /// Into itself.
    Itself(&'static str),
}

fn plan(to: To, sign: f64, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "rope")?;
    let shape = Shape::of(problem, "heads")?;
    let (from, role) = match to {
        To::Other([from, _]) => (from, Role::Input),
        To::Itself(from) => (from, Role::InOut),
    };
    let mut tensors = vec![TensorSpec::new(from, storage, shape.array(), role)];
    let mut arguments = vec![("x", Argument::Tensor(0)), ("SIGN", Argument::Float(sign))];
    arguments.extend(shape.arguments(acc));
    let (kernel, tables) = match shape.theta {
        None => {
            tensors.extend(["cos", "sin"].map(|name| table(name, problem.get("positions"), shape.half)));
            arguments.extend([("cos", Argument::Tensor(1)), ("sin", Argument::Tensor(2))]);
            (if role == Role::InOut { "rope_inplace" } else { "rope" }, 2 * 4 * (shape.tokens * shape.half) as u64)
        }
        Some(theta) => {
            let (high, low) = (theta.log2() as f32, (theta.log2() - f64::from(theta.log2() as f32)) as f32);
            arguments.extend([("log_high", high), ("log_low", low)].map(|(name, part)| (name, Argument::Float(f64::from(part)))));
            (if role == Role::InOut { "rope_inplace_theta" } else { "rope_theta" }, 0)
        }
    };
    let output = match to {
        To::Other([_, to]) => {
            tensors.push(TensorSpec::new(to, storage, shape.array(), Role::Output));
            arguments.push(("y", Argument::Tensor(tensors.len() - 1)));
            tensors.len() - 1
        }
        To::Itself(_) => {
            // What is behind the pairs stays where it is.
            arguments.retain(|(name, _)| *name != "REST");
            0
        }
    };
    let tile = shape.tile(machine);
    arguments.extend(["TB", "TT", "TH"].into_iter().zip(tile.map(|extent| Argument::Int(extent as i64))));
    // In place nothing is read or written but what is turned.
    let moved = if role == Role::InOut { shape.len() / shape.dim * 2 * shape.half } else { shape.len() };
    let bytes = packed_bytes(storage, moved as u64);
    Ok(Plan {
        outputs: vec![OutputRows { tensor: output, rows: shape.len() / shape.dim, row_len: shape.dim, exact: false }],
        tensors,
        launches: vec![LaunchSpec::new(kernel, arguments, rows::grid(shape.grid(tile), 1)?)],
        work: Work {
            read_bytes: bytes + tables,
            write_bytes: bytes,
            flops: 3 * shape.len() as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "each array read or written once, of tables the rows of tokens",
        },
        exact_lane: false,
        reference: Box::new(Turned { shape, sign, tables: 1, norm: None, out: storage, acc }),
    })
}

/// Queries and keys.
fn plan_both(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "qk_norm_rope")?;
    let (of_q, of_k) = (Shape::of(problem, "heads")?, Shape::of(problem, "shared")?);
    let spec = |name, shape: &[usize], role| TensorSpec::new(name, storage, shape, role);
    let tensors = vec![
        spec("q", &of_q.array(), Role::Input),
        spec("k", &of_k.array(), Role::Input),
        spec("q_weight", &[of_q.dim], Role::Input),
        spec("k_weight", &[of_q.dim], Role::Input),
        table("cos", problem.get("positions"), of_q.half),
        table("sin", problem.get("positions"), of_q.half),
        spec("q_out", &of_q.array(), Role::Output),
        spec("k_out", &of_k.array(), Role::Output),
    ];
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    arguments.extend(of_q.arguments(acc));
    // Tiles of tokens are those of the queries, so that both have the same tables.
    let [sequences, tokens, heads] = of_q.tile(machine);
    let tile_k = [sequences, tokens, of_k.heads.next_power_of_two().min(heads)];
    let blocks = of_q.grid([sequences, tokens, heads]);
    let numbers = [("OF_Q", blocks), ("TB", sequences), ("TT", tokens), ("TH", heads), ("SHARED", tile_k[2])];
    arguments.extend(numbers.map(|(name, number)| (name, Argument::Int(number as i64))));
    arguments.push(("eps", Argument::Float(eps(acc))));
    let elements = (of_q.len() + of_k.len()) as u64;
    let output = |tensor, shape: Shape| OutputRows { tensor, rows: shape.len() / shape.dim, row_len: shape.dim, exact: false };
    Ok(Plan {
        outputs: vec![output(6, of_q), output(7, of_k)],
        tensors,
        launches: vec![LaunchSpec::new("qk_norm_rope", arguments, rows::grid(blocks + of_k.grid(tile_k), 1)?)],
        work: Work {
            read_bytes: packed_bytes(storage, elements + 2 * of_q.dim as u64) + 8 * (of_q.tokens * of_q.half) as u64,
            write_bytes: packed_bytes(storage, elements),
            flops: 7 * elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "each array read or written once, of tables the rows of tokens",
        },
        exact_lane: false,
        reference: Box::new(Both {
            q: Turned { shape: of_q, sign: 1.0, tables: 4, norm: Some([0, 2]), out: storage, acc },
            k: Turned { shape: of_k, sign: 1.0, tables: 4, norm: Some([1, 3]), out: storage, acc },
        }),
    })
}

struct Turned {
    shape: Shape,
    sign: f64,
    /// Position of the tables among the tensors, where there are some.
    tables: usize,
    /// Positions of the array and of its weight, where heads are normalised before.
    norm: Option<[usize; 2]>,
    out: DType,
    acc: DType,
}

impl Turned {
    /// Cosines and sines of a token, and what angles are off by.
    fn angles(&self, inputs: &dyn Inputs, token: usize) -> (Vec<f64>, Vec<f64>, f64) {
        let half = self.shape.half;
        let position = self.shape.start as usize + token;
        let (mut cos, mut sin, mut off) = (vec![0.0; half], vec![0.0; half], 0.0);
        if let Some(theta) = self.shape.theta {
            for (i, (cos, sin)) in cos.iter_mut().zip(&mut sin).enumerate() {
                let angle = position as f64 * (-(i as f64) / half as f64 * theta.log2()).exp2();
                (*cos, *sin) = (angle.cos(), angle.sin());
            }
            // The logarithm has 48 bits; its product, the power and the angle are rounded.
            off = position as f64 * (theta.log2() * 0.5f64.powi(48) + 8.0 * unit_roundoff(DType::F64)) + unit_roundoff(self.acc);
        } else {
            inputs.numbers(self.tables, position * half, &mut cos);
            inputs.numbers(self.tables + 1, position * half, &mut sin);
        }
        sin.iter_mut().for_each(|sin| *sin *= self.sign);
        (cos, sin, off)
    }

    /// A head before it is turned, in `want`, and what each element is off by, in `lost`.
    fn head(&self, inputs: &dyn Inputs, head: usize, want: &mut [f64], lost: &mut [f64]) {
        let Some([array, weight]) = self.norm else {
            inputs.numbers(0, head * self.shape.dim, want);
            return lost.fill(0.0);
        };
        let mut weights = vec![0.0; self.shape.dim];
        inputs.numbers(array, head * self.shape.dim, want);
        inputs.numbers(weight, 0, &mut weights);
        let n = self.shape.dim;
        let sd = (want.iter().map(|x| x * x).sum::<f64>() / n as f64 + eps(self.acc)).sqrt();
        let model = ErrorModel { floor: 0.0, u_out: 0.0, ..ErrorModel::nearest(self.acc, self.acc) };
        for ((want, lost), weight) in want.iter_mut().zip(lost).zip(weights) {
            *want *= weight / sd;
            // As of RMS norm: nothing is subtracted.
            *lost = model.normalisation(*want, RowMoments { n, mean: 0.0, sd }, 0.0, 0.0);
        }
    }
}

impl Reference for Turned {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let Shape { dim, half, interleaved, .. } = self.shape;
        let (u_out, u_acc, floor) = (unit_roundoff(self.out), unit_roundoff(self.acc), underflow(self.out));
        want.par_chunks_mut(dim).zip(bound.par_chunks_mut(dim)).enumerate().for_each(|(at, (want, bound))| {
            let head = rows.start + at;
            self.head(inputs, head, want, bound);
            let (cos, sin, off) = self.angles(inputs, self.shape.token(head));
            for i in 0..half {
                let (i_a, i_b) = if interleaved { (2 * i, 2 * i + 1) } else { (i, half + i) };
                let (a, b, lost_a, lost_b) = (want[i_a], want[i_b], bound[i_a], bound[i_b]);
                let (c, s) = (cos[i], sin[i]);
                // Two products and their sum are rounded.
                let turned = |a: f64, b: f64, lost_a: f64, lost_b: f64| {
                    lost_a * c.abs()
                        + lost_b * s.abs()
                        + (a * c).abs().max((b * s).abs()) * 3.0 * u_acc
                        + (a.abs() + b.abs()) * off
                };
                (want[i_a], want[i_b]) = (a * c - b * s, b * c + a * s);
                (bound[i_a], bound[i_b]) = (turned(a, b, lost_a, lost_b), turned(b, a, lost_b, lost_a));
            }
            for (want, bound) in want.iter_mut().zip(bound) {
                *bound += u_out * want.abs() + floor;
                *want = storable(self.out, *want);
            }
        });
    }
}

struct Both {
    q: Turned,
    k: Turned,
}

impl Reference for Both {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let part = if output == 0 { &self.q } else { &self.k };
        part.rows(inputs, output, rows, expected);
    }
}
