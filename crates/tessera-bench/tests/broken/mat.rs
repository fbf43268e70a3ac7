//! Broken convolutions, and broken kernels of ladders.

use super::{Case, edit, one_block_short, relaunch, set};
use tessera_ops::Argument;

/// Two groups, tiles that end beside the images.
const GROUPED: &[(&str, u64)] = &[("n", 2), ("c", 32), ("h", 9), ("w", 11), ("o", 24), ("r", 3), ("s", 3), ("groups", 2)];
const BY_CHANNEL: &[(&str, u64)] = &[("n", 2), ("c", 40), ("h", 9), ("w", 11), ("o", 40), ("r", 3), ("s", 3), ("groups", 40)];

const BOX: &str = "(image, row, column, g, c)";
const TAPS: &str = "(g, o, tap, c), (1, TN, 1, TK)";

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "conv2d",
        extents: GROUPED,
        variant: "nhwc bias padding=1",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("windows are not moved down", &[(BOX, "(image, i * TP, column, g, c)")]),
            edit("groups read the first group's channels", &[(BOX, "(image, row, column, 0, c)")]),
            edit("taps are turned round", &[(TAPS, "(g, o, 8 - tap, c), (1, TN, 1, TK)")]),
            edit(
                "the bias is left out",
                &[(
                    "    if BIAS:\n        acc = acc + ct.load(bias, (g, o)",
                    "    if False:\n        acc = acc + ct.load(bias, (g, o)",
                )],
            ),
            relaunch("a padding of none", |plan| set(plan, "PAD", Argument::Int(0))),
            relaunch("the last box is not launched", one_block_short),
            relaunch("the last tap is left out", |plan| set(plan, "ROUNDS", Argument::Int(8))),
        ],
    },
    Case {
        operator: "conv2d",
        extents: GROUPED,
        variant: "nchw stride=2 padding=1",
        policy: "bf16->bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "phases of rows and columns are exchanged",
                &[("(phase_h * PHASES_W + phase_w) * N + b * TB", "(phase_w * PHASES_W + phase_h) * N + b * TB")],
            ),
            edit("every phase is the first", &[("row = i * STRIDE + phase // PHASES_W", "row = i * STRIDE")]),
            edit(
                "channels of the next group follow",
                &[("own = chunk * TC + ct.arange(TC, dtype=ct.int32)", "own = 1 + chunk * TC + ct.arange(TC, dtype=ct.int32)")],
            ),
            edit(
                "taps and channels of the weight are exchanged",
                &[("else (ct.bid(0), channels, taps)", "else (ct.bid(0), taps, channels)")],
            ),
            edit("y is stored with rows and columns exchanged", &[("(0, 3, 1, 2)", "(0, 3, 2, 1)")]),
            edit(
                "sums are kept in the storage type",
                &[("acc = ct.mma(box", "acc = acc.astype(y.dtype).astype(ACC)\n        acc = ct.mma(box")],
            ),
        ],
    },
    Case {
        operator: "conv2d",
        extents: BY_CHANNEL,
        variant: "nhwc padding=1",
        policy: "fp16->fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("windows are not moved across", &[("columns * STRIDE + w, channels", "columns * STRIDE, channels")]),
            edit("all taps are the first", &[("ct.gather(weight, (channels, tap)", "ct.gather(weight, (channels, 0)")]),
        ],
    },
    Case {
        operator: "conv2d",
        extents: BY_CHANNEL,
        variant: "nchw bias stride=2 padding=1",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a stride of rows alone", &[("columns * STRIDE + w), padding", "columns + w), padding")]),
            edit("the bias of the first channel", &[("ct.load(bias, (c,), (1,))", "ct.load(bias, (0,), (1,))")]),
        ],
    },
    Case {
        operator: "conv2d_backward",
        extents: GROUPED,
        variant: "nhwc bias stride=2 padding=1",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("taps move with the windows", &[("BASE_H - r * MOVE", "BASE_H + r * MOVE")]),
            edit("every phase has the first column of taps", &[("COLUMN + s * STEP", "s * STEP")]),
            edit("phases of columns are lost", &[("row % STRIDE * STRIDE + columns % STRIDE", "row % STRIDE * STRIDE")]),
            edit("x is not moved by the tap", &[("i * TP + h // STRIDE, j * TQ", "i * TP, j * TQ")]),
            edit("parts but the first are lost", &[("first = (phase_h * PHASES_W + phase_w) * N", "first = 0")]),
            edit("the bias of one part", &[("range(sums.shape[0])", "range(1)")]),
        ],
    },
    Case {
        operator: "conv2d_backward",
        extents: GROUPED,
        variant: "nchw padding=1 dilation=2",
        policy: "bf16->bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("taps lie side by side", &[("BASE_W - s * MOVE", "BASE_W - s")]),
            edit(
                "the weight's gradient lies turned",
                &[("ct.transpose(total).reshape((1, 1, TC, TT))", "total.reshape((1, 1, TC, TT))")],
            ),
        ],
    },
];

/// Kernels of rungs, by the rung's name.
pub(crate) const RUNGS: &[(&str, Case)] = &[
    (
        "naive",
        Case {
            operator: "gemm",
            extents: RAGGED,
            variant: "nt",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("the last product is left out", &[("for k in range(K):", "for k in range(K - 1):")]),
                edit("B is not transposed", &[("element(B, n, k, j, TRANSPOSE_B)", "element(B, n, j, k, TRANSPOSE_B)")]),
            ],
        },
    ),
    (
        "shared_tiles",
        Case {
            operator: "gemm",
            extents: RAGGED,
            variant: "tn",
            policy: "bf16",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("steps of the two factors differ", &[("right[buffer, k, column", "right[buffer, DEPTH - 1 - k, column")]),
                edit("what lies outside is not 0", &[("value = tile.cast(0.0, ACC)", "value = tile.cast(1.0, ACC)")]),
            ],
        },
    ),
    (
        "double_buffer",
        Case {
            operator: "gemm",
            extents: RAGGED,
            variant: "nn",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit(
                    "the wrong buffer is read",
                    &[(
                        "            add_round(left, right, sums, buffer, ACC)",
                        "            add_round(left, right, sums, 1 - buffer, ACC)",
                    )],
                ),
                edit("one round too few", &[("for k in range(-DEPTH, K, DEPTH):", "for k in range(-DEPTH, K - DEPTH, DEPTH):")]),
            ],
        },
    ),
    (
        "tensor_cores",
        Case {
            operator: "gemm",
            extents: RAGGED,
            variant: "nn",
            policy: "bf16",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit(
                    "a product of the wrong fragments",
                    &[("tile.fragment_mma(c_10, a_1, b_0)", "tile.fragment_mma(c_10, a_0, b_0)")],
                ),
                edit("half of the steps", &[("for step in range(0, STEPS, 16):", "for step in range(0, STEPS, 32):")]),
            ],
        },
    ),
    (
        "padded",
        Case {
            operator: "permute",
            extents: &[("c", 50), ("d", 70)],
            variant: "10",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("tiles are not turned", &[("own[tile.lane_id(), line]", "own[line, tile.lane_id()]")]),
                relaunch("the last column of tiles is not launched", one_block_short),
            ],
        },
    ),
    (
        "naive",
        Case {
            operator: "permute",
            extents: &[("c", 50), ("d", 70)],
            variant: "10",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit(
                    "a fourth of the lines is left out",
                    &[("for step in range(0, SIDE, 8):\n        i =", "for step in range(8, SIDE, 8):\n        i =")],
                ),
                relaunch("the last column of tiles is not launched", one_block_short),
            ],
        },
    ),
    (
        "shared_tree",
        Case {
            operator: "vector",
            extents: &[("n", 10_007)],
            variant: "reduce_sum",
            policy: "fp32",
            data: |plan| super::normal(plan, 1.0, 0.5),
            text: &[],
            mutants: &[
                edit(
                    "a step of the tree is left out",
                    &[(
                        "for step in range(8):\n        half = THREADS >> step + 1\n        tile.barrier()\n        if tile.thread_id() < half:\n            own[tile.thread_id()] = own[tile.thread_id()] + own",
                        "for step in range(7):\n        half = THREADS >> step + 1\n        tile.barrier()\n        if tile.thread_id() < half:\n            own[tile.thread_id()] = own[tile.thread_id()] + own",
                    )],
                ),
                edit("elements are counted twice", &[("THREADS * tile.num_blocks()", "THREADS * tile.num_blocks() // 2")]),
            ],
        },
    ),
    (
        "warp_shuffles",
        Case {
            operator: "softmax",
            extents: &[("batch", 1), ("heads", 1), ("queries", 5), ("keys", 1000)],
            variant: "",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit(
                    "a warp is left out of the sum",
                    &[("for w in range(8):\n        total += totals[w]", "for w in range(7):\n        total += totals[w]")],
                ),
                edit(
                    "rows are not divided",
                    &[("tile.exp(tile.cast(x[row, j], ACC) - top) / total", "tile.exp(tile.cast(x[row, j], ACC) - top)")],
                ),
            ],
        },
    ),
    (
        "vectors",
        Case {
            operator: "bandwidth",
            extents: &[("bytes", 16_396)],
            variant: "copy sequential",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit(
                    "what no vector has is left",
                    &[("for i in range(first, a.shape[0]):", "for i in range(first + 1, a.shape[0]):")],
                ),
                relaunch("the last block is not launched", one_block_short),
            ],
        },
    ),
    (
        "im2col",
        Case {
            operator: "conv2d",
            extents: &[("n", 2), ("c", 20), ("h", 9), ("w", 11), ("o", 24), ("r", 3), ("s", 3), ("groups", 1)],
            variant: "nhwc padding=1",
            policy: "bf16->bf16",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("channels follow out of place", &[("ct.bid(1) * C + own, windows", "ct.bid(1) * TC + own, windows")]),
                edit("the last round is dropped", &[("range(ct.cdiv(K, TK))", "range(K // TK)")]),
            ],
        },
    ),
    (
        "naive",
        Case {
            operator: "conv2d",
            extents: GROUPED,
            variant: "nchw bias padding=1",
            policy: "fp32",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("groups read the first group's channels", &[("first = o // OUT * WITHIN", "first = 0")]),
                edit("the bias of a line", &[("total + tile.cast(bias[b], ACC)", "total + tile.cast(bias[c], ACC)")]),
            ],
        },
    ),
    (
        "winograd_2",
        Case {
            operator: "conv2d",
            extents: FILTERED,
            variant: "nchw bias padding=1",
            policy: "fp16->fp16",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("a sign of B", &[("(0, 1, 0, -1))", "(0, 1, 0, 1))")]),
                edit("a fraction of G", &[("(1.0, 1 / 2, 1 / 2, 1.0)", "(1.0, 1 / 2, 1.0, 1.0)")]),
                edit("windows are turned", &[("(o, c, 3 * r + s)", "(o, c, 3 * s + r)")]),
                edit("tiles do not overlap", &[("% TILES_P * (N - 2) - PAD", "% TILES_P * N - PAD")]),
                edit("the bias of the first channels", &[("ct.load(bias, (ct.bid(1),)", "ct.load(bias, (0,)")]),
                relaunch("a padding of none", |plan| set(plan, "PAD", Argument::Int(0))),
                relaunch("the last block is not launched", one_block_short),
            ],
        },
    ),
    (
        "winograd_4",
        Case {
            operator: "conv2d",
            extents: FILTERED,
            variant: "nhwc padding=1",
            policy: "bf16->bf16",
            data: |plan| plan,
            text: &[],
            mutants: &[
                edit("a factor of A", &[("(0, 1, -1, 8, -8, 1))", "(0, 1, -1, 4, -8, 1))")]),
                edit("rows and columns of planes are exchanged", &[("W, (i * N + j, ", "W, (j * N + i, ")]),
                edit("every plane is the first", &[("own = ct.load(X, (plane, ", "own = ct.load(X, (0, ")]),
                edit("the last round is dropped", &[("range(ct.cdiv(X.shape[2], TK))", "range(X.shape[2] // TK)")]),
                edit("images follow out of place", &[("n = tile // TILES_Q // TILES_P", "n = tile // TILES_Q // (TILES_P + 1)")]),
            ],
        },
    ),
];

/// Tiles that end beside the images, and channels beside those of a block.
const FILTERED: &[(&str, u64)] = &[("n", 2), ("c", 20), ("h", 9), ("w", 11), ("o", 70), ("r", 3), ("s", 3), ("groups", 1)];

/// Ragged in every direction.
const RAGGED: &[(&str, u64)] = &[("batch", 1), ("m", 70), ("n", 65), ("k", 50)];
