"""The ladder of `permute` for the last two axes in each other's place: y[.., j, i] = x[.., i, j].

| rung | adds | what it should gain |
|---|---|---|
| `naive` | a thread an element; reads whole lines, writes single elements | the start: a sector of 32 bytes is written for each element |
| `shared_tile` | a tile of 32 x 32 in shared memory, read by lines and written by lines | whole sectors on both sides; a column of the tile lies in one bank |
| `padded` | a line of the tile is one element longer | columns lie in different banks: no access takes 32 turns |
| `permute` itself | accesses of up to 16 bytes, a swizzle in place of the padding | a quarter or less of the instructions, more bytes on their way |

The compiler chooses how a shared array lies by what it sees of the accesses, and may spread the lines of `shared_tile` by itself.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile

SIDE = 32


@tessera.kernel(num_warps=8)
def naive(x: Tensor["A", "B", "I", "J", dtype], y: Tensor["A", "B", "J", "I", dtype]):
    j = tile.block_id(0) * SIDE + tile.lane_id()
    a = tile.block_id(2) // x.shape[1]
    b = tile.block_id(2) % x.shape[1]
    for step in range(0, SIDE, 8):
        i = tile.block_id(1) * SIDE + tile.warp_id() + step
        if i < x.shape[2] and j < x.shape[3]:
            y[a, b, j, i] = x[a, b, i, j]


def turn(own, x, y):
    """Through a tile: lanes of a warp have neighbours of a line, of x first and then of y."""
    i = tile.block_id(1) * SIDE
    j = tile.block_id(0) * SIDE
    a = tile.block_id(2) // x.shape[1]
    b = tile.block_id(2) % x.shape[1]
    for step in range(0, SIDE, 8):
        line = tile.warp_id() + step
        if i + line < x.shape[2] and j + tile.lane_id() < x.shape[3]:
            own[line, tile.lane_id()] = x[a, b, i + line, j + tile.lane_id()]
    tile.barrier()
    for step in range(0, SIDE, 8):
        line = tile.warp_id() + step
        if j + line < x.shape[3] and i + tile.lane_id() < x.shape[2]:
            y[a, b, j + line, i + tile.lane_id()] = own[tile.lane_id(), line]


@tessera.kernel(num_warps=8)
def shared_tile(x: Tensor["A", "B", "I", "J", dtype], y: Tensor["A", "B", "J", "I", dtype]):
    own = tile.alloc_shared[dtype](SIDE, SIDE)
    turn(own, x, y)


@tessera.kernel(num_warps=8)
def padded(x: Tensor["A", "B", "I", "J", dtype], y: Tensor["A", "B", "J", "I", dtype]):
    own = tile.alloc_shared[dtype](SIDE, SIDE + 1)
    turn(own, x, y)
