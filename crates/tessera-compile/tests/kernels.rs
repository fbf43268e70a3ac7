//! The library's kernels compile, and fast: source to optimised Schedule IR within five milliseconds where the compiler is
//! optimised.

use std::time::{Duration, Instant};

use tessera_compile::{CompileOptions, Stage, compile};

use crate::library::{self, Args};

const LIMIT: Duration = Duration::from_millis(5);

fn check(name: &str, kernel: &str, args: &Args) {
    let options = CompileOptions { verify_each: cfg!(debug_assertions), ..CompileOptions::default() };
    let run = || {
        let start = Instant::now();
        let file = library::file(name);
        let compiled =
            compile(&file, kernel, args, &options).unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
        (start.elapsed(), compiled)
    };
    let (time, compiled) = (0..5).map(|_| run()).min_by_key(|(time, _)| *time).expect("five runs");
    let stages: Vec<String> = compiled.stages.iter().map(|Stage { name, time, .. }| format!("{name} {time:?}")).collect();
    println!("{kernel}: {time:?} ({})", stages.join(", "));
    assert!(cfg!(debug_assertions) || time < LIMIT, "{kernel} took {time:?}: {stages:?}");
}

#[test]
fn a_product_compiles_fast() {
    check("gemm.py", "gemm", &library::product_args([128, 128, 64]));
}

#[test]
fn a_softmax_compiles_fast() {
    check("softmax.py", "softmax_causal", &library::softmax_args([4, 1024, 512]));
}
