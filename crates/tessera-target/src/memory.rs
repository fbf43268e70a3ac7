//! Loads and stores through views and pointers.
//!
//! Neighbours in memory that a thread holds in neighbouring registers move in one instruction of up to 16 bytes. What lies
//! outside of an array is not touched: a predicate guards the instruction, and a load yields the padding there.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{CacheHint, MemoryOrder, MemoryScope};
use tessera_ir::{ConstData, Elem, EntityId, Global, Op, OpData, ScheduleOp, Value};
use tessera_layout::{Axis, Distribution};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Class, Guard, Value as Reg};

use super::bound::{Bound, Regs, class_of};
use super::frame::identifier;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use super::place::Place;
use super::remap::Remap;
use super::view::{Begin, Ends, Run, Window};
use tessera_analysis::memory::{Root, is_written, root};
use tessera_analysis::neighbours::Vector;

/// Instructions of a thread from which on a tile that lies in its array is reached without conditions, as one predicate register each.
const MANY_RUNS: usize = 8;

/// Bytes of a thread up to which vectors are read before it is looked for those among which the array ends: nobody waits for these then.
const FEW_BYTES: usize = 64;

/// PTX's word for a scope.
pub(super) fn scope_word(scope: Option<MemoryScope>) -> &'static str {
    match scope {
        Some(MemoryScope::Block) => "cta",
        None | Some(MemoryScope::Device) => "gpu",
        Some(MemoryScope::System) => "sys",
    }
}

/// What stands between `ld` or `st` and the type.
pub(super) fn access_words(space: Space, order: MemoryOrder, scope: Option<MemoryScope>, cache: CacheHint) -> String {
    match (order, space) {
        (MemoryOrder::Weak, Space::Global) => format!("global{}", cache_words(cache)),
        (MemoryOrder::Weak, Space::Any) => "weak".to_string(),
        (order, space) => format!("{}.{}{}", order.word(), scope_word(scope), space.word()),
    }
}

/// Where pointers and views lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Arrays and constants of the module.
    Global,
    /// Perhaps memory of the block, which stands in shared memory.
    Any,
}

impl Space {
    /// What stands behind an access's order and scope.
    pub(super) fn word(self) -> &'static str {
        match self {
            Space::Global => ".global",
            Space::Any => "",
        }
    }
}

/// What stands behind the state space for a hint to the caches.
fn cache_words(cache: CacheHint) -> &'static str {
    match cache {
        CacheHint::Normal => "",
        CacheHint::Streamed => ".L1::evict_first",
        CacheHint::Kept => ".L1::evict_last",
    }
}

impl Lowering<'_> {
    /// Lowers a load or store.
    pub(super) fn memory(&mut self, op: Op, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        match kind {
            ScheduleOp::LoadViewTko { order, scope, cache, .. } => {
                let words = access_words(self.space(data.one(0)), *order, *scope, *cache);
                let regs = self.load_view(op, data, *order, &words)?;
                self.bind_regs(data.results[0], regs);
            }
            ScheduleOp::StoreViewTko { order, scope, cache, .. } => {
                let words = access_words(self.space(data.one(1)), *order, *scope, *cache);
                self.store_view(op, data, *order, &words)?;
            }
            ScheduleOp::LoadPtrTko { order, scope, cache, .. } => {
                let words = access_words(self.space(data.one(0)), *order, *scope, *cache);
                let regs = self.load_pointers(op, data, *order, &words)?;
                self.bind_regs(data.results[0], regs);
            }
            ScheduleOp::StorePtrTko { order, scope, cache, .. } => {
                let words = access_words(self.space(data.one(0)), *order, *scope, *cache);
                self.store_pointers(op, data, *order, &words)?;
            }
            ScheduleOp::Alloca { .. } => {
                let address = self.reserved(op)?;
                let address = self.b.cvt(Ty::U64, Ty::U32, address);
                let pointer = self.op("cvta.shared.u64", &[address]);
                self.bind_regs(data.result(), [pointer]);
            }
            ScheduleOp::GetGlobal { name } => {
                let Some(global) = self.module.globals.iter().find(|global| global.name == *name) else {
                    return Err(self.broken("the name of a constant that the module does not have"));
                };
                let pointer = self.constant_data(global);
                self.bind_regs(data.result(), [pointer]);
            }
            ScheduleOp::MakeToken {} | ScheduleOp::JoinTokens {} => {}
            _ => astray(kind),
        }
        for &result in &data.results {
            if *self.func.ty(result) == tessera_ir::Type::Token {
                self.bind(result, Bound::Token);
            }
        }
        Ok(())
    }

    /// Where the elements lie that a pointer or view leads to.
    pub(super) fn space(&self, place: Value) -> Space {
        match root(self.func, place) {
            Root::Alloca(_) => Space::Any,
            Root::Unknown if self.has_memory => Space::Any,
            Root::Unknown | Root::ReadOnly | Root::Param(_) | Root::Shared | Root::Workspace(_) => Space::Global,
        }
    }

    /// The address of a constant of the module, as its elements lie in memory.
    fn constant_data(&mut self, global: &Global) -> Reg {
        let width = global.value.dtype.unpacked_bytes();
        let count: usize = global.shape.iter().map(|&extent| extent as usize).product();
        let codes = match &global.value.data {
            ConstData::Splat(code) => vec![*code; count],
            ConstData::Dense(codes) => codes.to_vec(),
        };
        let bytes: Vec<u8> = codes.iter().flat_map(|code| code.to_le_bytes()[..width].to_vec()).collect();
        self.b.data(&identifier(&global.name), &bytes, 16)
    }

    fn load_view(&mut self, op: Op, data: &OpData, order: MemoryOrder, words: &str) -> Lowered<Regs> {
        let layout = self.layout(data.results[0])?;
        let window = self.window(data.one(0), data.group(1), &layout)?;
        if order != MemoryOrder::Weak || self.masked.contains_key(&op) || !self.is_in_many_runs(op, &window) {
            return self.load_window(op, order, words, window);
        }
        let beside = self.read_beside(&window);
        let Some(inside) = self.lies_inside(&window, beside) else { return self.load_window(op, order, words, window) };
        let classes = vec![class_of(Elem::Num(window.dtype)); window.place.len()];
        let (whole, part, past) = (self.b.new_block(&[]), self.b.new_block(&[]), self.b.new_block(&classes));
        self.b.branch(inside, (whole, &[]), (part, &[]));
        for (block, window) in [(whole, window.unbounded()), (part, window)] {
            self.b.switch_to(block);
            let regs = self.load_window(op, order, words, window)?;
            self.b.jump(past, &regs);
        }
        self.b.switch_to(past);
        Ok(self.b.block_params(past).into_iter().collect())
    }

    /// Loads a tile from where it lies.
    fn load_window(&mut self, op: Op, order: MemoryOrder, words: &str, mut window: Window) -> Lowered<Regs> {
        let layout = window.layout.clone();
        let elem = Elem::Num(window.dtype);
        let padding = self.padding(window.padding, window.dtype);
        let mut regs: Regs = std::iter::repeat_n(padding, window.place.len()).collect();
        let base = window.packed;
        let needed = self.needed(op)?;
        let (handed, mine) = self.handed(order, &layout);
        let single = order != MemoryOrder::Weak;
        // Both vectors have elements that the tile has not: nobody may write them meanwhile.
        let alone = single || is_written(self.func, op);
        let reads = if alone { None } else { self.reads_between(&mut window) };
        let (mut runs, mut reads) = match reads {
            Some((runs, reads)) => (runs, Some(reads)),
            None => (self.runs(&mut window, if single { Ends::Apart } else { Ends::Among }), None),
        };
        for (at, run) in runs.iter_mut().enumerate() {
            let mut also = mine;
            if let Some((mask, negated)) = &needed {
                let whole = run.registers.len();
                let decisive = if self.decided_by_first(op, &window, run) { 1 } else { whole };
                let any = self.any(run.registers[..decisive].iter().map(|&register| mask[register]), *negated);
                also = self.both(also, any);
            }
            run.when = self.both(run.when, also);
            run.cut = run.cut.and_then(|cut| self.both(Some(cut), also));
            if let Some(first) = reads.as_mut().map(|reads| &mut reads.firsts[at]) {
                *first = self.both(*first, also);
            }
        }
        if handed {
            runs.retain(|run| layout.is_primary(run.registers[0] as u64, 0));
        }
        let loaded = match (&reads, base) {
            (Some(reads), _) => self.load_between(words, &window, &runs, reads, padding),
            (None, Some(base)) => runs.iter().map(|run| self.load_packed(base, elem, run, padding)).collect::<Lowered<_>>()?,
            (None, None) if single => runs.iter().map(|run| self.load_run(words, elem, run, padding, true)).collect(),
            (None, None) => {
                let is_cut = !alone && !self.multiplies_matrices() && runs.iter().any(|run| run.cut.is_some());
                let beside = if is_cut { self.beside(&window) } else { None };
                self.load_runs(words, &window, &runs, padding, beside)
            }
        };
        for (run, loaded) in runs.iter().zip(loaded) {
            for (&register, value) in run.registers.iter().zip(loaded) {
                regs[register] = value;
            }
        }
        if handed { self.hand_on(elem, &layout, &regs) } else { Ok(regs) }
    }

    /// Whether a thread reaches a tile by so many instructions that conditions of each are more than there are registers for. In loops branches keep
    /// instructions of several rounds apart (cross entropy by tiles of 4096 took 1.4 times as long).
    fn is_in_many_runs(&self, op: Op, window: &Window) -> bool {
        if !self.func.blocks[self.func.body].ops.contains(&op) {
            return false;
        }
        let bits = self.neighbours_of(window, Ends::Among, Begin::Known).len();
        let apart = window.unit == 4 || bits == 0 && window.unit < 4;
        window.packed.is_none() && apart && window.place.len() >> bits >= MANY_RUNS
    }

    /// Whether one thread must load for all that hold an element, since it may change meanwhile and all must see the same; and the condition that
    /// this thread does.
    fn handed(&mut self, order: MemoryOrder, layout: &Distribution) -> (bool, Option<Reg>) {
        let handed = order != MemoryOrder::Weak && layout.has_copies();
        (handed, if handed { self.stores(layout) } else { None })
    }

    /// What the first owner of each element has found, for the other owners too.
    pub(super) fn hand_on(&mut self, elem: Elem, layout: &Distribution, regs: &Regs) -> Lowered<Regs> {
        self.through_shared(elem, (layout, regs), layout, &Remap::identity(layout.shape()), None)
    }

    /// The truth values that say which elements of a load are used, where they are known before it, and whether false means used.
    fn needed(&self, load: Op) -> Lowered<Option<(Regs, bool)>> {
        match self.masked.get(&load) {
            Some(masked) if self.bound[masked.mask.index()].is_some() => Ok(Some((self.regs(masked.mask)?, !masked.needed))),
            _ => Ok(None),
        }
    }

    /// Whether no element of a run is needed unless its first is: the mask compares a count along the run with one limit.
    fn decided_by_first(&self, load: Op, window: &Window, run: &Run) -> bool {
        let Some(axis) = self.masked.get(&load).and_then(|masked| masked.falls_along(self.func)) else { return false };
        let place = |register: usize, dim| window.place.parts(register, dim);
        let moves = |dim: usize| run.registers.iter().any(|&register| place(register, dim) != place(run.registers[0], dim));
        (0..window.layout.rank()).all(|dim| dim == axis || !moves(dim))
    }

    /// Whether one of some conditions holds, or does not.
    fn any(&mut self, conditions: impl Iterator<Item = Reg>, negated: bool) -> Option<Reg> {
        let mut all: Option<Reg> = None;
        for condition in conditions {
            let condition = if negated { self.b.not(condition) } else { condition };
            all = Some(match all {
                None => condition,
                Some(all) => self.b.or(all, condition),
            });
        }
        all
    }

    fn store_view(&mut self, op: Op, data: &OpData, order: MemoryOrder, words: &str) -> Lowered<()> {
        let layout = self.layout(data.one(0))?;
        let regs = self.regs(data.one(0))?;
        let window = self.window(data.one(1), data.group(2), &layout)?;
        let is_simple = order == MemoryOrder::Weak && self.is_in_many_runs(op, &window);
        let inside = if is_simple { self.lies_inside(&window, 0) } else { None };
        let Some(inside) = inside else { return self.store_window(&regs, order, words, window) };
        let (whole, part, past) = (self.b.new_block(&[]), self.b.new_block(&[]), self.b.new_block(&[]));
        self.b.branch(inside, (whole, &[]), (part, &[]));
        for (block, window) in [(whole, window.unbounded()), (part, window)] {
            self.b.switch_to(block);
            self.store_window(&regs, order, words, window)?;
            self.b.jump(past, &[]);
        }
        self.b.switch_to(past);
        Ok(())
    }

    /// Stores a tile to where it lies.
    fn store_window(&mut self, regs: &Regs, order: MemoryOrder, words: &str, mut window: Window) -> Lowered<()> {
        let layout = window.layout.clone();
        let elem = Elem::Num(window.dtype);
        let mine = self.stores(&layout);
        let base = window.packed;
        let single = order != MemoryOrder::Weak;
        let between = if single { None } else { self.writes_between(&mut window) };
        let (mut runs, between) = match between {
            Some((runs, between)) => (runs, Some(between)),
            None => (self.runs(&mut window, if single { Ends::Apart } else { Ends::Among }), None),
        };
        runs.retain(|run| layout.is_primary(run.registers[0] as u64, 0));
        let mut parts = Vec::new();
        for mut run in runs {
            run.when = self.both(run.when, mine);
            run.cut = run.cut.and_then(|cut| self.both(Some(cut), mine));
            let values: Vec<Reg> = run.registers.iter().map(|&register| regs[register]).collect();
            parts.push((run, values));
        }
        if let Some(between) = between {
            self.store_between(words, &window, &between, &parts);
            return Ok(());
        }
        for (run, values) in &parts {
            match base {
                Some(base) => self.store_packed(base, elem, run, values),
                None => self.store_run(words, elem, run, values, single),
            }
        }
        self.store_ends(words, &window, &parts);
        Ok(())
    }

    // --- runs

    /// Loads neighbours; each by itself where the memory order asks for that.
    pub(super) fn load_run(&mut self, words: &str, elem: Elem, run: &Run, padding: Reg, single: bool) -> Vec<Reg> {
        let bytes = elem.bytes();
        let count = run.registers.len();
        if single && count > 1 {
            let mut loaded = Vec::new();
            for i in 0..count {
                let mut one = run.clone();
                one.registers = vec![run.registers[i]];
                one.address.offset += i as i64 * bytes as i64;
                loaded.extend(self.load_run(words, elem, &one, padding, false));
            }
            return loaded;
        }
        let filler = if run.when.is_some() { self.joined(elem, &vec![padding; count]) } else { Vec::new() };
        let raw = self.read_run(words, elem, (run, run.when), &filler);
        self.split(elem, &raw, count)
    }

    /// Loads runs among whose elements the array may end; `beside` says whether what lies beside a line can be read with it.
    fn load_runs(&mut self, words: &str, window: &Window, runs: &[Run], padding: Reg, beside: Option<Reg>) -> Vec<Vec<Reg>> {
        let elem = Elem::Num(window.dtype);
        let filler = |this: &mut Self, run: &Run| this.joined(elem, &vec![padding; run.registers.len()]);
        let mut all: Vec<Vec<Reg>> = runs.iter().map(|run| filler(self, run)).collect();
        // What is read into its place is held once, what waits for the ends twice: products have no registers for that.
        let many = self.multiplies_matrices() || window.place.len() * window.unit as usize > FEW_BYTES;
        let ends_first = beside.is_none() && many;
        if ends_first {
            all = self.load_ends(words, window, runs, padding, (all, None));
        }
        for (run, all) in runs.iter().zip(&mut all) {
            let with = match (run.cut, beside) {
                (Some(cut), Some(beside)) => Some(self.b.and(cut, beside)),
                _ => None,
            };
            let when = match (run.when, with) {
                (Some(when), Some(with)) => Some(self.b.or(when, with)),
                (when, _) => when,
            };
            *all = self.read_run(words, elem, (run, when), all);
        }
        if !ends_first {
            all = self.load_ends(words, window, runs, padding, (all, beside));
        }
        all.into_iter().zip(runs).map(|(all, run)| self.split(elem, &all, run.registers.len())).collect()
    }

    /// Neighbours as they are moved, in the place of what is there.
    fn read_run(&mut self, words: &str, elem: Elem, (run, when): (&Run, Option<Reg>), filler: &[Reg]) -> Vec<Reg> {
        let (ty, parts) = run_type(elem, run.registers.len());
        match when {
            Some(when) => self.b.ld_vector_if(when, words, ty, run.address.clone(), filler),
            None => self.b.ld_vector(words, ty, parts, run.address.clone()),
        }
    }

    /// Stores neighbours.
    pub(super) fn store_run(&mut self, words: &str, elem: Elem, run: &Run, values: &[Reg], single: bool) {
        let bytes = elem.bytes();
        if single && values.len() > 1 {
            for (i, &value) in values.iter().enumerate() {
                let mut one = run.clone();
                one.registers = vec![run.registers[i]];
                one.address.offset += i as i64 * bytes as i64;
                self.store_run(words, elem, &one, &[value], false);
            }
            return;
        }
        let (ty, _) = run_type(elem, values.len());
        let raw = self.joined(elem, values);
        let address = run.address.clone();
        match run.when {
            None => self.b.st_vector(words, ty, address, &raw),
            Some(value) => self.b.under(Guard { value, negated: false }, |b| b.st_vector(words, ty, address, &raw)),
        }
    }

    /// Elements side by side in registers as they are moved.
    pub(super) fn joined(&mut self, elem: Elem, values: &[Reg]) -> Vec<Reg> {
        let values: Vec<Reg> = values.iter().map(|&value| self.stored_element(elem, value)).collect();
        let bytes = elem.bytes();
        if bytes >= 4 || values.len() == 1 {
            return values;
        }
        let per_word = (4 / bytes as usize).min(values.len());
        let selector = |b: &mut tessera_ptx::ssa::Builder, a, c, bits| {
            let bits = b.u32(bits);
            b.prmt(a, c, bits)
        };
        values
            .chunks(per_word)
            .map(|chunk| match (bytes, chunk) {
                // Narrower parts of the same registers are no whole word.
                _ if bytes as usize * chunk.len() == 4 && self.words.contains_key(chunk) => self.words[chunk],
                (2, &[low, high]) if class_of(elem) == Class::B16 => self.b.pack(&[low, high]),
                (2, &[low, high]) => selector(&mut self.b, low, high, 0x5410),
                (1, &[a, b]) => selector(&mut self.b, a, b, 0x0040),
                (1, &[a, b, c, d]) => {
                    let low = selector(&mut self.b, a, b, 0x0040);
                    let high = selector(&mut self.b, c, d, 0x0040);
                    selector(&mut self.b, low, high, 0x5410)
                }
                _ => chunk[0],
            })
            .collect()
    }

    /// The reverse of [`Lowering::joined`].
    pub(super) fn split(&mut self, elem: Elem, raw: &[Reg], count: usize) -> Vec<Reg> {
        let bytes = elem.bytes() as usize;
        let class = class_of(elem);
        let mut values = Vec::with_capacity(count);
        if bytes >= 4 || count == 1 {
            for &value in raw {
                values.push(if elem == Elem::Num(tessera_types::DType::B1) { value } else { self.fitted(value, class) });
            }
        } else {
            for &word in raw {
                let word = self.fitted(word, Class::B32);
                let here = (4 / bytes).min(count);
                let first = values.len();
                if class == Class::B16 {
                    values.extend(self.b.unpack(word, Class::B16));
                } else {
                    for i in 0..here {
                        let shift = self.b.u32((i * bytes * 8) as u32);
                        values.push(if i == 0 { word } else { self.b.shr(Ty::U32, word, shift) });
                    }
                }
                if here * bytes == 4 {
                    self.words.insert(values[first..].into(), word);
                }
            }
        }
        if elem == Elem::Num(tessera_types::DType::B1) {
            let mask = self.b.u32(0xff);
            for value in &mut values {
                let byte = self.b.and(*value, mask);
                *value = self.read_element(elem, byte);
            }
        }
        values
    }

    // --- pointers

    pub(super) fn pointee(&self, value: Value) -> Lowered<Elem> {
        match self.elem(value)? {
            Elem::Ptr(to) if to.bits() >= 8 || to.is_byte_bool() => Ok(Elem::Num(to)),
            Elem::Ptr(to) => {
                let message = format!("memory of `{to}` can't be reached by pointers: its elements share bytes; use a view");
                Err(self.refuse("target-packed-pointer", message))
            }
            Elem::Num(_) => Err(self.broken("numbers where pointers are needed")),
        }
    }

    /// Registers that hold elements, each with the condition under which it does.
    pub(super) fn live(&mut self, value: Value, mask: Option<Value>) -> Lowered<Vec<(usize, Option<Reg>)>> {
        let layout = self.layout(value)?;
        let masks = match mask {
            Some(mask) => Some(self.regs(mask)?),
            None => None,
        };
        let place = self.place(&layout);
        let mut live = Vec::new();
        for register in 0..place.len() {
            let when = match self.inside(&place, register) {
                super::place::Inside::Never => continue,
                super::place::Inside::Always => None,
                super::place::Inside::When(within) => Some(within),
            };
            let asked = masks.as_ref().map(|masks| masks[register]);
            live.push((register, self.both(when, asked)));
        }
        Ok(live)
    }

    /// The registers of an access by pointers, grouped into what one instruction can move: those of neighbours behind the first.
    fn neighbours(&mut self, op: Op, pointers: Value, order: MemoryOrder) -> Lowered<Vec<Vec<usize>>> {
        let layout = self.layout(pointers)?;
        let place = self.place(&layout);
        let bits = match self.vectors.get(&op) {
            Some(&vector) if order == MemoryOrder::Weak => counting_bits(&layout, &place, vector),
            _ => Vec::new(),
        };
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); place.len()];
        let all: usize = bits.iter().sum();
        for register in 0..place.len() {
            let position = bits.iter().enumerate().map(|(at, bit)| usize::from(register & bit != 0) << at).sum::<usize>();
            let group = &mut groups[register & !all];
            group.resize(group.len().max(position + 1), register);
            group[position] = register;
        }
        groups.retain(|group| !group.is_empty());
        Ok(groups)
    }

    fn load_pointers(&mut self, op: Op, data: &OpData, order: MemoryOrder, words: &str) -> Lowered<Regs> {
        let pointers = data.one(0);
        let elem = self.pointee(pointers)?;
        let addresses = self.regs(pointers)?;
        let zero = self.bits(elem, 0);
        let mut regs: Regs = match data.optional(2) {
            Some(padding) => self.regs(padding)?,
            None => std::iter::repeat_n(zero, addresses.len()).collect(),
        };
        let layout = self.layout(pointers)?;
        let scalar = self.func.ty(pointers).is_scalar();
        let once = scalar && !self.per_thread && order != MemoryOrder::Weak;
        let (handed, mine) = match (once, scalar) {
            (true, _) => (false, Some(self.is_first_thread())),
            (false, true) => (false, None),
            (false, false) => self.handed(order, &layout),
        };
        let live: FxHashMap<usize, Option<Reg>> = self.live(pointers, data.optional(1))?.into_iter().collect();
        for mut group in self.neighbours(op, pointers, order)? {
            let padding = regs[group[0]];
            let alone = group.iter().any(|&register| regs[register] != padding);
            let rest = if alone { group.split_off(1) } else { Vec::new() };
            for registers in std::iter::once(group).chain(rest.into_iter().map(|register| vec![register])) {
                let Some(&when) = live.get(&registers[0]) else { continue };
                if handed && !layout.is_primary(registers[0] as u64, 0) {
                    continue;
                }
                let when = self.both(when, mine);
                let run = Run { address: addresses[registers[0]].into(), registers, when, cut: None };
                let loaded = self.load_run(words, elem, &run, regs[run.registers[0]], false);
                for (&register, value) in run.registers.iter().zip(loaded) {
                    regs[register] = value;
                }
            }
        }
        if once {
            regs[0] = self.spread_scalar(elem, regs[0])?;
        } else if handed {
            regs = self.hand_on(elem, &layout, &regs)?;
        }
        Ok(regs)
    }

    fn store_pointers(&mut self, op: Op, data: &OpData, order: MemoryOrder, words: &str) -> Lowered<()> {
        let pointers = data.one(0);
        let elem = self.pointee(pointers)?;
        let (addresses, values) = (self.regs(pointers)?, self.regs(data.one(1))?);
        let layout = self.layout(pointers)?;
        let mine = self.primary(pointers, &layout)?;
        let live: FxHashMap<usize, Option<Reg>> = self.live(pointers, data.optional(2))?.into_iter().collect();
        for registers in self.neighbours(op, pointers, order)? {
            let Some(&when) = live.get(&registers[0]) else { continue };
            if !layout.is_primary(registers[0] as u64, 0) {
                continue;
            }
            let when = self.both(when, mine);
            let moved: Vec<Reg> = registers.iter().map(|&register| values[register]).collect();
            let run = Run { address: addresses[registers[0]].into(), registers, when, cut: None };
            self.store_run(words, elem, &run, &moved, false);
        }
        Ok(())
    }

    /// Whether this thread acts for what several threads hold copies of. Scalars are each thread's own.
    pub(super) fn primary(&mut self, value: Value, layout: &tessera_layout::Distribution) -> Lowered<Option<Reg>> {
        Ok(match (self.func.ty(value).is_scalar(), self.per_thread) {
            (true, true) => None,
            (true, false) => Some(self.is_first_thread()),
            (false, _) => self.stores(layout),
        })
    }
}

/// The register bits that count along a vector's axis, lowest first, where nothing else moves what lies within a vector.
fn counting_bits(layout: &Distribution, place: &Place, vector: Vector) -> Vec<usize> {
    let core = layout.core();
    let mut bits = Vec::new();
    loop {
        let width = 2u64 << bits.len();
        let whole = layout.shape()[vector.axis].is_multiple_of(width) && core.extent(vector.axis).is_multiple_of(width);
        if width > vector.width || !whole || place.thread_bits[vector.axis] & (width - 1) != 0 {
            return bits;
        }
        let wanted = width / 2;
        let moves = |bit: &usize| core.basis(Axis::Register, *bit)[vector.axis] & wanted != 0;
        let alone = |bit: &usize| {
            let basis = core.basis(Axis::Register, *bit);
            basis.iter().enumerate().all(|(axis, &value)| value == if axis == vector.axis { wanted } else { 0 })
        };
        let mut found = (0..core.bits(Axis::Register)).filter(moves);
        match (found.next().filter(alone), found.next()) {
            (Some(bit), None) => bits.push(1 << bit),
            _ => return bits,
        }
    }
}

/// The type and how many of it move so many neighbours at once.
pub(super) fn run_type(elem: Elem, count: usize) -> (Ty, usize) {
    let bytes = elem.bytes() as usize * count;
    match (elem.bytes(), bytes) {
        (8, _) => (Ty::B64, count),
        (_, 1) => (Ty::U8, 1),
        (_, 2) => (Ty::B16, 1),
        _ => (Ty::B32, bytes / 4),
    }
}
