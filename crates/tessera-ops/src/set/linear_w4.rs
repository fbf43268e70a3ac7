//! Linear layers with weights of 4 bits: y = x W^T, where a weight is `(code - zero) * scale`. The difference is rounded to x's type. Up to
//! [`FEW`] rows of x the scale multiplies the sum of a group in fp32; with more the product is rounded to x's type, too.
//!
//! Scales, and zero points in the variant `zeros`, are of x's type: `[k / group, n]`, one for each row of weights and group of 64 or 128 neighbours
//! along the contraction. `symmetric` weights have 8 for a zero. W is packed as [`crate::pack_int4`] says.

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType, ErrorModel, FloatFormat, Policy, Storage};

use super::decoded::{Decoded, Row};
use crate::draw::Draw;
use crate::operator::{
    Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, PossibleWay, Role, TensorSpec, Unsupported, Way,
    Ways,
};
use crate::packing;
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static LINEAR_W4: Operator = Operator {
    name: "linear_w4",
    about: "matrix product with weights of 4 bits, a scale and a zero point for each group of them",
    file: "linear_w4.py",
    source: include_str!("../../kernels/linear_w4.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &[],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan: |problem, policy, machine| made(problem, policy, choose(problem, machine)),
    ways: Some(Ways {
        names: &NAMES,
        of: |problem, _, machine| Ok(ways(problem, machine)),
        plan: |problem, policy, _, way| made(problem, policy, Choice::of_way(way, problem.get("m"))?),
    }),
    gradient: None,
    no_specials: Some("its reference does not say what an infinite scale makes of a code"),
    ladder: &[],
};

const ZEROS: &str = "zeros";
const VARIANTS: [&str; 2] = ["symmetric", ZEROS];
const GROUPS: [u64; 2] = [64, 128];
/// Rows of x up to which sums of groups are scaled, and those of tiles for them.
const FEW: u64 = 64;
const THIN: [u64; 4] = [8, 16, 32, FEW];
/// Tiles of a multiprocessor from which on the last wave costs little.
const WAVES: u64 = 4;

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some(VARIANTS[0]),
    signature: |variant| {
        const X: Operand = Operand("x", "..rows k");
        const W: Operand = Operand("W", "lines words");
        const S: Operand = Operand("S", "groups n");
        const Y: Operand = Operand("y", "..rows n");
        const TYPES: &[(&str, DType)] = &[("W", DType::I32)];
        match variant {
            ZEROS => Signature::new(&[X, W, S, Operand("Z", "groups n")], &[Y]).types(TYPES),
            _ => Signature::new(&[X, W, S], &[Y]).types(TYPES),
        }
    },
    problem: |sizes| {
        let [m, n, k, lines, words, groups] = ["rows", "n", "k", "lines", "words", "groups"].map(|name| sizes.get(name));
        if (lines, words) != (n.div_ceil(packing::LINE as u64), k) {
            return Err(Unsupported(format!(
                "`W` has shape [{lines}, {words}], and [{}, {k}] is wanted: 8 rows of weights a line, of {k} words (`pack_int4`)",
                n.div_ceil(packing::LINE as u64)
            )));
        }
        if groups == 0 || !k.is_multiple_of(groups) {
            return Err(Unsupported(format!("{k} columns are not of {groups} groups: `S` has a line for each 64 or 128")));
        }
        Ok(problem([m, n, k], k / groups, sizes.variant))
    },
};

fn problem([m, n, k]: [u64; 3], group: u64, variant: &str) -> Problem {
    Problem::new(&[("m", m), ("n", n), ("k", k), ("group", group)], variant)
}

/// Layers of language models, from one row to a prompt's.
fn suite() -> Vec<Problem> {
    let layers = [(8192, 8192), (28672, 8192), (4096, 14336)];
    let of = |(n, k)| [1, 16, 64, 256, 4096].map(|m| problem([m, n, k], 128, VARIANTS[0]));
    let mut cases: Vec<Problem> = layers.into_iter().flat_map(of).collect();
    cases.push(problem([16, 8192, 8192], 64, ZEROS));
    cases.push(problem([4096, 8192, 8192], 64, ZEROS));
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![(problem([16, 256, 512], 128, VARIANTS[0]), "bf16"), (problem([128, 256, 256], 64, ZEROS), "fp16")]
}

fn edges() -> Vec<Problem> {
    let sizes = [([1, 1, 128], 128), ([1, 8, 64], 64), ([7, 65, 192], 64), ([16, 130, 384], 128), ([33, 64, 320], 64)];
    let large = [([65, 129, 256], 128), ([130, 300, 128], 64)];
    let all = sizes.into_iter().chain(large);
    all.flat_map(|(sizes, group)| VARIANTS.map(|variant| problem(sizes, group, variant))).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let group = draw.one_of(&GROUPS);
    let [m, n, groups] = draw.extents(draw.operations() / 2 / group, [300, 600, 12]);
    problem([m, n, groups * group], group, draw.one_of(&VARIANTS))
}

/// How a product is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    /// Rows of x, rows of weights and contraction of a tile.
    tile: [u64; 3],
    sharing: Sharing,
    /// Blocks of a cluster, and warps of a block that multiply; 0 where the compiler says.
    cluster: u32,
    warps: u32,
}

const NAMES: [&str; 6] = ["TM", "TN", "TK", "num_ctas", "sharing", "num_warps"];

impl Choice {
    fn new(tile: [u64; 3], sharing: Sharing) -> Choice {
        Choice { tile, sharing, cluster: 0, warps: 0 }
    }

    fn of_way(way: &Way, m: u64) -> Result<Choice, Unsupported> {
        if let Some(name) = way.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(Unsupported(format!("`{name}` is no choice of linear_w4, which has {}", NAMES.join(", "))));
        }
        let number = |name: &str, among: &[i64]| match way.get(name) {
            Some(number) if among.contains(number) => Ok(*number as u64),
            Some(number) => Err(Unsupported(format!("`{name}={number}`: one of {among:?}"))),
            None => Err(Unsupported(format!("linear_w4 wants `{name}` chosen, too"))),
        };
        let tile = [
            number("TM", if m <= FEW { &[8, 16, 32, 64] } else { &[128] })?,
            number("TN", &[64, 128, 256])?,
            number("TK", &[64, 128, 256, 512])?,
        ];
        Ok(Choice {
            tile,
            sharing: Sharing::ALL[number("sharing", &[0, 1, 2, 4])? as usize],
            cluster: number("num_ctas", &[0, 2, 4, 8])? as u32,
            warps: number("num_warps", &[0, 4, 8, 16])? as u32,
        })
    }

    fn way(&self) -> Way {
        let [rows, columns, depth] = self.tile.map(|extent| extent as i64);
        let sharing = i64::from(self.sharing.number());
        let numbers = [rows, columns, depth, i64::from(self.cluster), sharing, i64::from(self.warps)];
        NAMES.into_iter().map(str::to_string).zip(numbers).collect()
    }

    /// Clocks of a launch that waits for memory, or for instructions: those that share rounds are all busy to the end.
    fn clocks(&self, [m, n, k]: [u64; 3], sms: u64) -> f64 {
        let [rows, columns, depth] = self.tile;
        let (tiles, rounds) = (m.div_ceil(rows) * n.div_ceil(columns), k.div_ceil(depth));
        let from_memory = (columns * depth) as f64 / 2.0 / MEMORY;
        let from_cache = (columns * depth / 2 + 2 * rows * depth / u64::from(self.cluster.max(1))) as f64 / CACHE;
        let instructions = (columns * depth) as f64 * INSTRUCTIONS / Arch::WARPGROUP as f64;
        let round = from_memory.max(from_cache).max(instructions) + ROUND;
        let (times, meeting) = match self.sharing {
            Sharing::Rounds => ((tiles * rounds) as f64 / sms as f64, MEETING),
            Sharing::Cluster => {
                let blocks = u64::from(self.cluster);
                ((tiles * blocks).div_ceil(sms) as f64 * rounds.div_ceil(blocks) as f64, CLUSTER)
            }
            Sharing::Nothing | Sharing::Blocks | Sharing::Turns => ((tiles.div_ceil(sms) * rounds) as f64, 0.0),
        };
        times * round + meeting
    }
}

/// Bytes that a multiprocessor gets of the device's memory and of the cache in a clock, where all ask.
const MEMORY: f64 = 18.0;
const CACHE: f64 = 26.0;
/// Instructions of a thread for a weight, as disassembled, waits included.
const INSTRUCTIONS: f64 = 2.2;
/// Clocks that a round takes beside, that sums of rounds take which are shared in memory, and in a cluster.
const ROUND: f64 = 40.0;
const MEETING: f64 = 3000.0;
const CLUSTER: f64 = 3000.0;

/// The largest part, by halves, of a round's contraction of which all rounds are whole: groups are loaded one by one, and none lies behind the
/// contraction.
fn whole_rounds(k: u64, depth: u64) -> u64 {
    1 << depth.trailing_zeros().min(k.trailing_zeros())
}

/// How a product is cut where nothing is known of its ways' times.
fn choose(problem: &Problem, machine: Machine) -> Choice {
    let [m, n, k, group] = ["m", "n", "k", "group"].map(|name| problem.get(name));
    let thin = THIN.into_iter().find(|&rows| rows >= m);
    let Machine::Gpu(arch) = machine else {
        let depth = if thin.is_some() { whole_rounds(k, 256) } else { 256 };
        return Choice::new([thin.unwrap_or(128), 128, depth], Sharing::Nothing);
    };
    let sms = u64::from(arch.multiprocessors());
    let tiles = |columns: u64| n.div_ceil(columns);
    // Two blocks of a cluster meet sooner than any two through memory: 15.8 us for 21.9 of one row of 8192 x 8192 on an H200, 22.9 for 25.1 of 64.
    if let Some(rows) = thin.filter(|_| arch.has_wgmma() && 2 * tiles(128) <= sms) {
        let halves = [rows, 128, 2 * group];
        if k >= 4 * halves[2] && k.is_multiple_of(halves[2]) {
            return Choice { cluster: 2, ..Choice::new(halves, Sharing::Cluster) };
        }
    }
    // Rows of weights are those of the tensor cores' instruction. One warpgroup decodes while another one's product runs.
    let tile = match thin {
        // Twice as many rows of weights read x half as often, and cost fewer instructions each. With zero points 64 rows of x leave no registers.
        Some(rows) if arch.has_wgmma() && 2 * tiles(256) > sms && !(rows == FEW && problem.has(ZEROS)) => {
            [rows, 256, whole_rounds(k, if rows <= 16 { 2 * group } else { group })]
        }
        // More groups a round cost fewer instructions, and more rows leave fewer slots for them.
        Some(rows) if arch.has_wgmma() => [rows, 128, whole_rounds(k, if rows <= 16 { 4 * group } else { 2 * group })],
        Some(rows) => [rows, 64, whole_rounds(k, 256)],
        None => [128, 128, 128],
    };
    let blocks = m.div_ceil(tile[0]) * tiles(tile[1]);
    let sharing = match (thin.is_some(), blocks) {
        _ if !arch.has_wgmma() => Sharing::Nothing,
        // What waits for memory wants all multiprocessors to ask for as much.
        (true, blocks) if blocks <= WAVES * sms => Sharing::Rounds,
        (false, blocks) if 2 * blocks <= sms => Sharing::Rounds,
        (false, blocks) if blocks > sms => Sharing::Blocks,
        _ => Sharing::Nothing,
    };
    Choice::new(tile, sharing)
}

/// The ways to cut a product of few rows.
fn ways(problem: &Problem, machine: Machine) -> Vec<PossibleWay> {
    let (sizes @ [m, _, k], group) = (["m", "n", "k"].map(|name| problem.get(name)), problem.get("group"));
    let first = choose(problem, machine);
    let (Some(rows), Machine::Gpu(arch)) = (THIN.into_iter().find(|&rows| rows >= m), machine) else { return Vec::new() };
    if !arch.has_wgmma() {
        return Vec::new();
    }
    let mut found = vec![first];
    for (columns, depth) in [64, 128, 256].into_iter().flat_map(|columns| [128, 256, 512].map(|depth| (columns, depth))) {
        let (tile, groups) = ([rows, columns, depth], depth.div_ceil(group));
        // Threads hold two groups' sums and factors: of more the assembler spills some.
        let most = match (columns, rows) {
            (256, 32..) => 1,
            (256, _) | (_, 64..) => 2,
            _ => 4,
        };
        if groups > most || !k.is_multiple_of(depth) {
            continue;
        }
        let warps: &[u32] = if columns == 256 && rows <= 16 && groups == 1 { &[0, 16] } else { &[0] };
        for &warps in warps {
            let plain = [Sharing::Nothing, Sharing::Blocks, Sharing::Rounds].map(|sharing| (sharing, 0));
            let clusters = [(Sharing::Rounds, 2), (Sharing::Cluster, 2), (Sharing::Cluster, 4), (Sharing::Cluster, 8)];
            for (sharing, cluster) in plain.into_iter().chain(clusters) {
                let way = Choice { sharing, cluster, warps, ..Choice::new(tile, sharing) };
                if !found.contains(&way) {
                    found.push(way);
                }
            }
        }
    }
    let clocks = |choice: &Choice| choice.clocks(sizes, u64::from(arch.multiprocessors()));
    found[1..].sort_by(|a, b| clocks(a).total_cmp(&clocks(b)));
    found.iter().map(|choice| PossibleWay { way: choice.way(), clocks: clocks(choice) }).collect()
}

fn made(problem: &Problem, policy: Policy, choice: Choice) -> Result<Plan, Unsupported> {
    let dtype = match policy.storage() {
        Storage::Plain(dtype @ (DType::F16 | DType::BF16)) if policy.accumulator() == DType::F32 => dtype,
        _ => return Err(Unsupported(format!("linear_w4 multiplies `fp16` and `bf16` with sums in `fp32`, not `{policy}`"))),
    };
    let [m, n, k, group] = ["m", "n", "k", "group"].map(|name| problem.get(name));
    if !GROUPS.contains(&group) {
        return Err(Unsupported(format!("groups are of 64 or 128 columns, not of {group}")));
    }
    if !k.is_multiple_of(group) {
        return Err(Unsupported(format!(
            "{k} columns are no multiple of a group's {group}: add columns of code 8 to the weights, and of zeros to `x`"
        )));
    }
    let (zeros, few) = (problem.has(ZEROS), m <= FEW);
    let Choice { tile: [tm, tn, tk], sharing, cluster, warps } = choice;
    let (lines, groups) = (n.div_ceil(packing::LINE as u64), k / group);
    let input = |name, dtype, shape: [u64; 2], fill| TensorSpec {
        fill,
        ..TensorSpec::new(name, dtype, shape.map(|extent| extent as usize), Role::Input)
    };
    let words = Fill::Integers { least: i64::from(i32::MIN), greatest: i64::from(i32::MAX) };
    let mut tensors = vec![
        input("x", dtype, [m, k], Fill::NORMAL),
        input("W", DType::I32, [lines, k], words),
        input("S", dtype, [groups, n], Fill::Normal { mean: 0.0, sd: 0.1 }),
    ];
    if zeros {
        tensors.push(input("Z", dtype, [groups, n], Fill::Integers { least: 0, greatest: 15 }));
    }
    let output = tensors.len();
    tensors.push(TensorSpec::new("y", dtype, [m as usize, n as usize], Role::Output));
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    for (name, value) in [("K", k), ("GROUP", group), ("TM", tm), ("TN", tn), ("TK", tk)] {
        arguments.push((name, Argument::Int(value as i64)));
    }
    arguments.push(("FEW", Argument::Bool(few)));
    let blocks = |extent: u64, tile: u64| {
        u32::try_from(extent.div_ceil(tile)).map_err(|_| Unsupported(format!("{extent} needs too many blocks")))
    };
    let [rows, columns] = [blocks(m, tm)?, blocks(n, tn)?];
    let grid = if few { [columns, rows, 1] } else { [rows, columns, 1] };
    let kernel = if zeros { ZEROS } else { VARIANTS[0] };
    let beside = if zeros { 2 } else { 1 } * packed_bytes(dtype, groups * n);
    Ok(Plan {
        launches: vec![LaunchSpec { sharing, cluster, warps, ..LaunchSpec::new(kernel, arguments, grid) }],
        outputs: vec![OutputRows { tensor: output, rows: m as usize, row_len: n as usize, exact: false }],
        work: Work {
            read_bytes: packed_bytes(dtype, m * k) + packed_bytes(DType::I4, n * k) + beside,
            write_bytes: packed_bytes(dtype, m * n),
            flops: 2 * m * n * k,
            compute: Some(dtype),
            // As many operations a byte as make a product of 64 rows wait for memory.
            metric: if few { Metric::Bandwidth } else { Metric::Compute },
            formula: "2mnk operations; x, codes, scales and zero points read once, y written once",
        },
        exact_lane: true,
        reference: Box::new(Decoded {
            sizes: [m, n, k].map(|extent| extent as usize),
            factors: [plain(k as usize), weights([n, k, group].map(|extent| extent as usize), zeros, dtype, few)],
            result: dtype,
            model: ErrorModel::nearest(dtype, DType::F32),
            // A group's scaled sum.
            roundings: if few { 1.0 } else { 0.0 },
        }),
        tensors,
    })
}

/// Rows of x.
fn plain(k: usize) -> Row {
    Box::new(move |inputs, row, out| inputs.numbers(0, row * k, out))
}

/// Rows of weights, rounded to x's type as the kernels round them: for few rows of x the difference alone.
fn weights([n, k, group]: [usize; 3], zeros: bool, dtype: DType, few: bool) -> Row {
    let rounded = move |value: f64| FloatFormat::of(dtype).map_or(value, |format| format.decode(format.encode_nearest(value)));
    Box::new(move |inputs: &dyn Inputs, row, out| {
        let line = row / packing::LINE * k;
        let mut words = vec![0; k];
        inputs.codes(1, line, &mut words);
        let places: Vec<usize> = (0..k / group).map(|at| at * n + row).collect();
        let (mut scales, mut centres) = (vec![0.0; places.len()], vec![8.0; places.len()]);
        inputs.numbers_at(2, &places, &mut scales);
        if zeros {
            inputs.numbers_at(3, &places, &mut centres);
        }
        for (column, out) in out.iter_mut().enumerate() {
            let (word, shift) = packing::place(k, row, column);
            let code = (words[word - line] >> shift & 15) as f64;
            let weight = rounded(code - centres[column / group]) * scales[column / group];
            *out = if few { weight } else { rounded(weight) };
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use tessera_runtime::Tensor;

    #[test]
    fn what_is_not_done_is_told() {
        let told = |sizes, group| {
            let found = LINEAR_W4.plan(&problem(sizes, group, "symmetric"), Policy::of(DType::BF16), Machine::Cpu);
            found.err().map(|why| why.to_string()).unwrap_or_default()
        };
        assert_eq!(told([1, 8, 96], 32), "groups are of 64 or 128 columns, not of 32");
        assert!(told([1, 8, 192], 128).starts_with("192 columns are no multiple of a group's 128: add columns of code 8"));
        assert_eq!(told([1, 8, 192], 64), "");
    }

    #[test]
    fn arrays_say_the_problem() {
        let half = |shape: &[usize]| Tensor::ones(DType::F16, shape).expect("a tensor");
        let w = |shape: &[usize]| Tensor::zeros(DType::I32, shape).expect("a tensor");
        let told = |w: Tensor, s: Tensor| {
            let call = Call {
                variant: None,
                tensors: vec![("x", half(&[3, 128])), ("W", w), ("S", s)],
                scalars: Vec::new(),
                lock: None,
            };
            LINEAR_W4.resolve(&call).map(|_| ()).unwrap_err().to_string()
        };
        assert!(told(w(&[10, 16]), half(&[2, 10])).starts_with("`W` has shape [10, 16], and [2, 128] is wanted"));
        assert!(told(w(&[2, 128]), half(&[3, 10])).starts_with("128 columns are not of 3 groups"));
        assert_eq!(told(half(&[2, 128]), half(&[2, 10])), "`W` holds `f16`, and linear_w4 takes `i32` there");
        let s = Tensor::ones(DType::BF16, &[2, 10]).expect("a tensor");
        assert!(told(w(&[2, 128]), s).starts_with("`x` holds `f16` and `S` `bf16`"));
    }
}
