//! Broken histograms.

use super::{Case, edit, normal};

/// Three tiles, the last one ragged.
const SMALL: &[(&str, u64)] = &[("n", 10_000), ("bins", 100)];

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "histogram",
        extents: SMALL,
        variant: "",
        policy: "int32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("padding is counted", &[("ct.where(inside, v, -1)", "v")]),
            edit(
                "counts are added to what is there",
                &[("ct.zeros((TILE,), counts.dtype)", "ct.load(counts, (ct.bid(0),), (TILE,))")],
            ),
            edit("values begin at 1", &[("ct.where(inside, v, -1)", "ct.where(inside, v - 1, -1)")]),
        ],
    },
    Case {
        operator: "histogram",
        extents: SMALL,
        variant: "",
        policy: "bf16",
        // Bounds are numbers of the type, and come up.
        data: |plan| normal(plan, 0.0, 2.0),
        text: &[],
        mutants: &[
            edit("the upper bound is left out", &[("(v <= greatest)", "(v < greatest)")]),
            edit("what lies outside goes to the last bin", &[(" & (v <= greatest)", "")]),
            edit(
                "bins are rounded to, not down",
                &[("ct.floor(ct.where(inside, v - least, 0.0)", "ct.floor(0.5 + ct.where(inside, v - least, 0.0)")],
            ),
        ],
    },
];
