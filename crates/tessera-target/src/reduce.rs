//! Reductions; [scans](super::scan) combine by the same means.
//!
//! A reduction runs in three stages: a thread combines its own registers, then lanes of a warp exchange values, then warps
//! through shared memory; every thread ends with the results that belong to its coordinates. With `order=tree` the stages follow
//! the bits of the coordinate instead, lowest first: neighbours are combined, then neighbouring results, and an element without
//! a neighbour waits, so that the order is the tile's and not the layout's.
//!
//! | coordinate bit | lies in | step |
//! |---|---|---|
//! | register | the thread | combine two registers |
//! | lane | the warp | `shfl.bfly`, then combine |
//! | warp | the block | one lane writes, meet; lanes read the other warps' and exchange, then combine |

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, ReduceOrder, Rounding, Signedness};
use tessera_ir::{Block, Const, Elem, EntityId, OpData, ScheduleOp, Trait, bug};
use tessera_layout::{Axis, Distribution};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::{Regs, class_of};
use super::lowering::{Lowered, Lowering};
use super::place::{Inside, Place};
use super::remap::Remap;
use super::scratch::SMALL_BYTES;

/// Sums that a thread adds products to in turn, so that one need not wait for the other.
const CHAINS: usize = 4;

/// A register's coordinates, each in two parts (see [`Place::parts`]).
type Parts = SmallVec<[(u64, u64); 4]>;

/// What is combined: one value an operand.
pub(super) type Item = SmallVec<[Reg; 2]>;

/// A region that combines, and the types that it takes.
pub(super) struct Combiner<'d> {
    region: Block,
    pub(super) elems: Vec<Elem>,
    identities: &'d [Const],
    commutative: bool,
}

impl Combiner<'_> {
    /// Bytes of some items of each of so many warps or threads.
    fn bytes(&self, holders: u64, items: usize) -> u64 {
        self.elems.iter().map(|elem| (elem.bytes() * holders * items as u64).next_multiple_of(16)).sum()
    }
}

impl Lowering<'_> {
    pub(super) fn combiner<'d>(&self, data: &OpData, identities: &'d [Const]) -> Lowered<Combiner<'d>> {
        let region = data.regions[0];
        let mut elems = Vec::new();
        for &operand in &data.operands {
            elems.push(self.elem(operand)?);
        }
        let block = &self.func.blocks[region];
        let commutative = match block.ops.as_slice() {
            [op, exit] => {
                let (op, exit) = (self.data(*op), self.data(*exit));
                op.row().has(Trait::Commutative)
                    && exit.operands.as_slice() == op.results.as_slice()
                    && op.operands.iter().all(|operand| block.args.contains(operand))
            }
            _ => false,
        };
        Ok(Combiner { region, elems, identities, commutative })
    }

    /// What changes no element. An identity may be wrong about NaN: where a maximum or minimum ignores NaN, nothing else is neutral to it.
    fn neutral(&mut self, combiner: &Combiner<'_>) -> Item {
        let op = self.func.blocks[combiner.region].ops.first().and_then(|&op| self.func.ops[op].kind.schedule());
        let ignores = |propagate_nan: &bool| combiner.commutative && !propagate_nan;
        let known = match op {
            Some(ScheduleOp::MaxF { propagate_nan, .. }) if ignores(propagate_nan) => Some(Combine::Max),
            Some(ScheduleOp::MinF { propagate_nan, .. }) if ignores(propagate_nan) => Some(Combine::Min),
            _ => None,
        };
        let identities = combiner.identities.iter().map(|identity| {
            let neutral = known.map_or_else(|| identity.clone(), |combine| Const::neutral(combine, identity.dtype));
            (neutral.dtype, neutral.splat_bits().unwrap_or_else(|| bug!("an identity of several numbers")))
        });
        identities.collect::<Vec<_>>().into_iter().map(|(dtype, bits)| self.bits(Elem::Num(dtype), bits)).collect()
    }

    /// The running values with one more element each.
    pub(super) fn combine(&mut self, combiner: &Combiner<'_>, running: &Item, element: &Item) -> Lowered<Item> {
        let args: Vec<Reg> = element.iter().zip(running).flat_map(|(&element, &running)| [element, running]).collect();
        Ok(self.inline(combiner.region, &args)?.into_iter().collect())
    }

    pub(super) fn choose(&mut self, condition: Reg, yes: &Item, no: &Item) -> Item {
        yes.iter().zip(no).map(|(&yes, &no)| self.b.select(condition, yes, no)).collect()
    }

    /// The operands in one layout that takes no mixed steps along the axis.
    fn reducible(&mut self, data: &OpData, dim: usize, tree: bool) -> Lowered<(Distribution, Vec<Regs>)> {
        let layout = self.layout(data.operands[0])?;
        let core = layout.core();
        let aligned = core.columns().iter().all(|&basis| {
            let within = (core.extent(dim) - 1) << core.shift(dim);
            basis & within == 0 || (basis & within).is_power_of_two()
        });
        let layout = if layout.along(dim).pure && (aligned || !tree) {
            layout
        } else {
            let order: Vec<usize> = (0..layout.rank()).rev().collect();
            Distribution::blocked(layout.shape(), &order, 1, layout.threads())
                .map_err(|_| self.broken("a tile that cannot be laid out"))?
        };
        let mut all = Vec::new();
        for &operand in &data.operands {
            let (from, regs, elem) = (self.layout(operand)?, self.regs(operand)?, self.elem(operand)?);
            all.push(self.remapped(elem, (&from, &regs), &layout, &Remap::identity(layout.shape()))?);
        }
        Ok((layout, all))
    }

    pub(super) fn reduce(&mut self, data: &OpData, dim: usize, identities: &[Const], order: ReduceOrder) -> Lowered<()> {
        let combiner = self.combiner(data, identities)?;
        let tree = order == ReduceOrder::Tree;
        let (layout, operands) = self.reducible(data, dim, tree)?;
        let place = self.place(&layout);
        // Registers whose other coordinates agree are combined.
        let mut groups: Vec<(Parts, Vec<usize>)> = Vec::new();
        let mut known: FxHashMap<Parts, usize> = FxHashMap::default();
        for register in 0..place.len() {
            let key: Parts = (0..layout.rank()).filter(|&other| other != dim).map(|other| place.parts(register, other)).collect();
            let at = *known.entry(key.clone()).or_insert(groups.len());
            if at == groups.len() {
                groups.push((key, Vec::new()));
            }
            groups[at].1.push(register);
        }
        let lists: Vec<Vec<usize>> = groups.iter().map(|(_, list)| list.clone()).collect();
        let results = if tree {
            self.by_tree(&combiner, &layout, &place, dim, &operands, &lists)?
        } else {
            let products = self.summed_products(data, &combiner, &layout)?;
            self.freely(&combiner, &layout, &place, dim, (&operands, products.as_ref()), &lists)?
        };
        // Each group's result belongs to the coordinates of its registers without the axis.
        let from: Option<Distribution> = if layout.rank() == 1 {
            None
        } else {
            Some(layout.slice(dim).map_err(|_| self.broken("a layout that cannot lose an axis"))?)
        };
        for (position, &result) in data.results.iter().enumerate() {
            let Some(from) = &from else {
                self.bind_regs(result, [results[0][position]]);
                continue;
            };
            let sliced = self.place(from);
            let mut regs = Regs::new();
            for register in 0..sliced.len() {
                let key: Parts = (0..from.rank()).map(|other| sliced.parts(register, other)).collect();
                let at = groups.iter().position(|(known, _)| same_place(known, &key));
                let at = at.ok_or_else(|| self.broken("a reduced layout that does not follow its source"))?;
                regs.push(results[at][position]);
            }
            let to = self.layout(result)?;
            let regs = self.remapped(combiner.elems[position], (from, &regs), &to, &Remap::identity(to.shape()))?;
            self.bind_regs(result, regs);
        }
        Ok(())
    }

    /// A register's item of all operands.
    /// The instruction that combines an integer of each lane over the warp, and the type that it takes.
    fn by_one_instruction(&self, combiner: &Combiner<'_>) -> Option<(Word, Ty)> {
        let alone = combiner.commutative && combiner.elems[..] == [Elem::Num(DType::I32)] && self.arch.has_redux();
        let op = self.func.blocks[combiner.region].ops.first().filter(|_| alone)?;
        let signed = |signedness: &Signedness| if *signedness == Signedness::Signed { Ty::S32 } else { Ty::U32 };
        match self.func.ops[*op].kind.schedule()? {
            ScheduleOp::AddI { .. } => Some((Word::Add, Ty::S32)),
            ScheduleOp::MaxI { signedness } => Some((Word::Max, signed(signedness))),
            ScheduleOp::MinI { signedness } => Some((Word::Min, signed(signedness))),
            ScheduleOp::AndI {} => Some((Word::And, Ty::B32)),
            ScheduleOp::OrI {} => Some((Word::Or, Ty::B32)),
            ScheduleOp::XorI {} => Some((Word::Xor, Ty::B32)),
            _ => None,
        }
    }

    pub(super) fn item(&self, operands: &[Regs], register: usize) -> Item {
        operands.iter().map(|regs| regs[register]).collect()
    }

    // --- any order

    /// The factors of what is summed up, where it is products: sums in any order are then fused, as `fma-contract` does with two operations.
    fn summed_products(&self, data: &OpData, combiner: &Combiner<'_>, layout: &Distribution) -> Lowered<Option<(Ty, [Regs; 2])>> {
        let ty = match combiner.elems[..] {
            [Elem::Num(DType::F32)] => Ty::F32,
            [Elem::Num(DType::F64)] => Ty::F64,
            _ => return Ok(None),
        };
        let kind = |op| self.data(op).kind.schedule();
        let sum = self.func.blocks[combiner.region].ops.first().and_then(|&op| kind(op)).filter(|_| combiner.commutative);
        let Some(product) = self.func.defining_op(data.operands[0]) else { return Ok(None) };
        let nearest = |rounding: &Rounding, flush: &bool| *rounding == Rounding::NearestEven && !flush;
        let fused = matches!(sum, Some(ScheduleOp::AddF { rounding, flush_to_zero }) if nearest(rounding, flush_to_zero))
            && matches!(kind(product), Some(ScheduleOp::MulF { rounding, flush_to_zero }) if nearest(rounding, flush_to_zero));
        let factors = self.data(product);
        // Where the reduction alone is lowered, to see what it exchanges, there are none.
        let bound = factors.operands.iter().all(|factor| self.bound[factor.index()].is_some());
        if !fused || !bound || self.layout(data.operands[0])? != *layout {
            return Ok(None);
        }
        Ok(Some((ty, [self.regs(factors.one(0))?, self.regs(factors.one(1))?])))
    }

    fn freely(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        place: &Place,
        dim: usize,
        (operands, products): (&[Regs], Option<&(Ty, [Regs; 2])>),
        groups: &[Vec<usize>],
    ) -> Lowered<Vec<Item>> {
        let identity = self.neutral(combiner);
        let mut results = Vec::new();
        for group in groups {
            let mut items: Vec<Item> = Vec::new();
            let mut fused = 0;
            for &register in group {
                let item = self.item(operands, register);
                match self.inside(place, register) {
                    Inside::Never => {}
                    Inside::Always => match products {
                        Some((ty, [a, b])) if items.len() >= CHAINS => {
                            let sum = &mut items[fused % CHAINS][0];
                            *sum = self.b.fma(*ty, a[register], b[register], *sum);
                            fused += 1;
                        }
                        _ => items.push(item),
                    },
                    Inside::When(within) => items.push(self.choose(within, &item, &identity)),
                }
            }
            while items.len() > 1 {
                let mut next = Vec::new();
                for pair in items.chunks(2) {
                    next.push(match pair {
                        [left, right] => self.combine(combiner, left, right)?,
                        _ => pair[0].clone(),
                    });
                }
                items = next;
            }
            results.push(items.pop().unwrap_or_else(|| identity.clone()));
        }
        let along = layout.along(dim);
        let whole = self.by_one_instruction(combiner).filter(|_| along.lanes == 31);
        if let Some((operation, ty)) = whole {
            for result in &mut results {
                *result = Item::from_elem(self.b.redux(operation, ty, result[0]), 1);
            }
        }
        for bit in (0..5).filter(|bit| whole.is_none() && along.lanes >> bit & 1 == 1) {
            for result in &mut results {
                let other = self.exchanged(combiner, result, 1 << bit);
                *result = self.combine(combiner, result, &other)?;
            }
        }
        if along.warps == 0 {
            return Ok(results);
        }
        let uniform = along.lanes == 31 && layout.warps().is_power_of_two();
        let holders = if uniform { layout.warps() } else { layout.threads() };
        let mut combined = Vec::new();
        for part in results.chunks(self.items_at_once(combiner, holders, results.len())) {
            combined.extend(if uniform {
                self.across_uniform_warps(combiner, layout, along.warps, part)?
            } else {
                self.across_warps(combiner, layout, along.warps, &identity, part)?
            });
        }
        Ok(combined)
    }

    /// How many items of each of so many warps or threads the buffer of the operation holds at a time.
    fn items_at_once(&self, combiner: &Combiner<'_>, holders: u64, items: usize) -> usize {
        let room = self.room_below(combiner.bytes(holders, items));
        room.map_or(items, |room| (room / combiner.bytes(holders, 1)) as usize).max(1)
    }

    /// The address of a buffer for some items of each of so many warps or threads. A smaller one takes [some at a time](Self::items_at_once).
    fn exchange_of_items(&mut self, combiner: &Combiner<'_>, holders: u64, items: usize) -> Lowered<Reg> {
        let total = combiner.bytes(holders, items);
        self.exchange_of(total, combiner.bytes(holders, 1).max(SMALL_BYTES).min(total), 16)
    }

    /// Combines over the warp bits of a mask where all lanes of a warp have the same: one lane writes; lanes read the other warps'
    /// and exchange, or read all where those are few.
    fn across_uniform_warps(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        mask: u64,
        results: &[Item],
    ) -> Lowered<Vec<Item>> {
        let warps = layout.warps();
        let bits: Vec<u32> = (0..5).filter(|bit| mask >> bit & 1 == 1).collect();
        let sizes: Vec<u64> = combiner.elems.iter().map(|&elem| elem.bytes() * warps).collect();
        let base = self.exchange_of_items(combiner, warps, results.len())?;
        let thread = self.thread();
        let (lanes, five, zero) = (self.b.u32(31), self.b.u32(5), self.b.u32(0));
        let lane = self.b.and(thread, lanes);
        let warp = self.b.shr(Ty::U32, thread, five);
        let first = self.b.setp(Word::Eq, Ty::U32, lane, zero);
        // The warps that this one combines with differ from it in the mask's bits.
        let few = bits.len() <= 2;
        let others = self.b.u32(!mask as u32);
        let mut from = self.b.and(warp, others);
        if !few {
            let spread: Vec<(usize, u64)> = bits.iter().enumerate().map(|(lane, &bit)| (lane, 1 << bit)).collect();
            let chosen = self.scatter_bits(&spread);
            from = self.b.or(from, chosen);
        }
        let mut sources = Vec::new();
        let mut offset = 0;
        for (position, &elem) in combiner.elems.iter().enumerate() {
            let (start, step) = (self.b.u32(offset as u32), self.b.u32(elem.bytes() as u32));
            let corner = self.b.add(Ty::U32, base, start);
            let own = self.b.mad(Ty::U32, warp, step, corner);
            sources.push(self.b.mad(Ty::U32, from, step, corner));
            for (group, item) in results.iter().enumerate() {
                let address = self.b.at(own, (group as u64 * sizes[position]) as i64);
                self.put(elem, address, item[position], Some(first));
            }
            offset += (sizes[position] * results.len() as u64).next_multiple_of(16);
        }
        self.meet();
        let choices = if few { 1u64 << bits.len() } else { 1 };
        let mut combined = Vec::new();
        for group in 0..results.len() {
            let mut items = Vec::new();
            for choice in 0..choices {
                let warp: u64 = bits.iter().enumerate().map(|(i, bit)| (choice >> i & 1) << bit).sum();
                let mut item = Item::new();
                for (position, &elem) in combiner.elems.iter().enumerate() {
                    let at = group as u64 * sizes[position] + warp * elem.bytes();
                    let address = self.b.at(sources[position], at as i64);
                    item.push(self.take(elem, address));
                }
                items.push(item);
            }
            let mut items = items.into_iter();
            let Some(mut item) = items.next() else { bug!("no warp to combine") };
            for next in items {
                item = self.combine(combiner, &item, &next)?;
            }
            for lane in (0..bits.len()).filter(|_| !few) {
                let other = self.exchanged(combiner, &item, 1 << lane);
                item = self.combine(combiner, &item, &other)?;
            }
            combined.push(item);
        }
        Ok(combined)
    }

    /// The values of the lane whose number differs by these bits.
    fn exchanged(&mut self, combiner: &Combiner<'_>, item: &Item, bits: u32) -> Item {
        let mut other = Item::new();
        for (&reg, &elem) in item.iter().zip(&combiner.elems) {
            other.push(self.shuffled_element(elem, reg, |b, word| b.shfl_xor(word, bits)));
        }
        other
    }

    /// An element moved between lanes, 32 bits at a time.
    pub(super) fn shuffled_element(
        &mut self,
        elem: Elem,
        reg: Reg,
        mut shuffle: impl FnMut(&mut tessera_ptx::ssa::Builder, Reg) -> Reg,
    ) -> Reg {
        match class_of(elem) {
            Class::B64 => {
                let parts = self.b.unpack(reg, Class::B32);
                let (low, high) = (shuffle(&mut self.b, parts[0]), shuffle(&mut self.b, parts[1]));
                self.b.pack(&[low, high])
            }
            Class::B32 => shuffle(&mut self.b, reg),
            Class::B16 => {
                let wide = self.b.cvt(Ty::U32, Ty::U16, reg);
                let moved = shuffle(&mut self.b, wide);
                self.b.cvt(Ty::U16, Ty::U32, moved)
            }
            Class::Pred => {
                let wide = self.stored_element(elem, reg);
                let moved = shuffle(&mut self.b, wide);
                self.read_element(elem, moved)
            }
        }
    }

    /// Writes every thread's items to shared memory; the address of the thread's own and bytes of one item of all threads.
    fn published(&mut self, combiner: &Combiner<'_>, layout: &Distribution, items: &[Item]) -> Lowered<(Vec<Reg>, Vec<u64>)> {
        let threads = layout.threads();
        let mut starts = Vec::new();
        let mut total = 0;
        for elem in &combiner.elems {
            starts.push(total);
            total += (threads * elem.bytes() * items.len() as u64).next_multiple_of(16);
        }
        let base = self.exchange_of_items(combiner, threads, items.len())?;
        let thread = self.thread();
        let mut own = Vec::new();
        let mut strides = Vec::new();
        for (position, &elem) in combiner.elems.iter().enumerate() {
            let bytes = elem.bytes();
            let (size, start) = (self.b.u32(bytes as u32), self.b.u32(starts[position] as u32));
            let corner = self.b.add(Ty::U32, base, start);
            own.push(self.b.mad(Ty::U32, thread, size, corner));
            strides.push(threads * bytes);
            for (group, item) in items.iter().enumerate() {
                let address = self.b.at(own[position], (group as u64 * threads * bytes) as i64);
                self.put(elem, address, item[position], None);
            }
        }
        self.meet();
        Ok((own, strides))
    }

    /// Combines over the warp bits of a mask: every thread reads what its counterparts in the other warps have, in the same
    /// order.
    fn across_warps(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        mask: u64,
        identity: &Item,
        results: &[Item],
    ) -> Lowered<Vec<Item>> {
        let (own, strides) = self.published(combiner, layout, results)?;
        let bits: Vec<u32> = (0..10).filter(|bit| mask >> bit & 1 == 1).collect();
        let thread = self.thread();
        let moving = self.b.u32(bits.iter().map(|bit| 32 << bit).sum());
        let mine = self.b.and(thread, moving);
        let ragged = !layout.warps().is_power_of_two();
        let mut combined: Vec<Option<Item>> = vec![None; results.len()];
        for choice in 0..1u32 << bits.len() {
            let wanted: u32 = bits.iter().enumerate().map(|(i, bit)| (choice >> i & 1) << (5 + bit)).sum();
            let wanted = self.b.u32(wanted);
            let distance = self.b.sub(Ty::S32, wanted, mine);
            let exists = ragged.then(|| {
                let other = self.b.add(Ty::S32, thread, distance);
                let limit = self.b.u32(layout.threads() as u32);
                self.b.setp(Word::Lt, Ty::U32, other, limit)
            });
            for (group, slot) in combined.iter_mut().enumerate() {
                let mut item = Item::new();
                for (position, &elem) in combiner.elems.iter().enumerate() {
                    let size = self.b.u32(elem.bytes() as u32);
                    let mut address = self.b.mad(Ty::S32, distance, size, own[position]);
                    if let Some(exists) = exists {
                        address = self.b.select(exists, address, own[position]);
                    }
                    let address = self.b.at(address, (group as u64 * strides[position]) as i64);
                    item.push(self.take(elem, address));
                }
                if let Some(exists) = exists {
                    item = self.choose(exists, &item, identity);
                }
                *slot = Some(match slot.take() {
                    None => item,
                    Some(running) => self.combine(combiner, &running, &item)?,
                });
            }
        }
        Ok(combined.into_iter().flatten().collect())
    }

    // --- the order of the tile

    fn by_tree(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        place: &Place,
        dim: usize,
        operands: &[Regs],
        groups: &[Vec<usize>],
    ) -> Lowered<Vec<Item>> {
        let core = layout.core();
        let extent = layout.shape()[dim];
        // For each group: first coordinate of a register (for thread bits that are zero) and its item.
        let mut state: Vec<Vec<(u64, Item)>> = Vec::new();
        for group in groups {
            let mut items: Vec<(u64, Item)> = Vec::new();
            for &register in group {
                let (xor, add) = place.parts(register, dim);
                // Copies of an element in one thread count once.
                if items.iter().all(|(start, _)| *start != xor + add) {
                    items.push((xor + add, self.item(operands, register)));
                }
            }
            items.sort_by_key(|(start, _)| *start);
            state.push(items);
        }
        let steps = core.extent(dim).trailing_zeros();
        for step in 0..steps {
            let unit = 1u64 << step;
            let find = |axis: Axis| (0..core.bits(axis)).find(|&bit| core.basis(axis, bit)[dim] == unit);
            if find(Axis::Register).is_some() {
                for items in &mut state {
                    let mut next: Vec<(u64, Item)> = Vec::new();
                    for (start, item) in std::mem::take(items) {
                        match next.last_mut() {
                            Some((left_start, left)) if *left_start ^ start == unit => {
                                let both = self.combine(combiner, left, &item)?;
                                let right = self.block_start(place, dim, start, unit);
                                *left = self.where_present(right, start, extent, place.thread_bits[dim], both, left.clone());
                            }
                            _ => next.push((start, item)),
                        }
                    }
                    *items = next;
                }
                continue;
            }
            let lane = find(Axis::Lane);
            let Some(bit) = lane.or_else(|| find(Axis::Warp)) else {
                return Err(self.broken("a layout that skips a coordinate"));
            };
            let flat: Vec<Item> = state.iter().flatten().map(|(_, item)| item.clone()).collect();
            let others: Vec<Item> = if lane.is_some() {
                flat.iter().map(|item| self.exchanged(combiner, item, 1 << bit)).collect()
            } else {
                let mut others = Vec::new();
                for part in flat.chunks(self.items_at_once(combiner, layout.threads(), flat.len())) {
                    others.extend(self.of_other_warp(combiner, layout, bit, part)?);
                }
                others
            };
            let thread = self.thread();
            let tid_bit = if lane.is_some() { bit } else { 5 + bit };
            let (mask, zero) = (self.b.u32(1 << tid_bit), self.b.u32(0));
            let set = self.b.and(thread, mask);
            let is_right = self.b.setp(Word::Ne, Ty::U32, set, zero);
            let mut others = others.into_iter();
            for items in &mut state {
                for (start, item) in items.iter_mut() {
                    let Some(other) = others.next() else { bug!("an item that no other thread has") };
                    let (left, right) = if combiner.commutative && layout.repeat(dim) * core.extent(dim) == extent {
                        (item.clone(), other)
                    } else {
                        (self.choose(is_right, &other, item), self.choose(is_right, item, &other))
                    };
                    let both = self.combine(combiner, &left, &right)?;
                    let right_start = self.block_start(place, dim, *start | unit, unit);
                    let bits = place.thread_bits[dim];
                    *item = self.where_present(right_start, *start | unit, extent, bits, both, left);
                }
            }
        }
        let mut results = Vec::new();
        for items in state {
            let mut items: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
            while items.len() > 1 {
                let mut next = Vec::new();
                for pair in items.chunks(2) {
                    next.push(match pair {
                        [left, right] => self.combine(combiner, left, right)?,
                        _ => pair[0].clone(),
                    });
                }
                items = next;
            }
            results.push(items.pop().ok_or_else(|| self.broken("a reduction of nothing"))?);
        }
        Ok(results)
    }

    /// The items of the thread whose warp's number differs in one bit.
    fn of_other_warp(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        bit: usize,
        items: &[Item],
    ) -> Lowered<Vec<Item>> {
        let (own, strides) = self.published(combiner, layout, items)?;
        let mut others = Vec::new();
        for group in 0..items.len() {
            let mut item = Item::new();
            for (position, &elem) in combiner.elems.iter().enumerate() {
                let bytes = elem.bytes();
                let thread = self.thread();
                let mask = self.b.u32(32 << bit);
                let set = self.b.and(thread, mask);
                let double = self.b.u32(2 * bytes as u32);
                let back = self.b.mul(Ty::S32, set, double);
                let ahead = self.b.u32((32 << bit) * bytes as u32);
                let address = self.b.add(Ty::S32, own[position], ahead);
                let address = self.b.sub(Ty::S32, address, back);
                let address = self.b.at(address, (group as u64 * strides[position]) as i64);
                item.push(self.take(elem, address));
            }
            others.push(item);
        }
        Ok(others)
    }

    /// The first coordinate of a block of `unit` elements that has the thread's coordinate in it.
    fn block_start(&mut self, place: &Place, dim: usize, start: u64, unit: u64) -> Reg {
        let (mask, start) = (self.b.u32(!(2 * unit as u32 - 1)), self.b.u32(start as u32));
        let thread = self.b.and(place.thread[dim], mask);
        self.b.xor(thread, start)
    }

    /// `both` where the right one of two blocks has an element in the tile, `left` elsewhere.
    fn where_present(&mut self, right: Reg, least: u64, extent: u64, thread_bits: u64, both: Item, left: Item) -> Item {
        if (least | thread_bits) < extent {
            return both;
        }
        let limit = self.b.u32(extent as u32);
        let present = self.b.setp(Word::Lt, Ty::U32, right, limit);
        self.choose(present, &both, &left)
    }
}

/// Whether two registers have the same coordinates, however these are split into parts.
fn same_place(a: &[(u64, u64)], b: &[(u64, u64)]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.0 + a.1 == b.0 + b.1)
}
