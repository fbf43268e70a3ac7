//! Folders of `tessera-compile` use each other one way: what two of them need stands in a third.
//!
//! ```text
//! tile -> rewrite, passes -> tile          fine
//! tile -> passes -> tile                   refused: both are named, with a file of each step
//! ```
//!
//! An import is a path that starts with `crate::`; files at the top count as folders of their own where a way leads through them.

use std::collections::{BTreeMap, BTreeSet};

/// Where the folders stand.
const ROOT: &str = "crates/tessera-compile/src/";

/// Who imports whom, with a file that does.
#[derive(Default)]
pub(crate) struct Folders {
    imports: BTreeMap<String, BTreeMap<String, String>>,
    folders: BTreeSet<String>,
}

impl Folders {
    /// Notes what a file imports.
    pub(crate) fn see(&mut self, file: &str, text: &str) {
        let Some(path) = file.strip_prefix(ROOT) else { return };
        let own = match path.split_once('/') {
            Some((folder, _)) => {
                self.folders.insert(folder.to_string());
                folder
            }
            None => path.trim_end_matches(".rs"),
        };
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        for line in lines.filter(|line| !line.trim_start().starts_with("//")) {
            for rest in line.split("crate::").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name != own {
                    self.imports.entry(own.to_string()).or_default().entry(name).or_insert_with(|| file.to_string());
                }
            }
        }
    }

    /// Names each folder that imports itself by way of others.
    pub(crate) fn finish(&self, problems: &mut Vec<String>) {
        for folder in &self.folders {
            if let Some(way) = self.way_back(folder) {
                let steps: Vec<String> = way.iter().map(|(name, file)| format!("`{name}` ({file})")).collect();
                problems.push(format!("folder `{folder}` imports itself by {}", steps.join(", then ")));
            }
        }
    }

    /// The shortest way from a folder back to it: what is imported, and where.
    fn way_back(&self, folder: &str) -> Option<Vec<(&str, &str)>> {
        let mut ways: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut at = 0;
        while let Some(way) = ways.get(at).cloned() {
            let here = way.last().map_or(folder, |(name, _)| name);
            for (name, file) in self.imports.get(here).into_iter().flatten() {
                let step = [&way[..], &[(name, file)]].concat();
                if name == folder {
                    return Some(step);
                }
                if seen.insert(name) {
                    ways.push(step);
                }
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_back_is_seen() {
        let mut folders = Folders::default();
        let mut see = |file: &str, text: &str| folders.see(&format!("{ROOT}{file}"), text);
        see("tile/a.rs", "use crate::rewrite::make;\n// use crate::passes::find;\n");
        see("passes/b.rs", "use crate::tile;\n#[cfg(test)]\nuse crate::device;\n");
        see("rewrite/c.rs", "use crate::analysis::facts::Facts;\n");
        let mut problems = Vec::new();
        folders.finish(&mut problems);
        assert_eq!(problems, Vec::<String>::new());
        folders.see(&format!("{ROOT}pipeline.rs"), "use crate::passes::find;");
        folders.see(&format!("{ROOT}tile/d.rs"), "use crate::pipeline::OptLevel;");
        folders.finish(&mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[1].contains("pipeline.rs"), "{problems:?}");
    }
}
