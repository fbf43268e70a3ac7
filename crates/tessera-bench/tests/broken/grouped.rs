//! Broken products of groups of rows.

use super::{Case, edit, relaunch};

/// Groups of several tiles and of none, that begin and end within tiles.
const EXTENTS: &[(&str, u64)] = &[("tokens", 300), ("groups", 13), ("n", 140), ("k", 96)];

const CASE: Case = Case {
    operator: "gemm_grouped",
    extents: EXTENTS,
    variant: "nn",
    policy: "bf16->bf16",
    data: |plan| plan,
    text: &[],
    mutants: &[],
};

pub(super) const CASES: &[Case] = &[
    Case {
        mutants: &[
            edit("groups have the next one's matrix", &[("return group, row,", "return min(group + 1, last), row,")]),
            edit("tiles begin where whole tiles do", &[("row = first + (", "row = first // TM * TM + (")]),
            edit("a group's last row is not stored", &[("min(end, C.shape[0])", "end - 1")]),
            edit("bisection ends early", &[("ct.static_iter(range(STEPS))", "ct.static_iter(range(STEPS - 1))")]),
            edit("the last group is not looked at", &[("offsets.shape[0] - 2", "offsets.shape[0] - 3")]),
            edit("groups have a tile less", &[("// TM + later <= number", "// TM + later < number")]),
            edit("the last tile of the contraction is dropped", &[("ct.cdiv(K, TK), 0)", "K // TK, 0)")]),
            relaunch("the last columns are not computed", |plan| plan.launches[0].grid[1] -= 1),
        ],
        ..CASE
    },
    Case {
        variant: "nt",
        policy: "fp16->fp16",
        mutants: &[
            edit("matrices are not transposed", &[("order=(0, 2, 1)", "order=(0, 1, 2)")]),
            edit(
                "all groups have the first one's matrix",
                &[("ct.load(B, (group, k, j), (1, TK, TN), order", "ct.load(B, (0, k, j), (1, TK, TN), order")],
            ),
        ],
        ..CASE
    },
];
