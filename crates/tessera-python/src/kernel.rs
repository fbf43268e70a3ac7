//! Kernels: read from a program's live functions, compiled for arguments, launched on arrays as they lie.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tessera::compile::CompileOptions;
use tessera::driver::StreamHandle;
use tessera::lang::{ArgType, Builtin, Space};
use tessera::runtime::{
    Device, DriverDevice, Kernel as Compiled, KernelError, Later, LaunchGrid, Often, PreparedLaunch, Tensor, Value,
};

use crate::array::refuse;
use crate::constraint;
use crate::device::{Host, Place, cuda};
use crate::emit;
use crate::error::{Failure, of_kernel, show};
use crate::grid;
use crate::guard::Guard;
use crate::live::{Text, Texts, root};
use crate::often::{self, Form, Launches};
use crate::stage::Stage;
use crate::stream;
use crate::torch;
use crate::value::Argument;

/// Nanoseconds that compiling may take; 0 for as long as it takes.
static TIMEOUT: AtomicU64 = AtomicU64::new(0);

/// A kernel of a program.
#[pyclass(frozen)]
pub(crate) struct Kernel {
    inner: Compiled,
    parameters: Vec<String>,
    /// Of each parameter, whether its value is compiled in.
    constants: Vec<bool>,
    often: Launches,
    guards: Vec<Guard>,
}

/// What a launch is asked to be.
struct Asked<'a> {
    /// Of the arguments; items of a tuple with arrays in it have names of their own.
    names: Vec<Cow<'a, str>>,
    arguments: Vec<Argument>,
    grid: LaunchGrid,
    options: CompileOptions,
}

impl Asked<'_> {
    /// The same with other arguments.
    fn with(&self, arguments: Vec<Argument>) -> Self {
        Asked { names: self.names.clone(), arguments, grid: self.grid, options: self.options.clone() }
    }
}

/// A packed launch.
struct Found {
    launch: Arc<Often>,
    /// What there is to say of how it was compiled.
    notes: Vec<String>,
    /// Whether it stays for launches to come.
    is_kept: bool,
}

#[pymethods]
impl Kernel {
    #[new]
    fn new(
        py: Python<'_>,
        root_name: &str,
        kernel: &str,
        modules: BTreeMap<String, Text>,
        guards: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Kernel> {
        let texts = Texts::new(modules);
        let first = root(&texts, root_name)?;
        let inner = py.detach(|| Compiled::from_live(first, &texts, kernel)).map_err(|error| of_kernel(py, &error))?;
        let parameters: Vec<String> = inner.parameters().into_iter().map(|(name, _)| name.to_owned()).collect();
        let constants = parameters.iter().map(|name| inner.is_constant(name)).collect();
        let guards = guards.iter().map(Guard::of).collect::<PyResult<_>>()?;
        Ok(Kernel { inner, parameters, constants, often: Launches::default(), guards })
    }

    /// Whether the names that it uses still stand for what they stood for when it was read.
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        for guard in &self.guards {
            if !guard.holds(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Names of the parameters.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.parameters)
    }

    /// Names of the parameters whose values the kernel is compiled for.
    #[getter]
    fn constants<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let constants: Vec<&String> = self.parameters.iter().filter(|name| self.inner.is_constant(name)).collect();
        PyTuple::new(py, constants)
    }

    /// Runs it. Gives what it printed, and what there is to say of how it was compiled, where there is something.
    #[expect(clippy::too_many_arguments, reason = "Python's call has them")]
    fn launch(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
        grid: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
        block: Option<u32>,
        config: Option<BTreeMap<String, i64>>,
        host: &Bound<'_, PyAny>,
    ) -> PyResult<Option<(String, Vec<String>)>> {
        let (grid, stream) = (grid::blocks(grid)?, stream::named(stream)?);
        let told = self.run(py, self.asked(py, (args, keywords), (grid, block, config), stream)?, stream, host)?;
        Ok(Some(told).filter(|(printed, notes)| !printed.is_empty() || !notes.is_empty()))
    }

    /// Names of the parameters through which it may write, for a launch on the CPU with these arguments.
    fn written(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        grid: &Bound<'_, PyAny>,
        block: Option<u32>,
        config: BTreeMap<String, i64>,
    ) -> PyResult<Vec<String>> {
        let asked = self.asked(py, (args, None), (grid::blocks(grid)?, block, Some(config)), None)?;
        let values = self.values(&asked, |given, name| given.on_host(py, name))?;
        let launch = py.detach(|| self.on_cpu(&values, &asked)).map_err(|stopped| self.raise(py, stopped))?;
        Ok(launch.written().map(str::to_owned).collect())
    }

    /// Its text at a level, for arguments like these.
    fn compile(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        keywords: &Bound<'_, PyDict>,
        target: &str,
        emit: &str,
    ) -> PyResult<String> {
        let asked = self.asked(py, (args, Some(keywords)), (LaunchGrid::Auto, None, None), None)?;
        let values = self.values(&asked, |given, name| given.on_host(py, name))?;
        let types = self.inner.argument_types(&values).map_err(|error| of_kernel(py, &error))?;
        self.text(py, &types, target, emit)
    }

    /// Its text at a level, for parameters of which only this is known, see `crate::constraint`.
    fn compile_for(&self, py: Python<'_>, parameters: &Bound<'_, PyList>, target: &str, emit: &str) -> PyResult<String> {
        if parameters.len() != self.parameters.len() {
            let (name, known) = (self.inner.name(), self.parameters.join(", "));
            let text = format!(
                "`{name}` has {} parameters, and a signature of {} is given: {known}",
                self.parameters.len(),
                parameters.len()
            );
            return Err(refuse(py, text));
        }
        let named = self.parameters.iter().zip(parameters.iter());
        let types = named
            .map(|(name, given)| Ok((name.clone(), constraint::argument_type(&given, name)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.text(py, &types, target, emit)
    }
}

impl Kernel {
    fn run(
        &self,
        py: Python<'_>,
        asked: Asked<'_>,
        stream: Option<u64>,
        host: &Bound<'_, PyAny>,
    ) -> PyResult<(String, Vec<String>)> {
        let gpus = || asked.arguments.iter().flat_map(Argument::arrays).map(|given| given.gpu);
        match gpus().next().flatten() {
            None => {
                if let Some(other) = gpus().flatten().next() {
                    return Err(refuse(
                        py,
                        format!("arrays on the host and on GPU {other} are given to one launch: copy some of them"),
                    ));
                }
                self.on_host(py, &asked, &host.extract()?)
            }
            Some(ordinal) => {
                if gpus().any(|gpu| gpu != Some(ordinal)) {
                    return Err(refuse(
                        py,
                        format!("arrays on GPU {ordinal} and elsewhere are given to one launch: copy some of them"),
                    ));
                }
                self.on_gpu(py, &asked, &cuda(py, ordinal)?, stream)
            }
        }
    }

    fn asked(
        &self,
        py: Python<'_>,
        (args, keywords): (&Bound<'_, PyTuple>, Option<&Bound<'_, PyDict>>),
        (grid, block, config): (LaunchGrid, Option<u32>, Option<BTreeMap<String, i64>>),
        stream: Option<u64>,
    ) -> PyResult<Asked<'_>> {
        let name = self.inner.name();
        if args.len() > self.parameters.len() {
            let text = format!(
                "`{name}` takes {} arguments, and {} are given: {}",
                self.parameters.len(),
                args.len(),
                self.parameters.join(", ")
            );
            return Err(refuse(py, text));
        }
        let mut named: Vec<(Cow<'_, str>, Argument)> = Vec::with_capacity(self.parameters.len());
        for (parameter, object) in self.parameters.iter().zip(args.iter()) {
            Argument::collect(&object, parameter.into(), stream, &mut named)?;
        }
        for (key, object) in keywords.into_iter().flatten() {
            let key: String = key.extract()?;
            let Some(at) = self.parameters.iter().position(|parameter| *parameter == key) else {
                return Err(refuse(py, format!("`{name}` has no parameter `{key}`: it has {}", self.parameters.join(", "))));
            };
            if at < args.len() {
                return Err(refuse(py, format!("`{name}` is given `{key}` twice")));
            }
            Argument::collect(&object, self.parameters[at].as_str().into(), stream, &mut named)?;
        }
        let (names, arguments) = named.into_iter().unzip();
        let options = CompileOptions { block, config: config.into_iter().flatten().collect(), ..CompileOptions::default() };
        Ok(Asked { names, arguments, grid, options })
    }

    fn values<'a>(
        &self,
        asked: &'a Asked<'_>,
        tensor: impl Fn(&crate::array::Given, &str) -> PyResult<Tensor>,
    ) -> PyResult<Vec<(&'a str, Value)>> {
        let named = asked.names.iter().zip(&asked.arguments);
        named.map(|(name, argument)| Ok((name.as_ref(), argument.value(|given| tensor(given, name))?))).collect()
    }

    fn on_cpu(&self, values: &[(&str, Value)], asked: &Asked<'_>) -> Result<PreparedLaunch, Stopped> {
        within(|| self.inner.prepare(values, asked.grid, &asked.options, &Device::Cpu).map_err(Stopped::Kernel))
    }

    /// Its text at a level, for arguments of these types.
    fn text(&self, py: Python<'_>, types: &[(String, ArgType)], target: &str, emit: &str) -> PyResult<String> {
        let made = py.detach(|| within(|| emit::text(&self.inner, types, target, emit)));
        made.map_err(|stopped| self.raise(py, stopped))
    }

    fn raise(&self, py: Python<'_>, stopped: Stopped) -> PyErr {
        match stopped {
            Stopped::Kernel(error) => of_kernel(py, &error),
            Stopped::TooLong(limit) => {
                let text = format!("`{}` was not compiled within {} s", self.inner.name(), limit.as_secs_f64());
                Failure::plain("timeout", text).raise(py)
            }
            Stopped::Asked(text) => Failure::plain("argument", text).raise(py),
        }
    }

    /// Refuses to write arrays that must not be.
    fn refuse_readonly<'a>(&self, py: Python<'_>, asked: &Asked<'_>, written: impl Iterator<Item = &'a str>) -> PyResult<()> {
        for name in written {
            let Some(at) = asked.names.iter().position(|own| *own == name) else { continue };
            if asked.arguments[at].arrays().iter().any(|given| given.readonly) {
                return Err(refuse(
                    py,
                    format!("`{}` writes `{name}`, and that array must not be written: pass a copy", self.inner.name()),
                ));
            }
        }
        Ok(())
    }

    /// Tells the libraries of arrays that these are going to be written.
    fn change<'a>(&self, py: Python<'_>, asked: &Asked<'_>, written: impl Iterator<Item = &'a str>) -> PyResult<()> {
        let of = |name: &'a str| asked.names.iter().zip(&asked.arguments).filter(move |(own, _)| *own == name);
        let arrays = written.flat_map(of).flat_map(|(_, argument)| argument.arrays());
        torch::change(py, arrays.map(|given| &given.owner))
    }

    fn on_host(&self, py: Python<'_>, asked: &Asked<'_>, host: &Host) -> PyResult<(String, Vec<String>)> {
        match host.place(py)? {
            Place::Cpu(options) => {
                let values = self.values(asked, |given, name| given.on_host(py, name))?;
                let launch = py.detach(|| self.on_cpu(&values, asked)).map_err(|stopped| self.raise(py, stopped))?;
                self.refuse_readonly(py, asked, launch.written())?;
                self.change(py, asked, launch.written())?;
                let ran = py.detach(|| launch.run_with(&options));
                let printed = ran.map_err(|error| {
                    if let KernelError::Fault { printed, .. } = &error {
                        show(py, printed);
                    }
                    of_kernel(py, &error)
                });
                Ok((printed?, notes(&launch)))
            }
            Place::Emulator(emulated) => {
                let device = &emulated.device;
                let arrays: Vec<_> = asked.arguments.iter().flat_map(Argument::arrays).collect();
                let stage = Stage::new(py, device, &arrays)?;
                let staged = asked.arguments.iter().map(|argument| argument.staged(|given| stage.given(py, given)));
                let staged = asked.with(staged.collect::<PyResult<_>>()?);
                let stream = device.stream().handle();
                let Found { launch, notes, .. } = self.found(py, &staged, (device, emulated.number), stream)?;
                self.change(py, asked, launch.prepared.written())?;
                let printed = emulated.run(py, || {
                    let is_constant = |name: &str| self.is_constant(name);
                    often::enqueue(&launch, stream, &staged.names, &staged.arguments, is_constant)?;
                    device.stream().synchronize().map_err(|error| launch.stopped(error))
                })?;
                let written: Vec<&str> = launch.prepared.written().collect();
                let named = asked.names.iter().zip(&asked.arguments);
                let results =
                    named.filter(|(name, _)| written.contains(&name.as_ref())).flat_map(|(_, argument)| argument.arrays());
                stage.bring_back(py, results)?;
                Ok((printed, notes))
            }
        }
    }

    fn is_constant(&self, name: &str) -> bool {
        // An item of a tuple is what the tuple is.
        let own = name.split('.').next();
        self.parameters.iter().position(|known| Some(known.as_str()) == own).is_some_and(|at| self.constants[at])
    }

    /// The packed launch for arguments on a device.
    fn found(
        &self,
        py: Python<'_>,
        asked: &Asked<'_>,
        (device, number): (&DriverDevice, u64),
        stream: StreamHandle,
    ) -> PyResult<Found> {
        let is_constant = |name: &str| self.is_constant(name);
        let form = Form::of((number, stream), (asked.grid, &asked.options), &asked.names, &asked.arguments, is_constant);
        if let Some(launch) = form.as_ref().and_then(|form| self.often.find(form)) {
            return Ok(Found { launch, notes: Vec::new(), is_kept: true });
        }
        let values = self.values(asked, |given, name| given.on_device(py, device, name))?;
        let prepared = py.detach(|| {
            within(|| {
                self.inner.prepare_often(&values, (asked.grid, Later::Alike), &asked.options, device).map_err(Stopped::Kernel)
            })
        });
        let launch = Arc::new(prepared.map_err(|stopped| self.raise(py, stopped))?);
        self.refuse_readonly(py, asked, launch.prepared.written())?;
        let is_kept = form.is_some_and(|form| self.often.keep(form, &launch));
        let notes = launch.remark.iter().map(|remark| remark.render(false)).collect();
        Ok(Found { launch, notes, is_kept })
    }

    fn on_gpu(
        &self,
        py: Python<'_>,
        asked: &Asked<'_>,
        device: &DriverDevice,
        stream: Option<u64>,
    ) -> PyResult<(String, Vec<String>)> {
        let stream = stream::handle(py, stream, device.properties().ordinal)?;
        let Found { launch, notes, is_kept } = self.found(py, asked, (device, device.properties().ordinal.into()), stream)?;
        self.change(py, asked, launch.prepared.written())?;
        let arrays = asked.arguments.iter().flat_map(Argument::arrays);
        let queued = stream::wait_for(device, stream, arrays)
            .and_then(|()| often::enqueue(&launch, stream, &asked.names, &asked.arguments, |name| self.is_constant(name)));
        let queued = queued.and_then(|()| match launch.prepared.launch().owns_memory() && !is_kept {
            true => stream::let_go_behind(device, stream),
            false => Ok(()),
        });
        queued.map_err(|error| self.raise(py, Stopped::Kernel(error)))?;
        Ok((String::new(), notes))
    }
}

/// Why nothing was compiled or launched.
pub(crate) enum Stopped {
    Kernel(KernelError),
    TooLong(Duration),
    /// What was asked for is not there.
    Asked(String),
}

/// Does what compiles, within the time that there is.
fn within<T>(work: impl FnOnce() -> Result<T, Stopped>) -> Result<T, Stopped> {
    let limit = Duration::from_nanos(TIMEOUT.load(Ordering::Relaxed));
    let begun = Instant::now();
    let made = work()?;
    if limit.is_zero() || begun.elapsed() <= limit { Ok(made) } else { Err(Stopped::TooLong(limit)) }
}

/// What there is to say of how a kernel was compiled.
fn notes(launch: &PreparedLaunch) -> Vec<String> {
    if launch.is_cached() {
        return Vec::new();
    }
    launch.remark().map(|remark| remark.render(launch.sources(), false)).into_iter().collect()
}

/// The language's functions: space, name, parameters, what each does.
#[pyfunction]
pub(crate) fn builtins() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let space = |space: Space| match space {
        Space::Tile => "tile",
        Space::OwnTile => "own tile",
        Space::TileMethod => "tile method",
        Space::ArrayMethod => "array method",
        Space::ViewMethod => "view method",
        Space::RawMethod => "raw method",
        Space::Python => "python",
        Space::Operator => "operator",
        Space::Math => "math",
    };
    Builtin::ALL.iter().map(|builtin| builtin.row()).map(|row| (space(row.space), row.name, row.signature, row.doc)).collect()
}

/// Sets how long compiling may take, in seconds; gives the limit before. 0 is none.
#[pyfunction]
pub(crate) fn set_compiler_timeout(seconds: f64) -> f64 {
    let before = TIMEOUT.swap((seconds.max(0.0) * 1e9) as u64, Ordering::Relaxed);
    before as f64 / 1e9
}
