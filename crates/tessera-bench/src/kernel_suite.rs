//! Kernels of a user with their arguments as a suite, a row for each kernel and its baselines.
//!
//! Arrays are copied between guards as those of the library are, so that the gate sees what is written beyond them; arrays
//! that were made empty are poisoned before a launch, others that the kernel writes begin with their first contents every time
//! the inputs are made. What is written is judged against the case's reference (`kernel_case.rs`); of a baseline, what the kernel
//! writes as well.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use tessera_driver::DriverError;
use tessera_ops::Role;
use tessera_runtime::{Device, DriverDevice, PreparedLaunch, Tensor, Tuned, Value};

use crate::case::{
    CaseKey, Check, DeviceState, Expected, Fault, Lane, Metric, Output, Pace, Phase, Place, Poison, Size, Subject, Work,
};
use crate::ceiling::{Ceilings, ProbeOptions};
use crate::clock::ClockFacts;
use crate::device::{DeviceOptions, DeviceTimer, Timing, launch_fault, measure_ceilings};
use crate::environment::{Accelerator, Environment};
use crate::guarded::{Guarded, memory_fault};
use crate::kernel_case::{Entrant, KernelCase, KernelSuiteError, arrays, harness_fault, kernel_fault};
use crate::library::decoder;
use crate::random::Digest;
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};
use crate::tolerance::Allowed;
use crate::tune::{Tunable, TunedLaunch};

/// A case, and the arguments that its kernel writes.
struct Known {
    case: KernelCase,
    written: Vec<String>,
}

/// Kernels on one device as a suite.
pub struct KernelSuite {
    kernels: Vec<Rc<Known>>,
    cases: Vec<CaseSpec>,
    device: Device,
    timer: OnceCell<Rc<RefCell<DeviceTimer>>>,
}

/// Compiles a kernel for its arguments, to see what it writes.
fn spec(case: KernelCase) -> Result<(Known, CaseSpec), KernelSuiteError> {
    let made = case.load()?;
    let written = case.written(&made)?;
    let own = case.own(&made);
    let [read_bytes, write_bytes] = own.touched()?.map(|touched| traffic(&own.arguments, &touched));
    let spec = CaseSpec {
        key: key(&case, &made),
        work: Work {
            read_bytes,
            write_bytes,
            flops: 0,
            class: None,
            metric: Metric::Bandwidth,
            tensor_bytes: made.iter().flat_map(|(_, value)| arrays(value)).map(|tensor| tensor.bytes() as u64).sum(),
            formula: "every array that the kernel reads once, and every one that it writes".into(),
        },
        implementations: case.implementations(),
    };
    Ok((Known { case, written }, spec))
}

/// Bytes of the arrays that some arguments have.
fn traffic(arguments: &[(String, Value)], touched: &[String]) -> u64 {
    let own = arguments.iter().filter(|(name, _)| touched.contains(name));
    own.flat_map(|(_, value)| arrays(value)).map(|tensor| tensor.bytes() as u64).sum()
}

impl KernelSuite {
    /// Rows in the order of `kernels`, on one device.
    pub fn new(kernels: Vec<KernelCase>, device: Device) -> Result<KernelSuite, KernelSuiteError> {
        let known: Vec<(Known, CaseSpec)> = kernels.into_iter().map(spec).collect::<Result<_, _>>()?;
        let (kernels, cases) = known.into_iter().map(|(known, spec)| (Rc::new(known), spec)).unzip();
        Ok(KernelSuite { kernels, cases, device, timer: OnceCell::new() })
    }

    fn known(&self, case: &CaseSpec) -> Result<&Rc<Known>, Fault> {
        let at = self.cases.iter().position(|own| own.key == case.key);
        at.map(|at| &self.kernels[at])
            .ok_or_else(|| Fault::new(Status::HarnessError, format!("there is no kernel `{}`", case.key)))
    }

    fn timer(&self, device: &DriverDevice) -> Result<Rc<RefCell<DeviceTimer>>, DriverError> {
        if let Some(timer) = self.timer.get() {
            return Ok(Rc::clone(timer));
        }
        let timer = Rc::new(RefCell::new(DeviceTimer::new(device)?));
        Ok(Rc::clone(self.timer.get_or_init(|| timer)))
    }

    fn on_hardware(&self) -> Option<Rc<RefCell<DeviceTimer>>> {
        let Device::Driver(device) = &self.device else { return None };
        if self.has_time() { self.timer(device).ok() } else { None }
    }
}

/// The kernel's name, the sizes that were named or else those of its largest array, that array's type, and all arguments as they were
/// written.
fn key(case: &KernelCase, made: &[(String, Value)]) -> CaseKey {
    let largest = made.iter().flat_map(|(_, value)| arrays(value)).max_by_key(|tensor| tensor.bytes());
    let extents = largest.map_or(&[][..], Tensor::shape).iter().enumerate();
    CaseKey {
        operator: case.kernel.name().to_string(),
        size: match case.sizes.is_empty() {
            true => Size::new(extents.map(|(axis, &extent)| (format!("d{axis}"), extent as u64))),
            false => Size::new(case.sizes.iter().cloned()),
        },
        precision: largest.map_or(String::new(), |tensor| tensor.dtype().to_string()),
        variant: String::new(),
        distribution: case.texts.join(" "),
    }
}

impl Tunable for KernelSuite {
    fn launches(&self, case: &CaseSpec) -> Result<Vec<TunedLaunch>, Fault> {
        let known = self.known(case)?;
        let made = known.case.load().map_err(|error| Fault::new(Status::Oom, error.to_string()))?;
        Ok(vec![known.case.launch(&made)])
    }
}

impl Suite for KernelSuite {
    fn name(&self) -> &str {
        "kernel"
    }

    fn cases(&self) -> &[CaseSpec] {
        &self.cases
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let timer = match &self.device {
            Device::Cpu => None,
            Device::Driver(device) => Some(self.timer(device).map_err(launch_fault)?),
        };
        Ok(Box::new(KernelSubject::build(self.known(case)?, implementation, &self.device, timer)?))
    }

    fn accelerator(&self) -> Option<Accelerator> {
        Some(self.on_hardware()?.borrow().accelerator(Timing::COLD))
    }

    fn device_clock(&self) -> Option<ClockFacts> {
        self.on_hardware()?.borrow_mut().facts().ok()
    }

    fn ceilings(&self, probe: ProbeOptions) -> Ceilings {
        match self.on_hardware() {
            Some(timer) => measure_ceilings(&mut timer.borrow_mut(), None, DeviceOptions::default().ceiling_samples),
            None => Ceilings::measure(probe),
        }
    }

    fn available_bytes(&self) -> Option<u64> {
        match &self.device {
            Device::Cpu => Environment::available_bytes(),
            Device::Driver(device) => device.context().memory().ok().map(|(free, _)| free),
        }
    }

    fn is_lost(&self) -> bool {
        match &self.device {
            Device::Cpu => false,
            Device::Driver(device) => device.stream().synchronize().is_err_and(|error| error.poisons_context()),
        }
    }

    fn has_time(&self) -> bool {
        match &self.device {
            Device::Cpu => true,
            Device::Driver(device) => !device.is_emulated(),
        }
    }
}

/// The kernel with its arrays in memory.
struct KernelSubject {
    known: Rc<Known>,
    /// All arguments of the case as they were made; no launch writes them.
    made: Vec<(String, Value)>,
    entrant: Entrant,
    device: Device,
    timer: Option<Rc<RefCell<DeviceTimer>>>,
    tensors: Vec<Guarded>,
    launch: PreparedLaunch,
    outputs: Vec<Output>,
    /// Which tensor each output is, and which array of which argument.
    places: Vec<(usize, (String, usize))>,
    /// What each output should hold, and how far from it that may be.
    reference: OnceCell<Result<Vec<(Tensor, Allowed)>, Fault>>,
    pace: Pace,
    state: Option<DeviceState>,
}

fn prepare(entrant: &Entrant, device: &Device, tensors: &[Guarded]) -> Result<PreparedLaunch, Fault> {
    entrant.prepare(tensors.iter().map(|tensor| tensor.view().clone()), device).map_err(kernel_fault)
}

/// Refuses an array that holds nothing and is only read.
fn refuse_unwritten(kernel: &str, name: &str, array: &Tensor) -> Result<(), Fault> {
    if !array.is_poisoned() {
        return Ok(());
    }
    let way = format!("give what is only read contents: `{name}=zeros:...` or `{name}=@FILE.npy`");
    Err(Fault::new(Status::NotWritten, format!("`{name}` was given as `empty`, and `{kernel}` has no store to `{name}`; {way}")))
}

impl KernelSubject {
    fn build(
        known: &Rc<Known>,
        implementation: &str,
        device: &Device,
        timer: Option<Rc<RefCell<DeviceTimer>>>,
    ) -> Result<KernelSubject, Fault> {
        let made = known.case.load().map_err(|error| Fault::new(Status::Oom, error.to_string()))?;
        let entrant = known.case.entrant(implementation, &made);
        let (mut tensors, mut owners) = (Vec::new(), Vec::new());
        for (name, value) in &entrant.arguments {
            for (item, own) in arrays(value).iter().enumerate() {
                let about = (name.as_str(), Role::Input);
                tensors.push(Guarded::sized(tensors.len(), about, own.dtype(), (own.shape(), 1), device)?);
                owners.push((name, item, own));
            }
        }
        let launch = prepare(&entrant, device, &tensors)?;
        let written: Vec<&str> = launch.written().collect();
        let (mut outputs, mut places) = (Vec::new(), Vec::new());
        for (at, (tensor, (name, item, own))) in tensors.iter_mut().zip(&owners).enumerate() {
            if !written.contains(&name.as_str()) {
                // What is made of nothing is no number, and as good as any other one.
                refuse_unwritten(entrant.kernel.name(), name, own)?;
                continue;
            }
            tensor.set_role(if own.is_poisoned() { Role::Output } else { Role::InOut });
            // What only a baseline writes is its own affair.
            if !known.written.contains(name) {
                continue;
            }
            let row_len = own.shape().last().copied().unwrap_or(1);
            outputs.push(Output {
                name: name.to_string(),
                rows: own.len().checked_div(row_len).unwrap_or(0),
                row_len,
                dtype: own.dtype(),
                check: if own.dtype().is_float() { Check::Bounded } else { Check::Exact },
                decode: decoder(own.dtype()),
            });
            places.push((at, (name.to_string(), *item)));
        }
        Ok(KernelSubject {
            known: Rc::clone(known),
            entrant,
            made,
            device: device.clone(),
            timer,
            tensors,
            launch,
            outputs,
            places,
            reference: OnceCell::new(),
            pace: Pace::Isolated,
            state: None,
        })
    }

    fn reference(&self) -> Result<&[(Tensor, Allowed)], Fault> {
        let wanted = || self.places.iter().map(|(_, array)| array.clone()).collect::<Vec<_>>();
        match self.reference.get_or_init(|| self.known.case.reference(&self.made, &wanted())) {
            Ok(reference) => Ok(reference),
            Err(fault) => Err(fault.clone()),
        }
    }

    fn timing(&self) -> Timing {
        match self.pace {
            Pace::Isolated => Timing::COLD,
            Pace::Steady => Timing::GRAPH,
        }
    }
}

impl Subject for KernelSubject {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn phases(&self) -> Vec<Phase> {
        let stages = self.launch.stages().iter();
        vec![Phase { name: "compile".into(), ns: stages.map(|stage| stage.time.as_nanos() as f64).sum() }]
    }

    fn repeatable(&self) -> bool {
        !self.tensors.iter().any(|tensor| tensor.role() == Role::InOut)
    }

    fn refresh(&mut self, _seed: u64, _lane: Lane) -> Result<(), Fault> {
        for (tensor, own) in self.tensors.iter().zip(self.entrant.arrays()).filter(|(tensor, _)| tensor.role() != Role::Output) {
            tensor.view().copy_from(own).map_err(memory_fault)?;
        }
        Ok(())
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        for (tensor, own) in self.tensors.iter().zip(self.entrant.arrays()) {
            match tensor.role() {
                Role::InOut => tensor.view().copy_from(own).map_err(memory_fault)?,
                _ => tensor.poison(poison)?,
            }
        }
        Ok(())
    }

    fn relocate(&mut self, place: Place) -> Result<(), Fault> {
        if let Device::Driver(device) = &self.device {
            device.synchronize().map_err(launch_fault)?;
        }
        let moved = self.tensors.iter().map(|tensor| tensor.moved(place)).collect::<Result<Vec<_>, _>>()?;
        self.launch = prepare(&self.entrant, &self.device, &moved)?;
        self.tensors = moved;
        Ok(())
    }

    fn rebuild(&mut self) -> Result<(), Fault> {
        self.launch = prepare(&self.entrant, &self.device, &self.tensors)?;
        Ok(())
    }

    fn config(&self) -> String {
        let told = |tuned: &Tuned| format!("{} from {}", tuned.entry.summary(), tuned.path.display());
        self.launch.tuned().map_or_else(String::new, told)
    }

    fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    fn launch(&mut self) -> Result<(), Fault> {
        self.entrant.run(&self.launch).map_err(kernel_fault)
    }

    fn most_launches(&self) -> usize {
        if self.timer.is_some() { self.timing().most_launches() } else { usize::MAX }
    }

    fn time(&mut self, samples: usize, launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        let (timing, queued) = (self.timing(), self.launch.on_device()?);
        let mut timer = self.timer.as_ref()?.borrow_mut();
        let times = timer.time(timing, samples, launches, &mut |stream| queued.enqueue_on(stream));
        self.state = Some(timer.state());
        Some(times.map_err(launch_fault))
    }

    fn device_state(&self) -> Option<DeviceState> {
        self.state
    }

    fn read(&self, output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        self.tensors[self.places[output].0].read(1, rows.start * self.outputs[output].row_len, codes)
    }

    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        let (reference, allowed) = &self.reference()?[output];
        let start = rows.start * self.outputs[output].row_len;
        match expected {
            Expected::Codes(codes) => reference.read_codes(start, codes).map_err(harness_fault),
            Expected::Values { want, bound } => {
                reference.read_f64(start, want).map_err(harness_fault)?;
                let places = (start..).zip(bound.iter_mut().zip(&*want));
                places.for_each(|(place, (bound, want))| *bound = allowed.at(place, *want));
                Ok(())
            }
        }
    }

    fn input_digest(&self) -> Result<u64, Fault> {
        let mut digest = Digest::default();
        for tensor in self.tensors.iter().filter(|tensor| tensor.role() == Role::Input) {
            let host = tensor.inside(0..tensor.span())?.to_device(&Device::Cpu).map_err(harness_fault)?;
            digest.word(host.digest().map_err(harness_fault)?);
        }
        Ok(digest.finish())
    }

    fn damaged_guard(&self) -> Option<String> {
        self.tensors.iter().find_map(Guarded::damage)
    }
}
