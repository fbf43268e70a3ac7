"""Attention that keeps a running maximum and sum: full and causal, queries in groups over fewer keys' heads."""

import math

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]
ConstBool = ct.Constant[bool]
INV_LOG_2 = 1.0 / math.log(2)


@ct.kernel(occupancy=2)
def fmha_kernel(Q, K, V, Out, qk_scale: float, TILE_D: ConstInt, H: ConstInt, TILE_M: ConstInt, TILE_N: ConstInt, GROUP: ConstInt, CAUSAL: ConstBool):
    bid_x, bid_y = ct.bid(0), ct.bid(1)
    batch, head = bid_y // H, bid_y % H
    kv_head = head // GROUP
    qk_scale = qk_scale * INV_LOG_2
    rows = (bid_x * TILE_M + ct.arange(TILE_M, dtype=ct.int32))[:, None]
    columns = ct.arange(TILE_N, dtype=ct.int32)[None, :]
    m_i = ct.full((TILE_M, 1), -math.inf, dtype=ct.float32)
    l_i = ct.full((TILE_M, 1), 0.0, dtype=ct.float32)
    acc = ct.full((TILE_M, TILE_D), 0.0, dtype=ct.float32)
    q = ct.load(Q, index=(batch, head, bid_x, 0), shape=(1, 1, TILE_M, TILE_D), padding_mode=ct.PaddingMode.ZERO).reshape((TILE_M, TILE_D))
    length = K.shape[2]
    if CAUSAL:
        tiles = ct.cdiv(min((bid_x + 1) * TILE_M, length), TILE_N)
    else:
        tiles = ct.cdiv(length, TILE_N)
    for j in range(0, tiles):
        k = ct.load(K, (batch, kv_head, 0, j), (1, 1, TILE_D, TILE_N), order=(0, 1, 3, 2), padding_mode=ct.PaddingMode.ZERO, latency=2)
        qk = ct.mma(q, k.reshape((TILE_D, TILE_N)), ct.full((TILE_M, TILE_N), 0.0, dtype=ct.float32))
        mask = j * TILE_N + columns < length
        if CAUSAL:
            mask = mask & (rows >= j * TILE_N + columns)
        qk = ct.where(mask, qk * qk_scale, -math.inf)
        m_ij = max(m_i, ct.max(qk, axis=-1, keepdims=True))
        p = ct.exp2(qk - m_ij)
        alpha = ct.exp2(m_i - m_ij)
        l_i = l_i * alpha + ct.sum(p, axis=-1, keepdims=True)
        v = ct.load(V, (batch, kv_head, j, 0), (1, 1, TILE_N, TILE_D), padding_mode=ct.PaddingMode.ZERO).reshape((TILE_N, TILE_D))
        acc = ct.mma(p.astype(Q.dtype), v, acc * alpha)
        m_i = m_ij
    out = (acc / l_i).reshape((1, 1, TILE_M, TILE_D)).astype(Out.dtype)
    ct.store(Out, index=(batch, head, bid_x, 0), tile=out)


def main():
    for causal, group in ((False, 1), (True, 2)):
        q = torch.randn(2, 4, 100, 32, dtype=torch.float16, device="cuda")
        k = torch.randn(2, 4 // group, 100, 32, dtype=torch.float16, device="cuda")
        v = torch.randn_like(k)
        out = torch.empty_like(q)
        scale = 1 / math.sqrt(32)
        grid = (math.ceil(100 / 32), 8, 1)
        ct.launch(torch.cuda.current_stream(), grid, fmha_kernel, (q, k, v, out, scale, 32, 4, 32, 16, group, causal))
        keys, values = (t.double().repeat_interleave(group, 1) for t in (k, v))
        scores = q.double() @ keys.transpose(2, 3) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(100, 100, device="cuda").triu(1).bool(), -math.inf)
        torch.testing.assert_close(out.double(), scores.softmax(-1) @ values, atol=4e-3, rtol=4e-3)


if __name__ == "__main__":
    main()
