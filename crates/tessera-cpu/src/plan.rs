//! The prepared form of a function: instructions over numbered registers and buffers.
//!
//! Scalars live in registers, 64 bits each with the value in the low ones. Tiles live in buffers of one arena; a buffer's place
//! was chosen from its lifetime, so that dead ones are reused. Elementwise chains are [`Group`]s: graphs of lane operations that
//! run strip by strip from what they fetch (buffers, borrowed memory) to their sinks (buffers, arrays, reductions).
//!
//! ```text
//! %y = addf(load_view X, mulf(broadcast %s, load_view Y)); store_view %y, Z
//!   => Group { 0: View X, 1: Uniform %s, 2: View Y, 3: Float(Mul) 1 2, 4: Float(Add) 0 3 } -> Sink::View Z
//! ```

use smallvec::SmallVec;
use tessera_ir::attrs::AtomicMode;
use tessera_ir::{Op, Span};
use tessera_types::DType;
use tessera_types::printf::Conversion;

use crate::kernels::tape::Code;
use crate::lanes::LaneOp;

/// A scalar's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reg(pub(crate) u32);

/// Bytes where a tile's elements stand, in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A buffer of the arena.
    Buffer(u32),
    /// A compile-time tile.
    Pool(u32),
}

/// A buffer: its size and, once all lifetimes are known, its place in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
    pub(crate) offset: usize,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// One axis of a tile in an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Elements of the tile along it.
    pub(crate) extent: usize,
    /// The array's size along it.
    pub(crate) size: Reg,
    /// Distance of neighbours, in elements.
    pub(crate) stride: Reg,
    /// Index of the tile, sign-extended.
    pub(crate) index: Reg,
    /// Elements that one index counts.
    pub(crate) step: i64,
    /// Indices of this axis come from a tile: its place and the bytes of an index.
    pub(crate) gather: Option<(Place, u8)>,
}

/// A tile of an array in memory.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) base: Reg,
    pub(crate) axes: SmallVec<[Axis; 4]>,
    pub(crate) dtype: DType,
    /// Bytes of an element in a strip.
    pub(crate) bytes: u8,
    /// Bits of the element outside the array; `None` where it is undetermined.
    pub(crate) padding: Option<u64>,
    /// The program promises that no element lies outside; checked launches look.
    pub(crate) inbounds: bool,
    /// In an order that other blocks see.
    pub(crate) strong: bool,
    /// The argument that the base pointer comes from.
    pub(crate) origin: Option<u16>,
    /// The operation that this performs.
    pub(crate) op: Op,
    pub(crate) span: Span,
}

/// What a strip is filled from.
#[derive(Clone, Debug)]
pub(crate) enum Fetch {
    /// A whole tile in its own order.
    Place(Place),
    /// A tile walked with strides (in elements) over other extents, from a first element.
    Strided { place: Place, extents: SmallVec<[usize; 4]>, strides: SmallVec<[isize; 4]>, first: Option<Reg> },
    /// 0, 1, 2, ... walked with strides.
    Counting { extents: SmallVec<[usize; 4]>, strides: SmallVec<[isize; 4]> },
    /// A scalar in every element.
    Uniform(Reg),
    /// Memory.
    View(Box<Access>),
    /// An operand of a region that runs over strips.
    Param(u8),
}

impl Fetch {
    /// True where every strip is the same: it is filled once.
    pub(crate) fn is_uniform(&self) -> bool {
        match self {
            Fetch::Uniform(_) => true,
            Fetch::Strided { strides, .. } => strides.iter().all(|&stride| stride == 0),
            Fetch::Place(_) | Fetch::Counting { .. } | Fetch::View(_) | Fetch::Param(_) => false,
        }
    }
}

/// What a node of a group does to make its strip.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Fetch(Fetch),
    Op(LaneOp, SmallVec<[u16; 3]>),
    /// Loads through addresses; mask and padding are optional.
    Load {
        addresses: u16,
        mask: Option<u16>,
        padding: Option<u16>,
        origin: Option<u16>,
        /// As in [`Access`].
        strong: bool,
        op: Op,
    },
}

/// A node of a group.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Bytes of an element.
    pub(crate) bytes: u8,
    /// Its strip register; meaningless for what is always borrowed.
    pub(crate) slot: u16,
    /// True where the value has no reader but a single sink, which it may then be written to directly.
    pub(crate) direct: bool,
    /// Memory that an earlier group of the block fetched: it is near, and what the next block will fetch is asked for meanwhile.
    pub(crate) again: bool,
    pub(crate) span: Span,
}

/// An associative combination with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Maximum, NaN ignored unless there is nothing else.
    Max,
    /// Minimum, likewise.
    Min,
    /// Maximum, NaN kept.
    MaxNan,
    /// Minimum, NaN kept.
    MinNan,
}

/// Where a strip goes.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    Place {
        node: u16,
        place: Place,
    },
    View {
        node: u16,
        access: Box<Access>,
    },
    /// Stores through addresses.
    Scatter {
        addresses: u16,
        value: u16,
        mask: Option<u16>,
        origin: Option<u16>,
        /// As in [`Access`].
        strong: bool,
        op: Op,
        span: Span,
    },
    /// Combines along the middle of three axes.
    Reduce {
        node: u16,
        combine: Combine,
        lane: ReduceLane,
        extents: [usize; 3],
        place: Place,
    },
    /// The result of a region that runs over strips.
    Param {
        node: u16,
        position: u8,
    },
    /// Every element must be true.
    Assert {
        node: u16,
        message: Box<str>,
        span: Span,
    },
    /// Checked execution only: every element must keep the promise.
    Assume {
        node: u16,
        predicate: tessera_ir::attrs::Assumption,
        bytes: u8,
        span: Span,
    },
    /// Checked execution only: shift counts below the width.
    ShiftCount {
        node: u16,
        bits: u8,
        bytes: u8,
        span: Span,
    },
}

/// Lanes that a reduction combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReduceLane {
    F32,
    F64,
    I8(bool),
    I16(bool),
    I32(bool),
    I64(bool),
}

impl ReduceLane {
    pub(crate) fn bytes(self) -> usize {
        match self {
            ReduceLane::I8(_) => 1,
            ReduceLane::I16(_) => 2,
            ReduceLane::F32 | ReduceLane::I32(_) => 4,
            ReduceLane::F64 | ReduceLane::I64(_) => 8,
        }
    }
}

/// A fused chain.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Elements.
    pub(crate) len: usize,
    /// Elements of a strip.
    pub(crate) strip: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) sinks: Vec<Sink>,
    /// Strip registers, and bytes of an element in each: those of the widest.
    pub(crate) slots: u16,
    pub(crate) slot_bytes: u16,
    /// The same as one pass over registers, where the group has nothing else in it.
    pub(crate) tape: Option<Tape>,
}

impl Group {
    /// Bytes from a strip register to the next one: whole cache lines, and room for one more, which vectors may touch.
    pub(crate) fn slot_size(&self) -> usize {
        (self.strip * self.slot_bytes as usize + 64).next_multiple_of(64)
    }

    /// Bytes of all strip registers.
    pub(crate) fn slots_size(&self) -> usize {
        self.slots as usize * self.slot_size()
    }
}

/// A group as a tape: see [`crate::kernels::tape`].
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    pub(crate) steps: Vec<TapeStep>,
    /// Results kept for later steps, numbered from 0.
    pub(crate) kept: u16,
    /// Lengths of rows at whose ends operands have to be found again.
    pub(crate) rows: SmallVec<[usize; 2]>,
}

/// A step of a tape and its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapeStep {
    pub(crate) code: Code,
    pub(crate) a: Source,
    pub(crate) b: Source,
}

/// What a step of a tape reads or writes beside the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    None,
    /// What a node fetches.
    Fetched(u16),
    /// What an earlier step kept.
    Kept(u16),
    /// Where a sink of the group puts it.
    Sink(u16),
}

/// A copy between a tile and a box inside another.
#[derive(Clone, Debug)]
pub(crate) struct BoxCopy {
    pub(crate) src: Place,
    pub(crate) dst: Place,
    pub(crate) extents: SmallVec<[usize; 4]>,
    pub(crate) src_strides: SmallVec<[isize; 4]>,
    pub(crate) dst_strides: SmallVec<[isize; 4]>,
    /// The first element written: a constant, and a register added to it.
    pub(crate) dst_first: (usize, Option<Reg>),
    pub(crate) bytes: u8,
}

/// A matrix product of tiles.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) lhs: Place,
    pub(crate) rhs: Place,
    pub(crate) acc: Place,
    pub(crate) dst: Place,
    pub(crate) lhs_type: DType,
    pub(crate) rhs_type: DType,
    pub(crate) acc_type: DType,
    /// Integer operands: whether each is signed.
    pub(crate) signed: [bool; 2],
    /// Scales of both operands, with the elements each covers along K.
    pub(crate) scales: Option<[(Place, DType, usize); 2]>,
}

/// The same with a left factor that is stored by half: the product's contraction counts what is stored.
#[derive(Clone, Debug)]
pub(crate) struct SparseMma {
    pub(crate) mma: Mma,
    /// Words that say where the elements of a row stand.
    pub(crate) places: Place,
    pub(crate) span: Span,
}

/// A loop `acc = mma(load, load, acc)` over the tiles of the K axis, run as one product.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// The loop.
    pub(crate) op: Op,
    pub(crate) lhs: Access,
    pub(crate) rhs: Access,
    /// Which axes of the left access are M and K.
    pub(crate) lhs_axes: [usize; 2],
    /// Which axes of the right access are K and N.
    pub(crate) rhs_axes: [usize; 2],
    /// What each operand is stored as, and what it is rounded to before it is multiplied.
    pub(crate) types: [(DType, DType); 2],
    pub(crate) acc_type: DType,
    /// The accumulator's start, and where the result goes.
    pub(crate) acc: Place,
    /// First and one past the last round, sign-extended.
    pub(crate) lower: Reg,
    pub(crate) upper: Reg,
    pub(crate) m: usize,
    pub(crate) n: usize,
    /// Elements of K in one round.
    pub(crate) k: usize,
    /// The start is zero, and `acc` was not filled with it.
    pub(crate) zero: bool,
}

/// A region that combines elements, compiled to run over strips.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) group: Group,
    /// Bytes of the elements of each operand.
    pub(crate) bytes: SmallVec<[u8; 2]>,
}

/// A piece of a printed line.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Text(String),
    /// A conversion, and the value printed by it.
    Value {
        conversion: Conversion,
        place: Printed,
        dtype: DType,
    },
}

/// What is printed.
#[derive(Clone, Debug)]
pub(crate) enum Printed {
    Scalar(Reg),
    Tile(Place, SmallVec<[u32; 4]>),
}

/// A step of the plan.
#[derive(Clone, Debug)]
pub(crate) enum Inst {
    BlockId {
        dst: Reg,
        axis: u8,
    },
    NumBlocks {
        dst: Reg,
        axis: u8,
    },
    /// A lane operation on scalars; `checked` counts as in `Sink::ShiftCount`.
    Scalar {
        op: LaneOp,
        dst: Reg,
        src: [Reg; 3],
        span: Span,
    },
    /// Sign-extends the low bytes of a register into another.
    SignExtend {
        dst: Reg,
        src: Reg,
        bytes: u8,
    },
    Move {
        dst: Reg,
        src: Reg,
    },
    /// `ceil(size / step)`.
    CeilDiv {
        dst: Reg,
        size: Reg,
        step: i64,
        bytes: u8,
    },
    /// The first element of a place.
    Read {
        dst: Reg,
        place: Place,
        bytes: u8,
    },
    Group(Box<Group>),
    Copy {
        dst: Place,
        src: Place,
        bytes: usize,
    },
    Box(Box<BoxCopy>),
    /// Packs elements into bytes or back.
    Pack {
        dst: Place,
        src: Place,
        elements: usize,
        dtype: DType,
        unpack: bool,
    },
    Mma(Box<Mma>),
    SparseMma(Box<SparseMma>),
    Product(Box<Product>),
    /// A reduction by a region, as a tree over neighbours.
    ReduceTree {
        region: Box<Region>,
        extents: [usize; 3],
        src: SmallVec<[Place; 2]>,
        dst: SmallVec<[Place; 2]>,
    },
    Scan {
        region: Box<Region>,
        extents: [usize; 3],
        reverse: bool,
        src: SmallVec<[Place; 2]>,
        dst: SmallVec<[Place; 2]>,
    },
    /// Atomic update through addresses; `old` receives what was there.
    Atomic {
        addresses: Place,
        value: Place,
        compare: Option<Place>,
        mask: Option<Place>,
        old: Option<Place>,
        mode: AtomicMode,
        dtype: DType,
        len: usize,
        origin: Option<u16>,
        /// Other blocks' updates of the same memory are in an order with it.
        strong: bool,
        ordered: bool,
        op: Op,
        span: Span,
    },
    /// Atomic update of a tile of an array.
    AtomicView {
        access: Box<Access>,
        value: Place,
        mode: AtomicMode,
        ordered: bool,
    },
    /// What this block did before is done before what it does now, as other blocks see it.
    Fence,
    /// Memory of the block.
    Alloca {
        dst: Reg,
        place: Place,
        bytes: usize,
    },
    Print {
        pieces: Vec<Piece>,
    },
    CheckScalar(ScalarCheck, Span),
    For {
        counter: Reg,
        lower: Reg,
        upper: Reg,
        step: Reg,
        bytes: u8,
        unsigned: bool,
        body: Vec<Inst>,
        op: Op,
        span: Span,
    },
    Loop {
        body: Vec<Inst>,
        op: Op,
        span: Span,
    },
    If {
        op: Op,
        condition: Reg,
        then: Vec<Inst>,
        other: Vec<Inst>,
        span: Span,
    },
    Continue,
    Break,
    Return,
}

/// A test of a scalar.
#[derive(Clone, Debug)]
pub(crate) enum ScalarCheck {
    /// It must be true.
    Assert(Reg, Box<str>),
    /// Checked execution only.
    Assume(Reg, tessera_ir::attrs::Assumption, u8),
    /// Checked execution only: a shift count below this many bits.
    ShiftCount(Reg, u8, u8),
    /// Checked execution only: the number, sign-extended, of a part of a tile, of which an axis has so many.
    Part { index: Reg, axis: usize, parts: usize },
}
