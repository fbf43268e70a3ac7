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
    let result = |(at, output): (usize, &tessera_ops::OutputRows)| {
        let name = plan.tensors[output.tensor].name;
        if output.exact {
            return (problem.to_string(), name, "none: every bit is right".to_string());
        }
        let (want, bound) = values.expected(&plan, at);
        let square: f64 = want.iter().filter(|value| value.is_finite()).map(|value| value * value).sum();
        let root = (square / want.len() as f64).sqrt();
        let mean = bound.iter().filter(|bound| bound.is_finite()).sum::<f64>() / bound.len() as f64;
        (problem.to_string(), name, format!("{:.1e}", mean / root))
    };
    Some(plan.outputs.iter().enumerate().map(result).collect())
}
