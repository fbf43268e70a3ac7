//! Types of values: tiles, views over memory, tokens, and whole tensors with named axes.
//!
//! | text | is |
//! |---|---|
//! | `tile<128x64xf32>`, `tile<i32>` | an immutable block of elements; rank 0 is a scalar |
//! | `tile<ptr<f16>>` | pointers to `f16` |
//! | `tensor_view<?x64xf32, strides=[?,1]>` | a strided array in global memory; `?` is known at run time |
//! | `partition_view<tile=(32x64), tensor_view<...>>` | that array cut into tiles; an index counts tiles |
//! | `token` | an ordering edge between memory operations |
//! | `tensor<MxKxbf16>` | a whole operand's value (Graph IR) |
//! | `operand<MxKxbf16>` | a whole operand in memory (Graph IR) |
//!
//! Integers are signless: unsigned element types appear in a kernel's [`crate::Abi`] only, and operations say which
//! interpretation they use.

use std::fmt;

use smallvec::SmallVec;
use tessera_types::DType;

/// Static extents of a tile, outermost first.
pub type Shape = SmallVec<[u32; 4]>;

/// What a tile holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Elem {
    /// Numbers; integers are signless and named by their signed type, truth values are `i1`.
    Num(DType),
    /// Pointers to elements of a type.
    Ptr(DType),
}

impl Elem {
    /// The number type, for tiles of numbers.
    pub fn num(self) -> Option<DType> {
        match self {
            Elem::Num(dtype) => Some(dtype),
            Elem::Ptr(_) => None,
        }
    }

    /// The signless form that the IR uses for an element type of the language.
    pub fn signless(dtype: DType) -> Elem {
        Elem::Num(match dtype {
            DType::U64 => DType::I64,
            DType::U32 => DType::I32,
            DType::U16 => DType::I16,
            DType::U8 => DType::I8,
            other => other,
        })
    }
}

/// A size or stride: a number, or known only at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extent {
    /// Known when the kernel is compiled.
    Static(i64),
    /// Known at launch.
    Dynamic,
}

/// Shape and element type of a tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// Extents; empty for a scalar.
    pub shape: Shape,
    /// What it holds.
    pub elem: Elem,
}

impl TileType {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().map(|&extent| extent as usize).product()
    }

    /// True for a tile with an extent of zero, which the verifier refuses.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same shape with other elements.
    pub fn with_elem(&self, elem: Elem) -> TileType {
        TileType { shape: self.shape.clone(), elem }
    }
}

/// A strided array in global memory. Strides count elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorViewType {
    /// Element type.
    pub elem: DType,
    /// Extents.
    pub shape: SmallVec<[Extent; 4]>,
    /// Distance between neighbours along each axis, in elements.
    pub strides: SmallVec<[Extent; 4]>,
}

/// What a load outside the array yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Undetermined: reported in checked execution when it reaches a store or a branch.
    Undetermined,
    /// Zero.
    Zero,
    /// Negative zero.
    NegZero,
    /// Not a number.
    Nan,
    /// Positive infinity.
    PosInf,
    /// Negative infinity.
    NegInf,
}

impl Padding {
    /// Every padding value.
    pub const ALL: &'static [Padding] =
        &[Padding::Undetermined, Padding::Zero, Padding::NegZero, Padding::Nan, Padding::PosInf, Padding::NegInf];

    /// Its word in the text form.
    pub const fn word(self) -> &'static str {
        match self {
            Padding::Undetermined => "undetermined",
            Padding::Zero => "zero",
            Padding::NegZero => "neg_zero",
            Padding::Nan => "nan",
            Padding::PosInf => "pos_inf",
            Padding::NegInf => "neg_inf",
        }
    }
}

/// How a view of tiles walks its array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewKind {
    /// Tile `i` starts at `i * tile extent`: the array is cut into tiles.
    Partition,
    /// Tile `i` starts at `i * step`, one step an axis; tiles may overlap.
    Strided(SmallVec<[u32; 4]>),
    /// Indices along one array axis come from a tile; the others count elements.
    GatherScatter {
        /// The array axis whose indices are given by a tile.
        axis: u32,
    },
}

/// A view that yields tiles of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileViewType {
    /// How indices become element offsets.
    pub kind: ViewKind,
    /// Shape of the tiles that it yields.
    pub tile: Shape,
    /// `dim_map[i]` is the array axis that tile axis `i` runs along.
    pub dim_map: SmallVec<[u32; 4]>,
    /// What lies outside the array.
    pub padding: Padding,
    /// The array.
    pub tensor: TensorViewType,
}

/// A named axis of a whole operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// A symbol bound at launch.
    Symbol(String),
    /// An extent known when compiled.
    Fixed(u32),
}

/// A whole operand: named axes and an element type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Axes, outermost first.
    pub axes: SmallVec<[Axis; 4]>,
    /// Element type.
    pub elem: DType,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A block of elements.
    Tile(TileType),
    /// An array in memory.
    TensorView(Box<TensorViewType>),
    /// An array in memory, seen as tiles.
    TileView(Box<TileViewType>),
    /// An ordering edge.
    Token,
    /// A whole operand's value (Graph IR).
    Tensor(Box<TensorType>),
    /// A whole operand in memory (Graph IR).
    Operand(Box<TensorType>),
}

impl Type {
    /// A scalar.
    pub fn scalar(dtype: DType) -> Type {
        Type::Tile(TileType { shape: Shape::new(), elem: Elem::Num(dtype) })
    }

    /// A tile of numbers.
    pub fn tile(shape: impl Into<Shape>, dtype: DType) -> Type {
        Type::Tile(TileType { shape: shape.into(), elem: Elem::Num(dtype) })
    }

    /// A tile of pointers.
    pub fn pointers(shape: impl Into<Shape>, to: DType) -> Type {
        Type::Tile(TileType { shape: shape.into(), elem: Elem::Ptr(to) })
    }

    /// The tile type, if it is one.
    pub fn as_tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(tile) => Some(tile),
            _ => None,
        }
    }

    /// The element type of a tile of numbers.
    pub fn num(&self) -> Option<DType> {
        self.as_tile().and_then(|tile| tile.elem.num())
    }

    /// True for rank-0 tiles.
    pub fn is_scalar(&self) -> bool {
        self.as_tile().is_some_and(|tile| tile.shape.is_empty())
    }
}

/// The name the IR's text form gives an element type: truth values are `i1`.
pub(crate) fn elem_name(dtype: DType) -> &'static str {
    match dtype {
        DType::B1 => "i1",
        other => other.name(),
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Num(dtype) => f.write_str(elem_name(*dtype)),
            Elem::Ptr(dtype) => write!(f, "ptr<{}>", elem_name(*dtype)),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Static(value) => write!(f, "{value}"),
            Extent::Dynamic => f.write_str("?"),
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Symbol(name) if name.contains('x') => write!(f, "@\"{name}\""),
            Axis::Symbol(name) => write!(f, "@{name}"),
            Axis::Fixed(extent) => write!(f, "{extent}"),
        }
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tile<")?;
        for extent in &self.shape {
            write!(f, "{extent}x")?;
        }
        write!(f, "{}>", self.elem)
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

impl fmt::Display for TensorViewType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor_view<")?;
        for extent in &self.shape {
            write!(f, "{extent}x")?;
        }
        write!(f, "{}", elem_name(self.elem))?;
        if !self.shape.is_empty() {
            f.write_str(", strides=[")?;
            list(f, &self.strides, ",")?;
            f.write_str("]")?;
        }
        f.write_str(">")
    }
}

impl fmt::Display for TileViewType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ViewKind::Partition => "partition_view",
            ViewKind::Strided(_) => "strided_view",
            ViewKind::GatherScatter { .. } => "gather_scatter_view",
        })?;
        f.write_str("<tile=(")?;
        list(f, &self.tile, "x")?;
        f.write_str(")")?;
        match &self.kind {
            ViewKind::Partition => {}
            ViewKind::Strided(steps) => {
                f.write_str(", steps=[")?;
                list(f, steps, ",")?;
                f.write_str("]")?;
            }
            ViewKind::GatherScatter { axis } => write!(f, ", axis={axis}")?,
        }
        if self.padding != Padding::Undetermined {
            write!(f, ", padding={}", self.padding.word())?;
        }
        write!(f, ", {}", self.tensor)?;
        if self.dim_map.iter().enumerate().any(|(i, &axis)| i != axis as usize) {
            f.write_str(", dim_map=[")?;
            list(f, &self.dim_map, ",")?;
            f.write_str("]")?;
        }
        f.write_str(">")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        for axis in &self.axes {
            write!(f, "{axis}x")?;
        }
        write!(f, "{}>", elem_name(self.elem))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tile(tile) => tile.fmt(f),
            Type::TensorView(view) => view.fmt(f),
            Type::TileView(view) => view.fmt(f),
            Type::Token => f.write_str("token"),
            Type::Tensor(tensor) => write!(f, "tensor{tensor}"),
            Type::Operand(tensor) => write!(f, "operand{tensor}"),
        }
    }
}
