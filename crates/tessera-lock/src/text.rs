//! The lockfile's text: TOML, a table an entry, sorted by kernel and name.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::{Bits, Entry, Key, config_text, parse_config};

/// The version of entries that this program reads and writes.
const VERSION: u64 = 1;

const HEAD: &str = "# Written by `tessera tune`. Each table is a choice of its own: merge this file as text, keeping the tables of both sides.\n";

/// What is wrong with a lockfile's text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct LockError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// The line, from 1 on.
    pub line: usize,
    /// The column in characters, from 1 on.
    pub column: usize,
    /// The bytes of the text that it is about.
    pub bytes: Range<usize>,
}

impl LockError {
    fn at(text: &str, bytes: Range<usize>, message: impl Into<String>, help: &str) -> LockError {
        // A place within a character is that character's.
        let mut start = bytes.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        LockError {
            message: message.into(),
            help: help.to_string(),
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            bytes: start..bytes.end.clamp(start, text.len()),
        }
    }
}

/// An entry as it stands in the text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u64,
    ir: String,
    shape: String,
    device: String,
    toolchain: String,
    bits: Bits,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    config: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    order: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicted_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counted: Option<u64>,
    candidates: u64,
}

/// All of a text's entries, by kernel and name.
type Tables = BTreeMap<String, BTreeMap<String, toml::Spanned<toml::Value>>>;

/// Choices that were made, by what they were made for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lockfile {
    entries: BTreeMap<(String, String), (Key, Entry)>,
}

impl Lockfile {
    /// Reads a text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str) -> Result<Lockfile, LockError> {
        if let Some(bytes) = conflict(text) {
            let help = "keep the tables of both sides and delete the lines with marks; `tessera tune` makes a table again";
            return Err(LockError::at(text, bytes, "a merge was left unfinished here", help));
        }
        let again = "delete the table; `tessera tune` makes it again";
        let tables: Tables = toml::from_str(text)
            .map_err(|error| LockError::at(text, error.span().unwrap_or(0..0), error.message().trim_end(), again))?;
        let mut lockfile = Lockfile::default();
        for (kernel, entries) in tables {
            for (id, table) in entries {
                let bytes = table.span();
                let wrong = |message: String, help: &str| LockError::at(text, bytes.clone(), message, help);
                let table = table.into_inner();
                if let Some(version) = table.get("version").and_then(toml::Value::as_integer)
                    && version != VERSION as i64
                {
                    let message = format!("`{kernel}.{id}` has version {version}, and this program reads version {VERSION}");
                    return Err(wrong(message, "use the program that wrote it, or delete the table and tune again"));
                }
                let stored: Stored = table.try_into().map_err(|error: toml::de::Error| {
                    wrong(format!("`{kernel}.{id}` is no entry: {}", error.message().trim_end()), again)
                })?;
                let Some(config) = parse_config(&stored.config) else {
                    return Err(wrong(format!("`{kernel}.{id}` has a `config` that is not `NAME=NUMBER,...`"), again));
                };
                let times = [("predicted_us", stored.predicted_us), ("measured_us", stored.measured_us)];
                let is_time = |time: f64| time.is_finite() && time >= 0.0;
                if let Some((name, _)) = times.into_iter().find(|(_, time)| time.is_some_and(|time| !is_time(time))) {
                    return Err(wrong(format!("`{kernel}.{id}` has a `{name}` that is no time"), again));
                }
                let (key, entry) = stored.into_entry(kernel.clone(), config);
                if key.id() != id {
                    let message = format!("`{kernel}.{id}` is not the name of what this entry was made for (`{}` is)", key.id());
                    return Err(wrong(message, again));
                }
                lockfile.insert(key, entry);
            }
        }
        Ok(lockfile)
    }

    /// The entry of a key.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(&(key.kernel.clone(), key.id())).map(|(_, entry)| entry)
    }

    /// Puts an entry in, in the place of one that was there.
    pub fn insert(&mut self, key: Key, entry: Entry) {
        self.entries.insert((key.kernel.clone(), key.id()), (key, entry));
    }

    /// Takes all entries of another lockfile, also in the place of one's own.
    pub fn merge(&mut self, other: Lockfile) {
        self.entries.extend(other.entries);
    }

    /// Every entry with its key, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.values().map(|(key, entry)| (key, entry))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text. The same entries give the same text.
    pub fn to_text(&self) -> String {
        let mut text = HEAD.to_string();
        for ((kernel, id), (key, entry)) in &self.entries {
            let table = toml::to_string_pretty(&Stored::of(key, entry)).unwrap_or_else(|error| {
                panic!("a table of strings and numbers that TOML cannot hold: {error}");
            });
            text.push_str(&format!("\n[{}.{id}]\n{table}", quoted(kernel)));
        }
        text
    }
}

impl Stored {
    fn of(key: &Key, entry: &Entry) -> Stored {
        Stored {
            version: VERSION,
            ir: key.ir.clone(),
            shape: key.shape.clone(),
            device: key.device.clone(),
            toolchain: key.toolchain.clone(),
            bits: entry.bits,
            config: config_text(&entry.config),
            plan: entry.plan.clone(),
            order: entry.order.clone(),
            predicted_us: entry.predicted_us,
            measured_us: entry.measured_us,
            counted: entry.counted,
            candidates: entry.candidates,
        }
    }

    fn into_entry(self, kernel: String, config: BTreeMap<String, i64>) -> (Key, Entry) {
        let Stored { ir, shape, device, toolchain, bits, plan, order, predicted_us, measured_us, counted, candidates, .. } = self;
        let key = Key { kernel, ir, shape, device, toolchain };
        (key, Entry { config, plan, bits, order, predicted_us, measured_us, counted, candidates })
    }
}

/// A name as a part of a table's header.
fn quoted(name: &str) -> String {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return name.to_string();
    }
    let escaped = name.chars().map(|char| match char {
        '"' | '\\' => format!("\\{char}"),
        char if char.is_control() => format!("\\u{:04X}", char as u32),
        char => char.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// The first line that git left for a conflict.
fn conflict(text: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let is_mark =
            ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|mark| line.starts_with(mark)) || line.trim_end() == "=======";
        if is_mark {
            return Some(start..start + line.trim_end().len());
        }
        start += line.len();
    }
    None
}
