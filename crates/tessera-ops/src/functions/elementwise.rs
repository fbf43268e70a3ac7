//! Elementwise operators, fused ones, casts, codes with scales, random numbers and rotary position embedding.
//!
//! Gradients take what the function took that they need, and the gradient of its result.

use tessera_runtime::{Device, Tensor};
use tessera_types::{DType, Policy};

use super::{Scaling, all, run};
use crate::call::{Call, CallError};
use crate::operator::Operator;
use crate::set::{activations as act, add_norm, bias, cast as casts, norm_backward, quantise as codes, random, rope as turns};

/// Functions of one array of any shape, which give one of its shape and type; behind each its gradient.
macro_rules! of_one {
    ($($name:ident $forward:ident $backward_name:ident $backward:ident [$from:ident] $about:literal $like:literal $half:literal;)*) => {
        $(
            #[doc = $about]
            ///
            /// ```
            /// use tessera_runtime::Tensor;
            /// use tessera_types::DType;
            #[doc = concat!("let y = tessera_ops::", stringify!($name), "(&Tensor::full(DType::F64, &[2, 3], 0.5)?)?;")]
            #[doc = concat!("assert!((y.to_f64()?[0] - ", $like, ").abs() < 1e-9);")]
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn $name(x: &Tensor) -> Result<Tensor, CallError> {
                run(&act::$forward, "", &[("x", x)], &[])
            }

            #[doc = concat!("The gradient of [`", stringify!($name), "`], from its `", stringify!($from), "` and the gradient of its result.")]
            ///
            /// ```
            /// use tessera_runtime::Tensor;
            /// use tessera_types::DType;
            /// let (half, one) = (Tensor::full(DType::F64, &[3], 0.5)?, Tensor::ones(DType::F64, &[3])?);
            #[doc = concat!("let dx = tessera_ops::", stringify!($backward_name), "(&half, &one)?;")]
            #[doc = concat!("assert!((dx.to_f64()?[0] - ", $half, ").abs() < 1e-9);")]
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn $backward_name($from: &Tensor, dy: &Tensor) -> Result<Tensor, CallError> {
                run(&act::$backward, "", &[(stringify!($from), $from), ("dy", dy)], &[])
            }
        )*
    };
}

of_one! {
    relu RELU relu_backward RELU_BACKWARD [x] "`max(x, 0)`, element by element. NaN stays." "0.5" "1.0";
    sigmoid SIGMOID sigmoid_backward SIGMOID_BACKWARD [y] "`1 / (1 + exp(-x))`, element by element." "0.6224593312018546" "0.25";
    tanh TANH tanh_backward TANH_BACKWARD [y] "The hyperbolic tangent, element by element." "0.46211715726000973" "0.75";
    silu SILU silu_backward SILU_BACKWARD [x] "`x / (1 + exp(-x))`, element by element: SiLU, or Swish." "0.3112296656009273" "0.7399611873026519";
    gelu GELU gelu_backward GELU_BACKWARD [x] "`x` times the normal distribution of `x`, element by element: GELU with erf." "0.34573123063700656" "0.8674951246561629";
    gelu_tanh GELU_TANH gelu_tanh_backward GELU_TANH_BACKWARD [x] "GELU by tanh, element by element." "0.34571400982514394" "0.8673699035346424";
}

/// `x`, or `slope x` below 0, element by element.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::leaky_relu(&Tensor::full(DType::F32, &[2, 3], -4.0)?, 0.25)?;
/// assert_eq!(y.to_f64()?, [-1.0; 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn leaky_relu(x: &Tensor, slope: f64) -> Result<Tensor, CallError> {
    run(&act::LEAKY_RELU, "", &[("x", x)], &[("slope", slope)])
}

/// The gradient of [`leaky_relu`].
pub fn leaky_relu_backward(x: &Tensor, dy: &Tensor, slope: f64) -> Result<Tensor, CallError> {
    run(&act::LEAKY_RELU_BACKWARD, "", &[("x", x), ("dy", dy)], &[("slope", slope)])
}

/// `x`, or `alpha (exp(x) - 1)` below 0, element by element.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::elu(&Tensor::full(DType::F32, &[2, 3], -100.0)?, 1.5)?;
/// assert_eq!(y.to_f64()?, [-1.5; 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn elu(x: &Tensor, alpha: f64) -> Result<Tensor, CallError> {
    run(&act::ELU, "", &[("x", x)], &[("alpha", alpha)])
}

/// The gradient of [`elu`].
pub fn elu_backward(x: &Tensor, dy: &Tensor, alpha: f64) -> Result<Tensor, CallError> {
    run(&act::ELU_BACKWARD, "", &[("x", x), ("dy", dy)], &[("alpha", alpha)])
}

/// Gates, and their gradients `[dgate, dup]`.
macro_rules! gates {
    ($($name:ident $forward:ident $backward_name:ident $backward:ident $about:literal $half:literal;)*) => {
        $(
            #[doc = $about]
            ///
            /// ```
            /// use tessera_runtime::Tensor;
            /// use tessera_types::DType;
            /// let (gate, up) = (Tensor::full(DType::F64, &[2, 3], 0.5)?, Tensor::full(DType::F64, &[2, 3], 2.0)?);
            #[doc = concat!("let y = tessera_ops::", stringify!($name), "(&gate, &up)?;")]
            #[doc = concat!("assert!((y.to_f64()?[5] - 2.0 * ", $half, ").abs() < 1e-9);")]
            #[doc = concat!("let [_dgate, dup] = tessera_ops::", stringify!($backward_name), "(&gate, &up, &up)?;")]
            #[doc = concat!("assert!((dup.to_f64()?[5] - 2.0 * ", $half, ").abs() < 1e-9);")]
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn $name(gate: &Tensor, up: &Tensor) -> Result<Tensor, CallError> {
                run(&act::$forward, "", &[("gate", gate), ("up", up)], &[])
            }

            #[doc = concat!("The gradients of [`", stringify!($name), "`] by `gate` and by `up`.")]
            pub fn $backward_name(gate: &Tensor, up: &Tensor, dy: &Tensor) -> Result<[Tensor; 2], CallError> {
                all(&act::$backward, "", &[("gate", gate), ("up", up), ("dy", dy)], &[])
            }
        )*
    };
}

gates! {
    swiglu SWIGLU swiglu_backward SWIGLU_BACKWARD "`silu(gate) * up`, element by element (Shazeer, 2020)." "0.3112296656009273";
    geglu GEGLU geglu_backward GEGLU_BACKWARD "`gelu(gate) * up`, element by element (Shazeer, 2020)." "0.34573123063700656";
    geglu_tanh GEGLU_TANH geglu_tanh_backward GEGLU_TANH_BACKWARD "`gelu_tanh(gate) * up`, element by element." "0.34571400982514394";
}

/// Activations behind a bias, and their gradients `[dx, dbias]`.
macro_rules! biased {
    ($($name:ident $forward:ident $backward_name:ident $backward:ident $about:literal;)*) => {
        $(
            #[doc = $about]
            ///
            /// ```
            /// use tessera_runtime::Tensor;
            /// use tessera_types::DType;
            /// let (x, bias) = (Tensor::zeros(DType::F32, &[2, 3])?, Tensor::full(DType::F32, &[3], 20.0)?);
            #[doc = concat!("assert_eq!(tessera_ops::", stringify!($name), "(&x, &bias)?.to_f64()?, [20.0; 6]);")]
            #[doc = concat!("let [dx, dbias] = tessera_ops::", stringify!($backward_name), "(&x, &bias, &Tensor::ones(DType::F32, &[2, 3])?)?;")]
            /// assert_eq!((dx.to_f64()?, dbias.to_f64()?), (vec![1.0; 6], vec![2.0; 3]));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn $name(x: &Tensor, bias: &Tensor) -> Result<Tensor, CallError> {
                run(&bias::$forward, "", &[("x", x), ("bias", bias)], &[])
            }

            #[doc = concat!("The gradients of [`", stringify!($name), "`] by `x` and by `bias`: the latter a sum over rows, in one order whatever the blocks do.")]
            pub fn $backward_name(x: &Tensor, bias: &Tensor, dy: &Tensor) -> Result<[Tensor; 2], CallError> {
                all(&bias::$backward, "", &[("x", x), ("bias", bias), ("dy", dy)], &[])
            }
        )*
    };
}

biased! {
    bias_relu BIAS_RELU bias_relu_backward BIAS_RELU_BACKWARD "`relu(x + bias)`: `x[..., n]` and `bias[n]` give an array of `x`'s shape.";
    bias_silu BIAS_SILU bias_silu_backward BIAS_SILU_BACKWARD "`silu(x + bias)`: `x[..., n]` and `bias[n]` give an array of `x`'s shape.";
    bias_gelu BIAS_GELU bias_gelu_backward BIAS_GELU_BACKWARD "`gelu(x + bias)`, with erf: `x[..., n]` and `bias[n]` give an array of `x`'s shape.";
}

/// `[sum, y]`: `sum = x + residual`, and `y` is [`rms_norm`](crate::rms_norm) of `sum` as it is stored, in one kernel.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::full(DType::F32, &[8], 2.0)?);
/// let [sum, y] = tessera_ops::add_rms_norm(&x, &x, &weight, 0.0)?;
/// assert_eq!((sum.to_f64()?[0], y.to_f64()?[0]), (6.0, 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_rms_norm(x: &Tensor, residual: &Tensor, weight: &Tensor, eps: f64) -> Result<[Tensor; 2], CallError> {
    all(&add_norm::ADD_RMS_NORM, "", &[("x", x), ("residual", residual), ("weight", weight)], &[("eps", eps)])
}

/// `[sum, y]`: `sum = x + residual`, and `y` is [`layer_norm`](crate::layer_norm) of `sum` as it is stored, in one kernel.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, one) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::ones(DType::F32, &[8])?);
/// let [sum, y] = tessera_ops::add_layer_norm(&x, &x, &one, &one, 1e-5)?;
/// assert_eq!((sum.to_f64()?[0], y.to_f64()?[0]), (6.0, 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_layer_norm(x: &Tensor, residual: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<[Tensor; 2], CallError> {
    let tensors = [("x", x), ("residual", residual), ("weight", weight), ("bias", bias)];
    all(&add_norm::ADD_LAYER_NORM, "", &tensors, &[("eps", eps)])
}

/// The gradients `[dx, dweight]` of [`add_rms_norm`], from the `sum` that it gave and cotangents of both its results. `dx` is the gradient of `x`, and that
/// of the residual.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (sum, one) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::ones(DType::F32, &[8])?);
/// let (dsum, dy) = (Tensor::full(DType::F32, &[4, 8], 0.5)?, Tensor::ones(DType::F32, &[4, 8])?);
/// let [dx, dweight] = tessera_ops::add_rms_norm_backward(&sum, &one, [&dsum, &dy], 0.0)?;
/// assert!((dx.to_f64()?[0] - 0.5).abs() < 1e-6 && (dweight.to_f64()?[0] - 4.0).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_rms_norm_backward(
    sum: &Tensor,
    weight: &Tensor,
    [dsum, dy]: [&Tensor; 2],
    eps: f64,
) -> Result<[Tensor; 2], CallError> {
    let tensors = [("sum", sum), ("weight", weight), ("dsum", dsum), ("dy", dy)];
    all(&norm_backward::ADD_RMS_NORM_BACKWARD, "", &tensors, &[("eps", eps)])
}

/// The gradients `[dx, dweight, dbias]` of [`add_layer_norm`], from the `sum` that it gave and cotangents of both its results. `dx` is the gradient of `x`,
/// and that of the residual.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (sum, one) = (Tensor::full(DType::F32, &[4, 8], 3.0)?, Tensor::ones(DType::F32, &[8])?);
/// let (dsum, dy) = (Tensor::full(DType::F32, &[4, 8], 0.5)?, Tensor::ones(DType::F32, &[4, 8])?);
/// let [dx, _, dbias] = tessera_ops::add_layer_norm_backward(&sum, &one, [&dsum, &dy], 1e-5)?;
/// assert_eq!((dx.to_f64()?[0], dbias.to_f64()?[0]), (0.5, 4.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_layer_norm_backward(
    sum: &Tensor,
    weight: &Tensor,
    [dsum, dy]: [&Tensor; 2],
    eps: f64,
) -> Result<[Tensor; 3], CallError> {
    let tensors = [("sum", sum), ("weight", weight), ("dsum", dsum), ("dy", dy)];
    all(&norm_backward::ADD_LAYER_NORM_BACKWARD, "", &tensors, &[("eps", eps)])
}

/// The elements of `x` in another type, rounded to the nearest, ties to even, and saturated in 8 bits: between `f32`, `f16`, `bf16`, 8-bit floats and `i8`,
/// where one of both has 16 bits or more, and between `f32` and `f64`.
///
/// ```
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let y = tessera_ops::cast(&Tensor::full(DType::F32, &[3], 130.5)?, DType::I8)?;
/// assert_eq!((y.dtype(), y.to_f64()?), (DType::I8, vec![127.0; 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cast(x: &Tensor, dtype: DType) -> Result<Tensor, CallError> {
    let policy = Policy::of(x.dtype()).with_result(dtype);
    let call = Call { variant: Some(""), tensors: vec![("x", x.clone())], scalars: Vec::new(), lock: None };
    let mut results = casts::CAST.resolve_in(&call, Some(policy))?.run()?;
    Ok(results.remove(0))
}

fn variant_of(of: Scaling) -> &'static str {
    match of {
        Scaling::Blocks => "blocks",
        Scaling::Rows => "rows",
        Scaling::Tensor => "tensor",
    }
}

/// `[codes, scales]` of `x[..., n]`: codes of 8 bits, `f8e4m3`, `f8e5m2` or `i8`, and scales in `f32` such that `x = code scale`, by the largest magnitude
/// of each block of 128, each row, or all: `[..., ceil(n / 128)]`, `[...]` or `[1]`. They are what [`gemm_scaled`](crate::gemm_scaled) takes.
///
/// ```
/// use tessera_ops::{Scaling, dequantise, quantise};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::full(DType::F32, &[4, 200], -254.0)?;
/// let [codes, scales] = quantise(&x, DType::I8, Scaling::Blocks)?;
/// assert_eq!((codes.to_f64()?[0], scales.shape(), scales.to_f64()?[0]), (-127.0, &[4, 2][..], 2.0));
/// assert!(dequantise(&codes, &scales, DType::F32, Scaling::Blocks)?.same_bits(&x)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Where codes are of another type, too.
pub fn quantise(x: &Tensor, codes_in: DType, of: Scaling) -> Result<[Tensor; 2], CallError> {
    let variant = match codes_in {
        DType::F8E4M3 => variant_of(of).to_string(),
        DType::F8E5M2 => format!("{}_e5m2", variant_of(of)),
        other => format!("{}_{}", variant_of(of), tessera_types::policy_name(other)),
    };
    all(&codes::QUANTISE, &variant, &[("x", x)], &[])
}

/// `code scale` of codes and scales as [`quantise`] gives them, in `f32`, `f16` or `bf16`.
pub fn dequantise(codes_of: &Tensor, scales: &Tensor, dtype: DType, of: Scaling) -> Result<Tensor, CallError> {
    let policy = Policy::of(codes_of.dtype()).with_result(dtype);
    let tensors = vec![("codes", codes_of.clone()), ("scales", scales.clone())];
    let call = Call { variant: Some(variant_of(of)), tensors, scalars: Vec::new(), lock: None };
    let mut results = codes::DEQUANTISE.resolve_in(&call, Some(policy))?.run()?;
    Ok(results.remove(0))
}

/// Which random numbers: those of a seed and an offset are the same on every device. Both are below 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Random {
    /// The generator's key.
    pub seed: u64,
    /// Which of its streams: a step of a training, a layer.
    pub offset: u64,
}

impl Random {
    fn numbers(self) -> [(&'static str, f64); 2] {
        [("seed", self.seed as f64), ("offset", self.offset as f64)]
    }
}

/// `x / (1 - p)`, or 0 with probability `p`, which counts as a multiple of 2^-16. Which elements are dropped follows from seed, offset and place alone: no
/// mask is in memory, and [`dropout_backward`] makes it anew.
///
/// ```
/// use tessera_ops::{Random, dropout, dropout_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, random) = (Tensor::ones(DType::F32, &[100, 100])?, Random { seed: 7, offset: 0 });
/// let y = dropout(&x, 0.5, random)?;
/// let kept = y.to_f64()?.iter().filter(|&&y| y == 2.0).count();
/// assert!((4800..5200).contains(&kept));
/// assert!(dropout_backward(&x, 0.5, random)?.same_bits(&y)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dropout(x: &Tensor, p: f64, random: Random) -> Result<Tensor, CallError> {
    let [seed, offset] = random.numbers();
    run(&random::DROPOUT, "", &[("x", x)], &[("p", p), seed, offset])
}

/// The gradient of [`dropout`] with the same numbers.
pub fn dropout_backward(dy: &Tensor, p: f64, random: Random) -> Result<Tensor, CallError> {
    let [seed, offset] = random.numbers();
    run(&random::DROPOUT_BACKWARD, "", &[("dy", dy)], &[("p", p), seed, offset])
}

/// Numbers from 0 to 1, without 1, each multiple of the type's roundoff as likely: Philox 4x32-10.
///
/// ```
/// use tessera_runtime::Device;
/// use tessera_types::DType;
/// let y = tessera_ops::random_uniform(DType::F32, &[2, 3], &Device::Cpu, Default::default())?;
/// assert_eq!((y.shape(), y.to_f64()?[0]), (&[2, 3][..], f64::from(0x6627e8d5u32 >> 8) / 16777216.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn random_uniform(dtype: DType, shape: &[usize], device: &Device, random: Random) -> Result<Tensor, CallError> {
    let y = empty(dtype, shape, device)?;
    run(&random::RANDOM_UNIFORM, "", &[("y", &y)], &random.numbers())
}

/// Normal numbers of mean 0 and standard deviation 1.
///
/// ```
/// use tessera_runtime::Device;
/// use tessera_types::DType;
/// let y = tessera_ops::random_normal(DType::F32, &[100, 100], &Device::Cpu, Default::default())?.to_f64()?;
/// assert!((y.iter().map(|y| y * y).sum::<f64>() / 1e4 - 1.0).abs() < 0.05);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn random_normal(dtype: DType, shape: &[usize], device: &Device, random: Random) -> Result<Tensor, CallError> {
    let y = empty(dtype, shape, device)?;
    run(&random::RANDOM_NORMAL, "", &[("y", &y)], &random.numbers())
}

fn empty(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor, CallError> {
    Tensor::zeros_on(dtype, shape, device).map_err(|error| CallError::Memory { name: "y", error })
}

/// Which elements of a head are turned together by [`rope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Elements of the first half with those of the second: GPT-NeoX, Llama as PyTorch has it.
    Halves,
    /// Neighbours: GPT-J, Llama as it was trained.
    Interleaved,
}

/// Angles of [`rope`].
#[derive(Clone, Copy, Debug)]
pub enum Angles<'a> {
    /// Cosines and sines in `f32`, `[positions, half]`: `half` pairs of each head are turned.
    Tables(&'a Tensor, &'a Tensor),
    /// Pair `i` of position `p` has the angle `p theta^(-2 i / dims)`, where `dims` elements of each head are turned.
    Theta {
        /// The base.
        theta: f64,
        /// Elements that are turned; 0 for all.
        dims: usize,
    },
}

/// Rotary position embedding of `x[..., tokens, heads, dim]`, whose first token has the position `start`: pairs `(a, b)` of each head become
/// `(a cos - b sin, b cos + a sin)`. Elements behind the pairs stay as they are. Heads that lie before tokens are as sequences of one head.
///
/// ```
/// use tessera_ops::{Angles, Pairing, rope, rope_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::ones(DType::F64, &[1, 5, 2, 8])?;
/// let angles = Angles::Theta { theta: 10000.0, dims: 4 };
/// let y = rope(&x, angles, Pairing::Interleaved, 3)?;
/// assert!((y.to_f64()?[0] - (3f64.cos() - 3f64.sin())).abs() < 1e-12);
/// // Turned back, they are what they were.
/// assert!((rope_backward(&y, angles, Pairing::Interleaved, 3)?.to_f64()?[0] - 1.0).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rope(x: &Tensor, angles: Angles<'_>, pairing: Pairing, start: usize) -> Result<Tensor, CallError> {
    turned(&turns::ROPE, ("x", x), angles, pairing, start)
}

/// The gradient of [`rope`]: it turns back.
pub fn rope_backward(dy: &Tensor, angles: Angles<'_>, pairing: Pairing, start: usize) -> Result<Tensor, CallError> {
    turned(&turns::ROPE_BACKWARD, ("dy", dy), angles, pairing, start)
}

/// [`rope`] in place: the results take the place of what `x` held. Like every array here, `x` is a handle to memory that others may share, and that may be
/// a part of a larger array; it is written as it lies, and refused where its axes before `tokens` cannot be taken as one.
///
/// ```
/// use tessera_ops::{Angles, Pairing, rope, rope_inplace};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let x = Tensor::ones(DType::F32, &[1, 5, 2, 8])?;
/// let angles = Angles::Theta { theta: 10000.0, dims: 4 };
/// let y = rope(&x, angles, Pairing::Halves, 3)?;
/// rope_inplace(&x, angles, Pairing::Halves, 3)?;
/// assert_eq!(x.to_f64()?, y.to_f64()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rope_inplace(x: &Tensor, angles: Angles<'_>, pairing: Pairing, start: usize) -> Result<(), CallError> {
    turned(&turns::ROPE_INPLACE, ("x", x), angles, pairing, start).map(|_| ())
}

fn turned(
    operator: &'static Operator,
    array: (&str, &Tensor),
    angles: Angles<'_>,
    pairing: Pairing,
    start: usize,
) -> Result<Tensor, CallError> {
    let start = ("start", start as f64);
    match angles {
        Angles::Tables(cos, sin) => {
            let variant = if pairing == Pairing::Halves { "halves" } else { "interleaved" };
            run(operator, variant, &[array, ("cos", cos), ("sin", sin)], &[start])
        }
        Angles::Theta { theta, dims } => {
            let variant = if pairing == Pairing::Halves { "halves_theta" } else { "interleaved_theta" };
            run(operator, variant, &[array], &[start, ("theta", theta), ("dims", dims as f64)])
        }
    }
}

/// `[q_out, k_out]`: heads of `q[..., tokens, heads, dim]` and `k[..., tokens, shared, dim]` over their root mean square, times `weights[dim]` of each, and
/// then [`rope`] by tables `[cos, sin]`, in one launch.
///
/// ```
/// use tessera_ops::{Pairing, qk_norm_rope};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (q, k) = (Tensor::full(DType::F32, &[5, 4, 8], 3.0)?, Tensor::full(DType::F32, &[5, 2, 8], 7.0)?);
/// let (weight, cos, sin) = (Tensor::ones(DType::F32, &[8])?, Tensor::ones(DType::F32, &[5, 4])?, Tensor::zeros(DType::F32, &[5, 4])?);
/// let [q, k] = qk_norm_rope(&q, &k, [&weight, &weight], [&cos, &sin], Pairing::Halves, 0, 0.0)?;
/// assert!((q.to_f64()?[0] - 1.0).abs() < 1e-6 && (k.to_f64()?[0] - 1.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn qk_norm_rope(
    q: &Tensor,
    k: &Tensor,
    weights: [&Tensor; 2],
    tables: [&Tensor; 2],
    pairing: Pairing,
    start: usize,
    eps: f64,
) -> Result<[Tensor; 2], CallError> {
    let variant = if pairing == Pairing::Halves { "halves" } else { "interleaved" };
    let [q_weight, k_weight] = weights;
    let [cos, sin] = tables;
    let tensors = [("q", q), ("k", k), ("q_weight", q_weight), ("k_weight", k_weight), ("cos", cos), ("sin", sin)];
    all(&turns::QK_NORM_ROPE, variant, &tensors, &[("start", start as f64), ("eps", eps)])
}
