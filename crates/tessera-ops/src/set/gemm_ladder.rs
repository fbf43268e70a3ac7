//! The ladder of `gemm`: the same product by simpler kernels, whose file says what each adds to the one before it.

use tessera_types::{DType, Policy, Storage};

use super::gemm::{blocks, made};
use crate::operator::{Argument, KernelFile, LaunchSpec, Machine, Plan, Rung, TensorSpec, Unsupported};
use crate::problem::Problem;

const FILE: KernelFile = KernelFile { name: "gemm_ladder.py", text: include_str!("../../kernels/gemm_ladder.py") };

/// From the simplest on; above the last one stands the operator's own kernel.
pub(super) static LADDER: [Rung; 4] = [
    Rung {
        name: "naive",
        about: "a thread an element of C, which reads all it needs from memory",
        plan: |problem, policy, machine| rung("naive", [8, 32], problem, policy, machine),
    },
    Rung {
        name: "shared_tiles",
        about: "tiles in shared memory, 4 x 4 sums a thread; all threads wait for each round's loads",
        plan: |problem, policy, machine| rung("shared_tiles", [SIDE; 2], problem, policy, machine),
    },
    Rung {
        name: "double_buffer",
        about: "the next round's loads run while a round is multiplied, by threads one by one",
        plan: |problem, policy, machine| rung("double_buffer", [SIDE; 2], problem, policy, machine),
    },
    Rung {
        name: "tensor_cores",
        about: "fragments by mma.sync, of 16-bit floats; registers and threads in all copies",
        plan: |problem, policy, machine| match policy.element() {
            DType::F16 | DType::BF16 => rung("tensor_cores", [SIDE; 2], problem, policy, machine),
            _ => Err(Unsupported(format!("this rung multiplies fragments of 16-bit floats, not `{policy}`"))),
        },
    },
];

/// Rows and columns of C that a block makes, as the file says.
const SIDE: i64 = 64;

/// The operator's plan with a rung's kernel. Its tensors always have the batch in front.
fn rung(
    kernel: &'static str,
    [rows, columns]: [i64; 2],
    problem: &Problem,
    policy: Policy,
    machine: Machine,
) -> Result<Plan, Unsupported> {
    let taken = matches!(policy.storage(), Storage::Plain(DType::F64 | DType::F32 | DType::F16 | DType::BF16));
    if !taken || policy.parts().is_some() || policy.storage() != Storage::Plain(policy.element()) {
        return Err(Unsupported(format!("the ladder of gemm has `fp64`, `fp32`, `fp16` and `bf16`, not `{policy}`")));
    }
    let mut plan = made(problem, policy, machine, None)?;
    let own = plan.launches.pop().expect("a product has a launch").arguments;
    // Copies of the factors are the operator's own business.
    plan.tensors.truncate(3);
    for TensorSpec { shape, .. } in plan.tensors.iter_mut().filter(|tensor| tensor.shape.len() == 2) {
        shape.insert(0, 1);
    }
    let transposed = |letter: usize| problem.kind().as_bytes().get(letter) == Some(&b't');
    let mut arguments: Vec<_> = ["A", "B", "C"].into_iter().zip((0..3).map(Argument::Tensor)).collect();
    arguments.extend(own.into_iter().filter(|(name, _)| matches!(*name, "alpha" | "beta" | "K" | "ACC")));
    arguments.extend([("TRANSPOSE_A", 0), ("TRANSPOSE_B", 1)].map(|(name, letter)| (name, Argument::Bool(transposed(letter)))));
    let [m, n] = ["m", "n"].map(|name| problem.get(name));
    let grid = [blocks(n, columns)?, blocks(m, rows)?, blocks(problem.get("batch"), 1)?];
    plan.launches = vec![LaunchSpec::new(kernel, arguments, grid).of_file(FILE)];
    Ok(plan)
}
