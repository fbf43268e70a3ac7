//! Formats of 8 bits and fewer, decoded exactly and encoded with rounding to nearest even and saturation on every target.
//!
//! Decoding puts sign, exponent and mantissa where `f32` has them and multiplies by the power of two between the biases, which
//! makes subnormal codes normal. Encoding rounds the bits that are cut off away with integers; for a subnormal result the
//! processor rounds, in a sum with the power of two whose last place is the format's smallest number. Codes stand in the low
//! bits of 32; those above mean nothing.

use tessera_ir::attrs::Rounding;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};
use tessera_types::{DType, FloatFormat};

use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    /// A code as `f32`.
    pub(super) fn decode(&mut self, dtype: DType, code: Reg) -> Lowered<Reg> {
        let format = self.format(dtype)?;
        if dtype == DType::E8M0 {
            return Ok(self.decode_scale(code));
        }
        let bits = format.bits();
        if matches!(dtype, DType::F8E4M3 | DType::F8E5M2) && self.arch.has_fp8_cvt() {
            let short = self.b.cvt(Ty::U16, Ty::U32, code);
            let name = if dtype == DType::F8E4M3 { "e4m3x2" } else { "e5m2x2" };
            let pair = self.op(&format!("cvt.rn.f16x2.{name}"), &[short]);
            let half = self.b.unpack(pair, tessera_ptx::ssa::Class::B16)[0];
            return Ok(self.b.cvt(Ty::F32, Ty::F16, half));
        }
        let magnitude_mask = self.b.u32((1 << (bits - 1)) - 1);
        let magnitude = self.b.and(code, magnitude_mask);
        let count = self.b.u32(23 - format.mantissa_bits);
        let placed = self.b.shl(magnitude, count);
        let power = self.b.u32(((127 + 127 - format.bias) as u32) << 23);
        let value = self.b.mul(Ty::F32, placed, power);
        let (sign_mask, sign_count) = (self.b.u32(1 << (bits - 1)), self.b.u32(32 - bits));
        let sign = self.b.and(code, sign_mask);
        let sign = self.b.shl(sign, sign_count);
        let value = self.b.or(value, sign);
        let first_special = match dtype {
            DType::F8E4M3 => 0x7f,
            DType::F8E5M2 => 0x7c,
            _ => return Ok(value),
        };
        // The multiplication took the codes of infinity and NaN for numbers.
        let limit = self.b.u32(first_special);
        let special = self.b.setp(Word::Ge, Ty::U32, magnitude, limit);
        let top = self.b.u32(0x7f80_0000);
        let kept = self.b.or(value, top);
        let nan = self.b.u32(0x7fc0_0000);
        let kept = if dtype == DType::F8E4M3 { self.b.or(kept, nan) } else { kept };
        Ok(self.b.select(special, kept, value))
    }

    fn decode_scale(&mut self, code: Reg) -> Reg {
        let (mask, count) = (self.b.u32(0xff), self.b.u32(23));
        let code = self.b.and(code, mask);
        let placed = self.b.shl(code, count);
        let (zero, least) = (self.b.u32(0), self.b.u32(0x0040_0000));
        let is_zero = self.b.setp(Word::Eq, Ty::U32, code, zero);
        let value = self.b.select(is_zero, least, placed);
        let is_nan = self.b.setp(Word::Eq, Ty::U32, code, mask);
        let nan = self.b.u32(0x7fc0_0000);
        self.b.select(is_nan, nan, value)
    }

    /// An `f32` as a code, rounded to nearest even; what is too large becomes the largest finite number.
    pub(super) fn encode(&mut self, dtype: DType, value: Reg) -> Lowered<Reg> {
        let format = self.format(dtype)?;
        if dtype == DType::E8M0 {
            return Ok(self.encode_scale(value, Rounding::NearestEven));
        }
        if matches!(dtype, DType::F8E4M3 | DType::F8E5M2) && self.arch.has_fp8_cvt() {
            let name = if dtype == DType::F8E4M3 { "e4m3x2" } else { "e5m2x2" };
            let zero = self.b.f32(0.0);
            let pair = self.op(&format!("cvt.rn.satfinite.{name}.f32"), &[zero, value]);
            return Ok(self.b.cvt(Ty::U32, Ty::U16, pair));
        }
        let (mantissa_bits, bias) = (format.mantissa_bits, format.bias as u32);
        let nan = format.nan_code().unwrap_or_else(|| format.max_finite_code()) as u32;
        let mask = self.b.u32(0x7fff_ffff);
        let magnitude = self.b.and(value, mask);
        let largest = self.b.u32((format.max_finite() as f32).to_bits());
        let clamped = self.b.min(Ty::U32, magnitude, largest);

        let cut = 23 - mantissa_bits;
        let (count, one, half) = (self.b.u32(cut), self.b.u32(1), self.b.u32((1 << (cut - 1)) - 1));
        let last = self.b.shr(Ty::U32, clamped, count);
        let odd = self.b.and(last, one);
        let rounded = self.b.add(Ty::U32, clamped, half);
        let rounded = self.b.add(Ty::U32, rounded, odd);
        let normal = self.b.shr(Ty::U32, rounded, count);
        let rebias = self.b.u32((127 - bias) << mantissa_bits);
        let normal = self.b.sub(Ty::U32, normal, rebias);

        let magic = self.b.u32((128 - bias + cut) << 23);
        let sum = self.b.add(Ty::F32, clamped, magic);
        let subnormal = self.b.sub(Ty::U32, sum, magic);
        let smallest = self.b.u32((128 - bias) << 23);
        let small = self.b.setp(Word::Lt, Ty::U32, clamped, smallest);
        let code = self.b.select(small, subnormal, normal);

        let (sign_mask, sign_count) = (self.b.u32(0x8000_0000), self.b.u32(32 - format.bits()));
        let sign = self.b.and(value, sign_mask);
        let sign = self.b.shr(Ty::U32, sign, sign_count);
        let code = self.b.or(code, sign);
        let infinity = self.b.u32(0x7f80_0000);
        let is_nan = self.b.setp(Word::Gt, Ty::U32, magnitude, infinity);
        let nan = self.b.u32(nan);
        Ok(self.b.select(is_nan, nan, code))
    }

    /// A number as a scale: the nearest, the larger of two equally near, or the next one down or up; NaN for negative numbers.
    pub(super) fn encode_scale(&mut self, value: Reg, rounding: Rounding) -> Reg {
        // What is added before the mantissa is cut off, and the first subnormal that becomes the second scale.
        let (increment, upper) = match rounding {
            Rounding::Zero | Rounding::NegativeInf | Rounding::NearestIntToZero => (0, 0x0080_0000),
            Rounding::PositiveInf => (0x007f_ffff, 0x0040_0001),
            Rounding::NearestEven | Rounding::NearestAway | Rounding::Full | Rounding::Approx => (0x0040_0000, 0x0060_0000),
        };
        let mask = self.b.u32(0x7fff_ffff);
        let bits = self.b.and(value, mask);
        let (increment, count, most) = (self.b.u32(increment), self.b.u32(23), self.b.u32(0xfe));
        let raised = self.b.add(Ty::U32, bits, increment);
        let normal = self.b.shr(Ty::U32, raised, count);
        let normal = self.b.min(Ty::U32, normal, most);
        let (upper, first) = (self.b.u32(upper), self.b.u32(0x0080_0000));
        let above = self.b.setp(Word::Ge, Ty::U32, bits, upper);
        let (zero, one) = (self.b.u32(0), self.b.u32(1));
        let subnormal = self.b.select(above, one, zero);
        let small = self.b.setp(Word::Lt, Ty::U32, bits, first);
        let code = self.b.select(small, subnormal, normal);
        let infinity = self.b.u32(0x7f80_0000);
        let is_nan = self.b.setp(Word::Gt, Ty::U32, bits, infinity);
        let negative = self.b.setp(Word::Lt, Ty::S32, value, zero);
        let not_zero = self.b.setp(Word::Ne, Ty::U32, bits, zero);
        let negative = self.b.and(negative, not_zero);
        let wrong = self.b.or(is_nan, negative);
        let nan = self.b.u32(0xff);
        self.b.select(wrong, nan, code)
    }

    fn format(&self, dtype: DType) -> Lowered<&'static FloatFormat> {
        FloatFormat::of(dtype).ok_or_else(|| self.broken("an integer where a float is needed"))
    }
}
