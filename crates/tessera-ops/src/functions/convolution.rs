//! Convolution.

use tessera_runtime::Tensor;

use super::{all, run};
use crate::call::CallError;
use crate::set;

/// How a window goes over images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Pixels from one window to the next.
    pub stride: usize,
    /// Zeros around an image on each side.
    pub padding: usize,
    /// Pixels from one tap to the next.
    pub dilation: usize,
}

impl Default for Window {
    /// Neighbours, nothing around images.
    fn default() -> Window {
        Window { stride: 1, padding: 0, dilation: 1 }
    }
}

impl Window {
    fn scalars(&self) -> [(&'static str, f64); 3] {
        [("stride", self.stride as f64), ("padding", self.padding as f64), ("dilation", self.dilation as f64)]
    }
}

/// Where the channels of an image lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// `x[n, c, h, w]`, `weight[o, c / groups, r, s]`, `y[n, o, p, q]`.
    First,
    /// `x[n, h, w, c]`, `weight[o, r, s, c / groups]`, `y[n, p, q, o]`.
    Last,
}

impl Channels {
    fn variant(self, bias: bool) -> &'static str {
        match (self, bias) {
            (Channels::First, false) => "nchw",
            (Channels::First, true) => "nchw bias",
            (Channels::Last, false) => "nhwc",
            (Channels::Last, true) => "nhwc bias",
        }
    }
}

/// Two-dimensional convolution of images `x` with `weight`, whose channels say how many groups there are, and `bias[o]`: as PyTorch's.
///
/// ```
/// use tessera_ops::{Channels, Window, conv2d};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[2, 4, 5, 5])?, Tensor::ones(DType::F32, &[6, 4, 3, 3])?);
/// let y = conv2d(&x, &weight, None, Channels::First, Window { padding: 1, ..Window::default() })?;
/// assert_eq!(y.shape(), [2, 6, 5, 5]);
/// assert_eq!(y.read::<f32>()?[..2], [16.0, 24.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn conv2d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    channels: Channels,
    window: Window,
) -> Result<Tensor, CallError> {
    let tensors: Vec<_> = [("x", x), ("weight", weight)].into_iter().chain(bias.map(|bias| ("bias", bias))).collect();
    run(&set::conv2d::CONV2D, channels.variant(bias.is_some()), &tensors, &window.scalars())
}

/// The gradients of [`conv2d`] by `x` and by `weight`, from the cotangent `dy` of its result; [`conv2d_bias_backward`] gives that of its bias, too.
///
/// ```
/// use tessera_ops::{Channels, Window, conv2d_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[1, 5, 5, 2])?, Tensor::ones(DType::F32, &[3, 3, 3, 2])?);
/// let dy = Tensor::ones(DType::F32, &[1, 3, 3, 3])?;
/// let [dx, dweight] = conv2d_backward(&x, &weight, &dy, Channels::Last, Window::default())?;
/// assert_eq!((dx.shape(), dx.read::<f32>()?[0]), (x.shape(), 3.0));
/// assert_eq!(dweight.to_f64()?, [9.0; 54]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn conv2d_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    channels: Channels,
    window: Window,
) -> Result<[Tensor; 2], CallError> {
    let tensors = [("x", x), ("weight", weight), ("dy", dy)];
    all(&set::conv2d_backward::CONV2D_BACKWARD, channels.variant(false), &tensors, &window.scalars())
}

/// The gradients of [`conv2d`] by `x`, by `weight` and by its bias, `[o]`.
///
/// ```
/// use tessera_ops::{Channels, Window, conv2d_bias_backward};
/// use tessera_runtime::Tensor;
/// use tessera_types::DType;
/// let (x, weight) = (Tensor::ones(DType::F32, &[2, 2, 5, 5])?, Tensor::ones(DType::F32, &[3, 2, 3, 3])?);
/// let dy = Tensor::ones(DType::F32, &[2, 3, 3, 3])?;
/// let [dx, dweight, dbias] = conv2d_bias_backward(&x, &weight, &dy, Channels::First, Window::default())?;
/// assert_eq!((dx.shape(), dweight.shape()), (x.shape(), weight.shape()));
/// assert_eq!(dbias.to_f64()?, [18.0; 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn conv2d_bias_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    channels: Channels,
    window: Window,
) -> Result<[Tensor; 3], CallError> {
    let tensors = [("x", x), ("weight", weight), ("dy", dy)];
    all(&set::conv2d_backward::CONV2D_BACKWARD, channels.variant(true), &tensors, &window.scalars())
}
