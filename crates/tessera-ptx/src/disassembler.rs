//! Finding `nvdisasm` and running it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sass::Listing;
use crate::tool::{Missing, Tool, ToolSource};

/// A disassembler that answered when asked for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disassembler {
    path: PathBuf,
}

/// Why machine code cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum DisassembleError {
    /// There is no disassembler.
    #[error(transparent)]
    NotFound(#[from] Missing),
    /// It could not be run, or files could not be passed to it.
    #[error("`{}` cannot be run: {source}", path.display())]
    Run {
        /// The disassembler.
        path: PathBuf,
        /// The system's message.
        source: std::io::Error,
    },
    /// It refused the machine code.
    #[error("nvdisasm refused the machine code: {0}")]
    Refused(String),
    /// It printed something that cannot be read.
    #[error("nvdisasm printed no code of `{0}` that can be read; another version of it may")]
    Unread(String),
}

impl Disassembler {
    /// The first candidate that answers.
    pub fn find(source: &ToolSource) -> Result<Disassembler, DisassembleError> {
        let candidates = source.candidates(Tool::Nvdisasm);
        let tried = candidates.clone();
        let found = candidates.into_iter().find_map(Disassembler::at);
        Ok(found.ok_or(Missing { tool: Tool::Nvdisasm, tried })?)
    }

    /// The disassembler at a path, if it answers there.
    pub fn at(path: PathBuf) -> Option<Disassembler> {
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let answers = output.status.success() && String::from_utf8_lossy(&output.stdout).contains("nvdisasm");
        answers.then_some(Disassembler { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The machine code of an entry of a cubin, with source lines where the cubin has them.
    pub fn disassemble(&self, cubin: &[u8], entry: &str) -> Result<Listing, DisassembleError> {
        let run = |source| DisassembleError::Run { path: self.path.clone(), source };
        let folder = tempfile::tempdir().map_err(run)?;
        let input = folder.path().join("kernel.cubin");
        std::fs::write(&input, cubin).map_err(run)?;
        let output = Command::new(&self.path)
            .args(["--print-code", "--print-line-info"])
            .arg(&input)
            .stdin(Stdio::null())
            .output()
            .map_err(run)?;
        if !output.status.success() {
            return Err(DisassembleError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Listing::read(&String::from_utf8_lossy(&output.stdout), entry).ok_or_else(|| DisassembleError::Unread(entry.to_owned()))
    }
}
