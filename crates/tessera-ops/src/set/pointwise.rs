//! What operators share that take arrays of one shape element by element: every result follows from the elements at its place, and from numbers.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::work::{Metric, Work, packed_bytes};

/// An operator of this kind. Its kernel has its name, and takes its inputs, its outputs, its numbers, `ACC` and `TILE`.
pub(crate) struct Pointwise {
    pub(crate) name: &'static str,
    pub(crate) inputs: &'static [&'static str],
    pub(crate) outputs: &'static [&'static str],
    /// Numbers with their usual values.
    pub(crate) numbers: &'static [(&'static str, f64)],
    /// Operations for an element of all outputs.
    pub(crate) flops: u64,
    /// How inputs are drawn.
    pub(crate) fill: Fill,
    /// One output's element.
    pub(crate) value: Value,
}

/// An element of the output that has this position, from those of all inputs, and the numbers: the exact value, and what a right kernel loses before
/// it rounds to the storage type, in units of the roundoff of what it computes in.
pub(crate) type Value = fn(usize, &[f64], &[f64]) -> (f64, f64);

/// A problem of so many elements.
pub(crate) fn problem(n: u64) -> Problem {
    Problem::new(&[("n", n)], "")
}

/// Arrays of 4 and 64 Mi elements, and the hidden layer of 4096 tokens of a model of 8 billion parameters.
pub(crate) fn further_suite() -> Vec<Problem> {
    [1 << 22, 1 << 26, 4096 * 14336].map(problem).into()
}

/// Each precision once.
pub(crate) fn quick(precisions: &'static [&'static str]) -> Vec<(Problem, &'static str)> {
    precisions.iter().map(|&precision| (problem(1 << 18), precision)).collect()
}

/// Around the sizes of tiles, and far from them.
pub(crate) fn edges() -> Vec<Problem> {
    [1, 16, 997, 1000, 1023, 1025, 4100, 9001].map(problem).into()
}

pub(crate) fn draw(draw: &mut Draw<'_>) -> Problem {
    problem(draw.extent(draw.elements()))
}

/// A number as a kernel takes it that computes in a type: in 64 bits, or in 32.
pub(crate) fn number_in(acc: DType, value: f64) -> f64 {
    if acc == DType::F64 { value } else { f64::from(value as f32) }
}

/// The numbers of a problem, as such a kernel takes them.
pub(crate) fn numbers_of(problem: &Problem, numbers: &[(&'static str, f64)], acc: DType) -> Vec<f64> {
    numbers.iter().map(|&(name, usual)| number_in(acc, problem.number(name).unwrap_or(usual))).collect()
}

pub(crate) fn plan(row: &'static Pointwise, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, row.name)?;
    let n = problem.get("n") as usize;
    let tile = rows::elementwise_tile(n, machine);
    let input = |name: &&'static str| TensorSpec { fill: row.fill, ..TensorSpec::new(name, storage, [n], Role::Input) };
    let mut tensors: Vec<TensorSpec> = row.inputs.iter().map(input).collect();
    tensors.extend(row.outputs.iter().map(|name| TensorSpec::new(name, storage, [n], Role::Output)));
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    let numbers = numbers_of(problem, row.numbers, acc);
    arguments.extend(row.numbers.iter().zip(&numbers).map(|((name, _), value)| (*name, Argument::Float(*value))));
    arguments.extend([("ACC", Argument::Type(acc)), ("TILE", Argument::Int(tile as i64))]);
    let bytes = packed_bytes(storage, n as u64);
    Ok(Plan {
        outputs: (row.inputs.len()..tensors.len())
            .map(|tensor| OutputRows { tensor, rows: n, row_len: 1, exact: false })
            .collect(),
        tensors,
        launches: vec![LaunchSpec::new(row.name, arguments, rows::grid(n, tile)?)],
        work: Work {
            read_bytes: row.inputs.len() as u64 * bytes,
            write_bytes: row.outputs.len() as u64 * bytes,
            flops: row.flops * n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "each array read or written once",
        },
        exact_lane: false,
        reference: Box::new(Elements { row, numbers, out: storage, acc }),
    })
}

struct Elements {
    row: &'static Pointwise,
    numbers: Vec<f64>,
    out: DType,
    acc: DType,
}

/// Elements that a reference takes at a time.
const PIECE: usize = 4096;

/// What kernels lose that take numbers below the smallest normal one for zero, before factors of this size. An infinite factor leaves nothing finite of
/// what it multiplies, and a result that is finite comes of the others alone.
pub(crate) fn flushed(acc: DType, factors: &[f64]) -> f64 {
    let least = if acc == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    8.0 * least * factors.iter().filter(|factor| factor.is_finite()).map(|factor| 1.0 + factor.abs()).product::<f64>()
}

impl Reference for Elements {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let (u_out, u_acc, floor) = (unit_roundoff(self.out), unit_roundoff(self.acc), underflow(self.out));
        let count = self.row.inputs.len();
        want.par_chunks_mut(PIECE).zip(bound.par_chunks_mut(PIECE)).enumerate().for_each(|(piece, (want, bound))| {
            let start = rows.start + piece * PIECE;
            let mut arrays = vec![vec![0.0; want.len()]; count];
            arrays.iter_mut().enumerate().for_each(|(tensor, array)| inputs.numbers(tensor, start, array));
            let mut element = vec![0.0; count];
            for (at, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
                element.iter_mut().zip(&arrays).for_each(|(element, array)| *element = array[at]);
                let (exact, lost) = (self.row.value)(output, &element, &self.numbers);
                *bound = u_out * exact.abs() + u_acc * lost + floor + flushed(self.acc, &element);
                *want = storable(self.out, exact);
            }
        });
    }
}
