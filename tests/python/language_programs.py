"""Kernels as users write them, each against NumPy in f64; and kernels that must stop with a message."""
import numpy as np

from language_kernels import case, out, random

f32, i32, f64 = np.float32, np.int32, np.float64


def floats(*shape):
    return random.standard_normal(shape, dtype=f32)


q, angles = floats(5, 4, 32), floats(5, 16)
cos, sin = np.cos(angles), np.sin(angles)
low, high = q[..., :16].astype(f64), q[..., 16:].astype(f64)
case("rotary", """
row = ct.bid(0)
low = ct.load(q, (row, 0, 0), (1, HEADS, HALF)).reshape((HEADS, HALF))
high = ct.load(q, (row, 0, 1), (1, HEADS, HALF)).reshape((HEADS, HALF))
c = ct.load(cos, (row, 0), (1, HALF))
s = ct.load(sin, (row, 0), (1, HALF))
ct.store(y, (row, 0, 0), (low * c - high * s).reshape((1, HEADS, HALF)))
ct.store(y, (row, 0, 1), (high * c + low * s).reshape((1, HEADS, HALF)))
""", {"q": q, "cos": cos, "sin": sin, "y": np.zeros_like(q)},
     {"y": np.concatenate([low * cos[:, None] - high * sin[:, None], high * cos[:, None] + low * sin[:, None]], -1).astype(f32)},
     ["HEADS=4", "HALF=16"], grid="5", tolerance=1e-6)

scores, labels = floats(9, 77), random.integers(0, 77, 9).astype(i32)
entropy = np.log(np.exp(scores.astype(f64)).sum(1)) - scores[np.arange(9), labels]
case("cross_entropy", """
row = ct.bid(0)
m = ct.full((1,), -math.inf, ct.float32)
total = ct.zeros((1,), ct.float32)
for j in range(ct.num_tiles(x, 1, (1, TILE))):
    t = ct.load(x, (row, j), (1, TILE), padding_mode=ct.PaddingMode.NEG_INF)
    bigger = ct.maximum(m, ct.max(t, axis=1))
    total = total * ct.exp(m - bigger) + ct.sum(ct.exp(t - bigger[:, None]), axis=1)
    m = bigger
ct.store(y, (row,), m + ct.log(total) - ct.gather(x, (row, ct.load(labels, (row,), ()))))
""", {"x": scores, "labels": labels, "y": out(9, dtype=f32)}, {"y": entropy.astype(f32)}, ["TILE=32"], grid="9", tolerance=1e-5)

signal = floats(3, 16, 2)
turns = np.exp(-2j * np.pi * np.outer(np.arange(16), np.arange(16)) / 16)
spectrum = np.fft.fft(signal[..., 0] + 1j * signal[..., 1], axis=1)
case("fourier", """
t = ct.load(x, (ct.bid(0), 0, 0), (1, 16, 2)).reshape((16, 2))
re, im = ct.extract(t, (0, 0), (16, 1)), ct.extract(t, (0, 1), (16, 1))
w = ct.load(turns, (0, 0, 0), (16, 16, 2))
wr, wi = part_of(w, 0), part_of(w, 1)
y_re = wr @ re - wi @ im
y_im = wi @ re + wr @ im
ct.store(y, (ct.bid(0), 0, 0), ct.cat((y_re, y_im), axis=-1).reshape((1, 16, 2)))
""", {"x": signal, "turns": np.stack([turns.real, turns.imag], -1).astype(f32), "y": np.zeros_like(signal)},
     {"y": np.stack([spectrum.real, spectrum.imag], -1).astype(f32)}, grid="3", tolerance=1e-5, head="""
def part_of(w, part):
    return ct.extract(w, (0, 0, part), (16, 16, 1)).reshape((16, 16))
""")

places = np.arange(1000, dtype=np.uint32) * np.uint32(747796405) + np.uint32(42)
places = ((places >> ((places >> np.uint32(28)) + np.uint32(4))) ^ places) * np.uint32(277803737)
places = (places >> np.uint32(22)) ^ places
x = floats(1000)
kept = places.astype(f32) * f32(2**-32) >= f32(0.3)
case("dropout", """
i = ct.bid(0)
h = (i * TILE + ct.arange(TILE, dtype=ct.int32)).astype(ct.uint32) * 747796405 + ct.astype(seed, ct.uint32)
h = ((h >> ((h >> 28) + 4)) ^ h) * 277803737
h = (h >> 22) ^ h
t = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
ct.store(y, (i,), ct.where(h.astype(ct.float32) * (1.0 / 4294967296.0) < p, 0.0, t / (1.0 - p)))
""", {"x": x, "y": np.zeros_like(x)}, {"y": np.where(kept, x / 0.7, 0).astype(f32)}, ["p=0.3", "seed=42",
     "TILE=256"], grid="4", tolerance=1e-6)

channels, taps = floats(3, 100), floats(3, 5)
case("convolution", """
base = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
acc = ct.zeros((TILE,), ct.float32)
for c in range(x.shape[0]):
    for k in range(taps.shape[1]):
        acc = acc + ct.gather(x, (c, base + k - 2)) * ct.gather(taps, (c, k))
ct.scatter(y, base, acc)
""", {"x": channels, "taps": taps, "y": out(100, dtype=f32)},
     {"y": sum(np.convolve(c.astype(f64), t[::-1], "same") for c, t in zip(channels, taps)).astype(f32)}, ["TILE=64"], grid="2",
          tolerance=1e-5)

rows = floats(6, 50)
order = np.argsort(-rows, axis=1)[:, :4].astype(i32)
case("top_k", """
t = ct.load(x, (ct.bid(0), 0), (1, 64), padding_mode=ct.PaddingMode.NEG_INF).reshape((64,))
for k in ct.static_iter(range(4)):
    best = ct.argmax(t, axis=0)
    ct.store(places, (ct.bid(0), k), best.reshape((1, 1)))
    ct.store(values, (ct.bid(0), k), ct.max(t, axis=0).reshape((1, 1)))
    t = ct.where(ct.arange(64, dtype=ct.int32) == best, -math.inf, t)
""", {"x": rows, "places": out(6, 4), "values": out(6, 4, dtype=f32)}, {"places": order,
     "values": np.take_along_axis(rows, order, 1)}, grid="6")

decay, drive = np.abs(floats(4, 64)) / 2, floats(4, 64)
state, states = np.zeros(4), []
for step in range(64):
    state = state * decay[:, step] + drive[:, step]
    states.append(state)
case("recurrence", """
def chain(a, b, c, d):
    return a * c, b * c + d
t = ct.load(decay, (ct.bid(0), 0), (1, 64)), ct.load(drive, (ct.bid(0), 0), (1, 64))
_, states = ct.scan(t, 1, chain, (1.0, 0.0))
ct.store(y, (ct.bid(0), 0), states)
""", {"decay": decay, "drive": drive, "y": np.zeros_like(drive)},
     {"y": np.stack(states, 1).astype(f32)}, grid="4", tolerance=1e-5)

total = floats(2000)
case("last_block_finishes", """
t = ct.load(x, (ct.bid(0),), (256,), padding_mode=ct.PaddingMode.ZERO)
ct.scatter(parts, ct.bid(0), ct.sum(t))
done = ct.atomic_add(count, 0, 1)
if done == ct.num_blocks(0) - 1:
    all_parts = ct.load(parts, (0,), (8,), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE)
    ct.store(y, (0,), ct.sum(all_parts, axis=0, keepdims=True))
""", {"x": total, "parts": np.zeros(8, f32), "count": np.zeros(1, i32), "y": out(1, dtype=f32)},
     {"y": total.astype(f64).sum(keepdims=True).astype(f32)},
     grid="8", tolerance=1e-4)

# What must stop with a message: (name, body, arrays, grid, options, part of the message).
eight = {"x": np.arange(8, dtype=i32), "y": np.zeros(8, i32)}
MISTAKES = [
    ("assertion", "t = ct.load(x, (0,), (8,))\nct.assert_(t < 5, \"small\")\nct.store(y, (0,), t)", eight, "1", [],
    "assertion failed: small"),
    ("division", "ct.store(y, (0,), ct.load(x, (0,), (8,)) // ct.bid(0))", eight, "1", ["--sanitize", "all"], "division by zero"),
    ("remainder", "ct.store(y, (0,), 5 % ct.load(x, (0,), (8,)))", eight, "1", ["--sanitize", "all"], "division by zero"),
    ("gather_outside", "ct.store(y, (0,), ct.gather(x, ct.arange(8, dtype=ct.int32) + 4, check_bounds=False))", eight, "1", [],
    "reads outside"),
    ("store_outside", "x.get_raw_memory().store_offset(ct.arange(8, dtype=ct.int32) + 1000000, 1)", eight, "1", [],
    "writes outside"),
    ("load_crosses_edge",
     "t = ct.load(x, (0,), (16,), padding_mode=ct.PaddingMode.ZERO, check_bounds=False)\nct.store(y, (0,), ct.extract(t, (0,), (8,)))",
     eight, "1", ["--sanitize", "all"], "the tile loaded here crosses the array's edge"),
    ("view_store_crosses_edge", "y.tiled_view(16).store(0, ct.full(16, 1, ct.int32), check_bounds=False)", eight, "1",
     ["--sanitize", "all"], "the tile stored here crosses the array's edge"),
    ("undetermined", "ct.store(y, (0,), ct.extract(ct.load(x, (0,), (16,)), (1,), (8,)))", eight, "1", ["--sanitize", "all"],
    "undetermined value"),
    ("tile_outside", "ct.store(y, (0,), ct.load(x, (5,), (8,), padding_mode=ct.PaddingMode.ZERO))", eight, "1", ["--sanitize",
    "all"],
     "wholly outside"),
    ("conflict", "ct.store(y, (0,), ct.load(x, (0,), (8,)) + ct.bid(0))", eight, "4", ["--sanitize", "all"],
    "nothing orders the two"),
]
