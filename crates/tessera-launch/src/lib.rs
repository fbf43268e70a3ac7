//! From a compiled kernel and arguments to a launch on a device. Nothing here compiles.
//!
//! - [`Interface`] says what a kernel takes; it checks arguments and counts blocks.
//! - [`DriverDevice`] is a device behind a driver's table; [`DeviceKernel`] is a kernel loaded there, [`DeviceLaunch`] one with
//!   its arguments packed, and [`Prepared`] one that is queued with other arrays and numbers.
//! - Arrays are whatever is [`Placed`]: a tensor of the runtime, or a bare address with sizes and strides, [`Array`].
//!
//! Everything works from the compiled kernel's [image](tessera_ir::KernelImage) and its interface alone, so that a program that
//! was handed them in a file launches as the compiler's own process does.

mod argument;
mod array;
mod check;
mod device;
mod device_kernel;
mod error;
mod interface;
mod launch;
mod layout;
mod meet;
mod module_cache;
mod pool;
mod prepared;
mod range;
mod tensor_map;
mod timeline;

pub use argument::{Argument, Constant, Flat, Written};
pub use array::{Array, Placed};
pub use check::within_a_byte;
pub use device::{DeviceProperties, DriverDevice};
pub use device_kernel::{CodeOrigin, DeviceKernel, KernelResources};
pub use error::{DeviceError, MemoryError, Report};
pub use interface::{Interface, LaunchGrid, check_grid};
pub use launch::DeviceLaunch;
pub use layout::{Layout, row_major, storage_bits, storage_bytes};
pub use meet::meet;
pub use module_cache::{ModuleCache, ModuleCacheCounters};
pub use pool::{PoolCounters, Pooled};
pub use prepared::{Change, Prepared};
pub use range::ProfilerRange;
pub use timeline::{Span, Timeline};
