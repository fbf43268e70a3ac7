//! 16-bit floats two at a time, where they stand in words already.
//!
//! | operation | of two numbers |
//! |---|---|
//! | `a + b` | `fma(a, 1, b)` |
//! | `a - b` | `fma(b, -1, a)` |
//! | `a * b` | `fma(a, b, -0)` |
//! | `a * b + c` | `fma(a, b, c)` |
//!
//! Each is rounded once, as the operation is. The halves of words that integers compute are numbers without a conversion:
//!
//! ```text
//! %x, %x >> 16 as 16 bits, then as bf16          the word %x
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::attrs::Rounding;
use tessera_ir::{OpData, ScheduleOp};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Arg, Class, Code, Value as Reg};
use tessera_types::DType;

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};

/// The operands' places of a product, a factor or a summand of which may be a constant.
#[derive(Clone, Copy)]
enum Term {
    Operand(usize),
    Number(f64),
}

impl Lowering<'_> {
    /// An elementwise operation on pairs; `None` where its operands do not stand in words, or it is another one.
    pub(super) fn of_halves(&mut self, data: &OpData, kind: &ScheduleOp, operands: &[Regs]) -> Lowered<Option<Regs>> {
        let dtype = self.dtype(data.result())?;
        let ty = match dtype {
            DType::BF16 => Ty::Bf16x2,
            DType::F16 => Ty::F16x2,
            _ => return Ok(None),
        };
        if !self.arch.has_bf16_fma() || !operands[0].len().is_multiple_of(2) {
            return Ok(None);
        }
        if matches!(kind, ScheduleOp::Bitcast {}) {
            return Ok(self.halves_of_words(&operands[0]));
        }
        use Term::{Number, Operand};
        let (rounding, flush, terms) = match kind {
            ScheduleOp::AddF { rounding, flush_to_zero } => (rounding, flush_to_zero, [Operand(0), Number(1.0), Operand(1)]),
            ScheduleOp::SubF { rounding, flush_to_zero } => (rounding, flush_to_zero, [Operand(1), Number(-1.0), Operand(0)]),
            ScheduleOp::MulF { rounding, flush_to_zero } => (rounding, flush_to_zero, [Operand(0), Operand(1), Number(-0.0)]),
            ScheduleOp::Fma { rounding, flush_to_zero } => (rounding, flush_to_zero, [Operand(0), Operand(1), Operand(2)]),
            _ => return Ok(None),
        };
        let stand = |regs: &Regs| regs.chunks(2).all(|pair| self.words.contains_key(pair));
        if *rounding != Rounding::NearestEven || *flush || !operands.iter().any(stand) {
            return Ok(None);
        }
        let mut made: FxHashMap<Vec<Reg>, Reg> = FxHashMap::default();
        let mut results = Regs::new();
        for at in (0..operands[0].len()).step_by(2) {
            let mut args = Vec::new();
            for term in terms {
                args.push(match term {
                    Operand(operand) => self.word_of(&operands[operand][at..at + 2], &mut made),
                    Number(number) => {
                        let bits = tessera_types::FloatFormat::of(dtype).map_or(0, |format| format.encode_nearest(number));
                        self.b.u32((bits << 16 | bits) as u32)
                    }
                });
            }
            let word = match made.get(&args) {
                Some(&word) => word,
                None => self.b.fma(ty, args[0], args[1], args[2]),
            };
            made.insert(args, word);
            results.extend(self.halves(word));
        }
        Ok(Some(results))
    }

    /// The word of two halves; `made` has those that were put together for this operation.
    fn word_of(&mut self, pair: &[Reg], made: &mut FxHashMap<Vec<Reg>, Reg>) -> Reg {
        if let Some(&word) = self.words.get(pair).or_else(|| made.get(pair)) {
            return word;
        }
        let word = self.b.pack(pair);
        made.insert(pair.into(), word);
        word
    }

    /// The halves of a word, which it is remembered by.
    pub(super) fn halves(&mut self, word: Reg) -> Vec<Reg> {
        let halves = self.b.unpack(word, Class::B16);
        self.words.insert(halves.as_slice().into(), word);
        halves
    }

    /// Codes of 16 bits of which every second one is the upper half of the word whose lower half is the one before.
    fn halves_of_words(&mut self, codes: &[Reg]) -> Option<Regs> {
        let kernel = self.b.kernel();
        let upper_half_of = |code: Reg| {
            let shift =
                kernel.definition(code).filter(|&inst| matches!(kernel.code(inst), Some(Code::Shr(Ty::U32 | Ty::S32))))?;
            match kernel.inst(shift).args.as_slice() {
                &[_, Arg::Use(word), Arg::Use(count)] if kernel.constant(count) == Some(16) => Some(word),
                _ => None,
            }
        };
        if !codes.chunks(2).all(|pair| upper_half_of(pair[1]) == Some(pair[0])) {
            return None;
        }
        let words: Vec<Reg> = codes.iter().step_by(2).copied().collect();
        Some(words.into_iter().flat_map(|word| self.halves(word)).collect())
    }
}
