//! Broken attention of windows and of packed sequences.

use tessera_ops::{Fill, Plan};

use super::{Case, edit, one_block_short, relaunch};

/// Ragged tiles of queries and keys, a longer past than there are queries, heads in groups.
const LONG: &[(&str, u64)] =
    &[("batch", 2), ("heads", 4), ("group", 2), ("queries", 70), ("keys", 150), ("dim", 64), ("biases", 4)];

/// Fewer keys than queries: the first of these see none.
const SHORT: &[(&str, u64)] =
    &[("batch", 1), ("heads", 2), ("group", 1), ("queries", 80), ("keys", 17), ("dim", 64), ("biases", 1)];

/// Sequences of none to 130 queries and 200 keys. All queries are one short of whole tiles, so that the last block has some.
const PACKED: &[(&str, u64)] = &[("sequences", 7), ("tokens", 447), ("past", 700), ("heads", 4), ("group", 2), ("dim", 64)];

/// Scores so small that a key of zeros, as one that is not there has, would weigh more than there are numbers.
fn steep(mut plan: Plan) -> Plan {
    for tensor in &mut plan.tensors {
        let mean = match tensor.name {
            "Q" => -3.45,
            "K" => 3.45,
            _ => continue,
        };
        tensor.fill = Fill::Normal { mean, sd: 0.05 };
    }
    plan
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "attention_window",
        extents: LONG,
        variant: "left=40 right=3",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a key too many is seen behind", &[("key <= place + RIGHT", "key <= place + RIGHT + 1")]),
            edit("a key too few is seen behind", &[("key <= place + RIGHT", "key < place + RIGHT")]),
            edit("a key too many is seen before", &[("key >= place - LEFT", "key >= place - LEFT - 1")]),
            edit("a key too few is seen before", &[("key >= place - LEFT", "key > place - LEFT")]),
            edit("places are those among queries", &[("first = block * TM + keys - queries", "first = block * TM")]),
            edit("a tile too few is looked at before", &[("max(0, first - LEFT) // TN", "max(0, first - LEFT) // TN + 1")]),
            edit("tiles end with the first query's", &[("max(0, first + TM + RIGHT)", "max(0, first + RIGHT)")]),
            edit("heads of K are not shared", &[("shared = head // GROUP", "shared = head % GROUP")]),
            edit("the sum is not rescaled", &[("l = l * alpha +", "l = l +")]),
            edit("results are not rescaled", &[("acc * alpha)", "acc)")]),
            edit("the logarithm has base 2", &[("+ ct.log(l)", "+ ct.log2(l)")]),
            edit("the largest score has base 2", &[("m / LOG2_E + ct.log(l)", "m + ct.log(l)")]),
            relaunch("the last queries are not written", one_block_short),
        ],
    },
    Case {
        operator: "attention_window",
        extents: LONG,
        variant: "",
        policy: "fp16",
        data: steep,
        text: &[],
        mutants: &[edit("keys behind the end count", &[("keep = key < keys", "keep = key <= keys")])],
    },
    Case {
        operator: "attention_window",
        extents: SHORT,
        variant: "right=0",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("rows without keys are no numbers", &[("1.0 / ct.where(l > 0.0, l, 1.0)", "1.0 / l")]),
            edit("differences of infinities are no numbers", &[("ct.where(largest > NOTHING, largest, 0.0)", "largest")]),
        ],
    },
    Case {
        operator: "attention_window",
        extents: LONG,
        variant: "alibi softcap=2",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("biases grow with the distance", &[("s = s - slope", "s = s + slope")]),
            edit("keys behind a query have the opposite bias", &[("abs(place - key)", "(place - key)")]),
            edit("all heads have the first one's slope", &[("ct.load(slopes, (head,), ())", "ct.load(slopes, (0,), ())")]),
            edit("scores are not capped", &[("ct.tanh(s * inner)", "(s * inner)")]),
            edit(
                "a cap is that of scores without the scale",
                &[("ct.astype(scale, ACC) / ct.astype(cap, ACC)", "1.0 / ct.astype(cap, ACC)")],
            ),
        ],
    },
    Case {
        operator: "attention_window",
        extents: LONG,
        variant: "bias softcap=2",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("all heads have the first one's bias", &[("(head % bias.shape[0], block, j)", "(0, block, j)")]),
            edit("all queries have the first ones' bias", &[("bias.shape[0], block, j)", "bias.shape[0], 0, j)")]),
            edit("a bias has base 2", &[(".astype(ACC) * LOG2_E\n        s = ct.where", ".astype(ACC)\n        s = ct.where")]),
        ],
    },
    Case {
        operator: "attention_varlen",
        extents: PACKED,
        variant: "right=0",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a query sees one key too many", &[("key <= place + RIGHT", "key <= place + RIGHT + 1")]),
            edit("a query sees one key too few", &[("key <= place + RIGHT", "key < place + RIGHT")]),
            edit("a tile belongs to the sequence before", &[("// TM + later <= number", "// TM + later < number")]),
            edit("bisection has a step too few", &[("ct.static_iter(range(STEPS))", "ct.static_iter(range(1, STEPS))")]),
            edit(
                "a sequence's last tile sees no key",
                &[("ct.where(block * TM < queries,", "ct.where(block * TM + TM < queries,")],
            ),
            edit("all sequences have the first one's queries", &[("ct.where(inside, start + block * TM, 0)", "block * TM")]),
            edit(
                "keys are those of the sequence before",
                &[("ct.load(cu_seqlens_k, (sequence,), ())", "ct.load(cu_seqlens_k, (max(0, sequence - 1),), ())")],
            ),
            edit(
                "the next sequence's keys are seen",
                &[("ct.load(cu_seqlens_k, (sequence + 1,), ())", "ct.load(cu_seqlens_k, (sequence + 1,), ()) + 1")],
            ),
            edit(
                "results go on in the next sequence",
                &[("O.slice(axis=0, start=start, stop=stop)", "O.slice(axis=0, start=start + 1, stop=stop)")],
            ),
            edit(
                "logarithms begin with the first sequence's",
                &[("lse.slice(axis=1, start=start, stop=stop)", "lse.slice(axis=1, start=0, stop=stop)")],
            ),
            relaunch("the last tile is not computed", one_block_short),
        ],
    },
    Case {
        operator: "attention_varlen",
        extents: PACKED,
        variant: "alibi left=17 right=0",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a key too many is seen before", &[("key >= place - LEFT", "key >= place - LEFT - 1")]),
            edit("distances are those of places in tiles", &[("abs(place - key)", "abs(place % TM - key % TN)")]),
        ],
    },
];
