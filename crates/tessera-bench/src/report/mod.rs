//! Reports of results files: one self-contained HTML page, CSV, Markdown.
//!
//! The page holds everything: style, a small script for sorting and filtering, charts as SVG, and all records as JSON. Nothing is
//! loaded from anywhere, and every number in it is also in the table or in the embedded records.

mod bars;
mod html;
mod plot;
mod roofline;
mod sweep;
mod text;
mod timeline;

pub use html::{ReportError, html};
pub use text::{comparison_markdown, csv, duel_markdown, markdown};
pub use timeline::{TraceError, timeline_picture};

use crate::record::SummaryRecord;
use crate::store::{Results, Row};

/// Rows that have valid times, with their summaries.
fn timed(results: &Results) -> impl Iterator<Item = (&Row, &SummaryRecord)> {
    let with_summary = results.rows.iter().filter_map(|row| row.summary.as_ref().map(|summary| (row, summary)));
    with_summary.filter(|(_, summary)| summary.status.has_time() && summary.times.is_some())
}

/// All operators of a file: position `i` gets series colour `i` in every chart.
fn operators(results: &Results) -> Vec<&str> {
    distinct(results.rows.iter().map(|row| row.case.key.operator.as_str()))
}

/// Names in alphabetical order, each once.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut list = Vec::new();
    for name in names {
        if !list.contains(&name) {
            list.push(name);
        }
    }
    list.sort_unstable();
    list
}
