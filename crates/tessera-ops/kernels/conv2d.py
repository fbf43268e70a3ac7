"""Two-dimensional convolution as a product: y[n, p, q, o] = sum over r, s, c of x[n, p + r, q + s, c] * weight[o, r, s, c], and bias[o].

A block computes TN channels of a box of TB x TP x TQ pixels, TM in all. A round of its loop multiplies a box of as many pixels of x, moved by a
tap, and TK of its channels: nothing is copied that a product needs more than once, and pixels beside x are zeros that the load pads with
(implicit GEMM; Chetlur et al., 2014, "cuDNN"). Channels lie last, so that a line of a box is one of memory.

What lies otherwise is arranged first. With a stride, pixels that lie STRIDE apart become neighbours: X has an image for each phase of rows and
columns, and the box of a tap is a box of its phase.

    stride 2, 5 columns   0 1 2 3 4   ->   phase 0: 0 2 4    phase 1: 1 3 0      tap s reads column 2 q + s - PAD: phase (s - PAD) % 2

Of few channels, which are no whole vectors, the taps of a window's row lie beside each other as channels do, so that its rows alone are left to go
through: X[.., q, s * C + c] is what column q of y needs.

Where a stride divides rows and columns of x with channels last, of one group and whole rounds, x lies so already (PARTED): phases of rows are an
axis between rows, those of columns lie beside each other as channels do, x[n, row, phase of rows, column, phase of columns and channel].
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


@tessera.kernel
def arrange(x, X, N: ct.Constant[int], STRIDE: ct.Constant[int], PHASES_H: ct.Constant[int], PHASES_W: ct.Constant[int],
            FIRST: ct.Constant[int], C: ct.Constant[int], LAST: ct.Constant[bool], TW: ct.Constant[int], TC: ct.Constant[int]):
    """X[phase * N + n, i, j, g, c] is x[n, g * C + c] at row STRIDE * i and column STRIDE * j of the phase. LAST: x has its channels last. FIRST: the
    phase of a window of one pixel, which has no other."""
    rows = X.shape[1]
    image, i = ct.bid(0) // rows, ct.bid(0) % rows
    phase, n = image // N, image % N
    chunks = ct.cdiv(X.shape[4], TC)
    g, chunk = ct.bid(2) // chunks, ct.bid(2) % chunks
    row = i * STRIDE + phase // PHASES_W + (FIRST if PHASES_H == 1 else 0)
    columns = (ct.bid(1) * TW + ct.arange(TW, dtype=ct.int32)) * STRIDE + phase % PHASES_W + (FIRST if PHASES_W == 1 else 0)
    own = chunk * TC + ct.arange(TC, dtype=ct.int32)
    # A group has no channels behind its own.
    channels = ct.where(own < C, g * C + own, -1)
    if LAST:
        part = ct.gather(x, (n, row, columns[:, None], channels[None, :]), padding_value=0)
    else:
        part = ct.transpose(ct.gather(x, (n, channels[:, None], row, columns[None, :]), padding_value=0))
    ct.store(X, (image, i, ct.bid(1), g, chunk), part.reshape((1, 1, TW, 1, TC)))


@tessera.kernel
def arrange_lines(x, X, N: ct.Constant[int], STRIDE: ct.Constant[int], PHASES: ct.Constant[int], FIRST: ct.Constant[int], PAD: ct.Constant[int],
                  DILATION: ct.Constant[int], S: ct.Constant[int], C: ct.Constant[int], TW: ct.Constant[int], TC: ct.Constant[int]):
    """X[phase * N + n, i, q, 0, s * C + c] is x[n, row, q * STRIDE + s * DILATION - PAD, c] for row i of the phase; x has its channels last."""
    rows = X.shape[1]
    image, i = ct.bid(0) // rows, ct.bid(0) % rows
    row = i * STRIDE + (image // N if PHASES > 1 else FIRST)
    own = ct.bid(2) * TC + ct.arange(TC, dtype=ct.int32)
    columns = (ct.bid(1) * TW + ct.arange(TW, dtype=ct.int32))[:, None] * STRIDE + (own // C * DILATION - PAD)[None, :]
    # Behind the last tap there are none.
    channels = ct.where(own < S * C, own % C, -1)
    part = ct.gather(x, (image % N, row, columns, channels[None, :]), padding_value=0)
    ct.store(X, (image, i, ct.bid(1), 0, ct.bid(2)), part.reshape((1, 1, TW, 1, TC)))


@tessera.kernel
def arrange_weight(weight, W, LAST: ct.Constant[bool], TT: ct.Constant[int], TC: ct.Constant[int]):
    """W[g, o, tap, c]: taps before channels, and lines of whole 16 bytes."""
    g, o = ct.bid(0) // W.shape[1], ct.bid(0) % W.shape[1]
    taps = (ct.bid(1) * TT + ct.arange(TT, dtype=ct.int32))[:, None]
    channels = (ct.bid(2) * TC + ct.arange(TC, dtype=ct.int32))[None, :]
    at = (ct.bid(0), taps, channels) if LAST else (ct.bid(0), channels, taps)
    ct.store(W, (g, o, ct.bid(1), ct.bid(2)), ct.gather(weight, at, padding_value=0).reshape((1, 1, TT, TC)))


@tessera.kernel
def conv2d(x, weight, bias, y, N: ct.Constant[int], ROUNDS: ct.Constant[int], CHUNKS: ct.Constant[int], S: ct.Constant[int],
           STRIDE: ct.Constant[int], PAD: ct.Constant[int], STRIDE_W: ct.Constant[int], PAD_W: ct.Constant[int],
           DILATION: ct.Constant[int], PHASES_H: ct.Constant[int], PHASES_W: ct.Constant[int], FIRST: ct.Constant[int],
           PARTED: ct.Constant[bool], tiles_p: int, tiles_q: int, tiles_o: int, ACC: ct.Constant,
           BIAS: ct.Constant[bool], LAST: ct.Constant[bool], TB: ct.Constant[int], TP: ct.Constant[int], TQ: ct.Constant[int],
           TN: ct.Constant[int], TK: ct.Constant[int]):
    at = ct.bid(0)
    i, j, b = at // tiles_q % tiles_p, at % tiles_q, at // tiles_q // tiles_p
    g, o = ct.bid(1) // tiles_o, ct.bid(1) % tiles_o
    if PARTED:
        boxes = x.tiled_view((TB, TP, 1, TQ, TK), padding_mode=ZERO, traversal_steps=(1, 1, 1, 1, TK))
    else:
        boxes = x.tiled_view((TB, TP, TQ, 1, TK), padding_mode=ZERO, traversal_steps=(1, 1, 1, 1, TK))
    acc = ct.zeros((TB * TP * TQ, TN), ACC)
    for k in range(ROUNDS):
        tap, c = k // CHUNKS, k % CHUNKS
        h, w = tap // S * DILATION - PAD, tap % S * DILATION - PAD_W
        row, column = i * TP + h // STRIDE, j * TQ + w // STRIDE_W
        if PARTED:
            box = boxes.load((b * TB, row, h % STRIDE, column, w % STRIDE_W * CHUNKS + c))
        else:
            # The phase, of those that X has.
            phase_h = h % STRIDE if PHASES_H > 1 else 0
            phase_w = w % STRIDE_W if PHASES_W > 1 else 0
            image = (phase_h * PHASES_W + phase_w) * N + b * TB
            box = boxes.load((image, row, column, g, c))
        taps = ct.load(weight, (g, o, tap, c), (1, TN, 1, TK), padding_mode=ZERO).reshape((TN, TK))
        acc = ct.mma(box.reshape((TB * TP * TQ, TK)), ct.transpose(taps), acc)
    if BIAS:
        acc = acc + ct.load(bias, (g, o), (1, TN), padding_mode=ZERO).astype(ACC)
    out = acc.astype(y.dtype).reshape((TB, TP, TQ, TN))
    if LAST:
        ct.store(y, (b, i, j, g, o), out.reshape((TB, TP, TQ, 1, TN)))
    else:
        ct.store(y, (b, g, o, i, j), ct.permute(out, (0, 3, 1, 2)).reshape((TB, 1, TN, TP, TQ)))


@tessera.kernel
def depthwise_last(x, weight, bias, y, R: ct.Constant[int], S: ct.Constant[int], STRIDE: ct.Constant[int], PAD: ct.Constant[int],
                   DILATION: ct.Constant[int], ACC: ct.Constant, BIAS: ct.Constant[bool], TQ: ct.Constant[int],
                   TC: ct.Constant[int]):
    """A window of each channel by itself, channels last: a block makes TC channels of TQ pixels of a row. What its windows share it finds in the
    cache."""
    p = ct.bid(0) % y.shape[1]
    n = ct.bid(0) // y.shape[1]
    columns = (ct.bid(1) * TQ + ct.arange(TQ, dtype=ct.int32))[:, None]
    channels = (ct.bid(2) * TC + ct.arange(TC, dtype=ct.int32))[None, :]
    acc = ct.zeros((TQ, TC), ACC)
    for tap in ct.static_iter(range(R * S)):
        h, w = tap // S * DILATION - PAD, tap % S * DILATION - PAD
        v = ct.gather(x, (n, p * STRIDE + h, columns * STRIDE + w, channels), padding_value=0).astype(ACC)
        acc = acc + v * ct.gather(weight, (channels, tap), padding_value=0).astype(ACC)
    if BIAS:
        acc = acc + ct.load(bias, (ct.bid(2),), (TC,), padding_mode=ZERO).astype(ACC).reshape((1, TC))
    ct.store(y, (n, p, ct.bid(1), ct.bid(2)), acc.astype(y.dtype).reshape((1, 1, TQ, TC)))


@tessera.kernel
def depthwise_first(x, weight, bias, y, R: ct.Constant[int], S: ct.Constant[int], STRIDE: ct.Constant[int], PAD: ct.Constant[int],
                    DILATION: ct.Constant[int], ACC: ct.Constant, BIAS: ct.Constant[bool], TP: ct.Constant[int],
                    TQ: ct.Constant[int]):
    """The same, channels first: a block makes TP x TQ pixels of one channel."""
    c = ct.bid(0) % y.shape[1]
    n = ct.bid(0) // y.shape[1]
    rows = (ct.bid(1) * TP + ct.arange(TP, dtype=ct.int32))[:, None]
    columns = (ct.bid(2) * TQ + ct.arange(TQ, dtype=ct.int32))[None, :]
    acc = ct.zeros((TP, TQ), ACC)
    for tap in ct.static_iter(range(R * S)):
        h, w = tap // S * DILATION - PAD, tap % S * DILATION - PAD
        v = ct.gather(x, (n, c, rows * STRIDE + h, columns * STRIDE + w), padding_value=0).astype(ACC)
        acc = acc + v * ct.load(weight, (c, tap), (1, 1)).astype(ACC)
    if BIAS:
        acc = acc + ct.load(bias, (c,), (1,)).astype(ACC).reshape((1, 1))
    ct.store(y, (n, c, ct.bid(1), ct.bid(2)), acc.astype(y.dtype).reshape((1, 1, TP, TQ)))
