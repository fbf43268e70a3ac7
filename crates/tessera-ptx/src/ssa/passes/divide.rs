//! Division by constants as multiplication.
//!
//! `x / d` for 32 bits is the high half of a product with `m`, a rounded `2^(32+s) / d`, shifted by `s`. Unsigned: `m` is
//! rounded up and is right when `m d - 2^(32+s) <= 2^s`; when no `m` below 2^32 is, the 33-bit one is used with its top bit
//! added by hand. Signed: after Hacker's Delight, rounding towards zero by adding the sign bit. A remainder is
//! `x - (x / d) d`.

use super::super::code::{Code, Half};
use super::super::kernel::{Class, Inst, Kernel, Value};
use crate::types::Type;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut changes = 0;
    for block in kernel.layout.clone() {
        let mut kept = Vec::new();
        for inst in kernel.block(block).insts.clone() {
            let mut code = Division { kernel, like: inst, before: Vec::new() };
            if code.divide().is_some() {
                changes += 1;
                kept.append(&mut code.before);
            }
            kept.push(inst);
        }
        kernel.block_mut(block).insts = kept;
    }
    changes
}

/// Instructions that will stand in front of a division.
struct Division<'a> {
    kernel: &'a mut Kernel,
    like: Inst,
    before: Vec<Inst>,
}

impl Division<'_> {
    fn add(&mut self, code: Code, sources: &[Value]) -> Option<Value> {
        let (inst, value) = self.kernel.pure(code, Class::B32, sources, self.like)?;
        self.before.push(inst);
        Some(value)
    }

    fn constant(&mut self, bits: u32) -> Value {
        self.kernel.const_bits(Class::B32, bits.into())
    }

    fn divide(&mut self) -> Option<()> {
        let sources = self.kernel.sources(self.like)?;
        let code = self.kernel.code(self.like)?;
        let [x, divisor] = sources[..] else { return None };
        let divisor = self.kernel.constant(divisor)? as u32;
        let signed = match code {
            Code::Div(Type::U32) | Code::Rem(Type::U32) => false,
            Code::Div(Type::S32) | Code::Rem(Type::S32) => true,
            _ => return None,
        };
        // Unsigned powers of two are shifts already; one, zero and the lowest number have no such multiplier.
        if divisor == 0 || divisor == 1 || (signed && matches!(divisor as i32, -1 | i32::MIN)) {
            return None;
        }
        let quotient = if signed { self.signed(x, divisor as i32)? } else { self.unsigned(x, divisor)? };
        let (code, sources) = if matches!(code, Code::Div(_)) {
            (Code::Add(Type::U32), [quotient, self.constant(0)])
        } else {
            let divisor = self.constant(divisor);
            let product = self.add(Code::Mul(Half::Low, Type::U32), &[quotient, divisor])?;
            (Code::Sub(Type::U32), [x, product])
        };
        self.kernel.rewrite(self.like, code, &sources).then_some(())
    }

    fn unsigned(&mut self, x: Value, divisor: u32) -> Option<Value> {
        let wide = u128::from(divisor);
        for shift in 0..32u32 {
            let power = 1u128 << (32 + shift);
            let factor = power.div_ceil(wide);
            if factor < 1 << 32 && factor * wide - power <= 1 << shift {
                let factor = self.constant(factor as u32);
                let high = self.add(Code::Mul(Half::High, Type::U32), &[x, factor])?;
                let shift = self.constant(shift);
                return self.add(Code::Shr(Type::U32), &[high, shift]);
            }
        }
        let shift = 32 - (divisor - 1).leading_zeros();
        let factor = (1u128 << (32 + shift)).div_ceil(wide) - (1 << 32);
        let factor = self.constant(factor as u32);
        let high = self.add(Code::Mul(Half::High, Type::U32), &[x, factor])?;
        let rest = self.add(Code::Sub(Type::U32), &[x, high])?;
        let one = self.constant(1);
        let half = self.add(Code::Shr(Type::U32), &[rest, one])?;
        let sum = self.add(Code::Add(Type::U32), &[half, high])?;
        let shift = self.constant(shift - 1);
        self.add(Code::Shr(Type::U32), &[sum, shift])
    }

    fn signed(&mut self, x: Value, divisor: i32) -> Option<Value> {
        let magnitude = divisor.unsigned_abs();
        let quotient = if magnitude.is_power_of_two() {
            // Numbers below zero are rounded up: 2^k - 1 is added to them.
            let k = magnitude.trailing_zeros();
            let (all, top, k) = (self.constant(31), self.constant(32 - k), self.constant(k));
            let sign = self.add(Code::Shr(Type::S32), &[x, all])?;
            let bias = self.add(Code::Shr(Type::U32), &[sign, top])?;
            let sum = self.add(Code::Add(Type::U32), &[x, bias])?;
            self.add(Code::Shr(Type::S32), &[sum, k])?
        } else {
            let (factor, shift) = signed_factor(magnitude);
            let (factor_value, shift, top) = (self.constant(factor), self.constant(shift), self.constant(31));
            let mut high = self.add(Code::Mul(Half::High, Type::S32), &[x, factor_value])?;
            if (factor as i32) < 0 {
                high = self.add(Code::Add(Type::U32), &[high, x])?;
            }
            let shifted = self.add(Code::Shr(Type::S32), &[high, shift])?;
            let sign = self.add(Code::Shr(Type::U32), &[x, top])?;
            self.add(Code::Add(Type::U32), &[shifted, sign])?
        };
        if divisor > 0 {
            return Some(quotient);
        }
        self.add(Code::Neg(Type::S32), &[quotient])
    }
}

/// The smallest shift and its multiplier with `m d - 2^(32+s)` at most `2^(s+1)`: right for all signed numbers.
fn signed_factor(divisor: u32) -> (u32, u32) {
    let wide = u128::from(divisor);
    let fits = |shift: u32| {
        let power = 1u128 << (32 + shift);
        let factor = power / wide + 1;
        (factor < 1 << 32 && factor * wide - power <= 1 << (shift + 1)).then_some((factor as u32, shift))
    };
    // A shift of the divisor's length less one always fits.
    (0..32).find_map(fits).unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_multiplier_divides() {
        for divisor in [3u32, 5, 6, 7, 10, 11, 25, 125, 641, 1000, 65537, 0x7FFF_FFFF] {
            let (factor, shift) = signed_factor(divisor);
            for x in [0, 1, -1, 2, -2, 6, 7, -7, 99, -100, i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1, 123_456_789] {
                let mut high = ((i64::from(x) * i64::from(factor as i32)) >> 32) as i32;
                if (factor as i32) < 0 {
                    high = high.wrapping_add(x);
                }
                let quotient = (high >> shift).wrapping_add((x as u32 >> 31) as i32);
                assert_eq!(quotient, x / divisor as i32, "{x} / {divisor}");
            }
        }
    }
}
