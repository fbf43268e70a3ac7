//! Broken streams.

use tessera_ops::{Fill, Plan};

use super::{Case, edit, one_block_short, relaunch};

const BYTES: &[(&str, u64)] = &[("bytes", 100_000)];

/// Integers that no narrower type holds.
fn large_integers(mut plan: Plan) -> Plan {
    plan.tensors.iter_mut().for_each(|tensor| tensor.fill = Fill::Integers { least: -(1 << 30), greatest: 1 << 30 });
    plan
}

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "bandwidth",
        extents: BYTES,
        variant: "copy sequential",
        policy: "int32",
        data: large_integers,
        text: &[],
        mutants: &[
            edit(
                "integers go through f32",
                &[("ct.load(a, (i,), (TILE,)))", "ct.load(a, (i,), (TILE,)).astype(ct.float32).astype(ct.int32))")],
            ),
            edit(
                "the source is cleared",
                &[(
                    "ct.load(a, (i,), (TILE,)))",
                    "ct.load(a, (i,), (TILE,)))\n    ct.store(a, (i,), ct.zeros((TILE,), a.dtype))",
                )],
            ),
            edit(
                "the copy is reversed within tiles",
                &[("ct.load(a, (i,), (TILE,)))", "ct.gather(a, i * TILE + TILE - 1 - ct.arange(TILE, dtype=ct.int32)))")],
            ),
            relaunch("the tail is not copied", one_block_short),
        ],
    },
    Case {
        operator: "bandwidth",
        extents: BYTES,
        variant: "scale strided_2",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "the scalar is applied twice",
            &[("(v * ct.astype(scalar, ACC))", "(v * ct.astype(scalar * scalar, ACC))")],
        )],
    },
    Case {
        operator: "bandwidth",
        extents: BYTES,
        variant: "triad sequential",
        policy: "int8",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "overflow saturates",
                &[(
                    "(v + ct.astype(scalar, ACC) * w)",
                    "ct.minimum(ct.maximum(v.astype(ct.int32) + 3 * w.astype(ct.int32), -128), 127)",
                )],
            ),
            edit(
                "the scalar multiplies the other operand",
                &[("(v + ct.astype(scalar, ACC) * w)", "(v * ct.astype(scalar, ACC) + w)")],
            ),
        ],
    },
    Case {
        operator: "bandwidth",
        extents: BYTES,
        variant: "copy random",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the pattern is no permutation", &[("    return index\n", "    return index - index % 2\n")]),
            edit("the pattern is another permutation", &[("index * 0x2545F491", "index * 0x2545F493")]),
            edit("indices outside are not walked back", &[("axis=0) > 0:", "axis=0) > 1:")]),
        ],
    },
];
