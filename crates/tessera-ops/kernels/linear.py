"""Linear layers: y = f(x W^T + bias) + residual, and y = f(x G^T) * (x U^T), summed up in ACC and rounded once, when y is stored.

A block computes one TM x TN tile of y. ACT is f: 0 nothing, 1 ReLU, 2 GELU by tanh (Hendrycks and Gimpel, 2016), 3 SiLU. THIN: few rows; the
transposed product, since the tensor cores take no fewer than 64 rows and as few as 8 columns.
"""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
SQRT_8_OVER_PI = 1.5957691216057308


def sigmoid_of_power(t):
    """1 / (1 + 2^t)."""
    power = ct.exp2(t, flush_to_zero=True)
    return ct.truediv(1.0, 1.0 + power, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)


def activated(t, ACT):
    if ACT == 1:
        return ct.maximum(t, 0.0, propagate_nan=True)
    if ACT == 2:
        # (1 + tanh z) / 2 is the sigmoid of 2 z, and z a sum of t and its cube.
        scale = -LOG2_E * SQRT_8_OVER_PI
        return t * sigmoid_of_power(t * (scale + (scale * 0.044715) * (t * t)))
    if ACT == 3:
        return t * sigmoid_of_power(t * -LOG2_E)
    return t


def load_x(x, i, k, TM, TK, COMPUTE):
    return ct.load(x, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO).astype(COMPUTE)


def load_weight(weight, k, j, TK, TN, COMPUTE):
    return ct.load(weight, (k, j), (TK, TN), order=(1, 0), padding_mode=ct.PaddingMode.ZERO).astype(COMPUTE)


def add_product(a, b, acc, THIN):
    if THIN:
        return ct.mma(ct.transpose(b), ct.transpose(a), acc)
    return ct.mma(a, b, acc)


def nothing(TM, TN, ACC, THIN):
    return ct.zeros((TN, TM), ACC) if THIN else ct.zeros((TM, TN), ACC)


def product(x, weight, i, j, K, COMPUTE, ACC, TM, TN, TK, THIN):
    acc = nothing(TM, TN, ACC, THIN)
    for k in range(ct.cdiv(K, TK)):
        acc = add_product(load_x(x, i, k, TM, TK, COMPUTE), load_weight(weight, k, j, TK, TN, COMPUTE), acc, THIN)
    return ct.transpose(acc) if THIN else acc


def biased(t, bias, j, TN, ACC):
    return t + ct.load(bias, (j,), (TN,), padding_mode=ct.PaddingMode.ZERO).astype(ACC).reshape((1, TN))


@tessera.kernel
def linear(x, weight, bias, y, K: int, ACT: ct.Constant[int], COMPUTE: ct.Constant, ACC: ct.Constant,
           TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int], THIN: ct.Constant[bool]):
    i, j = ct.bid(0), ct.bid(1)
    out = biased(product(x, weight, i, j, K, COMPUTE, ACC, TM, TN, TK, THIN), bias, j, TN, ACC)
    ct.store(y, (i, j), activated(out, ACT).astype(y.dtype))


@tessera.kernel
def linear_residual(x, weight, bias, residual, y, K: int, ACT: ct.Constant[int], COMPUTE: ct.Constant, ACC: ct.Constant,
                    TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int], THIN: ct.Constant[bool]):
    i, j = ct.bid(0), ct.bid(1)
    out = biased(product(x, weight, i, j, K, COMPUTE, ACC, TM, TN, TK, THIN), bias, j, TN, ACC)
    out = activated(out, ACT) + ct.load(residual, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(y, (i, j), out.astype(y.dtype))


@tessera.kernel
def linear_gated(x, gate, up, y, K: int, ACT: ct.Constant[int], COMPUTE: ct.Constant, ACC: ct.Constant,
                 TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int], THIN: ct.Constant[bool]):
    """Both products read the tiles of x once (Shazeer, 2020)."""
    i, j = ct.bid(0), ct.bid(1)
    gates = nothing(TM, TN, ACC, THIN)
    ups = nothing(TM, TN, ACC, THIN)
    for k in range(ct.cdiv(K, TK)):
        a = load_x(x, i, k, TM, TK, COMPUTE)
        gates = add_product(a, load_weight(gate, k, j, TK, TN, COMPUTE), gates, THIN)
        ups = add_product(a, load_weight(up, k, j, TK, TN, COMPUTE), ups, THIN)
    out = activated(gates, ACT) * ups
    ct.store(y, (i, j), (ct.transpose(out) if THIN else out).astype(y.dtype))
