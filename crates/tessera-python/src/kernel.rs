//! Kernels: read from a program's live functions, compiled for arguments, launched on arrays as they lie.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tessera::compile::CompileOptions;
use tessera::lang::{Builtin, Space};
use tessera::runtime::{
    Device, DriverDevice, Kernel as Compiled, KernelError, LaunchGrid, LaunchOptions, PreparedLaunch, Tensor, Value,
};

use crate::array::refuse;
use crate::constraint;
use crate::device::{Host, Place, cuda};
use crate::error::{Failure, of_kernel};
use crate::live::{Texts, root};
use crate::stage::Stage;
use crate::stream;
use crate::value::Argument;

/// Nanoseconds that compiling may take; 0 for as long as it takes.
static TIMEOUT: AtomicU64 = AtomicU64::new(0);

/// A kernel of a program.
#[pyclass(frozen)]
pub(crate) struct Kernel {
    inner: Compiled,
    parameters: Vec<String>,
    indent: usize,
}

/// What a launch is asked to be.
struct Asked {
    /// Of the arguments; items of a tuple with arrays in it have names of their own.
    names: Vec<String>,
    arguments: Vec<Argument>,
    grid: LaunchGrid,
    options: CompileOptions,
}

#[pymethods]
impl Kernel {
    #[new]
    fn new(
        py: Python<'_>,
        root_name: &str,
        kernel: &str,
        modules: BTreeMap<String, (String, String, Option<String>)>,
        indent: usize,
    ) -> PyResult<Kernel> {
        let texts = Texts::new(modules);
        let first = root(&texts, root_name)?;
        let inner = py.detach(|| Compiled::from_live(first, &texts, kernel)).map_err(|error| of_kernel(py, &error, indent))?;
        let parameters = inner.parameters().into_iter().map(|(name, _)| name.to_owned()).collect();
        Ok(Kernel { inner, parameters, indent })
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

    /// Runs it. Gives what it printed, and what there is to say of how it was compiled.
    #[expect(clippy::too_many_arguments, reason = "Python's call has them")]
    fn launch(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        keywords: &Bound<'_, PyDict>,
        grid: Option<Vec<u32>>,
        stream: Option<u64>,
        block: Option<u32>,
        config: BTreeMap<String, i64>,
        host: Host,
    ) -> PyResult<(String, Vec<String>)> {
        let asked = self.asked(py, args, keywords, grid, block, config)?;
        let gpus = || asked.arguments.iter().flat_map(Argument::arrays).map(|given| given.gpu);
        match gpus().next().flatten() {
            None => {
                if let Some(other) = gpus().flatten().next() {
                    return Err(refuse(
                        py,
                        format!("arrays on the host and on GPU {other} are given to one launch: copy some of them"),
                    ));
                }
                self.on_host(py, &asked, &host)
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

    /// Names of the parameters through which it may write, for a launch on the CPU with these arguments.
    fn written(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        grid: Option<Vec<u32>>,
        block: Option<u32>,
        config: BTreeMap<String, i64>,
    ) -> PyResult<Vec<String>> {
        let asked = self.asked(py, args, &PyDict::new(py), grid, block, config)?;
        let values = self.values(py, &asked, |given, name| given.on_host(py, name))?;
        let launch = py.detach(|| self.prepare(&values, &asked, &Device::Cpu)).map_err(|stopped| self.raise(py, stopped))?;
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
        let asked = self.asked(py, args, keywords, None, None, BTreeMap::new())?;
        let values = self.values(py, &asked, |given, name| given.on_host(py, name))?;
        let types = self.inner.argument_types(&values).map_err(|error| of_kernel(py, &error, self.indent))?;
        py.detach(|| crate::emit::text(&self.inner, &types, target, emit)).map_err(|error| error.raise(py, self.indent))
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
        py.detach(|| crate::emit::text(&self.inner, &types, target, emit)).map_err(|error| error.raise(py, self.indent))
    }
}

impl Kernel {
    fn asked(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        keywords: &Bound<'_, PyDict>,
        grid: Option<Vec<u32>>,
        block: Option<u32>,
        config: BTreeMap<String, i64>,
    ) -> PyResult<Asked> {
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
        let mut named: Vec<(String, Argument)> = Vec::new();
        for (parameter, object) in self.parameters.iter().zip(args.iter()) {
            Argument::collect(&object, parameter, &mut named)?;
        }
        for (key, object) in keywords.iter() {
            let key: String = key.extract()?;
            let Some(at) = self.parameters.iter().position(|parameter| *parameter == key) else {
                return Err(refuse(py, format!("`{name}` has no parameter `{key}`: it has {}", self.parameters.join(", "))));
            };
            if at < args.len() {
                return Err(refuse(py, format!("`{name}` is given `{key}` twice")));
            }
            Argument::collect(&object, &key, &mut named)?;
        }
        let (names, arguments) = named.into_iter().unzip();
        let grid = match grid {
            None => LaunchGrid::Auto,
            Some(blocks) => {
                let axis = |at: usize| blocks.get(at).copied().unwrap_or(1);
                LaunchGrid::Blocks([axis(0), axis(1), axis(2)])
            }
        };
        let options = CompileOptions { block, config: config.into_iter().collect(), ..CompileOptions::default() };
        Ok(Asked { names, arguments, grid, options })
    }

    fn values<'a>(
        &self,
        _py: Python<'_>,
        asked: &'a Asked,
        tensor: impl Fn(&crate::array::Given, &str) -> PyResult<Tensor>,
    ) -> PyResult<Vec<(&'a str, Value)>> {
        let named = asked.names.iter().zip(&asked.arguments);
        named.map(|(name, argument)| Ok((name.as_str(), argument.value(|given| tensor(given, name))?))).collect()
    }

    /// Compiles, within the time that there is.
    fn prepare(&self, values: &[(&str, Value)], asked: &Asked, device: &Device) -> Result<PreparedLaunch, Stopped> {
        let limit = TIMEOUT.load(Ordering::Relaxed);
        if limit == 0 {
            return self.inner.prepare(values, asked.grid, &asked.options, device).map_err(Stopped::Kernel);
        }
        let (tell, told) = mpsc::channel();
        let (kernel, grid, options, device) = (self.inner.clone(), asked.grid, asked.options.clone(), device.clone());
        let owned: Vec<(String, Value)> = values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        std::thread::spawn(move || {
            let values: Vec<(&str, Value)> = owned.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            // Nobody listens any more where it took too long.
            let _ = tell.send(kernel.prepare(&values, grid, &options, &device));
        });
        match told.recv_timeout(Duration::from_nanos(limit)) {
            Ok(prepared) => prepared.map_err(Stopped::Kernel),
            Err(_) => Err(Stopped::TooLong(Duration::from_nanos(limit))),
        }
    }

    fn raise(&self, py: Python<'_>, stopped: Stopped) -> PyErr {
        match stopped {
            Stopped::Kernel(error) => of_kernel(py, &error, self.indent),
            Stopped::TooLong(limit) => {
                let text = format!("`{}` was not compiled within {} s", self.inner.name(), limit.as_secs_f64());
                Failure::plain("timeout", text).raise(py)
            }
            Stopped::Found(text, findings) => Failure::plain("sanitizer", text).with_findings(findings).raise(py),
        }
    }

    /// Refuses to write arrays that must not be.
    fn refuse_readonly(&self, py: Python<'_>, asked: &Asked, launch: &PreparedLaunch) -> PyResult<()> {
        for name in launch.written() {
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

    fn on_host(&self, py: Python<'_>, asked: &Asked, host: &Host) -> PyResult<(String, Vec<String>)> {
        match host.place(py)? {
            Place::Cpu { checked } => {
                let values = self.values(py, asked, |given, name| given.on_host(py, name))?;
                let launch =
                    py.detach(|| self.prepare(&values, asked, &Device::Cpu)).map_err(|stopped| self.raise(py, stopped))?;
                self.refuse_readonly(py, asked, &launch)?;
                let options = LaunchOptions { checked, threads: host.threads, ..LaunchOptions::default() };
                let printed = py
                    .detach(|| launch.run_with(&options).map_err(Stopped::Kernel))
                    .map_err(|stopped| self.raise(py, stopped))?;
                Ok((printed, notes(&launch)))
            }
            Place::Emulator { device, console } => {
                let arrays: Vec<_> = asked.arguments.iter().flat_map(Argument::arrays).collect();
                let stage = Stage::new(py, &device, &arrays)?;
                let values = self.values(py, asked, |given, name| stage.tensor(py, given, name))?;
                let launch = py
                    .detach(|| self.prepare(&values, asked, &Device::Driver(device.clone())))
                    .map_err(|stopped| self.raise(py, stopped))?;
                self.refuse_readonly(py, asked, &launch)?;
                let ran = py.detach(|| launch.run());
                let launched = console.take();
                let printed: String = launched.iter().map(|launched| launched.report.output.as_str()).collect();
                ran.map_err(|error| {
                    let (text, findings) = crate::finding::told(&launched);
                    // A failed assertion is a trap among the findings, and says more itself.
                    let says_itself = findings.is_empty() || matches!(error, KernelError::Fault { .. });
                    self.raise(py, if says_itself { Stopped::Kernel(error) } else { Stopped::Found(text, findings) })
                })?;
                let written: Vec<&str> = launch.written().collect();
                let named = asked.names.iter().zip(&asked.arguments);
                let results =
                    named.filter(|(name, _)| written.contains(&name.as_str())).flat_map(|(_, argument)| argument.arrays());
                stage.bring_back(py, results)?;
                Ok((printed, notes(&launch)))
            }
        }
    }

    fn on_gpu(
        &self,
        py: Python<'_>,
        asked: &Asked,
        device: &DriverDevice,
        stream: Option<u64>,
    ) -> PyResult<(String, Vec<String>)> {
        let stream = stream::handle(py, stream, device)?;
        let values = self.values(py, asked, |given, name| given.on_device(py, device, name))?;
        let launch = py
            .detach(|| self.prepare(&values, asked, &Device::Driver(device.clone())))
            .map_err(|stopped| self.raise(py, stopped))?;
        self.refuse_readonly(py, asked, &launch)?;
        let queued = py.detach(|| stream::enqueue(device, &[&launch], stream));
        queued.map_err(|error| self.raise(py, Stopped::Kernel(error)))?;
        Ok((String::new(), notes(&launch)))
    }
}

/// Why a launch did not happen.
pub(crate) enum Stopped {
    Kernel(KernelError),
    TooLong(Duration),
    Found(String, Vec<String>),
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
        Space::TileMethod => "tile method",
        Space::ArrayMethod => "array method",
        Space::ViewMethod => "view method",
        Space::RawMethod => "raw method",
        Space::Python => "python",
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
