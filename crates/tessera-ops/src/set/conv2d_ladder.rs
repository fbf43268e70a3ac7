//! The ladder of `conv2d`: the same windows by simpler kernels, and by minimal filtering.

use tessera_types::Policy;

use super::conv2d::{bare, tiles, types};
use super::conv2d_winograd;
use super::convolution::Convolution;
use super::rows::int;
use crate::operator::{Argument, KernelFile, LaunchSpec, Machine, Plan, Role, Rung, TensorSpec, Unsupported};
use crate::problem::Problem;

const FILE: KernelFile = KernelFile { name: "conv2d_ladder.py", text: include_str!("../../kernels/conv2d_ladder.py") };

/// From the simplest on. The operator's own kernel stands above `im2col`; minimal filtering makes fewer products than all of these, and rounds more.
pub(super) static LADDER: [Rung; 4] = [
    Rung { name: "naive", about: "a thread an element of y, which reads its window from memory", plan: naive },
    Rung {
        name: "im2col",
        about: "a matrix of all windows in memory, and the product of that with the weight; each pixel is written once a tap",
        plan: im2col,
    },
    Rung {
        name: "winograd_2",
        about: "minimal filtering F(2, 3) of windows of 3 x 3: 4 products an element of y for 9, between transforms of x, the weight and y",
        plan: |problem, policy, machine| conv2d_winograd::plan(&conv2d_winograd::F2, problem, policy, machine),
    },
    Rung {
        name: "winograd_4",
        about: "the same with F(4, 3): 2.25 products an element of y, and transforms that lose more digits; fp16 may overflow from x = 655 on",
        plan: |problem, policy, machine| conv2d_winograd::plan(&conv2d_winograd::F4, problem, policy, machine),
    },
];

/// Threads of a block of `naive`, as its file says.
const THREADS: usize = 256;

/// Extents and numbers that both kernels need.
fn numbers(of: &Convolution) -> Vec<(&'static str, Argument)> {
    let numbers = [
        ("R", of.r),
        ("S", of.s),
        ("STRIDE", of.stride),
        ("PAD", of.padding),
        ("DILATION", of.dilation),
        ("WITHIN", of.within()),
    ];
    numbers.into_iter().map(|(name, value)| (name, int(value))).chain([("LAST", Argument::Bool(of.last))]).collect()
}

fn naive(problem: &Problem, policy: Policy, _: Machine) -> Result<Plan, Unsupported> {
    let of = Convolution::of(problem)?;
    let types = types(policy, "conv2d")?;
    let mut plan = bare(of, types);
    let y = plan.tensors.len() - 1;
    plan.tensors[1].shape = match of.last {
        true => vec![of.o, of.r * of.s, of.within()],
        false => vec![of.o, of.within(), of.r * of.s],
    };
    let mut arguments = vec![("x", Argument::Tensor(0)), ("weight", Argument::Tensor(1)), ("y", Argument::Tensor(y))];
    let kernel = if of.bias { "naive_biased" } else { "naive" };
    arguments.extend(of.bias.then_some(("bias", Argument::Tensor(2))));
    arguments.extend(numbers(&of));
    arguments.extend([("OUT", int(of.out())), ("ACC", Argument::Type(types[1]))]);
    let grid = [tiles(plan.tensors[y].len(), THREADS)?, 1, 1];
    plan.launches.push(LaunchSpec::new(kernel, arguments, grid).of_file(FILE));
    Ok(plan)
}

/// Rows and columns of the product's tile, and of a round, by the bits of an element.
fn tile(bits: u32) -> [usize; 3] {
    if bits == 16 { [128, 128, 64] } else { [64, 64, 16] }
}

fn im2col(problem: &Problem, policy: Policy, _: Machine) -> Result<Plan, Unsupported> {
    let of = Convolution::of(problem)?;
    let [storage, acc, result] = types(policy, "conv2d")?;
    if of.groups > 1 || !of.last || of.bias || of.c == 0 {
        return Err(Unsupported("this rung has channels last, one group and no bias: what is left is one product".to_string()));
    }
    let mut plan = bare(of, [storage, acc, result]);
    let pixels = of.n * of.p() * of.q();
    plan.tensors[1].shape = vec![of.o, of.terms()];
    plan.tensors[2].shape = vec![pixels, of.o];
    plan.tensors.push(TensorSpec::new("windows", storage, [pixels, of.terms()], Role::Workspace));
    let channels = of.c.next_power_of_two().min(64);
    let many = pixels.next_power_of_two().min(1024 / channels);
    let mut arguments = vec![("x", Argument::Tensor(0)), ("windows", Argument::Tensor(3))];
    arguments.extend(numbers(&of).into_iter().filter(|(name, _)| !matches!(*name, "R" | "WITHIN" | "LAST")));
    arguments.extend([("P", int(of.p())), ("Q", int(of.q())), ("TM", int(many)), ("TC", int(channels))]);
    let grid = [tiles(pixels, many)?, tiles(of.r * of.s, 1)?, tiles(of.c, channels)?];
    plan.launches.push(LaunchSpec::new("im2col", arguments, grid).of_file(FILE));
    let [rows, columns, depth] = tile(storage.bits());
    let mut arguments = vec![("windows", Argument::Tensor(3)), ("weight", Argument::Tensor(1)), ("y", Argument::Tensor(2))];
    arguments.push(("ACC", Argument::Type(acc)));
    arguments.extend([("TM", int(rows)), ("TN", int(columns)), ("TK", int(depth)), ("K", int(of.terms()))]);
    let grid = [tiles(pixels, rows)?, tiles(of.o, columns)?, 1];
    plan.launches.push(LaunchSpec::new("product", arguments, grid).of_file(FILE));
    Ok(plan)
}
