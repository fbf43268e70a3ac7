//! Broken elementwise operators, fused ones, codes with scales, random numbers and rotary position embedding.

use tessera_ops::Fill;

use super::{Case, Mutant, edit, one_block_short, relaunch};

/// Three tiles, the last one ragged.
const ELEMENTS: &[(&str, u64)] = &[("n", 10_000)];
/// Several tiles of rows and of columns, the last ones ragged.
const ROWS: &[(&str, u64)] = &[("rows", 67), ("n", 1000)];
/// Several tiles of columns on a CPU, too.
const LONG: &[(&str, u64)] = &[("rows", 5), ("n", 9000)];
const TALL: &[(&str, u64)] = &[("rows", 1000), ("n", 300)];
const HIDDEN: &[(&str, u64)] = &[("batch", 1), ("sequence", 33), ("hidden", 1000)];
const HEADS: &[(&str, u64)] = &[("batch", 2), ("tokens", 33), ("heads", 6), ("dim", 80), ("half", 32), ("positions", 33)];
const MADE: &[(&str, u64)] = &[("batch", 2), ("tokens", 33), ("heads", 6), ("dim", 80), ("half", 0), ("positions", 0)];
const BOTH: &[(&str, u64)] =
    &[("batch", 2), ("tokens", 33), ("heads", 6), ("shared", 2), ("dim", 80), ("half", 32), ("positions", 33)];

/// A case in 32 bits on the data that the operator draws.
const fn case(
    operator: &'static str,
    extents: &'static [(&'static str, u64)],
    variant: &'static str,
    mutants: &'static [Mutant],
) -> Case {
    Case { operator, extents, variant, policy: "fp32", data: |plan| plan, text: &[], mutants }
}

pub(super) const CASES: &[Case] = &[
    case(
        "relu",
        ELEMENTS,
        "",
        &[edit(
            "the magnitude is taken",
            &[("store(y, ct.maximum(load(x, ACC, TILE), 0.0", "store(y, ct.maximum(ct.abs(load(x, ACC, TILE)), 0.0")],
        )],
    ),
    case(
        "relu_backward",
        ELEMENTS,
        "",
        &[
            edit(
                "the sign is that of the gradient",
                &[("ct.where(load(x, ACC, TILE) > 0.0, load(dy", "ct.where(load(dy, ACC, TILE) > 0.0, load(dy")],
            ),
            relaunch("the tail is not written", one_block_short),
        ],
    ),
    case("leaky_relu", ELEMENTS, "", &[edit("the slope is that of both sides", &[("t, slope * t)", "slope * t, slope * t)")])]),
    case("leaky_relu_backward", ELEMENTS, "", &[edit("the slope is 0", &[("> 0.0, d, slope * d)", "> 0.0, d, 0.0 * d)")])]),
    case(
        "elu",
        ELEMENTS,
        "",
        &[
            edit("1 is not taken off", &[("power_of_two(low * LOG2_E) - 1.0", "power_of_two(low * LOG2_E)")]),
            edit("near 0 the square is left out", &[("low + low * low * polynomial", "low + low * polynomial")]),
        ],
    ),
    case("elu_backward", ELEMENTS, "", &[edit("the power is of 2", &[("power_of_two(t * LOG2_E))", "power_of_two(t))")])]),
    case(
        "sigmoid",
        ELEMENTS,
        "",
        &[edit("it rises the other way", &[("power_of_two(t * -LOG2_E)", "power_of_two(t * LOG2_E)")])],
    ),
    case("sigmoid_backward", ELEMENTS, "", &[edit("one factor is missing", &[("(s * (1.0 - s))", "(1.0 - s)")])]),
    case(
        "tanh",
        ELEMENTS,
        "",
        &[edit(
            "the argument is doubled",
            &[("store(y, ct.tanh(load(x, ACC, TILE)))", "store(y, ct.tanh(2.0 * load(x, ACC, TILE)))")],
        )],
    ),
    case("tanh_backward", ELEMENTS, "", &[edit("the square is dropped", &[("(1.0 - h) * (1.0 + h)", "1.0 - h")])]),
    case(
        "silu",
        ELEMENTS,
        "",
        &[
            edit("the factor is dropped", &[("return t * logistic(t)", "return logistic(t)")]),
            edit(
                "powers lose digits",
                &[("return ct.exp2(t) if", "t = t.astype(ct.bfloat16).astype(t.dtype)\n    return ct.exp2(t) if")],
            ),
        ],
    ),
    case(
        "silu_backward",
        ELEMENTS,
        "",
        &[edit("the sigmoid alone is the slope", &[("s * (1.0 + t * (1.0 - s))\n\n\ndef gelu_of", "s\n\n\ndef gelu_of")])],
    ),
    case(
        "gelu",
        ELEMENTS,
        "",
        &[
            edit("it is that by tanh", &[("return t * normal(t)[0]", "return gelu_tanh_of(t)")]),
            edit("both sides have the tail of one", &[("ct.where(t < 0.0, tail, 1.0 - tail)", "tail")]),
            edit("a coefficient is off in its fifth digit", &[("0.11944491416215897", "0.11945491416215897")]),
        ],
    ),
    case(
        "gelu_backward",
        ELEMENTS,
        "",
        &[edit("the density is dropped", &[("return below + t * power * SQRT_1_OVER_2_PI", "return below")])],
    ),
    case("gelu_tanh", ELEMENTS, "", &[edit("the cube is dropped", &[("(scale + (scale * 0.044715) * (t * t))", "scale")])]),
    case(
        "gelu_tanh_backward",
        ELEMENTS,
        "",
        &[edit("the cube's slope is not tripled", &[("SQRT_8_OVER_PI * 3.0 * 0.044715", "SQRT_8_OVER_PI * 0.044715")])],
    ),
    Case {
        operator: "gelu_tanh_backward",
        extents: ELEMENTS,
        variant: "",
        policy: "fp32",
        // Squares are too large for 32 bits, and what is not the slope's times the element, too.
        data: |mut plan| {
            plan.tensors[0].fill = Fill::Normal { mean: 0.0, sd: 3e37 };
            plan
        },
        text: &[],
        mutants: &[
            edit("squares overflow", &[("square = ct.minimum(t * t, 1000.0)", "square = t * t")]),
            edit("elements are multiplied first", &[("near * (inner * (s * (1.0 - s)))", "(t * inner) * (s * (1.0 - s))")]),
        ],
    },
    case(
        "swiglu",
        ELEMENTS,
        "",
        &[edit(
            "up is gate",
            &[("silu_of(load(gate, ACC, TILE)) * load(up, ACC, TILE)", "silu_of(load(gate, ACC, TILE)) * load(gate, ACC, TILE)")],
        )],
    ),
    case(
        "swiglu_backward",
        ELEMENTS,
        "",
        &[
            edit(
                "gradients are exchanged",
                &[
                    ("store(dgate, d * load(up", "store(dup, d * load(up"),
                    ("store(dup, d * (t * s))", "store(dgate, d * (t * s))"),
                ],
            ),
            edit(
                "up is dropped",
                &[("d * load(up, ACC, TILE) * (s * (1.0 + t * (1.0 - s)))", "d * (s * (1.0 + t * (1.0 - s)))")],
            ),
        ],
    ),
    case(
        "geglu",
        ELEMENTS,
        "",
        &[edit("the gate is not multiplied", &[("gelu_of(load(gate, ACC, TILE)) *", "normal(load(gate, ACC, TILE))[0] *")])],
    ),
    case(
        "geglu_backward",
        ELEMENTS,
        "",
        &[edit("the gradient of up is the slope's", &[("store(dup, d * (t * below))", "store(dup, d * below)")])],
    ),
    case(
        "geglu_tanh",
        ELEMENTS,
        "",
        &[edit("it is that with erf", &[("gelu_tanh_of(load(gate, ACC, TILE)) *", "gelu_of(load(gate, ACC, TILE)) *")])],
    ),
    case(
        "geglu_tanh_backward",
        ELEMENTS,
        "",
        &[edit("the gradient of up is not multiplied", &[("store(dup, d * gelu_tanh_of(t))", "store(dup, gelu_tanh_of(t))")])],
    ),
    case(
        "bias_relu",
        LONG,
        "",
        &[edit(
            "all columns have the first tile's bias",
            &[("ct.load(bias, (j,), (TN,)).astype", "ct.load(bias, (0,), (TN,)).astype")],
        )],
    ),
    case(
        "bias_silu",
        ROWS,
        "",
        &[edit(
            "the bias is added behind",
            &[(
                "f(biased(x, bias, i, j, ACC, TM, TN))",
                "f(biased(x, bias, i, j, ACC, TM, TN)) + ct.load(bias, (j,), (TN,)).astype(ACC)",
            )],
        )],
    ),
    case("bias_gelu", ROWS, "", &[relaunch("the last tile is not written", one_block_short)]),
    case(
        "bias_relu_backward",
        TALL,
        "",
        &[
            edit("the last tile of a block alone counts", &[("sums = sums + d", "sums = d")]),
            edit("all blocks leave their sums in one place", &[("ct.store(partials, (part, j)", "ct.store(partials, (0, j)")]),
        ],
    ),
    case(
        "bias_silu_backward",
        TALL,
        "",
        &[
            edit(
                "the sum is of dy",
                &[(
                    "sums = sums + d",
                    "sums = sums + ct.load(dy, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ACC)",
                )],
            ),
            edit(
                "the first rows of a tile alone have a part",
                &[("ct.sum(sums, axis=0", "ct.sum(sums * (ct.arange(TM, dtype=ct.int32)[:, None] < 1), axis=0")],
            ),
        ],
    ),
    case(
        "bias_gelu_backward",
        TALL,
        "",
        &[
            edit("the last rows are dropped", &[("ct.cdiv(x.shape[0], TM))", "x.shape[0] // TM)")]),
            edit(
                "the bias is dropped",
                &[("padding_mode=ct.PaddingMode.ZERO).astype(ACC) + b\n", "padding_mode=ct.PaddingMode.ZERO).astype(ACC)\n")],
            ),
        ],
    ),
    case(
        "add_rms_norm",
        HIDDEN,
        "",
        &[
            edit("the norm is of x alone", &[("return stored.astype(ACC)", "return a.astype(ACC)")]),
            edit("the residual is taken off", &[("a.astype(ACC) + b.astype(ACC)", "a.astype(ACC) - b.astype(ACC)")]),
        ],
    ),
    case(
        "add_layer_norm",
        HIDDEN,
        "",
        &[
            edit("the mean is not taken off", &[("d = v - ct.sum(v, axis=1, keepdims=True) / N", "d = v")]),
            edit("the bias is dropped", &[("(d * scale * w + b)", "(d * scale * w)")]),
        ],
    ),
    case(
        "add_rms_norm_backward",
        HIDDEN,
        "",
        &[
            edit("the sum's own cotangent has no part", &[("d[k] + also[k]", "d[k] + 0.0 * also[k]")]),
            edit(
                "the norm's part is scaled by a little more",
                &[("a * scale - b * slope for", "a * (scale + 0.001) - b * slope for")],
            ),
        ],
    ),
    case(
        "add_layer_norm_backward",
        HIDDEN,
        "",
        &[
            edit("the sum's own cotangent is of the next rows", &[("in_tiles(dsum, i, ROWS", "in_tiles(dsum, i + 1, ROWS")]),
            edit("the mean has no gradient", &[("(b * slope + common)", "b * slope")]),
        ],
    ),
    Case {
        policy: "fp32->bf16",
        ..case(
            "cast",
            ELEMENTS,
            "",
            &[
                edit(
                    "results are truncated",
                    &[(
                        "ct.store(y, (i,), t.astype(y.dtype))",
                        "ct.store(y, (i,), ct.bitcast(ct.bitcast(t, ct.int32) & -65536, ct.float32).astype(y.dtype))",
                    )],
                ),
                relaunch("the tail is not written", one_block_short),
            ],
        )
    },
    case(
        "quantise",
        ROWS,
        "rows",
        &[
            edit(
                "the largest number counts, not the largest magnitude",
                &[("ct.max(ct.abs(v), axis=axis", "ct.max(v, axis=axis")],
            ),
            edit("codes are multiplied by scales", &[("t = v * (1.0 / scale)", "t = v * scale")]),
        ],
    ),
    case(
        "quantise",
        ROWS,
        "blocks_int8",
        &[
            edit("codes are truncated", &[("        t = t + ROUND - ROUND\n    return", "        t = t\n    return")]),
            edit(
                "a scale is for a row of the tile",
                &[(
                    "scale = scale_of(v, 2, MOST)",
                    "scale = ct.broadcast_to(scale_of(scale_of(v, 2, MOST) * MOST, 1, MOST), (TM, TN // 128, 1))",
                )],
            ),
        ],
    ),
    case(
        "quantise",
        TALL,
        "tensor_e5m2",
        &[
            edit(
                "a block's last tile alone counts",
                &[("most = ct.maximum(most, ct.abs(", "most = ct.maximum(0.0 * most, ct.abs(")],
            ),
            edit("the last block but one puts together", &[("partials.shape[1] - 1:", "partials.shape[1] - 2:")]),
            edit("the scale is that of int8", &[("LEAST) / MOST", "LEAST) / 127.0")]),
        ],
    ),
    Case {
        policy: "fp8_e4m3->bf16",
        ..case(
            "dequantise",
            LONG,
            "blocks",
            &[
                edit(
                    "all blocks have the first ones' scales",
                    &[("ct.load(scales, (i, j), (TM, TN // 128))", "ct.load(scales, (i, 0), (TM, TN // 128))")],
                ),
                edit("scales are divided by", &[("(t * scale)", "(t / scale)")]),
            ],
        )
    },
    case(
        "dropout",
        ELEMENTS,
        "p=0.25",
        &[
            edit("the other part is dropped", &[("(exchanged >> 1) >= least", "(exchanged >> 1) < least")]),
            edit("two elements have one number", &[("word if lane % 2 else (word << 16) | (word >> 16)", "word")]),
            edit("what is kept is not scaled", &[("t.astype(ACC) * scale, 0.0", "t.astype(ACC), 0.0")]),
            edit("a round is missing", &[("range(10)", "range(9)")]),
        ],
    ),
    case(
        "dropout_backward",
        ELEMENTS,
        "seed=5 offset=3",
        &[
            edit(
                "the seed is not used",
                &[(
                    "key_0, key_1 = seed_low.astype(ct.uint32), seed_high",
                    "key_0, key_1 = (0 * seed_low).astype(ct.uint32), seed_high",
                )],
            ),
            edit("the offset is not used", &[("none + offset_low.astype(ct.uint32)", "none")]),
        ],
    ),
    case(
        "random_uniform",
        ELEMENTS,
        "",
        &[
            edit("all blocks have the first one's numbers", &[("ct.bid(0).astype(ct.uint32) * S", "ct.uint32(0)")]),
            edit("a constant of the generator is off", &[("0xD2511F53", "0xD2511F51")]),
        ],
    ),
    case(
        "random_normal",
        ELEMENTS,
        "",
        &[
            edit(
                "sine and cosine are exchanged",
                &[("return radius * cosine, radius * sine", "return radius * sine, radius * cosine")],
            ),
            edit("the logarithm is half of it", &[("ct.sqrt(-2.0 *", "ct.sqrt(-1.0 *")]),
        ],
    ),
    case(
        "rope",
        HEADS,
        "halves",
        &[
            edit(
                "pairs are turned back",
                &[(
                    "a * cos - b * sin, b * cos + a * sin, INTERLEAVED, HALF, shape)\n\n\ndef turn_in_place(",
                    "a * cos + b * sin, b * cos - a * sin, INTERLEAVED, HALF, shape)\n\n\ndef turn_in_place(",
                )],
            ),
            edit("the table's first rows serve all tokens", &[("ct.load(rows, (i, 0)", "ct.load(rows, (0 * i, 0)")]),
        ],
    ),
    case(
        "rope",
        MADE,
        "interleaved_theta start=1000",
        &[
            edit("positions begin at 0", &[("(start + i * TT", "(i * TT")]),
            edit(
                "angles are made in 32 bits",
                &[(
                    "return ct.cos(angle).astype(ACC)",
                    "angle = angle.astype(ct.bfloat16).astype(ct.float32)\n    return ct.cos(angle).astype(ACC)",
                )],
            ),
        ],
    ),
    case(
        "rope_inplace",
        HEADS,
        "halves",
        &[
            edit(
                "it turns the other way",
                &[(
                    "a * cos - b * sin, b * cos + a * sin, INTERLEAVED, HALF, shape)\n\n\n@tessera.kernel\ndef rope(",
                    "a * cos + b * sin, b * cos - a * sin, INTERLEAVED, HALF, shape)\n\n\n@tessera.kernel\ndef rope(",
                )],
            ),
            edit(
                "a pair is turned after its first half was written",
                &[(
                    "    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)\n    store_pairs(x, at, a * cos",
                    "    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)\n    ct.store(x, at + (0,), (a * cos - b * sin).astype(x.dtype))\n    a, b = load_pairs(x, at, ACC, INTERLEAVED, HALF, shape)\n    store_pairs(x, at, a * cos",
                )],
            ),
        ],
    ),
    case(
        "rope_inplace",
        HEADS,
        "interleaved",
        &[edit("sines are as large as cosines", &[("turn_in_place(x, at, c, s, ACC", "turn_in_place(x, at, c, c, ACC")])],
    ),
    case("rope_backward", HEADS, "interleaved", &[edit("it turns forward", &[("TT, HALF) * SIGN", "TT, HALF)")])]),
    case(
        "qk_norm_rope",
        BOTH,
        "halves",
        &[
            edit("keys have the weight of queries", &[("norm_and_turn(k, k_weight", "norm_and_turn(k, q_weight")]),
            edit(
                "the mean is over the pairs alone",
                &[("        squares = squares + ct.sum(rest * rest, axis=3, keepdims=True)\n", "        squares = squares\n")],
            ),
        ],
    ),
];
