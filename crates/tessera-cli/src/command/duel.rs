//! `tessera compare --run`: two sides are measured in turn until the verdict is sure.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use tessera::bench::duel::{Duel, DuelError, DuelOptions, DuelProgress, DuelRecord, ProcessSide};
use tessera::bench::{Exit, Monotonic, report::duel_markdown};

use crate::arguments::Compare;
use crate::failure::{Failure, Outcome};
use crate::invocation::given;

pub(crate) fn duel(arguments: &Compare) -> Outcome {
    let options = options(arguments)?;
    let [config_a, config_b] = configurations(&arguments.duel.config)?;
    let mut a = side("A", &arguments.base, config_a, arguments)?;
    let mut b = side("B", &arguments.new, config_b, arguments)?;
    let mut log = match &arguments.duel.out {
        Some(path) => Some(std::fs::File::create(path).map_err(|error| Failure::environment(format!("{path}: {error}")))?),
        None => None,
    };
    let clock = Monotonic::default();
    let mut telling = Telling::new(arguments.json, options);
    let mut written = Ok(());
    let outcome = Duel::new(options, &clock).and_then(|duel| {
        duel.run(&mut a, &mut b, &mut |progress| {
            let record = match &progress {
                DuelProgress::Met(record) => Some((*record).clone()),
                DuelProgress::Pair(pair) => Some(DuelRecord::Pair((*pair).clone())),
                _ => None,
            };
            if let (Some(record), Some(log)) = (record, &mut log) {
                written = std::mem::replace(&mut written, Ok(())).and_then(|()| line(log, &record));
            }
            telling.tell(&progress);
        })
    });
    telling.bar.finish_and_clear();
    let outcome = outcome.map_err(|error| match error {
        DuelError::Lost(lost) if !lost.for_good => Failure::environment(lost),
        other => Failure::usage(other),
    })?;
    if let Some(log) = &mut log {
        written.and_then(|()| line(log, &DuelRecord::Outcome(outcome.clone()))).map_err(Failure::environment)?;
    }
    if arguments.json {
        for change in outcome.changes() {
            println!("{}", serde_json::to_string(&change).map_err(Failure::environment)?);
        }
    } else {
        println!("{}", duel_markdown(&outcome));
    }
    match outcome.exit() {
        Exit::Ok => Ok(()),
        exit => Err(Failure::silent(exit)),
    }
}

fn line(file: &mut std::fs::File, record: &DuelRecord) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    text.push(b'\n');
    file.write_all(&text)
}

fn options(arguments: &Compare) -> Result<DuelOptions, Failure> {
    let asked = &arguments.duel;
    let least = match asked.least.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => asked.least.parse(),
    };
    let least =
        least.map_err(|_| Failure::usage(format!("`--least {}` is no share\nhelp: write `1%` or `0.01`", asked.least)))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Ok(DuelOptions {
        sure: asked.sure,
        least,
        time_limit: Some(Duration::try_from_secs_f64(asked.time_limit).map_err(Failure::usage)?),
        seed: asked.seed.unwrap_or(now),
        ..DuelOptions::default()
    })
}

/// What `--config` gives either side.
fn configurations(texts: &[String]) -> Result<[Option<&str>; 2], Failure> {
    match texts {
        [] => Ok([None, None]),
        [both] => Ok([Some(both), Some(both)]),
        [a, b] => Ok([Some(a), Some(b)]),
        _ => {
            Err(Failure::usage("there are two sides\nhelp: write `--config` once for both, or twice, for the one and the other"))
        }
    }
}

/// The processes of a side: this program or another one, asked to serve.
fn side(letter: &str, word: &str, config: Option<&str>, arguments: &Compare) -> Result<ProcessSide, Failure> {
    let asked = &arguments.duel;
    let is_kernel = word.contains("::");
    let own = || given().program().map_err(Failure::environment);
    let (program, before) = match word {
        _ if is_kernel => own()?,
        "self" => own()?,
        path if Path::new(path).is_file() => (std::path::absolute(path).map_err(Failure::environment)?.into(), Vec::new()),
        name => (name.into(), Vec::new()),
    };
    let mut words: Vec<String> = vec!["bench".into()];
    words.extend(is_kernel.then(|| word.to_string()));
    words.extend(arguments.subjects.iter().cloned());
    let mut option = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("--{name}={value}")));
    option("device", asked.device.clone());
    option("precision", (!asked.precision.is_empty()).then(|| asked.precision.join(",")));
    option("sizes", asked.sizes.clone());
    option("grid", asked.grid.clone());
    option("block", asked.block.map(|block| block.to_string()));
    // Times of kernels that do not agree say nothing: what the other side computes is what this one's results are held to.
    option("against", if letter == "B" { held_to(&arguments.base, word) } else { None });
    option("config", config.filter(|config| !config.is_empty()).map(str::to_string));
    words.extend(asked.level.map(|level| format!("-O{level}")));
    words.push("--serve".to_string());
    let name = match config {
        Some(config) if asked.config.len() > 1 => format!("{letter} ({word}, {config})"),
        _ => format!("{letter} ({word})"),
    };
    Ok(ProcessSide::new(name, move || {
        let mut command = Command::new(&program);
        command.args(&before).args(&words);
        command
    }))
}

/// The kernels that those of the other side stand beside, as its `--against`: those of the same name, or, of two lists that share none, those in
/// the same place.
fn held_to(base: &str, new: &str) -> Option<String> {
    let ((file, first), (_, second)) = (base.rsplit_once("::")?, new.rsplit_once("::")?);
    let [first, second] = [first, second].map(|names| names.split(',').collect::<Vec<_>>());
    let shares = second.iter().any(|name| first.contains(name));
    let beside = |(at, name): (usize, &&str)| match shares {
        true => if first.contains(name) { *name } else { "" }.to_string(),
        false => first[at].to_string(),
    };
    if !shares && first.len() != second.len() {
        return None;
    }
    Some(format!("{file}::{}", second.iter().enumerate().map(beside).collect::<Vec<_>>().join(",")))
}

/// Says how far a duel is: a bar on a terminal, a line at each look elsewhere.
struct Telling {
    bar: ProgressBar,
    lines: bool,
    options: DuelOptions,
    pairs: usize,
}

impl Telling {
    fn new(json: bool, options: DuelOptions) -> Telling {
        let terminal = crate::is_live();
        let bar = match terminal && !json {
            true => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {elapsed} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
            ),
            false => ProgressBar::hidden(),
        };
        Telling { bar, lines: !terminal && !json, options, pairs: 0 }
    }

    fn tell(&mut self, progress: &DuelProgress<'_>) {
        let limit = self.options.time_limit.map_or(String::new(), |limit| format!(" of at most {} s", limit.as_secs()));
        match progress {
            DuelProgress::Met(_) => {}
            DuelProgress::Checking(row, rows) => self.bar.set_message(format!("checking both sides, row {row} of {rows}")),
            DuelProgress::Pair(record) => {
                self.pairs = record.pair + 1;
                self.bar.set_message(format!("{} pairs, the last took {:.1} s{limit}", self.pairs, record.seconds));
            }
            DuelProgress::GivenUp(lost) => self.bar.println(format!("a pair was given up: {lost}")),
            DuelProgress::Look { pairs, open, seconds } => {
                let text = format!("{pairs} pairs in {seconds:.0} s{limit}: {open} rows open");
                if self.lines {
                    eprintln!("{text}");
                }
                self.bar.println(text);
            }
        }
    }
}
