//! Opaque handles. Each is a number that only the back end that made it understands; none owns anything.

use std::fmt;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(
            /// The back end's own number: a pointer for `libcuda`, an index for an emulator.
            pub u64,
        );
    )* };
}

handles! {
    /// A context: one device's address space and loaded modules.
    ContextHandle
    /// A queue of work that runs in order. `StreamHandle::DEFAULT` is the context's default stream.
    StreamHandle
    /// A point in a stream, used for timing and waiting.
    EventHandle
    /// A loaded module (PTX or cubin).
    ModuleHandle
    /// A kernel inside a loaded module.
    FunctionHandle
    /// An instantiated graph.
    GraphHandle
}

impl StreamHandle {
    /// The context's default stream.
    pub const DEFAULT: StreamHandle = StreamHandle(0);
}

/// Host memory that the driver has pinned. Devices that share the host's addresses reach it under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPtr(
    /// The address.
    pub u64,
);

impl HostPtr {
    /// The address as a kernel sees it.
    pub const fn on_device(self) -> DevicePtr {
        DevicePtr(self.0)
    }
}

/// What another process needs to reach an allocation of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SharedHandle(
    /// The driver's bytes.
    pub [u8; 64],
);

/// The position of a device in the driver's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceOrdinal(
    /// Counted from zero.
    pub u32,
);

impl fmt::Display for DeviceOrdinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePtr(
    /// The address as a kernel sees it.
    pub u64,
);

impl DevicePtr {
    /// The address `bytes` further on.
    pub const fn offset(self, bytes: u64) -> DevicePtr {
        DevicePtr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
