"""Rotary position embedding (Su and others, 2021): pairs of the first 2 HALF elements of each head are turned by an angle of the token's position,
(a, b) to (a cos - b sin, b cos + a sin); what is behind them stays. INTERLEAVED pairs are neighbours, others lie HALF apart. The gradient turns back:
SIGN is -1.

The cosines and sines come from tables with a row a position, or are made here: pair i of position p has the angle p theta^(-i / HALF), in 64 bits, since
of an angle of thousands of turns 32 bits leave few digits of the last one. A tile has all heads of some tokens, of several sequences where there are
few, so that an angle is made once for all of them. In place, pairs are written where they were read, and what is behind them is not touched.

qk_norm_rope divides each head by its root mean square before, and multiplies it by a weight.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def places(x, block, TB, TT, TH):
    """A block's tile along sequences, tokens and heads: neighbouring blocks have neighbouring heads."""
    across, along = ct.cdiv(x.shape[2], TH), ct.cdiv(x.shape[1], TT)
    rest = block // across
    return rest // along, rest % along, block % across


def made(start, log_high, log_low, i, ACC, TT, HALF):
    """Cosines and sines of a tile of tokens, (1, TT, 1, HALF). The logarithm of theta to base 2 comes in two parts."""
    position = (start + i * TT + ct.arange(TT, dtype=ct.int32)).astype(ct.float64).reshape((TT, 1))
    pair = ct.arange(HALF, dtype=ct.int32).astype(ct.float64).reshape((1, HALF))
    logarithm = log_high.astype(ct.float64) + log_low.astype(ct.float64)
    angle = position * ct.exp2(pair * (logarithm * (-1.0 / HALF)))
    shape = (1, TT, 1, HALF)
    return ct.cos(angle).astype(ACC).reshape(shape), ct.sin(angle).astype(ACC).reshape(shape)


def read(table, start, i, ACC, TT, HALF):
    rows = table.slice(0, start, table.shape[0])
    return ct.load(rows, (i, 0), (TT, HALF), padding_mode=ZERO).astype(ACC).reshape((1, TT, 1, HALF))


def load_pairs(x, at, ACC, INTERLEAVED, HALF, shape):
    if INTERLEAVED:
        v = ct.load(x, at + (0,), shape + (2 * HALF,), padding_mode=ZERO).astype(ACC).reshape(shape + (HALF, 2))
        a, b = ct.extract(v, (0, 0, 0, 0, 0), shape + (HALF, 1)), ct.extract(v, (0, 0, 0, 0, 1), shape + (HALF, 1))
        return a.reshape(shape + (HALF,)), b.reshape(shape + (HALF,))
    a = ct.load(x, at + (0,), shape + (HALF,), padding_mode=ZERO).astype(ACC)
    return a, ct.load(x, at + (1,), shape + (HALF,), padding_mode=ZERO).astype(ACC)


def store_pairs(y, at, a, b, INTERLEAVED, HALF, shape):
    a, b = a.astype(y.dtype), b.astype(y.dtype)
    if INTERLEAVED:
        pairs = ct.cat((a.reshape(shape + (HALF, 1)), b.reshape(shape + (HALF, 1))), axis=4)
        ct.store(y, at + (0,), pairs.reshape(shape + (2 * HALF,)))
    else:
        ct.store(y, at + (0,), a)
        ct.store(y, at + (1,), b)


def turn(x, y, at, cos, sin, ACC, INTERLEAVED, HALF, REST, shape):
    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)
    if REST != 0:
        rest = ct.load(x.slice(3, 2 * HALF, x.shape[3]), at + (0,), shape + (REST,))
        ct.store(y.slice(3, 2 * HALF, y.shape[3]), at + (0,), rest)
    store_pairs(y, at, a * cos - b * sin, b * cos + a * sin, INTERLEAVED, HALF, shape)


def turn_in_place(x, at, cos, sin, ACC, INTERLEAVED, HALF, shape):
    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)
    store_pairs(x, at, a * cos - b * sin, b * cos + a * sin, INTERLEAVED, HALF, shape)


@tessera.kernel
def rope(x, cos, sin, y, start: int, ACC: ct.Constant, SIGN: ct.Constant[float], INTERLEAVED: ct.Constant[bool], HALF: ct.Constant[int],
         REST: ct.Constant[int], TB: ct.Constant[int], TT: ct.Constant[int], TH: ct.Constant[int]):
    at = places(x, ct.bid(0), TB, TT, TH)
    c, s = read(cos, start, at[1], ACC, TT, HALF), read(sin, start, at[1], ACC, TT, HALF) * SIGN
    turn(x, y, at, c, s, ACC, INTERLEAVED, HALF, REST, (TB, TT, TH))


@tessera.kernel
def rope_theta(x, y, start: int, log_high: float, log_low: float, ACC: ct.Constant, SIGN: ct.Constant[float], INTERLEAVED: ct.Constant[bool],
               HALF: ct.Constant[int], REST: ct.Constant[int], TB: ct.Constant[int], TT: ct.Constant[int], TH: ct.Constant[int]):
    at = places(x, ct.bid(0), TB, TT, TH)
    c, s = made(start, log_high, log_low, at[1], ACC, TT, HALF)
    turn(x, y, at, c, s * SIGN, ACC, INTERLEAVED, HALF, REST, (TB, TT, TH))


@tessera.kernel
def rope_inplace(x, cos, sin, start: int, ACC: ct.Constant, SIGN: ct.Constant[float], INTERLEAVED: ct.Constant[bool], HALF: ct.Constant[int],
                 TB: ct.Constant[int], TT: ct.Constant[int], TH: ct.Constant[int]):
    at = places(x, ct.bid(0), TB, TT, TH)
    c, s = read(cos, start, at[1], ACC, TT, HALF), read(sin, start, at[1], ACC, TT, HALF) * SIGN
    turn_in_place(x, at, c, s, ACC, INTERLEAVED, HALF, (TB, TT, TH))


@tessera.kernel
def rope_inplace_theta(x, start: int, log_high: float, log_low: float, ACC: ct.Constant, SIGN: ct.Constant[float],
                       INTERLEAVED: ct.Constant[bool], HALF: ct.Constant[int], TB: ct.Constant[int], TT: ct.Constant[int],
                       TH: ct.Constant[int]):
    at = places(x, ct.bid(0), TB, TT, TH)
    c, s = made(start, log_high, log_low, at[1], ACC, TT, HALF)
    turn_in_place(x, at, c, s * SIGN, ACC, INTERLEAVED, HALF, (TB, TT, TH))


def normed(x, weight, eps, at, ACC, INTERLEAVED, HALF, REST, shape):
    """Both elements of the pairs of a tile of heads, and what is behind them, over the root mean square of each head and times the weight."""
    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)
    squares = ct.sum(a * a + b * b, axis=3, keepdims=True)
    if REST != 0:
        rest = ct.load(x.slice(3, 2 * HALF, x.shape[3]), at + (0,), shape + (REST,), padding_mode=ZERO).astype(ACC)
        squares = squares + ct.sum(rest * rest, axis=3, keepdims=True)
    scale = ct.rsqrt(squares / (2 * HALF + REST) + eps)
    if INTERLEAVED:
        v = ct.load(weight, (0,), (2 * HALF,)).astype(ACC).reshape((HALF, 2))
        first, second = ct.extract(v, (0, 0), (HALF, 1)).reshape((HALF,)), ct.extract(v, (0, 1), (HALF, 1)).reshape((HALF,))
    else:
        first, second = ct.load(weight, (0,), (HALF,)).astype(ACC), ct.load(weight, (1,), (HALF,)).astype(ACC)
    if REST != 0:
        behind = ct.load(weight.slice(0, 2 * HALF, weight.shape[0]), (0,), (REST,)).astype(ACC)
        return a * scale * first, b * scale * second, rest * scale * behind
    return a * scale * first, b * scale * second, None


def norm_and_turn(x, weight, y, eps, at, cos, sin, ACC, INTERLEAVED, HALF, REST, shape):
    a, b, rest = normed(x, weight, eps, at, ACC, INTERLEAVED, HALF, REST, shape)
    if REST != 0:
        ct.store(y.slice(3, 2 * HALF, y.shape[3]), at + (0,), rest.astype(y.dtype))
    store_pairs(y, at, a * cos - b * sin, b * cos + a * sin, INTERLEAVED, HALF, shape)


@tessera.kernel
def qk_norm_rope(q, k, q_weight, k_weight, cos, sin, q_out, k_out, start: int, eps: float, ACC: ct.Constant, INTERLEAVED: ct.Constant[bool],
                 HALF: ct.Constant[int], REST: ct.Constant[int], OF_Q: ct.Constant[int], TB: ct.Constant[int], TT: ct.Constant[int],
                 TH: ct.Constant[int], SHARED: ct.Constant[int]):
    if ct.bid(0) < OF_Q:
        at = places(q, ct.bid(0), TB, TT, TH)
        c, s = read(cos, start, at[1], ACC, TT, HALF), read(sin, start, at[1], ACC, TT, HALF)
        norm_and_turn(q, q_weight, q_out, eps, at, c, s, ACC, INTERLEAVED, HALF, REST, (TB, TT, TH))
    else:
        at = places(k, ct.bid(0) - OF_Q, TB, TT, SHARED)
        c, s = read(cos, start, at[1], ACC, TT, HALF), read(sin, start, at[1], ACC, TT, HALF)
        norm_and_turn(k, k_weight, k_out, eps, at, c, s, ACC, INTERLEAVED, HALF, REST, (TB, TT, SHARED))
