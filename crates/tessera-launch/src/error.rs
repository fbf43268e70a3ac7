//! Why a kernel does not run on a device: typed, with the numbers that clash.

use std::fmt;

use tessera_driver::{DriverCode, DriverError};
use tessera_ir::{Diagnostic, SourceMap};

/// Diagnostics with the texts that they point into.
#[derive(Clone, Debug)]
pub struct Report {
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts.
    pub sources: SourceMap,
}

impl Report {
    /// Source lines with carets, notes and help; with colours when `styled`.
    pub fn render(&self, styled: bool) -> String {
        let texts: Vec<String> = self.diagnostics.iter().map(|diagnostic| diagnostic.render(&self.sources, styled)).collect();
        texts.join("\n\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.diagnostics.iter().map(|diagnostic| diagnostic.render_line(&self.sources)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Why a device gives no memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// It has not that much.
    #[error("{bytes} bytes of device memory cannot be had: {free} of {total} are free, {held} are held by tensors here")]
    Short {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes free on the device.
        free: u64,
        /// Bytes the device has.
        total: u64,
        /// Bytes held by this process's tensors on the device.
        held: u64,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Why a kernel does not run on a device, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The arguments are not right; nothing ran.
    #[error("{0}")]
    Rejected(Report),
    /// The kernel needs more than the device has.
    #[error("`{kernel}` needs {needs} {what}, the device has {has} ({} too many); {help}", needs - has)]
    Resources {
        /// The kernel.
        kernel: String,
        /// Of what: `bytes of shared memory for a block`.
        what: &'static str,
        /// How much it needs.
        needs: u64,
        /// How much there is.
        has: u64,
        /// What to change.
        help: &'static str,
    },
    /// An argument lies elsewhere.
    #[error("`{argument}` is on `{place}`, the kernel runs on `{device}`; copy it there with `to_device`")]
    Elsewhere {
        /// The argument.
        argument: String,
        /// Where it is.
        place: String,
        /// Where the kernel runs.
        device: String,
    },
    /// Memory cannot be had or used.
    #[error("`{kernel}`: {error}")]
    Memory {
        /// The kernel.
        kernel: String,
        /// Why.
        error: Box<MemoryError>,
    },
    /// The driver refused, or reports a fault.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl DeviceError {
    /// Arguments that are not right, where the kernel's text is not at hand.
    pub fn without_text(diagnostics: Vec<Diagnostic>) -> DeviceError {
        DeviceError::Rejected(Report { diagnostics, sources: SourceMap::default() })
    }

    /// Whether a kernel did what it must not do, or did not end.
    pub fn is_of_kernel(&self) -> bool {
        matches!(self, DeviceError::Driver(error) if error.code().is_some_and(DriverCode::is_of_kernel))
    }

    /// Whether the device's context must be given up.
    pub fn poisons_context(&self) -> bool {
        matches!(self, DeviceError::Driver(error) if error.poisons_context())
    }
}
