//! Settings of the bulk tensor copy engine that are plain facts: compilers choose them, drivers encode them.
//!
//! ```
//! use tessera_types::Swizzle;
//! assert_eq!(Swizzle::B128.span(), Some(128));
//! ```

/// How 16-byte chunks are permuted in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Swizzle {
    /// Not at all.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    /// The widest row of a box under this swizzle, in bytes.
    pub const fn span(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }
}

/// How much the second-level cache fetches at a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum L2Promotion {
    /// What was asked for.
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
    /// 256 bytes.
    B256,
}

/// What is read outside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum OutOfBounds {
    /// Zero.
    Zero,
    /// A NaN; floating-point element types only.
    Nan,
}
