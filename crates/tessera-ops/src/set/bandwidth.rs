//! Memory bandwidth after STREAM (McCalpin, 1995): copy, scale, add and triad, in three kinds of pattern.
//!
//! The variant names the operation and the pattern: `sequential`, `strided_2`, `strided_4`, `strided_8` or `random`. `bytes` is the
//! size of one buffer. A strided case touches every s-th element and counts those alone; a random case reads through a bijection
//! of 0..n-1 that is computed in the kernel, and writes in order.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, Storage};

use crate::draw::Draw;
use crate::element::{storable, underflow, wrap};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::{ladders, rows};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static BANDWIDTH: Operator = Operator {
    name: "bandwidth",
    about: "memory bandwidth: copy, scale, add, triad; sequential, strided and random",
    file: "bandwidth.py",
    source: include_str!("../../kernels/bandwidth.py"),
    precisions: &["fp32", "fp16", "bf16", "int32", "int8"],
    further_precisions: &["fp64"],
    suite,
    further_suite: Vec::new,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &ladders::COPY,
};

/// Arrays of any shape, every element of them: whoever wants steps gives a view.
const CALLS: Calls = Calls {
    variants: &["copy", "scale", "add", "triad", "copy random", "scale random", "add random", "triad random"],
    default: None,
    signature: |variant| {
        const A: Operand = Operand("a", "..n");
        const AB: [Operand; 2] = [A, Operand("b", "..n")];
        const C: Operand = Operand("c", "..n");
        match variant.split(' ').next() {
            Some("copy") => Signature::new(&[A], &[C]),
            Some("scale") => Signature::new(&[A], &[C]).scalars(&["scalar"]),
            Some("triad") => Signature::new(&AB, &[C]).scalars(&["scalar"]),
            _ => Signature::new(&AB, &[C]),
        }
    },
    problem: |sizes| {
        let bytes = sizes.get("n") * sizes.dtype.unpacked_bytes() as u64;
        if bytes == 0 {
            return Err(Unsupported("bandwidth moves one element at least".to_string()));
        }
        let pattern = if sizes.variant.ends_with(" random") { "" } else { " sequential" };
        Ok(problem(bytes, format!("{}{pattern}", sizes.variant)))
    },
};

/// The operations, in the suite's order.
const OPERATIONS: [&str; 4] = ["copy", "scale", "add", "triad"];
/// The patterns, in the suite's order.
const PATTERNS: [&str; 5] = ["sequential", "strided_2", "strided_4", "strided_8", "random"];
/// The scalar of scale and triad, for floats and for integers.
const SCALAR: (f64, i64) = (1.5, 3);
fn problem(bytes: u64, variant: String) -> Problem {
    Problem::new(&[("bytes", bytes)], variant)
}

/// Nine buffer sizes from 1 MiB to 16 GiB, five patterns, four operations: 180 cases.
fn suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for mib in [1, 4, 16, 64, 256, 1024, 4096, 8192, 16384] {
        for pattern in PATTERNS {
            cases.extend(OPERATIONS.iter().map(|operation| problem(mib << 20, format!("{operation} {pattern}"))));
        }
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    let mut cases: Vec<_> =
        OPERATIONS.iter().map(|operation| (problem(4 << 20, format!("{operation} sequential")), "fp32")).collect();
    let others = [
        ("copy strided_2", "fp32"),
        ("triad strided_4", "fp32"),
        ("copy strided_8", "fp32"),
        ("copy random", "fp32"),
        ("copy sequential", "fp16"),
        ("scale sequential", "bf16"),
        ("add sequential", "int32"),
        ("triad sequential", "int8"),
        ("copy random", "int8"),
    ];
    cases.extend(others.map(|(variant, precision)| (problem(1 << 20, variant.to_string()), precision)));
    cases
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    for bytes in [8, 1000, 16384, 16392, 100_000] {
        for pattern in PATTERNS {
            cases.extend(OPERATIONS.iter().map(|operation| problem(bytes, format!("{operation} {pattern}"))));
        }
    }
    cases
}

/// A byte count of any size: whole elements are taken of it.
fn draw(draw: &mut Draw<'_>) -> Problem {
    let bytes = draw.extent(4 * draw.elements()).max(8);
    let (operation, pattern) = (draw.one_of(&OPERATIONS), draw.one_of(&PATTERNS));
    problem(bytes, format!("{operation} {pattern}"))
}

/// The type arithmetic is done in.
fn arithmetic(storage: DType) -> DType {
    match storage {
        DType::F64 => DType::F64,
        dtype if dtype.is_integer() => dtype,
        _ => DType::F32,
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let storage = match policy.storage() {
        Storage::Plain(dtype) if dtype.bits() >= 8 => dtype,
        _ => return Err(Unsupported(format!("bandwidth moves whole bytes, not `{policy}`"))),
    };
    let mut words = problem.variant.split(' ');
    let (operation, pattern) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (Some(operation), true) = (OPERATIONS.iter().copied().find(|o| *o == operation), PATTERNS.contains(&pattern)) else {
        return Err(Unsupported(format!("`{}` is not a bandwidth case", problem.variant)));
    };
    let stride: usize = pattern.strip_prefix("strided_").map_or(1, |digits| digits.parse().unwrap_or(1));
    let random = pattern == "random";
    let elements = problem.get("bytes") as usize / storage.unpacked_bytes();
    let n = elements.div_ceil(stride).max(1);
    let two = matches!(operation, "add" | "triad");
    let acc = arithmetic(storage);
    let tile = rows::elementwise_tile(n, machine);

    let fill = if storage.is_integer() { Fill::Integers { least: -100, greatest: 100 } } else { Fill::NORMAL };
    let vector = |name, role| TensorSpec { step: stride, fill, ..TensorSpec::new(name, storage, [n], role) };
    let mut tensors = vec![vector("a", Role::Input)];
    let mut arguments = vec![("a", Argument::Tensor(0)), ("TILE", Argument::Int(tile as i64))];
    if two {
        arguments.push(("b", Argument::Tensor(1)));
        tensors.push(vector("b", Role::Input));
    }
    arguments.push(("c", Argument::Tensor(tensors.len())));
    tensors.push(vector("c", Role::Output));
    if operation != "copy" {
        arguments.push(("ACC", Argument::Type(acc)));
    }
    if matches!(operation, "scale" | "triad") {
        arguments.push(("scalar", if acc.is_integer() { Argument::Int(SCALAR.1) } else { Argument::Float(SCALAR.0) }));
    }
    if random {
        arguments.push(("n", Argument::Int(n as i64)));
        arguments.push(("BITS", Argument::Int(i64::from(index_bits(n)))));
        arguments.push(("INDEX", Argument::Type(if index_bits(n) <= 30 { DType::I32 } else { DType::I64 })));
    }
    let kernel = match (operation, random) {
        ("copy", false) => "copy",
        ("copy", true) => "copy_random",
        ("scale", false) => "scale",
        ("scale", true) => "scale_random",
        ("add", false) => "add",
        ("add", true) => "add_random",
        (_, false) => "triad",
        (_, true) => "triad_random",
    };
    let bytes = packed_bytes(storage, n as u64);
    let output = tensors.len() - 1;
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec::new(kernel, arguments, rows::grid(n, tile)?)],
        outputs: vec![OutputRows { tensor: output, rows: n, row_len: 1, exact: storage.is_integer() || operation == "copy" }],
        work: Work {
            read_bytes: if two { 2 } else { 1 } * bytes,
            write_bytes: bytes,
            flops: n as u64
                * match operation {
                    "copy" => 0,
                    "triad" => 2,
                    _ => 1,
                },
            compute: None,
            metric: Metric::Bandwidth,
            formula: "touched elements of each buffer once",
        },
        exact_lane: false,
        reference: Box::new(Stream { operation, random, n, out: storage, acc }),
    })
}

/// Bits that hold every index below `n`.
fn index_bits(n: usize) -> u32 {
    usize::BITS - (n.max(2) - 1).leading_zeros()
}

/// The bijection of the random pattern: rounds of odd multiplication and xor-shift on `bits` bits, repeated while outside.
fn permuted(index: usize, n: usize) -> usize {
    let bits = index_bits(n);
    let mask = (1u64 << bits) - 1;
    let half = bits.div_ceil(2);
    let mut x = index as u64;
    loop {
        x = x.wrapping_mul(0x2545_F491) & mask;
        x ^= x >> half;
        x = x.wrapping_mul(0x1B87_3593) & mask;
        x ^= x >> half;
        x = x.wrapping_mul(0x5D58_8B65) & mask;
        if (x as usize) < n {
            return x as usize;
        }
    }
}

/// Elements that are read at a time.
const PART: usize = 4096;

struct Stream {
    operation: &'static str,
    random: bool,
    n: usize,
    out: DType,
    acc: DType,
}

impl Stream {
    /// Elements of a buffer in the order in which the outputs use them.
    fn numbers(&self, inputs: &dyn Inputs, tensor: usize, rows: &Range<usize>) -> Vec<f64> {
        let mut values = vec![0.0; rows.len()];
        if !self.random {
            inputs.numbers(tensor, rows.start, &mut values);
            return values;
        }
        let read = |(part, values): (usize, &mut [f64])| {
            inputs.numbers_at(tensor, &self.places(rows.start + part * PART, values.len()), values);
        };
        values.par_chunks_mut(PART).enumerate().for_each(read);
        values
    }

    /// Where the elements of `count` outputs from `first` on come from, in the random pattern.
    fn places(&self, first: usize, count: usize) -> Vec<usize> {
        (first..first + count).map(|index| permuted(index, self.n)).collect()
    }
}

impl Reference for Stream {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        match expected {
            Expected::Codes(codes) if self.operation == "copy" => {
                if !self.random {
                    return inputs.codes(0, rows.start, codes);
                }
                let read = |(part, codes): (usize, &mut [u64])| {
                    inputs.codes_at(0, &self.places(rows.start + part * PART, codes.len()), codes);
                };
                codes.par_chunks_mut(PART).enumerate().for_each(read);
            }
            Expected::Codes(codes) => {
                let a = self.numbers(inputs, 0, &rows);
                let b = if self.operation == "scale" { vec![0.0; a.len()] } else { self.numbers(inputs, 1, &rows) };
                for ((code, a), b) in codes.iter_mut().zip(a).zip(b) {
                    let (a, b) = (a as i64, b as i64);
                    *code = wrap(
                        self.out,
                        match self.operation {
                            "scale" => a.wrapping_mul(SCALAR.1),
                            "add" => a.wrapping_add(b),
                            _ => a.wrapping_add(SCALAR.1.wrapping_mul(b)),
                        },
                    );
                }
            }
            Expected::Bounded { want, bound } => {
                let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
                let a = self.numbers(inputs, 0, &rows);
                let b = if self.operation == "scale" { vec![0.0; a.len()] } else { self.numbers(inputs, 1, &rows) };
                for (((want, bound), a), b) in want.iter_mut().zip(bound).zip(a).zip(b) {
                    let (exact, terms) = match self.operation {
                        "scale" => (a * SCALAR.0, (a * SCALAR.0).abs()),
                        "add" => (a + b, a.abs() + b.abs()),
                        _ => (a + SCALAR.0 * b, a.abs() + (SCALAR.0 * b).abs()),
                    };
                    *bound = model.u_out * exact.abs() + 2.0 * model.u_acc * terms + model.floor;
                    *want = storable(self.out, exact);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_pattern_touches_each_element_once() {
        for n in [1usize, 2, 3, 1000, 4096, 12_345] {
            let mut seen = vec![false; n];
            for index in 0..n {
                assert!(!std::mem::replace(&mut seen[permuted(index, n)], true), "n = {n}, index {index}");
            }
        }
    }

    #[test]
    fn the_random_pattern_is_not_a_stride() {
        let n = 1 << 16;
        let steps: std::collections::BTreeSet<i64> =
            (1..1000).map(|i| permuted(i, n) as i64 - permuted(i - 1, n) as i64).collect();
        assert!(steps.len() > 900, "{} distinct steps", steps.len());
    }
}
