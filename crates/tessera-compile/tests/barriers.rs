//! Barriers and waits are where they are needed, and nowhere else: passes over Tile IR keep what lock-step says, the emulator computes the same
//! without findings, and a kernel of the library in which any one barrier or wait is missing is found out.
//!
//! By default some dozens of random programs and two cases of each operator's kernels; `TESSERA_TEST_ALL` takes 600 programs and every kernel,
//! `TESSERA_BARRIERS=gemm` every kernel with `gemm` in its case's name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_compile::target::{TargetKernel, lower};
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_for, compile_module, generate};
use tessera_emu::{LaunchOptions, Sanitize, Schedule};
use tessera_ir::text::print_module;
use tessera_ir::{Const, Module, Op, OpKind, PassManager, ScheduleOp, SharedType, TileOp, Type, verify};
use tessera_lang::{ArgType, parse_file};
use tessera_ops::Fill;
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{ARCHS, Data, lockstep_of, run_with, same, tiled};
use crate::library::{self, Case, Given};
use crate::threads;

/// What the names of the library's cases must contain.
fn asked() -> String {
    std::env::var("TESSERA_BARRIERS").unwrap_or_default()
}

fn everything() -> bool {
    std::env::var_os("TESSERA_TEST_ALL").is_some() || !asked().is_empty()
}

/// Numbers below their bounds, the same for a seed.
fn chooser(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 20) % u64::from(below)) as u32
    }
}

/// The interleavings that a kernel is run under.
fn schedules() -> Vec<LaunchOptions> {
    let plain = LaunchOptions { sanitize: Sanitize::ALL, patience: 1 << 22, ..LaunchOptions::default() };
    let mut list: Vec<LaunchOptions> =
        [Schedule::Eager, Schedule::Lazy].into_iter().map(|schedule| LaunchOptions { schedule, ..plain.clone() }).collect();
    let seeds = if everything() { 1..6 } else { 1..2 };
    list.extend(seeds.map(|seed| LaunchOptions { schedule: Schedule::Random, seed, ..plain.clone() }));
    list
}

fn differs(a: &[Data], b: &[Data], tolerance: f64) -> Option<String> {
    a.iter().zip(b).enumerate().find_map(|(at, (a, b))| same(a, b, tolerance).err().map(|why| format!("argument {at}: {why}")))
}

/// Runs each pass alone on a Tile module; lock-step says the same after it. Then the kernel on the emulator.
fn keeps_meaning(mut module: Module, arch: Arch, grid: [u32; 3], data: &[Data]) -> Result<(), String> {
    let mut wanted = data.to_vec();
    lockstep_of(&module, grid, &mut wanted)?;
    for pass in OptLevel::O3.tile_passes() {
        let name = pass.name;
        let mut manager = PassManager { verify_each: true, target: Some(arch), ..PassManager::default() };
        manager.run(&mut module, &[pass]).map_err(|failure| {
            format!("{name}: {}\n{}", failure.diagnostics[0].render(&module.sources, false), print_module(&module))
        })?;
        let mut found = data.to_vec();
        lockstep_of(&module, grid, &mut found).map_err(|why| format!("after {name}: {why}"))?;
        if let Some(why) = differs(&wanted, &found, 0.0) {
            return Err(format!("after {name}, {why}\n{}", print_module(&module)));
        }
    }
    let compiled = Compiled {
        module,
        grid: None,
        level: OptLevel::O3,
        asked: Vec::new(),
        stages: Vec::new(),
        notes: Vec::new(),
        plan: None,
    };
    let device = compile_for(&compiled, arch, OptLevel::O2).map_err(|found| found[0].message.clone())?;
    for options in schedules() {
        let mut found = data.to_vec();
        let how = format!("{:?} {}", options.schedule, options.seed);
        run_with(options, &device.kernel, grid, &mut found)
            .map_err(|why| format!("{how}: {}\n{}", first_lines(&why, 8), print_module(&device.tile)))?;
        if let Some(why) = differs(&wanted, &found, 0.0) {
            return Err(format!("{how}, {why}\n{}", print_module(&device.tile)));
        }
    }
    Ok(())
}

fn first_lines(text: &str, count: usize) -> String {
    text.lines().take(count).collect::<Vec<_>>().join("\n")
}

#[test]
fn block_programs_keep_their_meaning() {
    let count = if everything() { 300 } else { 24 };
    let mut wrong = Vec::new();
    for seed in 0..count {
        let mut choose = chooser(seed + 1);
        let size = 5 + choose(70) as usize;
        let module = generate::program(size, &mut choose);
        let data = [
            Data::floats(DType::F32, &[21], 1),
            Data::ints(DType::I32, &[21], 2),
            Data::floats(DType::F32, &[21], 3),
            Data::ints(DType::I32, &[21], 4),
            Data::Scalar(1.5_f32.to_bits().to_le_bytes().to_vec()),
            Data::Scalar(3_i32.to_le_bytes().to_vec()),
        ];
        let compiled = compile_module(module, &[], &CompileOptions::default()).expect("a well-formed program");
        let arch = ARCHS[seed as usize % 2];
        let module = tiled(&compiled.module, arch).unwrap_or_else(|error| panic!("{error}"));
        if let Err(why) = keeps_meaning(module, arch, [1, 1, 1], &data) {
            wrong.push(format!("program {seed}: {why}"));
        }
    }
    println!("{count} block programs, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{} of {count} wrong:\n{}", wrong.len(), wrong[0]);
}

#[test]
fn programs_of_threads_keep_their_meaning() {
    let count = if everything() { 300 } else { 30 };
    let mut wrong = Vec::new();
    for seed in 0..count {
        let mut choose = chooser(1000 + seed);
        let size = 4 + choose(24) as usize;
        let module = threads::program(size, &mut choose);
        let found = verify(&module);
        assert!(found.is_empty(), "program {seed}: {}\n{}", found[0].message, print_module(&module));
        let arch = [Arch::Sm80, Arch::Sm90a][seed as usize % 2];
        let count = i64::from(threads::THREADS);
        let data = [
            Data::ints(DType::I32, &[count], seed),
            Data::zeros(DType::I32, &[count]),
            Data::Scalar(3_i32.to_le_bytes().to_vec()),
        ];
        if let Err(why) = keeps_meaning(module, arch, [1, 1, 1], &data) {
            wrong.push(format!("program {seed}: {why}"));
        }
    }
    println!("{count} programs of threads, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{} of {count} wrong:\n{}", wrong.len(), wrong[0]);
}

/// Two products of which the first is used while the second may still run.
const PRODUCTS: &str = r"
tile @products(%x: tile<ptr<bf16>>, %m: tile<i32>, %n: tile<i32>, %s: tile<i32>, %u: tile<i32>, %y: tile<ptr<f32>>, %o: tile<i32>, %p: tile<i32>, %q: tile<i32>, %r: tile<i32>) abi(x: array<bf16, [?, ?], [?, 1], i32, align=16, disjoint>, y: array<f32, [?, ?], [?, 1], i32, align=16, disjoint>) hints(num_warps=4) layouts(#0 = <reg=[1@1, 8@0, 8..32@1], lane=[2..4@1, 1..4@0], warp=[16..32@0]>, #1 = <reg=[1..4@1, 16..32@0], lane=[8..32@1, 1..2@0], warp=[4..8@0]>) {
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %xt = make_tensor_view %x, [%m, %n], [%s] : tensor_view<?x?xbf16, strides=[?,1]>
  %xv = make_partition_view %xt : partition_view<tile=(64x64), tensor_view<?x?xbf16, strides=[?,1]>>
  %yt = make_tensor_view %y, [%o, %p], [%q] : tensor_view<?x?xf32, strides=[?,1]>
  %yv = make_partition_view %yt : partition_view<tile=(64x64), tensor_view<?x?xf32, strides=[?,1]>>
  %acc = constant {value=f32(0.0)} : tile<64x64xf32, #0>
  %two = constant {value=f32(2.0)} : tile<64x64xf32, #0>
  %a = tile.alloc_shared {align=1024} : shared<64x64xbf16, swizzle=<3,4,3>>
  %b = tile.alloc_shared {align=1024} : shared<64x64xbf16, swizzle=<3,4,3>>
  %left, %t1 = load_view_tko %xv, [%zero, %zero] : tile<64x64xbf16, #1>, token
  %right, %t2 = load_view_tko %xv, [%one, %zero] : tile<64x64xbf16, #1>, token
  tile.store_shared %left, %a
  tile.store_shared %right, %b
  tile.fence_async
  %f = tile.wgmma %a, %b, %acc : inflight<64x64xf32, #0>
  %g = tile.wgmma %b, %a, %acc : inflight<64x64xf32, #0>
  %d = tile.wgmma_wait [%f] {pending=0} : tile<64x64xf32, #0>
  %w = mulf %two, %two : tile<64x64xf32, #0>
  %h = mulf %d, %w : tile<64x64xf32, #0>
  %i = tile.wgmma_wait [%g] {pending=0} : tile<64x64xf32, #0>
  %j = addf %h, %i : tile<64x64xf32, #0>
  tile.store_shared %right, %a
  %c = tile.load_shared %a : tile<64x64xbf16, #1>
  %k = store_view_tko %j, %yv, [%zero, %zero] : token
  return
}";

#[test]
fn products_left_in_flight_keep_their_meaning() {
    let module =
        tessera_ir::text::parse_module("products.tir", PRODUCTS).unwrap_or_else(|(_, error)| panic!("{}", error.message));
    let mut optimised = module.clone();
    let mut manager = PassManager { target: Some(Arch::Sm90a), ..PassManager::default() };
    manager
        .run(&mut optimised, &OptLevel::O3.tile_passes())
        .unwrap_or_else(|failure| panic!("{}", failure.diagnostics[0].message));
    assert!(print_module(&optimised).contains("[%f] {pending=1}"), "{}", print_module(&optimised));
    let data = [array(DType::BF16, &[128, 64], 1), Data::zeros(DType::F32, &[64, 64])];
    keeps_meaning(module, Arch::Sm90a, [1, 1, 1], &data).unwrap_or_else(|why| panic!("{why}"));
}

/// Barriers of a kernel's own between blocks that wait for each other: before one thread releases what all have done, and behind its acquire. The kernel,
/// threads of a block, its blocks, and what its arrays hold before and after.
type Handed = (&'static str, u32, u32, [Vec<i32>; 3], [Vec<i32>; 3]);

fn handed() -> [Handed; 2] {
    let numbers = |count: i32| (0..count).collect::<Vec<i32>>();
    let last = r#"
@tessera.kernel
def kernel(z: Tensor["N", int32], flag: Tensor["F", int32], y: Tensor["M", int32]):
    last = tile.alloc_shared[int32](1)
    t = tile.thread_id()
    z[tile.linear_id()] += 5
    tile.barrier()
    if t == 0:
        last[0] = tile.atomic_add(flag[0], 1, order="acq_rel")
    tile.barrier()
    if last[0] == tile.num_blocks() - 1:
        for i in range(t, z.shape[0], tile.block_size()):
            y[i] = z[z.shape[0] - 1 - i]
"#;
    let flag = r#"
@tessera.kernel
def kernel(z: Tensor["N", int32], flag: Tensor["F", int32], y: Tensor["M", int32]):
    t = tile.thread_id()
    if tile.block_id() == 0:
        z[t] += 5
        tile.barrier()
        if t == 0:
            tile.store(flag[0], 1, order="release")
    else:
        if t == 0:
            while tile.load(flag[0], order="acquire") == 0:
                pass
        tile.barrier()
        y[t] = z[z.shape[0] - 1 - t]
"#;
    let summed = |count: i32| (0..count).map(|i| i + 5).collect::<Vec<i32>>();
    let turned = |count: i32| (0..count).rev().map(|i| i + 5).collect::<Vec<i32>>();
    [
        (last, 96, 3, [numbers(288), vec![0], vec![0; 288]], [summed(288), vec![3], turned(288)]),
        (flag, 96, 2, [numbers(96), vec![0], vec![0; 96]], [summed(96), vec![1], turned(96)]),
    ]
}

#[test]
fn barriers_of_threads_hand_over_what_one_of_them_releases_and_acquires() {
    for (source, block, blocks, before, after) in handed() {
        let file = parse_file("kernel.py", source);
        let args: Vec<(String, ArgType)> =
            ["z", "flag", "y"].map(|name| (name.to_string(), ArgType::array(DType::I32, 1))).into();
        for level in OptLevel::ALL {
            let options = CompileOptions { block: Some(block), level, ..CompileOptions::default() };
            let compiled = compile(&file, "kernel", &args, &options)
                .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
            let device = compile_for(&compiled, Arch::Sm90a, level).unwrap_or_else(|found| panic!("{}", found[0].message));
            let data = |numbers: &Vec<i32>| Data::codes(DType::I32, &[numbers.len() as i64], |i| numbers[i] as u64);
            let wanted = after.each_ref().map(data);
            let plain = LaunchOptions { sanitize: Sanitize::ALL, ..LaunchOptions::default() };
            let random = (1..9).map(|seed| LaunchOptions { schedule: Schedule::Random, seed, ..plain.clone() });
            for options in schedules().into_iter().chain(random) {
                let how = format!("-{level}, {:?} {}", options.schedule, options.seed);
                let mut found = before.each_ref().map(data);
                run_with(options, &device.kernel, [blocks, 1, 1], &mut found).unwrap_or_else(|why| panic!("{how}: {why}"));
                assert_eq!(differs(&wanted, &found, 0.0), None, "{how}\n{}", device.kernel.ptx());
            }
        }
    }
}

// --- the library

/// The barriers and waits that a kernel could lack.
fn removable(module: &Module) -> Vec<Op> {
    let func = &module.funcs[0];
    let removable = |op: &Op| {
        matches!(
            func.ops[*op].kind,
            OpKind::Tile(
                TileOp::Barrier {}
                    | TileOp::NamedBarrier { .. }
                    | TileOp::WaitGroup { .. }
                    | TileOp::WgmmaWait { .. }
                    | TileOp::TmaStoreWait { .. }
                    | TileOp::Wait {}
            )
        )
    };
    func.linked_ops().into_iter().filter(removable).collect()
}

fn without(module: &Module, op: Op) -> Module {
    let mut module = module.clone();
    let func = &mut module.funcs[0];
    if let OpKind::Tile(TileOp::WgmmaWait { pending }) = &mut func.ops[op].kind {
        // Its values are needed; it waits for none of them.
        *pending = 7;
        return module;
    }
    for block in func.linked_blocks() {
        func.blocks[block].ops.retain(|&other| other != op);
    }
    module
}

/// What a case is launched with, in the order of the kernel's parameters.
fn data_of(case: &Case, compiled: &Compiled) -> Option<Vec<Data>> {
    let given = |name: &str| case.given.iter().find(|(known, _)| known == name).map(|(_, given)| given);
    let data = |(position, param): (usize, &tessera_ir::AbiParam)| match (given(&param.name)?, &param.kind) {
        (Given::Array(dtype, sizes), _) => Some(array(*dtype, sizes, position as u64)),
        (Given::Zeros(dtype, sizes), _) => Some(Data::codes(*dtype, sizes, |_| 0)),
        (Given::Bounds(dtype, sizes, rows), _) => {
            let groups = (sizes[0] as u64 - 1).max(1);
            Some(Data::codes(*dtype, sizes, |at| at as u64 * rows / groups))
        }
        (Given::Counts(dtype, sizes, [least, greatest]), _) => {
            let mut choose = chooser(position as u64 + 1);
            Some(Data::codes(*dtype, sizes, |_| (*least + i64::from(choose((greatest - least + 1) as u32))) as u64))
        }
        (Given::Pattern(sizes, fill), _) => {
            let indices = match fill {
                Fill::RowOffsets(pattern) => pattern.row_offsets(),
                Fill::Columns(pattern) => pattern.columns(),
                Fill::Rows(pattern) => pattern.rows(),
                Fill::Places => tessera_ops::places_of_fours(sizes.iter().product::<i64>() as usize),
                Fill::Distinct { below } => {
                    (0..sizes.iter().product::<i64>()).map(|at| (at % (*below as i64).max(1)) as _).collect()
                }
                _ => return None,
            };
            Some(Data::codes(DType::I32, sizes, |at| indices[at] as u64))
        }
        (Given::Number(number), tessera_ir::ParamKind::Scalar { dtype }) => Some(Data::Scalar(match dtype {
            DType::F32 => (*number as f32).to_le_bytes().to_vec(),
            dtype if dtype.is_integer() => (*number as i64).to_le_bytes()[..dtype.unpacked_bytes()].to_vec(),
            _ => return None,
        })),
        _ => None,
    };
    compiled.func().abi.params.iter().enumerate().map(data).collect()
}

fn array(dtype: DType, sizes: &[i64], seed: u64) -> Data {
    match FloatFormat::of(dtype) {
        Some(format) => {
            let mut choose = chooser(seed + 1);
            let number = move |_| f64::from(choose(65)) / 16.0 - 2.0;
            let mut number = number;
            Data::codes(dtype, sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Saturate))
        }
        None => Data::ints(dtype, sizes, seed),
    }
}

/// Whether a run finds anything, or gives other numbers.
fn is_found_out(kernel: &TargetKernel, grid: [u32; 3], data: &[Data], wanted: &[Data]) -> bool {
    schedules().into_iter().any(|options| {
        let mut found = data.to_vec();
        run_with(options, kernel, grid, &mut found).is_err() || differs(wanted, &found, 0.0).is_some()
    })
}

/// The kernel with a write that nobody may do in an operation's place.
fn trapped(module: &Module, op: Op) -> Module {
    let mut module = module.clone();
    let func = &mut module.funcs[0];
    let span = func.ops[op].span;
    let int = |func: &mut tessera_ir::Func, value: i64| {
        let kind = ScheduleOp::Constant { value: Const::int(DType::I32, value) };
        func.make_op(kind.into(), &[], [Type::scalar(DType::I32)], [], span)
    };
    let far = int(func, 1 << 26);
    let ty = Type::Shared(Box::new(SharedType::new(&[1][..], DType::I32)));
    let alloc = func.make_op(TileOp::AllocShared { align: 16, offset: Some(0) }.into(), &[], [ty], [], span);
    let (index, buffer) = (func.ops[far].result(), func.ops[alloc].result());
    let store = func.make_op(TileOp::StoreElement { relaxed: false }.into(), &[&[index], &[buffer], &[index]], [], [], span);
    let keeps = matches!(func.ops[op].kind, OpKind::Tile(TileOp::WgmmaWait { .. })).then_some(op);
    for block in func.linked_blocks() {
        let ops = &mut func.blocks[block].ops;
        if let Some(at) = ops.iter().position(|&other| other == op) {
            ops.splice(at..=at, [far, alloc, store].into_iter().chain(keeps));
        }
    }
    module
}

/// The library's kernels on problems that the emulator does quickly: of each kernel the smallest and the largest, or those of every precision.
fn library_cases() -> Vec<Case> {
    let work = |case: &Case| -> i64 {
        let elements = |given: &Given| match given {
            Given::Array(_, sizes)
            | Given::Zeros(_, sizes)
            | Given::Bounds(_, sizes, _)
            | Given::Counts(_, sizes, _)
            | Given::Pattern(sizes, _) => sizes.iter().product(),
            Given::Number(_) => 0,
        };
        case.given.iter().map(|(_, given)| elements(given)).sum::<i64>().max(1) * i64::from(case.grid.iter().product::<u32>())
    };
    let most = if everything() { 1 << 23 } else { 1 << 20 };
    let mut all = library::cases(Arch::Sm90a);
    all.retain(|case| work(case) < most);
    all.sort_by_key(work);
    let mut ends: BTreeMap<(&str, &str, &str), (usize, usize)> = BTreeMap::new();
    for (at, case) in all.iter().enumerate() {
        let precision = if everything() { case.policy } else { "" };
        ends.entry((case.operator, case.kernel, precision)).or_insert((at, at)).1 = at;
    }
    let mut taken: Vec<usize> = ends.into_values().flat_map(|(first, last)| [first, last]).collect();
    taken.sort_unstable();
    taken.dedup();
    let asked = asked();
    taken.into_iter().map(|at| all[at].clone()).filter(|case| case.name.contains(&asked)).collect()
}

/// Kernels that get no data here: places that an earlier launch leaves, without which they would go out of arrays.
const WITHOUT_DATA: [(&str, &str); 20] = [
    ("embedding.py", "count_tokens"),
    ("embedding.py", "embedding_backward"),
    ("embedding.py", "first_tokens"),
    ("embedding.py", "list_tokens"),
    ("moe.py", "before"),
    ("moe.py", "count"),
    ("moe.py", "places"),
    ("order.py", "merge"),
    ("order.py", "order"),
    ("order.py", "runs"),
    ("order.py", "select"),
    ("order.py", "select_again"),
    ("reduce.py", "arg_rows_parts"),
    ("sort.py", "count_digits"),
    ("sort.py", "move"),
    ("sparse.py", "in_order"),
    ("sparse.py", "offsets_of_rows"),
    ("sparse.py", "parts"),
    ("sparse.py", "spmm_join"),
    ("sparse.py", "spmm_merge"),
];

/// Barriers that no case, or none of a short run, shows to be needed: threads use what they have brought themselves, a loop before them has no
/// rounds, or only other blocks could tell. Which thread brings what is decided by layouts and by the lowering, behind the pass.
const OWN: [(&str, &str, Arch, usize); 49] = [
    // Each warp writes the 16 rows of Q, a head's, that its part of the first product reads.
    ("attention.py", "few_queries_split", Arch::Sm90a, 19),
    ("attention_decode.py", "attention_decode", Arch::Sm90a, 37),
    ("attention_decode.py", "attention_decode_alibi", Arch::Sm90a, 37),
    // Behind the tiles of keys that all queries see: in the short run's case there are none.
    ("attention.py", "few_queries", Arch::Sm80, 120),
    // Lines of the small cases begin anywhere: threads bring them, and nothing is on its way when they are read.
    ("gemm_grouped.py", "gemm_grouped", Arch::Sm80, 46),
    // Before a block looks at the next words, and before it counts itself as done. It waits for blocks of lower numbers, which the emulator runs
    // before it, and nobody writes the same words.
    ("scan.py", "scan", Arch::Sm80, 78),
    ("scan.py", "scan", Arch::Sm90a, 78),
    ("scan.py", "select", Arch::Sm80, 78),
    ("scan.py", "select", Arch::Sm90a, 78),
    ("scan.py", "to_csr", Arch::Sm80, 78),
    ("scan.py", "to_csr", Arch::Sm90a, 78),
    ("scan.py", "to_csr", Arch::Sm80, 144),
    ("scan.py", "to_csr", Arch::Sm90a, 144),
    // Before a block counts itself as done, and before the last one reads what all have left: the short run's cases are narrow, and those of 1025
    // columns, which the long run takes, show that both are needed.
    ("activations.py", "bias_gelu_backward", Arch::Sm80, 278),
    ("activations.py", "bias_gelu_backward", Arch::Sm90a, 278),
    ("activations.py", "bias_gelu_backward", Arch::Sm80, 283),
    ("activations.py", "bias_gelu_backward", Arch::Sm90a, 283),
    ("activations.py", "bias_relu_backward", Arch::Sm80, 278),
    ("activations.py", "bias_relu_backward", Arch::Sm90a, 278),
    ("activations.py", "bias_relu_backward", Arch::Sm80, 283),
    ("activations.py", "bias_relu_backward", Arch::Sm90a, 283),
    ("activations.py", "bias_silu_backward", Arch::Sm80, 278),
    ("activations.py", "bias_silu_backward", Arch::Sm90a, 278),
    ("activations.py", "bias_silu_backward", Arch::Sm80, 283),
    ("activations.py", "bias_silu_backward", Arch::Sm90a, 283),
    // Before a block counts itself as done. In these cases a few threads of its first warp at most write what it leaves, and one of them counts.
    ("channel_norm.py", "batch_statistics", Arch::Sm80, 255),
    ("channel_norm.py", "batch_statistics", Arch::Sm90a, 255),
    ("channel_norm.py", "batch_sums", Arch::Sm80, 255),
    ("channel_norm.py", "batch_sums", Arch::Sm90a, 255),
    ("reduce.py", "reduce_columns", Arch::Sm80, 146),
    ("reduce.py", "reduce_columns", Arch::Sm90a, 146),
    // Before a block's next row: the cases have fewer rows than the device has blocks.
    ("add_norm.py", "add_rms_norm_alike", Arch::Sm80, 59),
    ("add_norm.py", "add_rms_norm_alike", Arch::Sm90a, 59),
    ("rms_norm.py", "rms_norm_alike", Arch::Sm80, 34),
    ("rms_norm.py", "rms_norm_alike", Arch::Sm90a, 34),
    // Before the next strip of results: the short run's case has one column.
    ("sparse24.py", "product", Arch::Sm80, 227),
    // The barrier of a round: each thread reads what it has brought itself, and factors go to the product through buffers of their own.
    ("conv2d.py", "conv2d", Arch::Sm80, 86),
    ("conv2d.py", "conv2d", Arch::Sm90a, 86),
    ("conv2d_backward.py", "weights", Arch::Sm90a, 73),
    // Before the sums of a block's next tile cross it: the short run's blocks have one tile.
    ("norm_backward.py", "add_rms_norm_backward", Arch::Sm80, 28),
    ("norm_backward.py", "add_rms_norm_backward", Arch::Sm90a, 28),
    ("norm_backward.py", "rms_norm_backward", Arch::Sm80, 28),
    ("norm_backward.py", "rms_norm_backward", Arch::Sm90a, 28),
    // Before pairs of neighbours are written where they were read: each thread writes what it has read itself.
    ("rope.py", "rope_inplace", Arch::Sm80, 52),
    ("rope.py", "rope_inplace", Arch::Sm90a, 52),
    ("rope.py", "rope_inplace_theta", Arch::Sm80, 52),
    ("rope.py", "rope_inplace_theta", Arch::Sm90a, 52),
    // The wait behind dK's store, which could go: dV leaves by a buffer of its own, and the wait behind its store is for both.
    ("attention_backward.py", "of_keys", Arch::Sm90a, 82),
    // The wait for dv's product, before the slot of dO is handed back: the short run's blocks have two rounds, as many as slots, and none is filled
    // again. In the long run it is needed.
    ("attention_backward.py", "of_keys", Arch::Sm90a, 77),
];

/// A kernel's file, the kernel, its target, a line of its source and an operation there.
type Place = (&'static str, &'static str, Arch, usize, &'static str);

/// What was seen of kernels.
#[derive(Default)]
struct Seen {
    kernels: usize,
    removed: usize,
    wrong: Vec<String>,
    no_data: BTreeSet<(&'static str, &'static str)>,
    /// Whether some case shows that a barrier is needed, and one in which it is reached.
    shown: BTreeMap<Place, (bool, Option<String>)>,
}

impl Seen {
    /// Takes each barrier and wait out of a case, as long as no other case has shown that it is needed.
    fn look(&mut self, case: &Case) {
        let compiled = case.compiled();
        let Some(data) = data_of(case, &compiled) else {
            self.no_data.insert((case.file, case.kernel));
            return;
        };
        for arch in [Arch::Sm80, Arch::Sm90a] {
            let name = format!("{} on {arch}", case.name);
            let device = match compile_for(&compiled, arch, OptLevel::O2) {
                Ok(device) => device,
                Err(found) if ["target-unsupported", "target-shared-memory"].contains(&found[0].id) => {
                    continue;
                }
                Err(found) => panic!("{name}: {}", found[0].message),
            };
            let mut wanted = data.clone();
            if let Err(why) = run_with(schedules()[0].clone(), &device.kernel, case.grid, &mut wanted) {
                // An array without elements has no tensor map: a launch of the runtime's has one over an element in its place.
                if why.starts_with("`tensor_map_encode` failed") && why.contains("has 0 elements") {
                    continue;
                }
                self.wrong.push(format!("{name}: {}", first_lines(&why, 6)));
                continue;
            }
            self.kernels += 1;
            for op in removable(&device.tile) {
                let op_data = &device.tile.funcs[0].ops[op];
                let line = device.tile.sources.get(op_data.span.source).line_column(op_data.span.start).0;
                let entry = self.shown.entry((case.file, case.kernel, arch, line, op_data.row().mnemonic)).or_default();
                if entry.0 {
                    continue;
                }
                let lowered = |module: &Module| {
                    lower(module, &module.funcs[0], arch).unwrap_or_else(|error| panic!("{name}: {}", error.message))
                };
                self.removed += 1;
                if is_found_out(&lowered(&without(&device.tile, op)), case.grid, &data, &wanted) {
                    entry.0 = true;
                } else if run_with(schedules()[0].clone(), &lowered(&trapped(&device.tile, op)), case.grid, &mut data.clone())
                    .is_err()
                {
                    entry.1.get_or_insert(case.name.clone());
                }
            }
        }
    }

    /// With what was seen of other kernels.
    fn join(&mut self, other: Seen) {
        let Seen { kernels, removed, wrong, no_data, shown } = other;
        self.kernels += kernels;
        self.removed += removed;
        self.wrong.extend(wrong);
        self.no_data.extend(no_data);
        self.shown.extend(shown);
    }
}

/// What was seen of all cases, those of a kernel one after the other.
fn seen_of(cases: Vec<Case>) -> Seen {
    let mut kernels: BTreeMap<(&str, &str), Vec<Case>> = BTreeMap::new();
    for case in cases {
        kernels.entry((case.file, case.kernel)).or_default().push(case);
    }
    let work: Vec<Vec<Case>> = kernels.into_values().collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Seen::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(cases) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut seen = Seen::default();
                    cases.iter().for_each(|case| seen.look(case));
                    all.lock().expect("no thread panicked").join(seen);
                }
            });
        }
    });
    all.into_inner().expect("no thread panicked")
}

#[test]
fn no_barrier_or_wait_of_the_library_can_go() {
    let Seen { kernels, removed, wrong, no_data, shown } = seen_of(library_cases());
    let idle: Vec<String> = shown
        .iter()
        .filter_map(|((file, kernel, arch, line, what), (needed, reached))| match (needed, reached) {
            (false, Some(_)) if OWN.contains(&(*file, *kernel, *arch, *line)) => None,
            (false, Some(case)) => Some(format!("`{what}` of line {line} of {kernel} in {file} on {arch} can go: {case}")),
            _ => None,
        })
        .collect();
    let unreached = shown.values().filter(|(needed, reached)| !needed && reached.is_none()).count();
    println!(
        "{kernels} kernels, {removed} barriers and waits taken out, {} of different lines, {unreached} never reached, {} not needed\n{}",
        shown.len(),
        idle.len(),
        idle.join("\n")
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    if asked().is_empty() {
        assert!(no_data.iter().eq(&WITHOUT_DATA), "{no_data:?} get no data");
    }
    // A short run, and one of some kernels, may have no case with the barrier.
    let all = everything() && asked().is_empty();
    let is_there =
        |own: &&(&str, &str, Arch, usize)| shown.keys().any(|&(file, kernel, arch, line, _)| (file, kernel, arch, line) == **own);
    let gone: Vec<_> = OWN.iter().filter(|own| all && !is_there(own)).collect();
    assert!(gone.is_empty(), "places that have no barrier: {gone:?}");
    assert!(idle.is_empty(), "{} not needed:\n{}", idle.len(), idle.join("\n"));
}
