//! `nightly`: everything that runs on the emulator, and other long tests, in slices.
//!
//! A slice is a test, or a part of one, in a process of its own; as many run at once as the machine has processors. Each writes a
//! section of `results/nightly.log` when it ends, so a run that was stopped goes on where it was: what has a section that passed is not run
//! again, until all have.
//!
//! ```text
//! == library_on_capability_9_0 3/16, 50 schedules: ok, 81.3 s, at 929874f
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{cargo, root};

/// Parts of the library's cases, by the case's number.
const PARTS: usize = 16;

/// The test program of each package that has slices.
const PROGRAM: &str = "suite";

/// Tests that run whole: package, module, and the test where the module has long ones.
const WHOLE: [(&str, &str, &str); 20] = [
    ("tessera-ptx", "acceptance", ""),
    ("tessera-compile", "barriers", "block_programs_keep_their_meaning"),
    ("tessera-compile", "barriers", "programs_of_threads_keep_their_meaning"),
    ("tessera-compile", "barriers", "no_barrier_or_wait_of_the_library_can_go"),
    ("tessera-compile", "conflicts", ""),
    ("tessera-compile", "extremes", ""),
    ("tessera-compile", "ladder", ""),
    ("tessera-compile", "memory_order", ""),
    ("tessera-compile", "plans", "any_legal_plan_is_right"),
    ("tessera-compile", "assemble", ""),
    ("tessera-compile", "python", "block_functions_mean_what_python_says"),
    ("tessera-compile", "python", "functions_of_threads_mean_what_python_says"),
    ("tessera-lang", "edges", "the_record_is_what_the_front_end_says"),
    ("tessera-emu", "anchors", ""),
    ("tessera-emu", "corpus", ""),
    ("tessera-emu", "generated", ""),
    ("tessera-emu", "mutants", ""),
    ("tessera-emu", "robust", ""),
    ("tessera-emu", "sanitizers", ""),
    ("tessera-emu", "systematic", ""),
];

/// The library's tests, which are cut into parts: module and test.
const LIBRARY: [(&str, &str); 3] = [
    ("emulated", "library_on_capability_8_0"),
    ("emulated", "library_on_capability_9_0"),
    ("ways", "ways_to_cut_a_product_are_right"),
];

/// A process of its own.
#[derive(Clone, Debug)]
struct Slice {
    name: String,
    package: &'static str,
    /// Part of the names of the tests that it runs.
    filter: String,
    part: String,
}

fn slices(schedules: u32) -> Vec<Slice> {
    let whole = WHOLE.iter().map(|&(package, module, test)| Slice {
        name: [module, test].join(" ").trim_end().to_owned(),
        package,
        filter: [module, test].join("::"),
        part: "0/1".to_owned(),
    });
    let parts = LIBRARY.iter().flat_map(|test| (0..PARTS).map(move |part| (test, format!("{part}/{PARTS}"))));
    let library = parts.map(|((module, test), part)| Slice {
        name: format!("{test} {part}, {schedules} schedules"),
        package: "tessera-bench",
        filter: format!("{module}::{test}"),
        part,
    });
    whole.chain(library).collect()
}

/// The log's sections by their slice.
fn sections(text: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for section in text.split("\n== ").skip(1) {
        if let Some((name, _)) = section.split_once(": ") {
            found.insert(name.to_owned(), section.trim_end().to_owned());
        }
    }
    found
}

fn passed(section: &str) -> bool {
    section.lines().next().is_some_and(|line| line.contains(": ok, "))
}

/// Whether a test program found a test to run.
fn ran_some(said: &str) -> bool {
    !said.lines().any(|line| line == "running 0 tests")
}

/// The log, sections in the order of the slices.
fn log(sections: &BTreeMap<String, String>, slices: &[Slice], schedules: u32) -> String {
    let done = slices.iter().filter(|slice| sections.get(&slice.name).is_some_and(|text| passed(text))).count();
    let missing: Vec<&str> = slices.iter().map(|slice| &*slice.name).filter(|name| !sections.contains_key(*name)).collect();
    let mut text = format!("$ cargo xtask nightly {schedules}\n{done} of {} slices passed", slices.len());
    let _ = match missing.is_empty() {
        true => writeln!(text, "; all ran"),
        false => writeln!(text, "; not run: {}", missing.join(", ")),
    };
    for slice in slices {
        if let Some(section) = sections.get(&slice.name) {
            let _ = write!(text, "\n== {section}\n");
        }
    }
    text
}

/// The test programs of slices by their packages.
fn build(slices: &VecDeque<&Slice>) -> Result<BTreeMap<String, PathBuf>> {
    let packages: BTreeSet<&str> = slices.iter().map(|slice| slice.package).collect();
    let mut arguments = vec!["test", "--no-run", "--message-format=json", "--test", PROGRAM];
    arguments.extend(packages.into_iter().flat_map(|package| ["-p", package]));
    let output = cargo(&arguments).stderr(std::process::Stdio::inherit()).output().context("can't start cargo")?;
    if !output.status.success() {
        bail!("the tests do not compile");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let programs = said.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let program = message.get("executable")?.as_str()?.into();
        let package = Path::new(message.get("manifest_path")?.as_str()?).parent()?.file_name()?.to_str()?.to_owned();
        (message.get("target")?.get("name")? == PROGRAM).then_some((package, program))
    });
    Ok(programs.collect())
}

/// Runs a slice; its section.
fn run(slice: &Slice, program: &Path, schedules: u32, commit: &str, tools: &[(String, String)]) -> Result<String> {
    let begin = Instant::now();
    let mut command = Command::new(program);
    command.arg("--nocapture").arg(&slice.filter).current_dir(root().join("crates").join(slice.package));
    command.env("CARGO_MANIFEST_DIR", root().join("crates").join(slice.package));
    command.env("TESSERA_TEST_ALL", "1").env("TESSERA_SCHEDULES", schedules.to_string()).env("TESSERA_PART", &slice.part);
    command.envs(tools.iter().cloned());
    let output = command.output().with_context(|| format!("can't start {}", slice.name))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A name that no test has is no failure to the program.
    let outcome = if output.status.success() && ran_some(&said) { "ok" } else { "failed" };
    let seconds = begin.elapsed().as_secs_f64();
    let mut text = format!("{}: {outcome}, {seconds:.1} s, at {commit}\n", slice.name);
    text.push_str(said.trim_matches('\n'));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        text.push('\n');
        text.extend(said.lines().take(60).flat_map(|line| [line, "\n"]));
    }
    Ok(text.replace("\n== ", "\n = ").trim_end().to_owned())
}

/// The commit that runs, and whether the tree is another one. The log that is being written does not make it one.
fn commit() -> Result<String> {
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).current_dir(root()).output().context("git")?;
        anyhow::ensure!(output.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results/nightly.log"])?;
    Ok(git(&["describe", "--always"])? + if changed.is_empty() { "" } else { "-dirty" })
}

/// Runs what has not passed yet; with names, only slices that one of them is part of.
pub(crate) fn nightly(args: &[String]) -> Result<()> {
    let (count, names) = match args.split_first() {
        Some((first, rest)) if first.parse::<u32>().is_ok() => (first.parse().unwrap_or(50), rest),
        _ => (50, args),
    };
    let slices = slices(count);
    let path = root().join("results/nightly.log");
    let mut known = sections(&std::fs::read_to_string(&path).unwrap_or_default());
    known.retain(|_, section| passed(section));
    if slices.iter().all(|slice| known.contains_key(&slice.name)) {
        known.clear();
    }
    let wanted = |slice: &&Slice| names.is_empty() || names.iter().any(|name| slice.name.contains(name));
    let waiting: VecDeque<&Slice> = slices.iter().filter(wanted).filter(|slice| !known.contains_key(&slice.name)).collect();
    let commit = commit()?;
    let tools = crate::tools::install(&root())?;
    let tools: Vec<(String, String)> = tools.environment().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let programs = build(&waiting)?;
    let (waiting, known) = (Mutex::new(waiting), Mutex::new(known));
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().map_err(|_| anyhow::anyhow!("another slice's thread failed"))?.pop_front();
            let Some(slice) = next else { return Ok(()) };
            let program = programs.get(slice.package).with_context(|| format!("`{}` has no test program", slice.package))?;
            let section = run(slice, program, count, &commit, &tools)?;
            println!("{}", section.lines().next().unwrap_or_default());
            let mut known = known.lock().map_err(|_| anyhow::anyhow!("another slice's thread failed"))?;
            if !passed(&section) {
                failed.lock().map_err(|_| anyhow::anyhow!("another slice's thread failed"))?.push(slice.name.clone());
            }
            known.insert(slice.name.clone(), section);
            std::fs::write(&path, log(&known, &slices, count)).with_context(|| format!("can't write {}", path.display()))?;
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a slice's thread failed"))?)
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        bail!("{} slices failed, see {}: {}", failed.len(), path.display(), failed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_back() {
        let slices = slices(50);
        let name = |at: usize| slices[at].name.clone();
        let ran = [
            (name(1), format!("{}: ok, 1.0 s, at abc\nline\n\nrunning 1 test", name(1))),
            (name(20), format!("{}: failed, 2.0 s, at abc\nwhy", name(20))),
        ];
        let known: BTreeMap<String, String> = ran.into_iter().collect();
        let text = log(&known, &slices, 50);
        let start = format!("$ cargo xtask nightly 50\n1 of {} slices passed; not run: {}", slices.len(), name(0));
        assert!(text.starts_with(&start), "{text}");
        assert_eq!(sections(&text), known);
        assert_eq!(known.values().filter(|section| passed(section)).count(), 1);
    }
}
