//! How often `tessera compare --run` cries wolf, and how often it finds what is there: the same comparison again and again.
//!
//! ```text
//! trials --program target/release/tessera --runs 20 --out equal.jsonl -- self self softmax vector --time-limit 20
//! trials --program target/release/tessera --runs 20 -- planted.py::short planted.py::short_slower x=... --grid 8
//! ```
//!
//! Everything behind `--` is given to `compare --run` as it stands. Each run has its own seed and its own processes, and is
//! believed as a user would believe it: by what `--json` says. Rows whose title has the word of `--planted` (`slower` unless
//! told otherwise) are expected to be `SLOWER`; any verdict `SLOWER` or `FASTER` of another row is an alarm, and a run counts as
//! alarmed if any of its rows is. Ends with 1 where more than one run in twenty is alarmed, or a row with a planted change is
//! found in less than `--found` of the runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tessera_bench::{Environment, utc};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Arguments {
    program: PathBuf,
    runs: usize,
    planted: String,
    /// The share of runs in which a planted change is to be found.
    found: f64,
    seed: u64,
    out: Option<PathBuf>,
    words: Vec<String>,
}

fn arguments() -> Outcome<Arguments> {
    let mut given = Arguments {
        program: "target/release/tessera".into(),
        runs: 20,
        planted: "slower".into(),
        found: 0.95,
        seed: 1,
        out: None,
        words: Vec::new(),
    };
    let mut list = std::env::args().skip(1);
    while let Some(flag) = list.next() {
        if flag == "--" {
            given.words.extend(list);
            break;
        }
        let mut value = || list.next().ok_or(format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--program" => given.program = value()?.into(),
            "--runs" => given.runs = value()?.parse()?,
            "--planted" => given.planted = value()?,
            "--found" => given.found = value()?.parse()?,
            "--seed" => given.seed = value()?.parse()?,
            "--out" => given.out = Some(value()?.into()),
            _ => return Err(format!("unknown argument `{flag}`").into()),
        }
    }
    if given.words.len() < 2 { Err("two sides are named behind `--`".into()) } else { Ok(given) }
}

/// How often a row had each verdict, and what was measured of it.
#[derive(Default)]
struct Row {
    verdicts: BTreeMap<String, usize>,
    changes: Vec<f64>,
    time_ns: f64,
}

fn main() -> Outcome<ExitCode> {
    let arguments = arguments()?;
    let mut log = arguments.out.as_ref().map(File::create).transpose()?;
    let mut note = |line: Value| -> Outcome<()> {
        if let Some(log) = &mut log {
            writeln!(log, "{line}")?;
        }
        Ok(())
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let environment = Environment::detect();
    let fingerprint = environment.fingerprint();
    let command: Vec<String> = std::env::args().skip(1).collect();
    note(json!({"trials": command, "start": utc(now), "environment": environment, "fingerprint": fingerprint}))?;
    println!("trials {}\n{} on {}, {fingerprint}", command.join(" "), utc(now), environment.cpu);

    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut alarmed = 0;
    for run in 0..arguments.runs {
        let seed = arguments.seed + run as u64;
        let begin = Instant::now();
        let pairs = tempfile::NamedTempFile::new()?;
        let output = Command::new(&arguments.program)
            .args(["compare", "--run", "--json", "--seed", &seed.to_string(), "--out"])
            .arg(pairs.path())
            .args(&arguments.words)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let changes: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        // A comparison that failed says so in an object of its own; it must not count as one without an alarm.
        if changes.is_empty() || changes.iter().any(|change| change["verdict"].is_null()) {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("run {run} compared nothing: {text}{told}").into());
        }
        let (device, count) = read_log(pairs.path())?;
        let mut alarms = Vec::new();
        for change in &changes {
            let (title, verdict) = (word(change, "title"), word(change, "verdict"));
            let is_planted = title.contains(&arguments.planted);
            if verdict == "FASTER" || verdict == "SLOWER" && !is_planted {
                alarms.push(format!("{title} {verdict} {:+.2} %", change["estimate_pct"].as_f64().unwrap_or(f64::NAN)));
            }
            let row = rows.entry(title).or_default();
            *row.verdicts.entry(verdict).or_default() += 1;
            row.changes.extend(change["estimate_pct"].as_f64());
            row.time_ns = change["median_ns"][0].as_f64().unwrap_or(f64::NAN);
        }
        alarmed += usize::from(!alarms.is_empty());
        let (seconds, code) = (begin.elapsed().as_secs_f64(), output.status.code());
        let told = if alarms.is_empty() { "no alarm".to_string() } else { alarms.join("; ") };
        println!("run {run}, seed {seed}: {count} pairs in {seconds:.1} s, exit {code:?}, load {}: {told}", load());
        let rounded = (seconds * 10.0).round() / 10.0;
        let (alarms, load) = (json!(alarms), load());
        note(json!({"run": run, "seed": seed, "pairs": count, "seconds": rounded, "exit": code, "load": load,
            "device": device, "alarms": alarms, "rows": changes}))?;
    }
    let missed = table(&rows, &arguments);
    println!("\n{alarmed} of {} runs had an alarm", arguments.runs);
    note(json!({"runs": arguments.runs, "alarmed": alarmed, "planted_and_missed_too_often": missed}))?;
    Ok(if alarmed * 20 > arguments.runs || !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The device that was measured on, and how many pairs were.
fn read_log(path: &std::path::Path) -> Outcome<(Value, usize)> {
    let text = std::fs::read_to_string(path)?;
    let records: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let device = records.first().map_or(Value::Null, |first| {
        let side = &first["sides"][0];
        if side["accelerator"].is_null() { side["device"].clone() } else { side["accelerator"].clone() }
    });
    Ok((device, records.iter().filter(|record| record["kind"] == "pair").count()))
}

/// Prints every row; gives those with a planted change that was not found often enough.
fn table(rows: &BTreeMap<String, Row>, arguments: &Arguments) -> Vec<String> {
    let mut missed = Vec::new();
    println!("\n{:>10} {:>9} {:>9}  verdicts, row", "time", "median", "spread");
    for (title, row) in rows {
        let middle = tessera_bench::stats::median(&row.changes);
        let spread = row.changes.iter().map(|change| (change - middle).abs()).fold(0.0, f64::max);
        let verdicts: Vec<String> = row.verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
        let time = tessera_bench::units::time(row.time_ns);
        println!("{time:>10} {middle:>+8.2}% {spread:>8.2}%  {}: {title}", verdicts.join(", "));
        let found = row.verdicts.get("SLOWER").copied().unwrap_or(0) as f64 / arguments.runs as f64;
        if title.contains(&arguments.planted) && found < arguments.found {
            missed.push(format!("{title}: found in {:.0} % of the runs", found * 100.0));
        }
    }
    missed.iter().for_each(|line| println!("{line}"));
    missed
}

fn word(change: &Value, name: &str) -> String {
    change[name].as_str().unwrap_or_default().to_string()
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "?".into(), |text| text.trim().to_string())
}
