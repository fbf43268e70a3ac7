//! Broken matrix products.

use tessera_ops::Argument;

use super::{Case, edit, one_block_short, relaunch, set};

/// Ragged in every direction: three blocks of rows, three steps of K.
const RAGGED: &[(&str, u64)] = &[("batch", 1), ("m", 257), ("n", 65), ("k", 130)];

const STEP: &str = "acc = add_product(a, b, acc, COMPUTE)";
const PRODUCT: &str = "return ct.mma(a.astype(COMPUTE), b.astype(COMPUTE), acc)";
const START: &str = "acc = ct.zeros((TM, TN), ACC)";
const SCALED: &str = "out = acc * ct.astype(alpha, ACC)";
const BLEND: &str = "out = out + c.astype(ACC) * ct.astype(beta, ACC)";

pub(super) const CASES: &[Case] = &[
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the last K tile is dropped", &[("range(ct.cdiv(K, TK))", "range(K // TK)")]),
            edit("the result is 2 % too large", &[(SCALED, "out = acc * ct.astype(alpha, ACC) * 1.02")]),
            edit("B is read one K tile late", &[("b = load_b(B, k, j,", "b = load_b(B, k + 1, j,")]),
            edit("blocks of rows are swapped", &[("ct.store(C, (i, j),", "ct.store(C, (ct.num_blocks(0) - 1 - i, j),")]),
            relaunch("the last block of rows is not launched", one_block_short),
            edit("C is read though beta is 0", &[("if beta != 0.0:", "if True:")]),
            edit("the padding is NaN", &[("ct.PaddingMode.ZERO", "ct.PaddingMode.NAN")]),
            edit("only the last K tile is kept", &[(STEP, "acc = add_product(a, b, acc * 0.0, COMPUTE)")]),
            edit("the sum starts at 1", &[(START, "acc = ct.ones((TM, TN), ACC)")]),
            edit(
                "products are taken in bfloat16",
                &[(PRODUCT, "return ct.mma(a.astype(ct.bfloat16), b.astype(ct.bfloat16), acc)")],
            ),
            relaunch("K is one short", |plan| set(plan, "K", Argument::Int(128))),
        ],
    },
    Case {
        operator: "gemm",
        extents: &[("batch", 1), ("m", 100), ("n", 100), ("k", 100)],
        variant: "nt",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("transposition is ignored", &[("order=(1, 0), ", "")]),
            relaunch("A is transposed too", |plan| set(plan, "TRANSPOSE_A", Argument::Bool(true))),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "fp16",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("sums are kept in the storage type", &[(START, "acc = ct.zeros((TM, TN), ct.float16)")])],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "fp8_e4m3@accum(fp32)",
        data: |plan| plan,
        text: &[],
        mutants: &[edit(
            "one of 256 codes is off by a bit",
            &[(STEP, "acc = add_product(ct.where(a.astype(ACC) == 1.0, 1.125, a.astype(ACC)).astype(a.dtype), b, acc, COMPUTE)")],
        )],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "int8",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("sums wrap at 16 bits", &[(STEP, "acc = add_product(a, b, acc, COMPUTE).astype(ct.int16).astype(ct.int32)")]),
            edit("operands are taken as unsigned", &[(".astype(COMPUTE)", ".astype(ct.uint8)")]),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "fp32@3xtf32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the low parts of A are dropped", &[("        acc = ct.mma(a_low, b_high, acc)\n", "")]),
            edit("the low parts of B are dropped", &[("        acc = ct.mma(a_high, b_low, acc)\n", "")]),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn",
        policy: "fp32@3xbf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("the low parts of A are dropped", &[("        acc = ct.mma(a_low, b_high, acc)\n", "")]),
            edit("low parts are of the wrong sign", &[("(x - high.astype(x.dtype))", "(high.astype(x.dtype) - x)")]),
        ],
    },
    Case {
        operator: "gemm",
        extents: &[("batch", 3), ("m", 65), ("n", 70), ("k", 40)],
        variant: "nn",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("every matrix is multiplied by the first B", &[("load_of_batch(B, n, k, j", "load_of_batch(B, 0, k, j")]),
            relaunch("the last matrix is not launched", |plan| plan.launches[0].grid[2] -= 1),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn alpha=2 beta=0.5",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("alpha is dropped", &[(SCALED, "out = acc")]),
            edit("alpha scales the old values too", &[(BLEND, "out = out + c.astype(ACC) * ct.astype(alpha * beta, ACC)")]),
            edit("beta scales the product", &[(BLEND, "out = out * ct.astype(beta, ACC) + c.astype(ACC)")]),
            edit("beta is dropped", &[(BLEND, "out = out + c.astype(ACC)")]),
            edit("the old values are not added", &[("if beta != 0.0:", "if beta == 0.0:")]),
            edit("the old values are a block off", &[("ct.load(C, (i, j)", "ct.load(C, (i + 1, j)")]),
            relaunch("beta is 0", |plan| set(plan, "beta", Argument::Float(0.0))),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "tn alpha=0.5",
        policy: "bf16",
        data: |plan| plan,
        text: &[],
        mutants: &[
            edit("C is read though beta is 0", &[("if beta != 0.0:", "if True:")]),
            relaunch("alpha is 1", |plan| set(plan, "alpha", Argument::Float(1.0))),
        ],
    },
    Case {
        operator: "gemm",
        extents: RAGGED,
        variant: "nn alpha=3 beta=-2",
        policy: "int8",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("beta is dropped", &[(BLEND, "out = out + c.astype(ACC)")])],
    },
    Case {
        operator: "gemm",
        extents: &[("batch", 3), ("m", 65), ("n", 70), ("k", 40)],
        variant: "nn alpha=0.3 beta=-0.7",
        policy: "fp32",
        data: |plan| plan,
        text: &[],
        mutants: &[edit("every matrix has the old values of the first", &[("ct.load(C, (n, i, j)", "ct.load(C, (0, i, j)")])],
    },
];
