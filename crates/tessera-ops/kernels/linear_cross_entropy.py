"""Cross entropy of a linear layer's logits and class numbers, and its gradients, without the logits in memory. Of s = x W^T, summed up in ACC:

    linear_cross_entropy           lse = log(sum of exp(s)) over classes, loss = lse - s[label], or 0 where the label is the one to ignore
    linear_cross_entropy_backward  ds = exp(s - lse) * (dloss + dlse) - [class is the label] * dloss, dx = ds W, dweight = ds^T x

with 0 for the dloss of a token to ignore. A block takes some tokens and goes through tiles of some classes: of each token it keeps the largest logit,
the sum of powers beside that one (Milakov and Gimelshein, 2018) and the label's logit. What blocks leave of a token is put together in their order.
The gradients compute logits again, a strip of classes at a time, of which ds lies in memory: it gives these classes' rows of dweight, and is added
to dx strip after strip.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
LOG2_E = 1.4426950408889634


def power(distance, ACC):
    return ct.exp2(distance * LOG2_E, flush_to_zero=ACC == ct.float32)


def finite(most):
    """Of a token whose logits are all -inf the sum of powers is 0."""
    return ct.where(most == -float("inf"), 0.0, most)


def column(a, i, TM):
    """A number a token, beside the token."""
    return ct.reshape(ct.load(a, (i,), (TM,), padding_mode=ZERO), (TM, 1))


def classes(j, TN):
    return j * TN + ct.arange(TN, dtype=ct.int32)[None, :]


def logits(x, weight, i, j, ACC, TM, TN, TK):
    s = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(x.shape[1], TK)):
        a = ct.load(x, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(weight, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
        s = ct.mma(a, b, s)
    return s


@tessera.kernel
def in_parts(x, weight, labels, tops, sums, owns, ACC: ct.Constant, TILES: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int],
             TK: ct.Constant[int]):
    """What a block's classes come to."""
    i, part = ct.bid(0), ct.bid(1)
    label, count = column(labels, i, TM), weight.shape[0]
    most, total, own = ct.full((TM, 1), -float("inf"), ACC), ct.zeros((TM, 1), ACC), ct.zeros((TM, 1), ACC)
    for j in range(part * TILES, min(part * TILES + TILES, ct.cdiv(count, TN))):
        s = logits(x, weight, i, j, ACC, TM, TN, TK)
        number = classes(j, TN)
        own = own + ct.sum(ct.where(number == label, s, 0.0), axis=1, keepdims=True)
        s = ct.where(number < count, s, -float("inf"))
        above = ct.maximum(most, ct.max(s, axis=1, keepdims=True, propagate_nan=True), propagate_nan=True)
        top = finite(above)
        total = total * power(most - top, ACC) + ct.sum(power(s - top, ACC), axis=1, keepdims=True)
        most = above
    ct.store(tops, (i, part), most)
    ct.store(sums, (i, part), total)
    ct.store(owns, (i, part), own)


@tessera.kernel
def together(tops, sums, owns, labels, loss, lse, ignore_index: int, ACC: ct.Constant, ROWS: ct.Constant[int], PARTS: ct.Constant[int]):
    i = ct.bid(0)
    tops = ct.load(tops, (i, 0), (ROWS, PARTS), padding_mode=NEG_INF)
    top = finite(ct.max(tops, axis=1, keepdims=True, propagate_nan=True))
    total = ct.sum(ct.load(sums, (i, 0), (ROWS, PARTS), padding_mode=ZERO) * power(tops - top, ACC), axis=1, keepdims=True)
    y = ct.reshape(top + ct.log(total), (ROWS,))
    own = ct.sum(ct.load(owns, (i, 0), (ROWS, PARTS), padding_mode=ZERO), axis=1)
    label = ct.load(labels, (i,), (ROWS,), padding_mode=ZERO)
    ct.store(lse, (i,), y)
    ct.store(loss, (i,), ct.where(label == ignore_index, 0.0, y - own))


@tessera.kernel
def of_logits(x, weight, labels, lse, dloss, dlse, strip, first: int, ignore_index: int, ACC: ct.Constant, TM: ct.Constant[int],
              TN: ct.Constant[int], TK: ct.Constant[int]):
    """ds of a strip of classes, the first of them at tile `first`; 0 behind the last class."""
    i, j = ct.bid(0), ct.bid(1)
    s = logits(x, weight, i, first + j, ACC, TM, TN, TK)
    label, number = column(labels, i, TM), classes(first + j, TN)
    d = ct.where(label == ignore_index, 0.0, column(dloss, i, TM))
    ds = power(s - column(lse, i, TM), ACC) * (d + column(dlse, i, TM)) - ct.where(number == label, d, 0.0)
    ct.store(strip, (i, j), ct.where(number < weight.shape[0], ds, 0.0).astype(strip.dtype))


@tessera.kernel
def of_x(strip, weight, sums, first: int, count: int, ADDS: ct.Constant[bool], ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int],
         TK: ct.Constant[int]):
    """What the strip's classes add to dx; so many of them, the first at tile `first`."""
    i, j = ct.bid(0), ct.bid(1)
    if ADDS:
        acc = ct.load(sums, (i, j), (TM, TN), padding_mode=ZERO).astype(ACC)
    else:
        acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(count, TK)):
        a = ct.load(strip, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(weight, (first + k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(sums, (i, j), acc.astype(sums.dtype))


@tessera.kernel
def of_weight(strip, x, dweight, first: int, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """The rows of dweight of a strip's classes, the first of them at tile `first`."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(x.shape[0], TK)):
        a = ct.load(strip, (i, k), (TM, TK), order=(1, 0), padding_mode=ZERO)
        b = ct.load(x, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(dweight, (first + i, j), acc.astype(dweight.dtype))


@tessera.kernel
def rounded(sums, dx, TM: ct.Constant[int], TN: ct.Constant[int]):
    at = (ct.bid(0), ct.bid(1))
    ct.store(dx, at, ct.load(sums, at, (TM, TN), padding_mode=ZERO).astype(dx.dtype))
