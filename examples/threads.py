"""Per-thread kernels: what one thread does, shared arrays, barriers, warps, atomics, arrays of registers."""
import tessera
from tessera import Tensor, tile


def block_sum(value, partial):
    """The sum over the block, in every thread; `partial` is a shared array with an element a warp."""
    warp = tile.warp_reduce_sum(value)
    if tile.lane_id() == 0:
        partial[tile.warp_id()] = warp
    tile.barrier()
    total = 0.0
    for w in range(tile.block_size() // 32):
        total += partial[w]
    tile.barrier()
    return total


@tessera.kernel
def normalise(x: Tensor["M", "N", dtype], y: Tensor["M", "N", dtype], eps: float = 1e-5):
    """Rows with mean 0 and variance 1, a block each; the variance is summed around the mean."""
    partial = tile.alloc_shared[fp32](32)
    row = tile.block_id()
    n = x.shape[1]
    total = 0.0
    for j in range(tile.thread_id(), n, tile.block_size()):
        total += x[row, j]
    mean = block_sum(total, partial) / n
    squares = 0.0
    for j in range(tile.thread_id(), n, tile.block_size()):
        squares += (x[row, j] - mean) * (x[row, j] - mean)
    scale = tile.rsqrt(block_sum(squares, partial) / n + eps)
    for j in range(tile.thread_id(), n, tile.block_size()):
        y[row, j] = (x[row, j] - mean) * scale


@tessera.kernel
def histogram(x: Tensor["N", int32], counts: Tensor["B", int32]):
    """Counts in a shared array first, so that blocks meet once a bin."""
    bins = tile.alloc_shared[int32](256)
    for b in range(tile.thread_id(), 256, tile.block_size()):
        bins[b] = 0
    tile.barrier()
    for i in range(tile.linear_id(), x.shape[0], tile.block_size() * tile.num_blocks()):
        tile.atomic_add(bins[x[i] % 256], 1)
    tile.barrier()
    for b in range(tile.thread_id(), counts.shape[0], tile.block_size()):
        tile.atomic_add(counts[b], bins[b])


@tessera.kernel
def matmul(a: Tensor["M", "K", fp32], b: Tensor["K", "N", fp32], c: Tensor["M", "N", fp32]):
    """A block of 64 threads makes 32 x 32 elements of the product, each thread 4 x 4 in registers."""
    left = tile.alloc_shared[fp32](32, 8)
    right = tile.alloc_shared[fp32](8, 32)
    acc = tile.alloc_register[fp32](4, 4)
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0.0
    t = tile.thread_id()
    row = 32 * tile.block_id(1)
    column = 32 * tile.block_id(0)
    for k in range(0, a.shape[1], 8):
        for e in range(t, 256, 64):
            in_a = row + e // 8 < a.shape[0] and k + e % 8 < a.shape[1]
            left[e // 8, e % 8] = a[row + e // 8, k + e % 8] if in_a else 0.0
            in_b = k + e // 32 < b.shape[0] and column + e % 32 < b.shape[1]
            right[e // 32, e % 32] = b[k + e // 32, column + e % 32] if in_b else 0.0
        tile.barrier()
        for step in range(8):
            for i in range(4):
                for j in range(4):
                    acc[i, j] += left[t // 8 * 4 + i, step] * right[step, t % 8 * 4 + j]
        tile.barrier()
    for i in range(4):
        for j in range(4):
            if row + t // 8 * 4 + i < c.shape[0] and column + t % 8 * 4 + j < c.shape[1]:
                c[row + t // 8 * 4 + i, column + t % 8 * 4 + j] = acc[i, j]
