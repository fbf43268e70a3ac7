//! `tessera run OP`: an operator of the library on one's own arrays.
//!
//! Arrays go to the operator by their names, and say its extents and its precision; the output is made where it is not given.
//! `variant=nt` and `precision=bf16->bf16` are what the operator can be told beside them, and numbers such as `eps=1e-6`.

use std::time::Instant;

use serde_json::{Value as Json, json};
use tessera::ops::{Call, CallError, OPERATORS, Operator, OutputArray, PlanError, find};
use tessera::runtime::{Device, LaunchOptions, Lock, PreparedLaunch, Tensor, Unwritten, Value};
use tessera::types::Policy;

use crate::arguments::Run;
use crate::command::emulation::{open, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::findings;
use crate::command::launch::{kernel_failure, library_options, load, other_poison, parse, time_limit};
use crate::command::locking::{self, told, tuned_json};
use crate::command::results::{Saves, ended, judged, show};
use crate::command::unwritten;
use crate::failure::{Failure, Outcome, remark};
use crate::finding::{Class, Finding};

/// The operator that a subject names; `None` where it names a kernel.
pub(crate) fn named(subject: &str) -> Result<Option<&'static Operator>, Failure> {
    let is_file = subject.ends_with(".py") || subject.ends_with(".tir");
    match find(subject) {
        None if !is_file && !subject.contains("::") => {
            let names: Vec<&str> = OPERATORS.iter().map(|operator| operator.name).collect();
            let help = format!("operators are {}; a kernel of a file is `FILE::KERNEL`", names.join(", "));
            Err(Failure::usage(format!("`{subject}` is neither an operator nor a kernel\nhelp: {help}")))
        }
        found => Ok(found),
    }
}

pub(crate) fn run(operator: &'static Operator, arguments: &Run) -> Outcome {
    refuse_kernels_options(arguments)?;
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let options = library_options(&arguments.optimise)?;
    let (variant, texts) = told_once("variant", &arguments.launch.arguments)?;
    let (precision, texts) = told_once("precision", &texts)?;
    let policy = precision.map(|text| text.parse::<Policy>().map_err(Failure::usage)).transpose()?;
    let (variant, signature) = operator.signature(variant.as_deref()).map_err(call_failure)?;
    let arrays = || signature.arrays().map(|operand| operand.name());
    let saves = Saves::read(&arguments.save, |name| match arrays().any(|own| own == name) {
        true => Ok(()),
        false => Err(Failure::usage(format!("`--save {name}=...`: arrays are {}", arrays().collect::<Vec<_>>().join(", ")))),
    })?;
    let limit = time_limit(&arguments.patience)?;
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, limit), arguments.seed)?;
    let device = &opened.device;

    let made = load(&parse(&texts)?)?;
    let mut call = Call { variant: Some(variant), ..given(operator, &made, device)? };
    // Contents were made here, and are the device's from now on.
    let contents = |wanted: &str| {
        made.iter()
            .find_map(|(name, value)| if let Value::Tensor(tensor) = value { (name == wanted).then_some(tensor) } else { None })
    };
    call.lock = locking::read(&arguments.optimise.locking, None)?.filter(|_| Lock::is_asked(&options));
    let resolved = operator.resolve_in(&call, policy).map_err(call_failure)?;
    signature.refuse_values(&call.scalars, contents).map_err(call_failure)?;
    let made_here = |shape: &[usize], dtype| Tensor::empty(dtype, shape).and_then(|empty| empty.to_device(device));
    let outputs = resolved.outputs().iter().map(|output| match &output.given {
        Some(given) => Ok(given.clone()),
        None => made_here(&output.shape, output.dtype).map_err(Failure::environment),
    });
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let launches = resolved.prepare(&outputs, &options).map_err(call_failure)?;
    launches.iter().for_each(|launch| remark(launch.remark(), launch.sources()));

    let how = LaunchOptions { checked: opened.checked, limit, ..LaunchOptions::default() };
    let (mut emulated, mut left) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for launch in &launches {
        let outcome = unwritten::run(launch, &how)?;
        emulated.extend(opened.launches());
        match ended(outcome, (&opened, &emulated), (&judged(&opened, &emulated), arguments.json)) {
            Ok(ran) => left.extend(ran.unwritten.into_iter().flatten()),
            Err(end) => return end,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    refuse_idle_trace(&arguments.emulation, &emulated)?;
    // Copies: launches that are done once more write the arrays themselves.
    let copied = |tensor: &Tensor| tensor.to_device(&Device::Cpu).and_then(|host| host.contiguous());
    let on_host = |tensor: &Tensor| copied(tensor).map_err(Failure::environment);
    let results = outputs.iter().map(on_host).collect::<Result<Vec<_>, _>>()?;
    let named: Vec<(&OutputArray, &Tensor)> = resolved.outputs().iter().zip(&results).collect();
    // What is updated in place cannot be done once more.
    let is_fresh = resolved.outputs().iter().all(|output| output.given.is_none());
    if launches.len() > 1 && !left.is_empty() && is_fresh {
        left = left_by_all(&launches, &how, &outputs, &named)?;
        opened.launches();
    }
    saves.write(|saved| {
        let input = made.iter().find_map(|(own, value)| match value {
            Value::Tensor(tensor) if own == saved => Some(tensor),
            _ => None,
        });
        let result = named.iter().find(|(output, _)| output.name == saved).map(|(_, result)| *result);
        result.or(input).ok_or_else(|| Failure::usage(format!("`--save {saved}=...`: `{saved}` is not given")))
    })?;

    let checked = opened.checked || opened.sanitizes();
    let found = unwritten_failure(&left);
    let failed = !found.is_told() || !opened.judge.passed(&emulated);
    // An empty sum of floats is -0.
    let compile = launches.iter().flat_map(PreparedLaunch::stages).fold(0.0, |total, stage| total + stage.time.as_secs_f64());
    if arguments.json {
        let kernel = |launch: &PreparedLaunch| json!({ "kernel": launch.compiled().func().name, "grid": launch.grid() });
        let mut data = judged(&opened, &emulated);
        let own = json!({
            "operator": operator.name, "variant": variant, "device": device.to_string(), "checked": checked,
            "kernels": launches.iter().map(kernel).collect::<Vec<Json>>(), "compile_s": compile, "run_s": seconds,
            "way": resolved.tuned().map(tuned_json),
            "outputs": resolved.outputs().iter().map(output_json).collect::<Vec<Json>>(),
            "saved": saves.json(),
        });
        data.extend(own.as_object().cloned().unwrap_or_default());
        return found.and(findings(&emulated)).conclude(failed, Some(&json!(data)));
    }
    let title = if variant.is_empty() { operator.name.to_string() } else { format!("{} {variant}", operator.name) };
    let count = match launches.len() {
        0 => "nothing to launch".to_string(),
        1 => "1 launch".to_string(),
        count => format!("{count} launches"),
    };
    let verdict = match (checked, left.len()) {
        (false, _) => String::new(),
        (true, 0) => ", checked: nothing found".to_string(),
        (true, count) => format!(", checked: {count} found"),
    };
    println!(
        "{title} on {device} ({}): {count}, compiled in {:.2} ms, ran in {:.3} ms{verdict}",
        opened.reason,
        compile * 1e3,
        seconds * 1e3
    );
    let tuned = resolved.tuned().into_iter().chain(launches.iter().filter_map(PreparedLaunch::tuned));
    tuned.for_each(|tuned| println!("  {}", told(tuned)));
    named.iter().try_for_each(|(output, result)| show(output.name, result))?;
    saves.tell();
    opened.judge.tell(&emulated)?;
    found.conclude(failed, None)
}

/// Arguments as the operator takes them: arrays on its device, and numbers.
fn given<'a>(operator: &Operator, made: &'a [(String, Value)], device: &Device) -> Result<Call<'a>, Failure> {
    let mut call = Call::default();
    for (name, value) in made {
        match value {
            Value::Tensor(tensor) => call.tensors.push((name, tensor.to_device(device).map_err(Failure::environment)?)),
            Value::Int(number) => call.scalars.push((name, *number as f64)),
            Value::Float(number) => call.scalars.push((name, *number)),
            _ => {
                return Err(Failure::usage(format!(
                    "`{name}`: {} takes arrays and numbers, `variant=` and `precision=`",
                    operator.name
                )));
            }
        }
    }
    Ok(call)
}

fn output_json(output: &OutputArray) -> Json {
    json!({ "name": output.name, "dtype": output.dtype.to_string(), "shape": output.shape })
}

/// Options that mean something for a kernel of a file alone.
fn refuse_kernels_options(arguments: &Run) -> Outcome {
    let given = [
        ("--grid", arguments.launch.grid.is_some(), "operators have a grid of their own"),
        ("--block", arguments.block.is_some(), "operators choose their own threads"),
        ("--timeline", arguments.timeline.is_some(), "an operator may launch several kernels, and a timeline is of one"),
        ("--path", !arguments.launch.project.path.is_empty(), "operators import nothing"),
        ("--ranks", arguments.ranks.is_some(), "operators run on one device"),
        ("--check-calls", arguments.check_calls, "operators run on one device, and exchange nothing"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`, or name a kernel of a file"))),
        None => Ok(()),
    }
}

/// What `NAME=` says, and the other arguments.
fn told_once(name: &str, texts: &[String]) -> Result<(Option<String>, Vec<String>), Failure> {
    let said = |text: &String| text.strip_prefix(name)?.strip_prefix('=').map(str::to_string);
    let named: Vec<String> = texts.iter().filter_map(said).collect();
    match named.len() {
        0 | 1 => Ok((named.into_iter().next(), texts.iter().filter(|text| said(text).is_none()).cloned().collect())),
        _ => Err(Failure::usage(format!("`{name}` is given twice"))),
    }
}

fn call_failure(error: CallError) -> Failure {
    match error {
        CallError::Kernel(error) | CallError::Plan(PlanError::Lock(error)) => kernel_failure(error),
        error @ CallError::Memory { .. } => Failure::environment(error),
        other => Failure::usage(other),
    }
}

/// Elements that none of several launches wrote: what one leaves another may write. Results show the poison that they were made with there, and
/// another one when all launches have run again.
fn left_by_all(
    launches: &[PreparedLaunch],
    how: &LaunchOptions,
    outputs: &[Tensor],
    named: &[(&OutputArray, &Tensor)],
) -> Result<Vec<Unwritten>, Failure> {
    let fresh = || named.iter().zip(outputs).enumerate().filter(|(_, ((output, _), _))| output.given.is_none());
    let mut shows = false;
    for (_, ((_, result), _)) in fresh() {
        shows |= result.shows_poison(0).map_err(Failure::environment)?;
    }
    if !shows {
        return Ok(Vec::new());
    }
    for (at, (_, there)) in fresh() {
        there.poison_as(other_poison(at)).map_err(Failure::environment)?;
    }
    for launch in launches {
        unwritten::run(launch, how)?.map_err(kernel_failure)?;
    }
    let mut left = Vec::new();
    for (at, ((output, result), there)) in fresh() {
        let again = there.to_device(&Device::Cpu).map_err(Failure::environment)?;
        let found = Unwritten::by_poison(output.name, (result, 0), (&again, other_poison(at)));
        left.extend(found.map_err(Failure::environment)?);
    }
    Ok(left)
}

/// Elements of the output that no block wrote: a mistake of the library's.
fn unwritten_failure(left: &[Unwritten]) -> Failure {
    let message = |left: &Unwritten| format!("{} of {} elements of `{}` were not written", left.count, left.elements, left.name);
    let texts: Vec<String> = left.iter().map(|left| format!("error[unwritten]: {}", message(left))).collect();
    Failure::found(texts.join("\n"), left.iter().map(|left| Finding::new(Class::Wrong, "unwritten", message(left))).collect())
}
