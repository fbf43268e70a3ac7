//! How long a function may get: from the line of its `fn` to its closing brace.
//!
//! Files are laid out by `cargo fmt`: a function ends at the first closing brace that stands as far left as it does.

use std::collections::BTreeSet;

/// A function longer than this is taken apart by subject.
const MOST_LINES: usize = 120;

/// Functions that are rows and nothing else, which would be harder to read in pieces: file, function, rows of what.
const TABLES: &[(&str, &str, &str)] = &[
    ("crates/tessera-compile/tests/python/expressions.rs", "integer", "one row a form of a random expression"),
    ("crates/tessera-cpu/src/build/visit.rs", "meaning", "one row an operation of Schedule IR"),
    ("crates/tessera-driver/tests/machine/mod.rs", "table", "one row a function of the driver"),
    ("crates/tessera-lang/tests/edges/calls.rs", "alternatives", "one row a parameter's name: what it is tried with"),
];

/// Looks at files one after another.
pub(crate) struct Lengths {
    /// Tables that were not found to be too long yet.
    unused: BTreeSet<(&'static str, &'static str)>,
}

impl Lengths {
    pub(crate) fn new() -> Lengths {
        Lengths { unused: TABLES.iter().map(|(file, name, _)| (*file, *name)).collect() }
    }

    /// Names the functions of a file that are too long.
    pub(crate) fn check(&mut self, file: &str, text: &str, problems: &mut Vec<String>) {
        for (name, line, lines) in functions(text).filter(|(.., lines)| *lines > MOST_LINES) {
            let table = TABLES.iter().find(|(of, own, _)| (*of, *own) == (file, name));
            match table {
                Some((of, own, _)) => _ = self.unused.remove(&(*of, *own)),
                None => problems.push(format!("{file}:{line}: `{name}` has {lines} lines, more than {MOST_LINES}")),
            }
        }
    }

    /// Names exceptions that are none any more.
    pub(crate) fn finish(self, problems: &mut Vec<String>) {
        for (file, name) in self.unused {
            problems.push(format!("xtask/src/functions.rs: `{name}` of {file} is no exception: it is not too long"));
        }
    }
}

/// The functions of a text: name, line, length.
fn functions(text: &str) -> impl Iterator<Item = (&str, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |start| {
        let name = declared(lines[start])?;
        let indent = lines[start].len() - lines[start].trim_start().len();
        let end = lines[start..].iter().position(|line| ends(line, indent))?;
        Some((name, start + 1, end + 1))
    })
}

/// The name of the function that a line declares.
fn declared(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\"", "default"];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')') || word == "in";
    if !before.split_whitespace().all(is_word) || !(before.is_empty() || before.ends_with(' ')) {
        return None;
    }
    let name = &after[..after.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len())];
    (!name.is_empty()).then_some(name)
}

/// Whether a function that is indented so far ends with a line: at its closing brace, or at once where it has no body.
fn ends(line: &str, indent: usize) -> bool {
    let own = line.len() - line.trim_start().len() == indent;
    own && (line.ends_with('}') || line.ends_with(';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &str, lines: usize) -> String {
        format!("struct S;\n\nimpl S {{\n{head}\n{}    }}\n\n    fn next(&self) {{}}\n}}\n", "        step();\n".repeat(lines))
    }

    fn found(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        Lengths::new().check("a.rs", text, &mut problems);
        problems
    }

    #[test]
    fn a_function_that_is_too_long_is_found() {
        let problems = found(&written("    pub(in crate::a) unsafe fn long(\n        &self,\n    ) {", MOST_LINES - 3));
        assert_eq!(problems, [format!("a.rs:4: `long` has {} lines, more than {MOST_LINES}", MOST_LINES + 1)]);
    }

    #[test]
    fn a_function_of_the_greatest_length_may_stay() {
        assert!(found(&written("    fn long(&self) {", MOST_LINES - 2)).is_empty());
    }

    #[test]
    fn what_declares_nothing_is_no_function() {
        let text = "/// Calls fn long.\ntype F = fn (u32) -> u32;\nfn declared(\n    a: u32,\n);\nfn short() {}\n";
        let names: Vec<_> = functions(text).collect();
        assert_eq!(names, [("declared", 3, 3), ("short", 6, 1)]);
    }

    #[test]
    fn an_exception_that_is_none_is_named() {
        let mut problems = Vec::new();
        Lengths::new().finish(&mut problems);
        assert_eq!(problems.len(), TABLES.len());
    }
}
