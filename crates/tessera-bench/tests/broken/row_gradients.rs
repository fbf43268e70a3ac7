//! Broken gradients of norms and softmaxes, losses, and reductions.

use tessera_ops::{Argument, Fill, Machine, Plan, Problem};
use tessera_types::Arch;

use super::{Case, LOW, edit, normal, set};

/// Several tiles of rows, the last one ragged.
const NORM: &[(&str, u64)] = &[("batch", 3), ("sequence", 41), ("hidden", 1000)];
const ROWS: &[(&str, u64)] = &[("rows", 33), ("n", 130)];
const SCORES: &[(&str, u64)] = &[("batch", 1), ("heads", 2), ("queries", 100), ("keys", 130)];
/// Longer than a block's registers hold.
const LONG: &[(&str, u64)] = &[("rows", 3), ("n", 33_000)];

/// The plan of a GPU without clusters, which cuts long rows into pieces.
fn on_gpu(operator: &str, variant: &str) -> Plan {
    let operator = tessera_ops::find(operator).expect("an operator of the library");
    let policy = "fp32".parse().expect("a policy of the grammar");
    operator.plan(&Problem::new(LONG, variant), policy, Machine::Gpu(Arch::Sm80)).expect("a plan")
}

/// Rows of nine pieces, three of which a block takes.
fn in_three_parts(mut plan: Plan) -> Plan {
    ["TILES", "PARTS"].iter().for_each(|name| set(&mut plan, name, Argument::Int(3)));
    plan.launches[0].grid[1] = 3;
    plan
}

/// Every second label is the one to ignore.
fn half_ignored(mut plan: Plan) -> Plan {
    let labels = plan.tensors.iter_mut().find(|tensor| tensor.name == "labels").expect("there are labels");
    labels.fill = Fill::Integers { least: 0, greatest: 1 };
    plan
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "rms_norm_backward",
        extents: NORM,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "the row's statistics have no gradient",
                &[("[a * scale - b * slope for a, b in zip(g, h)]", "[a * scale for a in g]")],
            ),
            edit(
                "the weight has no part",
                &[("a.astype(ACC) * b.astype(ACC) for a, b in zip(dy, weight)", "a.astype(ACC) for a in dy")],
            ),
            edit(
                "the weight's gradient is of x as it is",
                &[(
                    "b.astype(ACC) * c for a, b, c in zip(sums, g, h)",
                    "b.astype(ACC) * c.astype(ACC) for a, b, c in zip(sums, g, v)",
                )],
            ),
            edit(
                "a block's last tile is left out",
                &[("ct.cdiv(x.shape[0], ROWS), STEP)", "ct.cdiv(x.shape[0], ROWS) - 1, STEP)")],
            ),
            edit(
                "parts of sums beyond the first ones are not added",
                &[
                    ("range(0, count, AT_ONCE)", "range(1)"),
                    ("k in range(AT_ONCE)", "k in range(1)"),
                    ("(min(i, count - 1), j), (PARTS, COLUMNS)", "(min(i, count - 1), j), (16, COLUMNS)"),
                    ("ct.zeros((PARTS, COLUMNS), parts.dtype)", "ct.zeros((16, COLUMNS), parts.dtype)"),
                ],
            ),
        ],
    },
    Case {
        operator: "layer_norm_backward",
        extents: NORM,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the mean has no gradient", &[("(b * slope + common)", "b * slope")]),
            edit("the row is not centred", &[("h = [v * scale for v in d]", "h = [v.astype(ACC) * scale for v in x]")]),
            edit(
                "the bias's gradient is times the normalised row",
                &[("a + b.astype(ACC) for a, b in zip(plain, g)", "a + b.astype(ACC) * c for a, b, c in zip(plain, g, h)")],
            ),
        ],
    },
    Case {
        operator: "layer_norm_backward",
        extents: NORM,
        variant: "",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "what a row is scaled by is rounded to bfloat16",
            &[(
                "scale = ct.rsqrt(squares * (1.0 / N) + eps)",
                "scale = ct.rsqrt(squares * (1.0 / N) + eps).astype(ct.bfloat16).astype(ACC)",
            )],
        )],
    },
    Case {
        operator: "softmax_backward",
        extents: SCORES,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the row's sum is not subtracted", &[("(dy.astype(ACC) - total)", "dy.astype(ACC)")]),
            edit("the sum is of cotangents alone", &[("else y.astype(ACC) * dy.astype(ACC)", "else dy.astype(ACC)")]),
        ],
    },
    Case {
        operator: "softmax_backward",
        extents: SCORES,
        variant: "causal",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the mask lets one key too many through", &[("<= query[:, None]", "<= query[:, None] + 1")]),
            edit("the second head's queries go on counting", &[(" % QUERIES", "")]),
        ],
    },
    Case {
        operator: "log_softmax",
        extents: ROWS,
        variant: "",
        policy: "fp32",
        data: |plan| normal(plan, 200.0, 1.0),
        text: &[],
        mutants: &[
            edit("the largest element is not subtracted", &[("d = v - ct.max(v, axis=1, keepdims=True)", "d = v")]),
            edit("the logarithm is to base 2", &[("ct.log(ct.sum(power(d", "ct.log2(ct.sum(power(d")]),
        ],
    },
    Case {
        operator: "log_softmax",
        extents: LONG,
        variant: "",
        policy: "fp32",
        data: |_| on_gpu("log_softmax", ""),
        text: &[],
        mutants: &[
            edit("sums of pieces are added as they are", &[("power(top - above, ACC) * sum", "sum")]),
            edit("the last piece's padding is counted", &[("-float(\"inf\")", "0.0")]),
        ],
    },
    Case {
        operator: "log_softmax",
        extents: LONG,
        variant: "",
        policy: "fp32",
        data: |_| normal(on_gpu("log_softmax", ""), LOW, 0.0),
        text: &[],
        mutants: &[edit("no element is that low", &[("-3.4028234663852886e38", "-3.0e38")])],
    },
    Case {
        operator: "log_softmax_backward",
        extents: ROWS,
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the result is taken for a probability", &[("power(y.astype(ACC), ACC) * total", "y.astype(ACC) * total")]),
            edit("the sum is left out", &[("- power(y.astype(ACC), ACC) * total", "")]),
        ],
    },
    Case {
        operator: "log_sum_exp",
        extents: LONG,
        variant: "",
        policy: "fp32",
        data: |_| in_three_parts(normal(on_gpu("log_sum_exp", ""), 100.0, 10.0)),
        text: &[],
        mutants: &[
            edit(
                "what was summed is not brought to the new largest element",
                &[("total * power(finite(most) - top, ACC)", "total")],
            ),
            edit("parts are added as they are", &[("all = below(parts, top, ACC) * ct.load", "all = ct.load")]),
        ],
    },
    Case {
        operator: "log_sum_exp",
        extents: LONG,
        variant: "",
        policy: "fp32",
        data: |_| in_three_parts(normal(on_gpu("log_sum_exp", ""), LOW, 0.0)),
        text: &[],
        mutants: &[edit("no element is that low", &[("ct.full(shape, -float(\"inf\"), ACC)", "ct.full(shape, 0.0, ACC)")])],
    },
    Case {
        operator: "cross_entropy",
        extents: ROWS,
        variant: "ignore_index=1",
        policy: "fp32",
        data: half_ignored,
        text: &[],
        mutants: &[
            edit("rows to ignore have a loss", &[("ct.where(label == ignore_index, 0.0, lse - own)", "lse - own")]),
            edit("the label's logit is the next class's", &[("ct.gather(x, (row, label))", "ct.gather(x, (row, label + 1))")]),
            edit(
                "logits come from a block's first rows",
                &[(
                    "row = rows_of(i, ROWS)\n    label = ct.gather(labels, row)\n",
                    "label = ct.gather(labels, rows_of(i, ROWS))\n    row = rows_of(0, ROWS)\n",
                )],
            ),
        ],
    },
    Case {
        operator: "cross_entropy_backward",
        extents: ROWS,
        variant: "ignore_index=1",
        policy: "fp32",
        data: half_ignored,
        text: &[],
        mutants: &[
            edit(
                "rows to ignore have a gradient",
                &[("ct.where(label == ignore_index, 0.0, column(dloss, i, ROWS))", "column(dloss, i, ROWS)")],
            ),
            edit("the label's column is as the others", &[("both - ct.where(own, d, 0.0)", "both")]),
            edit("the cotangent of lse is dropped", &[("(d + column(dlse, i, ROWS))", "d")]),
        ],
    },
    Case {
        operator: "reduce_rows",
        extents: LONG,
        variant: "max",
        policy: "fp32",
        data: |_| normal(on_gpu("reduce_rows", "max"), -100.0, 1.0),
        text: &[],
        mutants: &[
            edit(
                "the last piece's padding is counted",
                &[(
                    "return ct.load(x, index, shape, padding_mode=padding(OP)).astype(ACC)",
                    "return ct.load(x, index, shape, padding_mode=ZERO).astype(ACC)",
                )],
            ),
            edit("the largest elements start at 0", &[("ct.full(shape, -float(\"inf\"), ACC)", "ct.zeros(shape, ACC)")]),
        ],
    },
    Case {
        operator: "reduce_rows",
        extents: ROWS,
        variant: "norm",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("no root is taken", &[("return ct.sqrt(v)", "return v")]),
            edit("elements are not squared", &[("return v * v if", "return v if")]),
        ],
    },
    Case {
        operator: "reduce_columns",
        extents: &[("rows", 1000), ("n", 70)],
        variant: "mean",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("sums are not divided", &[("return v / count", "return v")]),
            edit(
                "a part alone is the result",
                &[(
                    "ct.load(partials, (i, j), (ROWS, COLUMNS), padding_mode=padding(OP))",
                    "ct.where(ct.arange(ROWS, dtype=ct.int32)[:, None] < 1, ct.load(partials, (i, j), (ROWS, COLUMNS), padding_mode=padding(OP)), 0.0)",
                )],
            ),
        ],
    },
    Case {
        operator: "arg_rows",
        extents: ROWS,
        variant: "min",
        policy: "fp32",
        data: |mut plan| {
            plan.tensors[0].fill = Fill::Integers { least: -3, greatest: 3 };
            plan
        },
        text: &[],
        mutants: &[
            edit("it is the largest element's place", &[("ct.argmin(v,", "ct.argmax(v,")]),
            edit(
                "of equal elements it is another one",
                &[("ct.argmin(v,", "ct.argmin(v - ct.arange(v.shape[1], dtype=ct.int32)[None, :].astype(v.dtype) * 1.0e-5,")],
            ),
        ],
    },
    Case {
        operator: "reduce_rows_backward",
        extents: ROWS,
        variant: "norm",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the root does not divide", &[("d / root", "d")]),
            edit(
                "it is the sum of squares' gradient",
                &[("factor = 2.0 * d if OP == \"sum_squares\" else", "factor = 2.0 * d if OP == \"norm\" else")],
            ),
        ],
    },
    Case {
        operator: "reduce_rows_backward",
        extents: ROWS,
        variant: "mean",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("it is the sum's", &[(" / ct.full((ROWS, 1), count, ACC)", " / ct.full((ROWS, 1), 1, ACC)")]),
            edit("all rows have the first ones' cotangents", &[("row_number(dy, i, ROWS) /", "row_number(dy, 0, ROWS) /")]),
        ],
    },
    Case {
        operator: "reduce_rows_backward",
        extents: ROWS,
        variant: "max",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("each has all of the cotangent", &[("share, others = d / count,", "share, others = d,")]),
            edit("others have it", &[("ct.where(v == top, share, others)", "ct.where(v == top, others, share)")]),
        ],
    },
];
