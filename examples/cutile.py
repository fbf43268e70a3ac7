"""Kernels in the manner in which users of cuTile write them: blocks in groups, persistent loops, masks by branches, rows by gather.

    tessera run examples/cutile.py::matmul A=randn:bf16[8192,8192] B=randn:bf16[8192,8192] C=empty:bf16[8192,8192] \\
        tm=128 tn=256 tk=64 --grid 2048
"""
import cuda.tile as ct
import numpy as np
import math
from cuda.tile import RoundingMode as RMd

ConstInt = ct.Constant[int]
ConstBool = ct.Constant[bool]
INV_LOG_2 = 1.0 / math.log(2)


@ct.kernel(occupancy=2)
def fmha(Q, K, V, Out, qk_scale: float, input_pos: int, TILE_D: ConstInt, H: ConstInt, TILE_M: ConstInt, TILE_N: ConstInt,
         GROUP: ConstInt, CAUSAL: ConstBool, EVEN_K: ConstBool):
    bid_x = ct.bid(0)
    bid_y = ct.bid(1)
    batch = bid_y // H
    head = bid_y % H
    kv_head = head // GROUP
    qk_scale = qk_scale * INV_LOG_2
    offs_m = bid_x * TILE_M + ct.arange(TILE_M, dtype=np.int32)
    offs_m += input_pos
    offs_m = offs_m[:, None]
    offs_n_tile = ct.arange(TILE_N, dtype=np.int32)
    offs_n_tile = offs_n_tile[None, :]
    m_i = ct.full((TILE_M, 1), -np.inf, dtype=np.float32)
    l_i = ct.full((TILE_M, 1), 0.0, dtype=np.float32)
    acc = ct.full((TILE_M, TILE_D), 0.0, dtype=np.float32)
    q = ct.load(Q, index=(batch, head, bid_x, 0), shape=(1, 1, TILE_M, TILE_D)).reshape((TILE_M, TILE_D))
    m_end = input_pos + (bid_x + 1) * TILE_M
    k_len = K.shape[2]
    if CAUSAL:
        mask_start = (input_pos + bid_x * TILE_M) // TILE_N
        mask_start = min(mask_start, k_len // TILE_N)
        Tc = ct.cdiv(min(m_end, k_len), TILE_N)
    else:
        Tc = ct.cdiv(k_len, TILE_N)
        mask_start = k_len // TILE_N
    for j in range(0, Tc):
        k = ct.load(K, index=(batch, kv_head, 0, j), shape=(1, 1, TILE_D, TILE_N), order=(0, 1, 3, 2), latency=2)
        k = k.reshape((TILE_D, TILE_N))
        qk = ct.full((TILE_M, TILE_N), 0.0, dtype=np.float32)
        qk = ct.mma(q, k, qk)
        if (CAUSAL or not EVEN_K) and j >= mask_start:
            offs_n = j * TILE_N + offs_n_tile
            mask = ct.full((TILE_M, TILE_N), True, dtype=np.bool_)
            if not EVEN_K:
                mask = mask & (offs_n < k_len)
            if CAUSAL:
                mask = mask & (offs_m >= offs_n)
            mask = ct.where(mask, 0.0, -np.inf)
            qk += mask
        m_ij = ct.maximum(m_i, ct.max(qk, axis=-1, keepdims=True) * qk_scale)
        qk = qk * qk_scale - m_ij
        p = ct.exp2(qk, flush_to_zero=True)
        l_ij = ct.sum(p, axis=-1, keepdims=True)
        alpha = ct.exp2(m_i - m_ij, flush_to_zero=True)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha
        v = ct.load(V, index=(batch, kv_head, j, 0), shape=(1, 1, TILE_N, TILE_D), latency=4).reshape((TILE_N, TILE_D))
        p = p.astype(Q.dtype)
        acc = ct.mma(p, v, acc)
        m_i = m_ij
    acc = ct.truediv(acc, l_i, flush_to_zero=True, rounding_mode=RMd.APPROX)
    acc = acc.reshape((1, 1, TILE_M, TILE_D)).astype(Out.dtype)
    ct.store(Out, index=(batch, head, bid_x, 0), tile=acc)


def swizzle_from(M, N, tm, tn, GROUP, bid):
    num_m = ct.cdiv(M, tm)
    num_n = ct.cdiv(N, tn)
    in_group = GROUP * num_n
    group = bid // in_group
    first_m = group * GROUP
    size_m = min(num_m - first_m, GROUP)
    bid_m = first_m + (bid % size_m)
    bid_n = (bid % in_group) // size_m
    return bid_m, bid_n


@ct.kernel(num_ctas=ct.ByTarget(sm_100=2))
def matmul(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    M = A.shape[0]
    N = B.shape[1]
    bidx, bidy = swizzle_from(M, N, tm, tn, 8, ct.bid(0))
    num_k = ct.num_tiles(A, axis=1, shape=(tm, tk))
    acc = ct.full((tm, tn), 0, dtype=ct.float32)
    pad = ct.PaddingMode.ZERO
    dtype = ct.tfloat32 if A.dtype == ct.float32 else A.dtype
    for k in range(num_k):
        a = ct.load(A, index=(bidx, k), shape=(tm, tk), padding_mode=pad).astype(dtype)
        b = ct.load(B, index=(k, bidy), shape=(tk, tn), padding_mode=pad).astype(dtype)
        acc = ct.mma(a, b, acc)
    acc = ct.astype(acc, C.dtype)
    ct.store(C, index=(bidx, bidy), tile=acc)


@ct.kernel
def persistent_matmul(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    M = A.shape[0]
    N = B.shape[1]
    bid = ct.bid(0)
    total = ct.cdiv(M, tm) * ct.cdiv(N, tn)
    num_k = ct.num_tiles(A, axis=1, shape=(tm, tk))
    for tile in range(bid, total, ct.num_blocks(0)):
        bidx, bidy = swizzle_from(M, N, tm, tn, 8, tile)
        acc = ct.full((tm, tn), 0, dtype=ct.float32)
        for k in range(num_k):
            a = ct.load(A, index=(bidx, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO)
            b = ct.load(B, index=(k, bidy), shape=(tk, tn), padding_mode=ct.PaddingMode.ZERO)
            acc = ct.mma(a, b, acc)
        ct.store(C, index=(bidx, bidy), tile=ct.astype(acc, C.dtype))


@ct.kernel
def bmm(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    batch = ct.bid(2)
    bidx = ct.bid(0)
    bidy = ct.bid(1)
    acc = ct.full((tm, tn), 0, dtype=np.float32)
    for k in range(ct.cdiv(A.shape[2], tk)):
        a = ct.load(A, index=(batch, bidx, k), shape=(1, tm, tk), padding_mode=ct.PaddingMode.ZERO)
        a = ct.reshape(a, (tm, tk))
        b = ct.load(B, index=(batch, k, bidy), shape=(1, tk, tn), padding_mode=ct.PaddingMode.ZERO)
        b = ct.reshape(b, (tk, tn))
        acc = ct.mma(a, b, acc)
    r = ct.astype(acc, C.dtype)
    r = ct.reshape(r, (1, tm, tn))
    ct.store(C, index=(batch, bidx, bidy), tile=r)


@ct.kernel(occupancy=4)
def softmax(output, input, n_rows: ConstInt, TILE: ConstInt, DIM_COLS: ConstInt):
    pid = ct.bid(0)
    num_programs = ct.num_blocks(0)
    offsets = ct.arange(TILE, dtype=ct.int32)
    for row in range(pid, n_rows, num_programs):
        x = ct.gather(input, (row, offsets), check_bounds=True, padding_value=-math.inf)
        x = ct.astype(x, np.float32)
        m = ct.max(x, 0, keepdims=True)
        num = ct.exp(x - m)
        den = ct.sum(num, 0, keepdims=True)
        y = ct.truediv(num, den)
        y = ct.astype(y, input.dtype)
        ct.scatter(output, (row, offsets), y, check_bounds=True)


@ct.kernel
def layer_norm(X, W, B, Y, Mean, Rstd, eps: float, TILE_N: ConstInt):
    bid_m = ct.bid(0)
    num_tiles = ct.num_tiles(X, axis=1, shape=(1, TILE_N))
    N = X.shape[1]
    mean = ct.full((1, TILE_N), 0, dtype=ct.float32)
    for j in range(num_tiles):
        tx = ct.load(X, index=(bid_m, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        mean += tx
    mean = ct.sum(mean, axis=1) / N
    ct.store(Mean, index=(bid_m,), tile=mean)
    var = ct.full((1, TILE_N), 0, dtype=ct.float32)
    for j in range(num_tiles):
        tx = ct.load(X, index=(bid_m, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        mask = (j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)) < N
        centered = ct.where(mask, tx - mean, 0)
        var += centered ** 2
    var = ct.sum(var, axis=1) / N
    rstd = 1 / ct.sqrt(var + eps)
    ct.store(Rstd, index=(bid_m,), tile=rstd)
    for j in range(num_tiles):
        tx = ct.load(X, index=(bid_m, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        tw = ct.load(W, index=(j,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
        tb = ct.load(B, index=(j,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
        ty = (tx - mean) * rstd * tw + tb
        ct.store(Y, index=(bid_m, j), tile=ty.astype(Y.dtype))


@ct.kernel
def rms_norm(x, w, out, Rstd, N: ConstInt, eps: float, TILE: ConstInt):
    row = ct.bid(0)
    acc = ct.full((TILE,), 0.0, dtype=np.float32)
    num = ct.cdiv(x.shape[1], TILE)
    offsets = ct.arange(TILE, dtype=np.int32)
    for j in range(0, num):
        offs = j * TILE + offsets
        xj = ct.gather(x, (row, offs), latency=1)
        xj = ct.astype(xj, np.float32)
        acc += xj * xj
    rms = ct.rsqrt(ct.sum(acc, axis=0, keepdims=False) / N + eps)
    ct.scatter(Rstd, row, rms)
    for j in range(0, num):
        offs = j * TILE + offsets
        wj = ct.gather(w, offs, latency=1)
        wj = ct.astype(wj, np.float32)
        xj = ct.gather(x, (row, offs), latency=1)
        xj = ct.astype(xj, np.float32)
        yj = xj * rms * wj
        ct.scatter(out, (row, offs), ct.astype(yj, x.dtype), latency=1)
