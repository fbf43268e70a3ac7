"""Attention to the keys of a window, with capped scores and biases; and of sequences of any lengths, packed one behind the other. For every head, O =
softmax(scores) V and lse, the logarithms of rows' sums of exponentials; a query without keys has 0 and the logarithm of 0.

Query q stands at place q + keys - queries among its sequence's keys and sees LEFT keys before it, its own, and RIGHT behind it; -1 for all there are.
RIGHT = 0 is a causal mask. Tiles of keys that no query of a block sees are not looked at. CAPPED: scores are cap * tanh(scale q k / cap). Then
are added, where there are such, -slopes[head] for each place between query and key, or bias[head or 0, query, key], which may be -inf.

Q, O: batch x heads x queries x D; K, V: batch x (heads / GROUP) x keys x D. Packed: tokens x heads x D and tokens x (heads / GROUP) x D, where sequence s
has the tokens bounds[s] to bounds[s + 1]; lse: heads x tokens. What lies behind a sequence's keys is read and weighs nothing; it is finite.
STEPS: 2 to its power is no less than the number of sequences. Numbers that a launch is given have 32 bits.
"""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
NOTHING = -float("inf")
ZERO = ct.PaddingMode.ZERO


def power(x):
    """2 to the power of x; what is no normal number of 32 bits may be 0."""
    return ct.exp2(x, flush_to_zero=x.dtype == ct.float32)


def rows(X, batch, start, head, block, ROWS, D):
    """A tile of one head's rows. Where `batch` is None they are packed, and the sequence begins with row `start`."""
    if batch is None:
        tile = X.tiled_view((ROWS, 1, D), padding_mode=ZERO, traversal_steps=(1, 1, D)).load((start + block * ROWS, head, 0))
    else:
        tile = ct.load(X, (batch, head, block, 0), (1, 1, ROWS, D), padding_mode=ZERO)
    return tile.reshape((ROWS, D))


def columns(X, batch, start, head, block, ROWS, D):
    """The same, transposed."""
    if batch is None:
        tile = ct.transpose(rows(X, None, start, head, block, ROWS, D))
    else:
        tile = ct.load(X, (batch, head, 0, block), (1, 1, D, ROWS), order=(0, 1, 3, 2), padding_mode=ZERO).reshape((D, ROWS))
    return tile


def seen(key, place, keys, LEFT, RIGHT):
    keep = key < keys
    if LEFT >= 0:
        keep = keep & (key >= place - LEFT)
    if RIGHT >= 0:
        keep = keep & (key <= place + RIGHT)
    return keep


def window_tile(q, K, V, slopes, bias, scale, cap, batch, start_k, head, block, queries, keys, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC):
    """The result of a tile of one head's queries, and the logarithms."""
    shared = head // GROUP
    # Where the tile's first query stands.
    first = block * TM + keys - queries
    place = first + ct.arange(TM, dtype=ct.int32)[:, None]
    begin, end = 0, ct.cdiv(keys, TN)
    if LEFT >= 0:
        begin = max(0, first - LEFT) // TN
    if RIGHT >= 0:
        end = min(end, ct.cdiv(max(0, first + TM + RIGHT), TN))
    if batch is None:
        end = ct.where(block * TM < queries, end, begin)
    # Scores have base 2.
    factor = ct.astype(scale, ACC) * LOG2_E
    if CAPPED:
        inner = ct.astype(scale, ACC) / ct.astype(cap, ACC)
        factor = ct.astype(cap, ACC) * LOG2_E
    if slopes is not None:
        slope = ct.astype(ct.load(slopes, (head,), ()), ACC) * LOG2_E
    m = ct.full((TM, 1), NOTHING, ACC)
    l = ct.zeros((TM, 1), ACC)
    acc = ct.zeros((TM, D), ACC)
    for j in range(begin, end):
        s = ct.mma(q, columns(K, batch, start_k, shared, j, TN, D), ct.zeros((TM, TN), ACC))
        if CAPPED:
            s = ct.tanh(s * inner)
        s = s * factor
        key = ct.arange(TN, dtype=ct.int32)[None, :] + j * TN
        if slopes is not None:
            s = s - slope * abs(place - key).astype(ACC)
        if bias is not None:
            of_head = ct.load(bias, (head % bias.shape[0], block, j), (1, TM, TN), padding_mode=ZERO)
            s = s + of_head.reshape((TM, TN)).astype(ACC) * LOG2_E
        s = ct.where(seen(key, place, keys, LEFT, RIGHT), s, NOTHING)
        largest = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        shift = ct.where(largest > NOTHING, largest, 0.0)
        p = power(s - shift)
        alpha = power(m - shift)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(V.dtype), rows(V, batch, start_k, shared, j, TN, D), acc * alpha)
        m = largest
    return acc * (1.0 / ct.where(l > 0.0, l, 1.0)), m / LOG2_E + ct.log(l)


def window_block(Q, K, V, slopes, bias, O, lse, scale, cap, HEADS, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC):
    block, batch, head = ct.bid(0), ct.bid(1) // HEADS, ct.bid(1) % HEADS
    if LEFT < 0 and RIGHT >= 0:
        # The blocks with the most keys first.
        block = ct.cdiv(Q.shape[2], TM) - 1 - block
    queries, keys = Q.shape[2], K.shape[2]
    q = rows(Q, batch, 0, head, block, TM, D)
    o, logs = window_tile(q, K, V, slopes, bias, scale, cap, batch, 0, head, block, queries, keys, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC)
    ct.store(O, (batch, head, block, 0), o.astype(O.dtype).reshape((1, 1, TM, D)))
    ct.store(lse, (batch, head, block), logs.reshape((1, 1, TM)))


@tessera.kernel
def attention_window(Q, K, V, O, lse, scale: float, cap: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int], TM: ct.Constant[int],
                     TN: ct.Constant[int], D: ct.Constant[int], LEFT: ct.Constant[int], RIGHT: ct.Constant[int], CAPPED: ct.Constant[bool],
                     ACC: ct.Constant):
    window_block(Q, K, V, None, None, O, lse, scale, cap, HEADS, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC)


@tessera.kernel
def attention_window_alibi(Q, K, V, slopes, O, lse, scale: float, cap: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int],
                           TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int], LEFT: ct.Constant[int], RIGHT: ct.Constant[int],
                           CAPPED: ct.Constant[bool], ACC: ct.Constant):
    window_block(Q, K, V, slopes, None, O, lse, scale, cap, HEADS, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC)


@tessera.kernel
def attention_window_bias(Q, K, V, bias, O, lse, scale: float, cap: float, HEADS: ct.Constant[int], GROUP: ct.Constant[int],
                          TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int], LEFT: ct.Constant[int], RIGHT: ct.Constant[int],
                          CAPPED: ct.Constant[bool], ACC: ct.Constant):
    window_block(Q, K, V, None, bias, O, lse, scale, cap, HEADS, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC)


def sequence_of(bounds, number, TM, STEPS):
    """The sequence of a tile of queries, and which of the sequence's tiles it is.

    Sequence s has the tiles from number bounds[s] // TM + s on. These numbers rise with s, so bisection finds it, and no other lengths need be
    looked at; between two of them are as many as its queries fill, or one more, which has none, and no keys are looked at for it.
    """
    last = bounds.shape[0] - 2
    sequence = 0
    for step in ct.static_iter(range(STEPS)):
        later = min(sequence + (1 << (STEPS - 1 - step)), last)
        sequence = ct.where(ct.load(bounds, (later,), ()) // TM + later <= number, later, sequence)
    return sequence, number - sequence - ct.load(bounds, (sequence,), ()) // TM


def packed_block(Q, K, V, cu_seqlens_q, cu_seqlens_k, slopes, O, lse, scale, cap, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, STEPS, ACC):
    head = ct.bid(1)
    sequence, block = sequence_of(cu_seqlens_q, ct.bid(0), TM, STEPS)
    # Bounds on a device are looked at by nobody: whatever they are, nothing is stored outside of the results.
    start = max(ct.load(cu_seqlens_q, (sequence,), ()), 0)
    stop = min(ct.load(cu_seqlens_q, (sequence + 1,), ()), Q.shape[0])
    start_k, stop_k = ct.load(cu_seqlens_k, (sequence,), ()), ct.load(cu_seqlens_k, (sequence + 1,), ())
    queries, keys = stop - start, stop_k - start_k
    inside = (block >= 0) & (block * TM < queries)
    q = rows(Q, None, ct.where(inside, start + block * TM, 0), head, 0, TM, D)
    o, logs = window_tile(q, K, V, slopes, None, scale, cap, None, start_k, head, block, queries, keys, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, ACC)
    if inside:
        ct.store(O.slice(axis=0, start=start, stop=stop), (block, head, 0), o.astype(O.dtype).reshape((TM, 1, D)))
        ct.store(lse.slice(axis=1, start=start, stop=stop), (head, block), logs.reshape((1, TM)))


@tessera.kernel
def attention_varlen(Q, K, V, cu_seqlens_q, cu_seqlens_k, O, lse, scale: float, cap: float, GROUP: ct.Constant[int], TM: ct.Constant[int],
                     TN: ct.Constant[int], D: ct.Constant[int], LEFT: ct.Constant[int], RIGHT: ct.Constant[int], CAPPED: ct.Constant[bool],
                     STEPS: ct.Constant[int], ACC: ct.Constant):
    packed_block(Q, K, V, cu_seqlens_q, cu_seqlens_k, None, O, lse, scale, cap, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, STEPS, ACC)


@tessera.kernel
def attention_varlen_alibi(Q, K, V, cu_seqlens_q, cu_seqlens_k, slopes, O, lse, scale: float, cap: float, GROUP: ct.Constant[int],
                           TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int], LEFT: ct.Constant[int], RIGHT: ct.Constant[int],
                           CAPPED: ct.Constant[bool], STEPS: ct.Constant[int], ACC: ct.Constant):
    packed_block(Q, K, V, cu_seqlens_q, cu_seqlens_k, slopes, O, lse, scale, cap, GROUP, TM, TN, D, LEFT, RIGHT, CAPPED, STEPS, ACC)
