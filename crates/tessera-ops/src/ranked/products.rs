//! Products whose operand or result is cut among ranks, a piece a rank, exchanged while another piece is multiplied.

use tessera_runtime::ranks::{Communicator, Group, Lanes};
use tessera_runtime::{CompileOptions, Device, Kernel, PreparedLaunch, Tensor, Value};
use tessera_types::DType;

use super::{RankedError, in_a_row, queue};
use crate::call::Call;
use crate::operator::{Operator, find};

const TEXT: &str = include_str!("../../kernels/ranked.py");
/// Elements of a block of the sum.
const SUMMED: usize = 1024;

fn gemm(program: &'static str) -> Result<&'static Operator, RankedError> {
    find("gemm").ok_or_else(|| RankedError::Parts { program, why: "there is no `gemm`".into() })
}

/// The extents of two matrices whose inner ones must agree.
fn extents(program: &'static str, a: &Tensor, b: &Tensor) -> Result<[usize; 3], RankedError> {
    match (a.shape(), b.shape()) {
        (&[m, k], &[inner, n]) if k == inner => Ok([m, k, n]),
        (a, b) => {
            let why = format!("A of shape {a:?} and B of shape {b:?}: matrices whose inner extents agree are wanted");
            Err(RankedError::Parts { program, why })
        }
    }
}

/// What products of these are summed in, and results have.
fn summed(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The product of all ranks' rows of A, one after another, and this rank's columns of B: rows m x ranks, in `fp32` (`fp64` of `fp64`).
///
/// In step `i` rank `r` multiplies the rows of rank `r - i`, and passes them on meanwhile.
pub fn gathered_product(
    communicator: &mut dyn Communicator,
    group: &Group,
    a: &Tensor,
    b: &Tensor,
) -> Result<Tensor, RankedError> {
    const PROGRAM: &str = "all-gather + product";
    let [m, _, n] = extents(PROGRAM, a, b)?;
    let operator = gemm(PROGRAM)?;
    let mut lanes = Lanes::new(communicator, group)?;
    let device = lanes.device().clone();
    let (ranks, position) = (lanes.ranks(), lanes.position());
    let c = Tensor::unwritten_on(summed(a.dtype()), &[m * ranks, n], &device)?;
    let place = || Tensor::unwritten_on(a.dtype(), a.shape(), &device);
    let (mut held, mut places) = (in_a_row(a)?, [place()?, place()?]);
    for step in 0..ranks {
        let is_last = step + 1 == ranks;
        if !is_last {
            lanes.pass_on(std::slice::from_ref(&held), &places[..1])?;
        }
        let of = (position + ranks - step) % ranks;
        let rows = c.slice(0, of * m..(of + 1) * m, 1)?;
        let tensors = vec![("A", held.clone()), ("B", b.clone()), ("C", rows.clone())];
        queue(&lanes, operator, &Call { tensors, ..Call::default() }, &[rows])?;
        if !is_last {
            lanes.arrived()?;
            held = places[0].clone();
            places.swap(0, 1);
        }
    }
    lanes.finish()?;
    Ok(c)
}

/// This rank's rows of the sum over ranks of their products of A (this rank's part of the contraction) and B: rows m / ranks, in `fp32`
/// (`fp64` of `fp64`).
///
/// In step `i` rank `r` multiplies the rows of rank `r - 1 - i`, whose sum so far comes meanwhile, and adds: the rows of rank `b` are summed in the
/// order `b + 1`, `b + 2`, ..., `b`.
pub fn scattered_product(
    communicator: &mut dyn Communicator,
    group: &Group,
    a: &Tensor,
    b: &Tensor,
) -> Result<Tensor, RankedError> {
    const PROGRAM: &str = "product + reduce-scatter";
    let [m, _, n] = extents(PROGRAM, a, b)?;
    let operator = gemm(PROGRAM)?;
    let mut lanes = Lanes::new(communicator, group)?;
    let device = lanes.device().clone();
    let (ranks, position) = (lanes.ranks(), lanes.position());
    if !m.is_multiple_of(ranks) {
        let why = format!("{m} rows do not divide among {ranks} ranks");
        return Err(RankedError::Parts { program: PROGRAM, why });
    }
    let rows = m / ranks;
    let place = || Tensor::unwritten_on(summed(a.dtype()), &[rows, n], &device);
    // What this rank's step made, what it made before and is sent on, and what comes.
    let (mut made, mut sent, came) = (place()?, place()?, place()?);
    for step in 0..ranks {
        let of = (position + 2 * ranks - 1 - step) % ranks;
        if step > 0 {
            lanes.pass_on(std::slice::from_ref(&sent), std::slice::from_ref(&came))?;
        }
        let part = a.slice(0, of * rows..(of + 1) * rows, 1)?;
        let tensors = vec![("A", part), ("B", b.clone()), ("C", made.clone())];
        queue(&lanes, operator, &Call { tensors, ..Call::default() }, std::slice::from_ref(&made))?;
        if step > 0 {
            lanes.arrived()?;
            lanes.queue(&sum(&made, &came, &device)?)?;
        }
        std::mem::swap(&mut made, &mut sent);
    }
    lanes.finish()?;
    Ok(sent)
}

/// `total += part`.
fn sum(total: &Tensor, part: &Tensor, device: &Device) -> Result<PreparedLaunch, RankedError> {
    let kernel = Kernel::from_source("ranked.py", TEXT, "add_to")?;
    let flat = |tensor: &Tensor| Ok::<_, RankedError>(Value::Tensor(tensor.reshape(&[tensor.len()])?));
    let arguments = [("total", flat(total)?), ("part", flat(part)?), ("T", Value::Int(SUMMED as i64))];
    let grid = [total.len().div_ceil(SUMMED) as u32, 1, 1];
    Ok(kernel.prepare(&arguments, grid, &CompileOptions::default(), device)?)
}
