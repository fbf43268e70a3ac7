//! Broken linear layers.

use super::{Case, edit, one_block_short, relaunch, set};
use tessera_ops::Argument;

/// Ragged in every direction: three blocks of rows, three steps of the contraction.
const RAGGED: &[(&str, u64)] = &[("rows", 257), ("out", 65), ("in", 130)];

const fn case(variant: &'static str, policy: &'static str, mutants: &'static [super::Mutant]) -> Case {
    Case { operator: "linear", extents: RAGGED, variant, policy, data: |plan| plan, text: &[], mutants }
}

pub(super) const CASES: &[Case] = &[
    case(
        "gelu",
        "fp32",
        &[
            edit("the bias is left out", &[("return t + ct.load(bias", "return t + 0.0 * ct.load(bias")]),
            edit("the bias is the next block's", &[("ct.load(bias, (j,)", "ct.load(bias, (j + 1,)")]),
            edit("the cubic term is left out", &[(" + (scale * 0.044715) * (t * t)", "")]),
            edit("GELU of the wrong power", &[("LOG2_E = 1.4426950408889634", "LOG2_E = 1.45")]),
            edit("the last step is dropped", &[("range(ct.cdiv(K, TK))", "range(K // TK)")]),
            relaunch("SiLU instead of GELU", |plan| set(plan, "ACT", Argument::Int(3))),
            relaunch("the last block of rows is not launched", one_block_short),
        ],
    ),
    case(
        "relu",
        "bf16->bf16",
        &[edit("what is negative leaks", &[("ct.maximum(t, 0.0, propagate_nan=True)", "ct.maximum(t, 0.01 * t)")])],
    ),
    case(
        "residual",
        "fp32",
        &[
            edit(
                "the residual is left out",
                &[("out = activated(out, ACT) + ct.load", "out = activated(out, ACT) + 0.0 * ct.load")],
            ),
            edit(
                "the residual of other rows",
                &[("ct.load(residual, (i, j)", "ct.load(residual, (ct.num_blocks(0) - 1 - i, j)")],
            ),
        ],
    ),
    case(
        "swiglu",
        "fp32",
        &[
            edit("gate and up are swapped", &[("activated(gates, ACT) * ups", "gates * activated(ups, ACT)")]),
            edit("up is a step late", &[("load_weight(up, k, j", "load_weight(up, k + 1, j")]),
            edit("up is added", &[("activated(gates, ACT) * ups", "activated(gates, ACT) + ups")]),
        ],
    ),
];
