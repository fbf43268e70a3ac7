"""The ladder of `gemm`: the same product by simpler kernels, each with one step more than the one before it.

| rung | adds | what it should gain |
|---|---|---|
| `naive` | a thread an element of C | the start: two loads a multiplication, from the caches |
| `shared_tiles` | tiles in shared memory, 4 x 4 sums a thread in registers | 64 times less from memory, 2 loads a multiplication become 1/2 |
| `double_buffer` | loads of the next round run while this one is multiplied | the time of a load, which else every round waits for; one barrier a round instead of two |
| `tensor_cores` | products of fragments by `mma.sync` | some ten times the rate of the multiplications (16-bit floats) |
| `gemm` itself | copies by TMA into a ring, `wgmma` from shared memory, roles of warps | no registers and no threads in the copies, the full rate of the tensor cores |

C = alpha * op(A) x op(B) + beta * C. Arrays have a batch in front. Blocks stand along columns, rows and the batch.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile


def element(X, n, i, j, TRANSPOSED):
    """Element (i, j) of op(X)."""
    return X[n, j, i] if TRANSPOSED else X[n, i, j]


def element_or_0(X, n, i, j, rows, columns, TRANSPOSED, ACC):
    """The same, 0 outside."""
    value = tile.cast(0.0, ACC)
    if i < rows and j < columns:
        value = tile.cast(element(X, n, i, j, TRANSPOSED), ACC)
    return value


def put(C, n, i, j, total, alpha, beta, ACC):
    """Stores a sum where C has that element; C is read where beta is not 0."""
    if i < C.shape[1] and j < C.shape[2]:
        total = total * tile.cast(alpha, ACC)
        if beta != 0.0:
            total = total + tile.cast(C[n, i, j], ACC) * tile.cast(beta, ACC)
        C[n, i, j] = total


@tessera.kernel(num_warps=8)
def naive(A: Tensor["Z", "I", "J", dtype], B: Tensor["Z", "K", "L", dtype], C: Tensor["Z", "M", "N", out],
          alpha: float, beta: float, K: int, ACC: ct.Constant, TRANSPOSE_A: ct.Constant[bool], TRANSPOSE_B: ct.Constant[bool]):
    """Threads of a warp have neighbours of a row: what they read of B lies together, and of A they read one element."""
    i = tile.block_id(1) * 8 + tile.warp_id()
    j = tile.block_id(0) * 32 + tile.lane_id()
    n = tile.block_id(2)
    total = tile.cast(0.0, ACC)
    if i < C.shape[1] and j < C.shape[2]:
        for k in range(K):
            a = tile.cast(element(A, n, i, k, TRANSPOSE_A), ACC)
            total += a * tile.cast(element(B, n, k, j, TRANSPOSE_B), ACC)
    put(C, n, i, j, total, alpha, beta, ACC)


# Rows and columns of C that a block of 256 threads makes, and products of a round.
SIDE = 64
DEPTH = 16
# Elements that a thread brings of each factor in a round.
BRINGS = SIDE * DEPTH // 256


def add_round(left, right, sums, buffer, ACC):
    """Adds the products of a round to the 4 x 4 sums of a thread. Rows of one thread lie 16 apart, and so do its columns: then lanes of a warp read
    neighbours."""
    row = tile.thread_id() // 16
    column = tile.thread_id() % 16
    for k in range(DEPTH):
        for i in range(4):
            for j in range(4):
                a = tile.cast(left[buffer, k, row + 16 * i], ACC)
                sums[i, j] += a * tile.cast(right[buffer, k, column + 16 * j], ACC)


def put_sums(C, sums, n, row, column, alpha, beta, ACC):
    for i in range(4):
        for j in range(4):
            at = row + tile.thread_id() // 16 + 16 * i
            put(C, n, at, column + tile.thread_id() % 16 + 16 * j, sums[i, j], alpha, beta, ACC)


def side_of(e, ALONG):
    """Which row, or column, of SIDE x DEPTH the e-th element has that a thread brings: neighbours lie along the products where these lie together
    in memory, else along the side."""
    at = tile.thread_id() + 256 * e
    return at // DEPTH if ALONG else at % SIDE


def depth_of(e, ALONG):
    at = tile.thread_id() + 256 * e
    return at % DEPTH if ALONG else at // SIDE


@tessera.kernel(num_warps=8)
def shared_tiles(A: Tensor["Z", "I", "J", dtype], B: Tensor["Z", "K", "L", dtype], C: Tensor["Z", "M", "N", out],
                 alpha: float, beta: float, K: int, ACC: ct.Constant, TRANSPOSE_A: ct.Constant[bool],
                 TRANSPOSE_B: ct.Constant[bool]):
    """A block makes SIDE x SIDE elements of C. What its threads read of the factors they read once, into shared memory."""
    left = tile.alloc_shared[dtype](1, DEPTH, SIDE + 1)
    right = tile.alloc_shared[dtype](1, DEPTH, SIDE + 1)
    sums = tile.alloc_register[ACC](4, 4)
    for i in range(4):
        for j in range(4):
            sums[i, j] = 0.0
    row = tile.block_id(1) * SIDE
    column = tile.block_id(0) * SIDE
    n = tile.block_id(2)
    for k in range(0, K, DEPTH):
        for e in range(BRINGS):
            i = side_of(e, not TRANSPOSE_A)
            step = depth_of(e, not TRANSPOSE_A)
            left[0, step, i] = element_or_0(A, n, row + i, k + step, C.shape[1], K, TRANSPOSE_A, dtype)
            j = side_of(e, TRANSPOSE_B)
            step = depth_of(e, TRANSPOSE_B)
            right[0, step, j] = element_or_0(B, n, k + step, column + j, K, C.shape[2], TRANSPOSE_B, dtype)
        tile.barrier()
        add_round(left, right, sums, 0, ACC)
        tile.barrier()
    put_sums(C, sums, n, row, column, alpha, beta, ACC)


@tessera.kernel(num_warps=8)
def double_buffer(A: Tensor["Z", "I", "J", dtype], B: Tensor["Z", "K", "L", dtype], C: Tensor["Z", "M", "N", out],
                  alpha: float, beta: float, K: int, ACC: ct.Constant, TRANSPOSE_A: ct.Constant[bool],
                  TRANSPOSE_B: ct.Constant[bool]):
    """The elements of the next round are on their way to registers while this one is multiplied, and then go to the other buffer. So a round
    has one barrier: who still reads this buffer is behind nobody who writes the other one."""
    left = tile.alloc_shared[dtype](2, DEPTH, SIDE + 1)
    right = tile.alloc_shared[dtype](2, DEPTH, SIDE + 1)
    sums = tile.alloc_register[ACC](4, 4)
    next_a = tile.alloc_register[dtype](BRINGS)
    next_b = tile.alloc_register[dtype](BRINGS)
    for i in range(4):
        for j in range(4):
            sums[i, j] = 0.0
    row = tile.block_id(1) * SIDE
    column = tile.block_id(0) * SIDE
    n = tile.block_id(2)
    for k in range(-DEPTH, K, DEPTH):
        buffer = k // DEPTH % 2
        for e in range(BRINGS):
            i = side_of(e, not TRANSPOSE_A)
            step = depth_of(e, not TRANSPOSE_A)
            next_a[e] = element_or_0(A, n, row + i, k + DEPTH + step, C.shape[1], K, TRANSPOSE_A, dtype)
            j = side_of(e, TRANSPOSE_B)
            step = depth_of(e, TRANSPOSE_B)
            next_b[e] = element_or_0(B, n, k + DEPTH + step, column + j, K, C.shape[2], TRANSPOSE_B, dtype)
        if k >= 0:
            add_round(left, right, sums, buffer, ACC)
        for e in range(BRINGS):
            i = side_of(e, not TRANSPOSE_A)
            step = depth_of(e, not TRANSPOSE_A)
            left[1 - buffer, step, i] = next_a[e]
            j = side_of(e, TRANSPOSE_B)
            step = depth_of(e, TRANSPOSE_B)
            right[1 - buffer, step, j] = next_b[e]
        tile.barrier()
    put_sums(C, sums, n, row, column, alpha, beta, ACC)


# The same for the tensor cores: rounds of 32 products, four warps with 32 x 32 elements of C each.
STEPS = 32
BRINGS_16 = SIDE * STEPS // 128
# Lines of shared memory are 16 bytes longer than their elements, so that rows of a fragment lie in different banks.
PAD = 8


@tessera.kernel(num_warps=4)
def tensor_cores(A: Tensor["Z", "I", "J", dtype], B: Tensor["Z", "K", "L", dtype], C: Tensor["Z", "M", "N", out],
                 alpha: float, beta: float, K: int, ACC: ct.Constant, TRANSPOSE_A: ct.Constant[bool],
                 TRANSPOSE_B: ct.Constant[bool]):
    """A warp multiplies fragments of 16 x 16; each that it loads takes part in two products. Sums go through shared memory, where C ends inside
    of a tile."""
    left = tile.alloc_shared[dtype](2 * SIDE, STEPS + PAD)
    right = tile.alloc_shared[dtype](2 * STEPS, SIDE + PAD)
    sums = tile.alloc_shared[ACC](SIDE, SIDE + PAD)
    next_a = tile.alloc_register[dtype](BRINGS_16)
    next_b = tile.alloc_register[dtype](BRINGS_16)
    a_0 = tile.fragment[dtype]("a")
    a_1 = tile.fragment[dtype]("a")
    b_0 = tile.fragment[dtype]("b")
    b_1 = tile.fragment[dtype]("b")
    c_00 = tile.fragment[ACC]("accumulator")
    c_01 = tile.fragment[ACC]("accumulator")
    c_10 = tile.fragment[ACC]("accumulator")
    c_11 = tile.fragment[ACC]("accumulator")
    tile.fragment_fill(c_00, 0.0)
    tile.fragment_fill(c_01, 0.0)
    tile.fragment_fill(c_10, 0.0)
    tile.fragment_fill(c_11, 0.0)
    row = tile.block_id(1) * SIDE
    column = tile.block_id(0) * SIDE
    n = tile.block_id(2)
    i = tile.warp_id() // 2 * 32
    j = tile.warp_id() % 2 * 32
    for k in range(-STEPS, K, STEPS):
        buffer = k // STEPS % 2
        for e in range(BRINGS_16):
            at = (tile.thread_id() + 128 * e) // STEPS
            step = (tile.thread_id() + 128 * e) % STEPS
            next_a[e] = element_or_0(A, n, row + at, k + STEPS + step, C.shape[1], K, TRANSPOSE_A, dtype)
            step = (tile.thread_id() + 128 * e) // SIDE
            at = (tile.thread_id() + 128 * e) % SIDE
            next_b[e] = element_or_0(B, n, k + STEPS + step, column + at, K, C.shape[2], TRANSPOSE_B, dtype)
        if k >= 0:
            for step in range(0, STEPS, 16):
                tile.fragment_load(a_0, left[buffer * SIDE + i, step])
                tile.fragment_load(a_1, left[buffer * SIDE + i + 16, step])
                tile.fragment_load(b_0, right[buffer * STEPS + step, j])
                tile.fragment_load(b_1, right[buffer * STEPS + step, j + 16])
                tile.fragment_mma(c_00, a_0, b_0)
                tile.fragment_mma(c_01, a_0, b_1)
                tile.fragment_mma(c_10, a_1, b_0)
                tile.fragment_mma(c_11, a_1, b_1)
        for e in range(BRINGS_16):
            at = (tile.thread_id() + 128 * e) // STEPS
            step = (tile.thread_id() + 128 * e) % STEPS
            left[(1 - buffer) * SIDE + at, step] = next_a[e]
            step = (tile.thread_id() + 128 * e) // SIDE
            at = (tile.thread_id() + 128 * e) % SIDE
            right[(1 - buffer) * STEPS + step, at] = next_b[e]
        tile.barrier()
    tile.fragment_store(sums[i, j], c_00)
    tile.fragment_store(sums[i, j + 16], c_01)
    tile.fragment_store(sums[i + 16, j], c_10)
    tile.fragment_store(sums[i + 16, j + 16], c_11)
    tile.barrier()
    for e in range(SIDE * SIDE // 128):
        i = (tile.thread_id() + 128 * e) // SIDE
        j = (tile.thread_id() + 128 * e) % SIDE
        put(C, n, row + i, column + j, sums[i, j], alpha, beta, ACC)
