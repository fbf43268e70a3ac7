//! Kernels of a user with their arguments as a suite, a row each.
//!
//! Arrays are copied between guards as those of the library are, so that the gate sees what is written beyond them; arrays
//! that were made empty are poisoned before a launch, others that the kernel writes begin with their first contents every time
//! the inputs are made. The reference is an unoptimised run on the CPU.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use tessera_driver::DriverError;
use tessera_ops::Role;
use tessera_runtime::{
    CompileOptions, Device, DriverDevice, Kernel, KernelError, LaunchGrid, OptLevel, PreparedLaunch, Tensor, TensorError, Value,
};

use crate::case::{
    CaseKey, Check, DeviceState, Expected, Fault, Lane, Metric, Output, Pace, Phase, Place, Poison, Size, Subject, Work,
};
use crate::clock::ClockFacts;
use crate::device::{DeviceTimer, Timing, launch_fault};
use crate::environment::{Accelerator, Environment};
use crate::guarded::{Guarded, memory_fault};
use crate::library::{TESSERA, decoder};
use crate::random::Digest;
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};
use crate::tolerance::{median_magnitude, relative_tolerance};

/// A kernel, what it is launched on, and how it is compiled.
#[derive(Clone, Debug)]
pub struct KernelCase {
    /// The kernel.
    pub kernel: Kernel,
    /// Arguments by name; arrays on the CPU.
    pub arguments: Vec<(String, Value)>,
    /// The arguments as they were written, for the case's identity.
    pub texts: Vec<String>,
    /// Blocks.
    pub grid: LaunchGrid,
    /// How to compile.
    pub options: CompileOptions,
}

/// Kernels on one device as a suite.
pub struct KernelSuite {
    kernels: Vec<Rc<KernelCase>>,
    cases: Vec<CaseSpec>,
    device: Device,
    timer: OnceCell<Rc<RefCell<DeviceTimer>>>,
}

/// Compiles a kernel for its arguments, to see what it writes.
fn spec(case: &KernelCase) -> Result<CaseSpec, KernelError> {
    let by_name: Vec<(&str, Value)> = case.arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let prepared = case.kernel.prepare(&by_name, case.grid, &case.options, &Device::Cpu)?;
    let written: Vec<&str> = prepared.written().collect();
    let bytes = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        let chosen = case.arguments.iter().filter(|(name, _)| wanted(name));
        chosen.flat_map(|(_, value)| arrays(value)).map(|tensor| tensor.bytes() as u64).sum()
    };
    let (read_bytes, write_bytes) = (bytes(&|_| true), bytes(&|name| written.contains(&name)));
    Ok(CaseSpec {
        key: key(case),
        work: Work {
            read_bytes,
            write_bytes,
            flops: 0,
            class: None,
            metric: Metric::Bandwidth,
            tensor_bytes: read_bytes,
            formula: "every array once, written ones twice".into(),
        },
        implementations: vec![TESSERA.to_string()],
    })
}

impl KernelSuite {
    /// Rows in the order of `kernels`, on one device.
    pub fn new(kernels: Vec<KernelCase>, device: Device) -> Result<KernelSuite, KernelError> {
        let cases = kernels.iter().map(spec).collect::<Result<_, _>>()?;
        Ok(KernelSuite { kernels: kernels.into_iter().map(Rc::new).collect(), cases, device, timer: OnceCell::new() })
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

fn arrays(value: &Value) -> &[Tensor] {
    match value {
        Value::Tensor(tensor) => std::slice::from_ref(tensor),
        Value::List(items) => items,
        _ => &[],
    }
}

/// The kernel's name, the sizes of its largest array, that array's type, and all arguments as they were written.
fn key(case: &KernelCase) -> CaseKey {
    let all = case.arguments.iter().flat_map(|(_, value)| arrays(value));
    let largest = all.max_by_key(|tensor| tensor.bytes());
    let extents = largest.map_or(&[][..], Tensor::shape).iter().enumerate();
    CaseKey {
        operator: case.kernel.name().to_string(),
        size: Size::new(extents.map(|(axis, &extent)| (["d0", "d1", "d2", "d3", "d4", "d5"][axis.min(5)], extent as u64))),
        precision: largest.map_or(String::new(), |tensor| tensor.dtype().to_string()),
        variant: String::new(),
        distribution: case.texts.join(" "),
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

    fn build(&self, case: &CaseSpec, _implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let timer = match &self.device {
            Device::Cpu => None,
            Device::Driver(device) => Some(self.timer(device).map_err(launch_fault)?),
        };
        let at = self.cases.iter().position(|own| own.key == case.key);
        let at = at.ok_or_else(|| Fault::new(Status::HarnessError, format!("there is no kernel `{}`", case.key)))?;
        Ok(Box::new(KernelSubject::build(&self.kernels[at], &self.device, timer)?))
    }

    fn accelerator(&self) -> Option<Accelerator> {
        Some(self.on_hardware()?.borrow().accelerator(Timing::COLD))
    }

    fn device_clock(&self) -> Option<ClockFacts> {
        self.on_hardware()?.borrow_mut().facts().ok()
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
            Device::Driver(device) => device.context().table().is_ok_and(|table| table.backend != "emulator"),
        }
    }
}

/// The kernel with its arrays in memory.
struct KernelSubject {
    case: Rc<KernelCase>,
    device: Device,
    timer: Option<Rc<RefCell<DeviceTimer>>>,
    tensors: Vec<Guarded>,
    launch: PreparedLaunch,
    outputs: Vec<Output>,
    /// Which tensor each output is.
    places: Vec<usize>,
    /// What an unoptimised run leaves in each output, and the median magnitude of that.
    reference: OnceCell<Result<Vec<(Tensor, f64)>, Fault>>,
    pace: Pace,
    state: Option<DeviceState>,
}

fn kernel_fault(error: KernelError) -> Fault {
    let status = match &error {
        KernelError::Unsupported { .. } => Status::Unsupported,
        KernelError::Memory { .. } => Status::Oom,
        KernelError::Fault { .. } => Status::RuntimeError,
        KernelError::Device(error) if error.poisons_context() => Status::RuntimeError,
        _ => Status::CompileError,
    };
    Fault::new(status, error.to_string())
}

fn harness_fault(error: TensorError) -> Fault {
    Fault::new(Status::HarnessError, error.to_string())
}

/// The arguments with other arrays in the place of their own, in order.
fn with_arrays(case: &KernelCase, mut array: impl Iterator<Item = Tensor>) -> Vec<(&str, Value)> {
    let value = |value: &Value, array: &mut dyn Iterator<Item = Tensor>| match value {
        Value::Tensor(own) => Value::Tensor(array.next().unwrap_or_else(|| own.clone())),
        Value::List(items) => Value::List(array.take(items.len()).collect()),
        other => other.clone(),
    };
    case.arguments.iter().map(|(name, own)| (name.as_str(), value(own, &mut array))).collect()
}

fn prepare(case: &KernelCase, device: &Device, tensors: &[Guarded]) -> Result<PreparedLaunch, Fault> {
    let arguments = with_arrays(case, tensors.iter().map(|tensor| tensor.view().clone()));
    case.kernel.prepare(&arguments, case.grid, &case.options, device).map_err(kernel_fault)
}

impl KernelSubject {
    fn build(case: &Rc<KernelCase>, device: &Device, timer: Option<Rc<RefCell<DeviceTimer>>>) -> Result<KernelSubject, Fault> {
        let (mut tensors, mut owners) = (Vec::new(), Vec::new());
        for (name, value) in &case.arguments {
            for own in arrays(value) {
                let about = (name.as_str(), Role::Input);
                tensors.push(Guarded::sized(tensors.len(), about, own.dtype(), (own.shape(), 1), device)?);
                owners.push((name.as_str(), own));
            }
        }
        let launch = prepare(case, device, &tensors)?;
        let written: Vec<&str> = launch.written().collect();
        let (mut outputs, mut places) = (Vec::new(), Vec::new());
        for (at, (tensor, (name, own))) in tensors.iter_mut().zip(&owners).enumerate() {
            if !written.contains(name) {
                continue;
            }
            tensor.set_role(if own.is_poisoned() { Role::Output } else { Role::InOut });
            let row_len = own.shape().last().copied().unwrap_or(1);
            outputs.push(Output {
                name: name.to_string(),
                rows: own.len().checked_div(row_len).unwrap_or(0),
                row_len,
                dtype: own.dtype(),
                check: if own.dtype().is_float() { Check::Bounded } else { Check::Exact },
                decode: decoder(own.dtype()),
            });
            places.push(at);
        }
        Ok(KernelSubject {
            case: Rc::clone(case),
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

    /// Runs the kernel without optimisation, on copies of the arguments, on the CPU.
    fn reference(&self) -> Result<&[(Tensor, f64)], Fault> {
        let make = || -> Result<Vec<(Tensor, f64)>, Fault> {
            let own = self.case.arguments.iter().flat_map(|(_, value)| arrays(value));
            let copies: Vec<Tensor> = own.map(|tensor| tensor.contiguous().map_err(memory_fault)).collect::<Result<_, _>>()?;
            let options = CompileOptions { level: OptLevel::O0, ..self.case.options.clone() };
            let arguments = with_arrays(&self.case, copies.iter().cloned());
            let launch = self.case.kernel.prepare(&arguments, self.case.grid, &options, &Device::Cpu).map_err(kernel_fault)?;
            launch.run().map_err(kernel_fault)?;
            let judged = |&place: &usize| {
                let numbers = copies[place].to_f64().map_err(harness_fault)?;
                Ok((copies[place].clone(), median_magnitude(&numbers)))
            };
            self.places.iter().map(judged).collect()
        };
        match self.reference.get_or_init(make) {
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
        let own = self.case.arguments.iter().flat_map(|(_, value)| arrays(value));
        for (tensor, own) in self.tensors.iter().zip(own).filter(|(tensor, _)| tensor.role() != Role::Output) {
            tensor.view().copy_from(own).map_err(memory_fault)?;
        }
        Ok(())
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        let own = self.case.arguments.iter().flat_map(|(_, value)| arrays(value));
        for (tensor, own) in self.tensors.iter().zip(own) {
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
        self.launch = prepare(&self.case, &self.device, &moved)?;
        self.tensors = moved;
        Ok(())
    }

    fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    fn launch(&mut self) -> Result<(), Fault> {
        self.launch.run().map_err(kernel_fault)
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
        self.tensors[self.places[output]].read(1, rows.start * self.outputs[output].row_len, codes)
    }

    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        let (reference, magnitude) = &self.reference()?[output];
        let start = rows.start * self.outputs[output].row_len;
        match expected {
            Expected::Codes(codes) => reference.read_codes(start, codes).map_err(harness_fault),
            Expected::Values { want, bound } => {
                reference.read_f64(start, want).map_err(harness_fault)?;
                let relative = relative_tolerance(reference.dtype());
                bound.iter_mut().zip(&*want).for_each(|(bound, want)| *bound = relative * (want.abs() + magnitude));
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
