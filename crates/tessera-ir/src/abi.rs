//! A kernel's interface as data: what a launcher passes, in the user's order.
//!
//! An array parameter becomes, in the function's arguments, a pointer, then its sizes, then its strides (in elements); a list
//! of arrays becomes a pointer to a table of such records and a length; a scalar stays one argument. Sizes and strides that
//! the ABI states are arguments all the same, so that every launcher passes the same list whatever was specialised.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tessera_types::DType;

use crate::types::Extent;

/// The integer type of an array's sizes and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexType {
    /// 32-bit, the default.
    I32,
    /// 64-bit, for arrays of 2^31 elements and more.
    I64,
}

impl IndexType {
    /// The element type of size and stride arguments.
    pub fn dtype(self) -> DType {
        match self {
            IndexType::I32 => DType::I32,
            IndexType::I64 => DType::I64,
        }
    }
}

/// What one user argument is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ParamKind {
    /// An array in memory.
    Array {
        /// Element type, unsigned ones included.
        dtype: DType,
        /// Sizes that the compiled kernel assumes.
        shape: SmallVec<[Extent; 4]>,
        /// Strides, in elements, that the compiled kernel assumes.
        strides: SmallVec<[Extent; 4]>,
        /// Type of the size and stride arguments.
        index: IndexType,
        /// What the compiled kernel assumes to divide the base address, in bytes. With 1, only the base begins a byte.
        align: u32,
        /// What it assumes to divide, in bytes, every stride that it does not know, and the size of the axis of unit stride: with 16, lines
        /// are whole vectors. With 1, nothing is assumed.
        lines: u32,
        /// True when the kernel may assume that no two elements share memory and that no other argument overlaps.
        disjoint: bool,
    },
    /// A list of arrays of one type and rank.
    List {
        /// Element type.
        dtype: DType,
        /// Rank of every array.
        rank: u32,
        /// Type of the sizes and strides in the table, and of the length.
        index: IndexType,
    },
    /// A scalar passed at launch.
    Scalar {
        /// Its type, unsigned ones included.
        dtype: DType,
    },
    /// A whole operand of a declarative kernel: an array whose axes are named, one symbol or number each.
    Operand {
        /// Element type.
        dtype: DType,
        /// Axis names or extents as text, in memory order.
        axes: Vec<String>,
    },
}

impl ParamKind {
    /// How many function arguments the parameter becomes.
    pub fn argument_count(&self) -> usize {
        match self {
            ParamKind::Array { shape, .. } => 1 + 2 * shape.len(),
            ParamKind::List { .. } => 2,
            ParamKind::Scalar { .. } => 1,
            ParamKind::Operand { .. } => 1,
        }
    }
}

/// One user argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbiParam {
    /// The parameter's name in the source.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
}

/// The name of an item of a tuple among a launch's arguments: `xs.0` is the first of `xs`.
pub fn item_name(tuple: &str, position: usize) -> String {
    format!("{tuple}.{position}")
}

/// What else a compiled kernel assumes of its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stated {
    /// An array has the sizes and strides of another one.
    Alike {
        /// The array's name.
        array: String,
        /// The other one's, a parameter before it.
        other: String,
    },
    /// A number, or the size of an array along the axis of unit stride, is at most so large.
    AtMost {
        /// The parameter's name.
        param: String,
        /// The largest number.
        most: i64,
    },
}

impl std::fmt::Display for Stated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stated::Alike { array, other } => write!(f, "{array} = {other}"),
            Stated::AtMost { param, most } => write!(f, "{param} <= {most}"),
        }
    }
}

/// A kernel's user arguments, in order. Arguments that were compile-time constants are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Abi {
    /// The parameters.
    pub params: Vec<AbiParam>,
    /// What is assumed of them beside their kinds.
    pub stated: Vec<Stated>,
}

impl Abi {
    /// The index of the first function argument of the parameter at `position`.
    pub fn first_argument(&self, position: usize) -> usize {
        self.params[..position].iter().map(|param| param.kind.argument_count()).sum()
    }

    /// The position of the parameter of a name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// The position of the parameter that a function argument belongs to.
    pub fn parameter_of(&self, argument: usize) -> Option<usize> {
        let of = |(position, param): (usize, &AbiParam)| std::iter::repeat_n(position, param.kind.argument_count());
        self.params.iter().enumerate().flat_map(of).nth(argument)
    }
}
