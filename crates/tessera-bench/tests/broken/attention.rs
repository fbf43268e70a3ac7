//! Broken attention.

use super::{Case, edit, one_block_short, relaunch};

/// Ragged tiles of queries and keys, a longer past than there are queries, heads in groups.
const LONG: &[(&str, u64)] = &[("batch", 2), ("heads", 4), ("group", 2), ("queries", 70), ("keys", 150), ("dim", 64)];

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "attention",
        extents: LONG,
        variant: "causal",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a query sees one key too many", &[("key < seen +", "key <= seen +")]),
            edit("the mask ends with the queries", &[("block * TM + keys - queries + 1", "block * TM + 1")]),
            edit("heads of K are not shared", &[("head // GROUP", "head % (HEADS // GROUP)")]),
            edit("the sum is not rescaled", &[("l = l * alpha +", "l = l +")]),
            relaunch("the last queries are not written", one_block_short),
        ],
    },
    Case {
        operator: "attention",
        extents: LONG,
        variant: "",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("keys behind the end count", &[("ct.where(keep, s, NOTHING)", "s")]),
            edit("results are not rescaled", &[("v, acc * alpha)", "v, acc)")]),
            edit("the scale is missing", &[("ct.astype(scale * LOG2_E, ACC)", "ct.astype(LOG2_E, ACC)")]),
            edit("weights are rounded to eight bits", &[("p.astype(V.dtype)", "p.astype(ct.float8_e4m3fn).astype(V.dtype)")]),
        ],
    },
];
