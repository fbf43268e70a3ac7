//! Writing and reading results files. A file may be cut short or hostile: every way it can be wrong is an error with its line.
//!
//! Only the last line may be incomplete (the process was killed while writing); it is then ignored, and the run can be
//! resumed behind the last whole line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use crate::ceiling::Ceilings;
use crate::gate::GateReport;
use crate::record::{BlockRecord, CaseRecord, EndRecord, GateRecord, Record, SCHEMA, SessionRecord, SummaryRecord};
use crate::stats::{TimedBlock, median};

/// Why a results file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// What is there is no regular file: a device, a pipe, a folder.
    #[error("{path}: results go to a regular file, and this is none")]
    NotAFile {
        /// What is there.
        path: String,
    },
    /// Another process writes to it.
    #[error("{path}: another run is writing it")]
    Busy {
        /// The file.
        path: String,
    },
    /// A line is not what a results file has there.
    #[error("line {line}: {message}")]
    Malformed {
        /// One-based.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// The file holds another suite, seed or machine than the run that wants to continue it.
    #[error("cannot resume: {0}")]
    NotResumable(String),
}

/// One implementation of one case with all that the file says of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Identity, work, phases.
    pub case: CaseRecord,
    /// The gate's verdict.
    pub gate: Option<GateReport>,
    /// Raw samples.
    pub blocks: Vec<BlockRecord>,
    /// The outcome; absent when the run ended before it.
    pub summary: Option<SummaryRecord>,
}

/// A results file in memory.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The sessions that wrote it; at least one.
    pub sessions: Vec<SessionRecord>,
    /// The last measured ceilings.
    pub ceilings: Ceilings,
    /// Rows in file order.
    pub rows: Vec<Row>,
    /// Case and implementation of the last row that was begun.
    pub begun: Option<(String, String)>,
    /// The end record, if it is the last one.
    pub end: Option<EndRecord>,
    /// True when the last line was cut off.
    pub truncated: bool,
    /// Bytes up to the end of the last whole line: where a resumed run continues.
    pub whole_bytes: u64,
}

impl Results {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Results, StoreError> {
        let bytes = std::fs::read(path).map_err(|source| StoreError::Io { path: path.display().to_string(), source })?;
        Results::parse(&bytes)
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Results, StoreError> {
        let mut reader = Reader::default();
        let mut at = 0;
        for (index, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
            let whole = line.ends_with(b"\n");
            at += line.len();
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let taken = decode(line).and_then(|record| reader.take(record));
            match taken {
                Ok(()) => reader.results.whole_bytes = at as u64,
                Err(_) if !whole && !reader.results.sessions.is_empty() => reader.results.truncated = true,
                Err(message) => return Err(StoreError::Malformed { line: index + 1, message }),
            }
        }
        if reader.results.sessions.is_empty() {
            return Err(StoreError::Malformed { line: 1, message: "the file is empty: no `session` record".into() });
        }
        Ok(reader.results)
    }

    /// True when every planned row is there.
    pub fn complete(&self) -> bool {
        !self.truncated && self.end.as_ref().is_some_and(|end| end.run == end.planned && end.run == self.finished().len())
    }

    /// Everything that is known, as records in a tidy order.
    pub fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.sessions.iter().cloned().map(|s| Record::Session(Box::new(s))).collect();
        records.push(Record::Ceilings(self.ceilings.clone()));
        for row in &self.rows {
            let (case, implementation) = (row.case.case.clone(), row.case.implementation.clone());
            records.push(Record::Case(Box::new(row.case.clone())));
            records.extend(row.gate.clone().map(|report| Record::Gate(Box::new(GateRecord { case, implementation, report }))));
            records.extend(row.blocks.iter().cloned().map(Record::Block));
            records.extend(row.summary.clone().map(|summary| Record::Summary(Box::new(summary))));
        }
        records.extend(self.end.clone().map(Record::End));
        records
    }

    /// Rows that the whole suite has: what the last session planned, since a continued run may be asked for more.
    pub fn planned(&self) -> usize {
        self.sessions.last().map_or(0, |session| session.planned)
    }

    /// The session that wrote first.
    pub fn session(&self) -> &SessionRecord {
        &self.sessions[0]
    }

    /// Case and implementation of every row that has its outcome.
    pub fn finished(&self) -> BTreeSet<(String, String)> {
        let done = self.rows.iter().filter(|row| row.summary.is_some());
        done.map(|row| (row.case.case.clone(), row.case.implementation.clone())).collect()
    }

    /// The same of every row to which process `process` (counted from 0) has nothing to add: it measured it, or there is nothing
    /// to measure.
    pub fn finished_by(&self, process: usize) -> BTreeSet<(String, String)> {
        let is_done = |summary: &SummaryRecord| summary.times.as_ref().is_none_or(|times| times.processes > process);
        let done = self.rows.iter().filter(|row| row.summary.as_ref().is_some_and(is_done));
        done.map(|row| (row.case.case.clone(), row.case.implementation.clone())).collect()
    }

    /// What processes before `process` measured of each row.
    pub fn blocks_before(&self, process: usize) -> BTreeMap<(String, String), Vec<TimedBlock>> {
        let blocks = |row: &Row| row.blocks.iter().filter(|block| block.process < process).map(BlockRecord::timed).collect();
        self.rows.iter().map(|row| ((row.case.case.clone(), row.case.implementation.clone()), blocks(row))).collect()
    }

    /// Case and implementation of every row that was begun and has no outcome.
    pub fn unfinished(&self) -> BTreeSet<(String, String)> {
        let open = self.rows.iter().filter(|row| row.summary.is_none());
        open.map(|row| (row.case.case.clone(), row.case.implementation.clone())).collect()
    }

    /// Whether `session` may continue this file.
    pub fn resumable_by(&self, session: &SessionRecord) -> Result<(), StoreError> {
        let first = self.session();
        let pairs = [
            ("suite", &first.suite_hash, &session.suite_hash),
            ("machine", &first.fingerprint, &session.fingerprint),
            ("device", &first.device, &session.device),
        ];
        for (what, theirs, ours) in pairs {
            if theirs != ours {
                return Err(StoreError::NotResumable(format!("the file was written for another {what} ({theirs}, now {ours})")));
            }
        }
        if (first.seed, first.mode) != (session.seed, session.mode) {
            return Err(StoreError::NotResumable("the file was written with another seed or mode".into()));
        }
        Ok(())
    }
}

fn decode(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_string())?;
    serde_json::from_str(text.trim()).map_err(|e| format!("not a record: {}", without_line(&e)))
}

/// serde_json's message; its line is always 1 here, so only the column is told.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(cut) if error.column() > 0 => format!("{} at column {}", &text[..cut], error.column()),
        Some(cut) => text[..cut].to_string(),
        None => text,
    }
}

#[derive(Default)]
struct Reader {
    results: Results,
    index: BTreeMap<(String, String), usize>,
}

impl Reader {
    fn row(&mut self, case: &str, implementation: &str) -> Result<&mut Row, String> {
        let key = (case.to_string(), implementation.to_string());
        let at =
            *self.index.get(&key).ok_or_else(|| format!("no `case` record for {case} ({implementation}) before this line"))?;
        Ok(&mut self.results.rows[at])
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        if self.results.sessions.is_empty() && !matches!(record, Record::Session(_)) {
            return Err("the first record must be a `session`".into());
        }
        if record != Record::Unknown {
            self.results.end = None;
        }
        match record {
            Record::Session(session) => {
                let major = |version: &str| version.split('.').next().unwrap_or_default().to_string();
                if major(&session.schema) != major(SCHEMA) {
                    return Err(format!("schema {} is not readable here (this is {SCHEMA})", session.schema));
                }
                self.results.sessions.push(*session);
            }
            Record::Ceilings(ceilings) => {
                let curves = ceilings.copy.iter().chain(&ceilings.read).chain(ceilings.compute.iter().map(|(_, r)| r));
                for rate in curves {
                    positive("best", rate.best)?;
                    positive("median", rate.median)?;
                }
                self.results.ceilings = ceilings;
            }
            Record::Case(case) => {
                if case.case != case.key.id() {
                    return Err(format!("the case's hash is {}, the line says {}", case.key.id(), case.case));
                }
                let key = (case.case.clone(), case.implementation.clone());
                self.results.begun = Some(key.clone());
                let process = self.results.sessions.last().map_or(0, |session| session.process);
                let mut row = Row { case: *case, gate: None, blocks: Vec::new(), summary: None };
                // Measured again by another process, or after an interruption: then the later attempt counts.
                match self.index.get(&key) {
                    Some(&at) => {
                        let known = std::mem::take(&mut self.results.rows[at].blocks);
                        row.blocks = known.into_iter().filter(|block| block.process < process).collect();
                        self.results.rows[at] = row;
                    }
                    None => {
                        self.index.insert(key, self.results.rows.len());
                        self.results.rows.push(row);
                    }
                }
            }
            Record::Gate(gate) => self.row(&gate.case, &gate.implementation)?.gate = Some(gate.report),
            Record::Block(block) => {
                for &sample in &block.samples_ns {
                    positive("a sample", sample)?;
                }
                self.row(&block.case, &block.implementation)?.blocks.push(block);
            }
            Record::Summary(summary) => {
                check_summary(&summary)?;
                let row = self.row(&summary.case, &summary.implementation)?;
                check_median(&summary, &row.blocks)?;
                row.summary = Some(*summary);
            }
            Record::End(end) => self.results.end = Some(end),
            Record::Unknown => {}
        }
        Ok(())
    }
}

fn positive(what: &str, value: f64) -> Result<(), String> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(format!("{what} must be a positive number, not {value}")) }
}

fn check_summary(summary: &SummaryRecord) -> Result<(), String> {
    if let Some(times) = &summary.times {
        positive("median_ns", times.median_ns)?;
        if let Some(ci) = times.ci95_ns {
            positive("ci95_ns", ci.lo)?;
            positive("ci95_ns", ci.hi)?;
            if ci.lo > ci.hi {
                return Err(format!("ci95_ns is [{}, {}]: the ends are swapped", ci.lo, ci.hi));
            }
        }
    } else if summary.status.has_time() {
        return Err(format!("status `{}` without times", summary.status));
    }
    let rates = [("bytes_s", summary.bytes_s), ("flops_s", summary.flops_s), ("efficiency", summary.efficiency)];
    for (what, value) in rates {
        if value.is_some_and(|v| !v.is_finite() || v < 0.0) {
            return Err(format!("{what} must be a positive number"));
        }
    }
    if let Some(versus) = &summary.versus {
        positive("ratio", versus.ratio.ratio)?;
        if let Some(ci) = versus.ratio.ci95 {
            positive("ci95", ci.lo)?;
            positive("ci95", ci.hi)?;
        }
    }
    Ok(())
}

/// The median of a row is that of its blocks.
fn check_median(summary: &SummaryRecord, blocks: &[BlockRecord]) -> Result<(), String> {
    let medians: Vec<f64> = blocks.iter().filter(|b| !b.samples_ns.is_empty()).map(|b| median(&b.samples_ns)).collect();
    let Some(times) = summary.times.as_ref().filter(|_| !medians.is_empty()) else { return Ok(()) };
    let told = median(&medians);
    // Numbers are written with all their digits.
    match (times.median_ns / told - 1.0).abs() < 1e-9 {
        true => Ok(()),
        false => Err(format!("median_ns is {}, and the row's blocks say {told}", times.median_ns)),
    }
}

/// Appends records to a file, each on the disk before the next is begun. The file is its own as long as it lives: two of them would mix their rows.
pub struct Writer {
    file: File,
    path: String,
}

impl Writer {
    /// Refuses what no results can be written to: what is there, at the end of links, is a regular file or nothing.
    pub fn accepts(path: &Path) -> Result<(), StoreError> {
        let path_text = || path.display().to_string();
        match std::fs::metadata(path) {
            Ok(there) if there.is_file() => Ok(()),
            Ok(_) => Err(StoreError::NotAFile { path: path_text() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::Io { path: path_text(), source }),
        }
    }

    fn open(path: &Path, how: &mut OpenOptions) -> Result<Writer, StoreError> {
        Writer::accepts(path)?;
        let path_text = path.display().to_string();
        let file = match how.append(true).open(path) {
            Ok(file) => file,
            Err(source) => return Err(StoreError::Io { path: path_text, source }),
        };
        match file.try_lock() {
            // Not every file system knows locks.
            Ok(()) => Ok(Writer { file, path: path_text }),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Writer { file, path: path_text }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: path_text }),
            Err(TryLockError::Error(source)) => Err(StoreError::Io { path: path_text, source }),
        }
    }

    /// A new file; what an existing one holds is replaced.
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let writer = Writer::open(path, OpenOptions::new().create(true))?;
        writer.cut(0)?;
        Ok(writer)
    }

    /// Leaves so many bytes of the file.
    fn cut(&self, bytes: u64) -> Result<(), StoreError> {
        self.file.set_len(bytes).map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }

    /// Continues a file behind its last whole line.
    pub fn resume(path: &Path, results: &Results) -> Result<Writer, StoreError> {
        let io = |source| StoreError::Io { path: path.display().to_string(), source };
        let mut writer = Writer::open(path, &mut OpenOptions::new())?;
        writer.cut(results.whole_bytes)?;
        let ends_in_newline = std::fs::read(path).map_err(io)?.ends_with(b"\n");
        if !ends_in_newline {
            writer.bytes(b"\n")?;
        }
        Ok(writer)
    }

    /// Appends one record.
    pub fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        let mut line = serde_json::to_vec(record)
            .map_err(|e| StoreError::Io { path: self.path.clone(), source: io::Error::new(io::ErrorKind::InvalidData, e) })?;
        line.push(b'\n');
        self.bytes(&line)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        // One write call a line: a kill leaves at most the last line incomplete.
        self.file.write_all(bytes).map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }
}
