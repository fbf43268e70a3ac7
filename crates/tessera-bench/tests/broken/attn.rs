//! Broken gradients of attention, and what stands around attention in a model.

use tessera_ops::{Argument, Fill, Plan};

use super::{Case, edit, one_block_short, relaunch};

/// Ragged tiles of queries and keys, a longer past than there are queries, heads in groups.
const LONG: &[(&str, u64)] = &[("batch", 2), ("heads", 4), ("group", 2), ("queries", 70), ("keys", 150), ("dim", 64)];

/// Pages of 16 tokens, three heads that share one of K and V.
const PAGES: &[(&str, u64)] = &[("batch", 6), ("heads", 6), ("group", 3), ("pages", 60), ("page", 16), ("most", 9), ("dim", 64)];

/// Rows of more than one tile of columns.
const ROWS: &[(&str, u64)] = &[("tokens", 9), ("k", 4), ("dim", 4100)];

/// Scores so small that a key of zeros, as one that is not there has, would weigh more than there are numbers.
fn steep(mut plan: Plan) -> Plan {
    for tensor in &mut plan.tensors {
        let mean = match tensor.name {
            "Q" => -3.45,
            "K" => 3.45,
            "lse" => -90.0,
            _ => continue,
        };
        tensor.fill = Fill::Normal { mean, sd: 0.05 };
    }
    plan
}

/// Sequences of no keys and of one.
fn short(mut plan: Plan) -> Plan {
    let lengths = plan.tensors.iter_mut().filter(|tensor| tensor.name == "lengths");
    lengths.for_each(|tensor| tensor.fill = Fill::Integers { least: 0, greatest: 1 });
    plan
}

/// Another scale for one of the launches.
fn scale(plan: &mut Plan, launch: usize) {
    let arguments = plan.launches[launch].arguments.iter_mut();
    arguments.filter(|(name, _)| *name == "scale").for_each(|(_, argument)| *argument = Argument::Float(0.1));
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
            relaunch("keys have another scale", |plan| scale(plan, 1)),
            relaunch("queries have another scale", |plan| scale(plan, 2)),
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
    Case {
        operator: "attention_decode",
        extents: PAGES,
        variant: "window=40",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a key behind the end is seen", &[("keep = key < length", "keep = key <= length")]),
            edit("the window is one key too long", &[("key >= length - WINDOW", "key >= length - WINDOW - 1")]),
            edit("the window begins with a whole tile", &[(" & (key >= length - WINDOW)", "")]),
            edit(
                "pages are taken as they lie",
                &[("page = ct.load(block_table, (batch, j * TN // PAGE), ())", "page = batch * 9 + j * TN // PAGE")],
            ),
            edit("all groups have the first one's keys", &[("(page, 0, shared, part)", "(page, 0, 0, part)")]),
            edit("the sum is not rescaled", &[("l = l * alpha +", "l = l +")]),
            relaunch("the last group is not written", one_block_short),
        ],
    },
    Case {
        operator: "attention_decode",
        extents: PAGES,
        variant: "",
        policy: "bf16",
        data: short,
        text: &[],
        mutants: &[edit("sequences without keys are no numbers", &[("/ ct.where(total > 0.0, total, 1.0)", "/ total")])],
    },
    Case {
        operator: "attention_decode",
        extents: PAGES,
        variant: "alibi softcap=2",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("biases grow towards the past", &[("key - (length - 1)", "(length - 1) - key")]),
            edit(
                "all groups have the first one's slopes",
                &[("of_heads = slopes.slice(axis=0, start=shared * GROUP,", "of_heads = slopes.slice(axis=0, start=0,")],
            ),
            edit(
                "scores are not capped",
                &[(
                    "ct.tanh(s * (ct.astype(scale, ACC) / ct.astype(cap, ACC)))",
                    "(s * (ct.astype(scale, ACC) / ct.astype(cap, ACC)))",
                )],
            ),
        ],
    },
    Case {
        operator: "embedding",
        extents: &[("tokens", 33), ("vocab", 50), ("dim", 1025)],
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("tokens have the next row", &[("ct.load(table, (row, j)", "ct.load(table, (row + 1, j)")]),
            relaunch("the last token is not written", one_block_short),
        ],
    },
    Case {
        operator: "embedding_backward",
        extents: &[("tokens", 1100), ("vocab", 130), ("dim", 20)],
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("tokens behind the end count", &[(" & (token < ids.shape[0])", "")]),
            edit("a group's tokens all count", &[("if ct.load(ids, (token,), ()) == row:", "if token >= 0:")]),
            edit("lists begin anew with each part", &[("at = at + ct.sum(hit, axis=0)", "at = at + 0")]),
            edit(
                "sums are rounded on the way",
                &[(
                    "padding_mode=ZERO).astype(ACC)\n    ct.store(dtable",
                    "padding_mode=ZERO).astype(ACC)\n            acc = acc.astype(dy.dtype).astype(ACC)\n    ct.store(dtable",
                )],
            ),
            relaunch("the last group has no list", |plan| plan.launches[2].grid[0] -= 1),
        ],
    },
    Case {
        operator: "kv_append",
        extents: &[("tokens", 100), ("pages", 9), ("page", 16), ("heads", 3), ("dim", 80)],
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("tokens go where they stand", &[("ct.store(cache, (slot, j)", "ct.store(cache, (token, j)")]),
            edit("the first slot is nowhere", &[("if slot >= 0:", "if slot > 0:")]),
            relaunch("the last token is not there", one_block_short),
        ],
    },
    Case {
        operator: "moe_gate",
        extents: &[("tokens", 100), ("experts", 60), ("k", 6)],
        variant: "renormalised",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "of equal ones the last is taken",
                &[("ct.min(ct.where(free & (v == best), expert, BINS)", "ct.max(ct.where(free & (v == best), expert, -1)")],
            ),
            edit("an expert is taken twice", &[("free = free & (expert != at)", "free = free")]),
            edit("weights are those of all", &[("total = ct.sum(weight, axis=1, keepdims=True)", "total = total")]),
            relaunch("the last tokens are not written", one_block_short),
        ],
    },
    Case {
        operator: "moe_gate_backward",
        extents: &[("tokens", 100), ("experts", 60), ("k", 6)],
        variant: "renormalised",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("experts that were not chosen have weights", &[("v = ct.where(chosen, v, NOTHING)", "v = v")]),
            edit(
                "the sum of cotangents is left out",
                &[("(cotangent - ct.sum(p * cotangent, axis=1, keepdims=True))", "cotangent")],
            ),
        ],
    },
    Case {
        operator: "moe_sort",
        extents: &[("tokens", 997), ("experts", 60), ("k", 6)],
        variant: "",
        policy: "int32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "slots behind the end count",
                &[(
                    "ct.where(slot < ids.shape[0], ct.load(ids, (ct.bid(0),), (TILE,), padding_mode=ZERO), -1)",
                    "ct.load(ids, (ct.bid(0),), (TILE,), padding_mode=ZERO)",
                )],
            ),
            edit("blocks begin behind their own slots", &[(" - here + carry)", " + carry)")]),
            edit("offsets are ends", &[("(0,), end)", "(0,), end - total)")]),
            relaunch("the last block has no places", |plan| plan.launches[2].grid[0] -= 1),
        ],
    },
    Case {
        operator: "moe_permute",
        extents: ROWS,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "slots stand as they are counted",
                &[("ct.store(y, (ct.load(place, (token * K + i,), ()), j), row)", "ct.store(y, (token * K + i, j), row)")],
            ),
            relaunch("the last token is not moved", one_block_short),
        ],
    },
    Case {
        operator: "moe_permute_backward",
        extents: ROWS,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "one slot is left out",
                &[(
                    "ct.static_iter(range(K)):\n        acc = acc + ct.load(dy",
                    "ct.static_iter(range(K - 1)):\n        acc = acc + ct.load(dy",
                )],
            ),
            edit(
                "sums are rounded on the way",
                &[(
                    "(1, TILE), padding_mode=ZERO).astype(ACC)\n    ct.store(dx",
                    "(1, TILE), padding_mode=ZERO).astype(ACC)\n        acc = acc.astype(ct.float8_e4m3fn).astype(ACC)\n    ct.store(dx",
                )],
            ),
        ],
    },
    Case {
        operator: "moe_combine",
        extents: ROWS,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "weights are those of the first slot",
                &[("ct.load(weights, (token * K + i,), ())", "ct.load(weights, (token * K,), ())")],
            ),
            edit(
                "weights are rounded",
                &[(
                    "ct.load(weights, (token * K + i,), ()).astype(ACC)",
                    "ct.load(weights, (token * K + i,), ()).astype(ct.float8_e4m3fn).astype(ACC)",
                )],
            ),
        ],
    },
    Case {
        operator: "moe_combine_backward",
        extents: ROWS,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("rows have no weights", &[("(cotangent * weight)", "cotangent")]),
            edit("the weights' gradient is that of the last columns", &[("acc = acc + cotangent *", "acc = cotangent *")]),
            relaunch("the last slot is not written", one_block_short),
        ],
    },
];
