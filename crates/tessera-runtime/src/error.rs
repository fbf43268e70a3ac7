//! What can go wrong with tensors, their files and devices: typed, with the numbers that clash.

use std::path::PathBuf;

use tessera_driver::DriverError;
use tessera_launch::MemoryError;
use tessera_types::DType;

pub use tessera_launch::DeviceError;

/// Why a tensor cannot be made, read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The allocator has not that much.
    #[error("{bytes} bytes of memory cannot be had")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The shape's size does not fit an address.
    #[error("a tensor of shape {shape:?} and type `{dtype}` is beyond any memory")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
    },
    /// The data has another number of elements than the shape.
    #[error("shape {shape:?} has {expected} elements, but {found} are given")]
    Count {
        /// The shape.
        shape: Vec<usize>,
        /// Elements of the shape.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// Another element type was asked for.
    #[error("the tensor holds `{found}`, not `{expected}`; convert it with `to_dtype`")]
    DType {
        /// The type asked for.
        expected: DType,
        /// The tensor's.
        found: DType,
    },
    /// The elements do not follow each other in row-major order.
    #[error("the tensor of shape {shape:?} and strides {strides:?} is not contiguous; copy it with `contiguous`")]
    NotContiguous {
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides in elements.
        strides: Vec<usize>,
    },
    /// An axis, range or stride that the tensor does not have.
    #[error("{what} does not fit a tensor of shape {shape:?}")]
    View {
        /// What was asked for.
        what: String,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// Two shapes that should be one.
    #[error("shapes {left:?} and {right:?} differ")]
    Shape {
        /// One.
        left: Vec<usize>,
        /// The other.
        right: Vec<usize>,
    },
    /// The memory is in use elsewhere.
    #[error("the tensor's memory is being {} elsewhere", if *writing { "written" } else { "read" })]
    InUse {
        /// True when the other user writes.
        writing: bool,
    },
    /// The elements are on a device, where the host cannot read.
    #[error("the tensor is on `{device}`; copy it with `to_device(&Device::Cpu)`")]
    OnDevice {
        /// The device's name.
        device: String,
    },
    /// The device has not that much.
    #[error("{bytes} bytes of device memory cannot be had: {free} of {total} are free, {held} are held by tensors here")]
    DeviceMemory {
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

/// Why a file does not give a tensor, or does not take one.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {kind}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: FormatError,
}

/// What is wrong with a tensor file.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is of another kind.
    #[error("not a {expected} file")]
    Magic {
        /// What it should be.
        expected: &'static str,
    },
    /// A format version that nobody has defined.
    #[error("version {major}.{minor} of the .npy format is unknown (1.0, 2.0 and 3.0 are)")]
    Version {
        /// Major.
        major: u8,
        /// Minor.
        minor: u8,
    },
    /// The file ends early.
    #[error("{what} needs {needed} bytes, the file has {found}")]
    Truncated {
        /// The part that is cut off.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes present.
        found: u64,
    },
    /// The header says something that it cannot.
    #[error("malformed header: {0}")]
    Header(String),
    /// An element type that has no counterpart.
    #[error("elements of type `{descr}` have no counterpart here{hint}")]
    DType {
        /// The type as the file names it.
        descr: String,
        /// What to do about it, after a semicolon; may be empty.
        hint: &'static str,
    },
    /// No tensor of that name.
    #[error("no tensor `{name}` in the file; it has {}", names(available))]
    NoSuchTensor {
        /// The name asked for.
        name: String,
        /// The names present.
        available: Vec<String>,
    },
    /// The tensor itself.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn names(available: &[String]) -> String {
    const SHOWN: usize = 8;
    if available.is_empty() {
        return "none".into();
    }
    let mut text = available.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if available.len() > SHOWN {
        text.push_str(&format!(" and {} more", available.len() - SHOWN));
    }
    text
}

impl From<MemoryError> for TensorError {
    fn from(error: MemoryError) -> TensorError {
        match error {
            MemoryError::Short { bytes, free, total, held } => TensorError::DeviceMemory { bytes, free, total, held },
            MemoryError::Driver(error) => TensorError::Driver(error),
        }
    }
}
