//! What became of the cases of `tessera check`, and how that is told.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tessera::bench::{Exit, Fault, GateReport, Status};

use crate::command::check::Checked;
use crate::command::check_gradients::Held;
use crate::command::emulation::Opened;
use crate::failure::{Failure, Outcome};
use crate::finding::{Class, Finding};

/// What became of an operator's cases in a precision.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    right: usize,
    wrong: usize,
    /// Not done: the operator does not offer the case there, or memory does not suffice.
    left_out: usize,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Tally {
    counts: BTreeMap<(String, String), Count>,
    rows: Vec<Value>,
    findings: Vec<Finding>,
    reasons: Vec<String>,
}

impl Tally {
    fn count(&mut self, operator: &str, precision: &str) -> &mut Count {
        self.counts.entry((operator.to_string(), precision.to_string())).or_default()
    }

    /// Takes a case, which is shown as `shown`.
    pub(crate) fn take(&mut self, (operator, precision): (&str, &str), shown: &str, checked: Checked) {
        let why = checked.why();
        let Checked { outcome, texts, mut findings } = checked;
        let status = outcome.as_ref().map_or_else(|fault| fault.status, |report| report.status);
        let report = outcome.as_ref().ok();
        self.rows.push(json!({ "case": shown, "status": status, "right": why.is_none(), "reason": why, "report": report }));
        match why {
            None => self.count(operator, precision).right += 1,
            Some(why) if is_left_out(&outcome) && texts.is_empty() => {
                self.count(operator, precision).left_out += 1;
                self.reasons.push(format!("note: {shown}: {why}"));
                return;
            }
            Some(why) => {
                self.count(operator, precision).wrong += 1;
                self.reasons.push(format!("error: {shown}: {why}"));
                if texts.is_empty() {
                    findings.push(Finding::new(class_of(status), status.name(), why));
                }
                for finding in &mut findings {
                    finding.message = format!("{shown}: {}", finding.message);
                }
            }
        }
        self.findings.append(&mut findings);
    }

    /// Takes what became of a gradient.
    pub(crate) fn gradient(&mut self, held: Held) {
        let count = self.count(&format!("{} (gradient)", held.operator), "f64");
        count.right += held.right;
        match held.why {
            Some(why) if held.is_left_out => {
                count.left_out += 1;
                self.reasons.push(format!("note: {why}"));
            }
            Some(why) => {
                count.wrong += 1;
                self.reasons.push(format!("error: {why}"));
                self.findings.push(Finding::new(Class::Wrong, "gradient", why));
            }
            None => {}
        }
    }

    /// Says more of the last case.
    pub(crate) fn note(&mut self, text: &str) {
        self.reasons.push(format!("note: {text}"));
    }

    /// The device is gone, and so many cases with it.
    pub(crate) fn lost(&mut self, open: usize) {
        if open > 0 {
            let message = format!("the device was lost to a fault, {open} cases were not checked");
            self.reasons.push(format!("error: {message}"));
            self.findings.push(Finding::new(Class::Error, "device-lost", message));
        }
    }

    /// Prints it, and says whether all is right.
    pub(crate) fn conclude(mut self, opened: &Opened, seed: u64, is_json: bool) -> Outcome {
        let sum = |of: fn(&Count) -> usize| self.counts.values().map(of).sum::<usize>();
        let (right, wrong, left_out) = (sum(|c| c.right), sum(|c| c.wrong), sum(|c| c.left_out));
        if right + wrong == 0 && self.findings.is_empty() {
            self.reasons.push("error: nothing was checked".to_string());
            self.findings.push(Finding::new(Class::Error, "nothing-checked", "nothing was checked"));
        }
        let is_wrong = self.findings.iter().any(|finding| finding.class == Class::Wrong);
        let mut failure = Failure::found(self.reasons.join("\n"), self.findings);
        if !is_wrong {
            failure.exit = Exit::Environment.code();
        }
        let failed = wrong > 0 || failure.findings.iter().any(|finding| finding.class == Class::Error);
        if is_json {
            let data = json!({
                "device": opened.device.to_string(), "right": right, "wrong": wrong, "left_out": left_out, "cases": self.rows,
                "seed": seed,
            });
            return failure.conclude(failed, Some(&data));
        }
        for ((operator, precision), count) in &self.counts {
            let more = if count.left_out > 0 { format!(", {} left out", count.left_out) } else { String::new() };
            println!("{operator} {precision}: {} right, {} wrong{more}", count.right, count.wrong);
        }
        let more = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
        println!("{right} cases right, {wrong} wrong{more}, on {} ({})", opened.device, opened.reason);
        failure.conclude(failed, None)
    }
}

/// What a status that is not `ok` means: a wrong result, or a case that could not be judged.
fn class_of(status: Status) -> Class {
    if status.is_wrong() { Class::Wrong } else { Class::Error }
}

/// Cases that an operator does not offer on this machine, and those for which it has not the memory.
pub(crate) fn is_left_out(outcome: &Result<GateReport, Fault>) -> bool {
    outcome.as_ref().is_err_and(|fault| matches!(fault.status, Status::Unsupported | Status::Oom))
}
