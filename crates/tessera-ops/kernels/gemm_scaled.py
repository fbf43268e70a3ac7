"""C = A times the transpose of B, for factors in 8 bits with scales: for blocks of 128 along the contraction, for rows, or for all.

Scales of blocks lie across the rounds of the loop: for large products they are turned first, so that the copy engine brings a round's with its factors.

COMPUTE is the type the products are taken in: the storage type, or float16 where the tensor cores do not take that. SA and SB have one axis
more of one element each where a scale serves all columns, or all. EXCHANGED: the transposed product, since the tensor cores take no fewer than 64
rows and any multiple of 8 columns. ACROSS: neighbours of a cluster lie side by side, else one below the other.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
BLOCK = 128


def place(ACROSS):
    return (ct.bid(1), ct.bid(0)) if ACROSS else (ct.bid(0), ct.bid(1))


def nothing(TM, TN, EXCHANGED):
    return ct.zeros((TN, TM), ct.float32) if EXCHANGED else ct.zeros((TM, TN), ct.float32)


def product(A, B, i, j, k, acc, COMPUTE, TM, TN, TK, EXCHANGED, fast):
    a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO).astype(COMPUTE)
    b = ct.load(B, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO).astype(COMPUTE)
    if EXCHANGED:
        a, b = ct.transpose(b), ct.transpose(a)
    return ct.mma(a, b, acc, use_fast_acc=fast and COMPUTE != ct.float16)


def products(A, B, i, j, K, COMPUTE, TM, TN, TK, EXCHANGED):
    acc = nothing(TM, TN, EXCHANGED)
    for k in range(ct.cdiv(K, TK)):
        acc = product(A, B, i, j, k, acc, COMPUTE, TM, TN, TK, EXCHANGED, False)
    return acc


def store(C, i, j, out, EXCHANGED):
    ct.store(C, (i, j), (ct.transpose(out) if EXCHANGED else out).astype(C.dtype))


@tessera.kernel
def turn(SA, T, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """T, lines of whole 16 bytes, is SA transposed."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(T, (j, i), ct.transpose(ct.load(SA, (i, j), (ROWS, COLUMNS), padding_mode=ZERO)))


@tessera.kernel
def blocks(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int],
           EXCHANGED: ct.Constant[bool] = False, ACROSS: ct.Constant[bool] = False, TURNED: ct.Constant[bool] = False):
    """SA has a scale for each row and block of columns of A, TURNED or not, SB for each block of rows and columns of B: the sums of a block are
    scaled and added up in float32, so within it the tensor cores add up by themselves."""
    i, j = place(ACROSS)
    acc = nothing(TM, TN, EXCHANGED)
    for k in range(ct.cdiv(K, BLOCK)):
        if TURNED:
            sa = ct.transpose(ct.load(SA, (k, i), (1, TM), padding_mode=ZERO))
        else:
            sa = ct.load(SA, (i, k), (TM, 1), padding_mode=ZERO)
        sb = ct.load(SB, (j * TN // BLOCK, k), (1, 1), padding_mode=ZERO)
        scale = ct.transpose(sa * sb) if EXCHANGED else sa * sb
        p = product(A, B, i, j, k, nothing(TM, TN, EXCHANGED), COMPUTE, TM, TN, BLOCK, EXCHANGED, True)
        acc = acc + p * scale
    store(C, i, j, acc, EXCHANGED)


@tessera.kernel
def rows(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int],
         EXCHANGED: ct.Constant[bool] = False, ACROSS: ct.Constant[bool] = False):
    """SA has a scale for each row of A, SB for each row of B."""
    i, j = place(ACROSS)
    acc = products(A, B, i, j, K, COMPUTE, TM, TN, TK, EXCHANGED)
    sa = ct.load(SA, (i,), (TM,), padding_mode=ZERO)
    sb = ct.load(SB, (j,), (TN,), padding_mode=ZERO)
    if EXCHANGED:
        acc = acc * sa.reshape((1, TM)) * sb.reshape((TN, 1))
    else:
        acc = acc * sa.reshape((TM, 1)) * sb.reshape((1, TN))
    store(C, i, j, acc, EXCHANGED)


@tessera.kernel
def tensor(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int],
           EXCHANGED: ct.Constant[bool] = False, ACROSS: ct.Constant[bool] = False):
    """SA and SB have one scale each."""
    i, j = place(ACROSS)
    acc = products(A, B, i, j, K, COMPUTE, TM, TN, TK, EXCHANGED)
    sa = ct.load(SA, (0,), (1,)).reshape((1, 1))
    sb = ct.load(SB, (0,), (1,)).reshape((1, 1))
    store(C, i, j, acc * (sa * sb), EXCHANGED)
