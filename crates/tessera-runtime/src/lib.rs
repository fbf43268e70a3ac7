//! Tensors, devices, kernels and launches: everything between a kernel's source and its results.
//!
//! - [`Tensor`] is typed, strided memory on a [`Device`]; [`RandomStream`] fills it reproducibly; [`npy`] and [`safetensors`] read
//!   and write it.
//! - [`Kernel`] compiles for the arguments of a launch, checks them and runs; [`argspec`] reads arguments from text.
//! - [`ranks`] runs programs for several ranks.
//! - [`Knobs`] are the environment variables.

pub mod argspec;
pub mod npy;
pub mod ranks;
pub mod safetensors;

mod cache;
mod check;
mod device;
mod device_kernel;
mod device_launch;
mod error;
mod exit;
mod kernel;
mod knobs;
mod launch;
mod layout;
mod memory;
mod module_cache;
mod numbers;
mod origin;
mod pool;
mod random;
mod search_path;
mod specialise;
mod tensor;
mod timeline;
mod tuned;
mod unwritten;
mod value;
mod window;
mod written;

pub use device::{Device, DeviceChoice, DeviceProperties, DriverDevice};
pub use device_kernel::{CodeOrigin, DeviceError, DeviceKernel, KernelResources};
pub use device_launch::DeviceLaunch;
pub use error::{FileError, FormatError, TensorError};
pub use exit::exit_at_once;
pub use kernel::{Kernel, KernelError, LaunchGrid, Report};
pub use knobs::{DeviceName, KnobError, KnobRow, Knobs};
pub use launch::{LaunchOptions, PreparedLaunch, Ran};
pub use memory::HOST_ALIGN;
pub use module_cache::{ModuleCache, ModuleCacheCounters};
pub use numbers::{Difference, POISONS};
pub use pool::PoolCounters;
pub use random::RandomStream;
pub use search_path::set_module_folders;
pub use tensor::{Element, Elements, ElementsMut, Tensor};
pub use timeline::{Span, Timeline};
pub use tuned::{Lock, Point, Question, Tuned};
pub use unwritten::Unwritten;
pub use value::Value;

pub use tessera_compile::{Choices, CompileOptions, OptLevel, PossiblePlan, Sharing, is_fixed_order};
pub use tessera_cuda::captured;
pub use tessera_lock as lock;
