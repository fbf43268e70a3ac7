//! The library's operators on arrays as they lie.
//!
//! A call on a GPU is planned and packed once for each form of its arrays: kept by the operator, the variant, the numbers, and the arrays' types, sizes,
//! strides, alignments, and what memory they share (`crate::often`).

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;
use tessera::compile::CompileOptions;
use tessera::driver::StreamHandle;
use tessera::ir::bug;
use tessera::ops::{Call as OpsCall, OPERATORS, Operator, Outline, OutlineCall, OutputArray, Repeated, Resolved, Source, find};
use tessera::runtime::{DriverDevice, KernelError, PreparedLaunch, Tensor};
use tessera::types::DType;

use crate::array::{Given, refuse, row_major};
use crate::device::{Host, Place, cuda};
use crate::dtype;
use crate::error::{of_call, of_kernel};
use crate::often::Form;
use crate::stage::Stage;
use crate::stream;
use crate::torch;
use crate::value::array;

/// What an operator is, for Python: its name, what it computes, variants, the default one, precisions, and the name of its gradient's.
#[pyfunction]
pub(crate) fn operators(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    OPERATORS.iter().map(|operator| describe(py, operator)).collect()
}

fn describe<'py>(py: Python<'py>, operator: &'static Operator) -> PyResult<Bound<'py, PyDict>> {
    let said = PyDict::new(py);
    said.set_item("name", operator.name)?;
    said.set_item("about", operator.about)?;
    said.set_item("variants", operator.calls.variants)?;
    said.set_item("default", operator.calls.default)?;
    said.set_item("precisions", operator.precisions.iter().chain(operator.further_precisions).collect::<Vec<_>>())?;
    said.set_item("gradient", operator.gradient.map(|gradient| gradient.name))?;
    let signatures = PyDict::new(py);
    for &variant in operator.calls.variants {
        let (_, signature) = operator.signature(Some(variant)).map_err(|error| of_call(py, &error))?;
        let arrays = |operands: &[tessera::ops::Operand]| {
            operands.iter().map(|operand| (operand.name(), operand.axes().collect::<Vec<_>>())).collect::<Vec<_>>()
        };
        let entry = PyDict::new(py);
        entry.set_item("inputs", arrays(signature.inputs))?;
        entry.set_item("outputs", arrays(signature.outputs))?;
        entry.set_item("scalars", signature.scalars)?;
        entry.set_item("updated", signature.updated)?;
        entry.set_item("rereads", signature.rereads)?;
        entry.set_item("sizes", signature.own_axes().collect::<Vec<_>>())?;
        let follows = signature.outputs.iter().flat_map(|operand| operand.axes()).filter(|axis| signature.is_following(axis));
        entry.set_item("follows", follows.collect::<Vec<_>>())?;
        signatures.set_item(variant, entry)?;
    }
    said.set_item("signatures", signatures)?;
    Ok(said)
}

/// The results of a call, from types and shapes alone: name, element type and shape of each. `arrays` are name, type and shape of each array,
/// `sizes` those of axes that no input has, `result` the type of the first result where there is a choice.
#[pyfunction]
pub(crate) fn outline(
    py: Python<'_>,
    operator: &str,
    variant: Option<&str>,
    arrays: Vec<(String, String, Vec<usize>)>,
    scalars: Vec<(String, f64)>,
    sizes: Vec<(String, Vec<usize>)>,
    result: Option<&str>,
) -> PyResult<Vec<(&'static str, &'static str, Vec<usize>)>> {
    let operator = find(operator).ok_or_else(|| refuse(py, format!("there is no operator `{operator}`")))?;
    let dtype_of = |name: &str| dtype::parse(name).ok_or_else(|| refuse(py, format!("no operator takes elements of `{name}`")));
    let types = arrays.iter().map(|(_, dtype, _)| dtype_of(dtype)).collect::<PyResult<Vec<DType>>>()?;
    let call = OutlineCall {
        variant,
        arrays: arrays.iter().zip(types).map(|((name, _, shape), dtype)| Outline { name, dtype, shape }).collect(),
        scalars: scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect(),
        sizes: sizes.iter().map(|(axis, extents)| (axis.as_str(), extents.clone())).collect(),
        result: result.map(dtype_of).transpose()?,
    };
    let gives = operator.outline(&call).map_err(|error| of_call(py, &error))?;
    Ok(gives.into_iter().map(|output| (output.name, dtype::name(output.dtype), output.shape)).collect())
}

/// Where a call runs: on what its arrays are, or the host's choice.
enum Where {
    Host(Place),
    Gpu(DriverDevice),
}

/// A call of an operator: what it will give is known before it runs.
#[pyclass(frozen)]
pub(crate) struct Call {
    place: Where,
    plan: Planned,
    /// Arrays by name, results that were given among them.
    given: Vec<(String, Given)>,
}

/// What is known of a call.
enum Planned {
    /// A call on a GPU that was made before.
    Again(Arc<Kept>),
    /// A call that is made for the first time, or always anew; its form, where it may be kept.
    Anew { stage: Option<Stage>, resolved: Box<Resolved>, form: Option<Form> },
}

/// A call that was packed.
struct Kept {
    repeated: Repeated,
    outputs: Vec<Gives>,
}

/// A result: its name, its element type, its shape, and whether it was given.
type Gives = (&'static str, &'static str, Vec<usize>, bool);

/// Calls that are kept. Those beyond them are planned anew each time.
const MOST: usize = 4096;

static KEPT: LazyLock<Mutex<FxHashMap<Form, Arc<Kept>>>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, FxHashMap<Form, Arc<Kept>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Call {
    /// Plans a call with arrays and numbers by name, for a stream where one is named.
    #[new]
    fn new(
        py: Python<'_>,
        operator: &str,
        variant: Option<&str>,
        tensors: &Bound<'_, PyDict>,
        scalars: Vec<(String, f64)>,
        host: Host,
        stream: Option<u64>,
    ) -> PyResult<Call> {
        let operator = find(operator).ok_or_else(|| refuse(py, format!("there is no operator `{operator}`")))?;
        let mut given = Vec::new();
        for (name, object) in tensors.iter() {
            let name: String = name.extract()?;
            let read = array(&object, &name, stream)?;
            given.push((name, read));
        }
        let gpu = given.first().and_then(|(_, given)| given.gpu);
        if given.iter().any(|(_, given)| given.gpu != gpu) {
            return Err(refuse(py, format!("{} is given arrays on several devices: copy some of them", operator.name)));
        }
        let place = match gpu {
            None => Where::Host(host.place(py)?),
            Some(ordinal) => Where::Gpu(cuda(py, ordinal)?),
        };
        let form = match &place {
            Where::Gpu(device) => {
                let ordinal = device.properties().ordinal;
                let form = Form::of_call((ordinal.into(), operator.name, variant), &given, &scalars);
                if let Some(known) = kept().get(&form) {
                    return Ok(Call { place, plan: Planned::Again(Arc::clone(known)), given });
                }
                Some(form)
            }
            Where::Host(_) => None,
        };
        let stage = match &place {
            Where::Host(Place::Emulator(emulated)) => {
                let device = &emulated.device;
                Some(Stage::new(py, device, &given.iter().map(|(_, given)| given).collect::<Vec<_>>())?)
            }
            Where::Host(Place::Cpu(_)) | Where::Gpu(_) => None,
        };
        // What has to lie otherwise is copied in the order of the device's own stream.
        if let Where::Gpu(device) = &place
            && given.iter().any(|(_, given)| given.strides != row_major(&given.shape))
        {
            let stream = stream::handle(py, stream, device.properties().ordinal)?;
            let ready = stream::wait_for(device, stream, given.iter().map(|(_, given)| given));
            ready.and_then(|()| stream::let_go_behind(device, stream)).map_err(|error| of_kernel(py, &error))?;
        }
        let tensor = |(name, given): &(String, Given)| match (&place, &stage) {
            (_, Some(stage)) => stage.tensor(py, given, name),
            (Where::Gpu(device), None) => given.on_device(py, device, name),
            (_, None) => given.on_host(py, name),
        };
        let tensors = given.iter().map(|one| Ok((one.0.as_str(), tensor(one)?))).collect::<PyResult<Vec<(&str, Tensor)>>>()?;
        let scalars = scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let call = OpsCall { variant, tensors, scalars, lock: None };
        let resolved = py.detach(|| operator.resolve(&call).map_err(Box::new)).map_err(|error| of_call(py, &error))?;
        Ok(Call { place, plan: Planned::Anew { stage, resolved: Box::new(resolved), form }, given })
    }

    /// What it gives: name, element type and shape of each result, and whether it was given.
    fn outputs(&self) -> Vec<Gives> {
        match &self.plan {
            Planned::Again(kept) => kept.outputs.clone(),
            Planned::Anew { resolved, .. } => gives(resolved),
        }
    }

    /// Runs it, into one array for each result; those that were given are their own.
    fn run(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyAny>>, stream: Option<u64>) -> PyResult<()> {
        let names: Vec<&str> = match &self.plan {
            Planned::Again(kept) => kept.outputs.iter().map(|(name, ..)| *name).collect(),
            Planned::Anew { resolved, .. } => resolved.outputs().iter().map(|output| output.name).collect(),
        };
        if outputs.len() != names.len() {
            return Err(refuse(py, format!("{} arrays are given for {} results", outputs.len(), names.len())));
        }
        let of = |(name, object): (&&str, &Bound<'_, PyAny>)| array(object, name, stream);
        let arrays = names.iter().zip(&outputs).map(of).collect::<PyResult<Vec<Given>>>()?;
        for (name, given) in names.iter().zip(&arrays) {
            if given.readonly {
                return Err(refuse(py, format!("`{name}` is written, and the array must not be: pass another one")));
            }
        }
        // Results that were made for the call are nobody else's yet.
        let given = |(_, array): &(&str, &Given)| self.given.iter().any(|(_, own)| own.address == array.address);
        torch::change(py, names.iter().copied().zip(&arrays).filter(given).map(|(_, array)| &array.owner))?;
        match &self.plan {
            Planned::Again(kept) => {
                let Where::Gpu(device) = &self.place else { bug!("a call that is kept is on a GPU") };
                self.again(py, (device, kept), &arrays, stream::handle(py, stream, device.properties().ordinal)?)
            }
            Planned::Anew { stage, resolved, form } => self.anew(py, (stage.as_ref(), resolved, form.as_ref()), &arrays, stream),
        }
    }
}

fn gives(resolved: &Resolved) -> Vec<Gives> {
    let of = |output: &OutputArray| (output.name, dtype::name(output.dtype), output.shape.clone(), output.given.is_some());
    resolved.outputs().iter().map(of).collect()
}

impl Call {
    /// Queues what was packed, for these results.
    fn again(
        &self,
        py: Python<'_>,
        (device, kept): (&DriverDevice, &Kept),
        arrays: &[Given],
        stream: StreamHandle,
    ) -> PyResult<()> {
        self.wait_for(device, stream, arrays).map_err(|error| of_kernel(py, &error))?;
        let address = |source: Source| match source {
            Source::Result(number) => arrays[number].address,
            Source::Given(name, _) => match self.given.iter().find(|(own, _)| own == name) {
                Some((_, given)) => given.address,
                None => bug!("a call of another form: it has no `{name}`"),
            },
        };
        kept.repeated.enqueue(stream, address).map_err(|error| of_call(py, &error))
    }

    /// Has a stream wait for what makes the elements of the call's arrays.
    fn wait_for(&self, device: &DriverDevice, stream: StreamHandle, results: &[Given]) -> Result<(), KernelError> {
        stream::wait_for(device, stream, self.given.iter().map(|(_, given)| given).chain(results))
    }

    /// Whether what was packed stands on the arrays as they were given: not on copies.
    fn is_as_given(&self, repeated: &Repeated) -> bool {
        repeated.sources().iter().all(|source| match source {
            Source::Result(_) => true,
            Source::Given(name, start) => self.given.iter().any(|(own, given)| own == name && given.address == *start),
        })
    }

    fn anew(
        &self,
        py: Python<'_>,
        (stage, resolved, form): (Option<&Stage>, &Resolved, Option<&Form>),
        arrays: &[Given],
        stream: Option<u64>,
    ) -> PyResult<()> {
        let wanted = resolved.outputs();
        match &self.place {
            Where::Host(Place::Cpu(options)) => {
                let tensors = results(wanted, arrays, |given, name| given.on_host(py, name))?;
                let launches = prepared(py, resolved, &tensors)?;
                let ran = py.detach(|| launches.iter().try_for_each(|launch| launch.run_with(options).map(drop)));
                ran.map_err(|error| of_kernel(py, &error))
            }
            Where::Gpu(device) => {
                let stream = stream::handle(py, stream, device.properties().ordinal)?;
                let tensors = results(wanted, arrays, |given, name| given.on_device(py, device, name))?;
                let repeated = py.detach(|| resolved.prepare_often(&tensors, &CompileOptions::default()).map_err(Box::new));
                let repeated = repeated.map_err(|error| of_call(py, &error))?.filter(|repeated| self.is_as_given(repeated));
                if let (Some(repeated), Some(form)) = (repeated, form) {
                    let kept_now = Arc::new(Kept { repeated, outputs: gives(resolved) });
                    let mut known = kept();
                    if known.len() < MOST {
                        known.insert(form.clone(), Arc::clone(&kept_now));
                    }
                    drop(known);
                    return self.again(py, (device, &kept_now), arrays, stream);
                }
                let launches = prepared(py, resolved, &tensors)?;
                let ready = self.wait_for(device, stream, arrays);
                let queued = ready.and_then(|()| py.detach(|| stream::enqueue(device, &launches, stream)));
                queued.map_err(|error| of_kernel(py, &error))
            }
            Where::Host(Place::Emulator(emulated)) => {
                // Results that were given have their places among the arguments already.
                let mut updated = Vec::new();
                let fresh: Vec<&Given> =
                    wanted.iter().zip(arrays).filter(|(output, _)| output.given.is_none()).map(|(_, given)| given).collect();
                let own = Stage::new(py, &emulated.device, &fresh)?;
                let tensors = results(wanted, arrays, |given, name| own.tensor(py, given, name))?;
                let launches = prepared(py, resolved, &tensors)?;
                emulated.run(py, || launches.iter().try_for_each(PreparedLaunch::run))?;
                own.bring_back(py, fresh.iter().copied())?;
                for output in wanted.iter().filter(|output| output.given.is_some()) {
                    updated.extend(self.given.iter().filter(|(name, _)| name == output.name).map(|(_, given)| given));
                }
                match stage {
                    Some(stage) => stage.bring_back(py, updated.into_iter()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The tensors of a call's results: these arrays, but for those that were given.
fn results(wanted: &[OutputArray], arrays: &[Given], tensor: impl Fn(&Given, &str) -> PyResult<Tensor>) -> PyResult<Vec<Tensor>> {
    let own = |(output, given): (&OutputArray, &Given)| match &output.given {
        Some(own) => Ok(own.clone()),
        None => tensor(given, output.name),
    };
    wanted.iter().zip(arrays).map(own).collect()
}

fn prepared(py: Python<'_>, resolved: &Resolved, results: &[Tensor]) -> PyResult<Vec<PreparedLaunch>> {
    let made = py.detach(|| resolved.prepare(results, &CompileOptions::default()).map_err(Box::new));
    made.map_err(|error| of_call(py, &error))
}
