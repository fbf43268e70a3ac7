"""Rows of a table by number, and rows that go to places of a table: nothing but whole rows is moved, N elements each, TILE of them a block.

The table's gradient adds up, for each of its rows, the cotangents of the tokens that have its number, in the order of the tokens, whatever the
scheduler does. A token is looked for in groups of GROUP rows: each group's block goes through all numbers, PART of them at a time, first to
count its tokens, then to leave them in their order; a row goes through the tokens of its group.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


@tessera.kernel
def embedding(table, ids, y, TILE: ct.Constant[int]):
    token, j = ct.bid(0), ct.bid(1)
    row = ct.load(ids, (token,), ())
    ct.store(y, (token, j), ct.load(table, (row, j), (1, TILE), padding_mode=ZERO))


@tessera.kernel
def append(x, slots, cache, TILE: ct.Constant[int]):
    token, j = ct.bid(0), ct.bid(1)
    slot = ct.load(slots, (token,), ())
    if slot >= 0:
        ct.store(cache, (slot, j), ct.load(x, (token, j), (1, TILE), padding_mode=ZERO))


def in_group(ids, i, GROUP, PART):
    """Which of a part's tokens have the number of a row of this block's group."""
    token = i * PART + ct.arange(PART, dtype=ct.int32)
    row = ct.load(ids, (i,), (PART,), padding_mode=ZERO)
    return token, ((row // GROUP == ct.bid(0)) & (token < ids.shape[0])).astype(ct.int32)


@tessera.kernel
def count_tokens(ids, counts, GROUP: ct.Constant[int], PART: ct.Constant[int]):
    total = ct.zeros((PART,), ct.int32)
    for i in range(ct.cdiv(ids.shape[0], PART)):
        _, hit = in_group(ids, i, GROUP, PART)
        total = total + hit
    ct.store(counts, (ct.bid(0),), ct.sum(total, axis=0, keepdims=True))


@tessera.kernel
def first_tokens(counts, firsts, PART: ct.Constant[int]):
    """Where each group's tokens begin, and where the last one's end."""
    carry = ct.zeros((1,), ct.int32)
    ct.store(firsts, (0,), carry)
    behind = firsts.slice(axis=0, start=1, stop=firsts.shape[0])
    for i in range(ct.cdiv(counts.shape[0], PART)):
        here = ct.load(counts, (i,), (PART,), padding_mode=ZERO)
        ct.store(behind, (i,), ct.cumsum(here, axis=0) + carry)
        carry = carry + ct.sum(here, axis=0, keepdims=True)


@tessera.kernel
def list_tokens(ids, firsts, tokens, GROUP: ct.Constant[int], PART: ct.Constant[int]):
    at = ct.load(firsts, (ct.bid(0),), ())
    for i in range(ct.cdiv(ids.shape[0], PART)):
        token, hit = in_group(ids, i, GROUP, PART)
        place = ct.cumsum(hit, axis=0) - 1 + at
        ct.scatter(tokens, ct.where(hit > 0, place, -1), token)
        at = at + ct.sum(hit, axis=0)


@tessera.kernel
def embedding_backward(ids, dy, firsts, tokens, dtable, GROUP: ct.Constant[int], TILE: ct.Constant[int], ACC: ct.Constant):
    row, j = ct.bid(0), ct.bid(1)
    group = row // GROUP
    acc = ct.zeros((1, TILE), ACC)
    for n in range(ct.load(firsts, (group,), ()), ct.load(firsts, (group + 1,), ())):
        token = ct.load(tokens, (n,), ())
        if ct.load(ids, (token,), ()) == row:
            acc = acc + ct.load(dy, (token, j), (1, TILE), padding_mode=ZERO).astype(ACC)
    ct.store(dtable, (row, j), acc.astype(dtable.dtype))
