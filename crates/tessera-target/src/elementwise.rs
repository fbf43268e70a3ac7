//! Elementwise operations: one register at a time, by the operation's meaning for an element.

use tessera_ir::attrs::Signedness;
use tessera_ir::{Elem, OpData, ScheduleOp, Value};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Arg, Class, Code, Value as Reg};
use tessera_types::DType;

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;

/// The largest number that is compared by its distance from another one.
const MOST_COUNTED: i64 = 1 << 29;

/// What computes an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Choices, comparisons and what takes elements of two types.
    Mixed,
    /// Conversions.
    Cast,
    /// Float arithmetic as IEEE 754 has it.
    Float,
    /// Functions of floats.
    Function,
    /// Integer arithmetic.
    Integer,
}

impl Lowering<'_> {
    /// A value of which something is known is that value.
    pub(super) fn assumed(&mut self, data: &OpData) -> Lowered<()> {
        let bound = self.get(data.one(0))?.clone();
        self.bind(data.result(), bound);
        Ok(())
    }

    /// Lowers an elementwise operation.
    pub(super) fn elementwise(&mut self, data: &OpData, kind: &ScheduleOp, family: Family) -> Lowered<()> {
        let mut operands: Vec<Regs> = Vec::new();
        for &operand in &data.operands {
            operands.push(self.regs(operand)?);
        }
        let Some(count) = operands.first().map(|regs| regs.len()) else {
            return Err(self.broken("an elementwise operation of nothing"));
        };
        if operands.iter().any(|regs| regs.len() != count) {
            return Err(self.broken("operands of different layouts"));
        }
        if let Some(regs) = self.in_pairs(data, kind, &operands)? {
            self.bind_regs(data.result(), regs);
            return Ok(());
        }
        if let Some(regs) = self.of_halves(data, kind, &operands)? {
            self.bind_regs(data.result(), regs);
            return Ok(());
        }
        if let Some(regs) = self.count_compared(data, kind, &operands)? {
            self.bind_regs(data.result(), regs);
            return Ok(());
        }
        if let Some(regs) = self.quotients(data, kind, &operands)? {
            self.bind_regs(data.result(), regs);
            return Ok(());
        }
        let mut results = Regs::new();
        let mut last: Option<(Vec<Reg>, Reg)> = None;
        for at in 0..count {
            let args: Vec<Reg> = operands.iter().map(|regs| regs[at]).collect();
            // Splats and broadcasts repeat registers.
            let result = match &last {
                Some((known, result)) if *known == args => *result,
                _ => self.element(data, kind, family, &args)?,
            };
            results.push(result);
            last = Some((args, result));
        }
        self.bind_regs(data.result(), results);
        Ok(())
    }

    /// One element.
    fn element(&mut self, data: &OpData, kind: &ScheduleOp, family: Family, args: &[Reg]) -> Lowered<Reg> {
        let from = self.dtype(data.operands[0])?;
        match family {
            Family::Mixed => self.mixed_element(data, kind, from, args),
            Family::Cast => {
                let to = self.dtype(data.result())?;
                self.cast(kind, from, to, args[0])
            }
            Family::Float => self.float(kind, from, args),
            Family::Function => self.function(kind, from, args),
            Family::Integer => Ok(self.integer(kind, from, args)),
        }
    }

    /// An operation on elements of several types.
    fn mixed_element(&mut self, data: &OpData, kind: &ScheduleOp, from: DType, args: &[Reg]) -> Lowered<Reg> {
        Ok(match kind {
            ScheduleOp::Select {} => self.b.select(args[0], args[1], args[2]),
            ScheduleOp::Offset {} => self.moved(data, args)?,
            ScheduleOp::CmpI { predicate, signedness } => self.compare_int(*predicate, *signedness, from, args[0], args[1]),
            ScheduleOp::CmpF { predicate, nan } => self.compare_float(*predicate, *nan, from, args[0], args[1])?,
            ScheduleOp::FPowI {} => {
                let exponent = self.dtype(data.operands[1])?;
                self.power_of_int(from, args[0], exponent, args[1])?
            }
            _ => astray(kind),
        })
    }

    /// A comparison of what counts in steps from one place of the thread: `place + step < limit` is `step < limit - place`, where the
    /// difference serves all steps and a step is a constant. Numbers far from the ends of their type do not wrap.
    fn count_compared(&mut self, data: &OpData, kind: &ScheduleOp, operands: &[Regs]) -> Lowered<Option<Regs>> {
        let ScheduleOp::CmpI { predicate, signedness: Signedness::Signed } = kind else { return Ok(None) };
        let small = |this: &Self, value: Value| {
            let fact = this.facts.fact(value);
            -MOST_COUNTED <= fact.least && fact.greatest <= MOST_COUNTED
        };
        if self.dtype(data.one(0))? != DType::I32 || !small(self, data.one(0)) || !small(self, data.one(1)) {
            return Ok(None);
        }
        let pairs: Vec<_> = operands[0].iter().zip(&operands[1]).map(|(&count, &limit)| (self.stepped(count), limit)).collect();
        let mut places: Vec<_> = pairs.iter().map(|&((place, _), limit)| (place, limit)).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() > pairs.len() / 2 {
            return Ok(None);
        }
        let mut results = Regs::new();
        for ((place, step), limit) in pairs {
            let rest = self.b.sub(Ty::S32, limit, place);
            results.push(self.b.setp(super::integer::compare_word(*predicate), Ty::S32, step, rest));
        }
        Ok(Some(results))
    }

    /// A number as one that several share and a constant.
    fn stepped(&mut self, number: Reg) -> (Reg, Reg) {
        let kernel = self.b.kernel();
        let is_sum = |inst| matches!(kernel.code(inst), Some(Code::Add(Ty::S32 | Ty::U32)));
        let sum = kernel.definition(number).filter(|&inst| is_sum(inst));
        match sum.map(|inst| kernel.inst(inst).args.as_slice()) {
            Some(&[_, Arg::Use(place), Arg::Use(step)])
                if kernel.constant(step).is_some_and(|step| step <= MOST_COUNTED as u64) =>
            {
                (place, step)
            }
            _ => (number, self.b.u32(0)),
        }
    }

    /// Conversions between `f32` and floats of 16 and 8 bits take two numbers at once.
    fn in_pairs(&mut self, data: &OpData, kind: &ScheduleOp, operands: &[Regs]) -> Lowered<Option<Regs>> {
        let ScheduleOp::FToF { rounding } = kind else { return Ok(None) };
        let (from, to) = (self.dtype(data.operands[0])?, self.dtype(data.result())?);
        if let Some(numbers) = self.in_16_bits(from, to, &operands[0]) {
            return Ok(Some(numbers));
        }
        let nearest = super::float::rounding_word(*rounding) == "rn" && *rounding != tessera_ir::attrs::Rounding::NearestAway;
        let code_pair = |dtype: DType| match dtype {
            DType::F8E4M3 if self.arch.has_fp8_cvt() => Some(Ty::E4m3x2),
            DType::F8E5M2 if self.arch.has_fp8_cvt() => Some(Ty::E5m2x2),
            _ => None,
        };
        if let Some(ty) = code_pair(from)
            && to == DType::F32
        {
            return Ok(self.decoded_words(ty, &operands[0]));
        }
        let ty = match to {
            DType::BF16 if self.arch.has_bf16_fma() => Ty::Bf16x2,
            DType::F16 if self.arch.has_bf16_fma() => Ty::F16x2,
            _ => match code_pair(to) {
                Some(ty) => ty,
                None => return Ok(None),
            },
        };
        if from != DType::F32 || !nearest || !operands[0].len().is_multiple_of(2) {
            return Ok(None);
        }
        let mut results = Regs::new();
        let mut pairs = Vec::new();
        for pair in operands[0].chunks(2) {
            let packed = self.b.cvt_pack(ty, pair[1], pair[0]);
            if ty.bits() == 32 {
                let halves = self.b.unpack(packed, Class::B16);
                self.words.insert(halves.as_slice().into(), packed);
                results.extend(halves);
                continue;
            }
            pairs.push(packed);
            // The bits above a code mean nothing: the pair itself is its lower code.
            let (low, count) = (self.b.cvt(Ty::U32, Ty::U16, packed), self.b.u32(8));
            results.extend([low, self.b.shr(Ty::U32, low, count)]);
        }
        for (codes, pairs) in results.chunks_exact(4).zip(pairs.chunks_exact(2)) {
            let word = self.b.pack(pairs);
            self.words.insert(codes.into(), word);
        }
        Ok(Some(results))
    }

    /// Codes of 8 bits as `f32`, where they came from memory four in a word.
    fn decoded_words(&mut self, ty: Ty, codes: &[Reg]) -> Option<Regs> {
        let words: Vec<Reg> = codes.chunks(4).map(|chunk| self.words.get(chunk).copied()).collect::<Option<_>>()?;
        let mut results = Regs::new();
        for word in words {
            for pair in self.b.unpack(word, Class::B16) {
                let halves = self.op(&format!("cvt.rn.f16x2.{ty}"), &[pair]);
                for half in self.b.unpack(halves, Class::B16) {
                    results.push(self.b.cvt(Ty::F32, Ty::F16, half));
                }
            }
        }
        Some(results)
    }

    /// A pointer moved by a number of elements.
    fn moved(&mut self, data: &OpData, args: &[Reg]) -> Lowered<Reg> {
        let Elem::Ptr(to) = self.elem(data.operands[0])? else { return Err(self.broken("numbers where pointers are needed")) };
        if to.bits() < 8 && !to.is_byte_bool() {
            let message = format!("pointers to `{to}` can't be moved: its elements share bytes; use a view");
            return Err(self.refuse("target-packed-pointer", message));
        }
        let count: Value = data.operands[1];
        let dtype = self.dtype(count)?;
        let offset = self.signed(dtype, args[1]);
        let bytes = to.unpacked_bytes() as u64;
        Ok(if self.class(offset) == Class::B64 {
            let size = self.b.u64(bytes);
            self.b.mad(Ty::S64, offset, size, args[0])
        } else {
            let size = self.b.u32(bytes as u32);
            self.b.mad_wide(Ty::S32, offset, size, args[0])
        })
    }
}
