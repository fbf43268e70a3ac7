//! Plans of two partitions: one fills rings, by the copy engine and by its own threads; the other one computes.
//!
//! ```text
//! %ring = tile.ring [%lhs, %rhs] {stages=4, producer=tma, ...}
//! tile.role {first_warp=0, warps=4} { for ... { acquire; tma_load; tma_load; commit } }
//! tile.role {first_warp=4, warps=8} { for ... { wait; mma_shared; release }  ... the rest ... }
//! ```
//!
//! [`propose`](propose::propose) says what a function's products ask for; [`supply`] checks a plan, whoever wrote it; [`feeder`], with
//! [`makers`], and [`reader`] are what the partitions do. What all need (sizes, views, block numbers: what is [`known`]) is computed before
//! the partitions.

mod budget;
mod feeder;
mod known;
mod makers;
mod propose;
mod reader;
mod shape;
mod supply;
mod turns;

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{MemoryOrder, RingProducer};
use tessera_ir::{Func, Op, OpData, OpKind, Plan, Reason, ScheduleOp, TileOp, Type, Value, bug};

use self::feeder::{Feeder, Rings};
use self::reader::Reader;
use self::supply::{Job, Supply};
use self::turns::Turns;
use super::anchors::Units;
use super::cluster::Together;
use super::feed::Factor;
use super::queue::{Queue, role};
use super::relation::has_layout;
use super::{apart, cluster_split, order};
use crate::rewrite::drop_dead;
use tessera_analysis::barriers::NamedBarriers;

pub(super) use self::propose::{in_turn, is_chain, propose};
pub(super) use self::shape::{is_coarse, is_product, signs};
pub(super) use self::turns::check as check_turns;

/// Pure, at most an error for some inputs, or a scalar of memory that nobody writes: any partition may do it, at any time.
pub(super) fn is_free(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    matches!(data.row().effects, tessera_ir::Effects::Pure | tessera_ir::Effects::MayTrap) || reads_constant(func, data)
}

/// A load of a scalar that is ordered with no write.
fn reads_constant(func: &Func, data: &OpData) -> bool {
    let token = match &data.kind {
        OpKind::Schedule(ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, .. }) => data.optional(2),
        OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, .. }) => data.optional(3),
        _ => return false,
    };
    let ordered = || func.linked_ops().into_iter().any(|op| func.ops[op].used().any(|used| used == data.results[1]));
    token.is_none() && func.ty(data.results[0]).is_scalar() && !ordered()
}

/// Carries a plan out.
///
/// # Errors
/// What cannot be done; the function is as it was.
pub(super) fn carry_out(func: &mut Func, units: &Units, plan: &Plan, together: Option<Together>) -> Result<(), Reason> {
    let supply = Supply::of(func, units, plan)?;
    let turns = Turns::of(func, &supply, plan)?;
    let before = before_partitions(func, &supply);
    let held = budget::sums_of(func, &supply) + budget::WORKING[0];
    let mut shared: Vec<Op> = func.blocks[func.body].ops.iter().copied().filter(|op| before.contains(op)).collect();
    let span = supply.at(func);
    let in_clusters = together.is_some();
    let rings = make_rings(func, &supply, together, &mut shared);
    cluster_split::lay(func, &plan.rings, &rings.queues)?;
    let meet = |func: &mut Func| in_clusters.then(|| func.make_op(TileOp::ClusterBarrier {}.into(), &[], [], [], span));
    let before_turn = make_buffers(func, &supply, &mut shared);
    let mut barriers = NamedBarriers::left_by(func, units.arch);
    let mut barrier = || barriers.last().unwrap_or_else(|| bug!("named barriers before there are roles"));
    let [barrier, other] = [barrier(), barrier()];
    let feed = Feeder { supply: &supply, rings: &rings, before_turn: &before_turn, barrier }.work(func);
    Reader { supply: &supply, rings: &rings, barrier: other }.rewrite(func);
    let mut rest: Vec<Op> = func.blocks[func.body].ops.iter().copied().filter(|op| !before.contains(op)).collect();
    let last = rest.pop();
    let teams = match turns {
        Some(turns) => turns.take(func, &rings, &rest, &mut shared),
        None => vec![rest],
    };
    let mut parts: Vec<Vec<Op>> = std::iter::once(feed).chain(teams).collect();
    if supply.compute.teams() > 1 || supply.compute.registers.is_some_and(|most| held > most) {
        apart::repeat(func, &mut shared, &mut parts);
    }
    let (copy, compute) = (&supply.copy, &supply.compute);
    let who = std::iter::once(copy).chain(std::iter::repeat(compute));
    let splits = func.hints.split.is_some();
    let waits = |func: &mut Func, kind: TileOp| splits.then(|| func.make_op(kind.into(), &[], [], [], span));
    // No block fills a slot before it is there, nor ends while others may; or writes sums to one that is not.
    shared.extend(meet(func).into_iter().chain(waits(func, TileOp::ClusterArrive {})));
    let mut first_warp = 0;
    for (ops, partition) in parts.into_iter().zip(who) {
        shared.push(role(func, (first_warp, partition.warps), partition.registers, ops, span));
        first_warp += partition.warps;
    }
    shared.extend(meet(func).into_iter().chain(waits(func, TileOp::ClusterWait {})).chain(last));
    func.blocks[func.body].ops = shared;
    drop_dead(func);
    func.hints.num_warps = Some(first_warp);
    func.hints.num_stages = supply.rings.iter().filter(|ring| ring.job != Job::Kept).map(|ring| ring.stages).max();
    // Registers are shared out for so many blocks a multiprocessor, whatever the author thinks.
    func.hints.occupancy = plan.resident.filter(|&blocks| blocks > 1);
    if !supply.chained && plan.persistent.is_none() {
        order::by_groups(func);
    }
    Ok(())
}

/// The operations that stay before the partitions: scalars and views that any of them may need.
fn before_partitions(func: &Func, supply: &Supply) -> FxHashSet<Op> {
    let known = |op: &Op| {
        let data = &func.ops[*op];
        let results = data.results.iter().all(|&result| supply.known.holds(result) && !has_layout(func, result));
        data.regions.is_empty() && is_free(func, *op) && results && data.operands.iter().all(|&value| supply.known.holds(value))
    };
    func.blocks[func.body].ops.iter().copied().filter(known).collect()
}

/// The rings of a plan, some of which blocks of a cluster may fill together; where threads make factors, the rings that are filled with them
/// share their cursor.
fn make_rings(func: &mut Func, supply: &Supply, together: Option<Together>, shared: &mut Vec<Op>) -> Rings {
    let span = supply.at(func);
    let loads = |ring: usize| supply.sites.iter().filter(move |site| site.ring == ring).flat_map(|site| &site.loads);
    let blocks = |ring: usize| loads(ring).find_map(|&load| together.as_ref()?.of(load));
    let blocks: Vec<Option<u32>> = (0..supply.rings.len()).map(blocks).collect();
    let mut rings = Rings { queues: Vec::new(), cursors: Vec::new(), starts: Vec::new(), together };
    for (ring, blocks) in supply.rings.iter().zip(blocks) {
        let producer = match ring.job {
            Job::Direct | Job::Raw => RingProducer::Tma,
            Job::Made => RingProducer::Threads,
            Job::Kept => {
                rings.queues.push(None);
                rings.cursors.push(usize::MAX);
                continue;
            }
        };
        let queue = Queue::new(func, &ring.slots, (ring.stages, producer, blocks), span, shared);
        rings.cursors.push(rings.starts.len());
        rings.starts.push(queue.start);
        rings.queues.push(Some(queue));
    }
    for site in &supply.sites {
        if supply.rings[site.ring].job == Job::Direct
            && let Some(made) = supply.made_at(site.block)
        {
            rings.cursors[site.ring] = rings.cursors[supply.sites[made].ring];
        }
    }
    rings
}

/// Buffers for factors before they are turned, by site.
fn make_buffers(func: &mut Func, supply: &Supply, shared: &mut Vec<Op>) -> FxHashMap<usize, Vec<Value>> {
    let span = supply.at(func);
    let mut found: FxHashMap<usize, Vec<Value>> = FxHashMap::default();
    for (number, site) in supply.sites.iter().enumerate() {
        for ty in site.factors.iter().filter_map(Factor::before_turn) {
            let ty = Type::Shared(Box::new(ty));
            let alloc = func.make_op(TileOp::AllocShared { align: 1024, offset: None }.into(), &[], [ty], [], span);
            shared.push(alloc);
            found.entry(number).or_default().push(func.ops[alloc].result());
        }
    }
    found
}
