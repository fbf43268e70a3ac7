//! Suppressions: findings that somebody has looked at and lets pass.
//!
//! One rule a line: which finding, in which kernel, where, and after ` -- ` why. `*` stands for any text. A place is `*`,
//! `FILE`, `FILE:LINE`, `FILE:FIRST-LAST` of the source (a file by the end of its path), or `ptx:LINE`, `ptx:FIRST-LAST` of the
//! PTX text; it is the finding's own place or the earlier one. Empty lines and lines that begin with `#` say nothing.
//!
//! ```text
//! # what          kernel      where            why
//! race            histogram*  counts.cu:31     -- every thread writes the same flag
//! uninitialized   *           ptx:120-140      -- rows beyond the matrix, whose results nobody stores
//! *               old_scan    *                -- replaced in the next release
//! ```

use std::fmt;

use crate::finding::{Finding, FindingKind, Place};

/// A list of rules; see the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<Rule>);

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its line in the text, from 1.
    pub line: u32,
    /// The kind of finding; none: any.
    pub kind: Option<FindingKind>,
    /// The kernel's pattern.
    pub kernel: String,
    /// Where.
    pub place: Where,
    /// Why it is let pass.
    pub reason: String,
}

/// The place of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Any.
    Anywhere,
    /// Lines of the PTX text.
    Ptx(u32, u32),
    /// A source file, and lines of it.
    Source(String, Option<(u32, u32)>),
}

/// What is wrong with a text of rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressError {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// In words.
    pub message: String,
}

impl fmt::Display for SuppressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl Suppressions {
    /// Reads rules.
    ///
    /// # Errors
    /// The first line that is no rule.
    pub fn parse(text: &str) -> Result<Suppressions, SuppressError> {
        let mut rules = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index as u32 + 1;
            if content.trim().is_empty() || content.trim_start().starts_with('#') {
                continue;
            }
            rules.push(rule(line, content).map_err(|(column, message)| SuppressError { line, column, message })?);
        }
        Ok(Suppressions(rules))
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The first rule that a finding matches.
    pub fn matching(&self, finding: &Finding) -> Option<usize> {
        let places = || std::iter::once(&finding.place).chain(&finding.earlier);
        self.0.iter().position(|rule| {
            rule.kind.is_none_or(|kind| kind == finding.kind)
                && matches(&rule.kernel, &finding.place.kernel)
                && places().any(|place| rule.place.holds(place))
        })
    }
}

impl Where {
    fn holds(&self, place: &Place) -> bool {
        match self {
            Where::Anywhere => true,
            Where::Ptx(first, last) => (*first..=*last).contains(&place.line),
            Where::Source(pattern, lines) => place.source.as_ref().is_some_and(|(file, line, _)| {
                // The end of a path, from a separator on.
                let starts = std::iter::once(0).chain(file.match_indices('/').map(|(at, _)| at + 1));
                starts.into_iter().any(|start| matches(pattern, &file[start..]))
                    && lines.is_none_or(|(first, last)| (first..=last).contains(line))
            }),
        }
    }
}

/// A word of a line with its column.
fn words(text: &str) -> Vec<(u32, &str)> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| (text[..start(word)].chars().count() as u32 + 1, word)).collect()
}

fn rule(line: u32, content: &str) -> Result<Rule, (u32, String)> {
    let end = content.trim_end().chars().count() as u32 + 1;
    let Some((head, reason)) = content.split_once(" -- ") else {
        return Err((end, "the reason is missing: write ` -- ` and why the finding is let pass".to_owned()));
    };
    if reason.trim().is_empty() {
        return Err((end, "the reason behind ` -- ` is empty".to_owned()));
    }
    let words = words(head);
    let [(at_kind, kind), (_, kernel), (at_place, place)] = words[..] else {
        let column = words.get(3).map_or(head.trim_end().chars().count() as u32 + 1, |(column, _)| *column);
        return Err((column, format!("a rule is `FINDING KERNEL PLACE -- REASON`: got {} words before ` -- `", words.len())));
    };
    let kind = match kind {
        "*" => None,
        name => {
            let found = FindingKind::ALL.into_iter().find(|kind| kind.name() == name);
            let names = || FindingKind::ALL.map(FindingKind::name).join(", ");
            Some(found.ok_or_else(|| (at_kind, format!("`{name}` is no finding: `*` or one of {}", names())))?)
        }
    };
    let place = where_of(place).ok_or_else(|| {
        (
            at_place,
            format!("`{place}` is no place: write `*`, `FILE`, `FILE:LINE`, `FILE:FIRST-LAST`, `ptx:LINE` or `ptx:FIRST-LAST`"),
        )
    })?;
    Ok(Rule { line, kind, kernel: kernel.to_owned(), place, reason: reason.trim().to_owned() })
}

fn where_of(text: &str) -> Option<Where> {
    if text == "*" {
        return Some(Where::Anywhere);
    }
    let Some((file, lines)) = text.rsplit_once(':') else { return Some(Where::Source(text.to_owned(), None)) };
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let range: (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    if file.is_empty() || range.0 == 0 || range.0 > range.1 {
        return None;
    }
    Some(if file == "ptx" { Where::Ptx(range.0, range.1) } else { Where::Source(file.to_owned(), Some(range)) })
}

/// Whether a text is what a pattern with `*` stands for.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kernel: &str, line: u32, source: Option<(&str, u32)>) -> Finding {
        let place = Place {
            kernel: kernel.to_owned(),
            line,
            instruction: String::new(),
            source: source.map(|(file, line)| (file.to_owned(), line, 1)),
            device: None,
            block: [0; 3],
            thread: None,
        };
        Finding::new(FindingKind::Race, String::new(), place, None)
    }

    #[test]
    fn rules_match_by_kind_kernel_and_place() {
        let text = "# flags\n\nrace add* rows.py:17 -- one flag\n  race  * ptx:120-140 --  why\n* old *.cu -- gone\n";
        let rules = Suppressions::parse(text).unwrap();
        assert_eq!(rules.rules().iter().map(|rule| rule.line).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(rules.rules()[1].reason, "why");
        let found = |finding: &Finding| rules.matching(finding);
        assert_eq!(found(&finding("adder", 1, Some(("/a/b/rows.py", 17)))), Some(0));
        assert_eq!(found(&finding("adder", 1, Some(("/a/b/rows.py", 18)))), None);
        assert_eq!(found(&finding("adder", 1, Some(("/a/b/arrows.py", 17)))), None);
        assert_eq!(found(&finding("sub", 140, None)), Some(1));
        assert_eq!(found(&finding("sub", 141, None)), None);
        assert_eq!(found(&finding("old", 1, Some(("x/k.cu", 2)))), Some(2));
        assert_eq!(found(&finding("older", 1, Some(("x/k.cu", 2)))), None);
        // The earlier place counts, too.
        let pair = Finding { earlier: Some(finding("k", 130, None).place), ..finding("k", 2, None) };
        assert_eq!(found(&pair), Some(1));
    }

    #[test]
    fn a_line_that_is_no_rule_is_told_with_its_place() {
        let cases = [
            ("race add ptx:3", 1, 15, "reason is missing"),
            ("# c\nrace add -- why", 2, 9, "got 2 words"),
            ("race add ptx:3 more -- why", 1, 16, "got 4 words"),
            (" rase add * -- why", 1, 2, "`rase` is no finding"),
            ("race add ptx:x -- why", 1, 10, "no place"),
            ("race add a.py:9-3 -- why", 1, 10, "no place"),
            ("race add * --  ", 1, 14, "reason"),
        ];
        for (text, line, column, part) in cases {
            let error = Suppressions::parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, wanted) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("ab*bc", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }
}
