"""Counts of an array's elements in bins: of integers a bin a value from 0 on; of floats equal bins between two bounds, the upper one in the last
bin, as in NumPy's `histogram` and PyTorch's `histc`. What lies outside, and NaN, is counted nowhere.

A float's bin is floor((v - least) * (bins / (greatest - least))) in 32 bits, each step rounded. Up to PRIVATE bins a block counts in shared
memory, where a processor puts together what lanes of a warp add to one bin, and adds what it has to the result once a bin. Else, and
on a CPU, all count in the result itself.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, fp32, int32, tile

# Elements that a thread takes at once.
VECTOR = 8


@tessera.kernel
def clear(counts, TILE: ct.Constant[int]):
    ct.store(counts, (ct.bid(0),), ct.zeros((TILE,), counts.dtype))


def begin(own, bins):
    for b in range(tile.thread_id(), bins, tile.block_size()):
        own[b] = 0
    tile.barrier()


def merge(own, counts):
    tile.barrier()
    for b in range(tile.thread_id(), counts.shape[0], tile.block_size()):
        if own[b] != 0:
            tile.atomic_add(counts[b], own[b])


def put(own, v, bins):
    bin = tile.cast(v, int32)
    if bin >= 0 and bin < bins:
        tile.atomic_add(own[bin], 1)


def put_between(own, v, least, greatest, bins):
    v = tile.cast(v, fp32)
    if v >= least and v <= greatest and least < greatest:
        bin = tile.cast(tile.floor((v - least) * (tile.cast(bins, fp32) / (greatest - least))), int32)
        tile.atomic_add(own[tile.min(bin, bins - 1)], 1)


@tessera.kernel
def values(x: Tensor["N", dtype], counts: Tensor["B", int32], PRIVATE: ct.Constant[int]):
    own = tile.alloc_shared[int32](PRIVATE)
    bins = counts.shape[0]
    begin(own, bins)
    whole = x.shape[0] // VECTOR
    step = tile.block_size() * tile.num_blocks()
    for i in range(tile.linear_id(), whole, step):
        for e in range(VECTOR):
            put(own, x[i * VECTOR + e], bins)
    for i in range(whole * VECTOR + tile.linear_id(), x.shape[0], step):
        put(own, x[i], bins)
    merge(own, counts)


@tessera.kernel
def between(x: Tensor["N", dtype], counts: Tensor["B", int32], least: float, greatest: float, PRIVATE: ct.Constant[int]):
    own = tile.alloc_shared[int32](PRIVATE)
    bins = counts.shape[0]
    begin(own, bins)
    whole = x.shape[0] // VECTOR
    step = tile.block_size() * tile.num_blocks()
    for i in range(tile.linear_id(), whole, step):
        for e in range(VECTOR):
            put_between(own, x[i * VECTOR + e], least, greatest, bins)
    for i in range(whole * VECTOR + tile.linear_id(), x.shape[0], step):
        put_between(own, x[i], least, greatest, bins)
    merge(own, counts)


@tessera.kernel
def values_in_place(x, counts, TILE: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ct.int32)
    inside = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32) < x.shape[0]
    ct.atomic_add(counts, ct.where(inside, v, -1), 1, memory_order=ct.MemoryOrder.RELAXED)


@tessera.kernel
def between_in_place(x, counts, least: float, greatest: float, TILE: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    inside = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32) < x.shape[0]
    inside = inside & (v >= least) & (v <= greatest) & (least < greatest)
    bins = counts.shape[0]
    bin = ct.floor(ct.where(inside, v - least, 0.0) * (bins / (greatest - least))).astype(ct.int32)
    ct.atomic_add(counts, ct.where(inside, ct.minimum(bin, bins - 1), -1), 1, memory_order=ct.MemoryOrder.RELAXED)
