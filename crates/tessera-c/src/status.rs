//! How a call ends: a status, and a message for the thread that called.

#![allow(unsafe_code, reason = "reads what C hands over")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tessera_bundle::BundleError;
use tessera_driver::DriverError;
use tessera_launch::{DeviceError, MemoryError};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// It did what it was asked to.
    Ok = 0,
    /// The call itself is wrong: a null pointer, text that is not UTF-8, memory that is not the device's.
    InvalidCall = 1,
    /// A file cannot be read.
    NoFile = 2,
    /// The bytes are no bundle, or one that is cut off or damaged.
    BadBundle = 3,
    /// The bundle has another version than this library reads.
    OtherVersion = 4,
    /// The bundle has no kernel of that name.
    NoKernel = 5,
    /// The kernel is not there for the device.
    WrongTarget = 6,
    /// The kernel's only variant for the device does not take the arguments.
    WrongArguments = 7,
    /// None of the kernel's variants takes the arguments.
    NoVariant = 8,
    /// There is no such device.
    NoDevice = 9,
    /// The device has not so much memory.
    OutOfMemory = 10,
    /// The device refused the kernel, or the kernel failed.
    DeviceFailed = 11,
    /// A mistake of this library.
    Internal = 12,
}

/// Why a call failed.
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    pub(crate) fn call(message: impl Into<String>) -> Failure {
        Failure::new(Status::InvalidCall, message)
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Failure {
        let status = if error.is_out_of_memory() { Status::OutOfMemory } else { Status::DeviceFailed };
        Failure::new(status, error.to_string())
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Failure {
        match error {
            short @ MemoryError::Short { .. } => Failure::new(Status::OutOfMemory, short.to_string()),
            MemoryError::Driver(error) => Failure::from(error),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        let status = match &error {
            DeviceError::Rejected(_) => Status::WrongArguments,
            DeviceError::Memory { error, .. } if matches!(**error, MemoryError::Short { .. }) => Status::OutOfMemory,
            DeviceError::Resources { .. }
            | DeviceError::Elsewhere { .. }
            | DeviceError::Memory { .. }
            | DeviceError::Driver(_) => Status::DeviceFailed,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Failure {
        let status = match &error {
            BundleError::Io { .. } => Status::NoFile,
            BundleError::NotABundle { .. }
            | BundleError::Truncated { .. }
            | BundleError::Damaged { .. }
            | BundleError::Invalid { .. } => Status::BadBundle,
            BundleError::Version { .. } => Status::OtherVersion,
            BundleError::NoKernel { .. } => Status::NoKernel,
            BundleError::NoTarget { .. } => Status::WrongTarget,
            BundleError::Arguments { .. } => Status::WrongArguments,
            BundleError::NoVariant { .. } | BundleError::Ambiguous { .. } => Status::NoVariant,
            BundleError::Device(_) => return device_failure(error),
        };
        Failure::new(status, error.to_string())
    }
}

fn device_failure(error: BundleError) -> Failure {
    match error {
        BundleError::Device(error) => Failure::from(error),
        other => Failure::new(Status::Internal, other.to_string()),
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Does the work of a call; what goes wrong, panics included, becomes its status and the thread's last error.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Failure::new(Status::Internal, format!("a mistake in tessera: {}", text.unwrap_or("it gave no reason"))))
    });
    match outcome {
        Ok(()) => Status::Ok,
        Err(Failure { status, message }) => {
            // A message has no zero bytes but those of names that the caller wrote, which no C text can have.
            let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
            LAST.with_borrow_mut(|last| *last = message);
            status
        }
    }
}

/// Text of the caller's.
///
/// # Safety
/// `text` is null, or points at bytes that end with a zero and stay as they are.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::call(format!("{what} is a null pointer")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::call(format!("{what} is not UTF-8")))
}

/// A handle of the caller's.
///
/// # Safety
/// `handle` is null, or points at a value that lives and is not written.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::call(format!("{what} is a null pointer")))
}

/// Gives the caller a value.
///
/// # Safety
/// `out` is null, or may be written.
pub(crate) unsafe fn give<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::call("there is no place for the result: a null pointer"));
    }
    // SAFETY: the caller's promise; what was there is the caller's and has nothing to drop.
    unsafe { out.write(value) };
    Ok(())
}

/// The library's version, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn tessera_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What the last call of this thread that failed said; empty at first. It stays until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn tessera_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}
