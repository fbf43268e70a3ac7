//! Reductions over the first axis, `x[rows, ..columns]` to `y[..columns]`, in one launch: blocks leave what they find of some rows of their columns, and
//! the last one of some columns to come puts it together.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, Policy};

use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::reduce::{NAMES, Reduction, refuse_none};
use crate::set::rows;
use crate::set::rowwise::{self, int};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)"];

pub(crate) static REDUCE_COLUMNS: Operator = Operator {
    name: "reduce_columns",
    about: "sum, mean, sum_squares, norm, max and min over the first axis",
    file: "reduce.py",
    source: include_str!("../../kernels/reduce.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || suite(&["sum"]),
    quick: || PRECISIONS.iter().map(|&precision| (rowwise::problem(1024, 512, "sum"), precision)).collect(),
    edges,
    draw,
    calls: Calls {
        variants: NAMES,
        default: None,
        signature: |_| Signature::new(&[Operand("x", "rows columns")], &[Operand("y", "columns")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("columns"), sizes.variant)),
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

fn suite(variants: &[&str]) -> Vec<Problem> {
    let sizes = [(65536, 1024), (16384, 4096), (8192, 8192), (128, 262_144), (1 << 20, 64)];
    sizes.iter().flat_map(|&(rows, n)| variants.iter().map(move |variant| rowwise::problem(rows, n, variant))).collect()
}

fn edges() -> Vec<Problem> {
    let sizes = [(1, 1), (7, 16), (1000, 31), (1023, 1025), (4100, 100), (33, 997), (3, 66000), (20000, 3)];
    sizes.iter().flat_map(|&(rows, n)| NAMES.iter().map(move |name| rowwise::problem(rows, n, name))).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [rows, n] = draw.extents(draw.elements(), [1 << 16, 1 << 16]);
    let variant = draw.one_of(NAMES);
    rowwise::problem(rows, n, variant)
}

/// Bytes of a line of a tile, and rows that a block of 256 threads has on their way.
const LINE: usize = 128;
const ROWS: usize = 64;
/// Blocks of a multiprocessor.
const RESIDENT: usize = 4;

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "reduce_columns")?;
    let [count, n] = ["rows", "n"].map(|name| problem.get(name) as usize);
    let (word, reduction) = Reduction::of(&problem.variant);
    refuse_none(reduction, [n, count])?;
    let columns = LINE * 8 / (storage.bits() as usize).max(16);
    let tiles = count.div_ceil(ROWS);
    let across = n.div_ceil(columns);
    let wanted = match machine {
        Machine::Cpu => 16,
        // No more than the device holds at once: what is left over would run alone.
        Machine::Gpu(arch) => RESIDENT * arch.multiprocessors() as usize / across.max(1),
    };
    let per_block = tiles.div_ceil(wanted.max(1)).max(1);
    // Of no rows there is a sum, too.
    let parts = tiles.div_ceil(per_block).max(1);
    let tensors = vec![
        TensorSpec::new("x", storage, [count, n], Role::Input),
        TensorSpec::new("y", acc, [n], Role::Output),
        TensorSpec::new("partials", acc, [parts, n], Role::Workspace),
        TensorSpec::new("arrived", DType::I32, [across], Role::Counter),
    ];
    let mut arguments = rows::arrays(&tensors, &["x", "y", "partials", "arrived"]);
    arguments.extend([("OP", Argument::Word(word)), ("ACC", Argument::Type(acc)), int("count", count)]);
    arguments.extend([int("ROWS", ROWS), int("TILES", per_block), int("COLUMNS", columns), int("PARTS", parts)]);
    let [blocks, ..] = rows::grid(across, 1)?;
    let elements = (count * n) as u64;
    Ok(Plan {
        launches: vec![LaunchSpec::new("reduce_columns", arguments, [blocks, parts as u32, 1])],
        outputs: vec![OutputRows { tensor: 1, rows: n, row_len: 1, exact: false }],
        tensors,
        work: Work {
            read_bytes: packed_bytes(storage, elements),
            write_bytes: packed_bytes(acc, n as u64),
            flops: elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x read once, a number a column written",
        },
        exact_lane: false,
        reference: Box::new(Columns { reduction, count, n, acc }),
    })
}

struct Columns {
    reduction: Reduction,
    count: usize,
    n: usize,
    acc: DType,
}

impl Reference for Columns {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        // Columns lie apart in memory: some of them are read together, a row at a time.
        const TOGETHER: usize = 64;
        let chunks = want.par_chunks_mut(TOGETHER).zip(bound.par_chunks_mut(TOGETHER)).enumerate();
        chunks.for_each(|(chunk, (want, bound))| {
            let mut columns = vec![vec![0.0; self.count]; want.len()];
            let mut line = vec![0.0; want.len()];
            for row in 0..self.count {
                inputs.numbers(0, row * self.n + rows.start + chunk * TOGETHER, &mut line);
                columns.iter_mut().zip(&line).for_each(|(column, x)| column[row] = *x);
            }
            for (at, column) in columns.iter().enumerate() {
                (want[at], bound[at]) = self.reduction.value(column, self.acc);
            }
        });
    }
}
