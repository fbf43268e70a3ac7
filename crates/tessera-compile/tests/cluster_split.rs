//! Clusters that split the rounds of a product: right with any number of rounds and blocks, for tiles at the edges and whatever stands behind the
//! loop, under every interleaving; a kernel that does not ready its barriers is found out.

use tessera_compile::target::lower;
use tessera_compile::{CompileOptions, Compiled, DeviceCompiled, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Func, Op, OpKind, ScheduleOp, TileOp};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembled, lockstep_of, on_cpu, run_under, same};

const PRODUCT: &str = "import cuda.tile as ct
import tessera

@tessera.kernel(sharing=4, num_ctas={blocks}, num_clusters={clusters})
def kernel(x, y, bias, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros(({tm}, {tn}), ct.{acc})
    for k in range(ct.cdiv(x.shape[1], {tk})):
        a = ct.load(x, (i, k), ({tm}, {tk}), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(y, (j, k), ({tn}, {tk}), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, ct.transpose(b), acc)
    {behind}
";
const STORED: &str = "ct.store(out, (i, j), acc.astype(out.dtype))";

struct Case {
    source: String,
    factors: DType,
    out: DType,
    tile: [i64; 3],
    blocks: u32,
    /// Clusters of so many blocks for each tile.
    clusters: u32,
}

impl Case {
    fn new(tile: [i64; 3], blocks: u32, types: [DType; 2], behind: &str) -> Case {
        Case::among(1, tile, blocks, types, behind)
    }

    /// So many clusters share each tile.
    fn among(clusters: u32, tile: [i64; 3], blocks: u32, [factors, out]: [DType; 2], behind: &str) -> Case {
        let acc = if factors.is_float() { "float32" } else { "int32" };
        let [tm, tn, tk] = tile.map(|extent| extent.to_string());
        let [of_cluster, of_tile] = [blocks, clusters].map(|count| count.to_string());
        let names = [
            ("{tm}", &*tm),
            ("{tn}", &tn),
            ("{tk}", &tk),
            ("{acc}", acc),
            ("{blocks}", &of_cluster),
            ("{clusters}", &of_tile),
            ("{behind}", behind),
        ];
        let source = names.iter().fold(PRODUCT.to_string(), |text, (name, with)| text.replace(name, with));
        Case { source, factors, out, tile, blocks, clusters }
    }

    fn compiled(&self) -> (Compiled, DeviceCompiled) {
        let file = parse_file("split.py", &self.source);
        let of_sums = if self.factors.is_float() { DType::F32 } else { DType::I32 };
        let args = [("x", self.factors, 2), ("y", self.factors, 2), ("bias", of_sums, 1), ("out", self.out, 2)];
        let args = args.map(|(name, dtype, rank)| (name.to_string(), ArgType::array(dtype, rank)));
        let compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3)
            .unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
        let plan = device.plan.as_deref().unwrap_or_default();
        assert!(plan.contains(&format!("  split {}\n", self.blocks)), "{plan}{:?}", device.remark());
        assert_eq!(plan.contains(&format!("  among {}\n", self.clusters)), self.clusters > 1, "{plan}");
        (compiled, device)
    }

    fn data(&self, [m, n, k]: [i64; 3]) -> Vec<Data> {
        let numbers = |dtype: DType, sizes: &[i64], seed: usize| match FloatFormat::of(dtype) {
            Some(format) => {
                let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9) as f64 / 4.0 - 1.0;
                Data::codes(dtype, sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Saturate))
            }
            None => Data::codes(dtype, sizes, |i| ((i * 7 + i / 13 + seed) % 9) as u64),
        };
        let of_sums = if self.factors.is_float() { DType::F32 } else { DType::I32 };
        vec![
            numbers(self.factors, &[m, k], 1),
            numbers(self.factors, &[n, k], 2),
            numbers(of_sums, &[n], 3),
            numbers(self.out, &[m, n], 4),
        ]
    }

    fn grid(&self, [m, n, _]: [i64; 3]) -> [u32; 3] {
        let count = |extent: i64, tile: i64| extent.unsigned_abs().div_ceil(tile.unsigned_abs()) as u32;
        [count(m, self.tile[0]), count(n, self.tile[1]), 1]
    }

    /// Lock-step and the emulator have what the CPU executor has.
    fn agrees(&self, sizes: [i64; 3]) {
        let ((compiled, device), grid, data) = (self.compiled(), self.grid(sizes), self.data(sizes));
        let mut wanted = data.clone();
        on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
        let told = |how: &str, why: String| panic!("{sizes:?} by {} blocks, {how}: {why}\n{}", self.blocks, self.source);
        let mut stepped = data.clone();
        lockstep_of(&device.tile, grid, &mut stepped).unwrap_or_else(|error| told("in lock-step", error));
        same(&wanted[3], &stepped[3], 0.0).unwrap_or_else(|error| told("in lock-step", error));
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let mut emulated = data.clone();
            run_under(schedule, &device.kernel, grid, &mut emulated)
                .unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
            same(&wanted[3], &emulated[3], 0.0).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
        }
    }
}

/// Clusters that share a tile: rounds for some of their blocks alone, parts of few columns, other types, and what stands behind the loop done by
/// whoever comes last.
#[test]
fn clusters_share_tiles() {
    Case::among(16, [64, 64, 32], 8, F16, STORED).agrees([64, 64, 1000]);
    for (clusters, blocks) in [(2, 2), (3, 4), (5, 2)] {
        let case = Case::among(clusters, [64, 64, 32], blocks, F16, STORED);
        for sizes in [[64, 64, 1000], [130, 72, 72], [72, 24, 8]] {
            case.agrees(sizes);
        }
    }
    Case::among(3, [64, 16, 64], 4, F16, STORED).agrees([72, 24, 648]);
    Case::among(2, [128, 48, 32], 4, F16, STORED).agrees([136, 56, 328]);
    Case::among(2, [64, 64, 64], 2, [DType::I8, DType::I32], STORED).agrees([72, 136, 608]);
    let behind = "ct.store(out, (i, j), ct.maximum(acc + ct.load(bias, (j,), (64,)), 0.5))";
    Case::among(3, [64, 64, 32], 8, F16, behind).agrees([128, 128, 400]);
}

/// Parts that are added up before a cluster has left its own.
#[test]
fn clusters_are_counted() {
    let (case, sizes) = (Case::among(2, [64, 64, 32], 2, F16, STORED), [64, 64, 256]);
    let (_, device) = case.compiled();
    let mut module = device.tile.clone();
    let func = &mut module.funcs[0];
    for op in func.linked_ops() {
        if let OpKind::Schedule(ScheduleOp::AtomicRmwTko { order, .. }) = &mut func.ops[op].kind {
            *order = MemoryOrder::Relaxed;
        }
    }
    let kernel = lower(&module, &module.funcs[0], Arch::Sm90a).expect("it is lowered");
    let found = [Schedule::Eager, Schedule::Lazy, Schedule::Random]
        .into_iter()
        .any(|schedule| run_under(schedule, &kernel, case.grid(sizes), &mut case.data(sizes)).is_err());
    assert!(found, "nobody sees that counting orders nothing");
}

const F16: [DType; 2] = [DType::F16, DType::F32];

/// Rounds that divide among the blocks and ones that do not, fewer than blocks, and one; tiles beyond the edges.
#[test]
fn any_number_of_rounds_and_blocks() {
    for blocks in [2, 4, 8] {
        let case = Case::new([64, 64, 32], blocks, F16, STORED);
        for sizes in [[64, 64, 1000], [130, 40, 72], [70, 200, 512], [72, 24, 8]] {
            case.agrees(sizes);
        }
    }
}

/// Few columns have fewer parts than there are blocks, odd numbers of them too, and sums of three warpgroups lie in twelve warps.
#[test]
fn parts_of_any_columns() {
    for tile in [[64, 8, 64], [64, 16, 64], [128, 48, 32], [64, 96, 32], [192, 64, 32], [128, 256, 64]] {
        Case::new(tile, 4, F16, STORED).agrees([tile[0] + 8, tile[1] + 8, 328]);
    }
}

#[test]
fn factors_and_results_of_other_types() {
    for types in [
        [DType::BF16, DType::BF16],
        [DType::F8E4M3, DType::F32],
        [DType::F8E4M3, DType::F16],
        [DType::I8, DType::I32],
        [DType::TF32, DType::F32],
    ] {
        let depth = 64 * 16 / i64::from(types[0].bits());
        Case::new([64, 64, depth], 4, types, STORED).agrees([72, 136, 9 * depth + 16]);
    }
}

/// What stands behind the loop is done for a part: a bias along the columns, a result that is turned, one that adds to what is there, a mask.
#[test]
fn results_of_parts() {
    let turned = "ct.store(out, (j, i), ct.transpose(acc))";
    let case = Case::new([64, 64, 32], 4, F16, turned);
    case.agrees([128, 128, 200]);
    for behind in [
        "ct.store(out, (i, j), ct.maximum(acc + ct.load(bias, (j,), (64,)), 0.5))",
        "ct.store(out, (i, j), acc * 0.5 + ct.load(out, (i, j), (64, 64)))",
        "ct.store(out, (i, j), ct.where(ct.arange(64, dtype=ct.int32) < 37, acc, 0.0))",
        "ct.store(out, (i, j), acc + ct.sum(acc, axis=0, keepdims=True))",
    ] {
        Case::new([64, 64, 32], 8, F16, behind).agrees([128, 128, 200]);
    }
    let lines = "ct.store(out, (i, j), acc - ct.max(acc, axis=1, keepdims=True))";
    Case::new([64, 8, 64], 2, F16, lines).agrees([128, 16, 200]);
}

/// Barriers that nobody has readied before sums are sent.
#[test]
fn the_arrival_is_needed() {
    let (case, sizes) = (Case::new([64, 64, 32], 2, F16, STORED), [64, 64, 256]);
    let (_, device) = case.compiled();
    let mut module = device.tile.clone();
    let func = &mut module.funcs[0];
    let is_arrival = |op: &Op, func: &Func| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::ClusterArrive {}));
    let (ops, before) = (func.blocks[func.body].ops.clone(), func.blocks[func.body].ops.len());
    func.blocks[func.body].ops = ops.into_iter().filter(|op| !is_arrival(op, func)).collect();
    assert_eq!(before - func.blocks[func.body].ops.len(), 1);
    let kernel = lower(&module, &module.funcs[0], Arch::Sm90a).expect("it is lowered");
    let found = run_under(Schedule::Lazy, &kernel, case.grid(sizes), &mut case.data(sizes));
    assert!(found.is_err(), "nobody sees that there are no barriers");
}

/// The library's largest tiles spill nothing, and nobody uses memory of the launch.
#[test]
fn split_products_assemble() {
    for (tile, blocks) in [([128, 256, 64], 2), ([128, 256, 64], 8), ([64, 256, 64], 4), ([256, 128, 64], 8), ([192, 128, 64], 2)]
    {
        for types in [[DType::BF16, DType::BF16], [DType::BF16, DType::F32]] {
            let (_, device) = Case::new(tile, blocks, types, STORED).compiled();
            let ptx = device.kernel.ptx();
            assert!(!ptx.contains("workspace") && ptx.contains("st.async.weak.shared::cluster"), "{ptx}");
            let releases = ptx.lines().filter(|line| line.contains("barrier.cluster.arrive") && !line.contains(".relaxed"));
            assert_eq!(releases.count(), 0, "an arrival that is a fence of the device: {ptx}");
            assembled(&device.kernel);
        }
    }
}
