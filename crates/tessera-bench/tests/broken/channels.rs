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
                &[(
                    "ct.rsqrt(whole(d * d) / (C * PIXELS) + eps)\n    w, b",
                    "ct.rsqrt(whole(v * v) / (C * PIXELS) - mean * mean + eps)\n    w, b",
                )],
            ),
            edit("all groups have the first one's weights", &[("j = i % groups", "j = i * 0")]),
            edit(
                "statistics are a channel's",
                &[(
                    "return ct.sum(ct.sum(v, axis=2, keepdims=True), axis=1, keepdims=True)",
                    "return ct.sum(v, axis=2, keepdims=True) * v.shape[1]",
                )],
            ),
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
            edit("the mean has no gradient", &[("(d * w - plain - h * along) * scale", "(d * w - h * along) * scale")]),
            edit(
                "the weight has no part in the sums",
                &[("whole(of_weight * w) / (C * PIXELS)", "whole(of_weight) / (C * PIXELS)")],
            ),
            edit(
                "images are mixed up",
                &[(
                    "ct.store(dweights, (i // groups, j), ct.reshape(of_weight, (1, C)))",
                    "ct.store(dweights, (0, j), ct.reshape(of_weight, (1, C)))",
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
            edit("parts' means do not vary", &[("squares + more + d * d * n * part", "squares + more")]),
            edit("the bias is dropped", &[("* channel_numbers(rstd, j, C) * w + b)", "* channel_numbers(rstd, j, C) * w)")]),
        ],
    },
    Case {
        operator: "batch_norm",
        extents: FEW,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("the variance is the unbiased one", &[("deviations / n + eps", "deviations / (n - 1.0) + eps")])],
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
                &[(
                    "scale = ct.rsqrt(channel_numbers(variance, j, C) + eps)",
                    "scale = 1.0 / (channel_numbers(variance, j, C) + eps)",
                )],
            ),
            edit("the mean is not subtracted", &[("(v - channel_numbers(mean, j, C)) * scale * w + b", "v * scale * w + b")]),
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
            edit("statistics have no cotangents", &[("- channel_numbers(dmean, j, C)) / COUNT", ") / COUNT")]),
            edit(
                "deviations are not divided by their count",
                &[("channel_numbers(drstd, j, C) * scale * scale) / COUNT", "channel_numbers(drstd, j, C) * scale * scale)")],
            ),
            edit(
                "a block's part alone is the sum",
                &[(
                    "sums, plain = sums + numbers_of_part(of_weights, k, j, C), plain",
                    "sums, plain = numbers_of_part(of_weights, k, j, C), plain",
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
