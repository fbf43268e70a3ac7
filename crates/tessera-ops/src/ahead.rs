//! Operators compiled ahead of time, for problems of given sizes.

use std::sync::Arc;

use tessera_runtime::{Array, CompileOptions, Constant, Fixed, KernelError, Lock, Packed, Site, Tuned, Variant};
use tessera_types::{Arch, Policy};

use crate::operator::{Argument, LaunchSpec, Machine, Operator, Plan, TensorSpec};
use crate::problem::Problem;
use crate::tuned::{PlanError, Planned};

/// Where arrays are taken to lie: at a multiple of what any kernel makes use of, as allocations do.
const ALIGNED: u64 = 256;

/// Why an operator is not packed.
#[derive(Debug, thiserror::Error)]
pub enum AheadError {
    /// It does not do the problem, or not as a lockfile says.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its arrays are beyond any memory.
    #[error("`{name}`: {why}")]
    Array {
        /// The array.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Its kernel does not compile.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// An operator that was compiled ahead of time.
#[derive(Clone, Debug)]
pub struct Ahead {
    /// Its launches, in order.
    pub packed: Vec<Packed>,
    /// The way to cut the problem into blocks that a lockfile chose.
    pub tuned: Option<Tuned>,
}

impl Operator {
    /// The launches of a problem in a precision, in order, compiled for a target: what a bundle holds. They are called by the operator, its
    /// variant and, where there are several, the launch: `softmax`, `gemm.nt`, `attention.2`. How the problem is cut into blocks and the choices of
    /// kernels come from a lockfile, where there is one.
    ///
    /// # Errors
    /// What [`Operator::plan_with`] refuses, and what does not compile.
    pub fn ahead(
        &self,
        problem: &Problem,
        policy: Policy,
        arch: Arch,
        options: &CompileOptions,
        lock: Option<&Arc<Lock>>,
    ) -> Result<Ahead, AheadError> {
        let asked = lock.filter(|_| Lock::is_asked(options)).map(|lock| (&**lock, Site::Target(arch.name())));
        let Planned { plan, tuned } = self.plan_with(problem, policy, Machine::Gpu(arch), asked)?;
        let kernels = self.kernels(&plan, lock)?;
        let mut packed: Vec<Packed> = Vec::new();
        for (position, (launch, kernel)) in plan.launches.iter().zip(&kernels).enumerate() {
            let mut compiled = kernel.ahead_of_launch(
                &launch.values_of(|position| array(&plan.tensors[position]))?,
                &launch.options(options),
                arch,
            )?;
            let variant = &mut compiled.variant;
            variant.kernel = self.name.to_owned();
            let kind = problem.kind();
            if !kind.is_empty() {
                variant.kernel.push_str(&format!(".{}", kind.replace(' ', ".")));
            }
            if plan.launches.len() > 1 {
                variant.kernel.push_str(&format!(".{}", position + 1));
            }
            variant.fixed = Some(fixed(&plan, launch, variant));
            packed.push(compiled);
        }
        Ok(Ahead { packed, tuned })
    }
}

/// The shapes that the launch is for, and its numbers, of which callers may want others.
fn fixed(plan: &Plan, launch: &LaunchSpec, variant: &Variant) -> Fixed {
    let mut fixed = Fixed { grid: launch.grid, shapes: Vec::new(), numbers: Vec::new() };
    for (name, argument) in &launch.arguments {
        let number = match *argument {
            Argument::Tensor(at) => {
                fixed.shapes.push((name.to_string(), plan.tensors[at].shape.clone()));
                continue;
            }
            Argument::Int(value) => Constant::Int(value),
            Argument::Float(value) => Constant::Float(value),
            Argument::Bool(value) => Constant::Bool(value),
            Argument::Type(value) => Constant::Type(value),
            // Part of the code in every kernel.
            Argument::Word(_) => continue,
        };
        // The others are part of the code.
        if variant.interface.abi.params.iter().any(|param| param.name == *name) {
            fixed.numbers.push((name.to_string(), number));
        }
    }
    fixed
}

fn array(tensor: &TensorSpec) -> Result<Array, AheadError> {
    let steps = (tensor.step != 1).then(|| vec![tensor.step; tensor.shape.len()]);
    let array = Array::new(tensor.dtype, ALIGNED, &tensor.shape, steps.as_deref());
    array.map_err(|why| AheadError::Array { name: tensor.name, why })
}
