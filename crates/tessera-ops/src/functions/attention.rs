//! Attention for training and decoding, embeddings, mixtures of experts.

use tessera_runtime::{Tensor, TensorError};
use tessera_types::DType;

use super::windows::softcap;
use super::{Mask, all, last_axis, new, run};
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
pub fn attention_backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    given: &Attended<'_>,
    mask: Mask,
) -> Result<[Tensor; 3], CallError> {
    let sums = if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let memory = |error: TensorError| CallError::Memory { name: "dlse", error };
    let nothing = match given.d_lse {
        Some(d_lse) => d_lse.clone(),
        None => Tensor::zeros_on(sums, given.lse.shape(), &q.device()).map_err(memory)?,
    };
    let tensors = [("Q", q), ("K", k), ("V", v), ("O", given.o), ("lse", given.lse), ("dO", given.d_o), ("dlse", &nothing)];
    all(&set::attention_backward::ATTENTION_BACKWARD, mask.variant(), &tensors, &[])
}

/// Keys and values of sequences in pages.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// Keys, `[pages, page, shared, dim]`.
    pub keys: &'a Tensor,
    /// Values, of the same shape.
    pub values: &'a Tensor,
    /// The pages of each sequence in order, `[batch, most]` of `i32`.
    pub table: &'a Tensor,
    /// How many keys a sequence has, `[batch]` of `i32`.
    pub lengths: &'a Tensor,
}

/// What scores of [`attention_decode`] are beside products.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scores<'a> {
    /// So many last keys are seen, one at least.
    pub window: Option<u32>,
    /// They are `cap * tanh(score / cap)`, for a cap of more than 0.
    pub cap: Option<f64>,
    /// They have `slopes[head]` for each key that lies between, `[heads]` of `f32`.
    pub slopes: Option<&'a Tensor>,
}

/// Attention of one query of each sequence, `q[batch, heads, dim]`, which is the last key's, to keys and values in pages. `heads / shared` heads share
/// one of both. A sequence without keys gives zeros. What pages hold behind a sequence's end is finite.
///
/// ```
/// use tessera_ops::{Pages, Scores, attention_decode};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let q = Tensor::ones(DType::F32, &[2, 4, 64])?;
/// let (keys, values) = (Tensor::ones(DType::F32, &[3, 16, 2, 64])?, Tensor::full(DType::F32, &[3, 16, 2, 64], 0.5)?);
/// let (table, lengths) = (Tensor::from_vec(&[2, 2], vec![2, 0, 1, 1])?, Tensor::from_vec(&[2], vec![20, 0])?);
/// let pages = Pages { keys: &keys, values: &values, table: &table, lengths: &lengths };
/// let o = attention_decode(&q, &pages, &Scores { window: Some(8), ..Scores::default() })?.to_f64()?;
/// assert!((o[0] - 0.5).abs() < 1e-6 && o[4 * 64] == 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_decode(q: &Tensor, pages: &Pages<'_>, scores: &Scores<'_>) -> Result<Tensor, CallError> {
    let mut tensors = vec![
        ("Q", q),
        ("k_cache", pages.keys),
        ("v_cache", pages.values),
        ("block_table", pages.table),
        ("lengths", pages.lengths),
    ];
    tensors.extend(scores.slopes.map(|slopes| ("slopes", slopes)));
    // The operator takes 0 for no window.
    if scores.window == Some(0) {
        let why = "a query sees its own key at least; `None` is for all keys".to_string();
        return Err(CallError::Scalar { name: "window".to_string(), value: 0.0, why });
    }
    let mut numbers: Vec<(&str, f64)> = softcap(scores.cap)?.into_iter().collect();
    numbers.extend(scores.window.map(|window| ("window", f64::from(window))));
    let variant = if scores.slopes.is_some() { "alibi" } else { "" };
    run(&set::attention_decode::ATTENTION_DECODE, variant, &tensors, &numbers)
}

/// Rows of `table[vocab, dim]` by their numbers, `ids[...]` of `i32`: `[..., dim]`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let table = Tensor::arange(DType::F32, &[3, 2])?;
/// let y = tessera_ops::embedding(&table, &Tensor::from_vec(&[2], vec![2, 0])?)?;
/// assert_eq!(y.to_f64()?, [4.0, 5.0, 0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embedding(table: &Tensor, ids: &Tensor) -> Result<Tensor, CallError> {
    run(&set::embedding::EMBEDDING, "", &[("table", table), ("ids", ids)], &[])
}

/// The gradient of a table of `vocab` rows whose rows were looked up: each row's cotangents `dy[..., dim]` are added up in the order of tokens.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let dy = Tensor::arange(DType::F32, &[3, 2])?;
/// let dtable = tessera_ops::embedding_backward(&dy, &Tensor::from_vec(&[3], vec![1, 0, 1])?, 2)?;
/// assert_eq!(dtable.to_f64()?, [2.0, 3.0, 4.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embedding_backward(dy: &Tensor, ids: &Tensor, vocab: usize) -> Result<Tensor, CallError> {
    let dtable = new("dtable", dy.dtype(), &[vocab, last_axis("dy", "..tokens dim", dy)?], dy)?;
    run(&set::embedding::EMBEDDING_BACKWARD, "", &[("dy", dy), ("ids", ids), ("dtable", &dtable)], &[])
}

/// Puts new keys and values, `k` and `v[..., heads, dim]`, into a cache in place: token `t` into slot `slots[t]` of `pages * page` of them, or nowhere where
/// that is negative. No two tokens have one slot.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (k, cache) = (Tensor::ones(DType::F32, &[2, 1, 4])?, Tensor::zeros(DType::F32, &[2, 2, 1, 4])?);
/// let values = Tensor::zeros(DType::F32, &[2, 2, 1, 4])?;
/// tessera_ops::kv_append(&k, &k, &Tensor::from_vec(&[2], vec![3, -1])?, [&cache, &values])?;
/// assert_eq!(cache.to_f64()?[8..], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn kv_append(k: &Tensor, v: &Tensor, slots: &Tensor, [k_cache, v_cache]: [&Tensor; 2]) -> Result<(), CallError> {
    let tensors = [("k", k), ("v", v), ("slots", slots), ("k_cache", k_cache), ("v_cache", v_cache)];
    all::<2>(&set::embedding::KV_APPEND, "", &tensors, &[]).map(|_| ())
}

/// Over which experts the weights of [`moe_gate`] sum up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalised {
    /// Over all of them: those that were chosen have a part of it.
    OverAll,
    /// Over those that were chosen.
    OverChosen,
}

/// The `k` experts of each token with the largest `logits[..., experts]`, 256 at most: their weights by softmax, in `f32` (`f64` beside logits of `f64`),
/// and their numbers.
///
/// ```
/// use tessera_ops::{Normalised, moe_gate};
/// use tessera_runtime::Tensor;
/// let logits = Tensor::from_vec(&[1, 4], vec![0.0f32, 2.0, 1.0, 2.0])?;
/// let [weights, ids] = moe_gate(&logits, 2, Normalised::OverChosen)?;
/// assert_eq!((weights.to_f64()?, ids.to_f64()?), (vec![0.5, 0.5], vec![1.0, 3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn moe_gate(logits: &Tensor, k: usize, normalised: Normalised) -> Result<[Tensor; 2], CallError> {
    let mut shape = logits.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    let sums = if logits.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let (weights, ids) = (new("weights", sums, &shape, logits)?, new("ids", DType::I32, &shape, logits)?);
    let variant = match normalised {
        Normalised::OverAll => "",
        Normalised::OverChosen => "renormalised",
    };
    all(&set::moe_gate::MOE_GATE, variant, &[("logits", logits), ("weights", &weights), ("ids", &ids)], &[])
}

/// Where each of `experts` begins when the slots of `ids[..., k]` are sorted by expert, `offsets[experts + 1]`, and the place of each slot: what
/// [`moe_permute`] and [`gemm_grouped`](super::gemm_grouped) take.
///
/// ```
/// use tessera_runtime::Tensor;
/// let [offsets, place] = tessera_ops::moe_sort(&Tensor::from_vec(&[3, 2], vec![2, 0, 1, 2, 0, 1])?, 3)?;
/// assert_eq!(offsets.to_f64()?, [0.0, 2.0, 4.0, 6.0]);
/// assert_eq!(place.to_f64()?, [4.0, 0.0, 2.0, 5.0, 1.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn moe_sort(ids: &Tensor, experts: usize) -> Result<[Tensor; 2], CallError> {
    let offsets = new("offsets", DType::I32, &[experts + 1], ids)?;
    all(&set::moe::MOE_SORT, "", &[("ids", ids), ("offsets", &offsets)], &[])
}

/// Rows of `x[tokens, dim]` at the places of their slots, `place[tokens, k]`: `[tokens * k, dim]`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, place) = (Tensor::arange(DType::F32, &[2, 1])?, Tensor::from_vec(&[2, 2], vec![3, 0, 1, 2])?);
/// assert_eq!(tessera_ops::moe_permute(&x, &place)?.to_f64()?, [0.0, 1.0, 1.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn moe_permute(x: &Tensor, place: &Tensor) -> Result<Tensor, CallError> {
    let slots = place.shape().iter().product();
    let y = new("y", x.dtype(), &[slots, last_axis("x", "tokens dim", x)?], x)?;
    run(&set::moe_rows::MOE_PERMUTE, "", &[("x", x), ("place", place), ("y", &y)], &[])
}

/// Weighted sums over each token's slots of the rows at their places: `y[tokens * k, dim]` with `weights[tokens, k]`, of `f32` (`f64` beside `f64`),
/// gives `[tokens, dim]`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (y, place) = (Tensor::arange(DType::F32, &[4, 1])?, Tensor::from_vec(&[2, 2], vec![3, 0, 1, 2])?);
/// let weights = Tensor::full(DType::F32, &[2, 2], 0.5)?;
/// assert_eq!(tessera_ops::moe_combine(&y, &place, &weights)?.to_f64()?, [1.5, 1.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn moe_combine(y: &Tensor, place: &Tensor, weights: &Tensor) -> Result<Tensor, CallError> {
    run(&set::moe_rows::MOE_COMBINE, "", &[("y", y), ("place", place), ("weights", weights)], &[])
}
