//! Reductions, losses, and gradients over rows.

use tessera_runtime::Tensor;

use super::{all, run};
use crate::call::CallError;
use crate::set;

/// The gradients of [`rms_norm`](crate::rms_norm) of `x[..., hidden]` and `weight[hidden]`, for cotangents `dy` of its result: those of `x` and of
/// `weight`, in their shapes and type. Statistics are computed again.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::ones(DType::F32, &[8])?);
/// let [dx, dweight] = tessera_ops::rms_norm_backward(&x, &weight, &Tensor::ones(DType::F32, &[4, 8])?, 0.0)?;
/// assert_eq!((dx.shape(), dweight.shape()), (&[4, 8][..], &[8][..]));
/// assert!((dweight.to_f64()?[0] - 4.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_backward(x: &Tensor, weight: &Tensor, dy: &Tensor, eps: f64) -> Result<[Tensor; 2], CallError> {
    all(&set::norm_backward::RMS_NORM_BACKWARD, "", &[("x", x), ("weight", weight), ("dy", dy)], &[("eps", eps)])
}

/// The gradients of [`layer_norm`](crate::layer_norm) of `x[..., hidden]`, `weight[hidden]` and a bias, for cotangents `dy` of its result: those of
/// `x`, `weight` and bias. Statistics are computed again.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::arange(DType::F32, &[4, 8])?, Tensor::ones(DType::F32, &[4, 8])?);
/// let [dx, _, dbias] = tessera_ops::layer_norm_backward(&x, &Tensor::ones(DType::F32, &[8])?, &one, 1e-5)?;
/// assert_eq!((dx.shape(), dbias.to_f64()?), (&[4, 8][..], vec![4.0; 8]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_backward(x: &Tensor, weight: &Tensor, dy: &Tensor, eps: f64) -> Result<[Tensor; 3], CallError> {
    all(&set::norm_backward::LAYER_NORM_BACKWARD, "", &[("x", x), ("weight", weight), ("dy", dy)], &[("eps", eps)])
}

/// The gradient of [`softmax`](crate::softmax) or, where [`Mask::Causal`](crate::Mask::Causal), of [`causal_softmax`](crate::causal_softmax), from its
/// result `y` and cotangents `dy` of that.
///
/// ```
/// use tessera_ops::Mask;
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (y, dy) = (Tensor::full(DType::F32, &[2, 4], 0.25)?, Tensor::ones(DType::F32, &[2, 4])?);
/// assert_eq!(tessera_ops::softmax_backward(&y, &dy, Mask::Full)?.to_f64()?, [0.0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn softmax_backward(y: &Tensor, dy: &Tensor, mask: super::Mask) -> Result<Tensor, CallError> {
    run(&set::log_softmax::SOFTMAX_BACKWARD, mask.variant(), &[("y", y), ("dy", dy)], &[])
}

/// The logarithm of [`softmax`](crate::softmax) over the last axis.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::log_softmax(&Tensor::zeros(DType::F64, &[2, 4])?)?;
/// assert!((y.to_f64()?[0] + 4.0_f64.ln()).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn log_softmax(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::log_softmax::LOG_SOFTMAX, "", &[("x", x)], &[])
}

/// The gradient of [`log_softmax`], from its result `y` and cotangents `dy` of that.
pub fn log_softmax_backward(y: &Tensor, dy: &Tensor) -> Result<Tensor, CallError> {
    run(&set::log_softmax::LOG_SOFTMAX_BACKWARD, "", &[("y", y), ("dy", dy)], &[])
}

/// The logarithm of the sum of exponentials over the last axis: `x[..., n]` gives `[...]` in the type that sums are kept in.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::log_sum_exp(&Tensor::zeros(DType::BF16, &[3, 8])?)?;
/// assert!((y.read::<f32>()?[2] - 8.0_f32.ln()).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn log_sum_exp(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::cross_entropy::LOG_SUM_EXP, "", &[("x", x)], &[])
}

/// The gradient of [`log_sum_exp`], from its result `y` and cotangents `dy` of that.
pub fn log_sum_exp_backward(x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Tensor, CallError> {
    run(&set::cross_entropy::LOG_SUM_EXP_BACKWARD, "", &[("x", x), ("y", y), ("dy", dy)], &[])
}

/// The label of rows that have no loss in [`cross_entropy`], as in PyTorch.
pub const IGNORE_INDEX: i32 = -100;

/// The cross entropy of logits `x[..., classes]` and `labels[...]` of `i32`, row by row: `[loss, lse]` in the type that sums are kept in. `lse` is
/// [`log_sum_exp`] of the row, which the gradient wants and losses like z-loss (Chowdhery et al., 2022, "PaLM") are made of. Rows whose label is
/// `ignore_index` have a loss of 0; no other label lies outside of the classes.
///
/// ```
/// use tessera_ops::{IGNORE_INDEX, cross_entropy};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let labels = Tensor::from_vec(&[2], vec![3, IGNORE_INDEX])?;
/// let [loss, _] = cross_entropy(&Tensor::zeros(DType::F32, &[2, 4])?, &labels, IGNORE_INDEX)?;
/// assert!((loss.read::<f32>()?[0] - 4.0_f32.ln()).abs() < 1e-6 && loss.read::<f32>()?[1] == 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy(x: &Tensor, labels: &Tensor, ignore_index: i32) -> Result<[Tensor; 2], CallError> {
    all(&set::cross_entropy::CROSS_ENTROPY, "", &[("x", x), ("labels", labels)], &[("ignore_index", f64::from(ignore_index))])
}

/// The gradient of [`cross_entropy`] in its logits, from the `lse` that it gave, and cotangents of both its results; without `dlse` that one is 0.
///
/// ```
/// use tessera_ops::{IGNORE_INDEX, cross_entropy, cross_entropy_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, labels) = (Tensor::zeros(DType::F32, &[1, 4])?, Tensor::from_vec(&[1], vec![2])?);
/// let [_, lse] = cross_entropy(&x, &labels, IGNORE_INDEX)?;
/// let dx = cross_entropy_backward(&x, &labels, &lse, &Tensor::ones(DType::F32, &[1])?, None, IGNORE_INDEX)?;
/// assert!(dx.to_f64()?.iter().zip([0.25, 0.25, -0.75, 0.25]).all(|(dx, want)| (dx - want).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy_backward(
    x: &Tensor,
    labels: &Tensor,
    lse: &Tensor,
    dloss: &Tensor,
    dlse: Option<&Tensor>,
    ignore_index: i32,
) -> Result<Tensor, CallError> {
    let dlse = or_zeros(dlse, lse)?;
    let tensors = [("x", x), ("labels", labels), ("lse", lse), ("dloss", dloss), ("dlse", &dlse)];
    run(&set::cross_entropy::CROSS_ENTROPY_BACKWARD, "", &tensors, &[("ignore_index", f64::from(ignore_index))])
}

/// The cotangent of `lse`, zeros where there is none.
fn or_zeros(dlse: Option<&Tensor>, lse: &Tensor) -> Result<Tensor, CallError> {
    let zeros =
        || Tensor::zeros_on(lse.dtype(), lse.shape(), &lse.device()).map_err(|error| CallError::Memory { name: "dlse", error });
    dlse.cloned().map_or_else(zeros, Ok)
}

/// The cross entropy of the logits `x weight^T` and `labels[...]` of `i32`, token by token, without the logits in memory: `x[..., dim]` and
/// `weight[vocab, dim]` give `[loss, lse]` in the type that sums are kept in, as [`cross_entropy`] of those logits does. Tokens whose label is
/// `ignore_index` have a loss of 0; no other label lies outside of the classes.
///
/// ```
/// use tessera_ops::{IGNORE_INDEX, linear_cross_entropy};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[2, 8])?, Tensor::ones(DType::F32, &[4, 8])?);
/// let labels = Tensor::from_vec(&[2], vec![3, IGNORE_INDEX])?;
/// let [loss, lse] = linear_cross_entropy(&x, &weight, &labels, IGNORE_INDEX)?;
/// assert!((loss.read::<f32>()?[0] - 4.0_f32.ln()).abs() < 1e-6 && loss.read::<f32>()?[1] == 0.0);
/// assert!((lse.read::<f32>()?[1] - 8.0 - 4.0_f32.ln()).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear_cross_entropy(x: &Tensor, weight: &Tensor, labels: &Tensor, ignore_index: i32) -> Result<[Tensor; 2], CallError> {
    let tensors = [("x", x), ("weight", weight), ("labels", labels)];
    all(&set::linear_cross_entropy::LINEAR_CROSS_ENTROPY, "", &tensors, &[("ignore_index", f64::from(ignore_index))])
}

/// The gradients `[dx, dweight]` of [`linear_cross_entropy`], from the `lse` that it gave, and cotangents of both its results; without `dlse` that
/// one is 0. Logits are computed again, some classes at a time: beside the results there is an array about as large as `x`, or of as many
/// classes as fill the device where tokens are few, and one that `dx` is summed up in.
///
/// ```
/// use tessera_ops::{IGNORE_INDEX, linear_cross_entropy, linear_cross_entropy_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[1, 8])?, Tensor::ones(DType::F32, &[4, 8])?);
/// let labels = Tensor::from_vec(&[1], vec![2])?;
/// let [_, lse] = linear_cross_entropy(&x, &weight, &labels, IGNORE_INDEX)?;
/// let one = Tensor::ones(DType::F32, &[1])?;
/// let [dx, dweight] = linear_cross_entropy_backward(&x, &weight, &labels, &lse, &one, None, IGNORE_INDEX)?;
/// assert!(dx.to_f64()?.iter().all(|dx| dx.abs() < 1e-5));
/// assert!((dweight.to_f64()?[0] - 0.25).abs() < 1e-5 && (dweight.to_f64()?[2 * 8] + 0.75).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear_cross_entropy_backward(
    x: &Tensor,
    weight: &Tensor,
    labels: &Tensor,
    lse: &Tensor,
    dloss: &Tensor,
    dlse: Option<&Tensor>,
    ignore_index: i32,
) -> Result<[Tensor; 2], CallError> {
    let dlse = or_zeros(dlse, lse)?;
    let tensors = [("x", x), ("weight", weight), ("labels", labels), ("lse", lse), ("dloss", dloss), ("dlse", &dlse)];
    all(&set::linear_cross_entropy::LINEAR_CROSS_ENTROPY_BACKWARD, "", &tensors, &[("ignore_index", f64::from(ignore_index))])
}

/// What becomes of the elements of a row or column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The sum of their squares.
    SumSquares,
    /// The root of the sum of their squares.
    Norm,
    /// The largest one; NaN where one is.
    Max,
    /// The smallest one; NaN where one is.
    Min,
}

impl Reduction {
    fn variant(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::SumSquares => "sum_squares",
            Reduction::Norm => "norm",
            Reduction::Max => "max",
            Reduction::Min => "min",
        }
    }
}

/// A reduction over the last axis: `x[..., n]` gives `[...]` in the type that sums are kept in.
///
/// ```
/// use tessera_ops::{Reduction, reduce_rows};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::arange(DType::F32, &[2, 4])?;
/// assert_eq!(reduce_rows(&x, Reduction::Mean)?.to_f64()?, [1.5, 5.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reduce_rows(x: &Tensor, reduction: Reduction) -> Result<Tensor, CallError> {
    run(&set::reduce::REDUCE_ROWS, reduction.variant(), &[("x", x)], &[])
}

/// A reduction over the first axis: `x[rows, columns]` gives `[columns]` in the type that sums are kept in.
///
/// ```
/// use tessera_ops::{Reduction, reduce_columns};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::arange(DType::F32, &[2, 4])?;
/// assert_eq!(reduce_columns(&x, Reduction::Max)?.to_f64()?, [4.0, 5.0, 6.0, 7.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reduce_columns(x: &Tensor, reduction: Reduction) -> Result<Tensor, CallError> {
    run(&set::reduce_columns::REDUCE_COLUMNS, reduction.variant(), &[("x", x)], &[])
}

/// The gradient of [`reduce_rows`], from what it gave and cotangents of that. Elements that are the largest or smallest share one equally.
///
/// ```
/// use tessera_ops::{Reduction, reduce_rows, reduce_rows_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::from_vec(&[1, 4], vec![1.0_f32, 3.0, 3.0, 0.0])?;
/// let y = reduce_rows(&x, Reduction::Max)?;
/// let dx = reduce_rows_backward(&x, &y, &Tensor::ones(DType::F32, &[1])?, Reduction::Max)?;
/// assert_eq!(dx.to_f64()?, [0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reduce_rows_backward(x: &Tensor, y: &Tensor, dy: &Tensor, reduction: Reduction) -> Result<Tensor, CallError> {
    let with_result = [("x", x), ("y", y), ("dy", dy)];
    let without = [("x", x), ("dy", dy)];
    let tensors: &[_] = match reduction {
        Reduction::Norm | Reduction::Max | Reduction::Min => &with_result,
        Reduction::Sum | Reduction::Mean | Reduction::SumSquares => &without,
    };
    run(&set::reduce::REDUCE_ROWS_BACKWARD, reduction.variant(), tensors, &[])
}

/// Sums over the last axis: [`reduce_rows`].
pub fn sum_rows(x: &Tensor) -> Result<Tensor, CallError> {
    reduce_rows(x, Reduction::Sum)
}

/// Means over the last axis: [`reduce_rows`].
pub fn mean_rows(x: &Tensor) -> Result<Tensor, CallError> {
    reduce_rows(x, Reduction::Mean)
}

/// Largest elements over the last axis: [`reduce_rows`].
pub fn max_rows(x: &Tensor) -> Result<Tensor, CallError> {
    reduce_rows(x, Reduction::Max)
}

/// Smallest elements over the last axis: [`reduce_rows`].
pub fn min_rows(x: &Tensor) -> Result<Tensor, CallError> {
    reduce_rows(x, Reduction::Min)
}

/// Sums over the first axis: [`reduce_columns`].
pub fn sum_columns(x: &Tensor) -> Result<Tensor, CallError> {
    reduce_columns(x, Reduction::Sum)
}

/// Where the largest element stands along the last axis: `x[..., n]` gives `[...]` of `i32`. Of equal ones it is the first, and the first NaN where
/// there is one.
///
/// ```
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[2, 3], vec![1.0_f32, 5.0, 5.0, 2.0, f32::NAN, 7.0])?;
/// assert_eq!(tessera_ops::argmax_rows(&x)?.to_f64()?, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn argmax_rows(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::reduce::ARG_ROWS, "max", &[("x", x)], &[])
}

/// Where the smallest element stands along the last axis, as [`argmax_rows`].
pub fn argmin_rows(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::reduce::ARG_ROWS, "min", &[("x", x)], &[])
}

/// From which end running sums start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first element.
    First,
    /// The last element.
    Last,
}

/// Running sums along the last axis: `x[..., n]` gives an array of its shape and type.
///
/// ```
/// use tessera_ops::{Start, cumsum};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::arange(DType::F32, &[2, 3])?;
/// assert_eq!(cumsum(&x, Start::First)?.to_f64()?, [0.0, 1.0, 3.0, 3.0, 7.0, 12.0]);
/// assert_eq!(cumsum(&x, Start::Last)?.to_f64()?, [3.0, 3.0, 2.0, 12.0, 9.0, 5.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cumsum(x: &Tensor, start: Start) -> Result<Tensor, CallError> {
    run(&set::cumsum::CUMSUM, start.variant(), &[("x", x)], &[])
}

/// The gradient of [`cumsum`], from cotangents of its result.
pub fn cumsum_backward(dy: &Tensor, start: Start) -> Result<Tensor, CallError> {
    run(&set::cumsum::CUMSUM_BACKWARD, start.variant(), &[("dy", dy)], &[])
}

impl Start {
    fn variant(self) -> &'static str {
        match self {
            Start::First => "",
            Start::Last => "reverse",
        }
    }
}

/// Which elements come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The smallest ones.
    Ascending,
    /// The largest ones.
    Descending,
}

/// The `k` first elements of each row in an order, and where they stand: `x[..., n]` gives `[values, indices]`, both `[..., k]`, the second of `i32`.
/// Of equal elements the first one comes first; NaN counts as the largest. `k` is 512 at most.
///
/// ```
/// use tessera_ops::{Order, top_k};
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[1, 5], vec![1.0_f32, 4.0, 2.0, 4.0, 3.0])?;
/// let [values, indices] = top_k(&x, 3, Order::Descending)?;
/// assert_eq!((values.to_f64()?, indices.to_f64()?), (vec![4.0, 4.0, 3.0], vec![1.0, 3.0, 4.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn top_k(x: &Tensor, k: usize, order: Order) -> Result<[Tensor; 2], CallError> {
    let shape: Vec<usize> = x.shape().iter().rev().skip(1).rev().copied().chain([k]).collect();
    let array = |name, dtype| Tensor::zeros_on(dtype, &shape, &x.device()).map_err(|error| CallError::Memory { name, error });
    let (values, indices) = (array("values", x.dtype())?, array("indices", tessera_types::DType::I32)?);
    let variant = if order == Order::Ascending { "smallest" } else { "largest" };
    all(&set::order::TOP_K, variant, &[("x", x), ("values", &values), ("indices", &indices)], &[])
}

/// The gradient of [`top_k`] in rows of `n` elements, from the `indices` that it gave and cotangents of its values: these where their values stood, and
/// zeros elsewhere.
///
/// ```
/// use tessera_ops::{Order, top_k, top_k_backward};
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[1, 4], vec![1.0_f32, 4.0, 2.0, 3.0])?;
/// let [values, indices] = top_k(&x, 2, Order::Descending)?;
/// assert_eq!(top_k_backward(&indices, &values, 4)?.to_f64()?, [0.0, 4.0, 0.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn top_k_backward(indices: &Tensor, dvalues: &Tensor, n: usize) -> Result<Tensor, CallError> {
    let shape: Vec<usize> = indices.shape().iter().rev().skip(1).rev().copied().chain([n]).collect();
    let dx = Tensor::zeros_on(dvalues.dtype(), &shape, &dvalues.device());
    let dx = dx.map_err(|error| CallError::Memory { name: "dx", error })?;
    run(&set::order::TOP_K_BACKWARD, "largest", &[("indices", indices), ("dvalues", dvalues), ("dx", &dx)], &[])
}

/// The gradient of [`sort_rows`], from the `indices` that it gave and cotangents of its values: these where their values stood.
///
/// ```
/// use tessera_ops::{Order, sort_rows, sort_rows_backward};
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[1, 4], vec![2.0_f32, 1.0, 2.0, 0.0])?;
/// let [values, indices] = sort_rows(&x, Order::Ascending)?;
/// assert_eq!(sort_rows_backward(&indices, &values)?.to_f64()?, x.to_f64()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sort_rows_backward(indices: &Tensor, dvalues: &Tensor) -> Result<Tensor, CallError> {
    run(&set::order::SORT_ROWS_BACKWARD, "ascending", &[("indices", indices), ("dvalues", dvalues)], &[])
}

/// The elements of each row in an order, and where they stood: `x[..., n]` gives `[values, indices]` of its shape, the second of `i32`. Equal elements
/// stay as they stand; NaN counts as the largest.
///
/// ```
/// use tessera_ops::{Order, sort_rows};
/// use tessera_runtime::Tensor;
/// let x = Tensor::from_vec(&[1, 4], vec![2.0_f32, 1.0, 2.0, 0.0])?;
/// let [values, indices] = sort_rows(&x, Order::Ascending)?;
/// assert_eq!((values.to_f64()?, indices.to_f64()?), (vec![0.0, 1.0, 2.0, 2.0], vec![3.0, 1.0, 0.0, 2.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sort_rows(x: &Tensor, order: Order) -> Result<[Tensor; 2], CallError> {
    let variant = if order == Order::Ascending { "ascending" } else { "descending" };
    all(&set::order::SORT_ROWS, variant, &[("x", x)], &[])
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` of `x[batch, channels, pixels]`, where mean and variance are those of one of `groups` groups of
/// neighbouring channels of an image; `weight[channels]` and `bias[channels]`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::full(DType::F32, &[2, 4, 9], 3.0)?, Tensor::ones(DType::F32, &[4])?);
/// assert_eq!(tessera_ops::group_norm(&x, &one, &one, 2, 1e-5)?.read::<f32>()?[0], 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn group_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, groups: usize, eps: f64) -> Result<Tensor, CallError> {
    let scalars = [("groups", groups as f64), ("eps", eps)];
    run(&set::channel_norm::GROUP_NORM, "", &[("x", x), ("weight", weight), ("bias", bias)], &scalars)
}

/// The gradients of [`group_norm`] of `x`, weight and bias, from cotangents of its result.
pub fn group_norm_backward(x: &Tensor, weight: &Tensor, dy: &Tensor, groups: usize, eps: f64) -> Result<[Tensor; 3], CallError> {
    let scalars = [("groups", groups as f64), ("eps", eps)];
    all(&set::channel_norm::GROUP_NORM_BACKWARD, "", &[("x", x), ("weight", weight), ("dy", dy)], &scalars)
}

/// `(x - mean) * rstd * weight + bias` of `x[batch, channels, pixels]`, where the statistics are those of all images of a channel: `[y, mean, rstd]`,
/// with `rstd = 1 / sqrt(variance + eps)`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::full(DType::F32, &[2, 4, 9], 3.0)?, Tensor::ones(DType::F32, &[4])?);
/// let [y, mean, _] = tessera_ops::batch_norm(&x, &one, &one, 1e-5)?;
/// assert_eq!((y.read::<f32>()?[0], mean.read::<f32>()?[3]), (1.0, 3.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn batch_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<[Tensor; 3], CallError> {
    all(&set::channel_norm::BATCH_NORM, "", &[("x", x), ("weight", weight), ("bias", bias)], &[("eps", eps)])
}

/// The gradients of [`batch_norm`] of `x`, weight and bias, from the statistics that it gave and cotangents of its first result.
pub fn batch_norm_backward(
    x: &Tensor,
    weight: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    dy: &Tensor,
) -> Result<[Tensor; 3], CallError> {
    let none = Tensor::zeros_on(mean.dtype(), mean.shape(), &mean.device());
    let none = none.map_err(|error| CallError::Memory { name: "dmean", error })?;
    let statistics = [("mean", mean), ("rstd", rstd), ("dmean", &none), ("drstd", &none)];
    let tensors: Vec<(&str, &Tensor)> = [("x", x), ("weight", weight), ("dy", dy)].into_iter().chain(statistics).collect();
    all(&set::channel_norm::BATCH_NORM_BACKWARD, "", &tensors, &[])
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` of `x[batch, channels, pixels]`, by statistics of channels that are given in the type that sums
/// are kept in.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::full(DType::F32, &[2, 4, 9], 3.0)?, Tensor::ones(DType::F32, &[4])?);
/// assert_eq!(tessera_ops::batch_norm_inference(&x, &one, &one, &one, &one, 0.0)?.read::<f32>()?[0], 3.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn batch_norm_inference(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    mean: &Tensor,
    variance: &Tensor,
    eps: f64,
) -> Result<Tensor, CallError> {
    let tensors = [("x", x), ("weight", weight), ("bias", bias), ("mean", mean), ("variance", variance)];
    run(&set::channel_norm::BATCH_NORM_INFERENCE, "", &tensors, &[("eps", eps)])
}

/// How running statistics follow those of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Following {
    /// The part that the batch has in the new statistics: 0.1 in PyTorch unless it is named.
    pub momentum: f64,
    /// What the batch's variance is multiplied by: `n / (n - 1)` of `n` elements a channel for the unbiased one.
    pub unbiased: f64,
    /// What [`batch_norm`] was given.
    pub eps: f64,
}

/// Moves running statistics, in place, towards those that [`batch_norm`] gave: `running += momentum * (batch - running)`.
///
/// ```
/// use tessera_ops::{Following, follow_statistics};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let [mean, rstd] = [4.0, 0.5].map(|value| Tensor::full(DType::F32, &[3], value));
/// let (running_mean, running_var) = (Tensor::zeros(DType::F32, &[3]), Tensor::ones(DType::F32, &[3]));
/// let (running_mean, running_var) = (running_mean?, running_var?);
/// let how = Following { momentum: 0.5, unbiased: 1.0, eps: 0.0 };
/// follow_statistics(&mean?, &rstd?, &running_mean, &running_var, how)?;
/// assert_eq!((running_mean.to_f64()?[0], running_var.to_f64()?[2]), (2.0, 2.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn follow_statistics(
    mean: &Tensor,
    rstd: &Tensor,
    running_mean: &Tensor,
    running_var: &Tensor,
    how: Following,
) -> Result<(), CallError> {
    let tensors = [("mean", mean), ("rstd", rstd), ("running_mean", running_mean), ("running_var", running_var)];
    let scalars = [("momentum", how.momentum), ("unbiased", how.unbiased), ("eps", how.eps)];
    all::<2>(&set::running_statistics::RUNNING_STATISTICS, "", &tensors, &scalars).map(drop)
}
