"""Sums, scans, maxima and histograms, by tiles, by functions of one's own and by atomics."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def split_sum(x, total, TILE: ConstInt):
    ct.atomic_add(total, (0,), ct.sum(ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO)))


@ct.kernel
def scans(x, sums, products, TILE: ConstInt):
    v = ct.load(x, (ct.bid(0), 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(sums, (ct.bid(0), 0), ct.cumsum(v, axis=1))
    ct.store(products, (ct.bid(0), 0), ct.scan(v, 1, lambda a, b: a * b, 1.0))


@ct.kernel
def argmaxima(x, at, top, TILE: ConstInt):
    v = ct.load(x, (ct.bid(0), 0), (1, TILE), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(at, (ct.bid(0),), ct.argmax(v, axis=1))
    ct.store(top, (ct.bid(0),), ct.reduce(v, axis=1, func=lambda a, b: ct.maximum(a, b), identity=float("-inf")))


@ct.kernel
def histogram(x, bins, TILE: ConstInt):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    v = ct.gather(x, at, padding_value=-1)
    ct.atomic_add(bins, v, ct.where(v >= 0, 1, 0))


def main():
    stream = torch.cuda.current_stream()
    x = torch.randn(20, 50, device="cuda")
    total = torch.zeros(1, device="cuda")
    ct.launch(stream, (ct.cdiv(1000, 64),), split_sum, (x.flatten(), total, 64))
    torch.testing.assert_close(total[0], x.sum(), atol=1e-4, rtol=1e-4)
    sums, products = torch.empty_like(x), torch.empty_like(x)
    ct.launch(stream, (20,), scans, (x, sums, products, 64))
    torch.testing.assert_close(sums, x.cumsum(1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(products, x.cumprod(1), atol=1e-5, rtol=1e-4)
    at, top = torch.empty(20, dtype=torch.int32, device="cuda"), torch.empty(20, device="cuda")
    ct.launch(stream, (20,), argmaxima, (x, at, top, 64))
    assert torch.equal(at.long(), x.argmax(1)) and torch.equal(top, x.amax(1))
    values = torch.randint(0, 10, (1000,), dtype=torch.int32, device="cuda")
    bins = torch.zeros(10, dtype=torch.int32, device="cuda")
    ct.launch(stream, (ct.cdiv(1000, 128),), histogram, (values, bins, 128))
    assert torch.equal(bins.long(), torch.bincount(values))


if __name__ == "__main__":
    main()
