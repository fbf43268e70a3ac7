//! The cross entropy of a linear layer's logits, and its gradients, without the logits in memory.
//!
//! Blocks of the forward pass take a tile of tokens and a part of the classes each; a second launch puts a token's parts together. The gradients go
//! through strips of classes, three launches each: `ds` of the strip, what it adds to `dx`, and its rows of `dweight`. A strip has as many classes as
//! `x` has columns, so that `ds` takes the memory of `x`, or more where tokens are so few that the device would not be full.
//!
//! With `u` the round-off of sums, `r` that of storage, for a token and a class:
//!
//! | | is | is off by |
//! |---|---|---|
//! | `s` | `x w` | `4 u sqrt(dim) sum abs(x w)` |
//! | `lse` | `log sum exp(s)` | the mean of that with weights `exp(s - lse)`, and what sums and powers lose |
//! | `ds` | `exp(s - lse) (dloss + dlse) - [label] dloss` | the power times that of `s` and `u (8 + 5 abs(s) + 5 abs(lse))`; `r` of itself |
//! | `dx`, `dweight` | sums of `ds w`, of `ds x` | the sums of what `ds` is off by; `4 u sqrt(terms)` of magnitudes |

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use super::cross_entropy::{NUMBERS, of_power};
use super::gemm::blocks;
use super::rows;
use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::matrix::{self, Matrix};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::signature::{Calls, ClassAxis, Labels, Operand, Signature};
use crate::work::{Metric, Work};

const X: Operand = Operand("x", "..tokens dim");
const WEIGHT: Operand = Operand("weight", "vocab dim");
const LABELS: Operand = Operand("labels", "..tokens");
const CLASSES: Labels = Labels::of("weight", ClassAxis::First, NUMBERS[0]);
const LSE: Operand = Operand("lse", "..tokens");

const OPERATOR: Operator = Operator {
    name: "linear_cross_entropy",
    about: "cross entropy of a linear layer's logits and labels, without the logits in memory",
    file: "linear_cross_entropy.py",
    source: include_str!("../../kernels/linear_cross_entropy.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: suite,
    quick: || ["fp32", "fp16", "bf16"].map(|precision| (problem([256, 640, 128], ""), precision)).into(),
    edges,
    draw,
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let signature = Signature::new(&[X, WEIGHT, LABELS], &[Operand("loss", "..tokens"), LSE]);
            signature.types(&[("labels", DType::I32)]).sums(&["loss", "lse"]).scalars(&["ignore_index"]).labels(CLASSES)
        },
        problem: |sizes| Ok(problem(["tokens", "vocab", "dim"].map(|name| sizes.get(name)), "")),
    },
    numbers: NUMBERS,
    plan: forward,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static LINEAR_CROSS_ENTROPY: Operator = Operator { gradient: Some(&LINEAR_CROSS_ENTROPY_BACKWARD), ..OPERATOR };

pub(crate) static LINEAR_CROSS_ENTROPY_BACKWARD: Operator = Operator {
    name: "linear_cross_entropy_backward",
    about: "gradients of the cross entropy of a linear layer's logits, from what it gave",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[X, WEIGHT, LABELS, LSE, Operand("dloss", "..tokens"), Operand("dlse", "..tokens")];
            let signature = Signature::new(INPUTS, &[Operand("dx", "..tokens dim"), Operand("dweight", "vocab dim")]);
            signature.types(&[("labels", DType::I32)]).sums(&["lse", "dloss", "dlse"]).scalars(&["ignore_index"]).labels(CLASSES)
        },
        ..OPERATOR.calls
    },
    plan: backward,
    ..OPERATOR
};

fn problem([tokens, vocab, dim]: [u64; 3], variant: &str) -> Problem {
    Problem::new(&[("tokens", tokens), ("vocab", vocab), ("dim", dim)], variant)
}

/// Last layers of language models.
fn suite() -> Vec<Problem> {
    let sizes = [[4096, 32000, 4096], [4096, 128_256, 4096], [16384, 128_256, 2048], [8192, 151_936, 2048], [64, 128_256, 4096]];
    sizes.map(|sizes| problem(sizes, "")).into()
}

/// Sizes beside those of tiles; several parts and strips; tokens of which many are to be ignored; no columns and no tokens.
fn edges() -> Vec<Problem> {
    let sizes = [
        [1, 1, 1],
        [5, 200, 40],
        [128, 256, 64],
        [130, 257, 72],
        [40, 300, 264],
        [33, 1100, 17],
        [300, 2000, 16],
        [3, 4, 0],
        [0, 5, 8],
    ];
    let mut cases: Vec<Problem> = sizes.map(|sizes| problem(sizes, "")).into();
    cases.extend([[33, 2, 24], [70, 5, 8]].map(|sizes| problem(sizes, "ignore_index=1")));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    problem(draw.extents(draw.operations() / 8, [2048, 8192, 1024]), "")
}

/// One problem.
#[derive(Clone, Copy, Debug)]
struct Case {
    tokens: usize,
    vocab: usize,
    dim: usize,
    ignored: i64,
    storage: DType,
    acc: DType,
    machine: Machine,
}

/// Rows, columns and contraction of the products' tiles: powers of two, and a multiple of the others' is that of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    columns: usize,
    depth: usize,
}

/// Blocks for each multiprocessor, where classes are shared out: the last ones to run leave few of them idle.
const WAVES: usize = 4;
/// The most parts of a token's classes.
const PARTS: usize = 256;
/// Tokens of a block that puts parts together.
const TOGETHER: usize = 16;
/// Blocks for all multiprocessors, or cores, of a machine whose count is not known.
const CORES: usize = 16;

impl Case {
    fn of(name: &str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Case, Unsupported> {
        let (storage, acc) = rows::storage(policy, name)?;
        if storage.bits() < 16 {
            return Err(Unsupported(format!("{name} takes no `{policy}`")));
        }
        let [tokens, vocab, dim] = ["tokens", "vocab", "dim"].map(|name| problem.get(name) as usize);
        if [tokens, vocab].iter().any(|&extent| extent > i32::MAX as usize / 2) {
            return Err(Unsupported(format!("{name} counts tokens and classes in 32 bits")));
        }
        let ignored = problem.whole(NUMBERS[0], i64::from(i32::MIN)..=i64::from(i32::MAX))?;
        Ok(Case { tokens, vocab, dim, ignored, storage, acc, machine })
    }

    fn tile(&self) -> Tile {
        let tile = |[rows, columns, depth]: [usize; 3]| Tile { rows, columns, depth };
        match (self.machine, self.storage.bits()) {
            (Machine::Cpu, _) => tile([128, 128, 64]),
            (Machine::Gpu(_), 64) => tile([32, 64, 16]),
            (Machine::Gpu(_), 32) => tile([64, 64, 32]),
            // Two warpgroups hold a tile that reads its factors less often, where gradients have as many columns.
            (Machine::Gpu(arch), _) if arch.has_wgmma() && self.dim >= 256 => tile([128, 256, 64]),
            (Machine::Gpu(_), _) => tile([128, 128, 64]),
        }
    }

    fn cores(&self) -> usize {
        match self.machine {
            Machine::Cpu => CORES,
            Machine::Gpu(arch) => arch.multiprocessors() as usize,
        }
    }

    /// Tiles of classes of a block of the forward pass, and how many such parts there are.
    fn parts(&self) -> [usize; 2] {
        let Tile { rows, columns, .. } = self.tile();
        let all = self.vocab.div_ceil(columns).max(1);
        let wanted = (WAVES * self.cores()).div_ceil(self.tokens.div_ceil(rows).max(1)).min(all).min(PARTS);
        let tiles = all.div_ceil(wanted);
        [tiles, all.div_ceil(tiles)]
    }

    /// Classes of a strip.
    fn strip(&self) -> usize {
        let Tile { rows, columns, .. } = self.tile();
        let full = (self.cores() * rows * columns).div_ceil(self.tokens.max(1));
        self.dim.max(full).min(self.vocab.max(1)).next_multiple_of(columns)
    }

    fn tensors(&self) -> Vec<TensorSpec> {
        // Logits of a standard deviation of 1, whatever the number of columns.
        let spread = Fill::Normal { mean: 0.0, sd: 1.0 / (self.dim.max(1) as f64).sqrt() };
        let labels = Fill::Integers { least: 0, greatest: self.vocab.saturating_sub(1) as i64 };
        vec![
            TensorSpec::new("x", self.storage, [self.tokens, self.dim], Role::Input),
            TensorSpec { fill: spread, ..TensorSpec::new("weight", self.storage, [self.vocab, self.dim], Role::Input) },
            TensorSpec { fill: labels, ..TensorSpec::new("labels", DType::I32, [self.tokens], Role::Input) },
        ]
    }

    /// A launch of a kernel with these arrays of the plan, its numbers, and the tile.
    fn launch(
        &self,
        tensors: &[TensorSpec],
        kernel: &'static str,
        names: &[&'static str],
        numbers: &[(&'static str, usize)],
        grid: [u32; 2],
    ) -> LaunchSpec {
        let mut arguments = rows::arrays(tensors, names);
        arguments.extend(numbers.iter().map(|&(name, value)| (name, Argument::Int(value as i64))));
        let Tile { rows, columns, depth } = self.tile();
        arguments.push(("ACC", Argument::Type(self.acc)));
        arguments.extend([("TM", rows), ("TN", columns), ("TK", depth)].map(|(name, value)| (name, Argument::Int(value as i64))));
        LaunchSpec::new(kernel, arguments, [grid[0], grid[1], 1])
    }

    fn work(&self, tensors: &[TensorSpec], products: u64, formula: &'static str) -> Work {
        let bytes = |role| tensors.iter().filter(|tensor| tensor.role == role).map(TensorSpec::allocated_bytes).sum();
        Work {
            read_bytes: bytes(Role::Input),
            write_bytes: bytes(Role::Output),
            flops: 2 * products * self.tokens as u64 * self.vocab as u64 * self.dim as u64,
            compute: Some(self.storage),
            metric: Metric::Compute,
            formula,
        }
    }

    fn ignored_argument(&self) -> (&'static str, Argument) {
        ("ignore_index", Argument::Int(self.ignored))
    }
}

/// So many blocks for an extent.
fn across(extent: usize, tile: usize) -> Result<u32, Unsupported> {
    blocks(extent as u64, tile as i64)
}

fn forward(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of("linear_cross_entropy", problem, policy, machine)?;
    let mut tensors = case.tensors();
    tensors.extend(["loss", "lse"].map(|name| TensorSpec::new(name, case.acc, [case.tokens], Role::Output)));
    let work = case.work(&tensors, 1, "2 tokens vocab dim operations; x, weight and labels read once, loss and lse written once");
    let [tiles, parts] = case.parts();
    let between = ["tops", "sums", "owns"].map(|name| TensorSpec::new(name, case.acc, [case.tokens, parts], Role::Workspace));
    tensors.extend(between);
    let names = ["x", "weight", "labels", "tops", "sums", "owns"];
    let grid = [across(case.tokens, case.tile().rows)?, parts as u32];
    let of_parts = case.launch(&tensors, "in_parts", &names, &[("TILES", tiles)], grid);
    let mut arguments = rows::arrays(&tensors, &["tops", "sums", "owns", "labels", "loss", "lse"]);
    arguments.extend([case.ignored_argument(), ("ACC", Argument::Type(case.acc)), ("ROWS", Argument::Int(TOGETHER as i64))]);
    arguments.push(("PARTS", Argument::Int(parts.next_power_of_two() as i64)));
    let together = LaunchSpec::new("together", arguments, [across(case.tokens, TOGETHER)?, 1, 1]);
    let outputs = [3, 4].map(|tensor| OutputRows { tensor, rows: case.tokens, row_len: 1, exact: false });
    Ok(Plan {
        tensors,
        launches: vec![of_parts, together],
        outputs: outputs.into(),
        work,
        exact_lane: false,
        reference: Box::new(Losses(case)),
    })
}

fn backward(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of("linear_cross_entropy_backward", problem, policy, machine)?;
    let mut tensors = case.tensors();
    // What a forward pass has left: powers that sum up to about 1.
    let lse = Fill::Normal { mean: (case.vocab.max(1) as f64).ln() + 0.5, sd: 0.25 };
    tensors.push(TensorSpec { fill: lse, ..TensorSpec::new("lse", case.acc, [case.tokens], Role::Input) });
    tensors.extend(["dloss", "dlse"].map(|name| TensorSpec::new(name, case.acc, [case.tokens], Role::Input)));
    tensors.push(TensorSpec::new("dx", case.storage, [case.tokens, case.dim], Role::Output));
    tensors.push(TensorSpec::new("dweight", case.storage, [case.vocab, case.dim], Role::Output));
    let work = case.work(&tensors, 3, "6 tokens vocab dim operations: three products; inputs read once, gradients written once");
    let launches = strips(&case, &mut tensors)?;
    let output = |tensor, rows| OutputRows { tensor, rows, row_len: case.dim, exact: false };
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![output(6, case.tokens), output(7, case.vocab)],
        work,
        exact_lane: false,
        reference: Box::new(Gradients(case)),
    })
}

/// The launches of all strips; what they need in memory is put behind the plan's arrays.
fn strips(case: &Case, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    let (Tile { rows, columns, depth }, strip) = (case.tile(), case.strip());
    let count = case.vocab.div_ceil(strip).max(1);
    tensors.push(TensorSpec::new("strip", case.storage, [case.tokens, strip], Role::Workspace));
    // dx is rounded once, behind the last strip.
    let apart = count > 1 && case.acc != case.storage;
    if apart {
        tensors.push(TensorSpec::new("sums", case.acc, [case.tokens, case.dim], Role::Workspace));
    }
    let place = |name| rows::arrays(tensors, &[name])[0].1;
    let sums = place(if apart { "sums" } else { "dx" });
    let [of_tokens, of_dim] = [across(case.tokens, rows)?, across(case.dim, columns)?];
    let mut launches = Vec::new();
    for at in 0..count {
        let first = at * strip;
        let classes = strip.min(case.vocab - first);
        let names = ["x", "weight", "labels", "lse", "dloss", "dlse", "strip"];
        let grid = [of_tokens, across(classes, columns)?];
        let mut logits = case.launch(tensors, "of_logits", &names, &[("first", first / columns)], grid);
        logits.arguments.push(case.ignored_argument());
        let numbers = [("first", first / depth), ("count", classes)];
        let mut of_x = case.launch(tensors, "of_x", &["strip", "weight"], &numbers, [of_tokens, of_dim]);
        of_x.arguments.extend([("sums", sums), ("ADDS", Argument::Bool(at > 0))]);
        let grid = [across(classes, rows)?, of_dim];
        let of_weight = case.launch(tensors, "of_weight", &["strip", "x", "dweight"], &[("first", first / rows)], grid);
        launches.extend([logits, of_x, of_weight]);
    }
    if apart {
        let mut arguments = rows::arrays(tensors, &["sums", "dx"]);
        arguments.extend([("TM", rows), ("TN", columns)].map(|(name, value)| (name, Argument::Int(value as i64))));
        launches.push(LaunchSpec::new("rounded", arguments, [of_tokens, of_dim, 1]));
    }
    Ok(launches)
}

/// Products of some rows that a reference keeps at a time.
const KEPT: usize = 1 << 22;

impl Case {
    /// `x`, or `weight`, and the transpose of the other one.
    fn factors(&self, by_token: bool) -> [Matrix; 2] {
        let matrix = |tensor, rows, columns, transposed| Matrix { tensor, base: 0, rows, columns, transposed };
        match by_token {
            true => [matrix(0, self.tokens, self.dim, false), matrix(1, self.dim, self.vocab, true)],
            false => [matrix(1, self.vocab, self.dim, false), matrix(0, self.dim, self.tokens, true)],
        }
    }

    /// The logits of rows of `x`, or of `weight`, and what each is off by.
    fn logits(&self, inputs: &dyn Inputs, rows: &[usize], by_token: bool) -> (Vec<f64>, Vec<f64>) {
        let [left, right] = self.factors(by_token);
        let (mut sums, mut errors) = (vec![0.0; rows.len() * right.columns], vec![0.0; rows.len() * right.columns]);
        if self.dim > 0 && !sums.is_empty() {
            matrix::product(inputs, (&left, rows, &right), &mut sums, &mut errors);
        }
        let model = ErrorModel::nearest(self.acc, self.acc);
        errors.iter_mut().zip(&sums).for_each(|(error, sum)| *error = model.contraction(*sum, *error, self.dim));
        (sums, errors)
    }

    /// Rows that are looked at together, with so many products each.
    fn together(products: usize) -> usize {
        (KEPT / products.max(1)).max(1)
    }

    /// What the error of an exponent makes of its power: nothing of one that is 0, however large the exponent's magnitude is.
    fn carried(power: f64, error: f64) -> f64 {
        if power == 0.0 { 0.0 } else { power * error }
    }

    fn read(inputs: &dyn Inputs, tensor: usize, count: usize) -> Vec<f64> {
        let mut all = vec![0.0; count];
        inputs.numbers(tensor, 0, &mut all);
        all
    }
}

struct Losses(Case);

impl Losses {
    /// `loss`, or `lse`, of a token, and how far it may be off.
    fn of(&self, output: usize, label: f64, logits: &[f64], errors: &[f64]) -> (f64, f64) {
        let case = &self.0;
        if output == 0 && label == case.ignored as f64 {
            return (0.0, 0.0);
        }
        let u = unit_roundoff(case.acc);
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let is_infinite = most.is_infinite();
        // Of infinities there are no distances, and NaN is the largest of nothing.
        let logarithm = match is_infinite {
            true if logits.iter().any(|s| s.is_nan()) => f64::NAN,
            true => 0.0,
            false => sum(logits.iter().map(|s| (s - most).exp())).ln(),
        };
        let lse = most + logarithm;
        let of_power = |(s, error): (&f64, &f64)| Case::carried((s - lse).exp(), *error);
        let moved: f64 = logits.iter().zip(errors).map(of_power).sum();
        let adding = 4.0 * u * (case.vocab.max(1) as f64).sqrt();
        let error = moved + adding + u * (16.0 + 4.0 * logarithm.abs() + 2.0 * most.abs());
        if output == 1 {
            return (lse, error);
        }
        let own = if label >= 0.0 { logits.get(label as usize).zip(errors.get(label as usize)) } else { None };
        // A label outside of the classes has a logit of 0.
        let (own, of_own) = own.map_or((0.0, 0.0), |(own, error)| (*own, *error));
        (lse - own, error + of_own + u * (lse - own).abs())
    }

    fn answer(&self, inputs: &dyn Inputs, output: usize, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let (case, vocab) = (&self.0, self.0.vocab);
        let labels = Case::read(inputs, 2, case.tokens);
        let kept = Case::together(vocab);
        for ((rows, want), bound) in rows.chunks(kept).zip(want.chunks_mut(kept)).zip(bound.chunks_mut(kept)) {
            let (logits, errors) = case.logits(inputs, rows, true);
            let out = want.par_iter_mut().zip(bound.par_iter_mut()).enumerate();
            out.for_each(|(at, (want, bound))| {
                let own = at * vocab..(at + 1) * vocab;
                (*want, *bound) = self.of(output, labels[rows[at]], &logits[own.clone()], &errors[own]);
            });
        }
    }
}

struct Gradients(Case);

/// What is known of a token: its label, `lse`, and cotangents.
#[derive(Clone, Copy)]
struct Token {
    label: f64,
    lse: f64,
    dloss: f64,
    dlse: f64,
}

impl Gradients {
    fn tokens(&self, inputs: &dyn Inputs) -> Vec<Token> {
        let case = &self.0;
        let [labels, lse, dloss, dlse] = [2, 3, 4, 5].map(|tensor| Case::read(inputs, tensor, case.tokens));
        let token = |at: usize| {
            let dloss = if labels[at] == case.ignored as f64 { 0.0 } else { dloss[at] };
            Token { label: labels[at], lse: lse[at], dloss, dlse: dlse[at] }
        };
        (0..case.tokens).map(token).collect()
    }

    /// The gradient of a logit, as it is stored, and how far it may be off.
    fn of_logit(&self, token: Token, class: usize, s: f64, error: f64) -> (f64, f64) {
        let (u, Token { label, lse, dloss, dlse }) = (unit_roundoff(self.0.acc), token);
        let (p, both) = ((s - lse).exp(), dloss + dlse);
        let own = if class as f64 == label { dloss } else { 0.0 };
        let ds = p * both - own;
        let of_p = of_power(u, s - lse, s.abs() + lse.abs(), p) + Case::carried(p, error);
        let terms = (p * both).abs() + own.abs() + p * (dloss.abs() + dlse.abs());
        let lost = of_p * both.abs() + 2.0 * u * terms;
        (ds, lost + unit_roundoff(self.0.storage) * ds.abs() + underflow(self.0.storage))
    }

    /// Rows of `dx`, or of `dweight`.
    fn answer(&self, inputs: &dyn Inputs, output: usize, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let (case, dim) = (&self.0, self.0.dim);
        if dim == 0 {
            return;
        }
        let by_token = output == 0;
        let [_, right] = case.factors(by_token);
        let tokens = self.tokens(inputs);
        let others = Case::read(inputs, right.tensor, right.columns * dim);
        let model = ErrorModel { floor: underflow(case.storage), ..ErrorModel::nearest(case.storage, case.acc) };
        let kept = Case::together(right.columns);
        for ((rows, want), bound) in rows.chunks(kept).zip(want.chunks_mut(kept * dim)).zip(bound.chunks_mut(kept * dim)) {
            let (logits, errors) = case.logits(inputs, rows, by_token);
            let out = want.par_chunks_mut(dim).zip(bound.par_chunks_mut(dim)).enumerate();
            out.for_each(|(at, (want, bound))| {
                let (mut magnitude, mut off) = (vec![0.0; dim], vec![0.0; dim]);
                want.fill(0.0);
                for (other, line) in others.chunks_exact(dim).enumerate() {
                    let place = at * right.columns + other;
                    let (token, class) = if by_token { (rows[at], other) } else { (other, rows[at]) };
                    let (ds, error) = self.of_logit(tokens[token], class, logits[place], errors[place]);
                    for (column, other) in line.iter().enumerate() {
                        want[column] += ds * other;
                        magnitude[column] += (ds * other).abs();
                        off[column] += error * other.abs();
                    }
                }
                for column in 0..dim {
                    let value = want[column];
                    bound[column] = off[column] + model.contraction(value, magnitude[column] + off[column], right.columns);
                    want[column] = storable(case.storage, value);
                }
            });
        }
    }
}

/// The rows of all ranges.
fn all(rows: &[Range<usize>]) -> Vec<usize> {
    rows.iter().cloned().flatten().collect()
}

impl Reference for Losses {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, output, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, output, &all(rows), expected);
    }
}

impl Reference for Gradients {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, output, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, output, &all(rows), expected);
    }
}
