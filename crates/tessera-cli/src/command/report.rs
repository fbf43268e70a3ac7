//! `tessera report`: results as one HTML file, or as CSV or Markdown; a timeline as a picture.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tessera::bench::Results;
use tessera::bench::report::{Source, csv, html, markdown, timeline_picture};

use crate::arguments::Report;
use crate::command::compare::load;
use crate::failure::{Failure, Outcome, read_text, write_text};

pub(crate) fn report(arguments: Report) -> Outcome {
    if arguments.output.ends_with(".svg") {
        return picture(&arguments);
    }
    let sources = arguments.results.iter().map(|path| source(path)).collect::<Result<Vec<_>, _>>()?;
    if sources.iter().all(|source| source.results.sessions.is_empty()) {
        return Err(Failure::environment(format!("{}: no session to report on", arguments.results.join(", "))));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let extension = arguments.output.rsplit_once('.').map_or("", |(_, extension)| extension);
    let text = match extension {
        "html" | "htm" => html(&sources, now).map_err(Failure::environment)?,
        "csv" => csv(&sources),
        "md" => markdown(&sources),
        _ => return Err(Failure::usage(format!("`{}` ends neither in .html nor in .csv, .md or .svg", arguments.output))),
    };
    write_text(&arguments.output, &text)?;
    println!("wrote {}", arguments.output);
    Ok(())
}

/// A results file under its name. An empty one is what a run leaves that was stopped at once: the report says so.
fn source(path: &str) -> Result<Source, Failure> {
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into_owned());
    let results = match std::fs::metadata(path) {
        Ok(file) if file.len() == 0 => Results::default(),
        Ok(_) | Err(_) => load(path)?,
    };
    Ok(Source { name, results })
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
