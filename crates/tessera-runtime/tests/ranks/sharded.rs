//! Products and attention, sharded in every way that the pass is for, on 1 to 16 ranks: they equal the unsharded program. The same programs
//! run as processes in `processes.rs`.

use std::time::Duration;

use tessera_emu::{EmuOptions, Sanitize};
use tessera_runtime::ranks::{RankedKernel, World};
use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, LaunchGrid, LaunchOptions, Value};

use super::cases::{lines_of, product_of};
use super::{arguments, both, close, equal, integers, named, normal};

/// Programs for a number of ranks, with the error that is allowed, relative and absolute; none where results are exact.
fn programs(ranks: usize) -> Vec<(&'static str, String, Option<f64>)> {
    let mesh = format!("tp={ranks}");
    let product = |shardings| product_of([2 * ranks, 3 * ranks, 4 * ranks], "f32", "f32", shardings, &mesh);
    let whole = "[_, _, _, _]";
    vec![
        ("contraction", product(["[_, tp]", "[tp, _]", ""]), None),
        ("contraction, rows of the result", product(["[_, tp]", "[tp, _]", "[tp, _]"]), None),
        ("rows", product(["[tp, _]", "", "[tp, _]"]), None),
        ("columns", product(["", "[_, tp]", "[_, tp]"]), None),
        ("columns, the result whole", product(["", "[_, tp]", "[_, _]"]), None),
        ("rows to columns", product(["[tp, _]", "", "[_, tp]"]), None),
        ("batches", lines_of([ranks, 1, 16], "f32", "[tp, _, _, _]", "[tp, _, _, _]", &mesh, false), Some(0.0)),
        ("heads", lines_of([1, ranks, 16], "f32", "[_, tp, _, _]", "[_, tp, _, _]", &mesh, false), Some(0.0)),
        ("keys", lines_of([1, 2, 4 * ranks], "f32", whole, "[_, _, tp, _]", &mesh, false), Some(1e-5)),
    ]
}

#[test]
fn sharded_programs_on_1_to_16_ranks_equal_the_unsharded_one() {
    for ranks in 1..=16 {
        for (name, text, allowed) in programs(ranks) {
            let context = format!("{name} on {ranks}\n{text}");
            match allowed {
                None => equal(&both(&text, &[], integers(3)), &context),
                Some(error) => close(&both(&text, &[], normal(3)), error, error, &context),
            }
        }
    }
}

/// The same on emulated devices, whose ranks exchange through each other's memory where there is a kernel for it: nothing races.
#[test]
fn sharded_programs_on_emulated_devices_equal_the_unsharded_one() {
    let ranks = 3;
    let launch = tessera_emu::LaunchOptions { sanitize: Sanitize::ALL, ..tessera_emu::LaunchOptions::default() };
    let options = EmuOptions { devices: ranks as u32, multiprocessors: Some(2), launch, ..EmuOptions::default() };
    let (devices, console) = Device::watched_emulators(&options).expect("emulated devices");
    let limit = Duration::from_secs(60);
    for (name, text, allowed) in programs(ranks) {
        // The CPU, where the unsharded one runs, has other powers.
        let allowed = allowed.map(|error: f64| error.max(1e-5));
        let ran = equals_alone(&text, allowed, 0, |ranked, args, how| ranked.run_on_peers(args, &devices, limit, how));
        assert_eq!(ran, Ok(()), "{name} on {ranks}\n{text}");
        let found: Vec<String> =
            console.take().iter().flat_map(|launched| &launched.report.findings).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{name} on {ranks}: {found:?}");
    }
}

/// Runs the programs as one of the processes of a world; rank 0 compares.
pub(super) fn as_process(world: &World) -> Result<(), String> {
    for (name, text, allowed) in programs(world.ranks()) {
        let run = |ranked: &RankedKernel, args: &[(&str, Value)], how: (&CompileOptions, &LaunchOptions)| {
            ranked.run_as_rank(world, args, &Device::Cpu, None, how)
        };
        equals_alone(&text, allowed, world.rank(), run).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Runs a program in some way on its ranks; in rank 0 the results equal those of the unsharded one.
fn equals_alone(
    text: &str,
    allowed: Option<f64>,
    rank: usize,
    run: impl Fn(&RankedKernel, &[(&str, Value)], (&CompileOptions, &LaunchOptions)) -> Result<(), KernelError>,
) -> Result<(), String> {
    let (options, launch) = (CompileOptions::default(), LaunchOptions::default());
    let told = |error: KernelError| error.to_string();
    let kernel = Kernel::from_ir("program.tir", text, "f").map_err(told)?;
    let ranked = RankedKernel::new(&kernel).map_err(told)?.ok_or("no mesh")?.checking_calls(true);
    let fill = |name: &str, dtype, shape: &[usize]| match allowed {
        None => integers(3)(name, dtype, shape),
        Some(_) => normal(3)(name, dtype, shape),
    };
    let arguments = || arguments(text, &[], fill);
    let (alone, together) = (arguments(), arguments());
    let (alone, together) = (named(&alone), named(&together));
    run(&ranked, &together, (&options, &launch)).map_err(told)?;
    if rank != 0 {
        return Ok(());
    }
    kernel.prepare(&alone, LaunchGrid::Auto, &options, &Device::Cpu).and_then(|launch| launch.run()).map_err(told)?;
    let result = |args: &[(&str, Value)]| match args.iter().find(|(name, _)| *name == "out") {
        Some((_, Value::Tensor(tensor))) => tensor.clone(),
        _ => panic!("no result"),
    };
    let error = allowed.unwrap_or(0.0);
    match result(&together).difference(&result(&alone), |_, value| error + error * value.abs()) {
        Ok(None) => Ok(()),
        difference => Err(format!("{difference:?}")),
    }
}
