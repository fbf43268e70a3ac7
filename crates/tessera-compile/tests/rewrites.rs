//! How a kernel is written does not decide what becomes of it: fifteen ways or more to write each of four kernels (other names, another order, `while`
//! for `for`, helper functions, other shapes of the same tiles, pointers, a bias, a mask, a scale) get the same recipe.
//!
//! Those that do the same work stay within 5 % of the first in instructions, all of them and those of the tensor cores and of copies alone.
//! Those that do more (a bias is loaded and added, a mask compared) have the same tensor and copy instructions.

use std::path::Path;

use tessera_compile::report::DeviceReport;
use tessera_compile::{OptLevel, compile_for};
use tessera_types::Arch;

use crate::programs::{self, Program};

/// Instructions that a recipe stands or falls with.
const OWN: [&str; 6] = ["wgmma", "mma", "ldmatrix", "cp", "mbarrier", "bar"];

struct Outcome {
    recipe: &'static str,
    refusals: String,
    all: usize,
    own: Vec<usize>,
}

fn outcome(program: &Program, arch: Arch) -> Outcome {
    let compiled = program.compiled().unwrap_or_else(|found| panic!("{}: {}", program.name, program.shown(&found)));
    let device =
        compile_for(&compiled, arch, OptLevel::O3).unwrap_or_else(|found| panic!("{}: {}", program.name, found[0].message));
    let report = DeviceReport::new(&compiled, &device);
    let refusals: Vec<String> = report
        .recipes
        .iter()
        .filter_map(|remark| Some(format!("{}: {}", remark.recipe, remark.refusal.as_ref()?.text)))
        .collect();
    Outcome {
        recipe: report.recipe(),
        refusals: refusals.join("; "),
        all: report.mix.values().sum(),
        own: OWN.iter().map(|name| report.mix.get(name).copied().unwrap_or(0)).collect(),
    }
}

/// Within 5 % of each other.
fn close(a: usize, b: usize) -> bool {
    a.abs_diff(b) * 20 <= a.max(b)
}

#[test]
fn rewrites_become_the_same() {
    let mut wrong = Vec::new();
    for (file, programs) in programs::read("rewrites") {
        assert!(programs.len() >= 10, "{file}");
        for arch in [Arch::Sm80, Arch::Sm90a] {
            let first = outcome(&programs[0], arch);
            println!("{file} {arch}: {}, {} instructions, {OWN:?} {:?}", first.recipe, first.all, first.own);
            for program in &programs[1..] {
                let found = outcome(program, arch);
                let same = found.recipe == first.recipe && (program.more || close(found.all, first.all));
                // What does more may have the rounds of its loop twice.
                let own =
                    found.own.iter().zip(&first.own).all(|(&a, &b)| program.more && (b..=2 * b).contains(&a) || close(a, b));
                println!("  {}: {} instructions, {:?}", program.name, found.all, found.own);
                if !same || !own {
                    let (name, recipe) = (&program.name, found.recipe);
                    let but = format!("{}, {} {:?}", first.recipe, first.all, first.own);
                    wrong.push(format!("{name} {arch}: {recipe}, {} {:?}, not {but}: {}", found.all, found.own, found.refusals));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} rewrites differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Recipes know loops and data, not kernels.
#[test]
fn the_compiler_names_no_operator() {
    const NAMES: [&str; 14] = [
        "gemm",
        "matmul",
        "softmax",
        "attention",
        "norm",
        "layernorm",
        "rmsnorm",
        "rms",
        "convolution",
        "conv",
        "gelu",
        "relu",
        "silu",
        "flash",
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<_> = ["analysis", "target", "compile"].map(|part| crates.join(format!("tessera-{part}/src"))).into();
    let (mut files, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("a file").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).expect("a source").to_ascii_lowercase();
            for (number, line) in text.lines().enumerate() {
                let word = line.split(|c: char| !c.is_ascii_alphabetic()).find(|word| NAMES.contains(word));
                found.extend(word.map(|word| format!("{}:{}: `{word}`", path.display(), number + 1)));
            }
        }
    }
    assert!(files > 40, "{files} files");
    found.sort();
    assert!(found.is_empty(), "an operator's name occurs:\n{}", found.join("\n"));
}
