//! Running sums along the last axis; the gradient runs the other way.

use tessera_types::unit_roundoff;

use crate::element::RunningSum;
use crate::operator::{Argument, LaunchSpec, Machine, Operator, Role, TensorSpec, Unsupported};
use crate::set::rows::{self, Division};
use crate::set::rowwise::{self, Case, Rowwise, int, row};
use crate::signature::{Calls, Operand, Signature};

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];
const VARIANTS: &[&str] = &["", "reverse"];

pub(crate) static CUMSUM: Operator = Operator { gradient: Some(&CUMSUM_BACKWARD), ..OPERATOR };

const OPERATOR: Operator = Operator {
    name: "cumsum",
    about: "running sums along the last axis, from its first element or, reverse, from its last one",
    file: "cumsum.py",
    source: include_str!("../../kernels/cumsum.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || rowwise::suite(&[""]),
    quick: || PRECISIONS.iter().map(|&precision| (rowwise::problem(1024, 512, ""), precision)).collect(),
    edges: || rowwise::edges(VARIANTS),
    draw: |draw| rowwise::draw(draw, VARIANTS),
    calls: Calls {
        variants: VARIANTS,
        default: Some(""),
        signature: |_| Signature::new(&[Operand("x", "..rows n")], &[Operand("y", "..rows n")]),
        problem: |sizes| Ok(rowwise::problem(sizes.get("rows"), sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan: |problem, policy, machine| rowwise::plan(&FORWARD, Case::of("cumsum", problem, policy, machine)?, &[]),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static CUMSUM_BACKWARD: Operator = Operator {
    name: "cumsum_backward",
    about: "gradient of running sums: those of the cotangents from the other end",
    calls: Calls { signature: |_| Signature::new(&[Operand("dy", "..rows n")], &[Operand("dx", "..rows n")]), ..OPERATOR.calls },
    plan: |problem, policy, machine| rowwise::plan(&BACKWARD, Case::of("cumsum_backward", problem, policy, machine)?, &[]),
    ..OPERATOR
};

static FORWARD: Rowwise = Rowwise {
    inputs: &[row("x")],
    outputs: &[row("y")],
    launches: |case, tensors| launches(case, tensors, case.variant == "reverse"),
    reference: |case, inputs, _, want, bound| running(case, &inputs[0], case.variant == "reverse", want, bound),
    flops: 1,
    formula: "x read once, y written once",
};

static BACKWARD: Rowwise = Rowwise {
    inputs: &[row("dy")],
    outputs: &[row("dx")],
    launches: |case, tensors| launches(case, tensors, case.variant != "reverse"),
    reference: |case, inputs, _, want, bound| running(case, &inputs[0], case.variant != "reverse", want, bound),
    flops: 1,
    formula: "dy read once, dx written once",
};

/// Running sums, with the error of adding up as many numbers in any order.
fn running(case: &Case, x: &[f64], back: bool, want: &mut [f64], bound: &mut [f64]) {
    let model = case.stored();
    let u = unit_roundoff(case.acc);
    let (mut sum, mut magnitude) = (RunningSum::default(), 0.0);
    for step in 0..x.len() {
        let at = if back { x.len() - 1 - step } else { step };
        sum.add(x[at]);
        magnitude += x[at].abs();
        want[at] = sum.value();
        bound[at] = model.u_out * want[at].abs() + 4.0 * u * ((step + 1) as f64).sqrt() * magnitude + model.floor;
    }
}

/// Elements of a row that a block takes whole, and those of a piece of a longer one.
const WHOLE: usize = 8192;
const CHUNK: usize = 4096;
/// The most blocks that share a row.
const PARTS: usize = 256;

fn launches(case: &Case, tensors: &mut Vec<TensorSpec>, back: bool) -> Result<Vec<LaunchSpec>, Unsupported> {
    let [x, y] = [("x", Argument::Tensor(0)), ("y", Argument::Tensor(1))];
    let constants = [("BACK", Argument::Bool(back)), case.acc_argument()];
    let scale = case.acc.bits() as usize / 32;
    let multiprocessors = match case.machine {
        Machine::Gpu(arch) if case.n * scale > WHOLE => arch.multiprocessors() as usize,
        Machine::Gpu(_) | Machine::Cpu => {
            let division = Division::whole(case.n, case.storage, case.machine);
            let mut arguments = vec![x, y];
            arguments.extend(constants);
            // On a GPU sums go over levels of threads' vectors, lanes and warps, which are powers of two.
            let width = if case.machine == Machine::Cpu { case.n } else { case.n.next_power_of_two() };
            arguments.push(int("WIDTH", width));
            arguments.extend(division.rows().map(|rows| int("ROWS", rows)));
            return Ok(vec![LaunchSpec::new("cumsum_rows", arguments, division.grid(case.rows)?)]);
        }
    };
    let pieces = case.n.div_ceil(CHUNK / scale);
    // A row in parts is read twice.
    let wanted = if case.rows >= multiprocessors { 1 } else { (2 * multiprocessors).div_ceil(case.rows).min(PARTS) };
    let tiles = pieces.div_ceil(wanted.min(pieces));
    let parts = pieces.div_ceil(tiles);
    tensors.push(TensorSpec::new("sums", case.acc, [case.rows, parts], Role::Workspace));
    let sums = rows::arrays(tensors, &["sums"])[0];
    let sizes = [int("CHUNK", CHUNK / scale), int("TILES", tiles)];
    let [down, ..] = rows::grid(case.rows, 1)?;
    let grid = [down, parts as u32, 1];
    let mut launches = Vec::new();
    if parts > 1 {
        let mut arguments = vec![x, sums, case.acc_argument(), int("N", case.n)];
        arguments.extend(sizes);
        launches.push(LaunchSpec::new("cumsum_sums", arguments, grid));
    }
    let mut arguments = vec![x, sums, y, int("PARTS", parts)];
    arguments.extend(constants);
    arguments.push(int("N", case.n));
    arguments.extend(sizes);
    launches.push(LaunchSpec::new("cumsum_parts", arguments, grid));
    Ok(launches)
}
