//! Norms of `x[batch, channels, pixels]`: over groups of neighbouring channels, and over all images of a channel; with their gradients.
//!
//! | elements that are normalised together | are |
//! |---|---|
//! | a group of an image | `channels / groups` rows of `pixels`, one behind the other |
//! | a channel | one row of `pixels` of each image |

use tessera_types::{DType, Policy};

use crate::draw::Draw;
use crate::operator::{Argument, Fill, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::set::channel_reference::{Layout, Normalised, What};
use crate::set::norm;
use crate::set::norm_backward;
use crate::set::rows;
use crate::set::rowwise::int;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];
const X: Operand = Operand("x", "batch channels pixels");
const Y: Operand = Operand("y", "batch channels pixels");
const DX: Operand = Operand("dx", "batch channels pixels");
const DY: Operand = Operand("dy", "batch channels pixels");

/// The groups of a call that names no other number, as in the networks that brought group norm up.
const NUMBERS: &[(&str, f64)] = &[("groups", 32.0)];

const OPERATOR: Operator = Operator {
    name: "group_norm",
    about: "norm over groups of neighbouring channels, with weight and bias",
    file: "channel_norm.py",
    source: include_str!("../../kernels/channel_norm.py"),
    precisions: PRECISIONS,
    further_precisions: &["fp64"],
    further_suite: || {
        let sizes = [(8, 320, 4096), (8, 640, 1024), (8, 1280, 256), (16, 512, 4096), (64, 256, 196)];
        sizes.iter().map(|&(batch, channels, pixels)| problem(batch, channels, pixels, "")).collect()
    },
    suite: Vec::new,
    quick: || PRECISIONS.iter().map(|&precision| (problem(2, 64, 256, ""), precision)).collect(),
    edges: || {
        let sizes = [(1, 4, 1, 2), (3, 6, 31, 3), (2, 12, 100, 4), (2, 10, 1023, 1), (1, 8, 4100, 2), (2, 5, 64, 5)];
        let mut cases: Vec<Problem> = sizes
            .iter()
            .map(|&(batch, channels, pixels, groups)| problem(batch, channels, pixels, &format!("groups={groups}")))
            .collect();
        cases.push(problem(2, 64, 49, ""));
        cases
    },
    draw: |draw| {
        let [batch, each, pixels, groups] = draw.extents(draw.elements(), [8, 32, 8192, 32]);
        problem(batch, each * groups, pixels, "").with_number(NUMBERS[0], groups as f64)
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            Signature::new(&[X, Operand("weight", "channels"), Operand("bias", "channels")], &[Y]).scalars(&["groups", "eps"])
        },
        problem: |sizes| Ok(problem(sizes.get("batch"), sizes.get("channels"), sizes.get("pixels"), "")),
    },
    numbers: NUMBERS,
    plan: |problem, policy, machine| group(What::Forward, problem, policy, machine),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(crate) static GROUP_NORM: Operator = Operator { gradient: Some(&GROUP_NORM_BACKWARD), ..OPERATOR };

pub(crate) static GROUP_NORM_BACKWARD: Operator = Operator {
    name: "group_norm_backward",
    about: "gradient of the norm over groups of channels: of x, weight and bias",
    calls: Calls {
        signature: |_| {
            const OUTPUTS: &[Operand] = &[DX, Operand("dweight", "channels"), Operand("dbias", "channels")];
            Signature::new(&[X, Operand("weight", "channels"), DY], OUTPUTS).scalars(&["groups", "eps"])
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| group(What::Backward, problem, policy, machine),
    ..OPERATOR
};

/// What the norms over channels have in common.
const BATCH: Operator = Operator {
    name: "batch_norm",
    about: "norm over all images of a channel, with weight and bias, and the statistics",
    further_suite: || {
        let sizes = [(64, 64, 12544), (64, 256, 3136), (128, 512, 784), (256, 2048, 49), (65536, 1024, 1)];
        sizes.iter().map(|&(batch, channels, pixels)| problem(batch, channels, pixels, "")).collect()
    },
    edges: || {
        let sizes = [(1, 1, 2), (7, 3, 31), (33, 5, 1), (2, 40, 100), (3, 2, 1023), (2, 3, 4100), (130, 70, 1), (5, 16, 49)];
        sizes.iter().map(|&(batch, channels, pixels)| problem(batch, channels, pixels, "")).collect()
    },
    draw: |draw: &mut Draw<'_>| {
        let [batch, channels, pixels] = draw.extents(draw.elements(), [512, 256, 8192]);
        problem(batch, channels, pixels, "")
    },
    calls: Calls {
        signature: |_| {
            const OUTPUTS: &[Operand] = &[Y, Operand("mean", "channels"), Operand("rstd", "channels")];
            Signature::new(&[X, Operand("weight", "channels"), Operand("bias", "channels")], OUTPUTS).scalars(&["eps"])
        },
        ..OPERATOR.calls
    },
    numbers: &[],
    plan: |problem, policy, machine| batch(What::Forward, problem, policy, machine),
    ..OPERATOR
};

pub(crate) static BATCH_NORM: Operator = Operator {
    gradient: Some(&BATCH_NORM_BACKWARD),
    no_specials: Some("moments of parts of a channel are merged, which takes infinities from each other"),
    ..BATCH
};

pub(crate) static BATCH_NORM_BACKWARD: Operator = Operator {
    name: "batch_norm_backward",
    no_specials: Some("the order in which terms of a channel are put together decides between an infinity and NaN"),
    about: "gradient of the norm over channels, from its statistics: of x, weight and bias",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[
                X,
                Operand("weight", "channels"),
                Operand("mean", "channels"),
                Operand("rstd", "channels"),
                DY,
                Operand("dmean", "channels"),
                Operand("drstd", "channels"),
            ];
            Signature::new(INPUTS, &[DX, Operand("dweight", "channels"), Operand("dbias", "channels")])
                .sums(&["mean", "rstd", "dmean", "drstd"])
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| batch(What::Backward, problem, policy, machine),
    ..BATCH
};

pub(crate) static BATCH_NORM_INFERENCE: Operator = Operator {
    name: "batch_norm_inference",
    about: "norm of channels by statistics that are given, with weight and bias",
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[
                X,
                Operand("weight", "channels"),
                Operand("bias", "channels"),
                Operand("mean", "channels"),
                Operand("variance", "channels"),
            ];
            Signature::new(INPUTS, &[Y]).sums(&["mean", "variance"]).scalars(&["eps"])
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| batch(What::Inference, problem, policy, machine),
    ..BATCH
};

fn problem(batch: u64, channels: u64, pixels: u64, variant: &str) -> Problem {
    Problem::new(&[("batch", batch), ("channels", channels), ("pixels", pixels)], variant)
}

/// Sizes, types and machine of a problem.
struct Case {
    sizes: [usize; 3],
    storage: DType,
    acc: DType,
    machine: Machine,
}

impl Case {
    fn of(name: &str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Case, Unsupported> {
        let (storage, acc) = rows::storage(policy, name)?;
        Ok(Case { sizes: ["batch", "channels", "pixels"].map(|name| problem.get(name) as usize), storage, acc, machine })
    }

    fn stored(&self, name: &'static str, shape: impl Into<Vec<usize>>, role: Role) -> TensorSpec {
        TensorSpec::new(name, self.storage, shape, role)
    }

    fn summed(&self, name: &'static str, shape: impl Into<Vec<usize>>, role: Role) -> TensorSpec {
        TensorSpec::new(name, self.acc, shape, role)
    }

    /// The plan of launches; arrays of whole images are read and written as often as it takes at least.
    fn plan(&self, tensors: Vec<TensorSpec>, launches: Vec<LaunchSpec>, layout: Layout, what: What) -> Plan {
        let [batch, channels, pixels] = self.sizes;
        let image = |spec: &&TensorSpec| spec.len() == batch * channels * pixels && spec.shape.len() > 1;
        let bytes =
            |role| tensors.iter().filter(|spec| spec.role == role).map(|spec| packed_bytes(spec.dtype, spec.len() as u64)).sum();
        let outputs = tensors.iter().enumerate().filter(|(_, spec)| spec.role == Role::Output).map(|(at, spec)| {
            let (rows, row_len) = if image(&spec) { (batch * channels, pixels) } else { (1, channels) };
            OutputRows { tensor: at, rows, row_len, exact: false }
        });
        Plan {
            outputs: outputs.collect(),
            launches,
            work: Work {
                read_bytes: bytes(Role::Input),
                write_bytes: bytes(Role::Output),
                flops: if what == What::Backward { 16 } else { 8 } * (batch * channels * pixels) as u64,
                compute: None,
                metric: Metric::Bandwidth,
                formula: "every array read or written once",
            },
            exact_lane: false,
            reference: Box::new(Normalised { what, layout, sizes: self.sizes, out: self.storage, acc: self.acc }),
            tensors,
        }
    }
}

/// Elements of a piece of a group that registers do not hold.
const PIECE: usize = 4096;

/// How a block holds a group: in tiles of so many elements, each of so many vectors.
struct Held {
    elements: usize,
    vector: usize,
    warps: u32,
}

/// Bytes of a group for each thread, beyond which a block has more threads; and for each of the most threads, of one array and of two.
const HELD_BYTES: usize = 128;
const MOST_BYTES: [usize; 2] = [256, 320];
/// Threads of the largest block that holds a group.
const THREADS: usize = 512;
/// Elements of a group that a CPU takes at once.
const AT_ONCE: usize = 8192;

impl Held {
    /// How registers hold the elements of some channels, of one array or of two; nothing where they do not.
    fn of(case: &Case, each: usize, what: What) -> Option<Held> {
        let pixels = case.sizes[2];
        let length = each * pixels;
        if length == 0 {
            return None;
        }
        if let Machine::Cpu = case.machine {
            return (length <= AT_ONCE).then_some(Held { elements: length, vector: pixels, warps: 0 });
        }
        let arrays = if what == What::Backward { 2 } else { 1 };
        let bytes = length * arrays * case.acc.bits().max(2 * case.storage.bits()) as usize / 16;
        if bytes > THREADS * MOST_BYTES[arrays - 1] {
            return None;
        }
        let threads = bytes.div_ceil(HELD_BYTES).next_power_of_two().clamp(64, THREADS);
        let vector = rows::VECTOR_BITS / case.storage.bits() as usize;
        let elements = match what {
            // Sums of channels are found in tiles of whole ones.
            What::Backward => {
                let most = threads * vector.max(2 * vector / arrays);
                let fits = |&channels: &usize| each.is_multiple_of(channels) && channels * pixels <= most;
                (1..=each).rev().find(fits)? * pixels
            }
            What::Forward | What::Inference => (threads * vector).min(length),
        };
        let vector = if elements.is_multiple_of(vector) { vector } else { 1 };
        Some(Held { elements, vector, warps: threads as u32 / 32 })
    }
}

fn group(what: What, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of("group_norm", problem, policy, machine)?;
    let [batch, channels, pixels] = case.sizes;
    let groups = problem.whole(NUMBERS[0], 1..=i64::from(i32::MAX))? as usize;
    if !channels.is_multiple_of(groups) {
        return Err(Unsupported(format!("{channels} channels are not divided into {groups} groups of one size")));
    }
    // Any number divides no channels: they are one group, so that as many as that number are not counted for each image.
    let groups = groups.min(channels.max(1));
    let each = channels / groups;
    let held = Held::of(&case, each, what);
    let image = if held.is_some() { vec![batch * groups, each * pixels] } else { vec![batch * groups, each, pixels] };
    let mut tensors = vec![case.stored("x", image.clone(), Role::Input), case.stored("weight", [channels], Role::Input)];
    tensors[0].fill = Fill::Normal { mean: 1.0, sd: 1.0 };
    let mut arguments = vec![
        ("eps", Argument::Float(norm::eps(case.acc))),
        int("groups", groups),
        ("ACC", Argument::Type(case.acc)),
        int("C", each),
        int("PIXELS", pixels),
    ];
    match &held {
        Some(held) => arguments.extend([int("K", held.elements), int("VECTOR", held.vector)]),
        None => {
            let piece = PIECE * 32 / case.acc.bits() as usize;
            arguments.push(int("P", piece.min(pixels.next_power_of_two())));
        }
    }
    let [down, ..] = rows::grid(batch * groups, 1)?;
    let (names, kernel): (&[_], _) = match what {
        What::Forward | What::Inference => {
            tensors.push(case.stored("bias", [channels], Role::Input));
            tensors.push(case.stored("y", image, Role::Output));
            (&["x", "weight", "bias", "y"], if held.is_some() { "group_norm" } else { "group_norm_pieces" })
        }
        What::Backward => {
            tensors.push(case.stored("dy", image.clone(), Role::Input));
            tensors.push(case.stored("dx", image, Role::Output));
            tensors.extend(["dweight", "dbias"].map(|name| case.stored(name, [channels], Role::Output)));
            tensors.extend(["dweights", "dbiases"].map(|name| case.summed(name, [batch, channels], Role::Workspace)));
            let kernel = if held.is_some() { "group_norm_backward" } else { "group_norm_backward_pieces" };
            (&["x", "weight", "dy", "dweights", "dbiases", "dx"], kernel)
        }
    };
    arguments.extend(rows::arrays(&tensors, names));
    let mut launches = Vec::new();
    if batch * pixels > 0 {
        let launch = LaunchSpec::new(kernel, arguments, [down, 1, 1]);
        launches.push(LaunchSpec { warps: held.map_or(0, |held| held.warps), ..launch });
    }
    if what == What::Backward {
        let arguments = rows::arrays(&tensors, &["dweights", "dbiases", "dweight", "dbias"]);
        launches.push(norm_backward::sums_of_parts(arguments, channels)?.of_file(norm_backward::FILE));
    }
    Ok(case.plan(tensors, launches, Layout::Groups(groups), what))
}

/// What a block reads at a time where it adds up: places of a tile have sums of their own, which meet when all of its tiles are read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    images: usize,
    /// Whole channels, or one of which pieces are read.
    channels: usize,
    /// Pixels of a channel that a tile has.
    pixels: usize,
}

/// Places of a tile: eight for each thread of the largest block, and of the smallest one, in numbers of 32 bits.
const TILE: (usize, usize) = (2048, 512);
/// Channels of a tile, of which a block puts together what all have left.
const TOGETHER: usize = 64;
/// The shortest piece that is worth reading.
const SHORTEST: usize = 64;

/// The largest power of two that divides a number, up to one.
fn twos(number: usize, most: usize) -> usize {
    1 << number.trailing_zeros().min(most.ilog2())
}

impl Tile {
    /// The tile whose threads idle least: as many whole channels as fill one, or pieces of a long one. Fewer images where they make no
    /// multiple of the tiles that are read at once.
    fn of(case: &Case, at_once: usize) -> Tile {
        let [batch, channels, pixels] = case.sizes;
        let words = case.acc.bits() as usize / 32;
        let (full, least) = (TILE.0 / words, TILE.1 / words);
        let tile = |channels: usize, pixels: usize| {
            let pixels = pixels.max(1);
            let line = (channels * pixels).next_power_of_two();
            let pieces = case.sizes[2].div_ceil(pixels);
            let mut images = twos(batch, (full / line).max(1));
            while images > 1 && line * images > least && !(batch / images * pieces).is_multiple_of(at_once) {
                images /= 2;
            }
            Tile { images, channels, pixels }
        };
        let mut tiles: Vec<Tile> =
            (1..=channels.min(TOGETHER)).filter(|each| each * pixels <= full).map(|each| tile(each, pixels)).collect();
        let piece = twos(pixels, full);
        tiles.extend((piece >= SHORTEST && piece < pixels).then(|| tile(1, piece)));
        tiles.extend((pixels > full).then(|| tile(1, full)));
        tiles.into_iter().min_by(|a, b| a.cost(case, least).total_cmp(&b.cost(case, least))).unwrap_or(tile(1, 1))
    }

    /// Warps of a block with eight places a thread.
    fn warps(&self, case: &Case) -> u32 {
        let places = (self.channels * self.pixels).next_power_of_two() * self.images * case.acc.bits() as usize / 32;
        match case.machine {
            Machine::Cpu => 0,
            Machine::Gpu(_) => (places / 256).clamp(2, 8) as u32,
        }
    }

    /// Threads' places for each element; more where accesses are not aligned, or short.
    fn cost(&self, case: &Case, least: usize) -> f64 {
        let [_, channels, pixels] = case.sizes;
        let line = self.channels * self.pixels;
        let places =
            (line.next_power_of_two() * self.images).max(least) * channels.div_ceil(self.channels) * pixels.div_ceil(self.pixels);
        let bytes = line * case.storage.bits() as usize / 8;
        let row = self.row(case) * case.storage.bits() as usize / 8;
        let aligned = row.is_multiple_of(16) && (bytes.is_multiple_of(16) || line == self.row(case));
        let scattered = if aligned { 1.0 } else { 4.0 };
        places as f64 / (self.images * channels * pixels) as f64 * scattered * (1.0 + 16.0 / bytes as f64)
    }

    /// Elements of a row of the array as kernels see it: an image, unless pieces do not divide a channel.
    fn row(&self, case: &Case) -> usize {
        let [_, channels, pixels] = case.sizes;
        if pixels.is_multiple_of(self.pixels) { channels * pixels } else { pixels }
    }

    /// The array's shape as kernels see it.
    fn view(&self, case: &Case) -> [usize; 3] {
        let [batch, channels, pixels] = case.sizes;
        let row = self.row(case);
        [batch, (channels * pixels).checked_div(row).unwrap_or(1), row]
    }
}

/// What a block writes: as many elements of some images, in vectors of one access, or, on a CPU, of one channel.
struct Written {
    images: usize,
    elements: usize,
    vector: usize,
}

impl Written {
    /// Of a kernel that reads so many arrays.
    fn of(case: &Case, row: usize, arrays: usize) -> Written {
        let [batch, _, pixels] = case.sizes;
        let bits = case.storage.bits() as usize;
        if let Machine::Cpu = case.machine {
            let vector = pixels.clamp(1, 4096);
            return Written { images: twos(batch, 16), elements: vector * (4096 / vector), vector };
        }
        let vector = rows::VECTOR_BITS / bits;
        // Numbers of a channel are found once for all images.
        let each = 512 / bits / arrays;
        let elements = row.next_power_of_two().clamp(vector, 256 * vector);
        Written { images: twos(batch, 256 * vector / elements * each), elements, vector }
    }
}

/// The most blocks that share a channel.
const PARTS: usize = 64;

/// Tiles that are read at once, and blocks of eight warps that a multiprocessor has then.
fn at_once(what: What) -> (usize, usize) {
    match what {
        What::Forward | What::Inference => (4, 2),
        What::Backward => (2, 4),
    }
}

fn batch(what: What, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of("batch_norm", problem, policy, machine)?;
    let [batch, channels, pixels] = case.sizes;
    if batch * pixels == 0 && channels > 0 && what != What::Inference {
        return Err(Unsupported("of no elements of a channel there are no statistics".to_string()));
    }
    let tile = Tile::of(&case, at_once(what).0);
    let image = tile.view(&case);
    let role = |output: bool| if output { Role::Output } else { Role::Input };
    let mut tensors = vec![case.stored("x", image, Role::Input), case.stored("weight", [channels], Role::Input)];
    tensors[0].fill = Fill::Normal { mean: 1.0, sd: 1.0 };
    match what {
        What::Forward => {
            tensors.extend([case.stored("bias", [channels], Role::Input), case.stored("y", image, Role::Output)]);
            tensors.extend(["mean", "rstd"].map(|name| case.summed(name, [channels], role(true))));
        }
        What::Inference => {
            tensors.push(case.stored("bias", [channels], Role::Input));
            tensors.extend(["mean", "variance"].map(|name| case.summed(name, [channels], role(false))));
            tensors[4].fill = Fill::Normal { mean: 2.0, sd: 0.1 };
            tensors.push(case.stored("y", image, Role::Output));
        }
        What::Backward => {
            tensors.extend(["mean", "rstd"].map(|name| case.summed(name, [channels], role(false))));
            tensors.push(case.stored("dy", image, Role::Input));
            tensors.extend(["dmean", "drstd"].map(|name| case.summed(name, [channels], role(false))));
            tensors.push(case.stored("dx", image, Role::Output));
            tensors.extend(["dweight", "dbias"].map(|name| case.stored(name, [channels], Role::Output)));
        }
    }
    let launches = batch_launches(&case, tile, what, &mut tensors)?;
    Ok(case.plan(tensors, launches, Layout::Channels, what))
}

/// One launch over channels' tiles for statistics or sums, where there are any to be found, and one over all elements for what comes of them.
fn batch_launches(case: &Case, tile: Tile, what: What, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    let [batch, channels, pixels] = case.sizes;
    let common = [("ACC", Argument::Type(case.acc)), int("PIXELS", pixels)];
    let eps = ("eps", Argument::Float(norm::eps(case.acc)));
    // What is left between launches: of parts of channels, and, as factors and summands of elements, of channels.
    let (parts_of, found): (&[&'static str], &[&'static str]) = match what {
        What::Forward => (&["counts", "means", "squares"], &["scales", "shifts"]),
        What::Backward => (&["of_weights", "of_biases"], &["scales", "slopes", "shifts"]),
        What::Inference => (&[], &[]),
    };
    let mut launches = Vec::new();
    if what != What::Inference {
        let across = channels.div_ceil(tile.channels);
        let tiles = batch / tile.images * pixels.div_ceil(tile.pixels);
        let (most, resident) = at_once(what);
        let at_once = if pixels.is_multiple_of(tile.pixels) { twos(tiles, most) } else { 1 };
        let warps = tile.warps(case);
        let wanted = match case.machine {
            Machine::Cpu => 8,
            Machine::Gpu(arch) => {
                let blocks = resident * 8 / warps as usize * arch.multiprocessors() as usize;
                (blocks / across.max(1)).clamp(1, PARTS)
            }
        };
        let per_block = tiles.div_ceil(wanted).next_multiple_of(at_once);
        let parts = tiles.div_ceil(per_block);
        tensors.extend(parts_of.iter().map(|name| case.summed(name, [parts, channels], Role::Workspace)));
        tensors.extend(found.iter().map(|name| case.summed(name, [channels], Role::Workspace)));
        tensors.push(TensorSpec::new("arrived", DType::I32, [across], Role::Counter));
        let (kernel, names): (_, &[&'static str]) = match what {
            What::Backward => {
                ("batch_sums", &["x", "weight", "mean", "rstd", "dy", "dmean", "drstd", "arrived", "dweight", "dbias"])
            }
            What::Forward | What::Inference => ("batch_statistics", &["x", "weight", "bias", "arrived", "mean", "rstd"]),
        };
        let mut arguments = rows::arrays(tensors, names);
        arguments.extend(rows::arrays(tensors, parts_of));
        arguments.extend(rows::arrays(tensors, found));
        arguments.extend(common);
        arguments.extend([int("N", tile.images), int("C", tile.channels), int("P", tile.pixels)]);
        arguments.extend([
            int("AT_ONCE", at_once),
            int("TILES", per_block),
            int("ALL", tiles),
            int("PARTS", parts.next_power_of_two()),
        ]);
        arguments.push(int("COUNT", batch * pixels));
        arguments.extend((what == What::Forward).then_some(eps));
        let [across, ..] = rows::grid(across, 1)?;
        launches.push(LaunchSpec { warps, ..LaunchSpec::new(kernel, arguments, [across, parts as u32, 1]) });
    }
    let (kernel, names): (_, &[&'static str]) = match what {
        What::Forward => ("batch_normalise", &["x", "y"]),
        What::Inference => ("batch_inference", &["x", "weight", "bias", "mean", "variance", "y"]),
        What::Backward => ("batch_backward", &["x", "dy", "dx"]),
    };
    let [_, rows_of_image, row] = tile.view(case);
    let written = Written::of(case, row, if what == What::Backward { 2 } else { 1 });
    let mut arguments = rows::arrays(tensors, names);
    arguments.extend(rows::arrays(tensors, found));
    arguments.extend(common);
    arguments.extend([int("N", written.images), int("K", written.elements), int("VECTOR", written.vector)]);
    arguments.extend((what == What::Inference).then_some(eps));
    let blocks = batch / written.images * rows_of_image * row.div_ceil(written.elements);
    launches.push(LaunchSpec::new(kernel, arguments, rows::grid(blocks, 1)?));
    Ok(launches)
}
