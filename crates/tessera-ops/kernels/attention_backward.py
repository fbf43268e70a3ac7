"""Gradients of attention: of P = exp(scale * Q K^T - lse) and O = P V, for a cotangent dO of O and one of lse. Nothing is added up in an order that
depends on how blocks are scheduled: a block has a tile of keys and goes through the queries that see it, or a tile of queries and goes through its keys.

    delta = sum(dO * O) - dlse    dP = dO V^T    dS = P * (dP - delta)    dV = P^T dO    dK = scale * dS^T Q    dQ = scale * dS K

Q, O, dO: batch x heads x queries x D; K, V: batch x (heads / GROUP) x keys x D; lse: batch x heads x queries. Causal: query q sees keys up to
q + (keys - queries). Scores of keys come transposed, so that P^T and dS^T are left factors as they lie in registers. `shift` is lse in base 2.
Numbers that a launch is given have 32 bits: `scale` is rounded to them for arrays of fp64, too.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
LOG2_E = 1.4426950408889634


def power(x):
    """2 to the power of x; what is no normal number of 32 bits may be 0."""
    return ct.exp2(x, flush_to_zero=x.dtype == ct.float32)


def lines(X, batch, head, i, T, D):
    return ct.load(X, (batch, head, i, 0), (1, 1, T, D), padding_mode=ZERO).reshape((T, D))


def transposed(X, batch, head, i, T, D):
    return ct.load(X, (batch, head, 0, i), (1, 1, D, T), order=(0, 1, 3, 2), padding_mode=ZERO).reshape((D, T))


def numbers(x, batch, head, i, T):
    return ct.load(x, (batch, head, i), (1, 1, T), padding_mode=ZERO).reshape((1, T))


@tessera.kernel
def of_rows(O, dO, lse, dlse, delta, shift, HEADS: ct.Constant[int], TM: ct.Constant[int], D: ct.Constant[int], ACC: ct.Constant):
    """What the gradients need of each query: delta, and lse in base 2. Behind the last query both are 0."""
    i, batch, head = ct.bid(0), ct.bid(1) // HEADS, ct.bid(1) % HEADS
    o = lines(O, batch, head, i, TM, D).astype(ACC)
    do = lines(dO, batch, head, i, TM, D).astype(ACC)
    along = ct.load(dlse, (batch, head, i), (1, 1, TM), padding_mode=ZERO)
    ct.store(delta, (batch, head, i), ct.sum(o * do, axis=1).reshape((1, 1, TM)) - along)
    ct.store(shift, (batch, head, i), ct.load(lse, (batch, head, i), (1, 1, TM), padding_mode=ZERO) * LOG2_E)


@tessera.kernel
def of_keys(Q, K, V, dO, delta, shift, dK, dV, scale: float, SHARED: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int],
            TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool], KEYS: ct.Constant[bool], VALUES: ct.Constant[bool],
            ACC: ct.Constant):
    """dK, where KEYS, and dV, where VALUES, of a tile of keys: of all queries that see it, of all heads that share it."""
    j, batch, shared = ct.bid(0), ct.bid(1) // SHARED, ct.bid(1) % SHARED
    queries, keys = Q.shape[2], K.shape[2]
    factor = ct.astype(scale, ACC) * LOG2_E
    k = lines(K, batch, shared, j, TN, D)
    if KEYS:
        v = lines(V, batch, shared, j, TN, D)
        dk = ct.zeros((TN, D), ACC)
    if VALUES:
        dv = ct.zeros((TN, D), ACC)
    first = max(0, j * TN - (keys - queries)) // TM if CAUSAL else 0
    tiles = ct.cdiv(queries, TM) - first
    for t in range(GROUP * tiles):
        if GROUP == 1:
            head, i = shared, first + t
        else:
            head, i = shared * GROUP + t // tiles, first + t % tiles
        q = transposed(Q, batch, head, i, TM, D)
        s = ct.mma(k, q, ct.zeros((TN, TM), ACC))
        do = transposed(dO, batch, head, i, TM, D)
        if KEYS:
            dp = ct.mma(v, do, ct.zeros((TN, TM), ACC))
        p = power(s * factor - numbers(shift, batch, head, i, TM))
        if CAUSAL:
            key = j * TN + ct.arange(TN, dtype=ct.int32)[:, None]
            last = i * TM + keys - queries + ct.arange(TM, dtype=ct.int32)[None, :]
            p = ct.where(key <= last, p, 0.0)
        if VALUES:
            dv = ct.mma(p.astype(V.dtype), ct.transpose(do), dv)
        if KEYS:
            ds = p * (dp - numbers(delta, batch, head, i, TM))
            dk = ct.mma(ds.astype(K.dtype), ct.transpose(q), dk)
    if KEYS:
        ct.store(dK, (batch, shared, j, 0), (dk * scale).astype(dK.dtype).reshape((1, 1, TN, D)))
    if VALUES:
        ct.store(dV, (batch, shared, j, 0), dv.astype(dV.dtype).reshape((1, 1, TN, D)))


@tessera.kernel
def of_queries(Q, K, V, dO, delta, shift, dQ, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int],
               TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool], ACC: ct.Constant):
    """dQ of a tile of one head's queries, of all keys that they see."""
    block, batch, head = ct.bid(0), ct.bid(1) // HEADS, ct.bid(1) % HEADS
    if CAUSAL:
        # The blocks with the most keys first.
        block = ct.cdiv(Q.shape[2], TM) - 1 - block
    shared = head // GROUP
    queries, keys = Q.shape[2], K.shape[2]
    factor = ct.astype(scale, ACC) * LOG2_E
    seen, end = keys, ct.cdiv(keys, TN)
    if CAUSAL:
        first = block * TM + keys - queries + 1
        seen = ct.minimum(keys, first + ct.arange(TM, dtype=ct.int32)[:, None])
        end = min(end, ct.cdiv(first + TM - 1, TN))
    q = lines(Q, batch, head, block, TM, D)
    do = lines(dO, batch, head, block, TM, D)
    delta_q = ct.transpose(numbers(delta, batch, head, block, TM))
    shift_q = ct.transpose(numbers(shift, batch, head, block, TM))
    dq = ct.zeros((TM, D), ACC)
    for j in range(end):
        k = transposed(K, batch, shared, j, TN, D)
        s = ct.mma(q, k, ct.zeros((TM, TN), ACC))
        v = transposed(V, batch, shared, j, TN, D)
        dp = ct.mma(do, v, ct.zeros((TM, TN), ACC))
        keep = ct.arange(TN, dtype=ct.int32)[None, :] < seen - j * TN
        p = ct.where(keep, power(s * factor - shift_q), 0.0)
        dq = ct.mma((p * (dp - delta_q)).astype(K.dtype), ct.transpose(k), dq)
    ct.store(dQ, (batch, head, block, 0), (dq * scale).astype(dQ.dtype).reshape((1, 1, TM, D)))
