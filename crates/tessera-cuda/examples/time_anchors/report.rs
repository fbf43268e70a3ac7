//! What was found: facts about the machine, checks and medians; as a table and as JSON.

use serde_json::{Value, json};

use crate::measure::{Mode, median};

#[derive(Default)]
pub(crate) struct Report {
    facts: Vec<(String, String)>,
    rows: Vec<Row>,
    failures: Vec<(String, String)>,
}

/// One kernel on one case in one mode, with its baseline.
pub(crate) struct Row {
    pub(crate) kernel: String,
    pub(crate) case: String,
    pub(crate) mode: Mode,
    pub(crate) times: Vec<f64>,
    pub(crate) baseline: String,
    pub(crate) baseline_times: Vec<f64>,
    /// Work a launch in units of `unit` times seconds.
    pub(crate) work: f64,
    pub(crate) unit: &'static str,
    /// Largest error found by the check, relative to its bound's scale.
    pub(crate) error: f64,
}

impl Row {
    fn rate(&self, times: &[f64]) -> f64 {
        self.work / (median(times) * 1e-3)
    }

    fn ratio(&self) -> f64 {
        median(&self.baseline_times) / median(&self.times)
    }
}

impl Report {
    pub(crate) fn fact(&mut self, name: &str, value: &str) {
        println!("{name}: {value}");
        self.facts.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn row(&mut self, row: Row) {
        println!("{}", line(&row));
        self.rows.push(row);
    }

    pub(crate) fn failure(&mut self, what: &str, why: &str) {
        self.failures.push((what.to_owned(), why.to_owned()));
    }

    pub(crate) fn table(&self) -> String {
        let lines: Vec<String> = self.rows.iter().map(line).collect();
        let failures = self.failures.iter().map(|(what, why)| format!("FAILED {what}: {why}"));
        lines.into_iter().chain(failures).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn json(&self) -> String {
        let facts: Value = self.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "kernel": row.kernel, "case": row.case, "mode": row.mode.name(), "unit": row.unit,
                    "ms": median(&row.times), "rate": row.rate(&row.times), "repetitions": row.times.len(),
                    "baseline": row.baseline, "baseline_ms": median(&row.baseline_times),
                    "baseline_rate": row.rate(&row.baseline_times), "ratio": row.ratio(), "error": row.error,
                })
            })
            .collect();
        let failures: Vec<Value> = self.failures.iter().map(|(what, why)| json!([what, why])).collect();
        format!("{:#}\n", json!({"facts": facts, "rows": rows, "failures": failures}))
    }
}

fn line(row: &Row) -> String {
    format!(
        "{:<18} {:<26} {:<4} {:>9.4} ms {:>7.0} {:<7} | {:<10} {:>9.4} ms {:>7.0} | ratio {:.3} | error {:.2e}",
        row.kernel,
        row.case,
        row.mode.name(),
        median(&row.times),
        row.rate(&row.times),
        row.unit,
        row.baseline,
        median(&row.baseline_times),
        row.rate(&row.baseline_times),
        row.ratio(),
        row.error,
    )
}
