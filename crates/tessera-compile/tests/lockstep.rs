//! Schedule IR and the Tile IR that it becomes mean the same: the block executor and lock-step agree.

use arbtest::arbtest;
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_module, generate};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{DType, FloatFormat, Overflow, Rounding};

use crate::devices::{ARCHS, Data, Launch, in_lockstep, on_cpu, same};
use crate::library;

/// Runs both and compares every array; the texts of the Tile functions.
fn agree(compiled: &Compiled, data: &[Data], grid: [u32; 3], tolerance: f64) -> [String; 2] {
    let launch = Launch { compiled, grid };
    let mut block = data.to_vec();
    on_cpu(&launch, &mut block).unwrap_or_else(|error| panic!("{error}"));
    ARCHS.map(|arch| {
        let mut threads = data.to_vec();
        let text = in_lockstep(&launch, arch, &mut threads).unwrap_or_else(|error| panic!("{error}"));
        for (position, (block, threads)) in block.iter().zip(&threads).enumerate() {
            if let Err(difference) = same(block, threads, tolerance) {
                panic!("argument {position}: {difference}\n{text}");
            }
        }
        text
    })
}

#[test]
fn random_programs_mean_the_same() {
    arbtest(|u| {
        let size = u.int_in_range(5..=80usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let data = [
            Data::floats(DType::F32, &[21], 1),
            Data::ints(DType::I32, &[21], 2),
            Data::floats(DType::F32, &[21], 3),
            Data::ints(DType::I32, &[21], 4),
            Data::Scalar(1.5_f32.to_bits().to_le_bytes().to_vec()),
            Data::Scalar(3_i32.to_le_bytes().to_vec()),
        ];
        for level in [OptLevel::O0, OptLevel::O3] {
            let options = CompileOptions { level, ..CompileOptions::default() };
            let compiled = compile_module(module.clone(), &[], &options).unwrap_or_else(|found| panic!("{}", found[0].message));
            agree(&compiled, &data, [1, 1, 1], 0.0);
        }
        Ok(())
    })
    .budget_ms(3_000);
}

fn source(text: &str, kernel: &str, args: &[(&str, ArgType)]) -> Compiled {
    let file = parse_file("kernel.py", text);
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    compile(&file, kernel, &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
}

#[test]
fn a_product_means_the_same() {
    let compiled = library::compiled(&library::file("gemm.py"), "gemm", &library::product_args([64, 32, 64]));
    // Nine rounds, more than the ring has slots; the last is not whole.
    let (m, n, k) = (100, 56, 520);
    let data = [
        Data::floats(DType::BF16, &[m, k], 1),
        Data::floats(DType::BF16, &[n, k], 2),
        Data::floats(DType::BF16, &[m, n], 3),
        Data::Scalar(1.0_f32.to_bits().to_le_bytes().to_vec()),
        Data::Scalar(0.5_f32.to_bits().to_le_bytes().to_vec()),
        Data::Scalar((k as i32).to_le_bytes().to_vec()),
    ];
    let [_, roles] = agree(&compiled, &data, [2, 2, 1], 1e-2);
    assert!(roles.contains("tile.tma_load"), "{roles}");
}

/// A factor that does not lie along the contraction is turned by the threads that feed; what it is converted from, computed.
#[test]
fn factors_on_their_way_mean_the_same() {
    for (stored, cast) in [(DType::F8E4M3, ""), (DType::F32, ".astype(ct.tfloat32)")] {
        let text = format!(
            "import cuda.tile as ct

@ct.kernel
def kernel(x, y, out):
    i = ct.bid(0)
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 32)):
        a = ct.load(x, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO){cast}
        b = ct.load(y, (k, 0), (32, 64), padding_mode=ct.PaddingMode.ZERO){cast}
        acc = ct.mma(a, b, acc)
    ct.store(out, (i, 0), acc)
"
        );
        let args = [("x", stored), ("y", stored), ("out", DType::F32)].map(|(name, dtype)| (name, ArgType::array(dtype, 2)));
        let compiled = source(&text, "kernel", &args);
        let (m, n, k) = (80, 48, 336);
        let format = FloatFormat::of(stored).expect("a float");
        let fill = |sizes: &[i64], seed: usize| {
            let number = |i: usize| ((i * 7 + seed) % 23) as f64 / 8.0 - 1.25;
            Data::codes(stored, sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Saturate))
        };
        let data = [fill(&[m, k], 1), fill(&[k, n], 2), Data::zeros(DType::F32, &[m, n])];
        let [_, roles] = agree(&compiled, &data, [2, 1, 1], 1e-6);
        assert!(roles.contains("tile.copy_shared") && roles.contains("producer=threads"), "{roles}");
    }
}

#[test]
fn a_softmax_means_the_same() {
    let compiled = library::compiled(&library::file("softmax.py"), "softmax_causal", &library::softmax_args([4, 128, 8]));
    let data = [Data::floats(DType::F16, &[16, 100], 1), Data::zeros(DType::F16, &[16, 100])];
    agree(&compiled, &data, [4, 1, 1], 1e-2);
}

#[test]
fn gathers_updates_and_scans_mean_the_same() {
    let text = "import cuda.tile as ct

@ct.kernel
def kernel(x, at, out, counts):
    i = ct.bid(0)
    index = ct.load(at, (i,), (64,))
    v = ct.gather(x, index)
    s = ct.cumsum(v, 0)
    ct.atomic_add(counts, index % 8, v)
    best = ct.max(v)
    ct.store(out, (i,), s + best)
";
    let array = ArgType::array(DType::I32, 1);
    let args = [("x", array.clone()), ("at", array.clone()), ("out", array.clone()), ("counts", array)];
    let compiled = source(text, "kernel", &args);
    let mut next = 17u64;
    let index = Data::codes(DType::I32, &[200], |_| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (next >> 40) % 100
    });
    let data = [Data::ints(DType::I32, &[100], 1), index, Data::zeros(DType::I32, &[200]), Data::zeros(DType::I32, &[8])];
    agree(&compiled, &data, [4, 1, 1], 0.0);
}
