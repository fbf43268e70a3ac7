//! Finding `ptxas` and running it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::messages::{AssemblyReport, Severity};
use crate::target::Target;
use crate::tool::{Missing, Tool, ToolSource};

/// An assembler that answered when asked for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembler {
    path: PathBuf,
    version: String,
}

/// How hard the assembler works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Optimize {
    /// `-O3`, its default.
    #[default]
    Full,
    /// `-O1`: for tests that only want to know that it assembles.
    Quick,
}

/// A cubin and what the assembler said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The machine code as an ELF image.
    pub cubin: Vec<u8>,
    /// Usage and warnings.
    pub report: AssemblyReport,
    /// How long the assembler ran.
    pub time: Duration,
}

/// Why there is no cubin.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// There is none.
    #[error(transparent)]
    NotFound(#[from] Missing),
    /// It could not be run, or files could not be passed to it.
    #[error("`{}` cannot be run: {source}", path.display())]
    Run {
        /// The assembler.
        path: PathBuf,
        /// The system's message.
        source: std::io::Error,
    },
    /// It refused the text.
    #[error("ptxas refused the kernel: {}", first_error(report))]
    Refused {
        /// Its messages; their lines are lines of the PTX text.
        report: AssemblyReport,
    },
}

fn first_error(report: &AssemblyReport) -> String {
    let error = report.messages.iter().find(|message| message.severity == Severity::Error);
    match error {
        Some(message) => match message.line {
            Some(line) => format!("line {line}: {}", message.text),
            None => message.text.clone(),
        },
        None => "no message".to_owned(),
    }
}

impl Assembler {
    /// The first candidate that answers.
    pub fn find(source: &ToolSource) -> Result<Assembler, AssembleError> {
        let candidates = source.candidates(Tool::Ptxas);
        let tried = candidates.clone();
        candidates.into_iter().find_map(Assembler::at).ok_or(AssembleError::NotFound(Missing { tool: Tool::Ptxas, tried }))
    }

    /// The assembler at a path, if it answers there.
    pub fn at(path: PathBuf) -> Option<Assembler> {
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_once(", V")?.1.split_whitespace().next()?.to_owned();
        Some(Assembler { path, version })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, such as `13.5.37`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles PTX text for a target.
    pub fn assemble(&self, ptx: &str, target: Target, optimize: Optimize) -> Result<Assembly, AssembleError> {
        let level = match optimize {
            Optimize::Full => "-O3",
            Optimize::Quick => "-O1",
        };
        self.run(ptx, target, &[level])
    }

    /// The same, with a table of the source lines that `.loc` gave the instructions. The code is that of [`Optimize::Full`].
    pub fn assemble_with_lines(&self, ptx: &str, target: Target) -> Result<Assembly, AssembleError> {
        self.run(ptx, target, &["-O3", "--generate-line-info"])
    }

    fn run(&self, ptx: &str, target: Target, options: &[&str]) -> Result<Assembly, AssembleError> {
        let run = |source| AssembleError::Run { path: self.path.clone(), source };
        let folder = tempfile::tempdir().map_err(run)?;
        let (input, output) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
        let mut file = std::fs::File::create(&input).map_err(run)?;
        file.write_all(ptx.as_bytes()).map_err(run)?;
        drop(file);
        let start = Instant::now();
        let result = Command::new(&self.path)
            .arg("-v")
            .args(options)
            .args(["--gpu-name", &target.to_string(), "--output-file"].map(OsStr::new))
            .args([&output, &input])
            .stdin(Stdio::null())
            .output()
            .map_err(run)?;
        let time = start.elapsed();
        let said = String::from_utf8_lossy(&result.stderr).into_owned() + &String::from_utf8_lossy(&result.stdout);
        let report = AssemblyReport::read(&said);
        if !result.status.success() {
            return Err(AssembleError::Refused { report });
        }
        let cubin = std::fs::read(&output).map_err(run)?;
        Ok(Assembly { cubin, report, time })
    }
}
