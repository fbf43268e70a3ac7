"""Kernels of Triton's with a mistake each. ``# here`` marks the line at which it is to be found."""

import triton
import triton.language as tl


@triton.jit
def add_without_a_mask(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at)  # here
    tl.store(out + at, total + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def transpose_by_the_wrong_stride(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    values = tl.load(x + rows[:, None] * N + columns[None, :], mask=mask)
    tl.store(out + columns[None, :] * N + rows[:, None], values, mask=mask)  # here


@triton.jit
def histogram_without_atomics(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.arange(0, BINS)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    before = tl.load(out + bins)  # here
    tl.store(out + bins, before + counts)


@triton.jit
def split_k_without_atomics(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.program_id(0) * BK + tl.arange(0, BK)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    y = tl.load(b + depth[:, None] * N + columns[None, :])
    tl.store(c + rows[:, None] * N + columns[None, :], tl.dot(x, y))  # here


@triton.jit
def conv1d_before_the_start(x, weight, out, length, channels, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(WIDTH):
        source = at + tap - (WIDTH - 1)
        values = tl.load(x + channel * length + source, mask=source < length, other=0.0)  # here
        total += values * tl.load(weight + channel * WIDTH + tap)
    tl.store(out + channel * length + at, total, mask=at < length)


@triton.jit
def scores_of_keys_behind_the_end(q, k, out, length, BM: tl.constexpr, D: tl.constexpr):
    rows, dims = tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + dims[None, :], mask=rows[:, None] < length, other=0.0)
    key = tl.load(k + rows[None, :] * D + dims[:, None])  # here
    mask = (rows[:, None] < length) & (rows[None, :] < length)
    tl.store(out + rows[:, None] * length + rows[None, :], tl.dot(query, key), mask=mask)


@triton.jit
def lock_that_a_plain_store_opens(lock, total, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + 1)  # here
    tl.store(lock, 0)


@triton.jit
def lock_that_nobody_opens(lock, total, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:  # here
        pass
    tl.store(total, tl.load(total) + 1)


@triton.jit
def look_up(table, at):
    return tl.load(table + at)


@triton.jit
def label_without_a_class(logits, target, loss, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(target + row)
    tl.store(loss + row, look_up(logits, row * classes + label))  # here


@triton.jit
def assertion_that_fails(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(values < 100, "too large")  # here
