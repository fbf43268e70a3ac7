//! Plans of a kernel, tried on a device: each is compiled and gives what the compiler's own plan gives, and those that do are timed in turns.
//!
//! A plan that has shown in a turn that it takes much longer than the best is not timed further. What the model says of a plan's time
//! ([`PossiblePlan::time`]) is kept beside what was measured; [`rank_correlation`] says how well the one orders the other.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_driver::{DriverError, Stream};
use tessera_runtime::{
    CompileOptions, Device, DriverDevice, Kernel, KernelError, LaunchGrid, PossiblePlan, PreparedLaunch, Tensor, TensorError,
    Value,
};

use crate::device::{DeviceTimer, Timing};
use crate::kernel_case::{arrays, with_arrays};
use crate::stats::median;
use crate::tolerance::Tolerance;

/// Turns, and samples of each plan in a turn.
const TURNS: usize = 4;
const SAMPLES: usize = 6;
/// What takes so many times the best is not timed again.
const MUCH: f64 = 1.3;

/// What became of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nanoseconds of a launch, the median of all samples.
    Time(f64),
    /// It gives other results.
    Wrong(String),
    /// It cannot be compiled or launched.
    Refused(String),
}

/// A plan that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The plan.
    pub plan: PossiblePlan,
    /// What became of it.
    pub outcome: Outcome,
}

impl Tried {
    /// Nanoseconds of a launch, where it could be timed.
    pub fn time(&self) -> Option<f64> {
        match self.outcome {
            Outcome::Time(time) => Some(time),
            Outcome::Wrong(_) | Outcome::Refused(_) => None,
        }
    }
}

/// Why nothing could be tried.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The kernel does not run as it is.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Arrays cannot be had or read.
    #[error(transparent)]
    Memory(#[from] TensorError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DriverError),
}

/// A kernel, what it is launched on, and how results are compared.
#[derive(Debug)]
pub struct Tuning<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Arguments, on the CPU.
    pub arguments: &'a [(String, Value)],
    /// Blocks.
    pub grid: LaunchGrid,
    /// How to compile.
    pub options: &'a CompileOptions,
    /// How far results of two plans may lie apart.
    pub tolerance: Tolerance,
    /// Where.
    pub device: &'a DriverDevice,
}

/// Arrays on the device, with their first contents on the CPU.
struct Arrays {
    made: Vec<Tensor>,
    there: Vec<Tensor>,
}

impl Tuning<'_> {
    /// Tries plans; `tell` is told after each what became of it first. The order is that of `plans`.
    pub fn run(&self, plans: Vec<PossiblePlan>, tell: &mut dyn FnMut(usize, &Outcome)) -> Result<Vec<Tried>, TuneError> {
        let device = Device::Driver(self.device.clone());
        let made: Vec<Tensor> = self.arguments.iter().flat_map(|(_, value)| arrays(value)).cloned().collect();
        let there = made.iter().map(|tensor| tensor.to_device(&device)).collect::<Result<_, _>>()?;
        let data = Arrays { made, there };
        let own = self.prepare(None, &data)?;
        let written: Vec<usize> = self.written(&own);
        own.run()?;
        let wanted: Vec<Tensor> = written.iter().map(|&at| data.there[at].to_device(&Device::Cpu)).collect::<Result<_, _>>()?;
        let mut timer = DeviceTimer::new(self.device)?;
        let mut launches: Vec<Option<PreparedLaunch>> = Vec::new();
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); plans.len()];
        let mut failed: Vec<Option<Outcome>> = Vec::new();
        for (at, prepared) in self.prepare_all(&plans, &data).into_iter().enumerate() {
            let (launch, outcome) = match prepared {
                Err(error) => (None, Some(Outcome::Refused(error.to_string()))),
                Ok(launch) => match self.differs(&launch, &data, &written, &wanted)? {
                    Some(wrong) => (None, Some(Outcome::Wrong(wrong))),
                    None => (Some(launch), None),
                },
            };
            if let Some(launch) = &launch {
                samples[at] = timed(&mut timer, launch)?;
            }
            tell(at, outcome.as_ref().unwrap_or(&Outcome::Time(median(&samples[at]))));
            launches.push(launch);
            failed.push(outcome);
        }
        for _ in 1..TURNS {
            let times = samples.iter().filter(|times| !times.is_empty()).map(|times| median(times));
            let best = times.fold(f64::INFINITY, f64::min);
            for (launch, times) in launches.iter().zip(&mut samples) {
                if let Some(launch) = launch.as_ref().filter(|_| median(times) < MUCH * best) {
                    times.extend(timed(&mut timer, launch)?);
                }
            }
        }
        let ended = plans.into_iter().zip(failed).zip(samples);
        Ok(ended
            .map(|((plan, failed), times)| Tried { plan, outcome: failed.unwrap_or_else(|| Outcome::Time(median(&times))) })
            .collect())
    }

    /// The kernel under each plan: assembling takes most of the time, and goes on on all processors.
    fn prepare_all(&self, plans: &[PossiblePlan], data: &Arrays) -> Vec<Result<PreparedLaunch, KernelError>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((at, plan)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, plans.get(at)?))) {
                done.push((at, self.prepare(Some(plan), data)));
            }
            done
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(plans.len());
        let mut done: Vec<(usize, Result<PreparedLaunch, KernelError>)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, prepared)| prepared).collect()
    }

    /// The kernel under a plan, or under the compiler's own.
    fn prepare(&self, plan: Option<&PossiblePlan>, data: &Arrays) -> Result<PreparedLaunch, KernelError> {
        let plan = plan.map(|plan| ("plan".to_string(), plan.text.clone()));
        let options = CompileOptions { plan, ..self.options.clone() };
        let arguments = with_arrays(self.arguments, data.there.iter().cloned());
        self.kernel.prepare(&arguments, self.grid, &options, &Device::Driver(self.device.clone()))
    }

    /// The arrays that a launch writes, by position among all.
    fn written(&self, launch: &PreparedLaunch) -> Vec<usize> {
        let names: Vec<&str> = launch.written().collect();
        let owners = self.arguments.iter().flat_map(|(name, value)| arrays(value).iter().map(move |_| name.as_str()));
        owners.enumerate().filter(|(_, owner)| names.contains(owner)).map(|(at, _)| at).collect()
    }

    /// Where the results of a launch differ from what they should be.
    fn differs(
        &self,
        launch: &PreparedLaunch,
        data: &Arrays,
        written: &[usize],
        wanted: &[Tensor],
    ) -> Result<Option<String>, TuneError> {
        for &at in written {
            data.there[at].copy_from(&data.made[at])?;
        }
        if let Err(error) = launch.run() {
            return Ok(Some(error.to_string()));
        }
        for (&at, want) in written.iter().zip(wanted) {
            let found = data.there[at].to_device(&Device::Cpu)?;
            let allowed = self.tolerance.allowed(want.dtype(), want.shape(), &want.to_f64()?);
            if let Some(difference) = found.difference(want, |place, want| allowed.at(place, want))? {
                let place = &difference.index;
                return Ok(Some(format!(
                    "{} elements differ, most at {place:?}: {} and {}",
                    difference.count, difference.left, difference.right
                )));
            }
        }
        Ok(None)
    }
}

/// Nanoseconds of launches, one by one, on a cold cache.
fn timed(timer: &mut DeviceTimer, launch: &PreparedLaunch) -> Result<Vec<f64>, DriverError> {
    let Some(queued) = launch.on_device() else { return Ok(Vec::new()) };
    timer.time(Timing::COLD, SAMPLES, 1, &mut |stream: &Stream| queued.enqueue_on(stream))
}

/// How well one list orders another: Spearman's coefficient, equal numbers sharing their places (1 the same order, 0 none, -1 the
/// opposite). Nothing for fewer than two numbers, or where one list is constant.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// The place of each number in their order, from 0 on; of equal ones the middle of theirs.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let place = |number: &f64| {
        let less = numbers.iter().filter(|other| *other < number).count();
        let same = numbers.iter().filter(|other| *other == number).count();
        less as f64 + (same as f64 - 1.0) / 2.0
    };
    numbers.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::rank_correlation;

    #[test]
    fn an_order_is_compared_by_places() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 200.0, 3000.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        // Two of three pairs of places agree: 1 - 6 * (0 + 1 + 1) / (3 * 8).
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]), Some(0.5));
        assert_eq!(rank_correlation(&[1.0, 1.0, 2.0], &[5.0, 5.0, 9.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(rank_correlation(&[], &[]), None);
    }
}
