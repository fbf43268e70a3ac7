//! The language's functions and methods, one row each: name, parameters, what it does.
//!
//! [`Builtin`] names a row; [`crate::lower`] has one arm for each. Parameters are written as Python writes them and read by
//! [`crate::bind`], so a row says everything that a call is checked against:
//!
//! ```text
//! Load = Tile "load" "array, /, index, shape, *, order='C', ..." "loads a tile of the array's tile space";
//! ```

/// Where a name lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A function of `cuda.tile`.
    Tile,
    /// A function of `tessera.tile` that works on tiles of block style, and that `cuda.tile` does not have.
    OwnTile,
    /// A method of a tile.
    TileMethod,
    /// A method of an array.
    ArrayMethod,
    /// A method of a tiled view.
    ViewMethod,
    /// A method of raw array memory.
    RawMethod,
    /// A Python built-in.
    Python,
    /// A function of Python's `operator` that is an operator of kernels; [`OPERATORS`] has those that are functions of `cuda.tile`, too.
    Operator,
    /// A function of Python's `math`, on compile-time numbers.
    Math,
}

/// Everything declared about a function.
#[derive(Debug)]
pub struct BuiltinRow {
    /// Its name in its space.
    pub name: &'static str,
    /// Where it lives.
    pub space: Space,
    /// Its parameters in Python's notation.
    pub signature: &'static str,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! builtins {
    ($($variant:ident = $space:ident $name:literal $signature:literal $doc:literal;)*) => {
        /// A function or method of the language.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Builtin { $( #[doc = $doc] $variant, )* }

        impl Builtin {
            /// Every function, in declaration order.
            pub const ALL: &'static [Builtin] = &[$(Builtin::$variant),*];
            const ROWS: &'static [BuiltinRow] = &[$( BuiltinRow {
                name: $name, space: Space::$space, signature: $signature, doc: $doc,
            } ),*];

            /// What is declared about it.
            pub fn row(self) -> &'static BuiltinRow { &Self::ROWS[self as usize] }
        }
    };
}

impl Builtin {
    /// The function of a name in a space.
    pub fn find(space: Space, name: &str) -> Option<Builtin> {
        Builtin::ALL.iter().copied().find(|b| b.row().space == space && b.row().name == name)
    }
}

builtins! {
    Bid = Tile "bid" "axis" "index of this block along a grid axis";
    NumBlocks = Tile "num_blocks" "axis" "number of blocks along a grid axis";
    NumTiles = Tile "num_tiles" "array, /, axis, shape, order='C'" "number of tiles of a shape along an axis of an array";
    AssumeDivisibleBy = Tile "assume_divisible_by" "x, divisor" "promises that an integer scalar is a multiple";

    Load = Tile "load" "array, /, index, shape, *, order='C', padding_mode=PaddingMode.UNDETERMINED, check_bounds=True, latency=None, allow_tma=None, memory_order=MemoryOrder.WEAK, memory_scope=MemoryScope.NONE" "loads a tile of an array's tile space";
    Store = Tile "store" "array, /, index, tile, *, order='C', check_bounds=True, latency=None, allow_tma=None, memory_order=MemoryOrder.WEAK, memory_scope=MemoryScope.NONE" "stores a tile into an array's tile space";
    LoadAdvancedIndexing = Tile "load_advanced_indexing" "array, indices, /, *, padding_mode=PaddingMode.UNDETERMINED, latency=None, allow_tma=None" "loads rows chosen by an index tile";
    StoreAdvancedIndexing = Tile "store_advanced_indexing" "array, indices, tile, /, *, latency=None, allow_tma=None" "stores rows chosen by an index tile";
    Gather = Tile "gather" "array, indices, /, *, mask=None, padding_value=0, check_bounds=True, latency=None" "loads elements by index tiles";
    Scatter = Tile "scatter" "array, indices, value, /, *, mask=None, check_bounds=True, latency=None" "stores elements by index tiles";
    Slice = Tile "Slice" "start, length, /" "a range of an axis for advanced indexing";
    AtomicCas = Tile "atomic_cas" "array, indices, expected, desired, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "compares and swaps elements, yields the old ones";
    AtomicXchg = Tile "atomic_xchg" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "exchanges elements, yields the old ones";
    AtomicAdd = Tile "atomic_add" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "adds to elements, yields the old ones";
    AtomicMax = Tile "atomic_max" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "maximum with elements, yields the old ones";
    AtomicMin = Tile "atomic_min" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "minimum with elements, yields the old ones";
    AtomicAnd = Tile "atomic_and" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise and with elements, yields the old ones";
    AtomicOr = Tile "atomic_or" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise or with elements, yields the old ones";
    AtomicXor = Tile "atomic_xor" "array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise exclusive or with elements, yields the old ones";

    Arange = Tile "arange" "size, /, *, dtype, start=0, step=1" "numbers at equal distance";
    Full = Tile "full" "shape, fill_value, dtype" "a tile of one value";
    Zeros = Tile "zeros" "shape, dtype" "a tile of zeros";
    Ones = Tile "ones" "shape, dtype" "a tile of ones";
    AsTile = Tile "astile" "value, /, *, dtype" "a tile from nested tuples of scalars";

    Reshape = Tile "reshape" "x, /, shape" "the same elements under another shape";
    Permute = Tile "permute" "x, /, axes" "reorders axes";
    Transpose = Tile "transpose" "x, /, axis0=None, axis1=None" "swaps two axes";
    ExpandDims = Tile "expand_dims" "x, /, axis" "inserts an axis of extent 1";
    BroadcastTo = Tile "broadcast_to" "x, /, shape" "repeats axes of extent 1";
    Cat = Tile "cat" "tiles, /, axis" "joins two tiles";
    Extract = Tile "extract" "x, /, index, shape" "a subtile";
    Insert = Tile "insert" "x, /, index, value" "a tile with a subtile replaced";

    Mma = Tile "mma" "x, y, /, acc, *, use_fast_acc=False" "matrix product and sum";
    MmaScaled = Tile "mma_scaled" "x, x_scale, y, y_scale, /, acc" "matrix product of block-scaled operands and sum";
    MatMul = Tile "matmul" "x, y, /" "matrix product";
    MmaSparse = OwnTile "mma_sparse" "values, places, y, /, acc" "matrix product of a left operand of which two of each four neighbours are stored, and sum";

    Sum = Tile "sum" "x, /, axis=None, *, keepdims=False, rounding_mode=None, flush_to_zero=False" "sum along axes";
    Prod = Tile "prod" "x, /, axis=None, *, keepdims=False, rounding_mode=None, flush_to_zero=False" "product along axes";
    Max = Tile "max" "x, /, axis=None, *, keepdims=False, flush_to_zero=False, propagate_nan=False" "maximum along axes";
    Min = Tile "min" "x, /, axis=None, *, keepdims=False, flush_to_zero=False, propagate_nan=False" "minimum along axes";
    ArgMax = Tile "argmax" "x, /, axis=None, *, keepdims=False, propagate_nan=False" "index of the maximum";
    ArgMin = Tile "argmin" "x, /, axis=None, *, keepdims=False, propagate_nan=False" "index of the minimum";
    Reduce = Tile "reduce" "x, /, axis, func, identity, *, keepdims=False" "combines along an axis with a function";
    CumSum = Tile "cumsum" "x, /, axis=0, *, reverse=False, rounding_mode=None, flush_to_zero=False" "running sum";
    CumProd = Tile "cumprod" "x, /, axis=0, *, reverse=False, rounding_mode=None, flush_to_zero=False" "running product";
    Scan = Tile "scan" "x, /, axis, func, identity, *, reverse=False" "running combination with a function";

    Add = Tile "add" "x, y, /, *, rounding_mode=None, flush_to_zero=False" "sum";
    Sub = Tile "sub" "x, y, /, *, rounding_mode=None, flush_to_zero=False" "difference";
    Mul = Tile "mul" "x, y, /, *, rounding_mode=None, flush_to_zero=False" "product";
    TrueDiv = Tile "truediv" "x, y, /, *, rounding_mode=None, flush_to_zero=False" "quotient as a float";
    FloorDiv = Tile "floordiv" "x, y, /" "quotient rounded down";
    Mod = Tile "mod" "x, y, /" "remainder with the divisor's sign";
    DivMod = Tile "divmod" "x, y, /" "quotient rounded down and remainder";
    Pow = Tile "pow" "x, y, /" "power";
    CDiv = Tile "cdiv" "x, y, /" "quotient rounded up";
    Minimum = Tile "minimum" "x, y, /, *, flush_to_zero=False, propagate_nan=False" "smaller of two";
    Maximum = Tile "maximum" "x, y, /, *, flush_to_zero=False, propagate_nan=False" "larger of two";
    Atan2 = Tile "atan2" "x1, x2, /" "angle of the point (x2, x1)";
    BitAnd = Tile "bitwise_and" "x, y, /" "bitwise and";
    BitOr = Tile "bitwise_or" "x, y, /" "bitwise or";
    BitXor = Tile "bitwise_xor" "x, y, /" "bitwise exclusive or";
    ShiftLeft = Tile "bitwise_lshift" "x, y, /" "shift left";
    ShiftRight = Tile "bitwise_rshift" "x, y, /" "shift right";
    Equal = Tile "equal" "x, y, /" "elementwise `==`";
    NotEqual = Tile "not_equal" "x, y, /" "elementwise `!=`";
    Less = Tile "less" "x, y, /" "elementwise `<`";
    LessEqual = Tile "less_equal" "x, y, /" "elementwise `<=`";
    Greater = Tile "greater" "x, y, /" "elementwise `>`";
    GreaterEqual = Tile "greater_equal" "x, y, /" "elementwise `>=`";
    Where = Tile "where" "cond, x, y, /" "elements of one tile or the other";

    Negative = Tile "negative" "x, /" "negation";
    BitNot = Tile "bitwise_not" "x, /" "bitwise complement";
    Abs = Tile "abs" "x, /" "absolute value";
    Exp = Tile "exp" "x, /, *, rounding_mode=None" "e to a power";
    Exp2 = Tile "exp2" "x, /, *, flush_to_zero=False" "2 to a power";
    Log = Tile "log" "x, /" "natural logarithm";
    Log2 = Tile "log2" "x, /" "logarithm to base 2";
    Sqrt = Tile "sqrt" "x, /, *, rounding_mode=None, flush_to_zero=False" "square root";
    Rsqrt = Tile "rsqrt" "x, /, *, flush_to_zero=False" "reciprocal square root";
    Sin = Tile "sin" "x, /" "sine";
    Cos = Tile "cos" "x, /" "cosine";
    Tan = Tile "tan" "x, /" "tangent";
    Sinh = Tile "sinh" "x, /" "hyperbolic sine";
    Cosh = Tile "cosh" "x, /" "hyperbolic cosine";
    Tanh = Tile "tanh" "x, /, *, rounding_mode=None" "hyperbolic tangent";
    Floor = Tile "floor" "x, /" "round down";
    Ceil = Tile "ceil" "x, /" "round up";
    IsNan = Tile "isnan" "x, /" "true where not a number";

    AsType = Tile "astype" "x, dtype, /, *, rounding_mode=None" "converts elements";
    BitCast = Tile "bitcast" "x, /, dtype" "the same bits under another type";
    PackToBytes = Tile "pack_to_bytes" "x, /" "elements as bytes";
    UnpackFromBytes = Tile "unpack_from_bytes" "x, /, dtype" "bytes as elements";

    StaticEval = Tile "static_eval" "expr, /" "evaluates when the kernel is compiled";
    StaticAssert = Tile "static_assert" "condition, message=None, /" "fails compilation unless the condition holds";
    StaticIter = Tile "static_iter" "iterable" "unrolls a loop";
    StaticException = Tile "static_exception" "exc, /" "raises when the kernel is compiled";
    EnsureConstant = Tile "ensure_constant" "value, /" "the value, which must be known when the kernel is compiled";

    Printf = Tile "printf" "format, /, *args" "prints with a C format";
    TilePrint = Tile "print" "*args, sep=' ', end='\\n'" "prints";
    Assert = Tile "assert_" "cond, /, message=None" "an error unless every element holds";
    GridWait = Tile "grid_dependency_control_wait" "" "waits for the kernels launched before";
    GridLaunch = Tile "grid_dependency_control_launch_dependents" "" "lets the kernels launched after begin";

    TileItem = TileMethod "item" "" "the only element";
    TileReshape = TileMethod "reshape" "shape" "the same elements under another shape";
    TilePermute = TileMethod "permute" "axes" "reorders axes";
    TileTranspose = TileMethod "transpose" "axis0=None, axis1=None" "swaps two axes";
    TileAsType = TileMethod "astype" "dtype, *, rounding_mode=None" "converts elements";
    TileExtract = TileMethod "extract" "index, shape" "a subtile";
    TileInsert = TileMethod "insert" "index, value" "a tile with a subtile replaced";

    ArraySlice = ArrayMethod "slice" "axis, start, stop" "a part of the array along an axis";
    ArrayTiledView = ArrayMethod "tiled_view" "tile_shape, *, padding_mode=PaddingMode.UNDETERMINED, traversal_steps=None" "the array as tiles of one shape";
    ArrayRawMemory = ArrayMethod "get_raw_memory" "" "the array's memory by element offset";

    ViewNumTiles = ViewMethod "num_tiles" "axis" "number of tiles along an axis";
    ViewLoad = ViewMethod "load" "index, *, check_bounds=True, latency=None, allow_tma=None" "loads a tile";
    ViewStore = ViewMethod "store" "index, tile, *, check_bounds=True, latency=None, allow_tma=None" "stores a tile";
    ViewAtomicAdd = ViewMethod "atomic_store_add" "index, update, /" "adds to a tile of memory";
    ViewAtomicMax = ViewMethod "atomic_store_max" "index, update, /" "maximum with a tile of memory";
    ViewAtomicMin = ViewMethod "atomic_store_min" "index, update, /" "minimum with a tile of memory";
    ViewAtomicAnd = ViewMethod "atomic_store_and" "index, update, /" "bitwise and with a tile of memory";
    ViewAtomicOr = ViewMethod "atomic_store_or" "index, update, /" "bitwise or with a tile of memory";
    ViewAtomicXor = ViewMethod "atomic_store_xor" "index, update, /" "bitwise exclusive or with a tile of memory";

    RawLoad = RawMethod "load_offset" "offset, /, *, mask=None, padding_value=0, latency=None" "loads by element offset";
    RawStore = RawMethod "store_offset" "offset, value, /, *, mask=None, latency=None" "stores by element offset";
    RawCas = RawMethod "atomic_cas_offset" "offset, expected, desired, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "compares and swaps by element offset";
    RawXchg = RawMethod "atomic_xchg_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "exchanges by element offset";
    RawAdd = RawMethod "atomic_add_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "adds by element offset";
    RawMax = RawMethod "atomic_max_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "maximum by element offset";
    RawMin = RawMethod "atomic_min_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "minimum by element offset";
    RawAnd = RawMethod "atomic_and_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise and by element offset";
    RawOr = RawMethod "atomic_or_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise or by element offset";
    RawXor = RawMethod "atomic_xor_offset" "offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE" "bitwise exclusive or by element offset";

    PyLen = Python "len" "x, /" "number of items";
    PyRange = Python "range" "*args" "integers at equal distance";
    PyMin = Python "min" "*args" "smallest of its arguments";
    PyMax = Python "max" "*args" "largest of its arguments";
    PySum = Python "sum" "items, /, start=0" "sum of a compile-time sequence";
    PyAbs = Python "abs" "x, /" "absolute value";
    PyPow = Python "pow" "x, y, /" "power";
    PyDivMod = Python "divmod" "x, y, /" "quotient rounded down and remainder";
    PyRound = Python "round" "x, /" "a compile-time number to the nearest integer";
    PyInt = Python "int" "x=0, /" "an integer";
    PyFloat = Python "float" "x=0, /" "a float";
    PyBool = Python "bool" "x=False, /" "a truth value";
    PyStr = Python "str" "x='', /" "the text of a compile-time value";
    PyTuple = Python "tuple" "items=(), /" "a tuple of a compile-time sequence";
    PyList = Python "list" "items=(), /" "a list of a compile-time sequence";
    PyEnumerate = Python "enumerate" "items, /, start=0" "pairs of index and item";
    PyZip = Python "zip" "*args" "tuples of items at one position";
    PyReversed = Python "reversed" "items, /" "a compile-time sequence from its end";
    PyAll = Python "all" "items, /" "true when every item of a compile-time sequence is";
    PyAny = Python "any" "items, /" "true when an item of a compile-time sequence is";
    PyIsInstance = Python "isinstance" "x, classes, /" "true when the value is of a class";
    PyPrint = Python "print" "*args, sep=' ', end='\\n'" "prints";
    PyGetAttr = Python "getattr" "x, name, /" "an attribute by its name";
    PySlice = Python "slice" "start, stop, step, /" "a subscript slice";
    RevealType = Python "reveal_type" "x, /" "reports the type of its argument, for tests";

    OperatorGetItem = Operator "getitem" "x, index, /" "an item";
    OperatorIs = Operator "is_" "x, y, /" "`is`";
    OperatorIsNot = Operator "is_not" "x, y, /" "`is not`";
    OperatorNot = Operator "not_" "x, /" "`not`";

    MathSqrt = Math "sqrt" "x, /" "square root";
    MathExp = Math "exp" "x, /" "e to a power";
    MathLog = Math "log" "x, base=None, /" "logarithm";
    MathLog2 = Math "log2" "x, /" "logarithm to base 2";
    MathLog10 = Math "log10" "x, /" "logarithm to base 10";
    MathPow = Math "pow" "x, y, /" "power";
    MathFloor = Math "floor" "x, /" "round down";
    MathCeil = Math "ceil" "x, /" "round up";
    MathFabs = Math "fabs" "x, /" "absolute value";
    MathSin = Math "sin" "x, /" "sine";
    MathCos = Math "cos" "x, /" "cosine";
    MathTanh = Math "tanh" "x, /" "hyperbolic tangent";
    MathGcd = Math "gcd" "x, y, /" "greatest common divisor";
    MathProd = Math "prod" "items, /" "product of a compile-time sequence";
    MathIsInf = Math "isinf" "x, /" "true for an infinity";
    MathIsNan = Math "isnan" "x, /" "true for not a number";
}

/// Members of the enumerations.
pub(crate) const ENUMS: &[(&str, &[&str])] = &[
    ("PaddingMode", &["UNDETERMINED", "ZERO", "NEG_ZERO", "NAN", "POS_INF", "NEG_INF"]),
    ("RoundingMode", &["RN", "RZ", "RM", "RP", "RA", "FULL", "APPROX", "RZI"]),
    ("MemoryOrder", &["WEAK", "RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL"]),
    ("MemoryScope", &["NONE", "BLOCK", "DEVICE", "SYS"]),
];

/// The static names of an enumeration member.
pub(crate) fn enum_member(kind: &str, member: &str) -> Option<(&'static str, &'static str)> {
    let (kind, members) = ENUMS.iter().find(|(name, _)| *name == kind)?;
    members.iter().find(|name| **name == member).map(|name| (*kind, *name))
}

/// Classes of `cuda.tile` and Python that `isinstance` and annotations name.
pub(crate) const CLASSES: &[&str] = &["Array", "Tile", "TiledView", "Scalar", "DType", "RawArrayMemory"];

/// Exceptions that `static_exception` takes.
pub(crate) const EXCEPTIONS: &[&str] = &[
    "ValueError",
    "TypeError",
    "RuntimeError",
    "AssertionError",
    "NotImplementedError",
    "Exception",
    "IndexError",
    "KeyError",
    "AttributeError",
    "ArithmeticError",
    "OverflowError",
    "ZeroDivisionError",
    "LookupError",
];

/// Functions of Python's `operator` module and the row that means the same.
pub(crate) const OPERATORS: &[(&str, Builtin)] = &[
    ("add", Builtin::Add),
    ("sub", Builtin::Sub),
    ("mul", Builtin::Mul),
    ("truediv", Builtin::TrueDiv),
    ("floordiv", Builtin::FloorDiv),
    ("mod", Builtin::Mod),
    ("pow", Builtin::Pow),
    ("and_", Builtin::BitAnd),
    ("or_", Builtin::BitOr),
    ("xor", Builtin::BitXor),
    ("lshift", Builtin::ShiftLeft),
    ("rshift", Builtin::ShiftRight),
    ("eq", Builtin::Equal),
    ("ne", Builtin::NotEqual),
    ("lt", Builtin::Less),
    ("le", Builtin::LessEqual),
    ("gt", Builtin::Greater),
    ("ge", Builtin::GreaterEqual),
    ("neg", Builtin::Negative),
    ("invert", Builtin::BitNot),
    ("matmul", Builtin::MatMul),
];

/// Public names of `cuda.tile` 1.7.0 that kernels can't use, with the reason.
pub const REFUSED: &[(&str, &str)] = &[
    ("foreign_pointer_dtype", "pointers to foreign code have no meaning where a kernel may run on a CPU"),
    ("float8_e5m3fnu", "the format is not in the OCP specifications that the toolkit implements"),
    ("launch", "kernels are launched by the program, not by kernels"),
    ("compiler_timeout", "compilation is bounded by fixed limits"),
    ("tune", "tuning is done by the toolkit's tuner"),
    ("compilation", "the compiler is not called from kernels"),
    ("jax", "host-side integration"),
    ("TileCompilerExecutionError", "host-side exception"),
    ("TileCompilerTimeoutError", "host-side exception"),
    ("TileError", "host-side exception"),
    ("TileInternalError", "host-side exception"),
    ("TileRecursionError", "host-side exception"),
    ("TileStaticAssertionError", "host-side exception"),
    ("TileStaticEvalError", "host-side exception"),
    ("TileSyntaxError", "host-side exception"),
    ("TileTypeError", "host-side exception"),
    ("TileUnsupportedFeatureError", "host-side exception"),
    ("TileValueError", "host-side exception"),
    ("StaticException", "host-side exception"),
];
