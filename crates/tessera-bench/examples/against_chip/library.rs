//! The operator library's kernels on two devices: small problems at the edges of the tiles, every precision.
//!
//! Both compile to the same PTX. Where the reference asks for exact bits, the bits must agree; elsewhere two right answers
//! may lie two bounds apart, and the report says how far apart they are and how many elements differ at all.

use std::fmt::Write;

use tessera_ops::{Expected, Fill, Inputs, Machine, OPERATORS, Operator, Plan, Problem, Role};
use tessera_runtime::{CompileOptions, Device, RandomStream, Tensor};
use tessera_types::{Arch, Policy};

use crate::Outcome;

/// Problems beyond this are left out: the emulator would take minutes.
const MOST_BYTES: u64 = 3 << 20;
const MOST_FLOPS: u64 = 1 << 28;

/// The inputs as they lie on the host.
struct Host(Vec<Tensor>);

impl Inputs for Host {
    fn numbers(&self, tensor: usize, start: usize, out: &mut [f64]) {
        if self.0[tensor].read_f64(start, out).is_err() {
            out.fill(f64::NAN);
        }
    }

    fn codes(&self, tensor: usize, start: usize, out: &mut [u64]) {
        if self.0[tensor].read_codes(start, out).is_err() {
            out.fill(u64::MAX);
        }
    }
}

/// The plan's tensors on the host, filled the same way every time.
fn tensors(plan: &Plan) -> Outcome<Vec<Tensor>> {
    let mut list = Vec::new();
    for spec in &plan.tensors {
        let count = spec.len() * spec.step;
        let stream = RandomStream::named(7, spec.name);
        let flat = match (spec.role, spec.fill) {
            (Role::Output | Role::Workspace | Role::Counter, _) => Tensor::zeros(spec.dtype, &[count])?,
            (_, Fill::Normal { mean, sd }) => stream.normal_with(spec.dtype, &[count], mean, sd)?,
            (_, Fill::Integers { least, greatest }) => stream.integers(spec.dtype, &[count], least, greatest)?,
            (_, Fill::Bounds { rows }) => stream.bounds(spec.dtype, count, rows)?,
            (_, Fill::RowOffsets(pattern)) => Tensor::from_vec(&[count], pattern.row_offsets())?,
            (_, Fill::Columns(pattern)) => Tensor::from_vec(&[count], pattern.columns())?,
            (_, Fill::Rows(pattern)) => Tensor::from_vec(&[count], pattern.rows())?,
            (_, Fill::Places) => Tensor::from_vec(&[count], tessera_ops::places_of_fours(count))?,
            (_, Fill::Distinct { below }) => stream.distinct(spec.dtype, count, below)?,
        };
        let mut strides = vec![spec.step; spec.shape.len()];
        for axis in (0..spec.shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * spec.shape[axis + 1];
        }
        list.push(flat.strided(0, &spec.shape, &strides)?);
    }
    Ok(list)
}

/// Runs a plan on a device; the texts of its kernels and its outputs on the host.
fn run(operator: &Operator, plan: &Plan, host: &[Tensor], device: &Device) -> Outcome<(Vec<Vec<u8>>, Vec<Tensor>)> {
    let there: Vec<Tensor> = host.iter().map(|tensor| tensor.to_device(device)).collect::<Result<_, _>>()?;
    let mut texts = Vec::new();
    for launch in &plan.launches {
        let file = operator.file_of(launch);
        let kernel = file.kernel(launch.kernel)?;
        let arguments = launch.values(|position| there[position].clone());
        let prepared = kernel.prepare(&arguments, launch.grid, &CompileOptions::default(), device)?;
        let queued = prepared.on_device().ok_or("the kernel is not on a device")?;
        texts.push(queued.kernel().image().code.bytes().to_vec());
        queued.run()?;
    }
    let outputs = plan.outputs.iter().map(|rows| there[rows.tensor].to_device(&Device::Cpu)).collect::<Result<_, _>>()?;
    Ok((texts, outputs))
}

/// What was compared of an operator in a precision.
#[derive(Default)]
struct Tally {
    problems: usize,
    elements: usize,
    different: usize,
    /// The largest difference, as a part of the reference's bound.
    worst: f64,
    /// Outputs whose bits must be the same.
    exact: usize,
    /// Problems in which the devices do not agree.
    failed: Vec<String>,
}

fn compare(operator: &Operator, problem: &Problem, policy: Policy, devices: &[Device; 2], tally: &mut Tally) -> Outcome<()> {
    let machine = match &devices[0] {
        Device::Cpu => Machine::Cpu,
        Device::Driver(device) => Machine::Gpu(device.properties().target().parse().unwrap_or(Arch::Sm80)),
    };
    let Ok(plan) = operator.plan(problem, policy, machine) else { return Ok(()) };
    if plan.tensor_bytes() > MOST_BYTES || plan.work.flops > MOST_FLOPS {
        return Ok(());
    }
    let what = format!("{} {problem} {policy}", operator.name);
    let host = tensors(&plan)?;
    let chip = match run(operator, &plan, &host, &devices[0]) {
        Ok(found) => found,
        // What the compiler refuses for one device it refuses for both.
        Err(error) if error.to_string().contains("not compiled") || error.to_string().contains("unsupported") => return Ok(()),
        Err(error) => return Err(format!("{what}: {error}").into()),
    };
    let emulated = run(operator, &plan, &host, &devices[1]).map_err(|error| format!("{what}, emulated: {error}"))?;
    // The same text on both.
    let mut agrees = chip.0 == emulated.0;
    let host = Host(host);
    for (index, rows) in plan.outputs.iter().enumerate() {
        let [a, b] = [&chip.1[index], &emulated.1[index]].map(Tensor::to_codes);
        let (a, b) = (a?, b?);
        let different = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        let mut worst = 0.0f64;
        if !rows.exact && different > 0 {
            let (a, b) = (chip.1[index].to_f64()?, emulated.1[index].to_f64()?);
            let (mut want, mut bound) = (vec![0.0; a.len()], vec![0.0; a.len()]);
            plan.reference.rows(&host, index, 0..rows.rows, Expected::Bounded { want: &mut want, bound: &mut bound });
            for ((a, b), bound) in a.iter().zip(&b).zip(&bound) {
                if a != b && !(a.is_nan() && b.is_nan()) {
                    worst = worst.max(if *bound > 0.0 { (a - b).abs() / bound } else { f64::INFINITY });
                }
            }
        }
        agrees &= if rows.exact { different == 0 } else { worst <= 2.0 };
        tally.elements += a.len();
        tally.different += different;
        tally.exact += usize::from(rows.exact);
        tally.worst = tally.worst.max(worst);
    }
    tally.problems += 1;
    if !agrees {
        tally.failed.push(what);
    }
    Ok(())
}

/// Compares the library; the report and whether all agree.
pub(crate) fn agree(devices: &[Device; 2], report: &mut String) -> Outcome<bool> {
    let _ = writeln!(
        report,
        "{:<12} {:<22} {:>9} {:>10} {:>10} {:>16}",
        "operator", "precision", "problems", "elements", "different", "of the bound"
    );
    let mut failed = Vec::new();
    for operator in OPERATORS {
        for precision in operator.precisions.iter().chain(operator.further_precisions) {
            let Ok(policy) = precision.parse() else { continue };
            let mut tally = Tally::default();
            for problem in (operator.edges)() {
                compare(operator, &problem, policy, devices, &mut tally)?;
            }
            let Tally { problems, elements, different, worst, exact, .. } = tally;
            let judged = if exact > 0 { "bits".to_owned() } else { format!("{worst:.3}") };
            let _ = writeln!(
                report,
                "{:<12} {precision:<22} {problems:>9} {elements:>10} {different:>10} {judged:>16}",
                operator.name
            );
            failed.append(&mut tally.failed);
        }
    }
    for what in &failed {
        let _ = writeln!(report, "differs: {what}");
    }
    Ok(failed.is_empty())
}
