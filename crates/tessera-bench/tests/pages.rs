//! `docs/operators/` is what the operators declare and `results/operators/` has; `UPDATE_EXPECT=1` writes the pages anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tessera_bench::pages::{Measured, index, page};
use tessera_ops::OPERATORS;

/// The line of the book's contents under which the pages stand.
const CONTENTS: &str = "- [The operators](operators/README.md)";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The contents of the book with a line for each operator's page.
fn contents(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.contains("](operators/") || *line == CONTENTS) {
        lines.push(line.to_string());
        if line == CONTENTS {
            lines.extend(OPERATORS.iter().map(|operator| format!("  - [{0}](operators/{0}.md)", operator.name)));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn operators_have_pages_that_say_what_they_declare() {
    let measured = std::fs::read_to_string(root().join("results/operators/h200.csv")).expect("what was measured");
    let measured = Measured::read(&measured).unwrap_or_else(|line| panic!("no row: {line}"));
    let folder = root().join("docs/operators");
    let summary = root().join("docs/SUMMARY.md");
    let text = std::fs::read_to_string(&summary).expect("the book's contents");
    let mut wanted: BTreeMap<PathBuf, String> =
        OPERATORS.iter().map(|operator| (folder.join(format!("{}.md", operator.name)), page(operator, &measured))).collect();
    wanted.insert(folder.join("README.md"), index());
    wanted.insert(summary, contents(&text));
    let found = std::fs::read_dir(&folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
    let stale: Vec<PathBuf> = found.unwrap_or_default().into_iter().filter(|path| !wanted.contains_key(path)).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        stale.iter().for_each(|path| std::fs::remove_file(path).expect("removed"));
        wanted.iter().for_each(|(path, text)| std::fs::write(path, text).expect("written"));
        return;
    }
    assert!(stale.is_empty(), "pages of no operator: {stale:?}");
    for (path, text) in &wanted {
        let own = std::fs::read_to_string(path).unwrap_or_default();
        assert!(own == *text, "{} is not what is declared\nhelp: `cargo xtask bless pages`", path.display());
    }
}
