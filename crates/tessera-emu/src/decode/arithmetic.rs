//! Moves, arithmetic, comparisons and conversions.

use smallvec::SmallVec;
use tessera_ptx::{Operand, Type, Word};

use super::modifiers::Mods;
use super::{Builder, Result};
use crate::ops::convert::{self, Conversion};
use crate::ops::float::{self, Flags};
use crate::ops::round::Directed;
use crate::ops::{Map, Test, half, integer};
use crate::program::{Carry, Connective, LogicPredicate, Op, Pred, Reg, Set};

fn is_half(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
}

fn flags(mods: Mods<'_>) -> Flags {
    Flags {
        ftz: mods.has(Word::Ftz),
        sat: mods.has(Word::Sat),
        relu: mods.has(Word::Relu),
        nan: mods.has(Word::Nan),
        directed: mods.pick(Directed::of),
    }
}

fn connective(mods: Mods<'_>) -> Option<Connective> {
    mods.pick(|word| match word {
        Word::And => Some(Connective::And),
        Word::Or => Some(Connective::Or),
        Word::Xor => Some(Connective::Xor),
        _ => None,
    })
}

/// The word that says which part or variant of an integer operation is meant.
const PARTS: [Word; 15] = [
    Word::Lo,
    Word::Hi,
    Word::Wide,
    Word::Sat,
    Word::Relu,
    Word::Wrap,
    Word::Clamp,
    Word::ShiftAmt,
    Word::F4e,
    Word::B4e,
    Word::Rc8,
    Word::Ecl,
    Word::Ecr,
    Word::Rc16,
    Word::Xor,
];

impl Builder<'_> {
    pub(super) fn arithmetic(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        match mnemonic {
            "mov" => return self.mov(mods, operands),
            "cvt" => return self.cvt(mods, operands),
            "setp" => return self.setp(mods, operands),
            "set" => return self.set(mods, operands),
            "testp" => return self.testp(mods, operands),
            "selp" => return self.selp(mods, operands),
            "slct" => return self.slct(mods, operands),
            "addc" | "subc" | "madc" => return self.carry(mnemonic, mods, operands),
            "add" | "sub" | "mad" if mods.has(Word::Cc) => return self.carry(mnemonic, mods, operands),
            "lop3" if operands.len() == 6 => return self.logic_predicate(mods, operands),
            "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vset" | "vmad" | "vadd2" | "vadd4" | "vsub2"
            | "vsub4" | "vavrg2" | "vavrg4" | "vabsdiff2" | "vabsdiff4" | "vmin2" | "vmin4" | "vmax2" | "vmax4" | "vset2"
            | "vset4" => return self.video(mnemonic, mods, operands),
            _ => {}
        }
        let ty = mods.ty()?;
        if ty == Type::Pred {
            return self.predicates(mnemonic, operands);
        }
        let [to, from @ ..] = operands else { return Ok(false) };
        if let ("mad" | "mad24", Type::S32, true, [a, b, c]) = (mnemonic, ty, mods.has(Word::Sat), from) {
            return self.saturated_sum(mnemonic, to, [a, b, c]);
        }
        let from: SmallVec<[&Operand; 4]> = from.iter().collect();
        let Some(map) = operation(mnemonic, mods, ty, from.len()) else { return Ok(false) };
        self.map(&map, to, &from)?;
        Ok(true)
    }

    /// `mad.hi.sat.s32` and `mad24.hi.sat.s32`: the upper part of a product, and a sum that saturates.
    fn saturated_sum(&mut self, mnemonic: &str, to: &Operand, [a, b, c]: [&Operand; 3]) -> Result<bool> {
        let multiply = if mnemonic == "mad" { "mul" } else { "mul24" };
        let product = integer::two(multiply, Some(Word::Hi), Type::S32);
        let (Some(product), Some(sum)) = (product, integer::two("add", Some(Word::Sat), Type::S32)) else { return Ok(false) };
        let (a, b, c) = (self.source(a, false)?, self.source(b, false)?, self.source(c, false)?);
        let part = self.scratch(false);
        self.prepare(Op::Map { run: product.run, to: part, from: [a, b, b, b] });
        let to = self.destination(to, false)?;
        self.emit(Op::Map { run: sum.run, to, from: [part.slot, c, c, c] });
        Ok(true)
    }

    fn predicates(&mut self, mnemonic: &str, operands: &[Operand]) -> Result<bool> {
        let a = self.predicate(&operands[1])?;
        let (how, a, b) = match mnemonic {
            "and" => (Connective::And, a, self.predicate(&operands[2])?),
            "or" => (Connective::Or, a, self.predicate(&operands[2])?),
            "xor" => (Connective::Xor, a, self.predicate(&operands[2])?),
            "not" => (Connective::And, Pred { negated: !a.negated, ..a }, Pred::TRUE),
            "mov" => (Connective::And, a, Pred::TRUE),
            _ => return Ok(false),
        };
        if let Some(to) = self.flag(&operands[0])? {
            self.emit(Op::Predicate { to, how, a, b });
        }
        Ok(true)
    }

    fn mov(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let [to, from] = operands else { return Ok(false) };
        if ty == Type::Pred {
            return self.predicates("mov", operands);
        }
        if mods.any(&[Word::V2, Word::V4]).is_some() {
            return self.move_vector(ty.bits() == 64, to, from);
        }
        match (to, from) {
            (to @ (Operand::Register(_) | Operand::Sink), Operand::Register(_)) if ty == Type::B128 => {
                let (halves, to) = (self.pair_source(from)?, self.pair_target(to)?);
                self.move_each(true, &to, &halves)?;
            }
            (Operand::Vector(parts), from) if ty == Type::B128 && parts.len() == 4 => {
                // Four words: two of each half.
                let halves = self.pair_source(from)?;
                for (parts, half) in parts.chunks(2).zip(halves) {
                    let to = parts.iter().map(|part| self.target(part)).collect::<Result<_>>()?;
                    self.emit(Op::Unpack { to, from: half, bits: 32 });
                }
            }
            (to, Operand::Vector(parts)) if ty == Type::B128 && parts.len() == 4 => {
                let to = self.pair_target(to)?;
                for (parts, half) in parts.chunks(2).zip(to) {
                    let from = parts.iter().map(|part| self.value(part, false)).collect::<Result<_>>()?;
                    let to = half.unwrap_or_else(|| self.scratch(true));
                    self.emit(Op::Pack { to, from, bits: 32 });
                }
            }
            (Operand::Vector(parts), from) if ty == Type::B128 => {
                let halves = self.pair_source(from)?;
                let to = parts.iter().map(|part| self.target(part)).collect::<Result<SmallVec<[_; 2]>>>()?;
                self.move_each(true, &to, &halves)?;
            }
            (to, Operand::Vector(_)) if ty == Type::B128 => {
                let halves = self.sources(from, true)?;
                let to = self.pair_target(to)?;
                self.move_each(true, &to, &halves)?;
            }
            (Operand::Vector(parts), from) => {
                let bits = ty.bits() / parts.len().max(1) as u32;
                let wide = ty.bits() == 64;
                let slot = self.source(from, wide)?;
                let to = parts.iter().map(|part| self.target(part)).collect::<Result<_>>()?;
                self.emit(Op::Unpack { to, from: Reg { slot, wide }, bits });
            }
            (to, Operand::Vector(parts)) => {
                let bits = ty.bits() / parts.len().max(1) as u32;
                let from = self.sources(from, bits == 64)?;
                let to = self.destination(to, ty.bits() == 64)?;
                self.emit(Op::Pack { to, from, bits });
            }
            _ => {
                let map =
                    if ty.bits() == 64 { float::one_64("mov", Flags::default()) } else { float::one("mov", Flags::default()) };
                let Some(map) = map else { return Ok(false) };
                self.map(&map, to, &[from])?;
            }
        }
        Ok(true)
    }

    /// `mov.v2`, `mov.v4`: each element.
    fn move_vector(&mut self, wide: bool, to: &Operand, from: &Operand) -> Result<bool> {
        let from: SmallVec<[Reg; 4]> =
            self.sources(from, wide)?.into_iter().map(|reg| Reg { slot: self.viewed(reg, wide), wide }).collect();
        let to = Self::parts(to).iter().map(|part| self.target(part)).collect::<Result<SmallVec<[_; 4]>>>()?;
        self.move_each(wide, &to, &from)?;
        Ok(true)
    }

    /// Moves registers, each from what it held before.
    fn move_each(&mut self, wide: bool, to: &[Option<Reg>], from: &[Reg]) -> Result<()> {
        let map = if wide { float::one_64("mov", Flags::default()) } else { float::one("mov", Flags::default()) };
        let map = map.ok_or("no move of registers")?;
        if to.len() != from.len() || to.iter().flatten().chain(from).any(|reg| reg.wide != wide) {
            return Err(format!("{} registers of {} bits are needed", from.len(), if wide { 64 } else { 32 }));
        }
        let held: SmallVec<[Reg; 4]> = from.iter().map(|_| self.scratch(wide)).collect();
        for (held, from) in held.iter().zip(from) {
            self.prepare(Op::Map { run: map.run, to: *held, from: [from.slot; 4] });
        }
        for (to, held) in to.iter().zip(&held) {
            if let Some(to) = to {
                self.emit(Op::Map { run: map.run, to: *to, from: [held.slot; 4] });
            }
        }
        Ok(())
    }

    fn cvt(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        if mods.has(Word::Pack) {
            return self.cvt_pack(mods, operands);
        }
        let types: SmallVec<[Type; 2]> = mods.types().collect();
        let [to_ty, from_ty] = types[..] else { return Ok(false) };
        let rounding = mods.pick(convert::rounding);
        let (to_float, from_float) = (convert::is_float(to_ty), convert::is_float(from_ty));
        let default =
            if from_float && !to_float { tessera_types::Rounding::TowardZero } else { tessera_types::Rounding::NearestEven };
        let (rounding, integral) = rounding.unwrap_or((default, false));
        let conversion = Conversion {
            to: to_ty,
            from: from_ty,
            rounding,
            integral: integral && to_float,
            ftz: mods.has(Word::Ftz),
            sat: mods.has(Word::Sat),
            satfinite: mods.has(Word::Satfinite),
            relu: mods.has(Word::Relu),
        };
        let pair = matches!(to_ty, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2);
        if let (true, [to, high, low]) = (pair, operands) {
            let plain = rounding == tessera_types::Rounding::NearestEven && !conversion.relu && !conversion.satfinite;
            if let (true, Some(map)) = (plain, convert::pack(to_ty)) {
                self.map(&map, to, &[high, low])?;
                return Ok(true);
            }
            let (high, low) = (self.value(high, false)?, self.value(low, false)?);
            let to = self.destination(to, false)?;
            self.emit(Op::ConvertPair { conversion, to, high, low });
            return Ok(true);
        }
        let [to, from] = operands else { return Ok(false) };
        if pair {
            let from = self.value(from, false)?;
            let to = self.destination(to, false)?;
            self.emit(Op::ConvertSplit { conversion, to, from });
            return Ok(true);
        }
        let from_reg = self.value(from, from_ty.bits() == 64)?;
        let Some(to_reg) = self.target(to)? else { return Ok(true) };
        if !to_float && !from_float && !conversion.sat {
            return self.integer_cvt(to_reg, to_ty, from_reg, from_ty);
        }
        if let Some(map) = conversion.vector()
            && map.sources == [from_reg.wide]
            && map.wide == to_reg.wide
        {
            self.emit(Op::Map { run: map.run, to: to_reg, from: [from_reg.slot; 4] });
            return Ok(true);
        }
        self.emit(Op::Convert { conversion, to: to_reg, from: from_reg });
        Ok(true)
    }

    /// `cvt.pack`: two integers, saturated, in the low part of what the third was shifted up by.
    fn cvt_pack(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        // There is none that does not saturate.
        if !mods.has(Word::Sat) {
            return Ok(false);
        }
        let Some(ty) = mods.types().next() else { return Ok(false) };
        let ([to, a, b], rest) = (&operands[..3], &operands[3..]) else { return Ok(false) };
        let Some(map) = integer::pack(ty) else { return Ok(false) };
        let none = Operand::Int(0);
        self.map(&map, to, &[a, b, rest.first().unwrap_or(&none)])?;
        Ok(true)
    }

    /// Between integers: the source's value, cut or extended to the destination type, extended to the register.
    fn integer_cvt(&mut self, to: Reg, to_ty: Type, from: Reg, from_ty: Type) -> Result<bool> {
        // Of the same width, the destination's sign decides how the register is filled.
        let narrower = if to_ty.bits() <= from_ty.bits() { to_ty } else { from_ty };
        if from.wide && narrower.bits() <= 32 {
            let low = self.scratch(false);
            self.prepare(Op::Map { run: integer::narrow().run, to: low, from: [from.slot; 4] });
            return self.integer_cvt(to, to_ty, low, narrower);
        }
        let Some(map) = integer::resize(narrower, to.wide) else { return Ok(false) };
        if map.sources != [from.wide] {
            return Ok(false);
        }
        self.emit(Op::Map { run: map.run, to, from: [from.slot; 4] });
        // A 16-bit register keeps 16 bits, a result of an unsigned type its own width.
        let kept = match to_ty {
            Type::U8 => 8,
            Type::U16 => 16,
            Type::S16 | Type::S8 if to.wide => 64,
            Type::U32 if to.wide && narrower.bits() < 32 => 32,
            _ => 64,
        };
        if kept < 32
            && !to.wide
            && let Some(cut) = integer::truncate(kept)
        {
            self.emit(Op::Map { run: cut.run, to, from: [to.slot; 4] });
        } else if kept <= 32 && to.wide {
            let low = self.scratch(false);
            self.emit(Op::Map { run: integer::narrow().run, to: low, from: [to.slot; 4] });
            if let Some(cut) = integer::truncate(kept) {
                self.emit(Op::Map { run: cut.run, to: low, from: [low.slot; 4] });
            }
            self.emit(Op::Map { run: integer::widen().run, to, from: [low.slot; 4] });
        }
        Ok(true)
    }

    pub(super) fn compare(mods: Mods<'_>) -> Result<(Word, Type)> {
        const HOW: [Word; 18] = [
            Word::Eq,
            Word::Ne,
            Word::Lt,
            Word::Le,
            Word::Gt,
            Word::Ge,
            Word::Lo,
            Word::Ls,
            Word::Hi,
            Word::Hs,
            Word::Equ,
            Word::Neu,
            Word::Ltu,
            Word::Leu,
            Word::Gtu,
            Word::Geu,
            Word::Num,
            Word::Unordered,
        ];
        Ok((mods.any(&HOW).ok_or("the comparison is missing")?, mods.ty()?))
    }

    fn setp(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let (how, ty) = Self::compare(mods)?;
        let (first, second) = match &operands[0] {
            Operand::Pair(pair) => (&pair.0, Some(&pair.1)),
            other => (other, None),
        };
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            let [low, high] = [false, true].map(|high| half::compare(how, ty, high, mods.has(Word::Ftz)));
            let (Some(low), Some(high)) = (low, high) else { return Ok(false) };
            let from = self.test_sources(&low, &[&operands[1], &operands[2]])?;
            let to = self.flag(first)?;
            let other = second.map(|operand| self.flag(operand)).transpose()?.flatten();
            let combine = self.connected(mods, operands.get(3))?;
            self.emit(Op::TestPair { run: [low.run, high.run], from, to, other, combine });
            return Ok(true);
        }
        let Some(test) = comparison(how, ty, mods.has(Word::Ftz)) else { return Ok(false) };
        let from = self.test_sources(&test, &[&operands[1], &operands[2]])?;
        let combine = self.connected(mods, operands.get(3))?;
        let to = self.flag(first)?;
        let other = second.map(|operand| self.flag(operand)).transpose()?.flatten();
        self.emit(Op::Test { run: test.run, from, to, other, combine });
        Ok(true)
    }

    /// The predicate that a comparison is joined with.
    fn connected(&mut self, mods: Mods<'_>, operand: Option<&Operand>) -> Result<Option<(Connective, Pred)>> {
        match (connective(mods), operand) {
            (Some(how), Some(operand)) => Ok(Some((how, self.predicate(operand)?))),
            _ => Ok(None),
        }
    }

    fn set(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let (how, ty) = Self::compare(mods)?;
        let result = mods.types().next().unwrap_or(Type::U32);
        let [to, a, b, rest @ ..] = operands else { return Ok(false) };
        let packed = matches!(ty, Type::F16x2 | Type::Bf16x2);
        let ftz = mods.has(Word::Ftz);
        let test = if packed { half::compare(how, ty, false, ftz) } else { comparison(how, ty, ftz) };
        let Some(test) = test else { return Ok(false) };
        let from = self.test_sources(&test, &[a, b])?;
        let (value, high) = match result {
            Type::F32 => (0x3f80_0000, None),
            Type::F16 => (0x3c00, None),
            Type::Bf16 => (0x3f80, None),
            Type::F16x2 => (0x3c00, Some(0x3c00_0000)),
            Type::Bf16x2 => (0x3f80, Some(0x3f80_0000)),
            Type::U16 | Type::S16 => (0xffff, None),
            _ if packed => (0xffff, Some(0xffff_0000)),
            _ => (u32::MAX, None),
        };
        let high = match high {
            Some(value) => match half::compare(how, ty, true, ftz) {
                Some(test) => Some((test.run, value)),
                None => return Ok(false),
            },
            None => None,
        };
        let combine = self.connected(mods, rest.first())?;
        let to = self.destination(to, false)?;
        self.emit(Op::Set(Set { run: test.run, from, to, value, high, combine }));
        Ok(true)
    }

    fn testp(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let test = mods.pick(|word| float::classify(word, mods.ty().ok()?));
        let Some(test) = test else { return Ok(false) };
        let from = self.test_sources(&test, &[&operands[1]])?;
        let to = self.flag(&operands[0])?;
        self.emit(Op::Test { run: test.run, from, to, other: None, combine: None });
        Ok(true)
    }

    fn selp(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let wide = mods.ty()?.bits() == 64;
        let [to, a, b, by] = operands else { return Ok(false) };
        let (a, b, by) = (self.source(a, wide)?, self.source(b, wide)?, self.predicate(by)?);
        let to = self.destination(to, wide)?;
        self.emit(Op::Select { to, a, b, by });
        Ok(true)
    }

    fn slct(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let types: SmallVec<[Type; 2]> = mods.types().collect();
        let ([ty, by_ty], [to, a, b, c]) = (&types[..], operands) else { return Ok(false) };
        let test = comparison(Word::Ge, *by_ty, mods.has(Word::Ftz));
        let Some(test) = test else { return Ok(false) };
        let zero = self.constant(0, false);
        let mut from = self.test_sources(&test, &[c])?;
        from[1] = zero;
        let index = self.scratch_predicate();
        let wide = ty.bits() == 64;
        let (a, b) = (self.source(a, wide)?, self.source(b, wide)?);
        self.prepare(Op::Test { run: test.run, from, to: Some(index), other: None, combine: None });
        let to = self.destination(to, wide)?;
        self.emit(Op::Select { to, a, b, by: Pred { index, negated: false } });
        Ok(true)
    }

    fn carry(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let wide = ty.bits() == 64;
        let reads = mnemonic.ends_with('c');
        let multiply = mnemonic.starts_with("mad");
        let [to, a, b, rest @ ..] = operands else { return Ok(false) };
        let (a, b) = (self.source(a, wide)?, self.source(b, wide)?);
        let c = match rest.first() {
            Some(operand) => Some(Reg { slot: self.source(operand, wide)?, wide }),
            None if multiply => return Ok(false),
            None => None,
        };
        let to = self.destination(to, wide)?;
        self.emit(Op::Carry(Carry {
            to,
            a: Reg { slot: a, wide },
            b: Reg { slot: b, wide },
            c,
            subtract: mnemonic.starts_with("sub"),
            high: mods.has(Word::Hi),
            signed: matches!(ty, Type::S32 | Type::S64),
            reads,
            writes: mods.has(Word::Cc),
        }));
        Ok(true)
    }

    fn logic_predicate(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let [to, a, b, c, Operand::Int(table), with] = operands else { return Ok(false) };
        let from = [self.source(a, false)?, self.source(b, false)?, self.source(c, false)?];
        let with = self.predicate(with)?;
        let (to, flag) = match to {
            Operand::Pair(pair) => (self.target(&pair.0)?, self.flag(&pair.1)?),
            other => (self.target(other)?, None),
        };
        let how = connective(mods).unwrap_or(Connective::And);
        self.emit(Op::LogicPredicate(LogicPredicate { to, flag, from, table: *table as u32, how, with }));
        Ok(true)
    }
}

fn comparison(how: Word, ty: Type, ftz: bool) -> Option<Test> {
    match ty {
        Type::F32 | Type::F64 => float::compare(how, ty, ftz),
        _ if is_half(ty) => half::compare(how, ty, false, ftz),
        _ => integer::compare(how, ty),
    }
}

/// The operation of an ordinary instruction: one result, `count` operands.
fn operation(mnemonic: &str, mods: Mods<'_>, ty: Type, count: usize) -> Option<Map> {
    let flags = flags(mods);
    if is_half(ty) {
        return match (mods.has(Word::XorSign) && mods.has(Word::Abs), mods.has(Word::Oob)) {
            (true, _) => half::extreme_magnitude(mnemonic == "max", ty, flags),
            (false, true) => half::fused_in_bounds(ty, flags),
            (false, false) => half::arithmetic(mnemonic, ty, flags),
        };
    }
    match (ty, count) {
        (Type::F32, 2) if mods.has(Word::Abs) || mods.has(Word::XorSign) => {
            Some(float::extreme_magnitude(mnemonic == "max", mods.has(Word::XorSign), flags))
        }
        (Type::F32, 1) => float::one(mnemonic, flags),
        (Type::F32, 2) => float::two(mnemonic, flags),
        (Type::F32, 3) => matches!(mnemonic, "fma" | "mad").then(|| float::fused(flags)),
        (Type::F64, 1) => float::one_64(mnemonic, flags),
        (Type::F64, 2) => float::two_64(mnemonic, flags),
        (Type::F64, 3) => matches!(mnemonic, "fma" | "mad").then(|| float::fused_64(flags)),
        (Type::U16x2 | Type::S16x2, 2) => integer::pairs(mnemonic, flags.relu, ty == Type::S16x2),
        _ => {
            let part = mods.any(&PARTS);
            let signed = |index: usize| mods.types().nth(index).is_some_and(|ty| ty == Type::S32);
            match mnemonic {
                "shf" => Some(integer::funnel(mods.has(Word::L), mods.has(Word::Wrap))),
                "dp4a" | "dp2a" => Some(integer::dot(mnemonic == "dp4a", signed(0), signed(1), mods.has(Word::Hi))),
                _ if count == 1 => integer::one(mnemonic, part, ty),
                _ if count == 2 => integer::two(mnemonic, part, ty),
                _ => integer::more(mnemonic, part, ty),
            }
        }
    }
}
