"""Vector operations: axpy, add, mul elementwise; dot, norm, reduce_sum, reduce_max in two stages.

Arithmetic is in ACC whatever the storage type. A reduction's first stage writes one partial result a block, each over TILES tiles in a
fixed order; the second stage is one block. So a result never depends on how blocks are scheduled.
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def axpy(x, y, z, alpha: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a * alpha + b).astype(z.dtype))


@tessera.kernel
def add(x, y, z, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a + b).astype(z.dtype))


@tessera.kernel
def mul(x, y, z, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a * b).astype(z.dtype))


@tessera.kernel
def sum_partials(x, partials, ACC: ct.Constant, TILE: ct.Constant[int], TILES: ct.Constant[int]):
    block = ct.bid(0)
    first = block * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], TILE))
    acc = ct.zeros((TILE,), ACC)
    for i in range(first, last):
        acc = acc + ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(partials, (block,), ct.sum(acc, axis=0, keepdims=True))


@tessera.kernel
def dot_partials(x, y, partials, ACC: ct.Constant, TILE: ct.Constant[int], TILES: ct.Constant[int]):
    block = ct.bid(0)
    first = block * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], TILE))
    acc = ct.zeros((TILE,), ACC)
    for i in range(first, last):
        a = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        b = ct.load(y, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        acc = acc + a * b
    ct.store(partials, (block,), ct.sum(acc, axis=0, keepdims=True))


@tessera.kernel
def square_partials(x, partials, ACC: ct.Constant, TILE: ct.Constant[int], TILES: ct.Constant[int]):
    block = ct.bid(0)
    first = block * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], TILE))
    acc = ct.zeros((TILE,), ACC)
    for i in range(first, last):
        a = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        acc = acc + a * a
    ct.store(partials, (block,), ct.sum(acc, axis=0, keepdims=True))


@tessera.kernel
def max_partials(x, partials, ACC: ct.Constant, TILE: ct.Constant[int], TILES: ct.Constant[int]):
    block = ct.bid(0)
    first = block * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], TILE))
    acc = ct.full((TILE,), -float("inf"), ACC)
    for i in range(first, last):
        acc = ct.maximum(acc, ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.NEG_INF).astype(ACC))
    ct.store(partials, (block,), ct.max(acc, axis=0, keepdims=True))


@tessera.kernel
def finish_sum(partials, result, TILE: ct.Constant[int]):
    acc = ct.zeros((TILE,), partials.dtype)
    for i in range(ct.cdiv(partials.shape[0], TILE)):
        acc = acc + ct.load(partials, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(result, (0,), ct.sum(acc, axis=0, keepdims=True).astype(result.dtype))


@tessera.kernel
def finish_norm(partials, result, TILE: ct.Constant[int]):
    acc = ct.zeros((TILE,), partials.dtype)
    for i in range(ct.cdiv(partials.shape[0], TILE)):
        acc = acc + ct.load(partials, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(result, (0,), ct.sqrt(ct.sum(acc, axis=0, keepdims=True)).astype(result.dtype))


@tessera.kernel
def finish_max(partials, result, TILE: ct.Constant[int]):
    acc = ct.full((TILE,), -float("inf"), partials.dtype)
    for i in range(ct.cdiv(partials.shape[0], TILE)):
        acc = ct.maximum(acc, ct.load(partials, (i,), (TILE,), padding_mode=ct.PaddingMode.NEG_INF))
    ct.store(result, (0,), ct.max(acc, axis=0, keepdims=True).astype(result.dtype))
