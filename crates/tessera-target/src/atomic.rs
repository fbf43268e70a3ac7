//! Atomic updates in global and shared memory. What the processor lacks is a loop of compare and swap: 16-bit floats where they
//! have no addition, other 16-bit updates, and 8-bit elements, which are swapped with the word around them.

use tessera_ir::attrs::{AtomicMode, MemoryOrder, MemoryScope};
use tessera_ir::{Elem, OpData, ScheduleOp, Value};
use tessera_ptx::ssa::{Address, Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::{Bound, Regs, class_of};
use super::lowering::{Lowered, Lowering};
use super::memory::scope_word;
use super::operation::astray;

/// One atomic update of an element.
#[derive(Clone)]
pub(super) struct Update {
    /// `relaxed.gpu.global`, `shared`
    pub(super) words: String,
    pub(super) dtype: DType,
    pub(super) mode: AtomicMode,
    pub(super) address: Address,
    /// What is stored only where this is found.
    pub(super) expected: Option<Reg>,
    pub(super) value: Reg,
    /// Where it happens at all.
    pub(super) when: Option<Reg>,
}

impl Lowering<'_> {
    /// Lowers an atomic operation.
    pub(super) fn atomics(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        let words = |order: &MemoryOrder, scope: MemoryScope| {
            let order = if *order == MemoryOrder::Weak { MemoryOrder::Relaxed } else { *order };
            format!("{}.{}{}", order.word(), scope_word(Some(scope)), self.space(data.one(0)).word())
        };
        match kind {
            ScheduleOp::AtomicRmwTko { order, scope, mode } => {
                self.pointers(data, *mode, None, data.one(1), data.optional(2), words(order, *scope))?;
            }
            ScheduleOp::AtomicCasTko { order, scope } => {
                let compare = Some(data.one(1));
                self.pointers(data, AtomicMode::Xchg, compare, data.one(2), data.optional(3), words(order, *scope))?;
            }
            ScheduleOp::AtomicRedViewTko { order, scope, mode } => {
                self.view_update(data, *mode, words(order, *scope))?;
                self.bind(data.result(), Bound::Token);
            }
            _ => astray(kind),
        }
        Ok(())
    }

    fn view_update(&mut self, data: &OpData, mode: AtomicMode, words: String) -> Lowered<()> {
        let value = data.one(2);
        let layout = self.layout(value)?;
        let regs = self.regs(value)?;
        let mut window = self.window(data.one(0), data.group(1), &layout)?;
        if window.packed.is_some() {
            return Err(self.refuse("target-packed-pointer", "elements that share bytes can't be updated atomically"));
        }
        let dtype = window.dtype;
        let mine = self.stores(&layout);
        for (register, hole) in self.live(value, None)? {
            if !layout.is_primary(register as u64, 0) {
                continue;
            }
            let within = self.in_array(&mut window, register);
            let when = self.both(hole, within);
            let when = self.both(when, mine);
            let address = self.address(&mut window, register);
            let update = Update { words: words.clone(), dtype, mode, address, expected: None, value: regs[register], when };
            self.update(&update, false)?;
        }
        Ok(())
    }

    fn pointers(
        &mut self,
        data: &OpData,
        mode: AtomicMode,
        compare: Option<Value>,
        value: Value,
        mask: Option<Value>,
        words: String,
    ) -> Lowered<()> {
        let pointers = data.one(0);
        let Elem::Ptr(dtype) = self.elem(pointers)? else { return Err(self.broken("numbers where pointers are needed")) };
        if dtype.bits() < 8 && !dtype.is_byte_bool() {
            return Err(self.refuse("target-packed-pointer", "elements that share bytes can't be updated atomically"));
        }
        let elem = Elem::Num(dtype);
        let (addresses, values) = (self.regs(pointers)?, self.regs(value)?);
        let expected = match compare {
            Some(compare) => Some(self.regs(compare)?),
            None => None,
        };
        let layout = self.layout(pointers)?;
        let once = self.func.ty(pointers).is_scalar() && !self.per_thread;
        let mine = self.primary(pointers, &layout)?;
        let zero = self.bits(elem, 0);
        let mut old: Regs = match &expected {
            Some(expected) => expected.clone(),
            None => std::iter::repeat_n(zero, addresses.len()).collect(),
        };
        let wanted = self.is_used(data.results[0]);
        let mut updates = Vec::new();
        for (register, when) in self.live(pointers, mask)? {
            if layout.is_primary(register as u64, 0) {
                let update = Update {
                    words: words.clone(),
                    dtype,
                    mode,
                    address: addresses[register].into(),
                    expected: expected.as_ref().map(|expected| expected[register]),
                    value: values[register],
                    when: self.both(when, mine),
                };
                updates.push((register, update));
            }
        }
        let meeting = if wanted { None } else { self.meets(&updates) };
        match meeting {
            Some(operation) => self.update_together(&updates, operation)?,
            None => {
                for (register, update) in &updates {
                    if let Some(found) = self.update(update, wanted)? {
                        old[*register] = found;
                    }
                }
            }
        }
        if once {
            old = match wanted {
                true => std::iter::once(self.spread_scalar(elem, old[0])?).collect(),
                false => old,
            };
        } else if wanted && !self.func.ty(pointers).is_scalar() && layout.has_copies() {
            old = self.hand_on(elem, &layout, &old)?;
        }
        self.bind_regs(data.results[0], old);
        self.bind(data.results[1], Bound::Token);
        Ok(())
    }

    /// How a warp puts its updates together where all of them meet at one element: 32-bit integers in global memory, which whole warps
    /// update. One element takes one update a clock, so that values that are all equal would take 32 times as long as they need.
    fn meets(&self, updates: &[(usize, Update)]) -> Option<(Word, Ty)> {
        let (_, first) = updates.first()?;
        let global = first.words.ends_with("global");
        if !global || first.expected.is_some() || first.dtype != DType::I32 || self.per_thread || !self.arch.has_redux() {
            return None;
        }
        match first.mode {
            AtomicMode::Add => Some((Word::Add, Ty::U32)),
            AtomicMode::Max => Some((Word::Max, Ty::S32)),
            AtomicMode::Min => Some((Word::Min, Ty::S32)),
            AtomicMode::UMax => Some((Word::Max, Ty::U32)),
            AtomicMode::UMin => Some((Word::Min, Ty::U32)),
            AtomicMode::And => Some((Word::And, Ty::B32)),
            AtomicMode::Or => Some((Word::Or, Ty::B32)),
            AtomicMode::Xor => Some((Word::Xor, Ty::B32)),
            AtomicMode::AddF | AtomicMode::MaxF | AtomicMode::MinF | AtomicMode::Xchg => None,
        }
    }

    /// One update where all of a warp's are of one element; else each by itself.
    fn update_together(&mut self, updates: &[(usize, Update)], (operation, ty): (Word, Ty)) -> Lowered<()> {
        let Some(((_, first), others)) = updates.split_first() else { return Ok(()) };
        let mut agree = first.when;
        for (_, other) in others {
            let same = self.b.setp(Word::Eq, Ty::U64, other.address.base, first.address.base);
            let same = self.both(Some(same), other.when);
            agree = self.both(agree, same);
        }
        // A lane that doesn't take part with all its updates has an address that is nobody's.
        let nowhere = self.b.constant(Class::B64, 0);
        let address = match agree {
            Some(agree) => self.b.select(agree, first.address.base, nowhere),
            None => first.address.base,
        };
        let meet = self.b.match_all(address);
        let meet = match agree {
            Some(agree) => self.b.and(meet, agree),
            None => meet,
        };
        let (together, apart, join) = (self.b.new_block(&[]), self.b.new_block(&[]), self.b.new_block(&[]));
        self.b.branch(meet, (together, &[]), (apart, &[]));

        self.b.switch_to(together);
        let mut value = first.value;
        for (_, other) in others {
            value = self.combined(other, value)?;
        }
        let value = self.b.redux(operation, ty, value);
        // What orders memory does so for the whole warp.
        let orders = !first.words.starts_with("relaxed");
        if orders {
            self.b.warp_sync();
        }
        let (lane, zero) = (self.lane(), self.b.u32(0));
        let when = Some(self.b.setp(Word::Eq, Ty::U32, lane, zero));
        self.update(&Update { value, when, ..first.clone() }, false)?;
        if orders {
            self.b.warp_sync();
        }
        self.b.jump(join, &[]);

        self.b.switch_to(apart);
        for (_, update) in updates {
            self.update(update, false)?;
        }
        self.b.jump(join, &[]);
        self.b.switch_to(join);
        Ok(())
    }

    pub(super) fn is_used(&self, value: Value) -> bool {
        self.func.linked_ops().into_iter().any(|op| self.func.ops[op].operands.contains(&value))
    }

    /// One update; what was there before, where that is wanted. Where the update does not happen, that is what is expected, or zero.
    pub(super) fn update(&mut self, update: &Update, wanted: bool) -> Lowered<Option<Reg>> {
        let class = class_of(Elem::Num(update.dtype));
        let results = if wanted { vec![class] } else { Vec::new() };
        let (start, join) = (self.b.new_block(&[]), self.b.new_block(&results));
        let idle = update.expected.unwrap_or_else(|| self.bits(Elem::Num(update.dtype), 0));
        let carried: Vec<Reg> = if wanted { vec![idle] } else { Vec::new() };
        if let Some(when) = update.when {
            self.b.branch(when, (start, &[]), (join, &carried));
            self.b.switch_to(start);
        }
        let found = match self.native(update, wanted)? {
            Some(found) => found,
            None => Some(self.by_swapping(update)?),
        };
        if update.when.is_some() {
            let found: Vec<Reg> = if wanted { found.into_iter().collect() } else { Vec::new() };
            self.b.jump(join, &found);
            self.b.switch_to(join);
            return Ok(wanted.then(|| self.b.block_params(join)[0]));
        }
        Ok(found)
    }

    /// The update as one instruction; `None` where there is no such instruction.
    #[allow(clippy::option_option, reason = "no instruction, and an instruction without a result")]
    fn native(&mut self, update: &Update, wanted: bool) -> Lowered<Option<Option<Reg>>> {
        let bits = update.dtype.bits();
        let Update { words, address, value, .. } = update;
        if let Some(expected) = update.expected {
            if bits < 32 {
                return Ok(None);
            }
            let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
            return Ok(Some(Some(self.b.atom_cas(words, ty, address.clone(), expected, *value))));
        }
        let unsigned = if bits == 64 { Ty::U64 } else { Ty::U32 };
        let signed = if bits == 64 { Ty::S64 } else { Ty::S32 };
        let plain = if bits == 64 { Ty::B64 } else { Ty::B32 };
        let (name, ty) = match (update.mode, bits) {
            (AtomicMode::AddF, _) => match update.dtype {
                DType::F32 => ("add", Ty::F32),
                DType::F64 => ("add", Ty::F64),
                DType::F16 => ("add.noftz", Ty::F16),
                DType::BF16 if self.arch.has_bf16_add() => ("add.noftz", Ty::Bf16),
                _ => return Ok(None),
            },
            (AtomicMode::MaxF | AtomicMode::MinF, _) | (_, 8 | 16 | 1 | 4 | 6) => return Ok(None),
            (AtomicMode::And, _) => ("and", plain),
            (AtomicMode::Or, _) => ("or", plain),
            (AtomicMode::Xor, _) => ("xor", plain),
            (AtomicMode::Add, _) => ("add", unsigned),
            (AtomicMode::Max, _) => ("max", signed),
            (AtomicMode::Min, _) => ("min", signed),
            (AtomicMode::UMax, _) => ("max", unsigned),
            (AtomicMode::UMin, _) => ("min", unsigned),
            (AtomicMode::Xchg, _) => ("exch", plain),
        };
        let reducible = words.starts_with("relaxed") || words.starts_with("release") || words == "shared";
        if !wanted && name != "exch" && reducible {
            self.b.red(&format!("{words}.{name}"), ty, address.clone(), *value);
            return Ok(Some(None));
        }
        Ok(Some(Some(self.b.atom(&format!("{words}.{name}"), ty, address.clone(), *value))))
    }

    /// The element after an update.
    fn combined(&mut self, update: &Update, old: Reg) -> Lowered<Reg> {
        let (dtype, value) = (update.dtype, update.value);
        let is_float = dtype.is_float();
        let signed = |this: &mut Self, larger: bool, signed: bool| {
            let (a, b) = (this.extended(dtype, signed, old), this.extended(dtype, signed, value));
            let ty = if signed { Ty::S32 } else { Ty::U32 };
            if larger { this.b.max(ty, a, b) } else { this.b.min(ty, a, b) }
        };
        Ok(match update.mode {
            AtomicMode::And => self.b.and(old, value),
            AtomicMode::Or => self.b.or(old, value),
            AtomicMode::Xor => self.b.xor(old, value),
            AtomicMode::Add => self.b.add(Ty::U32, old, value),
            AtomicMode::AddF => {
                debug_assert!(is_float);
                let (a, b) = (self.wide_of(dtype, old)?, self.wide_of(dtype, value)?);
                let sum = self.b.add(Ty::F32, a, b);
                self.rounded(dtype, sum)?
            }
            AtomicMode::MaxF | AtomicMode::MinF => {
                let larger = update.mode == AtomicMode::MaxF;
                let (propagate_nan, flush_to_zero) = (false, false);
                let kind = match larger {
                    true => ScheduleOp::MaxF { propagate_nan, flush_to_zero },
                    false => ScheduleOp::MinF { propagate_nan, flush_to_zero },
                };
                if dtype.bits() > 8 {
                    return self.float(&kind, dtype, &[old, value]);
                }
                let (a, b) = (self.wide_of(dtype, old)?, self.wide_of(dtype, value)?);
                let found = if larger { self.b.max(Ty::F32, a, b) } else { self.b.min(Ty::F32, a, b) };
                self.rounded(dtype, found)?
            }
            AtomicMode::Max => signed(self, true, true),
            AtomicMode::Min => signed(self, false, true),
            AtomicMode::UMax => signed(self, true, false),
            AtomicMode::UMin => signed(self, false, false),
            AtomicMode::Xchg => value,
        })
    }

    /// An update by compare and swap: of the element itself, or of the word around a byte.
    fn by_swapping(&mut self, update: &Update) -> Lowered<Reg> {
        let elem = Elem::Num(update.dtype);
        let is_byte = update.dtype.bits() <= 8;
        let shared = update.words == "shared";
        let (address, shift) = if is_byte { self.word_around(&update.address, shared) } else { (update.address.clone(), None) };
        let (ty, compared, swapped) = match update.dtype.bits() {
            16 => (Ty::B16, Ty::U16, Class::B16),
            64 => (Ty::B64, Ty::U64, Class::B64),
            _ => (Ty::B32, Ty::U32, Class::B32),
        };
        let load = match (shared, update.words.ends_with(".global")) {
            (true, _) => "volatile.shared",
            (false, true) => "relaxed.gpu.global",
            (false, false) => "relaxed.gpu",
        };
        let first = self.b.ld(load, ty, address.clone());
        let (head, exit) = (self.b.new_block(&[swapped]), self.b.new_block(&[swapped]));
        self.b.jump(head, &[first]);
        self.b.switch_to(head);
        let word = self.b.block_params(head)[0];
        let old = self.element_of(elem, word, shift);
        let new = self.combined(update, old)?;
        let new = match update.expected {
            None => new,
            Some(expected) => {
                let same = self.same_element(elem, old, expected);
                self.b.select(same, new, old)
            }
        };
        let new = self.word_with(elem, word, new, shift);
        if matches!(update.mode, AtomicMode::MaxF | AtomicMode::MinF) {
            // What is there already need not be written.
            let swap = self.b.new_block(&[]);
            let stays = self.b.setp(Word::Eq, compared, new, word);
            self.b.branch(stays, (exit, &[word]), (swap, &[]));
            self.b.switch_to(swap);
        }
        let found = self.b.atom_cas(&update.words, ty, address, word, new);
        let done = self.b.setp(Word::Eq, compared, found, word);
        self.b.branch(done, (exit, &[found]), (head, &[found]));
        self.b.switch_to(exit);
        let found = self.b.block_params(exit)[0];
        Ok(self.element_of(elem, found, shift))
    }

    /// The address of the aligned word that a byte lies in, and the byte's first bit there.
    fn word_around(&mut self, address: &Address, shared: bool) -> (Address, Option<Reg>) {
        let (ty, base) = if shared {
            (Ty::U32, self.address_of(address))
        } else {
            let offset = self.b.s64(address.offset);
            (Ty::S64, self.b.add(Ty::S64, address.base, offset))
        };
        let class = self.class(base);
        let three = self.b.constant(class, 3);
        let within = self.b.and(base, three);
        let start = self.b.sub(ty, base, within);
        let within = if shared { within } else { self.b.cvt(Ty::U32, Ty::U64, within) };
        let count = self.b.u32(3);
        (start.into(), Some(self.b.shl(within, count)))
    }

    fn element_of(&mut self, elem: Elem, word: Reg, shift: Option<Reg>) -> Reg {
        let value = match shift {
            Some(shift) => self.b.shr(Ty::U32, word, shift),
            None => word,
        };
        if elem == Elem::Num(DType::B1) {
            let mask = self.b.u32(0xff);
            let byte = self.b.and(value, mask);
            return self.read_element(elem, byte);
        }
        self.fitted(value, class_of(elem))
    }

    fn word_with(&mut self, elem: Elem, word: Reg, value: Reg, shift: Option<Reg>) -> Reg {
        let value = self.stored_element(elem, value);
        let Some(shift) = shift else {
            let class = self.class(word);
            return self.fitted(value, class);
        };
        let mask = self.b.u32(0xff);
        let byte = self.b.and(value, mask);
        let byte = self.b.shl(byte, shift);
        let mask = self.b.shl(mask, shift);
        let kept = self.b.not(mask);
        let kept = self.b.and(word, kept);
        self.b.or(kept, byte)
    }

    fn same_element(&mut self, elem: Elem, a: Reg, b: Reg) -> Reg {
        let Elem::Num(dtype) = elem else { return self.b.setp(Word::Eq, Ty::U64, a, b) };
        if dtype == DType::B1 {
            let differ = self.b.xor(a, b);
            return self.b.not(differ);
        }
        if class_of(elem) == Class::B16 {
            return self.b.setp(Word::Eq, Ty::U16, a, b);
        }
        let (a, b) = (self.unsigned(dtype, a), self.unsigned(dtype, b));
        self.b.setp(Word::Eq, Ty::U32, a, b)
    }
}
