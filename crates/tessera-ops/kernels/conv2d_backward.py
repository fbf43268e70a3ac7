"""The gradient of `conv2d`: dx, dweight and dbias from x, the weight and the cotangent dy.

| result | a product of | summed over |
|---|---|---|
| dx | dy, moved against each tap, and the weight | taps, channels of y |
| dweight, for each tap | dy and x, moved by the tap | images and pixels |

Both read boxes as `conv2d` does. With a stride, a phase of dx (pixels STRIDE apart) has taps of its own, and a launch: no product with zeros is
made. Sums over pixels are shared out among blocks, whose parts are added up in one order.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


@tessera.kernel
def images(dy, weight, dx, N: ct.Constant[int], ROUNDS: ct.Constant[int], CHUNKS: ct.Constant[int], S: ct.Constant[int],
           ROW: ct.Constant[int], COLUMN: ct.Constant[int], STEP: ct.Constant[int], COLUMNS: ct.Constant[int],
           BASE_H: ct.Constant[int], BASE_W: ct.Constant[int], MOVE: ct.Constant[int], PHASE: ct.Constant[int], tiles_p: int,
           tiles_q: int, tiles_c: int, ACC: ct.Constant, TB: ct.Constant[int], TP: ct.Constant[int], TQ: ct.Constant[int],
           TN: ct.Constant[int], TK: ct.Constant[int]):
    """One phase of dx. Its taps begin with row ROW and column COLUMN of the weight, and lie STEP apart, COLUMNS in a row; the first one is at pixel
    BASE of dy for the first pixel of the phase, the next ones MOVE pixels before that."""
    at = ct.bid(0)
    i, j, b = at // tiles_q % tiles_p, at % tiles_q, at // tiles_q // tiles_p
    g, c = ct.bid(1) // tiles_c, ct.bid(1) % tiles_c
    boxes = dy.tiled_view((TB, TP, TQ, 1, TK), padding_mode=ZERO, traversal_steps=(1, 1, 1, 1, TK))
    acc = ct.zeros((TB * TP * TQ, TN), ACC)
    for k in range(ROUNDS):
        tap, o = k // CHUNKS, k % CHUNKS
        r, s = tap // COLUMNS, tap % COLUMNS
        box = boxes.load((b * TB, i * TP + BASE_H - r * MOVE, j * TQ + BASE_W - s * MOVE, g, o))
        place = (ROW + r * STEP) * S + COLUMN + s * STEP
        taps = ct.load(weight, (g, o, place, c), (1, TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
        acc = ct.mma(box.reshape((TB * TP * TQ, TK)), taps, acc)
    # Images of the next phase are another launch's.
    own = dx.slice(0, 0, PHASE * N + N).tiled_view((TB, TP, TQ, 1, TN), traversal_steps=(1, TP, TQ, 1, TN))
    own.store((PHASE * N + b * TB, i, j, g, c), acc.astype(dx.dtype).reshape((TB, TP, TQ, 1, TN)))


@tessera.kernel
def restore(X, dx, N: ct.Constant[int], STRIDE: ct.Constant[int], LAST: ct.Constant[bool], H: ct.Constant[int], C: ct.Constant[int],
            TW: ct.Constant[int], TC: ct.Constant[int]):
    """dx from its phases, in the order in which callers have it."""
    n, row = ct.bid(0) // H, ct.bid(0) % H
    chunks = ct.cdiv(C, TC)
    g, chunk = ct.bid(2) // chunks, ct.bid(2) % chunks
    columns = (ct.bid(1) * TW + ct.arange(TW, dtype=ct.int32))[:, None]
    channels = (chunk * TC + ct.arange(TC, dtype=ct.int32))[None, :]
    image = (row % STRIDE * STRIDE + columns % STRIDE) * N + n
    part = ct.gather(X, (image, row // STRIDE, columns // STRIDE, g, channels), padding_value=0)
    if LAST:
        ct.store(dx, (n, row, ct.bid(1), g, chunk), part.reshape((1, 1, TW, 1, TC)))
    else:
        ct.store(dx, (n, g, chunk, row, ct.bid(1)), ct.transpose(part).reshape((1, 1, TC, 1, TW)))


@tessera.kernel
def weights(x, dy, parts, N: ct.Constant[int], ROUNDS: ct.Constant[int], S: ct.Constant[int], STRIDE: ct.Constant[int],
            PAD: ct.Constant[int], DILATION: ct.Constant[int], PHASES_H: ct.Constant[int], PHASES_W: ct.Constant[int],
            tiles_p: int, tiles_q: int, tiles_o: int, tiles_c: int, ACC: ct.Constant, TB: ct.Constant[int], TP: ct.Constant[int],
            TQ: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int]):
    """What ROUNDS boxes of pixels add to one tap of TM x TN channels. Boxes behind the last image have zeros of dy."""
    tap = ct.bid(2)
    g, o, c = ct.bid(1) // tiles_c // tiles_o, ct.bid(1) // tiles_c % tiles_o, ct.bid(1) % tiles_c
    h, w = tap // S * DILATION - PAD, tap % S * DILATION - PAD
    phase_h = h % STRIDE if PHASES_H > 1 else 0
    phase_w = w % STRIDE if PHASES_W > 1 else 0
    first = (phase_h * PHASES_W + phase_w) * N
    boxes = x.tiled_view((TB, TP, TQ, 1, TN), padding_mode=ZERO, traversal_steps=(1, 1, 1, 1, TN))
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ROUNDS):
        at = ct.bid(0) * ROUNDS + k
        i, j, b = at // tiles_q % tiles_p, at % tiles_q, at // tiles_q // tiles_p
        left = ct.load(dy, (b, i, j, g, o), (TB, TP, TQ, 1, TM), padding_mode=ZERO).reshape((TB * TP * TQ, TM))
        right = boxes.load((first + b * TB, i * TP + h // STRIDE, j * TQ + w // STRIDE, g, c)).reshape((TB * TP * TQ, TN))
        acc = ct.mma(ct.transpose(left), right, acc)
    ct.store(parts, (ct.bid(0), g, o, tap, c), acc.reshape((1, 1, TM, 1, TN)))


@tessera.kernel
def add_parts(parts, dweight, LAST: ct.Constant[bool], OUT: ct.Constant[int], ACC: ct.Constant, TT: ct.Constant[int],
              TC: ct.Constant[int]):
    g, o = ct.bid(0) // OUT, ct.bid(0) % OUT
    total = ct.zeros((TT, TC), ACC)
    for split in range(parts.shape[0]):
        total = total + ct.load(parts, (split, g, o, ct.bid(1), ct.bid(2)), (1, 1, 1, TT, TC)).reshape((TT, TC))
    total = total.astype(dweight.dtype)
    if LAST:
        ct.store(dweight, (g, o, ct.bid(1), ct.bid(2)), total.reshape((1, 1, TT, TC)))
    else:
        ct.store(dweight, (g, o, ct.bid(2), ct.bid(1)), ct.transpose(total).reshape((1, 1, TC, TT)))


@tessera.kernel
def bias_of_part(dy, sums, ROUNDS: ct.Constant[int], P: ct.Constant[int], tiles_q: int, tiles_o: int, ACC: ct.Constant,
                 TQ: ct.Constant[int], TC: ct.Constant[int]):
    """Sums of dy over ROUNDS pieces of its lines. Those behind the last image have zeros."""
    g, o = ct.bid(1) // tiles_o, ct.bid(1) % tiles_o
    total = ct.zeros((TQ, TC), ACC)
    for k in range(ROUNDS):
        at = ct.bid(0) * ROUNDS + k
        part = ct.load(dy, (at // tiles_q // P, at // tiles_q % P, at % tiles_q, g, o), (1, 1, TQ, 1, TC), padding_mode=ZERO)
        total = total + part.astype(ACC).reshape((TQ, TC))
    ct.store(sums, (ct.bid(0), g, o), ct.sum(total, axis=0).reshape((1, 1, TC)))


@tessera.kernel
def bias_of_all(sums, dbias, tiles_o: int, ACC: ct.Constant, TC: ct.Constant[int]):
    g, o = ct.bid(0) // tiles_o, ct.bid(0) % tiles_o
    total = ct.zeros((1, TC), ACC)
    for part in range(sums.shape[0]):
        total = total + ct.load(sums, (part, g, o), (1, 1, TC)).reshape((1, TC))
    ct.store(dbias, (g, o), total.astype(dbias.dtype))
