//! Rules of the tree that no compiler checks: which crate may use which, which folders use each other, how long a file or a function may get, what is
//! asked of an architecture, which tests a program has, words that stay out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::architectures;
use crate::folders::Folders;
use crate::functions::Lengths;
use crate::programs;

/// The project's own crates that each crate may depend on, directly. What is not listed here is a decision to take.
const EDGES: &[(&str, &[&str])] = &[
    ("tessera-types", &[]),
    ("tessera-layout", &[]),
    ("tessera-ir", &["tessera-types", "tessera-layout"]),
    ("tessera-document", &["tessera-types", "tessera-layout", "tessera-ir"]),
    ("tessera-lang", &["tessera-types", "tessera-ir"]),
    ("tessera-ptx", &["tessera-types"]),
    ("tessera-analysis", &["tessera-types", "tessera-layout", "tessera-ir"]),
    ("tessera-target", &["tessera-types", "tessera-layout", "tessera-ir", "tessera-ptx", "tessera-analysis"]),
    (
        "tessera-compile",
        &["tessera-types", "tessera-layout", "tessera-ir", "tessera-lang", "tessera-ptx", "tessera-analysis", "tessera-target"],
    ),
    ("tessera-cpu", &["tessera-types", "tessera-layout", "tessera-ir"]),
    ("tessera-lock", &[]),
    ("tessera-driver", &["tessera-types"]),
    ("tessera-cuda", &["tessera-types", "tessera-driver"]),
    ("tessera-emu", &["tessera-types", "tessera-ptx", "tessera-driver"]),
    ("tessera-launch", &["tessera-types", "tessera-ir", "tessera-driver"]),
    ("tessera-bundle", &["tessera-types", "tessera-ir", "tessera-launch"]),
    ("tessera-c", &["tessera-types", "tessera-driver", "tessera-launch", "tessera-bundle", "tessera-cuda", "tessera-emu"]),
    (
        "tessera-runtime",
        &[
            "tessera-types",
            "tessera-ir",
            "tessera-document",
            "tessera-lang",
            "tessera-lock",
            "tessera-compile",
            "tessera-launch",
            "tessera-bundle",
            "tessera-cpu",
            "tessera-driver",
            "tessera-emu",
            "tessera-cuda",
        ],
    ),
    ("tessera-ops", &["tessera-types", "tessera-runtime"]),
    ("tessera-bench", &["tessera-types", "tessera-ir", "tessera-driver", "tessera-cuda", "tessera-runtime", "tessera-ops"]),
    (
        "tessera",
        &[
            "tessera-types",
            "tessera-driver",
            "tessera-emu",
            "tessera-ir",
            "tessera-document",
            "tessera-lang",
            "tessera-compile",
            "tessera-cpu",
            "tessera-runtime",
            "tessera-ops",
            "tessera-bench",
        ],
    ),
    ("tessera-cli", &["tessera"]),
    ("tessera-python", &["tessera", "tessera-cli"]),
    ("xtask", &[]),
];

/// A source file longer than this is split by subject.
const MOST_LINES: usize = 1000;

/// Everything that breaks a rule, one line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    edges(root, &mut problems)?;
    let (mut lengths, mut folders) = (Lengths::new(), Folders::default());
    let files = tracked(root)?;
    programs::check(root, &files, &mut problems)?;
    for file in &files {
        let path = root.join(file);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if file.ends_with(".rs") {
            let lines = text.lines().count();
            if lines > MOST_LINES {
                problems.push(format!("{file}: {lines} lines, more than {MOST_LINES}"));
            }
            lengths.check(file, &text, &mut problems);
            architectures::check(file, &text, &mut problems);
            folders.see(file, &text);
        }
        if file != "xtask/src/tidy.rs" {
            words(file, &text, &mut problems);
        }
    }
    folders.finish(&mut problems);
    if !files.is_empty() {
        lengths.finish(&mut problems);
    }
    Ok(problems)
}

fn edges(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("can't start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may_use) = allowed.get(name) else {
            problems.push(format!("crate `{name}` has no row in xtask/src/tidy.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let own = used == "tessera" || used.starts_with("tessera-");
            let normal = dependency["kind"].is_null();
            if own && normal && !may_use.contains(&used) {
                problems.push(format!("crate `{name}` may not depend on `{used}`"));
            }
        }
    }
    Ok(())
}

/// Files under version control, in name order; every file when there is no repository (a source archive).
fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let Ok(output) = output else { return Ok(Vec::new()) };
    Ok(String::from_utf8_lossy(&output.stdout).split('\0').filter(|file| !file.is_empty()).map(str::to_string).collect())
}

/// Marks of unfinished work and modules named after nothing.
fn words(file: &str, text: &str, problems: &mut Vec<String>) {
    if !(file.ends_with(".rs") || file.ends_with(".py") || file.ends_with(".md") || file.ends_with(".toml")) {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        if ["todo!(", "unimplemented!(", "TODO", "FIXME"].iter().any(|mark| line.contains(mark)) {
            problems.push(format!("{file}:{}: unfinished work", number + 1));
        }
    }
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if file.ends_with(".rs") && ["utils", "util", "helpers", "common", "misc", "manager"].contains(&stem) {
        problems.push(format!("{file}: a module is named after its subject"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_its_rules() {
        let problems = check(&crate::root()).expect("the tree can be read");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn unfinished_work_is_seen() {
        let mut problems = Vec::new();
        words("a.rs", "fn f() { todo!() }", &mut problems);
        words("utils.rs", "", &mut problems);
        assert_eq!(problems.len(), 2);
    }
}
