"""Kernels whose plans are tried: see plans.sh."""
import cuda.tile as ct

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def product(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


@ct.kernel
def product_nt(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """B is stored transposed."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(B, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


@ct.kernel
def gelu(A, B, bias, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """A product with a bias and GELU behind it."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, b, acc)
    x = acc + ct.load(bias, (j,), (TN,), padding_mode=ZERO).astype(ct.float32).reshape((1, TN))
    y = 0.5 * x * (1.0 + ct.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    ct.store(C, (i, j), y.astype(C.dtype))


@ct.kernel
def dequantised(A, W, scale, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """Weights of 8 bits with a scale for each column."""
    i, j = ct.bid(0), ct.bid(1)
    s = ct.load(scale, (j,), (TN,), padding_mode=ZERO).astype(ct.float32).reshape((1, TN))
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO)
        w = ct.load(W, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(a, (w.astype(ct.float32) * s).astype(A.dtype), acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


@ct.kernel
def attention(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    """Softmax of rows in base 2, one head a block along y."""
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -3.0e38, ct.float32)
    l = ct.full((TM, 1), 0.0, ct.float32)
    acc = ct.full((TM, D), 0.0, ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.full((TM, TN), 0.0, ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        fade = ct.exp2(m - top)
        l = l * fade + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(Q.dtype), v, acc * fade)
        m = top
    ct.store(O, (h, i, 0), (acc / l).astype(O.dtype).reshape((1, TM, D)))
