"""Expressions of the language and what NumPy makes of them."""
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass
class Case:
    """Lines of code, the last one an expression; its value, with NumPy's type and shape; how far off it may be."""
    code: str
    want: np.ndarray
    tolerance: float


random = np.random.default_rng(11)
N = 64


def floats(*shape):
    return random.standard_normal(shape, dtype=np.float32)


def integers(low, high, dtype, *shape):
    return random.integers(low, high, shape).astype(dtype)


EDGE = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.4e38, -3.4e38, 1.2e-38, 1, -1, 0.5, -88.5, 88.5, 1e10],
     np.float32)
INPUTS = {
    "x": floats(N) * 3, "y": floats(N), "p": np.abs(floats(N)) + np.float32(0.1), "h": floats(N).astype(np.float16),
    "d": random.standard_normal(N), "i": integers(-1000, 1000, np.int32, N), "j": integers(1, 50, np.int32, N),
    "s": integers(0, 31, np.int32, N), "u": integers(0, 2**32, np.uint32, N), "us": integers(0, 31, np.uint32, N),
    "b": integers(-128, 128, np.int8, N), "c": integers(-128, 128, np.int8, N), "l": integers(-2**60, 2**60, np.int64, N),
    "w": integers(0, 256, np.uint8, N), "m": floats(8, 16), "n": floats(16, 8), "g": integers(-9, 9, np.int32, 8, 16),
    "t": floats(2, 4, 8), "v": floats(2, 8, 4), "q": np.where(np.arange(N) % 5 == 0, np.nan, floats(N)).astype(np.float32),
    "ties": integers(0, 3, np.int32, 8, 16), "big": floats(64, 128), "long": integers(-2**31, 2**31, np.int32, 4096),
         "edge": EDGE,
}
x, y, p, h, d, i, j, s, u, us, b, c, l, w, m, n, g, t, v, q, ties, big, long, edge = INPUTS.values()

HELPERS = """
def clamp(value, low, high):
    if value < low:
        return low
    elif value > high:
        return high
    return value


def outer(by):
    def inner(value):
        return value * by
    return inner
"""

GROUPS = {}


def case(group, code, want, tolerance=0.0):
    GROUPS.setdefault(group, []).append(Case(code, np.asarray(want), tolerance))


f32, f64, i32 = np.float32, np.float64, np.int32
x64, y64, p64, m64, n64 = (a.astype(f64) for a in (x, y, p, m, n))

# Arithmetic: operators, functions, broadcasting, promotion, wrapping.
for code, want in [
    ("x + y", x + y), ("x - y", x - y), ("x * y", x * y), ("x / p", x / p), ("ct.add(x, y)", x + y),
    ("ct.sub(x, 2.5)", x - f32(2.5)),
    ("ct.mul(3, x)", f32(3) * x), ("ct.truediv(x, p)", x / p), ("-x", -x), ("ct.negative(i)", -i), ("abs(x)", abs(x)),
    ("ct.abs(i)", abs(i)),
    ("i + j", i + j), ("i - 5", i - i32(5)), ("i * j", i * j), ("i // j", i // j), ("i % j", i % j), ("i // -j", i // -j),
    ("i % -j", i % -j),
    ("ct.floordiv(i, 7)", i // i32(7)), ("ct.mod(i, 7)", i % i32(7)), ("ct.cdiv(j, 8)", -(-j // i32(8))),
    ("i / j", (i.astype(f64) / j).astype(f32)),
    ("x // p", np.floor(x / p)), ("ct.divmod(i, j)[0]", i // j), ("ct.divmod(i, j)[1]", i % j), ("divmod(i, j)[1]", i % j),
    ("ct.minimum(x, y)", np.minimum(x, y)), ("ct.maximum(i, j)", np.maximum(i, j)), ("min(x, y)", np.minimum(x, y)),
    ("max(i, 3)", np.maximum(i, 3)),
    ("b + c", b + c), ("b * c", b * c), ("-b", -b), ("u * u", u * u), ("u - 1", u - np.uint32(1)), ("l * l", l * l),
    ("u // 7", u // np.uint32(7)),
    ("u % 7", u % np.uint32(7)), ("w + w", w + w), ("b + i", b.astype(i32) + i), ("i + l", i + l), ("i + x", i.astype(f32) + x),
    ("h + x", h.astype(f32) + x),
    ("x + d", x.astype(f64) + d), ("h + 1.5", h + np.float16(1.5)), ("h * h", h * h), ("i + 0.5", i.astype(f32) + f32(0.5)),
    ("w + u", w.astype(np.uint32) + u),
    ("(x > 0) + i", (x > 0).astype(i32) + i), ("x + (i > 0)", x + (i > 0).astype(f32)), ("1 - x", f32(1) - x),
    ("2.0 / p", f32(2) / p),
    ("m + ct.load(M, (0, 0), (1, 16))", m + m[:1]), ("ct.load(M, (0, 0), (8, 1)) * m", m[:, :1] * m),
    ("ct.load(M, (0, 0), (8, 1)) - ct.load(M, (0, 0), (1, 16))", m[:, :1] - m[:1]), ("ct.load(N, (0, 0), (1, 8)) + t", n[:1] + t),
    ("ct.add(x, y, rounding_mode=ct.RoundingMode.RN)", x + y), ("x * y + x", (x.astype(f64) * y + x).astype(f32)),
    ("x * y - x", (x.astype(f64) * y - x).astype(f32)),
]:
    case("arith", code, want)
for code, want in [("x ** 2", x64 ** 2), ("p ** y", p64 ** y64), ("ct.pow(p, 0.5)", p64 ** 0.5), ("2.0 ** y", 2.0 ** y64)]:
    case("arith", code, want.astype(f32), 2e-6)
case("arith", "x % p", (x64 - np.floor(x64 / p64) * p64).astype(f32), 1e-6)

# Directed rounding: of the sums in f64, which are exact.
down, up = np.nextafter(x + y, f32(-np.inf)), np.nextafter(x + y, f32(np.inf))
exact = x64 + y64
floor_sum = np.where((x + y).astype(f64) > exact, down, x + y)
ceil_sum = np.where((x + y).astype(f64) < exact, up, x + y)
case("rounding", "ct.add(x, y, rounding_mode=ct.RoundingMode.RM)", floor_sum)
case("rounding", "ct.add(x, y, rounding_mode=ct.RoundingMode.RP)", ceil_sum)
case("rounding", "ct.add(x, y, rounding_mode=ct.RoundingMode.RZ)", np.where(exact > 0, floor_sum, ceil_sum))
case("rounding", "ct.mul(x * 1e-30, 1e-12, flush_to_zero=True) * 0.0 + 1.0", np.ones(N, f32))
case("rounding", "abs(ct.mul(p * 1e-30, 1e-10, flush_to_zero=True))", np.zeros(N, f32))

# Comparisons, bits, choices.
for name, symbol in [("equal", "=="), ("not_equal", "!="), ("less", "<"), ("less_equal", "<="), ("greater", ">"),
     ("greater_equal", ">=")]:
    f = getattr(np, name)
    case("compare", f"x {symbol} y", f(x, y))
    case("compare", f"ct.{name}(b, c)", f(b, c))
    case("compare", f"q {symbol} q", f(q, q))
    case("compare", f"u {symbol} 0x80000000", f(u, np.uint32(0x80000000)))
for name, symbol, f in [("and", "&", np.bitwise_and), ("or", "|", np.bitwise_or), ("xor", "^", np.bitwise_xor)]:
    case("bits", f"i {symbol} j", f(i, j))
    case("bits", f"ct.bitwise_{name}(u, 0xff)", f(u, np.uint32(0xFF)))
    case("bits", f"(x > 0) {symbol} (y > 0)", f(x > 0, y > 0))
for code, want in [
    ("i << s", i << s), ("i >> s", i >> s), ("u << us", u << us), ("u >> us", u >> us), ("ct.bitwise_lshift(i, 3)", i << 3),
    ("ct.bitwise_rshift(i, 3)", i >> 3),
    ("ct.bitwise_rshift(b, 2)", b >> 2), ("~i", ~i), ("ct.bitwise_not(u)", ~u), ("~(x > 0)", ~(x > 0)),
    ("ct.where(x > y, x, y)", np.where(x > y, x, y)),
    ("ct.where(i > 0, 1.0, x)", np.where(i > 0, f32(1), x)), ("ct.where(x > 0, i, 0)", np.where(x > 0, i, 0).astype(i32)),
    ("ct.where(ct.load(M, (0, 0), (8, 1)) > 0, m, -1.0)", np.where(m[:, :1] > 0, m, f32(-1))),
    ("ct.isnan(q)", np.isnan(q)), ("ct.minimum(q, x)", np.fmin(q, x)), ("ct.maximum(q, x, propagate_nan=True)", np.maximum(q, x)),
]:
    case("bits", code, want)

# Functions: within a few units of the last place of f32; of f16 and f64 too.
for name, argument, f in [
    ("exp", "x", np.exp), ("exp2", "x", np.exp2), ("log", "p", np.log), ("log2", "p", np.log2), ("sqrt", "p", np.sqrt),
    ("rsqrt", "p", lambda a: 1 / np.sqrt(a)),
    ("sin", "x", np.sin), ("cos", "x", np.cos), ("tan", "y", np.tan), ("sinh", "y", np.sinh), ("cosh", "y", np.cosh),
    ("tanh", "x", np.tanh),
    ("floor", "x", np.floor), ("ceil", "x", np.ceil), ("abs", "x", np.abs),
]:
    value = INPUTS[argument]
    tolerance = 0.0 if name in ("floor", "ceil", "abs") else 2e-6
    case("maths", f"ct.{name}({argument})", f(value.astype(f64)).astype(f32), tolerance)
    narrow = np.abs(h) + np.float16(0.1)
    case("maths16", f"ct.{name}(abs(h) + 0.1)", f(narrow.astype(f64)).astype(np.float16), 0.0 if tolerance == 0 else 4e-3)
    case("maths64", f"ct.{name}(abs(d) + 0.1)", f(np.abs(d) + 0.1), 0.0 if tolerance == 0 else 1e-14)
case("maths", "ct.atan2(x, y)", np.arctan2(x64, y64).astype(f32), 2e-6)
case("maths", "ct.sqrt(p)", np.sqrt(p))
case("maths", "ct.exp(x, rounding_mode=ct.RoundingMode.APPROX)", np.exp(x64).astype(f32), 1e-5)
case("maths", "ct.tanh(x, rounding_mode=ct.RoundingMode.FULL)", np.tanh(x64).astype(f32), 1e-5)
case("maths", "ct.exp2(x, flush_to_zero=True)", np.exp2(x64).astype(f32), 2e-6)

# Reductions and scans.
for axis in [None, 0, 1, -1]:
    for keep in [False, True]:
        tail = f"axis={axis}, keepdims={keep}"
        case("reduce", f"ct.sum(g, {tail})", g.sum(axis=axis, keepdims=keep, dtype=i32))
        case("reduce", f"ct.sum(m, {tail})", m64.sum(axis=axis, keepdims=keep).astype(f32), 1e-5)
        case("reduce", f"ct.max(m, {tail})", m.max(axis=axis, keepdims=keep))
        case("reduce", f"ct.min(g, {tail})", g.min(axis=axis, keepdims=keep))
        case("reduce", f"ct.argmax(ties, {tail})", ties.argmax(axis=axis, keepdims=keep).astype(i32))
        case("reduce", f"ct.argmin(m, {tail})", m.argmin(axis=axis, keepdims=keep).astype(i32))
        case("reduce", f"ct.prod(m, {tail})", m64.prod(axis=axis, keepdims=keep).astype(f32), 1e-5)
case("reduce3", "ct.sum(t, axis=(0, 2))", t.astype(f64).sum(axis=(0, 2)).astype(f32), 1e-5)
case("reduce3", "ct.max(t, axis=(1, 2), keepdims=True)", t.max(axis=(1, 2), keepdims=True))
case("reduce3", "ct.min(t, axis=1)", t.min(axis=1))
case("reduce3", "ct.max(q, axis=0)", np.nanmax(q))
case("reduce3", "ct.max(q, axis=0, propagate_nan=True)", np.max(q))
case("reduce3", "ct.reduce(g, 1, lambda a, b: a + b, 0)", g.sum(axis=1, dtype=i32))
case("reduce3", "ct.reduce(m, 0, lambda a, b: max(a, b), -math.inf, keepdims=True)", m.max(axis=0, keepdims=True))
case("reduce3", "ct.reduce(i, 0, operator.xor, 0)", np.bitwise_xor.reduce(i))
case("reduce3", "ct.reduce((i, j), 0, lambda a, b, e, f: (a + e, max(b, f)), (0, 0))[1]", j.max())
case("reduce3", "ct.reduce((i, j), 0, lambda a, b, e, f: (a + e, max(b, f)), (0, 0))[0]", i.sum(dtype=i32))
case("reduce3", "ct.sum(h, axis=0)", h.astype(f64).sum().astype(np.float16), 2e-2)
case("reduce3", "ct.sum(d, axis=0)", d.sum(), 1e-12)
for axis in [0, 1]:
    case("scan", f"ct.cumsum(g, axis={axis})", g.cumsum(axis=axis, dtype=i32))
    case("scan", f"ct.cumsum(m, axis={axis})", m64.cumsum(axis=axis).astype(f32), 1e-5)
    case("scan", f"ct.cumprod(g, axis={axis})", g.cumprod(axis=axis, dtype=i32))
    case("scan", f"ct.cumsum(g, axis={axis}, reverse=True)", np.flip(np.flip(g, axis).cumsum(axis=axis, dtype=i32), axis))
    case("scan", f"ct.scan(g, {axis}, lambda a, b: max(a, b), -100)", np.maximum.accumulate(g, axis=axis))
case("scan", "ct.scan(i, 0, lambda a, b: a ^ b, 0, reverse=True)", np.bitwise_xor.accumulate(i[::-1])[::-1])
case("scan", "ct.scan((i, j), 0, lambda a, b, e, f: (a + e, max(b, f)), (0, 0))[1]", np.maximum.accumulate(j))

# Shapes.
for code, want in [
    ("ct.reshape(m, (4, 32))", m.reshape(4, 32)), ("m.reshape((2, -1, 4))", m.reshape(2, -1, 4)),
    ("ct.permute(t, (2, 0, 1))", t.transpose(2, 0, 1)),
    ("t.permute((1, 2, 0))", t.transpose(1, 2, 0)), ("ct.transpose(m)", m.T), ("m.transpose()", m.T),
    ("ct.transpose(t, 0, 2)", t.swapaxes(0, 2)),
    ("t.transpose(-1, -2)", t.swapaxes(1, 2)), ("ct.expand_dims(x, 0)", x[None]), ("ct.expand_dims(m, -1)", m[..., None]),
    ("x[:, None]", x[:, None]),
    ("x[None, :]", x[None]), ("ct.broadcast_to(x[None, :], (4, 64))", np.broadcast_to(x, (4, 64))),
    ("ct.broadcast_to(x[:, None], (64, 2))", np.broadcast_to(x[:, None], (64, 2))),
    ("ct.cat((m, m * 2), 0)", np.concatenate([m, m * 2])), ("ct.cat((m, -m), 1)", np.concatenate([m, -m], 1)),
    ("ct.cat((m, -m), axis=-1)", np.concatenate([m, -m], 1)),
    ("ct.extract(m, (1, 2), (4, 4))", m[4:8, 8:12]), ("m.extract((0, 1), shape=(8, 8))", m[:, 8:]),
    ("ct.extract(i, (3,), (8,))", i[24:32]),
    ("ct.arange(16, dtype=ct.int32)", np.arange(16, dtype=i32)),
    ("ct.arange(8, start=7, step=-1, dtype=ct.int64)", np.arange(7, -1, -1)),
    ("ct.arange(8, dtype=ct.float32)", np.arange(8, dtype=f32)),
    ("ct.full((2, 4), 1.5, ct.float32)", np.full((2, 4), 1.5, f32)), ("ct.zeros((4,), ct.int8)", np.zeros(4, np.int8)),
    ("ct.ones(4, ct.float64)", np.ones(4)),
    ("ct.astile(((1, 2), (3, 4)), dtype=ct.int32)", np.array([[1, 2], [3, 4]], i32)),
    ("ct.full((4,), True, ct.bool_)", np.full(4, True)),
]:
    case("shape", code, want)
inserted = m.copy()
inserted[4:8, 8:12] = m[:4, :4]
case("shape", "ct.insert(m, (1, 2), ct.extract(m, (0, 0), (4, 4)))", inserted)
case("shape", "m.insert((1, 2), m.extract((0, 0), (4, 4)))", inserted)
case("shape", "ct.extract(x, (5,), (1,)).item()", x[5])

# Matrices. Products of small integers are exact in every format.
case("matrix", "m @ n", (m64 @ n64).astype(f32), 1e-5)
case("matrix", "ct.matmul(t, v)", (t.astype(f64) @ v).astype(f32), 1e-5)
case("matrix", "ct.matmul(t, ct.load(N, (0, 0), (8, 8)))", (t.astype(f64) @ n[:8]).astype(f32), 1e-5)
case("matrix", "ct.matmul(ct.extract(x, (0,), (16,)), n)", (x64[:16] @ n64).astype(f32), 1e-5)
case("matrix", "x @ y", (x64 @ y64).astype(f32), 1e-5)
case("matrix", "ct.mma(m, n, ct.full((8, 8), 10.0, ct.float32))", (m64 @ n64 + 10).astype(f32), 1e-5)
case("matrix", "ct.mma(t, v, ct.ones((2, 4, 4), ct.float32))", (t.astype(f64) @ v + 1).astype(f32), 1e-5)
case("matrix", "ct.mma(m.astype(ct.float64), n.astype(ct.float64), ct.zeros((8, 8), ct.float64))", m64 @ n64, 1e-14)
small = g.astype(f32)
product = (g @ g.T).astype(f32)
for dtype in ["float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2"]:
    # e5m2 holds integers up to 8 in magnitude.
    clipped = np.clip(g, -8, 8)
    a = f"ct.maximum(ct.minimum(g, 8), -8).astype(ct.float32).astype(ct.{dtype})"
    if dtype == "float8_e5m2":
        clipped, a = np.clip(g, -4, 4), a.replace("8)", "4)")
    want = (clipped @ clipped.T).astype(f32)
    case("matrix", f"a = {a}\nct.mma(a, a.transpose(), ct.zeros((8, 8), ct.float32))", want)
    if dtype in ("float16", "float8_e4m3fn"):
        case("matrix", f"a = {a}\nct.mma(a, a.transpose(), ct.zeros((8, 8), ct.float16))", want.astype(np.float16))
case("matrix", """a = g.astype(ct.float32).astype(ct.float8_e4m3fn)
ct.mma(a, a.transpose(), ct.zeros((8, 8), ct.float32), use_fast_acc=True)""", product)
case("matrix", "a = g.astype(ct.int8)\nct.mma(a, a.transpose(), ct.full((8, 8), 5, ct.int32))", g @ g.T + 5)
case("matrix", "a = (g + 9).astype(ct.uint8)\nct.mma(a, a.transpose(), ct.zeros((8, 8), ct.int32))", (g + 9) @ (g + 9).T)
bytes_a, bytes_b = (np.tile(a, 2).reshape(8, 16).astype(i32) for a in (b, c))
case("matrix", """a = ct.reshape(ct.cat((b, b), 0), (8, 16))
e = ct.reshape(ct.cat((c, c), 0), (8, 16))
ct.mma(a, e.transpose(), ct.zeros((8, 8), ct.int32))""", bytes_a @ bytes_b.T)
scaled = (np.tile(g, (1, 4)) * np.repeat([1.0, 2.0], 32)) @ (np.tile(g, (1, 4)) * np.repeat([0.5, 1.0], 32)).T
case("matrix", """a = ct.cat((g, g), 1).astype(ct.float32)
a = ct.cat((a, a), 1).astype(ct.float8_e4m3fn)
k = ct.arange(2, dtype=ct.int32).astype(ct.float32)
sa = ct.broadcast_to((k + 1.0)[None, :], (8, 2)).astype(ct.float8_e8m0fnu)
sb = ct.broadcast_to((k * 0.5 + 0.5)[:, None], (2, 8)).astype(ct.float8_e8m0fnu)
ct.mma_scaled(a, sa, a.transpose(), sb, ct.zeros((8, 8), ct.float32))""", scaled.astype(f32))

# Conversions between all arithmetic types; values that every type holds or wraps by rule.
TYPES = {name: getattr(np, name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
     "float16", "float32",
                                              "float64")}
numbers = np.abs(i) % 100
for source, of in TYPES.items():
    for target, to in TYPES.items():
        case(f"cast_{source}", f"(abs(i) % 100).astype(ct.{source}).astype(ct.{target})", numbers.astype(of).astype(to))
    case(f"cast_{source}", f"(abs(i) % 2).astype(ct.{source}).astype(ct.bool_)", (np.abs(i) % 2).astype(bool))
    case(f"cast_{source}", f"(i > 0).astype(ct.{source})", (i > 0).astype(of))
for target in ["int8", "int16", "uint8", "uint16", "uint32", "int64", "uint64"]:
    case("cast", f"i.astype(ct.{target})", i.astype(TYPES[target]))
    case("cast", f"l.astype(ct.{target})", l.astype(TYPES[target]))
case("cast", "x.astype(ct.int32)", x.astype(i32))
case("cast", "ct.astype(d, ct.float32)", d.astype(f32))
case("cast", "x.astype(ct.float16)", x.astype(np.float16))
case("cast", "l.astype(ct.float32)", l.astype(f32))
case("cast", "u.astype(ct.float32)", u.astype(f32))
case("cast", "l.astype(ct.float64)", l.astype(f64))
NARROW = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
          "float4_e2m1fn": ml_dtypes.float4_e2m1fn}
for name, dtype in NARROW.items():
    case("cast", f"x.astype(ct.{name}).astype(ct.float32)", x.astype(dtype).astype(f32))
case("cast", "ct.exp2(ct.floor(x)).astype(ct.float8_e8m0fnu).astype(ct.float32)", np.exp2(np.floor(x)))
case("cast", "x.astype(ct.bfloat16).astype(ct.float64)", x.astype(ml_dtypes.bfloat16).astype(f64))
halves, codes = np.stack([w & 15, w >> 4], 1).reshape(-1), x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
for code, want in [
    ("ct.bitcast(x, ct.int32)", x.view(i32)), ("ct.bitcast(x, ct.uint32)", x.view(np.uint32)),
    ("ct.bitcast(i, ct.float32)", i.view(f32)), ("ct.bitcast(h, ct.int16)", h.view(np.int16)),
    ("ct.bitcast(b, ct.uint8)", b.view(np.uint8)), ("ct.bitcast(d, ct.int64)", d.view(np.int64)),
    ("ct.bitcast(x.astype(ct.bfloat16), ct.uint16)", x.astype(ml_dtypes.bfloat16).view(np.uint16)),
    ("ct.bitcast(x.astype(ct.float8_e4m3fn), ct.uint8)", x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)),
    ("ct.bitcast(x.astype(ct.float8_e5m2), ct.uint8)", x.astype(ml_dtypes.float8_e5m2).view(np.uint8)),
    ("ct.pack_to_bytes(i)", i.view(np.uint8)), ("ct.unpack_from_bytes(w, ct.int32)", w.view(i32)),
    ("ct.unpack_from_bytes(w, ct.float16)", w.view(np.float16)),
    ("ct.unpack_from_bytes(ct.pack_to_bytes(d), ct.float64)", d),
    ("ct.unpack_from_bytes(w, ct.float4_e2m1fn).astype(ct.float32)", halves.view(ml_dtypes.float4_e2m1fn).astype(f32)),
    ("ct.pack_to_bytes(x.astype(ct.float4_e2m1fn))", codes[0::2] | codes[1::2] << 4),
]:
    case("bitcast", code, want)

# Compile time, functions, Python built-ins.
for code, want in [
    ("i + ct.static_eval(2 ** 10)", i + i32(1024)), ("i + len((1, 2, 3))", i + i32(3)), ("i + (5 if 3 > 2 else 6)", i + i32(5)),
    ("clamp(ct.extract(i, (0,), (1,)).item(), -10, 10)", i32(np.clip(i[0], -10, 10))), ("outer(3)(i)", i * i32(3)),
    ("(lambda a, b: a - b)(i, j)", i - j),
    ("x * math.sqrt(4.0)", x * f32(2)), ("i + min(3, 4) + max(1, 2)", i + i32(5)), ("i + ct.ensure_constant(4)", i + i32(4)),
    ("i + sum((1, 2, 3))", i + i32(6)),
    ("i * int(True) + round(2.6)", i + i32(3)), ("i + operator.add(1, 2)", i + i32(3)), ("operator.sub(i, j)", i - j),
]:
    case("python", code, want)
case("python", "a = i\nfor k in ct.static_iter(range(3)):\n    a = a + k * j\na", i + 3 * j)
case("python", "a = i\nfor k in ct.static_iter((2, 3)):\n    a = a * k\na", i * i32(6))
case("python", "ct.static_assert(x.dtype == ct.float32)\nct.assert_(j > 0, \"positive\")\nx", x)
case("python", """ct.grid_dependency_control_wait()
ct.grid_dependency_control_launch_dependents()
ct.assume_divisible_by(ct.bid(0) * 16, 16) + i""", i)

# Every arithmetic type; values over the whole range, the quotient that overflows among them.
for name, to in TYPES.items():
    a, k = f"l.astype(ct.{name})", f"(b | 1).astype(ct.{name})"
    if np.issubdtype(to, np.integer):
        na, nk = l.astype(to), (b | 1).astype(to)
        least = np.iinfo(to).min
        for symbol, f in [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("//", np.floor_divide), ("%", np.mod),
             ("&", np.bitwise_and),
                          ("|", np.bitwise_or), ("^", np.bitwise_xor)]:
            case(f"of_{name}", f"{a} {symbol} {k}", f(na, nk))
        case(f"of_{name}", f"{a} << 3", na << to(3))
        case(f"of_{name}", f"{a} >> 3", na >> to(3))
        if least:
            with np.errstate(over="ignore", divide="ignore"):
                case(f"of_{name}", f"ct.full((4,), {least}, ct.{name}) // (ct.arange(4, dtype=ct.{name}) - 4)",
                     np.full(4, least, to) // (np.arange(4) - 4).astype(to))
            case(f"of_{name}", f"-ct.full((4,), {least}, ct.{name})", np.full(4, least, to))
    else:
        a, k = f"d.astype(ct.{name})", f"x.astype(ct.{name})"
        na, nk = d.astype(to), x.astype(to)
        for symbol, f in [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)]:
            case(f"of_{name}", f"{a} {symbol} {k}", f(na, nk))
    case(f"of_{name}", f"{a} < {k}", na < nk)
    case(f"of_{name}", f"ct.maximum({a}, {k})", np.maximum(na, nk))
    case(f"of_{name}", f"ct.minimum({a}, {k})", np.minimum(na, nk))
    case(f"of_{name}", f"ct.max({a}, axis=0)", na.max())
    case(f"of_{name}", f"ct.argmin({a}, axis=0)", i32(na.argmin()))
    if np.issubdtype(to, np.integer):
        case(f"of_{name}", f"ct.sum({a}, axis=0)", na.sum(dtype=to))
        case(f"of_{name}", f"ct.cumsum({a}, axis=0)", na.cumsum(dtype=to))
bx, by = x.astype(ml_dtypes.bfloat16), y.astype(ml_dtypes.bfloat16)
for symbol, f in [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)]:
    case("of_bfloat16", f"(x.astype(ct.bfloat16) {symbol} y.astype(ct.bfloat16)).astype(ct.float32)", f(bx, by).astype(f32))
case("of_bfloat16", "ct.max(x.astype(ct.bfloat16), axis=0).astype(ct.float32)", bx.max().astype(f32))
case("of_bfloat16", "ct.exp(y.astype(ct.bfloat16)).astype(ct.float32)", np.exp(by.astype(f64)).astype(f32), 8e-3)

# Zeros, infinities, NaN, subnormals, the largest numbers.
with np.errstate(all="ignore"):
    e64 = edge.astype(f64)
    for code, want in [
        ("edge + 1.0", edge + f32(1)), ("edge * edge", edge * edge), ("edge - edge", edge - edge),
        ("1.0 / edge", f32(1) / edge), ("edge * 0.5", edge * f32(0.5)),
        ("edge < 0.0", edge < 0), ("edge == edge", edge == edge), ("ct.floor(edge)", np.floor(edge)),
        ("ct.ceil(edge)", np.ceil(edge)),
        ("ct.sqrt(edge)", np.sqrt(edge)), ("abs(edge)", abs(edge)), ("ct.bitcast(-edge, ct.int32)", (-edge).view(i32)),
        ("ct.isnan(edge)", np.isnan(edge)),
        ("ct.maximum(edge, 1.0)", np.fmax(edge, f32(1))), ("ct.minimum(edge, 1.0, propagate_nan=True)", np.minimum(edge, f32(1))),
        ("edge.astype(ct.float16)", edge.astype(np.float16)), ("edge.astype(ct.float64)", e64),
        ("edge.astype(ct.bfloat16).astype(ct.float32)", edge.astype(ml_dtypes.bfloat16).astype(f32)), ("edge != 0.0", edge != 0),
        ("ct.max(edge, axis=0)", f32(np.inf)), ("ct.min(edge, axis=0, propagate_nan=True)", f32(np.nan)),
        ("edge.astype(ct.bool_)", edge != 0),
    ]:
        case("edge", code, want)
    for name, f in [("exp", np.exp), ("exp2", np.exp2), ("log", np.log), ("log2", np.log2), ("rsqrt", lambda a: 1 / np.sqrt(a)),
         ("tanh", np.tanh),
                    ("sinh", np.sinh), ("cosh", np.cosh), ("sin", np.sin), ("cos", np.cos), ("tan", np.tan)]:
        case("edge", f"ct.{name}(edge * 0.01)", f((edge * f32(0.01)).astype(f64)).astype(f32), 4e-6)
        case("edge", f"ct.{name}(ct.extract(edge, (0,), (8,)))" if name in ("exp", "exp2", "log", "log2",
             "tanh") else f"ct.{name}(y)",
             f((edge[:8] if name in ("exp", "exp2", "log", "log2", "tanh") else y).astype(f64)).astype(f32), 4e-6)

# Tiles larger than the strips that they are walked in.
b64 = big.astype(f64)
for code, want, tolerance in [
    ("ct.sum(big, axis=0)", b64.sum(0), 1e-5), ("ct.sum(big, axis=1)", b64.sum(1), 1e-5), ("ct.sum(big)", b64.sum(), 1e-4),
    ("ct.max(big, axis=0)", big.max(0), 0),
    ("ct.cumsum(big, axis=0)", b64.cumsum(0), 1e-5), ("ct.cumsum(big, axis=1)", b64.cumsum(1), 1e-5),
    ("big.transpose()", big.T, 0),
    ("big @ big.transpose()", b64 @ b64.T, 2e-5), ("ct.argmax(big, axis=0)", big.argmax(0).astype(i32), 0),
    ("ct.exp(big) * 2.0 - big", np.exp(b64) * 2 - b64, 1e-5),
    ("ct.sum(long)", long.sum(dtype=i32), 0), ("ct.cumsum(long)", long.cumsum(dtype=i32), 0),
    ("ct.reduce(long, 0, operator.xor, 0)", np.bitwise_xor.reduce(long), 0),
    ("ct.reshape(long, (16, 256)).transpose()", long.reshape(16, 256).T, 0), ("ct.argmin(long)", i32(long.argmin()), 0),
    ("ct.extract(ct.reshape(big, (8192,)), (3,), (2048,))", big.ravel()[6144:], 0),
    ("ct.cat((big, -big), 1)", np.concatenate([big, -big], 1), 0),
]:
    want = np.asarray(want)
    case("large", code, want.astype(f32) if want.dtype == f64 else want, tolerance)

# Rounding modes of functions and conversions.
for mode, toward in [("RM", -np.inf), ("RP", np.inf)]:
    nearest = np.sqrt(p)
    off = nearest.astype(np.longdouble) ** 2 > p if mode == "RM" else nearest.astype(np.longdouble) ** 2 < p
    case("rounding", f"ct.sqrt(p, rounding_mode=ct.RoundingMode.{mode})", np.where(off, np.nextafter(nearest, f32(toward)),
         nearest))
    nearest, exact = x * y, x64 * y64
    off = nearest.astype(f64) > exact if mode == "RM" else nearest.astype(f64) < exact
    case("rounding", f"ct.mul(x, y, rounding_mode=ct.RoundingMode.{mode})", np.where(off, np.nextafter(nearest, f32(toward)),
         nearest))
nearest = p.astype(np.float16)
truncated = np.where(nearest.astype(f32) > p, np.nextafter(nearest, np.float16(0)), nearest)
case("rounding", "p.astype(ct.float16, rounding_mode=ct.RoundingMode.RZ)", truncated)
case("rounding", "ct.truediv(x, p, rounding_mode=ct.RoundingMode.FULL)", x / p, 1e-6)
case("rounding", "ct.truediv(x, p, rounding_mode=ct.RoundingMode.APPROX)", x / p, 1e-6)
case("rounding", "ct.sqrt(p, rounding_mode=ct.RoundingMode.APPROX)", np.sqrt(p), 1e-6)
