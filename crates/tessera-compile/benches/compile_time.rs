//! How long kernels of the library take from source to PTX and on to machine code, on one thread.
//!
//! `TESSERA_PTXAS=... cargo bench -p tessera-compile --bench compile_time`
//!
//! Each row is a kernel of an operator for `sm_90a`, with the tiles of the operator's plan for its largest problem, rows up to 8192
//! elements. Times are the least of twenty runs, each from the text: what other programs on the machine take is not in them. Without an
//! assembler its column is empty. A product has 30 ms to its PTX, a softmax 10 ms, and both 1 s to their machine code; of that, the passes over
//! Tile IR take 10 ms for a product, and 30 ms for attention. The program fails where that is not kept.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/library/mod.rs"]
mod library;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use library::Case;
use tessera_compile::ptx::{Assembler, Optimize, Target, ToolSource};
use tessera_compile::{OptLevel, Stage, compile_for};
use tessera_lang::{ArgType, ConstValue};
use tessera_types::Arch;

const ARCH: Arch = Arch::Sm90a;
const RUNS: usize = 20;

/// What a run took until each of the road's levels.
#[derive(Clone, Copy)]
struct Times {
    schedule: Duration,
    target: Duration,
    /// Of that the passes over Tile IR, all together.
    passes: Duration,
    ptx: Duration,
}

fn run(case: &Case) -> (Times, String) {
    let start = Instant::now();
    let compiled = case.compiled();
    let schedule = start.elapsed();
    let device = compile_for(&compiled, ARCH, OptLevel::O3).unwrap_or_else(|found| panic!("{}: {}", case.name, found[0].message));
    let target = start.elapsed();
    let text = device.kernel.ptx();
    let ptx = start.elapsed();
    let is_pass = |stage: &&Stage| OptLevel::O3.tile_pass_names().contains(&stage.name);
    let passes = device.stages.iter().filter(is_pass).map(|stage| stage.time).sum();
    (Times { schedule, target, passes, ptx }, text)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn main() -> ExitCode {
    let path = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let source = ToolSource { ptxas: path("TESSERA_PTXAS"), python: path("TESSERA_PYTHON"), ..ToolSource::default() };
    let assembler = Assembler::find(&source).ok();
    let mut rows: Vec<Case> = Vec::new();
    for case in library::cases(Arch::Sm90a) {
        let long = |(name, ty): &(String, ArgType)| name == "N" && matches!(ty, ArgType::Const(ConstValue::Int(8193..)));
        if ["vector", "bandwidth"].contains(&case.operator) || case.args.iter().any(long) {
            continue;
        }
        let wanted = ["bf16", "fp32"].contains(&case.policy);
        match rows.iter_mut().find(|known| known.kernel == case.kernel && known.policy == case.policy) {
            Some(known) => *known = case,
            None if wanted => rows.push(case),
            None => {}
        }
    }
    println!("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9}  kernel", "milliseconds", "schedule", "target", "ptx", "cubin", "passes");
    let mut slow = false;
    for case in &rows {
        let mut least = run(case);
        for _ in 1..RUNS {
            let again = run(case);
            let passes = again.0.passes.min(least.0.passes);
            if again.0.ptx < least.0.ptx {
                least = again;
            }
            least.0.passes = passes;
        }
        let (times, text) = least;
        let target = Target::parse(ARCH.name()).expect("a target");
        let assemble = |assembler: &Assembler| assembler.assemble(&text, target, Optimize::Full).ok().map(|found| found.time);
        let cubin = assembler.as_ref().and_then(|assembler| (0..3).filter_map(|_| assemble(assembler)).min());
        let limit = match case.operator {
            "gemm" => Some(30.0),
            "softmax" => Some(10.0),
            _ => None,
        };
        let total = milliseconds(times.ptx) + cubin.map_or(0.0, milliseconds);
        let most = match case.operator {
            "gemm" => Some(10.0),
            "attention" => Some(30.0),
            _ => None,
        };
        let over = limit.is_some_and(|limit| milliseconds(times.ptx) > limit || total > 1000.0)
            || most.is_some_and(|most| milliseconds(times.passes) > most);
        slow |= over;
        println!(
            "{:<28} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>9.2}  {}{}",
            format!("{} {}", case.kernel, case.policy),
            milliseconds(times.schedule),
            milliseconds(times.target),
            milliseconds(times.ptx),
            cubin.map_or(String::new(), |_| format!("{total:.0}")),
            milliseconds(times.passes),
            case.name,
            if over { "  too slow" } else { "" }
        );
    }
    if slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
