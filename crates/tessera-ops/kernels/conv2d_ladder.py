"""The ladder of `conv2d`: the same windows by simpler kernels, each with one step more than the one before it.

| rung | adds | what it should gain |
|---|---|---|
| `naive` | a thread an element of y | the start: two loads a multiplication, from the caches |
| `im2col` | a matrix with a window a row, and one product of that with the weight | the tensor cores; each pixel is written and read once a tap |
| `conv2d` itself | the product takes its windows from x, tap by tap (implicit GEMM) | no matrix of windows, whose bytes are R * S times those of x |
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile


def window_sum(x, weight, n, p, q, o, R, S, STRIDE, PAD, DILATION, WITHIN, OUT, LAST, ACC):
    """The products of one window, for channel o of y."""
    total = tile.cast(0.0, ACC)
    first = o // OUT * WITHIN
    rows = x.shape[1] if LAST else x.shape[2]
    columns = x.shape[2] if LAST else x.shape[3]
    for tap in range(R * S):
        h = p * STRIDE + tap // S * DILATION - PAD
        w = q * STRIDE + tap % S * DILATION - PAD
        if h >= 0 and h < rows and w >= 0 and w < columns:
            for c in range(WITHIN):
                a = x[n, h, w, first + c] if LAST else x[n, first + c, h, w]
                b = weight[o, tap, c] if LAST else weight[o, c, tap]
                total += tile.cast(a, ACC) * tile.cast(b, ACC)
    return total


@tessera.kernel(num_warps=8)
def naive(x: Tensor["A", "B", "C", "D", dtype], weight: Tensor["O", "I", "J", dtype], y: Tensor["E", "F", "G", "H", out],
          R: ct.Constant[int], S: ct.Constant[int], STRIDE: ct.Constant[int], PAD: ct.Constant[int], DILATION: ct.Constant[int],
          WITHIN: ct.Constant[int], OUT: ct.Constant[int], LAST: ct.Constant[bool], ACC: ct.Constant):
    i = tile.linear_id()
    d = i % y.shape[3]
    c = i // y.shape[3] % y.shape[2]
    b = i // y.shape[3] // y.shape[2] % y.shape[1]
    a = i // y.shape[3] // y.shape[2] // y.shape[1]
    if a < y.shape[0]:
        if LAST:
            y[a, b, c, d] = window_sum(x, weight, a, b, c, d, R, S, STRIDE, PAD, DILATION, WITHIN, OUT, LAST, ACC)
        else:
            y[a, b, c, d] = window_sum(x, weight, a, c, d, b, R, S, STRIDE, PAD, DILATION, WITHIN, OUT, LAST, ACC)


@tessera.kernel(num_warps=8)
def naive_biased(x: Tensor["A", "B", "C", "D", dtype], weight: Tensor["O", "I", "J", dtype], bias: Tensor["O", dtype],
                 y: Tensor["E", "F", "G", "H", out], R: ct.Constant[int], S: ct.Constant[int], STRIDE: ct.Constant[int],
                 PAD: ct.Constant[int], DILATION: ct.Constant[int], WITHIN: ct.Constant[int], OUT: ct.Constant[int],
                 LAST: ct.Constant[bool], ACC: ct.Constant):
    i = tile.linear_id()
    d = i % y.shape[3]
    c = i // y.shape[3] % y.shape[2]
    b = i // y.shape[3] // y.shape[2] % y.shape[1]
    a = i // y.shape[3] // y.shape[2] // y.shape[1]
    if a < y.shape[0]:
        if LAST:
            total = window_sum(x, weight, a, b, c, d, R, S, STRIDE, PAD, DILATION, WITHIN, OUT, LAST, ACC)
            y[a, b, c, d] = total + tile.cast(bias[d], ACC)
        else:
            total = window_sum(x, weight, a, c, d, b, R, S, STRIDE, PAD, DILATION, WITHIN, OUT, LAST, ACC)
            y[a, b, c, d] = total + tile.cast(bias[b], ACC)


@tessera.kernel
def im2col(x, windows, S: ct.Constant[int], STRIDE: ct.Constant[int], PAD: ct.Constant[int], DILATION: ct.Constant[int],
           P: ct.Constant[int], Q: ct.Constant[int], TM: ct.Constant[int], TC: ct.Constant[int]):
    """Channels of one tap of TM windows. Columns of a window stand in the order of the weight's: taps, then channels."""
    C = x.shape[3]
    at = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    own = ct.bid(2) * TC + ct.arange(TC, dtype=ct.int32)[None, :]
    n, p, q = at // Q // P, at // Q % P, at % Q
    h = p * STRIDE + ct.bid(1) // S * DILATION - PAD
    w = q * STRIDE + ct.bid(1) % S * DILATION - PAD
    part = ct.gather(x, (n, h, w, own), padding_value=0)
    # A tap has no channels behind its own.
    ct.scatter(windows, (at, ct.where(own < C, ct.bid(1) * C + own, windows.shape[1])), part)


@tessera.kernel
def product(windows, weight, y, K: ct.Constant[int], ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int],
            TK: ct.Constant[int]):
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(windows, (ct.bid(0), k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(weight, (k, ct.bid(1)), (TK, TN), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(y, (ct.bid(0), ct.bid(1)), acc.astype(y.dtype))
