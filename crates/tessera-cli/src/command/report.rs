//! `tessera report`: results as one HTML file, or as CSV or Markdown; a timeline as a picture.

use std::time::{SystemTime, UNIX_EPOCH};

use tessera::bench::report::{csv, html, markdown, timeline_picture};

use crate::arguments::Report;
use crate::command::compare::load;
use crate::failure::{Failure, Outcome, read_text, write_text};

pub(crate) fn report(arguments: Report) -> Outcome {
    if arguments.output.ends_with(".svg") {
        return picture(&arguments);
    }
    let results = arguments.results.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let extension = arguments.output.rsplit_once('.').map_or("", |(_, extension)| extension);
    let text = match extension {
        "html" | "htm" => html(&results, now).map_err(Failure::environment)?,
        "csv" => csv(&results),
        "md" => markdown(&results),
        _ => return Err(Failure::usage(format!("`{}` ends neither in .html nor in .csv, .md or .svg", arguments.output))),
    };
    write_text(&arguments.output, &text)?;
    println!("wrote {}", arguments.output);
    Ok(())
}

/// A trace of `--timeline` as a picture.
fn picture(arguments: &Report) -> Outcome {
    let [trace] = &arguments.results[..] else {
        return Err(Failure::usage("a picture is of one trace\nhelp: write `tessera report TRACE.json -o PICTURE.svg`"));
    };
    let svg = timeline_picture(&read_text(trace)?).map_err(|error| Failure::usage(format!("`{trace}`: {error}")))?;
    write_text(&arguments.output, &svg)?;
    println!("wrote {}", arguments.output);
    Ok(())
}
