//! The rounds of a product split among the blocks of a cluster: a cluster is launched for each block that is asked for, and takes its tile.
//!
//! ```text
//! rounds     |------------------ 16 of one tile ------------------|
//! cluster    |---- rank 0 ----|---- rank 1 ----|.. 8 blocks ..|---|   each block has sums of its rounds
//! sums       rank 0 adds up all blocks' columns 0 to 15, rank 1 columns 16 to 31, ...
//! ```
//!
//! Each block lays its sums into its own shared memory, where slots of a ring were, and reads those of the others for its part of the columns
//! (`tile.cluster_sum`). What stands behind the loop it does for that part alone; [`strips`] cuts it. Nothing goes through the
//! launch's memory, and nobody counts: blocks of a cluster run at the same time. Where there are fewer parts of eight columns than blocks,
//! the last blocks do nothing behind the loop.
//!
//! Sums are added in the order of ranks, so they come out the same in every launch.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::Predicate;
use tessera_ir::{Builder, Func, Op, OpKind, Plan, Reason, RingPlan, ScheduleOp, SharedType, TileOp, Type, Value, bug};
use tessera_types::Arch;
use tessera_types::room::split_parts;

use super::numbers::Numbers;
use super::queue::{Queue, copied};
use super::relation::has_layout;
use super::roles::is_free;
use super::{cluster, stream_k, strips};

/// Bytes of an element of sums.
const BYTES: u32 = 4;

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
    if plan.persistent.is_some() {
        return no("a cluster that splits rounds takes one block: `split` goes without `persistent`");
    }
    if plan.cluster.is_some() {
        return no("blocks of a cluster load together or split rounds: `split` goes without `cluster`");
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
    let ends = own_rounds(&mut b, [data.one(0), data.one(1), data.one(2)], rank, blocks);
    let types: Vec<Type> = data.results.iter().map(|&sum| b.func.ty(sum).clone()).collect();
    let groups: [&[Value]; 4] = [&[ends[0]], &[ends[1]], &[data.one(2)], data.group(3)];
    let own = b.op_with_regions(data.kind.clone(), &groups, types.clone(), data.regions.clone());
    let sums = b.func.ops[own].results.to_vec();
    let summed = b.op(TileOp::ClusterSum { parts }, &[&sums, &[]], types);
    let totals = b.func.ops[summed].results.to_vec();
    if parts == blocks {
        b.func.blocks[b.block].ops.extend(behind);
    } else {
        let last = b.number(i64::from(parts));
        let has_part = b.is(rank, Predicate::Lt, last);
        let (inside, otherwise) = (b.func.new_block(), b.func.new_block());
        b.func.blocks[inside].ops = behind;
        for block in [inside, otherwise] {
            b.within(block, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
        }
        b.op_with_regions(ScheduleOp::If {}, &[&[has_part]], [], [inside, otherwise]);
    }
    func.blocks[func.body].ops.push(end);
    let whole = |value: Value| data.results.iter().position(|&sum| sum == value);
    func.replace_uses(|value| whole(value).map_or(value, |at| totals[at]));
    func.hints.split = Some(blocks);
    match parts {
        1 => Ok(()),
        _ => strips::part(func, &totals, u64::from(parts), rank),
    }
}

/// Gives what stands behind the loop tiles of its own where they cost nothing: zeros that sums start from and a mask puts in, say. What it has parts
/// of, the loop needs whole.
fn own_copies(func: &mut Func, before: &[Op], behind: &mut Vec<Op>) {
    let mut users = behind.clone();
    let mut at = 0;
    while at < users.len() {
        let regions = func.ops[users[at]].regions.clone();
        users.extend(regions.iter().flat_map(|&region| &func.blocks[region].ops));
        at += 1;
    }
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

/// Gives the sums of a cluster the slots of the largest ring as their buffer, which nobody needs behind the loop.
///
/// # Errors
/// They have no room there.
pub(super) fn lay(func: &mut Func, plan: &[RingPlan], queues: &[Option<Queue>]) -> Result<(), Reason> {
    let is_sum = |&op: &Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::ClusterSum { .. }));
    let Some(sum) = func.blocks[func.body].ops.iter().copied().find(is_sum) else { return Ok(()) };
    let bytes = |buffer: Value| func.ty(buffer).as_shared().map_or_else(|| bug!("slots that are no buffer"), SharedType::bytes);
    let buffers = queues.iter().flatten().flat_map(|queue| queue.buffers.iter().copied());
    let largest = buffers.max_by_key(|&buffer| bytes(buffer)).unwrap_or_else(|| bug!("a plan of roles without rings"));
    let wanted: u64 = func.ops[sum].group(0).iter().map(|&value| func.ty(value).the_tile().len() as u64 * u64::from(BYTES)).sum();
    if bytes(largest) < wanted {
        let text = format!(
            "sums of {wanted} bytes are added up where a ring's slots were, of which the largest buffer has {}",
            bytes(largest)
        );
        return Err(Reason::at(text, plan.first().map(|ring| ring.span)));
    }
    let data = &mut func.ops[sum];
    data.operands.push(largest);
    data.segments[1] = 1;
    Ok(())
}
