//! A trace of a kernel's marks as a picture: one row a warp of the first blocks, spans inside others drawn lower in it.
//!
//! The picture stands by itself, so that a document can show it: its colours are in it.

use serde_json::Value;

use super::plot::{Anchor, Drawing, Frame, linear_ticks};

/// Blocks of a trace that are drawn.
const BLOCKS: usize = 2;
const ROW: f64 = 26.0;
/// One colour a name, in order of appearance.
const COLOURS: [&str; 8] = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d"];

/// Why a trace cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is no JSON.
    #[error("this is no trace: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no spans.
    #[error("the trace has no spans to draw")]
    Empty,
}

/// A span of the trace, in microseconds.
struct Drawn {
    row: (u64, u64),
    name: String,
    start: f64,
    length: f64,
}

/// Draws a trace that `--timeline` wrote.
pub fn timeline_picture(trace: &str) -> Result<String, TraceError> {
    let trace: Value = serde_json::from_str(trace)?;
    let events = trace["traceEvents"].as_array().map_or(&[][..], Vec::as_slice);
    let place = |event: &Value| Some((event["pid"].as_u64()?, event["tid"].as_u64()?));
    let mut blocks: Vec<u64> = events.iter().filter_map(|event| event["pid"].as_u64()).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.truncate(BLOCKS);
    let spans: Vec<Drawn> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .filter_map(|event| {
            let row = place(event).filter(|(block, _)| blocks.contains(block))?;
            let name = event["name"].as_str()?.to_string();
            Some(Drawn { row, name, start: event["ts"].as_f64()?, length: event["dur"].as_f64()? })
        })
        .collect();
    let Some(first) = spans.iter().map(|span| span.start).reduce(f64::min) else { return Err(TraceError::Empty) };
    let last = spans.iter().map(|span| span.start + span.length).fold(first, f64::max);
    let mut rows: Vec<(u64, u64)> = spans.iter().map(|span| span.row).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut names: Vec<&str> = Vec::new();
    for span in &spans {
        if !names.contains(&span.name.as_str()) {
            names.push(&span.name);
        }
    }

    let height = 70.0 + ROW * rows.len() as f64 + 44.0;
    let frame = Frame { width: 1100.0, height, left: 210.0, right: 20.0, top: 60.0, bottom: 44.0 };
    let kernel = trace["otherData"]["kernel"].as_str().unwrap_or("a kernel");
    let mut drawing = Drawing::new(frame, &format!("What the warps of {kernel} did, and when"));
    let width = (last - first).max(1e-3);
    let x = |time: f64| frame.left + (time - first) / width * (frame.x1() - frame.left);
    let ticks: Vec<(f64, String)> = linear_ticks(width, 8).into_iter().map(|tick| (x(first + tick), format!("{tick}"))).collect();
    drawing.x_axis(&ticks, "microseconds since the first mark");
    for (index, name) in names.iter().enumerate() {
        let (column, line) = (index % 4, index / 4);
        let at = (frame.left + 215.0 * column as f64, 16.0 + 18.0 * line as f64);
        drawing.bar(&class(index), (at.0, at.0 + 11.0), (at.1 - 9.0, 11.0), name);
        drawing.text("tick", (at.0 + 16.0, at.1), Anchor::Start, name);
    }
    for (index, row) in rows.iter().enumerate() {
        let y = frame.top + ROW * index as f64;
        let named =
            events.iter().find(|event| event["ph"] == "M" && event["name"] == "thread_name" && place(event) == Some(*row));
        let name = named.and_then(|event| event["args"]["name"].as_str()).unwrap_or("warp");
        let text = if blocks.len() > 1 { format!("block {}, {name}", row.0) } else { name.to_string() };
        drawing.text("tick", (frame.left - 8.0, y + 16.0), Anchor::End, &text);
        for span in spans.iter().filter(|span| span.row == *row) {
            // How many spans of the row hold this one.
            let holds = |other: &&Drawn| {
                let end = other.start + other.length;
                other.row == span.row
                    && other.start <= span.start
                    && end >= span.start + span.length
                    && other.length > span.length
            };
            let depth = spans.iter().filter(holds).count().min(4) as f64;
            let colour = names.iter().position(|name| *name == span.name).unwrap_or(0);
            let hover = format!("{}: {:.3} us from {:.3} on", span.name, span.length, span.start - first);
            drawing.bar(
                &class(colour),
                (x(span.start), x(span.start + span.length)),
                (y + 2.0 + 4.0 * depth, ROW - 4.0 - 4.0 * depth),
                &hover,
            );
        }
    }
    let style: String = COLOURS.iter().enumerate().map(|(at, colour)| format!(".m{at}{{fill:{colour}}}")).collect();
    let style = format!("<style>text{{font:11px sans-serif;fill:#333}}line{{stroke:#999}}{style}</style>");
    Ok(drawing.finish().replacen("</title>", &format!("</title>{style}"), 1))
}

fn class(index: usize) -> String {
    format!("m{}", index % COLOURS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_become_bars_in_the_row_of_their_warp() {
        let trace = r#"{"otherData":{"kernel":"k"},"traceEvents":[
            {"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"warp 1: loading warps"}},
            {"name":"work","ph":"X","pid":0,"tid":1,"ts":0.0,"dur":2.0},
            {"name":"wait","ph":"X","pid":0,"tid":1,"ts":0.5,"dur":0.5}]}"#;
        let svg = timeline_picture(trace).expect("a picture");
        assert!(svg.contains("warp 1: loading warps") && svg.contains("<title>wait: 0.500 us from 0.500 on</title>"), "{svg}");
        assert!(matches!(timeline_picture("{}"), Err(TraceError::Empty)));
        assert!(matches!(timeline_picture("no"), Err(TraceError::Json(_))));
    }
}
