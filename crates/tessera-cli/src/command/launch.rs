//! What `run`, `check` and `compile` share: a kernel named on the command line and its arguments.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tessera::compile::CompileOptions;
use tessera::ir::SourceMap;
use tessera::lang::parse_file;
use tessera::runtime::argspec::{self, Argument};
use tessera::runtime::{Device, DeviceError, Kernel, KernelError, Knobs, LaunchGrid, POISONS, Tensor, Value};
use tessera::types::TimeLimit;

use crate::arguments::{Locking, Optimise, Patience};
use crate::command::locking;
use crate::failure::{Failure, Outcome};

/// A kernel with its arguments made.
pub(crate) struct Subject {
    pub(crate) kernel: Kernel,
    pub(crate) arguments: Made,
}

impl Subject {
    /// Reads `FILE::KERNEL` and makes every argument.
    pub(crate) fn read(subject: &str, arguments: &[String]) -> Result<Subject, Failure> {
        Ok(Subject { kernel: kernel(subject)?, arguments: Made(load(&parse(arguments)?)?) })
    }

    /// The same with the choices of a lockfile.
    pub(crate) fn locked(self, locking: &Locking) -> Result<Subject, Failure> {
        Ok(Subject { kernel: locking::locked(self.kernel, locking)?, ..self })
    }

    /// Arguments as a launch takes them.
    pub(crate) fn by_name(&self) -> Vec<(&str, Value)> {
        self.arguments.by_name()
    }

    /// The array of a name; `xs[1]` is an item of a list.
    pub(crate) fn tensor(&self, name: &str) -> Result<&Tensor, Failure> {
        self.arguments.tensor(name)
    }

    /// The arrays of an argument with the name of each: one, or a list's items.
    pub(crate) fn arrays(&self, name: &str) -> Vec<(String, &Tensor)> {
        self.arguments.arrays(name)
    }

    /// Every array that held nothing when it was made, with its name.
    pub(crate) fn empty(&self) -> Vec<(String, &Tensor)> {
        self.arguments.empty()
    }

    /// The same arguments with a finite number wherever one has none, in memory of their own; `None` where all are finite.
    pub(crate) fn finite(&self) -> Result<Option<Subject>, Failure> {
        let mut is_other = false;
        let mut arguments = Vec::new();
        for (name, value) in &self.arguments.0 {
            let (finite, was_other) = value.finite().map_err(Failure::environment)?;
            is_other |= was_other;
            arguments.push((name.clone(), finite));
        }
        Ok(is_other.then(|| Subject { kernel: self.kernel.clone(), arguments: Made(arguments) }))
    }

    /// The same arguments in memory of their own, so that a second run does not see what the first wrote.
    pub(crate) fn copy(&self) -> Result<Subject, Failure> {
        let arguments = self.arguments.0.iter().map(|(name, value)| {
            let value = match value {
                Value::Tensor(tensor) => Value::Tensor(tensor.contiguous().map_err(Failure::environment)?),
                Value::List(items) => {
                    let copies = items.iter().map(Tensor::contiguous).collect::<Result<_, _>>();
                    Value::List(copies.map_err(Failure::environment)?)
                }
                other => other.clone(),
            };
            Ok((name.clone(), value))
        });
        Ok(Subject { kernel: self.kernel.clone(), arguments: Made(arguments.collect::<Result<_, Failure>>()?) })
    }
}

impl Subject {
    /// The same arguments on a device; what lies there already is shared.
    pub(crate) fn on(&self, device: &Device) -> Result<Subject, Failure> {
        Ok(Subject { kernel: self.kernel.clone(), arguments: self.arguments.on(device)? })
    }
}

/// Arguments by name.
pub(crate) struct Made(pub(crate) Vec<(String, Value)>);

impl Made {
    /// Arguments as a launch takes them.
    pub(crate) fn by_name(&self) -> Vec<(&str, Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
    }

    /// The arrays of an argument with the name of each: one, or a list's items.
    pub(crate) fn arrays(&self, name: &str) -> Vec<(String, &Tensor)> {
        match self.0.iter().find(|(own, _)| own == name) {
            Some((_, Value::Tensor(tensor))) => vec![(name.to_string(), tensor)],
            Some((_, Value::List(items))) => {
                items.iter().enumerate().map(|(at, tensor)| (format!("{name}[{at}]"), tensor)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Every array that held nothing when it was made, with its name.
    pub(crate) fn empty(&self) -> Vec<(String, &Tensor)> {
        let names = self.0.iter().flat_map(|(name, _)| self.arrays(name));
        names.filter(|(_, tensor)| tensor.is_poisoned()).collect()
    }

    /// Gives arrays that hold nothing poison of another kind than they were made with, each its own.
    pub(crate) fn poison_again(&self) -> Result<(), Failure> {
        let mut each = self.empty().into_iter().enumerate();
        each.try_for_each(|(position, (_, tensor))| tensor.poison_as(other_poison(position)).map_err(Failure::environment))
    }

    /// The array of a name; `xs[1]` is an item of a list.
    pub(crate) fn tensor(&self, name: &str) -> Result<&Tensor, Failure> {
        let (own, item) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((own, item)) => (own, item.parse::<usize>().ok()),
            None => (name, None),
        };
        match (self.0.iter().find(|(argument, _)| argument == own).map(|(_, value)| value), item) {
            (Some(Value::Tensor(tensor)), _) if own == name => Ok(tensor),
            (Some(Value::List(items)), Some(item)) if item < items.len() => Ok(&items[item]),
            (Some(Value::List(items)), _) => {
                Err(Failure::usage(format!("`{own}` is a list of {} arrays\nhelp: name one, such as `{own}[0]`", items.len())))
            }
            (Some(_), _) => Err(Failure::usage(format!("`{name}` is not an array"))),
            (None, _) => Err(Failure::usage(format!("there is no argument `{name}`"))),
        }
    }

    /// The same arguments on a device; what lies there already is shared.
    pub(crate) fn on(&self, device: &Device) -> Result<Made, Failure> {
        let there = |tensor: &Tensor| tensor.to_device(device).map_err(Failure::environment);
        let arguments = self.0.iter().map(|(name, value)| {
            let value = match value {
                Value::Tensor(tensor) => Value::Tensor(there(tensor)?),
                Value::List(items) => Value::List(items.iter().map(there).collect::<Result<_, _>>()?),
                other => other.clone(),
            };
            Ok((name.clone(), value))
        });
        Ok(Made(arguments.collect::<Result<_, Failure>>()?))
    }
}

/// Reads `NAME=VALUE` of every argument, each name once.
pub(crate) fn parse(texts: &[String]) -> Result<Vec<Argument>, Failure> {
    let mut sources = SourceMap::default();
    let mut parsed: Vec<Argument> = Vec::new();
    for text in texts {
        let argument = argspec::parse(&mut sources, text).map_err(|error| Failure::diagnostics(&[*error], &sources))?;
        refuse_twice(&argument.name, parsed.iter().map(|other| other.name.as_str()))?;
        parsed.push(argument);
    }
    Ok(parsed)
}

/// Refuses an argument of a name that one before it has.
pub(crate) fn refuse_twice<'a>(name: &str, mut before: impl Iterator<Item = &'a str>) -> Outcome {
    match before.any(|other| other == name) {
        true => Err(Failure::usage(format!("the argument `{name}` is given twice"))),
        false => Ok(()),
    }
}

/// Makes every argument.
pub(crate) fn load(arguments: &[Argument]) -> Result<Vec<(String, Value)>, Failure> {
    let mut loaded = Vec::new();
    for argument in arguments {
        loaded.extend(argument.load().map_err(|error| Failure::environment(format!("`{}`: {error}", argument.name)))?);
    }
    Ok(loaded)
}

/// The kind of poison that the array at a position gets the second time.
pub(crate) fn other_poison(position: usize) -> usize {
    1 + position % (POISONS - 1)
}

/// Reads the kernel of `FILE::KERNEL`.
pub(crate) fn kernel(subject: &str) -> Result<Kernel, Failure> {
    let Some((file, name)) = subject.rsplit_once("::") else {
        // A file that can't be read has no kernels to offer: the form is told all the same.
        let kernels = std::fs::read_to_string(subject).map(|text| parse_file(subject, &text).kernels).unwrap_or_default();
        let help = match kernels.keys().next() {
            None => "write `FILE::KERNEL`, such as `kernels.py::softmax`".to_string(),
            Some(first) => {
                let names: Vec<String> = kernels.keys().map(|name| format!("`{name}`")).collect();
                format!("it has {}: write `{subject}::{first}`", names.join(", "))
            }
        };
        return Err(Failure::usage(format!("`{subject}` names no kernel\nhelp: {help}")));
    };
    if !file.ends_with(".py") && !file.ends_with(".tir") {
        return Err(Failure::usage(format!("`{file}` is not a kernel file\nhelp: this version runs `.py` and `.tir` files")));
    }
    Kernel::from_file(Path::new(file), name).map_err(kernel_failure)
}

/// The exit code and text of a kernel that does not run, or stopped.
pub(crate) fn kernel_failure(error: KernelError) -> Failure {
    match error {
        KernelError::Rejected(report) => Failure::diagnostics(&report.diagnostics, &report.sources),
        KernelError::Fault { report, block, printed } => {
            let mut failure = Failure { printed, ..Failure::fault(&report.diagnostics, &report.sources) };
            if let Some([x, y, z]) = block {
                failure.text.push_str(&format!("\nin block {x}, {y}, {z}"));
                failure.data.insert("block".into(), json!([x, y, z]));
            }
            failure
        }
        KernelError::Untuned { lock, key } => locking::untuned(&lock, &key),
        KernelError::OpenSizes { .. } => {
            let help = "name sizes, such as `x=f32[4096,1024]`, or leave out `--frozen`";
            Failure::usage(format!("`--frozen`: {error}\nhelp: {help}"))
        }
        KernelError::SeveralTuned { .. } => {
            Failure::usage(format!("{error}\nhelp: choose one with `--config` and `--plan`; `tessera run` knows the product"))
        }
        // Whatever is torn down now would wait for the kernel.
        KernelError::NeverEnds(report) => Failure::fault(&report.diagnostics, &report.sources).end(),
        KernelError::Device(DeviceError::Rejected(report)) => Failure::diagnostics(&report.diagnostics, &report.sources),
        other @ (KernelError::Memory { .. }
        | KernelError::Unsupported { .. }
        | KernelError::Device(_)
        | KernelError::Exchange(_)
        | KernelError::Io { .. }) => Failure::environment(other),
    }
}

/// `X[,Y[,Z]]` or `auto`.
pub(crate) fn grid(text: Option<&str>) -> Result<LaunchGrid, Failure> {
    let Some(text) = text.filter(|text| *text != "auto") else { return Ok(LaunchGrid::Auto) };
    let blocks: Option<Vec<u32>> = text.split(',').map(|part| part.parse().ok()).collect();
    match blocks.as_deref() {
        Some([x]) => Ok(LaunchGrid::Blocks([*x, 1, 1])),
        Some([x, y]) => Ok(LaunchGrid::Blocks([*x, *y, 1])),
        Some([x, y, z]) => Ok(LaunchGrid::Blocks([*x, *y, *z])),
        _ => Err(Failure::usage(format!("`{text}` is not a grid\nhelp: write `X`, `X,Y` or `X,Y,Z`, or `auto`"))),
    }
}

/// The time of `--timeout`.
pub(crate) fn time_limit(patience: &Patience) -> Result<TimeLimit, Failure> {
    match patience.timeout {
        None => Ok(TimeLimit::PATIENT),
        Some(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(TimeLimit::within(Duration::from_secs_f64(seconds))),
        Some(seconds) => {
            Err(Failure::usage(format!("`--timeout {seconds}`\nhelp: write a number of seconds, such as `--timeout 5`")))
        }
    }
}

/// Options of the compiler.
pub(crate) fn compile_options(optimise: &Optimise, block: Option<u32>) -> Result<CompileOptions, Failure> {
    let mut options = CompileOptions { block, ..Default::default() };
    if let Some(level) = optimise.level {
        options.level = format!("O{level}").parse().map_err(Failure::usage)?;
        options.fixed_level = true;
    }
    for choice in &optimise.config {
        let parsed = choice.split_once('=').and_then(|(name, value)| Some((name.to_string(), value.parse::<i64>().ok()?)));
        let (name, value) = parsed.ok_or_else(|| {
            Failure::usage(format!("`{choice}` is not a choice\nhelp: write `NAME=NUMBER`, such as `BLOCK_M=64`"))
        })?;
        if options.config.insert(name, value).is_some() {
            return Err(Failure::usage(format!("`--config {choice}`: that choice is made twice\nhelp: leave one out")));
        }
    }
    if let Some(path) = &optimise.plan {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::environment(format!("`{path}`: {error}")))?;
        options.plan = Some((path.clone(), text));
    }
    Ok(options)
}

/// Options of the compiler for the library's kernels, which are block programs without choices.
pub(crate) fn library_options(optimise: &Optimise) -> Result<CompileOptions, Failure> {
    if let Some(path) = &optimise.plan {
        return Err(Failure::usage(format!(
            "`--plan {path}`: operators of the library choose their own plans\nhelp: `--plan` is for a kernel of a file"
        )));
    }
    match optimise.config.first() {
        Some(choice) => Err(Failure::usage(format!(
            "`--config {choice}`: operators of the library choose their own tiles\nhelp: `--config` is for a declarative or per-thread \
             kernel of a file"
        ))),
        None => compile_options(optimise, None),
    }
}

/// The device asked for, or the best that works, with a clause that says why.
pub(crate) fn device(asked: Option<&str>) -> Result<(Device, String), Failure> {
    let given = |device: Device| (device, "asked for".to_string());
    match asked {
        None => {
            let choice = Knobs::from_env().map_err(Failure::environment)?.device().map_err(Failure::environment)?;
            Ok((choice.device, choice.reason))
        }
        Some("cpu") => Ok(given(Device::Cpu)),
        Some("emu") => Device::emulator().map(given).map_err(Failure::environment),
        Some(name) => {
            let number = match name.strip_prefix("cuda") {
                Some("") => Some(0),
                Some(rest) => rest.strip_prefix(':').and_then(|number| number.parse().ok()),
                None => None,
            };
            let number = number.ok_or_else(|| {
                Failure::usage(format!("`{name}` is not a device\nhelp: write `cpu`, `emu`, `cuda` or `cuda:NUMBER`"))
            })?;
            Device::cuda(number).map(given).map_err(Failure::environment)
        }
    }
}

/// True when `--sanitize` asks for a checked run on the CPU; every check is part of it.
pub(crate) fn sanitize(checks: Option<&str>) -> Result<bool, Failure> {
    const CHECKS: [&str; 5] = ["all", "bounds", "init", "race", "padding"];
    let Some(checks) = checks else { return Ok(false) };
    match checks.split(',').find(|check| !CHECKS.contains(check)) {
        Some(unknown) => {
            let help = format!("write one of {}, or add `--device emu`, which has others", CHECKS.join(", "));
            Err(Failure::usage(format!("`{unknown}` is not a check of the CPU\nhelp: {help}")))
        }
        None => Ok(true),
    }
}
