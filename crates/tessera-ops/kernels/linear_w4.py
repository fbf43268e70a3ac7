"""y = x times the transpose of weights that are kept in 4 bits, with a scale for each group of neighbours along the contraction.

A weight is (code - zero) * scale, taken in x's type: the difference is rounded, then the product. Without zero points the zero is 8.

W holds 8 rows of weights a line, in words of 8 codes. A word has what one thread of a tensor core's fragment needs, and its halves have
neighbours, so that four bits of both become two numbers at once: put under the bits of a power of two, they count up from it.

    row = 8 line + r, column = 64 c + 32 b + 8 i + 2 t + p          word 64 c + 8 r + 2 t + b of the line, bits 16 p + 4 i on
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def decoded(W, j, k, TYPE, TN, TK):
    """The codes of TN rows and TK columns as numbers from `least` on."""
    bits, least = (0x43004300, 128.0) if TYPE == ct.bfloat16 else (0x64006400, 1024.0)
    words = ct.load(W, (j, k), (TN // 8, TK), padding_mode=ZERO).reshape((TN // 8, TK // 64, 8, 4, 2, 1))
    pairs = (words >> 4 * ct.arange(4, dtype=ct.int32)) & 0x000f000f | bits
    halves = pairs.reshape((TN // 8, TK // 64, 8, 4, 2, 4, 1)) >> 16 * ct.arange(2, dtype=ct.int32)
    numbers = ct.bitcast(halves.astype(ct.int16), TYPE)
    return numbers.permute((0, 2, 1, 4, 5, 3, 6)).reshape((TN, TK)), least


def of_groups(S, j, k, TN, TK, GROUP):
    """What S has for each group, for each of its members."""
    s = ct.load(S, (k, j), (TK // GROUP, TN), padding_mode=ZERO)
    s = ct.transpose(s).reshape((TN, TK // GROUP, 1))
    return ct.broadcast_to(s, (TN, TK // GROUP, GROUP)).reshape((TN, TK))


@tessera.kernel
def symmetric(x, W, S, y, K: int, GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """A block computes TN columns of TM rows, transposed: weights are the left factor, which tensor cores take from registers."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TN, TM), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(x, (i, k), (TM, TK), padding_mode=ZERO)
        codes, least = decoded(W, j, k, x.dtype, TN, TK)
        w = (codes - ct.full((TN, TK), least + 8.0, x.dtype)) * of_groups(S, j, k, TN, TK, GROUP)
        acc = ct.mma(w, ct.transpose(a), acc)
    ct.store(y, (i, j), ct.transpose(acc).astype(y.dtype))


@tessera.kernel
def zeros(x, W, S, Z, y, K: int, GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """The same with a zero point for each group."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TN, TM), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(x, (i, k), (TM, TK), padding_mode=ZERO)
        codes, least = decoded(W, j, k, x.dtype, TN, TK)
        codes = codes - ct.full((TN, TK), least, x.dtype)
        w = (codes - of_groups(Z, j, k, TN, TK, GROUP)) * of_groups(S, j, k, TN, TK, GROUP)
        acc = ct.mma(w, ct.transpose(a), acc)
    ct.store(y, (i, j), ct.transpose(acc).astype(y.dtype))
