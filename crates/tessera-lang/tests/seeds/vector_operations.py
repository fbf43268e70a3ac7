@tessera.kernel.autotune(
    space=dict(
        BLOCK_SIZE=[128, 256, 512, 1024],
        VECTOR_WIDTH=[1, 2, 4, 8],
        num_warps=[4, 8, 16]
    ),
    key=["vector_size", "operation"],
    cache="~/.tesserabench/autotune/vector_ops"
)
def vector_operations(x: Tensor["N", dtype],
                    y: Tensor["N", dtype] = None,
                    result: Tensor[result_shape, result_dtype] = None,
                    alpha: float = 1.0,
                    operation: str = "axpy"):

    ctx = tile.context()
    i = tile.linear_id()

    if operation == "axpy" and y is not None:
        # y = alpha * x + y
        if i < x.shape[0]:
            result[i] = alpha * x[i] + y[i]

    elif operation == "dot":
        # Dot product with reduction
        local_sum = 0.0
        if i < x.shape[0]:
            local_sum = x[i] * y[i]

        # Warp-level reduction
        warp_sum = tile.warp_reduce_sum(local_sum)
        if tile.lane_id() == 0:
            tile.atomic_add(result, warp_sum)

    elif operation == "norm":
        # L2 norm computation
        local_sum = 0.0
        if i < x.shape[0]:
            local_sum = x[i] * x[i]

        warp_sum = tile.warp_reduce_sum(local_sum)
        if tile.lane_id() == 0:
            tile.atomic_add(result, warp_sum)

    elif operation == "add":
        # Element-wise addition
        if i < x.shape[0]:
            result[i] = x[i] + y[i]

    elif operation == "mul":
        # Element-wise multiplication
        if i < x.shape[0]:
            result[i] = x[i] * y[i]

    elif operation == "reduce_sum":
        # Reduction to scalar
        local_sum = 0.0
        if i < x.shape[0]:
            local_sum = x[i]

        warp_sum = tile.warp_reduce_sum(local_sum)
        if tile.lane_id() == 0:
            tile.atomic_add(result, warp_sum)

    elif operation == "reduce_max":
        # Max reduction
        local_max = float('-inf')
        if i < x.shape[0]:
            local_max = x[i]

        warp_max = tile.warp_reduce_max(local_max)
        if tile.lane_id() == 0:
            tile.atomic_max(result, warp_max)
