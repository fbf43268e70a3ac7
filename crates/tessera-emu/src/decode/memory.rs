//! Loads, stores, atomics and address arithmetic.

use smallvec::SmallVec;
use tessera_ptx::{Operand, Type, Word};

use super::modifiers::Mods;
use super::operands::{order, space};
use super::{Builder, Result};
use crate::ops::integer;
use crate::program::{Change, Fill, Op, Order, Reg, Space};

/// The read-modify-write that an instruction names.
pub(super) fn change(mods: Mods<'_>) -> Option<Change> {
    mods.pick(|word| match word {
        Word::Add => Some(Change::Add),
        Word::Inc => Some(Change::Inc),
        Word::Dec => Some(Change::Dec),
        Word::Min => Some(Change::Min),
        Word::Max => Some(Change::Max),
        Word::And => Some(Change::And),
        Word::Or => Some(Change::Or),
        Word::Xor => Some(Change::Xor),
        Word::Exch => Some(Change::Exchange),
        Word::Cas => Some(Change::Compare),
        _ => None,
    })
}

fn signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

impl Builder<'_> {
    pub(super) fn memory(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        match mnemonic {
            "ld" | "ldu" => self.load(mods, operands),
            "st" if mods.has(Word::Async) => self.store_async(mods, operands),
            "red" if mods.has(Word::Async) => self.reduce_async(mods, operands),
            "st" => self.store(mods, operands),
            "atom" | "red" => self.atomic(mnemonic == "atom", mods, operands),
            "cvta" => self.generic(mods, operands),
            "isspacep" => self.is_space(mods, operands),
            "mapa" => self.map_rank(operands),
            "getctarank" => {
                let from = self.value(&operands[1], mods.ty()?.bits() == 64)?;
                let to = self.destination(&operands[0], false)?;
                self.emit(Op::RankOf { to, from });
                Ok(true)
            }
            "createpolicy" => {
                let to = self.destination(&operands[0], true)?;
                let zero = self.constant(0, true);
                let Some(map) = integer::one("mov", None, Type::U64) else { return Ok(false) };
                self.emit(Op::Map { run: map.run, to, from: [zero; 4] });
                Ok(true)
            }
            "alloca" => self.alloca(operands),
            "stacksave" | "stackrestore" => {
                let stack = Reg { slot: self.stack_slot(), wide: true };
                let (to, from) = match mnemonic {
                    "stacksave" => (self.destination(&operands[0], true)?, stack.slot),
                    _ => (stack, self.source(&operands[0], true)?),
                };
                let Some(map) = integer::one("mov", None, Type::U64) else { return Ok(false) };
                self.emit(Op::Map { run: map.run, to, from: [from; 4] });
                Ok(true)
            }
            // Hints change no value.
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                self.emit(Op::Nop);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The slot of where `alloca` takes its next bytes.
    fn stack_slot(&mut self) -> u32 {
        let slot = match self.stack_slot {
            Some(slot) => slot,
            // The start is known when the kernel's other local memory is.
            None => self.new_slot(Fill::Constant(0, true), "stack"),
        };
        self.stack_slot = Some(slot);
        slot
    }

    /// Bytes of local memory until the function, or a `stackrestore`, gives them back; what lies beyond the thread's share is
    /// found when it is touched.
    fn alloca(&mut self, operands: &[Operand]) -> Result<bool> {
        let align = match operands.get(2) {
            Some(Operand::Int(align)) if *align > 0 && (*align as u64).is_power_of_two() => (*align as u64).max(8),
            Some(_) => return Err("the alignment of `alloca` is a power of two".to_owned()),
            None => 8,
        };
        let (Some(add), Some(and)) = (integer::two("add", None, Type::U64), integer::two("and", None, Type::B64)) else {
            return Ok(false);
        };
        let size = self.source(&operands[1], true)?;
        let stack = self.stack_slot();
        let (up, mask) = (self.constant(align - 1, true), self.constant(!(align - 1), true));
        let start = self.scratch(true);
        self.prepare(Op::Map { run: add.run, to: start, from: [stack, up, up, up] });
        self.prepare(Op::Map { run: and.run, to: start, from: [start.slot, mask, mask, mask] });
        let to = self.destination(&operands[0], true)?;
        self.emit(Op::Map { run: and.run, to, from: [start.slot; 4] });
        self.emit(Op::Map { run: add.run, to: Reg { slot: stack, wide: true }, from: [start.slot, size, size, size] });
        Ok(true)
    }

    fn load(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let addr = self.address(&operands[1], space(mods))?;
        let to: SmallVec<[Option<Reg>; 4]> = match ty {
            Type::B128 => SmallVec::from_slice(&self.pair_target(&operands[0])?),
            _ => Self::parts(&operands[0]).iter().map(|part| self.target(part)).collect::<Result<_>>()?,
        };
        let (order, scope) = order(mods, Order::Weak);
        self.emit(Op::Load { to, bytes: (ty.bits() / 8).min(8), signed: signed(ty), addr, order, scope });
        Ok(true)
    }

    fn store(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let addr = self.address(&operands[0], space(mods))?;
        let from = match ty {
            Type::B128 => SmallVec::from_slice(&self.pair_source(&operands[1])?),
            _ => self.sources(&operands[1], ty.bits() == 64)?,
        };
        let (order, scope) = order(mods, Order::Weak);
        self.emit(Op::Store { from, bytes: (ty.bits() / 8).min(8), addr, order, scope });
        Ok(true)
    }

    fn store_async(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let addr = self.address(&operands[0], Space::Cluster)?;
        let from = self.sources(&operands[1], ty.bits() == 64)?;
        let barrier = self.address(&operands[2], Space::Cluster)?;
        self.emit(Op::StoreAsync { from, bytes: ty.bits() / 8, addr, barrier, reduce: None });
        Ok(true)
    }

    fn reduce_async(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let Some(how) = change(mods) else { return Ok(false) };
        let addr = self.address(&operands[0], Space::Cluster)?;
        let from = self.sources(&operands[1], ty.bits() == 64)?;
        let barrier = self.address(&operands[2], Space::Cluster)?;
        self.emit(Op::StoreAsync { from, bytes: ty.bits() / 8, addr, barrier, reduce: Some((how, ty)) });
        Ok(true)
    }

    fn atomic(&mut self, returns: bool, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let ty = mods.ty()?;
        let Some(how) = change(mods) else { return Ok(false) };
        let rest = if returns { &operands[1..] } else { operands };
        let addr = self.address(&rest[0], space(mods))?;
        let operand = |builder: &mut Self, at: usize| -> Result<SmallVec<[Reg; 4]>> {
            match ty {
                Type::B128 => Ok(SmallVec::from_slice(&builder.pair_source(&rest[at])?)),
                _ => builder.sources(&rest[at], ty.bits() == 64),
            }
        };
        let value = operand(self, 1)?;
        let second = if how == Change::Compare { operand(self, 2)?.into_iter().collect() } else { SmallVec::new() };
        let to: SmallVec<[Option<Reg>; 4]> = match (returns, ty) {
            (false, _) => SmallVec::new(),
            (true, Type::B128) => SmallVec::from_slice(&self.pair_target(&operands[0])?),
            (true, _) => Self::parts(&operands[0]).iter().map(|part| self.target(part)).collect::<Result<_>>()?,
        };
        let (order, scope) = order(mods, Order::Relaxed);
        self.emit(Op::Atomic { to, how, ty, addr, value, second, order, scope });
        Ok(true)
    }

    fn generic(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let wide = mods.ty()?.bits() == 64;
        let space = space(mods);
        let from = Reg { slot: self.source(&operands[1], wide)?, wide };
        let to = self.destination(&operands[0], wide)?;
        self.emit(Op::Generic { to, from, space, back: mods.has(Word::To) });
        Ok(true)
    }

    fn is_space(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let from = self.value(&operands[1], true)?;
        if let Some(to) = self.flag(&operands[0])? {
            self.emit(Op::IsSpace { to, from, space: space(mods) });
        }
        Ok(true)
    }

    fn map_rank(&mut self, operands: &[Operand]) -> Result<bool> {
        let from = self.value(&operands[1], false)?;
        let rank = self.value(&operands[2], false)?;
        if let Some(to) = self.target(&operands[0])? {
            self.emit(Op::MapRank { to, from, rank });
        }
        Ok(true)
    }
}
