//! The HTML page: context for the template, and the records that are embedded in it.

use minijinja::value::Value;
use minijinja::{Environment, context};

use super::{bars, roofline, sweep};
use crate::record::utc;
use crate::sample::Mode;
use crate::status::Status;
use crate::store::Results;
use crate::table::{COLUMNS, footer, table};
use crate::{stats, units};

/// The page could not be made: an error of ours in the template or in a record.
#[derive(Debug, thiserror::Error)]
#[error("the report could not be rendered: {0}")]
pub struct ReportError(String);

/// Renders one page for all files. `now` is the time of rendering in seconds since 1970.
pub fn html(results: &[Results], now: u64) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.add_template("report.html", include_str!("template.html")).map_err(|e| ReportError(e.to_string()))?;
    let template = environment.get_template("report.html").map_err(|e| ReportError(e.to_string()))?;
    let files = results.iter().map(file).collect::<Result<Vec<Value>, ReportError>>()?;
    let page = context! {
        rendered => utc(now),
        files,
        columns => COLUMNS,
        method => method(),
    };
    template.render(page).map_err(|e| ReportError(e.to_string()))
}

fn file(results: &Results) -> Result<Value, ReportError> {
    let session = results.session().clone();
    let safe = |svg: String| Value::from_safe_string(svg);
    let chart = |chart: Option<bars::Chart>| chart.map(|c| context! { svg => safe(c.svg), left_out => c.left_out });
    let rows: Vec<Value> = table(results)
        .into_iter()
        .map(|row| context! { status => row.status.name(), tone => tone(row.status), cells => row.cells, reason => row.reason })
        .collect();
    let footer = footer(results);
    let json = serde_json::to_string(&results.records()).map_err(|e| ReportError(e.to_string()))?;
    Ok(context! {
        suite => session.suite,
        device => session.device,
        start => session.start,
        mode => session.mode.name(),
        seed => session.seed.to_string(),
        tool => context! { version => session.tool.version, git => session.tool.git },
        cpu => session.environment.cpu,
        environment => facts(results),
        cards => cards(results),
        complete => results.complete(),
        counts => footer.counts,
        reasons => footer.reasons,
        definitions => footer.definitions,
        rows,
        roofline => roofline::chart(results).map(safe),
        efficiency => chart(bars::efficiency(results)),
        speed_up => chart(bars::speed_up(results)),
        gate => chart(bars::gate(results)),
        sweeps => sweep::panels(results).into_iter().map(safe).collect::<Vec<_>>(),
        sweep_legend => safe(sweep::panel_legend(results)),
        // Inside a script element only `<` could end it.
        json => safe(json.replace('<', "\\u003c")),
    })
}

fn tone(status: Status) -> &'static str {
    match status {
        Status::Ok => "good",
        Status::NotConverged | Status::Throttled | Status::NoisyHost => "warn",
        Status::Checked | Status::Skipped | Status::Unsupported => "mute",
        Status::Incorrect
        | Status::NotWritten
        | Status::Nondeterministic
        | Status::OverPeak
        | Status::Oom
        | Status::Timeout
        | Status::CompileError
        | Status::RuntimeError
        | Status::HarnessError => "bad",
    }
}

/// The figures at the top: name, value, remark.
fn cards(results: &Results) -> Vec<(String, String, String)> {
    let summaries: Vec<_> = results.rows.iter().filter_map(|row| row.summary.as_ref().map(|s| (row, s))).collect();
    let ok = summaries.iter().filter(|(_, s)| s.status == Status::Ok).count();
    let wrong = summaries.iter().filter(|(_, s)| s.status.is_wrong()).count();
    let wrong_remark = if wrong == 0 { "no wrong result".to_string() } else { format!("{wrong} wrong") };
    let planned = results.session().planned;
    let mut cards = vec![
        ("rows".to_string(), format!("{} of {planned}", summaries.len()), wrong_remark),
        ("correct and precise".to_string(), ok.to_string(), format!("of {}", summaries.len())),
    ];
    let shares: Vec<f64> = summaries.iter().filter_map(|(_, s)| s.efficiency).collect();
    if let Some((row, least)) =
        summaries.iter().filter_map(|(row, s)| s.efficiency.map(|e| (row, e))).min_by(|a, b| a.1.total_cmp(&b.1))
    {
        let remark = format!("least {:.0} %: {}", least * 100.0, row.case.key);
        cards.push(("median share of the ceiling".into(), format!("{:.0} %", stats::median(&shares) * 100.0), remark));
    }
    let ratios: Vec<f64> = summaries.iter().filter_map(|(_, s)| s.versus.as_ref().map(|v| v.ratio.ratio.ln())).collect();
    if !ratios.is_empty() {
        let mean = (-ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
        let slower = ratios.iter().filter(|&&r| r > 0.0).count();
        let remark = format!("geometric mean; slower in {slower} of {}", ratios.len());
        cards.push(("against the best baseline".into(), format!("{mean:.2}x"), remark));
    }
    cards
}

/// What is known of machine and build.
fn facts(results: &Results) -> Vec<(String, String)> {
    let session = results.session();
    let e = &session.environment;
    let mut facts = vec![
        ("processor".to_string(), format!("{}, {} of {} processors used", e.cpu, e.threads, e.processors)),
        ("caches".into(), e.caches.join(", ")),
        ("vector extensions".into(), e.features.join(", ")),
        ("memory".into(), units::bytes(e.memory_bytes as f64)),
        ("system".into(), format!("{} {}", e.os, e.kernel.clone().unwrap_or_default())),
        ("virtual machine".into(), if e.virtual_machine { "yes" } else { "no" }.into()),
        ("governor".into(), e.governor.clone().unwrap_or_else(|| "unknown".into())),
        ("load at the start".into(), e.load.map_or("unknown".into(), |l| l.to_string())),
        ("fingerprint".into(), session.fingerprint.clone()),
        ("suite".into(), format!("{} ({})", session.suite, session.suite_hash)),
        ("command".into(), session.argv.join(" ")),
    ];
    facts.extend(session.knobs.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts
}

/// How it was measured, from the constants that the code uses.
fn method() -> Vec<String> {
    let mode = |mode: Mode| {
        let plan = mode.plan();
        format!(
            "{}: blocks of up to {} samples, looked at after {} blocks, half-width of the 99 % interval at most {} %, {} s a row, {} seeds in the gate",
            mode.name(),
            plan.samples,
            plan.checkpoints.iter().map(|c| c.to_string()).collect::<Vec<_>>().join(", "),
            plan.precision * 100.0,
            plan.max_time.as_secs(),
            plan.seeds
        )
    };
    let mut lines = vec![
        "No row is timed before it passed the correctness gate: outputs are poisoned with two patterns, every element is compared \
         with a reference in f64 under a bound scaled by the data, inputs and guard zones must be intact."
            .to_string(),
        "Blocks of all rows of a group are visited in random order, round after round; the interval is that of the median of the block \
         medians, from order statistics."
            .into(),
        "Around one random block of each stage, outputs are poisoned before and compared after.".into(),
        "Data stay in the caches they fit in (warm): rates of small rows are cache rates, and are held against ceilings measured at \
         the same footprint."
            .into(),
        "A time below the measured ceilings' least time is refused (`over_peak`).".into(),
    ];
    lines.extend([Mode::Quick, Mode::Ci, Mode::Publish].map(mode));
    lines
}
