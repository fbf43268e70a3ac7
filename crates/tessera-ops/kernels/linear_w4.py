"""y = x times the transpose of weights that are kept in 4 bits, with a scale for each group of neighbours along the contraction.

A weight is (code - zero) * scale. The difference is rounded to x's type. For few rows of x the scale multiplies a group's sums, in float32;
for many it multiplies the weight, rounded to x's type, and tensor cores need not stop at a group's end. Without zero points the zero is 8.

W holds 8 rows of weights a line, in words of 8 codes. A word has what one thread of a tensor core's fragment needs, and its halves have
neighbours, so that a mask makes two numbers at once.

    row = 8 line + r, column = 64 c + 32 b + 8 i + 2 t + p          word 64 c + 8 r + 2 t + b of the line, bits 16 p + 4 i on

Codes are read where they stand in the lower byte of a half. In bfloat16, which has 7 bits of mantissa, a byte's bits alone are a number below
twice the least normal one, up to where numbers count evenly: a code is 2^-133 of itself, or 2^-129 where it is the upper one. One product brings
both to 2^-6, since no power of two reaches further. In float16 they go under the bits of 1024, and count from there in steps of 1 or 16.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def place(FEW):
    """Neighbours have the same rows of x where these are few, so that a cluster loads them once, and the same weights else."""
    return (ct.bid(1), ct.bid(0)) if FEW else (ct.bid(0), ct.bid(1))


def unit(TYPE):
    """What a code of 1 is as a number."""
    return 2.0 ** -6 if TYPE == ct.bfloat16 else 1.0


def decoded(W, j, k, TYPE, zero, TN, TK):
    """Codes of TN rows and TK columns less a zero for all of them, or for each row and chunk of 64 columns: in the order of words."""
    shape = (TN // 8, TK // 64, 8, 4, 2, 2, 2)
    words = ct.load(W, (j, k), (TN // 8, TK), padding_mode=ZERO).reshape((TN // 8, TK // 64, 8, 4, 2, 1, 1))
    both = ct.arange(2, dtype=ct.int32)
    pairs = (words >> 8 * both.reshape((2, 1))) & (0x000f000f << 4 * both)
    if TYPE == ct.float16:
        pairs = pairs | 0x64006400
    halves = pairs.reshape(shape + (1,)) >> 16 * both
    numbers = ct.bitcast(halves.astype(ct.int16), TYPE)
    # 2^127 and 2^123, or 1 and 2^-4.
    step = 0x7f00 - 0x0200 * both if TYPE == ct.bfloat16 else 0x3c00 - 0x1000 * both
    step = ct.bitcast(step.astype(ct.int16), TYPE).reshape((2, 1))
    if TYPE == ct.bfloat16:
        return numbers * step - zero
    if isinstance(zero, float):
        return numbers * step - (1024.0 * step + zero)
    return numbers * step - 1024.0 * step - zero


def in_order(numbers, TN, TK):
    """The same by rows and columns."""
    return numbers.permute((0, 2, 1, 4, 5, 6, 3, 7)).reshape((TN, TK))


def of_groups(S, j, k, TN, TK, GROUP):
    """What S has for each group, for each row and chunk of 64 columns."""
    s = ct.load(S, (k, j), (TK // GROUP, TN), padding_mode=ZERO)
    s = ct.transpose(s).reshape((TN // 8, 8, TK // GROUP, 1)).permute((0, 2, 3, 1))
    s = ct.broadcast_to(s, (TN // 8, TK // GROUP, GROUP // 64, 8))
    return s.reshape((TN // 8, TK // 64, 8, 1, 1, 1, 1, 1))


def product(x, W, S, zero, i, j, k, acc, GROUP, TM, TN, TK):
    """Adds a round's products to the transposed result: weights are the left factor, which tensor cores take from registers."""
    a = ct.transpose(ct.load(x, (i, k), (TM, TK), padding_mode=ZERO))
    w = decoded(W, j, k, x.dtype, zero, TN, TK)
    return ct.mma(in_order(w * (of_groups(S, j, k, TN, TK, GROUP) / unit(x.dtype)), TN, TK), a, acc)


def product_of_group(x, W, S, zero, i, j, k, acc, TM, TN, GROUP):
    """The same for one group, whose sums are scaled."""
    a = ct.transpose(ct.load(x, (i, k), (TM, GROUP), padding_mode=ZERO))
    w = in_order(decoded(W, j, k, x.dtype, zero, TN, GROUP), TN, GROUP)
    s = ct.transpose(ct.load(S, (k, j), (1, TN), padding_mode=ZERO)).astype(ct.float32)
    return acc + ct.mma(w, a, ct.zeros((TN, TM), ct.float32)) * s


@tessera.kernel
def symmetric(x, W, S, y, K: int, GROUP: ct.Constant[int], FEW: ct.Constant[bool], TM: ct.Constant[int], TN: ct.Constant[int],
              TK: ct.Constant[int]):
    """A block computes TN columns of TM rows."""
    i, j = place(FEW)
    acc = ct.zeros((TN, TM), ct.float32)
    zero = 8.0 * unit(x.dtype)
    for k in range(ct.cdiv(K, TK)):
        if FEW:
            for group in ct.static_iter(range(TK // GROUP)):
                acc = product_of_group(x, W, S, zero, i, j, k * (TK // GROUP) + group, acc, TM, TN, GROUP)
        else:
            acc = product(x, W, S, zero, i, j, k, acc, GROUP, TM, TN, TK)
    if FEW:
        acc = acc * (1.0 / unit(x.dtype))
    ct.store(y, (i, j), ct.transpose(acc).astype(y.dtype))


@tessera.kernel
def zeros(x, W, S, Z, y, K: int, GROUP: ct.Constant[int], FEW: ct.Constant[bool], TM: ct.Constant[int], TN: ct.Constant[int],
          TK: ct.Constant[int]):
    """The same with a zero point for each group."""
    i, j = place(FEW)
    acc = ct.zeros((TN, TM), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        if FEW:
            for group in ct.static_iter(range(TK // GROUP)):
                g = k * (TK // GROUP) + group
                zero = of_groups(Z, j, g, TN, GROUP, GROUP) * unit(x.dtype)
                acc = product_of_group(x, W, S, zero, i, j, g, acc, TM, TN, GROUP)
        else:
            zero = of_groups(Z, j, k, TN, TK, GROUP) * unit(x.dtype)
            acc = product(x, W, S, zero, i, j, k, acc, GROUP, TM, TN, TK)
    if FEW:
        acc = acc * (1.0 / unit(x.dtype))
    ct.store(y, (i, j), ct.transpose(acc).astype(y.dtype))
