"""The ladders of `vector reduce_sum` and of `softmax`: how threads of a block put together what each has found.

| rung | adds | what it should gain |
|---|---|---|
| `naive` | one thread adds up what all have left in shared memory; a row of softmax is one thread's | the start: one works, 255 wait; lanes read rows, not lines |
| `shared_tree` | half as many threads add in each step, eight steps with a barrier each | 8 steps instead of 255; lanes read lines |
| `warp_shuffles` | lanes exchange registers; one barrier, for the warps' results | five exchanges without memory, a barrier instead of eight |
| the operator itself | accesses of 16 bytes, many of them on their way; rows stay in registers | the memory's rate; x is read once |
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile

THREADS = 256


def own_sum(x, ACC):
    """What a thread finds of the whole array: elements a grid apart."""
    total = tile.cast(0.0, ACC)
    for i in range(tile.linear_id(), x.shape[0], THREADS * tile.num_blocks()):
        total += tile.cast(x[i], ACC)
    return total


def tree_sum(own):
    """The sum of a shared array, left in its first element."""
    for step in range(8):
        half = THREADS >> step + 1
        tile.barrier()
        if tile.thread_id() < half:
            own[tile.thread_id()] = own[tile.thread_id()] + own[tile.thread_id() + half]
    tile.barrier()


@tessera.kernel(num_warps=8)
def sum_naive(x: Tensor["N", dtype], y: Tensor["B", out], ACC: ct.Constant):
    own = tile.alloc_shared[ACC](THREADS)
    own[tile.thread_id()] = own_sum(x, ACC)
    tile.barrier()
    if tile.thread_id() == 0:
        total = tile.cast(0.0, ACC)
        for t in range(THREADS):
            total += own[t]
        y[tile.block_id()] = total


@tessera.kernel(num_warps=8)
def sum_shared_tree(x: Tensor["N", dtype], y: Tensor["B", out], ACC: ct.Constant):
    own = tile.alloc_shared[ACC](THREADS)
    own[tile.thread_id()] = own_sum(x, ACC)
    tree_sum(own)
    if tile.thread_id() == 0:
        y[tile.block_id()] = own[0]


@tessera.kernel(num_warps=8)
def sum_warp_shuffles(x: Tensor["N", dtype], y: Tensor["B", out], ACC: ct.Constant):
    own = tile.alloc_shared[ACC](8)
    warp = tile.warp_reduce_sum(own_sum(x, ACC))
    if tile.lane_id() == 0:
        own[tile.warp_id()] = warp
    tile.barrier()
    if tile.thread_id() == 0:
        total = tile.cast(0.0, ACC)
        for w in range(8):
            total += own[w]
        y[tile.block_id()] = total


@tessera.kernel(num_warps=8)
def softmax_naive(x: Tensor["M", "N", dtype], y: Tensor["M", "N", dtype], ACC: ct.Constant):
    """A thread a row, which it reads three times."""
    row = tile.linear_id()
    if row < x.shape[0]:
        top = tile.cast(x[row, 0], ACC)
        for j in range(x.shape[1]):
            top = tile.max(top, tile.cast(x[row, j], ACC))
        total = tile.cast(0.0, ACC)
        for j in range(x.shape[1]):
            total += tile.exp(tile.cast(x[row, j], ACC) - top)
        for j in range(x.shape[1]):
            y[row, j] = tile.exp(tile.cast(x[row, j], ACC) - top) / total


def own_top(x, row, ACC):
    """The largest element that a thread finds in a row; one that is there where it finds none."""
    top = tile.cast(x[row, 0], ACC)
    for j in range(tile.thread_id(), x.shape[1], THREADS):
        top = tile.max(top, tile.cast(x[row, j], ACC))
    return top


def own_total(x, row, top, ACC):
    total = tile.cast(0.0, ACC)
    for j in range(tile.thread_id(), x.shape[1], THREADS):
        total += tile.exp(tile.cast(x[row, j], ACC) - top)
    return total


@tessera.kernel(num_warps=8)
def softmax_shared_tree(x: Tensor["M", "N", dtype], y: Tensor["M", "N", dtype], ACC: ct.Constant):
    """A block a row."""
    row = tile.block_id()
    own = tile.alloc_shared[ACC](THREADS)
    own[tile.thread_id()] = own_top(x, row, ACC)
    for step in range(8):
        half = THREADS >> step + 1
        tile.barrier()
        if tile.thread_id() < half:
            own[tile.thread_id()] = tile.max(own[tile.thread_id()], own[tile.thread_id() + half])
    tile.barrier()
    top = own[0]
    tile.barrier()
    own[tile.thread_id()] = own_total(x, row, top, ACC)
    tree_sum(own)
    total = own[0]
    for j in range(tile.thread_id(), x.shape[1], THREADS):
        y[row, j] = tile.exp(tile.cast(x[row, j], ACC) - top) / total


@tessera.kernel(num_warps=8)
def softmax_warp_shuffles(x: Tensor["M", "N", dtype], y: Tensor["M", "N", dtype], ACC: ct.Constant):
    row = tile.block_id()
    tops = tile.alloc_shared[ACC](8)
    totals = tile.alloc_shared[ACC](8)
    warp_top = tile.warp_reduce_max(own_top(x, row, ACC))
    if tile.lane_id() == 0:
        tops[tile.warp_id()] = warp_top
    tile.barrier()
    top = tops[0]
    for w in range(1, 8):
        top = tile.max(top, tops[w])
    warp_total = tile.warp_reduce_sum(own_total(x, row, top, ACC))
    if tile.lane_id() == 0:
        totals[tile.warp_id()] = warp_total
    tile.barrier()
    total = tile.cast(0.0, ACC)
    for w in range(8):
        total += totals[w]
    for j in range(tile.thread_id(), x.shape[1], THREADS):
        y[row, j] = tile.exp(tile.cast(x[row, j], ACC) - top) / total
