//! Broken attention.

use tessera_ops::{Argument, Machine, Plan, Problem, find};
use tessera_types::Arch;

use super::{Case, edit, one_block_short, relaunch, set};

/// Ragged tiles of queries and keys, a longer past than there are queries, heads in groups.
const LONG: &[(&str, u64)] = &[("batch", 2), ("heads", 4), ("group", 2), ("queries", 70), ("keys", 150), ("dim", 64)];

/// Three heads of two queries in a tile of four of two: one row of either is not there. The last key is the last query's alone, in a split of its own.
const FEW: &[(&str, u64)] = &[("batch", 2), ("heads", 6), ("group", 3), ("queries", 2), ("keys", 1025), ("dim", 64)];

/// The plan of a GPU, which splits keys; the CPU runs it as well.
fn split() -> Plan {
    let attention = find("attention").expect("an operator of the library");
    let policy = "bf16".parse().expect("a policy of the grammar");
    attention.plan(&Problem::new(FEW, "causal"), policy, Machine::Gpu(Arch::Sm80)).expect("a plan")
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "attention",
        extents: LONG,
        variant: "causal",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("a query sees one key too many", &[("< seen - j * TN", "<= seen - j * TN")]),
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
            edit("the scale is missing", &[("ct.astype(scale, ACC) * LOG2_E", "LOG2_E")]),
            edit("weights are rounded to eight bits", &[("p.astype(V.dtype)", "p.astype(ct.float8_e4m3fn).astype(V.dtype)")]),
        ],
    },
    Case {
        operator: "attention",
        extents: FEW,
        variant: "causal",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the mask is that of the row", &[("[:, None] % TQ", "[:, None]")]),
            edit(
                "heads of another group are stored",
                &[("heads = O.slice(axis=1, start=shared * GROUP,", "heads = O.slice(axis=1, start=0,")],
            ),
            edit(
                "all groups have the first one's queries",
                &[("heads = Q.slice(axis=1, start=shared * GROUP,", "heads = Q.slice(axis=1, start=0,")],
            ),
            relaunch("the last group is not written", one_block_short),
        ],
    },
    Case {
        operator: "attention",
        extents: FEW,
        variant: "causal",
        policy: "bf16",
        data: |_| split(),
        text: &[],
        mutants: &[
            edit(
                "a split without a key is no number",
                &[("if SEEN else ct.where(largest > NOTHING, largest * factor, 0.0)", "")],
            ),
            edit("splits weigh the same", &[("acc * weight", "acc")]),
            edit("the sums of splits weigh the same", &[("l * weight", "l")]),
            edit("the last split goes past the keys", &[("min(first + tiles, ct.cdiv(K.shape[2], TN))", "first + tiles + 1")]),
            relaunch("a tile of each split is left out", |plan| {
                let tiles = plan.launches[0].arguments.iter().find(|(name, _)| *name == "tiles").expect("tiles of a split").1;
                let Argument::Int(tiles) = tiles else { panic!("tiles are counted") };
                set(plan, "tiles", Argument::Int(tiles - 1));
            }),
            relaunch("the last split is not computed", |plan| plan.launches[0].grid[1] -= 1),
        ],
    },
];
