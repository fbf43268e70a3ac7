//! From a case to what is run: the plan that the operator makes of it, by a way that was named or by the lockfile, and its launches.

use std::sync::Arc;

use tessera_ops::{LaunchSpec, Machine, Plan, PlanError, Planned, Rung, Unsupported, Way};
use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, Lock, Site, Tensor};

use crate::case::Fault;
use crate::guarded::Guarded;
use crate::selection::Entry;
use crate::status::Status;
use crate::tune::TunedLaunch;

/// How an operator does a case.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// As the lockfile says, else as it chooses.
    Own,
    /// Cut into blocks in a way.
    Way(Way),
    /// By simpler kernels.
    Rung(&'static Rung),
}

/// A case as its operator is asked for it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) entry: Entry,
    pub(crate) manner: Manner,
    /// How its launches are compiled.
    pub(crate) options: CompileOptions,
    pub(crate) device: Device,
    /// Where choices are.
    pub(crate) lock: Option<Arc<Lock>>,
}

impl Asked {
    /// Everything needed to run it.
    pub(crate) fn plan(&self) -> Result<Planned, Fault> {
        let Entry { operator, problem, policy } = &self.entry;
        let machine = Machine::of(&self.device);
        let named = match &self.manner {
            Manner::Own => None,
            Manner::Way(way) => Some(operator.plan_in(problem, *policy, machine, way)),
            Manner::Rung(rung) => Some(operator.plan_on(rung, problem, *policy, machine)),
        };
        if let Some(plan) = named {
            return Ok(Planned { plan: plan.map_err(unsupported)?, tuned: None });
        }
        let lock = self.lock.as_deref().filter(|_| Lock::is_asked(&self.options));
        let planned = operator.plan_with(problem, *policy, machine, lock.map(|lock| (lock, Site::Device(&self.device))));
        planned.map_err(|error| match error {
            PlanError::Unsupported(why) => unsupported(why),
            error @ (PlanError::Lock(_) | PlanError::NoWay { .. }) => compile_fault(error),
        })
    }

    /// The kernel of each launch of a plan of it.
    pub(crate) fn kernels(&self, plan: &Plan) -> Result<Vec<Kernel>, KernelError> {
        self.entry.operator.kernels(plan, self.lock.as_ref())
    }

    /// The launches of a plan of it as a tuner looks at them, with the tensors that `tensor` has in the plan's places.
    pub(crate) fn launches(&self, plan: &Plan, tensor: impl Fn(usize) -> Tensor) -> Result<Vec<TunedLaunch>, Fault> {
        let kernels = self.kernels(plan).map_err(compile_fault)?;
        let launch = |(launch, kernel): (&LaunchSpec, Kernel)| TunedLaunch {
            kernel: kernel.without_lock(),
            arguments: launch.values(&tensor).into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
            grid: launch.grid.into(),
            options: launch.options(&self.options),
        };
        Ok(plan.launches.iter().zip(kernels).map(launch).collect())
    }

    /// The launches in each of some ways, on arrays of the device that the ways share.
    pub(crate) fn launches_in(&self, ways: &[&Way]) -> Result<Vec<Vec<TunedLaunch>>, Fault> {
        let mut shared: Vec<Guarded> = Vec::new();
        let mut launches = Vec::new();
        for &way in ways {
            let asked = Asked { manner: Manner::Way(way.clone()), ..self.clone() };
            let plan = asked.plan()?.plan;
            let mut places = Vec::new();
            for spec in &plan.tensors {
                let known = shared.iter().position(|tensor| tensor.is_of(spec));
                places.push(known.unwrap_or(shared.len()));
                if known.is_none() {
                    shared.push(Guarded::new(shared.len(), spec, &self.device)?);
                }
            }
            launches.push(asked.launches(&plan, |position| shared[places[position]].view().clone())?);
        }
        Ok(launches)
    }
}

/// What an operator does not do.
pub(crate) fn unsupported(why: Unsupported) -> Fault {
    Fault::new(Status::Unsupported, why.to_string())
}

/// What does not compile.
pub(crate) fn compile_fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(Status::CompileError, error.to_string())
}
