//! The tests of a crate are one program, since each program is linked with all that it uses: `tests/main.rs` has a module a file.
//!
//! Cargo looks for no other (`autotests = false`), and a file that nobody names would not even be compiled. So each file is a module of
//! `main.rs`, or, where it brings a harness of its own, a program that the manifest names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Names what lies in a crate's `tests` and is in no program, and crates where Cargo would make one of each file.
///
/// # Errors
/// A manifest or `main.rs` that can't be read.
pub(crate) fn check(root: &Path, files: &[String], problems: &mut Vec<String>) -> Result<()> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (folder, module) in files.iter().filter_map(|file| module(file)) {
        folders.entry(folder).or_default().push(module);
    }
    for (folder, modules) in folders {
        let read = |path: &str| {
            let path = root.join(folder).join(path);
            fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
        };
        let manifest = read("../Cargo.toml")?;
        if !manifest.contains("\nautotests = false\n") {
            problems.push(format!("{folder}: the manifest does not say `autotests = false`"));
        }
        let found = forgotten(&modules, &read("main.rs")?, &manifest);
        problems.extend(found.iter().map(|module| format!("{folder}: `{module}` is no module of `main.rs`")));
    }
    Ok(())
}

/// The `tests` folder of a file that is a module in it, or a folder with one, and the module's name.
fn module(file: &str) -> Option<(&str, &str)> {
    let inside = file.strip_prefix("crates/")?.split_once("/tests/")?.1;
    let folder = &file[..file.len() - inside.len() - 1];
    let name =
        inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix("/main.rs")).or_else(|| inside.strip_suffix(".rs"))?;
    (!name.contains('/')).then_some((folder, name))
}

/// Modules that neither `main.rs` nor the manifest names.
fn forgotten<'m>(modules: &[&'m str], main: &str, manifest: &str) -> Vec<&'m str> {
    let named = |module: &str| {
        main.lines().any(|line| line == format!("mod {module};"))
            || manifest.contains(&format!("[[test]]\nname = \"{module}\"\nharness = false\n"))
    };
    modules.iter().copied().filter(|module| *module != "main" && !named(module)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_modules() {
        assert_eq!(module("crates/a/tests/one.rs"), Some(("crates/a/tests", "one")));
        assert_eq!(module("crates/a/tests/one/mod.rs"), Some(("crates/a/tests", "one")));
        assert_eq!(module("crates/a/tests/one/main.rs"), Some(("crates/a/tests", "one")));
        for file in ["crates/a/tests/one/part.rs", "crates/a/tests/one.md", "crates/a/src/one.rs", "tests/python/one.rs"] {
            assert_eq!(module(file), None, "{file}");
        }
    }

    #[test]
    fn a_file_in_no_program_is_seen() {
        let modules = ["main", "one", "two", "three", "own"];
        let main = "//! Tests.\n\nmod one;\n// mod two;\n#[path = \"elsewhere.rs\"]\nmod three;\n";
        assert_eq!(forgotten(&modules, main, "[[test]]\nname = \"own\"\nharness = false\n"), ["two"]);
    }
}
