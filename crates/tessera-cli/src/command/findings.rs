//! What the emulator found, as text and as JSON, and how it ends a command.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tessera::emu::{Class, Finding, LaunchOptions, Launched, Place, Suppressions};

use crate::arguments::Emulation;
use crate::failure::{Failure, Outcome};
use crate::finding::{Class as Weight, Finding as Told};
use tessera::bench::Exit;

/// Which findings fail, and which are let pass.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    fail_on: Option<Class>,
    /// The file of suppressions, and what it says.
    suppress: Option<(String, Arc<Suppressions>)>,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge { fail_on: Some(Class::Wrong), suppress: None }
    }
}

impl Judge {
    pub(crate) fn new(options: &LaunchOptions, emulation: &Emulation) -> Judge {
        let suppress = emulation.suppress.as_ref().map(|path| (path.clone(), Arc::clone(&options.suppress)));
        Judge { fail_on: options.fail_on, suppress }
    }

    fn fails(&self, finding: &Finding) -> bool {
        self.fail_on.is_some_and(|least| finding.class >= least)
    }

    /// The findings that fail, as text.
    pub(crate) fn failing(&self, launches: &[Launched]) -> Vec<String> {
        all(launches).filter(|finding| self.fails(finding)).map(shown).collect()
    }

    /// Whether something fails: a finding, or a launch that one has ended, unless none is to fail.
    pub(crate) fn passed(&self, launches: &[Launched]) -> bool {
        self.fail_on.is_none() || launches.iter().all(|launched| launched.finished) && self.failing(launches).is_empty()
    }

    /// Whether launches say why the driver gave an error.
    pub(crate) fn explains(&self, launches: &[Launched]) -> bool {
        launches.iter().any(|launched| !launched.finished) || !self.passed(launches)
    }

    /// Prints what launches did: traces, findings that do not fail, schedules; those that fail end the command.
    pub(crate) fn tell(&self, launches: &[Launched]) -> Outcome {
        for launched in launches {
            launched.report.trace.iter().for_each(|line| println!("{line}"));
            for finding in launched.report.findings.iter().filter(|finding| !self.fails(finding)) {
                let class = if finding.class == Class::Wrong { "wrong: " } else { "" };
                println!("{class}{}", shown(finding));
            }
            if let Some(explored) = launched.report.explored {
                println!(
                    "{}: {} schedules executed, {} given up as seen, {} different results{}",
                    launched.kernel,
                    explored.executions,
                    explored.pruned,
                    explored.outcomes,
                    if explored.complete { "; there are no others" } else { "; there are more" }
                );
            }
        }
        let suppressed: usize = launches.iter().map(|launched| launched.report.suppressed.len()).sum();
        if let (Some((path, _)), true) = (&self.suppress, suppressed > 0) {
            println!("{suppressed} findings are let pass by {path}");
        }
        self.unused(launches).iter().for_each(|text| eprintln!("warning: {text}"));
        self.verdict(launches)
    }

    /// The findings that fail as the command's end.
    pub(crate) fn verdict(&self, launches: &[Launched]) -> Outcome {
        let failing = self.failing(launches);
        if self.passed(launches) {
            return Ok(());
        }
        // Without any, a suppressed finding, or one of a class that does not fail, has ended a launch.
        let unfinished = "a launch did not come to its end, so its results are not there";
        let text = if failing.is_empty() { unfinished.to_string() } else { failing.join("\nerror: ") };
        let mut findings = findings(launches);
        if failing.is_empty() {
            findings.push(Told::new(Weight::Wrong, "unfinished", unfinished));
        }
        Err(Failure::found(format!("error: {text}"), findings))
    }

    /// The same where everything was printed as data.
    pub(crate) fn silent_verdict(&self, launches: &[Launched]) -> Outcome {
        if self.passed(launches) { Ok(()) } else { Err(Failure::silent(Exit::Incorrect)) }
    }

    /// What a program reads of launches: `passed`, `findings`, `suppressed`, `unused_suppressions`, `launches`.
    pub(crate) fn json(&self, launches: &[Launched]) -> Map<String, Value> {
        let suppressed: Vec<Value> = launches
            .iter()
            .flat_map(|launched| &launched.report.suppressed)
            .map(|passed| {
                let mut value = json!(passed.finding);
                if let (Some((path, rules)), Some(object)) = (&self.suppress, value.as_object_mut()) {
                    let rule = &rules.rules()[passed.rule];
                    object.insert("rule".to_owned(), json!(format!("{path}:{}", rule.line)));
                    object.insert("reason".to_owned(), json!(rule.reason));
                }
                value
            })
            .collect();
        let ran: Vec<Value> = launches
            .iter()
            .map(|Launched { kernel, grid, block, schedule, seed, finished, report }| {
                json!({
                    "kernel": kernel, "grid": grid, "block": block, "schedule": schedule, "seed": seed, "finished": finished,
                    "instructions": report.instructions, "output": report.output, "explored": report.explored,
                    "trace": report.trace,
                })
            })
            .collect();
        let findings: Vec<&Finding> = all(launches).collect();
        let object = json!({
            "passed": self.passed(launches), "fail_on": self.fail_on.map_or("none", Class::name), "findings": findings,
            "suppressed": suppressed, "unused_suppressions": self.unused(launches), "launches": ran,
        });
        if let Value::Object(map) = object { map } else { Map::new() }
    }

    /// Rules that no finding needed.
    fn unused(&self, launches: &[Launched]) -> Vec<String> {
        let Some((path, rules)) = &self.suppress else { return Vec::new() };
        let used = |rule: usize| {
            launches.iter().flat_map(|launched| &launched.report.suppressed).any(|suppressed| suppressed.rule == rule)
        };
        let rows = rules.rules().iter().enumerate().filter(|(index, _)| !used(*index));
        rows.map(|(_, rule)| format!("{path}:{}: nothing was found that this lets pass ({})", rule.line, rule.reason)).collect()
    }
}

/// All findings of launches in the shape that commands share; the emulator knows more of each than that.
pub(crate) fn findings(launches: &[Launched]) -> Vec<Told> {
    let told = |finding: &Finding| {
        let class = match finding.class {
            Class::Wrong => Weight::Wrong,
            Class::Formal => Weight::Formal,
            Class::Advice => Weight::Advice,
        };
        let more = json!(finding).as_object().cloned().unwrap_or_default();
        Told { more, ..Told::new(class, finding.kind.name(), &finding.message) }
    };
    all(launches).map(told).collect()
}

/// What the kernels of launches printed.
pub(crate) fn printed(launches: &[Launched]) -> String {
    launches.iter().map(|launched| launched.report.output.as_str()).collect()
}

fn all(launches: &[Launched]) -> impl Iterator<Item = &Finding> {
    launches.iter().flat_map(|launched| &launched.report.findings)
}

/// A finding with its class where that is not `wrong`, and the lines of source that it names.
fn shown(finding: &Finding) -> String {
    let mut text = match finding.class {
        Class::Wrong => finding.to_string(),
        class => format!("{class}: {finding}"),
    };
    let mut told = Vec::new();
    for place in std::iter::once(&finding.place).chain(&finding.earlier) {
        if let Some(line) = source_line(place)
            && !told.contains(&line)
        {
            text.push_str(&format!("\n  {line}"));
            told.push(line);
        }
    }
    text
}

fn source_line(place: &Place) -> Option<String> {
    let (file, number, _) = place.source.as_ref()?;
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().nth((*number as usize).checked_sub(1)?)?;
    Some(format!("{number} | {}", line.trim_end()))
}
