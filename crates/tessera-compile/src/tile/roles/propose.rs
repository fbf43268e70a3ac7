//! The plan of two partitions that a function's products ask for: the copying one brings every factor that the copy engine can bring and
//! makes those that it cannot; the other one multiplies and does everything else.
//!
//! The factors of one loop lie in one ring, since they are needed at once; where a product takes what became of another one's sums, each
//! factor has a ring of its own, so that either product waits for its own factor alone. Loops one behind the other share rings.

use rustc_hash::FxHashSet;
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Func, Op, OpKind, Partition, Plan, Reason, RingPlan, ScheduleOp, SharedType, Sharing, Span, Value, bug};
use tessera_types::room::FRAME;
use tessera_types::{Arch, DType};

use super::budget::{self, Load, WORKING};
use super::known::{Places, is_counted};
use super::shape::{fits, is_product};
use super::supply::Supply;
use super::turns::{Turns, check as check_turns};
use crate::tile::anchors::Units;
use crate::tile::feed::{Factor, Way, brought, packed};
use crate::tile::portions::is_brought_alone;
use crate::tile::slots;

/// Warps of the partition that fills rings: a warpgroup, so that registers can be moved from it.
const FEEDERS: u32 = 4;
/// Slots of a ring between the copy engine and threads, where they fit: one is worked on while the other is filled.
const RAW_STAGES: u32 = 2;
/// Slots of what comes once for each of a block's tiles: the next tile's lies there when the last one ends.
const TILE_STAGES: u32 = 2;
/// Slots of the rings of chained products that were found useful.
const CHAIN_STAGES: u32 = 2;

/// The factors of the products of one loop.
struct Loop {
    looped: Op,
    products: Vec<Op>,
    /// Some product takes what became of another one's sums.
    chained: bool,
    /// Each factor of the loop's own once.
    factors: Vec<Factor>,
    /// Loads that those who multiply read into registers: what they compute left factors from, and what they scale sums by.
    tiles: Vec<Op>,
}

/// A left factor that is the same in all rounds.
enum Left {
    Brought(Value),
    Kept(Value),
}

/// The plan that the function's products ask for.
pub(in crate::tile) fn propose(func: &Func, units: &Units) -> Result<Plan, Reason> {
    if !units.warpgroups {
        return Err("the target has no products of warpgroups".into());
    }
    let places = Places::of(func);
    let products: Vec<Op> = func.linked_ops().into_iter().filter(|&op| is_product(func, op)).collect();
    let Some(&first) = products.first() else { return Err("there is no product".into()) };
    let m = fits(func, first)?;
    for &product in &products {
        if fits(func, product)? != m {
            return Err(Reason::at("two products have different rows", func.ops[product].span));
        }
    }
    let mut loops: Vec<Loop> = Vec::new();
    let mut lefts: Vec<Left> = Vec::new();
    for &product in &products {
        let at = func.ops[product].span;
        let counted = |block: Block| places.holder(block).filter(|&looped| is_counted(func, looped));
        let looped = places.block(product).and_then(counted);
        let looped = looped.ok_or_else(|| Reason::at("the product stands in no counted loop", at))?;
        if !loops.iter().any(|other| other.looped == looped) {
            loops.push(Loop { looped, products: Vec::new(), chained: false, factors: Vec::new(), tiles: Vec::new() });
        }
        let own = loops.iter_mut().find(|other| other.looped == looped).unwrap_or_else(|| bug!("a loop that was not noted"));
        own.products.push(product);
        own.take(func, &places, product, &mut lefts)?;
    }
    for own in &mut loops {
        own.take_scales(func);
    }
    let columns = |&product: &Op| func.ty(func.ops[product].result()).the_tile().shape[1];
    let widest = products.iter().map(columns).max().unwrap_or(0);
    let three = budget::to_start(widest) <= units.arch.registers_at_launch(4 * Arch::WARPGROUP);
    let divides = |&warps: &u32| warps.is_multiple_of(4) && m.is_multiple_of(16 * warps);
    let asked = func.hints.num_worker_warps.filter(divides);
    let warps = match (asked, m / 64) {
        (Some(warps), _) => warps,
        (None, 3) if three => 12,
        (None, groups) if groups.is_multiple_of(2) => 8,
        (None, _) => 4,
    };
    let mut plan = Plan::new(func.ops[loops[0].looped].span);
    partitions(func, units.arch, &loops, (&products, warps), &mut plan)?;
    if loops.iter().any(|own| own.chained)
        && let Some(made) = loops.iter().flat_map(|own| &own.factors).find(|factor| factor.way != Way::Brought)
    {
        return Err(why_made(func, made));
    }
    rings(func, &loops, &lefts, &mut plan)?;
    portions(func, &places, &loops, &mut plan);
    give_slots(func, units, &mut plan)?;
    Ok(plan)
}

impl Loop {
    /// Notes the factors of a product.
    fn take(&mut self, func: &Func, places: &Places, product: Op, lefts: &mut Vec<Left>) -> Result<(), Reason> {
        let body = func.ops[self.looped].regions[0];
        let ops = &func.blocks[body].ops;
        let (left, right) = (func.ops[product].one(0), func.ops[product].one(1));
        let earlier = self
            .products
            .iter()
            .filter(|&&other| other != product)
            .any(|&other| reaches(func, ops, func.ops[other].result(), left));
        if earlier {
            if !matches!(func.ty(left).num(), Some(DType::F16 | DType::BF16)) {
                let at = func.ops[product].span;
                return Err(Reason::at("a chained product is not one of 16-bit floats that adds up in `float32`", at));
            }
            self.chained = true;
        } else if let Some(loads) = packed(func, ops, left) {
            self.tiles.extend(loads);
        } else if func.defining_op(left).is_some_and(|op| ops.contains(&op)) {
            self.add(func, ops, (left, 1))?;
        } else {
            let known = lefts.iter().any(|other| matches!(other, Left::Brought(value) | Left::Kept(value) if *value == left));
            if !known {
                lefts.push(self.outside(func, places, (product, left))?);
            }
        }
        self.add(func, ops, (right, 0))
    }

    /// Notes floats that a round loads for what it does with sums, as scales: threads would wait for memory when the product has ended. Of
    /// chained products lines alone, since whole tiles would leave their factors no slots.
    fn take_scales(&mut self, func: &Func) {
        let ops = &func.blocks[func.ops[self.looped].regions[0]].ops;
        let is_load = |op: Op| func.ops[op].kind.schedule().is_some_and(ScheduleOp::is_weak_load);
        let is_free = |load: Op| func.ops[load].group(2).is_empty() && brought(func, load).is_ok();
        let loads = ops.iter().copied().filter(|&op| is_load(op) && is_free(op));
        let floats = loads.filter(|&op| func.ty(func.ops[op].results[0]).num().is_some_and(DType::is_float));
        let is_line =
            |op: Op| func.ty(func.ops[op].results[0]).the_tile().shape.iter().filter(|&&extent| extent > 1).count() <= 1;
        let beside = floats.filter(|&op| !self.chained || is_line(op)).filter(|&load| {
            let from = func.ops[load].results[0];
            // What becomes of scaled sums is a factor of a chained product.
            let takes = |&op: &Op| is_load(op) || !self.chained && is_product(func, op) || !func.ops[op].regions.is_empty();
            let reached = |op: &Op| func.ops[*op].operands.iter().any(|&operand| reaches(func, ops, from, operand));
            !ops.iter().filter(|op| takes(op)).any(reached)
        });
        let beside: Vec<Op> = beside.collect();
        self.tiles.extend(beside);
    }

    fn add(&mut self, func: &Func, ops: &[Op], (value, inner): (Value, usize)) -> Result<(), Reason> {
        if !self.factors.iter().any(|factor| factor.value == value && factor.inner == inner) {
            self.factors.push(Factor::of(func, ops, value, inner)?);
        }
        Ok(())
    }

    /// A left factor from outside of the loop: what the copy engine brings once, or what the computing partition keeps.
    fn outside(&self, func: &Func, places: &Places, (product, left): (Op, Value)) -> Result<Left, Reason> {
        let at = func.ops[product].span;
        let home = func.defining_op(left).and_then(|op| places.block(op));
        let home = home.ok_or_else(|| Reason::at("the first product's left factor differs from round to round", at))?;
        let factor = Factor::of(func, &func.blocks[home].ops, left, 1);
        if let Ok(factor) = factor
            && factor.way == Way::Brought
        {
            return Ok(Left::Brought(left));
        }
        if home != func.body {
            return Err(Reason::at("the first product's left factor is computed for each tile", at));
        }
        Ok(Left::Kept(left))
    }
}

/// Why the copy engine does not bring a factor of a chained product: such products wait for no threads.
fn why_made(func: &Func, factor: &Factor) -> Reason {
    let at = func.defining_op(factor.value).map(|op| func.ops[op].span);
    let why = factor.loads.iter().find_map(|&(load, _)| brought(func, load).err());
    why.unwrap_or_else(|| Reason::at("a factor of a chained product is not what a load yields", at))
}

/// A block in which a product takes what became of another one's sums.
pub(in crate::tile) fn is_chain(func: &Func, block: Block) -> bool {
    let ops = &func.blocks[block].ops;
    let products: Vec<Op> = ops.iter().copied().filter(|&op| is_product(func, op)).collect();
    let from = |later: Op, first: Op| later != first && reaches(func, ops, func.ops[first].result(), func.ops[later].one(0));
    products.iter().any(|&first| products.iter().any(|&later| from(later, first)))
}

/// Some operations make `to` out of `from`.
fn reaches(func: &Func, ops: &[Op], from: Value, to: Value) -> bool {
    let mut reached: FxHashSet<Value> = std::iter::once(from).collect();
    for &op in ops {
        let mut uses = func.ops[op].operands.iter().any(|value| reached.contains(value));
        for &region in &func.ops[op].regions {
            uses |= func.blocks[region].ops.iter().any(|&op| func.ops[op].operands.iter().any(|value| reached.contains(value)));
        }
        if uses {
            reached.extend(&func.ops[op].results);
        }
    }
    reached.contains(&to)
}

/// Who works, with how many registers.
fn partitions(func: &Func, arch: Arch, loops: &[Loop], (products, warps): (&[Op], u32), plan: &mut Plan) -> Result<(), Reason> {
    let load = Load { func, products, warps };
    let carried: usize = loops.iter().map(|own| func.blocks[func.ops[own.looped].regions[0]].args.len() - 1).sum();
    // Loops one behind the other hold their accumulators one after the other.
    let of = |own: &Loop| Load { func, products: &own.products, warps }.sums(func.ops[own.looped].regions[0]);
    let sums = loops.iter().map(of).max().unwrap_or(0);
    let ways: Vec<Way> =
        loops.iter().flat_map(|own| &own.factors).map(|factor| factor.way).filter(|&way| way != Way::Brought).collect();
    let limits = arch.limits();
    // As many threads make factors as multiply where they have arithmetic to do and the file of registers has room.
    let computes = ways.iter().any(|way| matches!(way, Way::Computed { .. }));
    let room = limits.registers_per_sm / (2 * Arch::WARP * warps) >= sums + WORKING[0];
    let copy = if computes && room { warps } else { FEEDERS };
    let registers = budget::registers(arch, (copy, warps), &ways, sums, load.promotes());
    // Threads that make factors leave those that multiply fewer: what does not fit is then spilled, or done in strips.
    let most = budget::registers(arch, (FEEDERS, warps), &[], sums, false).map_or(limits.registers_per_thread, |[_, many]| many);
    if (products.len() > 1 || carried > 1) && sums + WORKING[0] > most {
        return Err(Reason::at("the accumulators do not fit the registers", func.ops[products[0]].span));
    }
    let partition =
        |name: &str, warps, registers| Partition { name: name.to_string(), warps, registers, turns: None, span: plan.span };
    plan.partitions = vec![
        partition("copy", copy, registers.map(|[few, _]| few)),
        partition("compute", warps, registers.map(|[_, many]| many)),
    ];
    Ok(())
}

/// The rings with what they hold; their slots are counted later.
fn rings(func: &Func, loops: &[Loop], lefts: &[Left], plan: &mut Plan) -> Result<(), Reason> {
    let new = |from, to, by, fill: Vec<Value>, span: Span| RingPlan { from, to, by, slots: 1, fills: vec![fill], span };
    for own in loops {
        let span = func.ops[own.looped].span;
        let load = |factor: &Factor| factor.loads.first().map(|&(load, _)| func.ops[load].results[0]);
        let factors: Vec<Value> = unique(own.factors.iter().filter(|factor| factor.way == Way::Brought).filter_map(load));
        let tiles = own.tiles.iter().filter(|&&load| brought(func, load).is_ok()).map(|&load| func.ops[load].results[0]);
        let tiles: Vec<Value> = unique(tiles).into_iter().filter(|tile| !factors.contains(tile)).collect();
        let made: Vec<Value> =
            own.factors.iter().filter(|factor| factor.way != Way::Brought).map(|factor| factor.value).collect();
        let raw = own.factors.iter().filter(|factor| factor.way != Way::Brought).flat_map(|factor| &factor.loads);
        let raw = unique(raw.filter(|(_, buffer)| buffer.is_some()).map(|&(load, _)| func.ops[load].results[0]));
        let mut rings: Vec<RingPlan> = match own.chained {
            true => factors.into_iter().map(|value| new(0, 1, RingProducer::Tma, vec![value], span)).collect(),
            false => vec![new(0, 1, RingProducer::Tma, factors, span)],
        };
        // What scales sums comes with the first factor.
        rings[0].fills[0].extend(tiles);
        rings.push(new(0, 1, RingProducer::Threads, made, span));
        rings.push(new(0, 0, RingProducer::Tma, raw, span));
        rings.retain(|ring| !ring.fills[0].is_empty());
        if plan.rings.is_empty() {
            plan.rings = rings;
        } else if rings.len() == plan.rings.len()
            && rings.iter().zip(&plan.rings).all(|(a, b)| (a.from, a.to, a.by) == (b.from, b.to, b.by))
        {
            for (known, other) in plan.rings.iter_mut().zip(rings) {
                known.fills.extend(other.fills);
            }
        } else {
            return Err(Reason::at("two loops differ in their factors", span));
        }
    }
    for left in lefts {
        plan.rings.push(match *left {
            Left::Brought(value) => {
                let mut op = func.defining_op(value).ok_or("a factor is carried around the loop")?;
                while !matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })) {
                    op = func.defining_op(func.ops[op].one(0)).ok_or("a factor is carried around the loop")?;
                }
                new(0, 1, RingProducer::Tma, vec![func.ops[op].results[0]], plan.span)
            }
            Left::Kept(value) => new(1, 1, RingProducer::Threads, vec![value], plan.span),
        });
    }
    Ok(())
}

/// What stands behind the only loop and fits the first buffer of its ring comes through that, a slot each. Blocks that share rounds, or take tiles in turn,
/// count the slots of a tile by its rounds.
fn portions(func: &Func, places: &Places, loops: &[Loop], plan: &mut Plan) {
    let ([own], Sharing::Nothing | Sharing::Blocks) = (loops, func.hints.shares()) else { return };
    let ring = match &mut plan.rings[..] {
        [ring, ..] if !own.chained && own.factors.iter().all(|factor| factor.way == Way::Brought) => ring,
        _ => return,
    };
    let slot = |value: Value| func.defining_op(value).and_then(|load| brought(func, load).ok());
    let (Some(block), Some(wanted)) = (places.block(own.looped), slot(ring.fills[0][0])) else { return };
    let ops = &func.blocks[block].ops;
    let behind = ops[func.blocks[block].place_of(own.looped)..].iter().copied().filter(|&op| is_brought_alone(func, op));
    let fitting = behind.filter(|&load| brought(func, load).is_ok_and(|lies| lies == wanted));
    ring.fills.extend(fitting.map(|load| vec![func.ops[load].results[0]]));
}

fn unique(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// A plan for blocks that stay whose computing warps are two teams, with as many slots as fit; the function has the plan's loop over blocks. A
/// team has half of the warps where these are whole warpgroups.
///
/// # Errors
/// Why tiles cannot be taken in turn.
pub(in crate::tile) fn in_turn(func: &Func, units: &Units, plan: &Plan) -> Result<Plan, Reason> {
    let mut plan = plan.clone();
    if let Some(compute) = plan.partitions.last_mut() {
        compute.turns = Some(2);
        compute.warps = if compute.warps.is_multiple_of(8) { compute.warps / 2 } else { compute.warps };
    }
    check_turns(&plan)?;
    if let [copy, compute] = &mut plan.partitions[..] {
        let moved = budget::registers(units.arch, (copy.warps, compute.all_warps()), &[], 0, false);
        (copy.registers, compute.registers) = (moved.map(|[few, _]| few), moved.map(|[_, many]| many));
    }
    plan.rings.iter_mut().for_each(|ring| ring.slots = 1);
    give_slots(func, units, &mut plan)?;
    let supply = Supply::of(func, units, &plan)?;
    Turns::of(func, &supply, &plan)?;
    if supply.compute.registers.is_some_and(|most| budget::sums_of(func, &supply) + WORKING[0] > most) {
        return Err(Reason::at("the accumulators do not fit the registers", supply.at(func)));
    }
    Ok(plan)
}

/// As many slots as fit. With one slot each the plan is checked for everything else.
fn give_slots(func: &Func, units: &Units, plan: &mut Plan) -> Result<(), Reason> {
    let supply = Supply::of(func, units, plan)?;
    let bytes = |ring: usize| supply.rings[ring].slots.iter().map(SharedType::bytes).sum::<u64>() as u32;
    let in_loop = |ring: &RingPlan| loops_own(func, &supply, ring);
    let many: Vec<usize> = (0..plan.rings.len()).filter(|&ring| in_loop(&plan.rings[ring])).collect();
    let rest: Vec<usize> = (0..plan.rings.len()).filter(|ring| !many.contains(ring)).collect();
    let once = rest.iter().copied().map(bytes).sum::<u32>();
    let raws: Vec<usize> = (0..plan.rings.len()).filter(|&ring| (plan.rings[ring].from, plan.rings[ring].to) == (0, 0)).collect();
    let is_raw = |ring: usize| raws.contains(&ring);
    let raw: u32 = many.iter().filter(|&&ring| is_raw(ring)).map(|&ring| bytes(ring)).sum();
    let round: u32 = many.iter().filter(|&&ring| !is_raw(ring)).map(|&ring| bytes(ring)).sum();
    let beside = once + supply.bytes_beside(func);
    let raw_fits = |stages: &u32| FRAME + beside + stages * raw + round <= units.shared;
    let raw_stages = (1..=RAW_STAGES).rev().find(raw_fits).unwrap_or_else(|| bug!("a plan of one slot each that does not fit"));
    let others = beside + raw_stages * raw;
    let mut stages = slots::stages(func, units, round, others);
    if supply.chained {
        stages = stages.min(func.hints.num_stages.unwrap_or(CHAIN_STAGES));
    }
    for ring in many {
        plan.rings[ring].slots = if is_raw(ring) { raw_stages } else { stages };
    }
    let mut used = FRAME + others + stages * round;
    for ring in rest {
        let fits = used + bytes(ring) <= units.shared;
        if fits && plan.rings[ring].by == RingProducer::Tma && is_refilled(func, &supply, &plan.rings[ring]) {
            plan.rings[ring].slots = TILE_STAGES;
            used += bytes(ring);
        }
    }
    Ok(())
}

/// A block fills the ring for one tile after the other: it stays, or has a loop of its own around that of the product.
fn is_refilled(func: &Func, supply: &Supply, ring: &RingPlan) -> bool {
    let home = func.defining_op(ring.fills[0][0]).and_then(|op| supply.places.block(op));
    !matches!(func.hints.shares(), Sharing::Nothing | Sharing::Cluster) || home != Some(func.body)
}

/// The ring is filled in every round of a product's loop.
fn loops_own(func: &Func, supply: &Supply, ring: &RingPlan) -> bool {
    let value = ring.fills[0][0];
    let home = func.defining_op(value).and_then(|op| supply.places.block(op));
    home.is_some_and(|home| supply.products.iter().any(|product| supply.places.block(product.op) == Some(home)))
}
