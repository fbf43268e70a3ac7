//! `mma.m8n8k4` on halves: four products of 8 x 8 x 4, each of two groups of four lanes (PTX ISA, "Matrix Fragments for mma.m8n8k4 with
//! .f16").
//!
//! Product p has lanes 4p to 4p + 3 and 16 more than those, the upper half. With q = lane mod 4 and h = 4 in the upper half:
//!
//! | fragment | element i of a lane |
//! |---|---|
//! | A by rows, by columns | (q + h, i), (i + h, q) |
//! | B by rows, by columns | (q, i + h), (i, q + h) |
//! | C, D of `f16` | (q + h, i) |
//! | C, D of `f32` | (q mod 2 + (i & 2) + h, (i & 4) + (q & 2) + i mod 2) |

use tessera_ptx::Type;

use super::Warp;
use super::matrix::dot;
use super::undefined::{Origin, Undefined};
use crate::program::{Mma, Reg};

/// Whether a product is of this kind.
pub(super) fn is_one(mma: &Mma) -> bool {
    mma.shape == (8, 8, 4) && mma.types[1] == Type::F16
}

/// The codes of one of the four products: rows of A, columns of B, and C.
type Factors = ([[u64; 4]; 8], [[u64; 4]; 8], [[u64; 8]; 8]);

/// The place in C or D of a lane's element.
fn place(ty: Type, q: usize, upper: usize, index: usize) -> (usize, usize) {
    match ty {
        Type::F16 => (q + upper, index),
        _ => (q % 2 + (index & 2) + upper, (index & 4) + (q & 2) + index % 2),
    }
}

/// What D's registers hold, by register and lane: of factors that `read` takes from registers `element` makes those of a row and a column.
fn results(
    mma: &Mma,
    read: &dyn Fn(Reg, usize) -> u64,
    element: impl Fn(&Factors, usize, usize) -> u64,
) -> Vec<(Reg, usize, u64)> {
    let [d_ty, _, _, c_ty] = mma.types;
    let half = |regs: &[Reg], lane: usize, index: usize| read(regs[index / 2], lane) >> (16 * (index % 2)) & 0xffff;
    let mut results = Vec::new();
    for product in 0..4 {
        let lanes = (0..8).map(|index| (4 * product + index % 4 + 16 * (index / 4), index % 4, 4 * (index / 4)));
        let lanes: Vec<(usize, usize, usize)> = lanes.collect();
        let mut factors: Factors = ([[0; 4]; 8], [[0; 4]; 8], [[0; 8]; 8]);
        let (a, b, c) = (&mut factors.0, &mut factors.1, &mut factors.2);
        for &(lane, q, upper) in &lanes {
            for index in 0..4 {
                let (row, k) = if mma.by_rows[0] { (q + upper, index) } else { (index + upper, q) };
                a[row][k] = half(&mma.a, lane, index);
                let (k, column) = if mma.by_rows[1] { (q, index + upper) } else { (index, q + upper) };
                b[column][k] = half(&mma.b, lane, index);
            }
            for index in 0..8 {
                let (row, column) = place(c_ty, q, upper, index);
                c[row][column] = if c_ty == Type::F16 { half(&mma.c, lane, index) } else { read(mma.c[index], lane) };
            }
        }
        for &(lane, q, upper) in &lanes {
            let result = |index: usize| {
                let (row, column) = place(d_ty, q, upper, index);
                element(&factors, row, column)
            };
            let values: Vec<u64> = (0..8).map(result).collect();
            let packed = values.chunks(2).map(|pair| pair[0] | pair[1] << 16).collect();
            let words: Vec<u64> = if d_ty == Type::F16 { packed } else { values };
            results.extend(mma.d.iter().zip(words).map(|(reg, word)| (*reg, lane, word)));
        }
    }
    results
}

pub(super) fn multiply(warp: &mut Warp, mma: &Mma) {
    let dot = |factors: &Factors, row: usize, column: usize| {
        dot(mma, factors.0[row].iter().zip(&factors.1[column]), factors.2[row][column])
    };
    let results = results(mma, &|reg, lane| warp.value(reg, lane), dot);
    results.into_iter().for_each(|(reg, lane, value)| warp.set(reg, lane, value));
}

/// Which elements are undefined: those with an undefined term.
pub(super) fn follow(undefined: &mut Undefined, origin: Origin, mma: &Mma) {
    let all = if mma.types[0] == Type::F16 { 0xffff } else { 0xffff_ffff };
    let lacks = |(a, b, c): &Factors, row: usize, column: usize| {
        let lacks = a[row].iter().chain(&b[column]).chain([&c[row][column]]).any(|bits| *bits != 0);
        if lacks { all } else { 0 }
    };
    let results = results(mma, &|reg, lane| undefined.bits(reg.slot, reg.wide, lane), lacks);
    results.into_iter().for_each(|(reg, lane, bits)| undefined.set(reg.slot, reg.wide, lane, bits, origin));
}
