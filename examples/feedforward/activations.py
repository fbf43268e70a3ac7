import cuda.tile as ct

from .config import GELU_CUBIC, SQRT_2_OVER_PI, Activation


def gelu(v):
    return 0.5 * v * (1.0 + ct.tanh(SQRT_2_OVER_PI * (v + GELU_CUBIC * v * v * v)))


def activate(v, which):
    if which is Activation.RELU:
        return ct.maximum(v, 0.0)
    if which == Activation.SILU:
        return v / (1.0 + ct.exp(-v))
    return gelu(v)
