//! Blocks of a cluster that load together: neighbours along x, which all load some of their tiles from the same place. Each of them brings a
//! part for all, so that the second-level cache is asked for it once.
//!
//! ```text
//! block 2i        A(2i, k)       upper half of B(k, j) for both
//! block 2i + 1    A(2i + 1, k)   lower half of B(k, j) for both
//! ```
//!
//! A slot is free when every block of the cluster has read its own. So they all have the same number of rounds, and a cluster is whole: where
//! the blocks that are asked for are none, more are launched along x. Those load what there is, which is zeros outside of arrays, and do
//! nothing behind their loops.

use rustc_hash::FxHashSet;
use tessera_ir::attrs::{GridAxis, RingProducer};
use tessera_ir::{Block, Func, Op, OpKind, Plan, Reason, ScheduleOp, Type, Value, bug};
use tessera_types::Arch;

use super::in_grid::in_grid;
use super::persistent::Split;
use super::roles::is_free;
use super::slots;

/// Lines of a tile that a block brings at least: as many as a swizzle mixes.
const LINES: u32 = 8;

/// What a cluster's blocks load together.
pub(super) struct Together {
    /// Blocks of a cluster.
    pub(super) blocks: u32,
    loads: FxHashSet<Op>,
    /// Behind this operation of the function's body nothing is loaded.
    last: Op,
}

impl Together {
    /// Whether a load is one of theirs, and so how many bring it.
    pub(super) fn of(&self, load: Op) -> Option<u32> {
        self.loads.contains(&load).then_some(self.blocks)
    }
}

/// What blocks of clusters as a plan wants them can load together.
///
/// # Errors
/// Why they cannot.
pub(super) fn find(func: &Func, plan: &Plan, blocks: u32, arch: Arch) -> Result<Together, Reason> {
    there_are(plan, blocks, arch)?;
    if plan.partitions.len() < 2 {
        return Err(Reason::at(
            "blocks of a cluster load together by the copy engine, and the plan has no partition for it",
            plan.span,
        ));
    }
    let body = &func.blocks[func.body].ops;
    let filled = plan.rings.iter().filter(|ring| ring.by == RingProducer::Tma).flat_map(|ring| ring.fills.iter().flatten());
    let loads: Vec<Op> = filled.filter_map(|&value| func.defining_op(value)).collect();
    let holds = |op: Op| {
        let inside = |region: &Block| func.blocks[*region].ops.iter().any(|inner| loads.contains(inner));
        loads.contains(&op) || func.ops[op].regions.iter().any(inside)
    };
    let place = body.iter().rposition(|&op| holds(op)).ok_or("what the copy engine brings is loaded in nested loops")?;
    if let Some(&op) = body[..=place].iter().find(|&&op| !only_loads(func, op)) {
        return Err(Reason::at("a block does more than load and compute before its last load", func.ops[op].span));
    }
    let placed = depend_on_place(func);
    // The copy engine brings zeros from outside of an array; threads would read what is there.
    let strays = |op: &Op| placed.contains(&func.ops[*op].results[0]) && !loads.contains(op);
    if let Some(op) = body[..=place].iter().flat_map(|&op| loads_of(func, op)).find(strays) {
        let text = "a load that the copy engine does not bring follows from the block's place, and a block that makes a cluster whole has none";
        return Err(Reason::at(text, func.ops[op].span));
    }
    let same = Split::of(func).same;
    let mut together = Together { blocks, loads: FxHashSet::default(), last: body[place] };
    for &op in &body[..=place] {
        let counted = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
        if !counted || !func.ops[op].operands[..3].iter().all(|bound| same.contains(bound)) {
            continue;
        }
        let own = func.blocks[func.ops[op].regions[0]].ops.iter().filter(|op| loads.contains(op));
        together.loads.extend(own.filter(|&&load| !placed.contains(&func.ops[load].results[0]) && divides(func, load, blocks)));
    }
    if together.loads.is_empty() {
        let text = "neighbours along x load nothing from the same place in loops of as many rounds, of 8 lines a block or more";
        return Err(Reason::at(text, plan.span));
    }
    Ok(together)
}

/// The target has clusters of so many blocks.
///
/// # Errors
/// It has not.
pub(super) fn there_are(plan: &Plan, blocks: u32, arch: Arch) -> Result<(), Reason> {
    let most = arch.limits().blocks_per_cluster;
    if !arch.has_clusters() || blocks < 2 || blocks > most || !blocks.is_power_of_two() {
        return Err(Reason::at(format!("there are no clusters of {blocks} blocks: 2, 4, ... {most}"), plan.span));
    }
    Ok(())
}

/// Has blocks that nobody asked for do nothing behind their loops.
pub(super) fn guard(func: &mut Func, together: &Together) {
    let behind = func.blocks[func.body].place_of(together.last) + 1;
    in_grid(func, behind);
}

/// Loads and pure operations, in loops or not.
pub(super) fn only_loads(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let loads = data.kind.schedule().is_some_and(ScheduleOp::is_weak_load);
    match &data.kind {
        OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::If {}) => {
            data.regions.iter().all(|&region| func.blocks[region].ops.iter().all(|&op| only_loads(func, op)))
        }
        OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Yield {}) => true,
        _ => data.regions.is_empty() && (loads || is_free(func, op)),
    }
}

/// The loads of an operation and of what it holds.
fn loads_of(func: &Func, op: Op) -> Vec<Op> {
    let data = &func.ops[op];
    let inside = data.regions.iter().flat_map(|&region| &func.blocks[region].ops).flat_map(|&op| loads_of(func, op));
    let own = data.kind.schedule().is_some_and(ScheduleOp::is_weak_load).then_some(op);
    own.into_iter().chain(inside).collect()
}

/// Values that follow from the block's place along x.
fn depend_on_place(func: &Func) -> FxHashSet<Value> {
    let mut found = FxHashSet::default();
    loop {
        let before = found.len();
        visit(func, func.body, &mut found);
        if found.len() == before {
            return found;
        }
    }
}

fn visit(func: &Func, block: Block, found: &mut FxHashSet<Value>) {
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        let place = matches!(data.kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { axis: GridAxis::X }));
        for &region in &data.regions {
            visit(func, region, found);
        }
        match data.kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => looped(func, op, found),
            _ => {
                let ends = data.regions.iter().filter_map(|&region| func.blocks[region].ops.last());
                let handed = ends.flat_map(|&end| &func.ops[end].operands);
                if place || data.operands.iter().chain(handed).any(|value| found.contains(value)) {
                    found.extend(&data.results);
                    found.extend(data.regions.iter().flat_map(|&region| &func.blocks[region].args));
                }
            }
        }
    }
}

/// The counter follows from the loop's range, what it carries from where that starts and from what a round hands on.
fn looped(func: &Func, op: Op, found: &mut FxHashSet<Value>) {
    let data = &func.ops[op];
    let body = &func.blocks[data.regions[0]];
    if data.operands[..3].iter().any(|bound| found.contains(bound)) {
        found.extend(body.args.iter().chain(&data.results));
    }
    let Some(&end) = body.ops.last() else { bug!("a loop's body without an end") };
    let handed = func.ops[end].group(0);
    for (position, (start, next)) in data.group(3).iter().zip(handed).enumerate() {
        if found.contains(start) || found.contains(next) {
            found.extend([body.args[1 + position], data.results[position]]);
        }
    }
}

/// Each of the blocks can bring as many lines of the tile.
fn divides(func: &Func, load: Op, blocks: u32) -> bool {
    let fastest = slots::contiguous_axis(func, load);
    let Type::TileView(view) = func.ty(func.ops[load].one(0)) else { return false };
    let lines = view.tile.iter().enumerate().filter(|&(axis, &extent)| Some(axis) != fastest && extent > 1);
    matches!(lines.collect::<Vec<_>>()[..], [(_, lines)] if lines.is_multiple_of(blocks * LINES))
}
