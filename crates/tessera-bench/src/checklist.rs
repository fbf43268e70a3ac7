//! The ten points that a measurement has to meet before anybody relies on it, held to what a results file says.

use std::collections::BTreeMap;

use crate::record::SessionRecord;
use crate::sample::Mode;
use crate::stats::Summary;
use crate::store::{Results, Row};

/// Launches before the first sample, and samples of a row, at least. The modes of whole models ask for fewer.
const WARMUPS: usize = 3;
const SAMPLES: usize = 10;
const MODEL_SAMPLES: usize = 5;
/// What a run of the mode for continuous integration may take, in seconds.
const CI_SECONDS: f64 = 60.0;

/// What is said where nothing was timed.
const NONE: &str = "no row was timed";

/// One point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What is asked for.
    pub what: &'static str,
    /// Whether the file shows it; none where it cannot: it has no part in such a run, or is told by no file.
    pub met: Option<bool>,
    /// What the file says.
    pub evidence: String,
}

fn point(what: &'static str, met: bool, evidence: String) -> Point {
    Point { what, met: Some(met), evidence }
}

/// The points of a results file.
pub fn checklist(results: &Results) -> Vec<Point> {
    let Some(session) = results.sessions.first() else { return Vec::new() };
    let timed: Vec<(&Row, &Summary)> =
        results.rows.iter().filter_map(|row| Some((row, row.summary.as_ref()?.times.as_ref()?))).collect();
    vec![
        clock(session),
        warmups(&timed),
        samples(&timed, session.mode),
        limits(results),
        expected(results),
        seconds(results, session),
        synchronised(session),
        averages(&timed),
        without_gpu(session),
        ranges(session),
    ]
}

fn clock(session: &SessionRecord) -> Point {
    let what = "work of a GPU is timed by device events";
    match &session.accelerator {
        Some(device) => point(what, true, format!("each sample lies between two events ({})", device.timing)),
        None => Point {
            what,
            met: None,
            evidence: format!("on {}: the harness's monotonic clock, steps of {:.0} ns", session.device, session.tick_ns),
        },
    }
}

fn warmups(timed: &[(&Row, &Summary)]) -> Point {
    // The gate launches twice for each seed (over two poisons), and once more to repeat.
    let launches = |row: &Row| row.gate.as_ref().map_or(0, |gate| 2 * gate.seeds.len());
    let what = "launches warm up before the first sample";
    let Some(least) = timed.iter().map(|(row, _)| launches(row)).min() else {
        return Point { what, met: None, evidence: NONE.to_string() };
    };
    point(
        what,
        least >= WARMUPS,
        format!("the gate launches each row {least} times and more, then the sampler until times settle"),
    )
}

fn samples(timed: &[(&Row, &Summary)], mode: Mode) -> Point {
    let what = "iterations are many";
    let Some(least) = timed.iter().map(|(_, times)| times.n).min() else {
        return Point { what, met: None, evidence: NONE.to_string() };
    };
    let wanted = if mode.is_of_models() { MODEL_SAMPLES } else { SAMPLES };
    point(what, least >= wanted, format!("{least} samples and more in each of {} timed rows, {wanted} asked for", timed.len()))
}

fn limits(results: &Results) -> Point {
    let what = "what hangs is ended";
    let lost = results.rows.iter().filter(|row| row.summary.is_none()).count();
    // A child that is watched is told not to start another one.
    let is_watched = results.sessions.iter().all(|session| session.argv.iter().any(|argument| argument == "--unwatched"));
    let how = if is_watched { "a child that is watched measured" } else { "nobody watched the process that measured" };
    point(what, is_watched && lost == 0, format!("{how}; {lost} rows have no outcome"))
}

fn expected(results: &Results) -> Point {
    let what = "the run's length is known beforehand";
    let Some(end) = &results.end else { return point(what, false, "the run did not come to its end".to_string()) };
    point(what, end.run == end.planned, format!("{} rows planned, {} run", end.planned, end.run))
}

/// Up to the last sample of each process, one after the other.
fn seconds(results: &Results, session: &SessionRecord) -> Point {
    let what = "continuous integration takes less than a minute";
    let mut ends: BTreeMap<usize, f64> = BTreeMap::new();
    for block in results.rows.iter().flat_map(|row| &row.blocks) {
        let end = ends.entry(block.process).or_default();
        *end = end.max(block.start_ns + block.samples_ns.iter().sum::<f64>());
    }
    let took = ends.values().sum::<f64>() / 1e9;
    match session.mode {
        Mode::Ci => point(what, took < CI_SECONDS, format!("{took:.1} s up to the last sample of each process")),
        mode => Point {
            what,
            met: None,
            evidence: format!("mode {}: {took:.1} s up to the last sample of each process", mode.name()),
        },
    }
}

fn synchronised(session: &SessionRecord) -> Point {
    let what = "the device is waited for before and behind what is timed";
    match &session.accelerator {
        Some(_) => {
            point(what, true, "a block is queued behind a kernel that waits, and read when its last event has come".to_string())
        }
        None => Point { what, met: None, evidence: "launches end before the clock is read".to_string() },
    }
}

fn averages(timed: &[(&Row, &Summary)]) -> Point {
    let what = "an average with its spread is told";
    if timed.is_empty() {
        return Point { what, met: None, evidence: NONE.to_string() };
    }
    // Where all samples are equal, and they are many, nothing was measured.
    let all = timed.iter().all(|(_, times)| times.mean_ns > 0.0 && (times.sd_ns > 0.0 || times.n == 1));
    point(what, all, "mean, standard deviation, median and interval of each row".to_string())
}

fn without_gpu(session: &SessionRecord) -> Point {
    let what = "it runs where there is no GPU";
    match &session.accelerator {
        None => point(what, true, format!("run on {}", session.device)),
        Some(_) => Point { what, met: None, evidence: format!("run on {}; `--device cpu` takes the same suite", session.device) },
    }
}

fn ranges(session: &SessionRecord) -> Point {
    let what = "profilers see ranges";
    let evidence = match &session.accelerator {
        Some(_) => "a file does not say who listened; NVTX 3 has each row's check and timing, and launches that are waited for",
        None => "profilers of GPUs see nothing of a CPU's work",
    };
    Point { what, met: None, evidence: evidence.to_string() }
}
