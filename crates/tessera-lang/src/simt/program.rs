//! A checked per-thread kernel: every expression has an element type, every name is a local, parameter or allocation.
//!
//! Compile-time values are gone: string parameters have selected code, sizes of allocations are numbers, helper functions are
//! inlined. What remains is what one thread does. A local has one type throughout the kernel, the common type of
//! everything assigned to it. Elements of 8-bit and smaller floats are converted to `f32` when they are read and back
//! when they are written; arithmetic on the other types is their own.
//!
//! What touches memory or other threads (loads, atomics, reductions, shuffles) stands at most once in a statement that sets a
//! variable and nothing else, in the order of the text; every other expression is pure.
//!
//! `uniform` on an expression says that all threads of a block compute the same value; a barrier stands only where every
//! condition around it is uniform.

use indexmap::IndexMap;
use tessera_ir::attrs::{AtomicMode, MemoryOrder, MemoryScope};
use tessera_ir::fragment::Fragment;
use tessera_ir::{Abi, Const, Span};
use tessera_types::DType;

/// A per-thread kernel that was checked.
#[derive(Clone, Debug)]
pub struct SimtKernel {
    /// Its name.
    pub name: String,
    /// What a launcher passes.
    pub abi: Abi,
    /// The configuration that was chosen.
    pub config: IndexMap<String, i64>,
    /// Threads a block.
    pub threads: u32,
    /// Blocks that a multiprocessor shall hold, where the author says so.
    pub occupancy: Option<u32>,
    /// Memory that the kernel declares.
    pub allocations: Vec<Allocation>,
    /// Memory that the kernel finds by its address.
    pub addressed: Vec<Addressed>,
    /// Variables.
    pub locals: Vec<Local>,
    /// Array parameters with the names of their axes, in order.
    pub axes: Vec<(String, Vec<String>)>,
    /// What a thread does.
    pub body: Vec<Statement>,
    /// Where the kernel is defined.
    pub span: Span,
}

impl SimtKernel {
    /// Bytes of shared memory that a block takes.
    pub fn shared_bytes(&self) -> u64 {
        self.allocations.iter().filter(|allocation| allocation.space == Space::Shared).map(Allocation::bytes).sum()
    }
}

/// Where an allocation lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Shared by the threads of a block.
    Shared,
    /// One for each thread.
    Register,
    /// A matrix of 16 x 16, or 16 words of places, spread over a warp.
    Fragment(Role),
}

/// What a fragment is in a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The left factor.
    A,
    /// The right factor.
    B,
    /// What is summed into.
    Accumulator,
    /// Where the elements of a left factor that is stored by half stand.
    Places,
}

impl Role {
    /// How its elements are spread over a warp.
    pub(super) fn fragment(self) -> Fragment {
        match self {
            Role::A => Fragment::Lhs,
            Role::B => Fragment::Rhs,
            Role::Accumulator => Fragment::Acc,
            Role::Places => Fragment::Places,
        }
    }
}

/// Memory that a kernel declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The variable it was first assigned to, or empty.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<u32>,
    /// Where it is declared.
    pub span: Span,
}

impl Allocation {
    /// Bytes of one copy.
    pub fn bytes(&self) -> u64 {
        let elements: u64 = self.shape.iter().map(|&extent| u64::from(extent)).product();
        elements * self.dtype.unpacked_bytes() as u64
    }
}

/// Memory at an address that the kernel was told: of another device, or of an array of arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct Addressed {
    /// The variable that holds the address.
    pub local: usize,
    /// Element type.
    pub dtype: DType,
    /// What divides the address.
    pub align: u32,
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// Its name in the source; empty for what an expression needs on the way.
    pub name: String,
    /// Its type.
    pub dtype: DType,
    /// Whether all threads of a block agree on it.
    pub uniform: bool,
}

/// What is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The array parameter at a position of the interface.
    Param(usize),
    /// The allocation at a position.
    Allocation(usize),
    /// The memory at the address of a position.
    Addressed(usize),
}

/// One element of memory: one index an axis.
#[derive(Clone, Debug)]
pub struct Place {
    /// The array.
    pub memory: Memory,
    /// Its element type.
    pub dtype: DType,
    /// Where in it.
    pub index: Vec<Expression>,
    /// How accesses to it are ordered among threads.
    pub order: MemoryOrder,
    /// Among which threads.
    pub scope: Option<MemoryScope>,
    /// Where in the source.
    pub span: Span,
}

/// A value that a thread computes.
#[derive(Clone, Debug)]
pub struct Expression {
    /// How.
    pub kind: ExpressionKind,
    /// Its type.
    pub dtype: DType,
    /// Whether all threads of a block agree on it.
    pub uniform: bool,
    /// Where.
    pub span: Span,
}

/// How a value is computed.
#[derive(Clone, Debug)]
pub enum ExpressionKind {
    /// A number.
    Constant(Const),
    /// A variable, by position.
    Local(usize),
    /// A scalar parameter, by position in the interface.
    Scalar(usize),
    /// The size of an array parameter along an axis.
    Size(usize, u32),
    /// Who the thread is.
    Identity(Identity),
    /// An element of memory.
    Load(Box<Place>),
    /// A function of one value.
    Unary(Unary, Box<Expression>),
    /// A function of two values of one type.
    Binary(Binary, Box<Expression>, Box<Expression>),
    /// `x * y + z`, rounded once.
    Fma(Box<[Expression; 3]>),
    /// The second where the first holds, else the third.
    Select(Box<[Expression; 3]>),
    /// The value in another type: floats to 8 bits saturate, floats to integers truncate and saturate.
    Convert(Box<Expression>),
    /// The same bits as a value of another type.
    Bits(Box<Expression>),
    /// A combination over the threads of a warp, which each of them gets.
    WarpReduce(Combine, Box<Expression>),
    /// The value of another thread of the warp.
    Shuffle(Shuffle, Box<[Expression; 2]>),
    /// The lanes of the warp whose value has the same lowest bits, of which there are so many.
    MatchAny(u32, Box<Expression>),
    /// How many bits are set.
    Popcount(Box<Expression>),
    /// An atomic update; the old element.
    Atomic(AtomicMode, Box<Place>, Box<Expression>),
    /// An atomic compare and swap (expected, desired); the old element.
    CompareSwap(Box<Place>, Box<[Expression; 2]>),
}

/// Who a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Position in the block along an axis.
    Thread(u32),
    /// Position of the block in the grid along an axis.
    Block(u32),
    /// Blocks of the grid along an axis.
    Blocks(u32),
    /// Position in the warp.
    Lane,
    /// Warp of the block.
    Warp,
    /// Position in the whole grid along the first axis.
    Linear,
}

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Unary {
    Neg,
    Not,
    Abs,
    Exp,
    Exp2,
    Log,
    Log2,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Tanh,
    Floor,
    Ceil,
}

/// A function of two values of one type. Comparisons yield truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// The quotient of floats.
    Div,
    /// The quotient rounded down.
    FloorDiv,
    /// The remainder with the divisor's sign.
    Mod,
    Pow,
    Max,
    Min,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// The second counts only where the first holds.
    AndThen,
    /// The second counts only where the first does not hold.
    OrElse,
}

/// A combination over a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Combine {
    Sum,
    Max,
    Min,
}

/// Which thread of the warp a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// The lane given.
    Index,
    /// The own lane exclusive-or the number.
    Xor,
    /// The own lane minus the number.
    Up,
    /// The own lane plus the number.
    Down,
}

/// What a thread does.
#[derive(Clone, Debug)]
pub enum Statement {
    /// Sets a variable.
    Assign(usize, Expression),
    /// Writes an element.
    Store(Place, Expression),
    /// Evaluates for the effect.
    Evaluate(Expression),
    /// A branch.
    If {
        /// The condition, a truth value.
        test: Expression,
        /// Where it holds.
        body: Vec<Statement>,
        /// Elsewhere.
        orelse: Vec<Statement>,
    },
    /// Counts a variable from `start` to `stop` (exclusive) by `step`, which may be negative.
    For {
        /// The variable.
        local: usize,
        /// First value.
        start: Expression,
        /// Bound.
        stop: Expression,
        /// Distance.
        step: Expression,
        /// The body.
        body: Vec<Statement>,
    },
    /// Repeats while a condition holds.
    While {
        /// What each round does before the condition is looked at.
        before: Vec<Statement>,
        /// The condition, a truth value.
        test: Expression,
        /// The body.
        body: Vec<Statement>,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes on with the next round.
    Continue,
    /// Ends the thread.
    Return,
    /// Waits for all threads of the block.
    Barrier(Span),
    /// Begins an asynchronous copy of `count` elements, which lie in a row in both places.
    CopyAsync {
        /// To shared memory.
        destination: Place,
        /// From an array.
        source: Place,
        /// How many elements.
        count: u32,
    },
    /// Closes a group of asynchronous copies.
    CommitGroup,
    /// Waits until at most so many groups are under way.
    WaitGroup(u32),
    /// Sets every element of a fragment.
    FragmentFill(usize, Expression),
    /// Reads a fragment from the elements whose first one is given.
    FragmentLoad(usize, Place),
    /// Writes a fragment.
    FragmentStore(Place, usize),
    /// `accumulator += a x b`, by position of the allocations.
    FragmentMma(usize, usize, usize),
    /// The same where the left factor is stored by half.
    FragmentMmaSparse {
        /// The sums.
        accumulator: usize,
        /// What is stored of the left factor.
        a: usize,
        /// Where that stands.
        places: usize,
        /// The right factor, its upper half first.
        b: [usize; 2],
    },
}
