//! The operator library as a suite on a device, with baselines beside the product.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tessera_cuda::CublasLt;
use tessera_driver::{DriverError, Stream};
use tessera_ops::{Plan, Planned};
use tessera_runtime::{CompileOptions, Device, DriverDevice, Kernel, KernelError, Lock, PreparedLaunch, ProfilerRange, Tuned};

use super::blas::{Blas, product};
use super::ceiling;
use super::subject::{DeviceSubject, Launcher};
use super::tensor::DeviceTensors;
use super::timer::{DeviceTimer, Timing};
use super::worker::{Worker, WorkerLauncher};
use crate::asked::Asked;
use crate::case::{Fault, Phase, Subject};
use crate::ceiling::{Ceilings, ProbeOptions};
use crate::clock::ClockFacts;
use crate::environment::Accelerator;
use crate::library::{Library, TESSERA, manner, one_way_alone};
use crate::selection::{Selection, SelectionError};
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};

/// The vendor's matrix products in results.
pub(crate) const CUBLASLT: &str = "cublaslt";

/// Makes an implementation's launcher for a case.
type Maker = Box<dyn Fn(&CaseSpec, &Plan, &DeviceTensors) -> Result<Box<dyn Launcher>, Fault>>;

/// What is run beside the product, and how it is timed.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// How launches are timed.
    pub timing: Timing,
    /// The vendor's matrix products, from this file or, where it is empty, wherever the loader finds them.
    pub cublaslt: Option<PathBuf>,
    /// Commands of baseline processes, each with its name.
    pub workers: Vec<(String, String)>,
    /// Where choices for the product's kernels are.
    pub lock: Option<Arc<Lock>>,
    /// Other ways that operators have to cut a case, so many of each.
    pub ways: usize,
    /// The rungs of operators' ladders, too.
    pub rungs: bool,
    /// Samples of each point of a ceiling.
    pub ceiling_samples: usize,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            timing: Timing::COLD,
            cublaslt: None,
            workers: Vec::new(),
            lock: None,
            ways: 0,
            rungs: false,
            ceiling_samples: 10,
        }
    }
}

/// Cases of the operator library on a device.
pub struct DeviceLibrary {
    library: Library,
    device: DriverDevice,
    timer: Rc<RefCell<DeviceTimer>>,
    options: DeviceOptions,
    blas: OnceCell<Result<Rc<CublasLt>, String>>,
    workers: Vec<(String, Rc<RefCell<Worker>>)>,
    makers: Vec<(String, Maker)>,
}

impl DeviceLibrary {
    /// The selected cases on a device. The second part says what is absent: the vendor's products, where nobody named them and they cannot be loaded,
    /// and other ways of cases that have none.
    pub fn select(
        selection: &Selection,
        compile: CompileOptions,
        device: &DriverDevice,
        options: DeviceOptions,
    ) -> Result<(DeviceLibrary, Vec<String>), DeviceSelectionError> {
        let mut library = Library::select(selection, compile, Device::Driver(device.clone()))?.with_lock(options.lock.clone());
        let mut absent = one_way_alone(&library.add_ways(options.ways));
        if options.rungs {
            library.add_rungs();
        }
        let timer = library.timer(device)?;
        let mut workers = Vec::new();
        for (name, command) in &options.workers {
            let worker = Worker::start(command).map_err(|why| DeviceSelectionError::Baseline { name: name.clone(), why })?;
            workers.push((name.clone(), Rc::new(RefCell::new(worker))));
        }
        let device = device.clone();
        let mut suite = DeviceLibrary { library, device, timer, options, blas: OnceCell::new(), workers, makers: Vec::new() };
        if let Err(why) = suite.blas() {
            if suite.options.cublaslt.is_some() {
                return Err(DeviceSelectionError::Baseline { name: CUBLASLT.to_string(), why });
            }
            absent.push(format!("`{CUBLASLT}` is absent: {why}"));
        }
        suite.offer_baselines();
        // Whoever names a baseline wants to see it beside something.
        let named = suite.options.cublaslt.iter().map(|_| CUBLASLT.to_string());
        for name in named.chain(suite.workers.iter().map(|(name, _)| name.clone())) {
            if suite.library.cases().iter().all(|case| !case.implementations.contains(&name)) {
                return Err(DeviceSelectionError::Baseline { name, why: "it offers none of the chosen cases".to_string() });
            }
        }
        Ok((suite, absent))
    }

    fn offer_baselines(&mut self) {
        let has_blas = self.blas().is_ok();
        for index in 0..self.library.cases().len() {
            let case = &self.library.cases()[index];
            let is_product = has_blas
                && self
                    .library
                    .asked(case, TESSERA)
                    .and_then(|asked| asked.plan())
                    .is_ok_and(|planned| product(&case.key, &planned.plan).is_some());
            let mut names: Vec<String> = is_product.then(|| CUBLASLT.to_string()).into_iter().collect();
            let offers = |worker: &Rc<RefCell<Worker>>| worker.borrow().offers(&case.key);
            names.extend(self.workers.iter().filter(|(_, worker)| offers(worker)).map(|(name, _)| name.clone()));
            self.library.cases_mut()[index].implementations.extend(names);
        }
    }

    /// Adds an implementation, before or after the others; `make` gives its launcher for a case's tensors.
    pub fn add(
        &mut self,
        name: &str,
        first: bool,
        make: impl Fn(&CaseSpec, &Plan, &DeviceTensors) -> Result<Box<dyn Launcher>, Fault> + 'static,
    ) {
        for case in self.library.cases_mut() {
            let at = if first { 0 } else { case.implementations.len() };
            case.implementations.insert(at, name.to_string());
        }
        self.makers.push((name.to_string(), Box::new(make)));
    }

    /// Leaves an implementation out of every case.
    pub fn remove(&mut self, name: &str) {
        self.library.cases_mut().iter_mut().for_each(|case| case.implementations.retain(|own| own != name));
    }

    /// Keeps at most `most` cases of each operator and precision.
    pub fn limit(&mut self, most: usize, seed: u64) {
        self.library.limit(most, seed);
    }

    /// The clock.
    pub fn timer(&self) -> &Rc<RefCell<DeviceTimer>> {
        &self.timer
    }

    fn blas(&self) -> Result<Rc<CublasLt>, String> {
        let load = || {
            // The library opens itself in the current context.
            self.device.context().table().map_err(|error| error.to_string())?;
            let path = self.options.cublaslt.as_deref().filter(|path| !path.as_os_str().is_empty());
            CublasLt::load(path).map(Rc::new).map_err(|error| error.to_string())
        };
        self.blas.get_or_init(load).clone()
    }

    fn launcher(
        &self,
        (case, name): (&CaseSpec, &str),
        asked: Asked,
        (plan, tuned): (Rc<Plan>, Option<Tuned>),
        tensors: &DeviceTensors,
    ) -> Result<Box<dyn Launcher>, Fault> {
        if let Some((_, make)) = self.makers.iter().find(|(own, _)| own == name) {
            return make(case, &plan, tensors);
        }
        if let Some((_, worker)) = self.workers.iter().find(|(own, _)| own == name) {
            return Ok(Box::new(WorkerLauncher::prepare(worker, case, &plan, tensors)?));
        }
        match name {
            CUBLASLT => {
                let blas = self.blas().map_err(|why| Fault::new(Status::Unsupported, why))?;
                let product = product(&case.key, &plan).ok_or_else(|| Fault::new(Status::Unsupported, "no matrix product"))?;
                Ok(Box::new(Blas::tune(&blas, &product, tensors, &mut self.timer.borrow_mut())?))
            }
            own if manner(asked.entry.operator, own).is_some() => {
                Ok(Box::new(Compiled::new(asked, (plan, tuned), &self.device, tensors)?))
            }
            other => Err(Fault::new(Status::Unsupported, format!("there is no implementation `{other}`"))),
        }
    }
}

/// Why a suite cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceSelectionError {
    /// The selection makes no sense.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// A baseline that was named does not start, or has nothing to do.
    #[error("baseline `{name}`: {why}")]
    Baseline {
        /// Its name.
        name: String,
        /// What is in the way.
        why: String,
    },
    /// The device does not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// The plan's kernels, compiled for the device and prepared on its tensors.
pub(crate) struct Compiled {
    asked: Asked,
    plan: Rc<Plan>,
    kernels: Vec<Kernel>,
    device: Device,
    launches: Vec<PreparedLaunch>,
    phases: Vec<Phase>,
    config: String,
}

fn kernel_fault(error: KernelError) -> Fault {
    let status = match &error {
        KernelError::Unsupported { .. } => Status::Unsupported,
        KernelError::Memory { .. } => Status::Oom,
        _ => Status::CompileError,
    };
    Fault::new(status, error.to_string())
}

impl Compiled {
    /// Compiles the launches of a plan, which a lockfile may have had a part in, for its tensors.
    pub(crate) fn new(
        asked: Asked,
        (plan, tuned): (Rc<Plan>, Option<Tuned>),
        device: &DriverDevice,
        tensors: &DeviceTensors,
    ) -> Result<Compiled, Fault> {
        let kernels = asked.kernels(&plan).map_err(kernel_fault)?;
        let mut compiled = Compiled {
            asked,
            plan,
            kernels,
            device: Device::Driver(device.clone()),
            launches: Vec::new(),
            phases: Vec::new(),
            config: String::new(),
        };
        let begin = Instant::now();
        compiled.prepare(tensors)?;
        let all_ns = begin.elapsed().as_nanos() as f64;
        let queued = || compiled.launches.iter().filter_map(PreparedLaunch::on_device);
        let loading_ns: f64 = queued().map(|launch| launch.kernel().load_time().as_nanos() as f64).sum();
        let taken = queued().map(|launch| launch.kernel().resources());
        let taken = taken.map(|r| format!("{} registers, {} B shared, {} B local", r.registers, r.shared_bytes, r.local_bytes));
        let tuned = tuned.iter().chain(compiled.launches.iter().filter_map(PreparedLaunch::tuned));
        let tuned = tuned.map(|tuned| format!("{} from {}", tuned.entry.summary(), tuned.path.display()));
        compiled.config = taken.chain(tuned).collect::<Vec<_>>().join("; ");
        compiled.phases =
            [("compile", all_ns - loading_ns), ("load", loading_ns)].map(|(name, ns)| Phase { name: name.into(), ns }).into();
        Ok(compiled)
    }

    fn prepare(&mut self, tensors: &DeviceTensors) -> Result<(), Fault> {
        let tensor = |position| tensors.view(position).clone();
        let launches = self.plan.prepare(&self.kernels, tensor, &self.asked.options, &self.device).map_err(kernel_fault)?;
        if launches.iter().any(|launch| launch.on_device().is_none()) {
            return Err(Fault::new(Status::HarnessError, "a kernel for a device is not on one"));
        }
        self.launches = launches;
        Ok(())
    }
}

impl Launcher for Compiled {
    fn enqueue(&mut self, _tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        self.launches.iter().filter_map(PreparedLaunch::on_device).try_for_each(|launch| launch.enqueue_on(stream))
    }

    fn rebind(&mut self, tensors: &DeviceTensors) -> Result<(), Fault> {
        self.prepare(tensors)
    }

    fn replan(&mut self) -> Result<Option<Rc<Plan>>, Fault> {
        self.plan = Rc::new(self.asked.plan()?.plan);
        self.kernels = self.asked.kernels(&self.plan).map_err(kernel_fault)?;
        Ok(Some(Rc::clone(&self.plan)))
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases.clone()
    }

    fn config(&self) -> String {
        self.config.clone()
    }
}

impl Suite for DeviceLibrary {
    fn name(&self) -> &str {
        self.library.name()
    }

    fn cases(&self) -> &[CaseSpec] {
        self.library.cases()
    }

    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let asked = self.library.asked(case, implementation)?;
        let Planned { plan, tuned } = asked.plan()?;
        let plan = Rc::new(plan);
        let made = (Rc::clone(&plan), tuned);
        let launcher = |tensors: &DeviceTensors| self.launcher((case, implementation), asked, made, tensors);
        Ok(Box::new(DeviceSubject::build(plan, Rc::clone(&self.timer), self.options.timing, launcher)?))
    }

    fn range(&self, name: &str) -> Option<ProfilerRange> {
        Some(self.device.range(name))
    }

    fn accelerator(&self) -> Option<Accelerator> {
        Some(self.timer.borrow().accelerator(self.options.timing))
    }

    fn device_clock(&self) -> Option<ClockFacts> {
        self.library.device_clock()
    }

    fn ceilings(&self, _probe: ProbeOptions) -> Ceilings {
        let blas = self.blas().ok();
        ceiling::measure(&mut self.timer.borrow_mut(), blas.as_ref(), self.options.ceiling_samples)
    }

    fn available_bytes(&self) -> Option<u64> {
        self.library.available_bytes()
    }

    fn is_lost(&self) -> bool {
        self.library.is_lost()
    }

    fn group_bytes(&self) -> u64 {
        8 << 30
    }
}
