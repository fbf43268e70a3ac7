//! Quotients by one divisor, as of a row by its sum.
//!
//! A quotient of `f32`, rounded to nearest, is ten instructions and a branch. Most of them find out the divisor's inverse, and whether the numbers
//! are near the ends of what there is. Both is done once here for all that a thread divides by one number:
//!
//! ```text
//! y = rcp(d)                            rounded to nearest
//! q = n * y ; r = d * q - n             the rest is exact
//! q - r * y                             is the quotient, rounded to nearest (Markstein, IBM J. Res. Dev. 34, 1990)
//! ```
//!
//! The rest is exact where it is no less than the least number that there is: it is taken of numbers that are 2^48 times as large. So numerators may be as
//! small as there are, and zeros, whose signs the order of the terms keeps; large ones, other divisors and what is no number take the long way.

use tessera_ir::attrs::Rounding;
use tessera_ir::{Op, OpData, OpKind, ScheduleOp, TileOp};
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};

/// Quotients of one divisor from which on its inverse is worth finding.
const LEAST: usize = 8;

/// What rests are scaled by, as a power of two.
const SCALE: i32 = 48;

/// The least and the greatest divisor, as powers of two: scaled ones and their inverses are normal numbers.
const DIVISOR: (i32, i32) = (-40, 76);

/// The greatest numerator: a scaled one and a quotient are finite.
const NUMERATOR: i32 = 78;

fn power(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

impl Lowering<'_> {
    /// Quotients, where many have one divisor; `None` of other operations, and where few have.
    pub(super) fn quotients(&mut self, data: &OpData, kind: &ScheduleOp, operands: &[Regs]) -> Lowered<Option<Regs>> {
        let exact = matches!(kind, ScheduleOp::DivF { rounding: Rounding::NearestEven, flush_to_zero: false });
        if !exact || self.dtype(data.result())? != DType::F32 || self.multiplies_matrices() {
            return Ok(None);
        }
        let (numerators, divisors) = (&operands[0], &operands[1]);
        let mut groups: Vec<(Reg, Vec<usize>)> = Vec::new();
        for (at, &divisor) in divisors.iter().enumerate() {
            match groups.iter_mut().find(|(known, _)| *known == divisor) {
                Some((_, group)) => group.push(at),
                None => groups.push((divisor, vec![at])),
            }
        }
        let distinct = |group: &[usize]| {
            let mut all: Vec<Reg> = group.iter().map(|&at| numerators[at]).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        };
        let is_large =
            |(divisor, group): &(Reg, Vec<usize>)| self.b.kernel().constant(*divisor).is_none() && distinct(group) >= LEAST;
        if !groups.iter().all(is_large) {
            return Ok(None);
        }
        let mut results: Regs = numerators.clone();
        for (divisor, group) in groups {
            let group_numerators: Vec<Reg> = group.iter().map(|&at| numerators[at]).collect();
            let quotients = self.quotients_by(divisor, &group_numerators);
            for (at, quotient) in group.into_iter().zip(quotients) {
                results[at] = quotient;
            }
        }
        Ok(Some(results))
    }

    /// Whether the function multiplies matrices: sums are divided once for all of their products, and the long way stands between those of two tiles (heads of 64
    /// took 1.07 times as long). Sums and factors have the registers.
    pub(super) fn multiplies_matrices(&self) -> bool {
        use TileOp::{MmaFragment, MmaFragmentSparse, MmaShared, MmaSync, Wgmma, WgmmaPromoted};
        let multiplies = |op: Op| match &self.func.ops[op].kind {
            OpKind::Schedule(kind) => {
                matches!(kind, ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {})
            }
            OpKind::Tile(MmaFragment { .. } | MmaFragmentSparse { .. } | MmaShared { .. } | MmaSync { .. }) => true,
            OpKind::Tile(Wgmma { .. } | WgmmaPromoted { .. }) => true,
            _ => false,
        };
        self.func.linked_ops().into_iter().any(multiplies)
    }

    /// Quotients by one divisor.
    fn quotients_by(&mut self, divisor: Reg, numerators: &[Reg]) -> Vec<Reg> {
        let ordinary = self.is_ordinary(divisor, numerators);
        let classes: Vec<_> = numerators.iter().map(|&numerator| self.class(numerator)).collect();
        let (short, long, past) = (self.b.new_block(&[]), self.b.new_block(&[]), self.b.new_block(&classes));
        self.b.branch(ordinary, (short, &[]), (long, &[]));
        self.b.switch_to(long);
        let quotients: Vec<Reg> = numerators.iter().map(|&numerator| self.b.div(Ty::F32, numerator, divisor)).collect();
        self.b.jump(past, &quotients);
        self.b.switch_to(short);
        let inverse = self.op("rcp.rn.f32", &[divisor]);
        let (scale, down) = (self.b.f32(power(SCALE)), self.b.f32(-power(-SCALE)));
        let (divisor, inverse) = (self.b.mul(Ty::F32, divisor, scale), self.b.mul(Ty::F32, inverse, down));
        let scale = self.b.f32(-power(SCALE));
        let quotients: Vec<Reg> = numerators
            .iter()
            .map(|&numerator| {
                let numerator = self.b.mul(Ty::F32, numerator, scale);
                let quotient = self.b.mul(Ty::F32, numerator, inverse);
                let rest = self.b.fma(Ty::F32, divisor, quotient, numerator);
                self.b.fma(Ty::F32, rest, inverse, quotient)
            })
            .collect();
        self.b.jump(past, &quotients);
        self.b.switch_to(past);
        self.b.block_params(past)
    }

    /// Whether the short way leads to quotients by a divisor.
    fn is_ordinary(&mut self, divisor: Reg, numerators: &[Reg]) -> Reg {
        let mut sizes: Vec<Reg> = numerators.iter().map(|&numerator| self.b.abs(Ty::F32, numerator)).collect();
        while sizes.len() > 1 {
            sizes = sizes
                .chunks(2)
                .map(|pair| match *pair {
                    [a, b] => self.b.max(Ty::F32, a, b),
                    _ => pair[0],
                })
                .collect();
        }
        let (least, most) = (self.b.f32(power(DIVISOR.0)), self.b.f32(power(DIVISOR.1)));
        let largest = self.b.f32(power(NUMERATOR));
        let least = self.b.setp(Word::Ge, Ty::F32, divisor, least);
        let most = self.b.setp(Word::Le, Ty::F32, divisor, most);
        let small = self.b.setp(Word::Le, Ty::F32, sizes[0], largest);
        let divides = self.b.and(least, most);
        self.b.and(divides, small)
    }
}
