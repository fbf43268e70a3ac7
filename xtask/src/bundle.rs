//! `cargo xtask bundle`: everything that a GPU machine without Rust needs to check and measure, in one folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Files and folders of the tree, and where they go in the bundle.
const PARTS: &[(&str, &str)] = &[
    ("xtask/device/check.sh", "check.sh"),
    ("tests/python", "python"),
    ("examples", "examples"),
    ("baselines", "baselines"),
    ("crates/tessera-lang/tests/seeds", "seeds"),
];

/// Copies the built programs and what they read into `target/bundle`; its path.
pub(crate) fn make(root: &Path, built: &Path) -> Result<PathBuf> {
    let bundle = built.join("bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle).with_context(|| format!("can't empty {}", bundle.display()))?;
    }
    for (from, to) in PARTS {
        copy(&root.join(from), &bundle.join(to))?;
    }
    copy(&built.join("release/tessera"), &bundle.join("tessera"))?;
    copy(&built.join("release/examples/against_chip"), &bundle.join("against_chip"))?;
    Ok(bundle)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in std::fs::read_dir(from).with_context(|| format!("can't read {}", from.display()))? {
            let entry = entry?;
            if entry.file_name() != "__pycache__" {
                copy(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    }
    std::fs::copy(from, to).with_context(|| format!("can't copy {}", from.display()))?;
    Ok(())
}
