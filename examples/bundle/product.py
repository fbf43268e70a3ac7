import tessera
from tessera import Tensor, fp32, tile


@tessera.kernel
def product(A: Tensor["M", "K", dtype], B: Tensor["K", "N", dtype], C: Tensor["M", "N", dtype]):
    tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))
