//! Forms of sparse matrices, and how one becomes another: CSR, COO, CSC and dense.
//!
//! | form | row of an element | column |
//! |---|---|---|
//! | dense | its place | its place |
//! | COO | `rows`, which rise | `columns` |
//! | CSR | between `row_offsets[r]` and `row_offsets[r + 1]` | `columns` |
//! | CSC | `rows` | between `column_offsets[c]` and `column_offsets[c + 1]` |
//!
//! COO and CSR share values and columns: only rows are converted. CSC is the CSR form of the transposed matrix, so one operator goes both ways.

use std::ops::Range;

use tessera_types::{DType, Policy, Storage};

use super::scan::{self, LookBack};
use super::sort::{Cut, Keys, Values};
use super::sparse;
use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::pattern::{Pattern, Spread};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Indices, Operand, Rows, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

/// An operator of a conversion: its name, what it is for, its precisions, how it is called and planned, and its problems.
macro_rules! conversion {
    ($file:expr, $name:literal, $about:literal, $precisions:expr, $further:expr, $signature:expr, $problem:expr, $plan:expr, $edges:expr, $large:expr) => {
        Operator {
            name: $name,
            about: $about,
            file: $file.name,
            source: $file.text,
            precisions: $precisions,
            further_precisions: $further,
            suite: Vec::new,
            further_suite: $large,
            quick: || vec![(sparse::problem([1 << 10, 1 << 10, 1 << 14], &[], "uniform"), $precisions[0])],
            edges: $edges,
            draw,
            calls: Calls { variants: &[""], default: Some(""), signature: $signature, problem: $problem },
            numbers: &[],
            plan: $plan,
            ways: None,
            gradient: None,
            no_specials: None,
            ladder: &[],
        }
    };
}

pub(crate) static CSR_TO_COO: Operator = conversion!(
    sparse::FILE,
    "csr_to_coo",
    "the row of each element, from where rows begin",
    &["int32"],
    &[],
    |_| {
        let inputs = &[Operand("columns", "elements"), Operand("row_offsets", "bounds")];
        Signature::new(inputs, &[Operand("rows", "elements")]).bounds(&[["row_offsets", "columns"]])
    },
    |sizes| of_sizes([rows_of(sizes.get("bounds"))?, 1 << 30, sizes.get("elements")]),
    plan_rows,
    edges,
    large
);

pub(crate) static COO_TO_CSR: Operator = conversion!(
    sparse::FILE,
    "coo_to_csr",
    "where each row begins, from the row of each element",
    &["int32"],
    &[],
    |_| {
        let signature = Signature::new(&[Operand("rows", "elements")], &[Operand("row_offsets", "bounds")]);
        signature.indices(const { &[Indices::of("rows", "row_offsets").among(Rows::Between).rising()] })
    },
    |sizes| of_sizes([rows_of(sizes.get("bounds"))?, 1 << 30, sizes.get("elements")]),
    plan_offsets,
    edges,
    large
);

pub(crate) static CSR_TO_CSC: Operator = conversion!(
    sparse::FILE,
    "csr_to_csc",
    "a sparse matrix by columns, from the one by rows; and the other way round",
    &["fp32", "bf16"],
    &["fp16", "fp64"],
    |_| {
        let inputs = &[Operand("values", "elements"), Operand("columns", "elements"), Operand("row_offsets", "bounds")];
        let outputs =
            &[Operand("by_columns", "elements"), Operand("rows", "elements"), Operand("column_offsets", "column_bounds")];
        let types = &[("columns", DType::I32), ("row_offsets", DType::I32), ("rows", DType::I32), ("column_offsets", DType::I32)];
        let signature = Signature::new(inputs, outputs).types(types).bounds(&[["row_offsets", "columns"]]);
        signature.indices(const { &[Indices::of("columns", "column_offsets").among(Rows::Between)] })
    },
    |sizes| {
        let bounds = [sizes.get("bounds"), sizes.get("column_bounds")];
        of_sizes([rows_of(bounds[0])?, rows_of(bounds[1])?, sizes.get("elements")])
    },
    plan_by_columns,
    edges,
    large
);

pub(crate) static DENSE_TO_CSR: Operator = Operator {
    quick: || vec![(sparse::problem([1 << 10, 1 << 10, 1 << 14], &[], ""), "fp32")],
    // Elements lie where `x` is not 0, which is anywhere.
    draw: |of| Problem { variant: String::new(), ..draw(of) },
    ..PACKED
};

const PACKED: Operator = conversion!(
    scan::FILE,
    "dense_to_csr",
    "the elements of a matrix that are not 0, in CSR form; where there is no room they are left out, and the last offset says how many there are",
    &["fp32", "bf16"],
    &["fp16", "fp64"],
    |_| {
        let outputs = &[Operand("values", "elements"), Operand("columns", "elements"), Operand("row_offsets", "bounds")];
        Signature::new(&[Operand("x", "m n")], outputs).types(sparse::TYPES)
    },
    |sizes: &Sizes| {
        let [m, n, elements, bounds] = ["m", "n", "elements", "bounds"].map(|name| sizes.get(name));
        if bounds != m + 1 {
            return Err(Unsupported(format!("`x` has {m} rows, of which `row_offsets` has {} bounds, not {bounds}", m + 1)));
        }
        of_sizes([m, n, elements])
    },
    plan_pack,
    || DENSE.map(|sizes| sparse::problem(sizes, &[], "")).into(),
    || LARGE_DENSE.map(|sizes| sparse::problem(sizes, &[], "")).into()
);

pub(crate) static CSR_TO_DENSE: Operator = conversion!(
    sparse::FILE,
    "csr_to_dense",
    "a sparse matrix in CSR form with its zeros; of several elements in one place one counts",
    &["fp32", "bf16"],
    &["fp16", "fp64"],
    |_| {
        let inputs = &[Operand("values", "elements"), Operand("columns", "elements"), Operand("row_offsets", "bounds")];
        let signature = Signature::new(inputs, &[Operand("x", "m n")]).types(sparse::TYPES).bounds(&[["row_offsets", "columns"]]);
        signature.indices(const { &[Indices::of("columns", "x").among(Rows::Last)] })
    },
    |sizes| {
        let [m, n, elements, bounds] = ["m", "n", "elements", "bounds"].map(|name| sizes.get(name));
        if bounds != m + 1 {
            return Err(Unsupported(format!("`x` has {m} rows, of which `row_offsets` has {} bounds, not {bounds}", m + 1)));
        }
        of_sizes([m, n, elements])
    },
    plan_spread,
    || sizes(&DENSE),
    || sizes(&LARGE_DENSE)
);

/// Matrices that are written with their zeros.
const DENSE: [[u64; 3]; 6] = [[1, 1, 1], [1, 4100, 997], [1025, 1, 600], [16, 16, 256], [97, 1000, 4100], [300, 64, 0]];
const LARGE_DENSE: [[u64; 3]; 2] = [[1 << 13, 1 << 13, 3_355_443], [1 << 14, 1 << 14, 13_421_773]];
/// Elements of a tile on a GPU, and on a CPU.
const TILE: usize = 1024;
const CPU_TILE: usize = 16384;

fn of_sizes(sizes: [u64; 3]) -> Result<Problem, Unsupported> {
    Ok(sparse::problem(sizes, &[], ""))
}

/// Rows of so many bounds.
fn rows_of(bounds: u64) -> Result<u64, Unsupported> {
    bounds.checked_sub(1).ok_or_else(|| Unsupported("bounds of rows are one more than rows".into()))
}

fn sizes(sizes: &[[u64; 3]]) -> Vec<Problem> {
    sparse::of_each(sizes, &[])
}

fn edges() -> Vec<Problem> {
    sizes(&[&sparse::SMALL[..], &[[20_000, 70_000, 30_000]]].concat())
}

fn large() -> Vec<Problem> {
    sizes(&sparse::LARGE)
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let spread = draw.one_of(&Spread::NAMES);
    let [m, n] = draw.extents(draw.elements(), [1 << 14, 1 << 14]);
    sparse::problem([m, n, draw.extent(m * n)], &[], spread)
}

fn tile(machine: Machine) -> usize {
    match machine {
        Machine::Cpu => CPU_TILE,
        Machine::Gpu(_) => TILE,
    }
}

/// The launch of a kernel that has a block for each tile of `len` elements, and bisects an array of `among` numbers.
fn bisecting(
    kernel: &'static str,
    mut arguments: Vec<(&'static str, Argument)>,
    [len, among]: [usize; 2],
    machine: Machine,
) -> Result<LaunchSpec, Unsupported> {
    let steps = usize::BITS - among.leading_zeros();
    arguments.push(("TILE", Argument::Int(tile(machine) as i64)));
    arguments.push(("STEPS", Argument::Int(i64::from(steps))));
    Ok(LaunchSpec::new(kernel, arguments, rows::grid(len, tile(machine))?))
}

fn floats(policy: Policy, name: &str) -> Result<DType, Unsupported> {
    match policy.storage() {
        Storage::Plain(dtype) if dtype.is_float() && dtype.bits() >= 16 => Ok(dtype),
        _ => Err(Unsupported(format!("{name} takes floats of 16, 32 and 64 bits, not `{policy}`"))),
    }
}

fn integers(policy: Policy, name: &str) -> Result<(), Unsupported> {
    match policy.storage() {
        Storage::Plain(DType::I32) => Ok(()),
        _ => Err(Unsupported(format!("{name} takes integers of 32 bits, not `{policy}`"))),
    }
}

/// So are the elements of a matrix that is written with its zeros.
fn numbered(problem: &Problem) -> Result<(), Unsupported> {
    scan::numbered(u128::from(problem.get("m")) * u128::from(problem.get("n")))
}

/// A plan whose every bit must be right.
fn exact(
    (tensors, outputs): (Vec<TensorSpec>, &[usize]),
    launches: Vec<LaunchSpec>,
    [read_bytes, write_bytes]: [u64; 2],
    formula: &'static str,
    reference: Converted,
) -> Plan {
    let rows = |&tensor: &usize| OutputRows { tensor, rows: 1, row_len: tensors[tensor].len(), exact: true };
    Plan {
        outputs: outputs.iter().map(rows).collect(),
        tensors,
        launches,
        work: Work { read_bytes, write_bytes, flops: 0, compute: None, metric: Metric::Bandwidth, formula },
        exact_lane: false,
        reference: Box::new(reference),
    }
}

fn plan_rows(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    integers(policy, "csr_to_coo")?;
    let pattern = sparse::pattern(problem)?;
    let mut tensors = Vec::from(sparse::index_tensors(pattern));
    tensors.push(TensorSpec::new("rows", DType::I32, [pattern.elements], Role::Output));
    let arguments = rows::arrays(&tensors, &["row_offsets", "rows"]);
    let launch = bisecting("rows_of_elements", arguments, [pattern.elements, pattern.rows + 1], machine)?;
    let bytes = [pattern.rows as u64 + 1, pattern.elements as u64].map(|count| 4 * count);
    let reference = Converted { pattern, kind: Kind::Rows { offsets: 1 } };
    Ok(exact((tensors, &[2]), vec![launch], bytes, "offsets read once, rows written once", reference))
}

fn plan_offsets(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    integers(policy, "coo_to_csr")?;
    let pattern = sparse::pattern(problem)?;
    let of_elements = TensorSpec::new("rows", DType::I32, [pattern.elements], Role::Input);
    let tensors = vec![
        TensorSpec { fill: Fill::Rows(pattern), ..of_elements },
        TensorSpec::new("row_offsets", DType::I32, [pattern.rows + 1], Role::Output),
    ];
    let arguments = rows::arrays(&tensors, &["rows", "row_offsets"]);
    let launch = bisecting("offsets_of_rows", arguments, [pattern.rows + 1, pattern.elements], machine)?;
    let bytes = [pattern.elements as u64, pattern.rows as u64 + 1].map(|count| 4 * count);
    let reference = Converted { pattern, kind: Kind::Offsets };
    Ok(exact((tensors, &[1]), vec![launch], bytes, "rows read once, offsets written once", reference))
}

fn plan_by_columns(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let dtype = floats(policy, "csr_to_csc")?;
    let pattern = sparse::pattern(problem)?;
    let mut tensors = Vec::from(sparse::tensors(pattern, dtype));
    let array = |name, role| TensorSpec::new(name, DType::I32, [pattern.elements], role);
    tensors.push(TensorSpec::new("by_columns", dtype, [pattern.elements], Role::Output));
    tensors.push(array("rows", Role::Output));
    tensors.push(TensorSpec::new("column_offsets", DType::I32, [pattern.columns + 1], Role::Output));
    let work = ["sorted", "other_keys", "order", "other_order", "of_elements"];
    tensors.extend(work.map(|name| array(name, Role::Workspace)));
    // Elements in the order of their columns, those of a column in the order of rows.
    let bits = usize::BITS - pattern.columns.saturating_sub(1).leading_zeros();
    let (cut, own) = (Cut::of(pattern.elements, bits, machine), tensors.len());
    tensors.extend(cut.tensors());
    let keys = Keys { tensors: [1, 6, 7], floats: false };
    let mut launches = match pattern.elements {
        0 => Vec::new(),
        _ => cut.launches(keys, ([1, 8, 9], Values::Places), own)?,
    };
    let of_elements = vec![("row_offsets", Argument::Tensor(2)), ("rows", Argument::Tensor(10))];
    let offsets = vec![("rows", Argument::Tensor(6)), ("row_offsets", Argument::Tensor(5))];
    if pattern.elements > 0 {
        launches.push(bisecting("rows_of_elements", of_elements, [pattern.elements, pattern.rows + 1], machine)?);
        let moved = [("values", 0), ("rows", 10), ("order", 8), ("new_values", 3), ("new_rows", 4)];
        let moved = moved.map(|(name, at)| (name, Argument::Tensor(at))).into_iter();
        let size = ("TILE", Argument::Int(tile(machine) as i64));
        launches.push(LaunchSpec::new("in_order", moved.chain([size]).collect(), rows::grid(pattern.elements, tile(machine))?));
    }
    launches.push(bisecting("offsets_of_rows", offsets, [pattern.columns + 1, pattern.elements], machine)?);
    let elements = packed_bytes(dtype, pattern.elements as u64) + 4 * pattern.elements as u64;
    let bytes = [pattern.rows, pattern.columns].map(|count| elements + 4 * (count as u64 + 1));
    let reference = Converted { pattern, kind: Kind::ByColumns };
    Ok(exact((tensors, &[3, 4, 5]), launches, bytes, "both forms once", reference))
}

fn plan_pack(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let dtype = floats(policy, "dense_to_csr")?;
    let [m, n, room] = ["m", "n", "elements"].map(|name| problem.get(name) as usize);
    numbered(problem)?;
    scan::numbered(problem.get("elements").into())?;
    let mut x = TensorSpec::new("x", dtype, [m * n], Role::Input);
    // One of three is 0; where there is less room than elements, the last ones are left out.
    x.fill = Fill::Integers { least: -1, greatest: 1 };
    let back = LookBack::of(m * n, (DType::I32, scan::FEW), machine);
    let mut tensors = vec![
        x,
        TensorSpec::new("values", dtype, [room], Role::Output),
        TensorSpec::new("columns", DType::I32, [room], Role::Output),
        TensorSpec::new("row_offsets", DType::I32, [m + 1], Role::Output),
    ];
    tensors.extend(back.tensors(DType::I32));
    let mut arguments = rows::arrays(&tensors[..4], &["x", "values", "columns", "row_offsets"]);
    arguments.push(("N", Argument::Int(n as i64)));
    let mut launches = match n {
        // Rows without columns begin where there are no elements, which finds no row.
        0 => {
            let clear = vec![("y", Argument::Tensor(3)), ("TILE", Argument::Int(scan::CLEARED as i64))];
            vec![LaunchSpec::new("clear", clear, rows::grid(m + 1, scan::CLEARED)?).of_file(sparse::FILE)]
        }
        _ => vec![back.launch("to_csr", 4, arguments)?],
    };
    if room > 0 {
        launches.extend([scan::clear_behind([3, m], 1, room)?, scan::clear_behind([3, m], 2, room)?]);
    }
    let read = packed_bytes(dtype, (m * n) as u64);
    let write = packed_bytes(dtype, room as u64) + 4 * (room + m + 1) as u64;
    let pattern = Pattern { rows: m, columns: n, elements: room, spread: Spread::Uniform };
    let reference = Converted { pattern, kind: Kind::Packed };
    Ok(exact((tensors, &[1, 2, 3]), launches, [read, write], "x read once, the other form written once", reference))
}

fn plan_spread(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let dtype = floats(policy, "csr_to_dense")?;
    let pattern = sparse::pattern(problem)?;
    numbered(problem)?;
    let len = pattern.rows * pattern.columns;
    let mut tensors = Vec::from(sparse::tensors(pattern, dtype));
    tensors.push(TensorSpec::new("x", dtype, [len], Role::Output));
    let size = rows::elementwise_tile(len, machine);
    let clear = vec![("y", Argument::Tensor(3)), ("TILE", Argument::Int(size as i64))];
    let mut launches = vec![LaunchSpec::new("clear", clear, rows::grid(len, size)?)];
    if pattern.elements > 0 {
        let mut arguments = rows::arrays(&tensors, &["values", "columns", "row_offsets"]);
        arguments.extend([("y", Argument::Tensor(3)), ("N", Argument::Int(pattern.columns as i64))]);
        launches.push(bisecting("to_dense", arguments, [pattern.elements, pattern.rows + 1], machine)?);
    }
    let elements = pattern.elements as u64;
    let read = packed_bytes(dtype, elements) + 4 * (elements + pattern.rows as u64 + 1);
    let write = packed_bytes(dtype, len as u64);
    let reference = Converted { pattern, kind: Kind::Spread };
    Ok(exact((tensors, &[3]), launches, [read, write], "elements, columns and offsets read once, x written once", reference))
}

/// What is converted, and where in the plan it stands.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Rows { offsets: usize },
    Offsets,
    ByColumns,
    Packed,
    Spread,
}

struct Converted {
    pattern: Pattern,
    kind: Kind,
}

impl Converted {
    /// Whole numbers of a tensor.
    fn whole(inputs: &dyn Inputs, tensor: usize, len: usize) -> Vec<usize> {
        let mut numbers = vec![0.0; len];
        inputs.numbers(tensor, 0, &mut numbers);
        numbers.into_iter().map(|number| number as usize).collect()
    }

    /// The row of each element.
    fn rows(offsets: &[usize]) -> Vec<usize> {
        let rows = offsets.windows(2).enumerate();
        rows.flat_map(|(row, pair)| std::iter::repeat_n(row, pair[1] - pair[0])).collect()
    }

    /// How many numbers, which rise, are less than each of 0, 1, 2, ...
    fn offsets(numbers: &[usize], count: usize) -> Vec<u64> {
        (0..count).map(|number| numbers.partition_point(|&own| own < number) as u64).collect()
    }

    fn by_columns(&self, inputs: &dyn Inputs, output: usize) -> Vec<u64> {
        let columns = Converted::whole(inputs, 1, self.pattern.elements);
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&element| columns[element]);
        match output {
            0 => {
                let mut codes = vec![0; columns.len()];
                inputs.codes(0, 0, &mut codes);
                order.into_iter().map(|element| codes[element]).collect()
            }
            1 => {
                let rows = Converted::rows(&Converted::whole(inputs, 2, self.pattern.rows + 1));
                order.into_iter().map(|element| rows[element] as u64).collect()
            }
            _ => {
                let sorted: Vec<usize> = order.into_iter().map(|element| columns[element]).collect();
                Converted::offsets(&sorted, self.pattern.columns + 1)
            }
        }
    }

    fn packed(&self, inputs: &dyn Inputs, output: usize) -> Vec<u64> {
        let Pattern { rows, columns, elements: room, .. } = self.pattern;
        let mut numbers = vec![0.0; rows * columns];
        inputs.numbers(0, 0, &mut numbers);
        let kept: Vec<usize> = (0..numbers.len()).filter(|&at| numbers[at] != 0.0).collect();
        match output {
            0 => {
                let mut codes = vec![0; numbers.len()];
                inputs.codes(0, 0, &mut codes);
                (0..room).map(|at| kept.get(at).map_or(0, |&place| codes[place])).collect()
            }
            1 => (0..room).map(|at| kept.get(at).map_or(0, |place| (place % columns) as u64)).collect(),
            _ => (0..=rows).map(|row| kept.partition_point(|&place| place < row * columns) as u64).collect(),
        }
    }

    fn spread(&self, inputs: &dyn Inputs) -> Vec<u64> {
        let Pattern { rows, columns, elements, .. } = self.pattern;
        let of_elements = Converted::rows(&Converted::whole(inputs, 2, rows + 1));
        let places = Converted::whole(inputs, 1, elements);
        let mut codes = vec![0; elements];
        inputs.codes(0, 0, &mut codes);
        let mut all = vec![0; rows * columns];
        for ((row, column), code) in of_elements.into_iter().zip(places).zip(codes) {
            all[row * columns + column] = code;
        }
        all
    }
}

impl Reference for Converted {
    fn rows(&self, inputs: &dyn Inputs, output: usize, _rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let Pattern { rows, elements, .. } = self.pattern;
        let answer = match self.kind {
            Kind::Rows { offsets } => {
                let rows = Converted::rows(&Converted::whole(inputs, offsets, rows + 1));
                rows.into_iter().map(|row| row as u64).collect()
            }
            Kind::Offsets => Converted::offsets(&Converted::whole(inputs, 0, elements), rows + 1),
            Kind::ByColumns => self.by_columns(inputs, output),
            Kind::Packed => self.packed(inputs, output),
            Kind::Spread => self.spread(inputs),
        };
        codes.copy_from_slice(&answer);
    }
}
