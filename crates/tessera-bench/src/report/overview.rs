//! The answers at the top: how right, how fast, against whom; for a file, and for each of its operators.

use serde::Serialize;

use super::colour::colour;
use super::lines::{Class, Estimate, File, Line, Tone, distinct};
use super::strip::{Quartiles, ShareScale, SpeedScale, quartiles};
use super::tally::Tally;
use crate::stats::{Interval, median};
use crate::units;

/// Operators that the overview has room for.
const MOST: usize = 24;

/// The scales that all files of a report share.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    pub(super) share: ShareScale,
    pub(super) speed: SpeedScale,
}

impl Scales {
    pub(super) fn of(files: &[File<'_>]) -> Scales {
        let timed = || files.iter().flat_map(File::timed);
        Scales {
            share: ShareScale::covering(timed().filter_map(|line| Some(line.share?.value))),
            speed: SpeedScale::covering(timed().filter_map(|line| Some(line.speed?.1))),
        }
    }
}

/// The answers of a file.
#[derive(Serialize)]
pub(super) struct Answers {
    pub(super) verdict: String,
    pub(super) tone: Tone,
    pub(super) right: Right,
    pub(super) fast: Option<Fast>,
    /// Why there is no `fast`.
    pub(super) untimed: String,
    pub(super) against: Vec<Against>,
    /// How many timed rows are compared, and why the others are not.
    pub(super) compared: String,
}

/// How many of the product's rows are right.
#[derive(Serialize)]
pub(super) struct Right {
    pub(super) passed: usize,
    pub(super) of: usize,
    pub(super) parts: Vec<Part>,
    /// What became of the baselines' rows.
    pub(super) baselines: Vec<String>,
}

/// A class and its share of a bar.
#[derive(Serialize)]
pub(super) struct Part {
    pub(super) name: &'static str,
    meaning: &'static str,
    tone: Tone,
    pub(super) count: usize,
    percent: String,
}

/// Shares of the ceiling.
#[derive(Serialize)]
pub(super) struct Fast {
    pub(super) median: String,
    /// `12 rows`.
    pub(super) rows: String,
    pub(super) spread: String,
    /// About rows that are too short to tell of the kernel.
    pub(super) short: String,
    /// All rows are.
    all_short: bool,
    histogram: String,
}

/// Speed against one baseline.
#[derive(Serialize)]
pub(super) struct Against {
    pub(super) baseline: String,
    pub(super) mean: String,
    pub(super) interval: String,
    count: usize,
    /// `12 rows`.
    pub(super) rows: String,
    /// Rows that are surely faster, neither, surely slower.
    pub(super) faster: usize,
    pub(super) level: usize,
    pub(super) slower: usize,
    strip: String,
}

/// An operator of a file.
#[derive(Serialize)]
pub(super) struct OperatorRow {
    letter: char,
    pub(super) operator: String,
    colour: usize,
    pub(super) passed: usize,
    pub(super) of: usize,
    pub(super) wrong: usize,
    pub(super) failed: usize,
    pub(super) timed: usize,
    parts: Vec<Part>,
    pub(super) share: String,
    pub(super) spread: String,
    /// No timed row is long enough to tell of the kernel.
    short: bool,
    share_strip: String,
    pub(super) against: Vec<Against>,
    /// The row that is furthest from its ceiling.
    pub(super) worst: String,
    pub(super) worst_share: String,
}

pub(super) fn answers(file: &File<'_>, scales: Scales) -> Answers {
    let own: Vec<&Line<'_>> = file.own().collect();
    let tally = Tally::of(own.iter().copied());
    let (tone, verdict) = verdict(file, &tally);
    let baselines = file.baselines().into_iter().map(|name| {
        let tally = Tally::of(file.lines.iter().filter(|line| line.row.case.implementation == name));
        let parts: Vec<String> = tally.parts().map(|(class, n)| format!("{n} {}", class.words().0)).collect();
        format!("{name}: {}", parts.join(", "))
    });
    let timed: Vec<&Line<'_>> = file.timed().collect();
    let right = Right { passed: tally.passed(), of: tally.all(), parts: parts(&tally), baselines: baselines.collect() };
    Answers {
        verdict,
        tone,
        right,
        fast: fast(&timed, scales),
        untimed: untimed(&tally),
        against: against(&timed, scales),
        compared: compared(file),
    }
}

fn verdict(file: &File<'_>, tally: &Tally) -> (Tone, String) {
    let (wrong, failed) = (tally.count(Class::Wrong), tally.count(Class::Failed));
    let (mut tone, mut verdict) = if file.lines.is_empty() {
        (Tone::Mute, "Nothing was measured: the file holds no row.".to_string())
    } else if wrong > 0 {
        let failed = if failed > 0 { format!(", and {} failed", rows(failed)) } else { String::new() };
        (
            Tone::Bad,
            format!("{}{failed}.", if wrong == 1 { "1 result is wrong".into() } else { format!("{wrong} results are wrong") }),
        )
    } else if failed > 0 {
        (Tone::Bad, format!("No result is wrong, but {} failed.", rows(failed)))
    } else if tally.passed() == 0 {
        (Tone::Mute, "Nothing was checked: no row ran.".to_string())
    } else {
        (Tone::Good, "Every result that was checked is right.".to_string())
    };
    if !file.lines.is_empty() && !file.results.complete() {
        let why = file.results.end.as_ref().and_then(|end| end.reason.clone());
        let planned = file.results.planned();
        let why = why.unwrap_or_else(|| "the run was interrupted".into());
        verdict.push_str(&format!(" The run is incomplete, {} of {planned} rows: {why}.", file.results.finished().len()));
        if tone == Tone::Good {
            tone = Tone::Warn;
        }
    }
    (tone, verdict)
}

/// `1 row`, `12 rows`.
pub(super) fn rows(n: usize) -> String {
    if n == 1 { "1 row".into() } else { format!("{n} rows") }
}

fn parts(tally: &Tally) -> Vec<Part> {
    let all = tally.all().max(1) as f64;
    let part = |(class, count): (Class, usize)| {
        let (name, meaning) = class.words();
        Part { name, meaning, tone: class.tone(), count, percent: format!("{:.3}", count as f64 / all * 100.0) }
    };
    tally.parts().map(part).collect()
}

fn untimed(tally: &Tally) -> String {
    match (tally.passed(), tally.count(Class::Refused)) {
        (0, _) => "No row passed its check, and without that nothing is timed.".into(),
        (_, 0) => "The rows were checked; no time was taken.".into(),
        (_, refused) => format!("{refused} times were refused as impossible; no other was taken."),
    }
}

fn fast(timed: &[&Line<'_>], scales: Scales) -> Option<Fast> {
    let shares = |short: bool| -> Vec<f64> {
        let mut shares: Vec<f64> = timed.iter().filter(|l| l.is_short() == short).filter_map(|l| Some(l.share?.value)).collect();
        shares.sort_by(f64::total_cmp);
        shares
    };
    let (long, short) = (shares(false), shares(true));
    let (told, remark) = match (long.len(), short.len()) {
        (0, 0) => return None,
        (0, _) => (&short, "No row takes three empty launches or more: all tell of the launch, not of the kernel.".into()),
        (_, 0) => (&long, String::new()),
        (_, n) => {
            (&long, format!("{n} more take less than three empty launches and tell of the launch: {}.", percent(median(&short))))
        }
    };
    Some(Fast {
        median: percent(median(told)),
        rows: rows(told.len()),
        spread: spread(told),
        short: remark,
        all_short: long.is_empty(),
        histogram: scales.share.histogram(told),
    })
}

/// `34 – 97 %`, between which the middle half lies; nothing of one row.
fn spread(sorted: &[f64]) -> String {
    match quartiles(sorted) {
        Some(Quartiles { low, high, .. }) if sorted.len() > 1 => {
            format!("{} – {}", percent(low).trim_end_matches(" %"), percent(high))
        }
        Some(_) | None => String::new(),
    }
}

/// A share with the digits that it needs: `84 %`, `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = if value < 9.5 { 1 } else { 3 };
    if (9.5..999.5).contains(&value) { format!("{value:.0} %") } else { format!("{} %", units::significant(value, digits)) }
}

/// The geometric mean of speeds over a fixed set of rows; its interval adds the rows' own in quadrature.
fn geomean(speeds: &[Estimate]) -> (f64, Option<Interval>) {
    let n = speeds.len() as f64;
    let log = speeds.iter().map(|speed| speed.value.ln()).sum::<f64>() / n;
    let halves: Option<Vec<f64>> = speeds.iter().map(|speed| speed.ci.map(|ci| (ci.hi / ci.lo).ln() / 2.0)).collect();
    let half = halves.map(|halves| halves.iter().map(|half| half * half).sum::<f64>().sqrt() / n);
    (log.exp(), half.map(|half| Interval { lo: (log - half).exp(), hi: (log + half).exp() }))
}

/// A speed-up with its interval in words: `0.78x`, `0.775 – 0.782`. The ends have the digits that tell them apart.
pub(super) fn speed_text(speed: Estimate) -> (String, String) {
    let digits = |value: f64, digits: i32| {
        if (0.0995..9.995).contains(&value) {
            format!("{value:.*}", digits as usize - 1)
        } else {
            units::significant(value, digits)
        }
    };
    let interval = speed.ci.map_or(String::new(), |ci| {
        let needed = if ci.hi - ci.lo < 0.03 * ci.hi { 4 } else { 3 };
        format!("{} – {}", digits(ci.lo, needed), digits(ci.hi, needed))
    });
    (format!("{}x", digits(speed.value, 3)), interval)
}

fn against(timed: &[&Line<'_>], scales: Scales) -> Vec<Against> {
    let speeds_of = |name: &str| -> Vec<Estimate> {
        timed.iter().filter_map(|line| line.speed).filter(|(baseline, _)| *baseline == name).map(|(_, speed)| speed).collect()
    };
    let names = distinct(timed.iter().filter_map(|line| Some(line.speed?.0)));
    let mut list: Vec<Against> = names.into_iter().map(|name| against_one(name, &speeds_of(name), scales)).collect();
    list.sort_by_key(|against| std::cmp::Reverse(against.count));
    list
}

fn against_one(baseline: &str, speeds: &[Estimate], scales: Scales) -> Against {
    let (value, ci) = geomean(speeds);
    let (mean, interval) = speed_text(Estimate { value, ci });
    let surely = |test: &dyn Fn(Interval) -> bool| speeds.iter().filter(|speed| speed.ci.is_some_and(test)).count();
    let (faster, slower) = (surely(&|ci| ci.lo > 1.0), surely(&|ci| ci.hi < 1.0));
    Against {
        strip: scales.speed.strip(speeds, value, "neutral", &format!("speed against {baseline}: {mean}")),
        baseline: baseline.into(),
        mean,
        interval,
        count: speeds.len(),
        rows: rows(speeds.len()),
        faster,
        level: speeds.len() - faster - slower,
        slower,
    }
}

/// How many timed rows have a ratio, and why the others have none.
fn compared(file: &File<'_>) -> String {
    let timed: Vec<&Line<'_>> = file.timed().collect();
    if timed.is_empty() {
        return String::new();
    }
    let mut counts = [0usize; 5];
    const WORDS: [&str; 5] = [
        "compared",
        "without a baseline",
        "too wide themselves",
        "whose baseline is too wide",
        "whose baseline does not offer or failed the case",
    ];
    let cases: std::collections::BTreeSet<&str> =
        file.lines.iter().filter(|line| !line.own).map(|line| line.row.case.case.as_str()).collect();
    let wide: std::collections::BTreeSet<&str> =
        file.lines.iter().filter(|line| !line.own && line.times().is_some()).map(|line| line.row.case.case.as_str()).collect();
    for line in &timed {
        let case = line.row.case.case.as_str();
        let kind = match () {
            () if line.speed.is_some() => 0,
            () if !cases.contains(case) => 1,
            () if line.class != Class::Timed => 2,
            () if wide.contains(case) => 3,
            () => 4,
        };
        counts[kind] += 1;
    }
    let parts: Vec<String> = counts.iter().zip(WORDS).filter(|(n, _)| **n > 0).map(|(n, words)| format!("{n} {words}")).collect();
    format!("{} with a time: {}.", rows(timed.len()), parts.join(", "))
}

/// Operators of a file, and how many there was no room for.
pub(super) fn operators(file: &File<'_>, scales: Scales) -> (Vec<OperatorRow>, usize) {
    let names = distinct(file.own().map(Line::operator));
    let mut ranked: Vec<(usize, f64, &str)> = names
        .into_iter()
        .map(|name| {
            let tally = Tally::of(file.own().filter(|line| line.operator() == name));
            let shares: Vec<f64> =
                file.timed().filter(|line| line.operator() == name).filter_map(|line| Some(line.share?.value)).collect();
            let bad = tally.count(Class::Wrong) + tally.count(Class::Failed);
            (bad, if shares.is_empty() { f64::INFINITY } else { median(&shares) }, name)
        })
        .collect();
    let left_out = ranked.len().saturating_sub(MOST);
    if left_out > 0 {
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
        ranked.truncate(MOST);
        ranked.sort_by_key(|(_, _, name)| *name);
    }
    (ranked.into_iter().map(|(_, _, name)| operator(file, name, scales)).collect(), left_out)
}

fn operator(file: &File<'_>, name: &str, scales: Scales) -> OperatorRow {
    let tally = Tally::of(file.own().filter(|line| line.operator() == name));
    let timed: Vec<&Line<'_>> = file.timed().filter(|line| line.operator() == name).collect();
    let colour = colour(name);
    let fast = fast(&timed, scales);
    let least = timed
        .iter()
        .filter_map(|line| Some((line, line.share?.value)))
        .min_by(|a, b| a.0.is_short().cmp(&b.0.is_short()).then(a.1.total_cmp(&b.1)));
    let share = fast.as_ref().map_or(String::new(), |f| f.median.clone());
    OperatorRow {
        letter: file.letter,
        operator: name.into(),
        colour,
        passed: tally.passed(),
        of: tally.all(),
        wrong: tally.count(Class::Wrong),
        failed: tally.count(Class::Failed),
        timed: tally.timed(),
        parts: parts(&tally),
        spread: fast.as_ref().map_or(String::new(), |f| f.spread.clone()),
        short: fast.as_ref().is_some_and(|f| f.all_short),
        share_strip: scales.share.strip(&timed, colour, &format!("{name}: shares of the ceiling of {} rows", timed.len())),
        share,
        against: against(&timed, scales),
        worst: least.map_or(String::new(), |(line, _)| {
            let key = &line.row.case.key;
            let variant = if key.variant.is_empty() { String::new() } else { format!("{} ", key.variant) };
            format!("{variant}{} {}", key.size, key.precision)
        }),
        worst_share: least.map_or(String::new(), |(_, share)| percent(share)),
    }
}
