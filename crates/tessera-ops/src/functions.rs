//! The operators as functions: on the device where their arrays are, with a new array as the answer.
//!
//! Kernels are compiled at the first call with arrays of a kind (types, alignment, and sizes where they are the kernel's constants)
//! and found at the next ones. Arrays have any strides where the operator takes them in the shape that they have; others are copied.
//! Element types are those of `tessera list ops`. With the choices of a lockfile they are run by a [`Call`]. All return a [`CallError`] when
//! shapes, types or devices do not fit each other (it names both arrays), when there is no memory, or when the device fails.
//!
//! ```
//! use tessera_runtime::Tensor;
//! use tessera_types::DType;
//! let (a, b) = (Tensor::ones(DType::F32, &[3, 64])?, Tensor::ones(DType::F32, &[65, 7])?);
//! assert!(tessera_ops::gemm(&a, &b).unwrap_err().to_string().starts_with("`k` is 64 in `A` and 65 in `B`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod convolution;
mod elementwise;
mod rows;
mod sparse;
mod windows;

use tessera_runtime::Tensor;
use tessera_types::{DType, Policy};

use crate::call::{Call, CallError};
use crate::operator::Operator;
use crate::set;
use crate::signature::Operand;

pub use attention::*;
pub use convolution::*;
pub use elementwise::*;
pub use rows::*;
pub use sparse::*;
pub use windows::*;

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of them.
    Full,
    /// Those up to its own place: query `q` sees keys up to `q + (keys - queries)`. There is a key for every query.
    Causal,
}

impl Mask {
    fn variant(self) -> &'static str {
        match self {
            Mask::Full => "",
            Mask::Causal => "causal",
        }
    }
}

/// The results of an operator, in its order.
pub(crate) fn all<const RESULTS: usize>(
    operator: &'static Operator,
    variant: &str,
    tensors: &[(&str, &Tensor)],
    scalars: &[(&str, f64)],
) -> Result<[Tensor; RESULTS], CallError> {
    let tensors = tensors.iter().map(|(name, tensor)| (*name, (*tensor).clone())).collect();
    let results = operator.resolve(&Call { variant: Some(variant), tensors, scalars: scalars.to_vec(), lock: None })?.run()?;
    Ok(results.try_into().expect("a function knows how many results its operator gives"))
}

/// The result of an operator that has one.
pub(crate) fn run(
    operator: &'static Operator,
    variant: &str,
    tensors: &[(&str, &Tensor)],
    scalars: &[(&str, f64)],
) -> Result<Tensor, CallError> {
    let [result] = all(operator, variant, tensors, scalars)?;
    Ok(result)
}

/// The extent of an array's last axis; one without axes is refused as the call would refuse it.
fn last_axis(name: &'static str, axes: &'static str, tensor: &Tensor) -> Result<usize, CallError> {
    extent(name, axes, tensor, tensor.shape().last())
}

/// The same of its first axis.
fn first_axis(name: &'static str, axes: &'static str, tensor: &Tensor) -> Result<usize, CallError> {
    extent(name, axes, tensor, tensor.shape().first())
}

fn extent(name: &'static str, axes: &'static str, tensor: &Tensor, found: Option<&usize>) -> Result<usize, CallError> {
    found.copied().ok_or_else(|| CallError::Rank { operand: Operand(name, axes), shape: tensor.shape().to_vec() })
}

/// A new array where another one lies.
fn new(name: &'static str, dtype: DType, shape: &[usize], beside: &Tensor) -> Result<Tensor, CallError> {
    Tensor::zeros_on(dtype, shape, &beside.device()).map_err(|error| CallError::Memory { name, error })
}

/// Softmax over the last axis: `x[..., keys]` gives an array of its shape and type.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::softmax(&Tensor::zeros(DType::F32, &[2, 3, 4])?)?;
/// assert_eq!((y.shape(), y.read::<f32>()?[0]), (&[2, 3, 4][..], 0.25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn softmax(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::softmax::SOFTMAX, "", &[("x", x)], &[])
}

/// Softmax over the last axis of `x[..., queries, keys]`, for the keys that each query sees under [`Mask::Causal`]; others get 0.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::causal_softmax(&Tensor::zeros(DType::F32, &[2, 2])?)?;
/// assert_eq!(y.to_f64()?, [1.0, 0.0, 0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn causal_softmax(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::softmax::SOFTMAX, "causal", &[("x", x)], &[])
}

/// The product of `a[..., m, k]` and `b[..., k, n]`, matrix by matrix: `[..., m, n]` in the type that sums are kept in, `f32` for
/// floats up to 32 bits and `i32` for `i8`. A factor that lies transposed in memory is given as `tensor.transpose(0, 1)`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (a, b) = (Tensor::arange(DType::F32, &[2, 3])?, Tensor::ones(DType::F32, &[4, 3])?);
/// let c = tessera_ops::gemm(&a, &b.transpose(0, 1)?)?;
/// assert_eq!((c.shape(), c.to_f64()?[0], c.to_f64()?[7]), (&[2, 4][..], 3.0, 12.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm(a: &Tensor, b: &Tensor) -> Result<Tensor, CallError> {
    run(&set::gemm::GEMM, "nn", &[("A", a), ("B", b)], &[])
}

/// [`gemm`] in a precision of `tessera list ops`, whose storage is what the arrays hold: `bf16->bf16` gives results as narrow as the factors, and
/// `fp32@3xtf32` or `fp32@3xbf16` have tensor cores multiply numbers of 32 bits, taken apart into two of a narrower type ([`Policy`] says how exact
/// that is).
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (a, b) = (Tensor::full(DType::F32, &[2, 64], 1.0 / 3.0)?, Tensor::full(DType::F32, &[64, 4], 3.0)?);
/// let c = tessera_ops::gemm_in(&a, &b, "fp32@3xtf32".parse()?)?.to_f64()?;
/// assert!((c[0] - 64.0).abs() < 1e-4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_in(a: &Tensor, b: &Tensor, policy: Policy) -> Result<Tensor, CallError> {
    let call = Call { variant: Some("nn"), tensors: vec![("A", a.clone()), ("B", b.clone())], scalars: Vec::new(), lock: None };
    let mut results = set::gemm::GEMM.resolve_in(&call, Some(policy))?.run()?;
    Ok(results.remove(0))
}

/// Rows of `a[tokens, k]` in groups, each group times its own matrix of `b[groups, k, n]`, in one launch: `[tokens, n]` in the type of `a`, or in
/// `bf16` where that has 8 bits. `offsets[groups + 1]`, of `i32`, rises from 0 to `tokens`: group `g` has rows `offsets[g]` to `offsets[g + 1]`, which
/// may be none. Other bounds are an error where they lie in the host's memory; those on a device are not looked at, since that would wait for it: what
/// rows hold then is not said. Matrices that lie transposed in memory are given as `b.transpose(1, 2)`. Types are `f16`, `bf16`, `f32` and 8-bit floats.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (a, b) = (Tensor::ones(DType::BF16, &[3, 64])?, Tensor::full(DType::BF16, &[2, 64, 5], 0.5)?);
/// let c = tessera_ops::gemm_grouped(&a, &b, &Tensor::from_vec(&[3], vec![0, 1, 3])?)?;
/// assert_eq!((c.shape(), c.to_f64()?[14]), (&[3, 5][..], 32.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_grouped(a: &Tensor, b: &Tensor, offsets: &Tensor) -> Result<Tensor, CallError> {
    run(&set::gemm_grouped::GEMM_GROUPED, "nn", &[("A", a), ("B", b), ("offsets", offsets)], &[])
}

/// What is applied to a linear layer's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// `max(t, 0)`
    Relu,
    /// GELU by tanh (Hendrycks and Gimpel, 2016).
    Gelu,
    /// `t / (1 + exp(-t))`
    Silu,
}

/// `f(x weight^T + bias)`, in one kernel: `x[..., in]`, `weight[out, in]` and `bias[out]` give `[..., out]` in `x`'s type. Sums are kept in
/// `f32` and rounded once. Types are `f16`, `bf16` and `f32`.
///
/// ```
/// use tessera_ops::Activation;
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[2, 3, 8])?, Tensor::ones(DType::F32, &[5, 8])?);
/// let y = tessera_ops::linear(&x, &weight, &Tensor::full(DType::F32, &[5], -9.0)?, Activation::Relu)?;
/// assert_eq!((y.shape(), y.read::<f32>()?[0]), (&[2, 3, 5][..], 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor, activation: Activation) -> Result<Tensor, CallError> {
    let variant = match activation {
        Activation::Identity => "bias",
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::Silu => "silu",
    };
    run(&set::linear::LINEAR, variant, &[("x", x), ("weight", weight), ("bias", bias)], &[])
}

/// `x weight^T + bias + residual`, in one kernel; shapes and types are those of [`linear`], the residual's those of the result.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let [x, weight, bias, residual] = [[2, 8].as_slice(), &[5, 8], &[5], &[2, 5]].map(|shape| Tensor::ones(DType::F32, shape));
/// assert_eq!(tessera_ops::linear_residual(&x?, &weight?, &bias?, &residual?)?.read::<f32>()?[0], 10.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear_residual(x: &Tensor, weight: &Tensor, bias: &Tensor, residual: &Tensor) -> Result<Tensor, CallError> {
    let tensors = [("x", x), ("weight", weight), ("bias", bias), ("residual", residual)];
    run(&set::linear::LINEAR, "residual", &tensors, &[])
}

/// `silu(x gate^T) * (x up^T)`, in one kernel that reads `x` once (SwiGLU; Shazeer, 2020): `x[..., in]`, `gate[out, in]` and `up[out, in]` give
/// `[..., out]` in `x`'s type.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, zeros) = (Tensor::ones(DType::F32, &[2, 8])?, Tensor::zeros(DType::F32, &[5, 8])?);
/// assert_eq!(tessera_ops::linear_swiglu(&x, &zeros, &zeros)?.to_f64()?, [0.0; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear_swiglu(x: &Tensor, gate: &Tensor, up: &Tensor) -> Result<Tensor, CallError> {
    run(&set::linear::LINEAR, "swiglu", &[("x", x), ("gate", gate), ("up", up)], &[])
}

/// The elements of `x` with its axes in another order, as a new array: axis `i` of the result is axis `order[i]` of `x`. `x` has two to four axes,
/// and the order changes something.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::permute(&Tensor::arange(DType::F32, &[2, 3])?, &[1, 0])?;
/// assert_eq!((y.shape(), y.to_f64()?), (&[3, 2][..], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn permute(x: &Tensor, order: &[usize]) -> Result<Tensor, CallError> {
    let variant: String = order.iter().map(usize::to_string).collect();
    run(&set::permute::PERMUTE, &variant, &[("x", x)], &[])
}

/// `x[..., k]` times the transpose of weights of 4 bits: `[..., n]` in `x`'s type, which is `f16` or `bf16`. `w` is packed by
/// [`pack_int4`](crate::pack_int4); `scales[k / group, n]`, and `zeros` of that shape where there are zero points, are of `x`'s type, for groups
/// of 64 or 128. A weight is `(code - zero) * scale`, rounded to `x`'s type after each step; without zero points the zero is 8.
///
/// ```
/// use tessera_ops::{linear_w4, pack_int4};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::ones(DType::BF16, &[2, 64])?;
/// let (w, scales) = (pack_int4(&[11; 5 * 64], 5, 64)?, Tensor::full(DType::BF16, &[1, 5], 0.5)?);
/// let y = linear_w4(&x, &w, &scales, None)?;
/// assert_eq!((y.shape(), y.to_f64()?[0]), (&[2, 5][..], 64.0 * 3.0 * 0.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn linear_w4(x: &Tensor, w: &Tensor, scales: &Tensor, zeros: Option<&Tensor>) -> Result<Tensor, CallError> {
    let mut tensors = vec![("x", x), ("W", w), ("S", scales)];
    tensors.extend(zeros.map(|zeros| ("Z", zeros)));
    run(&set::linear_w4::LINEAR_W4, if zeros.is_some() { "zeros" } else { "symmetric" }, &tensors, &[])
}

/// What has a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Blocks of 128 along `k` of a row of `a`, blocks of 128 x 128 of `b`: `[m, k / 128]` and `[ceil(n / 128), k / 128]`.
    Blocks,
    /// Rows: `[m]` and `[n]`.
    Rows,
    /// All: `[1]` and `[1]`.
    Tensor,
}

/// The product of `a[m, k]` and the transpose of `b[n, k]`, both of 8-bit floats, times their scales in `f32`: `[m, n]` in `bf16`.
///
/// ```
/// use tessera_ops::{Scaling, gemm_scaled};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (a, b) = (Tensor::ones(DType::F8E4M3, &[3, 100])?, Tensor::ones(DType::F8E4M3, &[5, 100])?);
/// let (sa, sb) = (Tensor::full(DType::F32, &[3], 0.5)?, Tensor::full(DType::F32, &[5], 4.0)?);
/// let c = gemm_scaled(&a, &b, &sa, &sb, Scaling::Rows)?;
/// assert_eq!((c.shape(), c.to_f64()?[0]), (&[3, 5][..], 200.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_scaled(a: &Tensor, b: &Tensor, sa: &Tensor, sb: &Tensor, scaling: Scaling) -> Result<Tensor, CallError> {
    let variant = match scaling {
        Scaling::Blocks => "blocks",
        Scaling::Rows => "rows",
        Scaling::Tensor => "tensor",
    };
    run(&set::gemm_scaled::GEMM_SCALED, variant, &[("A", a), ("B", b), ("SA", sa), ("SB", sb)], &[])
}

/// `softmax(q k^T / sqrt(dim)) v` for each head: `q[..., heads, queries, dim]`, `k` and `v[..., shared, keys, dim]`, where `heads` is a
/// multiple of `shared`, give an array of `q`'s shape and type. Types are `f16`, `bf16` and `f32`.
///
/// ```
/// use tessera_ops::{Mask, attention};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let q = Tensor::ones(DType::F32, &[1, 2, 16, 64])?;
/// let k = Tensor::ones(DType::F32, &[1, 1, 32, 64])?;
/// let o = attention(&q, &k, &k, Mask::Causal)?;
/// assert_eq!((o.shape(), o.read::<f32>()?[0]), (&[1, 2, 16, 64][..], 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask) -> Result<Tensor, CallError> {
    run(&set::attention::ATTENTION, mask.variant(), &[("Q", q), ("K", k), ("V", v)], &[])
}

/// `x / sqrt(mean(x^2) + eps) * weight` over the last axis: `x[..., hidden]` and `weight[hidden]` give an array of `x`'s shape and type.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::full(DType::F32, &[8], 2.0)?);
/// assert_eq!(tessera_ops::rms_norm(&x, &weight, 0.0)?.read::<f32>()?[0], 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor, CallError> {
    run(&set::rms_norm::RMS_NORM, "", &[("x", x), ("weight", weight)], &[("eps", eps)])
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis: `x[..., hidden]`, `weight[hidden]` and `bias[hidden]` give an
/// array of `x`'s shape and type.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::ones(DType::F32, &[8])?);
/// assert_eq!(tessera_ops::layer_norm(&x, &one, &one, 1e-5)?.read::<f32>()?[0], 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor, CallError> {
    run(&set::layer_norm::LAYER_NORM, "", &[("x", x), ("weight", weight), ("bias", bias)], &[("eps", eps)])
}

/// `alpha * x + y`, element by element, for arrays of one shape and type.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let one = Tensor::ones(DType::F32, &[5, 3])?;
/// assert_eq!(tessera_ops::axpy(0.5, &one, &one)?.to_f64()?, [1.5; 15]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn axpy(alpha: f64, x: &Tensor, y: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "axpy", &[("x", x), ("y", y)], &[("alpha", alpha)])
}

/// `x + y`, element by element, for arrays of one shape and type.
pub fn add(x: &Tensor, y: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "add", &[("x", x), ("y", y)], &[])
}

/// `x * y`, element by element, for arrays of one shape and type.
pub fn mul(x: &Tensor, y: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "mul", &[("x", x), ("y", y)], &[])
}

/// The sum of all `x * y`: one element of the type that sums are kept in.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::ones(DType::BF16, &[1000])?;
/// assert_eq!(tessera_ops::dot(&x, &x)?.read::<f32>()?[0], 1000.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dot(x: &Tensor, y: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "dot", &[("x", x), ("y", y)], &[])
}

/// The root of the sum of squares of all elements: one element of the type that sums are kept in.
pub fn norm(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "norm", &[("x", x)], &[])
}

/// The sum of all elements: one element of the type that sums are kept in.
pub fn reduce_sum(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "reduce_sum", &[("x", x)], &[])
}

/// The largest of all elements: one element of the type that sums are kept in.
pub fn reduce_max(x: &Tensor) -> Result<Tensor, CallError> {
    run(&set::vector::VECTOR, "reduce_max", &[("x", x)], &[])
}
