"""The ladder of `bandwidth copy`: how wide the accesses of a thread are.

| rung | adds | what it should gain |
|---|---|---|
| `scalar` | a thread an element | the start: whole lines, but as many instructions as elements, and few bytes on their way |
| `vectors` | 16 bytes a thread | a fourth to a sixteenth of the instructions for as many bytes |
| `bandwidth` itself | several of these a thread | loads on their way while others arrive |
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile


@tessera.kernel(num_warps=8)
def scalar(a: Tensor["N", dtype], c: Tensor["N", dtype], VECTOR: ct.Constant[int]):
    i = tile.linear_id()
    if i < a.shape[0]:
        c[i] = a[i]


@tessera.kernel(num_warps=8)
def vectors(a: Tensor["N", dtype], c: Tensor["N", dtype], VECTOR: ct.Constant[int]):
    first = tile.linear_id() * VECTOR
    if first + VECTOR <= a.shape[0]:
        for e in range(VECTOR):
            c[first + e] = a[first + e]
    else:
        for i in range(first, a.shape[0]):
            c[i] = a[i]
