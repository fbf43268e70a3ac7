"""Fifteen ways to write (x - mean) / sqrt(var + eps) * w + b along rows. `more` marks those that do more than the first."""
import cuda.tile as ct


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def plain(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    mean = ct.sum(v, axis=1, keepdims=True) / N
    d = v - mean
    var = ct.sum(d * d, axis=1, keepdims=True) / N
    scale = ct.rsqrt(var + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: inputs: f16[?,?], gain: f16[?], shift: f16[?], outputs: f16[?,?], tiny: f32, WIDTH = 2048
@ct.kernel
def renamed(inputs, gain, shift, outputs, tiny: float, WIDTH: ct.Constant[int]):
    index = ct.bid(0)
    line = ct.load(inputs, index=(index, 0), shape=(1, WIDTH), padding_mode=ct.PaddingMode.ZERO)
    line = ct.astype(line, ct.float32)
    centre = ct.sum(line, axis=1, keepdims=True) / WIDTH
    moved = line - centre
    spread = ct.sum(moved * moved, axis=1, keepdims=True) / WIDTH
    inverse = ct.rsqrt(spread + tiny)
    g = ct.load(gain, index=(0,), shape=(WIDTH,)).astype(ct.float32)
    s = ct.load(shift, index=(0,), shape=(WIDTH,)).astype(ct.float32)
    ct.store(outputs, index=(index, 0), tile=(moved * inverse * g + s).astype(outputs.dtype))


# args: N = 2048, eps: f32, y: f16[?,?], b: f16[?], w: f16[?], x: f16[?,?]
@ct.kernel
def reordered(N: ct.Constant[int], eps: float, y, b, w, x):
    row = ct.bid(0)
    bias = ct.load(b, (0,), (N,)).astype(ct.float32)
    weight = ct.load(w, (0,), (N,)).astype(ct.float32)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    d = v - ct.sum(v, axis=1, keepdims=True) / N
    scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
    ct.store(y, (row, 0), (d * scale * weight + bias).astype(y.dtype))


def mean_of(v, N):
    return ct.sum(v, axis=1, keepdims=True) / N


def loaded(array, index, shape):
    return ct.load(array, index, shape, padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def with_helpers(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = loaded(x, (row, 0), (1, N))
    d = v - mean_of(v, N)
    scale = ct.rsqrt(mean_of(d * d, N) + eps)
    out = d * scale * loaded(w, (0,), (N,)) + loaded(b, (0,), (N,))
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def by_vectors(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).reshape((N,)).astype(ct.float32)
    d = v - ct.sum(v) / N
    scale = ct.rsqrt(ct.sum(d * d) / N + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.reshape((1, N)).astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def by_functions(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.astype(ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO), ct.float32)
    d = ct.sub(v, ct.truediv(ct.sum(v, axis=1, keepdims=True), N))
    scale = ct.rsqrt(ct.add(ct.truediv(ct.sum(ct.mul(d, d), axis=1, keepdims=True), N), eps))
    out = ct.add(ct.mul(ct.mul(d, scale), ct.load(w, (0,), (N,)).astype(ct.float32)), ct.load(b, (0,), (N,)).astype(ct.float32))
    ct.store(y, (row, 0), ct.astype(out, y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def with_while(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    while row < ct.bid(0) + 1:
        v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        mean = ct.sum(v, axis=1, keepdims=True) / N
        d = v - mean
        var = ct.sum(d * d, axis=1, keepdims=True) / N
        out = d * ct.rsqrt(var + eps) * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
        ct.store(y, (row, 0), out.astype(y.dtype))
        row += 1


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, s: f32, N = 2048; more
@ct.kernel
def scaled(x, w, b, y, eps: float, s: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32) * s
    d = v - ct.sum(v, axis=1, keepdims=True) / N
    scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048; more
@ct.kernel
def masked(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    width = x.shape[1]
    keep = ct.arange(N, dtype=ct.int32)[None, :] < width
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    d = ct.where(keep, v - ct.sum(v, axis=1, keepdims=True) / width, 0.0)
    scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / width + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], r: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048; more
@ct.kernel
def with_a_residual(x, r, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    v = v + ct.load(r, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    d = v - ct.sum(v, axis=1, keepdims=True) / N
    scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048; more
@ct.kernel
def gathered(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    columns = ct.arange(N, dtype=ct.int32)
    v = ct.gather(x, (row, columns), padding_value=0).astype(ct.float32)
    mean = ct.sum(v) / N
    d = v - mean
    var = ct.sum(d * d) / N
    scale = ct.rsqrt(var + eps)
    out = d * scale * ct.gather(w, columns).astype(ct.float32) + ct.gather(b, columns).astype(ct.float32)
    ct.scatter(y, (row, columns), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def by_powers(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    mean = ct.sum(v, axis=1, keepdims=True) / N
    d = v - mean
    var = ct.sum(d ** 2, axis=1, keepdims=True) / N
    scale = ct.rsqrt(var + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def by_reduce(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    mean = ct.reduce(v, 1, lambda a, b: a + b, 0.0, keepdims=True) / N
    d = v - mean
    var = ct.reduce(d * d, 1, lambda a, b: a + b, 0.0, keepdims=True) / N
    scale = ct.rsqrt(var + eps)
    out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048
@ct.kernel
def in_place(x, w, b, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    mean = ct.sum(v, axis=1, keepdims=True) / N
    v -= mean
    d = v
    var = ct.sum(d * d, axis=1, keepdims=True) / N
    var += eps
    scale = ct.rsqrt(var)
    out = d * scale
    out *= ct.load(w, (0,), (N,)).astype(ct.float32)
    out += ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (row, 0), out.astype(y.dtype))


# args: x: f16[?,?], w: f16[?], b: f16[?], y: f16[?,?], eps: f32, N = 2048; more
@ct.kernel
def over_blocks(x, w, b, y, eps: float, N: ct.Constant[int]):
    for row in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        mean = ct.sum(v, axis=1, keepdims=True) / N
        d = v - mean
        var = ct.sum(d * d, axis=1, keepdims=True) / N
        scale = ct.rsqrt(var + eps)
        out = d * scale * ct.load(w, (0,), (N,)).astype(ct.float32) + ct.load(b, (0,), (N,)).astype(ct.float32)
        ct.store(y, (row, 0), out.astype(y.dtype))
