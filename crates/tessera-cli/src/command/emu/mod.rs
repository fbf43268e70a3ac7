//! `tessera emu`: kernels of PTX files on the emulator, one after the other on the same memory, with arguments by position.

mod memory;
mod over;
mod value;

use clap::Parser;
use serde_json::json;
use tessera::driver::{Dim3, Params};
use tessera::emu::{EmuError, Emulator, LaunchOptions, Launched, Module, Sanitize};
use tessera::runtime::npy;

use self::memory::{Memory, Write};
use crate::arguments::{Emu, EmuLaunch, Then};
use crate::command::emulation::{how, options, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::Judge;
use crate::command::launch::time_limit;
use crate::command::results::show;
use crate::failure::{Failure, Outcome, read_text};
use crate::finding::Spot;

/// One launch, ready to run.
struct Prepared<'a> {
    module: &'a Module,
    entry: String,
    grid: Dim3,
    block: Dim3,
    options: LaunchOptions,
    params: Params,
    writes: Vec<Write>,
}

pub(crate) fn emu(arguments: Emu) -> Outcome {
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let machine = options(&arguments.emulation, time_limit(&arguments.patience)?, arguments.seed.unwrap_or_default())?;
    let emulator = Emulator::new(&machine).map_err(Failure::environment)?;
    let steps = steps(&arguments)?;
    let mut modules: Vec<(&str, Module)> = Vec::new();
    for (path, _) in &steps {
        if modules.iter().all(|(known, _)| known != path) {
            let text = read_text(path)?;
            modules.push((path, emulator.load(&text).map_err(|error| not_taken(path, &error))?));
        }
    }
    let mut memory = Memory::new(&emulator, &modules.iter().map(|(_, module)| module).collect::<Vec<_>>())?;
    for text in &arguments.array {
        in_text("--array ", text, |text| memory.declare(&value::parse(text).map_err(Failure::usage)?))?;
    }
    let mut launches = Vec::new();
    for (path, step) in &steps {
        let Some((_, module)) = modules.iter().find(|(known, _)| known == path) else { continue };
        launches.push(prepare(&mut memory, module, step, &machine.launch)?);
    }
    let saves = arguments.save.iter().map(|text| match text.split_once('=') {
        Some((name, path)) => memory.named(name).map(|at| (at, path)),
        None => Err(Failure::usage(format!("`--save {text}`\nhelp: write `--save NAME=FILE.npy`"))),
    });
    let saves = saves.collect::<Result<Vec<_>, Failure>>()?;

    let judge = Judge::new(&machine.launch, &arguments.emulation);
    let launched = run(&emulator, &mut memory, &launches, &judge)?;
    for (index, path) in &saves {
        npy::write(path, &memory.after(&memory.arrays[*index])?.0).map_err(Failure::environment)?;
    }
    if launched.iter().all(|launch| launch.finished) {
        refuse_idle_trace(&arguments.emulation, &launched)?;
    }
    if arguments.json {
        let files: Vec<String> = steps.iter().map(|(path, _)| path.clone()).collect();
        return tell_programs(&files, &emulator, &judge, &launched);
    }
    for (launch, prepared) in launched.iter().zip(&launches) {
        let report = &launch.report;
        print!("{}", report.output);
        let clean = launch.finished && report.findings.is_empty() && prepared.options.sanitize != Sanitize::NONE;
        println!(
            "{} on {} (emulated), {}: {} thread-instructions{}",
            launch.kernel,
            emulator.device().name,
            how(&prepared.options),
            report.instructions,
            if clean { ", nothing found" } else { "" }
        );
    }
    for array in &memory.arrays {
        let (after, changed) = memory.after(array)?;
        if changed {
            show(&array.name, &after)?;
        }
    }
    judge.tell(&launched)
}

/// Why a file is not what is executed, and where in it.
fn not_taken(file: &str, error: &EmuError) -> Failure {
    let failure = Failure::usage(format!("`{file}`: {error}"));
    let EmuError::Parse(at) = error else { return failure };
    failure.at(Spot { file: file.to_string(), line: at.line as usize, column: at.column as usize })
}

/// The launches that the command line asks for, each with its file.
fn steps(arguments: &Emu) -> Result<Vec<(String, EmuLaunch)>, Failure> {
    let mut steps = vec![(arguments.file.clone(), arguments.launch.clone())];
    if arguments.then.is_empty() {
        return Ok(steps);
    }
    for words in arguments.then.split(|word| word == "--then") {
        let then = Then::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(format!(
                "`--then {}`: {first}\nhelp: a further launch takes arguments, --file, --entry, --grid, --block, --cluster, --shared and --set; all else \
                 stands in front of the first --then",
                words.join(" ")
            ))
        })?;
        steps.push((then.file.unwrap_or_else(|| arguments.file.clone()), then.launch));
    }
    Ok(steps)
}

/// Names the part of the command line that a failure is about.
fn in_text<T>(option: &str, text: &str, act: impl FnOnce(&str) -> Result<T, Failure>) -> Result<T, Failure> {
    act(text).map_err(|failure| failure.about(&format!("`{option}{text}`")))
}

fn prepare<'a>(
    memory: &mut Memory<'_>,
    module: &'a Module,
    step: &EmuLaunch,
    machine: &LaunchOptions,
) -> Result<Prepared<'a>, Failure> {
    let kernels: Vec<&str> = module.kernels().collect();
    let entry = match (&step.entry, kernels.as_slice()) {
        (Some(name), _) => name.as_str(),
        (None, [only]) => only,
        (None, []) => return Err(Failure::usage("the file has no kernel (`.entry`)")),
        (None, _) => return Err(Failure::usage(format!("`--entry NAME` is missing: one of {}", kernels.join(", ")))),
    };
    let parameters = module.parameters(entry).map_err(Failure::usage)?;
    if step.arguments.len() != parameters.len() {
        let wanted: Vec<String> = parameters.iter().map(|p| format!("{} (.{}, {} bytes)", p.name, p.ty, p.bytes)).collect();
        return Err(Failure::usage(format!(
            "{} arguments for {} parameters of `{entry}`: {}",
            step.arguments.len(),
            parameters.len(),
            wanted.join(", ")
        )));
    }
    let mut params = Params::new();
    for (text, parameter) in step.arguments.iter().zip(&parameters) {
        let named = value::parse(text).map_err(Failure::usage);
        let bytes = named.and_then(|named| memory.argument(&named, parameter));
        let bytes = bytes.map_err(|failure| failure.about(&format!("`{text}` for `{}`", parameter.name)))?;
        params = params.aligned(&bytes, 64);
    }
    let mut writes = Vec::new();
    for text in &step.set {
        writes.push(in_text("--set ", text, |text| {
            let (place, value) =
                text.split_once('=').ok_or_else(|| Failure::usage("no value\nhelp: write `--set NAME=VALUE`"))?;
            let value::Value::Place(place) = value::parse(place).map_err(Failure::usage)?.value else {
                return Err(Failure::usage(
                    "no variable\nhelp: write `--set NAME=VALUE`, `NAME[INDEX]=VALUE` or `NAME+BYTES=VALUE`",
                ));
            };
            memory.assignment(&place, &value::parse(value).map_err(Failure::usage)?)
        })?);
    }
    let cluster = step.cluster.as_deref().map(|text| extents("--cluster", text)).transpose()?;
    Ok(Prepared {
        module,
        entry: entry.to_owned(),
        grid: extents("--grid", &step.grid)?,
        block: extents("--block", &step.block)?,
        options: LaunchOptions { cluster, shared_bytes: step.shared, ..machine.clone() },
        params,
        writes,
    })
}

/// Runs the launches until one does not end, or has a finding that ends the command.
fn run(emulator: &Emulator, memory: &mut Memory<'_>, launches: &[Prepared<'_>], judge: &Judge) -> Result<Vec<Launched>, Failure> {
    let mut launched: Vec<Launched> = Vec::new();
    for Prepared { module, entry, grid, block, options, params, writes } in launches {
        memory.write(writes)?;
        let (report, finished) = match emulator.launch(module, entry, *grid, *block, params, options) {
            Ok(report) => (report, true),
            Err(EmuError::Fault { report, .. }) => (*report, false),
            Err(error) => return Err(Failure::usage(error)),
        };
        launched.push(Launched {
            kernel: entry.clone(),
            grid: [grid.x, grid.y, grid.z],
            block: [block.x, block.y, block.z],
            schedule: options.schedule,
            seed: options.seed,
            finished,
            report,
        });
        if !finished || (!options.keep_going && !judge.passed(&launched)) {
            break;
        }
    }
    Ok(launched)
}

/// One object of what was found.
fn tell_programs(files: &[String], emulator: &Emulator, judge: &Judge, launched: &[Launched]) -> Outcome {
    let mut object = judge.json(launched);
    object.insert("file".to_owned(), json!(files[0]));
    object.insert("device".to_owned(), json!(emulator.device().name));
    // Without `.loc` the text itself is the source.
    for list in ["findings", "suppressed"] {
        for finding in object.get_mut(list).and_then(|list| list.as_array_mut()).into_iter().flatten() {
            let by_kernel = launched.iter().position(|launch| finding["kernel"] == json!(launch.kernel));
            name_file(finding, &files[by_kernel.unwrap_or(0).min(files.len() - 1)]);
        }
    }
    let verdict = judge.silent_verdict(launched);
    object.insert("command".to_owned(), json!("emu"));
    object.insert("exit".to_owned(), json!(verdict.as_ref().map_or_else(|failure| failure.exit, |()| 0)));
    println!("{}", json!(object));
    verdict
}

/// Gives a finding and what it conflicts with the PTX file as their file, where `.loc` names none.
fn name_file(finding: &mut serde_json::Value, path: &str) {
    if let Some(earlier) = finding.get_mut("earlier").filter(|earlier| !earlier.is_null()) {
        name_file(earlier, path);
    }
    if finding["file"].is_null() {
        finding["file"] = json!(path);
        finding["line"] = finding["ptx_line"].clone();
    }
}

fn extents(option: &str, text: &str) -> Result<Dim3, Failure> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|part| part.parse().ok().filter(|&n| n > 0)).collect();
    match numbers.as_deref() {
        Some([x]) => Ok(Dim3::new(*x, 1, 1)),
        Some([x, y]) => Ok(Dim3::new(*x, *y, 1)),
        Some([x, y, z]) => Ok(Dim3::new(*x, *y, *z)),
        _ => Err(Failure::usage(format!("`{option} {text}`\nhelp: write `X`, `X,Y` or `X,Y,Z`"))),
    }
}
