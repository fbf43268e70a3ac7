//! The library's operators on arrays as they lie.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tessera::compile::CompileOptions;
use tessera::ops::{Call as OpsCall, OPERATORS, Operator, Outline, OutlineCall, Resolved, find};
use tessera::runtime::{DriverDevice, PreparedLaunch, Tensor};
use tessera::types::DType;

use crate::array::{Given, refuse};
use crate::device::{Host, Place, cuda};
use crate::dtype;
use crate::error::{of_call, of_kernel};
use crate::stage::Stage;
use crate::stream;
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
    stage: Option<Stage>,
    resolved: Resolved,
    /// Arrays by name, results that were given among them.
    given: Vec<(String, Given)>,
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
        let stage = match &place {
            Where::Host(Place::Emulator(emulated)) => {
                let device = &emulated.device;
                Some(Stage::new(py, device, &given.iter().map(|(_, given)| given).collect::<Vec<_>>())?)
            }
            Where::Host(Place::Cpu(_)) | Where::Gpu(_) => None,
        };
        let tensor = |(name, given): &(String, Given)| match (&place, &stage) {
            (_, Some(stage)) => stage.tensor(py, given, name),
            (Where::Gpu(device), None) => given.on_device(py, device, name),
            (_, None) => given.on_host(py, name),
        };
        let tensors = given.iter().map(|one| Ok((one.0.as_str(), tensor(one)?))).collect::<PyResult<Vec<(&str, Tensor)>>>()?;
        let scalars = scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let call = OpsCall { variant, tensors, scalars, lock: None };
        let resolved = py.detach(|| operator.resolve(&call).map_err(Box::new)).map_err(|error| of_call(py, &error))?;
        Ok(Call { place, stage, resolved, given })
    }

    /// What it gives: name, element type and shape of each result, and whether it was given.
    fn outputs(&self) -> Vec<(&'static str, &'static str, Vec<usize>, bool)> {
        let of = |output: &tessera::ops::OutputArray| {
            (output.name, dtype::name(output.dtype), output.shape.clone(), output.given.is_some())
        };
        self.resolved.outputs().iter().map(of).collect()
    }

    /// Runs it, into one array for each result; those that were given are their own.
    fn run(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyAny>>, stream: Option<u64>) -> PyResult<()> {
        let wanted = self.resolved.outputs();
        if outputs.len() != wanted.len() {
            return Err(refuse(py, format!("{} arrays are given for {} results", outputs.len(), wanted.len())));
        }
        let arrays = wanted
            .iter()
            .zip(&outputs)
            .map(|(output, object)| array(object, output.name, stream))
            .collect::<PyResult<Vec<_>>>()?;
        for (output, given) in wanted.iter().zip(&arrays) {
            if given.readonly {
                return Err(refuse(py, format!("`{}` is written, and the array must not be: pass another one", output.name)));
            }
        }
        match &self.place {
            Where::Host(Place::Cpu(options)) => {
                let launches = self.launches(py, &arrays, |given, name| given.on_host(py, name))?;
                let ran = py.detach(|| launches.iter().try_for_each(|launch| launch.run_with(options).map(drop)));
                ran.map_err(|error| of_kernel(py, &error, 0))
            }
            Where::Gpu(device) => {
                let stream = stream::handle(py, stream, device.properties().ordinal)?;
                let launches = self.launches(py, &arrays, |given, name| given.on_device(py, device, name))?;
                let inputs = self.given.iter().map(|(_, given)| given);
                let ready = stream::wait_for(device, stream, inputs.chain(&arrays));
                let queued = ready.and_then(|()| py.detach(|| stream::enqueue(device, &launches, stream)));
                queued.map_err(|error| of_kernel(py, &error, 0))
            }
            Where::Host(Place::Emulator(emulated)) => {
                // Results that were given have their places among the arguments already.
                let mut results = Vec::new();
                let fresh: Vec<&Given> =
                    wanted.iter().zip(&arrays).filter(|(output, _)| output.given.is_none()).map(|(_, given)| given).collect();
                let own = Stage::new(py, &emulated.device, &fresh)?;
                let launches = self.launches(py, &arrays, |given, name| own.tensor(py, given, name))?;
                emulated.run(py, 0, || launches.iter().try_for_each(PreparedLaunch::run))?;
                own.bring_back(py, fresh.iter().copied())?;
                for output in wanted.iter().filter(|output| output.given.is_some()) {
                    results.extend(self.given.iter().filter(|(name, _)| name == output.name).map(|(_, given)| given));
                }
                match &self.stage {
                    Some(stage) => stage.bring_back(py, results.into_iter()),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Call {
    /// The launches that write results into these arrays, those that were given apart.
    fn launches(
        &self,
        py: Python<'_>,
        arrays: &[Given],
        tensor: impl Fn(&Given, &str) -> PyResult<Tensor>,
    ) -> PyResult<Vec<PreparedLaunch>> {
        let wanted = self.resolved.outputs().iter().zip(arrays);
        let outputs = wanted.map(|(output, given)| match &output.given {
            Some(own) => Ok(own.clone()),
            None => tensor(given, output.name),
        });
        let outputs = outputs.collect::<PyResult<Vec<_>>>()?;
        let made = py.detach(|| self.resolved.prepare(&outputs, &CompileOptions::default()).map_err(Box::new));
        made.map_err(|error| of_call(py, &error))
    }
}
