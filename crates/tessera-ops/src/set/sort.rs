//! Sorting whole arrays, stably: keys alone, keys with values, and keys with the order in which they stood.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, Policy, Storage};

use super::scan::{self, LookBack};
use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec,
    Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

const FILE: KernelFile = KernelFile { name: "sort.py", text: include_str!("../../kernels/sort.py") };

pub(crate) static SORT: Operator = Operator {
    name: "sort",
    about: "a whole array from the least to the greatest, stably; values or places with it",
    file: FILE.name,
    source: FILE.text,
    precisions: &["int32", "fp32"],
    further_precisions: &[],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: Calls {
        variants: &VARIANTS,
        default: Some("keys"),
        signature: |variant| match variant {
            "values" => {
                let inputs = &[Operand("x", "n"), Operand("v", "n")];
                Signature::new(inputs, &[Operand("y", "n"), Operand("w", "n")]).types(&[("v", DType::I32), ("w", DType::I32)])
            }
            "order" => {
                Signature::new(&[Operand("x", "n")], &[Operand("y", "n"), Operand("order", "n")]).types(&[("order", DType::I32)])
            }
            _ => Signature::new(&[Operand("x", "n")], &[Operand("y", "n")]),
        },
        problem: |sizes| Ok(problem(sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

const VARIANTS: [&str; 3] = ["keys", "values", "order"];
/// Bits of a digit, and what digits there are.
const BITS: u32 = 8;
const DIGITS: usize = 256;
/// Keys of a tile, as the kernels' file says, and tiles that a block takes where there are many: more have fewer counts to add up.
const TILE: usize = 2048;
const TILES: usize = 8;
/// Blocks from which on each takes several tiles: as many as there is room for on a device, and for the cores of a CPU.
const ENOUGH: usize = 1024;
const CPU_ENOUGH: usize = 4;
/// Elements of a tile where floats become integers.
const CONVERTED: usize = 2048;

fn problem(n: u64, variant: &str) -> Problem {
    Problem::new(&[("n", n)], variant)
}

fn further_suite() -> Vec<Problem> {
    [10, 16, 20, 24, 26].iter().flat_map(|bits| VARIANTS.map(|variant| problem(1 << bits, variant))).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![(problem(1 << 16, "keys"), "int32"), (problem(1 << 16, "order"), "fp32")]
}

/// Around tiles, and what a block takes.
fn edges() -> Vec<Problem> {
    [1, 16, 997, 2047, 2049, 4100, 20_011].iter().flat_map(|&n| VARIANTS.map(|variant| problem(n, variant))).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let variant = draw.one_of(&VARIANTS);
    problem(draw.extent(draw.elements().min(1 << 18)), variant)
}

/// How keys are cut into blocks, and the look-back over all their counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    part: usize,
    blocks: usize,
    back: LookBack,
}

impl Cut {
    pub(crate) fn of(n: usize, machine: Machine) -> Cut {
        let enough = match machine {
            Machine::Cpu => CPU_ENOUGH,
            Machine::Gpu(_) => ENOUGH,
        };
        let tiles = n.div_ceil(TILE).div_ceil(enough).min(TILES);
        let part = TILE * tiles.max(1);
        let blocks = n.div_ceil(part);
        Cut { part, blocks, back: LookBack::of(blocks * DIGITS, (DType::I32, scan::FEW), machine) }
    }

    /// Counts of all digits in all blocks, where they begin, and what the look-back leaves.
    pub(crate) fn tensors(self) -> impl Iterator<Item = TensorSpec> {
        let array = |name| TensorSpec::new(name, DType::I32, [self.blocks * DIGITS], Role::Workspace);
        [array("counts"), array("offsets")].into_iter().chain(self.back.tensors(DType::I32))
    }

    /// One pass over the digit from bit `shift` on. `keys` and `values` are where they come from and where they go to; `own` is the first of
    /// [`Cut::tensors`].
    fn pass(
        self,
        shift: u32,
        keys: [usize; 2],
        (values, kind): ([usize; 2], Values),
        own: usize,
    ) -> Result<[LaunchSpec; 3], Unsupported> {
        let constants =
            [("SHIFT", i64::from(shift)), ("PART", self.part as i64)].map(|(name, value)| (name, Argument::Int(value)));
        let tensor = |(name, at): (&'static str, usize)| (name, Argument::Tensor(at));
        let grid = rows::grid(self.blocks, 1)?;
        let count = [("keys", keys[0]), ("counts", own)].map(tensor).into_iter().chain(constants).collect();
        let move_to =
            [("keys", keys[0]), ("values", values[0]), ("offsets", own + 1), ("new_keys", keys[1]), ("new_values", values[1])];
        let kind = [("VALUES", Argument::Int(kind as i64))];
        let moved = move_to.map(tensor).into_iter().chain(constants).chain(kind).collect();
        Ok([
            LaunchSpec::new("count_digits", count, grid).of_file(FILE),
            scan::of_counts(self.back, [own, own + 1, own + 2])?,
            LaunchSpec::new("move", moved, grid).of_file(FILE),
        ])
    }

    /// All passes over keys of so many bits. `keys` and `values` come from the first of the tensors and go to the second one, by way of the third.
    pub(crate) fn passes(
        self,
        bits: u32,
        keys: [usize; 3],
        (values, kind): ([usize; 3], Values),
        own: usize,
    ) -> Result<Vec<LaunchSpec>, Unsupported> {
        let passes = bits.div_ceil(BITS).max(1);
        let mut launches = Vec::new();
        let mut at = 0;
        for pass in 0..passes {
            // The last one goes to the second tensor, and they take turns.
            let to = if (passes - pass) % 2 == 1 { 1 } else { 2 };
            let kind = if pass > 0 && kind == Values::Places { Values::Given } else { kind };
            launches.extend(self.pass(pass * BITS, [keys[at], keys[to]], ([values[at], values[to]], kind), own)?);
            at = to;
        }
        Ok(launches)
    }
}

/// What goes with keys, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Nothing,
    Given,
    /// The places at which keys stood.
    Places,
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let dtype = match policy.storage() {
        Storage::Plain(dtype @ (DType::I32 | DType::F32)) => dtype,
        _ => return Err(Unsupported(format!("sort takes keys of `i32` and `f32`, not `{policy}`"))),
    };
    scan::numbered(problem.get("n").into())?;
    let n = problem.get("n") as usize;
    let kind = match problem.kind().as_str() {
        "keys" => Values::Nothing,
        "values" => Values::Given,
        "order" => Values::Places,
        other => return Err(Unsupported(format!("`{other}` is no way to sort"))),
    };
    let array = |name, dtype, role| TensorSpec::new(name, dtype, [n], role);
    let floats = dtype.is_float();
    let mut x = array("x", dtype, Role::Input);
    if !floats {
        x.fill = Fill::Integers { least: i64::from(i32::MIN), greatest: i64::from(i32::MAX) };
    }
    let mut tensors = vec![x, array("y", dtype, Role::Output)];
    let mut outputs = vec![OutputRows { tensor: 1, rows: 1, row_len: n, exact: true }];
    // Keys come from, go to, and pass by.
    let mut keys = [0, 1, 2];
    tensors.push(array("other_keys", DType::I32, Role::Workspace));
    if floats {
        keys = [3, 4, 2];
        tensors.extend(["ordered_keys", "sorted_keys"].map(|name| array(name, DType::I32, Role::Workspace)));
    }
    let first = tensors.len();
    let mut values = [keys[0], first, first];
    if kind == Values::Nothing {
        // The kernel has a place for values, and writes none.
        tensors.push(TensorSpec::new("no_values", DType::I32, [1], Role::Workspace));
    } else {
        if kind == Values::Given {
            let mut v = array("v", DType::I32, Role::Input);
            v.fill = Fill::Integers { least: -(1 << 30), greatest: 1 << 30 };
            tensors.extend([v, array("w", DType::I32, Role::Output), array("other_values", DType::I32, Role::Workspace)]);
            values = [first, first + 1, first + 2];
        } else {
            tensors.extend([array("order", DType::I32, Role::Output), array("other_values", DType::I32, Role::Workspace)]);
            values = [keys[0], first, first + 1];
        }
        outputs.push(OutputRows { tensor: values[1], rows: 1, row_len: n, exact: true });
    }
    let cut = Cut::of(n, machine);
    let own = tensors.len();
    tensors.extend(cut.tensors());
    let convert = |from: usize, to: usize| -> Result<LaunchSpec, Unsupported> {
        let arguments =
            vec![("x", Argument::Tensor(from)), ("y", Argument::Tensor(to)), ("SIZE", Argument::Int(CONVERTED as i64))];
        Ok(LaunchSpec::new("ordered", arguments, rows::grid(n, CONVERTED)?))
    };
    let mut launches = cut.passes(i32::BITS, keys, (values, kind), own)?;
    if floats {
        launches.insert(0, convert(0, 3)?);
        launches.push(convert(4, 1)?);
    }
    let key_bytes = packed_bytes(dtype, n as u64);
    let value_bytes = packed_bytes(DType::I32, n as u64);
    Ok(Plan {
        tensors,
        launches,
        outputs,
        work: Work {
            read_bytes: key_bytes + if kind == Values::Given { value_bytes } else { 0 },
            write_bytes: key_bytes + if kind == Values::Nothing { 0 } else { value_bytes },
            flops: n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "keys and values read once and written once",
        },
        exact_lane: false,
        reference: Box::new(Sorted { n, floats, values: (kind == Values::Given).then_some(values[0]) }),
    })
}

/// `values`: the tensor of values, where there is one.
struct Sorted {
    n: usize,
    floats: bool,
    values: Option<usize>,
}

impl Reference for Sorted {
    fn rows(&self, inputs: &dyn Inputs, output: usize, _rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let mut keys = vec![0; self.n];
        inputs.codes(0, 0, &mut keys);
        let mut order: Vec<u32> = (0..self.n as u32).collect();
        let of_order = |key: u64| {
            let bits = key as u32 as i32;
            if self.floats { bits ^ ((bits >> 31) & i32::MAX) } else { bits }
        };
        order.par_sort_by_key(|&at| of_order(keys[at as usize]));
        let mut write = |of: &dyn Fn(u32) -> u64| codes.iter_mut().zip(&order).for_each(|(code, &at)| *code = of(at));
        match (output, self.values) {
            (0, _) => write(&|at| keys[at as usize]),
            (_, None) => write(&u64::from),
            (_, Some(values)) => {
                let mut held = vec![0; self.n];
                inputs.codes(values, 0, &mut held);
                write(&|at| held[at as usize]);
            }
        }
    }
}
