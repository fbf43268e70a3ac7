//! Finding `ptxas` and running it.
//!
//! Which one is used is decided by [`Assembler::candidates`], in order: the one named outright, the wheels beside a Python
//! interpreter, a CUDA installation, the search path. The caller passes these in; this crate reads no environment variable.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::messages::{AssemblyReport, Severity};
use crate::target::Target;

/// Where to look for an assembler.
#[derive(Clone, Debug, Default)]
pub struct AssemblerSource {
    /// A `ptxas` named by the user (`TESSERA_PTXAS`).
    pub ptxas: Option<PathBuf>,
    /// A Python interpreter whose environment may hold the vendor's wheels (`TESSERA_PYTHON`).
    pub python: Option<PathBuf>,
    /// The root of a CUDA installation (`CUDA_HOME`).
    pub cuda_home: Option<PathBuf>,
    /// The search path (`PATH`).
    pub path: Option<std::ffi::OsString>,
}

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
    /// No assembler was found.
    #[error("no ptxas found; tried {}", tried.join(", "))]
    NotFound {
        /// The places, in order.
        tried: Vec<String>,
    },
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
    /// The places where an assembler may be, best first.
    pub fn candidates(source: &AssemblerSource) -> Vec<PathBuf> {
        let name = if cfg!(windows) { "ptxas.exe" } else { "ptxas" };
        let mut found: Vec<PathBuf> = source.ptxas.iter().cloned().collect();
        if source.ptxas.is_some() {
            return found;
        }
        if let Some(root) = source.python.as_deref().and_then(Path::parent).and_then(Path::parent) {
            let mut libraries: Vec<PathBuf> = ["lib", "lib64"]
                .iter()
                .filter_map(|folder| std::fs::read_dir(root.join(folder)).ok())
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path().join("site-packages")))
                .chain([root.join("Lib/site-packages")])
                .filter(|path| path.is_dir())
                .collect();
            libraries.sort();
            for library in libraries {
                let places = ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin"];
                found.extend(places.iter().map(|place| library.join(place).join(name)));
            }
        }
        found.extend(source.cuda_home.iter().map(|home| home.join("bin").join(name)));
        if let Some(path) = &source.path {
            found.extend(std::env::split_paths(path).map(|folder| folder.join(name)));
        }
        found.retain(|path| path.is_file());
        found.dedup();
        found
    }

    /// The first candidate that answers.
    pub fn find(source: &AssemblerSource) -> Result<Assembler, AssembleError> {
        let candidates = Assembler::candidates(source);
        let tried = candidates.iter().map(|path| path.display().to_string()).collect();
        candidates.into_iter().find_map(Assembler::at).ok_or(AssembleError::NotFound { tried })
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
        let run = |source| AssembleError::Run { path: self.path.clone(), source };
        let folder = tempfile::tempdir().map_err(run)?;
        let (input, output) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
        let mut file = std::fs::File::create(&input).map_err(run)?;
        file.write_all(ptx.as_bytes()).map_err(run)?;
        drop(file);
        let level = match optimize {
            Optimize::Full => "-O3",
            Optimize::Quick => "-O1",
        };
        let start = Instant::now();
        let result = Command::new(&self.path)
            .args(["-v", level, "--gpu-name", &target.to_string(), "--output-file"].map(OsStr::new))
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
