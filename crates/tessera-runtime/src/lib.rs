//! Tensors, devices, kernels and launches: everything between a compiled kernel and its results.
//!
//! - [`Tensor`] is typed, strided memory on a [`Device`]; [`RandomStream`] fills it reproducibly; [`npy`] and [`safetensors`] read
//!   and write it.

pub mod npy;
pub mod safetensors;

mod device;
mod error;
mod layout;
mod memory;
mod numbers;
mod random;
mod tensor;
mod window;

pub use device::{Device, DeviceChoice, DriverDevice};
pub use error::{FileError, FormatError, TensorError};
pub use memory::HOST_ALIGN;
pub use numbers::Difference;
pub use random::RandomStream;
pub use tensor::{Element, Elements, ElementsMut, Tensor};
