//! The ways to cut products into blocks: that they are right on the emulator, and that a lockfile's is the one that is taken.
//!
//! By default a few of each problem's ways, which differ in what they do. `TESSERA_TEST_ALL` takes all, `TESSERA_PART=I/N` every N-th of these:
//! `cargo xtask nightly` sets them.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_bench::{
    GateOptions, Library, Outcome, Selection, Shapes, Sizes, Sought, Suite, TESSERA, Tunable, TuneOptions, Tuning, Ways,
    Yardstick, check,
};
use tessera_emu::{Console, EmuOptions};
use tessera_ops::{Machine, Problem, Way, find};
use tessera_runtime::lock::{Bits, Entry, Key, Lockfile, parse_config};
use tessera_runtime::{CompileOptions, Device, LaunchGrid, Lock, Sharing};
use tessera_types::Arch;

/// Of so many ways of a problem one is tried.
const EVERY: usize = 311;

fn emulator() -> (Device, Arc<Console>) {
    let options = EmuOptions { multiprocessors: Some(4), ..EmuOptions::default() };
    Device::watched_emulator(&options).expect("an emulator")
}

fn library(device: &Device, sizes: [u64; 3], variant: &str, precision: &str) -> Library {
    case_of(device, "gemm", sizes, variant, precision)
}

/// A product, or a layer whose product has these rows, columns and contraction.
fn case_of(device: &Device, operator: &str, sizes: [u64; 3], variant: &str, precision: &str) -> Library {
    only(device, operator, &extents_of(operator, sizes), variant, precision)
}

fn extents_of(operator: &str, [m, n, k]: [u64; 3]) -> Vec<(&'static str, u64)> {
    match operator {
        "gemm" => vec![("batch", 1), ("m", m), ("n", n), ("k", k)],
        "gemm_scaled" => vec![("m", m), ("n", n), ("k", k)],
        "linear_w4" => vec![("m", m), ("n", n), ("k", k), ("group", 128)],
        _ => vec![("rows", m), ("out", n), ("in", k)],
    }
}

/// The library with one case.
fn only(device: &Device, operator: &str, extents: &[(&str, u64)], variant: &str, precision: &str) -> Library {
    let extents = extents.iter().map(|&(name, extent)| (name.to_string(), vec![extent])).collect();
    let selection = Selection {
        operators: vec![operator.into()],
        precisions: vec![precision.into()],
        sizes: Sizes::Given(vec![Shapes { extents, variant: Some(variant.into()), ..Shapes::default() }]),
    };
    Library::select(&selection, CompileOptions::default(), device.clone()).expect("a case")
}

/// What a way does beside its tile, which is what may go wrong.
fn traits(way: &Way) -> impl Iterator<Item = (&str, i64)> {
    way.iter().filter(|(name, _)| !matches!(name.as_str(), "TM" | "TN")).map(|(name, value)| (name.as_str(), *value))
}

#[test]
fn ways_to_cut_a_product_are_right() {
    let (device, console) = emulator();
    let everything = std::env::var_os("TESSERA_TEST_ALL").is_some();
    let (part, parts) = crate::emulated::part();
    let (mut wrong, mut count, mut seen) = (Vec::new(), 0, BTreeSet::new());
    for (operator, sizes, variant, precision) in [
        ("gemm", [67, 43, 131], "nn", "bf16"),
        ("gemm", [67, 43, 131], "nt", "bf16"),
        ("gemm", [70, 136, 264], "nn", "bf16"),
        ("gemm", [72, 130, 520], "nt", "bf16->bf16"),
        ("gemm", [5, 200, 320], "nt", "bf16"),
        ("gemm", [70, 48, 144], "nn", "fp8_e4m3@accum(fp32)"),
        ("gemm", [33, 96, 272], "nt", "fp8_e4m3@accum(fp32)"),
        ("gemm", [65, 80, 160], "nt", "int8"),
        ("gemm", [66, 40, 100], "nn", "tf32"),
        ("gemm", [65, 70, 200], "nn", "fp32"),
        ("linear", [70, 136, 520], "residual", "bf16->bf16"),
        ("linear", [37, 72, 264], "gelu", "fp16"),
        ("gemm_scaled", [70, 136, 512], "blocks", "fp8_e4m3->bf16"),
        ("gemm_scaled", [33, 72, 528], "rows", "fp8_e5m2->fp32"),
    ] {
        let mut library = case_of(&device, operator, sizes, variant, precision);
        let kernel = if operator == "gemm_scaled" { variant } else { operator };
        assert!(library.add_ways(usize::MAX).is_empty(), "{precision} has other ways");
        let case = library.cases()[0].clone();
        for (at, name) in case.implementations.iter().enumerate().skip(1) {
            let way = parse_config(name).expect("choices");
            // Each thing that a way can do is tried with the first that does it, and all of them here and there.
            let is_new = traits(&way).filter(|of| seen.insert((operator, precision, of.0.to_string(), of.1))).count() > 0;
            if !(if everything { at % parts == part } else { is_new || at % EVERY == 0 }) {
                continue;
            }
            count += 1;
            let options = GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false };
            match library.build(&case, name).and_then(|mut subject| check(&mut *subject, options)) {
                Ok(report) if report.passed() => {
                    let launched =
                        console.take().into_iter().rfind(|launched| launched.kernel.contains(kernel)).expect("a launch");
                    let tiles = sizes[0].div_ceil(way["TM"] as u64) * sizes[1].div_ceil(way["TN"] as u64);
                    let blocks: u64 = launched.grid.iter().map(|&blocks| u64::from(blocks)).product();
                    let of_each = way["num_ctas"] * way["num_clusters"].max(1);
                    if way["sharing"] == 4 && blocks != tiles * of_each as u64 {
                        wrong.push(format!("{} {name}: {blocks} blocks for {tiles} tiles", case.key));
                    }
                }
                Ok(report) => wrong.push(format!("{} {name}: {}", case.key, report.reason.unwrap_or_default())),
                Err(fault) => wrong.push(format!("{} {name}: {fault}", case.key)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} ways:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 50, "{count} ways");
    for (name, value) in
        [("EXCHANGED", 1), ("ACROSS", 1), ("COPY_A", 1), ("COPY_B", 1), ("num_ctas", 8), ("sharing", 2), ("sharing", 4)]
    {
        assert!(seen.iter().any(|(.., own, is)| own == name && *is == value), "no way has {name}={value}");
    }
}

/// What a plan has clusters split is launched as such, gated layers and scaled products too: a kernel that cannot be split runs unsplit, and is slow.
#[test]
fn what_the_library_splits_is_split() {
    let (device, console) = emulator();
    let machine = Machine::Gpu(Arch::Sm90a);
    for (operator, [m, n, k], variant, precision) in [
        ("linear_w4", [8, 130, 1024], "symmetric", "bf16"),
        ("gemm", [40, 200, 3000], "nn", "bf16->bf16"),
        ("linear", [40, 200, 3000], "gelu", "bf16->bf16"),
        ("linear", [40, 200, 3000], "residual", "fp16"),
        ("linear", [40, 200, 3000], "swiglu", "bf16->bf16"),
        ("gemm_scaled", [40, 256, 4096], "blocks", "fp8_e4m3->bf16"),
        ("gemm_scaled", [40, 256, 4096], "rows", "fp8_e4m3->bf16"),
    ] {
        let library = case_of(&device, operator, [m, n, k], variant, precision);
        let problem = Problem::new(&extents_of(operator, [m, n, k]), variant);
        let plan = find(operator).expect("an operator").plan(&problem, precision.parse().expect("a policy"), machine);
        let plan = plan.expect("a plan");
        let product = plan.launches.last().expect("a launch");
        let mut subject = library.build(&library.cases()[0], TESSERA).expect("a subject");
        let report =
            check(&mut *subject, GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false }).expect("it runs");
        assert!(report.passed(), "{operator} {variant}: {:?}", report.reason);
        let launched = console.take().into_iter().rfind(|launched| launched.kernel.contains(product.kernel)).expect("a launch");
        assert_eq!(product.sharing, Sharing::Cluster, "{operator} {variant} is split");
        assert_eq!(launched.grid[0], product.grid[0] * product.cluster, "{operator} {variant}");
    }
}

/// Rows that the library has clusters share are shared, whether their columns divide or not.
#[test]
fn rows_that_the_library_shares_are_shared() {
    let (device, console) = emulator();
    let machine = Machine::Gpu(Arch::Sm90a);
    for (operator, precision, rows, columns, blocks) in [
        ("softmax", "bf16", 3, 32768, 4),
        ("softmax", "fp32", 3, 33001, 8),
        ("softmax", "bf16", 3, 60001, 8),
        ("softmax", "fp64", 3, 20000, 8),
        ("softmax", "fp16", 32, 140_000, 16),
        ("layer_norm", "fp32", 3, 33000, 4),
        ("layer_norm", "fp8_e4m3@accum(fp32)", 3, 32768, 8),
        ("rms_norm", "fp16", 3, 40960, 8),
    ] {
        let extents: &[(&str, u64)] = match operator {
            "softmax" => &[("batch", 1), ("heads", 1), ("queries", rows), ("keys", columns)],
            _ => &[("batch", 1), ("sequence", rows), ("hidden", columns)],
        };
        let problem = Problem::new(extents, "");
        let plan = find(operator).expect("an operator").plan(&problem, precision.parse().expect("a policy"), machine);
        let row = plan.expect("a plan").launches[0].clone();
        assert_eq!((row.sharing, row.cluster, row.grid), (Sharing::Cluster, blocks, [rows as u32, 1, 1]), "{operator} {columns}");
        let library = only(&device, operator, extents, "", precision);
        let mut subject = library.build(&library.cases()[0], TESSERA).expect("a subject");
        let report =
            check(&mut *subject, GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false }).expect("it runs");
        assert!(report.passed(), "{operator} {columns}: {:?}", report.reason);
        let launched = console.take().into_iter().rfind(|launched| launched.kernel.contains(operator)).expect("a launch");
        assert_eq!(launched.grid[0], rows as u32 * blocks, "{operator} {columns}");
    }
}

/// A lockfile in memory, and the key and ways of a library's only case.
fn with_lock(library: Library) -> (Library, Arc<Lock>, Key, Vec<Way>) {
    let lock = Arc::new(Lock::read("no/tessera.lock").expect("none is none"));
    let library = library.with_lock(Some(Arc::clone(&lock)));
    let Ways { key, list, .. } = library.ways(&library.cases()[0]).expect("a case").expect("several ways");
    (library, lock, key, list.into_iter().map(|possible| possible.way).collect())
}

#[test]
fn a_case_is_cut_as_its_lockfile_says_and_again_when_that_says_otherwise() {
    let (device, console) = emulator();
    let (library, lock, key, ways) = with_lock(library(&device, [64, 200, 128], "nn", "bf16"));
    let case = &library.cases()[0];
    let says = |way: &Way| {
        let mut entries = Lockfile::default();
        entries.insert(key.clone(), Entry { config: way.clone(), ..Entry::default() });
        lock.set(entries);
    };
    let grid = |library: &Library| library.launches(case).expect("launches").last().expect("a product").grid;
    let own = grid(&library);
    let mut subject = library.build(case, TESSERA).expect("a subject");
    let options = GateOptions { seeds: 1, suite_seed: 5, tolerance: None, specials: false };
    // Another tile, and factors that are copied first, so that there are more arrays.
    let tile = ways.iter().find(|way| way["TN"] == 128 && way["num_ctas"] == 0 && way["EXCHANGED"] == 0).expect("a way");
    let copied = ways.iter().find(|way| way["COPY_B"] == 1 && way["num_ctas"] == 0).expect("a way");
    for way in [tile, copied, tile] {
        says(way);
        let cut = grid(&library);
        assert_ne!(cut, own, "{way:?}");
        assert!(library.build(case, TESSERA).expect("a subject").config().contains("no/tessera.lock"));
        subject.rebuild().expect("planned again");
        assert!(check(&mut *subject, options).expect("a report").passed(), "{way:?}");
        let launched = console.take().into_iter().rfind(|launched| launched.kernel.contains("gemm")).expect("a launch");
        assert_eq!(LaunchGrid::Blocks(launched.grid), cut, "{way:?}");
    }
    says(&Way::from([("TM".to_string(), 64)]));
    let fault = library.build(case, TESSERA).err().expect("no way");
    assert!(fault.message.contains("is no way to cut it: a product wants `TN` chosen, too"), "{fault}");
}

#[test]
fn stable_bits_leave_ways_that_add_up_in_the_same_order() {
    let (device, _) = emulator();
    let (library, lock, key, _) = with_lock(library(&device, [64, 64, 512], "nn", "bf16"));
    let tuned = |bits: Bits| {
        let tuning = Tuning {
            suite: &library,
            case: &library.cases()[0],
            lock: Arc::clone(&lock),
            known: &Lockfile::default(),
            device: &device,
            options: TuneOptions { most: 4, bits, ..TuneOptions::default() },
            recover: &|| false,
        };
        let mut tried = tuning.run(&mut Yardstick::Count(&mut || 0), &mut |_, _, _| {}).expect("choices");
        tried.swap_remove(0)
    };
    let orders = |bits: Bits| {
        let way = tuned(bits);
        assert_eq!((&way.key, way.sought), (&key, Sought::Way));
        let others = way.candidates.iter().filter(|(_, outcome)| matches!(outcome, Outcome::OtherOrder(_)));
        (others.count(), way.entry.order)
    };
    assert_eq!(orders(Bits::Any).0, 0);
    let (others, order) = orders(Bits::Stable);
    assert!(others > 0 && order == "mma 256", "rounds of other depths add up in another order than {order}");
}
