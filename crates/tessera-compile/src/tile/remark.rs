//! What staging passes said about a function: which one took it, and why each one asked before did not.

use tessera_ir::{PassTime, Reason};

/// One pass's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The pass.
    pub recipe: &'static str,
    /// Why it did not take the function; `None` where it did.
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
        let asked = runs.iter().filter(|run| staging.contains(&run.pass)).filter_map(|run| match run.refusals.first() {
            Some(reason) => Some(Remark { recipe: run.pass, refusal: Some(reason.clone()) }),
            None => run.changed.then_some(Remark { recipe: run.pass, refusal: None }),
        });
        Remarks { asked: asked.collect() }
    }

    /// Nobody was asked: the user wrote the plan.
    pub(crate) fn by_hand() -> Remarks {
        Remarks { asked: vec![Remark { recipe: "plan by hand", refusal: None }] }
    }

    /// The pass that took the function.
    pub fn chosen(&self) -> Option<&'static str> {
        self.asked.iter().find(|remark| remark.refusal.is_none()).map(|remark| remark.recipe)
    }
}
