//! Every choice that the seeds' spaces name does something, or is refused: alone by `--config`, and left out of a search with its name.

use tessera_compile::{CompileOptions, OptLevel, choices, compile, compile_for};
use tessera_lang::{ArgType, ConstValue, ParsedFile, parse_file};
use tessera_types::{Arch, DType};

const HEAD: &str = "import tessera\nfrom tessera import Tensor, fp32, tile\n\n";
const GEMM: &str = include_str!("../../tessera-lang/tests/seeds/tessera_gemm.py");
const VECTOR: &str = include_str!("../../tessera-lang/tests/seeds/vector_operations.py");
const LAYER_NORM: &str = include_str!("../../tessera-lang/tests/seeds/layernorm_safe.py");
const SOFTMAX: &str = include_str!("../../tessera-lang/tests/seeds/softmax_safe.py");
const BANDWIDTH: &str = include_str!("../../tessera-lang/tests/seeds/memory_bandwidth_kernel.py");

type Args = Vec<(String, ArgType)>;

fn arrays(arrays: &[(&str, u32)]) -> Args {
    arrays.iter().map(|&(name, rank)| (name.to_string(), ArgType::array(DType::F32, rank as usize))).collect()
}

fn texts(texts: &[(&str, &str)]) -> Args {
    texts.iter().map(|&(name, text)| (name.to_string(), ArgType::Const(ConstValue::Str(text.into())))).collect()
}

/// Names of choices.
type Names = &'static [&'static str];

/// A kernel of the seeds: its text and name, its arguments, choices that do something, and choices that do not.
type Row = ([&'static str; 2], Args, Names, Names);

fn table() -> Vec<Row> {
    let scalar = |name: &str| (name.to_string(), ArgType::Scalar(DType::F32));
    let mut vector = [arrays(&[("x", 1), ("y", 1), ("result", 1)]), texts(&[("operation", "axpy")])].concat();
    vector.push(scalar("alpha"));
    let mut bandwidth =
        [arrays(&[("a", 1), ("b", 1), ("c", 1)]), texts(&[("operation", "triad"), ("access_pattern", "sequential")])].concat();
    bandwidth.push(scalar("scalar"));
    let threads: Names = &["BLOCK_SIZE", "num_warps"];
    vec![
        (
            [GEMM, "tessera_gemm"],
            arrays(&[("A", 2), ("B", 2), ("C", 2)]),
            &["BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"],
            &[],
        ),
        ([VECTOR, "vector_operations"], vector, threads, &["VECTOR_WIDTH"]),
        (
            [LAYER_NORM, "layernorm_safe"],
            arrays(&[("x", 3), ("weight", 1), ("bias", 1), ("output", 3)]),
            threads,
            &["VECTOR_WIDTH", "WARP_REDUCE"],
        ),
        ([SOFTMAX, "softmax_safe"], arrays(&[("x", 4), ("output", 4)]), threads, &["VECTOR_WIDTH", "WARP_REDUCE_STAGES"]),
        ([BANDWIDTH, "memory_bandwidth_kernel"], bandwidth, threads, &["VECTOR_WIDTH"]),
    ]
}

/// What is said of a choice that the caller makes by itself, for each value of the space.
fn refusals(file: &ParsedFile, kernel: &str, args: &Args, name: &str) -> Vec<Option<String>> {
    let space = file.kernels[kernel].space(file).expect("a space").expect("a space");
    let said = |value: &i64| {
        let mut options = CompileOptions { target: Some("sm_90a".into()), ..CompileOptions::default() };
        options.config.insert(name.to_string(), *value);
        compile(file, kernel, args, &options).err().map(|found| found[0].message.clone())
    };
    space.choices[name].iter().map(said).collect()
}

#[test]
fn every_choice_of_the_seeds_does_something_or_is_refused() {
    let mut count = 0;
    for ([text, kernel], args, useful, idle) in table() {
        let file = parse_file("seed.py", &format!("{HEAD}{text}"));
        let options = CompileOptions { target: Some("sm_90a".into()), ..CompileOptions::default() };
        let found = choices(&file, kernel, &args, &options).unwrap_or_else(|found| panic!("{kernel}: {}", found[0].message));
        assert_eq!(found.idle, idle, "{kernel}");
        for name in useful {
            let values: std::collections::BTreeSet<i64> = found.points.iter().map(|point| point[*name]).collect();
            assert!(values.len() > 1, "{kernel}: `{name}` has one value in all points");
            assert!(refusals(&file, kernel, &args, name).contains(&None), "{kernel}: `{name}` is always refused");
            count += 1;
        }
        for name in idle {
            assert!(found.points.iter().all(|point| !point.contains_key(*name)), "{kernel}: `{name}` is searched");
            let refused = refusals(&file, kernel, &args, name);
            assert!(refused.iter().all(Option::is_some), "{kernel}: `{name}` is taken: {refused:?}");
            let says = |said: &Option<String>| said.as_ref().is_some_and(|said| said.contains("changes nothing in"));
            assert!(refused.iter().any(says), "{kernel}: {refused:?}");
            count += 1;
        }
        let space = file.kernels[kernel].space(&file).expect("a space").expect("a space");
        assert_eq!(space.choices.len(), useful.len() + idle.len(), "{kernel}: a choice of the space is not in the table");
    }
    assert_eq!(count, 5 + 3 + 4 + 4 + 3);
}

#[test]
fn a_block_program_has_hints_in_its_space_and_nothing_else() {
    let text = |space: &str| {
        format!(
            "import cuda.tile as ct\nimport tessera\n\n@ct.kernel\n@tessera.kernel.autotune(space=dict({space}))\ndef product(A, B, C):\n    \
             acc = ct.zeros((64, 64), ct.float32)\n    for k in range(ct.cdiv(A.shape[1], 64)):\n        \
             acc = ct.mma(ct.load(A, (ct.bid(0), k), (64, 64)), ct.load(B, (k, ct.bid(1)), (64, 64)), acc)\n    \
             ct.store(C, (ct.bid(0), ct.bid(1)), acc)\n"
        )
    };
    let args: Args = ["A", "B", "C"].iter().map(|name| (name.to_string(), ArgType::array(DType::F32, 2))).collect();
    let options = CompileOptions { target: Some("sm_90a".into()), ..CompileOptions::default() };
    let file = parse_file("product.py", &text("num_stages=[3, 4], sharing=[0, 1]"));
    let found = choices(&file, "product", &args, &options).expect("choices");
    assert_eq!((found.points.len(), found.idle.len()), (4, 0));
    let compiled = compile(&file, "product", &args, &options).expect("a kernel");
    assert_eq!((compiled.func().hints.num_stages, compiled.func().hints.sharing), (Some(3), Some(0)), "the first point");
    let mut other = options.clone();
    other.config.insert("num_stages".into(), 5);
    let refused = compile(&file, "product", &args, &other).expect_err("not in the space");
    assert!(refused[0].message.contains("`num_stages` = 5 is not in the kernel's space"), "{}", refused[0].message);
    let file = parse_file("product.py", &text("BLOCK_M=[64, 128]"));
    let refused = compile(&file, "product", &args, &options).expect_err("no hint");
    assert!(refused[0].message.contains("`BLOCK_M` is no choice of a block program"), "{}", refused[0].message);
}

const PRODUCT_AND_ROW: &str = "import cuda.tile as ct

@ct.kernel
def product(A, B, C):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        acc = ct.mma(ct.load(A, (i, k), (64, 64)), ct.load(B, (k, j), (64, 64)), acc)
    ct.store(C, (i, j), acc.astype(C.dtype))

@ct.kernel
def row(A, C):
    v = ct.load(A, (ct.bid(0), 0), (1, 4096))
    ct.store(C, (ct.bid(0), 0), v - ct.max(v, axis=1, keepdims=True))
";

/// The kernel by name with its arguments.
fn product_or_row(kernel: &str) -> Args {
    let names: &[&str] = if kernel == "product" { &["A", "B", "C"] } else { &["A", "C"] };
    names.iter().map(|name| (name.to_string(), ArgType::array(DType::BF16, 2))).collect()
}

#[test]
fn an_option_of_the_caller_does_something_on_the_target_or_is_refused() {
    let file = parse_file("kernels.py", PRODUCT_AND_ROW);
    type Options<'a> = &'a [(&'a str, i64)];
    let table: [(&str, Options<'_>, Options<'_>); 2] = [
        (
            "product",
            &[("num_stages", 2), ("sharing", 1), ("num_ctas", 2), ("opt_level", 0), ("opt_level", 3)],
            &[("num_warps", 4), ("num_warps", 8), ("num_worker_warps", 8), ("occupancy", 1), ("occupancy", 4)],
        ),
        (
            "row",
            &[("num_warps", 8), ("occupancy", 4), ("opt_level", 0)],
            &[("num_stages", 2), ("sharing", 1), ("sharing", 3), ("num_ctas", 2), ("num_clusters", 2)],
        ),
    ];
    for (kernel, useful, idle) in table {
        let outcome = |name: &str, value: i64| {
            let mut options = CompileOptions { target: Some("sm_90a".into()), ..CompileOptions::default() };
            options.config.insert(name.to_string(), value);
            let compiled = compile(&file, kernel, &product_or_row(kernel), &options).expect("a kernel");
            compile_for(&compiled, Arch::Sm90a, compiled.level)
                .map(|device| device.kernel.ptx())
                .map_err(|found| found[0].message.clone())
        };
        for &(name, value) in useful {
            assert!(outcome(name, value).is_ok(), "{kernel}: `{name}={value}` is refused: {:?}", outcome(name, value).err());
        }
        for &(name, value) in idle {
            assert_eq!(
                outcome(name, value).err(),
                Some(format!("`{name}` changes nothing in `{kernel}` on `sm_90a`")),
                "{value}"
            );
        }
    }
}

#[test]
fn a_kernel_says_its_level_unless_the_caller_does() {
    let file = parse_file("kernels.py", &PRODUCT_AND_ROW.replace("@ct.kernel\ndef row", "@ct.kernel(opt_level=0)\ndef row"));
    let level = |kernel: &str, options: &CompileOptions| {
        compile(&file, kernel, &product_or_row(kernel), options).map(|compiled| (compiled.level, compiled.stages.len()))
    };
    let own = CompileOptions::default();
    let fixed = CompileOptions { level: OptLevel::O2, fixed_level: true, ..CompileOptions::default() };
    let stages = |level: OptLevel| level.passes().len();
    let [row, product] = ["row", "product"].map(|kernel| level(kernel, &own).expect("a kernel"));
    assert_eq!((row.0, product.0), (OptLevel::O0, OptLevel::O3));
    assert_eq!(product.1 - row.1, stages(OptLevel::O3) - stages(OptLevel::O0), "other passes ran");
    assert_eq!(level("row", &fixed).expect("a kernel").0, OptLevel::O2);
    let chosen = |options: &CompileOptions| {
        let mut options = options.clone();
        options.config.insert("opt_level".into(), 1);
        level("row", &options)
    };
    assert_eq!(chosen(&own).expect("a kernel").0, OptLevel::O1);
    let refused = chosen(&fixed).expect_err("two levels");
    assert!(refused[0].message.contains("`opt_level` changes nothing in `row`: the level is `-O2`"), "{}", refused[0].message);
}
