//! `tessera compare`: results files of two sides, a verdict for each case.

use comfy_table::{Table, presets};
use std::path::Path;

use tessera::bench::{CompareOptions, Exit, Results, StoreError, report::comparison_markdown};

use crate::arguments::Compare;
use crate::failure::{Failure, Outcome};

pub(crate) fn compare(arguments: Compare) -> Outcome {
    if arguments.run {
        return super::duel::duel(&arguments);
    }
    let [base, new] = [&arguments.base, &arguments.new].map(|files| files.split(',').map(load).collect::<Result<Vec<_>, _>>());
    let (base, new) = (base?, new?);
    let comparison = tessera::bench::compare(&base, &new, CompareOptions::default()).map_err(Failure::usage)?;
    if arguments.json {
        for change in &comparison.changes {
            println!("{}", serde_json::to_string(change).map_err(Failure::environment)?);
        }
        // Data are rows alone; what must be known of all of them is told beside them.
        comparison.notes.iter().for_each(|note| eprintln!("note: {note}"));
    } else {
        println!("{}", comparison_markdown(&comparison));
    }
    match comparison.exit() {
        Exit::Ok => Ok(()),
        exit => Err(Failure::silent(exit)),
    }
}

/// Reads a results file.
pub(crate) fn load(path: &str) -> Result<Results, Failure> {
    Results::load(Path::new(path)).map_err(|error| match error {
        // It names the file itself.
        StoreError::Io { .. } => Failure::environment(error),
        error => Failure::environment(format!("{path}: {error}")),
    })
}

/// A table in the style that every command uses.
pub(crate) fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    table
}
