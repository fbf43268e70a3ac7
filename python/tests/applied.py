"""Kernels that read an array and write another one, tile by tile."""

import numpy as np
import tessera.tile as ct

ConstInt = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def run(kernel, *args, n: int = 1000):
    """What a kernel that takes an array, an array and a tile's extent makes of 0, 1, 2, ..."""
    x, out = np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    ct.launch(None, (ct.cdiv(n, 128),), kernel, (x, out, 128, *args))
    return x, out


def kernel_of(function):
    """A kernel that applies a function to each element."""

    @ct.kernel
    def applied(x, out, T: ConstInt):
        i = ct.bid(0)
        ct.store(out, (i,), function(ct.load(x, (i,), (T,), padding_mode=ZERO)))

    return applied
