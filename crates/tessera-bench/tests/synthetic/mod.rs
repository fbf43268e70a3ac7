//! Results of an imagined machine: two cores, 50 GB/s to memory, 500 GFLOP/s in f32; deterministic.

use std::collections::BTreeMap;

use tessera_bench::stats::{PairedRatio, Summary, TimedBlock};
use tessera_bench::{
    Accelerator, BlockRecord, Bound, CaseKey, CaseRecord, Ceilings, CheckResult, EndRecord, Environment, FlopClass, GateRecord,
    GateReport, Metric, Mode, Phase, Random, Rate, Real, Record, Results, SCHEMA, SessionRecord, Size, Status, SummaryRecord,
    Tool, Versus, Work, Worst, between_processes,
};

/// How a file differs from the standard one.
#[derive(Clone, Copy)]
pub(crate) struct Variation {
    /// Seed of the noise.
    pub(crate) seed: u64,
    /// Factor on the times of one operator.
    pub(crate) slower: Option<(&'static str, f64)>,
    /// Operator whose rows are wrong.
    pub(crate) wrong: Option<&'static str>,
    /// Factor on every ceiling and every time: another clock.
    pub(crate) machine: f64,
    /// Further operators, twelve rows each.
    pub(crate) kernels: usize,
    /// The outcome of every row, none of which is timed.
    pub(crate) all: Option<Status>,
    /// Whether kernels ran on a device of their own.
    pub(crate) on_gpu: bool,
}

pub(crate) const PLAIN: Variation =
    Variation { seed: 1, slower: None, wrong: None, machine: 1.0, kernels: 0, all: None, on_gpu: false };

fn rate(footprint_bytes: u64, best: f64, how: &str) -> Rate {
    Rate { footprint_bytes, best, median: 0.97 * best, ci95: Some([0.95 * best, best].into()), n: 7, how: how.into() }
}

fn ceilings(machine: f64) -> Ceilings {
    let curve = |top: f64| {
        [(15, 1.0), (17, 1.05), (19, 1.0), (21, 0.7), (23, 0.5), (26, 0.12)]
            .map(|(log, share)| rate(1 << log, top * share / machine, "memcpy"))
            .to_vec()
    };
    Ceilings {
        threads: 2,
        copy: curve(400e9),
        read: curve(380e9),
        compute: [(FlopClass::F64, 250e9), (FlopClass::F32, 500e9), (FlopClass::Bf16, 920e9), (FlopClass::I8, 1980e9)]
            .map(|(class, best)| (class, rate(0, best / machine, "vector")))
            .to_vec(),
    }
}

fn session(planned: usize, seed: u64, on_gpu: bool) -> SessionRecord {
    let environment = Environment {
        cpu: "Example 9000 <64-core>".into(),
        threads: 2,
        processors: 2,
        caches: vec!["L1 48K".into(), "L2 1024K".into(), "L3 32768K".into()],
        last_level_bytes: 32 << 20,
        features: vec!["avx2".into(), "avx512f".into()],
        memory_bytes: 24 << 30,
        os: "linux x86_64".into(),
        kernel: Some("6.1.0".into()),
        governor: None,
        load: Some(0.31),
        virtual_machine: true,
    };
    SessionRecord {
        schema: SCHEMA.into(),
        id: format!("{seed:016x}"),
        start: "2026-11-21T02:00:00Z".into(),
        tool: Tool { version: "0.1.0".into(), git: Some("abc1234".into()), rustc: None },
        suite: "quick".into(),
        suite_hash: "0123456789abcdef".into(),
        seed: 7,
        order: Some(seed),
        process: 0,
        mode: Mode::Quick,
        device: "cpu".into(),
        argv: vec!["tessera".into(), "bench".into()],
        knobs: BTreeMap::from([("threads".to_string(), "2".to_string())]),
        fingerprint: environment.fingerprint(),
        environment,
        accelerator: on_gpu.then(Accelerator::default),
        tick_ns: 20.0,
        floor_ns: 900.0,
        planned,
    }
}

struct Spec {
    operator: String,
    variant: &'static str,
    precision: &'static str,
    size: Size,
    work: Work,
    share: f64,
}

fn specs(kernels: usize) -> Vec<Spec> {
    let mut specs = Vec::new();
    let precisions = [("f32", 4, FlopClass::F32, 0.8), ("f16", 2, FlopClass::F32, 0.6), ("bf16", 2, FlopClass::Bf16, 0.4)];
    for (precision, bytes, class, share) in precisions {
        for n in [64u64, 128, 256, 512] {
            specs.push(Spec {
                operator: "gemm".into(),
                variant: "",
                precision,
                size: Size::new([("m", n), ("n", n), ("k", n)]),
                work: work(2 * n * n * bytes, n * n * bytes, 2 * n * n * n, class, Metric::Compute),
                share: share * (0.4 + 0.6 * (n as f64 / 512.0).sqrt()),
            });
        }
        for (operator, variant, share) in
            [("softmax", "", 0.55), ("softmax", "causal", 0.45), ("layer_norm", "", 0.6), ("rms_norm", "", 0.7)]
        {
            for n in [256u64, 512, 1024] {
                specs.push(Spec {
                    operator: operator.into(),
                    variant,
                    precision,
                    size: Size::new([("rows", n), ("columns", n)]),
                    work: work(n * n * bytes, n * n * bytes, 5 * n * n, FlopClass::F32, Metric::Bandwidth),
                    share: share * if bytes == 4 { 1.0 } else { 0.7 },
                });
            }
        }
    }
    for (operator, variant, reads, share) in
        [("copy", "sequential", 1, 0.95), ("triad", "sequential", 2, 0.9), ("copy", "random", 1, 0.2), ("dot", "", 2, 0.85)]
    {
        for n in [1u64 << 14, 1 << 17, 1 << 20] {
            let writes = u64::from(operator != "dot");
            specs.push(Spec {
                operator: operator.into(),
                variant,
                precision: "f32",
                size: Size::new([("n", n)]),
                work: work(
                    4 * n * reads,
                    4 * n * writes + 4,
                    if operator == "copy" { 0 } else { 2 * n },
                    FlopClass::F32,
                    Metric::Bandwidth,
                ),
                share,
            });
        }
    }
    for kernel in 0..kernels {
        for (precision, bytes, class, _) in precisions {
            for n in [1u64 << 12, 1 << 16, 1 << 20, 1 << 24] {
                specs.push(Spec {
                    operator: format!("kernel_number_{kernel:04}"),
                    variant: "",
                    precision,
                    size: Size::new([("n", n)]),
                    work: work(bytes * n, bytes * n, n, class, Metric::Bandwidth),
                    share: 0.1 + 0.85 * ((kernel * 37 % 100) as f64 / 100.0),
                });
            }
        }
    }
    specs
}

fn work(read_bytes: u64, write_bytes: u64, flops: u64, class: FlopClass, metric: Metric) -> Work {
    Work {
        read_bytes,
        write_bytes,
        flops,
        class: Some(class),
        metric,
        tensor_bytes: read_bytes + write_bytes,
        formula: "inputs and outputs once".into(),
    }
}

/// What the gate says of a case whose worst element is at a ratio of its bound.
fn gate(case: String, implementation: String, wrong: bool, ratio: f64) -> GateRecord {
    GateRecord {
        case,
        implementation,
        report: GateReport {
            status: if wrong { Status::Incorrect } else { Status::Ok },
            reason: wrong.then(|| "12 elements are outside the bound".into()),
            checks: vec![CheckResult { name: "tolerance".into(), ok: !wrong, detail: None }],
            worst: Some(Worst {
                output: "y".into(),
                row: 3,
                column: 4,
                got: Real(1.0),
                want: Real(1.0),
                bound: Real(1e-6),
                ratio: Real(ratio),
            }),
            bias: Some(0.01),
            elements: 4096,
            failed: if wrong { 12 } else { 0 },
            seeds: vec![7, 8],
            output_digest: u64::MAX - 5,
            phases: vec![Phase { name: "inputs".into(), ns: 2e6 }],
        },
    }
}

/// The records of a file.
pub(crate) fn records(variation: Variation) -> Vec<Record> {
    let mut random = Random::new(variation.seed);
    let specs = specs(variation.kernels);
    let standard = ceilings(1.0);
    let mut records = vec![
        Record::Session(Box::new(session(specs.len(), variation.seed, variation.on_gpu))),
        Record::Ceilings(ceilings(variation.machine)),
    ];
    let mut by_status: BTreeMap<Status, usize> = BTreeMap::new();
    let planned = specs.len();
    for (index, spec) in specs.into_iter().enumerate() {
        let key = CaseKey {
            operator: spec.operator.clone(),
            size: spec.size,
            precision: spec.precision.into(),
            variant: spec.variant.into(),
            distribution: "normal01".into(),
        };
        let least = standard.attainable(&spec.work, 900.0).unwrap();
        let factor = variation.slower.filter(|(o, _)| *o == spec.operator.as_str()).map_or(1.0, |(_, f)| f) * variation.machine;
        let median = least.ns / spec.share * factor;
        let wide = index == 1;
        let blocks: Vec<TimedBlock> = (0..16)
            .map(|i| TimedBlock {
                start_ns: f64::from(i) * 1e7,
                samples_ns: (0..10)
                    .map(|_| median * (1.0 + if wide { 0.2 } else { 0.008 } * (random.unit() + random.unit() - 1.0)))
                    .collect(),
                device: None,
                place: i as usize / 4,
                process: 0,
            })
            .collect();
        let wrong = variation.wrong == Some(spec.operator.as_str());
        let status = if let Some(status) = variation.all {
            status
        } else if wrong {
            Status::Incorrect
        } else if wide {
            Status::NotConverged
        } else {
            Status::Ok
        };
        *by_status.entry(status).or_default() += 1;
        let (case, implementation) = (key.id(), "tessera".to_string());
        records.push(Record::Case(Box::new(CaseRecord {
            case: case.clone(),
            implementation: implementation.clone(),
            key,
            work: spec.work.clone(),
            config: String::new(),
            phases: [("parse", 2.1e5), ("lower", 4e5), ("optimise", 1.3e6)].map(|(n, ns)| Phase { name: n.into(), ns }).to_vec(),
        })));
        let ratio = if wrong { 51.2 } else { 10f64.powf(-2.5 * random.unit()) };
        records.push(Record::Gate(Box::new(gate(case.clone(), implementation.clone(), wrong, ratio))));
        let timed = !wrong && variation.all.is_none();
        for (i, block) in blocks.iter().enumerate().filter(|_| variation.kernels == 0 && variation.all.is_none()) {
            records.push(Record::Block(BlockRecord {
                case: case.clone(),
                implementation: implementation.clone(),
                i,
                start_ns: block.start_ns,
                samples_ns: block.samples_ns.clone(),
                device: None,
                place: block.place,
                process: 0,
            }));
        }
        let times = timed.then(|| Summary::of(&blocks, 20.0, &|ns| between_processes(false, ns)).unwrap());
        let per_second = |amount: u64| times.as_ref().map(|t| amount as f64 / t.median_ns * 1e9);
        let versus = (spec.operator == "gemm" && status == Status::Ok).then(|| Versus {
            baseline: "numpy".into(),
            ratio: PairedRatio {
                ratio: 1.3 - 0.4 * spec.share,
                ci95: Some([1.27 - 0.4 * spec.share, 1.33 - 0.4 * spec.share].into()),
                pairs: 16,
            },
        });
        records.push(Record::Summary(Box::new(SummaryRecord {
            case,
            implementation,
            status,
            reason: match status {
                Status::Incorrect => Some("12 elements are outside the bound, the worst is `y`[3, 4]: got 1, want 2".into()),
                Status::NotConverged => Some("the 99 % interval is +-6.0 % after 16 blocks".into()),
                Status::Ok | Status::Checked => None,
                _ => Some(format!("needs {index}.5 GiB</noscript><td>, `a|b` says \"no\"")),
            },
            flags: Vec::new(),
            batch: Some(4),
            first_launch_ns: Some(2.0 * median),
            bytes_s: per_second(spec.work.min_bytes()),
            bus_bytes_s: None,
            flops_s: per_second(spec.work.flops),
            efficiency: times.as_ref().map(|t| least.ns * variation.machine / t.median_ns),
            bound: times.is_some().then_some(least.bound).or(None::<Bound>),
            versus,
            times,
        })));
    }
    records.push(Record::End(EndRecord { planned, run: planned, by_status, reason: None }));
    records
}

/// The file as text.
pub(crate) fn text(variation: Variation) -> String {
    records(variation).iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect()
}

/// The file as read back.
pub(crate) fn results(variation: Variation) -> Results {
    Results::parse(text(variation).as_bytes()).unwrap()
}
