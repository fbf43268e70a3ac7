//! A plan of two partitions, understood: which loads and factors its rings hold, where they are filled, and how every product reads its
//! factors. What the machine cannot do is refused here, with a reason; what is left can be carried out.
//!
//! | ring | holds | |
//! |---|---|---|
//! | `copy -> compute {by=tma}` | loads | the copy engine fills what is computed from |
//! | `copy -> copy {by=tma}` | loads | the copy engine fills what threads of the copying partition make factors from |
//! | `copy -> compute {by=threads}` | factors | those threads fill what the tensor cores read |
//! | `compute -> compute {by=threads, slots=1}` | a left factor | computed once, read in every round |

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use tessera_ir::attrs::RingProducer;
use tessera_ir::{
    Block, Def, Effects, Func, Op, OpKind, Partition, Plan, Reason, RingPlan, ScheduleOp, SharedType, Span, Value, bug,
};
use tessera_types::room::FRAME;
use tessera_types::{Arch, DType};

use super::budget;
use super::known::{Known, Places, is_counted, is_test, starts};
use super::propose::is_chain;
use super::shape::{fits, is_product};
use crate::tile::anchors::Units;
use crate::tile::feed::{Factor, Way, brought, looked_at};
use crate::tile::portions::is_brought_alone;
use crate::tile::slots;
use tessera_analysis::arrangement::engine_swizzle;

/// What a ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// From the copy engine to those who compute.
    Direct,
    /// From the copy engine to those who make factors.
    Raw,
    /// From those who make factors to the tensor cores.
    Made,
    /// A left factor that those who compute keep in shared memory.
    Kept,
}

impl Job {
    fn of(ring: &RingPlan) -> Option<Job> {
        match (ring.from, ring.to, ring.by) {
            (0, 1, RingProducer::Tma) => Some(Job::Direct),
            (0, 0, RingProducer::Tma) => Some(Job::Raw),
            (0, 1, RingProducer::Threads) => Some(Job::Made),
            (1, 1, RingProducer::Threads) => Some(Job::Kept),
            _ => None,
        }
    }
}

/// A ring of a plan.
pub(super) struct Ring {
    pub(super) job: Job,
    pub(super) stages: u32,
    /// The buffers of a slot.
    pub(super) slots: Vec<SharedType>,
}

/// A place in the program that fills a slot of a ring in each of its rounds.
pub(super) struct Site {
    pub(super) ring: usize,
    pub(super) block: Block,
    /// What the copy engine brings, for the buffers in turn.
    pub(super) loads: Vec<Op>,
    /// What threads make, for the buffers in turn.
    pub(super) factors: Vec<Factor>,
}

/// How a product gets a factor.
pub(super) enum Side {
    /// From a buffer of a site's slot. `look` says how a load's tile is looked at.
    Slot { site: usize, buffer: usize, look: Option<Factor> },
    /// From a buffer that the computing partition has filled.
    Kept { ring: usize },
    /// From the registers in which it was computed.
    Registers,
}

/// A product of warpgroups.
pub(super) struct Product {
    pub(super) op: Op,
    pub(super) sides: [Side; 2],
}

/// What the copying partition repeats: scalar operations inside of loops, and what loops carry.
#[derive(Default)]
pub(super) struct Needed {
    pub(super) ops: FxHashSet<Op>,
    pub(super) carried: FxHashMap<Op, BTreeSet<usize>>,
}

/// A plan that can be carried out.
pub(super) struct Supply {
    pub(super) copy: Partition,
    pub(super) compute: Partition,
    pub(super) rings: Vec<Ring>,
    pub(super) sites: Vec<Site>,
    pub(super) products: Vec<Product>,
    /// Some loop has chained products: the left factor of one is what became of another's sums.
    pub(super) chained: bool,
    /// The left factors that are kept, by ring.
    pub(super) kept: Vec<(usize, Value)>,
    pub(super) needed: Needed,
    pub(super) known: Known,
    pub(super) places: Places,
    /// Registers that each thread starts with.
    given: u32,
    pub(super) span: Span,
}

impl Supply {
    /// Understands a plan.
    ///
    /// # Errors
    /// What cannot be done, with the place in the plan or in the kernel.
    pub(super) fn of(func: &Func, units: &Units, plan: &Plan) -> Result<Supply, Reason> {
        if !units.warpgroups {
            return Err("the target has no products of warpgroups".into());
        }
        let [copy, compute] = &plan.partitions[..] else {
            return Err(Reason::at("a plan has one partition, or one that copies and one that computes", plan.span));
        };
        check_partitions(units.arch, plan)?;
        let leaves = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Return {}));
        let ends = func.blocks[func.body].ops.last().is_some_and(leaves);
        if !ends || func.linked_ops().iter().filter(|op| leaves(op)).count() != 1 {
            return Err("some blocks return before the end".into());
        }
        let (places, known) = (Places::of(func), Known::of(func));
        let mut supply = Supply {
            copy: copy.clone(),
            compute: compute.clone(),
            rings: Vec::new(),
            sites: Vec::new(),
            products: Vec::new(),
            chained: func.linked_blocks().into_iter().any(|block| is_chain(func, block)),
            kept: Vec::new(),
            needed: Needed::default(),
            known,
            places,
            given: units
                .arch
                .registers_at_launch(plan.resident.unwrap_or(1).max(1) * (copy.warps + compute.all_warps()) * Arch::WARP),
            span: plan.span,
        };
        for (number, ring) in plan.rings.iter().enumerate() {
            supply.ring(func, number, ring)?;
        }
        if supply.rings.iter().all(|ring| ring.job == Job::Kept) {
            return Err(Reason::at(
                format!("partition `{}` fills no ring: one partition alone does everything", copy.name),
                copy.span,
            ));
        }
        for op in func.linked_ops() {
            if is_product(func, op) {
                let product = supply.product(func, op)?;
                supply.products.push(product);
            }
        }
        supply.check_makers(func, plan)?;
        supply.find_needed(func)?;
        supply.check_memory(func, units, plan)?;
        Ok(supply)
    }

    /// The first product: what a message about all of them points at.
    pub(super) fn at(&self, func: &Func) -> Span {
        self.products.first().map_or(self.span, |product| func.ops[product.op].span)
    }

    /// The site of a block that threads make factors at.
    pub(super) fn made_at(&self, block: Block) -> Option<usize> {
        (0..self.sites.len()).find(|&site| self.sites[site].block == block && self.rings[self.sites[site].ring].job == Job::Made)
    }

    /// The site of a block with a job.
    pub(super) fn site_at(&self, block: Block, job: Job) -> Option<usize> {
        (0..self.sites.len()).find(|&site| self.sites[site].block == block && self.rings[self.sites[site].ring].job == job)
    }

    fn ring(&mut self, func: &Func, number: usize, ring: &RingPlan) -> Result<(), Reason> {
        let no = |text: String| Reason::at(text, ring.span);
        let job = Job::of(ring).ok_or_else(|| {
            no("no such ring can be made: the first partition fills one for the second by `tma` or `threads`, or one for itself by `tma`; \
                the second keeps a left factor by `threads`"
                .to_string())
        })?;
        if ring.slots == 0 || ring.slots > slots::MOST_SLOTS {
            return Err(no(format!("a ring has 1 to {} slots, not {}", slots::MOST_SLOTS, ring.slots)));
        }
        self.rings.push(Ring { job, stages: ring.slots, slots: Vec::new() });
        let mut types: Option<Vec<SharedType>> = None;
        for fill in &ring.fills {
            if job == Job::Kept {
                self.keep(func, (number, ring), fill, &mut types)?;
                continue;
            }
            let mut site = Site { ring: number, block: func.body, loads: Vec::new(), factors: Vec::new() };
            let mut buffers = Vec::new();
            for (position, &value) in fill.iter().enumerate() {
                let op = func.defining_op(value).ok_or_else(|| no("a ring holds what operations yield".to_string()))?;
                let block = self.places.block(op).ok_or_else(|| no("a ring holds what operations yield".to_string()))?;
                if position > 0 && block != site.block {
                    return Err(no("what fills one slot stands in one block".to_string()));
                }
                site.block = block;
                if job == Job::Made {
                    let factor = self
                        .factor_of(func, block, value)
                        .ok_or_else(|| no("threads make factors of products".to_string()))??;
                    buffers.push(factor.slot.clone());
                    site.factors.push(factor);
                } else {
                    buffers.push(loaded(func, op, value)?);
                    site.loads.push(op);
                }
            }
            let again = |op: &Op| self.sites.iter().any(|other| self.rings[other.ring].job == job && other.loads.contains(op));
            let twice = |op: &&Op| site.loads.iter().filter(|other| other == op).count() > 1 || again(op);
            if let Some(&op) = site.loads.iter().find(twice) {
                return Err(Reason::at("rings hold a load twice", func.ops[op].span));
            }
            // What comes behind a loop may fill the first buffers of a slot alone.
            let types = types.get_or_insert_with(|| buffers.clone());
            if !types.starts_with(&buffers) || buffers.len() < types.len() && job != Job::Direct {
                return Err(no("two loops differ in their factors: a ring's slots have one type".to_string()));
            }
            let several = |other: &Site| other.ring == number && other.block == site.block;
            if self.sites.iter().any(|other| several(other) && !(is_by_itself(func, other) && is_by_itself(func, &site))) {
                return Err(no("a ring is filled once a round".to_string()));
            }
            self.sites.push(site);
        }
        self.rings[number].slots = types.unwrap_or_else(|| bug!("a ring that holds nothing"));
        Ok(())
    }

    /// A left factor that stays in shared memory.
    fn keep(
        &mut self,
        func: &Func,
        (number, ring): (usize, &RingPlan),
        fill: &[Value],
        types: &mut Option<Vec<SharedType>>,
    ) -> Result<(), Reason> {
        let no = |text: &'static str| Reason::at(text, ring.span);
        let (&[value], 1, 1) = (fill, ring.slots, ring.fills.len()) else {
            return Err(no("what the computing partition keeps is one factor in one slot"));
        };
        let outside = func.defining_op(value).and_then(|op| self.places.block(op)) == Some(func.body);
        let (Some(tile), true) = (func.ty(value).as_tile(), outside) else {
            return Err(no("the first product's left factor is computed for each tile"));
        };
        let (&[_, columns], Some(dtype)) = (&tile.shape[..], tile.elem.num()) else {
            return Err(no("what is kept is a matrix of numbers"));
        };
        let swizzle =
            engine_swizzle(columns * dtype.bits() / 8).ok_or_else(|| no("a line of the left factor is not of whole 32 bytes"))?;
        *types = Some(vec![SharedType { swizzle, ..SharedType::new(tile.shape.clone(), dtype) }]);
        self.kept.push((number, value));
        Ok(())
    }

    /// The factor that a product takes by this value.
    fn factor_of(&self, func: &Func, block: Block, value: Value) -> Option<Result<Factor, Reason>> {
        func.linked_ops().into_iter().filter(|&op| is_product(func, op)).find_map(|op| {
            let side = (0..2).find(|&side| func.ops[op].one(side) == value)?;
            Some(Factor::of(func, &func.blocks[block].ops, value, 1 - side))
        })
    }

    /// How a product reads its factors.
    fn product(&self, func: &Func, op: Op) -> Result<Product, Reason> {
        let rows = fits(func, op)?;
        let at = func.ops[op].span;
        if rows % (16 * self.compute.warps) != 0 {
            return Err(Reason::at(format!("{rows} rows do not divide among {} warps of 16 rows", self.compute.warps), at));
        }
        let columns = func.ty(func.ops[op].result()).the_tile().shape[1];
        let needs = budget::to_start(columns);
        if needs > self.given {
            let text = format!(
                "a product of {columns} columns takes {needs} registers of a thread, and threads of so many start with {}",
                self.given
            );
            return Err(Reason::at(text, at));
        }
        let sides = [self.side(func, op, 0)?, self.side(func, op, 1)?];
        Ok(Product { op, sides })
    }

    fn side(&self, func: &Func, op: Op, side: usize) -> Result<Side, Reason> {
        let (value, at) = (func.ops[op].one(side), func.ops[op].span);
        for (number, site) in self.sites.iter().enumerate() {
            if let Some(buffer) = site.factors.iter().position(|factor| factor.value == value && factor.inner == 1 - side) {
                return Ok(Side::Slot { site: number, buffer, look: None });
            }
        }
        let direct = |load: Op| {
            let sites = self.sites.iter().enumerate().filter(|(_, site)| self.rings[site.ring].job == Job::Direct);
            sites.into_iter().find_map(|(number, site)| Some((number, site.loads.iter().position(|&other| other == load)?)))
        };
        if let Some((number, buffer)) = looked_at(func, value).and_then(direct) {
            let ops = &func.blocks[self.sites[number].block].ops;
            let factor = Factor::of(func, ops, value, 1 - side)?;
            if factor.way != Way::Brought {
                return Err(Reason::at("the tensor cores cannot read a factor as it lies: threads have to turn it", at));
            }
            return Ok(Side::Slot { site: number, buffer, look: Some(factor) });
        }
        if side == 0 {
            if let Some(&(ring, _)) = self.kept.iter().find(|(_, kept)| *kept == value) {
                return Ok(Side::Kept { ring });
            }
            if matches!(func.ty(value).num(), Some(DType::F16 | DType::BF16)) {
                return Ok(Side::Registers);
            }
        }
        let which = ["left", "right"][side];
        Err(Reason::at(format!("the {which} factor of a product is in no ring, and cannot be read from registers"), at))
    }

    /// Where threads make factors, the rings of the loop go together.
    fn check_makers(&self, func: &Func, plan: &Plan) -> Result<(), Reason> {
        for (number, site) in self.sites.iter().enumerate() {
            let ring = &self.rings[site.ring];
            let no = |text: &'static str| Err(Reason::at(text, plan.rings[site.ring].span));
            match ring.job {
                Job::Made => {
                    let inside = self.places.holder(site.block).is_some_and(|looped| is_counted(func, looped));
                    if !inside {
                        return no("threads make factors in a counted loop");
                    }
                    let direct =
                        self.sites.iter().filter(|other| other.block == site.block && self.rings[other.ring].job == Job::Direct);
                    let direct: Vec<&Site> = direct.collect();
                    if direct.len() > 1 || direct.iter().any(|other| self.rings[other.ring].stages != ring.stages) {
                        return no("beside what threads make, the copy engine fills one ring with as many slots");
                    }
                    let raw: FxHashSet<Op> = self
                        .site_at(site.block, Job::Raw)
                        .map_or_else(FxHashSet::default, |raw| self.sites[raw].loads.iter().copied().collect());
                    let wanted = site.factors.iter().flat_map(|factor| &factor.loads).filter(|(_, buffer)| buffer.is_some());
                    let wanted: FxHashSet<Op> = wanted.map(|&(load, _)| load).collect();
                    if wanted != raw {
                        return no("what threads make factors from is what the copying partition's own ring holds");
                    }
                }
                Job::Raw if self.made_at(site.block).is_none() => return no("nobody makes anything of what this ring holds"),
                Job::Direct if ring.stages > 0 && !self.is_read(func, number) => return no("nobody uses what this ring holds"),
                Job::Raw | Job::Direct | Job::Kept => {}
            }
        }
        Ok(())
    }

    /// Whether the computing partition reads what a site's ring brings: a product does, or anything but products whose factor another ring has.
    fn is_read(&self, func: &Func, number: usize) -> bool {
        let loads = &self.sites[number].loads;
        let mut todo: Vec<Value> = loads.iter().map(|&load| func.ops[load].results[0]).collect();
        let mut seen: FxHashSet<Value> = todo.iter().copied().collect();
        while let Some(value) = todo.pop() {
            for op in func.linked_ops() {
                let data = &func.ops[op];
                if !data.used().any(|used| used == value) {
                    continue;
                }
                if let Some(product) = self.products.iter().find(|product| product.op == op) {
                    let elsewhere = |side: usize| matches!(product.sides[side], Side::Slot { site, .. } if site != number);
                    if data.operands[2..].contains(&value) || (0..2).any(|side| data.one(side) == value && !elsewhere(side)) {
                        return true;
                    }
                } else if data.row().effects == Effects::Pure && data.regions.is_empty() {
                    todo.extend(data.results.iter().copied().filter(|&result| seen.insert(result)));
                } else {
                    return true;
                }
            }
        }
        false
    }

    /// Finds what the copying partition repeats.
    fn find_needed(&mut self, func: &Func) -> Result<(), Reason> {
        let mut todo: Vec<(Value, Option<Span>)> = Vec::new();
        let mut loops: FxHashSet<Op> = FxHashSet::default();
        for site in &self.sites {
            for looped in self.places.loops(func, site.block)? {
                if !loops.insert(looped) {
                    continue;
                }
                let data = &func.ops[looped];
                if is_counted(func, looped) {
                    if data.operands[..3].iter().any(|&value| !self.known.holds(value)) {
                        return Err(Reason::at("the outer loop's range is what only the computing role knows", data.span));
                    }
                    todo.extend(data.operands[..3].iter().map(|&value| (value, Some(data.span))));
                }
                for &test in func.blocks[data.regions[0]].ops.iter().filter(|&&op| is_test(func, op)) {
                    let (condition, at) = (func.ops[test].one(0), func.ops[test].span);
                    if !self.known.holds(condition) {
                        return Err(Reason::at("whether another tile comes is what only the computing role knows", at));
                    }
                    todo.push((condition, Some(at)));
                }
            }
            for &load in &site.loads {
                todo.extend(func.ops[load].operands.iter().map(|&value| (value, Some(func.ops[load].span))));
            }
            for factor in &site.factors {
                let own: FxHashSet<Value> = factor.ops.iter().flat_map(|&op| func.ops[op].results.clone()).collect();
                let used = factor
                    .ops
                    .iter()
                    .flat_map(|&op| func.ops[op].operands.iter().map(move |&value| (value, Some(func.ops[op].span))));
                todo.extend(used.filter(|(value, _)| !own.contains(value)));
            }
        }
        let needed = &mut self.needed;
        while let Some((value, at)) = todo.pop() {
            if !self.known.holds(value) {
                let own = func.defining_op(value).map(|op| func.ops[op].span);
                return Err(Reason::at("where to load from is computed from what the computing role holds", own.or(at)));
            }
            match func.values[value].def {
                Def::Result(op, _) => {
                    if self.places.block(op) != Some(func.body) && needed.ops.insert(op) {
                        todo.extend(func.ops[op].operands.iter().map(|&value| (value, at)));
                    }
                }
                Def::Argument(block, position) => {
                    let Some(looped) = self.places.holder(block) else { continue };
                    let Some(position) = (position as usize).checked_sub(usize::from(is_counted(func, looped))) else { continue };
                    if needed.carried.entry(looped).or_default().insert(position) {
                        todo.push((starts(func, looped)[position], at));
                        let last = func.blocks[block].ops.last();
                        todo.extend(last.map(|&last| (func.ops[last].group(0)[position], at)));
                    }
                }
            }
        }
        // Makers go through their loop in two paces, and carry nothing but cursors.
        for site in self.sites.iter().filter(|site| !site.factors.is_empty()) {
            let looped = self.places.holder(site.block);
            if let Some(looped) = looped.filter(|looped| self.needed.carried.contains_key(looped)) {
                return Err(Reason::at("where to load from is carried around the product's loop", func.ops[looped].span));
            }
        }
        Ok(())
    }

    /// The rings fit beside what else needs shared memory.
    fn check_memory(&self, func: &Func, units: &Units, plan: &Plan) -> Result<(), Reason> {
        let bytes = |ring: &Ring| u64::from(ring.stages) * ring.slots.iter().map(SharedType::bytes).sum::<u64>();
        let rings: u64 = self.rings.iter().map(bytes).sum();
        let others = u64::from(self.bytes_beside(func) + FRAME);
        let limits = units.arch.limits();
        let share = limits.shared_per_sm / plan.resident.unwrap_or(1).max(1);
        let room = u64::from(units.shared.min(share.saturating_sub(limits.shared_reserved_per_block)));
        if rings + others <= room {
            return Ok(());
        }
        // The ring that takes most.
        let largest =
            (0..self.rings.len()).max_by_key(|&ring| bytes(&self.rings[ring])).map_or(plan.span, |ring| plan.rings[ring].span);
        Err(Reason::at(
            format!("the rings take {rings} bytes of shared memory and what else there is {others}; a block has {room}"),
            largest,
        ))
    }

    /// Bytes of shared memory beside rings: where factors are turned, and what the rest of the computing partition's work borrows.
    pub(super) fn bytes_beside(&self, func: &Func) -> u32 {
        let turned: u64 =
            self.sites.iter().flat_map(|site| &site.factors).filter_map(Factor::before_turn).map(|ty| ty.bytes()).sum();
        turned as u32 + self.compute.teams() * budget::borrowed(func, self)
    }
}

/// Warps and registers that a block can have.
fn check_partitions(arch: Arch, plan: &Plan) -> Result<(), Reason> {
    let limits = arch.limits();
    let [copy, compute] = &plan.partitions[..] else { return Ok(()) };
    let (resident, warps) = (plan.resident.unwrap_or(1), copy.warps.saturating_add(compute.all_warps()));
    if resident == 0 || resident.saturating_mul(warps).saturating_mul(Arch::WARP) > limits.threads_per_sm {
        let text = format!("{resident} blocks of {warps} warps do not share a multiprocessor");
        return Err(Reason::at(text, plan.span));
    }
    for partition in [copy, compute] {
        if partition.warps == 0 || !partition.warps.is_multiple_of(4) {
            let text = format!("partition `{}` is not of whole warpgroups: 4 warps, 8, 12", partition.name);
            return Err(Reason::at(text, partition.span));
        }
        let (least, most) = limits.registers_moved;
        if let Some(registers) = partition.registers
            && (!registers.is_multiple_of(8) || registers < least || registers > most)
        {
            let text = format!("a thread has {least} to {most} registers, a multiple of 8, not {registers}");
            return Err(Reason::at(text, partition.span));
        }
    }
    if warps * Arch::WARP > limits.threads_per_block {
        let text = format!("{warps} warps are more than a block has: {}", limits.threads_per_block / Arch::WARP);
        return Err(Reason::at(text, compute.span));
    }
    match (copy.registers, compute.registers) {
        (None, None) => Ok(()),
        (Some(few), Some(many)) => {
            let given = arch.registers_at_launch(resident * warps * Arch::WARP) * warps;
            let asked = few * copy.warps + many * compute.all_warps();
            if asked <= given {
                return Ok(());
            }
            let text =
                format!("the partitions ask for {} registers, a block starts with {}", asked * Arch::WARP, given * Arch::WARP);
            Err(Reason::at(text, compute.span))
        }
        _ => Err(Reason::at("registers are moved from one partition to the other: both say how many, or none", copy.span)),
    }
}

/// One tile, which others than products use: it is read into registers where it was loaded, so that its slot is free again before the next one of the
/// block is waited for.
fn is_by_itself(func: &Func, site: &Site) -> bool {
    matches!(site.loads[..], [load] if is_brought_alone(func, load))
}

/// The buffer that the copy engine fills with a load's tile.
fn loaded(func: &Func, op: Op, value: Value) -> Result<SharedType, Reason> {
    let data = &func.ops[op];
    let no = |text: &'static str| Reason::at(text, data.span);
    let OpKind::Schedule(ScheduleOp::LoadViewTko { allow_tma, .. }) = &data.kind else {
        return Err(no("the copy engine brings what `load` yields, and nothing that is computed"));
    };
    if data.results[0] != value {
        return Err(no("the copy engine brings tiles, not tokens"));
    }
    let ordered = || func.linked_ops().into_iter().any(|op| func.ops[op].used().any(|used| used == data.results[1]));
    if !data.group(2).is_empty() || *allow_tma == Some(false) || ordered() {
        return Err(no("a factor's load is ordered behind a store, or may not use the copy engine"));
    }
    brought(func, op)
}
