"""Lists of tensors, views of tiles, rows by an index tile, products of split contractions."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def weighted_sum(xs, weights: ct.Constant[tuple], out, TILE: ConstInt):
    i = ct.bid(0)
    acc = ct.zeros((TILE,), dtype=ct.float32)
    for j in ct.static_iter(range(len(weights))):
        acc += ct.load(xs[j], (i,), (TILE,)) * weights[j]
    ct.store(out, (i,), acc)


@ct.kernel
def through_views(x, out, TILE: ConstInt):
    source = x.tiled_view((1, TILE), padding_mode=ct.PaddingMode.ZERO)
    target = out.tiled_view((1, TILE))
    for j in range(source.num_tiles(1)):
        target.store((ct.bid(0), j), -source.load((ct.bid(0), j)))


@ct.kernel
def split_k(A, B, C, T: ConstInt, SPLITS: ConstInt):
    i, j, part = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((T, T), dtype=ct.float32)
    for k in range(part, ct.cdiv(A.shape[1], T), SPLITS):
        a = ct.load(A, (i, k), (T, T), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, ct.load(B, (k, j), (T, T), padding_mode=ct.PaddingMode.ZERO), acc)
    rows, columns = (i * T + ct.arange(T, dtype=ct.int32))[:, None], (j * T + ct.arange(T, dtype=ct.int32))[None, :]
    ct.atomic_add(C, (rows, columns), acc)


def main():
    stream = torch.cuda.current_stream()
    xs = [torch.randn(100, device="cuda") for _ in range(3)]
    out = torch.empty(100, device="cuda")
    ct.launch(stream, (ct.cdiv(100, 32),), weighted_sum, (xs, (1.0, 0.5, -2.0), out, 32))
    torch.testing.assert_close(out, xs[0] + 0.5 * xs[1] - 2 * xs[2])
    x = torch.randn(7, 50, device="cuda")
    out = torch.zeros_like(x)
    ct.launch(stream, (7,), through_views, (x, out, 16))
    assert torch.equal(out, -x)
    A, B = torch.randn(40, 200, device="cuda"), torch.randn(200, 30, device="cuda")
    C = torch.zeros(40, 30, device="cuda")
    ct.launch(stream, (3, 2, 4), split_k, (A, B, C, 16, 4))
    torch.testing.assert_close(C.double(), A.double() @ B.double(), atol=1e-3, rtol=1e-3)


if __name__ == "__main__":
    main()
