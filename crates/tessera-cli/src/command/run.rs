//! `tessera run`: one kernel on arguments from the command line.

use std::time::Instant;

use serde_json::json;
use tessera::runtime::{Device, LaunchOptions, npy};

use crate::arguments::Run;
use crate::command::launch::{Subject, compile_options, device, grid, kernel_failure, sanitize};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(arguments: Run) -> Outcome {
    let (device, reason) = device(arguments.device.as_deref())?;
    let checked = sanitize(arguments.sanitize.as_deref())?;
    let options = compile_options(&arguments.optimise, arguments.block)?;
    let subject = Subject::read(&arguments.launch.subject, &arguments.launch.arguments)?;
    let saves = saves(&arguments.save, &subject)?;
    let grid = grid(arguments.launch.grid.as_deref())?;

    let there = subject.on(&device)?;
    let launch = there.kernel.prepare(&there.by_name(), grid, &options, &device).map_err(kernel_failure)?;
    let start = Instant::now();
    let printed = launch.run_with(&LaunchOptions { checked, threads: None }).map_err(kernel_failure)?;
    let seconds = start.elapsed().as_secs_f64();
    print!("{printed}");
    let subject = there.on(&Device::Cpu)?;
    for (name, path) in &saves {
        npy::write(path, subject.tensor(name)?).map_err(Failure::environment)?;
    }

    let [x, y, z] = launch.grid();
    let compile: f64 = launch.stages().iter().map(|stage| stage.time.as_secs_f64()).sum();
    if arguments.json {
        let stages: serde_json::Map<String, serde_json::Value> =
            launch.stages().iter().map(|stage| (stage.name.to_string(), json!(stage.time.as_secs_f64()))).collect();
        let object = json!({
            "kernel": subject.kernel.name(), "device": device.to_string(), "grid": [x, y, z], "checked": checked,
            "compile_s": compile, "run_s": seconds, "stages_s": stages, "notes": launch.notes(),
            "saved": saves.iter().map(|(name, path)| json!({"name": name, "path": path})).collect::<Vec<_>>(),
        });
        println!("{object}");
        return Ok(());
    }
    println!(
        "{} on {device} ({reason}): grid {x}x{y}x{z}, compiled in {:.2} ms, ran in {:.3} ms{}",
        subject.kernel.name(),
        compile * 1e3,
        seconds * 1e3,
        if checked { ", checked: nothing found" } else { "" }
    );
    for (name, tensor) in launch.written().flat_map(|name| subject.arrays(name)) {
        println!("  {name}: {}{:?} = {}", tensor.dtype(), tensor.shape(), first_elements(tensor)?);
    }
    for (name, path) in &saves {
        println!("  wrote {name} to {path}");
    }
    Ok(())
}

/// `NAME=FILE` of every `--save`, checked before anything runs.
fn saves(texts: &[String], subject: &Subject) -> Result<Vec<(String, String)>, Failure> {
    texts
        .iter()
        .map(|text| {
            let (name, path) = text
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("`--save {text}`\nhelp: write `--save NAME=FILE.npy`")))?;
            subject.tensor(name)?;
            Ok((name.to_string(), path.to_string()))
        })
        .collect()
}

/// The first few elements, as a user would want to see that something came out.
fn first_elements(tensor: &tessera::runtime::Tensor) -> Result<String, Failure> {
    const SHOWN: usize = 6;
    let count = tensor.len().min(SHOWN);
    let mut values = [0.0; SHOWN];
    tensor.read_f64(0, &mut values[..count]).map_err(Failure::environment)?;
    let mut texts: Vec<String> = values[..count].iter().map(|value| format!("{}", *value as f32)).collect();
    if tensor.len() > SHOWN {
        texts.push("...".to_string());
    }
    Ok(format!("[{}]", texts.join(", ")))
}
