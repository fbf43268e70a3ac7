"""Attention of one query of each sequence to the keys and values that its pages hold: Q: batch x heads x D; k_cache, v_cache: pages x PAGE x shared
x D; block_table: batch x most, a sequence's pages in order; lengths: batch, the keys that a sequence has. The query is the last key's.

A block takes the GROUP heads that share one of K and V as rows of one tile, TG of them, so that both are read once, and a part of the sequence's
keys, TN at a time. Parts are as many as blocks along y, whatever a sequence's length; one that has no tile weighs nothing. A second launch
merges them. WINDOW: only so many last keys are seen, 0 for all. CAPPED: scores are cap * tanh(score / cap). Where there are slopes, a score has
slopes[head] for each key that lies between. Numbers that a launch is given have 32 bits: `scale` and `cap` are rounded to them for arrays of
fp64, too.
"""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
NOTHING = -float("inf")


def power(x):
    """2 to the power of x; what is no normal number of 32 bits may be 0."""
    return ct.exp2(x, flush_to_zero=x.dtype == ct.float32)


def attend(Q, k_cache, v_cache, block_table, slopes, batch, shared, first, last, length, scale, cap, GROUP, TG, TN, D, WINDOW, CAPPED, ACC):
    """The largest score in base 2, the sum of powers and the sum of values over the tiles of keys from first to last."""
    PAGE = k_cache.shape[1]
    of_group = Q.slice(axis=1, start=shared * GROUP, stop=(shared + 1) * GROUP)
    q = ct.load(of_group, (batch, 0, 0), (1, TG, D), padding_mode=ct.PaddingMode.ZERO).reshape((TG, D))
    if slopes is not None:
        of_heads = slopes.slice(axis=0, start=shared * GROUP, stop=(shared + 1) * GROUP)
        slope = ct.load(of_heads, (0,), (TG,), padding_mode=ct.PaddingMode.ZERO).astype(ACC).reshape((TG, 1)) * LOG2_E
    m = ct.full((TG, 1), NOTHING, ACC)
    l = ct.zeros((TG, 1), ACC)
    acc = ct.zeros((TG, D), ACC)
    for j in range(first, last):
        page = ct.load(block_table, (batch, j * TN // PAGE), ())
        part = j * TN % PAGE // TN
        k = ct.load(k_cache, (page, 0, shared, part), (1, D, 1, TN), order=(0, 3, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TG, TN), ACC))
        if CAPPED:
            s = ct.tanh(s * (ct.astype(scale, ACC) / ct.astype(cap, ACC))) * (ct.astype(cap, ACC) * LOG2_E)
        else:
            s = s * (ct.astype(scale, ACC) * LOG2_E)
        key = ct.arange(TN, dtype=ct.int32)[None, :] + j * TN
        if slopes is not None:
            s = s + slope * (key - (length - 1)).astype(ACC)
        keep = key < length
        if WINDOW > 0:
            keep = keep & (key >= length - WINDOW)
        s = ct.where(keep, s, NOTHING)
        largest = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = power(s - largest)
        alpha = power(m - largest)
        v = ct.load(v_cache, (page, part, shared, 0), (1, TN, 1, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(v_cache.dtype), v, acc * alpha)
        m = largest
    return m, l, acc


def decode(Q, k_cache, v_cache, block_table, lengths, slopes, largest, totals, results, scale, cap, SHARED, GROUP, TG, TN, D, WINDOW, CAPPED, ACC):
    """largest, totals: (batch heads) x parts; results: that x D."""
    batch, shared, split = ct.bid(0) // SHARED, ct.bid(0) % SHARED, ct.bid(1)
    length = ct.load(lengths, (batch,), ())
    begin, end = 0, ct.cdiv(length, TN)
    if WINDOW > 0:
        begin = max(0, length - WINDOW) // TN
    tiles = ct.cdiv(end - begin, ct.num_blocks(1))
    first = begin + split * tiles
    m, l, acc = attend(Q, k_cache, v_cache, block_table, slopes, batch, shared, first, min(first + tiles, end), length, scale, cap, GROUP, TG, TN, D,
                       WINDOW, CAPPED, ACC)
    start, stop = ct.bid(0) * GROUP, (ct.bid(0) + 1) * GROUP
    ct.store(largest.slice(axis=0, start=start, stop=stop), (0, split), m)
    ct.store(totals.slice(axis=0, start=start, stop=stop), (0, split), l)
    ct.store(results.slice(axis=0, start=start, stop=stop), (0, split, 0), acc.reshape((TG, 1, D)))


# Memory gives all multiprocessors of a Hopper together what they ask for where each has more than 64 KiB on their way: six slots for each of K and V.
@tessera.kernel(num_stages=ct.ByTarget(sm_90=6))
def attention_decode(Q, k_cache, v_cache, block_table, lengths, largest, totals, results, scale: float, cap: float, SHARED: ct.Constant[int],
                     GROUP: ct.Constant[int], TG: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int], WINDOW: ct.Constant[int],
                     CAPPED: ct.Constant[bool], ACC: ct.Constant):
    decode(Q, k_cache, v_cache, block_table, lengths, None, largest, totals, results, scale, cap, SHARED, GROUP, TG, TN, D, WINDOW, CAPPED, ACC)


@tessera.kernel(num_stages=ct.ByTarget(sm_90=6))
def attention_decode_alibi(Q, k_cache, v_cache, block_table, lengths, slopes, largest, totals, results, scale: float, cap: float,
                           SHARED: ct.Constant[int], GROUP: ct.Constant[int], TG: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int],
                           WINDOW: ct.Constant[int], CAPPED: ct.Constant[bool], ACC: ct.Constant):
    decode(Q, k_cache, v_cache, block_table, lengths, slopes, largest, totals, results, scale, cap, SHARED, GROUP, TG, TN, D, WINDOW, CAPPED, ACC)


@tessera.kernel
def merge_parts(largest, totals, results, O, HEADS: ct.Constant[int], PARTS: ct.Constant[int], D: ct.Constant[int]):
    """A head's result from what its parts left, PARTS at most; 0 where the sequence has no key."""
    row = ct.bid(0)
    m = ct.load(largest, (row, 0), (1, PARTS), padding_mode=ct.PaddingMode.NEG_INF).reshape((PARTS, 1))
    l = ct.load(totals, (row, 0), (1, PARTS), padding_mode=ct.PaddingMode.ZERO).reshape((PARTS, 1))
    acc = ct.load(results, (row, 0, 0), (1, PARTS, D), padding_mode=ct.PaddingMode.ZERO).reshape((PARTS, D))
    most = ct.max(m, axis=0, keepdims=True)
    weight = ct.where(m > NOTHING, power(m - most), 0.0)
    total = ct.sum(l * weight, axis=0, keepdims=True)
    o = ct.sum(acc * weight, axis=0, keepdims=True) / ct.where(total > 0.0, total, 1.0)
    ct.store(O, (row // HEADS, row % HEADS, 0), o.astype(O.dtype).reshape((1, 1, D)))
