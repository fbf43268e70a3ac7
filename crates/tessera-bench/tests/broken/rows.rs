//! Broken layer norms, RMS norms and softmaxes.

use tessera_ops::Argument;
use tessera_types::DType;

use super::{Case, LOW, alike, edit, in_pieces, normal, one_block_short, relaunch, set};

/// Three blocks of rows, the last one ragged.
const NORM: &[(&str, u64)] = &[("batch", 3), ("sequence", 11), ("hidden", 1000)];
/// Short rows: what the last element does shows.
const SHORT: &[(&str, u64)] = &[("batch", 3), ("sequence", 11), ("hidden", 31)];
/// More keys than queries, two heads.
const SCORES: &[(&str, u64)] = &[("batch", 1), ("heads", 2), ("queries", 100), ("keys", 130)];

/// Rows of nine pieces, the last one ragged.
const LONG_SCORES: &[(&str, u64)] = &[("batch", 1), ("heads", 1), ("queries", 3), ("keys", 33_000)];
/// Rows of nine pieces, the last one of one column, which one of three rows sees.
const LONG_CAUSAL: &[(&str, u64)] = &[("batch", 1), ("heads", 1), ("queries", 3), ("keys", 32_769)];
/// Rows that are no whole vectors, four of which a block takes.
const ODD: &[(&str, u64)] = &[("batch", 1), ("sequence", 27), ("hidden", 1001)];
const LONG_NORM: &[(&str, u64)] = &[("batch", 1), ("sequence", 3), ("hidden", 33_000)];

const VARIANCE: &str = "var = ct.sum(d * d, axis=1, keepdims=True) / N";
const MAXIMUM: &str = "exp(v, ct.max(v, axis=1, keepdims=True),";

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "layer_norm",
        extents: NORM,
        variant: "",
        policy: "fp32",
        data: |plan| normal(plan, 1e4, 1.0),
        text: &[],
        mutants: &[
            edit("the variance cancels", &[(VARIANCE, "var = ct.sum(v * v, axis=1, keepdims=True) / N - mean * mean")]),
            edit("the mean is rounded to bfloat16", &[("d = v - mean", "d = v - mean.astype(ct.bfloat16).astype(ACC)")]),
        ],
    },
    Case {
        operator: "layer_norm",
        extents: SHORT,
        variant: "",
        policy: "fp32",
        data: |plan| normal(plan, 0.0, 1e-3),
        text: &[],
        mutants: &[
            edit("eps is missing", &[("ct.rsqrt(var + eps)", "ct.rsqrt(var)")]),
            edit("eps is added to the root", &[("ct.rsqrt(var + eps)", "1.0 / (ct.sqrt(var) + eps)")]),
            edit("the variance is the unbiased one", &[(VARIANCE, "var = ct.sum(d * d, axis=1, keepdims=True) / (N - 1)")]),
            edit("the bias is dropped", &[("d * scale * w + b", "d * scale * w")]),
            edit("the mean runs over the wrong axis", &[("ct.sum(v, axis=1,", "ct.sum(v, axis=0,")]),
            edit("rows are swapped", &[("ct.store(y, (i, 0)", "ct.store(y, (ct.num_blocks(0) - 1 - i, 0)")]),
            relaunch("the last rows are not written", one_block_short),
        ],
    },
    Case {
        operator: "layer_norm",
        extents: NORM,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[relaunch("statistics are taken in bfloat16", |plan| set(plan, "ACC", Argument::Type(DType::BF16)))],
    },
    Case {
        operator: "rms_norm",
        extents: NORM,
        variant: "",
        policy: "fp32",
        data: |plan| normal(plan, 0.0, 1e-3),
        text: &[],
        mutants: &[
            edit("eps is missing", &[("/ N + eps", "/ N")]),
            edit("squares are added, not averaged", &[("/ N + eps", "+ eps")]),
            edit("the scale is applied twice", &[("v * scale * w", "v * scale * scale * w")]),
            edit("the weight is dropped", &[("v * scale * w", "v * scale")]),
            edit(
                "the first column is not counted",
                &[("ct.sum(v * v,", "ct.sum(ct.where(ct.arange(N, dtype=ct.int32)[None, :] > 0, v * v, 0.0),")],
            ),
        ],
    },
    Case {
        operator: "softmax",
        extents: SCORES,
        variant: "",
        policy: "fp32",
        data: |plan| normal(plan, 200.0, 1.0),
        text: &[],
        mutants: &[
            edit("the maximum is not subtracted", &[(MAXIMUM, "exp(v, 0.0,")]),
            edit("probabilities are not normalised", &[("(e * (1.0 / ct.sum(e, axis=1, keepdims=True)))", "e")]),
            edit("the base is 2", &[("(v - top) * 1.4426950408889634", "(v - top)")]),
            edit("sums run over the wrong axis", &[("ct.sum(e, axis=1,", "ct.sum(e, axis=0,")]),
        ],
    },
    Case {
        operator: "softmax",
        extents: SCORES,
        variant: "causal",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the mask lets one key too many through", &[("<= query[:, None]", "<= query[:, None] + 1")]),
            edit("the mask takes one key too many away", &[("<= query[:, None]", "< query[:, None]")]),
            edit("queries and keys are aligned at the start", &[(" + (N - QUERIES)", "")]),
            edit("the second head's queries go on counting", &[(" % QUERIES", "")]),
            edit("masked scores are 0", &[("-float(\"inf\")", "0.0")]),
        ],
    },
    Case {
        operator: "softmax",
        extents: LONG_SCORES,
        variant: "",
        policy: "fp32",
        data: |_| in_pieces("softmax", LONG_SCORES, ""),
        text: &[],
        mutants: &[
            edit("sums of pieces are added as they are", &[("power(top - above, ACC) * sum", "sum")]),
            edit("the last piece's padding is counted", &[("-float(\"inf\")", "0.0")]),
            edit(
                "results go to the next piece",
                &[("ct.store(y, (i, j), p.astype", "ct.store(y, (i, (j + 1) % PIECES), p.astype")],
            ),
        ],
    },
    Case {
        operator: "softmax",
        extents: LONG_SCORES,
        variant: "",
        policy: "fp32",
        data: |_| normal(in_pieces("softmax", LONG_SCORES, ""), LOW, 0.0),
        text: &[],
        mutants: &[edit("no element is that low", &[("-3.4028234663852886e38", "-3.0e38")])],
    },
    Case {
        operator: "softmax",
        extents: LONG_CAUSAL,
        variant: "causal",
        policy: "fp32",
        data: |_| in_pieces("softmax", LONG_CAUSAL, "causal"),
        text: &[],
        mutants: &[
            edit("a row sees a column too many", &[("% QUERIES + (N - QUERIES) + 1", "% QUERIES + (N - QUERIES) + 2")]),
            edit("what is not seen is not 0", &[("p = ct.where(before(j, CHUNK, seen), p, 0.0)", "pass")]),
            edit(
                "pieces that are not seen say how large a row is",
                &[("piece, ct.full((1, 1), lowest(ACC), ACC))", "piece, ct.full((1, 1), 1000.0, ACC))")],
            ),
        ],
    },
    Case {
        operator: "layer_norm",
        extents: LONG_NORM,
        variant: "",
        policy: "fp32",
        data: |_| in_pieces("layer_norm", LONG_NORM, ""),
        text: &[],
        mutants: &[
            edit("all pieces weigh the same", &[("ct.maximum(ct.minimum(left, CHUNK), 0)", "ct.where(left > 0, CHUNK, 0)")]),
            edit("means of pieces do not vary", &[(" + counts(k, ACC, CHUNK, PARTS, N) * apart * apart", "")]),
        ],
    },
    Case {
        operator: "rms_norm",
        extents: LONG_NORM,
        variant: "",
        policy: "fp32",
        data: |_| in_pieces("rms_norm", LONG_NORM, ""),
        text: &[],
        mutants: &[
            edit(
                "a piece is scaled by its own squares",
                &[(
                    "ct.rsqrt(sum_of_row(squares, i, ACC, PIECES, PARTS) / N + eps)",
                    "ct.rsqrt(ct.sum(v.astype(ACC) * v.astype(ACC), axis=1, keepdims=True) / CHUNK + eps)",
                )],
            ),
            edit("a row's last piece is left out", &[("[None, :] < PIECES", "[None, :] < PIECES - 1")]),
        ],
    },
    Case {
        operator: "rms_norm",
        extents: ODD,
        variant: "",
        policy: "bf16",
        data: |_| alike("rms_norm", ODD),
        text: &[],
        mutants: &[
            edit("a block's last row is left out", &[("x.shape[0], STEP)", "x.shape[0] - STEP, STEP)")]),
            edit("the row ahead is another block's", &[("(i + STEP, 0)", "(i + STEP + 1, 0)")]),
        ],
    },
    Case {
        operator: "layer_norm",
        extents: ODD,
        variant: "",
        policy: "bf16",
        data: |_| alike("layer_norm", ODD),
        text: &[],
        mutants: &[
            edit("the row that was ahead is never taken", &[("        if AHEAD:\n            v = next\n", "")]),
            edit("the bias is the weight", &[("w.astype(ACC) + b.astype(ACC)", "w.astype(ACC) + w.astype(ACC)")]),
        ],
    },
];
