//! The results file: JSON Lines, append-only, one object a line, units in the names.
//!
//! ```text
//! {"kind":"session","schema":"1.1","id":"…","environment":{…},"planned":52,…}
//! {"kind":"ceilings","threads":2,"copy":[…],"read":[…],"compute":[…]}
//! {"kind":"case","case":"81b3…","impl":"tessera","key":{"operator":"gemm",…},"work":{…},"phases":[…]}
//! {"kind":"gate","case":"81b3…","impl":"tessera","status":"ok","worst":{…},…}
//! {"kind":"block","case":"81b3…","impl":"tessera","i":0,"start_ns":…,"samples_ns":[…]}
//! {"kind":"summary","case":"81b3…","impl":"tessera","status":"ok","median_ns":…,"ci95_ns":[…,…],…}
//! {"kind":"end","planned":52,"run":52,"by_status":{"ok":52},"reason":null}
//! ```
//!
//! Version 1.1 added `order` and `process` of a session, `place` and `process` of a block, and `processes`, `places` and
//! `ci95_processes_ns` of a summary; files of 1.0 are read as of one process in one place. Rows of collectives have `bus_bytes_s` in their summary, and
//! `slowest_rank` and `fastest_rank_ns` in their blocks' `device`; their samples are the slowest rank's.
//!
//! A file whose last record is not an `end` with `run` = `planned` is incomplete. Readers ignore unknown fields and kinds,
//! and refuse another major version. What is absent is null; a number that JSON lacks is a string.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::case::{CaseKey, DeviceState, Phase, Work};
use crate::ceiling::{Bound, Ceilings};
use crate::environment::{Accelerator, Environment};
use crate::gate::GateReport;
use crate::sample::Mode;
use crate::stats::{PairedRatio, Summary, TimedBlock};
use crate::status::{Flag, Status};

/// The version that is written.
pub const SCHEMA: &str = "1.1";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The run and the machine; first in every file, and again where a run was resumed.
    Session(Box<SessionRecord>),
    /// What the machine can do.
    Ceilings(Ceilings),
    /// What is about to be checked and timed.
    Case(Box<CaseRecord>),
    /// The verdict of the correctness gate.
    Gate(Box<GateRecord>),
    /// Raw samples.
    Block(BlockRecord),
    /// The row.
    Summary(Box<SummaryRecord>),
    /// The run came to its end.
    End(EndRecord),
    /// Something a later version writes.
    #[serde(other)]
    Unknown,
}

/// The program that measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Package version.
    pub version: String,
    /// Commit it was built from.
    pub git: Option<String>,
    /// Compiler it was built with.
    pub rustc: Option<String>,
}

impl Tool {
    /// This build.
    pub fn current() -> Tool {
        let known = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str::to_string);
        Tool {
            version: env!("CARGO_PKG_VERSION").into(),
            git: known(option_env!("TESSERA_GIT")),
            rustc: known(option_env!("TESSERA_RUSTC")),
        }
    }
}

/// See [`Record::Session`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Version of the format.
    pub schema: String,
    /// Tells sessions apart.
    pub id: String,
    /// Start, UTC.
    pub start: String,
    /// What measured.
    pub tool: Tool,
    /// The suite's name.
    pub suite: String,
    /// Hash of the suite's case list.
    pub suite_hash: String,
    /// From which inputs are derived.
    pub seed: u64,
    /// From which the order of rows and places in memory are derived; `seed` in files of version 1.0.
    #[serde(default)]
    pub order: Option<u64>,
    /// Which process of a row's figure this is, counted from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process: usize,
    /// The effort.
    pub mode: Mode,
    /// The device's name.
    pub device: String,
    /// The command line.
    pub argv: Vec<String>,
    /// Settings that influence speed, by name.
    pub knobs: BTreeMap<String, String>,
    /// The machine.
    pub environment: Environment,
    /// The device that kernels ran on, where it is not the machine's processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// What must be equal for times to be comparable.
    pub fingerprint: String,
    /// The clock's smallest step.
    pub tick_ns: f64,
    /// Median time of an empty launch (or of reading the clock, where nothing can be launched).
    pub floor_ns: f64,
    /// Rows the whole suite has.
    pub planned: usize,
}

impl SessionRecord {
    /// Bytes of the cache closest to the memory that kernels use; 0 when unknown.
    pub fn last_level_bytes(&self) -> u64 {
        self.accelerator.as_ref().map_or(self.environment.last_level_bytes, |accelerator| accelerator.l2_bytes)
    }
}

/// See [`Record::Case`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// Hash of `key`.
    pub case: String,
    /// Which implementation.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// The identity.
    pub key: CaseKey,
    /// The least work.
    pub work: Work,
    /// Configuration of the kernel: `BM=64,BN=64`; empty where there is none.
    pub config: String,
    /// Stages before the first launch.
    pub phases: Vec<Phase>,
}

/// See [`Record::Gate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// Hash of the case.
    pub case: String,
    /// Which implementation.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// What was found.
    #[serde(flatten)]
    pub report: GateReport,
}

/// See [`Record::Block`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Hash of the case.
    pub case: String,
    /// Which implementation.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// The round.
    pub i: usize,
    /// Start on the session's clock.
    pub start_ns: f64,
    /// Time of one launch, for each sample.
    pub samples_ns: Vec<f64>,
    /// What the device said of itself meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceState>,
    /// Which place in memory the tensors had, counted from 0 in each process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place: usize,
    /// Which process measured it, counted from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl BlockRecord {
    /// The block without its row's name.
    pub fn timed(&self) -> TimedBlock {
        TimedBlock {
            start_ns: self.start_ns,
            samples_ns: self.samples_ns.clone(),
            device: self.device,
            place: self.place,
            process: self.process,
        }
    }
}

/// See [`Record::Summary`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// Hash of the case.
    pub case: String,
    /// Which implementation.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// The outcome.
    pub status: Status,
    /// Why, when it is not `ok`.
    pub reason: Option<String>,
    /// Things to know.
    pub flags: Vec<Flag>,
    /// Launches in a sample.
    pub batch: Option<usize>,
    /// The first launch.
    pub first_launch_ns: Option<f64>,
    /// The times; absent when nothing was timed or when the time is refused.
    #[serde(flatten)]
    pub times: Option<Summary>,
    /// Useful bytes a second.
    pub bytes_s: Option<f64>,
    /// Of a collective, what a rank's link carries at least in a second, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bytes_s: Option<f64>,
    /// Useful operations a second.
    pub flops_s: Option<f64>,
    /// Least time over median: the share of the measured ceiling.
    pub efficiency: Option<f64>,
    /// What the least time is bound by.
    pub bound: Option<Bound>,
    /// Time against the fastest valid baseline of the case: below 1 is faster than it.
    pub versus: Option<Versus>,
}

impl SummaryRecord {
    /// A row without times.
    pub fn untimed(case: &str, implementation: &str, status: Status, reason: Option<String>) -> SummaryRecord {
        SummaryRecord {
            case: case.into(),
            implementation: implementation.into(),
            status,
            reason,
            flags: Vec::new(),
            batch: None,
            first_launch_ns: None,
            times: None,
            bytes_s: None,
            bus_bytes_s: None,
            flops_s: None,
            efficiency: None,
            bound: None,
            versus: None,
        }
    }
}

/// A comparison with a baseline that was measured in the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// The baseline.
    pub baseline: String,
    /// Time of this row over time of the baseline.
    #[serde(flatten)]
    pub ratio: PairedRatio,
}

/// See [`Record::End`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Rows the suite has.
    pub planned: usize,
    /// Rows in the file.
    pub run: usize,
    /// How many of each status.
    pub by_status: BTreeMap<Status, usize>,
    /// Why the run stopped early.
    pub reason: Option<String>,
}

/// `2026-11-21T02:00:00Z` for seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March put the leap day last; 1970-01-01 is day 719 468 of that calendar.
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_known_instants() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_226_400, "2026-11-21T02:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }
}
