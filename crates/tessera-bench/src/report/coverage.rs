//! What was checked: rows that passed of those there are, by operator and precision, and how close they came to their bounds.

use serde::Serialize;

use super::colour::colour;
use super::lines::{File, Line, Tone, distinct};
use super::precision;
use super::tally::Tally;
use crate::units;

/// Operators that have a row of their own; of more, the last row holds the rest together.
const MOST: usize = 40;

/// The product's rows by operator and precision.
#[derive(Serialize)]
pub(super) struct Coverage {
    /// Short and full names.
    precisions: Vec<(String, String)>,
    pub(super) operators: Vec<Covered>,
    /// The last row: all of them.
    total: Covered,
}

#[derive(Serialize)]
pub(super) struct Covered {
    pub(super) operator: String,
    /// None where several share the row.
    colour: Option<usize>,
    cells: Vec<Cell>,
    sum: Cell,
    /// The worst error of all rows over its bound.
    error: String,
}

#[derive(Serialize)]
struct Cell {
    passed: usize,
    of: usize,
    wrong: bool,
}

/// Counts a file's rows.
pub(super) fn coverage(file: &File<'_>) -> Coverage {
    let mut precisions = distinct(file.own().map(Line::precision));
    precisions.sort_by(|a, b| precision::order(a).cmp(&precision::order(b)));
    let names = distinct(file.own().map(Line::operator));
    let (shown, rest) = names.split_at(names.len().min(MOST));
    let mut operators: Vec<Covered> =
        shown.iter().map(|name| covered(file, name, Some(colour(name)), &precisions, |operator| operator == *name)).collect();
    if !rest.is_empty() {
        let title = format!("{} more operators", rest.len());
        operators.push(covered(file, &title, None, &precisions, |operator| rest.contains(&operator)));
    }
    let total = covered(file, "all", None, &precisions, |_| true);
    let name = |name: &&str| (precision::short(name, &precisions).into_owned(), name.to_string());
    Coverage { precisions: precisions.iter().map(name).collect(), operators, total }
}

fn covered(file: &File<'_>, title: &str, colour: Option<usize>, precisions: &[&str], belongs: impl Fn(&str) -> bool) -> Covered {
    let lines: Vec<&Line<'_>> = file.own().filter(|line| belongs(line.operator())).collect();
    let cell = |precision: Option<&str>| {
        let here = lines.iter().copied().filter(|line| precision.is_none_or(|name| line.precision() == name));
        let tally = Tally::of(here);
        Cell { passed: tally.passed(), of: tally.all(), wrong: tally.where_(|class| class.tone() == Tone::Bad) > 0 }
    };
    // An error that is not a number is worse than any that is one.
    let worst = lines.iter().filter_map(|line| line.error).reduce(|a, b| if a.is_nan() || a > b { a } else { b });
    Covered {
        operator: title.into(),
        colour,
        cells: precisions.iter().map(|name| cell(Some(name))).collect(),
        sum: cell(None),
        error: worst.map_or(String::new(), |error| units::significant(error, 2)),
    }
}
