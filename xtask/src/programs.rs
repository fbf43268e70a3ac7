//! The tests of a crate are one program, since each program is linked with all that it uses: `tests/main.rs` has a module a file.
//!
//! Cargo looks for no other (`autotests = false`), and a file that nobody names would not even be compiled. So each file is a module of
//! `main.rs`, or, where it brings a harness of its own, a program that the manifest names.
//!
//! A library with no tests in its sources is not compiled a second time for them (`test = false`), and one with no examples in its documentation
//! is not searched for them (`doctest = false`): there, neither may be written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Names what lies in a crate's `tests` and is in no program, crates where Cargo would make one of each file, and tests in sources of which
/// Cargo runs none.
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
    for file in files.iter().filter(|file| file.starts_with("crates/") && file.ends_with(".rs")) {
        let Some((folder, _)) = file.split_once("/src/") else { continue };
        let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("can't read {path}"));
        let unseen = never_run(&read(&format!("{folder}/Cargo.toml"))?, &read(file)?);
        problems.extend(unseen.map(|what| format!("{file}: {what}, of which the library's manifest says there are none")));
    }
    Ok(())
}

/// What in a source file would never be run, as the manifest's `[lib]` has it.
fn never_run(manifest: &str, source: &str) -> Option<&'static str> {
    let library = manifest.split_once("\n[lib]\n").map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or_default());
    let says = |setting: &str| library.lines().any(|line| line == setting);
    if says("test = false") && source.lines().any(|line| ["#[cfg(test)]", "#[test]"].contains(&line.trim())) {
        return Some("a test");
    }
    let documentation = source.lines().filter_map(|line| line.trim_start().strip_prefix("//")?.strip_prefix(['/', '!']));
    let mut inside = false;
    let mut begins_example = documentation.filter_map(|line| line.trim().strip_prefix("```")).map(|language| {
        inside = !inside;
        let first = language.split(',').next().unwrap_or_default();
        inside && ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&first)
    });
    (says("doctest = false") && begins_example.any(|begins| begins)).then_some("an example in the documentation")
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
    fn tests_that_would_never_run_are_seen() {
        let manifest = "[package]\n\n[lib]\ntest = false\ndoctest = false\n\n[dependencies]\n";
        let (test, example) =
            ("fn f() {}\n\n#[cfg(test)]\nmod tests {}\n", "//! ```text\n//! a\n//! ```\n\n/// ```\n/// f();\n/// ```\n");
        assert_eq!([test, example].map(|source| never_run(manifest, source).is_some()), [true, true]);
        assert_eq!(never_run(manifest, "//! ```text\n//! a\n//! ```\n"), None);
        let other = "[package]\n\n[dependencies]\n\n[[bench]]\ntest = false\ndoctest = false\n";
        assert_eq!([test, example].map(|source| never_run(other, source)), [None, None]);
    }

    #[test]
    fn a_file_in_no_program_is_seen() {
        let modules = ["main", "one", "two", "three", "own"];
        let main = "//! Tests.\n\nmod one;\n// mod two;\n#[path = \"elsewhere.rs\"]\nmod three;\n";
        assert_eq!(forgotten(&modules, main, "[[test]]\nname = \"own\"\nharness = false\n"), ["two"]);
    }
}
