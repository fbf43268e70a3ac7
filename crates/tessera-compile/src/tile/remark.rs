//! What staging passes said about a function: which one took it, and why each one asked before did not.

use tessera_ir::{PassTime, Reason};

/// One pass's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The pass.
    pub recipe: &'static str,
    /// Whether it took the function.
    pub taken: bool,
    /// Why it did not, or left out what hints ask for.
    pub refusal: Option<Reason>,
}

/// The answers in the order in which passes were asked, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// One entry a pass that was asked.
    pub asked: Vec<Remark>,
}

impl Remarks {
    /// What the staging passes among those that ran said; behind the one that took the function none was asked.
    pub(crate) fn of(runs: &[PassTime], staging: &[&str]) -> Remarks {
        let asked = runs.iter().filter(|run| staging.contains(&run.pass) && (run.changed || !run.refusals.is_empty()));
        let remark = |run: &PassTime| Remark { recipe: run.pass, taken: run.changed, refusal: run.refusals.first().cloned() };
        Remarks { asked: asked.map(remark).collect() }
    }

    /// Nobody was asked: the user wrote the plan.
    pub(crate) fn by_hand() -> Remarks {
        Remarks { asked: vec![Remark { recipe: "plan by hand", taken: true, refusal: None }] }
    }

    /// The pass that took the function.
    pub fn chosen(&self) -> Option<&'static str> {
        self.asked.iter().find(|remark| remark.taken).map(|remark| remark.recipe)
    }
}
