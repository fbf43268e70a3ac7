//! Prefix sums of a whole array, and what is packed by them: the elements under a mask.

use std::ops::Range;

use tessera_types::{DType, ErrorModel, Policy, Storage};

use crate::draw::Draw;
use crate::element::{RunningSum, underflow, wrap};
use crate::operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec,
    Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

/// The kernels' file, which other operators launch from, too.
pub(crate) const FILE: KernelFile = KernelFile { name: "scan.py", text: include_str!("../../kernels/scan.py") };

pub(crate) static PREFIX_SUM: Operator = Operator {
    name: "prefix_sum",
    about: "sums of all elements up to each one, or before it, of a whole array in one pass",
    file: FILE.name,
    source: FILE.text,
    precisions: &["fp32", "int32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: Calls {
        variants: &VARIANTS,
        default: Some("inclusive"),
        signature: |_| Signature::new(&[Operand("x", "..n")], &[Operand("y", "..n")]),
        problem: |sizes| Ok(problem(sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan: plan_sum,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static MASKED_SELECT: Operator = Operator {
    name: "masked_select",
    about: "the elements under a mask, packed in their order, and how many they are",
    file: FILE.name,
    source: FILE.text,
    precisions: &["fp32", "bf16", "int32"],
    further_precisions: &["fp16", "fp64", "int8"],
    suite: Vec::new,
    further_suite: || sizes(&[1 << 20, 1 << 24, 1 << 26], &[""]),
    quick: || MASKED_SELECT.precisions.iter().map(|&precision| (problem(1 << 18, ""), precision)).collect(),
    edges: || sizes(&EDGES, &[""]),
    draw: |draw| problem(draw.extent(draw.elements()), ""),
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[Operand("x", "..n"), Operand("mask", "..n")];
            let signature = Signature::new(inputs, &[Operand("y", "..n"), Operand("count", "1")]);
            signature.types(&[("mask", DType::I8), ("count", DType::I32)])
        },
        problem: |sizes| Ok(problem(sizes.get("n"), "")),
    },
    numbers: &[],
    plan: plan_select,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

const VARIANTS: [&str; 2] = ["inclusive", "exclusive"];
/// Around vectors, tiles, and groups of blocks.
const EDGES: [u64; 9] = [1, 16, 997, 1000, 1023, 1025, 4100, 65_537, 1_100_000];

/// Elements of a tile on a CPU.
const CPU_TILE: usize = 16384;
/// Elements of a tile on a GPU, half as many of 64 bits: as many as threads have room for, since a block takes some 6 us beside its elements. On an
/// H200 a scan of 2^26 numbers took 251, 182 and 164 us in tiles of 8192, 16384 and 32768.
pub(crate) const SCANNED: usize = 32768;
pub(crate) const SELECTED: usize = 8192;
pub(crate) const FEW: usize = 4096;
/// Blocks from which on tiles are that large: fewer would leave multiprocessors idle.
const MANY: usize = 128;
/// Blocks of a group.
const GROUP: usize = 256;
/// Elements of a tile that is set to zero.
pub(crate) const CLEARED: usize = 2048;

fn tile(n: usize, of_many: usize) -> usize {
    if n >= MANY * of_many { of_many } else { FEW }
}

fn problem(n: u64, variant: &str) -> Problem {
    Problem::new(&[("n", n)], variant)
}

fn sizes(sizes: &[u64], variants: &[&str]) -> Vec<Problem> {
    sizes.iter().flat_map(|&n| variants.iter().map(move |variant| problem(n, variant))).collect()
}

fn further_suite() -> Vec<Problem> {
    sizes(&[1 << 20, 1 << 24, 1 << 26, 1 << 28], &VARIANTS)
}

fn quick() -> Vec<(Problem, &'static str)> {
    let inclusive = PREFIX_SUM.precisions.iter().map(|&precision| (problem(1 << 20, "inclusive"), precision));
    inclusive.chain([(problem(1 << 20, "exclusive"), "fp32")]).collect()
}

fn edges() -> Vec<Problem> {
    sizes(&EDGES, &VARIANTS)
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let variant = draw.one_of(&VARIANTS);
    problem(draw.extent(draw.elements()), variant)
}

/// How an array is cut into blocks that look back, and what these leave in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookBack {
    /// Elements of a block.
    pub(crate) tile: usize,
    /// Blocks.
    pub(crate) blocks: usize,
}

impl LookBack {
    /// For so many elements, whose sums are of this type, and tiles of so many on a GPU.
    pub(crate) fn of(n: usize, (sums, tile): (DType, usize), machine: Machine) -> LookBack {
        let tile = match machine {
            Machine::Cpu => CPU_TILE,
            Machine::Gpu(_) => tile * 32 / sums.bits().max(32) as usize,
        };
        // Of no elements there is a count, too.
        LookBack { tile, blocks: n.div_ceil(tile).max(1) }
    }

    /// The words of blocks and of groups, and the count of blocks that are done, which a launch finds and leaves as zeros.
    pub(crate) fn tensors(self, sums: DType) -> [TensorSpec; 3] {
        let word = if sums == DType::F32 { DType::I32 } else { DType::I64 };
        let room = |count: usize| [count.next_multiple_of(GROUP)];
        [
            TensorSpec::new("words", word, room(self.blocks), Role::Counter),
            TensorSpec::new("groups", word, room(self.blocks.div_ceil(GROUP)), Role::Counter),
            TensorSpec::new("done", DType::I32, [1], Role::Counter),
        ]
    }

    /// The launch of a kernel that takes `arguments` beside those of the look-back, whose tensors stand in the plan from `first` on.
    pub(crate) fn launch(
        self,
        kernel: &'static str,
        first: usize,
        arguments: impl IntoIterator<Item = (&'static str, Argument)>,
    ) -> Result<LaunchSpec, Unsupported> {
        let own = ["words", "groups", "done"].into_iter().zip((first..).map(Argument::Tensor));
        let constants = [("TILE", self.tile), ("GROUP", GROUP)].map(|(name, number)| (name, Argument::Int(number as i64)));
        let arguments = arguments.into_iter().chain(own).chain(constants).collect();
        Ok(LaunchSpec::new(kernel, arguments, rows::grid(self.blocks, 1)?).of_file(FILE))
    }
}

/// Kernels number elements by 32 bits, and look as far as behind the end of the last tile.
pub(crate) fn numbered(elements: u128) -> Result<(), Unsupported> {
    const MOST_ELEMENTS: u128 = (1 << 31) - 1 - CPU_TILE as u128;
    match elements <= MOST_ELEMENTS {
        true => Ok(()),
        false => Err(Unsupported(format!("elements are numbered by 32 bits, and {elements} are more than {MOST_ELEMENTS}"))),
    }
}

/// Zeros behind as many elements of a tensor as element `at` of another one says.
pub(crate) fn clear_behind([count, at]: [usize; 2], tensor: usize, len: usize) -> Result<LaunchSpec, Unsupported> {
    let arguments = vec![
        ("count", Argument::Tensor(count)),
        ("y", Argument::Tensor(tensor)),
        ("AT", Argument::Int(at as i64)),
        ("TILE", Argument::Int(CLEARED as i64)),
    ];
    Ok(LaunchSpec::new("clear_behind", arguments, rows::grid(len, CLEARED)?).of_file(FILE))
}

/// The type of elements, and of their sums.
fn storage(policy: Policy, name: &str) -> Result<(DType, DType), Unsupported> {
    match policy.storage() {
        Storage::Plain(DType::I32) => Ok((DType::I32, DType::I32)),
        _ => rows::storage(policy, name),
    }
}

fn plan_sum(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (dtype, acc) = storage(policy, "prefix_sum")?;
    numbered(problem.get("n").into())?;
    let n = problem.get("n") as usize;
    let exclusive = problem.has("exclusive");
    let back = LookBack::of(n, (acc, tile(n, SCANNED)), machine);
    let mut x = TensorSpec::new("x", dtype, [n], Role::Input);
    if dtype == DType::I32 {
        // Sums leave the type's range, where they are taken modulo 2^32.
        x.fill = Fill::Integers { least: -(1 << 24), greatest: 1 << 26 };
    }
    let arguments = [
        ("x", Argument::Tensor(0)),
        ("y", Argument::Tensor(1)),
        ("ACC", Argument::Type(acc)),
        ("EXCLUSIVE", Argument::Bool(exclusive)),
    ];
    let bytes = packed_bytes(dtype, n as u64);
    Ok(Plan {
        tensors: [x, TensorSpec::new("y", dtype, [n], Role::Output)].into_iter().chain(back.tensors(acc)).collect(),
        launches: vec![back.launch("scan", 2, arguments)?],
        outputs: vec![OutputRows { tensor: 1, rows: 1, row_len: n, exact: !dtype.is_float() }],
        work: Work {
            read_bytes: bytes,
            write_bytes: bytes,
            flops: n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x read once, y written once",
        },
        exact_lane: acc == dtype && dtype.is_float() && n <= 1 << 22,
        reference: Box::new(Sums { dtype, acc, exclusive, depth: back.tile + 2 * GROUP }),
    })
}

/// `depth`: additions that any element has behind it, at most.
struct Sums {
    dtype: DType,
    acc: DType,
    exclusive: bool,
    depth: usize,
}

impl Reference for Sums {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, _rows: Range<usize>, expected: Expected<'_>) {
        match expected {
            Expected::Codes(codes) => {
                let mut sum = 0i64;
                let mut values = vec![0.0; codes.len()];
                inputs.numbers(0, 0, &mut values);
                for (code, value) in codes.iter_mut().zip(values) {
                    let before = sum;
                    sum = sum.wrapping_add(value as i64);
                    *code = wrap(self.dtype, if self.exclusive { before } else { sum });
                }
            }
            Expected::Bounded { want, bound } => {
                let model = ErrorModel { floor: underflow(self.dtype), ..ErrorModel::nearest(self.dtype, self.acc) };
                inputs.numbers(0, 0, want);
                let (mut sum, mut magnitude) = (RunningSum::default(), 0.0);
                for (i, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
                    let before = (sum.value(), magnitude);
                    sum.add(*want);
                    magnitude += want.abs();
                    let (exact, magnitude) = if self.exclusive { before } else { (sum.value(), magnitude) };
                    *bound = model.contraction(exact, magnitude, self.depth.min(i + 1));
                    *want = exact;
                }
            }
        }
    }
}

fn plan_select(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let dtype = match policy.storage() {
        Storage::Plain(dtype) if matches!(dtype.bits(), 8 | 16 | 32 | 64) && dtype != DType::E8M0 => dtype,
        _ => return Err(Unsupported(format!("masked_select takes elements of whole bytes, not `{policy}`"))),
    };
    numbered(problem.get("n").into())?;
    let n = problem.get("n") as usize;
    let back = LookBack::of(n, (DType::I32, tile(n, SELECTED)), machine);
    let mut mask = TensorSpec::new("mask", DType::I8, [n], Role::Input);
    // Two of three are kept, and what is not 0 is true.
    mask.fill = Fill::Integers { least: -1, greatest: 1 };
    let mut x = TensorSpec::new("x", dtype, [n], Role::Input);
    if !dtype.is_float() {
        x.fill = Fill::Integers { least: -100, greatest: 100 };
    }
    let tensors =
        [x, mask, TensorSpec::new("y", dtype, [n], Role::Output), TensorSpec::new("count", DType::I32, [1], Role::Output)];
    let arguments = [("x", 0), ("mask", 1), ("y", 2), ("count", 3)].map(|(name, at)| (name, Argument::Tensor(at)));
    Ok(Plan {
        tensors: tensors.into_iter().chain(back.tensors(DType::I32)).collect(),
        launches: vec![back.launch("select", 4, arguments)?, clear_behind([3, 0], 2, n)?],
        outputs: vec![
            OutputRows { tensor: 2, rows: 1, row_len: n, exact: true },
            OutputRows { tensor: 3, rows: 1, row_len: 1, exact: true },
        ],
        work: Work {
            read_bytes: packed_bytes(dtype, n as u64) + n as u64,
            write_bytes: packed_bytes(dtype, n as u64) + 4,
            flops: n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x and mask read once, y written once, zeros behind what is packed among it",
        },
        exact_lane: false,
        reference: Box::new(Packed { n }),
    })
}

struct Packed {
    n: usize,
}

impl Reference for Packed {
    fn rows(&self, inputs: &dyn Inputs, output: usize, _rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let mut mask = vec![0; self.n];
        inputs.codes(1, 0, &mut mask);
        if output == 1 {
            codes[0] = mask.iter().filter(|&&code| code != 0).count() as u64;
            return;
        }
        let mut x = vec![0; self.n];
        inputs.codes(0, 0, &mut x);
        codes.fill(0);
        let kept = x.iter().zip(&mask).filter(|(_, mask)| **mask != 0);
        codes.iter_mut().zip(kept).for_each(|(code, (x, _))| *code = *x);
    }
}
