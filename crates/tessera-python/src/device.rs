//! Devices, each opened once in a process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tessera::emu::{Console, EmuOptions, LaunchOptions, Launched};
use tessera::runtime::{Device, DriverDevice, KernelError, LaunchOptions as CpuOptions};
use tessera::types::{Device as Product, TimeLimit};

use crate::error::{Failure, of_kernel, show};
use crate::finding::told;

static CUDA: Mutex<BTreeMap<u32, DriverDevice>> = Mutex::new(BTreeMap::new());
/// Numbers of emulated devices, beyond those of GPUs.
static NEXT: AtomicU64 = AtomicU64::new(u32::MAX as u64);
static EMULATED: Mutex<Vec<(Host, Arc<Emulated>)>> = Mutex::new(Vec::new());

/// How kernels on host arrays run, see `tessera/_device.py`.
#[derive(Clone, Debug, PartialEq, FromPyObject)]
pub(crate) struct Host {
    device: String,
    target: Option<String>,
    sanitize: Option<String>,
    schedule: Option<String>,
    seed: u64,
    threads: Option<usize>,
    timeout: Option<f64>,
}

/// Where a launch on host arrays goes.
pub(crate) enum Place {
    Cpu(CpuOptions),
    Emulator(Arc<Emulated>),
}

/// An emulated GPU. What its launches find is kept by one console, so they take turns.
pub(crate) struct Emulated {
    pub(crate) device: DriverDevice,
    /// What no other device of the process has.
    pub(crate) number: u64,
    console: Arc<Console>,
    turn: Mutex<()>,
}

impl Emulated {
    /// Runs launches to their end; gives what they printed.
    pub(crate) fn run(&self, py: Python<'_>, work: impl FnOnce() -> Result<(), KernelError> + Send) -> PyResult<String> {
        let (ran, launched) = py.detach(|| self.watched(work));
        ran.map_err(|error| {
            self.forget();
            show(py, &printed(&launched));
            let (text, findings) = told(&launched);
            // A failed assertion is a trap among the findings, and says more itself.
            match findings.is_empty() || matches!(error, KernelError::Fault { .. }) {
                true => of_kernel(py, &error),
                false => Failure::plain("sanitizer", text).with_findings(findings).raise(py),
            }
        })?;
        Ok(printed(&launched))
    }

    /// Does work, and gives what launches meanwhile found and printed.
    fn watched<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Launched>) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work();
        (done, self.console.take())
    }

    /// Launches to come get another device: a fault is the end of the one that it happened on.
    fn forget(&self) {
        let mut known = EMULATED.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, emulated)| emulated.number != self.number);
    }
}

/// What launches printed.
fn printed(launched: &[Launched]) -> String {
    launched.iter().map(|launched| launched.report.output.as_str()).collect()
}

/// How many GPUs there are.
pub(crate) fn gpus(py: Python<'_>) -> PyResult<usize> {
    Device::all_cuda().map(|all| all.len()).map_err(|error| Failure::plain("device", error.to_string()).raise(py))
}

/// The GPU of a number.
pub(crate) fn cuda(py: Python<'_>, ordinal: u32) -> PyResult<DriverDevice> {
    let mut known = CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = known.get(&ordinal) {
        return Ok(device.clone());
    }
    let fail = |text: String| Failure::plain("device", format!("GPU {ordinal}: {text}")).raise(py);
    let opened = Device::cuda(ordinal).map_err(|error| fail(error.to_string()))?;
    let device = opened.driver().cloned().ok_or_else(|| fail("it has no driver".to_owned()))?;
    known.insert(ordinal, device.clone());
    Ok(device)
}

/// The product that a name means, or a target: `sm_90` and `sm_90a` are one chip. Of several products of a chip the last is taken.
pub(crate) fn product(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    let plain = |name: &str| name.trim_end_matches(['a', 'f']).to_owned();
    let chip = |product: &&Product| plain(product.arch.name()) == plain(name);
    let found = Product::by_name(name).or_else(|| Product::ALL.iter().rfind(chip));
    found.map(|product| product.name).ok_or_else(|| {
        let products: Vec<&str> = Product::ALL.iter().map(|product| product.name).collect();
        Failure::plain("argument", format!("`{name}` is no device: one of {}", products.join(", "))).raise(py)
    })
}

impl Host {
    /// How long a launch may take.
    fn limit(&self) -> TimeLimit {
        self.timeout.map_or(TimeLimit::PATIENT, |seconds| TimeLimit::within(Duration::from_secs_f64(seconds)))
    }

    /// Where kernels on host arrays run.
    pub(crate) fn place(&self, py: Python<'_>) -> PyResult<Place> {
        if self.device == "cpu" {
            return Ok(Place::Cpu(CpuOptions { checked: self.sanitize.is_some(), threads: self.threads, limit: self.limit() }));
        }
        let mut known = EMULATED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, emulated)) = known.iter().find(|(host, _)| host == self) {
            return Ok(Place::Emulator(Arc::clone(emulated)));
        }
        let emulated = Arc::new(self.open(py, NEXT.fetch_add(1, Ordering::Relaxed))?);
        known.push((self.clone(), Arc::clone(&emulated)));
        Ok(Place::Emulator(emulated))
    }

    fn open(&self, py: Python<'_>, number: u64) -> PyResult<Emulated> {
        let refuse = |text: String| Failure::plain("argument", text).raise(py);
        let fail = |text: String| Failure::plain("device", text).raise(py);
        let mut launch =
            LaunchOptions { seed: self.seed, threads: self.threads, limit: self.limit(), ..LaunchOptions::default() };
        if let Some(checks) = &self.sanitize {
            launch.sanitize = checks.parse().map_err(refuse)?;
        }
        if let Some(schedule) = &self.schedule {
            launch.schedule = schedule.parse().map_err(refuse)?;
        }
        let mut options = EmuOptions { launch, ..EmuOptions::default() };
        if let Some(name) = &self.target {
            options.device = product(py, name)?.to_owned();
        }
        let (device, console) = Device::watched_emulator(&options).map_err(|error| fail(error.to_string()))?;
        let device = device.driver().cloned().ok_or_else(|| fail("the emulator has no driver".to_owned()))?;
        Ok(Emulated { device, number, console, turn: Mutex::new(()) })
    }
}
