//! The gradient of `conv2d` by its images, its weight and its bias.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy};

use super::conv2d::{self, CONV2D, FOLLOWS, VARIANTS, all_tiles, arrange, arrange_weight, tiles, types};
use super::conv2d_cut::{Cut, Windowed, lines};
use super::convolution::{Convolution, NUMBERS};
use crate::element::storable;
use crate::operator::{
    Argument, Expected, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec,
    Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::int;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work};

pub(crate) static CONV2D_BACKWARD: Operator = Operator {
    name: "conv2d_backward",
    about: "the gradient of conv2d: of its images, its weight and its bias",
    file: "conv2d_backward.py",
    source: include_str!("../../kernels/conv2d_backward.py"),
    precisions: &["fp32", "fp16->fp16", "bf16->bf16"],
    further_precisions: &["fp64", "fp16", "bf16"],
    suite: Vec::new,
    further_suite: || (CONV2D.further_suite)(),
    quick: || (CONV2D.quick)(),
    edges: || (CONV2D.edges)(),
    draw: |draw| (CONV2D.draw)(draw),
    calls: CALLS,
    numbers: &NUMBERS,
    plan,
    ways: None,
    gradient: None,
    no_specials: Some(
        "zeros beside images are multiplied as pixels are, so that a weight of NaN reaches results that do not meet it",
    ),
    ladder: &[],
};

/// The file of what arranges operands.
const FORWARD: KernelFile = KernelFile { name: "conv2d.py", text: include_str!("../../kernels/conv2d.py") };

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("nchw"),
    signature: |variant| {
        const FIRST: [Operand; 3] = [Operand("x", "n c h w"), Operand("weight", "o cg r s"), Operand("dy", "n o p q")];
        const LAST: [Operand; 3] = [Operand("x", "n h w c"), Operand("weight", "o r s cg"), Operand("dy", "n p q o")];
        const OF_FIRST: [Operand; 3] = [Operand("dx", "n c h w"), Operand("dweight", "o cg r s"), Operand("dbias", "o")];
        const OF_LAST: [Operand; 3] = [Operand("dx", "n h w c"), Operand("dweight", "o r s cg"), Operand("dbias", "o")];
        let signature = match variant {
            "nhwc" => Signature::new(&LAST, &[OF_LAST[0], OF_LAST[1]]),
            "nhwc bias" => Signature::new(&LAST, &OF_LAST),
            "nchw bias" => Signature::new(&FIRST, &OF_FIRST),
            _ => Signature::new(&FIRST, &[OF_FIRST[0], OF_FIRST[1]]),
        };
        signature.scalars(&["stride", "padding", "dilation"]).follows(&FOLLOWS)
    },
    problem: conv2d::of_sizes,
};

/// Places of the plan's first tensors.
const DY: usize = 2;
const DX: usize = 3;
const DWEIGHT: usize = 4;
const DBIAS: usize = 5;

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let of = Convolution::of(problem)?;
    let own = types(policy, "conv2d_backward")?;
    let [storage, acc, result] = own;
    let input = |name, shape: Vec<usize>| TensorSpec::new(name, storage, shape, Role::Input);
    let output = |name, shape: Vec<usize>| TensorSpec::new(name, result, shape, Role::Output);
    let weight = vec![of.o, of.terms()];
    let mut tensors = vec![input("x", of.shape_of_x()), input("weight", weight.clone()), input("dy", of.shape_of_y())];
    tensors.extend([output("dx", of.shape_of_x()), output("dweight", weight)]);
    tensors.extend(of.bias.then(|| output("dbias", vec![of.o])));
    let bytes = |tensors: &[TensorSpec]| tensors.iter().map(TensorSpec::allocated_bytes).sum();
    let rows = |tensor: usize, row_len: usize| {
        let rows = tensors[tensor].len() / row_len.max(1);
        OutputRows { tensor, rows, row_len, exact: false }
    };
    let mut outputs = vec![rows(DX, if of.last { of.c } else { of.w })];
    outputs.push(rows(DWEIGHT, if of.last { of.within() } else { of.r * of.s }));
    outputs.extend(of.bias.then(|| rows(DBIAS, of.o)));
    let mut plan = Plan {
        outputs,
        launches: Vec::new(),
        work: Work {
            read_bytes: bytes(&tensors[..DX]),
            write_bytes: bytes(&tensors[DX..]),
            flops: 4 * tensors[DY].len() as u64 * of.terms() as u64,
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "4 operations a tap, a channel and an element of dy; inputs read once, gradients written once",
        },
        exact_lane: result.bits() >= 32,
        reference: Box::new(Gradient { of, result, acc }),
        tensors,
    };
    let of = of.flat();
    let dy = arranged_dy(&mut plan, &of)?;
    images(&mut plan, &of, dy, own, machine)?;
    weights(&mut plan, &of, dy, own, machine)?;
    if of.bias {
        bias(&mut plan, &of, dy, acc, machine)?;
    }
    // What arranges operands stands in the forward file.
    for launch in plan.launches.iter_mut().filter(|launch| launch.kernel.starts_with("arrange")) {
        launch.file = Some(FORWARD);
    }
    Ok(plan)
}

/// dy with channels last, by groups.
fn arranged_dy(plan: &mut Plan, of: &Convolution) -> Result<usize, Unsupported> {
    let own = Convolution { c: of.o, o: of.c, h: of.p(), w: of.q(), r: 1, s: 1, stride: 1, padding: 0, ..*of };
    Ok(arrange(plan, DY, &own)?.tensor)
}

/// Taps of one phase along an axis, of so many.
struct Taps {
    first: usize,
    count: usize,
    /// Where the first one is in dy, for the phase's first pixel.
    base: i64,
}

impl Taps {
    /// Pixels `phase + stride i` are reached by taps `t` where `phase + padding - dilation t` is a multiple of the stride.
    fn of(of: &Convolution, phase: usize, taps: usize, step: usize) -> Taps {
        let at = |tap: usize| (phase + of.padding) as i64 - (tap * of.dilation) as i64;
        let stride = of.stride as i64;
        match (0..taps.min(step)).find(|&tap| at(tap) % stride == 0) {
            Some(first) => Taps { first, count: (taps - first).div_ceil(step), base: at(first) / stride },
            None => Taps { first: 0, count: 0, base: 0 },
        }
    }
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// dx: a launch for each of its phases, and one that puts these in order where they are no images yet.
fn images(
    plan: &mut Plan,
    of: &Convolution,
    dy: usize,
    [storage, acc, result]: [DType; 3],
    machine: Machine,
) -> Result<(), Unsupported> {
    let weight = arrange_weight(plan, 1, of)?;
    let [rows, columns] = [of.h, of.w].map(|extent| extent.div_ceil(of.stride));
    let phases = of.stride * of.stride;
    let grouped = vec![of.n, of.h, of.w, of.groups, of.within()];
    let is_image = of.last && of.stride == 1;
    let to = if is_image { DX } else { plan.tensors.len() };
    if !is_image {
        let shape = vec![phases * of.n, rows, columns, of.groups, of.within()];
        plan.tensors.push(TensorSpec::new("DX", result, shape, Role::Workspace));
    }
    plan.tensors[DX].shape = if of.last { grouped } else { vec![of.n, of.groups, of.within(), of.h, of.w] };
    let windows = Windowed {
        pixels: [of.n, rows, columns],
        out: of.within(),
        within: of.out(),
        taps: (of.r * of.s).div_ceil(phases),
        groups: of.groups,
        types: [storage, result],
    };
    let cut = Cut::of(&windows, machine);
    let [pixels_b, pixels_p, pixels_q] = cut.pixels;
    let [tiles_b, tiles_p, tiles_q] = [tiles(of.n, pixels_b)?, tiles(rows, pixels_p)?, tiles(columns, pixels_q)?];
    let tiles_c = tiles(of.within(), cut.channels)?;
    let chunks = of.out().div_ceil(cut.depth);
    let common = greatest_divisor(of.dilation, of.stride);
    let step = of.stride / common;
    for phase in 0..phases {
        let [down, across] =
            [(phase / of.stride, of.r), (phase % of.stride, of.s)].map(|(phase, taps)| Taps::of(of, phase, taps, step));
        let arguments = vec![
            ("dy", Argument::Tensor(dy)),
            ("weight", Argument::Tensor(weight)),
            ("dx", Argument::Tensor(to)),
            ("N", int(of.n)),
            ("ROUNDS", int(down.count * across.count * chunks)),
            ("CHUNKS", int(chunks.max(1))),
            ("S", int(of.s)),
            ("ROW", int(down.first)),
            ("COLUMN", int(across.first)),
            ("STEP", int(step)),
            ("COLUMNS", int(across.count.max(1))),
            ("BASE_H", Argument::Int(down.base)),
            ("BASE_W", Argument::Int(across.base)),
            ("MOVE", int(of.dilation / common)),
            ("PHASE", int(phase)),
            ("tiles_p", int(tiles_p as usize)),
            ("tiles_q", int(tiles_q as usize)),
            ("tiles_c", int(tiles_c as usize)),
            ("ACC", Argument::Type(acc)),
            ("TB", int(pixels_b)),
            ("TP", int(pixels_p)),
            ("TQ", int(pixels_q)),
            ("TN", int(cut.channels)),
            ("TK", int(cut.depth)),
        ];
        let grid = [all_tiles([tiles_b, tiles_p, tiles_q])?, all_tiles([tiles_c, of.groups as u32])?, 1];
        plan.launches.push(cut.launch("images", arguments, grid));
    }
    if !is_image {
        let channels = of.within().next_power_of_two().min(64);
        let many = of.w.next_power_of_two().min(1024 / channels);
        let arguments = vec![
            ("X", Argument::Tensor(to)),
            ("dx", Argument::Tensor(DX)),
            ("N", int(of.n)),
            ("STRIDE", int(of.stride)),
            ("LAST", Argument::Bool(of.last)),
            ("H", int(of.h.max(1))),
            ("C", int(of.within())),
            ("TW", int(many)),
            ("TC", int(channels)),
        ];
        let grid = [tiles(of.n * of.h, 1)?, tiles(of.w, many)?, tiles(of.groups * of.within().div_ceil(channels), 1)?];
        plan.launches.push(LaunchSpec::new("restore", arguments, grid));
    }
    Ok(())
}

/// Blocks of a multiprocessor among which sums over pixels are shared out, and boxes or pieces that each of these has at least.
const SHARES: usize = 2;
const LEAST_ROUNDS: usize = 8;

/// dweight: parts of its sums, and what these add up to.
fn weights(
    plan: &mut Plan,
    of: &Convolution,
    dy: usize,
    [storage, acc, _]: [DType; 3],
    machine: Machine,
) -> Result<(), Unsupported> {
    let x = arrange(plan, 0, of)?;
    let taps = of.r * of.s;
    // Pixels of a round; rows and columns of a tile of the weight.
    let (depth, most) = match storage.bits() {
        64 => (16, 64),
        32 => (16, 64),
        _ => (64, 128),
    };
    let pixels = lines([of.n, of.p(), of.q()], depth);
    // Tensor cores of a warpgroup take no fewer than 64 rows.
    let least = if storage.bits() == 16 { 64 } else { 16 };
    let rows = of.out().next_power_of_two().clamp(least, most);
    let columns = of.within().next_power_of_two().clamp(16, most);
    let [tiles_b, tiles_p, tiles_q] = [tiles(of.n, pixels[0])?, tiles(of.p(), pixels[1])?, tiles(of.q(), pixels[2])?];
    let [tiles_o, tiles_c] = [tiles(of.out(), rows)?, tiles(of.within(), columns)?];
    let blocks = (tiles_o * tiles_c) as usize * of.groups * taps;
    let boxes = (tiles_b * tiles_p * tiles_q) as usize;
    let wanted = match machine {
        Machine::Gpu(arch) => (SHARES * arch.multiprocessors() as usize).div_ceil(blocks.max(1)),
        Machine::Cpu => 1,
    };
    let splits = wanted.min(boxes.div_ceil(LEAST_ROUNDS)).max(1);
    let rounds = boxes.div_ceil(splits);
    let parts = plan.tensors.len();
    plan.tensors.push(TensorSpec::new("parts", acc, [splits, of.groups, of.out(), taps, of.within()], Role::Workspace));
    let arguments = vec![
        ("x", Argument::Tensor(x.tensor)),
        ("dy", Argument::Tensor(dy)),
        ("parts", Argument::Tensor(parts)),
        ("N", int(of.n)),
        ("ROUNDS", int(rounds)),
        ("S", int(of.s)),
        ("STRIDE", int(of.stride)),
        ("PAD", int(of.padding)),
        ("DILATION", int(of.dilation)),
        ("PHASES_H", int(x.phases[0])),
        ("PHASES_W", int(x.phases[1])),
        ("tiles_p", int(tiles_p as usize)),
        ("tiles_q", int(tiles_q as usize)),
        ("tiles_o", int(tiles_o as usize)),
        ("tiles_c", int(tiles_c as usize)),
        ("ACC", Argument::Type(acc)),
        ("TB", int(pixels[0])),
        ("TP", int(pixels[1])),
        ("TQ", int(pixels[2])),
        ("TM", int(rows)),
        ("TN", int(columns)),
    ];
    let grid = [tiles(splits, 1)?, all_tiles([tiles_o, tiles_c, of.groups as u32])?, tiles(taps, 1)?];
    plan.launches.push(LaunchSpec::new("weights", arguments, grid));
    plan.tensors[DWEIGHT].shape = match of.last {
        true => vec![of.groups, of.out(), taps, of.within()],
        false => vec![of.groups, of.out(), of.within(), taps],
    };
    let many = taps.next_power_of_two().min(64);
    let channels = of.within().next_power_of_two().min(1024 / many);
    let arguments = vec![
        ("parts", Argument::Tensor(parts)),
        ("dweight", Argument::Tensor(DWEIGHT)),
        ("LAST", Argument::Bool(of.last)),
        ("OUT", int(of.out().max(1))),
        ("ACC", Argument::Type(acc)),
        ("TT", int(many)),
        ("TC", int(channels)),
    ];
    let grid = [tiles(of.o, 1)?, tiles(taps, many)?, tiles(of.within(), channels)?];
    plan.launches.push(LaunchSpec::new("add_parts", arguments, grid));
    Ok(())
}

/// dbias: sums over parts of all lines of dy, and over all of these.
fn bias(plan: &mut Plan, of: &Convolution, dy: usize, acc: DType, machine: Machine) -> Result<(), Unsupported> {
    let channels = of.out().next_power_of_two().min(64);
    let columns = of.q().next_power_of_two().min(1024 / channels);
    let [tiles_q, tiles_o] = [tiles(of.q(), columns)?, tiles(of.out(), channels)?];
    let groups = all_tiles([tiles_o, of.groups as u32])?;
    let pieces = of.n * of.p() * tiles_q as usize;
    let splits = match machine {
        Machine::Gpu(arch) => {
            let wanted = (SHARES * arch.multiprocessors() as usize).div_ceil(groups.max(1) as usize);
            wanted.min(pieces.div_ceil(LEAST_ROUNDS))
        }
        Machine::Cpu => of.n,
    };
    let splits = splits.max(1);
    let sums = plan.tensors.len();
    plan.tensors.push(TensorSpec::new("sums", acc, [splits, of.groups, of.out()], Role::Workspace));
    plan.tensors[DBIAS].shape = vec![of.groups, of.out()];
    let own = |tensors: [(&'static str, usize); 2]| -> Vec<(&'static str, Argument)> {
        let numbers = [("tiles_o", int(tiles_o as usize)), ("ACC", Argument::Type(acc)), ("TC", int(channels))];
        tensors.map(|(name, at)| (name, Argument::Tensor(at))).into_iter().chain(numbers).collect()
    };
    let mut arguments = own([("dy", dy), ("sums", sums)]);
    arguments.extend([("ROUNDS", int(pieces.div_ceil(splits))), ("P", int(of.p()))]);
    arguments.extend([("tiles_q", int(tiles_q as usize)), ("TQ", int(columns))]);
    plan.launches.push(LaunchSpec::new("bias_of_part", arguments, [tiles(splits, 1)?, groups, 1]));
    plan.launches.push(LaunchSpec::new("bias_of_all", own([("sums", sums), ("dbias", DBIAS)]), [groups, 1, 1]));
    Ok(())
}

/// The gradients from x, the weight and dy, which are the plan's first tensors.
struct Gradient {
    of: Convolution,
    result: DType,
    acc: DType,
}

/// All of the inputs.
struct Values {
    x: Vec<f64>,
    weight: Vec<f64>,
    dy: Vec<f64>,
}

impl Gradient {
    fn place(&self, [n, c, h, w]: [usize; 4], [channels, rows, columns]: [usize; 3]) -> usize {
        match self.of.last {
            true => ((n * rows + h) * columns + w) * channels + c,
            false => ((n * channels + c) * rows + h) * columns + w,
        }
    }

    fn x(&self, values: &Values, at: [usize; 4]) -> f64 {
        values.x[self.place(at, [self.of.c, self.of.h, self.of.w])]
    }

    fn dy(&self, values: &Values, at: [usize; 4]) -> f64 {
        values.dy[self.place(at, [self.of.o, self.of.p(), self.of.q()])]
    }

    /// The pixel of y whose window reads one of x by a tap.
    fn above(&self, at: usize, tap: usize, extent: usize) -> Option<usize> {
        let moved = (at + self.of.padding).checked_sub(tap * self.of.dilation)?;
        (moved.is_multiple_of(self.of.stride) && moved / self.of.stride < extent).then_some(moved / self.of.stride)
    }

    /// The terms of an element of dx.
    fn of_image(&self, values: &Values, [n, c, h, w]: [usize; 4], add: &mut dyn FnMut(f64)) {
        let of = &self.of;
        let (group, within) = (c / of.within(), c % of.within());
        for tap in 0..of.r * of.s {
            let (Some(p), Some(q)) = (self.above(h, tap / of.s, of.p()), self.above(w, tap % of.s, of.q())) else { continue };
            for o in group * of.out()..(group + 1) * of.out() {
                add(self.dy(values, [n, o, p, q]) * values.weight[of.place_in_weight(o, tap, within)]);
            }
        }
    }

    /// The terms of an element of dweight.
    fn of_weight(&self, values: &Values, [o, tap, c]: [usize; 3], add: &mut dyn FnMut(f64)) {
        let of = &self.of;
        let channel = o / of.out() * of.within() + c;
        for n in 0..of.n {
            for p in 0..of.p() {
                let Some(h) = of.under(p, tap / of.s, of.h) else { continue };
                for q in 0..of.q() {
                    let Some(w) = of.under(q, tap % of.s, of.w) else { continue };
                    add(self.dy(values, [n, o, p, q]) * self.x(values, [n, channel, h, w]));
                }
            }
        }
    }

    /// The terms of an element of an output.
    fn terms(&self, values: &Values, output: usize, row: usize, place: usize, add: &mut dyn FnMut(f64)) {
        let of = &self.of;
        let (taps, within) = (of.r * of.s, of.within());
        match (output, of.last) {
            (0, true) => self.of_image(values, [row / of.w / of.h, place, row / of.w % of.h, row % of.w], add),
            (0, false) => self.of_image(values, [row / of.h / of.c, row / of.h % of.c, row % of.h, place], add),
            (1, true) => self.of_weight(values, [row / taps, row % taps, place], add),
            (1, false) => self.of_weight(values, [row / within, place, row % within], add),
            _ => {
                let pixels = (0..of.n).flat_map(|n| (0..of.p()).flat_map(move |p| (0..of.q()).map(move |q| [n, p, q])));
                pixels.for_each(|[n, p, q]| add(self.dy(values, [n, place, p, q])));
            }
        }
    }

    fn answer(&self, inputs: &dyn Inputs, output: usize, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let of = &self.of;
        let all = |tensor: usize, count: usize| {
            let mut values = vec![0.0; count];
            inputs.numbers(tensor, 0, &mut values);
            values
        };
        let values = Values {
            x: all(0, of.n * of.c * of.h * of.w),
            weight: all(1, of.o * of.terms()),
            dy: all(DY, of.n * of.o * of.p() * of.q()),
        };
        let model = ErrorModel::nearest(self.result, self.acc);
        let row_len = want.len() / rows.len().max(1);
        want.par_chunks_mut(row_len.max(1)).zip(bound.par_chunks_mut(row_len.max(1))).zip(rows).for_each(
            |((want, bound), &row)| {
                for (place, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
                    let (mut sum, mut magnitude, mut count) = (0.0, 0.0, 0);
                    self.terms(&values, output, row, place, &mut |term| {
                        sum += term;
                        magnitude += term.abs();
                        count += 1;
                    });
                    *want = storable(self.result, sum);
                    *bound = model.contraction(sum, magnitude, count);
                }
            },
        );
    }
}

impl Reference for Gradient {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, output, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, output, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
