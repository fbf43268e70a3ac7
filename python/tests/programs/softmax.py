"""Softmax of rows: whole rows, rows in parts with a running maximum, and one block that takes many rows."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def whole_rows(x, y, TILE: ConstInt):
    for row in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        v = ct.load(x, (row, 0), (1, TILE), padding_mode=ct.PaddingMode.NEG_INF)
        e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
        ct.store(y, (row, 0), ct.truediv(e, ct.sum(e, axis=1, keepdims=True)))


@ct.kernel
def rows_in_parts(x, y, TILE: ConstInt):
    row = ct.bid(0)
    top = ct.full((1, 1), float("-inf"), dtype=ct.float32)
    total = ct.zeros((1, 1), dtype=ct.float32)
    for j in range(ct.num_tiles(x, 1, (1, TILE))):
        v = ct.load(x, (row, j), (1, TILE), padding_mode=ct.PaddingMode.NEG_INF)
        new = ct.maximum(top, ct.max(v, 1, keepdims=True))
        total = total * ct.exp(top - new) + ct.sum(ct.exp(v - new), 1, keepdims=True)
        top = new
    for j in range(ct.num_tiles(x, 1, (1, TILE))):
        v = ct.load(x, (row, j), (1, TILE))
        ct.store(y, (row, j), ct.exp(v - top) / total)


def main():
    x = torch.randn(37, 300, device="cuda") * 10
    want = torch.softmax(x.double(), dim=1)
    for kernel, blocks, tile in ((whole_rows, 5, 512), (rows_in_parts, 37, 64)):
        y = torch.full_like(x, float("nan"))
        ct.launch(torch.cuda.current_stream(), (blocks,), kernel, (x, y, tile))
        torch.testing.assert_close(y.double(), want, atol=1e-6, rtol=1e-4)


if __name__ == "__main__":
    main()
