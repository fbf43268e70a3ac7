//! Rows of tokens to the places of their slots, and back as sums: mixtures of experts before and after their products.

use std::ops::Range;

use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use super::by_row::{ByRow, Line, integer, numbers};
use super::embedding::{columns, grid};
use super::moe::{PLACES, SORT, countable, tensors_of, work};
use super::rows::{self, int};
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::signature::{Calls, Indices, Operand, Signature};
use crate::work::packed_bytes;

pub(crate) static MOE_PERMUTE: Operator = Operator {
    name: "moe_permute",
    about: "tokens' rows to the places of their slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("x", "tokens dim"), Operand("place", "tokens k")];
            Signature::new(inputs, &[Operand("y", "slots dim")]).types(PLACES).indices(ONCE)
        },
        ..ROWS.calls
    },
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    plan: permute,
    gradient: Some(&MOE_PERMUTE_BACKWARD),
    ..ROWS
};

pub(crate) static MOE_PERMUTE_BACKWARD: Operator = Operator {
    name: "moe_permute_backward",
    about: "sums of the rows at the places of each token's slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("dy", "slots dim"), Operand("place", "tokens k")];
            Signature::new(inputs, &[Operand("dx", "tokens dim")]).types(PLACES).indices(const { &[Indices::of("place", "dy")] })
        },
        ..ROWS.calls
    },
    plan: permute_backward,
    ..ROWS
};

pub(crate) static MOE_COMBINE: Operator = Operator {
    name: "moe_combine",
    about: "weighted sums of the rows at the places of each token's slots",
    calls: Calls {
        signature: |_| {
            let inputs = &[Operand("y", "slots dim"), Operand("place", "tokens k"), Operand("weights", "tokens k")];
            let signature = Signature::new(inputs, &[Operand("out", "tokens dim")]).types(PLACES).sums(&["weights"]);
            signature.indices(const { &[Indices::of("place", "y")] })
        },
        ..ROWS.calls
    },
    plan: combine,
    gradient: Some(&MOE_COMBINE_BACKWARD),
    ..ROWS
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
            Signature::new(&INPUTS, outputs).types(PLACES).sums(&["weights"]).indices(ONCE)
        },
        ..ROWS.calls
    },
    plan: combine_backward,
    ..ROWS
};

/// A place for each row that is written.
const ONCE: &[Indices] = &[Indices::of("place", "y").once()];

/// What the operators share.
const ROWS: Operator = Operator {
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
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
    ..SORT
};

fn of_rows([tokens, k, dim]: [u64; 3]) -> Problem {
    Problem::new(&[("tokens", tokens), ("k", k), ("dim", dim)], "")
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
        if k > 64 {
            return Err(Unsupported(format!("{k} experts for each token: 64 at most")));
        }
        countable(tokens, k)?;
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

    /// Bytes of so many rows.
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

/// A reference by rows of which some stand at places: a row is asked for with the slot that each place has, found once for all rows.
struct ByPlace<F> {
    /// The tensor of places, and how many there are.
    places: (usize, usize),
    row_lens: Vec<usize>,
    row: F,
}

impl<F: Fn(&dyn Inputs, &[usize], usize, usize, Line<'_>) + Sync + Send> ByPlace<F> {
    fn with_slots(&self, inputs: &dyn Inputs, then: impl FnOnce(&dyn Reference)) {
        let (tensor, slots) = self.places;
        let places = numbers(inputs, tensor, 0, slots);
        let mut slot_at: Vec<usize> = (0..slots).collect();
        // Each place is one slot's.
        slot_at.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
        let row =
            |inputs: &dyn Inputs, output: usize, row: usize, line: Line<'_>| (self.row)(inputs, &slot_at, output, row, line);
        then(&ByRow { row_lens: self.row_lens.clone(), row });
    }
}

impl<F: Fn(&dyn Inputs, &[usize], usize, usize, Line<'_>) + Sync + Send> Reference for ByPlace<F> {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.with_slots(inputs, |by_row| by_row.rows(inputs, output, rows, expected));
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.with_slots(inputs, |by_row| by_row.scattered(inputs, output, row_len, rows, expected));
    }
}

fn permute(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let places = Places::of(problem, policy, "moe_permute")?;
    let Places { tokens, k, dim, .. } = places;
    let row = move |inputs: &dyn Inputs, slot_at: &[usize], _output: usize, row: usize, line: Line<'_>| {
        if let Line::Codes(codes) = line {
            inputs.codes(0, slot_at[row] / k * dim, codes);
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
        reference: Box::new(ByPlace { places: (1, tokens * k), row_lens: vec![dim], row }),
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
    let row = move |inputs: &dyn Inputs, slot_at: &[usize], output: usize, row: usize, line: Line<'_>| {
        let Line::Bounded(want, bound) = line else { return };
        let slot = if output == 0 { slot_at[row] } else { row };
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
        reference: Box::new(ByPlace { places: (1, slots), row_lens: vec![dim, 1], row }),
    })
}
