//! The plans that a function can have, and what each should take: proposals under every setting of the hints that they read, as far as they can be
//! carried out, with the time that the model ([`time`]) gives them.
//!
//! | hint | changes |
//! |---|---|
//! | `num_worker_warps`, `num_warps` | warps that compute |
//! | `num_stages` | slots of rings |
//! | `sharing` | `persistent`, `stream_k`, `turns`, `split` |
//! | `num_ctas` | `cluster`, `split` |
//! | `occupancy` | `resident` of plans without roles |
//!
//! Not listed are rows that a cluster shares (`cluster-rows`), and `among`, clusters that share rounds: those are had by hints and by hand alone.

mod launch;
mod time;

use tessera_ir::{Block, Func, Op, Plan, Reason, ScheduleOp};
use tessera_types::{Arch, Device};

pub use self::launch::Launch;
pub use self::time::Time;
pub(crate) use self::time::of as time_of;
use super::anchors::Units;
use super::{load_together, persistent, roles, share, stages, try_out};

/// A plan, and what it should take of a launch; nothing where the target's parts were measured by nobody.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) plan: Plan,
    pub(crate) time: Option<Time>,
}

/// Warps that compute, slots, blocks of a cluster and blocks of a multiprocessor that are tried.
const WARPS: [u32; 4] = [4, 8, 12, 16];
const SLOTS: std::ops::RangeInclusive<u32> = 1..=8;
const CLUSTERS: [u32; 2] = [1, 2];
const RESIDENT: [u32; 3] = [1, 2, 3];
/// What blocks share: nothing, tiles, rounds, tiles in turn.
const SHARING: [u32; 4] = [0, 1, 2, 3];
/// What they share where a cluster splits the rounds of one, and how many blocks it has then.
const SPLIT: u32 = 4;
const SPLITS: [u32; 3] = [2, 4, 8];

/// Sums of a thread that leave none of its registers for what is computed of them, beside what a loop over blocks keeps.
const HELD: usize = 128;

/// Blocks a multiprocessor of a launch of which nothing is known.
const WAVES: u32 = 8;
/// A part of a time that is worth leaving the usual plan for.
const MUCH_LESS: f64 = 0.9;

/// Every plan that is tried, those that should take least first. The same function and launch give the same list.
pub(crate) fn candidates(func: &Func, units: &Units, device: &Device, launch: &Launch) -> Vec<Candidate> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut take = |plan: Plan| {
        if !plans.contains(&plan) && try_out(func, &plan, units.arch).is_ok() {
            plans.push(plan);
        }
    };
    with_roles(func, units).into_iter().for_each(&mut take);
    without_roles(func, units).into_iter().for_each(&mut take);
    let time = |plan: &Plan| time::of(func, plan, device, launch);
    let mut found: Vec<Candidate> = plans.into_iter().map(|plan| Candidate { time: time(&plan), plan }).collect();
    let clocks = |candidate: &Candidate| candidate.time.as_ref().map_or(f64::INFINITY, |time| time.clocks);
    found.sort_by(|a, b| clocks(a).total_cmp(&clocks(b)));
    found
}

/// What a proposal without roles becomes where another number of warps or slots should take much less: by the model, of many blocks with long
/// loops.
pub(super) fn improved(func: &Func, units: &Units, plan: Plan) -> Plan {
    let Some(device) = Device::ALL.iter().rfind(|device| device.arch == units.arch) else { return plan };
    let launch = Launch { grid: [WAVES * device.sms, 1, 1], arguments: Vec::new() };
    let time = |plan: &Plan| time::of(func, plan, device, &launch).map(|time| time.clocks);
    let Some(own) = time(&plan) else { return plan };
    let asked = func.hints.num_warps.is_some() || func.hints.num_stages.is_some() || func.hints.occupancy.is_some();
    if asked {
        return plan;
    }
    let others = without_roles(func, units).into_iter().filter_map(|plan| Some((time(&plan)?, plan)));
    match others.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((least, other)) if least < MUCH_LESS * own && try_out(func, &other, units.arch).is_ok() => other,
        _ => plan,
    }
}

/// What a proposal with roles becomes where a multiprocessor holds one of its blocks: that one takes several of those that are asked for, so that it loads the
/// next one's factors while it stores. Products of a loop alone: of chained ones no more fits, and who loops over blocks has done it. (128 x 128 tiles of
/// 64 products of 512 x 512 x 128: 31.1 us, 18.8 so; of 4096 x 4096 x 4096: 626 and 688 TFLOP/s; 64 x 128 tiles of 640 x 5120 x 2880: 42.8 us, 37.7; of 64 x 64, of which two blocks fit, 25.9 us, 28.5.)
pub(super) fn filled(func: &Func, units: &Units, plan: Plan) -> Plan {
    let several = |hint: Option<u32>| hint.is_some_and(|number| number > 1);
    let asked = func.hints.sharing.is_some() || several(func.hints.num_ctas) || several(func.hints.occupancy);
    let products: Vec<Op> = func.linked_ops().into_iter().filter(|&op| roles::is_product(func, op)).collect();
    let around = |block: Block| func.blocks[func.body].ops.iter().any(|&op| func.ops[op].regions.contains(&block));
    // Sums that are added to others take all registers there are.
    let coarse = |op: Op| {
        let number = func.ty(func.ops[op].one(1)).num();
        number.is_some_and(roles::is_coarse) && !roles::signs(&func.ops[op].kind).0
    };
    let plain = |&op: &Op| around(func.block_of(op)) && !roles::is_chain(func, func.block_of(op)) && !coarse(op);
    if asked || !products.iter().all(plain) || time::resident(func, &plan, units.arch).is_none_or(|blocks| blocks > 1.0) {
        return plan;
    }
    let sums: usize = products.iter().map(|&op| func.ty(func.ops[op].result()).the_tile().len()).sum();
    let held = sums / (plan.computing().warps * Arch::WARP).max(1) as usize;
    let filled = Plan { persistent: Some(1), ..plan.clone() };
    let fits = held < HELD || is_stored_alone(func);
    if fits && persistent::can(func).is_ok() && try_out(func, &filled, units.arch).is_ok() { filled } else { plan }
}

/// Nothing is computed behind the loops of the function's body but a conversion.
fn is_stored_alone(func: &Func) -> bool {
    let ops = &func.blocks[func.body].ops;
    let behind = ops.iter().rposition(|&op| !func.ops[op].regions.is_empty()).map_or(0, |last| last + 1);
    ops[behind..].iter().all(|&op| match func.ops[op].kind.schedule() {
        Some(ScheduleOp::FToF { .. } | ScheduleOp::StoreViewTko { .. } | ScheduleOp::Reshape {} | ScheduleOp::Return {}) => true,
        _ => func.ops[op].results.iter().all(|&result| func.ty(result).as_tile().is_none_or(|tile| tile.len() == 1)),
    })
}

/// Proposals of the pass that makes roles.
fn with_roles(func: &Func, units: &Units) -> Vec<Plan> {
    let mut plans = Vec::new();
    for warps in WARPS {
        // Of equal times that with more slots: they are there anyway.
        for slots in SLOTS.rev() {
            let mut hinted = func.clone();
            hinted.hints.num_worker_warps = Some(warps);
            hinted.hints.num_stages = Some(slots);
            let Ok(plan) = roles::propose(&hinted, units) else { continue };
            if plan.computing().warps != warps {
                continue;
            }
            plans.extend(shared(&hinted, &plan, units.arch));
        }
    }
    plans
}

/// A plan under every way for blocks to share work.
fn shared<'f>(func: &'f Func, plan: &'f Plan, arch: Arch) -> impl Iterator<Item = Plan> + 'f {
    let ways = CLUSTERS.into_iter().flat_map(|blocks| SHARING.map(|sharing| (blocks, sharing)));
    ways.chain(SPLITS.map(|blocks| (blocks, SPLIT))).filter_map(move |(blocks, sharing)| {
        let (mut func, mut plan) = (func.clone(), plan.clone());
        func.hints.num_ctas = Some(blocks);
        func.hints.sharing = Some(sharing);
        let wished: Result<(), Reason> = load_together(&func, &mut plan, arch).and_then(|()| share(&func, &mut plan, arch));
        wished.is_ok().then_some(plan)
    })
}

/// Proposals of the pass whose plans have all warps do the same.
fn without_roles(func: &Func, units: &Units) -> Vec<Plan> {
    let mut plans = Vec::new();
    for warps in WARPS {
        for slots in SLOTS {
            let mut hinted = func.clone();
            hinted.hints.num_warps = Some(warps);
            hinted.hints.num_stages = Some(slots);
            let Ok(plan) = stages::propose(&hinted, units) else { continue };
            plans.extend(RESIDENT.map(|blocks| Plan { resident: Some(blocks).filter(|&blocks| blocks > 1), ..plan.clone() }));
        }
    }
    plans
}
