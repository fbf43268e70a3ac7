//! Sorting whole arrays, stably: keys alone, keys with values, and keys with the order in which they stood.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, Policy, Storage};

use super::scan;
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
/// Threads of a block that moves keys, and keys of each where there are many or few: more keys stand in longer runs of a digit, which are written
/// together, and fewer make more blocks. With 16 a thread of two blocks on a multiprocessor has some words more than registers,
/// and 12 take 1.08 to 1.11 times as long.
const THREADS: usize = 512;
const MANY_ITEMS: usize = 16;
const FEW_ITEMS: usize = 4;
/// Blocks of many keys a thread that there have to be.
const MANY: usize = 128;
/// Keys that a block counts together, as the kernels' file says.
const COUNTED: usize = 2048;
/// Blocks from which on each counts more of them: as many as there is room for on a device, and for the cores of a CPU.
const ENOUGH: usize = 1024;
const CPU_ENOUGH: usize = 4;

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

/// How keys are cut into blocks, and how many passes over them there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    passes: usize,
    /// Keys of a thread that moves them, and blocks of such.
    items: usize,
    blocks: usize,
    /// Keys of a block that counts digits, and blocks of such.
    part: usize,
    counting: usize,
}

/// Keys as they come, on their way, and as they leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Where they come from, go to, and pass by: tensors of 32 bits.
    pub(crate) tensors: [usize; 3],
    /// True where they come and leave as floats.
    pub(crate) floats: bool,
}

impl Cut {
    /// For so many keys, of which so many bits tell them apart.
    pub(crate) fn of(n: usize, bits: u32, machine: Machine) -> Cut {
        let items = if n >= MANY * THREADS * MANY_ITEMS { MANY_ITEMS } else { FEW_ITEMS };
        let enough = match machine {
            Machine::Cpu => CPU_ENOUGH,
            Machine::Gpu(_) => ENOUGH,
        };
        let part = COUNTED * n.div_ceil(COUNTED).div_ceil(enough).max(1);
        Cut {
            passes: bits.div_ceil(BITS).max(1) as usize,
            items,
            blocks: n.div_ceil(THREADS * items),
            part,
            counting: n.div_ceil(part),
        }
    }

    /// How many keys have each digit in each pass, and what blocks leave of a pass and of the next one.
    pub(crate) fn tensors(self) -> [TensorSpec; 3] {
        let words = |name| TensorSpec::new(name, DType::I32, [self.blocks * DIGITS], Role::Workspace);
        let digits = TensorSpec::new("digits", DType::I32, [self.passes * DIGITS], Role::Counter);
        [digits, words("words"), words("other_words")]
    }

    /// The count and all passes. Values go where keys go, each by a tensor of its own; `own` is the first of [`Cut::tensors`].
    pub(crate) fn launches(
        self,
        keys: Keys,
        (values, kind): ([usize; 3], Values),
        own: usize,
    ) -> Result<Vec<LaunchSpec>, Unsupported> {
        let int = |(name, value): (&'static str, usize)| (name, Argument::Int(value as i64));
        let tensor = |(name, at): (&'static str, usize)| (name, Argument::Tensor(at));
        let counted = [("keys", keys.tensors[0]), ("digits", own), ("words", own + 1)].map(tensor).into_iter();
        let counted = counted.chain([("PASSES", self.passes), ("PART", self.part)].map(int));
        let counted = counted.chain([("FLOATS", Argument::Bool(keys.floats))]).collect();
        let mut launches = vec![LaunchSpec::new("count_digits", counted, rows::grid(self.counting, 1)?).of_file(FILE)];
        let mut from = 0;
        for pass in 0..self.passes {
            // The last one goes to the second tensor, and they take turns.
            let to = if (self.passes - pass) % 2 == 1 { 1 } else { 2 };
            let kind = if pass > 0 && kind == Values::Places { Values::Given } else { kind };
            let arrays = [
                ("keys", keys.tensors[from]),
                ("values", values[from]),
                ("digits", own),
                ("words", own + 1 + pass % 2),
                ("next_words", own + 2 - pass % 2),
                ("new_keys", keys.tensors[to]),
                ("new_values", values[to]),
            ];
            let numbers = [("PASS", pass), ("ITEMS", self.items), ("VALUES", kind as usize)];
            let ends = [("FROM_FLOATS", pass == 0), ("TO_FLOATS", pass + 1 == self.passes)];
            let ends = ends.map(|(name, is_end)| (name, Argument::Bool(keys.floats && is_end)));
            let arguments = arrays.map(tensor).into_iter().chain(numbers.map(int)).chain(ends).collect();
            let launch = LaunchSpec::new("move", arguments, rows::grid(self.blocks, 1)?).of_file(FILE);
            launches.push(LaunchSpec { threads: Some(THREADS as u32), ..launch });
            from = to;
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
    tensors.push(array("other_keys", DType::I32, Role::Workspace));
    let keys = Keys { tensors: [0, 1, 2], floats };
    let first = tensors.len();
    let mut values = [first; 3];
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
            values = [first, first, first + 1];
        }
        outputs.push(OutputRows { tensor: values[1], rows: 1, row_len: n, exact: true });
    }
    let cut = Cut::of(n, i32::BITS, machine);
    let own = tensors.len();
    tensors.extend(cut.tensors());
    let launches = cut.launches(keys, (values, kind), own)?;
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
