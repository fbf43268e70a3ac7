//! What NVIDIA's front end said, and which differences from it are meant.
//!
//! `verdicts.txt` has one line a group: its name, a number that its statements come to, and one verdict a statement, as places in the
//! table of verdicts that stands first; `0` is a refusal. `differences.md` has the differences under headings with their reasons:
//!
//! ```text
//! - statement.range: `for i in (` taken      statements of a group with a text in them, which only this front end takes
//! - tile.*: `` known                        all of some groups, where only one of the two knows the value when compiled
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::calls::Group;
use super::front_end;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/edges").join(name)
}

pub(crate) struct Record {
    table: Vec<String>,
    groups: BTreeMap<String, (u64, Vec<usize>)>,
}

/// A number that a change of any statement changes.
fn fingerprint(group: &Group) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in group.statements.join("\0").bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    state
}

impl Record {
    pub(crate) fn read() -> Record {
        let text = std::fs::read_to_string(path("verdicts.txt")).unwrap_or_default();
        let mut record = Record { table: vec!["-".to_string()], groups: BTreeMap::new() };
        for line in text.lines() {
            if let Some(verdict) = line.strip_prefix("= ") {
                record.table.push(verdict.to_string());
            } else if let [name, number, verdicts] = line.splitn(3, ' ').collect::<Vec<_>>()[..] {
                let verdicts = verdicts.split_whitespace().filter_map(|place| place.parse().ok()).collect();
                record.groups.insert(name.to_string(), (u64::from_str_radix(number, 16).unwrap_or(0), verdicts));
            }
        }
        record
    }

    /// What was said of a group's statements, if it was asked of these.
    pub(crate) fn verdicts(&self, group: &Group) -> Option<Vec<String>> {
        let (number, places) = self.groups.get(&group.name)?;
        let current = *number == fingerprint(group) && places.len() == group.statements.len();
        current.then(|| places.iter().map(|&place| self.table.get(place).cloned().unwrap_or_default()).collect())
    }

    /// Asks about groups that are new or have changed, and writes what was said.
    pub(crate) fn bring_up_to_date(&mut self, groups: &[Group]) {
        let open: Vec<&Group> = groups.iter().filter(|group| self.verdicts(group).is_none()).collect();
        let statements: Vec<String> = open.iter().flat_map(|group| group.statements.clone()).collect();
        if statements.is_empty() && self.groups.len() == groups.len() {
            return;
        }
        let mut answers =
            front_end::verdicts(&statements).expect("TESSERA_PYTHON names an interpreter with cuda-tile").into_iter();
        for group in open {
            let places = answers.by_ref().take(group.statements.len()).map(|answer| self.place(&answer)).collect();
            self.groups.insert(group.name.clone(), (fingerprint(group), places));
        }
        self.groups.retain(|name, _| groups.iter().any(|group| group.name == *name));
        let mut text = String::new();
        for verdict in &self.table[1..] {
            let _ = writeln!(text, "= {verdict}");
        }
        for (name, (number, places)) in &self.groups {
            let places: Vec<String> = places.iter().map(usize::to_string).collect();
            let _ = writeln!(text, "{name} {number:016x} {}", places.join(" "));
        }
        std::fs::write(path("verdicts.txt"), text).expect("the record can be written");
    }

    fn place(&mut self, answer: &str) -> usize {
        let answer = if answer.starts_with('-') { "-" } else { answer };
        self.table.iter().position(|own| own == answer).unwrap_or_else(|| {
            self.table.push(answer.to_string());
            self.table.len() - 1
        })
    }
}

/// A line of `differences.md`.
pub(crate) struct Difference {
    pub(crate) number: usize,
    pub(crate) text: String,
    group: String,
    part: String,
    /// `taken` here only, `refused` here only, `known` when compiled on one side only, or another `type`.
    kind: String,
}

impl Difference {
    pub(crate) fn covers(&self, group: &str, statement: &str, own: &str, other: &str) -> bool {
        let kind = match (own.starts_with('-'), other.starts_with('-')) {
            (false, true) => "taken",
            (true, false) => "refused",
            _ if own.contains("const") != other.contains("const") => "known",
            _ => "type",
        };
        let of_group = self.group == "*"
            || self.group == group
            || self.group.strip_suffix('*').is_some_and(|start| group.starts_with(start));
        of_group && statement.replace('\n', "; ").contains(&self.part) && self.kind == kind
    }
}

/// The listed differences.
pub(crate) fn differences() -> Vec<Difference> {
    let text = std::fs::read_to_string(path("differences.md")).unwrap_or_default();
    let mut list = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(entry) = line.strip_prefix("- ") else { continue };
        let (group, rest) =
            entry.split_once(": `").unwrap_or_else(|| panic!("{line}: a difference is `- GROUP: \\`TEXT\\` KIND`"));
        let (part, kind) = rest.rsplit_once("` ").unwrap_or_else(|| panic!("{line}: the kind is missing"));
        list.push(Difference {
            number,
            text: line.to_string(),
            group: group.to_string(),
            part: part.to_string(),
            kind: kind.to_string(),
        });
    }
    list
}
