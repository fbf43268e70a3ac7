//! Broken products of factors with scales.

use super::{Case, edit, one_block_short, relaunch};

/// Ragged rows of both factors, and a last tile of the contraction that is not full.
const WEIGHTS: &[(&str, u64)] = &[("m", 33), ("n", 130), ("k", 320), ("group", 64)];
/// So many rows of x that weights are scaled.
const MANY: &[(&str, u64)] = &[("m", 65), ("n", 130), ("k", 320), ("group", 64)];
/// Three bands and blocks of scales.
const SCALED: &[(&str, u64)] = &[("m", 65), ("n", 300), ("k", 384)];

const STEP: &str = "acc = acc + p * scale";

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "linear_w4",
        extents: WEIGHTS,
        variant: "zeros",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit(
                "all groups have the first one's scales",
                &[("ct.transpose(ct.load(S, (k, j)", "ct.transpose(ct.load(S, (0, j)")],
            ),
            edit("zero points are dropped", &[("numbers * step - zero", "numbers * step")]),
            edit("zero points are added", &[("numbers * step - zero", "numbers * step + zero")]),
            edit("all groups have the first one's zero points", &[("of_groups(Z, j, g,", "of_groups(Z, j, 0,")]),
            edit("the halves of words are swapped", &[(">> 16 * both", ">> 16 * (1 - both)")]),
            edit("bytes of a half are turned around", &[("words >> 8 * both", "words >> 8 * (1 - both)")]),
            edit("a bit of the next code is taken", &[("0x000f000f <<", "0x001f001f <<")]),
            edit("upper codes of a byte count as lower ones", &[("0x7f00 - 0x0200 * both", "0x7f00 + 0 * both")]),
            edit(
                "sums are scaled with the groups before",
                &[("return acc + ct.mma(w, a, ct.zeros((TN, TM), ct.float32)) * s", "return ct.mma(w, a, acc) * s")],
            ),
            edit(
                "columns lie as they do in words",
                &[("permute((0, 2, 1, 4, 5, 6, 3, 7))", "permute((0, 2, 1, 3, 4, 5, 6, 7))")],
            ),
            edit("the last tile of the contraction is dropped", &[("range(ct.cdiv(K, TK))", "range(ct.cdiv(K, TK) - 1)")]),
            relaunch("the last rows are not computed", one_block_short),
        ],
    },
    Case {
        operator: "linear_w4",
        extents: WEIGHTS,
        variant: "symmetric",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the zero is 7", &[("zero = 8.0 *", "zero = 7.0 *")]),
            edit("scales are dropped", &[("ct.float32)) * s", "ct.float32))")]),
            edit("codes count from 0", &[("1024.0 * step + zero", "zero")]),
            edit(
                "sums are kept in x's type",
                &[("ct.mma(w, a, ct.zeros((TN, TM), ct.float32))", "ct.mma(w, a, ct.zeros((TN, TM), ct.float16))")],
            ),
        ],
    },
    Case {
        operator: "linear_w4",
        extents: MANY,
        variant: "zeros",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("all groups have the first one's scales", &[("s = ct.load(S, (k, j)", "s = ct.load(S, (0, j)")]),
            edit("rows of a line are exchanged with chunks of columns", &[("permute((0, 2, 1, 4,", "permute((0, 1, 2, 4,")]),
            edit("scales are those of codes", &[(" / unit(x.dtype)), TN", "), TN")]),
            edit(
                "zero points are those of numbers",
                &[("zero = of_groups(Z, j, k, TN, TK, GROUP) * unit(x.dtype)", "zero = of_groups(Z, j, k, TN, TK, GROUP)")],
            ),
        ],
    },
    Case {
        operator: "gemm_scaled",
        extents: SCALED,
        variant: "blocks",
        policy: "fp8_e4m3->bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("all blocks have the first one's scales of A", &[("ct.load(SA, (i, k)", "ct.load(SA, (i, 0)")]),
            edit("all bands have the first one's scales", &[("(j * TN // BLOCK, k)", "(0, k)")]),
            edit("scales of B are dropped", &[("EXCHANGED else sa * sb", "EXCHANGED else sa")]),
            edit("sums are scaled with the blocks before", &[(STEP, "acc = (acc + p) * scale")]),
            edit("the last block is dropped", &[("range(ct.cdiv(K, BLOCK))", "range(ct.cdiv(K, BLOCK) - 1)")]),
        ],
    },
    Case {
        operator: "gemm_scaled",
        extents: SCALED,
        variant: "rows",
        policy: "fp8_e4m3->fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("scales of rows go to columns", &[(".reshape((TM, 1))", ".reshape((1, TM))")]),
            edit("all columns have the first tile's scales", &[("ct.load(SB, (j,)", "ct.load(SB, (0,)")]),
            edit(
                "results are rounded to bfloat16",
                &[("EXCHANGED else out).astype", "EXCHANGED else out).astype(ct.bfloat16).astype")],
            ),
        ],
    },
    Case {
        operator: "gemm_scaled",
        extents: SCALED,
        variant: "tensor",
        policy: "fp8_e5m2->fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("a scale is dropped", &[("acc * (sa * sb), EXCHANGED", "acc * sa, EXCHANGED")])],
    },
];
