//! What a kernel is compiled for: the kind of every argument, compile-time values and options.

use indexmap::IndexMap;
use smallvec::SmallVec;
use tessera_ir::{Extent, IndexType};
use tessera_types::DType;

/// A compile-time value of a kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstValue {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A tuple.
    Tuple(Vec<ConstValue>),
}

/// What is known about one argument when a kernel is compiled.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// An array in memory.
    Array {
        /// Element type.
        dtype: DType,
        /// Sizes; dynamic ones are passed at launch.
        shape: SmallVec<[Extent; 4]>,
        /// Strides in elements; dynamic ones are passed at launch.
        strides: SmallVec<[Extent; 4]>,
        /// What divides the base address, every dynamic stride and the size of the axis of unit stride, in bytes.
        align: u32,
        /// Type of sizes and strides.
        index: IndexType,
        /// True when no two elements share memory and no other argument overlaps.
        disjoint: bool,
    },
    /// A list of arrays of one type and rank.
    List {
        /// Element type.
        dtype: DType,
        /// Rank of every array.
        rank: u32,
        /// Type of sizes and strides.
        index: IndexType,
    },
    /// A tuple with an array in it; its items are arguments of the launch by names of their own, see [`item_name`](tessera_ir::item_name).
    Tuple(Vec<ArgType>),
    /// A scalar passed at launch.
    Scalar(DType),
    /// A value known now.
    Const(ConstValue),
}

impl ArgType {
    /// A row-major array of which only the rank and the unit stride of the last axis are known, aligned to 16 bytes.
    pub fn array(dtype: DType, rank: usize) -> ArgType {
        let mut strides: SmallVec<[Extent; 4]> = SmallVec::from_elem(Extent::Dynamic, rank);
        if let Some(last) = strides.last_mut() {
            *last = Extent::Static(1);
        }
        ArgType::Array {
            dtype,
            shape: SmallVec::from_elem(Extent::Dynamic, rank),
            strides,
            align: 16,
            index: IndexType::I32,
            disjoint: true,
        }
    }
}

/// Options of [`crate::lower`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LowerOptions {
    /// The target by which `ct.ByTarget` values are chosen, such as `sm_90`; `None` chooses their defaults.
    pub target: Option<String>,
    /// True makes `reveal_type(x)` report the type of `x` as a note.
    pub reveal: bool,
    /// Choices of the schedule by name, such as `BLOCK_M`; the others take the kernel's default configuration.
    pub config: IndexMap<String, i64>,
    /// Threads a block of a per-thread kernel.
    pub block: Option<u32>,
}
