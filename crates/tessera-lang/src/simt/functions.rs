//! The functions of `tile` in per-thread kernels, one row each.

use super::program::{Combine, Shuffle, Unary};

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Context,
    ThreadId,
    BlockId,
    NumBlocks,
    BlockSize,
    LaneId,
    WarpId,
    LinearId,
    AllocShared,
    AllocRegister,
    Fragment,
    Barrier,
    WarpReduce(Combine),
    Shuffle(Shuffle),
    AtomicAdd,
    AtomicMax,
    AtomicMin,
    AtomicExchange,
    AtomicCas,
    CopyAsync,
    CommitGroup,
    WaitGroup,
    FragmentFill,
    FragmentLoad,
    FragmentStore,
    FragmentMma,
    FragmentMmaSparse,
    Unary(Unary),
    Max,
    Min,
    Pow,
    Fma,
    Where,
    Cast,
}

/// Name, parameters in Python's notation, meaning.
pub(super) const ROWS: &[(&str, &str, Function)] = &[
    ("context", "", Function::Context),
    ("thread_id", "axis=0", Function::ThreadId),
    ("block_id", "axis=0", Function::BlockId),
    ("num_blocks", "axis=0", Function::NumBlocks),
    ("block_size", "axis=0", Function::BlockSize),
    ("lane_id", "", Function::LaneId),
    ("warp_id", "", Function::WarpId),
    ("linear_id", "", Function::LinearId),
    ("alloc_shared", "*shape", Function::AllocShared),
    ("alloc_register", "*shape", Function::AllocRegister),
    ("fragment", "role, /", Function::Fragment),
    ("barrier", "", Function::Barrier),
    ("warp_reduce_sum", "value, /", Function::WarpReduce(Combine::Sum)),
    ("warp_reduce_max", "value, /", Function::WarpReduce(Combine::Max)),
    ("warp_reduce_min", "value, /", Function::WarpReduce(Combine::Min)),
    ("shuffle", "value, lane, /", Function::Shuffle(Shuffle::Index)),
    ("shuffle_xor", "value, mask, /", Function::Shuffle(Shuffle::Xor)),
    ("shuffle_up", "value, delta, /", Function::Shuffle(Shuffle::Up)),
    ("shuffle_down", "value, delta, /", Function::Shuffle(Shuffle::Down)),
    ("atomic_add", "target, *values", Function::AtomicAdd),
    ("atomic_max", "target, *values", Function::AtomicMax),
    ("atomic_min", "target, *values", Function::AtomicMin),
    ("atomic_exchange", "target, *values", Function::AtomicExchange),
    ("atomic_cas", "target, *values", Function::AtomicCas),
    ("cp_async", "destination, source, /, count=1", Function::CopyAsync),
    ("commit_group", "", Function::CommitGroup),
    ("wait_group", "pending=0", Function::WaitGroup),
    ("fragment_fill", "fragment, value, /", Function::FragmentFill),
    ("fragment_load", "fragment, source, /", Function::FragmentLoad),
    ("fragment_store", "destination, fragment, /", Function::FragmentStore),
    ("fragment_mma", "accumulator, a, b, /", Function::FragmentMma),
    ("fragment_mma_sparse", "accumulator, a, places, b, b_below, /", Function::FragmentMmaSparse),
    ("neg", "x, /", Function::Unary(Unary::Neg)),
    ("abs", "x, /", Function::Unary(Unary::Abs)),
    ("exp", "x, /", Function::Unary(Unary::Exp)),
    ("exp2", "x, /", Function::Unary(Unary::Exp2)),
    ("log", "x, /", Function::Unary(Unary::Log)),
    ("log2", "x, /", Function::Unary(Unary::Log2)),
    ("sqrt", "x, /", Function::Unary(Unary::Sqrt)),
    ("rsqrt", "x, /", Function::Unary(Unary::Rsqrt)),
    ("sin", "x, /", Function::Unary(Unary::Sin)),
    ("cos", "x, /", Function::Unary(Unary::Cos)),
    ("tanh", "x, /", Function::Unary(Unary::Tanh)),
    ("floor", "x, /", Function::Unary(Unary::Floor)),
    ("ceil", "x, /", Function::Unary(Unary::Ceil)),
    ("max", "x, y, /", Function::Max),
    ("maximum", "x, y, /", Function::Max),
    ("min", "x, y, /", Function::Min),
    ("minimum", "x, y, /", Function::Min),
    ("pow", "x, y, /", Function::Pow),
    ("fma", "x, y, z, /", Function::Fma),
    ("where", "condition, x, y, /", Function::Where),
    ("cast", "x, dtype, /", Function::Cast),
];

/// The row of a name.
pub(super) fn find(name: &str) -> Option<(&'static str, Function)> {
    ROWS.iter().find(|(own, ..)| *own == name).map(|(_, signature, function)| (*signature, *function))
}

/// Every name, for help.
pub(super) fn names() -> String {
    ROWS.iter().map(|(name, ..)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
