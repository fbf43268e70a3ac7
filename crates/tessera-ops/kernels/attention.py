"""Attention: softmax(scale * Q K^T) V for every head, with the softmax taken tile by tile of keys in base 2. Causal: query q sees keys up to
q + (keys - queries). Q, O: batch x heads x queries x D; K, V: batch x (heads / GROUP) x keys x D. APART: tiles of keys that need no mask come
first, in a loop of their own. Where warps have roles, the compiler leaves masks out of rounds without need, and one loop is one pipeline.
Numbers that a launch is given have 32 bits: `scale` is rounded to them for arrays of fp64, too."""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
NOTHING = -float("inf")


def power(x):
    """2 to the power of x; what is no normal number of 32 bits may be 0."""
    return ct.exp2(x, flush_to_zero=x.dtype == ct.float32)


def scores(q, K, batch, head, j, TN, D, ACC):
    k = ct.load(K, (batch, head, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
    return ct.mma(q, k, ct.zeros((q.shape[0], TN), ACC))


def fold(s, V, batch, head, j, factor, m, l, acc, TN, D, SEEN=True):
    """The largest score, the sum and the result so far with another tile of keys. SEEN: every row sees a key in it or has seen one."""
    largest = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
    shift = largest * factor if SEEN else ct.where(largest > NOTHING, largest * factor, 0.0)
    p = power(s * factor - shift)
    alpha = power(m * factor - shift)
    v = ct.load(V, (batch, head, j, 0), (1, 1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
    l = l * alpha + ct.sum(p, axis=1, keepdims=True)
    return largest, l, ct.mma(p.astype(V.dtype), v, acc * alpha)


def weights(l, keys):
    """What results are divided by: without keys they are 0."""
    return ct.where(keys == 0, 1.0, l)


def attention_tile(Q, K, V, O, lse, scale, block, plane, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC):
    """A tile of one head's queries, with all keys that they see; the logarithms of the sums of exponentials, where `lse` is an array."""
    queries, keys = Q.shape[2], K.shape[2]
    batch, head = plane // HEADS, plane % HEADS
    shared = head // GROUP
    factor = ct.astype(scale, ACC) * LOG2_E
    # Keys that a row sees, tiles that all rows see wholly, and tiles that the last one sees.
    seen, whole, end = keys, keys // TN, ct.cdiv(keys, TN)
    if CAUSAL:
        first = block * TM + keys - queries + 1
        seen = ct.minimum(keys, first + ct.arange(TM, dtype=ct.int32)[:, None])
        whole, end = min(whole, first // TN), min(end, ct.cdiv(first + TM - 1, TN))
    q = ct.load(Q, (batch, head, block, 0), (1, 1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), NOTHING, ACC)
    l = ct.zeros((TM, 1), ACC)
    acc = ct.zeros((TM, D), ACC)
    if APART:
        for j in range(whole):
            s = scores(q, K, batch, shared, j, TN, D, ACC)
            m, l, acc = fold(s, V, batch, shared, j, factor, m, l, acc, TN, D)
    for j in range(whole if APART else 0, end):
        s = scores(q, K, batch, shared, j, TN, D, ACC)
        keep = ct.arange(TN, dtype=ct.int32)[None, :] < seen - j * TN
        m, l, acc = fold(ct.where(keep, s, NOTHING), V, batch, shared, j, factor, m, l, acc, TN, D)
    ct.store(O, (batch, head, block, 0), (acc * (1.0 / weights(l, keys))).astype(O.dtype).reshape((1, 1, TM, D)))
    if lse is not None:
        ct.store(lse, (batch, head, block), (m * ct.astype(scale, ACC) + ct.log(l)).reshape((1, 1, TM)))


def attention_block(Q, K, V, O, lse, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC):
    block = ct.bid(0)
    if CAUSAL:
        # The blocks with the most keys first.
        block = ct.cdiv(Q.shape[2], TM) - 1 - block
    attention_tile(Q, K, V, O, lse, scale, block, ct.bid(1), HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


def attention_two(Q, K, V, O, lse, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC):
    """A tile of queries that see many keys and one of queries that see few: all blocks have as much to do."""
    blocks, first = ct.cdiv(Q.shape[2], TM), ct.bid(0)
    for half in range(min(2, blocks - 2 * first)):
        block = first if half == 1 else blocks - 1 - first
        attention_tile(Q, K, V, O, lse, scale, block, ct.bid(1), HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


@tessera.kernel
def attention(Q, K, V, O, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int],
              D: ct.Constant[int], CAUSAL: ct.Constant[bool], APART: ct.Constant[bool], ACC: ct.Constant):
    attention_block(Q, K, V, O, None, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


@tessera.kernel
def attention_pairs(Q, K, V, O, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int],
                    D: ct.Constant[int], CAUSAL: ct.Constant[bool], APART: ct.Constant[bool], ACC: ct.Constant):
    attention_two(Q, K, V, O, None, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


@tessera.kernel
def attention_lse(Q, K, V, O, lse, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int],
                  TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool], APART: ct.Constant[bool], ACC: ct.Constant):
    attention_block(Q, K, V, O, lse, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


@tessera.kernel
def attention_lse_pairs(Q, K, V, O, lse, scale: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int],
                        TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool], APART: ct.Constant[bool], ACC: ct.Constant):
    attention_two(Q, K, V, O, lse, scale, HEADS, GROUP, TM, TN, D, CAUSAL, APART, ACC)


def attend(Q, K, V, plane, first, last, factor, SHARED, GROUP, TG, TQ, TN, D, CAUSAL, ACC):
    """`fold` over the tiles of keys from first to last, for the heads that share K and V: head g's query q is row g * TQ + q."""
    TM = TG * TQ
    queries, keys = Q.shape[2], K.shape[2]
    batch, shared = plane // SHARED, plane % SHARED
    # Keys that the first query sees.
    seen = keys - queries + 1 if CAUSAL else keys
    whole = min(last, seen // TN)
    heads = Q.slice(axis=1, start=shared * GROUP, stop=(shared + 1) * GROUP)
    q = ct.load(heads, (batch, 0, 0, 0), (1, TG, TQ, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), NOTHING, ACC)
    l = ct.zeros((TM, 1), ACC)
    acc = ct.zeros((TM, D), ACC)
    for j in range(first, whole):
        s = scores(q, K, batch, shared, j, TN, D, ACC)
        m, l, acc = fold(s, V, batch, shared, j, factor, m, l, acc, TN, D)
    for j in range(max(first, whole), last):
        s = scores(q, K, batch, shared, j, TN, D, ACC)
        key = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        keep = key < keys
        if CAUSAL:
            keep = keep & (key < seen + ct.arange(TM, dtype=ct.int32)[:, None] % TQ)
        m, l, acc = fold(ct.where(keep, s, NOTHING), V, batch, shared, j, factor, m, l, acc, TN, D, SEEN=False)
    return m, l, acc


# Memory gives all multiprocessors of a Hopper together what they ask for where each has more than 64 KiB on their way: six slots for each of K and V.
@tessera.kernel(num_stages=ct.ByTarget(sm_90=6))
def few_queries(Q, K, V, O, scale: float, SHARED: ct.Constant[int], GROUP: ct.Constant[int], TG: ct.Constant[int],
                TQ: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool], ACC: ct.Constant):
    """Attention of few queries: a block takes all heads that share one of K and V, which are read once."""
    plane = ct.bid(0)
    factor = ct.astype(scale, ACC) * LOG2_E
    _, l, acc = attend(Q, K, V, plane, 0, ct.cdiv(K.shape[2], TN), factor, SHARED, GROUP, TG, TQ, TN, D, CAUSAL, ACC)
    shared = plane % SHARED
    heads = O.slice(axis=1, start=shared * GROUP, stop=(shared + 1) * GROUP)
    ct.store(heads, (plane // SHARED, 0, 0, 0), (acc * (1.0 / weights(l, K.shape[2]))).astype(O.dtype).reshape((1, TG, TQ, D)))


@tessera.kernel(num_stages=ct.ByTarget(sm_90=6))
def few_queries_split(Q, K, V, largest, totals, results, scale: float, tiles: int, SHARED: ct.Constant[int], GROUP: ct.Constant[int],
                      TG: ct.Constant[int], TQ: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int],
                      CAUSAL: ct.Constant[bool], ACC: ct.Constant):
    """The same with keys split over blocks, `tiles` tiles each. largest, totals: (batch heads) x queries x splits; results: that x D."""
    plane, split = ct.bid(0), ct.bid(1)
    factor = ct.astype(scale, ACC) * LOG2_E
    first = split * tiles
    last = min(first + tiles, ct.cdiv(K.shape[2], TN))
    m, l, acc = attend(Q, K, V, plane, first, last, factor, SHARED, GROUP, TG, TQ, TN, D, CAUSAL, ACC)
    start, stop = plane * GROUP, (plane + 1) * GROUP
    ct.store(largest.slice(axis=0, start=start, stop=stop), (0, 0, split), m.reshape((TG, TQ, 1)))
    ct.store(totals.slice(axis=0, start=start, stop=stop), (0, 0, split), l.reshape((TG, TQ, 1)))
    ct.store(results.slice(axis=0, start=start, stop=stop), (0, 0, split, 0), acc.reshape((TG, TQ, 1, D)))


@tessera.kernel
def merge_splits(largest, totals, results, O, scale: float, HEADS: ct.Constant[int], SPLITS: ct.Constant[int], D: ct.Constant[int]):
    """One row of O from what `few_queries_split` has left of its splits, SPLITS at most. A split without a key for the row has the weight 0."""
    row, query = ct.bid(0), ct.bid(1)
    factor = ct.astype(scale, results.dtype) * LOG2_E
    m = ct.load(largest, (row, query, 0), (1, 1, SPLITS), padding_mode=ct.PaddingMode.NEG_INF).reshape((SPLITS, 1))
    l = ct.load(totals, (row, query, 0), (1, 1, SPLITS), padding_mode=ct.PaddingMode.ZERO).reshape((SPLITS, 1))
    acc = ct.load(results, (row, query, 0, 0), (1, 1, SPLITS, D), padding_mode=ct.PaddingMode.ZERO).reshape((SPLITS, D))
    weight = ct.exp2((m - ct.max(m, axis=0, keepdims=True)) * factor)
    o = ct.sum(acc * weight, axis=0, keepdims=True) / ct.sum(l * weight, axis=0, keepdims=True)
    ct.store(O, (row // HEADS, row % HEADS, query, 0), o.astype(O.dtype).reshape((1, 1, 1, D)))
