@tessera.kernel.autotune(
    space=dict(
        BLOCK_SIZE=[128, 256, 512, 1024],
        VECTOR_WIDTH=[1, 2, 4, 8, 16],
        num_warps=[4, 8, 16, 32]
    ),
    key=["memory_size_bytes", "access_pattern", "operation"],
    cache="~/.tesserabench/autotune/memory_bw"
)
def memory_bandwidth_kernel(a: Tensor["N", dtype],
                           b: Tensor["N", dtype], 
                           c: Tensor["N", dtype],
                           scalar: dtype,
                           operation: str,
                           access_pattern: str,
                           stride: int = 1):

    ctx = tile.context()
    i = tile.linear_id()
    n = a.shape[0]

    if access_pattern == "sequential":
        idx = i
    elif access_pattern.startswith("strided"):
        stride_val = int(access_pattern.split('_')[1])
        idx = i * stride_val
        if idx >= n:
            return
    elif access_pattern == "random":
        # Simple pseudo-random pattern
        idx = (i * 1103515245 + 12345) % n
    else:
        idx = i

    if idx >= n:
        return

    if operation == "copy":
        # c = a
        c[idx] = a[idx]
    elif operation == "scale":
        # c = scalar * a  
        c[idx] = scalar * a[idx]
    elif operation == "add":
        # c = a + b
        c[idx] = a[idx] + b[idx]
    elif operation == "triad":
        # c = a + scalar * b
        c[idx] = a[idx] + scalar * b[idx]
