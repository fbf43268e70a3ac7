//! How a command ends when it does not end well: a text for the user and an exit code.

use std::fmt::Display;

use tessera::bench::Exit;
use tessera::ir::{Diagnostic, Severity, SourceMap};

/// What every command returns.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to print; empty where everything was printed already.
    pub(crate) text: String,
    /// The process's exit code.
    pub(crate) exit: u8,
}

impl Failure {
    fn new(exit: Exit, text: String) -> Failure {
        Failure { text, exit: exit.code() }
    }

    /// The command line or the kernel is wrong.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::new(Exit::Usage, format!("error: {message}"))
    }

    /// The machine or a file is in the way.
    pub(crate) fn environment(message: impl Display) -> Failure {
        Failure::new(Exit::Environment, format!("error: {message}"))
    }

    /// A result is wrong.
    pub(crate) fn incorrect(message: impl Display) -> Failure {
        Failure::new(Exit::Incorrect, format!("error: {message}"))
    }

    /// Says the failure as JSON on the standard output, where it was not said yet: `error` and `exit`.
    pub(crate) fn told_as_json(self) -> Failure {
        if !self.text.is_empty() {
            let message = self.text.strip_prefix("error: ").unwrap_or(&self.text);
            println!("{}", serde_json::json!({ "passed": false, "error": message, "exit": self.exit, "findings": [] }));
        }
        self
    }

    /// Everything was said; only the code is left.
    pub(crate) fn silent(exit: Exit) -> Failure {
        Failure::new(exit, String::new())
    }

    /// Rendered diagnostics of a kernel or an IR text that is not right.
    pub(crate) fn diagnostics(diagnostics: &[Diagnostic], sources: &SourceMap) -> Failure {
        Failure::new(Exit::Usage, render(diagnostics, sources))
    }

    /// Rendered diagnostics of a kernel that did something wrong while it ran.
    pub(crate) fn fault(diagnostics: &[Diagnostic], sources: &SourceMap) -> Failure {
        Failure::new(Exit::Incorrect, render(diagnostics, sources))
    }
}

/// Diagnostics for the terminal, errors last so that they are seen.
fn render(diagnostics: &[Diagnostic], sources: &SourceMap) -> String {
    let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| diagnostic.severity == Severity::Error);
    let texts: Vec<String> = sorted.iter().map(|diagnostic| diagnostic.render(sources, crate::colours())).collect();
    texts.join("\n\n")
}

/// Reads a file as text, or says which file could not be read.
pub(crate) fn read_text(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::environment(format!("can't read `{path}`: {error}")))
}

/// Writes a file, or says which file could not be written.
pub(crate) fn write_text(path: &str, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| Failure::environment(format!("can't write `{path}`: {error}")))
}
