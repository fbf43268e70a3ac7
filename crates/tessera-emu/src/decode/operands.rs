//! Operands: registers, immediates, special registers and addresses as slots.

use smallvec::SmallVec;
use tessera_ptx::{Address, Base, Name, Operand, RegId, Special, Type, Word};

use super::modifiers::Mods;
use super::{Binding, Builder, Place, Result};
use crate::ops::{Map, Test, integer};
use crate::program::{Addr, Fill, Op, Order, Pred, RESERVED_OFFSETS, Reg, Scope, Space};

impl Builder<'_> {
    pub(super) fn new_slot(&mut self, fill: Fill, name: &str) -> u32 {
        self.slots.push(fill);
        self.names.push(name.to_owned());
        self.slots.len() as u32 - 1
    }

    pub(super) fn new_register(&mut self, name: &str, wide: bool) -> Reg {
        let slot = self.new_slot(Fill::Register, name);
        if wide {
            self.wide_registers.insert(slot);
        }
        Reg { slot, wide }
    }

    /// A register that only this instruction sees; its lanes count as written.
    pub(super) fn scratch(&mut self, wide: bool) -> Reg {
        let slot = self.new_slot(Fill::Constant(0, wide), "scratch");
        if wide {
            self.wide_registers.insert(slot);
        }
        Reg { slot, wide }
    }

    pub(super) fn constant(&mut self, value: u64, wide: bool) -> u32 {
        let value = if wide { value } else { value & 0xffff_ffff };
        if let Some(&slot) = self.constants.get(&(value, wide)) {
            return slot;
        }
        let slot = self.new_slot(Fill::Constant(value, wide), "constant");
        self.constants.insert((value, wide), slot);
        slot
    }

    fn binding(&mut self, id: RegId) -> Result<Binding> {
        let index = id.0 as usize;
        let binding = *self.frame.bindings.get(index).ok_or("a register is not declared")?;
        if !matches!(binding, Binding::None) {
            return Ok(binding);
        }
        let register = &self.frame.registers[index];
        let name = register.name.to_string();
        let made = match register.ty {
            Type::Pred => {
                self.predicate_names.push(name);
                Binding::Predicate(self.predicate_names.len() as u32 - 1)
            }
            Type::B128 => {
                let low = self.new_register(&name, true);
                Binding::Pair([low, self.new_register(&name, true)])
            }
            ty => Binding::Slot(self.new_register(&name, ty.bits() == 64)),
        };
        self.frame.bindings[index] = made;
        Ok(made)
    }

    pub(super) fn predicate_of(&mut self, id: RegId) -> Result<u32> {
        match self.binding(id)? {
            Binding::Predicate(index) => Ok(index),
            Binding::Slot(_) | Binding::Pair(_) | Binding::None => Err("a predicate is needed".to_owned()),
        }
    }

    fn register(&mut self, id: RegId) -> Result<Reg> {
        match self.binding(id)? {
            Binding::Slot(reg) => Ok(reg),
            Binding::Pair(_) => Err("a register of 128 bits stands where it cannot".to_owned()),
            Binding::Predicate(_) | Binding::None => Err("a register that holds numbers is needed".to_owned()),
        }
    }

    /// The halves of a 128-bit register, lower first.
    pub(super) fn pair(&mut self, operand: &Operand) -> Result<[Reg; 2]> {
        match operand {
            Operand::Register(id) => match self.binding(*id)? {
                Binding::Pair(halves) => Ok(halves),
                _ => Err("a register of 128 bits is needed".to_owned()),
            },
            _ => Err("a register of 128 bits is needed".to_owned()),
        }
    }

    /// The halves of a 128-bit source.
    pub(super) fn pair_source(&mut self, operand: &Operand) -> Result<[Reg; 2]> {
        let halves = self.pair(operand)?;
        self.current.reads.extend(halves.map(|half| half.slot));
        Ok(halves)
    }

    /// The halves of a 128-bit destination; none for `_`.
    pub(super) fn pair_target(&mut self, operand: &Operand) -> Result<[Option<Reg>; 2]> {
        if matches!(operand, Operand::Sink) {
            return Ok([None; 2]);
        }
        let halves = self.pair(operand)?;
        self.current.writes.extend(halves.map(|half| half.slot));
        Ok(halves.map(Some))
    }

    /// A predicate as a source.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<Pred> {
        let (index, negated) = match operand {
            Operand::Register(id) => (self.predicate_of(*id)?, false),
            Operand::Not(id) => (self.predicate_of(*id)?, true),
            Operand::Int(value) => return Ok(if *value != 0 { Pred::TRUE } else { Pred::FALSE }),
            Operand::Special(special) => return self.special_predicate(*special),
            _ => return Err("a predicate is needed".to_owned()),
        };
        self.current.reads_predicates.push(index);
        Ok(Pred { index, negated })
    }

    /// A special register that is a predicate.
    fn special_predicate(&mut self, special: Special) -> Result<Pred> {
        let test = integer::compare(Word::Ne, Type::U32).ok_or("no comparison of integers")?;
        let (slot, zero) = (self.special(special)?.slot, self.constant(0, false));
        let index = self.scratch_predicate();
        self.prepare(Op::Test { run: test.run, from: [slot, zero, zero, zero], to: Some(index), other: None, combine: None });
        Ok(Pred { index, negated: false })
    }

    /// A predicate that only this instruction sees.
    pub(super) fn scratch_predicate(&mut self) -> u32 {
        self.predicate_names.push("scratch".to_owned());
        self.predicate_names.len() as u32 - 1
    }

    /// A predicate as a destination; none for `_`.
    pub(super) fn flag(&mut self, operand: &Operand) -> Result<Option<u32>> {
        match operand {
            Operand::Sink => Ok(None),
            Operand::Register(id) => {
                let index = self.predicate_of(*id)?;
                self.current.writes_predicates.push(index);
                Ok(Some(index))
            }
            _ => Err("a predicate is needed".to_owned()),
        }
    }

    /// A source in the view that the operation wants. A register of the other width is copied first.
    pub(super) fn source(&mut self, operand: &Operand, wide: bool) -> Result<u32> {
        let reg = self.value(operand, wide)?;
        Ok(self.viewed(reg, wide))
    }

    pub(super) fn viewed(&mut self, reg: Reg, wide: bool) -> u32 {
        if reg.wide == wide {
            return reg.slot;
        }
        let to = self.scratch(wide);
        let map = if wide { integer::widen() } else { integer::narrow() };
        self.prepare(Op::Map { run: map.run, to, from: [reg.slot; 4] });
        to.slot
    }

    /// A source in whatever view it has; numbers take the wanted one.
    pub(super) fn value(&mut self, operand: &Operand, wide: bool) -> Result<Reg> {
        let slot = match operand {
            Operand::Register(id) => {
                let reg = self.register(*id)?;
                self.current.reads.push(reg.slot);
                return Ok(reg);
            }
            Operand::Int(value) => self.constant(*value as u64, wide),
            Operand::F32(bits) if wide => self.constant(f64::from(f32::from_bits(*bits)).to_bits(), true),
            Operand::F32(bits) => self.constant(u64::from(*bits), false),
            Operand::F64(bits) if wide => self.constant(*bits, true),
            Operand::F64(bits) => self.constant(u64::from((f64::from_bits(*bits) as f32).to_bits()), false),
            Operand::Symbol(name, offset) => return Ok(self.symbol(name, *offset, wide)?.0),
            Operand::Special(special) => return self.special(*special),
            Operand::Not(_)
            | Operand::Address(_)
            | Operand::Vector(_)
            | Operand::List(_)
            | Operand::Pair(_)
            | Operand::Part { .. }
            | Operand::Sink => {
                return Err("a register or a number is needed".to_owned());
            }
        };
        Ok(Reg { slot, wide })
    }

    fn special(&mut self, special: Special) -> Result<Reg> {
        let wide = special.ty().bits() == 64;
        if matches!(
            special,
            Special::Clock
                | Special::ClockHi
                | Special::Clock64
                | Special::Globaltimer
                | Special::GlobaltimerLo
                | Special::GlobaltimerHi
        ) {
            let to = self.scratch(wide);
            self.prepare(Op::Clock { to, which: special });
            return Ok(to);
        }
        match special {
            Special::ReservedBegin | Special::ReservedEnd | Special::ReservedCap | Special::Reserved0 | Special::Reserved1 => {
                self.shared_floor = RESERVED_OFFSETS[0];
            }
            Special::CurrentGraphExec => {
                return Err("`%current_graph_exec`: graphs that kernels launch are not executed".to_owned());
            }
            Special::Counter(_) | Special::WideCounter(_) => {
                return Err(format!("`{special}`: performance counters are not kept"));
            }
            _ => {}
        }
        let slot = match self.specials.get(&special) {
            Some(&slot) => slot,
            None => {
                let slot = self.new_slot(Fill::Special(special), &special.to_string());
                self.specials.insert(special, slot);
                slot
            }
        };
        Ok(Reg { slot, wide })
    }

    /// A variable's address in its own space.
    fn symbol(&mut self, name: &Name, offset: i64, wide: bool) -> Result<(Reg, Space)> {
        let place = self.place(name).ok_or_else(|| format!("`{name}` is no variable that is known here"))?;
        let (base, space) = match place {
            Place::Global(address) => (address, Space::Global),
            Place::Shared(at) => {
                let at = (i64::from(at) + offset) as u32;
                let known = self.slots.iter().position(|fill| *fill == Fill::Shared(at, wide));
                let slot = known.map_or_else(|| self.new_slot(Fill::Shared(at, wide), &name.to_string()), |slot| slot as u32);
                return Ok((Reg { slot, wide }, Space::Shared));
            }
            Place::Local(at) => (u64::from(at), Space::Local),
            Place::Param(at) => (u64::from(at), Space::Param),
            Place::Function(address) => (address, Space::Generic),
            Place::Frame(at) => {
                let add = integer::two("add", None, Type::U64).ok_or("no addition of addresses")?;
                let offset = self.constant(u64::from(at).wrapping_add(offset as u64), true);
                let to = self.scratch(true);
                self.prepare(Op::Map { run: add.run, to, from: [self.frame_slot, offset, offset, offset] });
                return Ok((Reg { slot: self.viewed(to, wide), wide }, Space::Local));
            }
            Place::Dynamic => {
                let slot = self.new_slot(Fill::Shared(0, wide), &name.to_string());
                self.dynamic.push((slot, offset));
                return Ok((Reg { slot, wide }, Space::Shared));
            }
        };
        Ok((Reg { slot: self.constant(base.wrapping_add(offset as u64), wide), wide }, space))
    }

    /// A destination of the given view; a register of the other width gets a copy afterwards.
    pub(super) fn destination(&mut self, operand: &Operand, wide: bool) -> Result<Reg> {
        let Some(reg) = self.target(operand)? else { return Ok(self.scratch(wide)) };
        if reg.wide == wide {
            return Ok(reg);
        }
        let from = self.scratch(wide);
        let map = if reg.wide { integer::widen() } else { integer::narrow() };
        self.after.push(Op::Map { run: map.run, to: reg, from: [from.slot; 4] });
        Ok(from)
    }

    /// A destination register in whatever view it has; none for `_`.
    pub(super) fn target(&mut self, operand: &Operand) -> Result<Option<Reg>> {
        match operand {
            Operand::Sink => Ok(None),
            Operand::Register(id) => {
                let reg = self.register(*id)?;
                self.current.writes.push(reg.slot);
                Ok(Some(reg))
            }
            _ => Err("a register is needed".to_owned()),
        }
    }

    /// The operands of a vector, or the one operand itself.
    pub(super) fn parts(operand: &Operand) -> &[Operand] {
        match operand {
            Operand::Vector(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    pub(super) fn sources(&mut self, operand: &Operand, wide: bool) -> Result<SmallVec<[Reg; 4]>> {
        let parts = Self::parts(operand);
        let mut list = SmallVec::new();
        for part in parts {
            let part = if matches!(part, Operand::Sink) { &Operand::Int(0) } else { part };
            list.push(self.value(part, wide)?);
        }
        Ok(list)
    }

    /// Emits an operation over lanes.
    pub(super) fn map(&mut self, map: &Map, to: &Operand, from: &[&Operand]) -> Result<()> {
        let mut slots = [0; 4];
        for ((slot, operand), wide) in slots.iter_mut().zip(from).zip(map.sources) {
            *slot = self.source(operand, *wide)?;
        }
        let to = self.destination(to, map.wide)?;
        self.emit(Op::Map { run: map.run, to, from: slots });
        Ok(())
    }

    /// The operands of a condition.
    pub(super) fn test_sources(&mut self, test: &Test, from: &[&Operand]) -> Result<[u32; 4]> {
        let mut slots = [0; 4];
        for ((slot, operand), wide) in slots.iter_mut().zip(from).zip(test.sources) {
            *slot = self.source(operand, *wide)?;
        }
        Ok(slots)
    }

    /// A memory operand. What the instruction says about the space is refined by the variable it names.
    pub(super) fn address(&mut self, operand: &Operand, space: Space) -> Result<Addr> {
        let Operand::Address(address) = operand else { return Err("an address is needed".to_owned()) };
        self.address_of(address, space)
    }

    pub(super) fn address_of(&mut self, address: &Address, space: Space) -> Result<Addr> {
        match &address.base {
            Base::Register(id) => {
                let base = self.register(*id)?;
                self.current.reads.push(base.slot);
                Ok(Addr { base, offset: address.offset, space })
            }
            Base::Symbol(name) => {
                if let Some(Place::Frame(at)) = self.place(name) {
                    let base = Reg { slot: self.frame_slot, wide: true };
                    return Ok(Addr { base, offset: address.offset.wrapping_add(i64::from(at)), space: Space::Local });
                }
                let (base, found) = self.symbol(name, 0, true)?;
                Ok(Addr { base, offset: address.offset, space: found })
            }
            Base::Zero => {
                let slot = self.constant(0, true);
                Ok(Addr { base: Reg { slot, wide: true }, offset: address.offset, space })
            }
        }
    }
}

/// The space that an instruction names.
pub(super) fn space(mods: Mods<'_>) -> Space {
    mods.pick(space_of).unwrap_or(Space::Generic)
}

pub(super) fn space_of(word: Word) -> Option<Space> {
    match word {
        Word::Global | Word::Const => Some(Space::Global),
        Word::Shared | Word::SharedCta => Some(Space::Shared),
        Word::SharedCluster => Some(Space::Cluster),
        Word::Local => Some(Space::Local),
        Word::Param | Word::ParamEntry | Word::ParamFunc => Some(Space::Param),
        _ => None,
    }
}

/// The order and scope that an instruction names.
pub(super) fn order(mods: Mods<'_>, default: Order) -> (Order, Scope) {
    let order = mods.pick(|word| match word {
        Word::Weak => Some(Order::Weak),
        Word::Relaxed | Word::Volatile => Some(Order::Relaxed),
        Word::Acquire => Some(Order::Acquire),
        Word::Release => Some(Order::Release),
        Word::AcqRel => Some(Order::AcqRel),
        Word::Sc => Some(Order::Sc),
        _ => None,
    });
    let scope = mods.pick(|word| match word {
        Word::Cta => Some(Scope::Cta),
        Word::Cluster => Some(Scope::Cluster),
        Word::Gpu | Word::Gl => Some(Scope::Gpu),
        Word::Sys => Some(Scope::System),
        _ => None,
    });
    (order.unwrap_or(default), scope.unwrap_or(Scope::Gpu))
}
