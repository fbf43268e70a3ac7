//! Plans with choices from a lockfile: how a problem is cut into blocks, where an operator has several ways.
//!
//! ```text
//! key   gemm | its text, variant, precision, names of a way's choices | m 4096/128, n 4096/128, k 4096/128 | device, toolchain
//! entry TM=128,TN=256,TK=64,sharing=1,...
//! ```
//!
//! The choices of the plan's kernels are entries of their own, which the launches of a way look for.

use std::fmt::Write;

use tessera_runtime::lock::{Key, size_class};
use tessera_runtime::{KernelError, Lock, Site, Tuned};
use tessera_types::Policy;

use crate::operator::{Machine, Operator, Plan, Unsupported};
use crate::problem::Problem;

/// A plan, and the choice that it was made by.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The way of a lockfile.
    pub tuned: Option<Tuned>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The operator does not do the problem.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The lockfile has no choice, or several.
    #[error(transparent)]
    Lock(#[from] KernelError),
    /// The lockfile has a choice that is no way of the operator's.
    #[error("the choice of `{lock}` for {key} is no way to cut it: {why}\nhelp: delete its table; `tessera tune` makes it again")]
    NoWay {
        /// The lockfile.
        lock: String,
        /// What the choice is for.
        key: Box<Key>,
        /// What is wrong with it.
        why: Unsupported,
    },
}

impl Operator {
    /// What a choice of one of the ways to cut a problem is found by; `None` where the operator has one alone.
    pub fn way_key(&self, problem: &Problem, policy: Policy, site: Site<'_>) -> Option<Key> {
        let ways = self.ways.as_ref()?;
        // Of a problem's numbers what counts is whether the output is read for them.
        let kind = problem.kind();
        let rereads = self.rereads().and_then(|name| problem.number(name)).is_some_and(|value| value != 0.0);
        let mut asked = format!("{kind}{} {}", if rereads { " rereads" } else { "" }, policy.storage().name());
        let _ = write!(asked, " {:?} {} {:?}", policy.parts(), policy.accumulator(), policy.result());
        let _ = write!(asked, " {:?}\n{}", ways.names, self.source);
        let class = |(name, extent): &(&str, u64)| format!("{name} {}", size_class(*extent));
        let shape = problem.extents.iter().map(class).collect::<Vec<_>>().join(", ");
        Some(site.key(self.name, &asked, shape))
    }

    /// The plan of a problem, cut as a lockfile says that has a choice for it where it runs, else as by [`Operator::plan`].
    ///
    /// # Errors
    /// As for [`Operator::plan`]; what [`Lock::find`] refuses; where the choice is no way of the operator's; where the lockfile is frozen and has
    /// none, and there are several ways.
    pub fn plan_with(
        &self,
        problem: &Problem,
        policy: Policy,
        machine: Machine,
        lock: Option<(&Lock, Site<'_>)>,
    ) -> Result<Planned, PlanError> {
        let keyed = lock.and_then(|(lock, site)| Some((lock, site, self.way_key(problem, policy, site)?)));
        let Some((lock, site, key)) = keyed else {
            return Ok(Planned { plan: self.plan(problem, policy, machine)?, tuned: None });
        };
        match lock.find(&key, site)? {
            Some(tuned) => match self.plan_in(problem, policy, machine, &tuned.entry.config) {
                Ok(plan) => Ok(Planned { plan, tuned: Some(tuned) }),
                Err(why) => Err(PlanError::NoWay { lock: lock.path().display().to_string(), key: Box::new(key), why }),
            },
            None if lock.is_frozen() && self.ways(problem, policy, machine)?.len() > 1 => Err(lock.missing(key).into()),
            None => Ok(Planned { plan: self.plan(problem, policy, machine)?, tuned: None }),
        }
    }
}
