@tessera.kernel.autotune(
    space=dict(
        BLOCK_SIZE=[128, 256, 512],
        VECTOR_WIDTH=[2, 4, 8],
        WARP_REDUCE_STAGES=[1, 2],
        num_warps=[4, 8, 16]
    ),
    key=["seq_len_k"],
    cache="~/.tesserabench/autotune/softmax"
)
def softmax_safe(x: Tensor["B", "H", "Sq", "Sk", dtype],
                output: Tensor["B", "H", "Sq", "Sk", dtype],
                causal_mask: bool = False):

    ctx = tile.context()
    batch_idx = tile.block_id(0)
    head_idx = tile.block_id(1) 
    q_idx = tile.block_id(2)
    thread_idx = tile.thread_id()

    # Shared memory for reduction
    smem_max = tile.alloc_shared[dtype](1)
    smem_sum = tile.alloc_shared[dtype](1)

    # Initialize shared memory
    if thread_idx == 0:
        smem_max[0] = float('-inf')
        smem_sum[0] = 0.0
    tile.barrier()

    # First pass: find maximum (for numerical stability)
    local_max = float('-inf')
    seq_len = x.shape[3]

    for k in range(thread_idx, seq_len, tile.block_size()):
        if causal_mask and k > q_idx:
            continue  # Skip future tokens

        val = x[batch_idx, head_idx, q_idx, k]
        local_max = tile.max(local_max, val)

    # Warp-level max reduction
    warp_max = tile.warp_reduce_max(local_max)
    if tile.lane_id() == 0:
        tile.atomic_max(smem_max, warp_max)

    tile.barrier()
    global_max = smem_max[0]

    # Second pass: compute exp(x - max) and sum
    local_sum = 0.0
    for k in range(thread_idx, seq_len, tile.block_size()):
        if causal_mask and k > q_idx:
            continue

        val = x[batch_idx, head_idx, q_idx, k]
        exp_val = tile.exp(val - global_max)
        output[batch_idx, head_idx, q_idx, k] = exp_val
        local_sum += exp_val

    # Warp-level sum reduction  
    warp_sum = tile.warp_reduce_sum(local_sum)
    if tile.lane_id() == 0:
        tile.atomic_add(smem_sum, warp_sum)

    tile.barrier()
    global_sum = smem_sum[0]

    # Third pass: normalize
    inv_sum = 1.0 / global_sum
    for k in range(thread_idx, seq_len, tile.block_size()):
        if causal_mask and k > q_idx:
            output[batch_idx, head_idx, q_idx, k] = 0.0  # Masked positions
        else:
            output[batch_idx, head_idx, q_idx, k] *= inv_sum
