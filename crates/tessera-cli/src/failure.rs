//! How a command ends when it does not end well: a text for people, findings for programs, and an exit code.

use std::fmt::Display;

use serde_json::{Map, Value};
use tessera::bench::Exit;
use tessera::ir::{Diagnostic, Reproducer, Severity, SourceMap};
use tessera::runtime::write_whole;

use crate::finding::{Class, Finding, Spot, report};

/// What every command returns.
pub(crate) type Outcome = Result<(), Failure>;

/// What whoever meets a mistake of ours is asked for.
pub(crate) const REPORT: &str = "this is a bug in tessera; please report it with the command line and the files it names";

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to print; empty where everything was printed already.
    pub(crate) text: String,
    /// The process's exit code.
    pub(crate) exit: u8,
    /// The same for programs.
    pub(crate) findings: Vec<Finding>,
    /// What the kernel printed before it failed.
    pub(crate) printed: String,
    /// What else a program is told.
    pub(crate) data: Map<String, Value>,
}

impl Failure {
    fn new(exit: Exit, text: String, findings: Vec<Finding>) -> Failure {
        Failure { text, exit: exit.code(), findings, printed: String::new(), data: Map::new() }
    }

    /// A message whose lines after `help: ` say what to do.
    fn plain(exit: Exit, class: Class, id: &str, message: String) -> Failure {
        let mut lines = message.lines();
        let mut finding = Finding::new(class, id, lines.next().unwrap_or_default());
        for line in lines {
            match line.strip_prefix("help: ") {
                Some(help) => finding.help.push(help.to_string()),
                None => finding.message.push_str(&format!("\n{line}")),
            }
        }
        Failure::new(exit, format!("error: {message}"), vec![finding])
    }

    /// The command line or the kernel is wrong.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::plain(Exit::Usage, Class::Error, "usage", message.to_string())
    }

    /// The machine or a file is in the way.
    pub(crate) fn environment(message: impl Display) -> Failure {
        Failure::plain(Exit::Environment, Class::Error, "environment", message.to_string())
    }

    /// Results are wrong, or a check found something; `text` shows the same findings to people.
    pub(crate) fn found(text: String, findings: Vec<Finding>) -> Failure {
        Failure::new(Exit::Incorrect, text, findings)
    }

    /// Everything was said; only the code is left.
    pub(crate) fn silent(exit: Exit) -> Failure {
        Failure::new(exit, String::new(), Vec::new())
    }

    /// Says it and ends the process at once, with nothing torn down.
    pub(crate) fn end(self) -> ! {
        // What was printed is lost with the process otherwise.
        let exit = crate::output::end(crate::failed(self, crate::is_data()));
        tessera::runtime::exit_at_once(exit)
    }

    /// Rendered diagnostics of a kernel or an IR text that is not right.
    pub(crate) fn diagnostics(diagnostics: &[Diagnostic], sources: &SourceMap) -> Failure {
        Failure::rendered(Exit::Usage, Class::Error, diagnostics, sources)
    }

    /// Rendered diagnostics of a kernel that did something wrong while it ran.
    pub(crate) fn fault(diagnostics: &[Diagnostic], sources: &SourceMap) -> Failure {
        Failure::rendered(Exit::Incorrect, Class::Wrong, diagnostics, sources)
    }

    fn rendered(exit: Exit, class: Class, diagnostics: &[Diagnostic], sources: &SourceMap) -> Failure {
        let findings = diagnostics.iter().map(|diagnostic| Finding::diagnostic(diagnostic, sources, class)).collect();
        let failure = Failure::new(exit, render(diagnostics, sources), findings);
        match diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Bug) {
            Some(ours) => failure.of_ours(ours.reproducer.as_deref()),
            None => failure,
        }
    }

    /// What failed is the compiler: asks for a report, with a file that shows the mistake again where there is one.
    fn of_ours(mut self, reproducer: Option<&Reproducer>) -> Failure {
        let path = std::env::temp_dir().join(format!("tessera-bug-{}.tir", std::process::id()));
        let written = reproducer.filter(|reproducer| std::fs::write(&path, &reproducer.text).is_ok());
        let help = match written {
            Some(Reproducer { arguments, .. }) => {
                let path = path.display();
                format!("{REPORT}, and with `{path}`: `tessera compile {path}{arguments}` shows it again")
            }
            None => REPORT.to_string(),
        };
        self.exit = crate::OUR_BUG;
        self.text.push_str(&format!("\n\n{help}"));
        self.findings.iter_mut().take(1).for_each(|finding| finding.help.push(help.clone()));
        self
    }
}

impl Failure {
    /// Whether nothing is left to say.
    pub(crate) fn is_told(&self) -> bool {
        self.text.is_empty() && self.findings.is_empty()
    }

    /// With the place of the mistake.
    pub(crate) fn at(mut self, spot: Spot) -> Failure {
        self.findings.iter_mut().take(1).for_each(|finding| finding.spot = Some(spot.clone()));
        self
    }

    /// Names what a mistake is about in front of it.
    pub(crate) fn about(mut self, what: &str) -> Failure {
        if let Some(message) = self.text.strip_prefix("error: ") {
            self.text = format!("error: {what}: {message}");
            self.findings.iter_mut().for_each(|finding| finding.message = format!("{what}: {}", finding.message));
        }
        self
    }

    /// With something that a program is told beside the findings.
    pub(crate) fn with(mut self, data: &Value) -> Failure {
        self.data.extend(data.as_object().cloned().unwrap_or_default());
        self
    }

    /// With what an emulator found.
    pub(crate) fn and(mut self, findings: Vec<Finding>) -> Failure {
        self.findings.extend(findings);
        self
    }

    /// Ends a command that did what it was asked to: `failed` where what it found is a mistake, else with warnings at most. With
    /// `data`, a program is told everything.
    pub(crate) fn conclude(self, failed: bool, data: Option<&Value>) -> Outcome {
        let failure = match data {
            Some(data) => self.with(data),
            None => self,
        };
        if failed {
            return Err(failure);
        }
        if !failure.text.is_empty() {
            eprintln!("{}", failure.text);
        }
        if data.is_some() {
            println!("{}", Failure { exit: Exit::Ok.code(), ..failure }.to_json());
        }
        Ok(())
    }

    /// The failure as a program reads it.
    pub(crate) fn to_json(&self) -> Value {
        let mut data = self.data.clone();
        if !self.printed.is_empty() {
            data.insert("printed".into(), Value::from(self.printed.as_str()));
        }
        report(self.exit, &self.findings, &Value::Object(data))
    }
}

/// Diagnostics for the terminal, errors last so that they are seen.
fn render(diagnostics: &[Diagnostic], sources: &SourceMap) -> String {
    let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| diagnostic.severity <= Severity::Error);
    let texts: Vec<String> = sorted.iter().map(|diagnostic| diagnostic.render(sources, crate::colours())).collect();
    texts.join("\n\n")
}

/// Tells a person what the compiler gave up to make a kernel fit its target.
pub(crate) fn remark(remark: Option<&Diagnostic>, sources: &SourceMap) {
    remark.into_iter().for_each(|remark| eprintln!("{}", remark.render(sources, crate::colours())));
}

/// Reads a file as text, or says which file could not be read.
pub(crate) fn read_text(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::environment(format!("can't read `{path}`: {error}")))
}

/// Writes a file as a whole, or says which file could not be written; one that was there before is there then.
pub(crate) fn write_bytes(path: &str, bytes: &[u8]) -> Outcome {
    write_whole(path, &[bytes]).map_err(|error| Failure::environment(format!("can't write `{path}`: {error}")))
}

/// The same of a text.
pub(crate) fn write_text(path: &str, text: &str) -> Outcome {
    write_bytes(path, text.as_bytes())
}
