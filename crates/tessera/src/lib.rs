#![doc = include_str!("../README.md")]
//!
//! ## What is where
//! This crate re-exports the others under short names:
//!
//! - [`runtime`]: tensors, devices, kernels and launches
//! - [`ops`]: the operator library
//! - [`bench`]: checking and measuring
//! - [`emu`]: the PTX emulator; [`driver`]: the function table that it and a GPU's driver fill
//! - [`lang`], [`document`], [`compile`], [`ir`], [`types`], [`cpu`]: the compiler and the CPU executor, for those who extend them

pub use tessera_bench as bench;
pub use tessera_compile as compile;
pub use tessera_cpu as cpu;
pub use tessera_document as document;
pub use tessera_driver as driver;
pub use tessera_emu as emu;
pub use tessera_ir as ir;
pub use tessera_lang as lang;
pub use tessera_ops as ops;
pub use tessera_runtime as runtime;
pub use tessera_types as types;
