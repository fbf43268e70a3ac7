"""Softmax over the last axis: exp(x - max) / sum, in ACC. Causal: row q of a square keeps columns up to q, the rest is written as 0."""
import cuda.tile as ct
import tessera


@tessera.kernel
def softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (i, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(y.dtype))


@tessera.kernel
def softmax_causal(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int], QUERIES: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    query = (i * ROWS + ct.arange(ROWS, dtype=ct.int32)) % QUERIES + (N - QUERIES)
    keep = ct.arange(N, dtype=ct.int32)[None, :] <= query[:, None]
    v = ct.where(keep, v, -float("inf"))
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (i, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(y.dtype))
