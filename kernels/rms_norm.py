"""y = x / sqrt(mean(x^2) + eps) * weight over the last axis, statistics in ACC (Zhang and Sennrich, 2019)."""
import cuda.tile as ct
import tessera


@tessera.kernel
def rms_norm(x, weight, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    scale = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / N + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (v * scale * w).astype(y.dtype))
