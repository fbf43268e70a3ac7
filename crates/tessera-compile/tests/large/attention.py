"""Attention forward and backward with wide heads."""
import math

import cuda.tile as ct

Z = ct.PaddingMode.ZERO
LOG2_E = 1.4426950408889634


# args: Q: f16[1, 2, 130, 64], K: f16[1, 2, 130, 64], V: f16[1, 2, 130, 64], O: f16[1, 2, 130, 64], scale: f32, D = 64, TM = 128, TN = 128, CAUSAL = 1; grid: 2, 2; near: 3e-2
# args: Q: bf16[1, 1, 130, 128], K: bf16[1, 1, 130, 128], V: bf16[1, 1, 130, 128], O: bf16[1, 1, 130, 128], scale: f32, D = 128, TM = 128, TN = 128, CAUSAL = 1; grid: 2, 1; near: 3e-2
# args: Q: bf16[1, 1, 130, 128], K: bf16[1, 1, 300, 128], V: bf16[1, 1, 300, 128], O: bf16[1, 1, 130, 128], scale: f32, D = 128, TM = 128, TN = 256, CAUSAL = 0; grid: 2, 1; near: 3e-2
# args: Q: bf16[1, 1, 260, 128], K: bf16[1, 1, 300, 128], V: bf16[1, 1, 300, 128], O: bf16[1, 1, 260, 128], scale: f32, D = 128, TM = 256, TN = 128, CAUSAL = 0; grid: 2, 1; near: 3e-2
# args: Q: bf16[1, 1, 130, 256], K: bf16[1, 1, 130, 256], V: bf16[1, 1, 130, 256], O: bf16[1, 1, 130, 256], scale: f32, D = 256, TM = 128, TN = 128, CAUSAL = 1; grid: 2, 1; near: 3e-2
# args: Q: bf16[1, 1, 130, 512], K: bf16[1, 1, 130, 512], V: bf16[1, 1, 130, 512], O: bf16[1, 1, 130, 512], scale: f32, D = 512, TM = 64, TN = 64, CAUSAL = 0; grid: 3, 1; near: 3e-2
# args: Q: f16[1, 1, 130, 512], K: f16[1, 1, 130, 512], V: f16[1, 1, 130, 512], O: f16[1, 1, 130, 512], scale: f32, D = 512, TM = 128, TN = 128, CAUSAL = 1; grid: 2, 1; near: 3e-2
# args: Q: f32[1, 1, 130, 128], K: f32[1, 1, 130, 128], V: f32[1, 1, 130, 128], O: f32[1, 1, 130, 128], scale: f32, D = 128, TM = 128, TN = 128, CAUSAL = 1; grid: 2, 1; near: 3e-2
@ct.kernel
def forward(Q, K, V, O, scale: float, D: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int], CAUSAL: ct.Constant[int]):
    block, head = ct.bid(0), ct.bid(1)
    keys = K.shape[2]
    q = ct.load(Q, (0, head, block, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
    rows = block * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(keys, TN)):
        k = ct.load(K, (0, head, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), padding_mode=Z).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * (scale * 0.01)
        columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        keep = columns < keys
        if CAUSAL:
            keep = keep & (columns <= rows)
        s = ct.where(keep, s, -math.inf)
        new = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p, alpha = ct.exp2(s - new), ct.exp2(m - new)
        v = ct.load(V, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = new
    ct.store(O, (0, head, block, 0), (acc / l).astype(O.dtype).reshape((1, 1, TM, D)))


# args: Q: bf16[1, 2, 130, 128], K: bf16[1, 2, 130, 128], V: bf16[1, 2, 130, 128], B: f32[130, 130], O: bf16[1, 2, 130, 128], D = 128, TM = 128, TN = 128; grid: 2, 2; near: 3e-2
# args: Q: bf16[1, 1, 130, 256], K: bf16[1, 1, 130, 256], V: bf16[1, 1, 130, 256], B: f32[130, 130], O: bf16[1, 1, 130, 256], D = 256, TM = 128, TN = 128; grid: 2, 1; near: 3e-2
@ct.kernel
def forward_with_bias(Q, K, V, B, O, D: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int]):
    block, head = ct.bid(0), ct.bid(1)
    keys = K.shape[2]
    q = ct.load(Q, (0, head, block, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(keys, TN)):
        k = ct.load(K, (0, head, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), padding_mode=Z).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * 0.01
        bias = ct.load(B, (block, j), (TM, TN), padding_mode=Z)
        columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        s = ct.where(columns < keys, s + ct.minimum(ct.maximum(bias, -4.0), 4.0), -math.inf)
        new = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p, alpha = ct.exp2(s - new), ct.exp2(m - new)
        v = ct.load(V, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = new
    ct.store(O, (0, head, block, 0), (acc / l).astype(O.dtype).reshape((1, 1, TM, D)))


# args: Q: bf16[1, 1, 130, 64], K: bf16[1, 1, 130, 64], V: bf16[1, 1, 130, 64], DO: bf16[1, 1, 130, 64], L: f32[1, 130], E: f32[1, 130], DK: f32[1, 1, 130, 64], DV: f32[1, 1, 130, 64], D = 64, TM = 64, TN = 128; grid: 2, 1; near: 5e-2
# args: Q: bf16[1, 1, 130, 128], K: bf16[1, 1, 130, 128], V: bf16[1, 1, 130, 128], DO: bf16[1, 1, 130, 128], L: f32[1, 130], E: f32[1, 130], DK: f32[1, 1, 130, 128], DV: f32[1, 1, 130, 128], D = 128, TM = 128, TN = 128; grid: 2, 1; near: 5e-2
# args: Q: f16[1, 1, 130, 256], K: f16[1, 1, 130, 256], V: f16[1, 1, 130, 256], DO: f16[1, 1, 130, 256], L: f32[1, 130], E: f32[1, 130], DK: f32[1, 1, 130, 256], DV: f32[1, 1, 130, 256], D = 256, TM = 128, TN = 128; grid: 2, 1; near: 5e-2
@ct.kernel
def backward_keys(Q, K, V, DO, L, E, DK, DV, D: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int]):
    j, head = ct.bid(0), ct.bid(1)
    k = ct.load(K, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
    v = ct.load(V, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
    dk, dv = ct.zeros((TN, D), ct.float32), ct.zeros((TN, D), ct.float32)
    for i in range(ct.cdiv(Q.shape[2], TM)):
        q = ct.load(Q, (0, head, i, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
        do = ct.load(DO, (0, head, i, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
        l = ct.minimum(ct.maximum(ct.load(L, (head, i), (1, TM), padding_mode=Z).reshape((TM, 1)), -4.0), 4.0)
        e = ct.minimum(ct.maximum(ct.load(E, (head, i), (1, TM), padding_mode=Z).reshape((TM, 1)), -4.0), 4.0)
        s = ct.mma(q, ct.transpose(k), ct.zeros((TM, TN), ct.float32)) * 0.01
        p = ct.exp2(s - l)
        dv = ct.mma(ct.transpose(p.astype(V.dtype)), do, dv)
        dp = ct.mma(do, ct.transpose(v), ct.zeros((TM, TN), ct.float32)) * 0.01
        ds = (p * (dp - e)).astype(Q.dtype)
        dk = ct.mma(ct.transpose(ds), q, dk)
    ct.store(DK, (0, head, j, 0), dk.reshape((1, 1, TN, D)))
    ct.store(DV, (0, head, j, 0), dv.reshape((1, 1, TN, D)))


# args: Q: bf16[1, 1, 130, 64], K: bf16[1, 1, 130, 64], V: bf16[1, 1, 130, 64], DO: bf16[1, 1, 130, 64], L: f32[1, 130], E: f32[1, 130], DQ: f32[1, 1, 130, 64], D = 64, TM = 128, TN = 128; grid: 2, 1; near: 5e-2
# args: Q: bf16[1, 1, 130, 128], K: bf16[1, 1, 130, 128], V: bf16[1, 1, 130, 128], DO: bf16[1, 1, 130, 128], L: f32[1, 130], E: f32[1, 130], DQ: f32[1, 1, 130, 128], D = 128, TM = 128, TN = 128; grid: 2, 1; near: 5e-2
# args: Q: f16[1, 1, 130, 512], K: f16[1, 1, 130, 512], V: f16[1, 1, 130, 512], DO: f16[1, 1, 130, 512], L: f32[1, 130], E: f32[1, 130], DQ: f32[1, 1, 130, 512], D = 512, TM = 64, TN = 64; grid: 3, 1; near: 5e-2
@ct.kernel
def backward_queries(Q, K, V, DO, L, E, DQ, D: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int]):
    i, head = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (0, head, i, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
    do = ct.load(DO, (0, head, i, 0), (1, 1, TM, D), padding_mode=Z).reshape((TM, D))
    l = ct.minimum(ct.maximum(ct.load(L, (head, i), (1, TM), padding_mode=Z).reshape((TM, 1)), -4.0), 4.0)
    e = ct.minimum(ct.maximum(ct.load(E, (head, i), (1, TM), padding_mode=Z).reshape((TM, 1)), -4.0), 4.0)
    dq = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[2], TN)):
        k = ct.load(K, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
        v = ct.load(V, (0, head, j, 0), (1, 1, TN, D), padding_mode=Z).reshape((TN, D))
        p = ct.exp2(ct.mma(q, ct.transpose(k), ct.zeros((TM, TN), ct.float32)) * 0.01 - l)
        dp = ct.mma(do, ct.transpose(v), ct.zeros((TM, TN), ct.float32)) * 0.01
        dq = ct.mma((p * (dp - e)).astype(Q.dtype), k, dq)
    ct.store(DQ, (0, head, i, 0), dq.reshape((1, 1, TM, D)))
