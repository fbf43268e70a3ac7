//! Products and attention, sharded in every way that the pass is for, on 1 to 16 ranks: they equal the unsharded program. The same programs
//! run as processes in `processes.rs`.

use tessera_runtime::ranks::{RankedKernel, World};
use tessera_runtime::{CompileOptions, Device, Kernel, LaunchGrid, LaunchOptions, Value};

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

/// Runs the programs as one of the processes of a world; rank 0 compares.
pub(super) fn as_process(world: &World) -> Result<(), String> {
    let (options, launch) = (CompileOptions::default(), LaunchOptions::default());
    for (name, text, allowed) in programs(world.ranks()) {
        let kernel = Kernel::from_ir("program.tir", &text, "f").map_err(|error| error.to_string())?;
        let ranked = RankedKernel::new(&kernel).map_err(|error| error.to_string())?.ok_or("no mesh")?.checking_calls(true);
        let fill = |name: &str, dtype, shape: &[usize]| match allowed {
            None => integers(3)(name, dtype, shape),
            Some(_) => normal(3)(name, dtype, shape),
        };
        let arguments = || arguments(&text, &[], fill);
        let (alone, together) = (arguments(), arguments());
        let (alone, together) = (named(&alone), named(&together));
        let run = ranked.run_as_rank(world, &together, &Device::Cpu, None, (&options, &launch));
        run.map_err(|error| format!("{name}: {error}"))?;
        if world.rank() != 0 {
            continue;
        }
        kernel
            .prepare(&alone, LaunchGrid::Auto, &options, &Device::Cpu)
            .and_then(|launch| launch.run())
            .map_err(|error| error.to_string())?;
        let result = |args: &[(&str, Value)]| match args.iter().find(|(name, _)| *name == "out") {
            Some((_, Value::Tensor(tensor))) => tensor.clone(),
            _ => panic!("no result"),
        };
        let error = allowed.unwrap_or(0.0);
        let difference = result(&together).difference(&result(&alone), |_, value| error + error * value.abs());
        if difference != Ok(None) {
            return Err(format!("{name}: {difference:?}"));
        }
    }
    Ok(())
}
