//! What a command found or refused, in the one shape that every command's `--json` has.
//!
//! ```text
//! {"command":"run","exit":2,"passed":false,"findings":[{"class":"wrong","id":"cpu-conflict","message":"...","file":"k.py","line":7,"column":5,
//!   "help":["..."],"related":[{"message":"...","file":"k.py","line":6,"column":9}]}], ...}
//! ```
//! `file`, `line` and `column` are null where there is no such place; `error` says in one line why a command could not go on. `class` is `wrong` (results can be wrong), `formal` (a rule is
//! broken, results are right), `advice` (worth knowing) or `error` (the command could not do what it was asked to).

use serde_json::{Map, Value, json};
use tessera::ir::{Diagnostic, Severity, SourceMap, Span};

use crate::invocation::given;

/// What a finding means for results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Results can be wrong.
    Wrong,
    /// A rule is broken, and results are right all the same.
    Formal,
    /// Worth knowing; nothing is broken.
    Advice,
    /// The command could not do what it was asked to.
    Error,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Class::Wrong => "wrong",
            Class::Formal => "formal",
            Class::Advice => "advice",
            Class::Error => "error",
        }
    }
}

/// A line and column of a text, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Spot {
    fn of(sources: &SourceMap, span: Span) -> Spot {
        let source = sources.get(span.source);
        let (line, column) = source.line_column(span.start);
        Spot { file: source.name.clone(), line, column }
    }

    fn fields(spot: Option<&Spot>) -> [(String, Value); 3] {
        let field = |name: &str, value: Option<Value>| (name.to_string(), value.unwrap_or(Value::Null));
        [
            field("file", spot.map(|spot| json!(spot.file))),
            field("line", spot.map(|spot| json!(spot.line))),
            field("column", spot.map(|spot| json!(spot.column))),
        ]
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) class: Class,
    /// Stable, kebab case.
    pub(crate) id: String,
    pub(crate) message: String,
    pub(crate) spot: Option<Spot>,
    /// What to do about it.
    pub(crate) help: Vec<String>,
    /// Other places that matter.
    pub(crate) related: Vec<(String, Option<Spot>)>,
    /// What only some findings have.
    pub(crate) more: Map<String, Value>,
}

impl Finding {
    /// A finding without a place in a text.
    pub(crate) fn new(class: Class, id: &str, message: impl Into<String>) -> Finding {
        Finding {
            class,
            id: id.into(),
            message: message.into(),
            spot: None,
            help: Vec::new(),
            related: Vec::new(),
            more: Map::new(),
        }
    }

    /// A diagnostic; its severity decides unless it is an error of the kernel, which is of `class`.
    pub(crate) fn diagnostic(diagnostic: &Diagnostic, sources: &SourceMap, class: Class) -> Finding {
        let related = diagnostic.secondary.iter().map(|label| (label.text.clone(), Some(Spot::of(sources, label.span))));
        Finding {
            class: match diagnostic.severity {
                Severity::Bug => Class::Error,
                Severity::Error => class,
                Severity::Warning | Severity::Note => Class::Advice,
            },
            id: diagnostic.id.to_string(),
            message: diagnostic.message.clone(),
            spot: diagnostic.primary.as_ref().map(|label| Spot::of(sources, label.span)),
            help: diagnostic.help.clone(),
            related: diagnostic.notes.iter().map(|note| (note.clone(), None)).chain(related).collect(),
            more: Map::new(),
        }
    }

    /// With a way out.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Finding {
        self.help.push(text.into());
        self
    }

    fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("class".into(), json!(self.class.name()));
        object.insert("id".into(), json!(self.id));
        object.insert("message".into(), json!(self.message));
        object.extend(Spot::fields(self.spot.as_ref()));
        if !self.help.is_empty() {
            object.insert("help".into(), json!(self.help));
        }
        if !self.related.is_empty() {
            let related = self.related.iter().map(|(message, spot)| {
                let mut place = Map::from_iter([("message".to_string(), json!(message))]);
                place.extend(Spot::fields(spot.as_ref()));
                Value::Object(place)
            });
            object.insert("related".into(), related.collect());
        }
        object.extend(self.more.clone());
        Value::Object(object)
    }
}

/// The one object that a command with `--json` prints: what it ended with, what it found, and what else it has to tell.
pub(crate) fn report(exit: u8, findings: &[Finding], data: &Value) -> Value {
    // What a command ended with is decided here, whatever its data say of a part of it.
    let mut object = data.as_object().cloned().unwrap_or_default();
    object.insert("command".into(), given().arguments.first().map_or(Value::Null, |command| json!(command.to_string_lossy())));
    object.insert("exit".into(), json!(exit));
    object.insert("passed".into(), json!(exit == 0));
    let error = findings.iter().find(|finding| finding.class == Class::Error);
    object.extend(error.map(|finding| ("error".to_string(), json!(finding.message))));
    object.insert("findings".into(), findings.iter().map(Finding::to_json).collect());
    Value::Object(object)
}
