"""Whole kernels: memory, atomics, control flow and printing, each with what it leaves in its arrays."""
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Case:
    """A kernel's body, or a file that has `kernel`; its arguments; what the arrays named in `want` hold afterwards."""
    name: str
    source: str
    arrays: dict
    want: dict
    constants: list = field(default_factory=list)
    grid: str = "1"
    tolerance: float = 0.0
    printed: str | None = None


random = np.random.default_rng(13)
i32, f32 = np.int32, np.float32
CASES = []


def case(name, body, arrays, want, constants=(), grid="1", printed=None, head="", tolerance=0.0):
    parameters = [*arrays, *(word.split("=")[0] for word in constants)]
    parameters = [f"{p}: ct.Constant[int]" if p.isupper() and len(p) > 1 else p for p in parameters]
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    source = f"{head}\n\n@ct.kernel\ndef kernel({', '.join(parameters)}):\n{lines}\n"
    CASES.append(Case(name, source, arrays, want, list(constants), grid, tolerance, printed))


def out(*shape, dtype=i32):
    return np.full(shape, 77, dtype)


# Loads and stores.
a = random.integers(-99, 99, (10, 21)).astype(i32)


def padded(array, rows, columns, value):
    full = np.full((rows, columns), value, array.dtype)
    full[:array.shape[0], :array.shape[1]] = array
    return full


f = a.astype(f32)
for mode, value in [("ZERO", 0), ("NEG_ZERO", -0.0), ("NAN", np.nan), ("POS_INF", np.inf), ("NEG_INF", -np.inf)]:
    case(f"pad_{mode.lower()}", f"""
t = ct.load(x, (ct.bid(0), ct.bid(1)), (4, 8), padding_mode=ct.PaddingMode.{mode})
ct.store(y, (ct.bid(0), ct.bid(1)), t)
""", {"x": f, "y": out(12, 24, dtype=f32)}, {"y": padded(f, 12, 24, f32(value))}, grid="3,3")
case("order", """
i, j = ct.bid(0), ct.bid(1)
t = ct.load(x, (i, j), (8, 4), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
ct.store(y, (i, j), t)
ct.store(z, (i, j), t, order="F")
""", {"x": a, "y": out(24, 12), "z": out(10, 21)}, {"y": padded(a, 12, 24, 0).T, "z": a}, grid="3,3")
cube = random.integers(-99, 99, (3, 5, 6)).astype(i32)
turned = np.zeros((4, 8, 8), i32)
turned[:3, :6, :5] = cube.transpose(0, 2, 1)
case("order3", """
t = ct.load(x, (0, 0, 0), (4, 8, 8), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO)
ct.store(y, (0, 0, 0), t)
""", {"x": cube, "y": out(4, 8, 8)}, {"y": turned})
case("edges", """
i = ct.bid(0)
ct.store(y, (i,), ct.load(x, (i,), (16,), padding_mode=ct.PaddingMode.ZERO) + 1)
ct.store(s, (i,), ct.load(x, (i,), ()))
k = ct.num_tiles(x, 0, (16,)) * 100 + ct.cdiv(x.shape[0], 16) * 10 + x.ndim + x.strides[0]
ct.store(n, (i,), k + ct.num_blocks(0))
""", {"x": np.arange(37, dtype=i32), "y": out(37), "s": out(3), "n": out(3)},
     {"y": np.arange(1, 38, dtype=i32), "s": np.arange(3, dtype=i32), "n": np.full(3, 335, i32)}, grid="3")
case("inside", """
i = ct.bid(0)
v = y.tiled_view(16)
v.store(i, ct.load(x, i, 16, check_bounds=False) + v.load(i, check_bounds=False), check_bounds=False)
ct.store(x, i, ct.zeros(16, ct.int32), check_bounds=False)
""", {"x": np.arange(48, dtype=i32), "y": out(48)}, {"x": np.zeros(48, i32), "y": np.arange(77, 125, dtype=i32)}, grid="3")
case("slice", """
part = x.slice(1, lo, lo + 9)
t = ct.load(part, (0, 0), (16, 16), padding_mode=ct.PaddingMode.ZERO)
ct.store(y, (0, 0), t)
ct.store(x.slice(0, 2, 4), (0, 0), ct.zeros((2, 32), ct.int32))
""", {"x": a, "y": out(16, 16)},
     {"y": padded(a[:, 5:14], 16, 16, 0), "x": np.where(np.isin(np.arange(10), [2, 3])[:, None], 0, a).astype(i32)}, ["lo=5"])
case("view", """
v = x.tiled_view((4, 8), padding_mode=ct.PaddingMode.ZERO)
o = y.tiled_view((4, 8))
for i in range(v.num_tiles(0)):
    for j in range(v.num_tiles(1)):
        o.store((i, j), v.load((i, j)) * 2)
steps = x.tiled_view((2, 4), traversal_steps=(3, 5))
ct.store(z, (0, 0), steps.load((1, 2)))
""", {"x": a, "y": out(12, 24), "z": out(2, 4)}, {"y": padded(a, 12, 24, 0) * 2, "z": a[3:5, 10:14]})
index = np.arange(64) * 7 - 20
gathered = np.where((index >= 0) & (index < 210), a.ravel()[np.clip(index, 0, 209)], -5).astype(i32)
scattered = np.full(100, 77, i32)
index = np.arange(64) * 2 - 10
keep = (index >= 0) & (index < 100) & (np.arange(64) % 3 != 0)
scattered[index[keep]] = np.arange(64)[keep]
case("gather_scatter", """
k = ct.arange(64, dtype=ct.int32)
ct.store(y, (0,), ct.gather(x, k * 7 - 20, padding_value=-5))
ct.scatter(z, k * 2 - 10, k, mask=k % 3 != 0)
rows = ct.arange(4, dtype=ct.int32)[:, None] * 3
columns = ct.arange(8, dtype=ct.int32)[None, :] * 4
ct.store(w, (0, 0), ct.gather(m, (rows, columns)))
ct.store(v, (0,), ct.gather(m, (2, ct.arange(8, dtype=ct.int32)), mask=ct.arange(8, dtype=ct.int32) > 2, check_bounds=False))
ct.scatter(q, (rows, columns), rows * 100 + columns)
""", {"x": a.ravel(), "m": a, "y": out(64), "z": out(100), "w": out(4, 8), "v": out(8), "q": np.zeros((10, 21), i32)}, {
    "y": gathered, "z": scattered,
    "w": np.array([[a[r, c] if c < 21 else 0 for c in range(0, 32, 4)] for r in range(0, 12, 3)], i32),
    "v": np.where(np.arange(8) > 2, a[2, :8], 0).astype(i32),
    "q": np.array([[r * 100 + c if r % 3 == 0 and c % 4 == 0 else 0 for c in range(21)] for r in range(10)], i32)})
case("advanced", """
rows = ct.arange(4, dtype=ct.int32) * 2 + 1
t = ct.load_advanced_indexing(x, (rows, ct.Slice(lo, 8)), padding_mode=ct.PaddingMode.ZERO)
ct.store(y, (0, 0), t)
ct.store_advanced_indexing(z, (rows, ct.Slice(0, 8)), t)
columns = 3 - ct.arange(4, dtype=ct.int32)
ct.store(w, (0, 0), ct.load_advanced_indexing(x, (ct.Slice(1, 2), columns)))
""", {"x": a, "y": out(4, 8), "z": np.zeros((10, 8), i32), "w": out(2, 4)}, {
    "y": padded(a[1:9:2, 16:24], 4, 8, 0), "z": np.where(np.isin(np.arange(10), [1, 3, 5, 7])[:, None], padded(a[:, 16:24], 10,
         8, 0), 0),
    "w": a[1:3, 3::-1]}, ["lo=16"])
case("raw", """
m = x.get_raw_memory()
k = ct.arange(16, dtype=ct.int32)
ct.store(y, (0,), m.load_offset(k * 3, mask=k < 10, padding_value=-1))
o = z.get_raw_memory()
o.store_offset(k * 2, k, mask=k != 3)
before = o.atomic_add_offset(k * 2, 100)
ct.store(w, (0,), before)
""", {"x": np.arange(100, dtype=i32), "y": out(16), "z": np.zeros(32, i32), "w": out(16)}, {
    "y": np.where(np.arange(16) < 10, np.arange(16) * 3, -1).astype(i32),
    "w": np.where(np.arange(16) == 3, 0, np.arange(16)).astype(i32),
    "z": np.array([0 if k % 2 else (0 if k == 6 else k // 2) + 100 for k in range(32)], i32)})

# Atomics: every block works on the same elements; each result is independent of the order.
start = random.integers(0, 1000, 16).astype(i32)
blocks = np.arange(8)[:, None] * 37 % 101 + np.arange(16)
for operation, combine in [("add", np.add), ("max", np.maximum), ("min", np.minimum), ("and", np.bitwise_and),
     ("or", np.bitwise_or),
                     ("xor", np.bitwise_xor)]:
    want = combine(start, combine.reduce(blocks, axis=0)).astype(i32)
    case(f"atomic_{operation}", f"""
k = ct.arange(16, dtype=ct.int32)
v = ct.bid(0) * 37 % 101 + k
old = ct.atomic_{operation}(x, k, v)
y.get_raw_memory().atomic_{operation}_offset(k, v, memory_order=ct.MemoryOrder.RELAXED)
z.tiled_view(16).atomic_store_{operation}(0, v)
""", {"x": start, "y": start.copy(), "z": start.copy()}, {"x": want, "y": want, "z": want}, grid="8")
case("atomic_float", """
k = ct.arange(16, dtype=ct.int32)
old = ct.atomic_add(x, k % 4, 0.5)
""", {"x": np.zeros(4, f32)}, {"x": np.full(4, 16, f32)}, grid="8")
case("atomic_cas_xchg", """
k = ct.arange(16, dtype=ct.int32)
ct.store(y, (0,), ct.atomic_cas(x, k, k % 2, k + 100))
ct.store(z, (0,), ct.atomic_xchg(x, k, -k))
m = w.get_raw_memory()
ct.store(u, (0,), m.atomic_cas_offset(k, 0, k) + m.atomic_xchg_offset(k, 5))
""", {"x": np.zeros(16, i32), "y": out(16), "z": out(16), "w": np.zeros(16, i32), "u": out(16)}, {
    "y": np.zeros(16, i32), "z": np.where(np.arange(16) % 2, 0, np.arange(16) + 100).astype(i32), "x": -np.arange(16, dtype=i32),
    "u": np.arange(16, dtype=i32), "w": np.full(16, 5, i32)})
# Lanes outside the array or masked off update nothing. A compare-and-swap yields what it expected there, NVIDIA says; what other
# updates yield is left open, and 0 here.
first = np.arange(40, dtype=i32) % 3
inside = np.arange(16) < 5
some = np.arange(16) % 3 != 1
for dtype in (i32, np.uint32, np.int64, f32, np.float64):
    case(f"atomic_cas_off_{np.dtype(dtype).name}", """
k = ct.arange(16, dtype=ct.int32)
ct.store(y, (0,), ct.atomic_cas(x, k, (k % 3 + 1).astype(x.dtype), ct.full((16,), 9, dtype=x.dtype)))
m = w.get_raw_memory()
ct.store(z, (0,), m.atomic_cas_offset(k * 1000, (k % 3).astype(x.dtype), 9, mask=k < 1))
ct.store(u, (0,), m.atomic_cas_offset(k, (k % 3).astype(x.dtype), 9, mask=k % 3 != 1))
""", {"x": first[:5].astype(dtype), "w": first.astype(dtype), "y": out(16, dtype=dtype), "z": out(16, dtype=dtype),
          "u": out(16, dtype=dtype)},
         {"x": first[:5].astype(dtype), "y": np.where(inside, first[:16], np.arange(16) % 3 + 1).astype(dtype),
          "z": (np.arange(16) % 3).astype(dtype), "u": np.where(np.arange(16) == 0, 9, np.arange(16) % 3).astype(dtype),
          "w": np.where((np.arange(40) < 16) & (np.arange(40) % 3 != 1) | (np.arange(40) == 0), 9, first).astype(dtype)})
# A comparison of one element, off and on.
case("atomic_cas_scalar_off", """
ct.store(y, (0,), ct.full((1,), ct.atomic_cas(x, 7, 3, 4), dtype=ct.int32))
ct.store(z, (0,), ct.full((1,), ct.atomic_cas(x, 1, 3, 4), dtype=ct.int32))
""", {"x": np.full(4, 3, i32), "y": out(1), "z": out(1)},
     {"x": np.array([3, 4, 3, 3], i32), "y": np.array([3], i32), "z": np.array([3], i32)})
for operation, after in [("xchg", 2), ("add", 9), ("max", 7), ("min", 2), ("and", 2), ("or", 7), ("xor", 5)]:
    case(f"atomic_{operation}_off", f"""
k = ct.arange(16, dtype=ct.int32)
ct.store(y, (0,), ct.atomic_{operation}(x, k, 2))
ct.store(z, (0,), w.get_raw_memory().atomic_{operation}_offset(k, 2, mask=k % 3 != 1))
""", {"x": np.full(5, 7, i32), "w": np.full(16, 7, i32), "y": out(16), "z": out(16)},
         {"x": np.full(5, after, i32), "w": np.where(some, after, 7).astype(i32), "y": np.where(inside, 7, 0).astype(i32),
          "z": np.where(some, 7, 0).astype(i32)})

# NaN and zeros of both signs: left out unless they propagate; where nothing is left, the result is NaN, and an index is the first.
nan, inf = np.nan, np.inf
rows = np.array([[nan] * 8, [nan, 2, nan, -1, nan, 2, -1, nan], [-0.0, 0, -0.0, 0, nan, 0, -0.0, 0], [nan, -inf] * 4, [nan, inf] * 4,
                 [nan] * 7 + [-3], [1, 2, 3, 4, 5, 6, 7, 8], [inf, -inf, nan, 0, nan, -inf, inf, 1]], f32)


for axis in (0, 1):
    least, greatest = np.fmin.reduce(rows, axis=axis), np.fmax.reduce(rows, axis=axis)
    # The first place at which the extreme stands; all zeros are equal.
    argmax, argmin = [np.argmax((np.moveaxis(rows, axis, 1) == best[:, None]), axis=1) for best in (greatest, least)]
    want = {"p": greatest, "q": least, "r": np.max(rows, axis=axis), "s": np.min(rows, axis=axis),
            "t": argmax.astype(i32), "u": argmin.astype(i32), "v": np.argmax(rows, axis=axis).astype(i32),
            "w": np.argmin(rows, axis=axis).astype(i32), "m": greatest, "n": np.fmax.accumulate(rows, axis=axis)}
    for dtype in (f32, np.float16, np.float64):
        floats_like = {name: value.astype(dtype) if value.dtype == f32 else value for name, value in want.items()}
        case(f"extremes_{axis}_{np.dtype(dtype).name}", f"""
t0 = ct.load(x, (0, 0), (8, 8))
greater = lambda a, b: ct.maximum(a, b)
ct.store(p, (0,), ct.max(t0, axis={axis}))
ct.store(q, (0,), ct.min(t0, axis={axis}))
ct.store(r, (0,), ct.max(t0, axis={axis}, propagate_nan=True))
ct.store(s, (0,), ct.min(t0, axis={axis}, propagate_nan=True))
ct.store(t, (0,), ct.argmax(t0, axis={axis}))
ct.store(u, (0,), ct.argmin(t0, axis={axis}))
ct.store(v, (0,), ct.argmax(t0, axis={axis}, propagate_nan=True))
ct.store(w, (0,), ct.argmin(t0, axis={axis}, propagate_nan=True))
ct.store(m, (0,), ct.reduce(t0, {axis}, greater, -math.inf))
ct.store(n, (0, 0), ct.scan(t0, {axis}, greater, -math.inf))
""", {"x": rows.astype(dtype), **{name: np.full(value.shape, 77, value.dtype) for name, value in floats_like.items()}},
             floats_like)

case("atomic_same_element", """
k = ct.arange(64, dtype=ct.int32)
old = ct.atomic_add(x, k * 0, 1)
ct.atomic_add(y, ct.bid(0) * 0, 2)
ct.store(z, (ct.bid(0),), ct.sum(ct.where(old >= 0, 1, 0)))
""", {"x": np.zeros(1, i32), "y": np.zeros(1, i32), "z": out(8)},
     {"x": np.array([512], i32), "y": np.array([16], i32), "z": np.full(8, 64, i32)}, grid="8")

# Control flow.
case("ranges", """
a = 0
for i in ct.static_iter(range(10, 0, -3)):
    a = a * 10 + i
b = 0
for i in range(n, 0 - n, step + 2):
    b += i * i
c = 0
for i in range(0, 20, n):
    c += i
d = 0
for i in range(5, 5):
    d += 1
for i in range(n, 2):
    d += 1
e = 0
for i in range(lo, n, step):
    e = e * 3 + i
ct.store(y, (0,), ct.astile((a, b, c, d, e, 0, 0, 0), dtype=ct.int32))
""", {"y": out(8)}, {"y": np.array([10741, sum(i * i for i in range(7, -7, -2)), sum(range(0, 20, 7)), 0,
                                    ((20 * 3 + 16) * 3 + 12) * 3 + 8, 0, 0, 0], i32)}, ["n=7", "lo=20", "step=-4"])


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


case("while", """
v = ct.load(x, (ct.bid(0),), ())
steps = 0
while v != 1:
    if v % 2 == 0:
        v = v // 2
    else:
        v = 3 * v + 1
    steps += 1
ct.store(y, (ct.bid(0),), steps)
""", {"x": np.array([1, 7, 27, 12], i32), "y": out(4)}, {"y": np.array([collatz(n) for n in (1, 7, 27, 12)], i32)}, grid="4")
case("break_continue", """
total = 0
for i in range(n):
    if i % 3 == 0:
        continue
    if i > 20:
        break
    for j in range(i):
        if j == 4:
            break
        total += j
    total += 100
k = 0
while True:
    k += 1
    if k < 5:
        continue
    if k * k > n:
        break
ct.store(y, (0,), ct.astile((total, k), dtype=ct.int32))
""", {"y": out(2)}, {"y": np.array([sum(100 + sum(range(min(i, 4))) for i in range(21) if i % 3), 8], i32)}, ["n=50"])
case("early_return", """
i = ct.bid(0)
if i == 1:
    return
if i > 5:
    ct.store(y, (i,), -1)
    return
for j in range(10):
    if j == i:
        ct.store(y, (i,), j * 10)
        return
    ct.store(z, (i,), j)
""", {"y": out(8), "z": out(8)},
     {"y": np.array([0, 77, 20, 30, 40, 50, -1, -1], i32), "z": np.array([77, 77, 1, 2, 3, 4, 77, 77], i32)}, grid="8")
case("functions", """
t = ct.load(x, (0,), (16,))
ct.store(y, (0,), scaled(t, by=3))
ct.store(z, (0,), ct.astile((first_above(x, 5), first_above(x, 500), classify(ct.bid(0))[0], classify(7)[1]), dtype=ct.int32))
a, (b, c) = 1, (2, 3)
pair = (a + b, c)
swap = pair[1], pair[0]
ct.store(w, (0,), ct.astile(swap, dtype=ct.int32))
""", {"x": np.arange(16, dtype=i32), "y": out(16), "z": out(4), "w": out(2)},
     {"y": np.arange(16, dtype=i32) * 3 + 1, "z": np.array([6, -1, 1, 20], i32), "w": np.array([3, 3], i32)}, head="""
@ct.function
def scaled(t, *, by=2):
    def more(v):
        return v * by
    return more(t) + 1


def first_above(x, limit):
    for i in range(x.shape[0]):
        if ct.load(x, (i,), ()) > limit:
            return i
    return -1


def classify(n):
    if n < 5:
        return 1, 10
    return 2, 20
""")
case("choices", """
i = ct.bid(0)
inside = 0 < i < 3 or i == 5 and n > 2
v = 10 if inside else 20
if not inside and i != 0:
    a, b = 1, 2
elif i == 0:
    a, b = 3, 4
else:
    a, b = 5, 6
ct.store(y, (i,), v + a * 100 + b * 1000)
""", {"y": out(6)}, {"y": np.array([4320, 6510, 6510, 2120, 2120, 6510], i32)}, ["n=4"], grid="6")
case("specialised", """
if FAST:
    t = ct.ones((SIZE,), ct.int32)
else:
    t = ct.zeros((SIZE,), ct.float32)
for k in ct.static_iter(range(3)):
    t = t + k
ct.store(y, (0,), t.astype(ct.int32))
""", {"y": out(8)}, {"y": np.full(8, 4, i32)}, ["FAST=1", "SIZE=8"])
case("running_softmax", """
m = ct.full((4, 1), -math.inf, ct.float32)
l = ct.zeros((4, 1), ct.float32)
for j in range(ct.cdiv(x.shape[1], 8)):
    t = ct.load(x, (0, j), (4, 8), padding_mode=ct.PaddingMode.NEG_INF)
    bigger = ct.maximum(m, ct.max(t, axis=1, keepdims=True))
    l = l * ct.exp(m - bigger) + ct.sum(ct.exp(t - bigger), axis=1, keepdims=True)
    m = bigger
ct.store(y, (0, 0), m + ct.log(l))
""", {"x": f[:4], "y": out(4, 1, dtype=f32)},
     {"y": np.log(np.exp(f[:4].astype(np.float64) - 99).sum(1, keepdims=True)).astype(f32) + 99}, tolerance=1e-6)
case("blocks3", """
i, j, k = ct.bid(0), ct.bid(1), ct.bid(2)
ct.store(y, (i, j, k), i * 100 + j * 10 + k + 1000 * ct.num_blocks(2))
""", {"y": out(2, 3, 4)}, {"y": sum(np.ogrid[4000:4200:100, 0:30:10, 0:4]).astype(i32)}, grid="2,3,4")

# Printing.
case("printing", """
t = ct.arange(4, dtype=ct.int32)
ct.printf("value %d of %5.2f\\n", ct.bid(0) + 42, 1.5)
ct.print("tile", t, sep=": ")
print(f"sum={ct.sum(t)}")
ct.assert_(t >= 0, "not negative")
ct.store(y, (0,), t)
""", {"y": out(4)}, {"y": np.arange(4, dtype=i32)}, printed="value 42 of  1.50\ntile: [0, 1, 2, 3]\nsum=6")
