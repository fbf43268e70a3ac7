//! Fills the [driver table](tessera_driver::DriverTable) from NVIDIA's libraries, found at run time.
//!
//! Nothing is linked: a machine without a driver gets [`DriverError::NoDriver`](tessera_driver::DriverError::NoDriver), and
//! a driver that lacks a newer function leaves its slot absent. One file a foreign library; all `unsafe` code of the CUDA
//! road is in those files.
//!
//! ```
//! match tessera_cuda::driver() {
//!     Ok(table) => println!("driver {:?}", table.driver_version()),
//!     Err(error) => println!("{error}"),
//! }
//! ```

#[macro_use]
mod symbols;

mod cublaslt;
mod libcuda;
mod nccl;
mod nvml;
mod nvtx;
mod stdout;

pub use cublaslt::{BlasLaunch, CublasLt, CublasLtError, Product};
pub use libcuda::driver;
pub use nccl::{Nccl, NcclCall, NcclComm, NcclError, NcclId, NcclOperation, NcclReduction, OnComm, queue as queue_nccl};
pub use nvml::{DeviceFacts, Nvml, NvmlDevice, NvmlError, Readings};
pub use stdout::captured;
