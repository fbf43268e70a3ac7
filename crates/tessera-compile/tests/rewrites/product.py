"""Ten ways to write the product of two matrices. `more` marks those that do more than the first."""
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
