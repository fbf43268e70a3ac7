"""Transposes: of a tile, by the order of a load, by gathers."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def of_tiles(x, y, tm: ConstInt, tn: ConstInt):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, index=(j, i), tile=ct.transpose(ct.load(x, index=(i, j), shape=(tm, tn))))


@ct.kernel
def by_order(x, y, tm: ConstInt, tn: ConstInt):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.load(x, (j, i), (tn, tm), order=(1, 0)))


@ct.kernel
def by_gathers(x, y, tm: ConstInt, tn: ConstInt):
    rows = ct.bid(0) * tm + ct.arange(tm, dtype=ct.int32)
    columns = ct.bid(1) * tn + ct.arange(tn, dtype=ct.int32)
    ct.scatter(y, (columns[:, None], rows[None, :]), ct.gather(x, (rows[:, None], columns[None, :])).permute((1, 0)))


def main():
    for dtype in (torch.float16, torch.float32, torch.int8):
        x = torch.randint(-100, 100, (100, 50), device="cuda").to(dtype)
        for kernel in (of_tiles, by_order, by_gathers):
            y = torch.zeros(50, 100, dtype=dtype, device="cuda")
            ct.launch(torch.cuda.current_stream(), (ct.cdiv(100, 32), ct.cdiv(50, 16)), kernel, (x, y, 32, 16))
            assert torch.equal(y, x.t())


if __name__ == "__main__":
    main()
