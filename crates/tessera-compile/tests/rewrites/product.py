"""Nineteen ways to write the product of two matrices. `more` marks those that do more than the first."""
import cuda.tile as ct


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def plain(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: left: f16[?,?], right: f16[?,?], out: f16[?,?], H = 128, W = 128, D = 64
@ct.kernel
def renamed(left, right, out, H: ct.Constant[int], W: ct.Constant[int], D: ct.Constant[int]):
    row = ct.bid(0)
    column = ct.bid(1)
    total = ct.full((H, W), 0.0, dtype=ct.float32)
    for step in range(ct.cdiv(left.shape[1], D)):
        x = ct.load(left, index=(row, step), shape=(H, D), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(right, index=(step, column), shape=(D, W), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(x, y, total)
    result = ct.astype(total, out.dtype)
    ct.store(out, index=(row, column), tile=result)


# args: C: f16[?,?], TK = 64, TN = 128, TM = 128, B: f16[?,?], A: f16[?,?]
@ct.kernel
def reordered(C, TK: ct.Constant[int], TN: ct.Constant[int], TM: ct.Constant[int], B, A):
    acc = ct.zeros((TM, TN), ct.float32)
    steps = ct.cdiv(A.shape[1], TK)
    j = ct.bid(1)
    i = ct.bid(0)
    for k in range(0, steps, 1):
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def with_while(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    k = 0
    steps = ct.cdiv(A.shape[1], TK)
    while k < steps:
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
        k += 1
    ct.store(C, (i, j), acc.astype(C.dtype))


def tile_of(array, index, shape):
    return ct.load(array, index, shape, padding_mode=ct.PaddingMode.ZERO)


def accumulate(A, B, i, j, k, acc, TM, TN, TK):
    return ct.mma(tile_of(A, (i, k), (TM, TK)), tile_of(B, (k, j), (TK, TN)), acc)


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def with_helpers(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        acc = accumulate(A, B, i, j, k, acc, TM, TN, TK)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def by_operator(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        a = ct.load(A, (ct.bid(0), k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, ct.bid(1)), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc=acc)
    ct.store(C, (ct.bid(0), ct.bid(1)), acc.astype(ct.float16))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def counting_down(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    steps = ct.cdiv(A.shape[1], TK)
    for n in range(steps):
        k = steps - 1 - n
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], s: f32, TM = 128, TN = 128, TK = 64; more
@ct.kernel
def scaled(A, B, C, s: float, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), (acc * s).astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], bias: f16[?], TM = 128, TN = 128, TK = 64; more
@ct.kernel
def biased(A, B, C, bias, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    acc = acc + ct.load(bias, (j,), (TN,)).astype(ct.float32)[None, :]
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64; more
@ct.kernel
def masked(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
    acc = ct.where(columns <= rows, acc, 0.0)
    ct.store(C, (i, j), ct.maximum(acc, 0.0).astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def added_up(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    zero = ct.zeros((TM, TN), ct.float32)
    acc = zero
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc += ct.mma(a, b, zero)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def by_offsets(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.full((TM, TN), 0, ct.float32)
    for start in range(0, A.shape[1], TK):
        a = ct.load(A, (i, start // TK), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (start // TK, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), ct.astype(acc, ct.float16))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def with_a_batch_axis(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((1, TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a[None, :, :], ct.expand_dims(b, 0), acc)
    ct.store(C, (i, j), acc.reshape((TM, TN)).astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def left_by_a_break(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    k = 0
    while True:
        if k * TK >= A.shape[1]:
            break
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
        k += 1
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def by_views(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    left = A.tiled_view((TM, TK), padding_mode=ct.PaddingMode.ZERO)
    right = B.tiled_view((TK, TN), padding_mode=ct.PaddingMode.ZERO)
    out = C.tiled_view((TM, TN))
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(left.num_tiles(1)):
        acc = ct.mma(left.load((ct.bid(0), k)), right.load((k, ct.bid(1))), acc)
    out.store((ct.bid(0), ct.bid(1)), acc.astype(C.dtype))


def place(blocks_n, tile=0, *, width=1):
    return tile // blocks_n, tile % blocks_n * width


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel(num_ctas=ct.ByTarget(sm_100=2), occupancy=1)
def one_axis_of_blocks(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    M, K = A.shape
    _, N = B.shape
    i, j = place(ct.cdiv(N, TN), tile=ct.bid(0))
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO, latency=4, allow_tma=True)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO, latency=4, allow_tma=True)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype), latency=2)


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def gathered(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    rows = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)
    columns = ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        inner = k * TK + ct.arange(TK, dtype=ct.int32)
        a = ct.gather(A, (rows[:, None], inner[None, :]), padding_value=0)
        b = ct.gather(B, (inner[:, None], columns[None, :]), padding_value=0)
        acc = ct.mma(a, b, acc)
    ct.scatter(C, (rows[:, None], columns[None, :]), acc.astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], TM = 128, TN = 128, TK = 64
@ct.kernel
def carried_with_a_count(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    state = (ct.zeros((TM, TN), ct.float32), 0)
    left = A.shape[1]
    while left > 0:
        acc, k = state
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        state = (ct.mma(a, b, acc), k + 1)
        left -= TK
    ct.store(C, (i, j), state[0].astype(C.dtype))


# args: A: f16[?,?], B: f16[?,?], C: f16[?,?], D: f16[?,?], beta: f32, TM = 128, TN = 128, TK = 64; more
@ct.kernel
def starting_from_a_tile(A, B, C, D, beta: float, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.load(D, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32) * beta
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))
