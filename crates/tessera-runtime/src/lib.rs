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

mod ahead;
mod cache;
mod device;
mod device_launch;
mod difference;
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
mod random;
mod search_path;
mod specialise;
mod tensor;
mod tuned;
mod unwritten;
mod value;
mod whole_file;
mod window;
mod written;

pub use ahead::{Packed, from_bundle};
pub use device::{Device, DeviceChoice, DeviceProperties, DriverDevice};
pub use device_launch::DeviceLaunch;
pub use difference::{Difference, Number};
pub use error::{DeviceError, FileError, FormatError, TensorError};
pub use exit::exit_at_once;
pub use kernel::{Kernel, KernelError, Later, Often};
pub use knobs::{DeviceName, KnobError, KnobRow, Knobs};
pub use launch::{LaunchOptions, PreparedLaunch, Ran};
pub use memory::HOST_ALIGN;
pub use module_cache::module_cache;
pub use numbers::POISONS;
pub use random::RandomStream;
pub use search_path::set_module_folders;
pub use tensor::{Element, Elements, ElementsMut, Tensor};
pub use tuned::{Chosen, Lock, Point, Question, Site, Tuned};
pub use unwritten::Unwritten;
pub use value::Value;
pub use whole_file::write_whole;

pub use tessera_bundle::{Bundle, BundleError, Fixed, Variant};
pub use tessera_compile::{Choices, CompileOptions, OptLevel, PossiblePlan, Sharing, is_fixed_order};
pub use tessera_cuda::captured;
pub use tessera_driver::StreamHandle;
pub use tessera_lang::{ModuleText, Modules, Wanted};
pub use tessera_launch::{
    Argument, Array, Change, CodeOrigin, Constant, DeviceKernel, Interface, KernelResources, LaunchGrid, ModuleCache,
    ModuleCacheCounters, Placed, PoolCounters, Prepared, ProfilerRange, Report, Span, Timeline,
};
pub use tessera_lock as lock;
