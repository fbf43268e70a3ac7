"""Attention: softmax(scale * Q K^T) V for every head, with the softmax taken tile by tile of keys in base 2. Causal: query q sees keys up to
q + (keys - queries). Q, O: batch x heads x queries x D; K, V: batch x (heads / GROUP) x keys x D."""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
NOTHING = -float("inf")


def scores(q, K, batch, head, j, TN, D, ACC):
    k = ct.load(K, (batch, head, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
    return ct.mma(q, k, ct.zeros((q.shape[0], TN), ACC))


def fold(s, V, batch, head, j, factor, m, l, acc, TN, D):
    """The largest score, the sum and the result so far with another tile of keys."""
    largest = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
    shift = largest * factor
    p = ct.exp2(s * factor - shift, flush_to_zero=True)
    alpha = ct.exp2(m * factor - shift, flush_to_zero=True)
    v = ct.load(V, (batch, head, j, 0), (1, 1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
    l = l * alpha + ct.sum(p, axis=1, keepdims=True)
    return largest, l, ct.mma(p.astype(V.dtype), v, acc * alpha)


@tessera.kernel
def attention(Q, K, V, O, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int],
              D: ct.Constant[int], CAUSAL: ct.Constant[bool], ACC: ct.Constant):
    queries, keys = Q.shape[2], K.shape[2]
    block = ct.bid(0)
    if CAUSAL:
        # The blocks with the most keys first.
        block = ct.cdiv(queries, TM) - 1 - block
    batch, head = ct.bid(1) // HEADS, ct.bid(1) % HEADS
    shared = head // GROUP
    factor = ct.astype(scale * LOG2_E, ACC)
    whole, end = keys // TN, ct.cdiv(keys, TN)
    seen = block * TM + keys - queries + 1
    if CAUSAL:
        whole, end = min(whole, seen // TN), min(end, ct.cdiv(seen + TM - 1, TN))
    q = ct.load(Q, (batch, head, block, 0), (1, 1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), NOTHING, ACC)
    l = ct.zeros((TM, 1), ACC)
    acc = ct.zeros((TM, D), ACC)
    for j in range(whole):
        s = scores(q, K, batch, shared, j, TN, D, ACC)
        m, l, acc = fold(s, V, batch, shared, j, factor, m, l, acc, TN, D)
    for j in range(whole, end):
        s = scores(q, K, batch, shared, j, TN, D, ACC)
        key = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        keep = key < keys
        if CAUSAL:
            keep = keep & (key < seen + ct.arange(TM, dtype=ct.int32)[:, None])
        m, l, acc = fold(ct.where(keep, s, NOTHING), V, batch, shared, j, factor, m, l, acc, TN, D)
    ct.store(O, (batch, head, block, 0), (acc * (1.0 / l)).astype(O.dtype).reshape((1, 1, TM, D)))
