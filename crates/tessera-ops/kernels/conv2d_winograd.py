"""Convolution with windows of 3 x 3 by minimal filtering, F(2, 3) and F(4, 3) in both directions (Winograd, 1980; Lavin and Gray, 2015).

M x M elements of y come from N x N of x, N = M + 2, by a transform of the product of two transforms:

    y = A ((G g G^T) * (B d B^T)) A^T       d: N x N of x; g: a window; *: element by element, and a sum over channels

| | N | products an element of y | most that a row adds up, in B, G and A |
|---|---|---|---|
| direct | | 9 | |
| F(2, 3) | 4 | 4 | 2, 3, 3 |
| F(4, 3) | 6 | 2.25 | 10, 7, 19 |

Each of the N * N places is a plane: its sum over channels is a product of matrices, tiles of x by channels of y. Planes of x and of the weight are
made in the accumulator's type and kept in that of x, those of y are kept in the accumulator's.

B and G are whole numbers here, and the fractions that G has elsewhere stand before A. So a plane has no digits below the last one of x or of the
weight, and small 16-bit floats lose nothing but their rounding. Large ones have no room above: F(4, 3) makes up to 100 times the largest x, and 49
times the largest weight, so that fp16 may overflow from x = 655 on.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO

B_4 = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
G_4 = ((1, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 1))
A_4 = ((1, 1, 1, 0), (0, 1, -1, -1))
FRACTIONS_4 = (1.0, 1 / 2, 1 / 2, 1.0)

B_6 = ((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0),
       (0, 4, 0, -5, 0, 1))
G_6 = ((1, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 1))
A_6 = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
FRACTIONS_6 = (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24, 1.0)


def weighed(factors, values):
    """The sum of values times whole numbers, from the left."""
    terms = [v if f == 1 else -v if f == -1 else f * v for f, v in zip(factors, values) if f != 0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def transformed(matrix, values):
    """matrix @ values @ matrix^T."""
    rows = [[weighed(factors, row) for factors in matrix] for row in values]
    return [[weighed(factors, [row[j] for row in rows]) for j in range(len(matrix))] for factors in matrix]


@tessera.kernel
def images(x, X, PAD: ct.Constant[int], N: ct.Constant[int], TILES_P: ct.Constant[int], TILES_Q: ct.Constant[int],
           LAST: ct.Constant[bool], ACC: ct.Constant, TT: ct.Constant[int], TC: ct.Constant[int]):
    """X[plane, tile, c]: TC channels of TT tiles, which overlap by two rows and columns. LAST: x has its channels last."""
    tile = (ct.bid(0) * TT + ct.arange(TT, dtype=ct.int32))[:, None]
    c = (ct.bid(1) * TC + ct.arange(TC, dtype=ct.int32))[None, :]
    n = tile // TILES_Q // TILES_P
    h = tile // TILES_Q % TILES_P * (N - 2) - PAD
    w = tile % TILES_Q * (N - 2) - PAD
    places = [[(n, h + i, w + j, c) if LAST else (n, c, h + i, w + j) for j in range(N)] for i in range(N)]
    pixels = [[ct.gather(x, place, padding_value=0).astype(ACC) for place in row] for row in places]
    planes = transformed(B_4 if N == 4 else B_6, pixels)
    for i in ct.static_iter(range(N)):
        for j in ct.static_iter(range(N)):
            ct.store(X, (i * N + j, ct.bid(0), ct.bid(1)), planes[i][j].astype(X.dtype).reshape((1, TT, TC)))


@tessera.kernel
def windows(weight, W, N: ct.Constant[int], LAST: ct.Constant[bool], ACC: ct.Constant, TO: ct.Constant[int],
            TC: ct.Constant[int]):
    """W[plane, o, c]: the same of windows. LAST: taps lie before channels."""
    o = (ct.bid(0) * TO + ct.arange(TO, dtype=ct.int32))[:, None]
    c = (ct.bid(1) * TC + ct.arange(TC, dtype=ct.int32))[None, :]
    places = [[(o, 3 * r + s, c) if LAST else (o, c, 3 * r + s) for s in range(3)] for r in range(3)]
    taps = [[ct.gather(weight, place, padding_value=0).astype(ACC) for place in row] for row in places]
    planes = transformed(G_4 if N == 4 else G_6, taps)
    for i in ct.static_iter(range(N)):
        for j in ct.static_iter(range(N)):
            ct.store(W, (i * N + j, ct.bid(0), ct.bid(1)), planes[i][j].astype(W.dtype).reshape((1, TO, TC)))


@tessera.kernel
def products(X, W, Y, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """Y[plane, tile, o]: a product of matrices for each plane."""
    plane = ct.bid(2)
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(X.shape[2], TK)):
        own = ct.load(X, (plane, ct.bid(0), k), (1, TM, TK), padding_mode=ZERO).reshape((TM, TK))
        taps = ct.load(W, (plane, ct.bid(1), k), (1, TN, TK), padding_mode=ZERO).reshape((TN, TK))
        acc = ct.mma(own, ct.transpose(taps), acc)
    ct.store(Y, (plane, ct.bid(0), ct.bid(1)), acc.reshape((1, TM, TN)))


@tessera.kernel
def results(Y, bias, y, N: ct.Constant[int], TILES_P: ct.Constant[int], TILES_Q: ct.Constant[int], LAST: ct.Constant[bool],
            BIAS: ct.Constant[bool], ACC: ct.Constant, TT: ct.Constant[int], TO: ct.Constant[int]):
    """y from its planes: TO channels of TT tiles. What the last tiles have beside y is not stored."""
    tile = (ct.bid(0) * TT + ct.arange(TT, dtype=ct.int32))[:, None]
    o = (ct.bid(1) * TO + ct.arange(TO, dtype=ct.int32))[None, :]
    n = tile // TILES_Q // TILES_P
    p = tile // TILES_Q % TILES_P * (N - 2)
    q = tile % TILES_Q * (N - 2)
    fractions = FRACTIONS_4 if N == 4 else FRACTIONS_6
    planes = [[ct.load(Y, (i * N + j, ct.bid(0), ct.bid(1)), (1, TT, TO), padding_mode=ZERO).reshape((TT, TO))
               * (fractions[i] * fractions[j]) for j in range(N)] for i in range(N)]
    elements = transformed(A_4 if N == 4 else A_6, planes)
    for i in ct.static_iter(range(N - 2)):
        for j in ct.static_iter(range(N - 2)):
            element = elements[i][j]
            if BIAS:
                element = element + ct.load(bias, (ct.bid(1),), (TO,), padding_mode=ZERO).astype(ACC).reshape((1, TO))
            place = (n, p + i, q + j, o) if LAST else (n, o, p + i, q + j)
            ct.scatter(y, place, element.astype(y.dtype))
