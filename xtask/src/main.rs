//! Developer tasks: `cargo xtask test`, `ci`, `nightly`, `bundle`, `python`, `wheel`, `tidy`, `fuzz`, `tools`.

mod architectures;
mod bundle;
mod folders;
mod functions;
mod nightly;
mod programs;
mod python;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "\
usage: cargo xtask TASK

  test [NAME...]        installs the pinned test tools into the build folder, then runs every test (or those whose name matches)
  bless [NAME...]       the same, rewriting expected outputs
  ci                    fmt, clippy, then test; a missing tool is an error instead of a skip
  nightly [N] [NAME...] everything on the emulator: every case of the library under N schedules (50), every barrier, mutants, damaged files;
                        functions against Python, rules against NVIDIA's front end; in slices
                        (or those whose name matches) that are not run again, with a log in results/nightly.log
  bundle                what a GPU machine without Rust needs to check and measure, in the build folder's `bundle`: `bundle/check.sh OUT PART...`
  python [others]       builds the Python package's wheel, installs it in an environment of its own and runs its tests there (`test` does so, too);
                        `others` installs Triton, Numba and NVRTC as well (3 GB), whose kernels the emulator runs
  wheel                 builds the wheel that is given away, in the build folder's `wheels`
  tools                 installs the test tools and prints where they are
  tidy                  checks the tree's own rules: crate edges, lengths of files and functions, architectures, tests in no program,
                        forbidden words
  fuzz TARGET SECONDS   runs one fuzz target
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (task, rest) = args.split_first().map_or(("help", &args[..0]), |(task, rest)| (task.as_str(), rest));
    match task {
        "test" => test(rest, Mode::Check),
        "bless" => test(rest, Mode::Bless),
        "ci" => ci(),
        "nightly" => nightly::nightly(rest),
        "bundle" => {
            must(&mut cargo(&["build", "--release", "-p", "tessera-cli"]), "the build")?;
            must(&mut cargo(&["build", "--release", "-p", "tessera-bench", "--example", "against_chip"]), "the build")?;
            println!("{}", bundle::make(&root(), &built())?.display());
            Ok(())
        }
        "wheel" => {
            println!("{}", python::Environment::install(&root(), &built())?.wheel("release")?.display());
            Ok(())
        }
        "python" => match rest {
            [] => python::Environment::install(&root(), &built())?.test(),
            [others] if others == "others" => python::Environment::install(&root(), &built())?.with_others()?.test(),
            _ => bail!("usage: cargo xtask python [others]"),
        },
        "tools" => {
            for (name, value) in tools::install(&root())?.environment() {
                println!("{name}={value}");
            }
            Ok(())
        }
        "tidy" => report(tidy::check(&root())?),
        "fuzz" => fuzz(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("`{other}` is not a task\n\n{HELP}"),
    }
}

/// The repository's top folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

fn must(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("can't start {what}"))?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Check,
    Bless,
}

fn test(names: &[String], mode: Mode) -> Result<()> {
    let tools = tools::install(&root())?;
    for reason in &tools.missing {
        println!("skipped tool: {reason}");
    }
    report(tidy::check(&root())?)?;
    let has_nextest = cargo(&["nextest", "--version"]).output().is_ok_and(|output| output.status.success());
    // Examples have no tests, and are linked with all that they use: whether they compile, clippy says.
    let mut command = match has_nextest {
        true => cargo(&["nextest", "run", "--workspace", "--tests", "--no-tests=fail"]),
        false => cargo(&["test", "--workspace", "--tests"]),
    };
    command.args(names).envs(tools.environment());
    match mode {
        Mode::Check => {}
        Mode::Bless => _ = command.env("UPDATE_EXPECT", "1"),
    }
    must(&mut command, "the test run")?;
    if names.is_empty() {
        must(cargo(&["test", "--quiet", "--workspace", "--doc"]).envs(tools.environment()), "the documentation tests")?;
        python_package()?;
    }
    Ok(())
}

/// The tests of the Python package, where what they compare with can be had; `ci` has it, or ends before.
fn python_package() -> Result<()> {
    match python::Environment::install(&root(), &built()) {
        Ok(environment) => environment.test(),
        Err(error) => {
            println!("skipped: the tests of the Python package, whose environment cannot be made: {error:#}");
            Ok(())
        }
    }
}

/// The build folder.
fn built() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn ci() -> Result<()> {
    must(&mut cargo(&["fmt", "--all", "--check"]), "cargo fmt")?;
    // The tools come over the network while the compiler is busy.
    let tools = std::thread::scope(|scope| {
        let tools = scope
            .spawn(|| tools::install(&root()).and_then(|tools| python::Environment::install(&root(), &built()).map(|_| tools)));
        must(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]), "cargo clippy")?;
        tools.join().map_err(|_| anyhow::anyhow!("the installation of the tools failed"))?
    })?;
    if !tools.missing.is_empty() {
        bail!("test tools are missing: {}", tools.missing.join("; "));
    }
    test(&[], Mode::Check)
}

fn report(problems: Vec<String>) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{} rules of the tree are broken:\n  {}", problems.len(), problems.join("\n  "))
}

/// Runs a fuzz target with the installed compiler and no sanitizer: the targets look for panics and hangs, not for memory
/// errors. What it finds of interest is kept in `fuzz/corpus`; the tree's own files are where it starts.
fn fuzz(args: &[String]) -> Result<()> {
    let [target, seconds] = args else { bail!("usage: cargo xtask fuzz TARGET SECONDS") };
    let seconds: u32 = seconds.parse().context("SECONDS is a number")?;
    let seeds: &[&str] = match target.as_str() {
        "ir_text" => &["tests/filetests"],
        "kernel_source" => &["crates/tessera-ops/kernels", "examples"],
        "npy" => &["fuzz/seeds/npy"],
        "bundle" => &["fuzz/seeds/bundle"],
        "ptx" | "emulator" => &["crates/tessera-ptx/tests/ptx", "crates/tessera-emu/tests/corpus/ptx"],
        "safetensors" => &["fuzz/seeds/safetensors"],
        _ => &[],
    };
    let corpus = format!("fuzz/corpus/{target}");
    std::fs::create_dir_all(root().join(&corpus)).with_context(|| format!("can't make {corpus}"))?;
    let mut command = cargo(&["fuzz", "run", "-s", "none", target, &corpus]);
    command.args(seeds).args(["--", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"]);
    command.arg(format!("-max_total_time={seconds}")).env("RUSTC_BOOTSTRAP", "1");
    must(&mut command, "cargo fuzz (installed with `cargo install cargo-fuzz`)")
}
