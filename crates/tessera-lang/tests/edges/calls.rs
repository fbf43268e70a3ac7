//! Calls near the edge of each built-in's rules: a call that is right, and the same with one argument changed, left out, added, or given in
//! another way. What an argument is tried with follows from its parameter's name in the built-in table.

use tessera_lang::{Builtin, Space};

/// Element types as they are written.
pub(crate) const DTYPES: &[&str] = &[
    "bool_",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "tfloat32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
];

/// The arguments of a right call, in the order of the row's signature; an empty text leaves the default.
const BASES: &[(Space, &str, &[&str])] = &[
    (Space::Tile, "bid", &["0"]),
    (Space::Tile, "num_blocks", &["1"]),
    (Space::Tile, "num_tiles", &["m", "0", "(4, 8)"]),
    (Space::Tile, "assume_divisible_by", &["n", "16"]),
    (Space::Tile, "load", &["m", "(0, 0)", "(4, 8)"]),
    (Space::Tile, "store", &["m", "(0, 0)", "ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "load_advanced_indexing", &["m", "(ct.arange(4, dtype=ct.int32), ct.Slice(0, 8))"]),
    (
        Space::Tile,
        "store_advanced_indexing",
        &["m", "(ct.arange(4, dtype=ct.int32), ct.Slice(0, 8))", "ct.zeros((4, 8), ct.float32)"],
    ),
    (Space::Tile, "gather", &["x", "ct.arange(8, dtype=ct.int32)"]),
    (Space::Tile, "scatter", &["x", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.float32)"]),
    (Space::Tile, "Slice", &["0", "8"]),
    (Space::Tile, "atomic_cas", &["q", "ct.arange(8, dtype=ct.int32)", "0", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_xchg", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_add", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_max", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_min", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_and", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_or", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "atomic_xor", &["q", "ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Tile, "arange", &["8", "ct.int32", "", ""]),
    (Space::Tile, "full", &["(4, 8)", "3", "ct.float32"]),
    (Space::Tile, "zeros", &["(4, 8)", "ct.float32"]),
    (Space::Tile, "ones", &["(4, 8)", "ct.float32"]),
    (Space::Tile, "astile", &["((1, 2), (3, 4))", "ct.float32"]),
    (Space::Tile, "reshape", &["ct.zeros((4, 8), ct.float32)", "(8, 4)"]),
    (Space::Tile, "permute", &["ct.zeros((4, 8), ct.float32)", "(1, 0)"]),
    (Space::Tile, "transpose", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "expand_dims", &["ct.zeros((4, 8), ct.float32)", "0"]),
    (Space::Tile, "broadcast_to", &["ct.zeros((1, 8), ct.float32)", "(4, 8)"]),
    (Space::Tile, "cat", &["(ct.zeros((4, 8), ct.float32), ct.ones((4, 8), ct.float32))", "1"]),
    (Space::Tile, "extract", &["ct.zeros((4, 8), ct.float32)", "(0, 1)", "(2, 4)"]),
    (Space::Tile, "insert", &["ct.zeros((4, 8), ct.float32)", "(0, 1)", "ct.ones((2, 4), ct.float32)"]),
    (Space::Tile, "mma", &["ct.zeros((16, 32), ct.float16)", "ct.zeros((32, 8), ct.float16)", "ct.zeros((16, 8), ct.float32)"]),
    (
        Space::Tile,
        "mma_scaled",
        &[
            "ct.zeros((16, 64), ct.float8_e4m3fn)",
            "ct.ones((16, 2), ct.float8_e8m0fnu)",
            "ct.zeros((64, 8), ct.float8_e4m3fn)",
            "ct.ones((2, 8), ct.float8_e8m0fnu)",
            "ct.zeros((16, 8), ct.float32)",
        ],
    ),
    (Space::Tile, "matmul", &["ct.zeros((16, 32), ct.float16)", "ct.zeros((32, 8), ct.float16)"]),
    (Space::Tile, "sum", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "prod", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "max", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "min", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "argmax", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "argmin", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "reduce", &["ct.zeros((4, 8), ct.float32)", "1", "lambda a, b: a + b", "0"]),
    (Space::Tile, "cumsum", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "cumprod", &["ct.zeros((4, 8), ct.float32)", "1"]),
    (Space::Tile, "scan", &["ct.zeros((4, 8), ct.float32)", "1", "lambda a, b: a + b", "0"]),
    (Space::Tile, "add", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "sub", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "mul", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "truediv", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "floordiv", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "mod", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "divmod", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "pow", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "cdiv", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "minimum", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "maximum", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "atan2", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "bitwise_and", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "bitwise_or", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "bitwise_xor", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "bitwise_lshift", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "bitwise_rshift", &["ct.zeros((4, 8), ct.int32)", "ct.ones((4, 8), ct.int32)"]),
    (Space::Tile, "equal", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "not_equal", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "less", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "less_equal", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "greater", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "greater_equal", &["ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "where", &["ct.zeros((4, 8), ct.bool_)", "ct.zeros((4, 8), ct.float32)", "ct.ones((4, 8), ct.float32)"]),
    (Space::Tile, "negative", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "bitwise_not", &["ct.zeros((4, 8), ct.int32)"]),
    (Space::Tile, "abs", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "exp", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "exp2", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "log", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "log2", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "sqrt", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "rsqrt", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "sin", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "cos", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "tan", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "sinh", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "cosh", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "tanh", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "floor", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "ceil", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "isnan", &["ct.zeros((4, 8), ct.float32)"]),
    (Space::Tile, "astype", &["ct.zeros((4, 8), ct.float32)", "ct.float16"]),
    (Space::Tile, "bitcast", &["ct.zeros((4, 8), ct.float32)", "ct.int32"]),
    (Space::Tile, "pack_to_bytes", &["ct.zeros(8, ct.float32)"]),
    (Space::Tile, "unpack_from_bytes", &["ct.zeros(16, ct.uint8)", "ct.float32"]),
    (Space::Tile, "static_eval", &["N + 1"]),
    (Space::Tile, "static_assert", &["N == 16", "\"message\""]),
    (Space::Tile, "ensure_constant", &["N"]),
    (Space::Tile, "printf", &["\"%d\"", "n"]),
    (Space::Tile, "print", &["n"]),
    (Space::Tile, "assert_", &["n > 0", "\"message\""]),
    (Space::Tile, "grid_dependency_control_wait", &[]),
    (Space::Tile, "grid_dependency_control_launch_dependents", &[]),
    (Space::TileMethod, "item", &[]),
    (Space::TileMethod, "reshape", &["(8, 4)"]),
    (Space::TileMethod, "permute", &["(1, 0)"]),
    (Space::TileMethod, "transpose", &["0", "1"]),
    (Space::TileMethod, "astype", &["ct.float16"]),
    (Space::TileMethod, "extract", &["(0, 1)", "(2, 4)"]),
    (Space::TileMethod, "insert", &["(0, 1)", "ct.ones((2, 4), ct.float32)"]),
    (Space::ArrayMethod, "slice", &["0", "2", "6"]),
    (Space::ArrayMethod, "tiled_view", &["(4, 8)"]),
    (Space::ArrayMethod, "get_raw_memory", &[]),
    (Space::ViewMethod, "num_tiles", &["0"]),
    (Space::ViewMethod, "load", &["(0, 0)"]),
    (Space::ViewMethod, "store", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_add", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_max", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_min", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_and", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_or", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::ViewMethod, "atomic_store_xor", &["(0, 0)", "ct.zeros((4, 8), ct.int32)"]),
    (Space::RawMethod, "load_offset", &["ct.arange(8, dtype=ct.int32)"]),
    (Space::RawMethod, "store_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_cas_offset", &["ct.arange(8, dtype=ct.int32)", "0", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_xchg_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_add_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_max_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_min_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_and_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_or_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::RawMethod, "atomic_xor_offset", &["ct.arange(8, dtype=ct.int32)", "ct.zeros(8, ct.int32)"]),
    (Space::Python, "len", &["(1, n)"]),
    (Space::Python, "min", &["n", "3"]),
    (Space::Python, "max", &["n", "3"]),
    (Space::Python, "abs", &["n"]),
    (Space::Python, "pow", &["f", "2.0"]),
    (Space::Python, "divmod", &["n", "3"]),
    (Space::Python, "int", &["2.5"]),
    (Space::Python, "float", &["2"]),
    (Space::Python, "str", &["N"]),
    (Space::Python, "tuple", &["(1, n)"]),
    (Space::Python, "isinstance", &["n", "ct.Scalar"]),
    (Space::Python, "slice", &["0", "1", "1"]),
    (Space::Python, "print", &["n"]),
];

/// Rows without calls of their own here, with the reason.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[
    ("static_iter", "stands in `for` alone: see the statements"),
    ("static_exception", "stands behind `raise` alone: see the statements"),
    ("range", "see the statements"),
    ("reveal_type", "a function of the tests"),
    ("bool", "as a truth test: see the operators"),
    ("getattr", "gives what it is asked for by name: see the language's tests"),
];

/// Functions of Python that NVIDIA's front end has in `static_eval` alone, and this one everywhere, on what is known when a kernel is compiled.
pub(crate) const OURS: &[&str] = &["sum", "round", "list", "enumerate", "zip", "reversed", "all", "any"];

/// What a parameter is tried with, by its name.
fn alternatives(row: &str, param: &str, base: &str) -> Vec<String> {
    let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    match param {
        "axis" | "axis0" | "axis1" => texts(&[
            "0",
            "1",
            "-1",
            "-2",
            "-3",
            "2",
            "3",
            "None",
            "True",
            "1.0",
            "n",
            "u",
            "N",
            "(0,)",
            "(0, 1)",
            "(1, 0)",
            "(0, 0)",
            "(0, -2)",
            "()",
            "\"0\"",
            "ct.int32(0)",
            "ct.uint8(1)",
            "ct.zeros(2, ct.int32)",
        ]),
        "shape" | "tile_shape" | "size" | "traversal_steps" => texts(&[
            "(4, 8)",
            "(8, 4)",
            "(32,)",
            "32",
            "(2, 2, 8)",
            "()",
            "(0, 8)",
            "(-1, 8)",
            "(4, -1)",
            "(-1, -1)",
            "(3, 8)",
            "(4, 8.0)",
            "8.0",
            "n",
            "(n, 8)",
            "(u, 8)",
            "None",
            "\"s\"",
            "(True, 8)",
            "(1 << 20, 1 << 20)",
            "(N, 2)",
            "(ct.int32(4), 8)",
            "(4, None)",
            "(1, 4, 8, 1)",
            "m.shape",
            "0",
            "-8",
            "1",
            "16",
        ]),
        "axes" => texts(&[
            "(1, 0)",
            "(0, 1)",
            "(-1, 0)",
            "(0, 0)",
            "(0,)",
            "(0, 1, 2)",
            "(0, 2)",
            "0",
            "None",
            "(n, 0)",
            "(True, 0)",
            "\"C\"",
            "(1.0, 0)",
        ]),
        "dtype" => {
            let mut list: Vec<String> = DTYPES.iter().map(|name| format!("ct.{name}")).collect();
            list.extend(texts(&["x.dtype", "float", "int", "bool", "\"float32\"", "None", "3", "ct.Tile", "N", "ct.float32(1)"]));
            list
        }
        "index" => texts(&[
            "0",
            "(0,)",
            "(0, 0)",
            "(0, 0, 0)",
            "n",
            "(n, 0)",
            "(n, n)",
            "(w, 0)",
            "(u, 0)",
            "(f, 0)",
            "(1.0, 0)",
            "1.0",
            "None",
            "(None, 0)",
            "(-1, 0)",
            "(True, 0)",
            "(p, 0)",
            "(ct.int64(0), 0)",
            "(ct.uint8(0), 0)",
            "(ct.zeros(4, ct.int32), 0)",
            "\"s\"",
            "()",
            "(1 << 40, 0)",
            "((0, 0), 0)",
            "(m, 0)",
        ]),
        "indices" | "offset" => texts(&[
            "0",
            "n",
            "w",
            "u",
            "f",
            "p",
            "-1",
            "1.5",
            "None",
            "True",
            "()",
            "(0,)",
            "(0, 0)",
            "(n, n)",
            "(0, 0, 0)",
            "ct.arange(8, dtype=ct.int64)",
            "ct.arange(8, dtype=ct.uint32)",
            "ct.arange(8, dtype=ct.uint8)",
            "ct.arange(8, dtype=ct.int8)",
            "ct.arange(8, dtype=ct.float32)",
            "ct.zeros(8, ct.bool_)",
            "(ct.arange(8, dtype=ct.int32),)",
            "ct.zeros((4, 8), ct.int32)",
            "ct.zeros((), ct.int32)",
            "ct.zeros(4, ct.int32)",
            "(ct.arange(4, dtype=ct.int32)[:, None], ct.arange(8, dtype=ct.int32)[None, :])",
            "(ct.arange(4, dtype=ct.int32), 0)",
            "(ct.arange(4, dtype=ct.int32), ct.arange(8, dtype=ct.int32))",
            "(ct.Slice(0, 4), ct.Slice(0, 8))",
            "(ct.Slice(n, 4), ct.arange(8, dtype=ct.int64))",
            "(ct.Slice(0, 3), ct.arange(8, dtype=ct.int32))",
            "(ct.arange(4, dtype=ct.uint32), ct.Slice(0, 8))",
            "(ct.arange(4, dtype=ct.int32), ct.Slice(u, 8))",
            "m",
            "\"s\"",
        ]),
        "order" => texts(&[
            "\"C\"",
            "\"F\"",
            "\"A\"",
            "(0, 1)",
            "(1, 0)",
            "(-1, 0)",
            "(0, 0)",
            "(0,)",
            "None",
            "n",
            "(n, 0)",
            "0",
            "(0, 1, 2)",
        ]),
        "padding_mode" => {
            let mut list: Vec<String> = ["UNDETERMINED", "ZERO", "NEG_ZERO", "NAN", "POS_INF", "NEG_INF", "ONE"]
                .map(|m| format!("ct.PaddingMode.{m}"))
                .into();
            list.extend(texts(&["None", "0", "\"ZERO\"", "\"ONE\"", "ct.RoundingMode.RN", "n"]));
            list
        }
        "rounding_mode" => {
            let mut list: Vec<String> =
                ["RN", "RZ", "RM", "RP", "RA", "FULL", "APPROX", "RZI"].map(|m| format!("ct.RoundingMode.{m}")).into();
            list.extend(texts(&["None", "\"RZ\"", "0", "ct.PaddingMode.ZERO", "True"]));
            list
        }
        "memory_order" => {
            let mut list: Vec<String> =
                ["WEAK", "RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL", "SEQ"].map(|m| format!("ct.MemoryOrder.{m}")).into();
            list.extend(texts(&["None", "\"RELAXED\"", "0"]));
            list
        }
        "memory_scope" => {
            let mut list: Vec<String> =
                ["NONE", "BLOCK", "DEVICE", "SYS", "CLUSTER"].map(|m| format!("ct.MemoryScope.{m}")).into();
            list.extend(texts(&["None", "\"DEVICE\"", "0"]));
            list
        }
        "keepdims" | "check_bounds" | "allow_tma" | "flush_to_zero" | "propagate_nan" | "use_fast_acc" | "reverse" => {
            texts(&["True", "False", "None", "0", "1", "p", "n > 0", "\"True\"", "N == 16", "1.0"])
        }
        "latency" => texts(&["None", "1", "10", "0", "11", "-1", "5.0", "n", "True", "\"1\"", "ct.int32(3)"]),
        "func" => texts(&[
            "lambda a, b: a + b",
            "lambda a: a",
            "lambda a, b, c: a",
            "lambda a, b: 1",
            "lambda a, b: 1.5",
            "lambda a, b: (a, b)",
            "lambda a, b: None",
            "lambda a, b: a > b",
            "lambda a, b: a.astype(ct.float16)",
            "ct.add",
            "ct.maximum",
            "max",
            "ct.exp",
            "operator.add",
            "operator.mul",
            "None",
            "3",
            "ct.float32",
            "lambda a, b: a if a > b else b",
            "lambda a, b: ct.load(m, (0, 0), ())",
            "lambda a, b: ct.sum(ct.zeros(4, ct.float32))",
            "lambda a, b: a + n",
            "lambda a, b: a + f",
            "lambda a, b: ct.zeros(4, ct.float32)",
            "lambda *a: a[0]",
            "lambda a, b=2: a",
        ]),
        "identity" => texts(&[
            "0",
            "1",
            "0.5",
            "-math.inf",
            "math.nan",
            "True",
            "None",
            "n",
            "f",
            "(0,)",
            "(0, 1)",
            "1 << 40",
            "\"0\"",
            "ct.float32(0)",
            "ct.int32(0)",
        ]),
        "array" => texts(&[
            "x",
            "m",
            "c",
            "q",
            "h",
            "e",
            "l",
            "l[0]",
            "n",
            "None",
            "ct.zeros((4, 8), ct.float32)",
            "m.slice(0, 0, 4)",
            "m.shape",
            "\"m\"",
            "m.tiled_view((4, 8))",
        ]),
        "start" | "stop" | "step" | "length" | "divisor" => texts(&[
            "0",
            "1",
            "2",
            "8",
            "-1",
            "3",
            "n",
            "w",
            "u",
            "f",
            "p",
            "2.0",
            "None",
            "True",
            "ct.int64(2)",
            "ct.uint32(2)",
            "ct.uint8(2)",
            "ct.zeros(2, ct.int32)",
            "N",
            "1 << 40",
            "\"2\"",
            "(2,)",
        ]),
        "format" => texts(&[
            "\"%d\"",
            "\"%f\"",
            "\"%s\"",
            "\"%\"",
            "\"%%\"",
            "\"plain\"",
            "\"%d %d\"",
            "\"%5d\"",
            "\"%lld\"",
            "\"%u\"",
            "\"%x\"",
            "\"%5.2d\"",
            "3",
            "None",
            "f\"{N}\"",
            "\"%c\"",
            "\"%e\"",
            "\"%p\"",
        ]),
        "args" => texts(&[
            "n",
            "f",
            "u",
            "w",
            "p",
            "3",
            "2.5",
            "True",
            "None",
            "\"s\"",
            "(n, 1)",
            "m",
            "ct.zeros((4, 8), ct.float16)",
            "ct.zeros(4, ct.float8_e5m2)",
            "ct.float32",
        ]),
        "message" | "sep" | "end" => texts(&["\"s\"", "None", "3", "n", "f\"{N}\"", "f\"{n}\"", "(1, 2)"]),
        "condition" | "cond" if row != "where" => texts(&[
            "True",
            "N == 16",
            "N",
            "1",
            "0",
            "1.0",
            "n",
            "n > 0",
            "p",
            "None",
            "\"s\"",
            "(1,)",
            "ct.zeros(4, ct.bool_) == ct.zeros(4, ct.bool_)",
            "ct.zeros(4, ct.int32)",
            "ct.zeros((4, 8), ct.bool_)",
            "x.dtype == ct.float32",
            "x.ndim == 1",
            "x.dtype",
            "ct.int32(1)",
            "N and True",
            "not N",
        ]),
        "expr" | "classes" => texts(&[
            "N",
            "n",
            "N * 2",
            "x.shape",
            "x.dtype",
            "n + 1",
            "len((1, 2))",
            "[1, 2]",
            "(1, n)",
            "None",
            "int",
            "ct.Tile",
            "ct.Array",
            "(int, float)",
            "ct.Scalar",
            "ct.float32",
        ]),
        _ => operands(base),
    }
}

/// Tiles of every element type in the base's shape, other shapes in its type, scalars, constants, and what is none of these.
fn operands(base: &str) -> Vec<String> {
    let inside = base.strip_prefix("ct.zeros(").or_else(|| base.strip_prefix("ct.ones(")).and_then(|rest| rest.strip_suffix(')'));
    let (shape, dtype) = inside.and_then(|text| text.rsplit_once(", ct.")).unwrap_or(("(4, 8)", "float32"));
    let mut list: Vec<String> = DTYPES.iter().map(|name| format!("ct.zeros({shape}, ct.{name})")).collect();
    for other in ["()", "(1,)", "(8,)", "(4,)", "(4, 1)", "(1, 8)", "(1, 1)", "(2, 4, 8)", "(8, 4)", "(16, 8)", "(1, 4, 8)"] {
        list.push(format!("ct.zeros({other}, ct.{dtype})"));
    }
    let others = [
        "n",
        "w",
        "u",
        "f",
        "p",
        "N",
        "3",
        "-1",
        "0",
        "300",
        "2.5",
        "True",
        "None",
        "\"s\"",
        "(1, 2)",
        "()",
        "(n, n)",
        "((1, n), (2, 3))",
        "m",
        "ct.float32",
        "lambda a: a",
        "ct.int8(3)",
        "ct.float16(2)",
        "ct.bool_(True)",
        "range(3)",
        "1 << 40",
        "1 << 70",
        "math.inf",
        "l",
        "m.shape",
        "ct.Slice(0, 4)",
        "m.tiled_view((4, 8))",
        "ct.PaddingMode.ZERO",
    ];
    list.extend(others.map(str::to_string));
    list
}

/// One group of statements about one row.
pub(crate) struct Group {
    pub(crate) name: String,
    /// The first is right on both sides.
    pub(crate) statements: Vec<String>,
}

fn parameters(signature: &str) -> Vec<(String, bool, bool)> {
    let parts: Vec<&str> = signature.split(", ").filter(|part| !part.is_empty()).collect();
    let slash = parts.iter().position(|part| *part == "/");
    let star = parts.iter().position(|part| part.starts_with('*'));
    let mut list = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if matches!(*part, "/" | "*") {
            continue;
        }
        let name = part.split('=').next().unwrap_or(part).trim_start_matches('*').to_string();
        let keyword_only = star.is_some_and(|star| at > star);
        list.push((name, slash.is_some_and(|slash| at < slash), keyword_only));
    }
    list
}

/// The groups of all rows of the built-in table.
pub(crate) fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for builtin in Builtin::ALL {
        let row = builtin.row();
        let is_elsewhere = ELSEWHERE.iter().any(|(name, _)| *name == row.name)
            || matches!(row.space, Space::Math | Space::Operator | Space::OwnTile);
        if is_elsewhere || row.space == Space::Python && OURS.contains(&row.name) {
            continue;
        }
        let base = BASES.iter().find(|(space, name, _)| *space == row.space && *name == row.name);
        let (_, _, args) = base.unwrap_or_else(|| panic!("`{}` has no call in the table of right calls", row.name));
        let (setup, callee) = match row.space {
            Space::Tile => ("", format!("ct.{}", row.name)),
            Space::TileMethod if row.name == "item" => ("", format!("ct.zeros((1,), ct.float32).{}", row.name)),
            Space::TileMethod => ("", format!("ct.zeros((4, 8), ct.float32).{}", row.name)),
            Space::ArrayMethod => ("", format!("m.{}", row.name)),
            Space::ViewMethod => ("v = qq.tiled_view((4, 8))\n", format!("v.{}", row.name)),
            Space::RawMethod => ("g = q.get_raw_memory()\n", format!("g.{}", row.name)),
            Space::Python | Space::Math | Space::Operator | Space::OwnTile => ("", row.name.to_string()),
        };
        let params = parameters(row.signature);
        let call = |values: &[(Option<String>, String)]| {
            let texts: Vec<String> =
                values.iter().map(|(name, text)| name.as_ref().map_or(text.clone(), |name| format!("{name}={text}"))).collect();
            format!("{setup}r = {callee}({})", texts.join(", "))
        };
        let given: Vec<(usize, Option<String>, String)> = args
            .iter()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
            .map(|(at, text)| {
                let (name, _, keyword_only) = &params[at.min(params.len().max(1) - 1)];
                (at, keyword_only.then(|| name.clone()), text.to_string())
            })
            .collect();
        let values = |given: &[(usize, Option<String>, String)]| -> Vec<(Option<String>, String)> {
            given.iter().map(|(_, name, text)| (name.clone(), text.clone())).collect()
        };
        let mut statements = vec![call(&values(&given))];
        for (at, (name, positional_only, _)) in params.iter().enumerate() {
            let place = given.iter().position(|(own, ..)| *own == at);
            let base = place.map_or("ct.zeros((4, 8), ct.float32)", |place| &given[place].2);
            for alternative in alternatives(row.name, name, base) {
                let mut changed = values(&given);
                match place {
                    Some(place) => changed[place].1 = alternative,
                    None => changed.push((Some(name.clone()), alternative)),
                }
                statements.push(call(&changed));
            }
            if let Some(place) = place {
                let mut without = values(&given);
                without.remove(place);
                statements.push(call(&without));
                let mut named = values(&given);
                let _ = positional_only;
                named[place].0 = Some(name.clone());
                let moved = named.remove(place);
                named.push(moved);
                statements.push(call(&named));
            }
        }
        let mut more = values(&given);
        more.push((Some("bogus".to_string()), "1".to_string()));
        statements.push(call(&more));
        let mut more = values(&given);
        let at = more.iter().position(|(name, _)| name.is_some()).unwrap_or(more.len());
        more.insert(at, (None, "0".to_string()));
        statements.push(call(&more));
        let mut seen = std::collections::BTreeSet::new();
        statements.retain(|statement| seen.insert(statement.clone()));
        let space = format!("{:?}", row.space).to_lowercase();
        groups.push(Group { name: format!("{space}.{}", row.name), statements });
    }
    groups
}
