//! The plans that a kernel can have, and what they should take.

use tessera_compile::{CompileOptions, Launch, OptLevel, PossiblePlan, compile, compile_for, possible_plans};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, Device};

/// A product of bf16 whose loop has `rounds` rounds; `more` stands in a round.
fn source(rounds: &str, more: &str) -> String {
    format!(
        "import cuda.tile as ct

@ct.kernel
def product(A, B, C, k_end: int):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((128, 128), ct.float32)
    for k in range({rounds}):
        a = ct.load(A, (i, k), (128, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
        {more}
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)
"
    )
}

fn arguments(factor: DType) -> Vec<(String, ArgType)> {
    let array = |name: &str, dtype| (name.to_string(), ArgType::array(dtype, 2));
    vec![array("A", factor), array("B", factor), array("C", DType::F32), ("k_end".to_string(), ArgType::Scalar(DType::I32))]
}

/// The plans of a launch on 4096 columns and rows, with contractions of `k`.
fn plans(text: &str, device: &Device, grid: [u32; 3], k: i64) -> Vec<PossiblePlan> {
    plans_of(text, DType::BF16, device, grid, k)
}

/// The same with factors of another type.
fn plans_of(text: &str, factor: DType, device: &Device, grid: [u32; 3], k: i64) -> Vec<PossiblePlan> {
    let file = parse_file("product.py", text);
    let compiled = compile(&file, "product", &arguments(factor), &CompileOptions::default()).expect("a kernel");
    let (n, none) = (4096, None);
    let sizes = |rows, columns| [none, Some(rows), Some(columns), Some(columns), Some(1)];
    let arrays = [sizes(n, k), sizes(k, n), sizes(n, n)].concat();
    let launch = Launch { grid, arguments: arrays.into_iter().chain([Some(k / 64)]).collect() };
    possible_plans(&compiled, device, OptLevel::O3, &launch).expect("plans")
}

fn clocks(plans: &[PossiblePlan]) -> f64 {
    plans[0].time.expect("a time").clocks
}

fn h200() -> &'static Device {
    Device::by_name("h200").expect("a product")
}

#[test]
fn times_follow_from_the_launch() {
    const GRID: [u32; 3] = [32, 32, 1];
    for rounds in ["ct.cdiv(A.shape[1], 64)", "k_end", "min(k_end, 4096)"] {
        let text = source(rounds, "pass");
        let (once, twice) = (clocks(&plans(&text, h200(), GRID, 4096)), clocks(&plans(&text, h200(), GRID, 8192)));
        assert!((1.7..2.1).contains(&(twice / once)), "{rounds}: {once} and {twice}");
        assert!(clocks(&plans(&text, h200(), [64, 32, 1], 4096)) > 1.8 * once, "{rounds}");
    }
    // Blocks further down have longer loops: half of the rounds in the middle.
    let (all, half) = (source("64", "pass"), source("2 * (i + 1)", "pass"));
    let ratio = clocks(&plans(&half, h200(), GRID, 4096)) / clocks(&plans(&all, h200(), GRID, 4096));
    assert!((0.5..0.8).contains(&ratio), "{ratio}");
}

#[test]
fn the_same_launch_has_the_same_plans_and_all_can_be_carried_out() {
    let text = source("ct.cdiv(A.shape[1], 64)", "pass");
    let found = plans(&text, h200(), [32, 32, 1], 4096);
    assert_eq!(found, plans(&text, h200(), [32, 32, 1], 4096));
    for word in ["turns=2", "stream_k", "cluster 2", "split 4", "resident 2", "partition all"] {
        assert!(found.iter().any(|plan| plan.text.contains(word)), "no plan has `{word}`");
    }
    let file = parse_file("product.py", &text);
    for plan in &found {
        let options = CompileOptions { plan: Some(("a.plan".to_string(), plan.text.clone())), ..CompileOptions::default() };
        let compiled = compile(&file, "product", &arguments(DType::BF16), &options).expect("a kernel");
        if let Err(found) = compile_for(&compiled, Arch::Sm90a, OptLevel::O3) {
            panic!("{}\n{}", found[0].message, plan.text);
        }
    }
}

#[test]
fn targets_that_nobody_measured_have_plans_without_times() {
    let device = Device::ALL.iter().find(|device| device.arch == Arch::Sm80).expect("a product");
    let found = plans(&source("k_end", "pass"), device, [32, 32, 1], 4096);
    assert!(!found.is_empty() && found.iter().all(|plan| plan.time.is_none() && plan.text.contains("partition all")));
}

#[test]
fn products_that_nobody_measured_have_no_time() {
    // Threads multiply `float32` by themselves.
    let found = plans_of(&source("k_end", "pass"), DType::F32, h200(), [32, 32, 1], 4096);
    assert!(!found.is_empty() && found.iter().all(|plan| plan.time.is_none()), "{found:?}");
}

#[test]
fn a_much_better_plan_without_roles_is_taken_unless_the_author_says_otherwise() {
    // The factor that comes from outside of the loop leaves no way for roles.
    let text = source("k_end", "b = b * s").replacen("    acc =", "    s = ct.load(B, (0, j), (1, 128))\n    acc =", 1);
    let chosen = |text: &str| {
        let compiled = compile(&parse_file("product.py", text), "product", &arguments(DType::BF16), &CompileOptions::default());
        compile_for(&compiled.expect("a kernel"), Arch::Sm90a, OptLevel::O3).expect("code").plan.expect("a plan")
    };
    assert!(chosen(&text).contains("partition all {warps=4}"), "{}", chosen(&text));
    assert!(chosen(&text.replace("@ct.kernel", "@ct.kernel(num_warps=8)")).contains("partition all {warps=8}"));
}
