"""A kernel whose tile is searched, with hints, and a cache of what was found; times by events."""

from dataclasses import dataclass
from functools import cache

import cuda.tile as ct
import torch


@dataclass(frozen=True)
class Config:
    tile: int
    occupancy: int


@ct.kernel
def silu_and_mul(x, out, TILE: ct.Constant[int]):
    row, j = ct.bid(0), ct.bid(1)
    half = out.shape[1]
    columns = j * TILE + ct.arange(TILE, dtype=ct.int32)
    gate = ct.gather(x, (row, columns)).astype(ct.float32)
    up = ct.gather(x, (row, half + columns)).astype(ct.float32)
    ct.scatter(out, (row, columns), (gate / (1 + ct.exp(-gate)) * up).astype(out.dtype))


@cache
def best(rows, half, dtype):
    x = torch.randn(rows, 2 * half, device="cuda", dtype=dtype)
    out = torch.empty(rows, half, device="cuda", dtype=dtype)
    found = ct.tune.exhaustive_search(
        [Config(tile, occupancy) for tile in (64, 128) for occupancy in (1, 2)],
        torch.cuda.current_stream(),
        lambda config: (rows, ct.cdiv(half, config.tile)),
        silu_and_mul,
        lambda config: (x, out, config.tile),
        lambda config: {"occupancy": config.occupancy},
        quiet=True,
        flush_l2=False,
    )
    assert len(found.successes) == 4 and "4 ran, 0 failed" in found.summary().replace("succeeded", "ran")
    return found.best.config


def main():
    x = torch.randn(16, 200, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(16, 100, device="cuda", dtype=torch.bfloat16)
    config = best(16, 100, torch.bfloat16)
    kernel = silu_and_mul.replace_hints(occupancy=config.occupancy)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    ct.launch(torch.cuda.current_stream(), (16, ct.cdiv(100, config.tile)), kernel, (x, out, config.tile))
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    gate, up = x.double().chunk(2, dim=1)
    torch.testing.assert_close(out.double(), torch.nn.functional.silu(gate) * up, atol=1e-2, rtol=1e-2)


if __name__ == "__main__":
    main()
