//! Test-time tools: independent references and NVIDIA's assemblers, pinned, installed from PyPI into the build folder.
//!
//! Nothing of the product needs them. Tests find them through `TESSERA_PYTHON` (an interpreter with NumPy, SciPy, JAX on the CPU,
//! ml_dtypes and cuda-tile), `TESSERA_PTXAS` and `TESSERA_PTXAS_13_0` (the assembler of record and the second lane),
//! `TESSERA_MDBOOK` (which makes a book of `docs/`) and `TESSERA_CHROMIUM` (any installed Chromium, which looks at reports).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What goes into the virtual environment. Changing a pin installs anew.
pub(crate) const PACKAGES: &[&str] = &[
    "numpy==2.4.6",
    "scipy==1.17.1",
    "ml_dtypes==0.6.0",
    "jax==0.10.2",
    "jaxlib==0.10.2",
    "safetensors==0.7.0",
    "cuda-tile==1.7.0",
    "nvidia-cuda-nvcc==13.5.37",
    "nvidia-cuda-nvdisasm==13.5.37",
    "nvidia-cuda-cuobjdump==13.5.37",
];

/// The second assembler, beside the environment since it is another version of the same package.
const SECOND_ASSEMBLER: &str = "nvidia-cuda-nvcc==13.0.88";

/// What makes the book, from the registry of Rust's packages.
const BOOK: (&str, &str) = ("mdbook", "0.5.4");

/// Where the tools are.
pub(crate) struct Tools {
    environment: Vec<(&'static str, String)>,
    /// Why a tool could not be had.
    pub(crate) missing: Vec<String>,
}

impl Tools {
    /// Variables for the test run.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// Installs what is not there yet and finds the rest.
pub(crate) fn install(root: &Path) -> Result<Tools> {
    let folder = folder(root);
    let mut tools = Tools { environment: Vec::new(), missing: Vec::new() };
    match python(&folder) {
        Ok(()) => {
            let python = folder.join("venv/bin/python");
            tools.environment.push(("TESSERA_PYTHON", python.display().to_string()));
            for (name, start) in [("TESSERA_PTXAS", "venv"), ("TESSERA_PTXAS_13_0", "ptxas-13.0")] {
                match find(&folder.join(start), "ptxas", 8) {
                    Some(path) => tools.environment.push((name, path.display().to_string())),
                    None => tools.missing.push(format!("no ptxas below {start}")),
                }
            }
        }
        Err(error) => tools.missing.push(format!("python packages: {error:#}")),
    }
    match book(&folder) {
        Ok(path) => tools.environment.push(("TESSERA_MDBOOK", path.display().to_string())),
        Err(error) => tools.missing.push(format!("mdbook: {error:#}")),
    }
    let chromium = ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| on_path(name));
    match chromium {
        Some(path) => tools.environment.push(("TESSERA_CHROMIUM", path.display().to_string())),
        None => tools.missing.push("no chromium on the path (a system package)".to_string()),
    }
    Ok(tools)
}

/// Where they are installed.
fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("test-tools")
}

/// The folder of the packages, which are installed where they are not there yet.
///
/// # Errors
/// They cannot be had.
pub(crate) fn packages(root: &Path) -> Result<PathBuf> {
    let folder = folder(root);
    python(&folder)?;
    packages_of(&folder.join("venv/bin/python"))
}

/// The folder of an interpreter's packages.
pub(crate) fn packages_of(python: &Path) -> Result<PathBuf> {
    let asked = Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).output();
    let output = asked.with_context(|| format!("can't start {}", python.display()))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if path.is_empty() {
        bail!("{} does not say where its packages are", python.display());
    }
    Ok(path.into())
}

fn python(folder: &Path) -> Result<()> {
    let stamp = folder.join("installed.txt");
    let wanted = format!("{}\n{SECOND_ASSEMBLER}\n", PACKAGES.join("\n"));
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("installing the test tools into {}", folder.display());
    fs::create_dir_all(folder)?;
    let venv = folder.join("venv");
    let base = on_path("python3").context("python3 is not on the path")?;
    quiet(Command::new(base).args(["-m", "venv"]).arg(&venv))?;
    let pip = |args: &[&str]| quiet(Command::new(venv.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(args));
    pip(PACKAGES)?;
    let second = folder.join("ptxas-13.0").display().to_string();
    pip(&["--no-deps", "--upgrade", "--target", &second, SECOND_ASSEMBLER])?;
    fs::write(stamp, wanted)?;
    Ok(())
}

fn book(folder: &Path) -> Result<PathBuf> {
    let (name, version) = BOOK;
    let root = folder.join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.is_file() {
        println!("installing {name} {version} into {}", root.display());
        // Unoptimised: it is built in a minute and runs for a second.
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "--quiet", "--debug", "--locked", "--no-default-features", "--version", version, "--root"]);
        quiet(cargo.arg(&root).arg(name))?;
    }
    Ok(program)
}

fn quiet(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("can't start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The first file of a name below a folder, in name order.
fn find(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    if let Some(found) = entries.iter().find(|path| path.is_file() && path.file_name().is_some_and(|file| file == name)) {
        return Some(found.clone());
    }
    if depth == 0 {
        return None;
    }
    entries.iter().filter(|path| path.is_dir()).find_map(|path| find(path, name, depth - 1))
}
