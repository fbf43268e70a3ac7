//! `tessera run`: one kernel, or an operator of the library, on arguments from the command line.

use std::time::Instant;

use serde_json::{Map, Value, json};
use tessera::ir::{Level, Severity};
use tessera::runtime::ranks::RankedKernel;
use tessera::runtime::{Device, LaunchGrid, LaunchOptions, PreparedLaunch};

use crate::arguments::Run;
use crate::command::emulation::{open, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::findings;
use crate::command::launch::{Subject, compile_options, grid, kernel_failure, time_limit};
use crate::command::locking::{told, tuned_json};
use crate::command::results::{Saves, ended, judged, looked_at, repeat, show};
use crate::command::{ranks, run_bundle, run_operator, unwritten};
use crate::failure::{Failure, Outcome, remark, write_text};

pub(crate) fn run(arguments: Run) -> Outcome {
    if let Some(named) = run_bundle::named(&arguments.launch.subject) {
        return run_bundle::run(named, &arguments);
    }
    if let Some(operator) = run_operator::named(&arguments.launch.subject)? {
        return run_operator::run(operator, &arguments);
    }
    let mut options = compile_options(&arguments.optimise, arguments.block)?;
    let subject = Subject::read(&arguments.launch.subject, &arguments.launch.arguments)?.locked(&arguments.optimise.locking)?;
    let saves = Saves::read(&arguments.save, |name| subject.tensor(name).map(drop))?;
    let placement = ranks::placement(arguments.ranks)?;
    let count = arguments.ranks.or(placement.as_ref().map(|placement| placement.ranks));
    if let Some(ranked) = RankedKernel::for_ranks(&subject.kernel, count).map_err(kernel_failure)? {
        return ranks::run(ranked, &arguments, &subject, &options, (&saves, placement));
    }
    if arguments.ranks.is_some() || arguments.check_calls {
        let name = subject.kernel.name();
        return Err(Failure::usage(format!(
            "`{name}` has no mesh: it is for one device\nhelp: give it one, as `graph @f(...) ... mesh(tp=2)`, or leave out `--ranks` and `--check-calls`"
        )));
    }
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let limit = time_limit(&arguments.patience)?;
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, limit), arguments.seed)?;
    let (device, reason, checked) = (&opened.device, &opened.reason, opened.checked);
    let grid = grid(arguments.launch.grid.as_deref())?;
    if arguments.timeline.is_some() {
        if matches!(device, Device::Cpu) {
            let help = "help: `--device emu` has a clock of its own, `--device cuda` the GPU's";
            return Err(Failure::usage(format!("blocks on the CPU have no warps whose times could be shown\n{help}")));
        }
        options.timeline = Some(recorded_blocks(grid));
    }

    let empty: Vec<String> = subject.empty().into_iter().map(|(name, _)| name).collect();
    let there = subject.on(device)?;
    let launch = there.kernel.prepare(&there.by_name(), grid, &options, device).map_err(kernel_failure)?;
    remark(launch.remark(), launch.sources());
    let how = LaunchOptions { checked, limit, ..LaunchOptions::default() };
    let start = Instant::now();
    let outcome = unwritten::run(&launch, &how)?;
    let seconds = start.elapsed().as_secs_f64();
    let launches = opened.launches();
    let mut data = judged(&opened, &launches);
    data.insert("kernel".to_owned(), json!(there.kernel.name()));
    let ran = match ended(outcome, (&opened, &launches), (&data, arguments.json)) {
        Ok(ran) => ran,
        Err(end) => return end,
    };
    repeat(&ran, arguments.json);
    refuse_idle_trace(&arguments.emulation, &launches)?;
    if let Some(path) = &arguments.timeline {
        write_timeline(path, &launch)?;
    }
    let checked = checked || opened.sanitizes();
    let results = there.on(&Device::Cpu)?;
    let again = |otherwise: bool| {
        let other = Subject::read(&arguments.launch.subject, &arguments.launch.arguments)?.locked(&arguments.optimise.locking)?;
        if otherwise {
            other.arguments.poison_again()?;
        }
        let other = other.on(device)?;
        let launch = other.kernel.prepare(&other.by_name(), grid, &options, device).map_err(kernel_failure)?;
        unwritten::run(&launch, &LaunchOptions { checked: false, ..how })?.map_err(kernel_failure)?;
        opened.launches();
        Ok(other.arguments)
    };
    let written: Vec<String> = launch.written().flat_map(|name| results.arrays(name)).map(|(name, _)| name).collect();
    let left = unwritten::left((ran.unwritten, checked), (&empty, &written), &results.arguments, again)?;
    let severity = if checked { Severity::Error } else { Severity::Warning };
    let diagnostics = unwritten::diagnostics(&left, severity, &unwritten::Launch::of(&subject.kernel, &launch, grid));
    saves.write(|name| results.tensor(name))?;

    let [x, y, z] = launch.grid();
    let compile: f64 = launch.stages().iter().map(|stage| stage.time.as_secs_f64()).sum();
    let found = Failure::fault(&diagnostics, launch.sources());
    let failed = checked && !diagnostics.is_empty() || !opened.judge.passed(&launches);
    if arguments.json {
        let stages: Map<String, Value> =
            launch.stages().iter().map(|stage| (stage.name.to_string(), json!(stage.time.as_secs_f64()))).collect();
        let own = json!({
            "device": device.to_string(), "grid": [x, y, z], "checked": checked,
            "compile_s": compile, "run_s": seconds, "stages_s": stages, "notes": launch.notes(),
            "saved": saves.json(), "printed": ran.printed,
        });
        data.extend(own.as_object().cloned().unwrap_or_default());
        data.extend(launch.tuned().map(|tuned| ("tuned".to_string(), tuned_json(tuned))));
        return found.and(findings(&launches)).conclude(failed, Some(&json!(data)));
    }
    let verdict = match launch.grid().contains(&0) {
        true => "; without blocks, nothing ran".to_string(),
        false => looked_at(checked, diagnostics.len() + findings(&launches).len(), unlooked(&launch, device, &empty)),
    };
    println!(
        "{} on {device} ({reason}): grid {x}x{y}x{z}, compiled in {:.2} ms, ran in {:.3} ms{verdict}",
        subject.kernel.name(),
        compile * 1e3,
        seconds * 1e3,
    );
    launch.tuned().into_iter().for_each(|tuned| println!("  {}", told(tuned)));
    for name in &written {
        show(name, results.tensor(name)?)?;
    }
    saves.tell();
    if let Some(path) = &arguments.timeline {
        println!("  wrote the timeline to {path}");
    }
    opened.judge.tell(&launches)?;
    found.conclude(failed, None)
}

/// What a checked launch was not looked at for.
fn unlooked(launch: &PreparedLaunch, device: &Device, empty: &[String]) -> &'static str {
    let in_threads = matches!(device, Device::Cpu) && launch.compiled().func().level == Level::Tile;
    match in_threads && !empty.is_empty() {
        true => " (reads of `empty` arrays are looked at with `--device emu`)",
        false => "",
    }
}

fn write_timeline(path: &str, launch: &PreparedLaunch) -> Outcome {
    let recorded = launch.on_device().map(|launch| launch.timeline()).transpose().map_err(Failure::environment)?.flatten();
    let Some(timeline) = recorded else {
        return Err(Failure::usage("the kernel has no marks to show\nhelp: kernels compiled with `-O1` and more have them"));
    };
    write_text(path, &timeline.chrome_trace())
}

/// Every how many-th block is recorded: all of a few, about a hundred of many.
fn recorded_blocks(grid: LaunchGrid) -> u32 {
    match grid {
        LaunchGrid::Blocks(blocks) => {
            let count: u64 = blocks.iter().map(|&n| u64::from(n)).product();
            u32::try_from(count.div_ceil(128)).unwrap_or(u32::MAX).max(1)
        }
        LaunchGrid::Auto => 4,
    }
}
