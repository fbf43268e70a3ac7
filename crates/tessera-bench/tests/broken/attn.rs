//! Broken gradients of attention, and what stands around attention in a model.

use tessera_ops::{Argument, Fill, Plan};

use super::{Case, edit, one_block_short, relaunch, set};

/// Ragged tiles of queries and keys, a longer past than there are queries, heads in groups.
const LONG: &[(&str, u64)] = &[("batch", 2), ("heads", 4), ("group", 2), ("queries", 70), ("keys", 150), ("dim", 64)];

/// Logarithms so small that weights of keys that are not there are no numbers.
fn steep(mut plan: Plan) -> Plan {
    plan.tensors
        .iter_mut()
        .filter(|tensor| tensor.name == "lse")
        .for_each(|tensor| tensor.fill = Fill::Normal { mean: -95.0, sd: 0.5 });
    plan.tensors
        .iter_mut()
        .filter(|tensor| tensor.name == "Q")
        .for_each(|tensor| tensor.fill = Fill::Normal { mean: 0.0, sd: 1e-3 });
    plan
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "attention_lse",
        extents: LONG,
        variant: "causal",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the largest score is not scaled", &[("m * ct.astype(scale, ACC) + ct.log(l)", "m + ct.log(l)")]),
            edit("the logarithm has base 2", &[("+ ct.log(l)", "+ ct.log2(l)")]),
            edit("the sum is that of weights", &[("+ ct.log(l)", "")]),
            relaunch("the last queries are not written", one_block_short),
        ],
    },
    Case {
        operator: "attention_backward",
        extents: LONG,
        variant: "causal",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a key is not seen by its own query", &[("key <= last", "key < last")]),
            edit("the mask of keys ends with the queries", &[("last = i * TM + keys - queries +", "last = i * TM +")]),
            edit("a query sees one key too many", &[("< seen - j * TN", "<= seen - j * TN")]),
            edit(
                "the first queries are left out",
                &[("first = max(0, j * TN - (keys - queries)) // TM", "first = j * TN // TM")],
            ),
            edit("one head of a group counts", &[("shared * GROUP + t // tiles", "shared * GROUP")]),
            edit("heads of K are not shared", &[("shared = head // GROUP", "shared = head % (HEADS // GROUP)")]),
            edit("delta is left out of dK", &[("(dp - numbers(delta, batch, head, i, TM))", "dp")]),
            edit("delta is left out of dQ", &[("(dp - delta_q)", "dp")]),
            edit("the cotangent of the logarithms is left out", &[(" - along)", ")")]),
            edit("dK is not scaled", &[("(dk * scale)", "dk")]),
            edit("dQ is not scaled", &[("(dq * scale)", "dq")]),
            edit("weights are rounded to eight bits", &[("p.astype(V.dtype)", "p.astype(ct.float8_e4m3fn).astype(V.dtype)")]),
            relaunch("the scale is another one", |plan| set(plan, "scale", Argument::Float(0.1))),
            relaunch("the last rows' sums are missing", one_block_short),
            relaunch("the last keys are not written", |plan| plan.launches[1].grid[0] -= 1),
            relaunch("the last queries are not written", |plan| plan.launches[2].grid[0] -= 1),
        ],
    },
    Case {
        operator: "attention_backward",
        extents: LONG,
        variant: "",
        policy: "fp32",
        data: steep,
        text: &[],
        mutants: &[edit(
            "keys behind the end count",
            &[("ct.where(keep, power(s * factor - shift_q), 0.0)", "power(s * factor - shift_q)")],
        )],
    },
];
