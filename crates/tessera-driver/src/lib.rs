//! The driver function table: everything the rest of Tessera may ask of a GPU driver, as data.
//!
//! A [`DriverTable`] is one struct of slots, one slot a driver function. A slot is a boxed function or absent, and absence is
//! an ordinary answer ([`DriverError::Missing`]), never a panic: an old driver lacks the newer slots, and there may be no
//! driver at all. `tessera-cuda` fills the table from `libcuda`; an emulator fills the same table, and nothing above this
//! crate can tell which one it talks to.
//!
//! On top of the table stand owned resources: [`Context`], [`Stream`], [`Event`], [`DeviceBuffer`], [`PinnedBuffer`], [`Module`], [`Kernel`].
//! Each keeps its table alive, makes its context current before a call and gives its handle back when dropped.
//!
//! ```
//! use tessera_driver::{DriverError, DriverTable};
//! let table = DriverTable::empty("none");
//! assert!(matches!(table.device_count(), Err(DriverError::Missing { slot: "device_count", .. })));
//! ```

mod attribute;
mod buffer;
mod error;
mod handle;
mod launch;
mod owned;
mod table;
mod tensor_map;

pub use attribute::{DeviceAttribute, FunctionAttribute, PointerAttribute};
pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use error::{DriverCode, DriverError, Result};
pub use handle::{
    ContextHandle, DeviceOrdinal, DevicePtr, EventHandle, FunctionHandle, GraphHandle, HostPtr, ModuleHandle, SharedHandle,
    StreamHandle,
};
pub use launch::{Dim3, LaunchSpec, Params};
pub use owned::{Context, Event, Graph, Kernel, Module, Stream};
pub use table::DriverTable;
pub use tensor_map::{TensorMap, TensorMapError, TensorMapSpec};
pub use tessera_types::{L2Promotion, OutOfBounds, Swizzle};
