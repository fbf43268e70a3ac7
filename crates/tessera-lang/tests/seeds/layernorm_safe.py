@tessera.kernel.autotune(
    space=dict(
        BLOCK_SIZE=[128, 256, 512],
        VECTOR_WIDTH=[2, 4, 8],
        num_warps=[4, 8, 16],
        WARP_REDUCE=[True, False]
    ),
    key=["hidden_size"],
    cache="~/.tesserabench/autotune/layernorm"
)
def layernorm_safe(x: Tensor["B", "S", "H", dtype],
                  weight: Tensor["H", dtype],
                  bias: Tensor["H", dtype],
                  output: Tensor["B", "S", "H", dtype],
                  eps: float = 1e-5):

    ctx = tile.context()
    batch_idx = tile.block_id(0)
    seq_idx = tile.block_id(1)
    thread_idx = tile.thread_id()

    # Shared memory for statistics
    smem_sum = tile.alloc_shared[dtype](1)
    smem_sum_sq = tile.alloc_shared[dtype](1)

    # Initialize shared memory
    if thread_idx == 0:
        smem_sum[0] = 0.0
        smem_sum_sq[0] = 0.0
    tile.barrier()

    # First pass: compute mean and variance
    local_sum = 0.0
    local_sum_sq = 0.0

    for h in range(thread_idx, x.shape[2], tile.block_size()):
        val = x[batch_idx, seq_idx, h]
        local_sum += val
        local_sum_sq += val * val

    # Warp-level reduction
    warp_sum = tile.warp_reduce_sum(local_sum)
    warp_sum_sq = tile.warp_reduce_sum(local_sum_sq)

    # Block-level reduction
    if tile.lane_id() == 0:
        tile.atomic_add(smem_sum, warp_sum)
        tile.atomic_add(smem_sum_sq, warp_sum_sq)

    tile.barrier()

    # Compute statistics
    if thread_idx == 0:
        mean = smem_sum[0] / x.shape[2]
        variance = (smem_sum_sq[0] / x.shape[2]) - mean * mean
        inv_std = tile.rsqrt(variance + eps)  # Safe reciprocal square root

        smem_sum[0] = mean      # Reuse for mean
        smem_sum_sq[0] = inv_std  # Reuse for inv_std

    tile.barrier()

    mean = smem_sum[0]
    inv_std = smem_sum_sq[0]

    # Second pass: normalize
    for h in range(thread_idx, x.shape[2], tile.block_size()):
        normalized = (x[batch_idx, seq_idx, h] - mean) * inv_std
        output[batch_idx, seq_idx, h] = normalized * weight[h] + bias[h]
