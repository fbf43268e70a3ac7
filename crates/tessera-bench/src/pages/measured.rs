//! What was measured, from the table of `results/operators/`.

use std::fmt::Write;

use tessera_ops::Operator;

/// Characters of the longest bar of a ladder.
const BAR: f64 = 40.0;

/// Times of one chip.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    chip: String,
    rows: Vec<Row>,
}

/// A case by one implementation.
#[derive(Clone, Debug)]
struct Row {
    operator: String,
    precision: String,
    problem: String,
    implementation: String,
    us: f64,
    /// Of the chip's ceiling; empty where none is known.
    ceiling: String,
}

impl Measured {
    /// Reads a table whose first line names the chip behind `# ` and whose second one names columns: operator, precision, problem, implementation,
    /// us, ceiling.
    ///
    /// # Errors
    /// The line that is none.
    pub fn read(text: &str) -> Result<Measured, String> {
        let mut lines = text.lines();
        let first = lines.next().ok_or("an empty file")?;
        let chip = first.strip_prefix("# ").ok_or(first)?.to_string();
        let row = |line: &str| {
            let fields: Vec<&str> = line.split(';').collect();
            let [operator, precision, problem, implementation, us, ceiling] = fields.as_slice() else {
                return Err(line.to_string());
            };
            let us = us.parse().map_err(|_| line.to_string())?;
            let [operator, precision, problem, implementation, ceiling] =
                [operator, precision, problem, implementation, ceiling].map(|field| field.to_string());
            Ok(Row { operator, precision, problem, implementation, us, ceiling })
        };
        Ok(Measured { chip, rows: lines.skip(1).map(row).collect::<Result<_, _>>()? })
    }

    /// The rows of an operator that no rung ran.
    pub(super) fn speeds(&self, operator: &Operator) -> String {
        let own: Vec<&Row> = self.rows.iter().filter(|row| row.operator == operator.name).collect();
        if own.is_empty() {
            return String::new();
        }
        let mut text = format!("On {}, cold cache, medians of blocks that took turns.\n\n", self.chip);
        text.push_str("| problem | precision | us | of the chip's ceiling | others, us |\n|---|---|---|---|---|\n");
        for row in own.iter().filter(|row| row.implementation == crate::TESSERA) {
            let is_other = |other: &&&Row| {
                other.problem == row.problem
                    && other.precision == row.precision
                    && other.implementation != crate::TESSERA
                    && operator.rung(&other.implementation).is_none()
            };
            let others: Vec<String> =
                own.iter().filter(is_other).map(|other| format!("{} {:.1}", other.implementation, other.us)).collect();
            let _ = writeln!(
                text,
                "| {} | `{}` | {:.1} | {} | {} |",
                row.problem,
                row.precision,
                row.us,
                row.ceiling,
                others.join(", ")
            );
        }
        text
    }

    /// A picture of the times of the operator and of the rungs that ran, a bar each, for each problem.
    pub(super) fn ladder(&self, operator: &Operator) -> String {
        let mut text = String::new();
        let own: Vec<&Row> = self.rows.iter().filter(|row| row.operator == operator.name).collect();
        for row in own.iter().filter(|row| row.implementation == crate::TESSERA) {
            let time = |name: &str| {
                let is_it = |other: &&&Row| {
                    other.problem == row.problem && other.precision == row.precision && other.implementation == name
                };
                own.iter().find(is_it).map(|other| other.us)
            };
            let rungs: Vec<(&str, f64)> = operator.ladder.iter().filter_map(|rung| Some((rung.name, time(rung.name)?))).collect();
            if rungs.is_empty() {
                continue;
            }
            let all: Vec<(&str, f64)> = rungs.into_iter().chain([(crate::TESSERA, row.us)]).collect();
            let least = all.iter().fold(f64::INFINITY, |least, (_, us)| least.min(*us));
            let most = all.iter().fold(0.0, |most: f64, (_, us)| most.max(*us));
            let _ = write!(
                text,
                "\n{} in `{}` on {}; bars are times, in logarithms:\n\n```text\n",
                row.problem, row.precision, self.chip
            );
            for (name, us) in all {
                // The shortest bar is one long, and twice the time is a fixed length more.
                let above = if most > least { (us / least).ln() / (most / least).ln() } else { 0.0 };
                let _ = writeln!(text, "{name:<16} {us:>10.1} us  {}", "#".repeat((1.0 + (BAR - 1.0) * above) as usize));
            }
            text.push_str("```\n");
        }
        text
    }
}
