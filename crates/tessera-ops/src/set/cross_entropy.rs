//! Logarithms of sums of exponentials over rows, cross entropy of logits and labels, and their gradients.

use crate::element::sum;
use crate::operator::{Argument, Operator, Unsupported};
use crate::problem::Problem;
use crate::set::rowwise::{self, Case, Kernels, Of, Rowwise, index, one, row};
use crate::signature::{Calls, ClassAxis, Labels, Operand, Signature};
use tessera_types::DType;

/// The label of rows that have no loss, where a call names no other.
const IGNORED: f64 = -100.0;

/// Numbers of a problem, and of a call.
pub(super) const NUMBERS: &[(&str, f64)] = &[("ignore_index", IGNORED)];

/// The label of rows that have no loss.
fn ignored(case: &Case) -> f64 {
    Problem::new(&[], case.variant.as_str()).number("ignore_index").unwrap_or(IGNORED)
}

/// The same as kernels are told it, beside labels of 32 bits. The least and the largest number of these may stand for labels beyond them.
fn ignored_argument(case: &Case) -> Result<(&'static str, Argument), Unsupported> {
    let problem = Problem::new(&[], case.variant.as_str());
    let label = problem.whole(NUMBERS[0], i64::from(i32::MIN) + 1..=i64::from(i32::MAX) - 1)?;
    Ok(("ignore_index", Argument::Int(label)))
}

/// Sizes at the edges of tiles, and rows of which many have the label to ignore.
fn edges() -> Vec<Problem> {
    let mut cases = rowwise::edges(&[""]);
    cases.extend([(33, 2), (7, 5)].map(|(rows, n)| rowwise::problem(rows, n, "ignore_index=1")));
    cases
}

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];
const X: Operand = Operand("x", "..rows n");

const OPERATOR: Operator = Operator {
    name: "log_sum_exp",
    about: "logarithm of the sum of exponentials over the last axis",
    file: "cross_entropy.py",
    source: include_str!("../../kernels/cross_entropy.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || rowwise::suite(&[""]),
    quick: || PRECISIONS.iter().map(|&precision| (rowwise::problem(1024, 512, ""), precision)).collect(),
    edges: || rowwise::edges(&[""]),
    draw: |draw| rowwise::draw(draw, &[""]),
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[X], &[Operand("y", "..rows")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), "")),
    },
    numbers: &[],
    plan: |problem, policy, machine| rowwise::plan(&LOG_SUM, Case::of("log_sum_exp", problem, policy, machine)?, &[]),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static LOG_SUM_EXP: Operator = Operator { gradient: Some(&LOG_SUM_EXP_BACKWARD), ..OPERATOR };

pub(crate) static LOG_SUM_EXP_BACKWARD: Operator = Operator {
    name: "log_sum_exp_backward",
    about: "gradient of the logarithm of a sum of exponentials",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[X, Operand("y", "..rows"), Operand("dy", "..rows")];
            Signature::new(INPUTS, &[Operand("dx", "..rows n")]).sums(&["y", "dy"])
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| {
        rowwise::plan(&LOG_SUM_BACKWARD, Case::of("log_sum_exp_backward", problem, policy, machine)?, &[])
    },
    ..OPERATOR
};

pub(crate) static CROSS_ENTROPY: Operator = Operator {
    name: "cross_entropy",
    about: "cross entropy of logits and labels, row by row, with the logarithms of sums of exponentials",
    calls: Calls {
        signature: |_| {
            let signature =
                Signature::new(&[X, Operand("labels", "..rows")], &[Operand("loss", "..rows"), Operand("lse", "..rows")]);
            signature.types(&[("labels", DType::I32)]).scalars(&["ignore_index"]).labels(Labels::of(
                "x",
                ClassAxis::Last,
                NUMBERS[0],
            ))
        },
        ..OPERATOR.calls
    },
    edges,
    numbers: NUMBERS,
    plan: |problem, policy, machine| rowwise::plan(&ENTROPY, Case::of("cross_entropy", problem, policy, machine)?, &[]),
    gradient: Some(&CROSS_ENTROPY_BACKWARD),
    ..OPERATOR
};

pub(crate) static CROSS_ENTROPY_BACKWARD: Operator = Operator {
    name: "cross_entropy_backward",
    about: "gradient of the cross entropy, from what it gave",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[
                X,
                Operand("labels", "..rows"),
                Operand("lse", "..rows"),
                Operand("dloss", "..rows"),
                Operand("dlse", "..rows"),
            ];
            let signature = Signature::new(INPUTS, &[Operand("dx", "..rows n")]).sums(&["lse", "dloss", "dlse"]);
            signature.types(&[("labels", DType::I32)]).scalars(&["ignore_index"]).labels(Labels::of(
                "x",
                ClassAxis::Last,
                NUMBERS[0],
            ))
        },
        ..OPERATOR.calls
    },
    edges,
    numbers: NUMBERS,
    plan: |problem, policy, machine| {
        rowwise::plan(&ENTROPY_BACKWARD, Case::of("cross_entropy_backward", problem, policy, machine)?, &[])
    },
    ..OPERATOR
};

/// The logarithm of a row's sum of exponentials, and its largest error: of the sum, of powers, of a logarithm and of the last addition.
fn log_sum(case: &Case, x: &[f64]) -> (f64, f64) {
    let u = tessera_types::unit_roundoff(case.acc);
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Of infinities there are no distances.
    if most.is_infinite() {
        return (if x.iter().any(|x| x.is_nan()) { f64::NAN } else { most }, 0.0);
    }
    let logarithm = sum(x.iter().map(|x| (x - most).exp())).ln();
    (most + logarithm, case.adding() + u * (16.0 + 4.0 * logarithm + 2.0 * most.abs()))
}

/// Elements of a row that a block reads at once: some tiles, of which each place has a sum of its own.
const PIECE: usize = 2 * rowwise::PIECE;

/// What blocks leave of parts of a row.
const BETWEEN: &[(&str, Of)] = &[("tops", Of::Sums), ("sums", Of::Sums)];

static LOG_SUM: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[one("y")],
    launches: |case, tensors| {
        rowwise::reduction(
            case,
            tensors,
            Kernels { whole: "log_sum_exp", in_parts: "log_sum_exp_parts", piece: PIECE, odd: Some(136) },
            &[],
            BETWEEN,
        )
    },
    reference: |case, inputs, _, want, bound| (want[0], bound[0]) = log_sum(case, &inputs[0]),
    flops: 4,
    formula: "x read once, y written once",
};

/// The column that a label names; a label outside of the row has a logit of 0.
fn labelled(x: &[f64], label: f64) -> f64 {
    if label >= 0.0 { x.get(label as usize).copied().unwrap_or(0.0) } else { 0.0 }
}

static ENTROPY: Rowwise = Rowwise {
    inputs: &[row("x"), index("labels")],
    outputs: &[one("loss"), one("lse")],
    launches: |case, tensors| {
        rowwise::reduction(
            case,
            tensors,
            Kernels { whole: "cross_entropy", in_parts: "cross_entropy_parts", piece: PIECE, odd: Some(136) },
            &[ignored_argument(case)?],
            BETWEEN,
        )
    },
    reference: |case, inputs, output, want, bound| {
        let (lse, error) = log_sum(case, &inputs[0]);
        let own = labelled(&inputs[0], inputs[1][0]);
        (want[0], bound[0]) = match output {
            0 if inputs[1][0] == ignored(case) => (0.0, 0.0),
            0 => (lse - own, error + tessera_types::unit_roundoff(case.acc) * (lse - own).abs()),
            _ => (lse, error),
        };
    },
    flops: 4,
    formula: "x and labels read once, loss and lse written once",
};

static LOG_SUM_BACKWARD: Rowwise = Rowwise {
    inputs: &[row("x"), one("y"), one("dy")],
    outputs: &[row("dx")],
    launches: |case, tensors| rowwise::elementwise(case, tensors, "log_sum_exp_backward", &[]),
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let (x, y, dy) = (&inputs[0], inputs[1][0], inputs[2][0]);
        for ((want, bound), x) in want.iter_mut().zip(bound).zip(x) {
            let power = (x - y).exp();
            *want = power * dy;
            *bound = model.u_out * want.abs() + of_power(model.u_acc, x - y, x.abs() + y.abs(), power) * dy.abs() + model.floor;
        }
    },
    flops: 3,
    formula: "x read once, dx written once, two numbers a row",
};

/// The error of a power of e: its exponent is rounded where it is subtracted and where it is multiplied, and small ones are flushed.
pub(super) fn of_power(u: f64, distance: f64, terms: f64, power: f64) -> f64 {
    let lost = if power > 0.0 { u * (8.0 + 4.0 * distance.abs() + terms) * power } else { 0.0 };
    lost + f64::from(f32::MIN_POSITIVE)
}

static ENTROPY_BACKWARD: Rowwise = Rowwise {
    inputs: &[row("x"), index("labels"), one("lse"), one("dloss"), one("dlse")],
    outputs: &[row("dx")],
    launches: |case, tensors| rowwise::elementwise(case, tensors, "cross_entropy_backward", &[ignored_argument(case)?]),
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let (x, label, lse, dlse) = (&inputs[0], inputs[1][0], inputs[2][0], inputs[4][0]);
        let dloss = if label == ignored(case) { 0.0 } else { inputs[3][0] };
        for (j, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let power = (x[j] - lse).exp();
            let own = if j as f64 == label { dloss } else { 0.0 };
            let both = dloss + dlse;
            *want = power * both - own;
            let terms = (power * both).abs() + own.abs() + power * (dloss.abs() + dlse.abs());
            let lost = of_power(model.u_acc, x[j] - lse, x[j].abs() + lse.abs(), power) * both.abs() + 2.0 * model.u_acc * terms;
            *bound = model.u_out * want.abs() + lost + model.floor;
        }
    },
    flops: 4,
    formula: "x read once, dx written once, four numbers a row",
};
