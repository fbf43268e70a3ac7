//! `tessera check FILE::KERNEL`: is what a kernel wrote right?
//!
//! The kernel runs as it was asked to, and again unoptimised on the same arguments with another poison in arrays that hold nothing.
//! What both left as poison was not written; what else differs by more than the tolerance is wrong. Each `--against` adds a
//! reference: a file, another kernel, or the same kernel on another device.
//!
//! Numbers that are none, and infinities, prove nothing when the reference was made by the same mistake. They count as right where a
//! file says so, and where a run makes them of the inputs: they are gone once all inputs are finite.

use serde_json::{Value as Json, json};
use tessera::bench::Tolerance;
use tessera::compile::OptLevel;
use tessera::ir::Severity;
use tessera::runtime::{
    CompileOptions, Device, Kernel, KernelError, LaunchGrid, LaunchOptions, PreparedLaunch, Ran, Tensor, Tuned, Unwritten, Value,
    npy,
};
use tessera::types::TimeLimit;

use crate::arguments::{Check, Emulation};
use crate::command::emulation::{Opened, open, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::printed;
use crate::command::launch::{Subject, compile_options, device as launch_device, grid, kernel, kernel_failure, time_limit};
use crate::command::locking::{self, tuned_json};
use crate::command::tolerance::{self, Compared, compare};
use crate::command::unwritten;
use crate::failure::{Failure, Outcome};
use crate::finding::{Class, Finding};

/// What `--against` names.
pub(crate) enum Against {
    /// A file's array, for an argument or for the only one that is written.
    File(Option<String>, Tensor),
    /// The same kernel elsewhere.
    Device(Device),
    /// Another kernel, for all that is written or for one argument.
    Kernel(Option<String>, Kernel),
}

/// Everything that all runs of the check share.
struct Checked<'a> {
    opened: &'a Opened,
    emulation: &'a Emulation,
    options: CompileOptions,
    grid: LaunchGrid,
    /// That of other kernels.
    other_grid: LaunchGrid,
    /// The arguments as they were made; no run writes them.
    made: Subject,
    /// Parameters of other kernels.
    others: Vec<String>,
    /// Of each run.
    limit: TimeLimit,
    is_json: bool,
}

/// One run.
struct Done {
    launch: PreparedLaunch,
    ran: Ran,
    /// Its arguments afterwards, on the CPU.
    results: Subject,
}

pub(crate) fn check_kernel(arguments: &Check) -> Outcome {
    refuse_operators_options(arguments)?;
    let tolerance = tolerance::asked([arguments.reference.rtol, arguments.reference.atol])?;
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let limit = time_limit(&arguments.patience)?;
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, limit), arguments.seed)?;
    let options = compile_options(&arguments.optimise, arguments.block)?;
    let grid = grid(arguments.grid.as_deref())?;
    let (name, texts) = arguments.subjects.split_first().ok_or_else(|| Failure::usage("no kernel is named"))?;
    let made = Subject::read(name, texts)?.locked(&arguments.optimise.locking)?;
    let against: Vec<(&str, Against)> =
        arguments.reference.against.iter().map(|text| Ok((text.as_str(), named(text)?))).collect::<Result<_, Failure>>()?;
    let kernels =
        || against.iter().filter_map(|(_, against)| if let Against::Kernel(_, kernel) = against { Some(kernel) } else { None });
    let others = kernels().flat_map(|kernel| kernel.parameters()).map(|(name, _)| name.to_string()).collect();
    if arguments.reference.against_grid.is_some() && kernels().next().is_none() {
        return Err(Failure::usage("`--against-grid` is for a kernel to compare with\nhelp: add `--against FILE::KERNEL`"));
    }
    let other_grid = match &arguments.reference.against_grid {
        Some(text) => self::grid(Some(text))?,
        None => grid,
    };
    let emulation = &arguments.emulation;
    let checked = Checked { opened: &opened, emulation, options, grid, other_grid, made, others, limit, is_json: arguments.json };
    checked.check(&against, tolerance)
}

/// Options that mean something for operators alone.
fn refuse_operators_options(arguments: &Check) -> Outcome {
    let given = [
        ("--rungs", arguments.rungs),
        ("--table", arguments.table),
        ("--precision", !arguments.precision.is_empty()),
        ("--sizes", arguments.sizes.is_some()),
        ("--cases", arguments.cases.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "`{option}` is for operators of the library\nhelp: a kernel's types and sizes are those of its arguments, and `--rtol` and `--atol` say \
             how far its results may be off"
        ))),
        None => Ok(()),
    }
}

/// Reads what `--against` names.
pub(crate) fn named(text: &str) -> Result<Against, Failure> {
    if text == "cpu" || text == "emu" || text == "cuda" || text.starts_with("cuda:") {
        return Ok(Against::Device(launch_device(Some(text))?.0));
    }
    let (name, path) = match text.split_once('=') {
        // A folder's name may have the sign, too.
        Some((name, path)) if !name.contains(['/', '.']) => (Some(name.to_string()), path),
        _ => (None, text),
    };
    if path.contains("::") {
        return Ok(Against::Kernel(name, kernel(path)?));
    }
    if !path.ends_with(".npy") {
        let forms = "a device (`cpu`, `emu`, `cuda`), `[NAME=]FILE.npy`, or `[NAME=]FILE::KERNEL`";
        return Err(Failure::usage(format!("`--against {text}` names nothing to compare with\nhelp: name {forms}")));
    }
    let tensor = npy::read(path).map_err(Failure::environment)?;
    Ok(Against::File(name, tensor))
}

impl Checked<'_> {
    fn check(&self, against: &[(&str, Against)], tolerance: Tolerance) -> Outcome {
        let device = &self.opened.device;
        let kernel = &self.made.kernel;
        let empty: Vec<String> = self.made.empty().into_iter().map(|(name, _)| name).collect();
        let plain = CompileOptions { level: OptLevel::O0, fixed_level: true, plan: None, ..self.options.clone() };
        let done = self.run(kernel, self.made.copy()?, device, (&self.options, false))?;
        // What a program reads is data alone.
        if self.is_json {
            eprint!("{}", done.ran.printed)
        } else {
            print!("{}", done.ran.printed)
        }
        let other = self.made.copy()?;
        other.arguments.poison_again()?;
        let reference = self.run(kernel, other, device, (&plain, self.opened.checked))?;
        let written: Vec<String> = done.launch.written().flat_map(|name| self.made.arrays(name)).map(|(name, _)| name).collect();
        if written.is_empty() && empty.is_empty() {
            let help = "`tessera run --sanitize all` looks for other mistakes than wrong results";
            return Err(Failure::usage(format!(
                "`{}` writes no array, so there is nothing to check\nhelp: {help}",
                kernel.name()
            )));
        }
        let mut compared = Vec::new();
        let mut findings = Vec::new();

        // The unoptimised run is the counted one on the CPU, where the other is not checked.
        let counted = done.ran.unwritten.clone().or_else(|| reference.ran.unwritten.clone());
        // What depends on memory shows in the comparison with the unoptimised run, which has another poison.
        let again = |_| Ok(reference.results.copy()?.arguments);
        let left = unwritten::left((counted, true), (&empty, &[]), &done.results.arguments, again)?;
        let asked = unwritten::Launch::of(kernel, &done.launch, self.grid);
        let diagnostics = unwritten::diagnostics(&left, Severity::Error, &asked);
        let mut text = Failure::fault(&diagnostics, done.launch.sources());
        findings.append(&mut text.findings);
        // What was not written has been told; its poison differs for that reason alone, and gives no scale to compare by.
        let whole: Vec<String> =
            written.iter().filter(|name| left.unwritten.iter().all(|left| left.name != **name)).cloned().collect();
        for name in &whole {
            let (got, want) = (done.results.tensor(name)?, reference.results.tensor(name)?);
            compared.push(compare((name, got), ("an unoptimised run", want), tolerance)?);
        }
        let mut blessed: Vec<&str> = Vec::new();
        for (what, other) in against {
            let by =
                |name: &str, want: &Subject| compare((name, done.results.tensor(name)?), (what, want.tensor(name)?), tolerance);
            match other {
                Against::File(wanted, want) => {
                    let name = match (wanted, written.as_slice()) {
                        (Some(name), _) => name,
                        (None, [only]) => only,
                        (None, _) => {
                            let names = written.join(", ");
                            return Err(Failure::usage(format!("`--against {what}`: write NAME={what}, one of {names}")));
                        }
                    };
                    let got = done.results.tensor(name)?;
                    if !written.contains(name) {
                        let names = written.join(", ");
                        return Err(Failure::usage(format!("`--against {what}`: the kernel writes {names}, and not `{name}`")));
                    }
                    let want = if got.dtype().is_float() { want.to_dtype(got.dtype()) } else { Ok(want.clone()) };
                    compared.push(compare((name, got), (what, &want.map_err(Failure::environment)?), tolerance)?);
                    blessed.push(name);
                }
                Against::Device(there) => {
                    let run = self.run(kernel, self.made.copy()?, there, (&self.options, false))?;
                    for name in &whole {
                        compared.push(by(name, &run.results)?);
                    }
                }
                Against::Kernel(only, other) => {
                    // Choices and threads are the first kernel's.
                    let own = CompileOptions { config: Default::default(), block: None, plan: None, ..self.options.clone() };
                    let run = self.run(other, self.made.copy()?, device, (&own, false))?;
                    let sought = only.as_ref().map_or(written.as_slice(), std::slice::from_ref);
                    self.refuse_partial((what, other), &run, (&empty, sought), &own)?;
                    let theirs: Vec<String> =
                        run.launch.written().flat_map(|name| self.made.arrays(name)).map(|(name, _)| name).collect();
                    for name in self.alike(what, only.as_ref(), [&written, &theirs])? {
                        compared.push(by(&name, &run.results)?);
                    }
                }
            }
        }
        let hint = "`--sanitize all` finds results that are made of memory to which nothing was written";
        let told = compared.iter().filter_map(Compared::finding);
        findings.extend(told.map(|finding| if empty.is_empty() { finding } else { finding.help(hint) }));
        for name in whole.iter().filter(|name| !blessed.contains(&name.as_str())) {
            findings.extend(self.not_from_inputs(name, done.results.tensor(name)?, &plain)?);
        }
        self.conclude((findings, text.text), (&written, compared), (against, &done.ran.printed), done.launch.tuned())
    }

    /// The arrays that two kernels write and that are compared. What one of them writes alone would be called right without a look at it.
    fn alike(&self, what: &str, only: Option<&String>, [written, theirs]: [&[String]; 2]) -> Result<Vec<String>, Failure> {
        let own = self.made.kernel.name();
        if let Some(name) = only {
            let writers = [(own, written), (&what[name.len() + 1..], theirs)];
            return match writers.into_iter().find(|(_, names)| !names.contains(name)) {
                Some((kernel, names)) => {
                    Err(Failure::usage(format!("`--against {what}`: `{kernel}` writes {}, and not `{name}`", names.join(", "))))
                }
                None => Ok(vec![name.clone()]),
            };
        }
        let parameters = self.made.kernel.parameters();
        let is_own = |name: &&String| parameters.iter().any(|(own, _)| name.split('[').next() == Some(own));
        let by_one = written.iter().map(|name| (name, theirs, [own, what]));
        let by_other = theirs.iter().filter(is_own).map(|name| (name, written, [what, own]));
        match by_one.chain(by_other).find(|(name, names, _)| !names.contains(name)) {
            Some((name, _, [writer, idle])) => {
                let both = written.iter().find(|name| theirs.contains(name)).map_or("NAME", String::as_str);
                Err(Failure::usage(format!(
                    "`--against {what}` is no reference for `{name}`: `{writer}` writes it, and `{idle}` does not\nhelp: arguments go to both kernels by \
                     name, results are compared by name; `--against {both}={what}` compares `{both}` alone"
                )))
            }
            None => Ok(written.to_vec()),
        }
    }

    /// Runs a kernel on arguments of its own; with mistakes that the emulator found, the check ends.
    fn run(
        &self,
        kernel: &Kernel,
        arguments: Subject,
        device: &Device,
        (options, checked): (&CompileOptions, bool),
    ) -> Result<Done, Failure> {
        let there = arguments.on(device)?;
        // Each kernel is given what it has parameters for; what none has is the first one's to refuse.
        let is_first = std::ptr::eq(kernel, &self.made.kernel);
        let parameters = kernel.parameters();
        let is_own = |name: &str| {
            parameters.iter().any(|(own, _)| *own == name) || is_first && self.others.iter().all(|other| other != name)
        };
        let own: Vec<(&str, Value)> = there.by_name().into_iter().filter(|(name, _)| is_own(name)).collect();
        let grid = if is_first { self.grid } else { self.other_grid };
        // Choices are those of the device that is checked; another one's run is a reference.
        let is_checked = std::ptr::eq(device, &self.opened.device);
        let kernel = if is_checked { kernel.clone() } else { kernel.clone().without_lock() };
        let launch = kernel.prepare(&own, grid, options, device).map_err(kernel_failure)?;
        let outcome = unwritten::run(&launch, &LaunchOptions { checked, limit: self.limit, ..LaunchOptions::default() })?;
        let launches = self.opened.launches();
        let judge = &self.opened.judge;
        let told = if self.is_json { judge.verdict(&launches) } else { judge.tell(&launches) };
        told.map_err(|failure| Failure { printed: printed(&launches), ..failure })?;
        let ran = outcome.map_err(|error: KernelError| kernel_failure(error))?;
        refuse_idle_trace(self.emulation, &launches)?;
        let ran = Ran { printed: ran.printed + &printed(&launches), ..ran };
        Ok(Done { launch, ran, results: there.on(&Device::Cpu)? })
    }

    /// Refuses a reference that leaves elements unwritten which both kernels have stores to: of those it says nothing.
    fn refuse_partial(
        &self,
        (what, kernel): (&str, &Kernel),
        run: &Done,
        (empty, written): (&[String], &[String]),
        options: &CompileOptions,
    ) -> Outcome {
        let again = |_| {
            let other = self.made.copy()?;
            other.arguments.poison_again()?;
            Ok(self.run(kernel, other, &self.opened.device, (options, false))?.results.arguments)
        };
        let left = unwritten::left((run.ran.unwritten.clone(), false), (empty, &[]), &run.results.arguments, again)?;
        let is_stored = |name: &str| run.launch.written().any(|written| name.split('[').next() == Some(written));
        let both = |name: &String| written.contains(name) && is_stored(name);
        match left.unwritten.iter().find(|left| both(&left.name)) {
            Some(Unwritten { name, count, elements, .. }) => Err(Failure::usage(format!(
                "`--against {what}` is no reference: it leaves {count} of {elements} elements of `{name}` unwritten\nhelp: `--against-grid` may be too \
                 small for it"
            ))),
            None => Ok(()),
        }
    }

    /// Elements of a result that are no finite numbers although the kernel makes them of finite inputs as well.
    fn not_from_inputs(&self, name: &str, got: &Tensor, plain: &CompileOptions) -> Result<Option<Finding>, Failure> {
        let numbers = got.to_f64().map_err(Failure::environment)?;
        if !got.dtype().is_float() || numbers.iter().all(|number| number.is_finite()) {
            return Ok(None);
        }
        let still = match self.made.finite()? {
            Some(finite) => {
                let run = self.run(&self.made.kernel, finite, &self.opened.device, (plain, false))?;
                run.results.tensor(name)?.to_f64().map_err(Failure::environment)?
            }
            None => numbers.clone(),
        };
        let wrong: Vec<usize> =
            (0..numbers.len()).filter(|&place| !numbers[place].is_finite() && !still[place].is_finite()).collect();
        let Some(&first) = wrong.first() else { return Ok(None) };
        let message = format!(
            "{} of {} elements of `{name}` are infinite or no numbers, and not because of the inputs: the first is {name}{:?} = {}",
            wrong.len(),
            numbers.len(),
            got.index_at(first),
            numbers[first]
        );
        let help = "if they are right, compare with a reference that has them: `--against FILE.npy`";
        Ok(Some(Finding::new(Class::Wrong, "not-finite", message).help(help)))
    }

    fn conclude(
        &self,
        (findings, mut text): (Vec<Finding>, String),
        (written, compared): (&[String], Vec<Compared>),
        (against, printed): (&[(&str, Against)], &str),
        tuned: Option<&Tuned>,
    ) -> Outcome {
        let checked = self.opened.checked || self.opened.sanitizes();
        let told = findings.iter().filter(|finding| finding.id != "unwritten");
        for finding in told {
            let help: String = finding.help.iter().map(|help| format!("\nhelp: {help}")).collect();
            let gap = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!("{gap}error[{}]: {}{help}", finding.id, finding.message));
        }
        let right = findings.is_empty();
        let failure = Failure::found(text, findings);
        if self.is_json {
            let rows: Vec<Json> = compared.iter().map(Compared::to_json).collect();
            return failure.conclude(!right, Some(&json!({
                "kernel": self.made.kernel.name(), "device": self.opened.device.to_string(), "right": right, "checked": checked,
                "compared": rows, "printed": printed, "tuned": tuned.map(tuned_json),
            })));
        }
        if right {
            println!(
                "{}: {} as in an unoptimised run{}{}",
                self.made.kernel.name(),
                written.join(", "),
                agreed(written, against),
                if checked { "; the checked run found nothing" } else { "" }
            );
            if let Some(tuned) = tuned {
                println!("  {}", locking::told(tuned));
            }
        }
        failure.conclude(!right, None)
    }
}

/// What else results were found to be like, and which of them, where not all were compared.
fn agreed(written: &[String], against: &[(&str, Against)]) -> String {
    let only = |against: &Against| match against {
        Against::File(name, _) | Against::Kernel(name, _) => name.clone().filter(|name| written != [name.as_str()]),
        Against::Device(_) => None,
    };
    let all: Vec<&str> = against.iter().filter(|(_, against)| only(against).is_none()).map(|(what, _)| *what).collect();
    let mut text = if all.is_empty() { String::new() } else { format!(" and as by {}", all.join(", ")) };
    for (what, against) in against {
        if let Some(name) = only(against) {
            text.push_str(&format!("; {name} as by {what}"));
        }
    }
    text
}
