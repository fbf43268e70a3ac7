"""Vector addition by tiles and by gathers, 1-d and 2-d, lengths that are no multiple of a tile."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def add_tiles(a, b, c, TILE: ConstInt):
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(TILE,)) + ct.load(b, index=(i,), shape=(TILE,)))


@ct.kernel
def add_gathered(a, b, c, TILE: ConstInt):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    ct.scatter(c, at, ct.gather(a, at) + ct.gather(b, at))


@ct.kernel
def add_gathered_2d(a, b, c, TILE_M: ConstInt, TILE_N: ConstInt):
    rows = ct.bid(0) * TILE_M + ct.arange(TILE_M, dtype=ct.int32)
    columns = ct.bid(1) * TILE_N + ct.arange(TILE_N, dtype=ct.int32)
    at = (rows[:, None], columns[None, :])
    ct.scatter(c, at, ct.gather(a, at, padding_value=0) + ct.gather(b, at, padding_value=0))


def add(a, b, use_gather):
    if a.shape != b.shape or not (a.is_cuda and b.is_cuda):
        raise ValueError("two CUDA tensors of one shape")
    c = torch.empty_like(a)
    stream = torch.cuda.current_stream()
    if a.dim() == 2:
        ct.launch(stream, (ct.cdiv(a.shape[0], 16), ct.cdiv(a.shape[1], 64), 1), add_gathered_2d, (a, b, c, 16, 64))
    else:
        ct.launch(stream, (ct.cdiv(a.shape[0], 256), 1, 1), add_gathered if use_gather else add_tiles, (a, b, c, 256))
    return c


def main():
    for dtype in (torch.float32, torch.float16, torch.int32):
        a = torch.randint(-100, 100, (1000,), device="cuda").to(dtype)
        b = torch.randint(-100, 100, (1000,), device="cuda").to(dtype)
        for use_gather in (False, True):
            assert torch.equal(add(a, b, use_gather), a + b)
    a, b = torch.randn(50, 130, device="cuda"), torch.randn(50, 130, device="cuda")
    assert torch.equal(add(a, b, True), a + b)


if __name__ == "__main__":
    main()
