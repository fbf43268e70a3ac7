//! NVIDIA's tools, and where they are.
//!
//! Which one is used is decided by [`ToolSource::candidates`], in order: the one named outright, the wheels beside a Python
//! interpreter, a CUDA installation, the search path. The caller passes these in; this crate reads no environment variable.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where to look for tools.
#[derive(Clone, Debug, Default)]
pub struct ToolSource {
    /// A `ptxas` named by the user (`TESSERA_PTXAS`).
    pub ptxas: Option<PathBuf>,
    /// An `nvdisasm` named by the user (`TESSERA_NVDISASM`).
    pub nvdisasm: Option<PathBuf>,
    /// A Python interpreter whose environment may hold the vendor's wheels (`TESSERA_PYTHON`).
    pub python: Option<PathBuf>,
    /// The root of a CUDA installation (`CUDA_HOME`).
    pub cuda_home: Option<PathBuf>,
    /// The search path (`PATH`).
    pub path: Option<std::ffi::OsString>,
}

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The assembler.
    Ptxas,
    /// The disassembler.
    Nvdisasm,
}

/// A tool that no place has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The tool.
    pub tool: Tool,
    /// Where there was something that did not answer.
    pub tried: Vec<PathBuf>,
}

impl Tool {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Ptxas => "ptxas",
            Tool::Nvdisasm => "nvdisasm",
        }
    }

    /// The package of the Python Package Index that has it.
    fn package(self) -> &'static str {
        match self {
            Tool::Ptxas => "nvidia-cuda-nvcc",
            Tool::Nvdisasm => "nvidia-cuda-nvdisasm",
        }
    }

    /// The environment variable that names it.
    fn variable(self) -> &'static str {
        match self {
            Tool::Ptxas => "TESSERA_PTXAS",
            Tool::Nvdisasm => "TESSERA_NVDISASM",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no `{}`", self.tool.name())?;
        for (at, path) in self.tried.iter().enumerate() {
            write!(f, "{}`{}`", if at == 0 { "; no answer from " } else { ", " }, path.display())?;
        }
        write!(
            f,
            "\nhelp: `pip install {}` and name the interpreter by `TESSERA_PYTHON`, or name the program itself by `{}`; a CUDA toolkit \
             (`CUDA_HOME`, or on the search path) has it too",
            self.tool.package(),
            self.tool.variable()
        )
    }
}

impl std::error::Error for Missing {}

impl ToolSource {
    /// The places where a tool is, best first. One that the user names is the only one.
    pub fn candidates(&self, tool: Tool) -> Vec<PathBuf> {
        let name = if cfg!(windows) { format!("{}.exe", tool.name()) } else { tool.name().to_owned() };
        let named = match tool {
            Tool::Ptxas => &self.ptxas,
            Tool::Nvdisasm => &self.nvdisasm,
        };
        if let Some(named) = named {
            return vec![named.clone()];
        }
        let mut found = Vec::new();
        if let Some(root) = self.python.as_deref().and_then(Path::parent).and_then(Path::parent) {
            let mut libraries: Vec<PathBuf> = ["lib", "lib64"]
                .iter()
                .filter_map(|folder| std::fs::read_dir(root.join(folder)).ok())
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path().join("site-packages")))
                .chain([root.join("Lib/site-packages")])
                .filter(|path| path.is_dir())
                .collect();
            libraries.sort();
            let own = match tool {
                Tool::Ptxas => "nvidia/cuda_nvcc/bin",
                Tool::Nvdisasm => "nvidia/cuda_nvdisasm/bin",
            };
            for library in libraries {
                let places = ["nvidia/cu13/bin", own, "triton/backends/nvidia/bin"];
                found.extend(places.iter().map(|place| library.join(place).join(&name)));
            }
        }
        found.extend(self.cuda_home.iter().map(|home| home.join("bin").join(&name)));
        if let Some(path) = &self.path {
            found.extend(std::env::split_paths(path).map(|folder| folder.join(&name)));
        }
        found.retain(|path| path.is_file());
        found.dedup();
        found
    }
}
