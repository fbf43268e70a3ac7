//! Rows in order: all elements of each (`sort_rows`), or the `k` largest or smallest (`top_k`), with where they stood; and the gradients, which put
//! cotangents of values there.
//!
//! Nothing is rounded: an element is off by nothing, and a place is that of the first of equal elements that has none before it.

use std::cmp::Ordering;

use tessera_types::{DType, Policy};

use crate::draw::Draw;
use crate::operator::{Argument, Fill, KernelFile, LaunchSpec, Machine, Operator, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::set::rows;
use crate::set::rowwise::{self, Array, Case, Of, Rowwise, Width, int, row};
use crate::signature::{Calls, Indices, Operand, Rows, Signature};

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];
const EXTREMES: &[&str] = &["largest", "smallest"];
const DIRECTIONS: &[&str] = &["ascending", "descending"];

/// The most elements that are selected of a row: a block compares each of them with each.
const MOST: usize = 512;

const OPERATOR: Operator = Operator {
    name: "top_k",
    about: "the k largest or smallest elements along the last axis, in order, and where they stand",
    file: "order.py",
    source: include_str!("../../kernels/order.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    further_suite: || {
        chosen(
            &[(64, 32000, 50), (64, 128_256, 50), (64, 262_144, 256), (1, 128_256, 50), (8192, 1024, 8), (65536, 128, 8)],
            "largest",
        )
    },
    suite: Vec::new,
    quick: || PRECISIONS.iter().map(|&precision| (chosen(&[(64, 1024, 8)], "largest").remove(0), precision)).collect(),
    edges: || {
        let sizes = [
            (3, 1, 1),
            (5, 16, 16),
            (7, 997, 1),
            (7, 1000, 50),
            (2, 1025, 256),
            (3, 8192, 100),
            (2, 8193, 256),
            (1, 66000, 300),
            (2, 1300, 512),
        ];
        EXTREMES.iter().flat_map(|variant| chosen(&sizes, variant)).collect()
    },
    draw: |draw| {
        let [rows, n] = draw.extents(draw.elements(), [1024, 1 << 17]);
        let k = draw.extent(n.min(256));
        chosen(&[(rows, n, k)], draw.one_of(EXTREMES)).remove(0)
    },
    calls: Calls {
        variants: EXTREMES,
        default: Some("largest"),
        signature: |_| {
            Signature::new(&[Operand("x", "..rows n")], &[Operand("values", "..rows k"), Operand("indices", "..rows k")])
        },
        problem: |sizes| Ok(chosen(&[(sizes.get("rows"), sizes.get("n"), sizes.get("k"))], sizes.variant).remove(0)),
    },
    numbers: &[],
    plan: |problem, policy, machine| {
        let case = Case::of("top_k", problem, policy, machine)?;
        if case.k > case.n || case.k > MOST {
            return Err(Unsupported(format!(
                "top_k gives up to {MOST} elements, and no more than a row has, not {} of {}",
                case.k, case.n
            )));
        }
        rowwise::plan(&CHOSEN, case, &[])
    },
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static TOP_K: Operator = Operator { gradient: Some(&TOP_K_BACKWARD), ..OPERATOR };

pub(crate) static TOP_K_BACKWARD: Operator = Operator {
    name: "top_k_backward",
    about: "gradient of top_k: cotangents of the values where these stood, zeros elsewhere",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[Operand("indices", "..rows k"), Operand("dvalues", "..rows k")];
            Signature::new(INPUTS, &[Operand("dx", "..rows n")]).types(PLACES).indices(STOOD)
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| back(&FROM_CHOSEN, "top_k_backward", problem, policy, machine),
    ..OPERATOR
};

const STOOD: &[Indices] = &[Indices::of("indices", "dx").among(Rows::Last)];

/// Where elements stood.
const PLACES: &[(&str, DType)] = &[("indices", DType::I32)];

pub(crate) static SORT_ROWS: Operator = Operator { gradient: Some(&SORT_ROWS_BACKWARD), ..SORT };

pub(crate) static SORT_ROWS_BACKWARD: Operator = Operator {
    name: "sort_rows_backward",
    about: "gradient of sort_rows: cotangents of the values where these stood",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[Operand("indices", "..rows n"), Operand("dvalues", "..rows n")];
            Signature::new(INPUTS, &[Operand("dx", "..rows n")]).types(PLACES).indices(STOOD)
        },
        ..SORT.calls
    },
    plan: |problem, policy, machine| back(&FROM_SORTED, "sort_rows_backward", problem, policy, machine),
    ..SORT
};

const SORT: Operator = Operator {
    name: "sort_rows",
    about: "the elements along the last axis in order, equal ones as they stand, and where they stood",
    further_suite: || sorted(&[(65536, 128), (16384, 1024), (4096, 4096), (1024, 16384), (16, 262_144)], "ascending"),
    suite: Vec::new,
    quick: || PRECISIONS.iter().map(|&precision| (rowwise::problem(64, 1024, "ascending"), precision)).collect(),
    edges: || {
        let sizes = [(3, 1), (5, 16), (7, 63), (2, 64), (7, 65), (3, 997), (2, 1025), (2, 4100), (1, 16384)];
        DIRECTIONS.iter().flat_map(|variant| sorted(&sizes, variant)).collect()
    },
    draw: |draw: &mut Draw<'_>| {
        let [rows, n] = draw.extents(draw.elements(), [1024, 1 << 15]);
        let variant = draw.one_of(DIRECTIONS);
        rowwise::problem(rows, n, variant)
    },
    calls: Calls {
        variants: DIRECTIONS,
        default: Some("ascending"),
        signature: |_| {
            Signature::new(&[Operand("x", "..rows n")], &[Operand("values", "..rows n"), Operand("indices", "..rows n")])
        },
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), sizes.variant)),
    },
    plan: |problem, policy, machine| rowwise::plan(&SORTED, Case::of("sort_rows", problem, policy, machine)?, &[]),
    ..OPERATOR
};

fn sorted(sizes: &[(u64, u64)], variant: &str) -> Vec<Problem> {
    sizes.iter().map(|&(rows, n)| rowwise::problem(rows, n, variant)).collect()
}

fn chosen(sizes: &[(u64, u64, u64)], variant: &str) -> Vec<Problem> {
    sizes.iter().map(|&(rows, n, k)| Problem::new(&[("rows", rows), ("n", n), ("k", k)], variant)).collect()
}

static CHOSEN: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[
        Array { name: "values", width: Width::Chosen, of: Of::Storage },
        Array { name: "indices", width: Width::Chosen, of: Of::Index },
    ],
    launches: select,
    reference: |case, inputs, output, want, bound| ordered(&inputs[0], case.variant == "smallest", output, want, bound),
    flops: 1,
    formula: "x read once, k elements and indices of each row written",
};

static SORTED: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[row("values"), Array { name: "indices", width: Width::Row, of: Of::Index }],
    launches: sort,
    reference: |case, inputs, output, want, bound| ordered(&inputs[0], case.variant != "descending", output, want, bound),
    flops: 1,
    formula: "x read once, as many elements and indices written",
};

static FROM_CHOSEN: Rowwise = Rowwise {
    inputs: &[
        Array { name: "indices", width: Width::Chosen, of: Of::Index },
        Array { name: "dvalues", width: Width::Chosen, of: Of::Storage },
    ],
    outputs: &[row("dx")],
    launches: |case, tensors| {
        let (tile, grid) = case.tiles()?;
        let mut arguments = rows::arrays(tensors, &["dx"]);
        arguments.extend(tile);
        Ok(vec![LaunchSpec::new("clear", arguments, grid), putting_back(case, case.k, tensors)?])
    },
    reference: |_, inputs, _, want, bound| put_back(inputs, want, bound),
    flops: 0,
    formula: "k cotangents and indices of each row read, dx written once",
};

static FROM_SORTED: Rowwise = Rowwise {
    inputs: &[Array { name: "indices", width: Width::Row, of: Of::Index }, row("dvalues")],
    outputs: &[row("dx")],
    launches: |case, tensors| Ok(vec![putting_back(case, case.n, tensors)?]),
    reference: |_, inputs, _, want, bound| put_back(inputs, want, bound),
    flops: 0,
    formula: "cotangents and indices read once, dx written once",
};

/// The launch that puts so many cotangents of each row where their values stood.
fn putting_back(case: &Case, width: usize, tensors: &[TensorSpec]) -> Result<LaunchSpec, Unsupported> {
    let (tile, grid) = Case { n: width, ..case.clone() }.tiles()?;
    let mut arguments = rows::arrays(tensors, &["indices", "dvalues", "dx"]);
    arguments.extend(tile);
    Ok(LaunchSpec::new("put_back", arguments, grid))
}

fn put_back(inputs: &[Vec<f64>], want: &mut [f64], bound: &mut [f64]) {
    want.fill(0.0);
    bound.fill(0.0);
    for (place, cotangent) in inputs[0].iter().zip(&inputs[1]) {
        want[*place as usize] = *cotangent;
    }
}

/// The plan of a gradient: a row's places are different ones, of all that it has.
fn back(of: &'static Rowwise, name: &str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of(name, problem, policy, machine)?;
    if case.k > case.n {
        return Err(Unsupported(format!("{name} has places for {} elements, not for {}", case.n, case.k)));
    }
    let below = case.n as u64;
    let mut plan = rowwise::plan(of, case, &[])?;
    plan.tensors[0].fill = Fill::Distinct { below };
    Ok(plan)
}

/// The first elements of a row in order, or where they stand.
fn ordered(x: &[f64], is_rising: bool, output: usize, want: &mut [f64], bound: &mut [f64]) {
    let mut places: Vec<usize> = (0..x.len()).collect();
    let compare = |a: f64, b: f64| a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
    // Sorting keeps the order of equal elements.
    places.sort_by(|&a, &b| if is_rising { compare(x[a], x[b]) } else { compare(x[b], x[a]) });
    for (want, place) in want.iter_mut().zip(places) {
        *want = if output == 0 { x[place] } else { place as f64 };
    }
    bound.fill(0.0);
}

/// Elements that a block takes at once, of 32 bits or fewer.
const SIZE: usize = 8192;

/// As many launches as it takes to come down to `k` elements a row, and one that puts these in order.
fn select(case: &Case, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    // Of no elements there are none between the levels, and nothing to put in order.
    if case.k == 0 {
        return Ok(Vec::new());
    }
    let least = ("LEAST", Argument::Bool(case.variant == "smallest"));
    let k = int("K", case.k);
    let most = if case.storage.bits() > 32 { SIZE / 2 } else { SIZE };
    let [down, ..] = rows::grid(case.rows, 1)?;
    const LEVELS: [[&str; 2]; 4] =
        [["values1", "places1"], ["values2", "places2"], ["values3", "places3"], ["values4", "places4"]];
    let mut launches = Vec::new();
    let (mut from, mut n) = ([Argument::Tensor(0), Argument::Tensor(0)], case.n);
    for names in LEVELS {
        let size = most.min(n);
        let parts = n.div_ceil(size);
        // The last part has fewer elements than are chosen, perhaps: places that it does not fill are no elements.
        let [values, places] = names;
        tensors.push(TensorSpec::new(values, case.storage, [case.rows, parts * case.k], Role::Workspace));
        tensors.push(TensorSpec::new(places, DType::I32, [case.rows, parts * case.k], Role::Workspace));
        let to = [Argument::Tensor(tensors.len() - 2), Argument::Tensor(tensors.len() - 1)];
        let mut arguments = vec![("x", from[0]), ("values", to[0]), ("indices", to[1]), least, k];
        arguments.extend([int("SIZE", size), int("N", n)]);
        let kernel = if launches.is_empty() { "select" } else { "select_again" };
        arguments.extend((!launches.is_empty()).then_some(("places", from[1])));
        launches.push(LaunchSpec::new(kernel, arguments, [down, parts as u32, 1]));
        (from, n) = (to, parts * case.k);
        if parts == 1 {
            break;
        }
    }
    if n > case.k {
        return Err(Unsupported(format!("top_k comes down to {} of {} elements in more steps than it takes", case.k, case.n)));
    }
    let [values, indices] = ["values", "indices"].map(|name| rows::arrays(tensors, &[name])[0].1);
    let arguments = vec![("x", from[0]), ("places", from[1]), ("values", values), ("indices", indices), least, k];
    launches.push(LaunchSpec::new("order", arguments, [down, 1, 1]));
    Ok(launches)
}

/// Runs that a block puts in order, and elements of each.
const RUNS: usize = 8;
const RUN: usize = 64;
/// Elements of a block that merges.
const COLUMNS: usize = 1024;

/// Short rows are put in order by a block each.
const SHORT: KernelFile = KernelFile { name: "sort_rows.py", text: include_str!("../../kernels/sort_rows.py") };
/// Elements of a thread there, and the least and most that a block takes.
const ITEMS: usize = 4;
const BLOCK: [usize; 2] = [32 * ITEMS, 1024 * ITEMS];

fn sort(case: &Case, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    let [least, most] = BLOCK;
    let bits = case.storage.bits();
    match case.machine {
        Machine::Gpu(_) if case.n <= most && matches!(bits, 16 | 32) => {
            let size = case.n.next_power_of_two().max(least);
            let mut arguments = rows::arrays(tensors, &["x", "values", "indices"]);
            arguments.push(("LEAST", Argument::Bool(case.variant != "descending")));
            arguments.push(("WORD", Argument::Type(if bits == 16 { DType::I32 } else { DType::I64 })));
            arguments.extend([int("BITS", bits as usize), int("SIZE", size), int("STEPS", size.ilog2() as usize)]);
            let launch = LaunchSpec::new("sort_row", arguments, rows::grid(case.rows, 1)?).of_file(SHORT);
            Ok(vec![LaunchSpec { threads: Some((size / ITEMS) as u32), ..launch }])
        }
        _ => merges(case, tensors),
    }
}

/// One launch that puts runs in order, and one for each time that they become twice as long.
fn merges(case: &Case, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    let least = ("LEAST", Argument::Bool(case.variant != "descending"));
    let n = int("N", case.n);
    let levels = case.n.div_ceil(RUN).next_power_of_two().ilog2() as usize;
    let results = [Argument::Tensor(1), Argument::Tensor(2)];
    let mut between = results;
    if levels > 0 {
        tensors.push(TensorSpec::new("between", case.storage, [case.rows, case.n], Role::Workspace));
        tensors.push(TensorSpec::new("places", DType::I32, [case.rows, case.n], Role::Workspace));
        between = [Argument::Tensor(tensors.len() - 2), Argument::Tensor(tensors.len() - 1)];
    }
    // Turn by turn, so that the last one writes the results.
    let side = |level: usize| if (levels - level).is_multiple_of(2) { results } else { between };
    let grid = |columns: usize| -> Result<[u32; 3], Unsupported> {
        let [down, ..] = rows::grid(case.rows, 1)?;
        Ok([down, case.n.div_ceil(columns) as u32, 1])
    };
    let [values, indices] = side(0);
    let arguments =
        vec![("x", Argument::Tensor(0)), ("values", values), ("indices", indices), least, int("RUNS", RUNS), int("RUN", RUN), n];
    let mut launches = vec![LaunchSpec::new("runs", arguments, grid(RUNS * RUN)?)];
    for level in 0..levels {
        let ([x, places], [values, indices]) = (side(level), side(level + 1));
        let run = RUN << level;
        let mut arguments = vec![("x", x), ("places", places), ("values", values), ("indices", indices)];
        let steps = run.ilog2() as usize + 1;
        arguments.extend([int("run", run), int("steps", steps), least, int("COLUMNS", COLUMNS), n]);
        launches.push(LaunchSpec::new("merge", arguments, grid(COLUMNS)?));
    }
    Ok(launches)
}
