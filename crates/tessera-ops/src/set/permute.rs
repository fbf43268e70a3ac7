//! Axes in another order: transposes, heads before tokens, channels last. Nothing is computed; what counts are whole lines on both sides.
//!
//! A variant is the order: digit `i` says which axis of `x` is axis `i` of `y`, as NumPy's `transpose` takes it: `10`, `0213`. A problem has as many
//! extents as that has digits: `0213` those of `a`, `b`, `c` and `d`, `10` those of `c` and `d`.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{Policy, Storage};

use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::ladders;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static PERMUTE: Operator = Operator {
    name: "permute",
    about: "axes in another order: transposes, heads before tokens, channels last",
    file: "permute.py",
    source: include_str!("../../kernels/permute.py"),
    precisions: &["fp32", "bf16", "int8"],
    further_precisions: &["fp64", "fp16", "int32", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &ladders::TRANSPOSE,
};

/// Axes of a problem; arrays of fewer have the last of them.
const RANK: usize = 4;
const AXES: [&str; RANK] = ["a", "b", "c", "d"];

/// Orders of up to four axes that change something: the variant, the axes of `x`, and those of `y`.
const ORDERS: [(&str, &str, &str); 29] = [
    ("10", "c d", "d c"),
    ("021", "b c d", "b d c"),
    ("102", "b c d", "c b d"),
    ("120", "b c d", "c d b"),
    ("201", "b c d", "d b c"),
    ("210", "b c d", "d c b"),
    ("0132", "a b c d", "a b d c"),
    ("0213", "a b c d", "a c b d"),
    ("0231", "a b c d", "a c d b"),
    ("0312", "a b c d", "a d b c"),
    ("0321", "a b c d", "a d c b"),
    ("1023", "a b c d", "b a c d"),
    ("1032", "a b c d", "b a d c"),
    ("1203", "a b c d", "b c a d"),
    ("1230", "a b c d", "b c d a"),
    ("1302", "a b c d", "b d a c"),
    ("1320", "a b c d", "b d c a"),
    ("2013", "a b c d", "c a b d"),
    ("2031", "a b c d", "c a d b"),
    ("2103", "a b c d", "c b a d"),
    ("2130", "a b c d", "c b d a"),
    ("2301", "a b c d", "c d a b"),
    ("2310", "a b c d", "c d b a"),
    ("3012", "a b c d", "d a b c"),
    ("3021", "a b c d", "d a c b"),
    ("3102", "a b c d", "d b a c"),
    ("3120", "a b c d", "d b c a"),
    ("3201", "a b c d", "d c a b"),
    ("3210", "a b c d", "d c b a"),
];

const VARIANTS: [&str; ORDERS.len()] = {
    let mut variants = [""; ORDERS.len()];
    let mut at = 0;
    while at < ORDERS.len() {
        variants[at] = ORDERS[at].0;
        at += 1;
    }
    variants
};

/// The signatures of all orders, in their order.
static OPERANDS: [[[Operand; 1]; 2]; ORDERS.len()] = {
    let mut operands = [[[Operand("x", "")], [Operand("y", "")]]; ORDERS.len()];
    let mut at = 0;
    while at < ORDERS.len() {
        operands[at] = [[Operand("x", ORDERS[at].1)], [Operand("y", ORDERS[at].2)]];
        at += 1;
    }
    operands
};

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("10"),
    signature: |variant| {
        // A call names one of the variants.
        let at = VARIANTS.iter().position(|own| *own == variant).unwrap_or_else(|| panic!("no order `{variant}`"));
        let [inputs, outputs] = &OPERANDS[at];
        Signature::new(inputs, outputs)
    },
    problem: |sizes| {
        // An axis that the arrays lack has extent 1.
        let lacking = RANK - sizes.variant.len();
        let extents = std::array::from_fn(|axis| if axis < lacking { 1 } else { sizes.get(AXES[axis]) });
        Ok(problem(extents, sizes.variant))
    },
};

/// Of the extents of four axes those that the variant has.
fn problem(extents: [u64; RANK], variant: &str) -> Problem {
    let named: Vec<_> = AXES.into_iter().zip(extents).collect();
    Problem::new(&named[RANK - variant.len()..], variant)
}

/// The extents of four axes, of which those that the variant lacks are 1.
fn extents(problem: &Problem) -> Result<[u64; RANK], Unsupported> {
    let lacking = RANK - problem.variant.len();
    let own: Vec<&str> = problem.extents.iter().map(|(name, _)| *name).collect();
    if own != AXES[lacking..] {
        let [wanted, given] = [&AXES[lacking..], &own].map(|names| names.join(", "));
        return Err(Unsupported(format!("`{}` is an order of the axes {wanted}, not {given}", problem.variant)));
    }
    Ok(std::array::from_fn(|axis| if axis < lacking { 1 } else { problem.get(AXES[axis]) }))
}

/// Matrices, heads of attention before tokens and back, channels of images last and back.
fn further_suite() -> Vec<Problem> {
    let mut cases: Vec<_> = [1024, 4096, 8192, 16384].map(|n| problem([1, 1, n, n], "10")).into();
    cases.push(problem([1, 1, 1 << 20, 3], "10"));
    cases.push(problem([1, 64, 1024, 1024], "021"));
    cases.extend([problem([8, 2048, 32, 128], "0213"), problem([8, 32, 2048, 64], "0213")]);
    cases.extend([problem([64, 256, 56, 56], "0231"), problem([64, 56, 56, 256], "0312")]);
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    let cases = [problem([1, 1, 512, 768], "10"), problem([2, 128, 8, 64], "0213"), problem([4, 32, 28, 28], "0231")];
    cases.into_iter().zip(PERMUTE.precisions.iter().copied()).collect()
}

fn edges() -> Vec<Problem> {
    let of_four = [[1, 1, 1, 1], [3, 5, 7, 2], [2, 1, 65, 130], [9, 33, 4, 17]];
    let mut cases: Vec<_> =
        of_four.iter().flat_map(|&extents| ["3210", "0213", "1302", "0132"].map(|v| problem(extents, v))).collect();
    cases.extend([[129, 1000], [1000, 3], [1, 300], [64, 64]].map(|[rows, columns]| problem([1, 1, rows, columns], "10")));
    cases.extend(["021", "102", "120", "201", "210"].map(|variant| problem([1, 40, 70, 6], variant)));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let variant = draw.one_of(&VARIANTS);
    let most: [u64; RANK] = std::array::from_fn(|axis| if axis < RANK - variant.len() { 1 } else { 4096 });
    problem(draw.extents(draw.elements(), most), variant)
}

/// Which axis of four of `x` is which axis of `y`.
fn order(problem: &Problem) -> Result<[usize; RANK], Unsupported> {
    let unknown = || Unsupported(format!("`{}` is no order of up to {RANK} axes", problem.variant));
    let known = VARIANTS.iter().find(|own| **own == problem.variant).ok_or_else(unknown)?;
    let lacking = RANK - known.len();
    let digits = known.as_bytes();
    Ok(std::array::from_fn(|axis| if axis < lacking { axis } else { usize::from(digits[axis - lacking] - b'0') + lacking }))
}

/// Elements of a tile where lines stay lines.
const TILE: u64 = 4096;

/// Lines of a tile that is turned, and elements of each, as measured (`results/linear-h100.txt`).
fn side(bytes: u64) -> u64 {
    if bytes == 2 { 128 } else { 64 }
}

/// Extents of a tile: long along the last axes of `x` and of `y`; what these do not fill, the axes before them in `y` and in `x` do.
fn tile(extents: [u64; RANK], order: [usize; RANK], bytes: u64) -> [u64; RANK] {
    let whole = |axis: usize, most: u64| extents[axis].next_power_of_two().min(most);
    let last = RANK - 1;
    let mut tile = [1; RANK];
    if order[last] == last {
        tile[last] = whole(last, TILE);
    } else {
        let (side, other) = (side(bytes), order[last]);
        tile[last] = whole(last, side);
        tile[other] = whole(other, side * side / tile[last]);
        tile[last] = whole(last, side * side / tile[other]);
    }
    for axis in (0..last).rev().flat_map(|at| [order[at], at]) {
        let others: u64 = (0..RANK).filter(|&other| other != axis).map(|other| tile[other]).product();
        tile[axis] = tile[axis].max(whole(axis, TILE / others));
    }
    tile
}

fn plan(problem: &Problem, policy: Policy, _: Machine) -> Result<Plan, Unsupported> {
    let storage = match policy.storage() {
        Storage::Plain(dtype) if dtype.bits() >= 8 => dtype,
        _ => return Err(Unsupported(format!("permute moves elements of whole bytes, not `{policy}`"))),
    };
    let order = order(problem)?;
    let extents = extents(problem)?;
    let shape = extents.map(|extent| extent as usize);
    let tile = tile(extents, order, storage.unpacked_bytes() as u64);
    let tiles: u64 = extents.iter().zip(tile).map(|(extent, tile)| extent.div_ceil(tile)).product();
    let blocks = i32::try_from(tiles).map_err(|_| Unsupported(format!("{problem} needs too many blocks")))?;
    let int = |value: u64| Argument::Int(value as i64);
    let mut arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1))];
    arguments.extend(["P_0", "P_1", "P_2", "P_3"].into_iter().zip(order.map(|axis| int(axis as u64))));
    arguments.extend(["TILE_0", "TILE_1", "TILE_2", "TILE_3"].into_iter().zip(tile.map(int)));
    let elements: u64 = extents.iter().product();
    let row_len = shape[order[RANK - 1]];
    Ok(Plan {
        tensors: vec![
            TensorSpec::new("x", storage, shape, Role::Input),
            TensorSpec::new("y", storage, order.map(|axis| shape[axis]), Role::Output),
        ],
        launches: vec![LaunchSpec::new("permute", arguments, [blocks.unsigned_abs(), 1, 1])],
        outputs: vec![OutputRows { tensor: 1, rows: elements as usize / row_len.max(1), row_len, exact: true }],
        work: Work {
            read_bytes: packed_bytes(storage, elements),
            write_bytes: packed_bytes(storage, elements),
            flops: 0,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "each element read once, written once",
        },
        exact_lane: false,
        reference: Box::new(Permuted { shape, order }),
    })
}

struct Permuted {
    /// Of `x`.
    shape: [usize; RANK],
    order: [usize; RANK],
}

impl Reference for Permuted {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let mut strides = [1; RANK];
        for axis in (0..RANK - 1).rev() {
            strides[axis] = strides[axis + 1] * self.shape[axis + 1];
        }
        let [extents, steps] = [self.shape, strides].map(|of| self.order.map(|axis| of[axis]));
        let read = |(at, codes): (usize, &mut [u64])| {
            let mut row = rows.start + at;
            let mut start = 0;
            for axis in (0..RANK - 1).rev() {
                start += row % extents[axis] * steps[axis];
                row /= extents[axis];
            }
            let places: Vec<usize> = (0..codes.len()).map(|j| start + j * steps[RANK - 1]).collect();
            inputs.codes_at(0, &places, codes);
        };
        codes.par_chunks_mut(extents[RANK - 1]).enumerate().for_each(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_long_where_lines_are() {
        assert_eq!(tile([1, 1, 8192, 8192], [0, 1, 3, 2], 4), [1, 1, 64, 64]);
        assert_eq!(tile([1, 1, 8192, 8192], [0, 1, 3, 2], 2), [1, 1, 128, 128]);
        assert_eq!(tile([1, 1, 3, 1 << 20], [0, 1, 3, 2], 4), [1, 1, 4, 1024]);
        assert_eq!(tile([8, 2048, 32, 128], [0, 2, 1, 3], 2), [1, 32, 1, 128]);
        assert_eq!(tile([1, 1, 1 << 20, 3], [0, 1, 3, 2], 4), [1, 1, 1024, 4]);
    }

    #[test]
    fn an_order_of_fewer_axes_leaves_the_first_ones() {
        assert_eq!(order(&problem([1, 1, 2, 3], "10")), Ok([0, 1, 3, 2]));
        assert_eq!(order(&problem([1, 4, 2, 3], "201")), Ok([0, 3, 1, 2]));
        assert!(order(&problem([1, 4, 2, 3], "0123")).is_err());
    }
}
