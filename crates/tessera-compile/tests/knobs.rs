//! Every choice that the seeds' spaces name does something, or is refused: alone by `--config`, and left out of a search with its name.

use tessera_compile::{CompileOptions, choices, compile};
use tessera_lang::{ArgType, ConstValue, ParsedFile, parse_file};
use tessera_types::DType;

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
