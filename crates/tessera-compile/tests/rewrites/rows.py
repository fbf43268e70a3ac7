"""Fifteen ways to write exp(x - max) / sum along rows. `more` marks those that do more than the first."""
import cuda.tile as ct


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def plain(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: source: f32[?,?], target: f32[?,?], WIDTH = 2048
@ct.kernel
def renamed(source, target, WIDTH: ct.Constant[int]):
    which = ct.bid(0)
    values = ct.load(source, index=(which, 0), shape=(1, WIDTH), padding_mode=ct.PaddingMode.NEG_INF)
    top = ct.max(values, axis=1, keepdims=True)
    powers = ct.exp(values - top)
    below = ct.sum(powers, axis=1, keepdims=True)
    ct.store(target, index=(which, 0), tile=powers / below)


# args: N = 2048, y: f32[?,?], x: f32[?,?]
@ct.kernel
def reordered(N: ct.Constant[int], y, x):
    v = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    m = ct.max(v, axis=-1, keepdims=True)
    e = ct.exp(v - m)
    s = ct.sum(e, axis=-1, keepdims=True)
    e = e / s
    ct.store(y, (ct.bid(0), 0), e)


def centred(v):
    return v - ct.max(v, axis=1, keepdims=True)


def normalised(e):
    return e / ct.sum(e, axis=1, keepdims=True)


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def with_helpers(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(y, (row, 0), normalised(ct.exp(centred(v))))


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def by_vectors(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF).reshape((N,))
    e = ct.exp(v - ct.max(v))
    ct.store(y, (row, 0), (e / ct.sum(e)).reshape((1, N)))


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def broadcast_by_hand(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    m = ct.broadcast_to(ct.max(v, axis=1)[:, None], (1, N))
    e = ct.exp(ct.sub(v, m))
    s = ct.broadcast_to(ct.sum(e, axis=1)[:, None], (1, N))
    ct.store(y, (row, 0), ct.truediv(e, s))


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def with_while(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    while row < ct.bid(0) + 1:
        v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
        e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
        ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))
        row += 1


# args: x: f32[?,?], y: f32[?,?], s: f32, N = 2048; more
@ct.kernel
def scaled(x, y, s: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF) * s
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: x: f32[?,?], y: f32[?,?], N = 2048; more
@ct.kernel
def masked(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    v = ct.where(ct.arange(N, dtype=ct.int32)[None, :] <= row, v, -float("inf"))
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: x: f32[?,?], y: f32[?,?], bias: f32[?,?], N = 2048; more
@ct.kernel
def biased(x, y, bias, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    v = v + ct.load(bias, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def gathered(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    columns = ct.arange(N, dtype=ct.int32)
    v = ct.gather(x, (row, columns), padding_value=-float("inf"))
    e = ct.exp(v - ct.max(v))
    ct.scatter(y, (row, columns), e / ct.sum(e))


# args: x: f32[?,?], y: f32[?,?], N = 2048; more
@ct.kernel
def gathered_by_a_mask(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    columns = ct.arange(N, dtype=ct.int32)
    inside = columns < x.shape[1]
    v = ct.gather(x, (row, columns), mask=inside, padding_value=-float("inf"))
    e = ct.exp(v - ct.max(v, 0))
    ct.scatter(y, (row, columns), e / ct.sum(e, 0), mask=inside)


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def by_reduce(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.reduce(v, 1, lambda a, b: ct.maximum(a, b), -float("inf"), keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: x: f32[?,?], y: f32[?,?], N = 2048; more
@ct.kernel
def over_blocks(x, y, N: ct.Constant[int]):
    for row in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
        e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
        ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: x: f32[?,?], y: f32[?,?], N = 2048
@ct.kernel
def of_powers(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    top = ct.max(v, axis=1, keepdims=True)
    total = ct.sum(ct.exp(v - top), axis=1, keepdims=True)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / total)
