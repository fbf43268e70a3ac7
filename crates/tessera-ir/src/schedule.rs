//! The Schedule dialect: block programs over immutable tiles, with the operations and meaning of the public CUDA Tile IR
//! 13.3 dialect under the same names (<https://docs.nvidia.com/cuda/tile-ir/>), and `insert`, `fpowi` and the grid dependency
//! operations of 13.4, which the kernel language needs.
//!
//! A kernel runs once for every block of its grid. Scalars are rank-0 tiles. Memory is touched through pointer tiles or
//! views; tokens order the operations that may touch the same bytes. `for`, `loop` and `if` yield values.
//!
//! ```text
//! %i = get_tile_block_id {axis=x} : tile<i32>
//! %view = make_partition_view %x : partition_view<tile=(64), tensor_view<?xf32, strides=[1]>>
//! %tile, %read = load_view_tko %view, [%i] : tile<64xf32>, token
//! ```

use crate::attrs::{
    Assumption, AtomicMode, CacheHint, GridAxis, MemoryOrder, MemoryScope, NanOrder, Overflow, Predicate, ReduceOrder, Rounding,
    Signedness,
};
use crate::constant::Const;
use crate::dialect::Effects;
use crate::types::Shape;

dialect! {
    /// An operation of the Schedule dialect.
    ScheduleOp;

    // Constants and shape

    /// A compile-time tile.
    Constant = "constant" () { value: Const } -> One : Special, Pure;
    /// Numbers 0, 1, 2, ... along the only axis.
    Iota = "iota" () {} -> One : Special, Pure;
    /// Repeats axes of extent 1 up to the result's extents; the rank stays.
    Broadcast = "broadcast" (source) {} -> One : Special, Pure, [Exchanges];
    /// The same elements in row-major order under another shape.
    Reshape = "reshape" (source) {} -> One : Special, Pure, [Exchanges];
    /// Reorders axes: result axis `i` is source axis `permutation[i]`.
    Permute = "permute" (source) { permutation: Shape } -> One : Special, Pure, [Exchanges];
    /// Joins two tiles along an axis.
    Cat = "cat" (lhs, rhs) { dim: u32 } -> One : Special, Pure, [Exchanges];
    /// The subtile at an index that counts subtiles; the result's extents divide the source's.
    Extract = "extract" (source, indices: many) {} -> One : Special, Pure, [Exchanges];
    /// The destination with the subtile at an index replaced.
    Insert = "insert" (source, destination, indices: many) {} -> One : Special, Pure, [Exchanges];
    /// Elements of `if_true` where the condition holds, of `if_false` elsewhere.
    Select = "select" (condition, if_true, if_false) {} -> One : Special, Pure, [Elementwise];
    /// A promise about a value; the value itself.
    Assume = "assume" (value) { predicate: Assumption } -> One : Special, Pure;

    // Float arithmetic

    /// Absolute value.
    AbsF = "absf" (source) {} -> One : Elementwise(Float), Pure;
    /// Negation.
    NegF = "negf" (source) {} -> One : Elementwise(Float), Pure;
    /// Sum.
    AddF = "addf" (lhs, rhs) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure, [Commutative];
    /// Difference.
    SubF = "subf" (lhs, rhs) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// Product.
    MulF = "mulf" (lhs, rhs) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure, [Commutative];
    /// Quotient.
    DivF = "divf" (lhs, rhs) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// Remainder with the dividend's sign (C `fmod`).
    RemF = "remf" (lhs, rhs) {} -> One : Elementwise(Float), Pure;
    /// `lhs * rhs + acc`, rounded once.
    Fma = "fma" (lhs, rhs, acc) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// Larger of two; a NaN operand is ignored unless `propagate_nan`.
    MaxF = "maxf" (lhs, rhs) { propagate_nan: bool, flush_to_zero: bool } -> One : Elementwise(Float), Pure, [Commutative];
    /// Smaller of two; a NaN operand is ignored unless `propagate_nan`.
    MinF = "minf" (lhs, rhs) { propagate_nan: bool, flush_to_zero: bool } -> One : Elementwise(Float), Pure, [Commutative];
    /// Comparison.
    CmpF = "cmpf" (lhs, rhs) { predicate: Predicate, nan: NanOrder } -> One : Compare(Float), Pure;

    // Float functions

    /// Round up to an integer.
    Ceil = "ceil" (source) {} -> One : Elementwise(Float), Pure;
    /// Round down to an integer.
    Floor = "floor" (source) {} -> One : Elementwise(Float), Pure;
    /// Square root.
    Sqrt = "sqrt" (source) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// Reciprocal square root.
    Rsqrt = "rsqrt" (source) { flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// `e` to a power.
    Exp = "exp" (source) { rounding: Rounding, flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// 2 to a power.
    Exp2 = "exp2" (source) { flush_to_zero: bool } -> One : Elementwise(Float), Pure;
    /// Natural logarithm.
    Log = "log" (source) {} -> One : Elementwise(Float), Pure;
    /// Logarithm to base 2.
    Log2 = "log2" (source) {} -> One : Elementwise(Float), Pure;
    /// Power.
    Pow = "pow" (base, exponent) {} -> One : Elementwise(Float), Pure;
    /// Float to a signed integer power.
    FPowI = "fpowi" (base, exponent) {} -> One : Special, Pure, [Elementwise];
    /// Sine.
    Sin = "sin" (source) {} -> One : Elementwise(Float), Pure;
    /// Cosine.
    Cos = "cos" (source) {} -> One : Elementwise(Float), Pure;
    /// Tangent.
    Tan = "tan" (source) {} -> One : Elementwise(Float), Pure;
    /// Hyperbolic sine.
    SinH = "sinh" (source) {} -> One : Elementwise(Float), Pure;
    /// Hyperbolic cosine.
    CosH = "cosh" (source) {} -> One : Elementwise(Float), Pure;
    /// Hyperbolic tangent.
    TanH = "tanh" (source) { rounding: Rounding } -> One : Elementwise(Float), Pure;
    /// Angle of the point (x, y).
    Atan2 = "atan2" (y, x) {} -> One : Elementwise(Float), Pure;

    // Integer arithmetic

    /// Absolute value; the least integer stays itself.
    AbsI = "absi" (source) {} -> One : Elementwise(Int), Pure;
    /// Negation.
    NegI = "negi" (source) { overflow: Overflow } -> One : Elementwise(Int), Pure;
    /// Sum.
    AddI = "addi" (lhs, rhs) { overflow: Overflow } -> One : Elementwise(Int), Pure, [Commutative];
    /// Difference.
    SubI = "subi" (lhs, rhs) { overflow: Overflow } -> One : Elementwise(Int), Pure;
    /// Product.
    MulI = "muli" (lhs, rhs) { overflow: Overflow } -> One : Elementwise(Int), Pure, [Commutative];
    /// Upper half of the unsigned product.
    MulHiI = "mulhii" (lhs, rhs) {} -> One : Elementwise(Int), Pure, [Commutative];
    /// Quotient; `rounding` is `zero`, `negative_inf` or `positive_inf`. By zero it is all ones before it is rounded (checked execution reports its use).
    DivI = "divi" (lhs, rhs) { signedness: Signedness, rounding: Rounding } -> One : Elementwise(Int), MayTrap;
    /// Remainder with the dividend's sign. By zero it is all ones (checked execution reports its use).
    RemI = "remi" (lhs, rhs) { signedness: Signedness } -> One : Elementwise(Int), MayTrap;
    /// Larger of two.
    MaxI = "maxi" (lhs, rhs) { signedness: Signedness } -> One : Elementwise(Int), Pure, [Commutative];
    /// Smaller of two.
    MinI = "mini" (lhs, rhs) { signedness: Signedness } -> One : Elementwise(Int), Pure, [Commutative];
    /// Shift left; a count of the width or more is undefined (checked execution reports it).
    ShlI = "shli" (lhs, rhs) { overflow: Overflow } -> One : Elementwise(Int), Pure;
    /// Shift right, arithmetic when signed.
    ShrI = "shri" (lhs, rhs) { signedness: Signedness } -> One : Elementwise(Int), Pure;
    /// Bitwise and.
    AndI = "andi" (lhs, rhs) {} -> One : Elementwise(Int), Pure, [Commutative];
    /// Bitwise or.
    OrI = "ori" (lhs, rhs) {} -> One : Elementwise(Int), Pure, [Commutative];
    /// Bitwise exclusive or.
    XorI = "xori" (lhs, rhs) {} -> One : Elementwise(Int), Pure, [Commutative];
    /// Comparison.
    CmpI = "cmpi" (lhs, rhs) { predicate: Predicate, signedness: Signedness } -> One : Compare(Int), Pure;

    // Conversions

    /// The same bits under another element type of the same width.
    Bitcast = "bitcast" (source) {} -> One : Convert(Any, Any), Pure;
    /// To a wider integer.
    ExtI = "exti" (source) { signedness: Signedness } -> One : Convert(Int, Int), Pure;
    /// To a narrower integer: the low bits.
    TruncI = "trunci" (source) { overflow: Overflow } -> One : Convert(Int, Int), Pure;
    /// Between float formats; 8-bit and smaller results saturate.
    FToF = "ftof" (source) { rounding: Rounding } -> One : Convert(Float, Float), Pure;
    /// Float to integer; out of range saturates, NaN gives 0.
    FToI = "ftoi" (source) { signedness: Signedness, rounding: Rounding } -> One : Convert(Float, Int), Pure;
    /// Integer to float.
    IToF = "itof" (source) { signedness: Signedness, rounding: Rounding } -> One : Convert(Int, Float), Pure;
    /// Addresses as pointers.
    IntToPtr = "int_to_ptr" (source) {} -> One : Convert(Int, Any), Pure;
    /// Pointers as 64-bit addresses.
    PtrToInt = "ptr_to_int" (source) {} -> One : Convert(Any, Int), Pure;
    /// Pointers to another element type.
    PtrToPtr = "ptr_to_ptr" (source) {} -> One : Convert(Any, Any), Pure;
    /// A tile's elements as bytes, little end first; the result is `tile<Nxi8>`.
    Pack = "pack" (source) {} -> One : Special, Pure, [Exchanges];
    /// Bytes as elements; the source is `tile<Nxi8>`.
    Unpack = "unpack" (source) {} -> One : Special, Pure, [Exchanges];

    // Matrix products

    /// `lhs x rhs + acc` over the last two axes (an optional batch axis before), accumulated in the result's type.
    MmaF = "mmaf" (lhs, rhs, acc) { fast_acc: bool } -> One : Special, Pure, [Exchanges];
    /// The same with a scale for every group of `K / scale extent` elements.
    MmaFScaled = "mmaf_scaled" (lhs, rhs, acc, lhs_scale, rhs_scale) {} -> One : Special, Pure, [Exchanges];
    /// `lhs x rhs + acc` with a left factor of `M x K` of which half is stored: `lhs` is `M x K/2`, two of each four neighbours in a row, and `places` says
    /// which, in words of 32 neighbours as [`crate::fragment`] has them. Of four neighbours two must stand in order; what does not stand takes no part:
    /// its products are not zeros of infinities.
    MmaFSparse = "mmaf_sparse" (lhs, rhs, acc, places) {} -> One : Special, Pure, [Exchanges];
    /// Integer product, 8-bit operands and a 32-bit accumulator that wraps.
    MmaI = "mmai" (lhs, rhs, acc) { lhs_signedness: Signedness, rhs_signedness: Signedness } -> One : Special, Pure, [Exchanges];

    // Reductions

    /// Combines along an axis. The region takes, for each operand, the element and the running value, both scalars, and
    /// yields the new running values. One identity an operand: what changes no element, so that it may be combined or not. A maximum
    /// or minimum that ignores NaN yields NaN where there is nothing else.
    Reduce = "reduce" (operands: many) { dim: u32, identities: Vec<Const>, order: ReduceOrder } -> Many regions 1 : Special, Pure, [Exchanges];
    /// Running combination along an axis; `reverse` starts at the end. Region and identities as in `reduce`.
    Scan = "scan" (operands: many) { dim: u32, identities: Vec<Const>, reverse: bool } -> Many regions 1 : Special, Pure, [Exchanges];

    // Program

    /// Index of this block in the grid.
    GetTileBlockId = "get_tile_block_id" () { axis: GridAxis } -> One : Special, Pure;
    /// Number of blocks in the grid.
    GetNumTileBlocks = "get_num_tile_blocks" () { axis: GridAxis } -> One : Special, Pure;
    /// Address of a module-level constant tile.
    GetGlobal = "get_global" () { name: String } -> One : Special, Pure;

    // Memory

    /// Pointers moved by a number of elements.
    Offset = "offset" (pointers, offsets) {} -> One : Special, Pure, [Elementwise];
    /// An array from a base pointer and the sizes and strides that its type leaves open.
    MakeTensorView = "make_tensor_view" (base, shape: many, strides: many) {} -> One : Special, Pure;
    /// The array cut into tiles.
    MakePartitionView = "make_partition_view" (tensor) {} -> One : Special, Pure;
    /// Tiles at multiples of a step.
    MakeStridedView = "make_strided_view" (tensor) {} -> One : Special, Pure;
    /// Tiles whose rows come from an index tile.
    MakeGatherScatterView = "make_gather_scatter_view" (tensor) {} -> One : Special, Pure;
    /// An array's sizes.
    GetTensorShape = "get_tensor_shape" (tensor) {} -> Many : Special, Pure;
    /// How many tiles a view has along each axis.
    GetIndexSpaceShape = "get_index_space_shape" (view) {} -> Many : Special, Pure;
    /// A tile of a view; what lies outside the array is the view's padding. With `inbounds` nothing does: else the behaviour is
    /// undefined.
    LoadViewTko = "load_view_tko" (view, index: many, token: optional)
        { order: MemoryOrder, scope: Option<MemoryScope>, latency: Option<u32>, allow_tma: Option<bool>, inbounds: bool, cache: CacheHint } -> Two : Special, Read [read(global, view, at(index), to(result))], [Exchanges];
    /// Writes a tile to a view; what lies outside the array is dropped. With `inbounds` nothing does, as for loads.
    StoreViewTko = "store_view_tko" (tile, view, index: many, token: optional)
        { order: MemoryOrder, scope: Option<MemoryScope>, latency: Option<u32>, allow_tma: Option<bool>, inbounds: bool, cache: CacheHint } -> One : Special, Write [write(global, view, at(index), from(tile))], [Exchanges];
    /// Combines a tile into a view, element by element, atomically.
    AtomicRedViewTko = "atomic_red_view_tko" (view, index: many, value, token: optional)
        { order: MemoryOrder, scope: MemoryScope, mode: AtomicMode } -> One : Special, Write [update(global, view, at(index), from(value))], [Exchanges];
    /// Loads through pointers; `padding` where the mask is false.
    LoadPtrTko = "load_ptr_tko" (source, mask: optional, padding: optional, token: optional)
        { order: MemoryOrder, scope: Option<MemoryScope>, latency: Option<u32>, cache: CacheHint } -> Two : Special, Read [read(global, source)], [OneForAll];
    /// Stores through pointers where the mask is true or absent.
    StorePtrTko = "store_ptr_tko" (destination, value, mask: optional, token: optional)
        { order: MemoryOrder, scope: Option<MemoryScope>, latency: Option<u32>, cache: CacheHint } -> One : Special, Write [write(global, destination)];
    /// Atomic update; yields the old values, and 0 where the mask is false.
    AtomicRmwTko = "atomic_rmw_tko" (pointers, value, mask: optional, token: optional)
        { order: MemoryOrder, scope: MemoryScope, mode: AtomicMode } -> Two : Special, Write [update(global, pointers)], [Exchanges, OneForAll];
    /// Atomic compare and swap; yields the old values, and `compare` where the mask is false.
    AtomicCasTko = "atomic_cas_tko" (pointers, compare, value, mask: optional, token: optional)
        { order: MemoryOrder, scope: MemoryScope } -> Two : Special, Write [update(global, pointers)], [Exchanges, OneForAll];
    /// Memory that lives as long as the block.
    Alloca = "alloca" () { count: u32, align: u32 } -> One : Special, Write [make(global)];
    /// A token that orders nothing yet.
    MakeToken = "make_token" () {} -> One : Special, Pure;
    /// A token after all of these.
    JoinTokens = "join_tokens" (tokens: many) {} -> One : Special, Pure;

    // Control

    /// Counts from `lower` to `upper` (exclusive) by a positive `step`; the region takes the counter and the carried values.
    /// `unroll` copies of the body stand behind each other before the next comparison; their number divides the rounds.
    For = "for" (lower, upper, step, init: many) { unsigned: bool, unroll: Option<u32> } -> Many regions 1 : Special, Regions, [Loop];
    /// Repeats until `break`; the region takes the carried values.
    Loop = "loop" (init: many) {} -> Many regions 1 : Special, Regions, [Loop];
    /// Runs the first region when the condition holds, else the second.
    If = "if" (condition) {} -> Many regions 2 : Special, Regions;
    /// Ends a region of `if`, `reduce` or `scan` with its results.
    Yield = "yield" (values: many) {} -> None : Special, Terminator;
    /// Goes on with the next round of the innermost loop.
    Continue = "continue" (values: many) {} -> None : Special, Terminator;
    /// Leaves the innermost `loop` with its results.
    Break = "break" (values: many) {} -> None : Special, Terminator;
    /// Ends the kernel for this block.
    Return = "return" () {} -> None : Special, Terminator;
    /// An error with a message unless every element of the condition holds.
    Assert = "assert" (condition) { message: String } -> None : Special, Observable [];
    /// Prints; `format` is C's, one conversion an operand.
    PrintTko = "print_tko" (arguments: many, token: optional) { format: String } -> One : Special, Observable [], [Exchanges];
    /// Waits until the kernels launched before have finished (programmatic dependent launch).
    GdcWaitTko = "gdc_wait_tko" (token: optional) {} -> One : Special, Observable [update(global)];
    /// Lets the kernels launched after begin.
    GdcLaunchDependentsTko = "gdc_launch_dependents_tko" (token: optional) {} -> One : Special, Observable [update(global)];
}

impl ScheduleOp {
    /// How an access to the memory of the device is ordered among others; `None` for everything else.
    pub fn memory_order(&self) -> Option<MemoryOrder> {
        match *self {
            ScheduleOp::LoadViewTko { order, .. }
            | ScheduleOp::StoreViewTko { order, .. }
            | ScheduleOp::AtomicRedViewTko { order, .. }
            | ScheduleOp::LoadPtrTko { order, .. }
            | ScheduleOp::StorePtrTko { order, .. }
            | ScheduleOp::AtomicRmwTko { order, .. }
            | ScheduleOp::AtomicCasTko { order, .. } => Some(order),
            _ => None,
        }
    }

    /// True for loads that tokens alone order, among each other and with writes.
    pub fn is_weak_load(&self) -> bool {
        self.row().effects == Effects::Read && self.memory_order() == Some(MemoryOrder::Weak)
    }

    /// True for the operations that end one round of a loop or leave it.
    pub fn is_loop_exit(&self) -> bool {
        matches!(self, ScheduleOp::Continue { .. } | ScheduleOp::Break { .. })
    }
}
