//! What can be asked about a device or a kernel: one row an attribute, with the CUDA driver's number.

macro_rules! attributes {
    ($(#[$enum_doc:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum { $($(#[$doc])* $variant,)* }

        impl $enum {
            /// Every attribute.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// The CUDA driver's number of the attribute.
            pub const fn number(self) -> u32 { match self { $($enum::$variant => $number,)* } }
        }
    };
}

attributes! {
    /// A number a device can be asked for.
    DeviceAttribute {
        /// Threads a block may have.
        MaxThreadsPerBlock = 1,
        /// Shared memory of a block in bytes, without opting in.
        SharedPerBlock = 8,
        /// Threads in a warp.
        WarpSize = 10,
        /// 32-bit registers of a block.
        RegistersPerBlock = 12,
        /// Highest clock in kHz.
        ClockKhz = 13,
        /// Multiprocessors.
        Multiprocessors = 16,
        /// Whether memory has error correction.
        Ecc = 32,
        /// Highest memory clock in kHz.
        MemoryClockKhz = 36,
        /// Width of the memory bus in bits.
        MemoryBusBits = 37,
        /// Bytes of second-level cache.
        L2Bytes = 38,
        /// Threads resident on a multiprocessor.
        ThreadsPerMultiprocessor = 39,
        /// Whether host and device memory share one address space.
        UnifiedAddressing = 41,
        /// Compute capability, major.
        CapabilityMajor = 75,
        /// Compute capability, minor.
        CapabilityMinor = 76,
        /// Shared memory of a multiprocessor in bytes.
        SharedPerMultiprocessor = 81,
        /// 32-bit registers of a multiprocessor.
        RegistersPerMultiprocessor = 82,
        /// Whether all blocks of a launch can be resident together on demand.
        CooperativeLaunch = 95,
        /// Shared memory a block may opt in to, in bytes.
        SharedPerBlockOptIn = 97,
        /// Blocks resident on a multiprocessor.
        BlocksPerMultiprocessor = 106,
        /// Whether stream-ordered allocation works.
        MemoryPools = 115,
        /// Whether clusters can be launched.
        ClusterLaunch = 120,
        /// Whether tensor maps can be used.
        TensorMaps = 127,
    }
}

attributes! {
    /// A number a kernel can be asked for, or given.
    FunctionAttribute {
        /// Threads a block of this kernel may have.
        MaxThreadsPerBlock = 0,
        /// Bytes of statically declared shared memory.
        SharedBytes = 1,
        /// Bytes of constant memory.
        ConstBytes = 2,
        /// Bytes of local memory a thread (stack and spills).
        LocalBytes = 3,
        /// Registers a thread.
        Registers = 4,
        /// PTX version the kernel was made from, times ten.
        PtxVersion = 5,
        /// Target of the machine code, times ten.
        BinaryVersion = 6,
        /// Bytes of dynamic shared memory a launch may ask for; can be set.
        MaxDynamicShared = 8,
        /// Whether clusters of more than eight blocks are allowed; can be set.
        NonPortableCluster = 14,
    }
}

attributes! {
    /// A number an address can be asked for.
    PointerAttribute {
        /// Kind of memory: 1 host, 2 device.
        MemoryType = 2,
        /// Whether the driver may move it between host and device.
        Managed = 8,
        /// Position of the device that it belongs to.
        DeviceOrdinal = 9,
    }
}
