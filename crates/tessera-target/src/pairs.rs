//! Codes of a byte or less as pairs of 16-bit floats.
//!
//! Where eight codes of 4 bits stand in a word, the numbers' bytes are looked up: a byte permutation takes four of eight bytes by nibbles.
//!
//! ```text
//! word      .... d c b a                 codes: sign in bit 3, one of eight magnitudes below
//! high  =   prmt(upper bytes of the magnitudes, word & 0x7777)        signs = prmt(0x80.., word): 0xff where the sign is set
//! low   =   prmt(lower bytes, word & 0x7777)                          pairs = prmt(low, high | signs << 1 & 0x80..)
//! ```
//!
//! Others are put two by two where the float has exponent and mantissa, and multiplied by the power of two between the biases, which makes
//! subnormal codes normal. Both are exact. Codes of 8 bits become `f16`, by the target's own conversion where it has one.

use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_types::{DType, FloatFormat};

use super::bound::Regs;
use super::lowering::Lowering;

/// The number's sign in each byte.
const SIGNS: u32 = 0x8080_8080;

impl Lowering<'_> {
    /// Codes as numbers of 16 bits, which also stand in words; `None` for other types, or an odd number of them.
    pub(super) fn in_16_bits(&mut self, from: DType, to: DType, codes: &[Reg]) -> Option<Regs> {
        let small = match from {
            DType::F4E2M1 | DType::F6E2M3 | DType::F6E3M2 => true,
            DType::F8E4M3 | DType::F8E5M2 => to == DType::F16,
            _ => false,
        };
        let ty = match to {
            DType::BF16 => Ty::Bf16x2,
            DType::F16 => Ty::F16x2,
            _ => return None,
        };
        if !small || !self.arch.has_bf16_fma() || !codes.len().is_multiple_of(2) {
            return None;
        }
        let (source, target) = (FloatFormat::of(from)?, FloatFormat::of(to)?);
        let mut pairs = Vec::new();
        for eight in codes.chunks(8) {
            match self.words.get(eight).copied() {
                Some(word) if from == DType::F4E2M1 => pairs.extend(self.looked_up(source, target, word)),
                _ if source.bits() == 8 && self.arch.has_fp8_cvt() => {
                    pairs.extend(eight.chunks(4).flat_map(|four| self.converted(from, four)).collect::<Vec<_>>());
                }
                _ => pairs.extend(eight.chunks(2).map(|two| self.scaled_pair(source, target, ty, two)).collect::<Vec<_>>()),
            }
        }
        let mut numbers = Regs::new();
        for pair in pairs {
            let halves = self.b.unpack(pair, Class::B16);
            self.words.insert(halves.as_slice().into(), pair);
            numbers.extend(halves);
        }
        Some(numbers)
    }

    /// The eight codes of 4 bits in a word, as four pairs.
    fn looked_up(&mut self, source: &FloatFormat, target: &FloatFormat, word: Reg) -> Vec<Reg> {
        let number = |code: u64| target.encode_nearest(source.decode(code)) as u32;
        let table = |first: u64, shift: u32| (0..4).fold(0, |all, at| all | (number(first + at) >> shift & 0xff) << (8 * at));
        let [low_0, low_4, high_0, high_4] =
            [(0, 0), (4, 0), (0, 8), (4, 8)].map(|(first, shift)| self.b.u32(table(first, shift)));
        let (magnitudes, signs) = (self.b.u32(0x7777_7777), self.b.u32(SIGNS));
        let (half, one) = (self.b.u32(16), self.b.u32(1));
        let (first, second) = (self.b.u32(0x5140), self.b.u32(0x7362));
        let lower = self.b.and(word, magnitudes);
        let mut pairs = Vec::new();
        for (nibbles, index) in [(word, lower), (self.b.shr(Ty::U32, word, half), self.b.shr(Ty::U32, lower, half))] {
            let low = self.b.prmt(low_0, low_4, index);
            let high = self.b.prmt(high_0, high_4, index);
            let set = self.b.prmt(signs, signs, nibbles);
            let set = self.b.shl(set, one);
            let set = self.b.and(set, signs);
            let high = self.b.or(high, set);
            pairs.extend([self.b.prmt(low, high, first), self.b.prmt(low, high, second)]);
        }
        pairs
    }

    /// Codes of 8 bits, by the target's conversion of two; four may stand in a word.
    fn converted(&mut self, from: DType, codes: &[Reg]) -> Vec<Reg> {
        let name = if from == DType::F8E4M3 { "e4m3x2" } else { "e5m2x2" };
        let pairs = match self.words.get(codes).copied() {
            Some(word) => self.b.unpack(word, Class::B16),
            None => {
                let selector = self.b.u32(0x0040);
                let joined = codes.chunks(2).map(|two| {
                    let pair = self.b.prmt(two[0], two[1], selector);
                    self.b.cvt(Ty::U16, Ty::U32, pair)
                });
                joined.collect()
            }
        };
        pairs.into_iter().map(|pair| self.op(&format!("cvt.rn.f16x2.{name}"), &[pair])).collect()
    }

    /// Two codes as a pair of numbers.
    fn scaled_pair(&mut self, source: &FloatFormat, target: &FloatFormat, ty: Ty, codes: &[Reg]) -> Reg {
        let bits = source.bits();
        let twice = |half: u32| half << 16 | half;
        let selector = self.b.u32(0x5410);
        let pair = self.b.prmt(codes[0], codes[1], selector);
        let (magnitude_mask, sign_mask) = (self.b.u32(twice((1 << (bits - 1)) - 1)), self.b.u32(twice(1 << (bits - 1))));
        let (up, over) = (self.b.u32(target.mantissa_bits - source.mantissa_bits), self.b.u32(16 - bits));
        let magnitude = self.b.and(pair, magnitude_mask);
        let placed = self.b.shl(magnitude, up);
        let sign = self.b.and(pair, sign_mask);
        let sign = self.b.shl(sign, over);
        let power = self.b.u32(twice(((2 * target.bias - source.bias) as u32) << target.mantissa_bits));
        let zero = self.b.u32(twice(0x8000));
        let number = match target.bias == source.bias {
            true => placed,
            false => self.b.fma(ty, placed, power, zero),
        };
        let number = self.b.or(number, sign);
        if source.dtype != DType::F8E4M3 {
            return number;
        }
        // The greatest magnitude is NaN: one more sets the bit above it, from which the bits of NaN are made.
        let (one, above, nan) = (self.b.u32(twice(1)), self.b.u32(twice(0x80)), self.b.u32(0x7e00 / 0x80));
        let next = self.b.add(Ty::U32, magnitude, one);
        let special = self.b.and(next, above);
        let special = self.b.mul(Ty::U32, special, nan);
        self.b.or(number, special)
    }
}
