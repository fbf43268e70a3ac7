//! Attention for training.

use tessera_runtime::{Tensor, TensorError};
use tessera_types::DType;

use super::{Mask, all};
use crate::call::CallError;
use crate::set;

/// [`attention`](super::attention) with the logarithm of each row's sum of exponentials, `lse[..., heads, queries]` in `f32` (`f64` beside arrays of
/// `f64`): what [`attention_backward`] takes.
///
/// ```
/// use tessera_ops::{Mask, attention_lse};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (q, k) = (Tensor::ones(DType::F32, &[1, 4, 2, 64])?, Tensor::zeros(DType::F32, &[1, 2, 8, 64])?);
/// let [o, lse] = attention_lse(&q, &k, &k, Mask::Full)?;
/// assert_eq!((o.shape(), lse.shape()), (q.shape(), &[1, 4, 2][..]));
/// assert!((lse.to_f64()?[0] - 8f64.ln()).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_lse(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask) -> Result<[Tensor; 2], CallError> {
    all(&set::attention_lse::ATTENTION_LSE, mask.variant(), &[("Q", q), ("K", k), ("V", v)], &[])
}

/// What a backward pass of attention starts from, beside its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Attended<'a> {
    /// The result.
    pub o: &'a Tensor,
    /// The logarithms of rows' sums.
    pub lse: &'a Tensor,
    /// The cotangent of the result.
    pub d_o: &'a Tensor,
    /// The cotangent of the logarithms, where anything follows from them.
    pub d_lse: Option<&'a Tensor>,
}

/// The gradients `[dQ, dK, dV]` of [`attention_lse`]. They are the same in every run: nothing is added up in an order that depends on how blocks are
/// scheduled.
///
/// ```
/// use tessera_ops::{Attended, Mask, attention_backward, attention_lse};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let q = Tensor::ones(DType::F32, &[1, 2, 3, 64])?;
/// let [o, lse] = attention_lse(&q, &q, &q, Mask::Causal)?;
/// let given = Attended { o: &o, lse: &lse, d_o: &q, d_lse: None };
/// let [_, _, dv] = attention_backward(&q, &q, &q, &given, Mask::Causal)?;
/// // The first key has all of the first query's weight, half of the second's and a third of the last one's.
/// assert!((dv.to_f64()?[0] - (1.0 + 1.0 / 2.0 + 1.0 / 3.0)).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_backward(q: &Tensor, k: &Tensor, v: &Tensor, given: &Attended<'_>, mask: Mask) -> Result<[Tensor; 3], CallError> {
    let sums = if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let memory = |error: TensorError| CallError::Memory { name: "dlse", error };
    let nothing = match given.d_lse {
        Some(d_lse) => d_lse.clone(),
        None => Tensor::zeros_on(sums, given.lse.shape(), &q.device()).map_err(memory)?,
    };
    let tensors =
        [("Q", q), ("K", k), ("V", v), ("O", given.o), ("lse", given.lse), ("dO", given.d_o), ("dlse", &nothing)];
    all(&set::attention_backward::ATTENTION_BACKWARD, mask.variant(), &tensors, &[])
}
