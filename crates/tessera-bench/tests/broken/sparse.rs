//! Broken scans, sorts, and operators of sparse matrices.

use tessera_ops::{Machine, Plan, Problem};
use tessera_types::Arch;

use super::{Case, edit, one_block_short, relaunch};

/// Three blocks, the last one ragged.
const SCANNED: &[(&str, u64)] = &[("n", 40_000)];
/// Of 4000 elements a matrix of some 4 a row.
const MATRIX: &[(&str, u64)] = &[("m", 997), ("n", 1000), ("elements", 4100)];
const WITH_COLUMNS: &[(&str, u64)] = &[("m", 97), ("n", 100), ("elements", 600), ("k", 20)];

const fn case(
    operator: &'static str,
    extents: &'static [(&'static str, u64)],
    variant: &'static str,
    policy: &'static str,
) -> Case {
    Case { operator, extents, variant, policy, data: |plan| plan, text: &[], mutants: &[] }
}

/// Rows that several warps share.
const SHARED: &[(&str, u64)] = &[("m", 30), ("n", 9000), ("elements", 40_000)];
/// As many elements as a GPU takes in equal parts.
const MERGED: &[(&str, u64)] = &[("m", 30), ("n", 3000), ("elements", 9000), ("k", 4)];

/// Rows of which threads take several elements at once.
const FULL: &[(&str, u64)] = &[("m", 97), ("n", 100), ("elements", 4000), ("k", 20)];

/// What a GPU does, in so many launches.
fn on_gpu(operator: &str, extents: &[(&'static str, u64)], launches: usize) -> Plan {
    let operator = tessera_ops::find(operator).expect("an operator of the library");
    let policy = "fp32".parse().expect("a policy of the grammar");
    let plan = operator.plan(&Problem::new(extents, "power_law"), policy, Machine::Gpu(Arch::Sm90a)).expect("a plan");
    assert_eq!(plan.launches.len(), launches, "{}", operator.name);
    plan
}

const STORED_BY_HALF: &[(&str, u64)] = &[("m", 70), ("n", 200), ("k", 260)];

/// A product of what is stored by half, as a target does it.
fn stored_by_half(arch: Arch) -> Plan {
    let operator = tessera_ops::find("sparse24_gemm").expect("an operator of the library");
    let policy = "fp16".parse().expect("a policy of the grammar");
    operator.plan(&Problem::new(STORED_BY_HALF, ""), policy, Machine::Gpu(arch)).expect("a plan")
}

pub(super) const CASES: &[Case] = &[
    Case {
        mutants: &[
            edit("blocks forget those before them", &[("(sums + first).astype", "sums.astype")]),
            edit(
                "a block counts its own elements twice",
                &[("+ ct.arange(GROUP, dtype=ct.int32) < end", "+ ct.arange(GROUP, dtype=ct.int32) <= end")],
            ),
            relaunch("a block is missing", one_block_short),
        ],
        ..case("prefix_sum", SCANNED, "inclusive", "fp32")
    },
    Case {
        mutants: &[
            edit(
                "the element itself is in its sum",
                &[("dtype=ct.int32) - 1\n        v = ct.gather", "dtype=ct.int32)\n        v = ct.gather")],
            ),
            edit("an integer loses its lowest bit", &[("(word - PRESENT)", "((word - PRESENT) // 2 * 2)")]),
        ],
        ..case("prefix_sum", SCANNED, "exclusive", "int32")
    },
    Case {
        mutants: &[
            edit("only positive marks count", &[("padding_mode=ZERO) != 0", "padding_mode=ZERO) > 0")]),
            edit("elements go one place too far", &[("first + sums - 1, v, mask=kept", "first + sums, v, mask=kept")]),
            edit(
                "the last block's elements are not counted",
                &[("ct.store(count, (0,), first + total)", "ct.store(count, (0,), first)")],
            ),
        ],
        ..case("masked_select", SCANNED, "", "bf16")
    },
    Case {
        mutants: &[
            edit("negative keys come last", &[("own = own ^ (DIGITS // 2)", "own = own ^ 0")]),
            edit("digits come in another order", &[("(BITS * PASS)", "(BITS * (PASS ^ 1))")]),
            edit(
                "a block leaves what is before it as where it ends",
                &[("(before + total) |", "(before + (total if PASS < 3 else 0)) |")],
            ),
            edit("digits have seven bits", &[("& (DIGITS - 1)", "& (DIGITS // 2 - 1)")]),
        ],
        ..case("sort", &[("n", 20_011)], "keys", "int32")
    },
    Case {
        mutants: &[
            edit("floats are sorted as integers", &[("bits ^ ((bits >> 31) & LARGEST)", "bits")]),
            edit("places are those within a tile", &[("moved_values[rank[e]], start + own", "moved_values[rank[e]], own")]),
        ],
        ..case("sort", &[("n", 20_011)], "order", "fp32")
    },
    Case {
        mutants: &[
            edit("the first element of a row is left out", &[("i = first + lane", "i = first + lane + 1")]),
            edit("a column is its neighbour", &[("x[column[e]]", "x[tile.max(column[e] - 1, 0)]")]),
            edit("the last elements of a row are left out", &[("i += BATCH * LANES", "i = end")]),
        ],
        ..case("spmv", MATRIX, "power_law", "fp32")
    },
    Case {
        data: |_| on_gpu("spmv", SHARED, 1),
        mutants: &[
            edit("other pieces of a row are left out", &[("piece, ACC) + total", "piece, ACC) * 0 + total")]),
            edit(
                "the piece before is left out",
                &[("(first + LONG - 1) // LONG, piece,", "(first + LONG - 1) // LONG, piece - 1,")],
            ),
            edit("what stands before the first piece is left out", &[("first if first > at - LONG else at", "at")]),
            edit("the warp's rows are their first elements", &[("own_end, lane, 32", "own_first + 32, lane, 32")]),
        ],
        ..case("spmv", SHARED, "power_law", "fp32")
    },
    Case {
        data: |_| on_gpu("spmm", MERGED, 3),
        mutants: &[
            edit(
                "tails are not joined",
                &[("tile.cast(total + heads[part, column], C.dtype)", "tile.cast(heads[part, column], C.dtype)")],
            ),
            edit("the first tail is left out", &[("// SIZE, part)", "// SIZE + 1, part)")]),
        ],
        ..case("spmm", MERGED, "power_law", "fp32")
    },
    Case {
        mutants: &[
            edit("the last element is left out", &[("if i + step < end:", "if i + step < end - 1:")]),
            edit(
                "elements have the row of their first neighbour",
                &[("B[source[step], column + e]", "B[source[0], column + e]")],
            ),
            edit("the last element is added again", &[("if i + step < end:", "if i < end:")]),
        ],
        ..case("spmm", WITH_COLUMNS, "uniform", "fp32")
    },
    Case {
        data: |_| on_gpu("sddmm", FULL, 1),
        mutants: &[
            edit("the row is the one before", &[("A[row, k + v]", "A[tile.max(row - 1, 0), k + v]")]),
            edit(
                "lanes add what they keep twice",
                &[("tile.shuffle_xor(given, LANES // 2)", "tile.shuffle_xor(kept, LANES // 2)")],
            ),
            edit("half of the product is left out", &[("A.shape[1], LANES * VECTOR)", "A.shape[1] // 2, LANES * VECTOR)")]),
        ],
        ..case("sddmm", FULL, "power_law", "fp32")
    },
    Case {
        mutants: &[
            edit("elements belong to the row before", &[("STEPS, True) - 1)", "STEPS, False) - 1)")]),
            relaunch("a block is missing", one_block_short),
        ],
        ..case("csr_to_coo", MATRIX, "uniform", "int32")
    },
    Case {
        mutants: &[
            edit("rows begin behind their elements", &[("rows.shape[0], STEPS, False)", "rows.shape[0], STEPS, True)")]),
            relaunch("a block is missing", one_block_short),
        ],
        ..case("coo_to_csr", MATRIX, "uniform", "int32")
    },
    Case {
        mutants: &[
            edit(
                "rows are not moved",
                &[("ct.gather(rows, place)", "ct.gather(rows, i * TILE + ct.arange(TILE, dtype=ct.int32))")],
            ),
            edit("columns begin behind their elements", &[("rows.shape[0], STEPS, False)", "rows.shape[0], STEPS, True)")]),
        ],
        ..case("csr_to_csc", MATRIX, "uniform", "fp32")
    },
    Case {
        mutants: &[
            edit("columns are places", &[("index % N, mask=kept", "index, mask=kept")]),
            edit("rows begin behind their first element", &[("place + 1 - ones", "place + 1")]),
            edit("zeros behind the elements are left out", &[("mask=place >= used", "mask=place > used")]),
        ],
        ..case("dense_to_csr", &[("m", 97), ("n", 300), ("elements", 29_000)], "", "fp32")
    },
    Case {
        mutants: &[
            edit("elements belong to the row before", &[("STEPS, True) - 1\n    inside", "STEPS, False) - 1\n    inside")]),
            edit("what was there stays", &[("ct.zeros((TILE,), y.dtype)", "ct.load(y, (ct.bid(0),), (TILE,))")]),
        ],
        ..case("csr_to_dense", MATRIX, "banded", "fp32")
    },
    Case {
        mutants: &[
            edit("of equal ones the last stand", &[("ct.bitcast(a, BITS) << 1) >= (", "ct.bitcast(a, BITS) << 1) > (")]),
            edit("signs count", &[("(ct.bitcast(b, BITS) << 1)", "ct.bitcast(b, BITS)")]),
            edit("the third one is never stored second", &[("ct.where(keep_c, 2, 1)", "ct.where(keep_c, 1, 2)")]),
            edit("words begin with the second place", &[("first | second << 2", "second | first << 2")]),
            relaunch("a block is missing", one_block_short),
        ],
        ..case("sparse24_compress", &[("m", 33), ("k", 1028)], "", "bf16")
    },
    Case {
        mutants: &[
            edit("the second value stands in the first one's place", &[("pair >> 2 & 3", "pair & 3")]),
            edit("words are read from their highest bits", &[("words >> 4 * ct.arange(8", "words >> 28 - 4 * ct.arange(8")]),
        ],
        ..case("sparse24_expand", &[("m", 33), ("k", 1028)], "", "fp16")
    },
    Case {
        mutants: &[
            edit("rows of a warp have the places of others", &[("words[i, step // 32]", "words[i ^ 16, step // 32]")]),
            edit(
                "the lower half of the right factor is the upper one",
                &[("below_0, right[slot * STEPS + step + 16, own]", "below_0, right[slot * STEPS + step, own]")],
            ),
            edit("every round has the places of the first one", &[("places[row + t, k // 32], 2", "places[row + t, 0], 2")]),
            edit("rounds go on with the first slot", &[("slot = slot + 1 if", "slot = slot if")]),
            edit("half of a warp's columns are stored", &[("if strip == own + 16:", "if strip == own + 128:")]),
            edit("the last rows are left out", &[("row + i < C.shape[0]", "row + i + 1 < C.shape[0]")]),
            relaunch("a block of the product is missing", |plan| plan.launches[3].grid[0] -= 1),
            relaunch("rows behind the first tile are not copied", |plan| plan.launches[0].grid[0] = 1),
        ],
        data: |_| stored_by_half(Arch::Sm80),
        ..case("sparse24_gemm", STORED_BY_HALF, "", "fp16")
    },
    Case {
        mutants: &[
            edit("every round has the places of the first one", &[("ct.load(places, (i, k)", "ct.load(places, (i, 0)")]),
            edit("every block has the places of the first rows", &[("ct.load(places, (i, k)", "ct.load(places, (0, k)")]),
            edit(
                "values of a round are those of the one before",
                &[("ct.load(values, (i, k)", "ct.load(values, (i, max(k - 1, 0))")],
            ),
            edit("the last round is left out", &[("range(ct.cdiv(K, TK)):\n        a = ", "range(K // TK):\n        a = ")]),
            relaunch("a block is missing", one_block_short),
        ],
        ..case("sparse24_gemm", &[("m", 150), ("n", 300), ("k", 260)], "", "bf16")
    },
];
