//! The experts of each token, by their logits, and their weights; and the gradient of the logits.

use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use super::by_row::{ByRow, Line, numbers};
use super::moe::{ELEMENTS, PLACES, SORT, chosen, gated, tensors_of, work};
use super::rows::{self, int};
use crate::element::{storable, underflow};
use crate::operator::{Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::packed_bytes;

/// The plain variant of the gate, and the one whose weights sum up to 1.
const GATES: [&str; 2] = ["", "renormalised"];

pub(crate) static MOE_GATE: Operator = Operator {
    name: "moe_gate",
    about: "the experts of each token by their logits, with their part of the softmax over all or over these",
    calls: Calls {
        variants: &GATES,
        default: Some(""),
        signature: |_| {
            let outputs = &[Operand("weights", "..tokens k"), Operand("ids", "..tokens k")];
            Signature::new(&[Operand("logits", "..tokens experts")], outputs)
        },
        problem: of_gate,
    },
    plan: gate,
    gradient: Some(&MOE_GATE_BACKWARD),
    ..GATE
};

pub(crate) static MOE_GATE_BACKWARD: Operator = Operator {
    name: "moe_gate_backward",
    about: "gradient of the logits by which experts were chosen",
    calls: Calls {
        variants: &GATES,
        default: Some(""),
        signature: |_| {
            let inputs =
                &[Operand("logits", "..tokens experts"), Operand("ids", "..tokens k"), Operand("dweights", "..tokens k")];
            Signature::new(inputs, &[Operand("dlogits", "..tokens experts")]).types(PLACES).sums(&["dweights"])
        },
        problem: of_gate,
    },
    plan: gate_backward,
    ..GATE
};

/// What the gate and its gradient share.
const GATE: Operator = Operator {
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    further_suite: || gates([(16384, 8, 2), (16384, 64, 6), (16384, 256, 8), (64, 256, 8)]),
    quick: || vec![(gated([300, 8, 2], ""), "bf16"), (gated([100, 60, 6], "renormalised"), "fp32")],
    edges: || gates([(1, 1, 1), (5, 8, 2), (997, 60, 6), (33, 256, 8), (16, 17, 17)]),
    draw: |draw| {
        let [experts, tokens] = [draw.extent(256), draw.extent(1000)];
        gated([tokens, experts, draw.extent(experts.min(16))], draw.one_of(&GATES))
    },
    ..SORT
};

fn gates<const N: usize>(sizes: [(u64, u64, u64); N]) -> Vec<Problem> {
    let both = |(tokens, experts, k): (u64, u64, u64)| GATES.map(|variant| gated([tokens, experts, k], variant));
    sizes.into_iter().flat_map(both).collect()
}

fn of_gate(sizes: &Sizes) -> Result<Problem, Unsupported> {
    Ok(gated(["tokens", "experts", "k"].map(|name| sizes.get(name)), sizes.variant))
}

/// Extents of a gate, by which a token has an expert at least, and none twice.
fn gated_by(problem: &Problem) -> Result<[usize; 3], Unsupported> {
    let [tokens, experts, k] = chosen(problem)?;
    match (1..=experts).contains(&k) {
        true => Ok([tokens, experts, k]),
        false => Err(Unsupported(format!("a token has 1 to {experts} of {experts} experts, and not {k}"))),
    }
}

/// A row's exponentials over those that count, from the largest: their sum, the largest, and how far the smallest lies below it.
fn exponentials(logits: &[f64], counts: impl Fn(usize) -> bool) -> (f64, f64, f64) {
    let counted = || logits.iter().enumerate().filter(|(at, _)| counts(*at)).map(|(_, &logit)| logit);
    let largest = counted().fold(f64::NEG_INFINITY, f64::max);
    let distance = counted().map(|logit| (largest - logit).min(100.0)).fold(0.0, f64::max);
    (counted().map(|logit| (logit - largest).exp()).sum(), largest, distance)
}

/// The K largest, of equal ones the first; NaN counts as infinite.
fn largest(logits: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // 0 is no more than -0.
    let rank = |at: usize| if logits[at].is_nan() { f64::INFINITY } else { logits[at] + 0.0 };
    order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
    order.truncate(k);
    order
}

fn gate(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "moe_gate")?;
    let [tokens, experts, k] = gated_by(problem)?;
    let renormalised = problem.has(GATES[1]);
    let bins = experts.next_power_of_two();
    let per_block = (ELEMENTS / 4 / bins).clamp(1, 16);
    let mut arguments = tensors_of(["logits", "weights", "ids"]);
    arguments.extend([("ROWS", int(per_block)), ("BINS", int(bins)), ("K", int(k)), ("SLOTS", int(k.next_power_of_two()))]);
    arguments.extend([("RENORMALISED", Argument::Bool(renormalised)), ("ACC", Argument::Type(acc))]);
    let u = unit_roundoff(acc);
    let row = move |inputs: &dyn Inputs, _output: usize, row: usize, line: Line<'_>| {
        let logits = numbers(inputs, 0, row * experts, experts);
        let ids = largest(&logits, k);
        match line {
            Line::Codes(codes) => codes.iter_mut().zip(ids).for_each(|(code, id)| *code = id as u64),
            Line::Bounded(want, bound) => {
                let (total, most, distance) = exponentials(&logits, |at| !renormalised || ids.contains(&at));
                for ((want, bound), id) in want.iter_mut().zip(bound).zip(ids) {
                    *want = (logits[id] - most).exp() / total;
                    *bound = u * (4.0 * (2.0 + distance) + 8.0 * (experts as f64).sqrt()) * *want + f64::from(f32::MIN_POSITIVE);
                }
            }
        }
    };
    let output = |tensor, exact| OutputRows { tensor, rows: tokens, row_len: k, exact };
    Ok(Plan {
        tensors: vec![
            TensorSpec::new("logits", storage, [tokens, experts], Role::Input),
            TensorSpec::new("weights", acc, [tokens, k], Role::Output),
            TensorSpec::new("ids", DType::I32, [tokens, k], Role::Output),
        ],
        launches: vec![LaunchSpec::new("gate", arguments, rows::grid(tokens, per_block)?)],
        outputs: vec![output(1, false), output(2, true)],
        work: work(
            packed_bytes(storage, (tokens * experts) as u64),
            packed_bytes(acc, (tokens * k) as u64) + 4 * (tokens * k) as u64,
            5 * (tokens * experts) as u64,
            "logits read once, weights and ids written once",
        ),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![k, k], row }),
    })
}

fn gate_backward(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "moe_gate_backward")?;
    let [tokens, experts, k] = gated_by(problem)?;
    let renormalised = problem.has(GATES[1]);
    let bins = experts.next_power_of_two();
    let per_block = (ELEMENTS / 4 / bins).clamp(1, 16);
    let mut arguments = tensors_of(["logits", "ids", "dweights", "dlogits"]);
    arguments.extend([("ROWS", int(per_block)), ("BINS", int(bins)), ("K", int(k))]);
    arguments.extend([("RENORMALISED", Argument::Bool(renormalised)), ("ACC", Argument::Type(acc))]);
    let u = unit_roundoff(acc);
    let row = move |inputs: &dyn Inputs, _output: usize, row: usize, line: Line<'_>| {
        let Line::Bounded(want, bound) = line else { return };
        let logits = numbers(inputs, 0, row * experts, experts);
        let ids: Vec<usize> = numbers(inputs, 1, row * k, k).into_iter().map(|id| id as usize).collect();
        let mut cotangent = vec![0.0; experts];
        ids.iter().zip(numbers(inputs, 2, row * k, k)).for_each(|(&id, dweight)| cotangent[id] = dweight);
        let counts = |at: usize| !renormalised || ids.contains(&at);
        let (total, most, distance) = exponentials(&logits, counts);
        let weight = |at: usize| if counts(at) { (logits[at] - most).exp() / total } else { 0.0 };
        let (sum, magnitude) = (0..experts).fold((0.0, 0.0), |(sum, magnitude), at| {
            (sum + weight(at) * cotangent[at], magnitude + (weight(at) * cotangent[at]).abs())
        });
        let relative = u * (4.0 * (2.0 + distance) + 8.0 * (experts as f64).sqrt());
        let model = ErrorModel { floor: underflow(storage), ..ErrorModel::nearest(storage, acc) };
        for (at, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let exact = weight(at) * (cotangent[at] - sum);
            let difference = 2.0 * relative * magnitude + 2.0 * u * (cotangent[at].abs() + sum.abs());
            *bound =
                (relative + model.u_out) * exact.abs() + weight(at) * difference + model.floor + f64::from(f32::MIN_POSITIVE);
            *want = storable(storage, exact);
        }
    };
    // Different experts in each row, where these are all of them; at random one may come twice, and the last counts.
    let ids = Fill::Distinct { below: experts as u64 };
    Ok(Plan {
        tensors: vec![
            TensorSpec::new("logits", storage, [tokens, experts], Role::Input),
            TensorSpec { fill: ids, ..TensorSpec::new("ids", DType::I32, [tokens, k], Role::Input) },
            TensorSpec::new("dweights", acc, [tokens, k], Role::Input),
            TensorSpec::new("dlogits", storage, [tokens, experts], Role::Output),
        ],
        launches: vec![LaunchSpec::new("gate_backward", arguments, rows::grid(tokens, per_block)?)],
        outputs: vec![OutputRows { tensor: 3, rows: tokens, row_len: experts, exact: false }],
        work: work(
            packed_bytes(storage, (tokens * experts) as u64) + packed_bytes(acc, (tokens * k) as u64) + 4 * (tokens * k) as u64,
            packed_bytes(storage, (tokens * experts) as u64),
            7 * (tokens * experts) as u64,
            "logits, ids and cotangents read once, gradients written once",
        ),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![experts], row }),
    })
}
