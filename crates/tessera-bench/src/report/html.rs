//! The HTML page: what is told, put together for the templates.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::colour::{COLOURS, Colour};
use super::coverage::{Coverage, coverage};
use super::differ::{Difference, difference};
use super::facts::{CeilingFacts, Fact, METHOD, SessionFacts, ceilings, facts, sessions};
use super::lines::{File, Source};
use super::overview::{Answers, OperatorRow, Scales, answers, operators};
use super::panel::{Plots, plots};
use super::roofline::{Roofline, roofline};
use super::rows::{Rows, rows};
use super::tally::{Account, Reason, account, reasons};
use super::worst::{Worst, worst};
use crate::record::utc;

/// The page could not be made: an error of ours in the template or in a record.
#[derive(Debug, thiserror::Error)]
#[error("the report could not be rendered: {0}")]
pub struct ReportError(#[from] minijinja::Error);

/// The page's parts. What does not end in `.html` is taken as it is.
const TEMPLATES: [(&str, &str); 9] = [
    ("page.html", include_str!("page/page.html")),
    ("overview.html", include_str!("page/overview.html")),
    ("differ.html", include_str!("page/differ.html")),
    ("plots.html", include_str!("page/plots.html")),
    ("worst.html", include_str!("page/worst.html")),
    ("rows.html", include_str!("page/rows.html")),
    ("trust.html", include_str!("page/trust.html")),
    ("style.css", include_str!("page/style.css")),
    ("table.js", include_str!("page/table.js")),
];

/// What the templates are given.
#[derive(Serialize)]
struct Page {
    rendered: String,
    colours: [Colour; COLOURS.len()],
    method: &'static [&'static str],
    files: Vec<Told>,
    /// By name, and for each name by file.
    operators: Vec<OperatorRow>,
    operators_left_out: usize,
    share_axis: String,
    speed_axis: String,
    difference: Option<Difference>,
    plots: Plots,
    rows: Rows,
}

/// What the page tells of a file.
#[derive(Serialize)]
struct Told {
    name: String,
    letter: char,
    title: String,
    facts: Vec<Fact>,
    answers: Answers,
    worst: Worst,
    account: Account,
    reasons: Vec<Reason>,
    coverage: Coverage,
    roofline: Option<Roofline>,
    sessions: Vec<SessionFacts>,
    ceilings: Vec<CeilingFacts>,
}

/// Renders one page for all files. `now` is the time of rendering in seconds since 1970.
pub fn html(sources: &[Source], now: u64) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|name| if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None });
    for (name, source) in TEMPLATES {
        environment.add_template(name, source)?;
    }
    let files: Vec<File<'_>> = sources.iter().enumerate().map(|(index, source)| File::of(source, index)).collect();
    let scales = Scales::of(&files);
    let (mut listed, mut operators_left_out) = (Vec::new(), 0);
    for file in &files {
        let (rows, left_out) = operators(file, scales);
        listed.extend(rows);
        operators_left_out += left_out;
    }
    listed.sort_by(|a, b| a.operator.cmp(&b.operator));
    let page = Page {
        rendered: utc(now),
        colours: COLOURS,
        method: &METHOD,
        files: files.iter().map(|file| told(file, scales)).collect(),
        operators: listed,
        operators_left_out,
        share_axis: scales.share.axis(),
        speed_axis: scales.speed.axis(),
        difference: difference(&files),
        plots: plots(&files, scales),
        rows: rows(&files),
    };
    Ok(environment.get_template("page.html")?.render(Serde(page))?)
}

fn told(file: &File<'_>, scales: Scales) -> Told {
    Told {
        name: file.name.into(),
        letter: file.letter,
        title: file.session().map_or_else(|| "nothing".into(), |session| format!("{} on {}", session.suite, session.device)),
        facts: facts(file),
        answers: answers(file, scales),
        worst: worst(file, scales),
        account: account(file),
        reasons: reasons(file),
        coverage: coverage(file),
        roofline: roofline(file),
        sessions: sessions(file),
        ceilings: ceilings(file),
    }
}
