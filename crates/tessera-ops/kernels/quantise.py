"""Codes of 8 bits with scales: code = round(x / scale), x = code scale. A scale is the largest magnitude of what it is for over MOST, the largest code;
the largest magnitude counts as 2^-100 where it is smaller. Floats round as conversions do, integers to the nearest, ties to even. NaN is no magnitude.

What has one scale is a block of 128 neighbours of a row, a row, or the tensor. Blocks and rows are read once. A tensor, and rows that no block holds,
are read twice: by `largest`, where the block that finds in `arrived` that all others of the row have come puts together what they left, and by `scaled`.
"""
import cuda.tile as ct
import tessera

LEAST = 2.0 ** -100
# Adding it to a smaller number leaves the nearest integer in the low bits.
ROUND = 12582912.0
ZERO = ct.PaddingMode.ZERO


def scale_of(v, axis, MOST):
    return ct.maximum(ct.max(ct.abs(v), axis=axis, keepdims=True), LEAST) / MOST


def coded(v, scale, dtype):
    t = v * (1.0 / scale)
    if dtype == ct.int8:
        t = t + ROUND - ROUND
    return t.astype(dtype)


@tessera.kernel
def quantise_rows(x, codes, scales, MOST: ct.Constant[float], ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO).astype(ct.float32)
    scale = scale_of(v, 1, MOST)
    ct.store(codes, (i, 0), coded(v, scale, codes.dtype))
    ct.store(scales, (i,), scale.reshape((ROWS,)))


@tessera.kernel
def quantise_blocks(x, codes, scales, MOST: ct.Constant[float], TM: ct.Constant[int], TN: ct.Constant[int]):
    columns = ct.cdiv(x.shape[1], TN)
    i, j = ct.bid(0) // columns, ct.bid(0) % columns
    v = ct.load(x, (i, j), (TM, TN), padding_mode=ZERO).astype(ct.float32).reshape((TM, TN // 128, 128))
    scale = scale_of(v, 2, MOST)
    ct.store(codes, (i, j), coded(v, scale, codes.dtype).reshape((TM, TN)))
    ct.store(scales, (i, j), scale.reshape((TM, TN // 128)))


@tessera.kernel(num_warps=8, occupancy=4)
def largest(x, partials, arrived, scales, MOST: ct.Constant[float], CHUNK: ct.Constant[int], TILES: ct.Constant[int], PARTS: ct.Constant[int]):
    i, part = ct.bid(0) // partials.shape[1], ct.bid(0) % partials.shape[1]
    first = part * TILES
    most = ct.zeros((1, CHUNK), ct.float32)
    for j in range(first, min(first + TILES, ct.cdiv(x.shape[1], CHUNK))):
        most = ct.maximum(most, ct.abs(ct.load(x, (i, j), (1, CHUNK), padding_mode=ZERO).astype(ct.float32)))
    ct.store(partials, (i, part), ct.max(most, axis=1, keepdims=True))
    if ct.atomic_add(arrived, i, 1) == partials.shape[1] - 1:
        ct.store(arrived, (i,), ct.zeros((1,), arrived.dtype))
        all = ct.zeros((1, PARTS), ct.float32)
        for k in range(ct.cdiv(partials.shape[1], PARTS)):
            all = ct.maximum(all, ct.load(partials, (i, k), (1, PARTS), padding_mode=ZERO))
        ct.store(scales, (i,), scale_of(all, 1, MOST).reshape((1,)))


@tessera.kernel
def scaled(x, scales, codes, CHUNK: ct.Constant[int]):
    pieces = ct.cdiv(x.shape[1], CHUNK)
    i, j = ct.bid(0) // pieces, ct.bid(0) % pieces
    v = ct.load(x, (i, j), (1, CHUNK)).astype(ct.float32)
    ct.store(codes, (i, j), coded(v, ct.load(scales, (i,), (1,)).reshape((1, 1)), codes.dtype))


def dequantised(codes, scale, y, i, j, TM, TN, GROUP):
    t = ct.load(codes, (i, j), (TM, TN)).astype(ct.float32).reshape((TM, TN // GROUP, GROUP))
    ct.store(y, (i, j), (t * scale).reshape((TM, TN)).astype(y.dtype))


@tessera.kernel
def dequantise_blocks(codes, scales, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    columns = ct.cdiv(y.shape[1], TN)
    i, j = ct.bid(0) // columns, ct.bid(0) % columns
    scale = ct.load(scales, (i, j), (TM, TN // 128)).reshape((TM, TN // 128, 1))
    dequantised(codes, scale, y, i, j, TM, TN, 128)


@tessera.kernel
def dequantise_rows(codes, scales, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    columns = ct.cdiv(y.shape[1], TN)
    i, j = ct.bid(0) // columns, ct.bid(0) % columns
    dequantised(codes, ct.load(scales, (i,), (TM,)).reshape((TM, 1, 1)), y, i, j, TM, TN, TN)


@tessera.kernel
def dequantise_tensor(codes, scales, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    columns = ct.cdiv(y.shape[1], TN)
    i, j = ct.bid(0) // columns, ct.bid(0) % columns
    dequantised(codes, ct.load(scales, (0,), (1,)).reshape((1, 1, 1)), y, i, j, TM, TN, TN)


@tessera.kernel
def cast(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i,), (TILE,))
    if y.dtype == ct.int8:
        t = t.astype(ct.float32) + ROUND - ROUND
    ct.store(y, (i,), t.astype(y.dtype))
