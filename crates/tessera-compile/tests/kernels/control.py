"""Test kernels: control flow, atomics and what blocks do together."""
import cuda.tile as ct


# args: x: f32[500], y: f32[500], T = 64; grid: 3
@ct.kernel
def grid_stride(x, y, T: ct.Constant[int]):
    for i in range(ct.bid(0), ct.cdiv(x.shape[0], T), ct.num_blocks(0)):
        ct.store(y, (i,), 2 * ct.load(x, (i,), (T,)))


# args: x: i32[64], y: i32[64]; grid: 1
@ct.kernel
def newton_root(x, y):
    target = ct.abs(ct.load(x, (0,), (64,))) % 10000 + 1
    guess = target
    rounds = 0
    while rounds < 20:
        guess = ct.maximum((guess + target // guess) // 2, 1)
        rounds += 1
    ct.store(y, (0,), guess)


# args: x: i32[64], y: i32[4], n: i32; grid: 4
@ct.kernel
def first_multiple(x, y, n: int):
    found = -1
    for i in range(64):
        value = ct.load(x, (i,), ()) + ct.bid(0)
        if value % (n + 2) == 0:
            found = i
            break
    ct.store(y, (ct.bid(0),), found)


# args: x: i32[40], y: i32[40], n: i32; grid: 1
@ct.kernel
def skipping(x, y, n: int):
    total = 0
    i = 0
    while i < 40:
        i += 1
        if i % 3 == 0:
            continue
        total += ct.load(x, (i - 1,), ())
    ct.store(y, (0,), total)


# args: x: i32[256], bins: i32[16], T = 128; grid: 2
@ct.kernel
def histogram(x, bins, T: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0),), (T,))
    ct.atomic_add(bins, v & 15, 1)


# args: x: i32[256], high: i32[1], low: i32[1], every: i32[1]; grid: 4
@ct.kernel
def atomic_extremes(x, high, low, every):
    v = ct.load(x, (ct.bid(0),), (64,))
    ct.atomic_max(high, 0, ct.max(v))
    ct.atomic_min(low, 0, ct.min(v))
    ct.atomic_xor(every, 0, ct.sum(v))


# args: x: f32[6, 64], y: f32[64]; grid: 1
@ct.kernel
def branches_of_tiles(x, y):
    best = ct.load(x, (0, 0), (1, 64))
    for i in range(1, x.shape[0]):
        row = ct.load(x, (i, 0), (1, 64))
        if i % 2 == 0:
            best = ct.maximum(best, row)
        else:
            best = ct.minimum(best, row) + 1
    ct.store(y, (0,), best.reshape((64,)))


# args: x: i32[64], count: i32[64]; grid: 8
@ct.kernel
def compare_and_swap(x, count):
    at = ct.bid(0) * 8 + ct.arange(8, dtype=ct.int32)
    old = ct.gather(x, at)
    ct.atomic_cas(x, at, old, old + 1)
    ct.atomic_xchg(count, at, ct.gather(x, at))


# args: x: i32[512], parts: i32[4], count: i32[1], y: i32[1]; grid: 4
@ct.kernel
def last_block_finishes(x, parts, count, y):
    ct.scatter(parts, ct.bid(0), ct.sum(ct.load(x, (ct.bid(0),), (128,))))
    done = ct.atomic_add(count, 0, 1)
    if done == ct.num_blocks(0) - 1:
        all_parts = ct.load(parts, (0,), (4,), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE)
        ct.store(y, (0,), ct.sum(all_parts, axis=0, keepdims=True))
