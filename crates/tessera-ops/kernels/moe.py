"""Mixtures of experts: K experts for each token by their logits; tokens in the order of their experts; and back, weighted.

A slot is one of a token's K experts, number token * K + i. `place` says where a slot stands when slots are sorted by expert, tokens of one expert in
their order; expert e has the places offsets[e] to offsets[e + 1]. Slots are sorted in three launches: blocks count the experts of TILE slots each;
for each expert a block makes of these counts how many come before; and slots get their places. BINS is no less than the number of experts.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
NOTHING = -float("inf")


@tessera.kernel
def gate(logits, weights, ids, ROWS: ct.Constant[int], BINS: ct.Constant[int], K: ct.Constant[int], SLOTS: ct.Constant[int],
         RENORMALISED: ct.Constant[bool], ACC: ct.Constant):
    """The K largest logits of each token, of equal ones the first, and their part of the softmax over all experts, or over these. NaN counts as
    infinite, so that each slot has an expert; it is in all of the token's weights."""
    i = ct.bid(0)
    v = ct.load(logits, (i, 0), (ROWS, BINS), padding_mode=ct.PaddingMode.NEG_INF).astype(ACC)
    expert, slot = ct.arange(BINS, dtype=ct.int32)[None, :], ct.arange(SLOTS, dtype=ct.int32)[None, :]
    largest = ct.max(v, axis=1, keepdims=True, propagate_nan=True)
    total = ct.sum(ct.exp(v - largest), axis=1, keepdims=True)
    v = ct.where(v == v, v, -NOTHING)
    chosen = ct.full((ROWS, SLOTS), NOTHING, ACC)
    found = ct.zeros((ROWS, SLOTS), ct.int32)
    # A logit may be no more than NOTHING: what is taken is told by its number.
    free = ct.full((ROWS, BINS), True, ct.bool_)
    for n in range(K):
        best = ct.max(ct.where(free, v, NOTHING), axis=1, keepdims=True)
        at = ct.min(ct.where(free & (v == best), expert, BINS), axis=1, keepdims=True)
        chosen, found = ct.where(slot == n, best, chosen), ct.where(slot == n, at, found)
        free = free & (expert != at)
    weight = ct.exp(chosen - largest)
    if RENORMALISED:
        total = ct.sum(weight, axis=1, keepdims=True)
    ct.store(weights, (i, 0), (weight / total).astype(weights.dtype))
    ct.store(ids, (i, 0), found)


@tessera.kernel(num_warps=4)
def gate_backward(logits, ids, dweights, dlogits, ROWS: ct.Constant[int], BINS: ct.Constant[int], K: ct.Constant[int],
                  RENORMALISED: ct.Constant[bool], ACC: ct.Constant):
    i = ct.bid(0)
    v = ct.load(logits, (i, 0), (ROWS, BINS), padding_mode=ct.PaddingMode.NEG_INF).astype(ACC)
    expert = ct.arange(BINS, dtype=ct.int32)[None, :]
    cotangent = ct.zeros((ROWS, BINS), ACC)
    chosen = expert < 0
    for n in ct.static_iter(range(K)):
        here = expert == ct.load(ids, (i, n), (ROWS, 1), padding_mode=ZERO)
        cotangent = ct.where(here, ct.load(dweights, (i, n), (ROWS, 1), padding_mode=ZERO).astype(ACC), cotangent)
        chosen = chosen | here
    if RENORMALISED:
        v = ct.where(chosen, v, NOTHING)
    p = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    p = p / ct.sum(p, axis=1, keepdims=True)
    ct.store(dlogits, (i, 0), (p * (cotangent - ct.sum(p * cotangent, axis=1, keepdims=True))).astype(dlogits.dtype))


def experts(ids, TILE, BINS):
    """For each slot of this block and each expert 1 where the slot has it."""
    slot = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    expert = ct.where(slot < ids.shape[0], ct.load(ids, (ct.bid(0),), (TILE,), padding_mode=ZERO), -1)
    return (expert.reshape((TILE, 1)) == ct.arange(BINS, dtype=ct.int32)[None, :]).astype(ct.int32)


@tessera.kernel
def count(ids, counts, TILE: ct.Constant[int], BINS: ct.Constant[int]):
    """counts: experts x blocks."""
    ct.store(counts, (0, ct.bid(0)), ct.sum(experts(ids, TILE, BINS), axis=0).reshape((BINS, 1)))


@tessera.kernel
def before(counts, totals, PART: ct.Constant[int]):
    """Of each expert, how many slots come before each block's, in place of how many it has; and how many there are."""
    expert = ct.bid(0)
    carry = ct.zeros((1, 1), ct.int32)
    for i in range(ct.cdiv(counts.shape[1], PART)):
        here = ct.load(counts, (expert, i), (1, PART), padding_mode=ZERO)
        ct.store(counts, (expert, i), ct.cumsum(here, axis=1) - here + carry)
        carry = carry + ct.sum(here, axis=1, keepdims=True)
    ct.store(totals, (expert,), carry.reshape((1,)))


@tessera.kernel
def places(ids, counts, totals, offsets, place, TILE: ct.Constant[int], BINS: ct.Constant[int]):
    block = ct.bid(0)
    total = ct.load(totals, (0,), (BINS,), padding_mode=ZERO)
    end = ct.cumsum(total, axis=0)
    if block == 0:
        ct.store(offsets, (0,), ct.zeros((1,), ct.int32))
        ct.store(offsets.slice(axis=0, start=1, stop=offsets.shape[0]), (0,), end)
    hit = experts(ids, TILE, BINS)
    first = (end - total).reshape((1, BINS)) + ct.load(counts, (0, block), (BINS, 1), padding_mode=ZERO).reshape((1, BINS))
    ct.store(place, (block,), ct.sum(hit * (ct.cumsum(hit, axis=0) - 1 + first), axis=1))


@tessera.kernel
def permute(x, place, y, K: ct.Constant[int], TILE: ct.Constant[int]):
    """A token's row to the places of its slots."""
    token, j = ct.bid(0), ct.bid(1)
    row = ct.load(x, (token, j), (1, TILE), padding_mode=ZERO)
    for i in ct.static_iter(range(K)):
        ct.store(y, (ct.load(place, (token * K + i,), ()), j), row)


@tessera.kernel
def permute_backward(place, dy, dx, K: ct.Constant[int], TILE: ct.Constant[int], ACC: ct.Constant):
    token, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((1, TILE), ACC)
    for i in ct.static_iter(range(K)):
        acc = acc + ct.load(dy, (ct.load(place, (token * K + i,), ()), j), (1, TILE), padding_mode=ZERO).astype(ACC)
    ct.store(dx, (token, j), acc.astype(dx.dtype))


@tessera.kernel
def combine(y, place, weights, out, K: ct.Constant[int], TILE: ct.Constant[int], ACC: ct.Constant):
    token, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((1, TILE), ACC)
    for i in ct.static_iter(range(K)):
        row = ct.load(y, (ct.load(place, (token * K + i,), ()), j), (1, TILE), padding_mode=ZERO).astype(ACC)
        acc = acc + row * ct.load(weights, (token * K + i,), ()).astype(ACC)
    ct.store(out, (token, j), acc.astype(out.dtype))


@tessera.kernel
def combine_backward(y, place, weights, dout, dy, dweights, K: ct.Constant[int], TILE: ct.Constant[int], ACC: ct.Constant):
    """A block has one slot, all columns of it."""
    token, slot = ct.bid(0) // K, ct.bid(0)
    at = ct.load(place, (slot,), ())
    weight = ct.load(weights, (slot,), ()).astype(ACC)
    acc = ct.zeros((1, TILE), ACC)
    for j in range(ct.cdiv(y.shape[1], TILE)):
        cotangent = ct.load(dout, (token, j), (1, TILE), padding_mode=ZERO).astype(ACC)
        acc = acc + cotangent * ct.load(y, (at, j), (1, TILE), padding_mode=ZERO).astype(ACC)
        ct.store(dy, (at, j), (cotangent * weight).astype(dy.dtype))
    ct.store(dweights, (slot,), ct.sum(acc, axis=1).astype(dweights.dtype))
