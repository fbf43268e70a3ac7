//! Kernels with a lockfile, from Rust: what is found, what is not, and several who write at once.

use std::sync::Arc;

use tessera_runtime::lock::{Entry, Key, Lockfile};
use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, LaunchGrid, Lock, OptLevel, Question, Site, Tensor, Value};
use tessera_types::DType;

const PRODUCT: &str = "import tessera
from tessera import Tensor, fp32, tile

@tessera.kernel.autotune(space=dict(BLOCK_M=[16, 64], BLOCK_N=[32, 64]), key=[\"M\", \"N\", \"K\"])
def gemm(A: Tensor[\"M\", \"K\", dtype], B: Tensor[\"K\", \"N\", dtype], C: Tensor[\"M\", \"N\", dtype]):
    tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))
";

fn arguments(size: usize) -> Vec<(&'static str, Value)> {
    let array = || Tensor::ones(DType::F32, &[size, size]).expect("memory");
    ["A", "B", "C"].map(|name| (name, Value::Tensor(array()))).to_vec()
}

fn key(kernel: &Kernel, size: usize) -> Key {
    let arguments = arguments(size);
    let types = kernel.argument_types(&arguments).expect("types");
    let question = Question::of_launch(&arguments, &types);
    kernel.tuning_key(&question, &CompileOptions::default(), Site::Device(&Device::Cpu)).expect("a key")
}

fn entry(rows: i64) -> Entry {
    Entry { config: [("BLOCK_M".to_string(), rows), ("BLOCK_N".to_string(), 64)].into(), ..Entry::default() }
}

#[test]
fn a_launch_takes_the_choice_of_its_sizes_and_a_caller_who_chooses_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/er/tessera.lock");
    let kernel = Kernel::from_source("gemm.py", PRODUCT, "gemm").expect("a kernel");
    let mut entries = Lockfile::default();
    entries.insert(key(&kernel, 64), entry(64));
    Lock::record(&path, entries).expect("written");
    let kernel = kernel.with_lock(Arc::new(Lock::read(&path).expect("a lockfile").frozen()));
    let options = CompileOptions::default();
    let launch = kernel.prepare(&arguments(64), LaunchGrid::Auto, &options, &Device::Cpu).expect("a launch");
    assert_eq!((launch.grid(), launch.tuned().map(|tuned| tuned.entry.config["BLOCK_M"])), ([1, 1, 1], Some(64)));
    let missing = kernel.prepare(&arguments(32), LaunchGrid::Auto, &options, &Device::Cpu).expect_err("no entry");
    assert!(matches!(&missing, KernelError::Untuned { key, .. } if key.shape == "M 32/32, N 32/32, K 32/32"), "{missing}");
    let mut chosen = options.clone();
    chosen.config.insert("BLOCK_M".into(), 16);
    for own in [chosen, CompileOptions { level: OptLevel::O0, ..options.clone() }] {
        let launch = kernel.prepare(&arguments(32), LaunchGrid::Auto, &own, &Device::Cpu).expect("a launch");
        assert_eq!(launch.tuned(), None);
    }
    let plain = kernel.without_lock().prepare(&arguments(64), LaunchGrid::Auto, &options, &Device::Cpu).expect("a launch");
    assert_eq!((plain.grid(), plain.tuned()), ([8, 1, 1], None));
}

#[test]
fn types_of_known_sizes_ask_what_a_launch_asks() {
    let kernel = Kernel::from_source("gemm.py", PRODUCT, "gemm").expect("a kernel");
    let args = arguments(64);
    let launched = kernel.argument_types(&args).expect("types");
    let mut known = launched.clone();
    for (_, ty) in &mut known {
        if let tessera_lang::ArgType::Array { shape, strides, .. } = ty {
            shape.iter_mut().for_each(|extent| *extent = tessera_ir::Extent::Static(64));
            strides[0] = tessera_ir::Extent::Static(64);
        }
    }
    assert!(Question::of_types(&launched).is_none(), "sizes are open");
    let question = Question::of_types(&known).expect("sizes are known");
    let options = CompileOptions::default();
    assert_eq!(kernel.tuning_key(&question, &options, Site::Device(&Device::Cpu)).expect("a key").ir, key(&kernel, 64).ir);
    let lock = Lock::read("no/tessera.lock").expect("none is none");
    let mut entries = Lockfile::default();
    entries.insert(key(&kernel, 64), entry(64));
    lock.set(entries);
    let kernel = kernel.with_lock(Arc::new(lock.frozen()));
    let chosen = kernel.tuned_for_types(&known, &options).expect("a choice");
    assert_eq!((&*chosen.types, chosen.options.config["BLOCK_M"]), (&*launched, 64), "the kernel of launches");
    let open = kernel.tuned_for_types(&launched, &options).expect_err("sizes are open");
    assert!(matches!(open, KernelError::OpenSizes { .. }), "{open}");
    assert!(kernel.without_lock().tuned_for_types(&launched, &options).expect("no lockfile").tuned.is_none());
}

#[test]
fn several_who_write_at_once_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tessera.lock");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..5 {
                    let mut entries = Lockfile::default();
                    let key = Key {
                        kernel: format!("k{writer}"),
                        ir: number.to_string(),
                        shape: String::new(),
                        device: "cpu".into(),
                        toolchain: "t".into(),
                    };
                    entries.insert(key, entry(number));
                    Lock::record(path, entries).expect("written");
                }
            });
        }
    });
    assert_eq!(Lock::read(&path).expect("a lockfile").entries().len(), 40);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left beside it");
    // Whoever may read other files of the user may read this one.
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").expect("written");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("a file").permissions();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn a_lockfile_that_is_not_there_is_empty_and_a_damaged_one_has_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tessera.lock");
    assert!(Lock::read(&path).expect("none is none").entries().is_empty());
    std::fs::write(&path, "[gemm]\nx = ").expect("written");
    let KernelError::Rejected(report) = Lock::read(&path).expect_err("damaged") else { panic!("a report") };
    assert!(report.to_string().contains("tessera.lock:2:5"), "{report}");
    assert!(Lock::record(&path, Lockfile::default()).is_err(), "what cannot be read is not written over");
}

#[test]
fn without_a_choice_a_gpu_gets_the_point_that_should_take_least() {
    let device = Device::emulator().expect("an emulator");
    let kernel = Kernel::from_source("gemm.py", &PRODUCT.replace("[16, 64]", "[64, 128]"), "gemm").expect("a kernel");
    let array = |size: usize| Tensor::zeros_on(DType::BF16, &[size, size], &device).expect("memory");
    let blocks = |size: usize| {
        let args = ["A", "B", "C"].map(|name| (name, Value::Tensor(array(size))));
        let options = CompileOptions::default();
        let product = device.driver().and_then(|device| device.product()).expect("a product");
        let (points, _) = kernel.ranked_points(&args, LaunchGrid::Auto, &options, product).expect("points");
        let launch = kernel.prepare(&args, LaunchGrid::Auto, &options, &device).expect("a launch");
        let taken = |name: &str| launch.compiled().func().config[name];
        assert_eq!([taken("BLOCK_M"), taken("BLOCK_N")], [points[0].config["BLOCK_M"], points[0].config["BLOCK_N"]]);
        taken("BLOCK_M") * taken("BLOCK_N")
    };
    assert!(blocks(64) <= blocks(4096), "a large product has tiles that are no smaller");
}
