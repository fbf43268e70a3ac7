"""Kernels of Triton's on the subjects of its tutorials and of models, written for the tests of ``tessera.emu``."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, stride, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        values = tl.load(x + row * stride + at, mask=mask, other=-float("inf"))
        top = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * stride + at, top / tl.sum(top, axis=0), mask=mask)


@triton.jit
def activate(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(a, b, c, M, N, K, LEAKY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    across, down = tl.cdiv(N, BN), tl.cdiv(M, BM)
    group = pid // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    i = group * GROUP + pid % (GROUP * across) % height
    j = pid % (GROUP * across) // height
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    left = a + (rows % M)[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + (columns % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=depth[None, :] < K - k * BK, other=0.0)
        y = tl.load(right, mask=depth[:, None] < K - k * BK, other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * N
    if LEAKY:
        total = activate(total)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def batched_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    rows, columns, depth = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + batch * M * K + rows[:, None] * K + k + depth[None, :], mask=(rows[:, None] < M) & (k + depth[None, :] < K), other=0.0)
        y = tl.load(
            b + batch * K * N + (k + depth)[:, None] * N + columns[None, :], mask=(k + depth[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + batch * M * N + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def split_k_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.program_id(0) * BK + tl.arange(0, BK)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    y = tl.load(b + depth[:, None] * N + columns[None, :])
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], tl.dot(x, y))


@triton.jit
def persistent_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        rows, columns = tile // across * BM + tl.arange(0, BM), tile % across * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            depth = k + tl.arange(0, BK)
            x = tl.load(a + rows[:, None] * K + depth[None, :], mask=depth[None, :] < K, other=0.0)
            y = tl.load(b + depth[:, None] * N + columns[None, :], mask=depth[:, None] < K, other=0.0)
            total = tl.dot(x, y, total)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def descriptor_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    c.store([i, j], total.to(tl.float16))


@triton.jit
def specialised_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    c.store([i, j], total.to(tl.float16))


@triton.jit
def device_descriptor_copy(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at) * 2)


@triton.jit
def grouped_matmul(left, right, out, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile, before = tl.program_id(0), 0
    for group in range(groups):
        M, N, K = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1), tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * across
        while tile >= before and tile < before + tiles:
            a = tl.load(left + group).to(tl.pointer_type(tl.float16))
            b = tl.load(right + group).to(tl.pointer_type(tl.float16))
            c = tl.load(out + group).to(tl.pointer_type(tl.float16))
            rows, columns = (tile - before) // across * BM + tl.arange(0, BM), (tile - before) % across * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for k in range(0, K, BK):
                depth = k + tl.arange(0, BK)
                x = tl.load(a + rows[:, None] * K + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
                y = tl.load(b + depth[:, None] * N + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
                total += tl.dot(x, y)
            tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))
            tile += tl.num_programs(0)
        before += tiles


@triton.jit
def scaled_matmul(a, a_scale, b, b_scale, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    y = tl.load(b + depth[:, None] * N + columns[None, :])
    x_scale = tl.load(a_scale + rows[:, None] * (K // 32) + blocks[None, :])
    y_scale = tl.load(b_scale + columns[:, None] * (K // 32) + blocks[None, :])
    tl.store(c + rows[:, None] * N + columns[None, :], tl.dot_scaled(x, x_scale, "e4m3", y, y_scale, "e4m3"))


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=mask) / (1 - p), 0.0), mask=mask)


@triton.jit
def layer_norm(x, out, weight, bias, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    middle = tl.sum(total, axis=0) / columns
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        away = tl.where(at < columns, tl.load(x + row * columns + at, mask=at < columns, other=0.0) - middle, 0.0)
        square += away * away
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        value = (tl.load(x + row * columns + at, mask=mask) - middle) * scale
        tl.store(out + row * columns + at, value * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask), mask=mask)


@triton.jit
def layer_norm_backward(dx, dout, dweight, dbias, x, weight, mean, rstd, lock, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    given = tl.load(dout + row * columns + at, mask=mask, other=0.0)
    normal = tl.where(mask, (tl.load(x + row * columns + at, mask=mask, other=0.0) - tl.load(mean + row)) * tl.load(rstd + row), 0.0)
    scaled = tl.where(mask, given * tl.load(weight + at, mask=mask, other=0.0), 0.0)
    along = tl.sum(normal * scaled, axis=0) / columns
    level = tl.sum(scaled, axis=0) / columns
    tl.store(dx + row * columns + at, (scaled - (normal * along + level)) * tl.load(rstd + row), mask=mask)
    group = row % GROUPS
    part_weight, part_bias = given * normal, given
    dweight += group * columns + at
    dbias += group * columns + at
    count = lock + GROUPS + group
    while tl.atomic_cas(lock + group, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_weight += tl.load(dweight, mask=mask)
        part_bias += tl.load(dbias, mask=mask)
    tl.store(dweight, part_weight, mask=mask)
    tl.store(dbias, part_bias, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock + group, 0)


@triton.jit
def column_sums(x, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    across = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, rows, BM):
        down = start + tl.arange(0, BM)
        total += tl.load(x + down[:, None] * columns + across[None, :], mask=(down[:, None] < rows) & (across[None, :] < columns), other=0.0)
    tl.store(out + across, tl.sum(total, axis=0), mask=across < columns)


@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * length * D
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + dims[None, :], mask=rows[:, None] < length, other=0.0)
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    end = min((tl.program_id(0) + 1) * BM, length) if CAUSAL else length
    for start in range(0, end, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + head + columns[None, :] * D + dims[:, None], mask=columns[None, :] < length, other=0.0)
        score = tl.dot(query, key) * scale
        seen = columns[None, :] < length
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        score = tl.where(seen, score, -1e30)
        new = tl.maximum(top, tl.max(score, axis=1))
        part = tl.exp2(score - new[:, None])
        shrink = tl.exp2(top - new)
        weight = weight * shrink + tl.sum(part, axis=1)
        value = tl.load(v + head + columns[:, None] * D + dims[None, :], mask=columns[:, None] < length, other=0.0)
        total = tl.dot(part.to(tl.float16), value, total * shrink[:, None])
        top = new
    tl.store(out + head + rows[:, None] * D + dims[None, :], (total / weight[:, None]).to(tl.float16), mask=rows[:, None] < length)


@triton.jit
def arc_sine(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.asin(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(values, axis=0))


@triton.jit
def combine_moments(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    part = tl.where(count == 0, 0.0, count_b / tl.where(count == 0, 1.0, count))
    away = mean_b - mean_a
    return mean_a + away * part, square_a + square_b + away * away * count_a * part, count


@triton.jit
def variance(x, mean, var, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + tl.program_id(0) * columns + at, mask=mask, other=0.0)
    counts = tl.where(mask, 1.0, 0.0)
    middle, square, count = tl.reduce((values, tl.zeros_like(values), counts), 0, combine_moments)
    tl.store(mean + tl.program_id(0), middle)
    tl.store(var + tl.program_id(0), square / count)


@triton.jit
def grid_sum(x, total, largest, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(total, tl.sum(values, axis=0))
    tl.atomic_max(largest, tl.max(values, axis=0))


@triton.jit
def cumulative_sum(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
    tl.store(out + tl.program_id(0) * columns + at, tl.cumsum(values, axis=0), mask=at < columns)


@triton.jit
def follow(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def linear_recurrence(decay, x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _, state = tl.associative_scan((tl.load(decay + at), tl.load(x + at)), 0, follow)
    tl.store(out + at, state)


@triton.jit
def arg_max(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(out + tl.program_id(0), tl.argmax(values, axis=0))


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@triton.jit
def embedding(table, index, out, width, BLOCK: tl.constexpr):
    row, at = tl.load(index + tl.program_id(0)), tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * width + at, tl.load(table + row * width + at, mask=at < width), mask=at < width)


@triton.jit
def permute_rows(x, index, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), axis=0))


@triton.jit
def conv1d(x, weight, out, length, channels, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(WIDTH):
        source = at + tap - (WIDTH - 1)
        values = tl.load(x + channel * length + source, mask=(source >= 0) & (source < length), other=0.0)
        total += values * tl.load(weight + channel * WIDTH + tap)
    tl.store(out + channel * length + at, total, mask=at < length)


@triton.jit
def cross_entropy(logits, target, loss, grad, classes, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < classes
    values = tl.load(logits + row * classes + at, mask=mask, other=-float("inf"))
    top = tl.max(values, axis=0)
    total = tl.sum(tl.exp(values - top), axis=0)
    label = tl.load(target + row)
    tl.store(loss + row, tl.log(total) + top - tl.load(logits + row * classes + label))
    tl.store(grad + row * classes + at, tl.exp(values - top) / total - tl.where(at == label, 1.0, 0.0), mask=mask)


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    tl.store(out + row * columns + at, (values * scale * tl.load(weight + at, mask=mask).to(tl.float32)).to(tl.bfloat16), mask=mask)


@triton.jit
def rope(x, angles, out, heads, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    angle = tl.load(angles + row // heads * HALF + at)
    first, second = tl.load(x + row * 2 * HALF + at), tl.load(x + row * 2 * HALF + HALF + at)
    tl.store(out + row * 2 * HALF + at, first * tl.cos(angle) - second * tl.sin(angle))
    tl.store(out + row * 2 * HALF + HALF + at, second * tl.cos(angle) + first * tl.sin(angle))


@triton.jit
def swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(gate + at, mask=mask).to(tl.float32)
    tl.store(out + at, (value * tl.sigmoid(value) * tl.load(up + at, mask=mask)).to(tl.float16), mask=mask)


@triton.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    values = tl.load(x + rows[:, None] * N + columns[None, :], mask=(rows[:, None] < M) & (columns[None, :] < N))
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(values), mask=(columns[:, None] < N) & (rows[None, :] < M))


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def interleave(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    joined = tl.interleave(tl.load(x + at), tl.flip(tl.load(y + at)))
    tl.store(out + tl.arange(0, 2 * BLOCK), joined)


@triton.jit
def quantise_rows(x, out, scale, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    step = tl.max(tl.abs(values), axis=0) / 127.0
    tl.store(scale + row, step)
    rounded = libdevice.rint(values / step)
    tl.store(out + row * columns + at, rounded.to(tl.int8), mask=at < columns)


@triton.jit
def announce(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.device_assert(values < 100, "too large")
    if tl.program_id(0) == 1:
        tl.device_print("first", tl.min(values, axis=0))
