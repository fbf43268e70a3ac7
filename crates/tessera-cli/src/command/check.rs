//! `tessera check`: are results right? Operators against their f64 references here, one kernel of a file in `check_kernel.rs`.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use tessera::bench::{
    Allowance, Entry, Fault, GateOptions, GateReport, Library, Selection, Sizes, Status, Suite, TESSERA, check as gate,
};
use tessera::compile::CompileOptions;
use tessera::runtime::{Device, DriverDevice, Lock};
use tessera::types::TimeLimit;

use crate::arguments::Check;
use crate::command::check_gradients::gradients;
use crate::command::check_kernel::check_kernel;
use crate::command::check_shrink::smallest;
use crate::command::check_tally::{Tally, is_left_out};
use crate::command::emulation::{Opened, is_emulator, open};
use crate::command::findings::findings as found_by;
use crate::command::launch::library_options;
use crate::command::locking;
use crate::command::sizes::{selection, sizes_named};
use crate::command::tolerance;
use crate::failure::{Failure, Outcome};
use crate::finding::Finding;

/// Seeds of the gate for a case at the edge of a kernel's tiles; cases of random sizes have one each.
const SEEDS: usize = 3;

pub(crate) fn check(arguments: Check) -> Outcome {
    match arguments.subjects.first().is_some_and(|subject| subject.contains("::")) {
        true => check_kernel(&arguments),
        false => check_operators(&arguments),
    }
}

/// Options that mean something for a kernel of a file alone.
fn refuse_kernels_options(arguments: &Check) -> Outcome {
    let given = [
        ("--grid", arguments.grid.is_some(), "operators have a grid of their own"),
        ("--block", arguments.block.is_some(), "operators choose their own threads"),
        ("--timeout", arguments.patience.timeout.is_some(), "operators end"),
        ("--against", !arguments.reference.against.is_empty(), "operators are compared with their f64 references"),
        ("--against-grid", arguments.reference.against_grid.is_some(), "operators are compared with their f64 references"),
        ("--trace", arguments.emulation.trace.is_some(), "a case launches its kernels several times"),
        ("--sizes", arguments.sizes.is_some() && arguments.cases.is_some(), "`--cases` draws sizes at random"),
        ("--cases", names_suite(arguments) && arguments.cases.is_some(), "a suite says which cases it has"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`, or name a kernel of a file"))),
        None => Ok(()),
    }
}

fn names_suite(arguments: &Check) -> bool {
    arguments.subjects.iter().any(|subject| sizes_named(subject).is_some())
}

/// How cases are checked.
struct Checker<'a> {
    arguments: &'a Check,
    opened: Opened,
    options: CompileOptions,
    lock: Option<Arc<Lock>>,
    gate: GateOptions,
}

/// What became of a case: the gate's word, and what sanitizers say.
pub(crate) struct Checked {
    pub(crate) outcome: Result<GateReport, Fault>,
    /// Findings that make it fail.
    pub(crate) texts: Vec<String>,
    /// All of them.
    pub(crate) findings: Vec<Finding>,
}

impl Checked {
    /// Why it is not right; none where it is.
    pub(crate) fn why(&self) -> Option<String> {
        match &self.outcome {
            _ if !self.texts.is_empty() => Some(self.texts.join("\n")),
            Ok(report) if report.passed() => None,
            Ok(report) => Some(report.reason.clone().unwrap_or_else(|| report.status.to_string())),
            Err(fault) => Some(fault.message.clone()),
        }
    }

    fn is_wrong(&self) -> bool {
        self.why().is_some() && !(is_left_out(&self.outcome) && self.texts.is_empty())
    }

    /// In which way it is wrong: what the gate says, and the first finding where findings make it fail.
    fn way(&self) -> Option<Way> {
        let status = self.outcome.as_ref().map_or_else(|fault| fault.status, |report| report.status);
        let finding = self.findings.first().filter(|_| !self.texts.is_empty()).map(|finding| finding.id.clone());
        self.is_wrong().then_some(Way { status, finding })
    }
}

/// How a case is wrong: two that are wrong in one way have the same fault, as far as can be told.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    status: Status,
    finding: Option<String>,
}

impl Checker<'_> {
    fn open(arguments: &Check) -> Result<Opened, Failure> {
        open(arguments.device.as_deref(), (&arguments.emulation, TimeLimit::NONE), arguments.seed)
    }

    fn ready(&self, mut library: Library) -> Library {
        if self.arguments.rungs {
            library.add_rungs();
        }
        library.with_lock(self.lock.clone())
    }

    fn select(&self, selection: &Selection) -> Result<Library, Failure> {
        let library = Library::select(selection, self.options.clone(), self.opened.device.clone());
        Ok(self.ready(library.map_err(Failure::usage)?))
    }

    /// Builds a case and takes it through the gate.
    fn check(&self, library: &Library, number: usize, implementation: &str) -> Checked {
        let built = library.build(&library.cases()[number], implementation);
        // Simpler kernels of a ladder are held to what they are there to show.
        let entry = library.entry(number);
        let specials = implementation == TESSERA && entry.operator.unchecked_specials(entry.policy).is_none();
        let outcome = built.and_then(|mut subject| gate(&mut *subject, GateOptions { specials, ..self.gate }));
        let launches = self.opened.launches();
        Checked { outcome, texts: self.opened.judge.failing(&launches), findings: found_by(&launches) }
    }

    /// Whether the device is gone. An emulated one is opened again; a chip's can't be had again in this process.
    fn lost(&mut self) -> Result<Option<bool>, Failure> {
        let is_lost = |device: &DriverDevice| device.stream().synchronize().is_err_and(|error| error.poisons_context());
        if !matches!(&self.opened.device, Device::Driver(device) if is_lost(device)) {
            return Ok(None);
        }
        let again = is_emulator(self.arguments.device.as_deref())?;
        if again {
            self.opened = Checker::open(self.arguments)?;
        }
        Ok(Some(again))
    }

    /// A smaller problem than one that is wrong which is wrong in the same way; none where none is found, or the device does not come back.
    fn shrink(&mut self, entry: &Entry, (implementation, way): (&str, &Way)) -> Result<Option<Entry>, Failure> {
        let mut gone = false;
        let found = smallest(entry, |smaller| {
            if gone {
                return Ok(false);
            }
            let library = Library::of(vec![smaller.clone()], self.options.clone(), self.opened.device.clone());
            let library = self.ready(library);
            let found = self.check(&library, 0, implementation).way();
            gone = self.lost()? == Some(false);
            Ok(found.as_ref() == Some(way))
        })?;
        Ok(found)
    }
}

fn check_operators(arguments: &Check) -> Outcome {
    refuse_kernels_options(arguments)?;
    let given = tolerance::asked([arguments.reference.rtol, arguments.reference.atol])?.given();
    let tolerance = match given.map(|(relative, absolute)| Allowance::Given { relative, absolute }) {
        Some(_) if arguments.table => {
            return Err(Failure::usage("`--table` has numbers of its own: leave out `--rtol` and `--atol`"));
        }
        None if arguments.table => Some(Allowance::Table),
        given => given,
    };
    let opened = Checker::open(arguments)?;
    let seed = arguments.seed.unwrap_or(1);
    let options = library_options(&arguments.optimise)?;
    let mut selection = selection(&arguments.subjects, &arguments.precision, arguments.sizes.as_deref())?;
    if arguments.sizes.is_none() && !names_suite(arguments) {
        selection.sizes = match arguments.cases {
            Some(count) => Sizes::Random { count: count.get(), seed },
            None => Sizes::Edges,
        };
    }
    let seeds = if arguments.cases.is_some() { 1 } else { SEEDS };
    let gate = GateOptions { suite_seed: seed, seeds, tolerance, specials: false };
    let lock = locking::read(&arguments.optimise.locking, None)?;
    let mut checker = Checker { arguments, opened, options, lock, gate };
    let mut library = checker.select(&selection)?;
    let mut tally = Tally::default();
    let checks: Vec<(usize, String)> = (library.cases().iter().enumerate())
        .flat_map(|(number, case)| case.implementations.iter().map(move |name| (number, name.clone())))
        .collect();
    let bar = progress_bar(checks.len(), arguments.json);
    for (done, (number, implementation)) in checks.iter().enumerate() {
        let key = &library.cases()[*number].key;
        let rung = if implementation == TESSERA { String::new() } else { format!(" ({implementation})") };
        let (operator, shown) = (format!("{}{rung}", key.operator), format!("{key}{rung}"));
        let precision = key.precision.clone();
        bar.set_message(shown.clone());
        let checked = checker.check(&library, *number, implementation);
        let way = checked.way();
        tally.take((&operator, &precision), &shown, checked);
        bar.inc(1);
        match checker.lost()? {
            Some(false) => {
                tally.lost(checks.len() - done - 1);
                break;
            }
            Some(true) => library = checker.select(&selection)?,
            None => {}
        }
        if let Some(way) = way.filter(|_| arguments.cases.is_some()) {
            let smaller = checker.shrink(library.entry(*number), (implementation, &way))?;
            // An emulated device may have been opened again on the way.
            library = checker.select(&selection)?;
            smaller.iter().for_each(|entry| tally.note(&format!("the smallest that was found: {}", entry.problem)));
        }
    }
    bar.finish_and_clear();
    gradients(&library, (seed, seeds)).into_iter().for_each(|held| tally.gradient(held));
    tally.conclude(&checker.opened, seed, arguments.json)
}

fn progress_bar(cases: usize, is_json: bool) -> ProgressBar {
    if is_json || !crate::is_live() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left, {msg}");
    ProgressBar::new(cases as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use crate::finding::Class;

    use super::*;

    fn failed(status: Status, ids: &[&str]) -> Checked {
        let finding = |id: &&str| Finding::new(Class::Wrong, id, "found");
        let texts = ids.iter().map(|id| id.to_string()).collect();
        Checked { outcome: Err(Fault::new(status, "a fault")), texts, findings: ids.iter().map(finding).collect() }
    }

    /// A smaller problem that does not compile says nothing of one whose result is wrong.
    #[test]
    fn another_fault_is_another_way() {
        let way = |status, ids: &[&str]| failed(status, ids).way();
        assert_eq!(way(Status::Incorrect, &[]), way(Status::Incorrect, &[]));
        assert_ne!(way(Status::Incorrect, &[]), way(Status::CompileError, &[]));
        assert_ne!(way(Status::RuntimeError, &["race"]), way(Status::RuntimeError, &["out-of-bounds"]));
        assert_ne!(way(Status::RuntimeError, &["race"]), way(Status::RuntimeError, &[]));
        assert_eq!((way(Status::Unsupported, &[]), way(Status::Unsupported, &["race"]).is_some()), (None, true));
    }
}
