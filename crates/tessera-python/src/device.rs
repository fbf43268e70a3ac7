//! Devices, each opened once in a process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tessera::emu::{Console, EmuOptions, LaunchOptions};
use tessera::runtime::{Device, DriverDevice};
use tessera::types::Device as Product;

use crate::error::Failure;

static CUDA: Mutex<BTreeMap<u32, DriverDevice>> = Mutex::new(BTreeMap::new());

/// How kernels on host arrays run, see `tessera/_device.py`.
#[derive(FromPyObject)]
pub(crate) struct Host {
    device: String,
    target: Option<String>,
    sanitize: Option<String>,
    schedule: Option<String>,
    seed: u64,
    pub(crate) threads: Option<usize>,
}

/// Where a launch on host arrays goes.
pub(crate) enum Place {
    Cpu { checked: bool },
    Emulator { device: DriverDevice, console: Arc<Console> },
}

/// The GPU of a number.
pub(crate) fn cuda(py: Python<'_>, ordinal: u32) -> PyResult<DriverDevice> {
    let mut known = CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = known.get(&ordinal) {
        return Ok(device.clone());
    }
    let opened = Device::cuda(ordinal).map_err(|error| Failure::plain("device", format!("GPU {ordinal}: {error}")).raise(py))?;
    let device =
        opened.driver().cloned().ok_or_else(|| Failure::plain("device", format!("GPU {ordinal} has no driver")).raise(py))?;
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
    /// Where kernels on host arrays run.
    pub(crate) fn place(&self, py: Python<'_>) -> PyResult<Place> {
        if self.device == "cpu" {
            return Ok(Place::Cpu { checked: self.sanitize.is_some() });
        }
        let refuse = |text: String| Failure::plain("argument", text).raise(py);
        let mut launch = LaunchOptions { seed: self.seed, threads: self.threads, ..LaunchOptions::default() };
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
        let (device, console) =
            Device::watched_emulator(&options).map_err(|error| Failure::plain("device", error.to_string()).raise(py))?;
        let device = device.driver().cloned().ok_or_else(|| Failure::plain("device", "the emulator has no driver").raise(py))?;
        Ok(Place::Emulator { device, console })
    }
}
