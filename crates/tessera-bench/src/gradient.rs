//! Whether an operator's gradient is the gradient of what it computes.
//!
//! For a problem, random cotangents `dy` and a random direction `v` of the inputs, the derivative along `v` is known twice:
//!
//! ```text
//! sum(dx * v)                                           what the gradient's operator says (a vector-Jacobian product)
//! (sum(dy * f(x + h v)) - sum(dy * f(x - h v))) / 2 h    what the operator itself says (a Jacobian-vector product)
//! ```
//!
//! Both come from the references, in f64: the gate holds each kernel to its reference, in each precision, and this holds one reference to the other.
//!
//! Each side is one number, so what is found is an error whose part along the direction, the sum of `error * v`, exceeds the bound: a millionth of the sum
//! of magnitudes of `dx * v`, and what rounding leaves of the difference. An element far below a millionth of that sum may be wrong and pass; errors that
//! cancel along one direction show along the next, which each trial draws anew.

use std::sync::Arc;

use tessera_ops::{Machine, Operator, Plan, Problem, Role, TensorSpec};
use tessera_runtime::RandomStream;
use tessera_types::Policy;

use crate::case::Fault;
use crate::status::Status;
use crate::values::Values;

/// Step of the difference: it errs by the step squared and by the rounding of sums over the step, and few elements lie so near to a kink.
const STEP: f64 = 1e-6;
/// The least step. Where elements are put in order, two that lie nearer to each other than the step change places, of many there are such: it is taken
/// smaller until all places stay. What is put in order is not rounded; what else is there is held to what rounding over so small a step leaves, a
/// thousandth of its magnitude at the least one.
const LEAST_STEP: f64 = 1e-12;

/// How far apart numbers are put that would be equal.
const APART: f64 = 1e-9;
/// How far both sides may be apart, of the sum of magnitudes: rounding of references' sums over the step, with two digits to spare.
const TOLERANCE: f64 = 1e-6;

/// Both sides for one problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientCheck {
    /// By the gradient's operator.
    pub gradient: f64,
    /// By differences of the operator's results.
    pub difference: f64,
    /// How far apart they may be.
    pub bound: f64,
}

impl GradientCheck {
    /// Whether they agree.
    pub fn passed(&self) -> bool {
        (self.gradient - self.difference).abs() <= self.bound
    }
}

/// The precision in which an operator's references round least: `fp64` where it has that, else `fp32`, else its first.
pub fn widest(operator: &Operator) -> Option<Policy> {
    let policies: Vec<Policy> =
        operator.precisions.iter().chain(operator.further_precisions).filter_map(|text| text.parse().ok()).collect();
    let of = |name: &str| policies.iter().copied().find(|policy| policy.to_string() == name);
    of("fp64").or_else(|| of("fp32")).or_else(|| policies.first().copied())
}

/// Holds the gradient of a problem to the operator.
///
/// # Errors
/// Where one of both does not do the problem; where the gradient's operator asks for something that the operator does not have or gives what is no
/// gradient of its inputs: a mistake in their names.
pub fn check_gradient(operator: &Operator, problem: &Problem, policy: Policy, seed: u64) -> Result<GradientCheck, Fault> {
    let backward = operator.gradient.ok_or_else(|| Fault::new(Status::Unsupported, "the operator has no gradient"))?;
    let planned = |operator: &Operator| {
        let plan = operator.plan(problem, policy, Machine::Cpu);
        plan.map_err(|why| Fault::new(Status::Unsupported, why.to_string()))
    };
    hold(operator.name, &planned(operator)?, &planned(backward)?, seed)
}

/// The same for plans.
///
/// # Errors
/// Mistakes in the names of the gradient's tensors.
pub fn hold(operator: &str, forward: &Plan, backward: &Plan, seed: u64) -> Result<GradientCheck, Fault> {
    let mut values = Values::drawn(forward, seed, false)?;
    let is_integer = |at: usize| !forward.tensors[forward.outputs[at].tensor].dtype.is_float();
    if (0..forward.outputs.len()).any(is_integer) {
        // Where results say places, numbers that are equal would change theirs at any step.
        for (tensor, spec) in values.tensors.iter_mut().zip(&forward.tensors) {
            if spec.role == Role::Input && spec.dtype.is_float() {
                *tensor = Arc::new(tensor.iter().enumerate().map(|(at, x)| x + APART * at as f64).collect());
            }
        }
    }
    let results = values.results(forward);
    let cotangents: Vec<Arc<Vec<f64>>> = forward
        .outputs
        .iter()
        .map(|output| {
            let spec = &forward.tensors[output.tensor];
            normal(seed, &format!("d{}", spec.name), if spec.dtype.is_float() { spec.len() } else { 0 })
        })
        .collect();

    let wrong = |what: String| Fault::new(Status::HarnessError, what);
    let given = |spec: &TensorSpec| -> Result<Arc<Vec<f64>>, Fault> {
        let own = forward.tensors.iter().position(|own| own.name == spec.name && own.role == Role::Input);
        let output = |name: &str| forward.outputs.iter().position(|output| forward.tensors[output.tensor].name == name);
        let found = own.map(|at| &values.tensors[at]).or_else(|| output(spec.name).map(|at| &results[at]));
        let found = found.or_else(|| Some(&cotangents[output(spec.name.strip_prefix('d')?)?]));
        match found {
            Some(found) if found.len() == spec.len() => Ok(Arc::clone(found)),
            Some(found) => Err(wrong(format!("`{}` has {} elements, and its gradient's {}", spec.name, found.len(), spec.len()))),
            None => Err(wrong(format!("`{}` is neither an input nor a result of {operator}, nor a cotangent", spec.name))),
        }
    };
    let inputs = backward.tensors.iter().map(|spec| match spec.role {
        Role::Input => given(spec),
        Role::Output | Role::InOut | Role::Workspace | Role::Counter => Ok(Arc::default()),
    });
    let inputs = Values::of(backward, inputs.collect::<Result<_, _>>()?);
    let gradients = inputs.results(backward);

    let (mut gradient, mut magnitude) = (0.0, 0.0);
    let mut moved = Vec::new();
    for (output, along) in backward.outputs.iter().zip(&gradients) {
        let name = backward.tensors[output.tensor].name;
        let of = |spec: &TensorSpec| spec.role == Role::Input && name.strip_prefix('d') == Some(spec.name);
        let at = forward.tensors.iter().position(of).ok_or_else(|| wrong(format!("`{name}` is the gradient of no input")))?;
        let direction = normal(seed, &format!("v.{name}"), along.len());
        let terms = along.iter().zip(direction.iter()).map(|(dx, v)| dx * v);
        gradient += terms.clone().sum::<f64>();
        magnitude += terms.map(f64::abs).sum::<f64>();
        moved.push((at, direction));
    }
    // What the operator gives a step along the direction: the loss, the size of its terms, and whether all integers are those of no step.
    let mut loss = |step: f64| {
        let base = values.tensors.clone();
        for (at, direction) in &moved {
            let tensor = base[*at].iter().zip(direction.iter()).map(|(x, v)| x + step * v);
            values.tensors[*at] = Arc::new(tensor.collect());
        }
        let moved = values.results(forward);
        values.tensors = base;
        let stay = (0..moved.len()).filter(|&at| is_integer(at)).all(|at| moved[at] == results[at]);
        let terms = moved.iter().zip(&cotangents).flat_map(|(y, dy)| y.iter().zip(dy.iter()).map(|(y, dy)| y * dy));
        (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>(), stay)
    };
    let mut step = STEP;
    let (above, below, size) = loop {
        let ((above, size, stay), (below, _, stay_below)) = (loss(step), loss(-step));
        if stay && stay_below {
            break (above, below, size);
        }
        step /= 10.0;
        if step < LEAST_STEP {
            return Err(wrong(format!("places of {operator}'s results change however small a step is")));
        }
    };
    let bound = TOLERANCE * magnitude + 4.0 * f64::EPSILON * size / step;
    Ok(GradientCheck { gradient, difference: (above - below) / (2.0 * step), bound })
}

fn normal(seed: u64, name: &str, count: usize) -> Arc<Vec<f64>> {
    let stream = RandomStream::named(seed, name);
    Arc::new((0..count as u64).map(|index| stream.normal(index)).collect())
}
