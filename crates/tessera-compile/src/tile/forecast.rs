//! What a plan's rounds should take: for each loop whose values rings hold, the clocks for which a round of one block keeps each part of a
//! multiprocessor busy, and the one that is busy longest.
//!
//! ```text
//! 128x256x64 of bf16 on an H200: tensor cores 1024, shared memory 1024, second-level cache 768, slots 615 of 4
//! ```
//!
//! A part's time is work over rate (`tessera_types::Part`). *Slots* is what a round takes when a ring runs dry: from the start of a copy to
//! where its slot is free again, shared among the slots. Parts work at the same time, so a round takes at least as long as the busiest one;
//! what waits for each other inside a round comes on top, and is not counted.

use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Func, Op, OpKind, Plan, ScheduleOp, Span, Trait, Value};
use tessera_types::{Arch, DType, Device, Issuer, Part};

use super::roles::is_product;

/// What a round of one loop should take.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The loop.
    pub span: Span,
    /// Clocks by part, in a fixed order; parts that nothing is known of are left out.
    pub parts: Vec<(&'static str, f64)>,
}

impl Forecast {
    /// The part that is busy longest, and for how many clocks.
    pub fn bound(&self) -> Option<(&'static str, f64)> {
        self.parts.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The forecasts of a planned function's loops, in the order of the plan's rings.
pub(crate) fn forecasts(func: &Func, plan: &Plan, arch: Arch) -> Vec<Forecast> {
    let home = |value: Value| {
        let op = func.defining_op(value)?;
        func.linked_blocks().into_iter().find(|&block| func.blocks[block].ops.contains(&op))
    };
    let mut blocks: Vec<Block> = Vec::new();
    for value in plan.rings.iter().flat_map(|ring| &ring.fills).filter_map(|fill| fill.first()) {
        if let Some(block) = home(*value).filter(|block| *block != func.body && !blocks.contains(block)) {
            blocks.push(block);
        }
    }
    blocks.into_iter().map(|block| forecast(func, plan, arch, block)).collect()
}

fn forecast(func: &Func, plan: &Plan, arch: Arch, block: Block) -> Forecast {
    let ops = &func.blocks[block].ops;
    let holder = func.linked_ops().into_iter().find(|&op| func.ops[op].regions.contains(&block));
    let rate = |part: Part| arch.cost(part).and_then(|cost| cost.per_clock).map(f64::from);
    let warpgroups = plan.partitions.len() > 1;
    let groups = plan.partitions.last().map_or(1, |partition| partition.warps.div_ceil(4));
    let products: Vec<Op> = ops.iter().copied().filter(|&op| is_product(func, op)).collect();
    let tensor = products.iter().map(|&op| clocks(func, op, arch, warpgroups)).sum::<Option<f64>>();
    let mut parts = Vec::new();
    parts.extend(tensor.filter(|&clocks| clocks > 0.0).map(|clocks| ("tensor cores", clocks)));

    let filled = |ring: &tessera_ir::RingPlan| {
        let fill =
            ring.fills.iter().find(|fill| fill.iter().any(|&value| func.defining_op(value).is_some_and(|op| ops.contains(&op))));
        fill.map_or(0.0, |fill| fill.iter().map(|&value| bytes(func, value)).sum::<f64>())
    };
    let brought: f64 = plan.rings.iter().filter(|ring| ring.by != RingProducer::Threads).map(filled).sum();
    let written: f64 = plan.rings.iter().map(filled).sum();
    // Each warpgroup reads the whole right factor, and its own rows of the left one.
    let read: f64 =
        products.iter().map(|&op| bytes(func, func.ops[op].one(0)) + f64::from(groups) * bytes(func, func.ops[op].one(1))).sum();
    parts.extend(rate(Part::SharedMemory).map(|rate| ("shared memory", (written + read) / rate)));
    parts.extend(rate(Part::SecondCache).map(|rate| ("second-level cache", brought / rate)));

    let special = |op: &Op| {
        matches!(
            func.ops[*op].kind,
            OpKind::Schedule(
                ScheduleOp::Exp { .. } | ScheduleOp::Exp2 { .. } | ScheduleOp::Log2 { .. } | ScheduleOp::Rsqrt { .. }
            )
        )
    };
    let elements =
        |op: &Op| func.ops[*op].results.first().and_then(|&value| func.ty(value).as_tile()).map_or(0, |tile| tile.len()) as f64;
    let of = |wanted: &dyn Fn(&Op) -> bool| ops.iter().filter(|op| wanted(op)).map(elements).sum::<f64>();
    let plain = |op: &Op| func.ops[*op].row().has(Trait::Elementwise) && !special(op);
    parts.extend(rate(Part::Special).map(|rate| ("special functions", of(&special) / rate)).filter(|part| part.1 > 0.0));
    parts.extend(rate(Part::MultiplyAdd).map(|rate| ("arithmetic", of(&plain) / rate)).filter(|part| part.1 > 0.0));

    let latency = |part: Part| arch.cost(part).and_then(|cost| cost.latency).map(f64::from);
    let slots = plan.rings.iter().filter(|ring| filled(ring) > 0.0).map(|ring| ring.slots).min();
    if let (Some(far), Some(near), Some(slots)) = (latency(Part::SecondCache), rate(Part::SecondCache), slots) {
        let engine = if warpgroups { latency(Part::CopyEngine).unwrap_or(0.0) } else { 0.0 };
        let held = far + engine + brought / near + tensor.unwrap_or(0.0);
        parts.push(("slots", held / f64::from(slots)));
    }
    Forecast { span: holder.map_or(func.span, |op| func.ops[op].span), parts }
}

/// Clocks for which a product holds the tensor cores.
fn clocks(func: &Func, product: Op, arch: Arch, warpgroups: bool) -> Option<f64> {
    let data = &func.ops[product];
    let (lhs, out) = (func.ty(data.one(0)).as_tile()?, func.ty(data.result()).as_tile()?);
    let (&[.., m, n], &[.., k]) = (&out.shape[..], &lhs.shape[..]) else { return None };
    let factor: DType = lhs.elem.num()?;
    let issuer = if warpgroups { Issuer::Warpgroup } else { Issuer::Warp };
    let row = arch.matrix_instructions(issuer, factor).next()?;
    let device = Device::ALL.iter().rfind(|device| device.arch == arch)?;
    let columns = *row.columns.last()?;
    let one = row.clocks(columns, device, out.elem.num()?)?;
    Some(one * f64::from(m) / f64::from(row.rows) * f64::from(n) / f64::from(columns) * f64::from(k) / f64::from(row.depth))
}

/// Bytes of a tile.
fn bytes(func: &Func, value: Value) -> f64 {
    let tile = func.ty(value).as_tile();
    tile.and_then(|tile| Some(tile.len() as f64 * f64::from(tile.elem.num()?.bits()) / 8.0)).unwrap_or(0.0)
}
