"""Kernels against cuTile's documented API, one of each kind that users write first. Each is run and compared with NumPy in the tests."""
import math

import cuda.tile as ct

INV_LOG_2 = 1.0 / math.log(2)


@ct.kernel
def vector_add(a, b, c, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(TILE,)) + ct.load(b, index=(i,), shape=(TILE,)))


@ct.kernel
def softmax(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


def swizzled_block(M, N, TM, TN, GROUP):
    block = ct.bid(0)
    rows = ct.cdiv(M, TM)
    columns = ct.cdiv(N, TN)
    in_group = GROUP * columns
    first = (block // in_group) * GROUP
    size = min(rows - first, GROUP)
    return first + (block % size), (block % in_group) // size


@ct.kernel
def matmul(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    M = A.shape[0]
    N = B.shape[1]
    i, j = swizzled_block(M, N, TM, TN, 8)
    steps = ct.num_tiles(A, axis=1, shape=(TM, TK))
    acc = ct.full((TM, TN), 0, dtype=ct.float32)
    for k in range(steps):
        a = ct.load(A, index=(i, k), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, index=(k, j), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, index=(i, j), tile=ct.astype(acc, C.dtype))


@ct.kernel
def flash_attention(Q, K, V, O, scale: float, D: ct.Constant[int], H: ct.Constant[int], GROUP: ct.Constant[int],
                    TM: ct.Constant[int], TN: ct.Constant[int], CAUSAL: ct.Constant[bool]):
    """Q, O: batch x heads x queries x D; K, V: batch x (heads / GROUP) x keys x D. Online softmax in base 2."""
    block = ct.bid(0)
    batch = ct.bid(1) // H
    head = ct.bid(1) % H
    kv_head = head // GROUP
    scale = scale * INV_LOG_2
    queries = Q.shape[2]
    keys = K.shape[2]
    rows = block * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = ct.arange(TN, dtype=ct.int32)[None, :]
    m = ct.full((TM, 1), -math.inf, dtype=ct.float32)
    l = ct.full((TM, 1), 0.0, dtype=ct.float32)
    acc = ct.full((TM, D), 0.0, dtype=ct.float32)
    q = ct.load(Q, index=(batch, head, block, 0), shape=(1, 1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    offset = keys - queries
    end = keys
    if CAUSAL:
        end = min(keys, (block + 1) * TM + offset)
    for j in range(0, ct.cdiv(end, TN)):
        k = ct.load(K, index=(batch, kv_head, 0, j), shape=(1, 1, D, TN), order=(0, 1, 3, 2),
                    padding_mode=ct.PaddingMode.ZERO, latency=2).reshape((D, TN))
        s = ct.mma(q, k, ct.full((TM, TN), 0.0, dtype=ct.float32))
        position = j * TN + columns
        keep = position < keys
        if CAUSAL:
            keep = keep & (position <= rows + offset)
        s = ct.where(keep, s * scale, -math.inf)
        m_new = max(m, ct.max(s, axis=-1, keepdims=True))
        p = ct.exp2(s - m_new, flush_to_zero=True)
        alpha = ct.exp2(m - m_new, flush_to_zero=True)
        l = l * alpha + ct.sum(p, axis=-1, keepdims=True)
        v = ct.load(V, index=(batch, kv_head, j, 0), shape=(1, 1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(Q.dtype), v, acc * alpha)
        m = m_new
    acc = ct.truediv(acc, l)
    ct.store(O, index=(batch, head, block, 0), tile=acc.astype(O.dtype).reshape((1, 1, TM, D)))


@ct.kernel
def histogram(values, bins, TILE: ct.Constant[int]):
    index = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    inside = index < values.shape[0]
    bin = ct.gather(values, index, padding_value=-1)
    bin = ct.where(inside, bin, -1)
    ct.atomic_add(bins, bin, 1)


@ct.kernel
def prefix_sum(x, y, TILE: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, 0), tile=ct.cumsum(v, axis=1))


@ct.kernel
def argmax(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(y, index=(row,), tile=ct.argmax(v, axis=1).astype(y.dtype))


@ct.kernel
def matmul_int8(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), dtype=ct.int32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, index=(i, k), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, index=(k, j), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, index=(i, j), tile=acc)


@ct.kernel
def matmul_fp8(A, B, C, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), dtype=ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, index=(i, k), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO).astype(ct.float8_e4m3fn)
        b = ct.load(B, index=(k, j), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO).astype(ct.float8_e4m3fn)
        acc = ct.mma(a, b, acc)
    ct.store(C, index=(i, j), tile=acc * scale)


@ct.kernel
def matmul_fp4_packed(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """A is M x K/2 bytes, two fp4 numbers a byte, low half first; B is bfloat16."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), dtype=ct.float32)
    for k in range(ct.cdiv(B.shape[0], TK)):
        packed = ct.load(A, index=(i, k), shape=(TM, TK // 2), padding_mode=ct.PaddingMode.ZERO)
        a = ct.unpack_from_bytes(packed.reshape((TM * TK // 2,)), ct.float4_e2m1fn).reshape((TM, TK))
        b = ct.load(B, index=(k, j), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a.astype(ct.bfloat16), b, acc)
    ct.store(C, index=(i, j), tile=acc)
