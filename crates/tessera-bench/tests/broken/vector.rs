//! Broken vector operations.

use super::{Case, edit, normal, one_block_short, relaunch};

/// Five blocks of a reduction, and a ragged last tile.
const LONG: &[(&str, u64)] = &[("n", 300_007)];
/// Three tiles, the last one ragged.
const SHORT: &[(&str, u64)] = &[("n", 10_000)];

const BOUND: &str = "ct.cdiv(x.shape[0], TILE)";
const TOTAL: &str = "ct.sum(acc, axis=0, keepdims=True)";

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "vector",
        extents: SHORT,
        variant: "axpy",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("alpha scales the wrong operand", &[("a * alpha + b", "a + b * alpha")]),
            edit("alpha is dropped", &[("a * alpha + b", "a + b")]),
        ],
    },
    Case {
        operator: "vector",
        extents: SHORT,
        variant: "add",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("y is read a tile late", &[("ct.load(y, (i,)", "ct.load(y, (i + 1,)")]),
            edit(
                "results are truncated",
                &[("(a + b).astype(z.dtype)", "ct.bitcast(ct.bitcast((a + b).astype(z.dtype), ct.int16) & -4, z.dtype)")],
            ),
            relaunch("the tail is not written", one_block_short),
        ],
    },
    Case {
        operator: "vector",
        extents: SHORT,
        variant: "mul strided_2",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "neighbours are multiplied",
            &[(
                "b = ct.load(y, (i,), (TILE,)).astype(ACC)",
                "b = ct.gather(y, (i * TILE + ct.arange(TILE, dtype=ct.int32)) ^ 1).astype(ACC)",
            )],
        )],
    },
    Case {
        operator: "vector",
        extents: LONG,
        variant: "reduce_sum",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the ragged tile is dropped", &[(BOUND, "x.shape[0] // TILE")]),
            edit("blocks overlap by a tile", &[("return first, first + each + min(", "return first, first + each + 1 + min(")]),
            edit(
                "partial results are rounded to bfloat16",
                &[(TOTAL, "ct.sum(acc, axis=0, keepdims=True).astype(ct.bfloat16).astype(acc.dtype)")],
            ),
            edit(
                "the first partial result is stale",
                &[("ct.store(partials, (ct.bid(0),)", "ct.store(partials, (ct.bid(0) + 1,)")],
            ),
            relaunch("the last partial result is stale", one_block_short),
            edit("the last block but one finishes", &[("ct.num_blocks(0) - 1", "ct.num_blocks(0) - 2")]),
            edit("the count is not set back", &[("ct.zeros((1,), arrived.dtype)", "ct.ones((1,), arrived.dtype)")]),
        ],
    },
    Case {
        operator: "vector",
        extents: LONG,
        variant: "reduce_max",
        policy: "fp32",
        data: |plan| normal(plan, -100.0, 1.0),
        text: &[],
        mutants: &[
            edit("the maximum starts at 0", &[("-float(\"inf\")", "0.0")]),
            edit("the padding is 0", &[("ct.PaddingMode.NEG_INF", "ct.PaddingMode.ZERO")]),
            edit(
                "the minimum is taken",
                &[("acc = ct.maximum(acc, in_groups_max(ct.load", "acc = ct.minimum(-acc, in_groups_max(ct.load")],
            ),
        ],
    },
    Case {
        operator: "vector",
        extents: LONG,
        variant: "norm",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the root is not taken", &[("ct.sqrt(total(partial, partials, PARTS))", "total(partial, partials, PARTS)")]),
            edit("magnitudes are added, not squares", &[("in_groups(a * a,", "in_groups(ct.abs(a),")]),
        ],
    },
    Case {
        operator: "vector",
        extents: LONG,
        variant: "dot",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("x is multiplied by itself", &[("ct.load(y,", "ct.load(x,")]),
            edit("the padding is infinite", &[("ct.PaddingMode.ZERO", "ct.PaddingMode.POS_INF")]),
        ],
    },
];
