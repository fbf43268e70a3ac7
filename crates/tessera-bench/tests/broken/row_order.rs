//! Broken running sums, selections and sorts.

use tessera_ops::{Fill, Machine, Plan, Problem};
use tessera_types::Arch;

use super::{Case, edit};

/// Small integers, so that many elements are equal.
fn equal_ones(mut plan: Plan) -> Plan {
    plan.tensors[0].fill = Fill::Integers { least: -9, greatest: 9 };
    plan
}

/// A row that several blocks of a GPU share.
const LONG: &[(&str, u64)] = &[("rows", 2), ("n", 33_000)];

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "cumsum",
        extents: &[("rows", 33), ("n", 130)],
        variant: "",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "sums run the other way",
                &[(
                    "reverse=BACK).astype(y.dtype))\n\n\n@tessera.kernel(num_warps=8)\ndef cumsum_sums",
                    "reverse=not BACK).astype(y.dtype))\n\n\n@tessera.kernel(num_warps=8)\ndef cumsum_sums",
                )],
            ),
            edit(
                "an element is not part of its own sum",
                &[(
                    "ct.store(y, (i, 0), ct.cumsum(v, axis=1, reverse=BACK)",
                    "ct.store(y, (i, 0), (ct.cumsum(v, axis=1, reverse=BACK) - v)",
                )],
            ),
        ],
    },
    Case {
        operator: "cumsum",
        extents: LONG,
        variant: "reverse",
        policy: "fp32",
        data: |_| {
            let operator = tessera_ops::find("cumsum").expect("an operator of the library");
            let policy = "fp32".parse().expect("a policy of the grammar");
            operator.plan(&Problem::new(LONG, "reverse"), policy, Machine::Gpu(Arch::Sm80)).expect("a plan")
        },
        text: &[],
        mutants: &[
            edit(
                "the parts before are those behind",
                &[("number > part if BACK else number < part", "number < part if BACK else number > part")],
            ),
            edit("a part counts itself", &[("number > part if BACK", "number >= part if BACK")]),
        ],
    },
    Case {
        operator: "top_k",
        extents: &[("rows", 5), ("n", 1000), ("k", 20)],
        variant: "largest",
        policy: "fp32",
        data: equal_ones,
        text: &[],
        mutants: &[
            edit(
                "the last of equal elements is taken",
                &[("ct.cumsum(equal, axis=1) <= left", "ct.cumsum(equal, axis=1, reverse=True) <= left")],
            ),
            edit(
                "equal elements change places",
                &[("(number[None, :] < number[:, None])", "(number[None, :] > number[:, None])")],
            ),
        ],
    },
    Case {
        operator: "sort_rows",
        extents: &[("rows", 5), ("n", 1000)],
        variant: "ascending",
        policy: "fp32",
        data: equal_ones,
        text: &[],
        mutants: &[
            edit(
                "equal elements of the right run come first",
                &[
                    ("(found == key) & (own % 2 == 1)", "(found == key) & is_left"),
                    ("((found == key) & is_left)", "((found == key) & (own % 2 == 1))"),
                ],
            ),
            edit(
                "equal elements of a run change places",
                &[("number[None, :] < number[:, None], (1, RUN, RUN)", "number[None, :] > number[:, None], (1, RUN, RUN)")],
            ),
            edit("negative keys run the wrong way", &[("ct.where(bits < 0, bits ^ most, bits)", "bits")]),
            edit("the search ends a step early", &[("range(steps)", "range(steps - 1)")]),
        ],
    },
    Case {
        operator: "top_k_backward",
        extents: &[("rows", 5), ("n", 1000), ("k", 50)],
        variant: "largest",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "what is not chosen is not cleared",
                &[("ct.zeros((ROWS, COLUMNS), dx.dtype)", "ct.full((ROWS, COLUMNS), 1.0, dx.dtype)")],
            ),
            edit("the last cotangent is left out", &[("(at < dvalues.shape[1])", "(at < dvalues.shape[1] - 1)")]),
        ],
    },
    Case {
        operator: "sort_rows_backward",
        extents: &[("rows", 5), ("n", 1000)],
        variant: "ascending",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "cotangents stay in order",
            &[("ct.scatter(dx, (row, to), v, mask=(row", "ct.scatter(dx, (row, at), v, mask=(row")],
        )],
    },
];
