//! One implementation of a case on a device: a plan's tensors and something that queues the work.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::OnceLock;

use tessera_driver::{DeviceBuffer, DriverError, Stream};
use tessera_ops::{Plan, Role, RowIdentity};
use tessera_runtime::{Device, DeviceLaunch};

use super::tensor::DeviceTensors;
use super::timer::{DeviceTimer, Timing};
use crate::case::{DeviceState, Expected, Fault, Lane, Output, Pace, Phase, Place, Poison, Subject};
use crate::library::outputs_of;
use crate::random::Random;
use crate::status::Status;
use crate::tolerance::as_stored;

/// Queues a case's work.
pub trait Launcher {
    /// Queues the work once.
    fn enqueue(&mut self, tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError>;

    /// The tensors lie elsewhere from now on. Nothing to do where [`enqueue`](Launcher::enqueue) asks for their places.
    fn rebind(&mut self, _tensors: &DeviceTensors) -> Result<(), Fault> {
        Ok(())
    }

    /// The plan that the launches have from now on, made again after the lockfile got other entries; `None` where no lockfile is asked.
    fn replan(&mut self) -> Result<Option<Rc<Plan>>, Fault> {
        Ok(None)
    }

    /// Waits for the work of somebody else's process; nothing to do where it was queued on the device's own stream.
    fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Times of launches that this process cannot queue; `None` where it can.
    fn time(&mut self, _timing: Timing, _samples: usize, _launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        None
    }

    /// What was spent before the first launch.
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }

    /// Configuration, for the record.
    fn config(&self) -> String {
        String::new()
    }
}

/// Launches that were compiled and prepared here.
pub struct Prepared {
    /// In order.
    pub launches: Vec<DeviceLaunch>,
    /// What was spent before the first launch.
    pub phases: Vec<Phase>,
    /// Configuration, for the record.
    pub config: String,
}

impl Launcher for Prepared {
    fn enqueue(&mut self, _tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        self.launches.iter().try_for_each(|launch| launch.enqueue_on(stream))
    }

    fn rebind(&mut self, _tensors: &DeviceTensors) -> Result<(), Fault> {
        Err(Fault::new(Status::HarnessError, "launches that were prepared elsewhere stay where they are"))
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases.clone()
    }

    fn config(&self) -> String {
        self.config.clone()
    }
}

/// A fault of the harness or the driver as a row's outcome.
pub(crate) fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(Status::HarnessError, error.to_string())
}

/// What the driver says of a launch as a row's outcome.
pub(crate) fn launch_fault(error: DriverError) -> Fault {
    let status = if error.is_out_of_memory() { Status::Oom } else { Status::RuntimeError };
    Fault::new(status, error.to_string())
}

/// Outputs of at most so many elements are compared whole.
const WHOLE_ELEMENTS: usize = 1 << 22;
/// Problems of at most so many operations are compared whole.
const WHOLE_FLOPS: u64 = 1 << 32;
/// Strata of rows, one sample each.
const STRATA: usize = 64;
/// Elements of a sample at least.
const SAMPLE_ELEMENTS: usize = 4096;

/// One implementation of a case on a device.
pub struct DeviceSubject {
    plan: Rc<Plan>,
    // Before the tensors, which it may have lent to another process.
    launcher: Box<dyn Launcher>,
    tensors: DeviceTensors,
    timer: Rc<RefCell<DeviceTimer>>,
    timing: Timing,
    pace: Pace,
    outputs: Vec<Output>,
    digest: DeviceBuffer,
    lane: Lane,
    seed: u64,
    state: Option<DeviceState>,
}

impl DeviceSubject {
    /// A subject of a plan; `launcher` is made for the plan's tensors.
    pub fn build(
        plan: Rc<Plan>,
        timer: Rc<RefCell<DeviceTimer>>,
        timing: Timing,
        launcher: impl FnOnce(&DeviceTensors) -> Result<Box<dyn Launcher>, Fault>,
    ) -> Result<DeviceSubject, Fault> {
        let sums = timer.borrow_mut().sums();
        let device = timer.borrow().device().clone();
        let tensors = DeviceTensors::new(&plan, &Device::Driver(device.clone()), sums)?;
        let launcher = launcher(&tensors)?;
        let outputs = outputs_of(&plan);
        let digest = device.context().buffer(8).map_err(launch_fault)?;
        let (lane, seed, state, pace) = (Lane::Case, 0, None, Pace::Isolated);
        Ok(DeviceSubject { plan, tensors, launcher, timer, timing, pace, outputs, digest, lane, seed, state })
    }

    fn timing(&self) -> Timing {
        match self.pace {
            Pace::Isolated => self.timing,
            Pace::Steady => Timing::GRAPH,
        }
    }

    fn is_sampled(&self, output: usize) -> bool {
        self.outputs[output].len() > WHOLE_ELEMENTS || self.plan.work.flops > WHOLE_FLOPS
    }

    fn take_digest(&self, roles: &[Role], with_gaps: bool) -> Result<u64, Fault> {
        let timer = self.timer.borrow();
        let stream = timer.device().stream();
        self.digest.fill(0, stream).map_err(launch_fault)?;
        for (pointer, words) in self.tensors.digested(roles, with_gaps) {
            timer.kernels().digest(stream, pointer, words, self.digest.pointer()).map_err(launch_fault)?;
        }
        let mut bytes = [0; 8];
        self.digest.read(0, &mut bytes, stream).map_err(launch_fault)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn answer(&self, expected: Expected<'_>, ask: impl FnOnce(tessera_ops::Expected<'_>), output: usize) {
        match expected {
            Expected::Codes(codes) => ask(tessera_ops::Expected::Codes(codes)),
            Expected::Values { want, bound } => {
                ask(tessera_ops::Expected::Bounded { want: &mut *want, bound: &mut *bound });
                as_stored(self.outputs[output].dtype, self.lane, want, bound);
            }
        }
    }
}

impl Subject for DeviceSubject {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn phases(&self) -> Vec<Phase> {
        self.launcher.phases()
    }

    fn config(&self) -> String {
        self.launcher.config()
    }

    fn has_exact_lane(&self) -> bool {
        self.plan.exact_lane
    }

    fn repeatable(&self) -> bool {
        self.plan.repeatable()
    }

    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        (self.lane, self.seed) = (lane, seed);
        self.tensors.refresh(seed, lane)
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        self.tensors.poison(poison)
    }

    fn launch(&mut self) -> Result<(), Fault> {
        let device = self.timer.borrow().device().clone();
        self.launcher.enqueue(&self.tensors, device.stream()).map_err(launch_fault)?;
        device.synchronize().map_err(launch_fault)?;
        self.launcher.settle()
    }

    fn sampled_rows(&self, output: usize) -> Option<Vec<Range<usize>>> {
        let out = &self.outputs[output];
        let width = (SAMPLE_ELEMENTS / out.row_len.max(1)).max(1);
        if !self.is_sampled(output) || out.rows <= 2 * STRATA * width {
            return None;
        }
        let mut random = Random::new(self.seed ^ output as u64);
        let stratum = out.rows / STRATA;
        // The first and the last rows are among them: that is where edges go wrong.
        let place = |i: usize, random: &mut Random| match i {
            0 => 0,
            _ if i == STRATA - 1 => out.rows - width,
            _ => i * stratum + random.below(stratum - width + 1),
        };
        Some((0..STRATA).map(|i| place(i, &mut random)).map(|start| start..start + width).collect())
    }

    fn expect_sampled(&self, output: usize, rows: &[Range<usize>], expected: Expected<'_>) -> Result<(), Fault> {
        let (reference, row_len) = (&self.plan.reference, self.outputs[output].row_len);
        self.answer(expected, |answer| reference.scattered(&self.tensors, output, row_len, rows, answer), output);
        Ok(())
    }

    fn identity(&self, output: usize) -> Result<Option<Vec<RowIdentity>>, Fault> {
        if self.sampled_rows(output).is_none() {
            return Ok(None);
        }
        let out = &self.outputs[output];
        let (tensors, tensor, row_len) = (&self.tensors, self.plan.outputs[output].tensor, out.row_len);
        // The output is fetched once, and only if somebody asks.
        let host = OnceLock::new();
        let read = |rows: Range<usize>, numbers: &mut [f64]| {
            let host = host.get_or_init(|| tensors.view(tensor).to_device(&Device::Cpu));
            host.as_ref().is_ok_and(|host| host.read_f64(rows.start * row_len, numbers).is_ok())
        };
        let mut random = Random::new(self.seed ^ 0x5167);
        let v: Vec<f64> = (0..row_len).map(|_| if random.below(2) == 0 { 1.0 } else { -1.0 }).collect();
        Ok(self.plan.reference.identity(&self.tensors, output, &v, &read))
    }

    fn output_digest(&self) -> Result<Option<u64>, Fault> {
        if !(0..self.outputs.len()).any(|output| self.is_sampled(output)) {
            return Ok(None);
        }
        self.take_digest(&[Role::Output, Role::InOut], false).map(Some)
    }

    fn relocate(&mut self, place: Place) -> Result<(), Fault> {
        // What was queued may still use the old memory.
        let device = self.timer.borrow().device().clone();
        device.synchronize().map_err(launch_fault)?;
        let old = self.tensors.relocate(place)?;
        self.launcher.rebind(&self.tensors)?;
        drop(old);
        Ok(())
    }

    fn rebuild(&mut self) -> Result<(), Fault> {
        if let Some(plan) = self.launcher.replan()? {
            // What was queued may still use memory that the new plan has no use for.
            let device = self.timer.borrow().device().clone();
            device.synchronize().map_err(launch_fault)?;
            self.tensors.adapt(&plan, &Device::Driver(device))?;
            self.plan = plan;
        }
        self.launcher.rebind(&self.tensors)
    }

    fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    fn result_digest(&self) -> Result<Option<u64>, Fault> {
        // Tensors with gaps are not all the kernel's to write.
        let plain = self.plan.tensors.iter().all(|spec| spec.step == 1 || !matches!(spec.role, Role::Output | Role::InOut));
        if plain { self.take_digest(&[Role::Output, Role::InOut], false).map(Some) } else { Ok(None) }
    }

    fn most_launches(&self) -> usize {
        self.timing().most_launches()
    }

    fn time(&mut self, samples: usize, launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        if let Some(times) = self.launcher.time(self.timing(), samples, launches) {
            return Some(times);
        }
        let timing = self.timing();
        let (launcher, tensors) = (&mut self.launcher, &self.tensors);
        let mut timer = self.timer.borrow_mut();
        let times = timer.time(timing, samples, launches, &mut |stream| launcher.enqueue(tensors, stream));
        self.state = Some(timer.state());
        Some(times.map_err(launch_fault))
    }

    fn device_state(&self) -> Option<DeviceState> {
        self.state
    }

    fn read(&self, output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        let row_len = self.outputs[output].row_len;
        self.tensors.read(self.plan.outputs[output].tensor, rows.start * row_len, codes)
    }

    fn expect(&self, output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        self.answer(expected, |answer| self.plan.reference.rows(&self.tensors, output, rows, answer), output);
        Ok(())
    }

    fn input_digest(&self) -> Result<u64, Fault> {
        self.take_digest(&[Role::Input], true)
    }

    fn damaged_guard(&self) -> Option<String> {
        self.tensors.damaged_guard()
    }
}
