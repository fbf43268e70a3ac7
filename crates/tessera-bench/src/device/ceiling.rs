//! How fast a device copies, reads and multiplies: what a row is held against.
//!
//! Copies and reads are the better of the harness's own kernel and (for copies) the driver's. Products are the vendor's, where
//! its library is there, on random operands; a class that was not measured has no ceiling.

use std::rc::Rc;

use tessera_cuda::{CublasLt, Product};
use tessera_driver::{Result, Stream};
use tessera_types::DType;

use super::blas;
use super::kernels::whole_blocks;
use super::timer::{DeviceTimer, Timing};
use crate::case::FlopClass;
use crate::ceiling::{Ceilings, Rate};
use crate::stats::{Confidence, median, median_interval};

/// Largest copy, both sides together.
const LARGEST: u64 = 2 << 30;
/// Sides of the products; long enough to be at their rate, short enough to take milliseconds.
const SIDE: u64 = 8192;
/// The same for formats without tensor cores of that rate.
const SMALL_SIDE: u64 = 4096;

/// Everything that can be measured.
pub(crate) fn measure(timer: &mut DeviceTimer, blas: Option<&Rc<CublasLt>>, samples: usize) -> Ceilings {
    let mut ceilings = Ceilings { threads: 0, ..Ceilings::default() };
    for footprint in footprints(timer.device().properties().memory_bytes) {
        if let Ok((copy, read)) = streams(timer, footprint, samples) {
            ceilings.copy.push(copy);
            ceilings.read.push(read);
        }
    }
    let Some(blas) = blas else { return ceilings };
    for (class, input, output) in [
        (FlopClass::F64, DType::F64, DType::F64),
        (FlopClass::F32, DType::F32, DType::F32),
        (FlopClass::Tf32, DType::TF32, DType::F32),
        (FlopClass::F16, DType::F16, DType::F32),
        (FlopClass::Bf16, DType::BF16, DType::F32),
        (FlopClass::F8, DType::F8E4M3, DType::F32),
        (FlopClass::I8, DType::I8, DType::I32),
    ] {
        let side = if matches!(class, FlopClass::F64 | FlopClass::F32) { SMALL_SIDE } else { SIDE };
        // Rows of A times rows of B: the layout that every format has.
        let (transpose_a, transpose_b, alpha, beta) = (false, true, 1.0, 0.0);
        let product = Product { batch: 1, m: side, n: side, k: side, transpose_a, transpose_b, input, output, alpha, beta };
        if let Ok(rates) = blas::rates(blas, timer, &product, samples) {
            ceilings.compute.push((class, rate(0, rates, "cublasLt")));
        }
    }
    ceilings
}

/// From 1 MiB on, four times more each, as far as memory allows.
fn footprints(memory: u64) -> Vec<u64> {
    let most = LARGEST.min(memory / 4);
    let mut list: Vec<u64> = (0..).map(|i| (1 << 20) << (2 * i)).take_while(|&bytes| bytes < most).collect();
    list.push(most);
    list
}

fn rate(footprint_bytes: u64, rates: Vec<f64>, how: &str) -> Rate {
    Rate {
        footprint_bytes,
        best: rates.iter().copied().fold(0.0, f64::max),
        median: median(&rates),
        ci95: median_interval(&rates, Confidence::P95),
        n: rates.len(),
        how: how.to_string(),
    }
}

/// Copy and read rates at a footprint: read and written bytes of a copy, or the bytes of both halves read.
fn streams(timer: &mut DeviceTimer, footprint: u64, samples: usize) -> Result<(Rate, Rate)> {
    let device = timer.device().clone();
    let half = whole_blocks(footprint / 2);
    let (from, to) = (device.context().buffer(half)?, device.context().buffer(half)?);
    from.fill(0, device.stream())?;
    to.fill(0, device.stream())?;
    let kernels = timer.kernels().clone();
    let mut rates = |amount: u64, launch: &mut dyn FnMut(&Stream) -> Result<()>| -> Result<Vec<f64>> {
        let times = timer.time(Timing::COLD, samples, 1, launch)?;
        Ok(times.into_iter().map(|ns| amount as f64 / ns * 1e9).collect())
    };
    let kernel = rates(2 * half, &mut |stream| kernels.copy(stream, from.pointer(), to.pointer(), half))?;
    let driver = rates(2 * half, &mut |stream| to.copy_from(&from, stream))?;
    let copy = match median(&kernel) >= median(&driver) {
        true => rate(2 * half, kernel, "kernel"),
        false => rate(2 * half, driver, "driver"),
    };
    let whole = device.context().buffer(2 * half)?;
    whole.fill(0, device.stream())?;
    let read = rates(2 * half, &mut |stream| kernels.read(stream, whole.pointer(), 2 * half))?;
    Ok((copy, rate(2 * half, read, "kernel")))
}
