//! Mixtures of experts, around the products of [`gemm_grouped`](super::gemm_grouped): the experts of each token and their weights; the places of
//! tokens in the order of their experts; rows there and back.
//!
//! ```text
//! ids, 2 of 3 experts a token     place                offsets         rows in order
//! token 0   2 0                   4 0                  0 2 4 6         0: token 0, 1: token 2 | 2: token 1, 3: token 2 | 4: token 0, 5: token 1
//! token 1   1 2                   2 5
//! token 2   0 1                   1 3
//! ```

use tessera_types::{DType, ErrorModel, Policy, Storage, unit_roundoff};

use super::by_row::{ByRow, Line, integer, numbers};
use super::embedding::{columns, grid};
use super::rows;
use crate::element::{storable, underflow};
use crate::operator::{Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

/// Experts whose logits a row of a tile holds.
const MOST_EXPERTS: usize = 256;
/// Numbers in a tile.
const ELEMENTS: usize = 4096;
/// Counts that a block goes through at a time.
const PART: usize = 1024;
/// The plain variant of the gate, and the one whose weights sum up to 1.
const GATES: [&str; 2] = ["", "renormalised"];

const PLACES: &[(&str, DType)] = &[("place", DType::I32), ("ids", DType::I32)];

pub(crate) static MOE_GATE: Operator = Operator {
    name: "moe_gate",
    no_specials: Some("which experts come first among logits with NaN is not said"),
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

pub(crate) static MOE_SORT: Operator = Operator {
    name: "moe_sort",
    about: "tokens in the order of their experts: where each expert begins, and the place of each token's slots",
    precisions: &["int32"],
    further_precisions: &[],
    further_suite: || [[16384, 8, 2], [16384, 64, 6], [16384, 256, 8]].map(|sizes| gated(sizes, "")).into(),
    quick: || vec![(gated([300, 8, 2], ""), "int32")],
    edges: || [[1, 1, 1], [5, 8, 2], [997, 60, 6], [333, 256, 8], [4100, 3, 1], [0, 4, 2]].map(|sizes| gated(sizes, "")).into(),
    draw: |draw| {
        let [experts, tokens, k] = [draw.extent(256), draw.extent(3000), draw.extent(8)];
        gated([tokens, experts, k], "")
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let outputs = &[Operand("offsets", "bounds"), Operand("place", "..tokens k")];
            Signature::new(&[Operand("ids", "..tokens k")], outputs)
        },
        problem: |sizes| {
            let [tokens, k, bounds] = ["tokens", "k", "bounds"].map(|name| sizes.get(name));
            let experts = bounds.checked_sub(1).ok_or_else(|| Unsupported("`offsets` has a number more than experts".into()))?;
            Ok(gated([tokens, experts, k], ""))
        },
    },
    plan: sort,
    ..NEW
};

pub(crate) static MOE_PERMUTE: Operator = Operator {
    name: "moe_permute",
    about: "tokens' rows to the places of their slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("x", "tokens dim"), Operand("place", "tokens k")];
            Signature::new(inputs, &[Operand("y", "slots dim")]).types(PLACES)
        },
        ..NEW.calls
    },
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    plan: permute,
    gradient: Some(&MOE_PERMUTE_BACKWARD),
    ..NEW
};

pub(crate) static MOE_PERMUTE_BACKWARD: Operator = Operator {
    name: "moe_permute_backward",
    about: "sums of the rows at the places of each token's slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("dy", "slots dim"), Operand("place", "tokens k")];
            Signature::new(inputs, &[Operand("dx", "tokens dim")]).types(PLACES)
        },
        ..NEW.calls
    },
    plan: permute_backward,
    ..NEW
};

pub(crate) static MOE_COMBINE: Operator = Operator {
    name: "moe_combine",
    about: "weighted sums of the rows at the places of each token's slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("y", "slots dim"), Operand("place", "tokens k"), Operand("weights", "tokens k")];
            Signature::new(inputs, &[Operand("out", "tokens dim")]).types(PLACES).sums(&["weights"])
        },
        ..NEW.calls
    },
    plan: combine,
    gradient: Some(&MOE_COMBINE_BACKWARD),
    ..NEW
};

pub(crate) static MOE_COMBINE_BACKWARD: Operator = Operator {
    name: "moe_combine_backward",
    about: "gradients of rows and weights of a weighted sum",
    calls: Calls {
        signature: |_| {
            const INPUTS: [Operand; 4] = [
                Operand("y", "slots dim"),
                Operand("place", "tokens k"),
                Operand("weights", "tokens k"),
                Operand("dout", "tokens dim"),
            ];
            let outputs = &[Operand("dy", "slots dim"), Operand("dweights", "tokens k")];
            Signature::new(&INPUTS, outputs).types(PLACES).sums(&["weights"])
        },
        ..NEW.calls
    },
    plan: combine_backward,
    ..NEW
};

/// What the operators on rows share.
const NEW: Operator = Operator {
    name: "",
    about: "",
    file: "moe.py",
    source: include_str!("../../kernels/moe.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || [[16384, 2, 4096], [16384, 8, 2048], [4096, 8, 7168], [64, 8, 7168]].map(of_rows).into(),
    quick: || vec![(of_rows([100, 2, 256]), "bf16")],
    edges: || {
        let sizes = [[1, 1, 1], [5, 2, 997], [16, 3, 16], [33, 8, 1000], [7, 1, 4100], [9, 4, 1025], [0, 2, 16]];
        sizes.map(of_rows).into()
    },
    draw: |draw| {
        let [tokens, k, dim] = draw.extents(draw.elements(), [500, 8, 5000]);
        of_rows([tokens, k, dim])
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[], &[]),
        problem: |sizes| {
            let [tokens, k, slots, dim] = ["tokens", "k", "slots", "dim"].map(|name| sizes.get(name));
            if slots != tokens * k {
                return Err(Unsupported(format!("{tokens} tokens with {k} experts each have {} rows, not {slots}", tokens * k)));
            }
            Ok(of_rows([tokens, k, dim]))
        },
    },
    numbers: &[],
    plan: permute,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

/// What the gate and its gradient share.
const GATE: Operator = Operator {
    further_suite: || gates([(16384, 8, 2), (16384, 64, 6), (16384, 256, 8), (64, 256, 8)]),
    quick: || vec![(gated([300, 8, 2], ""), "bf16"), (gated([100, 60, 6], "renormalised"), "fp32")],
    edges: || gates([(1, 1, 1), (5, 8, 2), (997, 60, 6), (33, 256, 8), (16, 17, 17)]),
    draw: |draw| {
        let [experts, tokens] = [draw.extent(256), draw.extent(1000)];
        gated([tokens, experts, draw.extent(experts.min(16))], draw.one_of(&GATES))
    },
    ..NEW
};

fn gated([tokens, experts, k]: [u64; 3], variant: &str) -> Problem {
    Problem::new(&[("tokens", tokens), ("experts", experts), ("k", k)], variant)
}

fn gates<const N: usize>(sizes: [(u64, u64, u64); N]) -> Vec<Problem> {
    let both = |(tokens, experts, k): (u64, u64, u64)| GATES.map(|variant| gated([tokens, experts, k], variant));
    sizes.into_iter().flat_map(both).collect()
}

fn of_gate(sizes: &Sizes) -> Result<Problem, Unsupported> {
    Ok(gated(["tokens", "experts", "k"].map(|name| sizes.get(name)), sizes.variant))
}

fn of_rows([tokens, k, dim]: [u64; 3]) -> Problem {
    Problem::new(&[("tokens", tokens), ("k", k), ("dim", dim)], "")
}

fn int(value: usize) -> Argument {
    Argument::Int(value as i64)
}

fn tensors_of<const N: usize>(names: [&'static str; N]) -> Vec<(&'static str, Argument)> {
    names.into_iter().enumerate().map(|(at, name)| (name, Argument::Tensor(at))).collect()
}

fn work(read_bytes: u64, write_bytes: u64, flops: u64, formula: &'static str) -> Work {
    Work { read_bytes, write_bytes, flops, compute: None, metric: Metric::Bandwidth, formula }
}

/// Extents of a gate or of a sort.
fn chosen(problem: &Problem) -> Result<[usize; 3], Unsupported> {
    let [tokens, experts, k] = ["tokens", "experts", "k"].map(|name| problem.get(name) as usize);
    if !(1..=MOST_EXPERTS).contains(&experts) || tokens * k > i32::MAX as usize {
        return Err(Unsupported(format!("{k} of {experts} experts for {tokens} tokens: there are 1 to {MOST_EXPERTS}")));
    }
    Ok([tokens, experts, k])
}

/// A row's exponentials over those that count, from the largest: their sum, the largest, and how far the smallest lies below it.
fn exponentials(logits: &[f64], counts: impl Fn(usize) -> bool) -> (f64, f64, f64) {
    let counted = || logits.iter().enumerate().filter(|(at, _)| counts(*at)).map(|(_, &logit)| logit);
    let largest = counted().fold(f64::NEG_INFINITY, f64::max);
    let distance = counted().map(|logit| (largest - logit).min(100.0)).fold(0.0, f64::max);
    (counted().map(|logit| (logit - largest).exp()).sum(), largest, distance)
}

/// The K largest, of equal ones the first.
fn largest(logits: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(k);
    order
}

fn gate(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "moe_gate")?;
    let [tokens, experts, k] = chosen(problem)?;
    if k > experts {
        return Err(Unsupported(format!("{k} of {experts} experts")));
    }
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
    let [tokens, experts, k] = chosen(problem)?;
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

fn sort(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    if policy.storage() != Storage::Plain(DType::I32) {
        return Err(Unsupported(format!("moe_sort takes numbers of experts in `int32`, not `{policy}`")));
    }
    let [tokens, experts, k] = chosen(problem)?;
    let slots = tokens * k;
    let bins = experts.next_power_of_two();
    let tile = (ELEMENTS / bins).clamp(32, 1024);
    let blocks = slots.div_ceil(tile);
    let tensors = vec![
        TensorSpec {
            fill: Fill::Integers { least: 0, greatest: experts as i64 - 1 },
            ..TensorSpec::new("ids", DType::I32, [slots], Role::Input)
        },
        TensorSpec::new("offsets", DType::I32, [experts + 1], Role::Output),
        TensorSpec::new("place", DType::I32, [slots], Role::Output),
        TensorSpec::new("counts", DType::I32, [experts, blocks.max(1)], Role::Workspace),
        TensorSpec::new("totals", DType::I32, [experts], Role::Workspace),
    ];
    let [ids, offsets, place, counts, totals] = [0, 1, 2, 3, 4].map(Argument::Tensor);
    let cut = [("TILE", int(tile)), ("BINS", int(bins))];
    // One block at least says where experts without tokens begin.
    let grid = rows::grid(blocks.max(1), 1)?;
    let with_cut = |mut arguments: Vec<(&'static str, Argument)>| {
        arguments.extend(cut);
        arguments
    };
    let before = vec![("counts", counts), ("totals", totals), ("PART", int(PART))];
    let last = vec![("ids", ids), ("counts", counts), ("totals", totals), ("offsets", offsets), ("place", place)];
    let launches = vec![
        LaunchSpec::new("count", with_cut(vec![("ids", ids), ("counts", counts)]), grid),
        LaunchSpec::new("before", before, rows::grid(experts, 1)?),
        LaunchSpec::new("places", with_cut(last), grid),
    ];
    let row = move |inputs: &dyn Inputs, output: usize, _row: usize, line: Line<'_>| {
        let Line::Codes(codes) = line else { return };
        let ids = numbers(inputs, 0, 0, slots);
        let mut next = vec![0usize; experts + 1];
        ids.iter().for_each(|&id| next[id as usize + 1] += 1);
        (0..experts).for_each(|expert| next[expert + 1] += next[expert]);
        match output {
            0 => codes.iter_mut().zip(next).for_each(|(code, bound)| *code = bound as u64),
            _ => codes.iter_mut().zip(ids).for_each(|(code, id)| {
                *code = next[id as usize] as u64;
                next[id as usize] += 1;
            }),
        }
    };
    let bytes = 4 * slots as u64;
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![
            OutputRows { tensor: 1, rows: 1, row_len: experts + 1, exact: true },
            OutputRows { tensor: 2, rows: 1, row_len: slots, exact: true },
        ],
        work: work(bytes, bytes + 4 * (experts + 1) as u64, 0, "ids read once, places and offsets written once"),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![experts + 1, slots], row }),
    })
}

/// Extents of rows that change places.
struct Places {
    tokens: usize,
    k: usize,
    dim: usize,
    tile: usize,
    storage: DType,
    acc: DType,
}

impl Places {
    fn of(problem: &Problem, policy: Policy, operator: &str) -> Result<Places, Unsupported> {
        let (storage, acc) = rows::storage(policy, operator)?;
        let [tokens, k, dim] = ["tokens", "k", "dim"].map(|name| problem.get(name) as usize);
        if k > 64 || tokens * k > i32::MAX as usize {
            return Err(Unsupported(format!("{tokens} tokens with {k} experts each: 64 at most")));
        }
        Ok(Places { tokens, k, dim, tile: columns(dim), storage, acc })
    }

    fn rows(&self, name: &'static str, of_slots: bool, role: Role) -> TensorSpec {
        let rows = if of_slots { self.tokens * self.k } else { self.tokens };
        TensorSpec::new(name, self.storage, [rows, self.dim], role)
    }

    fn place(&self) -> TensorSpec {
        let slots = self.tokens * self.k;
        TensorSpec { fill: Fill::Distinct { below: slots as u64 }, ..TensorSpec::new("place", DType::I32, [slots], Role::Input) }
    }

    fn numbers(&self, name: &'static str, role: Role) -> TensorSpec {
        TensorSpec::new(name, self.acc, [self.tokens * self.k], role)
    }

    /// A block for each row and a part of its columns.
    fn launch<const N: usize>(
        &self,
        kernel: &'static str,
        names: [&'static str; N],
        wants_acc: bool,
    ) -> Result<LaunchSpec, Unsupported> {
        let mut arguments = tensors_of(names);
        arguments.extend([("K", int(self.k)), ("TILE", int(self.tile))]);
        arguments.extend(wants_acc.then_some(("ACC", Argument::Type(self.acc))));
        Ok(LaunchSpec::new(kernel, arguments, grid(self.tokens, self.dim, self.tile)?))
    }

    fn output(&self, tensor: usize, of_slots: bool, exact: bool) -> OutputRows {
        OutputRows { tensor, rows: if of_slots { self.tokens * self.k } else { self.tokens }, row_len: self.dim, exact }
    }

    /// Bytes of rows, with those of places and of weights for each slot.
    fn bytes(&self, rows: usize) -> u64 {
        packed_bytes(self.storage, (rows * self.dim) as u64)
    }

    fn model(&self) -> ErrorModel {
        ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) }
    }

    /// The row of a token that is a sum over its slots, with or without weights.
    fn sums(&self, weighted: bool) -> impl Fn(&dyn Inputs, usize, usize, Line<'_>) + Sync + Send + 'static {
        let (k, dim, storage, model) = (self.k, self.dim, self.storage, self.model());
        let of_rows = if weighted { [0, 1] } else { [1, 0] };
        move |inputs, _output, token, line| {
            let Line::Bounded(want, bound) = line else { return };
            want.fill(0.0);
            bound.fill(0.0);
            let [rows, places] = of_rows;
            for slot in token * k..(token + 1) * k {
                let weight = if weighted { numbers(inputs, 2, slot, 1)[0] } else { 1.0 };
                let row = numbers(inputs, rows, integer(inputs, places, slot) * dim, dim);
                for ((want, bound), y) in want.iter_mut().zip(&mut *bound).zip(row) {
                    *want += weight * y;
                    *bound += (weight * y).abs();
                }
            }
            for (want, bound) in want.iter_mut().zip(bound) {
                *bound = model.contraction(*want, *bound, k);
                *want = storable(storage, *want);
            }
        }
    }
}

/// The slot that has each place.
fn slot_at(inputs: &dyn Inputs, tensor: usize, slots: usize, place: usize) -> usize {
    numbers(inputs, tensor, 0, slots).into_iter().position(|at| at == place as f64).unwrap_or(0)
}

fn permute(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let places = Places::of(problem, policy, "moe_permute")?;
    let Places { tokens, k, dim, .. } = places;
    let row = move |inputs: &dyn Inputs, _output: usize, row: usize, line: Line<'_>| {
        if let Line::Codes(codes) = line {
            inputs.codes(0, slot_at(inputs, 1, tokens * k, row) / k * dim, codes);
        }
    };
    Ok(Plan {
        tensors: vec![places.rows("x", false, Role::Input), places.place(), places.rows("y", true, Role::Output)],
        launches: vec![places.launch("permute", ["x", "place", "y"], false)?],
        outputs: vec![places.output(2, true, true)],
        work: work(
            places.bytes(tokens) + 4 * (tokens * k) as u64,
            places.bytes(tokens * k),
            0,
            "tokens' rows and places read once, slots' rows written once",
        ),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![dim], row }),
    })
}

fn permute_backward(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let places = Places::of(problem, policy, "moe_permute_backward")?;
    let Places { tokens, k, dim, .. } = places;
    Ok(Plan {
        tensors: vec![places.place(), places.rows("dy", true, Role::Input), places.rows("dx", false, Role::Output)],
        launches: vec![places.launch("permute_backward", ["place", "dy", "dx"], true)?],
        outputs: vec![places.output(2, false, false)],
        work: work(
            places.bytes(tokens * k) + 4 * (tokens * k) as u64,
            places.bytes(tokens),
            (tokens * k * dim) as u64,
            "slots' rows and places read once, tokens' rows written once",
        ),
        exact_lane: true,
        reference: Box::new(ByRow { row_lens: vec![dim], row: places.sums(false) }),
    })
}

fn combine(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let places = Places::of(problem, policy, "moe_combine")?;
    let Places { tokens, k, dim, acc, .. } = places;
    let weights = places.numbers("weights", Role::Input);
    Ok(Plan {
        tensors: vec![places.rows("y", true, Role::Input), places.place(), weights, places.rows("out", false, Role::Output)],
        launches: vec![places.launch("combine", ["y", "place", "weights", "out"], true)?],
        outputs: vec![places.output(3, false, false)],
        work: work(
            places.bytes(tokens * k) + 4 * (tokens * k) as u64 + packed_bytes(acc, (tokens * k) as u64),
            places.bytes(tokens),
            2 * (tokens * k * dim) as u64,
            "slots' rows, places and weights read once, tokens' rows written once",
        ),
        exact_lane: true,
        reference: Box::new(ByRow { row_lens: vec![dim], row: places.sums(true) }),
    })
}

fn combine_backward(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let places = Places::of(problem, policy, "moe_combine_backward")?;
    let Places { tokens, k, dim, storage, acc, .. } = places;
    let slots = tokens * k;
    let tensors = vec![
        places.rows("y", true, Role::Input),
        places.place(),
        places.numbers("weights", Role::Input),
        places.rows("dout", false, Role::Input),
        places.rows("dy", true, Role::Output),
        places.numbers("dweights", Role::Output),
    ];
    let launch = places.launch("combine_backward", ["y", "place", "weights", "dout", "dy", "dweights"], true)?;
    let launch = LaunchSpec { grid: rows::grid(slots, 1)?, ..launch };
    let (model, sums, u) = (places.model(), ErrorModel::nearest(acc, acc), unit_roundoff(acc));
    let row = move |inputs: &dyn Inputs, output: usize, row: usize, line: Line<'_>| {
        let Line::Bounded(want, bound) = line else { return };
        let slot = if output == 0 { slot_at(inputs, 1, slots, row) } else { row };
        let cotangent = numbers(inputs, 3, slot / k * dim, dim);
        if output == 1 {
            let y = numbers(inputs, 0, integer(inputs, 1, slot) * dim, dim);
            let (sum, magnitude) =
                y.iter().zip(&cotangent).fold((0.0, 0.0), |(sum, all), (y, d)| (sum + y * d, all + (y * d).abs()));
            (want[0], bound[0]) = (sum, sums.contraction(sum, magnitude, dim));
            return;
        }
        let weight = numbers(inputs, 2, slot, 1)[0];
        for ((want, bound), d) in want.iter_mut().zip(bound).zip(cotangent) {
            *bound = (model.u_out + 2.0 * u) * (weight * d).abs() + model.floor;
            *want = storable(storage, weight * d);
        }
    };
    Ok(Plan {
        tensors,
        launches: vec![launch],
        outputs: vec![places.output(4, true, false), OutputRows { tensor: 5, rows: slots, row_len: 1, exact: false }],
        work: work(
            places.bytes(slots) + places.bytes(tokens) + 4 * slots as u64 + packed_bytes(acc, slots as u64),
            places.bytes(slots) + packed_bytes(acc, slots as u64),
            3 * (slots * dim) as u64,
            "rows, places and weights read once, gradients written once",
        ),
        exact_lane: true,
        reference: Box::new(ByRow { row_lens: vec![dim, 1], row }),
    })
}
