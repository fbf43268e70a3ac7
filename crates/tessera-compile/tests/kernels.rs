//! The library's kernels compile, and fast: source to optimised Schedule IR within five milliseconds where the compiler is
//! optimised.

use std::time::Duration;

use tessera_compile::{CompileOptions, Stage, compile};
use tessera_lang::{ArgType, ConstValue, parse_file};
use tessera_types::DType;

const LIMIT: Duration = Duration::from_millis(5);

fn check(file: &str, kernel: &str, args: &[(&str, ArgType)]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(file);
    let text = std::fs::read_to_string(&path).expect("the kernel's file");
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    let options = CompileOptions { verify_each: cfg!(debug_assertions), ..CompileOptions::default() };
    let run = || {
        let start = std::time::Instant::now();
        let file = parse_file(file, &text);
        let compiled =
            compile(&file, kernel, &args, &options).unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
        (start.elapsed(), compiled)
    };
    let (time, compiled) = (0..5).map(|_| run()).min_by_key(|(time, _)| *time).expect("five runs");
    let stages: Vec<String> = compiled.stages.iter().map(|Stage { name, time, .. }| format!("{name} {time:?}")).collect();
    println!("{kernel}: {time:?} ({})", stages.join(", "));
    assert!(cfg!(debug_assertions) || time < LIMIT, "{kernel} took {time:?}: {stages:?}");
}

fn constant(value: i64) -> ArgType {
    ArgType::Const(ConstValue::Int(value))
}

#[test]
fn a_product_compiles_fast() {
    let flag = |value| ArgType::Const(ConstValue::Bool(value));
    let dtype = |dtype| ArgType::Const(ConstValue::DType(dtype));
    check(
        "gemm.py",
        "gemm",
        &[
            ("A", ArgType::array(DType::BF16, 2)),
            ("B", ArgType::array(DType::BF16, 2)),
            ("C", ArgType::array(DType::BF16, 2)),
            ("alpha", ArgType::Scalar(DType::F32)),
            ("beta", ArgType::Scalar(DType::F32)),
            ("K", ArgType::Scalar(DType::I32)),
            ("COMPUTE", dtype(DType::BF16)),
            ("ACC", dtype(DType::F32)),
            ("TM", constant(128)),
            ("TN", constant(128)),
            ("TK", constant(64)),
            ("TRANSPOSE_A", flag(false)),
            ("TRANSPOSE_B", flag(true)),
        ],
    );
}

#[test]
fn a_softmax_compiles_fast() {
    let arrays = ["x", "y"].map(|name| (name, ArgType::array(DType::F16, 2)));
    let [x, y] = arrays;
    let acc = ArgType::Const(ConstValue::DType(DType::F32));
    check(
        "softmax.py",
        "softmax_causal",
        &[x, y, ("ACC", acc), ("ROWS", constant(4)), ("N", constant(1024)), ("QUERIES", constant(512))],
    );
}
