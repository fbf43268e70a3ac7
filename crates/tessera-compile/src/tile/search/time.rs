//! What a launch should take under a plan, from the target's rates and the program's dependences.
//!
//! A round takes as long as its busiest part, or as what waits for each other inside of it: the work on sums behind the products that made
//! them, as far as other warpgroups do not fill the gap, and slots that come too late. A block takes its rounds, what stands around them, and
//! its start. Blocks go in waves over the multiprocessors; those that stay (`persistent`) start once.
//!
//! ```text
//! waves x (start + rounds x max(tensor cores, shared memory, cache, ..., chain / warpgroups, held / slots) + results / rate)
//! ```

use tessera_ir::{Block, Func, Op, OpKind, ParamKind, Partition, Plan, ScheduleOp, SharedType, Trait, bug};
use tessera_types::room::FRAME;
use tessera_types::{Arch, Device, Issuer, Part};

use super::launch::{self, Launch};
use crate::tile::cluster::{self, Together};
use crate::tile::forecast::{Busy, Filled, Work, clocks, issuers};
use crate::tile::roles::is_product;
use tessera_analysis::arrays::own_array;

/// Rounds of a loop of which nothing is known.
const ROUNDS: u64 = 64;
/// Blocks of a launch that are looked at.
const SAMPLES: u64 = 16;
/// The golden section's smaller part.
const GOLDEN: f64 = 0.618_033_988_75;
/// Registers of a thread beside its sums: of warpgroups, and of warps, which hold factors too.
const WORKING: [u32; 2] = [40, 36];
/// The same where the assembler may take as many as it likes.
const LIKED: [u32; 2] = [48, 88];
/// How much longer rounds take in clusters, where each block waits for the others.
const TOGETHER: f64 = 1.02;
/// What of the shorter one of products and results of two teams is not hidden under the other.
const SEEN: f64 = 0.35;
/// Bytes of the second-level cache's lines.
const LINE: i64 = 128;
/// What of the cache's rate is left where lines begin within one of its own: each touches two.
const RAGGED: f64 = 0.62;
/// Times that the sums of a warpgroup's product move where some of them are spilled: around each of its instructions.
const MOVES: f64 = 1.4;
/// Rounds that a block has at least where they are shared.
const LEAST_ROUNDS: f64 = 4.0;
/// What blocks of a cluster that split rounds take to meet, in clocks, and bytes of the others' sums that one of them is sent a clock. Fitted to no
/// times: those of split plans (`results/split-h200.txt`) are of the library's products, whose own model has them.
const SPLIT_MEETING: f64 = 1400.0;
const SPLIT_RATE: f64 = 22.8;
/// Clocks to leave a part of the sums for other clusters, to be counted, and to wait for what they have left.
const AMONG_MEETING: f64 = 4000.0;

/// What a launch should take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// Clocks of a multiprocessor.
    pub clocks: f64,
    /// What bounds it.
    pub bound: &'static str,
}

/// The time of a launch under a plan; nothing where the architecture's parts were measured by nobody, or how long one of its products takes.
pub(crate) fn of(func: &Func, plan: &Plan, device: &Device, launch: &Launch) -> Option<Time> {
    let model = Model::of(func, plan, device.arch)?;
    let all = launch.blocks();
    // Multiples of the golden section are spread evenly, whatever the grid's width is.
    let number = |sample: u64| (((sample as f64 + 0.5) * GOLDEN).fract() * all as f64) as u64;
    let blocks: Vec<Spent> = (0..all.min(SAMPLES)).map(|sample| model.block(launch.block(number(sample)))).collect();
    let count = blocks.len().max(1) as f64;
    let mean = blocks.iter().fold(Spent::default(), |sum, block| sum.plus(block, 1.0 / count));
    let longest = blocks.iter().map(|block| block.clocks).fold(0.0, f64::max);
    Some(model.waves(&mean, longest, all as f64, f64::from(device.sms)))
}

/// Blocks of a plan that share a multiprocessor; nothing where the target's parts were measured by nobody.
pub(crate) fn resident(func: &Func, plan: &Plan, arch: Arch) -> Option<f64> {
    Model::of(func, plan, arch).map(|model| model.resident())
}

/// What a block, or a part of it, takes.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// From its start to its end, alone on a multiprocessor.
    clocks: f64,
    /// For how long it keeps each part busy.
    busy: Busy,
    /// For how long its results keep memory busy.
    stored: f64,
    /// Rounds of products, and the clocks of one.
    rounds: f64,
    round: f64,
    /// What held up rounds that waited for slots.
    starved: f64,
}

impl Spent {
    fn plus(self, other: &Spent, times: f64) -> Spent {
        Spent {
            clocks: self.clocks + times * other.clocks,
            busy: self.busy.plus(&other.busy, times),
            stored: self.stored + times * other.stored,
            rounds: self.rounds + times * other.rounds,
            round: self.round.max(other.round),
            starved: self.starved + times * other.starved,
        }
    }
}

struct Model<'f> {
    func: &'f Func,
    plan: &'f Plan,
    arch: Arch,
    together: Option<Together>,
    /// Clocks to the second-level cache and back.
    far: f64,
    /// Clocks in which the warps of a block meet.
    meet: f64,
    /// Clocks of a block until its first round.
    start: f64,
    /// Bytes a clock that the cache gives each of all multiprocessors, and that results leave by.
    cache: f64,
    store: f64,
    /// Words a clock that a block's threads spill and load again.
    spills: f64,
}

impl<'f> Model<'f> {
    fn has_roles(&self) -> bool {
        self.plan.partitions.len() > 1
    }

    fn block(&self, place: launch::Block<'_>) -> Spent {
        self.ops(&self.func.blocks[self.func.body].ops, place)
    }

    /// Operations one after the other, loops among them.
    fn ops(&self, ops: &[Op], place: launch::Block<'_>) -> Spent {
        let mut spent = Spent::default();
        let mut loose: Vec<Op> = Vec::new();
        for &op in ops {
            let data = &self.func.ops[op];
            match &data.kind {
                OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                    let counted = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
                    let rounds = if counted { place.rounds(self.func, op).unwrap_or(ROUNDS) } else { ROUNDS };
                    let body = data.regions[0];
                    let round = if self.holds_loops(body) {
                        self.ops(&self.func.blocks[body].ops, place)
                    } else {
                        self.round(body, place)
                    };
                    spent = spent.plus(&round, rounds as f64);
                }
                OpKind::Schedule(ScheduleOp::If {}) => {
                    // Which one is taken is not known: the longer one.
                    let parts = data.regions.iter().map(|&region| self.ops(&self.func.blocks[region].ops, place));
                    if let Some(longest) = parts.max_by(|a, b| a.clocks.total_cmp(&b.clocks)) {
                        spent = spent.plus(&longest, 1.0);
                    }
                }
                _ => loose.push(op),
            }
        }
        spent.plus(&self.loose(&loose), 1.0)
    }

    fn holds_loops(&self, block: Block) -> bool {
        self.func.blocks[block].ops.iter().any(|&op| match self.func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => true,
            _ => self.func.ops[op].regions.iter().any(|&region| self.holds_loops(region)),
        })
    }

    /// Operations outside of loops: one waits for the other.
    fn loose(&self, ops: &[Op]) -> Spent {
        let (issuer, groups) = issuers(self.plan);
        let work = Work::of(self.func, ops, self.arch, issuer, groups);
        let busy = Busy { cache: work.loaded / self.cache, ..Busy::of(&work, 0.0, self.arch) };
        let waits = if work.loaded > 0.0 { self.far } else { 0.0 };
        let stored = work.stored / self.store;
        let clocks = waits + busy.tensor + busy.cache + busy.special.max(busy.arithmetic) + stored;
        Spent { clocks, busy, stored, ..Spent::default() }
    }

    /// A round of a loop without loops inside.
    fn round(&self, body: Block, place: launch::Block<'_>) -> Spent {
        let mut ops = Vec::new();
        self.gather(body, &mut ops);
        let (issuer, groups) = issuers(self.plan);
        let groups = f64::from(groups.max(1));
        let work = Work::of(self.func, &ops, self.arch, issuer, groups as u32);
        let filled = Filled::of(self.func, self.plan, &ops);
        let saved = self.saved(&ops);
        let brought = filled.brought.min(work.loaded);
        let exposed = work.loaded - brought;
        let cache = match ops.iter().all(|&op| self.loads_whole_lines(op, place)) {
            true => work.loaded / self.cache,
            // Blocks of a cluster ask for what they share once.
            false => (work.loaded / self.cache).max((work.loaded - saved) / (RAGGED * self.cache)),
        };
        let busy = Busy { cache, ..Busy::of(&work, filled.written, self.arch) };
        let around = busy.special.max(busy.arithmetic);
        let stored = work.stored / self.store;
        // A warpgroup's own products and arithmetic follow each other; others work meanwhile.
        let chained = ops.iter().any(|&op| is_product(self.func, op)) && around > 0.0;
        let chain = if chained { busy.tensor + around / groups } else { 0.0 };
        let roles = self.has_roles();
        let held = filled.held(busy.tensor, filled.goes_on(&work, roles), self.arch, roles);
        let slots = match (filled.slots, held) {
            // All warps have one slot's copies under way less: it is the one that they read.
            (Some(slots), Some(held)) if !roles => held / f64::from(slots.max(2) - 1),
            (Some(slots), Some(held)) => held / f64::from(slots),
            (None, _) => 0.0,
            (Some(_), None) => bug!("a model without the time of a slot"),
        };
        let busiest = busy.parts().into_iter().map(|part| part.1).fold(0.0, f64::max);
        let waits = if exposed > 0.0 { self.far + exposed / self.cache } else { 0.0 };
        let meets = if roles { 0.0 } else { self.meet };
        let products: Vec<Op> = ops.iter().copied().filter(|&op| is_product(self.func, op)).collect();
        let longer = if self.together.is_some() { TOGETHER } else { 1.0 };
        let clocks = longer * (busiest.max(chain).max(slots) + waits + meets + stored) + self.spilled(&products);
        let starved = (slots - busiest.max(chain)).max(0.0);
        let product = f64::from(u8::from(busy.tensor > 0.0));
        Spent { clocks, busy, stored, rounds: product, round: clocks, starved }
    }

    /// Clocks of a round for what does not fit into registers.
    fn spilled(&self, products: &[Op]) -> f64 {
        let compute = self.plan.computing();
        let limits = self.arch.limits();
        let all: u32 = self.plan.partitions.iter().map(Partition::all_warps).sum();
        let resident = self.plan.resident.unwrap_or(1).max(1);
        let has = compute.registers.unwrap_or_else(|| self.arch.registers_at_launch(resident * all * Arch::WARP));
        let threads = compute.warps * Arch::WARP;
        let sums = products.iter().map(|&op| self.func.ty(self.func.ops[op].result()).the_tile().len() as u32);
        let sums = sums.sum::<u32>() / threads;
        let made = products.iter().flat_map(|&op| [0, 1].map(|side| self.made(op, side))).sum::<u32>() / threads;
        let sums = sums + made;
        let over = (sums + WORKING[usize::from(!self.has_roles())]).saturating_sub(has.min(limits.registers_per_thread));
        if over == 0 {
            return 0.0;
        }
        let words = if self.has_roles() { f64::from(sums) * MOVES } else { f64::from(over) };
        let bytes = f64::from(resident * over * threads * 4);
        // What the first-level cache does not hold goes further.
        let far = (bytes / f64::from(limits.shared_per_sm / 2)).max(1.0);
        words * f64::from(threads) / self.spills * far
    }

    /// Elements of a factor that threads compute in the product's loop.
    fn made(&self, product: Op, side: usize) -> u32 {
        let value = self.func.ops[product].one(side);
        let computed = self.func.defining_op(value).is_some_and(|op| self.func.ops[op].row().has(Trait::Elementwise));
        let tile = self.func.ty(value).as_tile().filter(|_| computed);
        tile.map_or(0, |tile| tile.len() as u32)
    }

    fn gather(&self, block: Block, ops: &mut Vec<Op>) {
        for &op in &self.func.blocks[block].ops {
            ops.push(op);
            self.func.ops[op].regions.iter().for_each(|&region| self.gather(region, ops));
        }
    }

    /// The lines of what an operation loads, where it loads, begin where lines of the cache do, as far as that is known.
    fn loads_whole_lines(&self, op: Op, place: launch::Block<'_>) -> bool {
        let data = &self.func.ops[op];
        let OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) = data.kind else { return true };
        let view = data.one(0);
        let Some(param) = own_array(self.func, view) else { return true };
        let ParamKind::Array { dtype, shape, .. } = &self.func.abi.params[param].kind else { return true };
        let first = self.func.abi.first_argument(param) + 1 + shape.len();
        let strides = place.launch.arguments.iter().skip(first).take(shape.len()).flatten();
        let bits = i64::from(dtype.bits());
        strides.copied().filter(|&stride| stride > 1).all(|stride| stride * bits % (8 * LINE) == 0)
    }

    /// Bytes that other blocks of the cluster bring.
    fn saved(&self, ops: &[Op]) -> f64 {
        let Some(together) = &self.together else { return 0.0 };
        let own = |&op: &Op| {
            let blocks = f64::from(together.of(op)?);
            let loaded = Work::of(self.func, &[op], self.arch, Issuer::Warpgroup, 1).loaded;
            Some(loaded * (blocks - 1.0) / blocks)
        };
        ops.iter().filter_map(own).sum()
    }

    fn of(func: &'f Func, plan: &'f Plan, arch: Arch) -> Option<Model<'f>> {
        let rate = |part: Part| arch.cost(part).and_then(|cost| cost.per_clock).map(f64::from);
        let latency = |part: Part| arch.cost(part).and_then(|cost| cost.latency).map(f64::from);
        let (issuer, _) = issuers(plan);
        let known = |op: Op| !is_product(func, op) || clocks(func, op, arch, issuer).is_some();
        if !func.linked_ops().into_iter().all(known) {
            return None;
        }
        let cluster_start = if plan.cluster.or(plan.split).is_some() { latency(Part::ClusterStart)? } else { 0.0 };
        Some(Model {
            func,
            plan,
            arch,
            together: plan.cluster.and_then(|blocks| cluster::find(func, plan, blocks, arch).ok()),
            far: latency(Part::SecondCache)?,
            meet: latency(Part::NamedBarrier)?,
            start: latency(Part::BlockStart)? + cluster_start,
            spills: rate(Part::Spills)?,
            cache: rate(Part::SharedSecondCache)?,
            store: rate(Part::Results)?,
        })
    }

    /// Blocks that share a multiprocessor.
    fn resident(&self) -> f64 {
        let limits = self.arch.limits();
        let warps: u32 = self.plan.partitions.iter().map(Partition::all_warps).sum();
        let threads = (warps * Arch::WARP).max(1);
        let bytes = self.shared_bytes() + u64::from(FRAME + limits.shared_reserved_per_block);
        let by_memory = (u64::from(limits.shared_per_sm) / bytes.max(1)) as u32;
        let by_registers = self.plan.resident.unwrap_or_else(|| {
            let sums = self.sums() / (self.plan.computing().warps * Arch::WARP);
            let moved = self.plan.partitions.iter().any(|partition| partition.registers.is_some());
            let liked = (sums + LIKED[usize::from(!self.has_roles())]).next_multiple_of(limits.register_step);
            let each = if moved { limits.registers_per_sm / threads } else { liked.min(limits.registers_per_thread) };
            limits.registers_per_sm / (each * threads).max(1)
        });
        f64::from(by_registers.min(by_memory).min(limits.threads_per_sm / threads).max(1))
    }

    /// Bytes that rings take.
    fn shared_bytes(&self) -> u64 {
        let tile = |ring: &tessera_ir::RingPlan| {
            let values = ring.fills.first().into_iter().flatten();
            values
                .filter_map(|&value| self.func.ty(value).as_tile())
                .filter_map(|tile| Some(SharedType::new(tile.shape.clone(), tile.elem.num()?).bytes()))
                .sum::<u64>()
        };
        self.plan.rings.iter().map(|ring| u64::from(ring.slots) * tile(ring)).sum()
    }

    /// Elements of the largest sums of a product.
    fn sums(&self) -> u32 {
        let products = self.func.linked_ops().into_iter().filter(|&op| is_product(self.func, op));
        products.map(|op| self.func.ty(self.func.ops[op].result()).the_tile().len() as u32).max().unwrap_or(0)
    }

    /// All blocks on all multiprocessors.
    fn waves(&self, mean: &Spent, longest: f64, all: f64, sms: f64) -> Time {
        let busiest = |spent: &Spent| {
            let parts = spent.busy.parts().into_iter().rev();
            parts.fold(("results", spent.stored), |most, part| if part.1 > most.1 { part } else { most })
        };
        let (name, most) = busiest(mean);
        let resident = self.resident().min((all / sms).ceil().max(1.0));
        // Residents fill each other's gaps, and share what is busy.
        let together = |clocks: f64| (clocks + self.start).max(resident * most);
        let bound = if mean.starved > 0.5 * mean.clocks { "slots" } else { name };
        if let Some(blocks) = self.plan.split {
            return Time { clocks: self.split(mean, all, sms, f64::from(blocks)), bound };
        }
        let clocks = match (self.plan.persistent, self.plan.stream_k) {
            (Some(_), Some(_)) if all < 2.0 * sms && mean.rounds > 0.0 => self.shared(mean, all, sms),
            (Some(_), stream_k) => {
                let turns = all / sms;
                let turns = if stream_k.is_some() { turns } else { turns.ceil() };
                let teams = self.plan.computing().teams();
                // One team's products go on while another one's results leave.
                let looped = mean.rounds * mean.round;
                let hidden = looped.max(mean.stored) + SEEN * looped.min(mean.stored);
                let tile = if teams > 1 { hidden } else { mean.clocks };
                self.start + turns * tile.max(most) + (longest - mean.clocks) + (mean.clocks - tile)
            }
            (None, _) => {
                let waves = (all / (sms * resident)).ceil();
                let even = longest - mean.clocks < 0.05 * mean.clocks;
                let waves = if even { waves } else { (all / (sms * resident)).max(1.0) };
                waves * together(mean.clocks) + (longest - mean.clocks)
            }
        };
        Time { clocks, bound }
    }

    /// Tiles whose rounds clusters of so many blocks split.
    fn split(&self, mean: &Spent, all: f64, sms: f64, blocks: f64) -> f64 {
        let clusters = self.plan.among.map_or(1.0, f64::from);
        let waves = (all * clusters / (sms / blocks).floor().max(1.0)).ceil();
        let (own, rest) = ((mean.rounds / (blocks * clusters)).ceil(), mean.clocks - mean.rounds * mean.round);
        let sums = 4.0 * f64::from(self.sums()) / SPLIT_RATE;
        let among = if self.plan.among.is_some() { AMONG_MEETING + sums * clusters / blocks } else { 0.0 };
        waves * (self.start + own * mean.round + rest + SPLIT_MEETING + sums + among)
    }

    /// Fewer tiles than multiprocessors, whose rounds are shared.
    fn shared(&self, mean: &Spent, all: f64, sms: f64) -> f64 {
        let sums = 4.0 * f64::from(self.sums());
        let part = (sums / self.cache / mean.round).max(0.01);
        let meeting = f64::from(self.plan.stream_k.unwrap_or(0));
        let pieces = (mean.rounds / part).sqrt().max(1.0);
        let sharers = sms.min(all * pieces).min(all * mean.rounds / LEAST_ROUNDS).max(1.0);
        let alone = self.start + mean.clocks;
        let own = all * mean.rounds / sharers;
        let rest = mean.clocks - mean.rounds * mean.round;
        let together = self.start + (own + meeting + part * (sharers / all + 1.0)) * mean.round + rest;
        // The kernel decides by itself whether that pays.
        alone.min(together)
    }
}
