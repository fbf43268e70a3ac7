//! Broken norms over groups and channels of images, and their gradients.

use tessera_ops::{Fill, Plan};

use super::{Case, edit};

/// Groups of three channels.
const GROUPS: &[(&str, u64)] = &[("batch", 3), ("channels", 6), ("pixels", 130)];
/// Groups that no block holds: tiles are put together.
const LONG: &[(&str, u64)] = &[("batch", 1), ("channels", 6), ("pixels", 5000)];
/// Several tiles of a channel, the last one ragged.
const CHANNELS: &[(&str, u64)] = &[("batch", 33), ("channels", 5), ("pixels", 300)];

/// Few elements a channel.
const FEW: &[(&str, u64)] = &[("batch", 3), ("channels", 5), ("pixels", 30)];

/// Elements far from 0, where a variance that cancels shows.
fn far(mut plan: Plan) -> Plan {
    plan.tensors[0].fill = Fill::Normal { mean: 1e3, sd: 1.0 };
    plan
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "group_norm",
        extents: GROUPS,
        variant: "groups=2",
        policy: "fp32",
        data: far,
        text: &[],
        mutants: &[
            edit(
                "the variance cancels",
                &[
                    ("total([v * v for v in d])", "total([v.astype(ACC) * v.astype(ACC) for v in tiles])"),
                    ("* (1.0 / LENGTH) + eps)", "* (1.0 / LENGTH) - mean * mean + eps)"),
                ],
            ),
            edit("all groups have the first one's weights", &[("i % groups, s, C", "i * 0, s, C")]),
            edit("all channels have the first one's weight", &[("numbers(j * C + c)", "numbers(j * C + c * 0)")]),
        ],
    },
    Case {
        operator: "group_norm",
        extents: LONG,
        variant: "groups=2",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("means of tiles do not vary", &[("squares + more + d * d * n * part", "squares + more")]),
            edit("tiles weigh the same", &[("mean + d * part", "mean + d * 0.5")]),
            edit("padding is counted", &[("d = ct.where(keep, v - mean, 0.0)", "d = v - mean")]),
        ],
    },
    Case {
        operator: "group_norm_backward",
        extents: GROUPS,
        variant: "groups=2",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the mean has no gradient", &[("* slope + common)).astype", "* slope)).astype")]),
            edit(
                "the weight has no part in the sums",
                &[("two_sums(of_weight * w, of_bias * w, 0)", "two_sums(of_weight, of_bias * w, 0)")],
            ),
            edit(
                "images are mixed up",
                &[(
                    "ct.store(dweights, (i // groups, j * S + s), ct.reshape(of_weight, (1, EACH)))",
                    "ct.store(dweights, (0, j * S + s), ct.reshape(of_weight, (1, EACH)))",
                )],
            ),
        ],
    },
    Case {
        operator: "batch_norm",
        extents: CHANNELS,
        variant: "",
        policy: "fp32",
        data: far,
        text: &[],
        mutants: &[
            edit(
                "parts' means do not vary",
                &[("all_parts(squares, j, PARTS, C) + d * d * n", "all_parts(squares, j, PARTS, C)")],
            ),
            edit("tiles' means do not vary", &[(" + d * d * (n * share)", "")]),
            edit(
                "places' means do not vary",
                &[("by_channel(deviations, C) + (own - centre) * (own - centre) * n", "by_channel(deviations, C)")],
            ),
            edit("the bias is dropped", &[(".astype(ACC) - centre * scale)", ".astype(ACC) * 0.0 - centre * scale)")]),
        ],
    },
    Case {
        operator: "batch_norm",
        extents: FEW,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "the variance is the unbiased one",
            &[("axis=0) * (1.0 / COUNT)\n        centre, factor", "axis=0) * (1.0 / (COUNT - 1))\n        centre, factor")],
        )],
    },
    Case {
        operator: "batch_norm_inference",
        extents: CHANNELS,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "the variance is taken for the root",
                &[("scale = ct.rsqrt(gathered(variance, c) + eps)", "scale = 1.0 / (gathered(variance, c) + eps)")],
            ),
            edit("the mean is not subtracted", &[("(own.load(x, ACC) - centre) * scale", "own.load(x, ACC) * scale")]),
        ],
    },
    Case {
        operator: "batch_norm_backward",
        extents: CHANNELS,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("statistics have no cotangents", &[(" - channel_numbers(dmean, j, C)) * share", ") * share")]),
            edit(
                "deviations are not divided by their count",
                &[("factor * factor) * factor * share", "factor * factor) * factor")],
            ),
            edit(
                "a block's part alone is the sum",
                &[(
                    "two_sums(all_parts(of_weights, j, PARTS, C), all_parts(of_biases, j, PARTS, C), 0)",
                    "two_sums(all_parts(of_weights, j, 1, C), all_parts(of_biases, j, 1, C), 0)",
                )],
            ),
        ],
    },
    Case {
        operator: "running_statistics",
        extents: &[("channels", 100)],
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the batch takes all", &[("own + (m - own) * momentum", "m")]),
            edit("reciprocals are taken for variances", &[("batch = (1.0 / (s * s) - eps)", "batch = (1.0 / s - eps)")]),
        ],
    },
    Case {
        operator: "running_statistics",
        extents: &[("channels", 100)],
        variant: "unbiased=1.25",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("the variance is taken as it is", &[("(1.0 / (s * s) - eps) * unbiased", "(1.0 / (s * s) - eps)")])],
    },
];
