//! Operators on arrays that there are.
//!
//! ```
//! use tessera_ops::{Call, find};
//! use tessera_runtime::Tensor;
//! use tessera_types::DType;
//! let gemm = find("gemm").expect("an operator");
//! let (a, b) = (Tensor::ones(DType::F32, &[3, 64])?, Tensor::ones(DType::F32, &[5, 64])?);
//! let call = Call { variant: Some("nt"), tensors: vec![("A", a), ("B", b)], scalars: vec![("alpha", 0.5)], lock: None };
//! let c = gemm.resolve(&call)?.run()?;
//! assert_eq!((c[0].shape(), c[0].read::<f32>()?[0]), (&[3, 5][..], 32.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Operator::resolve`] infers the extents and makes the plan of it, the one that is checked and measured; [`Resolved`] runs it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, Lock, PreparedLaunch, Site, Tensor, TensorError, Tuned};
use tessera_types::{DType, Policy, Storage};

use crate::operator::{Argument, Machine, Operator, Plan, Role};
use crate::problem::Problem;
use crate::signature::{Operand, Signature, Sizes};
use crate::tuned::{PlanError, Planned};

/// What an operator is given.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// Which of the operator's variants; the default one when absent.
    pub variant: Option<&'a str>,
    /// Arrays by name, all on one device.
    pub tensors: Vec<(&'a str, Tensor)>,
    /// Numbers by name; those that are absent have the suite's values.
    pub scalars: Vec<(&'a str, f64)>,
    /// Where choices are: how the problem is cut into blocks, and those of the kernels.
    pub lock: Option<Arc<Lock>>,
}

/// Why an operator does not take a call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The variant is not one, or none is given and none goes without saying.
    #[error("{operator} {}: it is one of {}", given.as_ref().map_or("needs a variant".into(), |it| format!("has no variant `{it}`")), words(taken))]
    Variant {
        /// The operator.
        operator: &'static str,
        /// What was asked for.
        given: Option<String>,
        /// What there is.
        taken: &'static [&'static str],
    },
    /// An argument that the operator does not take, or takes once.
    #[error("{operator} takes {taken}, and `{name}` is {what}")]
    Argument {
        /// The operator.
        operator: String,
        /// The argument.
        name: String,
        /// What is wrong with it.
        what: &'static str,
        /// What the operator takes.
        taken: String,
    },
    /// An array has more or fewer axes than the operator takes.
    #[error("`{}` has shape {shape:?}, and {operand} is wanted", operand.name())]
    Rank {
        /// What is wanted.
        operand: Operand,
        /// What was given.
        shape: Vec<usize>,
    },
    /// Two arrays do not agree.
    #[error(
        "`{axis}` is {} in `{}` and {} in `{}`: {} has shape {:?}, {} has shape {:?}",
        sizes[0], arrays[0].0.name(), sizes[1], arrays[1].0.name(), arrays[0].0, arrays[0].1, arrays[1].0, arrays[1].1
    )]
    Sizes {
        /// The axis that has two sizes.
        axis: &'static str,
        /// Which.
        sizes: [String; 2],
        /// The arrays with their shapes.
        arrays: Box<[(Operand, Vec<usize>); 2]>,
    },
    /// Two arrays should have one element type.
    #[error("`{}` holds `{}` and `{}` `{}`: {operator} takes arrays of one type", arrays[0].0, arrays[0].1, arrays[1].0, arrays[1].1)]
    Types {
        /// The operator.
        operator: &'static str,
        /// The arrays with their types.
        arrays: [(&'static str, DType); 2],
    },
    /// An array has a type of its own, and holds another one.
    #[error("`{name}` holds `{found}`, and {operator} takes `{wanted}` there")]
    OwnType {
        /// The operator.
        operator: &'static str,
        /// The array.
        name: &'static str,
        /// What it holds.
        found: DType,
        /// What it should hold.
        wanted: DType,
    },
    /// The output that was given holds another type than the operator gives.
    #[error("`{output}` holds `{found}`, and {operator} of `{input}` gives `{wanted}`")]
    OutputType {
        /// The operator.
        operator: &'static str,
        /// The output's name.
        output: &'static str,
        /// What it holds.
        found: DType,
        /// What it should hold.
        wanted: DType,
        /// What the inputs hold.
        input: DType,
    },
    /// The operator has no kernel for the type.
    #[error("{operator} takes no `{dtype}`: it takes {}", taken.join(", "))]
    Precision {
        /// The operator.
        operator: &'static str,
        /// The type.
        dtype: DType,
        /// What it takes.
        taken: Vec<String>,
    },
    /// A precision for arrays of another type.
    #[error("`{policy}` is for arrays of `{}`, and `{name}` holds `{found}`", policy.storage().name())]
    Stored {
        /// The precision.
        policy: Policy,
        /// The first array.
        name: &'static str,
        /// What it holds.
        found: DType,
    },
    /// An axis that follows from the others' extents and the numbers is another one.
    #[error("`{axis}` is {found} in {array}, and {wanted} follows from the other arrays and numbers")]
    Follows {
        /// The axis.
        axis: &'static str,
        /// Its extent in the array.
        found: String,
        /// Its extent as it follows.
        wanted: usize,
        /// The array.
        array: Operand,
    },
    /// Two arrays are not on one device.
    #[error("`{}` is on {} and `{}` on {}: copy one with `to_device`", arrays[0].0, arrays[0].1, arrays[1].0, arrays[1].1)]
    Devices {
        /// The arrays with their devices.
        arrays: Box<[(&'static str, String); 2]>,
    },
    /// A number that the operator cannot take.
    #[error("`{name}` is {value}: {why}")]
    Scalar {
        /// Its name.
        name: String,
        /// Its value.
        value: f64,
        /// Why not.
        why: String,
    },
    /// An array holds what the operator cannot take.
    #[error("`{name}`: {why}")]
    Values {
        /// The array.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The operator does not do a problem of these sizes, or not as a lockfile says.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An array's memory cannot be had or used.
    #[error("`{name}`: {error}")]
    Memory {
        /// The array.
        name: &'static str,
        /// Why.
        error: TensorError,
    },
    /// The kernel does not compile for the device, or stopped.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

fn words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// A call whose extents are known: the plan, with the arrays that were given in its places.
#[derive(Debug)]
pub struct Resolved {
    operator: &'static Operator,
    pub(crate) plan: Plan,
    /// What was given for each of the plan's tensors, in the plan's shapes.
    pub(crate) given: Vec<Option<Tensor>>,
    outputs: Vec<OutputArray>,
    device: Device,
    /// Where choices for its kernels are.
    lock: Option<Arc<Lock>>,
    /// The way of the lockfile that the plan was made by.
    tuned: Option<Tuned>,
}

/// One of a call's results.
#[derive(Clone, Debug)]
pub struct OutputArray {
    /// Its name.
    pub name: &'static str,
    /// Its element type.
    pub dtype: DType,
    /// Its shape, as callers see it.
    pub shape: Vec<usize>,
    /// The array that was given for it.
    pub given: Option<Tensor>,
    /// Its place in the plan.
    position: usize,
}

impl OutputArray {
    /// Whether it is the plan's tensor of this place.
    pub(crate) fn is_at(&self, position: usize) -> bool {
        self.position == position
    }

    /// A result of a plan, for sizes that are known.
    pub(crate) fn of(operand: Operand, plan: &Plan, sizes: &Sizes) -> OutputArray {
        let name = operand.name();
        let position = plan.tensors.iter().position(|spec| spec.name == name).expect("a signature names tensors of its plan");
        OutputArray { name, dtype: plan.tensors[position].dtype, shape: operand.shape(sizes), given: None, position }
    }

    /// The array that was given, else a new one, which the plan writes.
    fn array(&self, device: &Device) -> Result<Tensor, CallError> {
        match &self.given {
            Some(given) => Ok(given.clone()),
            None => Tensor::unwritten_on(self.dtype, &self.shape, device).map_err(|error| memory(self.name, error)),
        }
    }
}

impl Operator {
    /// What a variant takes and gives; the variant is the default one when absent.
    pub fn signature(&self, variant: Option<&str>) -> Result<(&'static str, Signature), CallError> {
        let wrong = || CallError::Variant { operator: self.name, given: variant.map(Into::into), taken: self.calls.variants };
        let variant = match variant {
            None => self.calls.default.ok_or_else(wrong)?,
            Some(word) => self.calls.variants.iter().copied().find(|own| *own == word).ok_or_else(wrong)?,
        };
        Ok((variant, (self.calls.signature)(variant)))
    }

    /// Infers the extents of a call and plans it for the device on which its arrays are, in the precision that their types say.
    pub fn resolve(&'static self, call: &Call<'_>) -> Result<Resolved, CallError> {
        self.resolve_in(call, None)
    }

    /// The same in a precision: what arrays hold can be computed with in several ways.
    ///
    /// # Errors
    /// Where the first array holds another type than the policy stores, too.
    pub fn resolve_in(&'static self, call: &Call<'_>, policy: Option<Policy>) -> Result<Resolved, CallError> {
        let (variant, signature) = self.signature(call.variant)?;
        let names: Vec<&str> = call.tensors.iter().map(|(name, _)| *name).collect();
        self.refuse_unknown(&names, &call.scalars, variant, &signature)?;
        signature.refuse_numbers(&call.scalars)?;
        self.refuse_unread(&names, &call.scalars, variant, &signature)?;
        self.refuse_sizeless(&names, variant, &signature)?;
        let find = |operand: Operand| call.tensors.iter().find(|(name, _)| *name == operand.name()).map(|(_, tensor)| tensor);
        let given: Vec<(Operand, &Tensor)> = signature.arrays().filter_map(|operand| Some((operand, find(operand)?))).collect();
        // What has a type of its own does not say what the others hold.
        let says_type = |(operand, _): &&(Operand, &Tensor)| !signature.types.iter().any(|(name, _)| *name == operand.name());
        let (first, one) = *given.iter().find(says_type).unwrap_or(&given[0]);
        for &(operand, tensor) in &given {
            self.refuse_type(&signature, (first, one.dtype()), (operand, tensor.dtype()))?;
            if !same_device(&one.device(), &tensor.device()) {
                let arrays = [(first.name(), one.device().to_string()), (operand.name(), tensor.device().to_string())];
                return Err(CallError::Devices { arrays: Box::new(arrays) });
            }
        }
        let mut sizes = Sizes::new(variant, one.dtype());
        given.iter().try_for_each(|(operand, tensor)| sizes.bind(*operand, tensor.shape()))?;
        let problem = self.problem_of(&signature, &mut sizes, &call.scalars)?;
        let named = |name: &str| given.iter().find(|(operand, _)| operand.name() == name).map(|(_, tensor)| *tensor);
        signature.refuse_values(&call.scalars, named)?;
        let device = one.device();
        let wanted = signature.outputs.first().and_then(|output| find(*output)).map(Tensor::dtype);
        let policy = match policy {
            Some(policy) if policy.storage() == Storage::Plain(one.dtype()) => policy,
            Some(policy) => return Err(CallError::Stored { policy, name: first.name(), found: one.dtype() }),
            None => self.policy_of(one.dtype(), wanted)?,
        };
        let lock = call.lock.as_deref().map(|lock| (lock, Site::Device(&device)));
        let Planned { mut plan, tuned } = self.plan_with(&problem, policy, Machine::of(&device), lock)?;
        self.set_scalars(&mut plan, &call.scalars)?;
        let result = |operand: &Operand| {
            let output = OutputArray { given: find(*operand).cloned(), ..OutputArray::of(*operand, &plan, &sizes) };
            self.refuse_output_type(&output, output.given.as_ref().map(Tensor::dtype), one.dtype())?;
            Ok(output)
        };
        let outputs = signature.outputs.iter().map(result).collect::<Result<Vec<_>, CallError>>()?;
        let in_place = |spec: &crate::TensorSpec| {
            let found = given.iter().find(|(operand, _)| operand.name() == spec.name && spec.role == Role::Input);
            found
                .map(|(operand, tensor)| in_shape(tensor, &spec.shape).map_err(|error| memory(operand.name(), error)))
                .transpose()
        };
        let given = plan.tensors.iter().map(in_place).collect::<Result<_, _>>()?;
        Ok(Resolved { operator: self, plan, given, outputs, device, lock: call.lock.clone(), tuned })
    }

    /// The problem of the sizes that a call's arrays say, with its numbers; axes that follow from it are bound.
    pub(crate) fn problem_of(
        &self,
        signature: &Signature,
        sizes: &mut Sizes,
        scalars: &[(&str, f64)],
    ) -> Result<Problem, CallError> {
        let mut problem = (self.calls.problem)(sizes).map_err(PlanError::from)?;
        // Numbers of the problem have a part in its plan; others are arguments of its launches alone.
        for &own in self.numbers {
            if let Some((_, value)) = scalars.iter().find(|(name, _)| *name == own.0) {
                problem = problem.with_number(own, *value);
            }
        }
        for (axis, extent) in signature.follows {
            sizes.follow(axis, extent(&problem).map_err(PlanError::from)?)?;
        }
        Ok(problem)
    }

    /// Gives the numbers of a plan's launches the values of a call.
    pub(crate) fn set_scalars(&self, plan: &mut Plan, scalars: &[(&str, f64)]) -> Result<(), CallError> {
        let of_launches = scalars.iter().filter(|(name, _)| !self.numbers.iter().any(|(own, _)| own == name));
        of_launches.into_iter().try_for_each(|(name, value)| set_scalar(plan, name, *value))
    }

    /// Refuses an array that holds neither the first one's type nor its own.
    pub(crate) fn refuse_type(
        &self,
        signature: &Signature,
        (first, dtype): (Operand, DType),
        (operand, found): (Operand, DType),
    ) -> Result<(), CallError> {
        let own = signature.own_type(operand.name(), dtype);
        if let Some(wanted) = own.filter(|wanted| *wanted != found) {
            return Err(CallError::OwnType { operator: self.name, name: operand.name(), found, wanted });
        }
        if own.is_none() && found != dtype && !signature.outputs.contains(&operand) {
            let arrays = [(first.name(), dtype), (operand.name(), found)];
            return Err(CallError::Types { operator: self.name, arrays });
        }
        Ok(())
    }

    /// What is wrong with an argument of a variant.
    pub(crate) fn wrong(&self, variant: &str, signature: &Signature, name: &str, what: &'static str) -> CallError {
        let inputs = signature.inputs.iter().map(|operand| operand.to_string());
        let mut taken = inputs.collect::<Vec<_>>().join(", ");
        let outputs: Vec<String> = signature.outputs.iter().map(|operand| operand.to_string()).collect();
        taken.push_str(&format!(" and gives {}", outputs.join(", ")));
        if !signature.scalars.is_empty() {
            taken.push_str(&format!(", with {}", words(signature.scalars)));
        }
        let operator = if variant.is_empty() { self.name.to_string() } else { format!("{} {variant}", self.name) };
        CallError::Argument { operator, name: name.into(), what, taken }
    }

    /// Refuses arguments that the variant does not take, and asks for the inputs.
    pub(crate) fn refuse_unknown(
        &self,
        given: &[&str],
        scalars: &[(&str, f64)],
        variant: &str,
        signature: &Signature,
    ) -> Result<(), CallError> {
        let wrong = |name: &str, what| self.wrong(variant, signature, name, what);
        let arrays: Vec<&str> = signature.arrays().map(|operand| operand.name()).collect();
        let names: Vec<&str> = given.iter().copied().chain(scalars.iter().map(|(name, _)| *name)).collect();
        for (at, name) in names.iter().enumerate() {
            let is_array = at < given.len();
            match (arrays.contains(name), signature.scalars.contains(name)) {
                _ if names[..at].contains(name) => return Err(wrong(name, "given twice")),
                (true, _) if !is_array => return Err(wrong(name, "a number here, not an array")),
                (_, true) if is_array => return Err(wrong(name, "an array here, not a number")),
                (false, false) => return Err(wrong(name, "none of them")),
                _ => {}
            }
        }
        match signature.inputs.iter().find(|operand| !given.contains(&operand.name())) {
            Some(missing) => Err(wrong(missing.name(), "not given")),
            None => Ok(()),
        }
    }

    /// Asks for the outputs that are read as well.
    pub(crate) fn refuse_unread(
        &self,
        given: &[&str],
        scalars: &[(&str, f64)],
        variant: &str,
        signature: &Signature,
    ) -> Result<(), CallError> {
        let rereads = scalars.iter().any(|(name, value)| signature.rereads == Some(*name) && *value != 0.0);
        let is_read = |(at, output): (usize, &Operand)| at == 0 && rereads || signature.updated.contains(&output.name());
        let absent =
            signature.outputs.iter().enumerate().find(|&(at, output)| !given.contains(&output.name()) && is_read((at, output)));
        match absent {
            Some((_, output)) => Err(self.wrong(variant, signature, output.name(), "not given, but read as well")),
            None => Ok(()),
        }
    }

    /// Asks for the outputs of which nothing else says how large they are.
    fn refuse_sizeless(&self, given: &[&str], variant: &str, signature: &Signature) -> Result<(), CallError> {
        let absent = signature.outputs.iter().find(|output| !given.contains(&output.name()) && signature.says_sizes(**output));
        match absent {
            Some(output) => {
                Err(self.wrong(variant, signature, output.name(), "not given, and nothing else says how large it is"))
            }
            None => Ok(()),
        }
    }

    /// Refuses a result of another type than the operator gives.
    pub(crate) fn refuse_output_type(&self, output: &OutputArray, found: Option<DType>, input: DType) -> Result<(), CallError> {
        let &OutputArray { name, dtype: wanted, .. } = output;
        match found.filter(|found| *found != wanted) {
            Some(found) => Err(CallError::OutputType { operator: self.name, output: name, found, wanted, input }),
            None => Ok(()),
        }
    }

    /// The operator's policy for arrays of a type: the one that gives results of the type that is wanted, where there is one, else the
    /// first.
    pub(crate) fn policy_of(&self, dtype: DType, wanted: Option<DType>) -> Result<Policy, CallError> {
        let policies = || self.precisions.iter().chain(self.further_precisions).filter_map(|text| text.parse::<Policy>().ok());
        let stored = |policy: &Policy| match policy.storage() {
            Storage::Plain(own) => Some(own),
            Storage::Scaled(_) => None,
        };
        let own = || policies().filter(|policy| stored(policy) == Some(dtype));
        let named = own().find(|policy| wanted.is_some() && policy.result() == wanted);
        named.or_else(|| own().next()).ok_or_else(|| {
            let mut taken: Vec<String> = policies().filter_map(|policy| Some(stored(&policy)?.to_string())).collect();
            let mut seen = BTreeSet::new();
            taken.retain(|name| seen.insert(name.clone()));
            CallError::Precision { operator: self.name, dtype, taken }
        })
    }
}

fn same_device(one: &Device, other: &Device) -> bool {
    match (one, other) {
        (Device::Cpu, Device::Cpu) => true,
        (Device::Driver(one), Device::Driver(other)) => one.is(other),
        (Device::Cpu, Device::Driver(_)) | (Device::Driver(_), Device::Cpu) => false,
    }
}

fn memory(name: &'static str, error: TensorError) -> CallError {
    CallError::Memory { name, error }
}

/// The tensor under another shape of as many elements; in its own, it may lie in memory as it likes.
fn in_shape(tensor: &Tensor, shape: &[usize]) -> Result<Tensor, TensorError> {
    if tensor.shape() == shape {
        return Ok(tensor.clone());
    }
    let packed = if tensor.is_contiguous() { tensor.clone() } else { tensor.contiguous()? };
    packed.reshape(shape)
}

/// Gives a number of the launches another value than the suite's.
fn set_scalar(plan: &mut Plan, name: &str, value: f64) -> Result<(), CallError> {
    let mut taken = plan.launches.is_empty();
    let arguments = plan.launches.iter_mut().flat_map(|launch| &mut launch.arguments).filter(|(own, _)| *own == name);
    for (_, argument) in arguments {
        taken = true;
        *argument = match argument {
            Argument::Int(_) if value.fract() == 0.0 && value.abs() < 2f64.powi(53) => Argument::Int(value as i64),
            Argument::Int(_) => {
                return Err(CallError::Scalar { name: name.into(), value, why: "the arrays hold integers, so it is one".into() });
            }
            _ => Argument::Float(value),
        };
    }
    match taken {
        true => Ok(()),
        false => Err(CallError::Scalar { name: name.into(), value, why: "arrays of this type take no such number".into() }),
    }
}

impl Resolved {
    /// The way to cut the problem into blocks that a lockfile chose.
    pub fn tuned(&self) -> Option<&Tuned> {
        self.tuned.as_ref()
    }

    /// What it gives, in the operator's order.
    pub fn outputs(&self) -> &[OutputArray] {
        &self.outputs
    }

    /// Where it runs: the device of its arrays.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Refuses results in the memory of what is read, and of other results: of several launches one may read, or write over, what an earlier one has
    /// written. A launch of its own does so for its arguments, of which some may lie in one place.
    fn refuse_shared(&self, tensors: &[Tensor]) -> Result<(), CallError> {
        if self.plan.launches.len() < 2 {
            return Ok(());
        }
        for OutputArray { name, position, .. } in &self.outputs {
            let is_other = |(at, spec): (usize, &crate::TensorSpec)| {
                spec.role == Role::Input || self.outputs.iter().any(|output| output.position == at && at < *position)
            };
            let others = self.plan.tensors.iter().enumerate().filter(|&(at, spec)| at != *position && is_other((at, spec)));
            let shared = others.into_iter().find(|(at, _)| tensors[*at].overlaps(&tensors[*position]));
            if let Some((_, input)) = shared {
                return Err(CallError::Values {
                    name,
                    why: format!("it is written in the memory of `{}`: pass a copy", input.name),
                });
            }
        }
        Ok(())
    }

    /// Compiles the launches that write arrays of the shapes and types of [`Resolved::outputs`], one for each of these, or finds them compiled. They
    /// run in order.
    pub fn prepare(&self, outputs: &[Tensor], options: &CompileOptions) -> Result<Vec<PreparedLaunch>, CallError> {
        let tensors = self.tensors(outputs)?;
        Ok(self.plan.prepare(&self.kernels()?, |position| tensors[position].clone(), options, &self.device)?)
    }

    /// The plan's kernels.
    pub(crate) fn kernels(&self) -> Result<Vec<Kernel>, CallError> {
        Ok(self.operator.kernels(&self.plan, self.lock.as_ref())?)
    }

    /// The plan's tensors: those that were given, the results, and new ones for what the call keeps to itself.
    pub(crate) fn tensors(&self, outputs: &[Tensor]) -> Result<Vec<Tensor>, CallError> {
        let mut tensors = Vec::new();
        for (position, (spec, given)) in self.plan.tensors.iter().zip(&self.given).enumerate() {
            let output = self.outputs.iter().position(|output| output.position == position).map(|at| &outputs[at]);
            let tensor = match (given, output) {
                (Some(tensor), _) => Ok(tensor.clone()),
                // Written as it lies: a copy would be written in its place.
                (None, Some(output)) if output.shape() == spec.shape => Ok(output.clone()),
                (None, Some(output)) => output.reshape(&spec.shape),
                (None, None) => Tensor::zeros_on(spec.dtype, &spec.shape, &self.device),
            };
            tensors.push(tensor.map_err(|error| memory(spec.name, error))?);
        }
        self.refuse_shared(&tensors)?;
        Ok(tensors)
    }

    /// Runs it and gives the outputs, in the operator's order: those that were given, else new ones on the device of the inputs.
    pub fn run(&self) -> Result<Vec<Tensor>, CallError> {
        let outputs = self.outputs.iter().map(|output| output.array(&self.device)).collect::<Result<Vec<_>, _>>()?;
        self.prepare(&outputs, &CompileOptions::default())?.iter().try_for_each(PreparedLaunch::run)?;
        Ok(outputs)
    }
}
