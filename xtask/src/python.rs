//! The Python package: its wheel, a fresh environment in which it is installed, and its tests there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{must, tools};

/// What the package's tests need beside the test tools, whose NumPy and JAX they compare with: two copies of these would be 600 MB more. Changing a
/// pin makes the environment anew.
const PACKAGES: &[&str] = &["pytest==9.2.0", "pytest-xdist==3.8.0", "maturin==1.16.0"];

/// Where the environment finds the tools' packages, behind its own.
const SHARED: &str = "test_tools.pth";

/// PyTorch without the GPU's libraries, which its wheel wants and no test here uses: `python/tests/stub_cuda.py` puts empty ones in their places.
const TORCH: &str = "torch==2.15.0";

/// What PyTorch needs beside them.
const TORCH_NEEDS: &[&str] = &["filelock", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools"];

/// Other compilers, whose kernels the emulator runs: too large for each run of the tests, which say that they left theirs out.
const OTHERS: &[&str] = &["triton==3.9.0", "numba-cuda[cu13]", "cuda-bindings", "nvidia-cuda-nvrtc"];

/// The environment of the package's tests.
pub(crate) struct Environment {
    python: PathBuf,
    root: PathBuf,
    target: PathBuf,
}

impl Environment {
    /// Makes the environment, unless it is there.
    pub(crate) fn install(root: &Path, target: &Path) -> Result<Environment> {
        let folder = target.join("python-environment");
        let made = Environment { python: folder.join("bin/python"), root: root.to_path_buf(), target: target.to_path_buf() };
        let stub = root.join("python/tests/stub_cuda.py");
        let pins = [tools::PACKAGES, PACKAGES, &[TORCH], TORCH_NEEDS].concat();
        let wanted = format!("{}\n", pins.join("\n"));
        let stamp = folder.join("installed.txt");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(made);
        }
        println!("installing the Python package's references into {}", folder.display());
        let _ = fs::remove_dir_all(&folder);
        let shared = tools::packages(root)?;
        quiet(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        fs::write(tools::packages_of(&made.python)?.join(SHARED), format!("{}\n", shared.display()))?;
        made.pip(PACKAGES)?;
        made.pip(TORCH_NEEDS)?;
        made.pip(&["--no-deps", TORCH])?;
        quiet(Command::new(&made.python).arg(stub))?;
        fs::write(stamp, wanted)?;
        Ok(made)
    }

    /// Installs other compilers, too.
    pub(crate) fn with_others(self) -> Result<Environment> {
        self.pip(OTHERS)?;
        Ok(self)
    }

    fn pip(&self, packages: &[&str]) -> Result<()> {
        quiet(Command::new(&self.python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages))
    }

    /// Builds the wheel in a profile; its path.
    pub(crate) fn wheel(&self, profile: &str) -> Result<PathBuf> {
        let out = self.target.join("wheels");
        let _ = fs::remove_dir_all(&out);
        let mut build = Command::new(self.python.with_file_name("maturin"));
        build
            .args(["build", "--quiet", "--profile", profile, "--compatibility", "linux", "--out"])
            .arg(&out)
            .current_dir(&self.root);
        quiet(build.env("VIRTUAL_ENV", self.target.join("python-environment")))?;
        let made = fs::read_dir(&out)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|own| own == "whl"));
        made.context("maturin made no wheel")
    }

    /// Installs the wheel and runs the package's tests.
    pub(crate) fn test(&self) -> Result<()> {
        let wheel = self.wheel("dev")?.display().to_string();
        self.pip(&["--no-deps", "--force-reinstall", &wheel])?;
        let mut tests = Command::new(&self.python);
        // Outside the tree: what is tested is what the wheel holds.
        tests
            .args(["-m", "pytest", "-n", "2", "--rootdir"])
            .arg(&self.root)
            .arg(self.root.join("python/tests"))
            .current_dir(&self.target);
        must(&mut tests, "the Python package's tests")
    }
}

fn quiet(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("can't start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
