//! Broken losses of linear layers, and their gradients.

use tessera_ops::{Fill, Plan};

use super::{Case, edit, one_block_short, relaunch};

/// Several tiles of tokens, parts of several tiles of classes, and three strips, all ragged.
const SEVERAL: &[(&str, u64)] = &[("tokens", 257), ("vocab", 3000), ("dim", 24)];
const FEW: &[(&str, u64)] = &[("tokens", 40), ("vocab", 5), ("dim", 8)];

/// Every second label is the one to ignore.
fn half_ignored(mut plan: Plan) -> Plan {
    let labels = plan.tensors.iter_mut().find(|tensor| tensor.name == "labels").expect("there are labels");
    labels.fill = Fill::Integers { least: 0, greatest: 1 };
    plan
}

const fn case(operator: &'static str, policy: &'static str, mutants: &'static [super::Mutant]) -> Case {
    Case { operator, extents: SEVERAL, variant: "", policy, data: |plan| plan, text: &[], mutants }
}

const fn ignoring(operator: &'static str, mutants: &'static [super::Mutant]) -> Case {
    Case { operator, extents: FEW, variant: "ignore_index=1", policy: "fp32", data: half_ignored, text: &[], mutants }
}

pub(super) const CASES: &[Case] = &[
    case(
        "linear_cross_entropy",
        "fp32",
        &[
            edit(
                "sums are not moved to what is largest now",
                &[("total = total * power(most - top, ACC) + ct.sum", "total = total + ct.sum")],
            ),
            edit("a class behind the last one takes part", &[("ct.where(number < count, s", "ct.where(number <= count, s")]),
            edit("the last tile of classes is left out", &[("ct.cdiv(count, TN))", "count // TN)")]),
            edit("the last step is dropped", &[("range(ct.cdiv(x.shape[1], TK))", "range(x.shape[1] // TK)")]),
            edit("the label's neighbour is taken", &[("ct.where(number == label, s", "ct.where(number == label + 1, s")]),
            edit("parts are added as they are", &[(" * power(tops - top, ACC), axis=1", ", axis=1")]),
            relaunch("the last tokens are left out", one_block_short),
        ],
    ),
    case("linear_cross_entropy", "bf16", &[]),
    ignoring(
        "linear_cross_entropy",
        &[edit("tokens to ignore have a loss", &[("ct.where(label == ignore_index, 0.0, y - own)", "y - own")])],
    ),
    case(
        "linear_cross_entropy_backward",
        "fp32",
        &[
            edit("the label has no part", &[(" - ct.where(number == label, d, 0.0)", "")]),
            edit("the cotangent of lse has no part", &[("(d + column(dlse, i, TM))", "d")]),
            edit(
                "the last strip alone gives dx",
                &[("acc = ct.load(sums, (i, j), (TM, TN), padding_mode=ZERO).astype(ACC)", "acc = ct.zeros((TM, TN), ACC)")],
            ),
            edit("all strips meet the first classes", &[("ct.load(weight, (first + k, j)", "ct.load(weight, (k, j)")]),
            edit("all strips give the first rows", &[("ct.store(dweight, (first + i, j)", "ct.store(dweight, (i, j)")]),
            edit("the last tokens give no dweight", &[("range(ct.cdiv(x.shape[0], TK))", "range(x.shape[0] // TK)")]),
        ],
    ),
    case("linear_cross_entropy_backward", "bf16", &[]),
    ignoring(
        "linear_cross_entropy_backward",
        &[edit(
            "tokens to ignore have a gradient",
            &[("d = ct.where(label == ignore_index, 0.0, column(dloss, i, TM))", "d = column(dloss, i, TM)")],
        )],
    ),
];
