//! Diagnostics: what is wrong in a user's text, as a value, and how it is shown.
//!
//! A [`Diagnostic`] has a stable id, a one-line message, a primary [`Label`] and further ones, and a way out (`help`). It
//! is built where the mistake is found and rendered once, at the edge. Messages are lower case, without a final period,
//! with code in backticks.

use std::fmt::Write;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level as Tone, Renderer, Snippet};

use crate::entity::{Arena, entity};

entity! {
    /// A source text in a [`SourceMap`].
    SourceId
}

/// A range of bytes in one source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The smallest span that covers both; `other` must be of the same source, else `self` is returned.
    pub fn to(self, other: Span) -> Span {
        if self.source != other.source {
            return self;
        }
        Span { source: self.source, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// One source text with its name.
#[derive(Clone, Debug)]
pub struct Source {
    /// A file name or a description such as `<ir>`.
    pub name: String,
    /// The whole text.
    pub text: Arc<str>,
}

impl Source {
    /// One-based line and column (in characters) of a byte offset.
    pub fn line_column(&self, offset: u32) -> (usize, usize) {
        let mut end = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// Every source text that spans point into.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    sources: Arena<SourceId, Source>,
}

impl SourceMap {
    /// Adds a text.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> SourceId {
        self.sources.push(Source { name: name.into(), text: text.into() })
    }

    /// The text of an id that this map gave out.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.sources[id]
    }

    /// All texts, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.sources.ids().map(|id| &self.sources[id])
    }

    /// `file:line:column` of a span's start.
    pub fn locate(&self, span: Span) -> String {
        let source = self.get(span.source);
        let (line, column) = source.line_column(span.start);
        format!("{}:{line}:{column}", source.name)
    }
}

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing was produced, and that is the compiler's mistake.
    Bug,
    /// Nothing was produced.
    Error,
    /// The result stands, but may not be what was meant.
    Warning,
    /// Something worth knowing.
    Note,
}

/// A place in the source and what to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What was found there; may be empty.
    pub text: String,
}

/// One mistake, with its place and a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable identifier, kebab case.
    pub id: &'static str,
    /// How grave it is.
    pub severity: Severity,
    /// The headline.
    pub message: String,
    /// Where it is; `None` for a mistake outside any source text (a command-line argument, say).
    pub primary: Option<Label>,
    /// Other places that matter, such as where the clashing type came from.
    pub secondary: Vec<Label>,
    /// Facts that explain.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Vec<String>,
    /// IR that shows a mistake of ours again, and how.
    pub reproducer: Option<Box<Reproducer>>,
}

/// What shows a mistake of ours again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reproducer {
    /// The text of a module.
    pub text: String,
    /// What the compiler is told beside the file, such as `::softmax --target sm_90a`.
    pub arguments: String,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(id: &'static str, span: Span, message: impl Into<String>) -> Self {
        let mut diagnostic = Diagnostic::bare(id, message);
        diagnostic.primary = Some(Label { span, text: String::new() });
        diagnostic
    }

    /// An error that has no place in a source text.
    pub fn bare(id: &'static str, message: impl Into<String>) -> Self {
        Diagnostic {
            id,
            severity: Severity::Error,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
            reproducer: None,
        }
    }

    /// The same diagnostic, graver or milder.
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same diagnostic as a mistake of the compiler: what the verifier or an earlier pass saw to is not there.
    pub fn ours(self) -> Self {
        self.severity(Severity::Bug).note("this is a mistake in the compiler, not in the kernel")
    }

    /// What to say at the primary place.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        if let Some(primary) = &mut self.primary {
            primary.text = text.into();
        }
        self
    }

    /// A further place that matters.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// A fact that explains.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// A way out.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Headline, source lines with carets, notes and help; with colours when `styled`.
    pub fn render(&self, sources: &SourceMap, styled: bool) -> String {
        let tone = match self.severity {
            Severity::Bug | Severity::Error => Tone::ERROR,
            Severity::Warning => Tone::WARNING,
            Severity::Note => Tone::NOTE,
        };
        let mut order: Vec<SourceId> = Vec::new();
        for label in self.primary.iter().chain(&self.secondary) {
            if !order.contains(&label.span.source) {
                order.push(label.span.source);
            }
        }
        let mut group = Group::with_title(tone.primary_title(&self.message).id(self.id));
        for id in order {
            let source = sources.get(id);
            let mut snippet = Snippet::source(&*source.text).path(&source.name);
            for (kind, labels) in
                [(AnnotationKind::Primary, self.primary.as_slice()), (AnnotationKind::Context, self.secondary.as_slice())]
            {
                for label in labels.iter().filter(|label| label.span.source == id) {
                    let range = clamp(&source.text, label.span);
                    let annotation = kind.span(range);
                    snippet = snippet.annotation(if label.text.is_empty() { annotation } else { annotation.label(&label.text) });
                }
            }
            group = group.element(snippet);
        }
        for note in &self.notes {
            group = group.element(Tone::NOTE.message(note));
        }
        for help in &self.help {
            group = group.element(Tone::HELP.message(help));
        }
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// `file:line:column: severity[id]: message`, for programs and for tests.
    pub fn render_line(&self, sources: &SourceMap) -> String {
        let mut line = String::new();
        if let Some(primary) = &self.primary {
            let _ = write!(line, "{}: ", sources.locate(primary.span));
        }
        let severity = match self.severity {
            Severity::Bug => "bug",
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let _ = write!(line, "{severity}[{}]: {}", self.id, self.message);
        line
    }
}

/// The span's bytes, moved onto character boundaries inside the text.
fn clamp(text: &str, span: Span) -> std::ops::Range<usize> {
    let floor = |offset: u32| {
        let mut offset = (offset as usize).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    };
    let start = floor(span.start);
    start..floor(span.end).max(start)
}
