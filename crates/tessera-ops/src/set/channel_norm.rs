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
use crate::set::norm::EPS;
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

pub(crate) static BATCH_NORM: Operator = Operator { gradient: Some(&BATCH_NORM_BACKWARD), ..BATCH };

pub(crate) static BATCH_NORM_BACKWARD: Operator = Operator {
    name: "batch_norm_backward",
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

/// Elements of a group that a block takes whole, of two arrays, and those of a piece of a longer one.
const WHOLE: usize = 8192;
const PIECE: usize = 4096;
/// Images whose sums are added up at a time, and channels of a block that does.
const SUMMED: (usize, usize) = (64, 32);

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
    let image = [batch * groups, each, pixels];
    let mut tensors = vec![case.stored("x", image, Role::Input), case.stored("weight", [channels], Role::Input)];
    tensors[0].fill = Fill::Normal { mean: 1.0, sd: 1.0 };
    let scale = case.acc.bits() as usize / 32;
    let is_whole = each.next_power_of_two() * pixels.next_power_of_two() * scale <= WHOLE;
    let mut arguments = vec![
        ("eps", Argument::Float(EPS)),
        int("groups", groups),
        ("ACC", Argument::Type(case.acc)),
        int("C", each),
        int("PIXELS", pixels),
    ];
    if !is_whole {
        arguments.push(int("P", (PIECE / scale).min(pixels.next_power_of_two())));
    }
    let [down, ..] = rows::grid(batch * groups, 1)?;
    let (names, kernel): (&[_], _) = match what {
        What::Forward | What::Inference => {
            tensors.push(case.stored("bias", [channels], Role::Input));
            tensors.push(case.stored("y", image, Role::Output));
            (&["x", "weight", "bias", "y"], if is_whole { "group_norm" } else { "group_norm_pieces" })
        }
        What::Backward => {
            tensors.push(case.stored("dy", image, Role::Input));
            tensors.push(case.stored("dx", image, Role::Output));
            tensors.extend(["dweight", "dbias"].map(|name| case.stored(name, [channels], Role::Output)));
            tensors.extend(["dweights", "dbiases"].map(|name| case.summed(name, [batch, channels], Role::Workspace)));
            let kernel = if is_whole { "group_norm_backward" } else { "group_norm_backward_pieces" };
            (&["x", "weight", "dy", "dweights", "dbiases", "dx"], kernel)
        }
    };
    arguments.extend(rows::arrays(&tensors, names));
    let mut launches = Vec::new();
    if batch * pixels > 0 {
        launches.push(LaunchSpec::new(kernel, arguments, [down, 1, 1]));
    }
    if what == What::Backward {
        let mut arguments = rows::arrays(&tensors, &["dweights", "dbiases", "dweight", "dbias"]);
        arguments.extend([int("PARTS", SUMMED.0), int("COLUMNS", SUMMED.1)]);
        let sums = LaunchSpec::new("layer_norm_sums", arguments, rows::grid(channels, SUMMED.1)?);
        launches.push(sums.of_file(norm_backward::FILE));
    }
    Ok(case.plan(tensors, launches, Layout::Groups(groups), what))
}

/// The tile of images, channels and pixels that a block takes at once: lines of pixels where they are long, else of several channels.
struct Tile {
    images: usize,
    channels: usize,
    pixels: usize,
}

/// Elements of a tile, and of a line that is worth reading.
const TILE: usize = 4096;
const LINE: usize = 32;

impl Tile {
    fn of([batch, channels, pixels]: [usize; 3], acc: DType) -> Tile {
        let elements = TILE * 32 / acc.bits() as usize;
        let line = pixels.clamp(1, elements);
        let together = (LINE / line.next_power_of_two()).max(1).min(channels.next_power_of_two());
        let images = (elements / (line.next_power_of_two() * together)).clamp(1, batch.next_power_of_two());
        Tile { images, channels: together, pixels: line }
    }

    fn constants(&self) -> [(&'static str, Argument); 3] {
        [int("N", self.images), int("C", self.channels), int("P", self.pixels)]
    }
}

/// The most blocks that share a channel: the last one puts together what they leave, one after the other.
const PARTS: usize = 32;

fn batch(what: What, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let case = Case::of("batch_norm", problem, policy, machine)?;
    let [batch, channels, pixels] = case.sizes;
    if batch * pixels == 0 && channels > 0 && what != What::Inference {
        return Err(Unsupported("of no elements of a channel there are no statistics".to_string()));
    }
    let image = [batch, channels, pixels];
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
    let launches = batch_launches(&case, what, &mut tensors)?;
    Ok(case.plan(tensors, launches, Layout::Channels, what))
}

/// One launch over channels' tiles for statistics or sums, where there are any to be found, and one over all tiles for what comes of them.
fn batch_launches(case: &Case, what: What, tensors: &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported> {
    let [batch, channels, pixels] = case.sizes;
    let tile = Tile::of(case.sizes, case.acc);
    let [across, pieces] = [channels.div_ceil(tile.channels), pixels.div_ceil(tile.pixels)];
    let tiles = batch.div_ceil(tile.images) * pieces;
    let wanted = match case.machine {
        Machine::Cpu => 8,
        Machine::Gpu(arch) => (4 * arch.multiprocessors() as usize).div_ceil(across.max(1)).min(PARTS),
    };
    let per_block = tiles.div_ceil(wanted).max(1);
    let parts = tiles.div_ceil(per_block).max(1);
    if pieces > 65535 || across > 65535 {
        return Err(Unsupported(format!("{channels} channels of {pixels} pixels need too many blocks")));
    }
    let acc = ("ACC", Argument::Type(case.acc));
    let eps = ("eps", Argument::Float(EPS));
    let between: &[&'static str] = match what {
        What::Forward => &["counts", "means", "squares"],
        What::Backward => &["of_weights", "of_biases"],
        What::Inference => &[],
    };
    tensors.extend(between.iter().map(|name| case.summed(name, [parts, channels], Role::Workspace)));
    let mut launches = Vec::new();
    let first = |tensors: &[TensorSpec], kernel, names: &[&'static str]| {
        let mut arguments = rows::arrays(tensors, names);
        arguments.extend(rows::arrays(tensors, between));
        arguments.extend([acc, int("TILES", per_block)]);
        arguments.extend(tile.constants());
        LaunchSpec::new(kernel, arguments, [across as u32, parts as u32, 1])
    };
    let arrived = TensorSpec::new("arrived", DType::I32, [across], Role::Counter);
    let (kernel, names): (_, &[&'static str]) = match what {
        What::Forward => {
            tensors.push(arrived);
            let mut launch = first(tensors, "batch_statistics", &["x", "arrived", "mean", "rstd"]);
            launch.arguments.push(eps);
            launches.push(launch);
            ("batch_normalise", &["x", "weight", "bias", "mean", "rstd", "y"])
        }
        What::Inference => ("batch_inference", &["x", "weight", "bias", "mean", "variance", "y"]),
        What::Backward => {
            tensors.push(arrived);
            tensors.extend(["of_weight", "of_bias"].map(|name| case.summed(name, [channels], Role::Workspace)));
            let names = ["x", "dy", "mean", "rstd", "arrived", "of_weight", "of_bias", "dweight", "dbias"];
            launches.push(first(tensors, "batch_sums", &names));
            ("batch_backward", &["x", "weight", "mean", "rstd", "dy", "dmean", "drstd", "of_weight", "of_bias", "dx"])
        }
    };
    let mut arguments = rows::arrays(tensors, names);
    arguments.push(acc);
    arguments.extend(tile.constants());
    arguments.extend((what == What::Inference).then_some(eps));
    arguments.extend((what == What::Backward).then_some(int("COUNT", batch * pixels)));
    let [down, ..] = rows::grid(batch, tile.images)?;
    launches.push(LaunchSpec::new(kernel, arguments, [down, across as u32, pieces as u32]));
    Ok(launches)
}
