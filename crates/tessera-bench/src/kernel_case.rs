//! A user's kernel as a case: what it is launched on, what its results should be, and what is timed beside it.
//!
//! Arguments are kept as they were described and made when they are needed, so that a row of sizes takes the memory of one. Every
//! kernel of a case is given, by name, the arguments that it has parameters for. The reference is the user's own where there is
//! one for an array: a file, or another kernel; else an unoptimised run of the kernel, on the CPU.

use tessera_runtime::argspec::Argument;
use tessera_runtime::{
    CompileOptions, Device, Kernel, KernelError, LaunchGrid, LaunchOptions, OptLevel, PreparedLaunch, Tensor, TensorError,
    Unwritten, Value,
};

use tessera_types::TimeLimit;

use crate::case::Fault;
use crate::guarded::memory_fault;
use crate::library::TESSERA;
use crate::status::Status;
use crate::tolerance::{Allowed, Tolerance};
use crate::tune::TunedLaunch;

/// A kernel beside the one that is measured.
#[derive(Clone, Debug)]
pub struct OtherKernel {
    /// What it is called in results: `FILE::KERNEL`.
    pub name: String,
    /// The kernel.
    pub kernel: Kernel,
    /// Its blocks.
    pub grid: LaunchGrid,
}

/// What results should be.
#[derive(Clone, Debug)]
pub enum Against {
    /// What another kernel writes: all, or the array of a name.
    Kernel(Option<String>, OtherKernel),
    /// Contents of the array of a name, or of the only one that the kernel writes.
    Array(Option<String>, Tensor),
}

/// A kernel, what it is launched on, and how it is compiled and judged.
#[derive(Clone, Debug)]
pub struct KernelCase {
    /// The kernel.
    pub kernel: Kernel,
    /// Arguments, made on the CPU.
    pub arguments: Vec<Argument>,
    /// The arguments as they were written, for the case's identity.
    pub texts: Vec<String>,
    /// Sizes by name, where arguments were written with names.
    pub sizes: Vec<(String, u64)>,
    /// Blocks.
    pub grid: LaunchGrid,
    /// How to compile.
    pub options: CompileOptions,
    /// References of the user's own.
    pub against: Vec<Against>,
    /// How far results may lie from the reference.
    pub tolerance: Tolerance,
    /// Kernels that are timed in turn with it.
    pub baselines: Vec<OtherKernel>,
    /// How long a launch that the harness waits for may take.
    pub limit: TimeLimit,
}

/// Why kernels are no suite.
#[derive(Debug, thiserror::Error)]
pub enum KernelSuiteError {
    /// A kernel does not take its arguments.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An argument cannot be made.
    #[error("`{0}`: {1}")]
    Argument(String, String),
    /// A reference or a baseline has nothing to do with what the kernel writes.
    #[error("`{name}` {what}: `{kernel}` writes {}", written.join(", "))]
    Unrelated {
        /// The reference or baseline.
        name: String,
        /// What is wrong with it.
        what: String,
        /// The kernel.
        kernel: String,
        /// What the kernel writes.
        written: Vec<String>,
    },
}

/// The arrays of an argument.
pub(crate) fn arrays(value: &Value) -> &[Tensor] {
    match value {
        Value::Tensor(tensor) => std::slice::from_ref(tensor),
        Value::List(items) => items,
        _ => &[],
    }
}

/// The arguments with other arrays in the place of their own, in order.
pub(crate) fn with_arrays(arguments: &[(String, Value)], mut array: impl Iterator<Item = Tensor>) -> Vec<(&str, Value)> {
    let value = |value: &Value, array: &mut dyn Iterator<Item = Tensor>| match value {
        Value::Tensor(own) => Value::Tensor(array.next().unwrap_or_else(|| own.clone())),
        Value::List(items) => Value::List(array.take(items.len()).collect()),
        other => other.clone(),
    };
    arguments.iter().map(|(name, own)| (name.as_str(), value(own, &mut array))).collect()
}

pub(crate) fn kernel_fault(error: KernelError) -> Fault {
    let status = match &error {
        KernelError::Unsupported { .. } => Status::Unsupported,
        KernelError::Memory { .. } => Status::Oom,
        // What a kernel must not do is its mistake, as a wrong result is.
        KernelError::Fault { .. } => Status::Incorrect,
        KernelError::Device(error) if error.is_of_kernel() => Status::Incorrect,
        KernelError::NeverEnds(_) => Status::Timeout,
        KernelError::Device(error) if error.poisons_context() => Status::RuntimeError,
        _ => Status::CompileError,
    };
    Fault::new(status, error.to_string())
}

pub(crate) fn harness_fault(error: TensorError) -> Fault {
    Fault::new(Status::HarnessError, error.to_string())
}

/// One kernel of a case.
#[derive(Clone, Debug)]
pub(crate) struct Entrant {
    pub(crate) kernel: Kernel,
    grid: LaunchGrid,
    options: CompileOptions,
    /// What it is given.
    pub(crate) arguments: Vec<(String, Value)>,
    /// How long a launch may take.
    limit: TimeLimit,
}

impl Entrant {
    /// Compiles it for its arguments with other arrays.
    pub(crate) fn prepare(&self, tensors: impl Iterator<Item = Tensor>, device: &Device) -> Result<PreparedLaunch, KernelError> {
        self.kernel.prepare(&with_arrays(&self.arguments, tensors), self.grid, &self.options, device)
    }

    /// Runs what it was compiled to.
    pub(crate) fn run(&self, launch: &PreparedLaunch) -> Result<(), KernelError> {
        launch.run_with(&LaunchOptions { limit: self.limit, ..LaunchOptions::default() }).map(drop)
    }

    /// All its arrays.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Tensor> {
        self.arguments.iter().flat_map(|(_, value)| arrays(value))
    }

    /// Names of the arguments that it reads, and of those that it writes.
    pub(crate) fn touched(&self) -> Result<[Vec<String>; 2], KernelError> {
        let plain = Entrant { kernel: self.kernel.clone().without_lock(), ..self.clone() };
        let launch = plain.prepare(self.arrays().cloned(), &Device::Cpu)?;
        Ok([launch.read().map(str::to_string).collect(), launch.written().map(str::to_string).collect()])
    }

    /// Names of the arguments that it writes.
    fn written(&self) -> Result<Vec<String>, KernelError> {
        self.touched().map(|[_, written]| written)
    }

    /// What it leaves in arguments like its own without optimisation, on the CPU.
    fn unoptimised(&self, arguments: &[(String, Value)]) -> Result<Vec<(String, Value)>, Fault> {
        let plain = Entrant {
            options: CompileOptions { level: OptLevel::O0, plan: None, ..self.options.clone() },
            arguments: arguments.to_vec(),
            ..self.clone()
        };
        let copies: Vec<Tensor> =
            plain.arrays().map(|tensor| tensor.contiguous().map_err(memory_fault)).collect::<Result<_, _>>()?;
        plain.prepare(copies.iter().cloned(), &Device::Cpu).and_then(|launch| plain.run(&launch)).map_err(kernel_fault)?;
        let values = with_arrays(arguments, copies.into_iter());
        Ok(values.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }
}

/// The array of an argument, or of its list, at a place.
fn array_of(values: &[(String, Value)], name: &str, item: usize) -> Option<Tensor> {
    values.iter().find(|(own, _)| own == name).and_then(|(_, value)| arrays(value).get(item).cloned())
}

/// What an unoptimised run left unwritten of arrays that it has stores to: elements that show the poison of a run after it, too.
fn unwritten(entrant: &Entrant, written: &[String], left: &[(String, Value)]) -> Result<Vec<Unwritten>, Fault> {
    let empty = |(_, value): &&(String, Value)| arrays(value).iter().any(Tensor::is_poisoned);
    let suspects: Vec<&(String, Value)> =
        entrant.arguments.iter().filter(empty).filter(|(name, _)| written.contains(name)).collect();
    let mut shows = false;
    for (name, _) in &suspects {
        let of_name = left.iter().filter(|(own, _)| own == name);
        for tensor in of_name.flat_map(|(_, value)| arrays(value)) {
            shows |= tensor.shows_poison(0).map_err(harness_fault)?;
        }
    }
    if !shows {
        return Ok(Vec::new());
    }
    let copies: Vec<Tensor> =
        entrant.arrays().map(|tensor| tensor.contiguous().map_err(memory_fault)).collect::<Result<_, _>>()?;
    copies.iter().filter(|copy| copy.is_poisoned()).try_for_each(|copy| copy.poison_as(1).map_err(harness_fault))?;
    let otherwise: Vec<(String, Value)> =
        with_arrays(&entrant.arguments, copies.into_iter()).into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let again = entrant.unoptimised(&otherwise)?;
    let mut found = Vec::new();
    for (name, value) in suspects {
        for item in 0..arrays(value).len() {
            let (Some(one), Some(two)) = (array_of(left, name, item), array_of(&again, name, item)) else { continue };
            found.extend(Unwritten::by_poison(name, (&one, 0), (&two, 1)).map_err(harness_fault)?);
        }
    }
    Ok(found)
}

/// Refuses a reference that leaves elements unwritten: of those it says nothing, and what differs from it there is not wrong for that.
fn refuse_partial(kernel: &str, unwritten: &[Unwritten]) -> Result<(), Fault> {
    match unwritten {
        [] => Ok(()),
        [Unwritten { name, count, elements, .. }, ..] => Err(Fault::new(
            Status::HarnessError,
            format!("`{kernel}` is no reference: it leaves {count} of {elements} elements of `{name}` unwritten"),
        )),
    }
}

/// Refuses a reference with infinities, or elements that are no numbers, which the kernel makes of finite inputs as well: made by the same mistake,
/// they prove nothing.
fn refuse_own_infinities(entrant: &Entrant, (name, item): (&str, usize), want: &Tensor) -> Result<(), Fault> {
    let numbers = want.to_f64().map_err(harness_fault)?;
    if !want.dtype().is_float() || numbers.iter().all(|number| number.is_finite()) {
        return Ok(());
    }
    let mut is_other = false;
    let mut finite = Vec::new();
    for (name, value) in &entrant.arguments {
        let (value, was_other) = value.finite().map_err(memory_fault)?;
        is_other |= was_other;
        finite.push((name.clone(), value));
    }
    let still = match is_other {
        true => {
            array_of(&entrant.unoptimised(&finite)?, name, item).map(|still| still.to_f64()).transpose().map_err(harness_fault)?
        }
        false => None,
    };
    let still = still.unwrap_or_else(|| numbers.clone());
    let wrong = (0..numbers.len()).filter(|&at| !numbers[at].is_finite() && !still[at].is_finite()).count();
    match wrong {
        0 => Ok(()),
        _ => Err(Fault::new(
            Status::Incorrect,
            format!(
                "{wrong} of {} elements of `{name}` are infinite or no numbers, and not because of the inputs; if they are right, \
                 `--against FILE.npy` says so",
                numbers.len()
            ),
        )),
    }
}

impl KernelCase {
    /// Makes the arguments.
    pub(crate) fn load(&self) -> Result<Vec<(String, Value)>, KernelSuiteError> {
        let mut loaded = Vec::new();
        for argument in &self.arguments {
            loaded.extend(argument.load().map_err(|error| KernelSuiteError::Argument(argument.name.clone(), error.to_string()))?);
        }
        Ok(loaded)
    }

    fn others(&self) -> impl Iterator<Item = &OtherKernel> {
        let referees = self.against.iter().filter_map(|against| match against {
            Against::Kernel(_, other) => Some(other),
            Against::Array(..) => None,
        });
        referees.chain(&self.baselines)
    }

    /// The kernel itself. What only another kernel has parameters for is not its.
    pub(crate) fn own(&self, made: &[(String, Value)]) -> Entrant {
        let has = |kernel: &Kernel, name: &str| kernel.parameters().iter().any(|(own, _)| *own == name);
        let is_own = |name: &str| has(&self.kernel, name) || !self.others().any(|other| has(&other.kernel, name));
        let arguments = made.iter().filter(|(name, _)| is_own(name)).cloned().collect();
        Entrant { kernel: self.kernel.clone(), grid: self.grid, options: self.options.clone(), arguments, limit: self.limit }
    }

    /// Another kernel of the case. Choices and threads are the first kernel's.
    fn other(&self, other: &OtherKernel, made: &[(String, Value)]) -> Entrant {
        let parameters = other.kernel.parameters();
        let is_own = |name: &str| parameters.iter().any(|(own, _)| *own == name);
        let arguments = made.iter().filter(|(name, _)| is_own(name)).cloned().collect();
        let options = CompileOptions { config: Default::default(), block: None, plan: None, ..self.options.clone() };
        Entrant { kernel: other.kernel.clone(), grid: other.grid, options, arguments, limit: self.limit }
    }

    /// Its launch, as a tuner looks at it.
    pub(crate) fn launch(&self, made: &[(String, Value)]) -> TunedLaunch {
        let Entrant { kernel, grid, options, arguments, .. } = self.own(made);
        TunedLaunch { kernel: kernel.without_lock(), arguments, grid, options }
    }

    /// Names of what is timed, the kernel first.
    pub(crate) fn implementations(&self) -> Vec<String> {
        std::iter::once(TESSERA).chain(self.baselines.iter().map(|other| other.name.as_str())).map(str::to_string).collect()
    }

    /// An implementation with its arguments.
    pub(crate) fn entrant(&self, implementation: &str, made: &[(String, Value)]) -> Entrant {
        match self.baselines.iter().find(|other| other.name == implementation) {
            Some(other) => self.other(other, made),
            None => self.own(made),
        }
    }

    /// What the kernel writes, once it is clear that references and baselines have to do with that.
    pub(crate) fn written(&self, made: &[(String, Value)]) -> Result<Vec<String>, KernelSuiteError> {
        let own = self.own(made);
        let written = own.written()?;
        let unrelated = |name: &str, what: String| KernelSuiteError::Unrelated {
            name: name.into(),
            what,
            kernel: self.kernel.name().into(),
            written: written.clone(),
        };
        for other in self.others() {
            if !self.other(other, made).written()?.iter().any(|name| written.contains(name)) {
                return Err(unrelated(&other.name, "writes nothing of that".into()));
            }
        }
        for against in &self.against {
            let (name, contents) = match against {
                Against::Array(name, contents) => (name, contents),
                Against::Kernel(only, other) => {
                    let theirs = self.other(other, made).written()?;
                    let is_sought = |name: &&String| only.as_ref().is_none_or(|only| only == *name);
                    // What is called right has been compared with what the user named.
                    if let Some(name) = written.iter().filter(is_sought).find(|name| !theirs.contains(name)) {
                        let help = match only {
                            None => format!("; `--against NAME={}` says of which array it is the reference", other.name),
                            Some(_) => String::new(),
                        };
                        return Err(unrelated(&other.name, format!("does not write `{name}`{help}")));
                    }
                    if let Some(only) = only.as_ref().filter(|only| !written.contains(only)) {
                        return Err(unrelated(only, "is none of the arrays".into()));
                    }
                    continue;
                }
            };
            let told = name.as_deref().unwrap_or("the reference");
            let array = match (name, written.as_slice()) {
                (Some(name), _) => Some(name),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let Some(array) = array.filter(|array| written.contains(array)) else {
                return Err(unrelated(told, "names none of the arrays, so write NAME=FILE.npy".into()));
            };
            let found = own.arguments.iter().find(|(own, _)| own == array).map(|(_, value)| arrays(value));
            match found {
                Some([tensor]) if tensor.shape() == contents.shape() => {}
                Some([tensor]) => {
                    let what = format!("has shape {:?} in the file and {:?} here", contents.shape(), tensor.shape());
                    return Err(unrelated(array, what));
                }
                _ => return Err(unrelated(array, "is a list of arrays, and a file holds one".into())),
            }
        }
        Ok(written)
    }

    /// What arrays should hold, and how far from it they may be. An array is named by its argument and its place in that.
    pub(crate) fn reference(
        &self,
        made: &[(String, Value)],
        wanted: &[(String, usize)],
    ) -> Result<Vec<(Tensor, Allowed)>, Fault> {
        let mut runs = Vec::new();
        for against in &self.against {
            if let Against::Kernel(only, other) = against {
                let other = self.other(other, made);
                let (left, mut written) = (other.unoptimised(&other.arguments)?, other.written().map_err(kernel_fault)?);
                written.retain(|name| only.as_ref().is_none_or(|only| only == name));
                refuse_partial(other.kernel.name(), &unwritten(&other, &written, &left)?)?;
                runs.push((written, left, other, Vec::new()));
            }
        }
        let is_stored = |name: &String| {
            self.against
                .iter()
                .any(|against| matches!(against, Against::Array(own, _) if own.as_ref().is_none_or(|own| own == name)))
        };
        if wanted.iter().any(|(name, _)| !is_stored(name) && runs.iter().all(|(written, ..)| !written.contains(name))) {
            let own = self.own(made);
            let (left, written) = (own.unoptimised(&own.arguments)?, own.written().map_err(kernel_fault)?);
            let unwritten = unwritten(&own, &written, &left)?;
            runs.push((written, left, own, unwritten));
        }
        let answer = |(name, item): &(String, usize)| {
            let stored = self.against.iter().find_map(|against| match against {
                Against::Array(own, contents) if own.as_ref().is_none_or(|own| own == name) => Some(contents.clone()),
                Against::Array(..) | Against::Kernel(..) => None,
            });
            let run = runs.iter().find(|(written, ..)| written.contains(name));
            let want = match (stored, run) {
                (Some(stored), _) => Some(stored),
                (None, Some((_, left, entrant, unwritten))) => {
                    let want = array_of(left, name, *item);
                    // What was not written is no number, and the gate tells it as what it is.
                    let is_whole = unwritten.iter().all(|unwritten| unwritten.name != *name);
                    if let Some(want) = want.as_ref().filter(|_| is_whole) {
                        refuse_own_infinities(entrant, (name, *item), want)?;
                    }
                    want
                }
                (None, None) => None,
            };
            let want = want.ok_or_else(|| Fault::new(Status::HarnessError, format!("`{name}` has no reference")))?;
            let dtype = made.iter().find(|(own, _)| own == name).and_then(|(_, value)| Some(arrays(value).get(*item)?.dtype()));
            let want = match dtype.filter(|dtype| dtype.is_float()) {
                Some(dtype) => want.to_dtype(dtype).map_err(harness_fault)?,
                None => want,
            };
            let allowed = self.tolerance.allowed(want.dtype(), want.shape(), &want.to_f64().map_err(harness_fault)?);
            Ok((want, allowed))
        };
        wanted.iter().map(answer).collect()
    }
}
