//! Rows shared by the blocks of a cluster: a cluster is launched for each block that is asked for, and takes its row. Each block has a part of the
//! columns, reduces that, and what blocks find goes to all of them.
//!
//! ```text
//! row        |--------------------- 32768 columns ----------------------|
//! cluster    |-- rank 0 ---|-- rank 1 ---|.. 8 blocks ..|--- rank 7 ----|      4096 columns each, in registers
//!
//! %s = reduce [%v] : tile<1xf32>                 of this block's columns
//! %all = tile.cluster_gather %s : tile<8xf32>    of all blocks, in the order of their ranks
//! %t = reduce [%all] : tile<f32>                 of the row
//! ```
//!
//! A block that has a long row for itself takes a multiprocessor: its loads wait for its stores. Parts of several rows lie on a multiprocessor at a
//! time, and one row's loads go on while another one is reduced or stored.
//!
//! What can be shared: the rows of a block that goes its way once ([`strips::of_rows`]): loads and stores of whole rows, elementwise work, reductions
//! along the columns, numbers of columns. Columns are any axis that is reduced, as the images of a channel; several rows, or
//! channels, lie side by side, and what is common to rows, as weights, is read once for them. A block stores nothing before its last reduction; what is
//! stored of a whole row, the first block stores. Columns that do not divide are rounded up to [`ROW_COLUMNS`]. Results are combined in the order of
//! ranks, so they come out the same in every launch.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::Predicate;
use tessera_ir::{Builder, Func, Op, OpKind, Partition, Plan, Reason, ScheduleOp, Shape, TileOp, Type, Value, bug};
use tessera_types::room::{ROW_COLUMNS, row_part};
use tessera_types::{Arch, DType};

use super::anchors::Units;
use super::numbers::{Numbers, apart};
use super::queue::copied;
use super::{cluster, cluster_split, strips, threads};
use crate::rewrite::drop_dead;

/// The plan in which a cluster of as many blocks as the function's hints ask for shares its row.
///
/// # Errors
/// Why it cannot.
pub(super) fn propose(func: &Func, units: &Units) -> Result<Plan, Reason> {
    let blocks =
        func.hints.num_ctas.ok_or("`sharing=4` shares a row among a cluster's blocks, and `num_ctas` does not say how many")?;
    let all = Partition { name: "all".to_string(), warps: 1, registers: None, turns: None, span: func.span };
    let among = func.hints.shared_clusters();
    let mut plan = Plan { partitions: vec![all], split: Some(blocks), among, ..Plan::new(func.span) };
    let mut part = func.clone();
    split(&mut part, &plan, blocks, units.arch)?;
    plan.partitions[0].warps = threads::warps(&part);
    Ok(plan)
}

/// Whether a plan shares rows: nothing is brought ahead, and all warps do the same.
pub(super) fn is_asked_for(plan: &Plan) -> bool {
    plan.split.is_some() && plan.partitions.len() == 1 && plan.rings.is_empty()
}

/// Has a cluster's blocks take parts of a function's row.
///
/// # Errors
/// Why they cannot; what the function is then is of no use.
pub(super) fn split(func: &mut Func, plan: &Plan, blocks: u32, arch: Arch) -> Result<(), Reason> {
    cluster::there_are(plan, blocks, arch)?;
    cluster_split::goes_alone(plan)?;
    let body = &func.blocks[func.body].ops;
    let repeats = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    if let Some(&op) = body.iter().find(repeats) {
        let text = "rows are shared where a block goes its way once, without loops and branches";
        return Err(Reason::at(text, func.ops[op].span));
    }
    let mut columns = strips::of_rows(func)?;
    columns.once_by_one(func)?;
    if plan.among.is_some() {
        return Err(Reason::at("one cluster shares a row: clusters share the rounds of a product, `among`", plan.span));
    }
    let body = &func.blocks[func.body].ops;
    let last =
        body.iter().rposition(|op| columns.reductions.contains(op)).unwrap_or_else(|| bug!("a reduction that stands elsewhere"));
    let combines = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
    let waits = |op: &&Op| !combines(**op) && !cluster::only_loads(func, **op);
    if let Some(&op) = body[..last].iter().find(waits) {
        return Err(Reason::at("a block does more than load and compute before its last reduction", func.ops[op].span));
    }
    if !columns.divides(func, u64::from(blocks)) {
        let Some(own) = row_part(columns.count, u64::from(blocks)) else {
            return Err(Reason::at(
                format!("{} columns have no {blocks} parts of {ROW_COLUMNS} and more", columns.count),
                plan.span,
            ));
        };
        columns.pad(func, own * u64::from(blocks), None, &[])?;
    }
    let span = func.span;
    let rank = func.make_op(TileOp::ClusterRank {}.into(), &[], [Type::scalar(DType::I32)], [], span);
    let body = func.body;
    let (once, stay): (Vec<Op>, Vec<Op>) = func.blocks[body].ops.iter().partition(|op| columns.once.contains(op));
    func.blocks[body].ops = std::iter::once(rank).chain(stay).collect();
    let rank = func.ops[rank].result();
    columns.part(func, u64::from(blocks), rank)?;
    let ops = &mut func.blocks[body].ops;
    ops.splice(ops.len() - 1..ops.len() - 1, once.iter().copied());
    drop_dead(func);
    func.hints.split = Some(blocks);
    // One whose result nobody used is gone.
    let linked = func.blocks[body].ops.clone();
    for op in columns.reductions.into_iter().filter(|op| linked.contains(op)) {
        combine(func, op, blocks);
    }
    by_the_first(func, &once, rank);
    Ok(())
}

/// Has the first block of a cluster alone do what is done once.
fn by_the_first(func: &mut Func, once: &[Op], rank: Value) {
    if once.is_empty() {
        return;
    }
    let (body, span) = (func.body, func.span);
    func.blocks[body].ops.retain(|op| !once.contains(op));
    let (ops, ()) = apart(func, span, |b| {
        let zero = b.number(0);
        let first = b.is(rank, Predicate::Eq, zero);
        let [inside, otherwise] = [0; 2].map(|_| b.func.new_block());
        b.func.blocks[inside].ops.extend(once);
        for block in [inside, otherwise] {
            b.within(block, |b| {
                b.op(ScheduleOp::Yield {}, &[&[]], []);
            });
        }
        b.op_with_regions(ScheduleOp::If {}, &[&[first]], [], [inside, otherwise]);
    });
    let all = &mut func.blocks[body].ops;
    all.splice(all.len() - 1..all.len() - 1, ops);
}

/// Has what a block reduced become what its cluster did.
fn combine(func: &mut Func, op: Op, blocks: u32) {
    let data = func.ops[op].clone();
    let mut ops = std::mem::take(&mut func.blocks[func.body].ops);
    let place = ops.iter().position(|&other| other == op).unwrap_or_else(|| bug!("a reduction that stands elsewhere"));
    let behind = ops.split_off(place + 1);
    func.blocks[func.body].ops = ops;
    let body = func.body;
    let mut b = Builder { func, block: body, span: data.span };
    let (mut all, mut numbers) = (Vec::new(), Vec::new());
    for &own in &data.results {
        let tile = b.func.ty(own).the_tile().clone();
        let of = |shape: &[u32]| Type::Tile(tessera_ir::TileType { shape: Shape::from_slice(shape), elem: tile.elem });
        let several = [tile.len() as u32];
        let line = if tile.len() == 1 { &[][..] } else { &several };
        let own = b.value(ScheduleOp::Reshape {}, &[&[own]], of(line));
        all.push(b.value(TileOp::ClusterGather {}, &[&[own]], of(&[&[blocks], line].concat())));
        numbers.push(of(line));
    }
    let region = region_of(b.func, op);
    let OpKind::Schedule(ScheduleOp::Reduce { identities, order, .. }) = data.kind else {
        bug!("a reduction without identities")
    };
    let reduced = b.op_with_regions(ScheduleOp::Reduce { dim: 0, identities, order }, &[&all], numbers, [region]);
    let results = b.func.ops[reduced].results.to_vec();
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    for (&own, &line) in data.results.iter().zip(&results) {
        let ty = b.func.ty(own).clone();
        names.insert(own, b.value(ScheduleOp::Reshape {}, &[&[line]], ty));
    }
    for &op in &behind {
        func.ops[op].operands.iter_mut().for_each(|operand| *operand = names.get(operand).copied().unwrap_or(*operand));
    }
    func.blocks[func.body].ops.extend(behind);
}

/// A copy of what a reduction combines by.
fn region_of(func: &mut Func, op: Op) -> tessera_ir::Block {
    let (from, to) = (func.blocks[func.ops[op].regions[0]].clone(), func.new_block());
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    for arg in from.args {
        let ty = func.ty(arg).clone();
        names.insert(arg, func.add_arg(to, ty, None));
    }
    func.blocks[to].ops = from.ops.into_iter().map(|op| copied(func, op, &mut names)).collect();
    to
}
