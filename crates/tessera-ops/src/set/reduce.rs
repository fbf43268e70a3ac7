//! Reductions over the last axis, `x[..rows, n]` to `y[..rows]`: sums, means, norms, largest and smallest elements, and where these stand; and the
//! gradients of those that have one.

use tessera_types::{DType, unit_roundoff};

use crate::element::sum;
use crate::operator::{Argument, Fill, LaunchSpec, Operator, Unsupported};
use crate::set::rows;
use crate::set::rowwise::{self, Array, Case, Kernels, Of, Rowwise, index, int, one, row};
use crate::signature::{Calls, Operand, Signature};

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Mean,
    SumSquares,
    Norm,
    Max,
    Min,
}

/// Variants, as kernels call them, too.
pub(crate) const NAMES: &[&str] = &["sum", "mean", "sum_squares", "norm", "max", "min"];
const EXTREMES: &[&str] = &["max", "min"];

impl Reduction {
    pub(crate) fn of(variant: &str) -> (&'static str, Reduction) {
        match variant {
            "mean" => ("mean", Reduction::Mean),
            "sum_squares" => ("sum_squares", Reduction::SumSquares),
            "norm" => ("norm", Reduction::Norm),
            "max" => ("max", Reduction::Max),
            "min" => ("min", Reduction::Min),
            "sum" => ("sum", Reduction::Sum),
            _ => panic!("no reduction `{variant}`"),
        }
    }

    /// The value of some elements, and its largest error: that of adding them up in any order, and of what is done with the sum.
    pub(crate) fn value(self, x: &[f64], acc: DType) -> (f64, f64) {
        let u = unit_roundoff(acc);
        let adding = |magnitude: f64| 4.0 * u * (x.len() as f64).sqrt() * magnitude;
        let squares = || sum(x.iter().map(|x| x * x));
        match self {
            Reduction::Sum => {
                let want = sum(x.iter().copied());
                (want, adding(x.iter().map(|x| x.abs()).sum()) + u * want.abs())
            }
            Reduction::Mean => {
                let n = x.len() as f64;
                let want = sum(x.iter().copied()) / n;
                (want, adding(x.iter().map(|x| x.abs()).sum()) / n + 2.0 * u * want.abs())
            }
            Reduction::SumSquares => (squares(), adding(squares())),
            // d sqrt(s) = ds / (2 sqrt(s)), and the root itself is rounded.
            Reduction::Norm => (squares().sqrt(), (adding(1.0) / 2.0 + 2.0 * u) * squares().sqrt()),
            Reduction::Max => (extreme(x, f64::max, f64::NEG_INFINITY), 0.0),
            Reduction::Min => (extreme(x, f64::min, f64::INFINITY), 0.0),
        }
    }
}

/// The largest or smallest element; NaN where there is one.
fn extreme(x: &[f64], of: fn(f64, f64) -> f64, start: f64) -> f64 {
    if x.iter().any(|x| x.is_nan()) { f64::NAN } else { x.iter().copied().fold(start, of) }
}

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)"];
const X: Operand = Operand("x", "..rows n");

pub(crate) static REDUCE_ROWS: Operator = Operator { gradient: Some(&REDUCE_ROWS_BACKWARD), ..OPERATOR };

const OPERATOR: Operator = Operator {
    name: "reduce_rows",
    about: "sum, mean, sum_squares, norm, max and min over the last axis",
    file: "reduce.py",
    source: include_str!("../../kernels/reduce.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || rowwise::suite(&["sum", "max"]),
    quick: || {
        PRECISIONS
            .iter()
            .flat_map(|&precision| ["sum", "max"].map(|name| (rowwise::problem(1024, 512, name), precision)))
            .collect()
    },
    edges: || rowwise::edges(NAMES),
    draw: |draw| rowwise::draw(draw, NAMES),
    calls: Calls {
        variants: NAMES,
        default: None,
        signature: |_| Signature::new(&[X], &[Operand("y", "..rows")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan: |problem, policy, machine| {
        let case = Case::of("reduce_rows", problem, policy, machine)?;
        refuse_none(Reduction::of(&case.variant).1, [case.rows, case.n])?;
        rowwise::plan(&ROWS, case, &[])
    },
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static REDUCE_ROWS_BACKWARD: Operator = Operator {
    name: "reduce_rows_backward",
    about: "gradients of reductions over the last axis",
    precisions: &["fp32", "fp16", "bf16"],
    quick: || {
        [("sum", "fp32"), ("norm", "fp16"), ("max", "bf16")].map(|(name, at)| (rowwise::problem(1024, 512, name), at)).to_vec()
    },
    calls: Calls {
        signature: |variant| match Reduction::of(variant).1 {
            Reduction::Norm | Reduction::Max | Reduction::Min => {
                const INPUTS: &[Operand] = &[X, Operand("y", "..rows"), Operand("dy", "..rows")];
                Signature::new(INPUTS, &[Operand("dx", "..rows n")]).sums(&["y", "dy"])
            }
            Reduction::Sum | Reduction::Mean | Reduction::SumSquares => {
                Signature::new(&[X, Operand("dy", "..rows")], &[Operand("dx", "..rows n")]).sums(&["dy"])
            }
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| {
        let case = Case::of("reduce_rows_backward", problem, policy, machine)?;
        match Reduction::of(&problem.variant).1 {
            Reduction::Sum | Reduction::Mean => rowwise::plan(&SPREAD, case, &["x"]),
            Reduction::SumSquares => rowwise::plan(&OF_SQUARES, case, &[]),
            Reduction::Norm => rowwise::plan(&OF_NORM, case, &[]),
            Reduction::Max | Reduction::Min => {
                let mut plan = rowwise::plan(&OF_EXTREME, case, &[])?;
                // Numbers few enough that a row has some which are the one drawn for its result.
                plan.tensors[..2].iter_mut().for_each(|tensor| tensor.fill = Fill::Integers { least: -2, greatest: 2 });
                Ok(plan)
            }
        }
    },
    ..OPERATOR
};

pub(crate) static ARG_ROWS: Operator = Operator {
    name: "arg_rows",
    about: "places of the largest (max) and smallest (min) elements along the last axis",
    suite: Vec::new,
    further_suite: || rowwise::suite(&["max"]),
    quick: || PRECISIONS.iter().map(|&precision| (rowwise::problem(1024, 512, "max"), precision)).collect(),
    edges: || rowwise::edges(EXTREMES),
    draw: |draw| rowwise::draw(draw, EXTREMES),
    calls: Calls { variants: EXTREMES, ..OPERATOR.calls },
    plan: |problem, policy, machine| {
        let case = Case::of("arg_rows", problem, policy, machine)?;
        refuse_none(Reduction::of(&case.variant).1, [case.rows, case.n])?;
        rowwise::plan(&PLACES, case, &[])
    },
    ..OPERATOR
};

/// Refuses results of which each is the largest or smallest of no elements.
pub(crate) fn refuse_none(reduction: Reduction, [results, elements]: [usize; 2]) -> Result<(), Unsupported> {
    let is_extreme = matches!(reduction, Reduction::Max | Reduction::Min);
    match is_extreme && elements == 0 && results > 0 {
        true => Err(Unsupported("of no elements none is the largest or smallest".to_string())),
        false => Ok(()),
    }
}

/// The reduction's name, as kernels take it.
fn word(case: &Case) -> (&'static str, Argument) {
    ("OP", Argument::Word(Reduction::of(&case.variant).0))
}

static ROWS: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[one("y")],
    launches: |case, tensors| {
        rowwise::reduction(
            case,
            tensors,
            Kernels { whole: "reduce_rows", in_parts: "reduce_rows_parts", piece: rowwise::PIECE, odd: Some(72) },
            &[word(case)],
            &[("partials", Of::Sums)],
        )
    },
    reference: |case, inputs, _, want, bound| {
        (want[0], bound[0]) = Reduction::of(&case.variant).1.value(&inputs[0], case.acc);
    },
    flops: 1,
    formula: "x read once, a number a row written",
};

static PLACES: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[index("y")],
    launches: |case, tensors| {
        let between = [("partials", Of::Sums), ("places", Of::Index)];
        rowwise::reduction(
            case,
            tensors,
            Kernels { whole: "arg_rows", in_parts: "arg_rows_parts", piece: rowwise::PIECE, odd: None },
            &[word(case)],
            &between,
        )
    },
    reference: |case, inputs, _, want, _| {
        let x = &inputs[0];
        let (top, _) = Reduction::of(&case.variant).1.value(x, case.acc);
        let is_top = |x: &f64| *x == top || x.is_nan() && top.is_nan();
        want[0] = x.iter().position(is_top).expect("a row with elements has a largest one") as f64;
    },
    flops: 1,
    formula: "x read once, an index a row written",
};

const DX: &[Array] = &[row("dx")];

static SPREAD: Rowwise = Rowwise {
    inputs: &[row("x"), one("dy")],
    outputs: DX,
    launches: |case, tensors| {
        let count = if Reduction::of(&case.variant).1 == Reduction::Mean { case.n } else { 1 };
        let (tile, grid) = case.tiles()?;
        let mut arguments = rows::arrays(tensors, &["dy", "dx"]);
        arguments.extend([int("count", count), case.acc_argument()]);
        arguments.extend(tile);
        Ok(vec![LaunchSpec::new("spread_rows", arguments, grid)])
    },
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let dy = inputs[1][0];
        let exact = if Reduction::of(&case.variant).1 == Reduction::Mean { dy / case.n as f64 } else { dy };
        want.fill(exact);
        bound.fill((model.u_out + 2.0 * model.u_acc) * exact.abs() + model.floor);
    },
    flops: 1,
    formula: "a number a row read, dx written once",
};

static OF_SQUARES: Rowwise = Rowwise {
    inputs: &[row("x"), one("dy")],
    outputs: DX,
    launches: |case, tensors| {
        let (tile, grid) = case.tiles()?;
        let mut arguments = rows::arrays(tensors, &["x", "dy", "dx"]);
        // No root is read.
        arguments.extend([("y", arguments[1].1), word(case), case.acc_argument()]);
        arguments.extend(tile);
        Ok(vec![LaunchSpec::new("squares_backward", arguments, grid)])
    },
    reference: |case, inputs, _, want, bound| scaled(case, &inputs[0], 2.0 * inputs[1][0], want, bound),
    flops: 1,
    formula: "x and a number a row read once, dx written once",
};

static OF_NORM: Rowwise = Rowwise {
    inputs: &[row("x"), one("y"), one("dy")],
    outputs: DX,
    launches: |case, tensors| rowwise::elementwise(case, tensors, "squares_backward", &[word(case)]),
    reference: |case, inputs, _, want, bound| {
        let (y, dy) = (inputs[1][0], inputs[2][0]);
        scaled(case, &inputs[0], if y == 0.0 { 0.0 } else { dy / y }, want, bound);
    },
    flops: 1,
    formula: "x and two numbers a row read once, dx written once",
};

/// Elements times a number of the row's, which a quotient or product made.
fn scaled(case: &Case, x: &[f64], factor: f64, want: &mut [f64], bound: &mut [f64]) {
    let model = case.stored();
    for ((want, bound), x) in want.iter_mut().zip(bound).zip(x) {
        *want = x * factor;
        *bound = (model.u_out + 4.0 * model.u_acc) * want.abs() + model.floor;
    }
}

/// Elements of a row that are looked at at a time.
const CHUNK: usize = 4096;

static OF_EXTREME: Rowwise = Rowwise {
    inputs: &[row("x"), one("y"), one("dy")],
    outputs: DX,
    launches: |case, tensors| {
        let mut arguments = rows::arrays(tensors, &["x", "y", "dy", "dx"]);
        let chunk = CHUNK.min(case.n.next_power_of_two());
        arguments.extend([case.acc_argument(), int("CHUNK", chunk), int("N", case.n)]);
        Ok(vec![LaunchSpec::new("extreme_backward", arguments, rows::grid(case.rows, 1)?)])
    },
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let (x, y, dy) = (&inputs[0], inputs[1][0], inputs[2][0]);
        let share = dy / x.iter().filter(|x| **x == y).count() as f64;
        for ((want, bound), x) in want.iter_mut().zip(bound).zip(x) {
            *want = if *x == y {
                share
            } else if y.is_nan() {
                y
            } else {
                0.0
            };
            *bound = (model.u_out + 2.0 * model.u_acc) * want.abs() + if *want == 0.0 { 0.0 } else { model.floor };
        }
    },
    flops: 2,
    formula: "x and two numbers a row read once, dx written once",
};
