//! A kernel after translation: one array of operations whose operands are slots of a warp's register file.
//!
//! Device functions are inlined (those that call themselves or are called by pointer are [`Routine`]s), labels are positions, immediates and special registers stand in slots of their own that are
//! filled when a warp starts ([`Fill`]), and each branch knows where its paths meet again ([`Op::Branch`]).

mod products;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use tessera_ptx::{Loc, Special, Type, Word};

use crate::ops::convert::Conversion;
use crate::ops::video::Video;
use crate::ops::{MapFn, TestFn};
use crate::texture::Geometry;
pub(crate) use products::{Metadata, Mma, Wgmma, WgmmaA};

/// A register's slot and its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    pub(crate) slot: u32,
    pub(crate) wide: bool,
}

/// A predicate as it is used: `!p` is negated. Predicate 0 always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pred {
    pub(crate) index: u32,
    pub(crate) negated: bool,
}

impl Pred {
    pub(crate) const TRUE: Pred = Pred { index: 0, negated: false };
    pub(crate) const FALSE: Pred = Pred { index: 0, negated: true };
}

/// What a slot holds when a warp starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Nothing yet: reading it is a mistake of the kernel.
    Register,
    /// A value; whether it is a 64-bit one.
    Constant(u64, bool),
    /// A place in the own block's shared memory as the chip addresses it: with the block's rank (see [`RANK_SHIFT`]).
    Shared(u32, bool),
    /// A special register that does not change while the warp runs.
    Special(Special),
}

/// An address space, as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    /// `.shared` and `.shared::cta`: the own block's.
    Shared,
    /// `.shared::cluster`: any block's of the cluster.
    Cluster,
    Local,
    Param,
}

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub(crate) base: Reg,
    pub(crate) offset: i64,
    pub(crate) space: Space,
}

/// The order and scope of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Weak,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
    Sc,
}

/// How far an order reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cta,
    Cluster,
    Gpu,
    System,
}

impl Scope {
    /// As in PTX.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Scope::Cta => ".cta",
            Scope::Cluster => ".cluster",
            Scope::Gpu => ".gpu",
            Scope::System => ".sys",
        }
    }
}

/// A place in a thread's local memory: counted from its start, or from the frame of the routine that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPlace {
    pub(crate) at: u32,
    pub(crate) framed: bool,
}

/// What a call hands over: bytes of a `.param` variable, or a register.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passed {
    Bytes(StackPlace),
    Register(Reg),
}

/// A parameter or result of a routine: bytes of its frame, or a register.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Formal {
    Bytes { at: u32, bytes: u32 },
    Register(Reg),
}

/// A function that is not inlined. Its variables lie in a frame of local memory, its registers are saved while it is called
/// again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routine {
    pub(crate) start: u32,
    pub(crate) frame_bytes: u32,
    pub(crate) params: Vec<Formal>,
    pub(crate) results: Vec<Formal>,
    pub(crate) registers: Vec<Reg>,
    pub(crate) predicates: Vec<u32>,
    /// What pointers to it hold.
    pub(crate) address: u64,
}

/// Which routine a call means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callee {
    Routine(u32),
    Pointer(Reg),
}

/// A call that is not inlined.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    pub(crate) arguments: Vec<Passed>,
    pub(crate) results: Vec<Passed>,
    /// The routine that calls; none is the kernel.
    pub(crate) caller: Option<u32>,
}

/// `tex` and `tld4`.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) geometry: Geometry,
    /// `tld4`: which channel.
    pub(crate) gather: Option<u8>,
    /// By integer coordinates.
    pub(crate) fetches: bool,
    /// Of the results.
    pub(crate) ty: Type,
    pub(crate) to: SmallVec<[Option<Reg>; 4]>,
    /// Set where the texels are in memory, as all are.
    pub(crate) resident: Option<u32>,
    pub(crate) image: Addr,
    pub(crate) sampler: Option<Addr>,
    pub(crate) at: SmallVec<[Reg; 4]>,
    pub(crate) offsets: SmallVec<[Reg; 4]>,
}

/// An access to a surface.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    pub(crate) geometry: Geometry,
    pub(crate) op: SurfaceOp,
    pub(crate) image: Addr,
    pub(crate) at: SmallVec<[Reg; 4]>,
    pub(crate) beyond: Beyond,
}

/// What is done to a surface.
#[derive(Clone, Debug)]
pub(crate) enum SurfaceOp {
    /// Values of some bytes each, as they are.
    Load {
        to: SmallVec<[Option<Reg>; 4]>,
        bytes: u32,
    },
    Store {
        from: SmallVec<[Reg; 4]>,
        bytes: u32,
    },
    /// A texel, channel by channel.
    StoreTexel {
        from: SmallVec<[Reg; 4]>,
    },
    Reduce {
        how: Change,
        ty: Type,
        formatted: bool,
        value: Reg,
    },
}

/// What becomes of an access outside of a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    Trap,
    Nearest,
    /// Loads give zeros, stores write nothing.
    Nothing,
}

/// The shape of a piece of a matrix in memory: `wmma.load` and `wmma.store`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
    pub(crate) by_rows: bool,
    pub(crate) ty: Type,
}

/// A read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Inc,
    Dec,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    Compare,
}

/// Lanes exchange values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// A vote's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// A connective of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connective {
    And,
    Or,
    Xor,
}

/// What a block barrier does besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Popc(Reg),
    And(u32),
    Or(u32),
}

/// What is done to an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarrierOp {
    Init { count: Reg },
    Invalidate,
    ExpectTx { bytes: Reg },
    CompleteTx { bytes: Reg },
    Arrive { count: Option<Reg>, expect: Option<Reg>, drop: bool, state: Option<Reg> },
    Test { to: u32, state: Reg, parity: bool, blocking: bool },
}

/// Where a bulk copy tells that it has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// An mbarrier in shared memory.
    Mbarrier(Addr),
    /// The issuing thread's bulk group.
    Group,
}

/// A bulk copy.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    pub(crate) to: BulkEnd,
    pub(crate) from: BulkEnd,
    /// Bytes, where no tensor map says them.
    pub(crate) bytes: Option<Reg>,
    pub(crate) signal: Signal,
    /// Cluster ranks that receive the data.
    pub(crate) multicast: Option<Reg>,
    /// A reduction into the destination, on elements of this type.
    pub(crate) reduce: Option<(Change, Option<Type>)>,
}

/// How a copy walks through a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Window {
    Tiled,
    /// Pixel by pixel, each some registers' values further on.
    Im2col {
        offsets: SmallVec<[Reg; 3]>,
    },
}

/// One side of a bulk copy.
#[derive(Clone, Debug)]
pub(crate) enum BulkEnd {
    /// Consecutive bytes.
    Line(Addr),
    /// A box of a tensor.
    Tensor { map: Addr, at: SmallVec<[Reg; 5]>, window: Window },
}

/// `set`: a condition as all ones, or as 1.0.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) run: TestFn,
    pub(crate) from: [u32; 4],
    pub(crate) to: Reg,
    pub(crate) value: u32,
    /// The upper half's condition and value.
    pub(crate) high: Option<(TestFn, u32)>,
    pub(crate) combine: Option<(Connective, Pred)>,
}

/// `lop3` with a predicate: bits by a table of eight rows, and whether any of them is set.
#[derive(Clone, Debug)]
pub(crate) struct LogicPredicate {
    pub(crate) to: Option<Reg>,
    pub(crate) flag: Option<u32>,
    pub(crate) from: [u32; 3],
    pub(crate) table: u32,
    pub(crate) how: Connective,
    pub(crate) with: Pred,
}

/// `add.cc` and its kin on 32 or 64 bits.
#[derive(Clone, Debug)]
pub(crate) struct Carry {
    pub(crate) to: Reg,
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    /// What is added to the product of the others.
    pub(crate) c: Option<Reg>,
    pub(crate) subtract: bool,
    /// The upper half of the product.
    pub(crate) high: bool,
    pub(crate) signed: bool,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Nop,
    Map {
        run: MapFn,
        to: Reg,
        from: [u32; 4],
    },
    Test {
        run: TestFn,
        from: [u32; 4],
        to: Option<u32>,
        other: Option<u32>,
        combine: Option<(Connective, Pred)>,
    },
    TestPair {
        run: [TestFn; 2],
        from: [u32; 4],
        to: Option<u32>,
        other: Option<u32>,
        combine: Option<(Connective, Pred)>,
    },
    Set(Set),
    Video {
        video: Video,
        to: Reg,
        from: [u32; 3],
    },
    Convert {
        conversion: Conversion,
        to: Reg,
        from: Reg,
    },
    ConvertPair {
        conversion: Conversion,
        to: Reg,
        high: Reg,
        low: Reg,
    },
    ConvertSplit {
        conversion: Conversion,
        to: Reg,
        from: Reg,
    },
    Predicate {
        to: u32,
        how: Connective,
        a: Pred,
        b: Pred,
    },
    LogicPredicate(LogicPredicate),
    Select {
        to: Reg,
        a: u32,
        b: u32,
        by: Pred,
    },
    Unpack {
        to: SmallVec<[Option<Reg>; 4]>,
        from: Reg,
        bits: u32,
    },
    Pack {
        to: Reg,
        from: SmallVec<[Reg; 4]>,
        bits: u32,
    },
    Carry(Carry),
    Clock {
        to: Reg,
        which: Special,
    },
    Load {
        to: SmallVec<[Option<Reg>; 4]>,
        bytes: u32,
        signed: bool,
        addr: Addr,
        order: Order,
        scope: Scope,
    },
    Store {
        from: SmallVec<[Reg; 4]>,
        bytes: u32,
        addr: Addr,
        order: Order,
        scope: Scope,
    },
    StoreAsync {
        from: SmallVec<[Reg; 4]>,
        bytes: u32,
        addr: Addr,
        barrier: Addr,
        reduce: Option<(Change, Type)>,
    },
    /// An element of 128 bits is two values.
    Atomic {
        to: SmallVec<[Option<Reg>; 4]>,
        how: Change,
        ty: Type,
        addr: Addr,
        value: SmallVec<[Reg; 4]>,
        second: SmallVec<[Reg; 2]>,
        order: Order,
        scope: Scope,
    },
    Generic {
        to: Reg,
        from: Reg,
        space: Space,
        back: bool,
    },
    IsSpace {
        to: u32,
        from: Reg,
        space: Space,
    },
    MapRank {
        to: Reg,
        from: Reg,
        rank: Reg,
    },
    RankOf {
        to: Reg,
        from: Reg,
    },
    Sample(Box<Sample>),
    Surface(Box<Surface>),
    /// `txq` and `suq`.
    Query {
        to: Reg,
        image: Addr,
        what: Word,
        texture: bool,
    },
    IsHandle {
        to: u32,
        from: Reg,
        kind: Type,
    },
    Shuffle {
        how: Shuffle,
        to: Option<Reg>,
        valid: Option<u32>,
        value: u32,
        lane: u32,
        clamp: u32,
        members: u32,
    },
    Vote {
        how: Vote,
        to: Option<Reg>,
        flag: Option<u32>,
        by: Pred,
        members: u32,
    },
    Match {
        all: bool,
        to: Option<Reg>,
        flag: Option<u32>,
        value: Reg,
        members: u32,
    },
    Redux {
        how: Change,
        signed: bool,
        to: Reg,
        value: u32,
        members: u32,
    },
    ActiveMask {
        to: Reg,
    },
    Elect {
        to: Option<Reg>,
        flag: Option<u32>,
        members: u32,
    },
    WarpBarrier {
        members: u32,
    },
    Branch {
        target: u32,
        join: u32,
    },
    /// To the target with this number; beyond the last one nothing happens.
    BranchTo {
        index: u32,
        targets: Vec<u32>,
        join: u32,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    Barrier {
        kind: BarrierKind,
        id: u32,
        count: Option<u32>,
        aligned: bool,
        by: Pred,
    },
    ClusterArrive {
        relaxed: bool,
    },
    ClusterWait,
    Fence {
        scope: Scope,
    },
    FenceProxy,
    FenceMbarrierInit,
    FenceTensorMap,
    Mbarrier {
        addr: Addr,
        op: MbarrierOp,
        scope: Scope,
        relaxed: bool,
    },
    PendingCount {
        to: Reg,
        from: Reg,
    },
    CpAsync {
        to: Addr,
        from: Addr,
        bytes: u32,
        source: Option<Reg>,
    },
    CpCommit,
    CpWait {
        left: u32,
    },
    CpArrive {
        addr: Addr,
        counted: bool,
    },
    Bulk(Box<Bulk>),
    BulkCommit,
    BulkWait {
        left: u32,
        read: bool,
    },
    TensorMapReplace {
        addr: Addr,
        field: Word,
        index: u32,
        value: Reg,
    },
    TensorMapCopy {
        to: Addr,
        from: Addr,
    },
    LoadMatrix {
        to: SmallVec<[Reg; 4]>,
        addr: Addr,
        transpose: bool,
    },
    StoreMatrix {
        from: SmallVec<[Reg; 4]>,
        addr: Addr,
        transpose: bool,
    },
    MoveMatrix {
        to: Reg,
        from: Reg,
    },
    Mma(Box<Mma>),
    WmmaLoad {
        to: Vec<Reg>,
        addr: Addr,
        stride: Option<Reg>,
        piece: Piece,
    },
    WmmaStore {
        from: Vec<Reg>,
        addr: Addr,
        stride: Option<Reg>,
        piece: Piece,
    },
    Wmma(Box<Mma>),
    Wgmma(Box<Wgmma>),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        left: u32,
    },
    SetMaxRegisters {
        count: u32,
        more: bool,
    },
    GridWait,
    GridLaunch,
    Sleep,
    Print {
        format: Passed,
        arguments: Passed,
    },
}

/// An operation with its guard.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    pub(crate) guard: Pred,
}

/// What messages and sanitizers need to know of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) line: u32,
    pub(crate) loc: Option<Loc>,
    pub(crate) mnemonic: String,
    /// Whether it only prepares operands of the instruction, which follows.
    pub(crate) prepares: bool,
    pub(crate) reads: SmallVec<[u32; 4]>,
    pub(crate) writes: SmallVec<[u32; 2]>,
    pub(crate) reads_predicates: SmallVec<[u32; 2]>,
    pub(crate) writes_predicates: SmallVec<[u32; 2]>,
}

/// A translated kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) code: Vec<Inst>,
    pub(crate) meta: Arc<Vec<Meta>>,
    pub(crate) slots: Vec<Fill>,
    /// The registers' names, by slot, for messages.
    pub(crate) names: Vec<String>,
    /// The registers of 64 bits.
    pub(crate) wide: BTreeSet<u32>,
    pub(crate) predicates: u32,
    pub(crate) predicate_names: Vec<String>,
    /// Bytes and alignment of the parameters.
    pub(crate) param_bytes: u32,
    pub(crate) params: Vec<ParamSlot>,
    /// Bytes of statically declared shared memory, and where dynamic memory starts behind them.
    pub(crate) static_shared: u32,
    pub(crate) dynamic_start: u32,
    /// The first byte of shared memory that the kernel may touch: what is reserved for libraries where it asks for that.
    pub(crate) shared_floor: u32,
    /// Bytes of local memory a thread, routines' frames included.
    pub(crate) local_bytes: u32,
    /// Bytes of it that the kernel's own variables take.
    pub(crate) kernel_frame: u32,
    /// The slot that holds where the running routine's frame starts.
    pub(crate) frame: u32,
    pub(crate) routines: Vec<Routine>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) min_blocks: Option<u32>,
    pub(crate) max_registers: Option<u32>,
    pub(crate) cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: a launch has to name its clusters.
    pub(crate) explicit_cluster: bool,
    pub(crate) register_estimate: u32,
}

impl Program {
    /// Whether a register has 64 bits.
    pub(crate) fn is_wide(&self, slot: u32) -> bool {
        self.wide.contains(&slot)
    }

    /// Whether blocks may meet in global memory in an order that decides something: by atomics, strong accesses or reductions.
    pub(crate) fn blocks_meet(&self) -> bool {
        let outside = |addr: &Addr| matches!(addr.space, Space::Global | Space::Generic);
        self.code.iter().any(|inst| match &inst.op {
            Op::Atomic { addr, .. } => outside(addr),
            Op::Load { addr, order, .. } | Op::Store { addr, order, .. } => *order != Order::Weak && outside(addr),
            Op::Bulk(bulk) => bulk.reduce.is_some(),
            Op::Surface(surface) => matches!(surface.op, SurfaceOp::Reduce { .. }),
            _ => false,
        })
    }
}

/// A parameter's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParamSlot {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// Where the emulator's shared window starts in generic addresses.
pub(crate) const SHARED_WINDOW: u64 = 0x7f00_0000_0000;
/// Where a thread's local memory starts in generic addresses.
pub(crate) const LOCAL_WINDOW: u64 = 0x7e00_0000_0000;
/// Where the parameters start in generic addresses.
pub(crate) const PARAM_WINDOW: u64 = 0x7d00_0000_0000;
/// Bytes at the start of shared memory that belong to nobody.
pub(crate) const SHARED_START: u32 = 1024;
/// `%reserved_smem_offset_0` and `_1`: where in front of it libraries may keep what a block's threads share.
pub(crate) const RESERVED_OFFSETS: [u32; 2] = [16, 32];
/// Where a block's rank in its cluster stands in a shared address, in those of its own variables too (seen on an H200).
pub(crate) const RANK_SHIFT: u32 = 24;
/// Where functions stand, for pointers to them.
pub(crate) const FUNCTION_WINDOW: u64 = 0x7c00_0000_0000;
/// Bytes of local memory for routines' frames.
pub(crate) const STACK_BYTES: u32 = 16 << 10;
/// Bytes of it that a call takes at least, for where it returns to: calls without end come to the stack's.
pub(crate) const CALL_BYTES: u32 = 16;
/// No place where paths meet.
pub(crate) const NOWHERE: u32 = u32::MAX;
