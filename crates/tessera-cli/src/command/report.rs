//! `tessera report`: results as one HTML file, or as CSV or Markdown.

use std::time::{SystemTime, UNIX_EPOCH};

use tessera::bench::report::{csv, html, markdown};

use crate::arguments::Report;
use crate::command::compare::load;
use crate::failure::{Failure, Outcome, write_text};

pub(crate) fn report(arguments: Report) -> Outcome {
    let results = arguments.results.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let extension = arguments.output.rsplit_once('.').map_or("", |(_, extension)| extension);
    let text = match extension {
        "html" | "htm" => html(&results, now).map_err(Failure::environment)?,
        "csv" => csv(&results),
        "md" => markdown(&results),
        _ => return Err(Failure::usage(format!("`{}` ends neither in .html nor in .csv nor in .md", arguments.output))),
    };
    write_text(&arguments.output, &text)?;
    println!("wrote {}", arguments.output);
    Ok(())
}
