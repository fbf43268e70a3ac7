import cuda.tile as ct

from .activations import activate
from .config import DEFAULT, Layer


def load_with_bias(x, bias, at, layer: Layer):
    rows, columns = layer.tile
    v = ct.astype(ct.load(x, at, (rows, columns)), ct.float32)
    return v + ct.reshape(ct.astype(ct.load(bias, (at[1],), (columns,)), ct.float32), (1, columns))


@ct.kernel
def bias_gelu(x, bias, y):
    """y[r, c] = gelu(x[r, c] + bias[c]), tiles of 4 rows and 256 columns."""
    layer = DEFAULT
    at = (ct.bid(0), ct.bid(1))
    v = activate(load_with_bias(x, bias, at, layer), layer.activation)
    ct.store(y, at, ct.astype(v * layer.scale, y.dtype))


@ct.kernel
def bias_gelu_plain(x, bias, y, N: ct.Constant[int]):
    """The same as its definition, a row a block: what the other is compared with."""
    row = ct.bid(0)
    v = ct.astype(ct.load(x, (row, 0), (1, N)), ct.float32) + ct.reshape(ct.astype(ct.load(bias, (0,), (N,)), ct.float32), (1, N))
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    ct.store(y, (row, 0), ct.astype(0.5 * v * (1.0 + ct.tanh(inner)), y.dtype))
