//! The kernels over peers' memory on emulated devices: right under many schedules, without a race, and broken ones are found.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, FindingKind, LaunchOptions, Module, Queued, Report, Sanitize, Schedule, run_together};
use tessera_ir::{ImageCode, ParamKind};
use tessera_launch::LaunchGrid;
use tessera_runtime::ranks::nvlink::{Algorithm, Combining, Form, Layout, Numbers, SOURCE, THREADS, Variant};
use tessera_runtime::{CompileOptions, Device, Later, Value};
use tessera_types::{DType, element};

/// Sets that hold what the tests send.
const LAYOUT: Layout = Layout { lines_bytes: 1 << 15, set_bytes: 1 << 16 };
/// Looks at a flag that no schedule of these tests exhausts while a rank is on its way.
const POLLS: u32 = 1 << 24;

/// Devices with a region each, and what they send.
struct Node {
    devices: Vec<Emulator>,
    regions: Vec<DevicePtr>,
    tables: Vec<DevicePtr>,
    polls: u32,
}

impl Node {
    fn new(ranks: usize) -> Node {
        let options = EmuOptions { multiprocessors: Some(4), ..EmuOptions::default() };
        let devices = Emulator::group(&options, ranks as u32).expect("devices");
        let regions: Vec<DevicePtr> = devices.iter().map(|device| zeros(device, LAYOUT.bytes())).collect();
        let words: Vec<u8> = regions.iter().flat_map(|region| region.0.to_le_bytes()).collect();
        let tables = devices.iter().map(|device| filled(device, &words)).collect();
        for device in &devices {
            (0..ranks as u32).filter(|other| *other != device.ordinal()).for_each(|other| assert!(device.let_in(other)));
        }
        Node { devices, regions, tables, polls: POLLS }
    }

    fn numbers(&self, rank: usize, (source, result): (DevicePtr, DevicePtr), elements: usize) -> Numbers {
        Numbers {
            source: source.0,
            result: result.0,
            table: self.tables[rank].0,
            region: self.regions[rank].0,
            elements: elements as u64,
            layout: LAYOUT,
            rank,
            polls: self.polls,
        }
    }

    fn status(&self, rank: usize) -> i32 {
        let mut word = [0; 4];
        self.devices[rank].read(self.regions[rank], &mut word).expect("the status");
        i32::from_le_bytes(word)
    }
}

fn zeros(device: &Emulator, bytes: u64) -> DevicePtr {
    filled(device, &vec![0; bytes as usize])
}

fn filled(device: &Emulator, bytes: &[u8]) -> DevicePtr {
    let at = device.alloc(bytes.len().max(1) as u64).expect("memory");
    device.write(at, bytes).expect("a write");
    at
}

/// A kernel as the emulator takes it.
struct Compiled {
    variant: Variant,
    ptx: String,
    entry: String,
    shared_bytes: u32,
}

impl Compiled {
    fn new(variant: Variant, source: &str) -> Compiled {
        let numbers = Numbers { source: 16, result: 16, table: 16, region: 16, elements: 1, layout: LAYOUT, rank: 0, polls: 1 };
        let kernel = variant.kernel(source).unwrap_or_else(|error| panic!("{error}"));
        let device = Device::emulator().expect("the emulator");
        let device = device.driver().expect("a driver's device");
        let options = CompileOptions { block: Some(THREADS), ..CompileOptions::default() };
        let often = kernel
            .prepare_often(&variant.arguments(&numbers), (LaunchGrid::Blocks([1; 3]), Later::Any), &options, device)
            .unwrap_or_else(|error| panic!("{error}"));
        let image = often.prepared.launch().kernel().image();
        let ImageCode::Ptx(ptx) = &image.code else { panic!("the emulator runs PTX") };
        Compiled { variant, ptx: ptx.clone(), entry: image.entry.clone(), shared_bytes: image.launch.shared_bytes }
    }

    fn params(&self, numbers: &Numbers) -> Params {
        let args = self.variant.arguments(numbers);
        args.iter()
            .filter_map(|(name, value)| match value {
                Value::Int(number) => Some((*name, *number)),
                _ => None,
            })
            .filter(|(name, _)| !["ranks", "width", "packed", "align"].contains(name))
            .fold(Params::new(), |params, (name, number)| match name {
                "rank" | "polls" => params.i32(number as i32),
                _ => params.i64(number),
            })
    }
}

/// What each rank gives: small integers, so that sums are exact in any order.
fn given(dtype: DType, rank: usize, elements: usize) -> Vec<f64> {
    let most = if dtype == DType::I32 { 1000 } else { 9 };
    (0..elements).map(|at| ((at * 7 + rank * 13 + at / 11) % most) as f64 - (most / 2) as f64).collect()
}

fn encoded(dtype: DType, values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&value| match dtype {
            DType::I32 => (value as i32).to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F16 => element::f64_to_f16(value).to_le_bytes().to_vec(),
            DType::BF16 => element::f64_to_bf16(value).to_le_bytes().to_vec(),
            other => panic!("no kernel takes {other}"),
        })
        .collect()
}

fn combined(combine: Combining, all: &[Vec<f64>]) -> Vec<f64> {
    (0..all[0].len())
        .map(|at| {
            let values = all.iter().map(|values| values[at]);
            match combine {
                Combining::Sum => values.sum(),
                Combining::Max => values.fold(f64::MIN, f64::max),
                Combining::Min => values.fold(f64::MAX, f64::min),
            }
        })
        .collect()
}

/// Calls of one kernel by all ranks, one behind the other; each with other data.
struct Calls<'a> {
    compiled: &'a Compiled,
    elements: usize,
    blocks: u32,
    times: usize,
    /// Ranks that take part.
    present: Vec<usize>,
}

struct Outcome {
    report: Report,
    /// The first call and rank whose result is wrong.
    wrong: Option<(usize, usize)>,
}

fn run(node: &Node, calls: &Calls<'_>, options: &LaunchOptions) -> Outcome {
    let Calls { compiled, elements, blocks, times, ref present } = *calls;
    let (variant, ranks) = (compiled.variant, node.devices.len());
    let size = variant.dtype.unpacked_bytes();
    let (source_len, result_len) = match variant.algorithm {
        Algorithm::ReduceScatter => (ranks * elements, elements),
        Algorithm::AllGather => (elements, ranks * elements),
        _ => (elements, elements),
    };
    let modules: Vec<Module> = node.devices.iter().map(|device| device.load(&compiled.ptx).expect("a module")).collect();
    let mut results = vec![Vec::new(); ranks];
    let mut params = vec![Vec::new(); ranks];
    for time in 0..times {
        for rank in 0..ranks {
            let device = &node.devices[rank];
            let values = given(variant.dtype, rank + 31 * time, source_len);
            let source = filled(device, &encoded(variant.dtype, &values));
            let result = filled(device, &vec![0x55; result_len * size]);
            results[rank].push(result);
            params[rank].push(compiled.params(&node.numbers(rank, (source, result), elements)));
        }
    }
    let streams: Vec<(&Emulator, Vec<Queued<'_>>)> = present
        .iter()
        .map(|&rank| {
            let queue = params[rank].iter().map(|args| Queued {
                module: &modules[rank],
                kernel: &compiled.entry,
                grid: Dim3::new(blocks, 1, 1),
                block: Dim3::new(THREADS, 1, 1),
                args,
            });
            (&node.devices[rank], queue.collect())
        })
        .collect();
    let options = LaunchOptions { shared_bytes: compiled.shared_bytes, ..options.clone() };
    let report = run_together(&streams, &options).unwrap_or_else(|error| panic!("{:?}: {error}", variant));
    let mut wrong = None;
    for time in 0..times {
        let all: Vec<Vec<f64>> = (0..ranks).map(|rank| given(variant.dtype, rank + 31 * time, source_len)).collect();
        for &rank in present {
            let expected = match variant.algorithm {
                Algorithm::ReduceScatter => combined(variant.combine, &all)[rank * elements..(rank + 1) * elements].to_vec(),
                Algorithm::AllGather => all.concat(),
                _ => combined(variant.combine, &all),
            };
            let mut found = vec![0; result_len * size];
            let result = results[rank].get(time).copied().expect("a result each time");
            node.devices[rank].read(result, &mut found).expect("a read");
            if found != encoded(variant.dtype, &expected) {
                wrong.get_or_insert((time, rank));
            }
        }
    }
    Outcome { report, wrong }
}

fn schedules() -> Vec<LaunchOptions> {
    let checked = LaunchOptions { sanitize: Sanitize { races: true, ..Sanitize::NONE }, ..LaunchOptions::default() };
    let with = |schedule, seed| LaunchOptions { schedule, seed, ..checked.clone() };
    vec![with(Schedule::Eager, 0), with(Schedule::Lazy, 0), with(Schedule::Random, 1), with(Schedule::Random, 2)]
}

fn variant(algorithm: Algorithm, dtype: DType, combine: Combining, ranks: usize, form: Form) -> Variant {
    Variant { algorithm, dtype, combine, ranks, form }
}

fn holds(variant: Variant, elements: usize, blocks: u32) {
    let compiled = Compiled::new(variant, SOURCE);
    for options in schedules() {
        let node = Node::new(variant.ranks);
        let calls = Calls { compiled: &compiled, elements, blocks, times: 3, present: (0..variant.ranks).collect() };
        let outcome = run(&node, &calls, &options);
        let about = format!("{variant:?}, {elements} elements, {:?} {}", options.schedule, options.seed);
        assert!(outcome.report.findings.is_empty(), "{about}: {}", outcome.report.findings[0]);
        assert_eq!(outcome.wrong, None, "{about}");
        (0..variant.ranks).for_each(|rank| assert_eq!(node.status(rank), 0, "{about}"));
    }
}

fn is_right_on_2_3_4_and_8_ranks(algorithm: Algorithm) {
    for ranks in [2, 3, 4, 8] {
        holds(variant(algorithm, DType::BF16, Combining::Sum, ranks, Form::Whole), 8 * 70, 2);
    }
}

#[test]
fn small_all_reduce_is_right() {
    is_right_on_2_3_4_and_8_ranks(Algorithm::SmallAllReduce);
}

#[test]
fn one_shot_all_reduce_is_right() {
    is_right_on_2_3_4_and_8_ranks(Algorithm::OneShotAllReduce);
}

#[test]
fn two_shot_all_reduce_is_right() {
    is_right_on_2_3_4_and_8_ranks(Algorithm::TwoShotAllReduce);
}

#[test]
fn reduce_scatter_is_right() {
    is_right_on_2_3_4_and_8_ranks(Algorithm::ReduceScatter);
}

#[test]
fn all_gather_is_right() {
    is_right_on_2_3_4_and_8_ranks(Algorithm::AllGather);
}

#[test]
fn every_type_and_reduction_is_right() {
    for algorithm in Algorithm::ALL {
        for (dtype, combine) in [
            (DType::F32, Combining::Sum),
            (DType::F16, Combining::Max),
            (DType::I32, Combining::Sum),
            (DType::I32, Combining::Min),
            (DType::F16, Combining::Sum),
        ] {
            holds(variant(algorithm, dtype, combine, 2, Form::Whole), 8 * 9, 1);
        }
    }
}

#[test]
fn sizes_that_are_no_multiple_of_16_bytes_are_right() {
    for algorithm in Algorithm::ALL {
        let rows = matches!(algorithm, Algorithm::ReduceScatter | Algorithm::AllGather);
        let forms: &[Form] = if rows { &[Form::Odd] } else { &[Form::Tail, Form::Odd] };
        for &form in forms {
            for elements in [1, 7, 8 * 5 + 3] {
                holds(variant(algorithm, DType::BF16, Combining::Sum, 3, form), elements, 1);
            }
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    for algorithm in Algorithm::ALL {
        let variant = variant(algorithm, DType::F32, Combining::Sum, 3, Form::Whole);
        let compiled = Compiled::new(variant, SOURCE);
        // Longer than it takes a rank that comes.
        let node = Node { polls: 20_000, ..Node::new(3) };
        let calls = Calls { compiled: &compiled, elements: 16, blocks: 1, times: 2, present: vec![0, 2] };
        run(&node, &calls, &LaunchOptions::default());
        for rank in [0, 2] {
            assert_eq!(node.status(rank), 2, "{algorithm:?}: rank {rank} says who was missing");
        }
    }
}

/// A mutant: what is replaced, by what, and for which algorithm.
struct Mutant {
    what: &'static str,
    algorithm: Algorithm,
    old: &'static str,
    new: &'static str,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "a flag is stored relaxed",
        algorithm: Algorithm::OneShotAllReduce,
        old: "call, order=\"release\", scope=\"system\")",
        new: "call, order=\"relaxed\", scope=\"system\")",
    },
    Mutant {
        what: "a flag is released for its own device alone",
        algorithm: Algorithm::TwoShotAllReduce,
        old: "call, order=\"release\", scope=\"system\")",
        new: "call, order=\"release\", scope=\"device\")",
    },
    Mutant {
        what: "a flag is read relaxed",
        algorithm: Algorithm::AllGather,
        old: "order=\"acquire\", scope=\"system\") - call",
        new: "order=\"relaxed\", scope=\"system\") - call",
    },
    Mutant {
        what: "a flag is acquired for the own device alone",
        algorithm: Algorithm::ReduceScatter,
        old: "order=\"acquire\", scope=\"system\") - call",
        new: "order=\"acquire\", scope=\"device\") - call",
    },
    Mutant {
        what: "the last wait is left out",
        algorithm: Algorithm::TwoShotAllReduce,
        old: "        await_all(control, 1, ranks, call, polls)\n",
        new: "",
    },
    Mutant {
        what: "sets of data do not take turns",
        algorithm: Algorithm::AllGather,
        old: "tile.cast(call & 1, int64) * set_bytes",
        new: "tile.cast(call & 0, int64) * set_bytes",
    },
    Mutant {
        what: "sets of lines do not take turns",
        algorithm: Algorithm::SmallAllReduce,
        old: "(number & 1) * lines_bytes",
        new: "(number & 0) * lines_bytes",
    },
    Mutant {
        what: "lines are read as if nobody wrote them",
        algorithm: Algorithm::SmallAllReduce,
        old: "lines[r] = tile.load(own[r * words + w], order=\"relaxed\", scope=\"system\")",
        new: "lines[r] = own[r * words + w]",
    },
];

/// Whether one of some schedules shows a race, a wrong result, or a wait that has no end.
fn is_found(algorithm: Algorithm, source: &str, seeds: u64) -> bool {
    let compiled = Compiled::new(variant(algorithm, DType::F32, Combining::Sum, 3, Form::Whole), source);
    (0..seeds).any(|seed| {
        let sanitize = Sanitize { races: true, ..Sanitize::NONE };
        let options = LaunchOptions { schedule: Schedule::Random, seed, sanitize, ..LaunchOptions::default() };
        // More looks than a rank on its way needs under these schedules, and few enough for what never comes.
        let node = Node { polls: 60_000, ..Node::new(3) };
        let calls = Calls { compiled: &compiled, elements: 96, blocks: 1, times: 6, present: vec![0, 1, 2] };
        let outcome = run(&node, &calls, &options);
        let raced = outcome.report.findings.iter().any(|finding| finding.kind == FindingKind::Race);
        raced || outcome.wrong.is_some() || (0..3).any(|rank| node.status(rank) != 0)
    })
}

#[test]
fn mutants_are_found_and_nothing_else() {
    for algorithm in Algorithm::ALL {
        assert!(!is_found(algorithm, SOURCE, 3), "{algorithm:?}: found where nothing is broken");
    }
    for mutant in MUTANTS {
        assert!(SOURCE.contains(mutant.old), "{}: the text is not there", mutant.what);
        let source = SOURCE.replace(mutant.old, mutant.new);
        assert!(is_found(mutant.algorithm, &source, 12), "{}: nothing was found", mutant.what);
    }
}

#[test]
fn a_race_between_devices_names_both() {
    let source = SOURCE.replace("call, order=\"release\", scope=\"system\")", "call, order=\"release\", scope=\"device\")");
    let compiled = Compiled::new(variant(Algorithm::OneShotAllReduce, DType::F32, Combining::Sum, 2, Form::Whole), &source);
    let sanitize = Sanitize { races: true, ..Sanitize::NONE };
    let options = LaunchOptions { sanitize, ..LaunchOptions::default() };
    let calls = Calls { compiled: &compiled, elements: 64, blocks: 1, times: 1, present: vec![0, 1] };
    let outcome = run(&Node { polls: 2000, ..Node::new(2) }, &calls, &options);
    let races: Vec<String> = outcome.report.findings.iter().map(ToString::to_string).collect();
    let both = races.iter().any(|race| race.contains("device 0") && race.contains("device 1"));
    assert!(both, "{races:?}");
}

#[test]
fn memory_of_a_device_that_let_nobody_in_is_out_of_bounds() {
    let compiled = Compiled::new(variant(Algorithm::AllGather, DType::F32, Combining::Sum, 2, Form::Whole), SOURCE);
    let devices = Emulator::group(&EmuOptions::default(), 2).expect("devices");
    let regions: Vec<DevicePtr> = devices.iter().map(|device| zeros(device, LAYOUT.bytes())).collect();
    let words: Vec<u8> = regions.iter().flat_map(|region| region.0.to_le_bytes()).collect();
    let tables = devices.iter().map(|device| filled(device, &words)).collect();
    let node = Node { devices, regions, tables, polls: 10 };
    let module = node.devices[0].load(&compiled.ptx).expect("a module");
    let (source, result) = (zeros(&node.devices[0], 64), zeros(&node.devices[0], 128));
    let args = compiled.params(&node.numbers(0, (source, result), 16));
    let (grid, block) = (Dim3::ONE, Dim3::new(THREADS, 1, 1));
    let options = LaunchOptions { shared_bytes: compiled.shared_bytes, ..LaunchOptions::default() };
    let outcome = node.devices[0].launch(&module, &compiled.entry, grid, block, &args, &options);
    let message = outcome.expect_err("a fault").to_string();
    assert!(message.contains("device 0 has no access to its memory"), "{message}");
}

/// What the interface of a kernel looks like to whoever packs its parameters: numbers alone, in the order of [`Numbers`].
#[test]
fn kernels_take_numbers_alone() {
    for algorithm in Algorithm::ALL {
        let variant = variant(algorithm, DType::F32, Combining::Sum, 2, Form::Whole);
        let numbers = Numbers { source: 16, result: 16, table: 16, region: 16, elements: 1, layout: LAYOUT, rank: 0, polls: 1 };
        let kernel = variant.kernel(SOURCE).expect("a kernel");
        let types = kernel.argument_types(&variant.arguments(&numbers)).expect("types");
        let options = CompileOptions { block: Some(THREADS), target: Some("sm_90a".into()), ..CompileOptions::default() };
        let compiled = kernel.compile(&types, &options).unwrap_or_else(|error| panic!("{error}"));
        let scalar = |kind: &ParamKind| matches!(kind, ParamKind::Scalar { dtype: DType::I64 | DType::I32 });
        assert!(compiled.func().abi.params.iter().all(|param| scalar(&param.kind)), "{algorithm:?}");
    }
}
