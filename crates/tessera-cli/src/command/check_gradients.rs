//! The part of `tessera check` that holds gradients to their operators, by the references of both.

use tessera::bench::{GradientCheck, Library, Status, check_gradient, widest};
use tessera::ops::{Machine, Operator, Problem, TensorSpec};
use tessera::types::Policy;

/// Elements of the largest problem that is looked at: the references are computed three times in each trial.
const ELEMENTS: usize = 1 << 18;

/// What became of one problem.
pub(crate) struct Held {
    pub(crate) operator: &'static str,
    /// Trials in which both sides agreed.
    pub(crate) right: usize,
    /// What was wrong in the one after these.
    pub(crate) why: Option<String>,
    /// The operator or its gradient does not do the problem, or it is too large to be looked at.
    pub(crate) is_left_out: bool,
}

/// Elements of all that an operator reads and writes for a problem; none where it does not do it.
fn elements(operator: &Operator, problem: &Problem, policy: Policy) -> Option<usize> {
    let plan = operator.plan(problem, policy, Machine::Cpu).ok()?;
    Some(plan.tensors.iter().map(TensorSpec::len).sum())
}

/// Each problem of a library's cases that has a gradient, in so many trials from a seed on, or up to the first that is wrong.
pub(crate) fn gradients(library: &Library, (seed, trials): (u64, usize)) -> Vec<Held> {
    let problems = library.gradients().into_iter();
    let held = problems.filter_map(|(operator, problem)| {
        let policy = widest(operator)?;
        let mut held = Held { operator: operator.name, right: 0, why: None, is_left_out: false };
        if let Some(own) = elements(operator, &problem, policy).filter(|own| *own > ELEMENTS) {
            held.is_left_out = true;
            held.why = Some(format!(
                "{} (gradient) {problem}: {own} elements, of which {ELEMENTS} at most are looked at",
                operator.name
            ));
            return Some(held);
        }
        for trial in 0..trials as u64 {
            let why = match check_gradient(operator, &problem, policy, seed.wrapping_add(trial)) {
                Ok(found) if found.passed() => {
                    held.right += 1;
                    continue;
                }
                Ok(found) => wrong(&found),
                Err(fault) => {
                    held.is_left_out = fault.status == Status::Unsupported;
                    fault.message
                }
            };
            held.why = Some(format!("{} (gradient) {problem}: {why}", operator.name));
            break;
        }
        Some(held)
    });
    held.collect()
}

fn wrong(found: &GradientCheck) -> String {
    let GradientCheck { gradient, difference, bound } = found;
    format!("the derivative along a random direction is {gradient:e}, and {difference:e} by differences (allowed {bound:e})")
}
