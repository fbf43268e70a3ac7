//! What errors the gate allows, told for small problems.

use std::fmt::Write;

use tessera_ops::{Machine, Operator, Problem};
use tessera_types::Policy;

use crate::values::Values;

/// Elements of a problem whose reference is computed for a page.
const ELEMENTS: usize = 1 << 14;

/// A row a precision: what the gate allows at the mean, of the root mean square of the results.
pub(super) fn table(operator: &Operator) -> String {
    let mut text =
        "| precision | problem | result | allowed error, of the results' root mean square |\n|---|---|---|---|\n".to_string();
    for precision in operator.precisions.iter().chain(operator.further_precisions) {
        let policy: Policy = precision.parse().expect("a policy of the grammar");
        let small = (operator.edges)().iter().rev().find_map(|problem| rows(operator, problem, policy));
        let Some(small) = small else {
            let _ = writeln!(text, "| `{precision}` | none of {ELEMENTS} elements or fewer | | |");
            continue;
        };
        for (problem, result, allowed) in small {
            let _ = writeln!(text, "| `{precision}` | {problem} | `{result}` | {allowed} |");
        }
    }
    format!(
        "Every element is held to an f64 reference with a bound of its own, from the roundings on its way. `tessera check {}` does that at the edges of tiles and \
         in random problems.\n\n{text}",
        operator.name
    )
}

/// The results of a problem that is small enough: its name, the result's and what is allowed.
fn rows(operator: &Operator, problem: &Problem, policy: Policy) -> Option<Vec<(String, &'static str, String)>> {
    let plan = operator.plan(problem, policy, Machine::Cpu).ok()?;
    let elements: usize = plan.tensors.iter().map(|tensor| tensor.len()).sum();
    if elements > ELEMENTS || elements == 0 {
        return None;
    }
    let values = Values::drawn(&plan, 1, true).ok()?;
    let mut told = Vec::new();
    for (at, output) in plan.outputs.iter().enumerate() {
        let name = plan.tensors[output.tensor].name;
        let allowed = if output.exact {
            "none: every bit is right".to_string()
        } else {
            let (want, bound) = values.expected(&plan, at);
            let root = (want.iter().map(|value| value * value).sum::<f64>() / want.len() as f64).sqrt();
            let mean = bound.iter().sum::<f64>() / bound.len() as f64;
            // Of results without elements, of zeros, and of infinities there is nothing to tell.
            if !(root > 0.0 && root.is_finite() && mean.is_finite()) {
                return None;
            }
            format!("{:.1e}", mean / root)
        };
        told.push((problem.to_string(), name, allowed));
    }
    Some(told)
}
