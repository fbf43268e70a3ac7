"""C = A times the transpose of B, for factors in 8 bits with scales: for blocks of 128 along the contraction, for rows, or for all.

COMPUTE is the type the products are taken in: the storage type, or float16 where the tensor cores do not take that. SA and SB have one axis
more of one element each where a scale serves all columns, or all.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
BLOCK = 128


def product(A, B, i, j, k, acc, COMPUTE, TM, TN, TK, fast):
    a = ct.load(A, (i, k), (TM, TK), padding_mode=ZERO).astype(COMPUTE)
    b = ct.load(B, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO).astype(COMPUTE)
    return ct.mma(a, b, acc, use_fast_acc=fast and COMPUTE != ct.float16)


@tessera.kernel
def blocks(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    """SA has a scale for each row and block of columns of A, SB for each block of rows and columns of B: the sums of a block are scaled and
    added up in float32, so within it the tensor cores add up by themselves."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(K, BLOCK)):
        sa = ct.load(SA, (i, k), (TM, 1), padding_mode=ZERO)
        sb = ct.load(SB, (j * TN // BLOCK, k), (1, 1), padding_mode=ZERO)
        p = product(A, B, i, j, k, ct.zeros((TM, TN), ct.float32), COMPUTE, TM, TN, BLOCK, True)
        acc = acc + p * (sa * sb)
    ct.store(C, (i, j), acc.astype(C.dtype))


@tessera.kernel
def rows(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    """SA has a scale for each row of A, SB for each row of B."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(K, BLOCK)):
        acc = product(A, B, i, j, k, acc, COMPUTE, TM, TN, BLOCK, False)
    sa = ct.load(SA, (i,), (TM,), padding_mode=ZERO).reshape((TM, 1))
    sb = ct.load(SB, (j,), (TN,), padding_mode=ZERO).reshape((1, TN))
    ct.store(C, (i, j), (acc * sa * sb).astype(C.dtype))


@tessera.kernel
def tensor(A, B, SA, SB, C, K: int, COMPUTE: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int]):
    """SA and SB have one scale each."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(K, BLOCK)):
        acc = product(A, B, i, j, k, acc, COMPUTE, TM, TN, BLOCK, False)
    sa = ct.load(SA, (0,), (1,)).reshape((1, 1))
    sb = ct.load(SB, (0,), (1,)).reshape((1, 1))
    ct.store(C, (i, j), (acc * (sa * sb)).astype(C.dtype))
