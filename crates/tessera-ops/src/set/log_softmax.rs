//! The logarithm of a softmax over the last axis, and the gradients of it and of the softmax.

use tessera_types::Policy;

use crate::element::sum;
use crate::operator::{Argument, LaunchSpec, Machine, Operator, Plan, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::set::rows::{self, Division};
use crate::set::rowwise::{self, Case, Rowwise, int, row};
use crate::set::softmax;
use crate::signature::{Calls, Operand, Signature};
use crate::work::packed_bytes;

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];

/// What the three have in common.
const OPERATOR: Operator = Operator {
    name: "log_softmax",
    about: "logarithm of a softmax over the last axis",
    file: "log_softmax.py",
    source: include_str!("../../kernels/log_softmax.py"),
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
        signature: |_| Signature::new(&[Operand("x", "..rows n")], &[Operand("y", "..rows n")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), "")),
    },
    numbers: &[],
    plan: |problem, policy, machine| {
        let case = Case::of("log_softmax", problem, policy, machine)?;
        rowwise::plan(&FORWARD, case, &[])
    },
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static LOG_SOFTMAX: Operator = Operator { gradient: Some(&LOG_SOFTMAX_BACKWARD), ..OPERATOR };

pub(crate) static LOG_SOFTMAX_BACKWARD: Operator = Operator {
    name: "log_softmax_backward",
    about: "gradient of the logarithm of a softmax, from its result",
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[Operand("y", "..rows n"), Operand("dy", "..rows n")], &[Operand("dx", "..rows n")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), "")),
    },
    plan: |problem, policy, machine| {
        let case = Case::of("log_softmax_backward", problem, policy, machine)?;
        rowwise::plan(&LOG_BACKWARD, case, &[])
    },
    ..OPERATOR
};

/// The problems are those of [`softmax::SOFTMAX`].
pub(crate) static SOFTMAX_BACKWARD: Operator = Operator {
    name: "softmax_backward",
    about: "gradient of a softmax, full or causal, from its result",
    further_suite: || {
        [(32, 2048), (8, 4096)]
            .iter()
            .flat_map(|&(heads, n)| ["", "causal"].map(|variant| softmax::problem(1, heads, n, n, variant)))
            .collect()
    },
    quick: || PRECISIONS.iter().map(|&precision| (softmax::problem(1, 8, 128, 512, ""), precision)).collect(),
    edges: softmax::edges,
    draw: softmax::draw,
    calls: Calls {
        variants: &["", "causal"],
        default: Some(""),
        signature: |variant| match variant {
            "causal" => {
                const INPUTS: &[Operand] = &[Operand("y", "..batch queries keys"), Operand("dy", "..batch queries keys")];
                Signature::new(INPUTS, &[Operand("dx", "..batch queries keys")])
            }
            _ => Signature::new(&[Operand("y", "..rows keys"), Operand("dy", "..rows keys")], &[Operand("dx", "..rows keys")]),
        },
        problem: softmax::called,
    },
    plan: softmax_backward,
    ..OPERATOR
};

fn softmax_backward(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let [batch, heads, queries, keys] = ["batch", "heads", "queries", "keys"].map(|name| problem.get(name));
    let causal = problem.has("causal");
    if causal && queries > keys {
        return Err(Unsupported("causal softmax needs a key for every query".to_string()));
    }
    let case = Case::of("softmax_backward", &rowwise::problem(batch * heads * queries, keys, ""), policy, machine)?;
    let mut plan = rowwise::plan(&BACKWARD, Case { queries: causal.then_some(queries as usize), ..case }, &[])?;
    if causal {
        let seen = batch * heads * (0..queries).map(|query| query + keys - queries + 1).sum::<u64>();
        plan.work.read_bytes = packed_bytes(plan.tensors[0].dtype, 2 * seen);
        plan.work.formula = "y and dy read once where a query sees the key, dx written once";
    }
    Ok(plan)
}

static FORWARD: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[row("y")],
    launches: |case, tensors| launch(case, tensors, ["log_softmax", "log_softmax_pieces"], &["tops", "sums"], &[]),
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let x = &inputs[0];
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = sum(x.iter().map(|x| (x - most).exp()));
        for ((want, bound), x) in want.iter_mut().zip(bound).zip(x) {
            *want = (x - most) - total.ln();
            // A power's error is that of its exponent's product, which is of the size of the distances that count; a logarithm's is absolute.
            let of_sum = case.adding() + 16.0 * model.u_acc;
            *bound = model.u_out * want.abs() + 2.0 * model.u_acc * ((x - most).abs() + 2.0 * total.ln()) + of_sum + model.floor;
        }
    },
    flops: 5,
    formula: "x read once, y written once",
};

static BACKWARD: Rowwise = Rowwise {
    inputs: &[row("y"), row("dy")],
    outputs: &[row("dx")],
    launches: |case, tensors| match case.queries {
        Some(queries) => {
            let division = Division::whole(case.n, case.storage, case.machine);
            let mut arguments = rows::arrays(tensors, &["y", "dy", "dx"]);
            arguments.extend(division.rows().map(|rows| int("ROWS", rows)));
            arguments.extend([case.acc_argument(), int("N", case.n), int("QUERIES", queries)]);
            Ok(vec![LaunchSpec::new("softmax_gradient_causal", arguments, division.grid(case.rows)?)])
        }
        None => gradient(case, tensors, false),
    },
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let (y, dy) = (&inputs[0], &inputs[1]);
        let total = sum(y.iter().zip(dy).map(|(y, dy)| y * dy));
        let error = (case.adding() + model.u_acc) * y.iter().zip(dy).map(|(y, dy)| (y * dy).abs()).sum::<f64>();
        for (j, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            *want = y[j] * (dy[j] - total);
            let lost = error + 2.0 * model.u_acc * (dy[j].abs() + total.abs());
            *bound = model.u_out * want.abs() + y[j].abs() * lost + model.floor;
        }
    },
    flops: 4,
    formula: "y and dy read once, dx written once",
};

static LOG_BACKWARD: Rowwise = Rowwise {
    inputs: &[row("y"), row("dy")],
    outputs: &[row("dx")],
    launches: |case, tensors| gradient(case, tensors, true),
    reference: |case, inputs, _, want, bound| {
        let model = case.stored();
        let (y, dy) = (&inputs[0], &inputs[1]);
        let total = sum(dy.iter().copied());
        let error = case.adding() * dy.iter().map(|dy| dy.abs()).sum::<f64>();
        for (j, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let p = y[j].exp();
            *want = dy[j] - p * total;
            let of_power = 4.0 * model.u_acc * (2.0 + y[j].abs()) * p + f64::from(f32::MIN_POSITIVE);
            let lost = p * error + of_power * total.abs() + 2.0 * model.u_acc * (dy[j].abs() + (p * total).abs());
            *bound = model.u_out * want.abs() + lost + model.floor;
        }
    },
    flops: 4,
    formula: "y and dy read once, dx written once",
};

fn gradient(case: &Case, tensors: &mut Vec<TensorSpec>, log: bool) -> Result<Vec<LaunchSpec>, Unsupported> {
    launch(case, tensors, ["softmax_gradient", "softmax_gradient_pieces"], &["sums"], &[("LOG", Argument::Bool(log))])
}

/// The launch of a kernel for whole rows of the plan's arrays, or of the one for rows in pieces, with what that leaves of pieces.
fn launch(
    case: &Case,
    tensors: &mut Vec<TensorSpec>,
    kernels: [&'static str; 2],
    words: &[&'static str],
    constants: &[(&'static str, Argument)],
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let names: Vec<&'static str> = tensors.iter().map(|tensor| tensor.name).collect();
    let division = Division::alone(names.len() - 1, [case.rows, case.n], case.storage, case.machine);
    let mut arguments = rows::arrays(tensors, &names);
    arguments.extend(constants);
    arguments.extend([case.acc_argument(), int("N", case.n)]);
    arguments.extend(division.rows().map(|rows| int("ROWS", rows)));
    let [whole, in_pieces] = kernels;
    let kernel = match division {
        Division::Whole(_) | Division::Cluster { .. } => whole,
        Division::Pieces(pieces) => {
            let between = pieces.between(words, case.acc);
            let names: Vec<&'static str> = between.iter().map(|tensor| tensor.name).collect();
            tensors.extend(between);
            arguments.extend(rows::arrays(tensors, &names));
            arguments.extend(pieces.constants());
            in_pieces
        }
    };
    Ok(vec![division.launch(kernel, arguments, division.grid(case.rows)?)])
}
