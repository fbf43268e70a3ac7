"""Activations, gates and their gradients, element by element: each array is read or written once, in one launch.

Arithmetic is in ACC whatever the storage type. In 32 bits powers and reciprocals are the hardware's instructions, off by a few units; in 64 bits
they are rounded well.

    relu        max(x, 0)
    leaky_relu  x, or slope x below 0                        (Maas, Hannun and Ng, 2013)
    elu         x, or alpha (e^x - 1) below 0                (Clevert, Unterthiner and Hochreiter, 2016)
    sigmoid     1 / (1 + e^-x)
    tanh        the hyperbolic tangent
    silu        x sigmoid(x)                                 (Elfwing, Uchibe and Doya, 2018)
    gelu        x Phi(x), Phi the normal distribution        (Hendrycks and Gimpel, 2016)
    gelu_tanh   x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    swiglu, geglu, geglu_tanh   f(gate) up, f one of the last three   (Shazeer, 2020)
    bias_relu, bias_silu, bias_gelu   f(x + bias), one bias for all rows

The gradient of a bias is a sum over rows, whose order never depends on how blocks are scheduled: a block adds up TILES tiles of rows and leaves what it
has in `partials`, which a second launch adds up.
"""
import cuda.tile as ct
import tessera

LOG2_E = 1.4426950408889634
SQRT_8_OVER_PI = 1.5957691216057308
SQRT_1_OVER_2_PI = 0.3989422804014327

# Phi(-a) = 2^(-a^2 log2(e) / 2) v p(v) with v = 1 / (1 + c a): p interpolates at Chebyshev nodes, for a up to 14 to 2^-24 with c = 0.35, for a up
# to 39 to 2^-53 with c = 0.25, there in powers of v - 1/2. Beyond, the power of two is 0.
TAIL = (0.13961870968341827, 0.13991229236125946, 0.11944491416215897, 0.10711459070444107, -0.027046607807278633, 0.16505099833011627,
        -0.26096123456954956, 0.14654582738876343, -0.029679521918296814)
TAIL64 = (0.18882128260393788, 0.30394832098594604, 0.38713740074221453, 0.3730437159193145, 0.24158629956374625, 0.06032151173381433,
          -0.05567507787829752, -0.052186190642838436, 0.008534035994217327, 0.029580151701690753, -0.0004885141708219989, -0.017994079259137773,
          0.0007338663163106336, 0.012124514965536978, -0.0025792371121421613, -0.008368570672710464, 0.00445324541339121, 0.005077890414099644,
          -0.005597326092327403, -0.0017407407275783393, 0.005143163269639192, -0.0010057296224574978, -0.002644612961143959,
          0.001523039823024007)


# (e^t - 1 - t) / t^2, interpolated at Chebyshev nodes of [-1/2, 0] to 2^-31.
EXP_REST = (0.49999999983955146, 0.16666664354395397, 0.04166612494795605, 0.008328671793039656, 0.001370618729063327, 0.00016480967334469576)


def power_of_two(t):
    """2^t."""
    return ct.exp2(t) if t.dtype == ct.float64 else ct.exp2(t, flush_to_zero=True)


def reciprocal(t):
    """1 / t."""
    if t.dtype == ct.float64:
        return 1.0 / t
    return ct.truediv(1.0, t, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)


def logistic(t):
    """1 / (1 + e^-t)."""
    return reciprocal(1.0 + power_of_two(t * -LOG2_E))


def polynomial(v, coefficients):
    value = coefficients[-1]
    for at in ct.static_iter(range(len(coefficients) - 1)):
        value = value * v + coefficients[len(coefficients) - 2 - at]
    return value


def normal(t):
    """Phi(t), and sqrt(2 pi) times its derivative."""
    power = power_of_two(t * t * (-0.5 * LOG2_E))
    if t.dtype == ct.float64:
        v = 1.0 / (1.0 + 0.25 * ct.abs(t))
        tail = power * v * polynomial(v - 0.5, TAIL64)
    else:
        v = reciprocal(1.0 + 0.35 * ct.abs(t))
        tail = power * v * polynomial(v, TAIL)
    return ct.where(t < 0.0, tail, 1.0 - tail), power


def silu_of(t):
    return t * logistic(t)


def silu_slope(t):
    s = logistic(t)
    return s * (1.0 + t * (1.0 - s))


def gelu_of(t):
    return t * normal(t)[0]


def gelu_slope(t):
    below, power = normal(t)
    return below + t * power * SQRT_1_OVER_2_PI


def gelu_tanh_of(t):
    # (1 + tanh z) / 2 is the sigmoid of 2 z, and z a sum of t and its cube.
    scale = -LOG2_E * SQRT_8_OVER_PI
    return t * reciprocal(1.0 + power_of_two(t * (scale + (scale * 0.044715) * (t * t))))


def gelu_tanh_slope(t):
    scale = -LOG2_E * SQRT_8_OVER_PI
    # Where the square is larger the sigmoid is 0 or 1, and has no slope: nothing large is multiplied before that is.
    square = ct.minimum(t * t, 1000.0)
    s = reciprocal(1.0 + power_of_two(t * (scale + (scale * 0.044715) * square)))
    inner = SQRT_8_OVER_PI + (SQRT_8_OVER_PI * 3.0 * 0.044715) * square
    near = ct.maximum(ct.minimum(t, 32.0), -32.0)
    return s + near * (inner * (s * (1.0 - s)))


def elu_of(t, alpha):
    low = ct.minimum(t, 0.0, propagate_nan=True)
    if t.dtype == ct.float64:
        # e^t - 1 = 2 h / (1 - h) with h = tanh(t / 2), where nothing cancels below 0.
        h = ct.tanh(low * 0.5)
        less = 2.0 * h * reciprocal(1.0 - h)
    else:
        # The difference cancels near 0: there e^t - 1 = t + t^2 p(t).
        less = ct.where(low < -0.5, power_of_two(low * LOG2_E) - 1.0, low + low * low * polynomial(low, EXP_REST))
    return ct.where(t > 0.0, t, alpha * less)


def load(x, ACC, TILE):
    return ct.load(x, (ct.bid(0),), (TILE,)).astype(ACC)


def store(y, t):
    ct.store(y, (ct.bid(0),), t.astype(y.dtype))


@tessera.kernel
def relu(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, ct.maximum(load(x, ACC, TILE), 0.0, propagate_nan=True))


@tessera.kernel
def relu_backward(x, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(dx, ct.where(load(x, ACC, TILE) > 0.0, load(dy, ACC, TILE), 0.0))


@tessera.kernel
def leaky_relu(x, y, slope: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    t = load(x, ACC, TILE)
    store(y, ct.where(t > 0.0, t, slope * t))


@tessera.kernel
def leaky_relu_backward(x, dy, dx, slope: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    d = load(dy, ACC, TILE)
    store(dx, ct.where(load(x, ACC, TILE) > 0.0, d, slope * d))


@tessera.kernel
def elu(x, y, alpha: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, elu_of(load(x, ACC, TILE), alpha))


@tessera.kernel
def elu_backward(x, dy, dx, alpha: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    t, d = load(x, ACC, TILE), load(dy, ACC, TILE)
    store(dx, ct.where(t > 0.0, d, d * (alpha * power_of_two(t * LOG2_E))))


@tessera.kernel
def sigmoid(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, logistic(load(x, ACC, TILE)))


@tessera.kernel
def sigmoid_backward(y, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    s = load(y, ACC, TILE)
    store(dx, load(dy, ACC, TILE) * (s * (1.0 - s)))


@tessera.kernel
def tanh(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, ct.tanh(load(x, ACC, TILE)))


@tessera.kernel
def tanh_backward(y, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    h = load(y, ACC, TILE)
    store(dx, load(dy, ACC, TILE) * ((1.0 - h) * (1.0 + h)))


@tessera.kernel
def silu(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, silu_of(load(x, ACC, TILE)))


@tessera.kernel
def silu_backward(x, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(dx, load(dy, ACC, TILE) * silu_slope(load(x, ACC, TILE)))


@tessera.kernel
def gelu(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, gelu_of(load(x, ACC, TILE)))


@tessera.kernel
def gelu_backward(x, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(dx, load(dy, ACC, TILE) * gelu_slope(load(x, ACC, TILE)))


@tessera.kernel
def gelu_tanh(x, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, gelu_tanh_of(load(x, ACC, TILE)))


@tessera.kernel
def gelu_tanh_backward(x, dy, dx, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(dx, load(dy, ACC, TILE) * gelu_tanh_slope(load(x, ACC, TILE)))


@tessera.kernel
def swiglu(gate, up, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, silu_of(load(gate, ACC, TILE)) * load(up, ACC, TILE))


@tessera.kernel
def swiglu_backward(gate, up, dy, dgate, dup, ACC: ct.Constant, TILE: ct.Constant[int]):
    t, d = load(gate, ACC, TILE), load(dy, ACC, TILE)
    s = logistic(t)
    store(dgate, d * load(up, ACC, TILE) * (s * (1.0 + t * (1.0 - s))))
    store(dup, d * (t * s))


@tessera.kernel
def geglu(gate, up, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, gelu_of(load(gate, ACC, TILE)) * load(up, ACC, TILE))


@tessera.kernel
def geglu_backward(gate, up, dy, dgate, dup, ACC: ct.Constant, TILE: ct.Constant[int]):
    t, d = load(gate, ACC, TILE), load(dy, ACC, TILE)
    below, power = normal(t)
    store(dgate, d * load(up, ACC, TILE) * (below + t * power * SQRT_1_OVER_2_PI))
    store(dup, d * (t * below))


@tessera.kernel
def geglu_tanh(gate, up, y, ACC: ct.Constant, TILE: ct.Constant[int]):
    store(y, gelu_tanh_of(load(gate, ACC, TILE)) * load(up, ACC, TILE))


@tessera.kernel
def geglu_tanh_backward(gate, up, dy, dgate, dup, ACC: ct.Constant, TILE: ct.Constant[int]):
    t, d = load(gate, ACC, TILE), load(dy, ACC, TILE)
    store(dgate, d * load(up, ACC, TILE) * gelu_tanh_slope(t))
    store(dup, d * gelu_tanh_of(t))


def biased(x, bias, i, j, ACC, TM, TN):
    b = ct.load(bias, (j,), (TN,)).astype(ACC).reshape((1, TN))
    return ct.load(x, (i, j), (TM, TN)).astype(ACC) + b


def bias_forward(f, x, bias, y, ACC, TM, TN):
    columns = ct.cdiv(x.shape[1], TN)
    i, j = ct.bid(0) // columns, ct.bid(0) % columns
    ct.store(y, (i, j), f(biased(x, bias, i, j, ACC, TM, TN)).astype(y.dtype))


def bias_gradient(slope, x, bias, dy, partials, dx, ACC, TM, TN, TILES):
    # The sums' blocks have room beside this launch's, and wait until all of these have ended.
    ct.grid_dependency_control_launch_dependents()
    columns = ct.cdiv(x.shape[1], TN)
    part, j = ct.bid(0) // columns, ct.bid(0) % columns
    first = part * TILES
    b = ct.load(bias, (j,), (TN,), padding_mode=ct.PaddingMode.ZERO).astype(ACC).reshape((1, TN))
    sums = ct.zeros((TM, TN), ACC)
    for i in range(first, min(first + TILES, ct.cdiv(x.shape[0], TM))):
        t = ct.load(x, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ACC) + b
        d = ct.load(dy, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ACC) * slope(t)
        ct.store(dx, (i, j), d.astype(dx.dtype))
        sums = sums + d
    ct.store(partials, (part, j), ct.sum(sums, axis=0, keepdims=True))


@tessera.kernel
def bias_relu(x, bias, y, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    bias_forward(lambda t: ct.maximum(t, 0.0, propagate_nan=True), x, bias, y, ACC, TM, TN)


@tessera.kernel
def bias_relu_backward(x, bias, dy, partials, dx, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TILES: ct.Constant[int]):
    bias_gradient(lambda t: ct.where(t > 0.0, 1.0, 0.0), x, bias, dy, partials, dx, ACC, TM, TN, TILES)


@tessera.kernel
def bias_silu(x, bias, y, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    bias_forward(silu_of, x, bias, y, ACC, TM, TN)


@tessera.kernel
def bias_silu_backward(x, bias, dy, partials, dx, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TILES: ct.Constant[int]):
    bias_gradient(silu_slope, x, bias, dy, partials, dx, ACC, TM, TN, TILES)


@tessera.kernel
def bias_gelu(x, bias, y, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    bias_forward(gelu_of, x, bias, y, ACC, TM, TN)


@tessera.kernel
def bias_gelu_backward(x, bias, dy, partials, dx, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TILES: ct.Constant[int]):
    bias_gradient(gelu_slope, x, bias, dy, partials, dx, ACC, TM, TN, TILES)
