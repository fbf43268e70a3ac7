//! Ladders of operators that move and reduce: simpler kernels of per-thread style, whose files say what each adds to the one before it.

use tessera_types::{DType, Policy};

use super::conv2d::tiles;
use super::rows::{self, int};
use super::{bandwidth, permute, softmax, vector};
use crate::operator::{Argument, KernelFile, LaunchSpec, Machine, Operator, Plan, Role, Rung, TensorSpec, Unsupported};
use crate::problem::Problem;

/// Of transposes, for `permute`.
pub(super) static TRANSPOSE: [Rung; 3] = [
    Rung {
        name: "naive",
        about: "a thread an element: whole lines are read, single elements written",
        plan: |problem, policy, machine| transpose("naive", problem, policy, machine),
    },
    Rung {
        name: "shared_tile",
        about: "through a tile in shared memory, whose columns lie in one bank each",
        plan: |problem, policy, machine| transpose("shared_tile", problem, policy, machine),
    },
    Rung {
        name: "padded",
        about: "the same with lines of one element more; single elements at a time",
        plan: |problem, policy, machine| transpose("padded", problem, policy, machine),
    },
];

/// Of sums, for `vector`.
pub(super) static SUM: [Rung; 3] = [
    Rung {
        name: "naive",
        about: "one thread of a block adds up what all have found",
        plan: |problem, policy, machine| sum("sum_naive", problem, policy, machine),
    },
    Rung {
        name: "shared_tree",
        about: "half as many threads in each step, with a barrier",
        plan: |problem, policy, machine| sum("sum_shared_tree", problem, policy, machine),
    },
    Rung {
        name: "warp_shuffles",
        about: "lanes exchange registers; single elements are loaded",
        plan: |problem, policy, machine| sum("sum_warp_shuffles", problem, policy, machine),
    },
];

/// Of rows, for `softmax`.
pub(super) static SOFTMAX: [Rung; 3] = [
    Rung {
        name: "naive",
        about: "a thread a row, which it reads three times",
        plan: |problem, policy, machine| softmax_of("softmax_naive", THREADS, problem, policy, machine),
    },
    Rung {
        name: "shared_tree",
        about: "a block a row; half as many threads in each step, with a barrier",
        plan: |problem, policy, machine| softmax_of("softmax_shared_tree", 1, problem, policy, machine),
    },
    Rung {
        name: "warp_shuffles",
        about: "lanes exchange registers; the row is read three times",
        plan: |problem, policy, machine| softmax_of("softmax_warp_shuffles", 1, problem, policy, machine),
    },
];

/// Of copies, for `bandwidth`.
pub(super) static COPY: [Rung; 2] = [
    Rung {
        name: "scalar",
        about: "a thread an element",
        plan: |problem, policy, machine| copy("scalar", problem, policy, machine),
    },
    Rung {
        name: "vectors",
        about: "16 bytes a thread",
        plan: |problem, policy, machine| copy("vectors", problem, policy, machine),
    },
];

const TURNS: KernelFile = KernelFile { name: "transpose_ladder.py", text: include_str!("../../kernels/transpose_ladder.py") };
const REDUCTIONS: KernelFile =
    KernelFile { name: "reduction_ladder.py", text: include_str!("../../kernels/reduction_ladder.py") };
const COPIES: KernelFile = KernelFile { name: "copy_ladder.py", text: include_str!("../../kernels/copy_ladder.py") };

/// Threads of a block, and the side of a tile that it turns, as the files say.
const THREADS: usize = 256;
const SIDE: usize = 32;
/// Blocks that leave a part of a sum at most: one adds up what they leave.
const PARTS: usize = 1024;

/// The operator's own plan, whose launches are another kernel's.
fn own(operator: &Operator, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    Ok(Plan { launches: Vec::new(), ..(operator.plan)(problem, policy, machine)? })
}

fn transpose(kernel: &'static str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    if !["10", "021", "0132"].contains(&problem.variant.as_str()) {
        return Err(Unsupported(format!("this rung turns the last two axes, and not `{}`", problem.variant)));
    }
    let mut plan = own(&permute::PERMUTE, problem, policy, machine)?;
    let shape = &plan.tensors[0].shape;
    let grid = [tiles(shape[3], SIDE)?, tiles(shape[2], SIDE)?, tiles(shape[0] * shape[1], 1)?];
    let arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1))];
    plan.launches.push(LaunchSpec::new(kernel, arguments, grid).of_file(TURNS));
    Ok(plan)
}

/// Threads number elements by 32 bits, and go on by as many as all blocks of a sum have until they are behind the last one.
fn countable(elements: usize) -> Result<(), Unsupported> {
    match i32::try_from(elements + THREADS * PARTS) {
        Ok(_) => Ok(()),
        Err(_) => Err(Unsupported(format!("this rung numbers elements by 32 bits, and {elements} are too many"))),
    }
}

fn sum(kernel: &'static str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    if problem.kind() != "reduce_sum" {
        return Err(Unsupported(format!("this rung has `reduce_sum`, and not `{}`", problem.variant)));
    }
    let mut plan = own(&vector::VECTOR, problem, policy, machine)?;
    let (_, acc) = rows::storage(policy, "vector")?;
    let elements = plan.tensors[0].len();
    countable(elements)?;
    let blocks = elements.div_ceil(THREADS).clamp(1, PARTS);
    let result = plan.outputs[0].tensor;
    let parts = plan.tensors.len();
    plan.tensors.push(TensorSpec::new("parts", acc, [blocks], Role::Workspace));
    let launch = |x: usize, y: usize, blocks: usize| {
        let arguments = vec![("x", Argument::Tensor(x)), ("y", Argument::Tensor(y)), ("ACC", Argument::Type(acc))];
        LaunchSpec::new(kernel, arguments, [blocks as u32, 1, 1]).of_file(REDUCTIONS)
    };
    plan.launches = vec![launch(0, parts, blocks), launch(parts, result, 1)];
    Ok(plan)
}

fn softmax_of(
    kernel: &'static str,
    rows_of_block: usize,
    problem: &Problem,
    policy: Policy,
    machine: Machine,
) -> Result<Plan, Unsupported> {
    let (_, acc) = rows::storage(policy, "softmax")?;
    if problem.has("causal") || acc == DType::F64 {
        return Err(Unsupported(format!("this rung has whole rows in 32 bits, and not {problem} in `{policy}`")));
    }
    let mut plan = own(&softmax::SOFTMAX, problem, policy, machine)?;
    countable(plan.tensors[0].len())?;
    // What rows in pieces have between them.
    plan.tensors.truncate(2);
    let grid = rows::grid(plan.tensors[0].shape[0], rows_of_block)?;
    let arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1)), ("ACC", Argument::Type(acc))];
    plan.launches.push(LaunchSpec::new(kernel, arguments, grid).of_file(REDUCTIONS));
    Ok(plan)
}

fn copy(kernel: &'static str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    if problem.variant != "copy sequential" {
        return Err(Unsupported(format!("this rung has `copy sequential`, and not `{}`", problem.variant)));
    }
    let mut plan = own(&bandwidth::BANDWIDTH, problem, policy, machine)?;
    let (elements, bytes) = (plan.tensors[0].len(), plan.tensors[0].dtype.unpacked_bytes());
    countable(elements)?;
    let vector = 16 / bytes;
    let each = if kernel == "vectors" { vector } else { 1 };
    let arguments = vec![("a", Argument::Tensor(0)), ("c", Argument::Tensor(1)), ("VECTOR", int(vector))];
    plan.launches.push(LaunchSpec::new(kernel, arguments, rows::grid(elements, THREADS * each)?).of_file(COPIES));
    Ok(plan)
}
