//! Types of values: tiles, views over memory, tokens, whole tensors with named axes, and what threads share (Tile IR).
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
//! | `tile<128x64xf32, #0>` | a block of elements, spread over a block's threads by layout `#0` of its function (Tile IR) |
//! | `inflight<128x64xf32, #0>` | the same, still being computed by the tensor cores (Tile IR) |
//! | `shared<128x64xbf16, swizzle=<3,4,3>>` | a buffer in shared memory (Tile IR) |
//! | `registers<8xf32>` | an array of each thread's own (Tile IR) |
//! | `ring<4, [shared<128x64xbf16>]>` | a queue of slots between threads that fill and threads that use (Tile IR) |
//! | `cursor` | a position in a ring (Tile IR) |
//!
//! In Tile IR a rank-0 tile is one value a thread; every tile with axes has a layout.
//!
//! Integers are signless: unsigned element types appear in a kernel's [`crate::Abi`] only, and operations say which
//! interpretation they use.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;
use tessera_layout::Distribution;
use tessera_types::{DType, FloatFormat, Overflow, Rounding};

use crate::bug;

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
        Elem::Num(dtype.signless())
    }

    /// Its bits.
    pub fn bits(self) -> u64 {
        match self {
            Elem::Num(dtype) => dtype.bits().into(),
            Elem::Ptr(_) => 64,
        }
    }

    /// The bytes that it takes where each element has its own.
    pub fn bytes(self) -> u64 {
        self.bits().div_ceil(8)
    }
}

/// A size or stride: a number, or known only at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
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

    /// The bits of an element outside of the array; zero where that is open.
    pub fn bits(self, dtype: DType) -> u64 {
        let of = |value: f64| match FloatFormat::of(dtype) {
            Some(format) => format.encode(value, Rounding::NearestEven, Overflow::Ieee),
            None => bug!("padding with {value} in an array of `{dtype}`"),
        };
        match self {
            Padding::Undetermined | Padding::Zero => 0,
            Padding::NegZero => of(-0.0),
            Padding::Nan => of(f64::NAN),
            Padding::PosInf => of(f64::INFINITY),
            Padding::NegInf => of(f64::NEG_INFINITY),
        }
    }

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

/// A tile spread over threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DistributedType {
    /// Shape and element type of the whole.
    pub tile: TileType,
    /// Which thread holds which elements in which registers.
    pub layout: Distribution,
}

/// How the address bits of a buffer in shared memory are mixed: `bits` bits at `base + shift` of the byte offset are
/// combined by exclusive or into the bits at `base`. `<3,4,3>` is the hardware's 128-byte swizzle, `<2,4,3>` the 64-byte and
/// `<1,4,3>` the 32-byte one; `<0,_,_>` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Swizzle {
    /// How many bits are mixed.
    pub bits: u32,
    /// The least bit that changes.
    pub base: u32,
    /// Distance from the bits that change up to the bits that they are mixed with.
    pub shift: u32,
}

impl Swizzle {
    /// No mixing.
    pub const NONE: Swizzle = Swizzle { bits: 0, base: 0, shift: 0 };
    /// The hardware's 32-byte swizzle.
    pub const B32: Swizzle = Swizzle { bits: 1, base: 4, shift: 3 };
    /// The hardware's 64-byte swizzle.
    pub const B64: Swizzle = Swizzle { bits: 2, base: 4, shift: 3 };
    /// The hardware's 128-byte swizzle.
    pub const B128: Swizzle = Swizzle { bits: 3, base: 4, shift: 3 };

    /// Bytes of the pattern: what lies so far apart is mixed alike. 1 where nothing is mixed.
    pub fn span(self) -> u64 {
        if self.bits == 0 { 1 } else { 1 << (self.base + self.shift + self.bits) }
    }

    /// The byte that an unmixed byte offset is moved to.
    pub fn apply(self, offset: u64) -> u64 {
        let mask = ((1u64 << self.bits) - 1) << self.base;
        offset ^ ((offset >> self.shift) & mask)
    }
}

/// A buffer in shared memory, or a part of one. A part (a slice, a subview) lies in memory as the buffer does that it was
/// taken from: `pad`, `swizzle` and distances between lines are that buffer's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedType {
    /// Extents.
    pub shape: Shape,
    /// Element type.
    pub elem: DType,
    /// How byte offsets are mixed.
    pub swizzle: Swizzle,
    /// The axes from the slowest to the fastest in memory.
    pub order: SmallVec<[u32; 4]>,
    /// Unused elements after each line of the fastest axis.
    pub pad: u32,
}

impl SharedType {
    /// A buffer in row-major order, neither swizzled nor padded.
    pub fn new(shape: impl Into<Shape>, elem: DType) -> SharedType {
        let shape = shape.into();
        let order = (0..shape.len() as u32).collect();
        SharedType { shape, elem, swizzle: Swizzle::NONE, order, pad: 0 }
    }

    /// Shape and element type.
    pub fn tile(&self) -> TileType {
        TileType { shape: self.shape.clone(), elem: Elem::Num(self.elem) }
    }

    /// Distance between neighbours along each axis in a buffer allocated with this type, in elements, before swizzling.
    pub fn strides(&self) -> SmallVec<[u64; 4]> {
        let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(1, self.shape.len());
        let mut stride = 1;
        for (position, &axis) in self.order.iter().rev().enumerate() {
            strides[axis as usize] = stride;
            stride *= u64::from(self.shape[axis as usize]);
            if position == 0 {
                stride += u64::from(self.pad);
            }
        }
        strides
    }

    /// Bytes of a buffer allocated with this type, padding included.
    pub fn bytes(&self) -> u64 {
        let slowest = self.order.first().map_or(0, |&axis| axis as usize);
        let elements = self.shape.get(slowest).map_or(1, |&extent| match self.shape.len() {
            1 => u64::from(extent) + u64::from(self.pad),
            _ => u64::from(extent) * self.strides()[slowest],
        });
        (elements * u64::from(self.elem.bits())).div_ceil(8)
    }

    /// The buffer without its first axis: one stage of a ring's buffers, one row of an array.
    pub fn slice(&self) -> Option<SharedType> {
        let (_, shape) = self.shape.split_first()?;
        let order = self.order.iter().filter(|&&axis| axis != 0).map(|&axis| axis - 1).collect();
        Some(SharedType { shape: shape.into(), order, ..self.clone() })
    }

    /// The buffer under reordered axes: axis `i` is this one's `permutation[i]`; `None` where that does not name each axis once.
    pub fn permuted(&self, permutation: &[u32]) -> Option<SharedType> {
        let mut place: SmallVec<[Option<u32>; 4]> = SmallVec::from_elem(None, self.shape.len());
        for (axis, &from) in permutation.iter().enumerate() {
            *place.get_mut(from as usize)? = Some(axis as u32);
        }
        let place: SmallVec<[u32; 4]> = place.into_iter().collect::<Option<_>>()?;
        (permutation.len() == place.len()).then(|| SharedType {
            shape: permutation.iter().map(|&axis| self.shape[axis as usize]).collect(),
            order: self.order.iter().map(|&axis| place[axis as usize]).collect(),
            ..self.clone()
        })
    }

    /// The buffer with neighbouring axes as one, so that it has these extents. The axes of each lie one behind the other in memory, and the fastest
    /// axis, which swizzles and padding follow, stays alone.
    ///
    /// ```text
    /// shared<2x8x8x64xbf16, swizzle=<3,4,3>>  as 128 x 64:  shared<128x64xbf16, swizzle=<3,4,3>>
    /// ```
    pub fn collapsed(&self, shape: &[u32]) -> Option<SharedType> {
        let groups = collapsed_axes(&self.shape, shape)?;
        let place = |axis: usize| self.order.iter().position(|&other| other as usize == axis);
        let fastest = *self.order.last()? as usize;
        let mut first: SmallVec<[(usize, u32); 4]> = SmallVec::new();
        for (number, group) in groups.iter().enumerate() {
            let start = place(group.start)?;
            let dense = group.clone().enumerate().all(|(at, axis)| place(axis) == Some(start + at));
            if !dense || group.len() > 1 && group.contains(&fastest) {
                return None;
            }
            first.push((start, number as u32));
        }
        first.sort_unstable();
        let order = first.into_iter().map(|(_, number)| number).collect();
        Some(SharedType { shape: shape.into(), order, ..self.clone() })
    }
}

/// Which neighbouring axes of `from` make each axis of `to`; `None` where it is not made of whole ones.
pub fn collapsed_axes(from: &[u32], to: &[u32]) -> Option<Vec<Range<usize>>> {
    let (mut groups, mut next) = (Vec::new(), 0);
    for &extent in to {
        let start = next;
        let mut product = 1u64;
        while next == start || product < u64::from(extent) {
            product *= u64::from(*from.get(next)?);
            next += 1;
        }
        if product != u64::from(extent) {
            return None;
        }
        groups.push(start..next);
    }
    (next == from.len()).then_some(groups)
}

/// A queue of slots between the threads that fill them and the threads that use them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingType {
    /// Number of slots.
    pub stages: u32,
    /// What one slot holds.
    pub slots: Vec<SharedType>,
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
    /// A block of elements spread over threads (Tile IR).
    Distributed(Box<DistributedType>),
    /// The same, before its computation has been waited for (Tile IR).
    InFlight(Box<DistributedType>),
    /// A buffer in shared memory (Tile IR).
    Shared(Box<SharedType>),
    /// An array of each thread's own (Tile IR).
    Registers(Box<TileType>),
    /// A queue of slots in shared memory (Tile IR).
    Ring(Box<RingType>),
    /// A position in a ring: slot and phase (Tile IR).
    Cursor,
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

    /// A tile spread over threads; a scalar has no layout and stays one value a thread.
    pub fn distributed(tile: TileType, layout: &Distribution) -> Type {
        if tile.shape.is_empty() {
            return Type::Tile(tile);
        }
        Type::Distributed(Box::new(DistributedType { tile, layout: layout.clone() }))
    }

    /// Shape and element type, if it is a tile, spread over threads or not.
    pub fn as_tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(tile) => Some(tile),
            Type::Distributed(distributed) => Some(&distributed.tile),
            _ => None,
        }
    }

    /// Shape and element type of what has to be a tile.
    #[track_caller]
    pub fn the_tile(&self) -> &TileType {
        match self.as_tile() {
            Some(tile) => tile,
            None => bug!("`{self}` where a tile has to be"),
        }
    }

    /// Axes and element type, if it is a whole operand's value.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Axes and element type of what has to be a whole operand's value.
    #[track_caller]
    pub fn the_tensor(&self) -> &TensorType {
        match self.as_tensor() {
            Some(tensor) => tensor,
            None => bug!("`{self}` where a tensor has to be"),
        }
    }

    /// The layout of a tile that is spread over threads.
    pub fn layout(&self) -> Option<&Distribution> {
        match self {
            Type::Distributed(distributed) | Type::InFlight(distributed) => Some(&distributed.layout),
            _ => None,
        }
    }

    /// The buffer in shared memory, if it is one.
    pub fn as_shared(&self) -> Option<&SharedType> {
        match self {
            Type::Shared(shared) => Some(shared),
            _ => None,
        }
    }

    /// What has to be a buffer in shared memory.
    #[track_caller]
    pub fn the_shared(&self) -> &SharedType {
        match self.as_shared() {
            Some(shared) => shared,
            None => bug!("`{self}` where a buffer has to be"),
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
            Axis::Symbol(name) if !name.bytes().all(|b| b != b'x' && (b.is_ascii_alphanumeric() || b == b'_')) => {
                write!(f, "@\"{name}\"")
            }
            Axis::Symbol(name) => write!(f, "@{name}"),
            Axis::Fixed(extent) => write!(f, "{extent}"),
        }
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile<{}>", Body(self))
    }
}

/// What stands between the brackets of a tile's type: `128x64xf32`.
pub(crate) struct Body<'t>(pub(crate) &'t TileType);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for extent in &self.0.shape {
            write!(f, "{extent}x")?;
        }
        self.0.elem.fmt(f)
    }
}

impl fmt::Display for SharedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared<{}", Body(&self.tile()))?;
        if self.swizzle != Swizzle::NONE {
            write!(f, ", swizzle=<{},{},{}>", self.swizzle.bits, self.swizzle.base, self.swizzle.shift)?;
        }
        if self.order.iter().enumerate().any(|(i, &axis)| i != axis as usize) {
            f.write_str(", order=[")?;
            list(f, &self.order, ",")?;
            f.write_str("]")?;
        }
        if self.pad != 0 {
            write!(f, ", pad={}", self.pad)?;
        }
        f.write_str(">")
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
            Type::Distributed(ty) => write!(f, "tile<{}, {}>", Body(&ty.tile), ty.layout),
            Type::InFlight(ty) => write!(f, "inflight<{}, {}>", Body(&ty.tile), ty.layout),
            Type::Shared(shared) => shared.fmt(f),
            Type::Registers(tile) => write!(f, "registers<{}>", Body(tile)),
            Type::Ring(ring) => {
                write!(f, "ring<{}, [", ring.stages)?;
                list(f, &ring.slots, ", ")?;
                f.write_str("]>")
            }
            Type::Cursor => f.write_str("cursor"),
        }
    }
}
