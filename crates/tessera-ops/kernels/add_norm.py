"""sum = x + residual, and y = rms_norm(sum, weight) or layer_norm(sum, weight, bias), in one reading of x and residual: the norm is of what is stored in
sum, statistics in ACC.

Long rows are shared by the blocks of a cluster, where there are some. Those that its registers, or else a block's, cannot hold are added up first, and
normalised by the kernels of rms_norm.py and layer_norm.py.
"""
import cuda.tile as ct
import tessera


def both(x, residual, i, ROWS, N):
    """Some rows of both."""
    return [ct.load(a, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO) for a in (x, residual)]


def added(a, b, sum, i, ACC):
    """The sum of rows as it is stored."""
    stored = (a.astype(ACC) + b.astype(ACC)).astype(sum.dtype)
    ct.store(sum, (i, 0), stored)
    return stored.astype(ACC)


@tessera.kernel
def add_rms_norm(x, residual, weight, sum, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    a, b = both(x, residual, i, ROWS, N)
    v = added(a, b, sum, i, ACC)
    scale = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / N + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (v * scale * w).astype(y.dtype))


@tessera.kernel
def add_layer_norm(x, residual, weight, bias, sum, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    a, b = both(x, residual, i, ROWS, N)
    v = added(a, b, sum, i, ACC)
    d = v - ct.sum(v, axis=1, keepdims=True) / N
    scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    b = ct.load(bias, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (d * scale * w + b).astype(y.dtype))


@tessera.kernel
def add_rms_norm_alike(
    x, residual, weight, sum, y, eps: float, ACC: ct.Constant, STEP: ct.Constant[int], AHEAD: ct.Constant[bool], N: ct.Constant[int]
):
    """Rows that are no whole vectors, but begin alike among them: every STEP rows. AHEAD: the next ones are on their way meanwhile."""
    w = ct.load(weight, (0,), (N,))
    if AHEAD:
        a, b = both(x, residual, ct.bid(0), 1, N)
    for i in range(ct.bid(0), x.shape[0], STEP):
        if AHEAD:
            next = both(x, residual, i + STEP, 1, N)
        else:
            a, b = both(x, residual, i, 1, N)
        v = added(a, b, sum, i, ACC)
        scale = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / N + eps)
        ct.store(y, (i, 0), (v * scale * w.astype(ACC)).astype(y.dtype))
        if AHEAD:
            a, b = next


@tessera.kernel
def add_layer_norm_alike(
    x,
    residual,
    weight,
    bias,
    sum,
    y,
    eps: float,
    ACC: ct.Constant,
    STEP: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    N: ct.Constant[int],
):
    """The same of layer norm."""
    w, c = ct.load(weight, (0,), (N,)), ct.load(bias, (0,), (N,))
    if AHEAD:
        a, b = both(x, residual, ct.bid(0), 1, N)
    for i in range(ct.bid(0), x.shape[0], STEP):
        if AHEAD:
            next = both(x, residual, i + STEP, 1, N)
        else:
            a, b = both(x, residual, i, 1, N)
        v = added(a, b, sum, i, ACC)
        d = v - ct.sum(v, axis=1, keepdims=True) / N
        scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
        ct.store(y, (i, 0), (d * scale * w.astype(ACC) + c.astype(ACC)).astype(y.dtype))
        if AHEAD:
            a, b = next


@tessera.kernel
def add(x, residual, sum, ACC: ct.Constant, CHUNK: ct.Constant[int]):
    pieces = ct.cdiv(x.shape[1], CHUNK)
    i, j = ct.bid(0) // pieces, ct.bid(0) % pieces
    a = ct.load(x, (i, j), (1, CHUNK)).astype(ACC)
    b = ct.load(residual, (i, j), (1, CHUNK)).astype(ACC)
    ct.store(sum, (i, j), (a + b).astype(sum.dtype))
