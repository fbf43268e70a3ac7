"""y = x times the transpose of weights that are kept in 4 bits, with a scale for each group of neighbours along the contraction.

W holds 8 rows of weights a line, in words of 8 codes.

    row = 8 line + r, column = 64 c + 32 b + 8 i + 2 t + p          word 64 c + 8 r + 2 t + b of the line, bits 16 p + 4 i on
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def decoded(W, j, k, TYPE, TN, TK):
    words = ct.load(W, (j, k), (TN // 8, TK), padding_mode=ZERO).reshape((TN // 8, TK // 64, 8, 4, 2, 1, 1))
    low = ct.arange(2, dtype=ct.int32)
    bytes = words >> 8 * low.reshape((2, 1))
    pairs = (bytes & (0x000f000f << 4 * low)).reshape((TN // 8, TK // 64, 8, 4, 2, 2, 2, 1))
    halves = pairs >> 16 * ct.arange(2, dtype=ct.int32)
    numbers = ct.bitcast(halves.astype(ct.int16), TYPE)
    factor = ct.bitcast((0x7f00 - 0x200 * low).astype(ct.int16), TYPE).reshape((2, 1))
    numbers = numbers * factor - ct.full((1, 1), 0.125, TYPE)
    return numbers.permute((0, 2, 1, 4, 5, 6, 3, 7)).reshape((TN, TK))


@tessera.kernel
def symmetric(x, W, S, y, K: int, GROUP: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """A block computes TN columns of TM rows, transposed: weights are the left factor, which tensor cores take from registers."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TN, TM), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        for part in ct.static_iter(range(TK // GROUP)):
            g = k * (TK // GROUP) + part
            a = ct.load(x, (i, g), (TM, GROUP), padding_mode=ZERO)
            w = decoded(W, j, g, x.dtype, TN, GROUP)
            s = ct.load(S, (g, j), (1, TN), padding_mode=ZERO)
            acc = acc + ct.mma(w, ct.transpose(a), ct.zeros((TN, TM), ct.float32)) * ct.transpose(s).astype(ct.float32)
    ct.store(y, (i, j), ct.transpose(acc * 64.0).astype(y.dtype))
