//! Attention to a window of keys, and of packed sequences.

use tessera_runtime::Tensor;

use super::all;
use crate::call::CallError;
use crate::operator::Operator;
use crate::set;

/// What is added to scores.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// Nothing.
    #[default]
    Nothing,
    /// `slopes[heads]` of `f32`, which are taken off for each place between query and key.
    Slopes(&'a Tensor),
    /// `[heads, queries, keys]` or `[1, queries, keys]` in the type of queries; a key whose bias is `-inf` is not seen.
    Each(&'a Tensor),
}

/// Which keys queries see, and what their scores are beside products. Query `q` stands at place `q + (keys - queries)` among the keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// So many keys before its place; all of them where there is no number.
    pub left: Option<u32>,
    /// So many behind it; 0 is [`Mask::Causal`](super::Mask::Causal).
    pub right: Option<u32>,
    /// Scores are `cap * tanh(score / cap)`, for a cap of more than 0.
    pub cap: Option<f64>,
    /// What is added then.
    pub bias: Bias<'a>,
}

/// The number of a cap. The operators take 0 for no cap.
pub(super) fn softcap(cap: Option<f64>) -> Result<Option<(&'static str, f64)>, CallError> {
    if cap == Some(0.0) {
        let why = "scores are capped at more than 0; `None` is for scores as they are".to_string();
        return Err(CallError::Scalar { name: "cap".to_string(), value: 0.0, why });
    }
    Ok(cap.map(|cap| ("softcap", cap)))
}

/// The call of an operator of windows.
fn attend<'t>(
    operator: &'static Operator,
    mut tensors: Vec<(&str, &'t Tensor)>,
    seen: &Seen<'t>,
) -> Result<[Tensor; 2], CallError> {
    let mut numbers: Vec<(&str, f64)> = softcap(seen.cap)?.into_iter().collect();
    numbers.extend(seen.left.map(|left| ("left", f64::from(left))));
    numbers.extend(seen.right.map(|right| ("right", f64::from(right))));
    let variant = match seen.bias {
        Bias::Nothing => "",
        Bias::Slopes(slopes) => {
            tensors.push(("slopes", slopes));
            "alibi"
        }
        Bias::Each(bias) => {
            tensors.push(("bias", bias));
            "bias"
        }
    };
    all(operator, variant, &tensors, &numbers)
}

/// Attention of `q[..., heads, queries, dim]` to a window of `k` and `v[..., shared, keys, dim]`: the result and `lse[..., heads, queries]`, the logarithm
/// of each row's sum of exponentials, in `f32`. A query that sees no key has a result of 0 and a logarithm of `-inf`. There is no gradient of it.
///
/// ```
/// use tessera_ops::{Seen, attention_window};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (q, k) = (Tensor::ones(DType::F32, &[1, 4, 3, 64])?, Tensor::zeros(DType::F32, &[1, 2, 3, 64])?);
/// let [o, lse] = attention_window(&q, &k, &k, &Seen { left: Some(1), right: Some(0), ..Seen::default() })?;
/// assert_eq!((o.shape(), lse.shape()), (q.shape(), &[1, 4, 3][..]));
/// let lse = lse.to_f64()?;
/// assert!(lse[0].abs() < 1e-6 && lse[1..3].iter().all(|seen| (seen - 2f64.ln()).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_window(q: &Tensor, k: &Tensor, v: &Tensor, seen: &Seen<'_>) -> Result<[Tensor; 2], CallError> {
    attend(&set::attention_window::ATTENTION_WINDOW, vec![("Q", q), ("K", k), ("V", v)], seen)
}

/// Sequences of any lengths, one behind the other: sequence `s` has the queries `queries_at[s]` to `queries_at[s + 1]` and the keys `keys_at[s]` to
/// `keys_at[s + 1]`, either of which may be none.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Queries, `[tokens, heads, dim]`.
    pub q: &'a Tensor,
    /// Keys, `[past, shared, dim]`.
    pub k: &'a Tensor,
    /// Values, of the same shape.
    pub v: &'a Tensor,
    /// `[sequences + 1]` of `i32`, which rises from 0 to `tokens`. Other bounds are an error where they lie in the host's memory; those on a device are
    /// not looked at, since that would wait for it: what results hold then is not said.
    pub queries_at: &'a Tensor,
    /// The same of keys, from 0 to `past`.
    pub keys_at: &'a Tensor,
}

/// Attention of packed sequences, each to its own keys, in one launch: `[tokens, heads, dim]` and `lse[heads, tokens]`, as [`attention_window`] gives
/// them for each sequence. Biases are none or by slopes. Keys and values are finite: a sequence reads some of the next one's, which weigh
/// nothing. There is no gradient of it.
///
/// ```
/// use tessera_ops::{Packed, Seen, attention_varlen};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (q, k) = (Tensor::ones(DType::F32, &[3, 2, 64])?, Tensor::zeros(DType::F32, &[6, 1, 64])?);
/// let v = Tensor::full(DType::F32, &[6, 1, 64], 0.5)?;
/// let (queries_at, keys_at) = (Tensor::from_vec(&[4], vec![0, 2, 2, 3])?, Tensor::from_vec(&[4], vec![0, 4, 6, 6])?);
/// let packed = Packed { q: &q, k: &k, v: &v, queries_at: &queries_at, keys_at: &keys_at };
/// let [o, lse] = attention_varlen(&packed, &Seen { right: Some(0), ..Seen::default() })?;
/// // The first sequence's queries see three keys and four, the last sequence has none.
/// let (o, lse) = (o.to_f64()?, lse.to_f64()?);
/// assert!((lse[0] - 3f64.ln()).abs() < 1e-6 && (lse[1] - 4f64.ln()).abs() < 1e-6 && lse[2] == f64::NEG_INFINITY);
/// assert!((o[0] - 0.5).abs() < 1e-6 && o[2 * 128] == 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_varlen(packed: &Packed<'_>, seen: &Seen<'_>) -> Result<[Tensor; 2], CallError> {
    let tensors = vec![
        ("Q", packed.q),
        ("K", packed.k),
        ("V", packed.v),
        ("cu_seqlens_q", packed.queries_at),
        ("cu_seqlens_k", packed.keys_at),
    ];
    attend(&set::attention_varlen::ATTENTION_VARLEN, tensors, seen)
}
