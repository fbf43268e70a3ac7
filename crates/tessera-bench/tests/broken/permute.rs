//! Broken permutations.

use super::{Case, edit, one_block_short, relaunch, set};
use tessera_ops::Argument;

const EXTENTS: &[(&str, u64)] = &[("a", 3), ("b", 5), ("c", 70), ("d", 130)];

pub(super) const CASES: &[Case] = &[Case {
    operator: "permute",
    extents: EXTENTS,
    variant: "1032",
    policy: "bf16",
    data: |plan| plan,
    text: &[],
    mutants: &[
        edit("tiles stay where they were", &[("(at[P_0], at[P_1], at[P_2], at[P_3])", "at")]),
        edit("tiles are not turned", &[("(P_0, P_1, P_2, P_3)))", "(P_0, P_1, P_3, P_2)))")]),
        edit("planes are counted wrong", &[("planes % tiles_2", "planes % (tiles_2 + 1)")]),
        relaunch("the first two axes stay", |plan| {
            set(plan, "P_0", Argument::Int(0));
            set(plan, "P_1", Argument::Int(1));
        }),
        relaunch("the last block is not launched", one_block_short),
    ],
}];
