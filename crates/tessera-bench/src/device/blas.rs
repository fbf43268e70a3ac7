//! The vendor's matrix products as a baseline: the fastest of the library's own suggestions, chosen before anything is timed.

use std::rc::Rc;

use tessera_cuda::{BlasLaunch, CublasLt, CublasLtError, Product};
use tessera_driver::{DeviceBuffer, DriverError, Stream};
use tessera_ops::{Plan, Role, TensorSpec};

use super::subject::{Launcher, launch_fault};
use super::tensor::DeviceTensors;
use super::timer::{CacheState, DeviceTimer, Method, Timing};
use crate::case::{CaseKey, Fault, Phase};
use crate::stats::median;
use crate::status::Status;

/// Workspace that an algorithm may ask for.
const WORKSPACE_BYTES: u64 = 32 << 20;
/// Suggestions that are timed.
const SUGGESTIONS: usize = 12;

pub(crate) struct Blas {
    launch: BlasLaunch,
    workspace: DeviceBuffer,
    config: String,
    tuning_ns: f64,
}

/// The product that a case is, if it is one: two matrices in, one out, and whatever the operator has beside them for itself.
pub(crate) fn product(key: &CaseKey, plan: &Plan) -> Option<Product> {
    let extent = |name| key.size.get(name);
    let (m, n, k) = (extent("m")?, extent("n")?, extent("k")?);
    let transposed = |letters: [&str; 2]| letters.iter().any(|letters| key.variant.split(' ').any(|word| word == *letters));
    let given: Vec<&TensorSpec> = plan.tensors.iter().filter(|tensor| tensor.role != Role::Workspace).collect();
    let &[a, _, c] = &given[..] else { return None };
    let [alpha, beta] = [plan.float("alpha")?, plan.float("beta")?];
    Some(Product {
        batch: extent("batch").unwrap_or(1),
        m,
        n,
        k,
        transpose_a: transposed(["tn", "tt"]),
        transpose_b: transposed(["nt", "tt"]),
        input: a.dtype,
        output: c.dtype,
        alpha,
        beta,
    })
}

fn blas_fault(error: CublasLtError) -> Fault {
    let status = match error {
        CublasLtError::Unsupported { .. } | CublasLtError::Library(_) => Status::Unsupported,
        CublasLtError::Failed { .. } => Status::RuntimeError,
    };
    Fault::new(status, error.to_string())
}

fn driver_error(error: CublasLtError) -> DriverError {
    DriverError::Argument(error.to_string())
}

impl Blas {
    /// Times the library's suggestions for a product twice, in turn, and keeps the fastest.
    pub(crate) fn tune(
        blas: &CublasLt,
        product: &Product,
        tensors: &DeviceTensors,
        timer: &mut DeviceTimer,
    ) -> Result<Blas, Fault> {
        let begin = std::time::Instant::now();
        let launches = blas.algorithms(product, WORKSPACE_BYTES, SUGGESTIONS).map_err(blas_fault)?;
        let workspace = timer.device().context().buffer(WORKSPACE_BYTES).map_err(launch_fault)?;
        let mut times = vec![Vec::new(); launches.len()];
        let timing = Timing { cache: CacheState::Cold, method: Method::Events };
        for _ in 0..2 {
            for (launch, times) in launches.iter().zip(&mut times) {
                let once = &mut |stream: &Stream| enqueue(launch, tensors, &workspace, stream);
                times.extend(timer.time(timing, 5, 1, once).map_err(launch_fault)?);
            }
        }
        let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
        let best = (0..launches.len()).min_by(|&i, &j| medians[i].total_cmp(&medians[j])).unwrap_or(0);
        let version = blas.version().map_or(String::new(), |version| format!("{version}, "));
        let config = format!("{version}suggestion {} of {}, {}", best + 1, launches.len(), launches[best].id());
        let launch = launches.into_iter().nth(best).ok_or_else(|| Fault::new(Status::Unsupported, "no algorithm"))?;
        Ok(Blas { launch, workspace, config, tuning_ns: begin.elapsed().as_nanos() as f64 })
    }
}

fn enqueue(launch: &BlasLaunch, tensors: &DeviceTensors, workspace: &DeviceBuffer, stream: &Stream) -> Result<(), DriverError> {
    let [a, b, c] = [0, 1, 2].map(|position| tensors.pointer(position));
    launch.enqueue(a, b, c, workspace.pointer(), stream.handle()).map_err(driver_error)
}

impl Launcher for Blas {
    fn enqueue(&mut self, tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        enqueue(&self.launch, tensors, &self.workspace, stream)
    }

    fn phases(&self) -> Vec<Phase> {
        vec![Phase { name: "tune".to_string(), ns: self.tuning_ns }]
    }

    fn config(&self) -> String {
        self.config.clone()
    }
}

/// A product's rate for a ceiling: random operands, the fastest suggestion, in operations a second; one for each sample.
pub(crate) fn rates(blas: &Rc<CublasLt>, timer: &mut DeviceTimer, product: &Product, samples: usize) -> Result<Vec<f64>, Fault> {
    let context = timer.device().context().clone();
    let bytes = |dtype: tessera_types::DType, count: u64| count * u64::from(dtype.bits().max(8)) / 8;
    let bits = |dtype| if dtype == tessera_types::DType::TF32 { tessera_types::DType::F32 } else { dtype };
    let (input, output) = (bits(product.input), bits(product.output));
    let buffer = |dtype, count| context.buffer(bytes(dtype, count)).map_err(launch_fault);
    let a = buffer(input, product.m * product.k)?;
    let b = buffer(input, product.k * product.n)?;
    let c = buffer(output, product.m * product.n)?;
    // Power, and with it the clock, depends on the data: the operands are normal numbers, repeated.
    let stream = timer.device().stream().clone();
    let values = crate::library::filled(
        tessera_runtime::RandomStream::new(11),
        product.input,
        1 << 20,
        match product.input.is_integer() {
            true => tessera_ops::Fill::Integers { least: -128, greatest: 127 },
            false => tessera_ops::Fill::NORMAL,
        },
    );
    let values = values.and_then(|values| values.to_bytes()).map_err(super::subject::fault)?;
    for operand in [&a, &b] {
        for start in (0..operand.bytes()).step_by(values.len()) {
            let count = (operand.bytes() - start).min(values.len() as u64);
            operand.write(start, &values[..count as usize], &stream).map_err(launch_fault)?;
        }
    }
    let launches = blas.algorithms(product, WORKSPACE_BYTES, 4).map_err(blas_fault)?;
    let workspace = context.buffer(WORKSPACE_BYTES).map_err(launch_fault)?;
    let mut best: Vec<f64> = Vec::new();
    for launch in &launches {
        let once = &mut |stream: &Stream| {
            let launched = launch.enqueue(a.pointer(), b.pointer(), c.pointer(), workspace.pointer(), stream.handle());
            launched.map_err(driver_error)
        };
        let times = timer.time(Timing::COLD, samples, 1, once).map_err(launch_fault)?;
        if best.is_empty() || median(&times) < median(&best) {
            best = times;
        }
    }
    let operations = 2.0 * product.batch as f64 * product.m as f64 * product.n as f64 * product.k as f64;
    Ok(best.into_iter().map(|ns| operations / ns * 1e9).collect())
}
