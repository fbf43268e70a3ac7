//! Attention over sequences that are cut among ranks.
//!
//! In step `i` rank `r` attends to the keys and values of rank `r - i`, and merges the partial result into what it has by the
//! logarithms of both sums of exponentials. Causal: keys of later ranks are not seen, so their step is left out; their ring goes on.

use tessera_runtime::ranks::{Communicator, Group, Lanes};
use tessera_runtime::{CompileOptions, Kernel, Tensor, Value};
use tessera_types::DType;

use super::{RankedError, in_a_row, queue};
use crate::call::Call;
use crate::operator::find;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingAttention {
    /// What products of queries and keys are multiplied by.
    pub scale: f64,
    /// Whether a query sees the keys up to its own place alone.
    pub causal: bool,
}

/// A rank's results.
#[derive(Clone, Debug)]
pub struct Attended {
    /// Of the type and shape of the queries.
    pub output: Tensor,
    /// The logarithms of rows' sums of exponentials, batch x heads x queries.
    pub lse: Tensor,
}

const PROGRAM: &str = "ring attention";
const TEXT: &str = include_str!("../../kernels/ranked.py");
/// Rows of a block of the merge.
const ROWS: i64 = 16;

/// Attention of this rank's queries to the keys and values of all ranks of a group. `q` is batch x heads x length x width, `k` and `v` batch x
/// shared heads x length x width; all ranks have parts of one size, in the order of their numbers.
pub fn ring_attention(
    communicator: &mut dyn Communicator,
    group: &Group,
    [q, k, v]: [&Tensor; 3],
    how: RingAttention,
) -> Result<Attended, RankedError> {
    let mut lanes = Lanes::new(communicator, group)?;
    let device = lanes.device().clone();
    let &[batch, heads, queries, width] = q.shape() else {
        let why = format!("queries of shape {:?}: batch x heads x length x width are wanted", q.shape());
        return Err(RankedError::Parts { program: PROGRAM, why });
    };
    if how.causal && k.shape().get(2) != Some(&queries) {
        let why = format!("{queries} queries and keys of shape {:?}: causal parts are of one length", k.shape());
        return Err(RankedError::Parts { program: PROGRAM, why });
    }
    let attention = find("attention_lse").ok_or_else(|| parts("there is no `attention_lse`"))?;
    let exact = if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let rows = batch * heads * queries;
    let zeros = |dtype, shape: &[usize]| Tensor::zeros_on(dtype, shape, &device);
    let (total, lse) = (zeros(exact, &[rows, width])?, zeros(exact, &[rows, 1])?);
    // No key was seen yet.
    lse.copy_from(&Tensor::from_f64(exact, &[rows, 1], &vec![f64::NEG_INFINITY; rows])?)?;
    let part = zeros(q.dtype(), q.shape())?;
    let part_lse = zeros(exact, &[batch, heads, queries])?;
    let output = zeros(q.dtype(), q.shape())?;
    let merge = Kernel::from_source("ranked.py", TEXT, "merge_attention")?;
    let merge = merge.prepare(
        &[
            ("total", Value::Tensor(total.clone())),
            ("lse", Value::Tensor(lse.clone())),
            ("part", Value::Tensor(part.reshape(&[rows, width])?)),
            ("part_lse", Value::Tensor(part_lse.reshape(&[rows, 1])?)),
            ("O", Value::Tensor(output.reshape(&[rows, width])?)),
            ("TM", Value::Int(ROWS)),
            ("D", Value::Int(width.next_power_of_two() as i64)),
        ],
        [rows.div_ceil(ROWS as usize) as u32, 1, 1],
        &CompileOptions::default(),
        &device,
    )?;
    let mut held = [in_a_row(k)?, in_a_row(v)?];
    // Two places: what is attended to, and what comes meanwhile. The caller's own are only read.
    let mut places = [
        [zeros(k.dtype(), k.shape())?, zeros(v.dtype(), v.shape())?],
        [zeros(k.dtype(), k.shape())?, zeros(v.dtype(), v.shape())?],
    ];
    let (ranks, position) = (lanes.ranks(), lanes.position());
    for step in 0..ranks {
        let is_last = step + 1 == ranks;
        if !is_last {
            lanes.pass_on(&held, &places[0])?;
        }
        let of = (position + ranks - step) % ranks;
        if !how.causal || of <= position {
            let variant = if how.causal && of == position { "causal" } else { "" };
            let call = Call {
                variant: Some(variant),
                tensors: vec![("Q", q.clone()), ("K", held[0].clone()), ("V", held[1].clone())],
                scalars: vec![("scale", how.scale)],
                lock: None,
            };
            queue(&lanes, attention, &call, &[part.clone(), part_lse.clone()])?;
            lanes.queue(&merge)?;
        }
        if !is_last {
            lanes.arrived()?;
            held = places[0].clone();
            places.swap(0, 1);
        }
    }
    lanes.finish()?;
    Ok(Attended { output, lse: lse.reshape(&[batch, heads, queries])? })
}

fn parts(why: impl Into<String>) -> RankedError {
    RankedError::Parts { program: PROGRAM, why: why.into() }
}
