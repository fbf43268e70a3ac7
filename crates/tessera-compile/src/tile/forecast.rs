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

use super::roles::{is_coarse, is_product, signs};

/// Operations for each sum of the tensor cores that threads add up beside them.
const PROMOTION: f64 = 3.0;

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

/// The work of some operations of one block, by parts of a multiprocessor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Clocks of the tensor cores, where the instruction's rate is known.
    pub(super) tensor: f64,
    /// Bytes that products read from shared memory.
    pub(super) read: f64,
    /// Bytes that loads bring, and that stores send.
    pub(super) loaded: f64,
    pub(super) stored: f64,
    /// Exponentials and the like, and other arithmetic, in elements.
    pub(super) special: f64,
    pub(super) plain: f64,
}

impl Work {
    /// The work of operations that `groups` warpgroups do (warps where there are no roles), without what regions of theirs hold.
    pub(super) fn of(func: &Func, ops: &[Op], arch: Arch, issuer: Issuer, groups: u32) -> Work {
        let mut work = Work::default();
        for &op in ops {
            let data = &func.ops[op];
            let elements = data.results.first().and_then(|&value| func.ty(value).as_tile()).map_or(0, |tile| tile.len()) as f64;
            match &data.kind {
                _ if is_product(func, op) => {
                    work.tensor += clocks(func, op, arch, issuer).into_iter().sum::<f64>();
                    // Each warpgroup reads the whole right factor, and its own rows of the left one.
                    work.read += bytes(func, data.one(0)) + f64::from(groups) * bytes(func, data.one(1));
                    if issuer == Issuer::Warpgroup && is_promoted(func, op) {
                        work.plain += PROMOTION * elements;
                    }
                }
                OpKind::Schedule(ScheduleOp::LoadViewTko { .. } | ScheduleOp::LoadPtrTko { .. }) => {
                    work.loaded += bytes(func, data.results[0]);
                }
                OpKind::Schedule(ScheduleOp::StoreViewTko { .. }) => work.stored += bytes(func, data.one(0)),
                OpKind::Schedule(ScheduleOp::StorePtrTko { .. }) => work.stored += bytes(func, data.one(1)),
                OpKind::Schedule(
                    ScheduleOp::Exp { .. } | ScheduleOp::Exp2 { .. } | ScheduleOp::Log2 { .. } | ScheduleOp::Rsqrt { .. },
                ) => work.special += elements,
                _ if data.row().has(Trait::Elementwise) => work.plain += elements,
                _ => {}
            }
        }
        work
    }
}

/// Clocks for each part of a multiprocessor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Busy {
    pub(super) tensor: f64,
    pub(super) shared: f64,
    pub(super) cache: f64,
    pub(super) special: f64,
    pub(super) arithmetic: f64,
}

impl Busy {
    /// How long work keeps parts busy that writes so many bytes to shared memory; nothing where a part's rate is not known.
    pub(super) fn of(work: &Work, written: f64, arch: Arch) -> Busy {
        let over = |amount: f64, part: Part| {
            let rate = arch.cost(part).and_then(|cost| cost.per_clock);
            rate.map_or(0.0, |rate| amount / f64::from(rate))
        };
        Busy {
            tensor: work.tensor,
            shared: over(written + work.read, Part::SharedMemory),
            cache: over(work.loaded, Part::SecondCache),
            special: over(work.special, Part::Special),
            arithmetic: over(work.plain, Part::MultiplyAdd),
        }
    }

    /// Both, the other one so many times.
    pub(super) fn plus(&self, other: &Busy, times: f64) -> Busy {
        Busy {
            tensor: self.tensor + times * other.tensor,
            shared: self.shared + times * other.shared,
            cache: self.cache + times * other.cache,
            special: self.special + times * other.special,
            arithmetic: self.arithmetic + times * other.arithmetic,
        }
    }

    /// The parts with their names.
    pub(super) fn parts(&self) -> [(&'static str, f64); 5] {
        [
            ("tensor cores", self.tensor),
            ("shared memory", self.shared),
            ("second-level cache", self.cache),
            ("special functions", self.special),
            ("arithmetic", self.arithmetic),
        ]
    }
}

/// Bytes that rings bring in a round of a block, and how many slots the smallest of them has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Filled {
    /// By the copy engine or asynchronous copies.
    pub(super) brought: f64,
    /// By whoever it is.
    pub(super) written: f64,
    pub(super) slots: Option<u32>,
}

impl Filled {
    pub(super) fn of(func: &Func, plan: &Plan, ops: &[Op]) -> Filled {
        let mut filled = Filled::default();
        for ring in &plan.rings {
            let here = |value: &Value| func.defining_op(*value).is_some_and(|op| ops.contains(&op));
            let Some(fill) = ring.fills.iter().find(|fill| fill.iter().any(here)) else { continue };
            let size: f64 = fill.iter().map(|&value| bytes(func, value)).sum();
            filled.written += size;
            if ring.by != RingProducer::Threads {
                filled.brought += size;
            }
            if size > 0.0 {
                filled.slots = Some(filled.slots.map_or(ring.slots, |slots| slots.min(ring.slots)));
            }
        }
        filled
    }

    /// Clocks from the start of a copy to where its slot is free again, where a round's products take so many and `goes_on` says that they go
    /// on into the next one.
    pub(super) fn held(&self, tensor: f64, goes_on: bool, arch: Arch, roles: bool) -> Option<f64> {
        let latency = |part: Part| arch.cost(part).and_then(|cost| cost.latency).map(f64::from);
        let (far, near) = (latency(Part::SecondCache)?, arch.cost(Part::SecondCache)?.per_clock?);
        let engine = if roles { latency(Part::CopyEngine)? } else { 0.0 };
        let turn = latency(Part::SlotTurn)?;
        Some(far + engine + turn + self.brought / f64::from(near) + if goes_on { 2.0 * tensor } else { tensor })
    }

    /// Products of a round go on while the next one's start (`carry`): rings need a slot more for it.
    pub(super) fn goes_on(&self, work: &Work, roles: bool) -> bool {
        roles && self.slots.is_some_and(|slots| slots > 2) && work.special + work.plain == 0.0
    }
}

/// Who issues the products of a plan, and how many of them read a factor each.
pub(super) fn issuers(plan: &Plan) -> (Issuer, u32) {
    let issuer = if plan.partitions.len() > 1 { Issuer::Warpgroup } else { Issuer::Warp };
    (issuer, plan.computing().warps.div_ceil(4))
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
    let (issuer, groups) = issuers(plan);
    let filled = Filled::of(func, plan, ops);
    // Bytes that no ring holds do not come ahead, and are no part of what a round keeps busy.
    let work = Work { loaded: filled.brought, ..Work::of(func, ops, arch, issuer, groups) };
    let busy = Busy::of(&work, filled.written, arch);
    let mut parts: Vec<(&'static str, f64)> = busy.parts().into_iter().filter(|part| part.1 > 0.0).collect();
    let roles = issuer == Issuer::Warpgroup;
    if let (Some(held), Some(slots)) = (filled.held(busy.tensor, filled.goes_on(&work, roles), arch, roles), filled.slots) {
        parts.push(("slots", held / f64::from(slots)));
    }
    Forecast { span: holder.map_or(func.span, |op| func.ops[op].span), parts }
}

/// Clocks for which a product holds the tensor cores; nothing where it has no instruction of the issuer's, or nobody has measured that.
pub(super) fn clocks(func: &Func, product: Op, arch: Arch, issuer: Issuer) -> Option<f64> {
    let data = &func.ops[product];
    let (lhs, out) = (func.ty(data.one(0)).as_tile()?, func.ty(data.result()).as_tile()?);
    let (&[.., m, n], &[.., k]) = (&out.shape[..], &lhs.shape[..]) else { return None };
    let factor: DType = lhs.elem.num()?;
    let row = arch.matrix_instructions(issuer, factor).next()?;
    let device = Device::ALL.iter().rfind(|device| device.arch == arch)?;
    let columns = *row.columns.last()?;
    let work = f64::from(m) * f64::from(n) * f64::from(k);
    // What warps reach by themselves was measured, where that is less than the product's peak.
    let measured = arch.cost(Part::WarpProduct).and_then(|cost| cost.per_clock).filter(|_| issuer == Issuer::Warp);
    if let Some(rate) = measured {
        return Some(work / f64::from(rate) * f64::from(factor.bits().max(16)) / 16.0);
    }
    let one = row.clocks(columns, device, out.elem.num()?)?;
    Some(one * f64::from(m) / f64::from(row.rows) * f64::from(n) / f64::from(columns) * f64::from(k) / f64::from(row.depth))
}

/// Sums of a product are added up beside the tensor cores.
fn is_promoted(func: &Func, product: Op) -> bool {
    let coarse = func.ty(func.ops[product].one(1)).num().is_some_and(is_coarse);
    coarse && !signs(&func.ops[product].kind).0
}

/// Bytes of a tile.
fn bytes(func: &Func, value: Value) -> f64 {
    let tile = func.ty(value).as_tile();
    tile.and_then(|tile| Some(tile.len() as f64 * f64::from(tile.elem.num()?.bits()) / 8.0)).unwrap_or(0.0)
}
