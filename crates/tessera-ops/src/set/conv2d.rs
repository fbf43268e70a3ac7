//! Two-dimensional convolution: images with channels first (`nchw`) or last (`nhwc`), with stride, padding, dilation, groups and a bias.

use tessera_types::{DType, Policy};

use super::conv2d_backward::CONV2D_BACKWARD;
use super::conv2d_cut::{Cut, Windowed};
use super::conv2d_ladder;
use super::convolution::{Convolution, NUMBERS, Windows};
use crate::draw::Draw;
use crate::operator::{Argument, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::set::rows::{self, int};
use crate::signature::{Calls, Follows, Operand, Signature, Sizes};
use crate::work::{Metric, Work};

pub(crate) static CONV2D: Operator = Operator {
    name: "conv2d",
    about: "two-dimensional convolution with stride, padding, dilation, groups and bias; channels first or last",
    file: "conv2d.py",
    source: include_str!("../../kernels/conv2d.py"),
    precisions: &["fp32", "fp16->fp16", "bf16->bf16"],
    further_precisions: &["fp64", "fp16", "bf16"],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &NUMBERS,
    plan,
    ways: None,
    gradient: Some(&CONV2D_BACKWARD),
    no_specials: Some(
        "zeros beside images are multiplied as pixels are, so that a weight of NaN reaches results that do not meet it",
    ),
    ladder: &conv2d_ladder::LADDER,
};

pub(super) const VARIANTS: [&str; 4] = ["nchw", "nhwc", "nchw bias", "nhwc bias"];

/// Rows and columns of y, and channels of a window.
pub(super) const FOLLOWS: [Follows; 3] = [
    ("cg", |problem| Ok(problem.get("c") / problem.get("groups").max(1))),
    ("p", |problem| Convolution::of(problem).map(|of| of.p() as u64)),
    ("q", |problem| Convolution::of(problem).map(|of| of.q() as u64)),
];

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("nchw"),
    signature: |variant| {
        const FIRST: [Operand; 3] = [Operand("x", "n c h w"), Operand("weight", "o cg r s"), Operand("bias", "o")];
        const LAST: [Operand; 3] = [Operand("x", "n h w c"), Operand("weight", "o r s cg"), Operand("bias", "o")];
        let signature = match variant {
            "nhwc" => Signature::new(&[LAST[0], LAST[1]], &[Operand("y", "n p q o")]),
            "nhwc bias" => Signature::new(&LAST, &[Operand("y", "n p q o")]),
            "nchw bias" => Signature::new(&FIRST, &[Operand("y", "n o p q")]),
            _ => Signature::new(&[FIRST[0], FIRST[1]], &[Operand("y", "n o p q")]),
        };
        signature.scalars(&["stride", "padding", "dilation"]).follows(&FOLLOWS)
    },
    problem: of_sizes,
};

/// The problem of arrays of these sizes: how many groups there are, the weight says.
pub(super) fn of_sizes(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let [c, within] = ["c", "cg"].map(|name| sizes.get(name));
    let groups = if c == within { 1 } else { c / within.max(1) };
    if groups * within != c {
        return Err(Unsupported(format!(
            "`x` has {c} channels, and windows of `weight` {within}: these divide them into groups"
        )));
    }
    let [n, h, w, o, r, s] = ["n", "h", "w", "o", "r", "s"].map(|name| sizes.get(name));
    Ok(Problem::new(&[("n", n), ("c", c), ("h", h), ("w", w), ("o", o), ("r", r), ("s", s), ("groups", groups)], sizes.variant))
}

/// A problem whose images and windows are squares.
fn problem(n: u64, [c, h, o, r, groups]: [u64; 5], variant: &str) -> Problem {
    Problem::new(&[("n", n), ("c", c), ("h", h), ("w", h), ("o", o), ("r", r), ("s", r), ("groups", groups)], variant)
}

/// The layers of ResNet-50 (He et al., 2016), and the windows by channel of MobileNetV2 (Sandler et al., 2018).
fn further_suite() -> Vec<Problem> {
    const LAYERS: [([u64; 5], &str); 14] = [
        ([3, 224, 64, 7, 1], " stride=2 padding=3"),
        ([64, 56, 64, 1, 1], ""),
        ([64, 56, 64, 3, 1], " padding=1"),
        ([64, 56, 256, 1, 1], ""),
        ([256, 56, 128, 1, 1], ""),
        ([128, 56, 128, 3, 1], " stride=2 padding=1"),
        ([128, 28, 128, 3, 1], " padding=1"),
        ([256, 56, 512, 1, 1], " stride=2"),
        ([256, 14, 256, 3, 1], " padding=1"),
        ([1024, 14, 256, 1, 1], ""),
        ([512, 7, 512, 3, 1], " padding=1"),
        ([512, 7, 2048, 1, 1], ""),
        ([144, 56, 144, 3, 144], " padding=1"),
        ([384, 14, 384, 3, 384], " padding=1"),
    ];
    let of = |layout: &str| -> Vec<Problem> {
        LAYERS.iter().map(|(extents, numbers)| problem(128, *extents, &format!("{layout}{numbers}"))).collect()
    };
    [of("nhwc"), of("nchw")].concat()
}

fn quick() -> Vec<(Problem, &'static str)> {
    let cases = [
        problem(2, [64, 14, 64, 3, 1], "nhwc padding=1"),
        problem(2, [32, 14, 48, 3, 1], "nchw bias padding=1"),
        problem(2, [32, 15, 32, 3, 1], "nhwc bias stride=2 padding=1"),
    ];
    cases.into_iter().zip(CONV2D.precisions.iter().copied()).collect()
}

/// Each number by itself and together with others, extents around those of tiles, groups of any width, windows that are no squares.
fn edges() -> Vec<Problem> {
    const CASES: [(u64, [u64; 5], &str); 14] = [
        (1, [1, 1, 1, 1, 1], ""),
        (2, [16, 7, 20, 3, 1], " padding=1"),
        (1, [3, 16, 8, 7, 1], " bias stride=2 padding=3"),
        (1, [70, 5, 130, 1, 1], ""),
        (3, [8, 9, 17, 1, 1], " bias stride=2"),
        (1, [5, 11, 6, 3, 1], " stride=3 padding=2 dilation=2"),
        (2, [12, 8, 18, 3, 3], " bias padding=1"),
        (1, [32, 6, 64, 3, 2], " stride=2 padding=1"),
        (3, [32, 12, 24, 3, 1], " bias stride=2 padding=1"),
        (2, [9, 10, 9, 3, 9], " padding=1"),
        (1, [65, 9, 65, 5, 65], " bias stride=2 padding=2"),
        (1, [4, 7, 8, 3, 4], " dilation=2"),
        (1, [130, 3, 5, 2, 1], " padding=1"),
        (2, [0, 4, 3, 1, 1], " bias"),
    ];
    let mut cases = Vec::new();
    for (n, extents, numbers) in CASES {
        cases.extend(["nchw", "nhwc"].map(|layout| problem(n, extents, &format!("{layout}{numbers}"))));
    }
    let extents = [("n", 1), ("c", 10), ("h", 9), ("w", 33), ("o", 7), ("r", 1), ("s", 5), ("groups", 1)];
    cases.extend(["nchw stride=2 padding=2", "nhwc stride=2 padding=2"].map(|variant| Problem::new(&extents, variant)));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [h, w, r, s] = [draw.extent(40), draw.extent(40), draw.extent(5), draw.extent(5)];
    let (stride, dilation) = (draw.extent(3), draw.extent(2));
    // Windows fit into what is padded.
    let padding = ((r.max(s) - 1) * dilation + 1).saturating_sub(h.min(w)).div_ceil(2) + draw.extent(3) - 1;
    let places = |extent: u64, window: u64| (extent + 2 * padding).saturating_sub((window - 1) * dilation + 1) / stride + 1;
    let terms = 2 * places(h, r) * places(w, s) * r * s;
    let product = (draw.operations() / terms).min(draw.elements() / (h * w).max(places(h, r) * places(w, s)));
    let [n, c, o, groups] = draw.extents(product, [8, 160, 160, 12]);
    let variant = draw.one_of(&VARIANTS);
    let extents = [("n", n), ("c", c * groups), ("h", h), ("w", w), ("o", o * groups), ("r", r), ("s", s), ("groups", groups)];
    let usual = [("stride", stride), ("padding", padding), ("dilation", dilation)];
    let problem = Problem::new(&extents, variant);
    NUMBERS.into_iter().zip(usual).fold(problem, |problem, (own, (_, value))| problem.with_number(own, value as f64))
}

/// Storage, accumulator and result of a policy.
pub(super) fn types(policy: Policy, operator: &str) -> Result<[DType; 3], Unsupported> {
    let (storage, acc) = rows::storage(policy, operator)?;
    if !matches!(storage, DType::F64 | DType::F32 | DType::F16 | DType::BF16) || policy.element() != storage {
        return Err(Unsupported(format!("{operator} takes fp64, fp32, fp16 and bf16, not `{policy}`")));
    }
    Ok([storage, acc, policy.result().unwrap_or(acc)])
}

/// The plan without launches: tensors as callers have them.
pub(super) fn bare(of: Convolution, [storage, acc, result]: [DType; 3]) -> Plan {
    let weight = vec![of.o, of.terms()];
    let mut tensors = vec![
        TensorSpec::new("x", storage, of.shape_of_x(), Role::Input),
        TensorSpec::new("weight", storage, weight, Role::Input),
    ];
    if of.bias {
        tensors.push(TensorSpec::new("bias", storage, [of.o], Role::Input));
    }
    let read_bytes = tensors.iter().map(TensorSpec::allocated_bytes).sum();
    let y = TensorSpec::new("y", result, of.shape_of_y(), Role::Output);
    let (write_bytes, elements) = (y.allocated_bytes(), y.len());
    tensors.push(y);
    let row_len = if of.last { of.o } else { of.q() };
    let by_channel = is_depthwise(&of);
    Plan {
        outputs: vec![OutputRows { tensor: tensors.len() - 1, rows: elements / row_len.max(1), row_len, exact: false }],
        tensors,
        launches: Vec::new(),
        work: Work {
            read_bytes,
            write_bytes,
            flops: 2 * elements as u64 * of.terms() as u64,
            compute: (!by_channel).then_some(storage),
            metric: if by_channel { Metric::Bandwidth } else { Metric::Compute },
            formula: "2 operations a tap, a channel and an element of y; inputs read once, y written once",
        },
        exact_lane: result.bits() >= 32,
        reference: Box::new(Windows { of, result, acc }),
    }
}

/// Taps that a kernel by channel writes out one after the other.
const MOST_TAPS: usize = 64;

/// Each channel of x makes one of y.
pub(super) fn is_depthwise(of: &Convolution) -> bool {
    of.groups > 1 && of.within() == 1 && of.out() == 1 && of.r * of.s <= MOST_TAPS
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let of = Convolution::of(problem)?;
    let types = types(policy, "conv2d")?;
    let plan = bare(of, types);
    if is_depthwise(&of) { depthwise(plan, of, types[1]) } else { implicit(plan, of, types, machine) }
}

/// So many tiles along an axis.
pub(super) fn tiles(extent: usize, tile: usize) -> Result<u32, Unsupported> {
    u32::try_from(extent.div_ceil(tile)).map_err(|_| Unsupported(format!("{extent} needs too many blocks")))
}

/// Blocks along an axis of a grid, of so many of each.
pub(super) fn all_tiles<const N: usize>(counts: [u32; N]) -> Result<u32, Unsupported> {
    let all = counts.iter().try_fold(1u32, |all, &count| all.checked_mul(count)).filter(|&all| all < 1 << 31);
    all.ok_or_else(|| {
        Unsupported(format!("{} tiles along an axis are too many blocks", counts.map(|count| count.to_string()).join(" x ")))
    })
}

/// Elements of y that a block makes where windows go by channel.
const PIXELS: usize = 1024;

fn depthwise(mut plan: Plan, of: Convolution, acc: DType) -> Result<Plan, Unsupported> {
    let y = plan.tensors.len() - 1;
    plan.tensors[1].shape = vec![of.o, of.r * of.s];
    let mut arguments: Vec<_> = ["x", "weight"].into_iter().zip([0, 1].map(Argument::Tensor)).collect();
    // Without a bias, any array that is read stands in its place.
    arguments.extend([("bias", Argument::Tensor(if of.bias { 2 } else { 1 })), ("y", Argument::Tensor(y))]);
    arguments.extend([("R", int(of.r)), ("S", int(of.s)), ("STRIDE", int(of.stride)), ("PAD", int(of.padding))]);
    arguments.extend([("DILATION", int(of.dilation)), ("ACC", Argument::Type(acc)), ("BIAS", Argument::Bool(of.bias))]);
    let columns = of.q().next_power_of_two();
    let (kernel, grid) = if of.last {
        let channels = of.o.next_power_of_two().min(64);
        let columns = columns.min(PIXELS / channels);
        arguments.extend([("TQ", int(columns)), ("TC", int(channels))]);
        ("depthwise_last", [tiles(of.n * of.p(), 1)?, tiles(of.q(), columns)?, tiles(of.o, channels)?])
    } else {
        let columns = columns.min(64);
        let lines = of.p().next_power_of_two().min(PIXELS / columns);
        arguments.extend([("TP", int(lines)), ("TQ", int(columns))]);
        ("depthwise_first", [tiles(of.n * of.o, 1)?, tiles(of.p(), lines)?, tiles(of.q(), columns)?])
    };
    plan.launches.push(LaunchSpec::new(kernel, arguments, grid));
    Ok(plan)
}

/// An operand that a product reads, where it lies in the plan, and how: images, rows, columns, groups, channels.
pub(super) struct Arranged {
    pub(super) tensor: usize,
    /// Phases of rows and of columns.
    pub(super) phases: [usize; 2],
    /// The phase of windows of one pixel.
    pub(super) first: usize,
}

/// Elements of a whole line of 16 bytes.
pub(super) fn line(storage: DType) -> usize {
    (128 / storage.bits() as usize).max(1)
}

/// Gives the product its images, with channels last and neighbours where a window reads neighbours: those of `tensor` themselves, where they lie
/// so, else a copy.
pub(super) fn arrange(plan: &mut Plan, tensor: usize, of: &Convolution) -> Result<Arranged, Unsupported> {
    let storage = plan.tensors[tensor].dtype;
    let within = of.within();
    if of.last && of.stride == 1 && within.is_multiple_of(line(storage)) {
        plan.tensors[tensor].shape = vec![of.n, of.h, of.w, of.groups, within];
        return Ok(Arranged { tensor, phases: [1, 1], first: 0 });
    }
    plan.tensors[tensor].shape = of.shape_of_x();
    // A window of one row or column is of one phase.
    let phases = [of.r, of.s].map(|taps| if taps == 1 { 1 } else { of.stride });
    let first = (of.stride - of.padding % of.stride) % of.stride;
    let [rows, columns] = [of.h, of.w].map(|extent| extent.div_ceil(of.stride));
    let padded = within.next_multiple_of(line(storage));
    let shape = vec![phases[0] * phases[1] * of.n, rows, columns, of.groups, padded];
    let channels = padded.next_power_of_two().min(64);
    let pixels = columns.next_power_of_two().min(2048 / channels);
    let grid = [tiles(shape[0] * rows, 1)?, tiles(columns, pixels)?, tiles(of.groups * padded.div_ceil(channels), 1)?];
    let own = plan.tensors.len();
    let arguments = vec![
        ("x", Argument::Tensor(tensor)),
        ("X", Argument::Tensor(own)),
        ("N", int(of.n)),
        ("STRIDE", int(of.stride)),
        ("PHASES_H", int(phases[0])),
        ("PHASES_W", int(phases[1])),
        ("FIRST", int(first)),
        ("C", int(within)),
        ("LAST", Argument::Bool(of.last)),
        ("TW", int(pixels)),
        ("TC", int(channels)),
    ];
    plan.tensors.push(TensorSpec::new("X", storage, shape, Role::Workspace));
    plan.launches.push(LaunchSpec::new("arrange", arguments, grid));
    Ok(Arranged { tensor: own, phases, first })
}

/// Channels of a window's row, of all its taps, up to which these are arranged beside each other.
const MOST_FOLDED: usize = 64;

/// Whether the taps of a window's row are taken as channels: a pixel's own are no whole vector.
fn is_folded(of: &Convolution, storage: DType) -> bool {
    let few = of.within() < line(storage) && of.s * of.within() <= MOST_FOLDED;
    few && of.last && of.groups == 1 && of.s > 1 && of.c > 0
}

/// Gives the product images of which a pixel has what a row of y's window needs there.
fn arrange_lines(plan: &mut Plan, of: &Convolution) -> Result<Arranged, Unsupported> {
    let storage = plan.tensors[0].dtype;
    plan.tensors[0].shape = of.shape_of_x();
    let phases = if of.r == 1 { 1 } else { of.stride };
    let first = (of.stride - of.padding % of.stride) % of.stride;
    let (rows, columns) = (of.h.div_ceil(of.stride), of.q());
    let padded = (of.s * of.c).next_multiple_of(line(storage));
    let shape = vec![phases * of.n, rows, columns, 1, padded];
    let channels = padded.next_power_of_two();
    let pixels = columns.next_power_of_two().min(2048 / channels);
    let grid = [tiles(shape[0] * rows, 1)?, tiles(columns, pixels)?, 1];
    let own = plan.tensors.len();
    let arguments = vec![
        ("x", Argument::Tensor(0)),
        ("X", Argument::Tensor(own)),
        ("N", int(of.n)),
        ("STRIDE", int(of.stride)),
        ("PHASES", int(phases)),
        ("FIRST", int(first)),
        ("PAD", int(of.padding)),
        ("DILATION", int(of.dilation)),
        ("S", int(of.s)),
        ("C", int(of.c)),
        ("TW", int(pixels)),
        ("TC", int(channels)),
    ];
    plan.tensors.push(TensorSpec::new("X", storage, shape, Role::Workspace));
    plan.launches.push(LaunchSpec::new("arrange_lines", arguments, grid));
    Ok(Arranged { tensor: own, phases: [phases, 1], first })
}

/// The same for the weight: groups, channels of y, taps, channels of x.
pub(super) fn arrange_weight(plan: &mut Plan, tensor: usize, of: &Convolution) -> Result<usize, Unsupported> {
    let storage = plan.tensors[tensor].dtype;
    let (taps, within) = (of.r * of.s, of.within());
    if (of.last || taps == 1) && within.is_multiple_of(line(storage)) {
        plan.tensors[tensor].shape = vec![of.groups, of.out(), taps, within];
        return Ok(tensor);
    }
    plan.tensors[tensor].shape = if of.last { vec![of.o, taps, within] } else { vec![of.o, within, taps] };
    let padded = within.next_multiple_of(line(storage));
    let many = taps.next_power_of_two().min(64);
    let channels = padded.next_power_of_two().min(1024 / many);
    let own = plan.tensors.len();
    let arguments = vec![
        ("weight", Argument::Tensor(tensor)),
        ("W", Argument::Tensor(own)),
        ("LAST", Argument::Bool(of.last)),
        ("TT", int(many)),
        ("TC", int(channels)),
    ];
    plan.tensors.push(TensorSpec::new("W", storage, [of.groups, of.out(), taps, padded], Role::Workspace));
    let grid = [tiles(of.o, 1)?, tiles(taps, many)?, tiles(padded, channels)?];
    plan.launches.push(LaunchSpec::new("arrange_weight", arguments, grid));
    Ok(own)
}

/// The phases of a stride are boxes of x as it lies, of which a round takes so many channels.
fn is_parted(of: &Convolution, depth: usize) -> bool {
    let whole = [of.h, of.w].iter().all(|extent| extent.is_multiple_of(of.stride));
    of.last && of.stride > 1 && whole && of.groups == 1 && of.c > 0 && of.c.is_multiple_of(depth)
}

/// x as its phases lie in it: images, rows, their phases, columns, and the phases of these with all channels.
fn part(plan: &mut Plan, tensor: usize, of: &Convolution) -> Arranged {
    plan.tensors[tensor].shape = vec![of.n, of.h / of.stride, of.stride, of.w / of.stride, of.stride * of.c];
    Arranged { tensor, phases: [1, 1], first: 0 }
}

/// The product of windows, tap by tap.
fn implicit(mut plan: Plan, of: Convolution, types: [DType; 3], machine: Machine) -> Result<Plan, Unsupported> {
    let (y, of) = (plan.tensors.len() - 1, of.flat());
    let folded = is_folded(&of, types[0]);
    // The taps that are left to go through, and what each of them adds up.
    let (over, along) = match folded {
        true => (Convolution { c: of.s * of.c, s: 1, ..of }, [1, 0]),
        false => (of, [of.stride, of.padding]),
    };
    let windows = Windowed {
        pixels: [of.n, of.p(), of.q()],
        out: of.out(),
        within: over.within(),
        taps: over.r * over.s,
        groups: of.groups,
        types: [types[0], types[2]],
    };
    let cut = Cut::of(&windows, machine);
    let parted = !folded && is_parted(&of, cut.depth);
    let x = match (folded, parted) {
        (true, _) => arrange_lines(&mut plan, &of)?,
        (_, true) => part(&mut plan, 0, &of),
        (false, false) => arrange(&mut plan, 0, &of)?,
    };
    let weight = arrange_weight(&mut plan, 1, &over)?;
    if of.bias {
        plan.tensors[2].shape = vec![of.groups, of.out()];
    }
    plan.tensors[y].shape = match of.last {
        true => vec![of.n, of.p(), of.q(), of.groups, of.out()],
        false => vec![of.n, of.groups, of.out(), of.p(), of.q()],
    };
    let [images, lines, columns] = cut.pixels;
    let [tiles_b, tiles_p, tiles_q] = [tiles(of.n, images)?, tiles(of.p(), lines)?, tiles(of.q(), columns)?];
    let tiles_o = tiles(of.out(), cut.channels)?;
    let chunks = over.within().div_ceil(cut.depth);
    let arguments = vec![
        ("x", Argument::Tensor(x.tensor)),
        ("weight", Argument::Tensor(weight)),
        // Without a bias, any array that is read stands in its place.
        ("bias", Argument::Tensor(if of.bias { 2 } else { weight })),
        ("y", Argument::Tensor(y)),
        ("N", int(of.n)),
        ("ROUNDS", int(over.r * over.s * chunks)),
        ("CHUNKS", int(chunks.max(1))),
        ("S", int(over.s)),
        ("STRIDE", int(of.stride)),
        ("PAD", int(of.padding)),
        ("STRIDE_W", int(along[0])),
        ("PAD_W", int(along[1])),
        ("DILATION", int(of.dilation)),
        ("PHASES_H", int(x.phases[0])),
        ("PHASES_W", int(x.phases[1])),
        ("FIRST", int(x.first)),
        ("PARTED", Argument::Bool(parted)),
        ("tiles_p", int(tiles_p as usize)),
        ("tiles_q", int(tiles_q as usize)),
        ("tiles_o", int(tiles_o as usize)),
        ("ACC", Argument::Type(types[1])),
        ("BIAS", Argument::Bool(of.bias)),
        ("LAST", Argument::Bool(of.last)),
        ("TB", int(images)),
        ("TP", int(lines)),
        ("TQ", int(columns)),
        ("TN", int(cut.channels)),
        ("TK", int(cut.depth)),
    ];
    let grid = [all_tiles([tiles_b, tiles_p, tiles_q])?, all_tiles([tiles_o, of.groups as u32])?, 1];
    plan.launches.push(cut.launch("conv2d", arguments, grid));
    Ok(plan)
}
