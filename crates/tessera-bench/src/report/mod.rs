//! Reports of results files: one self-contained HTML page, CSV, Markdown.
//!
//! ```text
//! Source -> lines (File, Line: each in one class) -> tally | overview | coverage | worst | panel | roofline | rows | facts | differ
//!                                                       |          drawn by plot, strip
//!                                     html (page/*.html, style.css, table.js)   text (CSV, Markdown)
//! ```
//! `lines` alone knows records. The page loads nothing, and shows everything but searching and sorting without scripts.
//! `docs/report.md` says what each number means.

mod colour;
mod coverage;
mod differ;
mod facts;
mod html;
mod lines;
mod markdown;
mod overview;
mod panel;
mod plot;
mod precision;
mod roofline;
mod rows;
mod strip;
mod tally;
mod text;
mod timeline;
mod worst;

pub use html::{ReportError, html};
pub use lines::Source;
pub use markdown::markdown;
pub use text::{comparison_markdown, csv, duel_markdown};
pub use timeline::{TraceError, timeline_picture};
