@tessera.kernel.autotune(
    space=dict(
        BLOCK_M=[64, 128, 256],
        BLOCK_N=[64, 128, 256], 
        BLOCK_K=[32, 64, 128],
        num_warps=[4, 8, 16],
        num_stages=[2, 3, 4]
    ),
    key=["M", "N", "K"],
    cache="~/.tesserabench/autotune/gemm"
)
def tessera_gemm(A: Tensor["M", "K", dtype],
                B: Tensor["K", "N", dtype],
                C: Tensor["M", "N", accum_dtype],
                alpha: float = 1.0,
                beta: float = 0.0,
                transpose_a: bool = False,
                transpose_b: bool = False):

    # Tessera GEMM implementation with tensor cores
    ctx = tile.context()

    # Load tiles with optimal memory access patterns
    A_tile = tile.load(A, layout="tensor_core_compatible", 
                     transpose=transpose_a)
    B_tile = tile.load(B, layout="tensor_core_compatible",
                     transpose=transpose_b)

    # Matrix multiplication using WMMA/WGMMA
    C_tile = tile.mma(A_tile, B_tile, accum=accum_dtype)

    # Alpha/beta scaling
    if beta != 0.0:
        C_existing = tile.load(C)
        C_tile = alpha * C_tile + beta * C_existing
    else:
        C_tile = alpha * C_tile

    # Store result
    tile.store(C, C_tile)
