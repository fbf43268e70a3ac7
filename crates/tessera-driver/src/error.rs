//! What a driver call can fail with: typed, with the driver's own code, name and message.

use crate::handle::DeviceOrdinal;

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// A driver's numeric result code, with the numbering of the CUDA driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverCode(
    /// The number.
    pub u32,
);

impl DriverCode {
    /// An argument was out of range.
    pub const INVALID_VALUE: DriverCode = DriverCode(1);
    /// Device memory ran out.
    pub const OUT_OF_MEMORY: DriverCode = DriverCode(2);
    /// The machine has no device.
    pub const NO_DEVICE: DriverCode = DriverCode(100);
    /// No machine code for this device in the image.
    pub const NO_BINARY_FOR_GPU: DriverCode = DriverCode(209);
    /// The PTX did not assemble.
    pub const INVALID_PTX: DriverCode = DriverCode(218);
    /// The PTX version is newer than the driver.
    pub const UNSUPPORTED_PTX_VERSION: DriverCode = DriverCode(222);
    /// No such symbol.
    pub const NOT_FOUND: DriverCode = DriverCode(500);
    /// Work is still running.
    pub const NOT_READY: DriverCode = DriverCode(600);
    /// A kernel touched memory that is not its own.
    pub const ILLEGAL_ADDRESS: DriverCode = DriverCode(700);
    /// The other context's memory is within reach already.
    pub const PEER_ALREADY_ENABLED: DriverCode = DriverCode(704);
    /// The launch asks for more than the device has.
    pub const LAUNCH_OUT_OF_RESOURCES: DriverCode = DriverCode(701);
    /// The call is not supported here.
    pub const NOT_SUPPORTED: DriverCode = DriverCode(801);

    /// Whether the context is unusable from now on: every later call in it fails with the same code.
    pub const fn poisons_context(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719)
    }

    /// Whether a kernel did what it must not do, or did not end: another kernel would run on the same device.
    pub const fn is_of_kernel(self) -> bool {
        matches!(self.0, 700 | 702 | 710 | 714..=719)
    }
}

/// Why a driver call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The driver's library is not on this machine or cannot be loaded.
    #[error("no GPU driver: `{library}` cannot be loaded ({reason})")]
    NoDriver {
        /// The library that was tried.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The driver has no such function.
    #[error("the driver `{backend}` does not provide `{slot}`")]
    Missing {
        /// Which back end was asked.
        backend: String,
        /// The name of the table's slot.
        slot: &'static str,
    },
    /// There is no device of that number.
    #[error("no device {ordinal}: this machine has {count}")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: DeviceOrdinal,
        /// How many devices there are.
        count: u32,
    },
    /// The driver refused a call, or reports a fault of earlier work.
    #[error("`{call}` failed with {name} ({}): {message}{}", code.0, in_kernel(kernel))]
    Failed {
        /// The function of the driver.
        call: &'static str,
        /// The result code.
        code: DriverCode,
        /// The code's name.
        name: String,
        /// The driver's message.
        message: String,
        /// The kernel the call was about, where there is one.
        kernel: Option<String>,
    },
    /// A module was refused; the assembler's messages are kept.
    #[error("the driver refused a module with {name} ({}){}", code.0, with_log(log))]
    Module {
        /// The result code.
        code: DriverCode,
        /// The code's name.
        name: String,
        /// What the driver's assembler said.
        log: String,
    },
    /// The context was thrown away; its resources are gone.
    #[error("the context of device {device} was reset")]
    ContextLost {
        /// Whose context.
        device: DeviceOrdinal,
    },
    /// An argument was refused before the driver saw it.
    #[error("{0}")]
    Argument(String),
}

fn in_kernel(kernel: &Option<String>) -> String {
    kernel.as_ref().map(|name| format!(" (kernel `{name}`)")).unwrap_or_default()
}

fn with_log(log: &str) -> String {
    if log.trim().is_empty() { String::new() } else { format!(": {}", log.trim()) }
}

impl DriverError {
    /// The driver's code, where the driver gave one.
    pub fn code(&self) -> Option<DriverCode> {
        match self {
            DriverError::Failed { code, .. } | DriverError::Module { code, .. } => Some(*code),
            DriverError::NoDriver { .. }
            | DriverError::Missing { .. }
            | DriverError::NoSuchDevice { .. }
            | DriverError::ContextLost { .. }
            | DriverError::Argument(_) => None,
        }
    }

    /// Whether device memory ran out; the context stays usable.
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(DriverCode::OUT_OF_MEMORY)
    }

    /// Whether the context must be given up; see [`Context::reset`](crate::Context::reset) for what comes after.
    pub fn poisons_context(&self) -> bool {
        self.code().is_some_and(DriverCode::poisons_context)
    }

    /// The same error, naming the kernel it concerns.
    pub fn in_kernel(mut self, name: &str) -> DriverError {
        if let DriverError::Failed { kernel, .. } = &mut self {
            *kernel = Some(name.to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_code_message_and_kernel() {
        let error = DriverError::Failed {
            call: "cuStreamSynchronize",
            code: DriverCode::ILLEGAL_ADDRESS,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            message: "an illegal memory access was encountered".into(),
            kernel: None,
        }
        .in_kernel("softmax");
        assert_eq!(
            error.to_string(),
            "`cuStreamSynchronize` failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): \
             an illegal memory access was encountered (kernel `softmax`)"
        );
        assert!(error.poisons_context() && !error.is_out_of_memory());
    }

    #[test]
    fn running_out_of_memory_leaves_the_context_usable() {
        assert!(!DriverCode::OUT_OF_MEMORY.poisons_context());
        assert!(!DriverCode::LAUNCH_OUT_OF_RESOURCES.poisons_context());
    }
}
