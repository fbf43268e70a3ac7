"""Kernels as users write them, timed before and after a change of the compiler: see users.sh."""
import cuda.tile as ct

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def bias_gelu(x, bias, y, N: ct.Constant[int]):
    """A bias and GELU, a row a block."""
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ZERO).astype(ct.float32)
    v = v + ct.load(bias, (0,), (N,), padding_mode=ZERO).astype(ct.float32).reshape((1, N))
    v = 0.5 * v * (1.0 + ct.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
    ct.store(y, (row, 0), v.astype(y.dtype))


@ct.kernel
def product_while(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """A product of 8-bit integers whose rounds a `while` counts."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.int32)
    k = 0
    while k < ct.cdiv(A.shape[1], TK):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
        k = k + 1
    ct.store(C, (i, j), acc)


@ct.kernel
def softmax_gather(x, y, N: ct.Constant[int]):
    """Softmax of a row whose elements are chosen by index."""
    row = ct.bid(0)
    at = ct.arange(N, dtype=ct.int32)
    v = ct.gather(x, (row, at), padding_value=-float("inf")).astype(ct.float32)
    e = ct.exp(v - ct.max(v, axis=0, keepdims=True))
    ct.scatter(y, (row, at), (e / ct.sum(e, axis=0, keepdims=True)).astype(y.dtype))


@ct.kernel
def layer_norm_passes(x, w, b, y, eps: float, TILE: ct.Constant[int]):
    """Layer norm in three passes over a row."""
    row = ct.bid(0)
    n = x.shape[1]
    total = ct.zeros((1, TILE), ct.float32)
    for j in range(ct.cdiv(n, TILE)):
        total += ct.load(x, (row, j), (1, TILE), padding_mode=ZERO).astype(ct.float32)
    mean = ct.sum(total, axis=1) / n
    total = ct.zeros((1, TILE), ct.float32)
    for j in range(ct.cdiv(n, TILE)):
        v = ct.load(x, (row, j), (1, TILE), padding_mode=ZERO).astype(ct.float32)
        inside = (j * TILE + ct.arange(TILE, dtype=ct.int32)).reshape((1, TILE)) < n
        d = ct.where(inside, v - mean.reshape((1, 1)), 0.0)
        total += d * d
    scale = ct.rsqrt(ct.sum(total, axis=1) / n + eps).reshape((1, 1))
    for j in range(ct.cdiv(n, TILE)):
        v = ct.load(x, (row, j), (1, TILE), padding_mode=ZERO).astype(ct.float32)
        v = (v - mean.reshape((1, 1))) * scale
        v = v * ct.load(w, (j,), (TILE,), padding_mode=ZERO).astype(ct.float32).reshape((1, TILE))
        v = v + ct.load(b, (j,), (TILE,), padding_mode=ZERO).astype(ct.float32).reshape((1, TILE))
        ct.store(y, (row, j), v.astype(y.dtype))


@ct.kernel
def histogram(values, bins, TILE: ct.Constant[int]):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    bin = ct.gather(values, at, padding_value=-1)
    ct.atomic_add(bins, bin, 1)
