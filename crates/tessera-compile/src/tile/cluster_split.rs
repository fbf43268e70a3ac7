//! The rounds of a product split among the blocks of a cluster: a cluster is launched for each block that is asked for, and takes its tile.
//!
//! ```text
//! rounds     |------------------ 16 of one tile ------------------|
//! cluster    |---- rank 0 ----|---- rank 1 ----|.. 8 blocks ..|---|   each block has sums of its rounds
//! sums       rank 0 adds up all blocks' columns 0 to 15, rank 1 columns 16 to 31, ...
//! ```
//!
//! Each block sends the others what they add up, to where slots of a ring were (`tile.cluster_sum`). What stands behind the loop it does for its part
//! alone; [`strips`] cuts it. Nothing goes through the launch's memory, and nobody counts: blocks of a cluster run at the same time. Where
//! there are fewer parts of eight columns than blocks, the last blocks do nothing behind the loop.
//!
//! Several clusters can have rounds of one tile (`among`). Then each block has the sums of its cluster's rounds, for its part, and the blocks of one
//! rank add these up as blocks that share rounds do ([`Pool`]): what goes through memory is a part of what it would be, and all blocks move it.
//!
//! Sums are added in the order of ranks and clusters, so they come out the same in every launch.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{GridAxis, Predicate};
use tessera_ir::{Block, Builder, Func, Op, OpKind, Plan, Reason, RingPlan, ScheduleOp, SharedType, TileOp, Type, Value, bug};
use tessera_types::room::{MOST_CLUSTERS, split_parts};
use tessera_types::{Arch, DType};

use super::numbers::Numbers;
use super::pool::{Leavers, Pool, branch};
use super::queue::{Queue, copied};
use super::relation::has_layout;
use super::roles::is_free;
use super::{cluster, stream_k, strips};

/// Bytes of an element of sums.
const BYTES: u32 = 4;
const AXES: [GridAxis; 3] = [GridAxis::X, GridAxis::Y, GridAxis::Z];

/// The loop whose rounds blocks of a cluster can split.
///
/// # Errors
/// Why they cannot.
fn splittable(func: &Func, plan: &Plan, blocks: u32, arch: Arch) -> Result<Op, Reason> {
    cluster::there_are(plan, blocks, arch)?;
    let no = |text: &'static str| Err(Reason::at(text, plan.span));
    if plan.partitions.len() < 2 {
        return no("a cluster splits rounds that one partition brings and another one computes, and the plan has one alone");
    }
    goes_alone(plan)?;
    if let Some(clusters) = plan.among.filter(|clusters| !(2..=MOST_CLUSTERS).contains(clusters)) {
        return Err(Reason::at(format!("2 to {MOST_CLUSTERS} clusters share a block's rounds, not {clusters}"), plan.span));
    }
    let looped = stream_k::shareable(func)?;
    let body = &func.blocks[func.body].ops;
    if let Some(&op) = body[..func.blocks[func.body].place_of(looped)].iter().find(|&&op| !cluster::only_loads(func, op)) {
        return Err(Reason::at("a block does more than load and compute before the loop that is split", func.ops[op].span));
    }
    let (data, at) = (&func.ops[looped], func.ops[looped].span);
    let first = func.ty(data.results[0]);
    if data.results.iter().any(|&sum| func.ty(sum) != first) {
        return Err(Reason::at("sums of different types are not added up together", at));
    }
    if first.the_tile().elem.bits() != u64::from(8 * BYTES) {
        return Err(Reason::at("sums of 32 bits are added up in a cluster", at));
    }
    Ok(looped)
}

/// A plan asks for nothing that does not go with `split`.
///
/// # Errors
/// What it asks for.
pub(super) fn goes_alone(plan: &Plan) -> Result<(), Reason> {
    if plan.persistent.is_some() {
        return Err(Reason::at("a cluster that splits work takes one block: `split` goes without `persistent`", plan.span));
    }
    if plan.cluster.is_some() {
        return Err(Reason::at("blocks of a cluster load together or split work: `split` goes without `cluster`", plan.span));
    }
    Ok(())
}

/// Has a cluster's blocks take parts of the rounds of a function's product, and of what stands behind them.
///
/// # Errors
/// Why they cannot.
pub(super) fn split(func: &mut Func, plan: &Plan, blocks: u32, arch: Arch) -> Result<(), Reason> {
    let looped = splittable(func, plan, blocks, arch)?;
    let data = func.ops[looped].clone();
    let mut before = std::mem::take(&mut func.blocks[func.body].ops);
    let place = before.iter().position(|&op| op == looped).unwrap_or_else(|| bug!("a loop that stands elsewhere"));
    let mut behind = before.split_off(place + 1);
    before.pop();
    let Some(end) = behind.pop() else { bug!("a body without an end") };
    let columns = *func.ty(data.results[0]).the_tile().shape.last().unwrap_or_else(|| bug!("sums without columns"));
    let parts = split_parts(columns, blocks);
    own_copies(func, &before, &mut behind);
    let mut b = Builder { block: func.body, span: data.span, func };
    let rank = b.value(TileOp::ClusterRank {}, &[], b.func.ty(data.one(0)).clone());
    b.func.blocks[b.block].ops.extend(before);
    let (number, sharers) = match plan.among {
        Some(clusters) => {
            let cluster = b.value(TileOp::ClusterNumber {}, &[], b.func.ty(data.one(0)).clone());
            let each = b.number(i64::from(blocks));
            let before = b.times(cluster, each);
            (b.plus(before, rank), blocks * clusters)
        }
        None => (rank, blocks),
    };
    let ends = own_rounds(&mut b, [data.one(0), data.one(1), data.one(2)], number, sharers);
    let types: Vec<Type> = data.results.iter().map(|&sum| b.func.ty(sum).clone()).collect();
    let groups: [&[Value]; 4] = [&[ends[0]], &[ends[1]], &[data.one(2)], data.group(3)];
    let own = b.op_with_regions(data.kind.clone(), &groups, types.clone(), data.regions.clone());
    let sums = b.func.ops[own].results.to_vec();
    let summed = b.op(TileOp::ClusterSum { parts }, &[&sums, &[]], types);
    let totals = b.func.ops[summed].results.to_vec();
    let holder = if parts == blocks {
        b.func.blocks[b.block].ops.extend(behind);
        b.block
    } else {
        let last = b.number(i64::from(parts));
        let has_part = b.is(rank, Predicate::Lt, last);
        let (inside, otherwise) = (b.func.new_block(), b.func.new_block());
        b.func.blocks[inside].ops = behind;
        for block in [inside, otherwise] {
            b.within(block, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
        }
        b.op_with_regions(ScheduleOp::If {}, &[&[has_part]], [], [inside, otherwise]);
        inside
    };
    func.blocks[func.body].ops.push(end);
    let whole = |value: Value| data.results.iter().position(|&sum| sum == value);
    func.replace_uses(|value| whole(value).map_or(value, |at| totals[at]));
    (func.hints.split, func.hints.among) = (Some(blocks), plan.among);
    if parts > 1 {
        strips::part(func, &totals, u64::from(parts), rank)?;
    }
    if let Some(clusters) = plan.among {
        let threads = plan.computing().warps * Arch::WARP;
        share(func, (holder, summed), &totals, (clusters, parts), threads);
    }
    Ok(())
}

/// Has the blocks of one rank, in so many clusters, add up the sums of their clusters: what stands behind is done by who comes last.
fn share(func: &mut Func, (holder, summed): (Block, Op), totals: &[Value], (clusters, parts): (u32, u32), threads: u32) {
    // Where blocks without a part do nothing, the sum stands before the branch that holds what those with one do.
    let before = if holder == func.body { func.blocks[holder].place_of(summed) + 1 } else { 0 };
    let mut behind = std::mem::take(&mut func.blocks[holder].ops);
    let mut before = behind.drain(..before).collect::<Vec<Op>>();
    let Some(end) = behind.pop() else { bug!("a block without an end") };
    std::mem::swap(&mut func.blocks[holder].ops, &mut before);
    let span = func.ops[summed].span;
    let mut b = Builder { block: holder, span, func };
    let index = Type::scalar(DType::I32);
    let [rank, cluster] = [TileOp::ClusterRank {}, TileOp::ClusterNumber {}].map(|kind| b.value(kind, &[], index.clone()));
    let ([x, y, z], [columns, rows, planes]) = (
        AXES.map(|axis| b.value(ScheduleOp::GetTileBlockId { axis }, &[], index.clone())),
        AXES.map(|axis| b.value(ScheduleOp::GetNumTileBlocks { axis }, &[], index.clone())),
    );
    let tile = {
        let planes_before = b.times(z, rows);
        let line = b.plus(planes_before, y);
        let lines_before = b.times(line, columns);
        b.plus(lines_before, x)
    };
    let asked = {
        let plane = b.times(columns, rows);
        b.times(plane, planes)
    };
    let [among, of_tile] = [clusters, parts].map(|count| b.number(i64::from(count)));
    let blocks = {
        let pieces = b.times(asked, among);
        b.times(pieces, of_tile)
    };
    let leavers = Leavers { slots: 1, blocks, cluster: Some([of_tile, rank]), pieces: Some(clusters), threads };
    let pool = Pool::of(&mut b, totals, leavers);
    let first = b.times(tile, among);
    let slot = b.plus(first, cluster);
    let one = b.number(1);
    let next = b.plus(first, among);
    let last = b.minus(next, one);
    let met = pool.met(&mut b, (slot, tile), [first, last], totals);
    let (all, mine) = (&met[..totals.len()], met[totals.len()]);
    let uses = |value: Value| totals.iter().position(|&total| total == value).map_or(value, |at| all[at]);
    for op in nested(b.func, &behind) {
        b.func.ops[op].operands.iter_mut().for_each(|operand| *operand = uses(*operand));
    }
    let nothing = |_: &mut Builder<'_>| Vec::new();
    let rest = |b: &mut Builder<'_>| {
        b.func.blocks[b.block].ops.extend(behind);
        Vec::new()
    };
    branch(&mut b, mine, &[], rest, nothing);
    b.func.blocks[holder].ops.push(end);
}

/// Operations with all that they hold.
fn nested(func: &Func, ops: &[Op]) -> Vec<Op> {
    let (mut found, mut at) = (ops.to_vec(), 0);
    while at < found.len() {
        let regions = &func.ops[found[at]].regions;
        found.extend(regions.iter().flat_map(|&region| &func.blocks[region].ops));
        at += 1;
    }
    found
}

/// Gives what stands behind the loop tiles of its own where they cost nothing: zeros that sums start from and a mask puts in, say. What it has parts
/// of, the loop needs whole.
fn own_copies(func: &mut Func, before: &[Op], behind: &mut Vec<Op>) {
    let users = nested(func, behind);
    let mut wanted: Vec<Op> = Vec::new();
    for &op in before.iter().rev() {
        let data = &func.ops[op];
        let is_used = |&user: &Op| func.ops[user].operands.iter().any(|value| data.results.contains(value));
        let is_plain =
            data.regions.is_empty() && data.results.iter().any(|&result| has_layout(func, result)) && is_free(func, op);
        if is_plain && users.iter().chain(&wanted).any(is_used) {
            wanted.push(op);
        }
    }
    let mut names = FxHashMap::default();
    let copies: Vec<Op> = wanted.into_iter().rev().map(|op| copied(func, op, &mut names)).collect();
    for op in users {
        func.ops[op].operands.iter_mut().for_each(|operand| *operand = names.get(operand).copied().unwrap_or(*operand));
    }
    behind.splice(0..0, copies);
}

/// Where the rounds of a block begin and end: as many for each, the first ones with one more where they do not divide.
fn own_rounds(b: &mut Builder<'_>, [lower, upper, step]: [Value; 3], rank: Value, blocks: u32) -> [Value; 2] {
    let [zero, one, blocks] = [0, 1, i64::from(blocks)].map(|number| b.number(number));
    let span = b.minus(upper, lower);
    let span = b.most(span, zero);
    let rounds = b.over_up(span, step);
    let [each, longer] = [b.over(rounds, blocks), b.modulo(rounds, blocks)];
    let next = b.plus(rank, one);
    let [begin, end] = [rank, next].map(|rank| {
        let (usual, more) = (b.times(rank, each), b.least(rank, longer));
        let round = b.plus(usual, more);
        let ahead = b.times(round, step);
        b.plus(lower, ahead)
    });
    [begin, b.least(end, upper)]
}

/// Gives the sums of a cluster the slots of the largest ring as their buffer, which nobody needs behind the loop: what lands of all blocks is as much
/// as one block's sums, or more where blocks have no part.
///
/// # Errors
/// They have no room there.
pub(super) fn lay(func: &mut Func, plan: &[RingPlan], queues: &[Option<Queue>]) -> Result<(), Reason> {
    let is_sum = |&op: &Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::ClusterSum { .. }));
    let Some(sum) = func.blocks[func.body].ops.iter().copied().find(is_sum) else { return Ok(()) };
    let bytes = |buffer: Value| func.ty(buffer).as_shared().map_or_else(|| bug!("slots that are no buffer"), SharedType::bytes);
    let buffers = queues.iter().flatten().flat_map(|queue| queue.buffers.iter().copied());
    let largest = buffers.max_by_key(|&buffer| bytes(buffer)).unwrap_or_else(|| bug!("a plan of roles without rings"));
    let (OpKind::Tile(TileOp::ClusterSum { parts }), Some(blocks)) = (&func.ops[sum].kind, func.hints.split) else {
        bug!("a sum without parts, or without blocks")
    };
    let sums: u64 = func.ops[sum].group(0).iter().map(|&value| func.ty(value).the_tile().len() as u64 * u64::from(BYTES)).sum();
    let wanted = sums * u64::from(blocks / parts);
    if bytes(largest) < wanted {
        let text = format!(
            "{wanted} bytes of sums are added up where a ring's slots were, of which the largest buffer has {}",
            bytes(largest)
        );
        return Err(Reason::at(text, plan.first().map(|ring| ring.span)));
    }
    let data = &mut func.ops[sum];
    data.operands.push(largest);
    data.segments[1] = 1;
    Ok(())
}
