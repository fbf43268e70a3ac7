//! Operations of the Schedule dialect that are not control: the few that concern threads are done here, all others by the
//! Schedule executor.

use tessera_ir::{EntityId, Op, ScheduleOp, Span, Type};

use super::machine::{Machine, fault};
use super::mask::Mask;
use super::micro::{Feed, scalar_bytes};
use super::program::{is_lanes, mask_position};
use super::value::{Buffer, Data};
use crate::exec::{Ran, Range};

impl Machine<'_> {
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn schedule(&mut self, op: Op, kind: &ScheduleOp, active: &Mask) -> Ran<()> {
        let func = self.func;
        let data = &func.ops[op];
        match kind {
            // What has no operands is what it was in an earlier round.
            ScheduleOp::Constant { .. } | ScheduleOp::Iota {} if self.values[data.result().index()].is_some() => Ok(()),
            ScheduleOp::Constant { value } if func.ty(data.result()).is_scalar() => {
                let bits = match &value.data {
                    tessera_ir::ConstData::Splat(bits) => *bits,
                    tessera_ir::ConstData::Dense(items) => items.first().copied().unwrap_or(0),
                };
                let lanes = self.splat(bits, scalar_bytes(func.ty(data.result())));
                self.set(data.result(), Data::Lanes(lanes));
                Ok(())
            }
            ScheduleOp::GetTileBlockId { axis } => {
                let lanes = self.splat(u64::from(self.block[*axis as usize]), 4);
                self.set(data.result(), Data::Lanes(lanes));
                Ok(())
            }
            ScheduleOp::GetNumTileBlocks { axis } => {
                let lanes = self.splat(u64::from(self.grid[*axis as usize]), 4);
                self.set(data.result(), Data::Lanes(lanes));
                Ok(())
            }
            ScheduleOp::MakeTensorView {} => {
                let parts: Vec<Buffer> = data
                    .operands
                    .iter()
                    .map(|&part| {
                        let (lanes, size) = (self.lanes(part, data.span)?, scalar_bytes(func.ty(part)));
                        Ok(if size == 8 { lanes.clone() } else { widened(lanes, size, self.program.threads) })
                    })
                    .collect::<Ran<_>>()?;
                self.set(data.result(), Data::View(parts.into()));
                Ok(())
            }
            ScheduleOp::MakePartitionView {}
            | ScheduleOp::MakeStridedView {}
            | ScheduleOp::MakeGatherScatterView {}
            | ScheduleOp::Assume { .. } => {
                let same = self.data(data.operands[0], data.span)?.clone();
                self.set(data.result(), same);
                Ok(())
            }
            ScheduleOp::Reshape {}
            | ScheduleOp::Broadcast {}
            | ScheduleOp::Permute { .. }
            | ScheduleOp::Extract {}
            | ScheduleOp::Insert {}
                if is_lanes(func, data) =>
            {
                let same = self.data(data.operands[0], data.span)?.clone();
                self.set(data.result(), same);
                Ok(())
            }
            ScheduleOp::MakeToken {}
            | ScheduleOp::JoinTokens {}
            | ScheduleOp::GdcWaitTko {}
            | ScheduleOp::GdcLaunchDependentsTko {} => {
                self.set(data.result(), Data::Token);
                Ok(())
            }
            ScheduleOp::Alloca { count, .. } => {
                if self.values[data.result().index()].is_none() {
                    let bytes = *count as usize * pointee_bytes(func.ty(data.result()));
                    let start = self.allocate(op, bytes, 1);
                    self.memory.push(Range { start, end: start + bytes as u64 });
                    let lanes = self.splat(start, 8);
                    self.set(data.result(), Data::Lanes(lanes));
                }
                Ok(())
            }
            // SAFETY: passed on.
            ScheduleOp::PrintTko { .. } => unsafe { self.printed(op, active) },
            // SAFETY: passed on.
            _ if is_lanes(func, data) => unsafe { self.each_thread(op, kind, active) },
            _ => {
                let micro = self.program.micro(op).map_or(&[][..], |micro| &micro.captured);
                let operands = data.operands.iter().filter(|&&value| *func.ty(value) != Type::Token).chain(micro);
                let feeds: Vec<Feed> = operands.map(|&value| self.feed(value, active, data.span)).collect::<Ran<_>>()?;
                // SAFETY: passed on.
                let outputs = unsafe { self.delegate(op, feeds)? };
                self.bind(op, outputs, false);
                Ok(())
            }
        }
    }

    /// An operation on scalars, for all threads at once; memory is touched and conditions are looked at for active ones.
    ///
    /// Where no thread knows its number, the block runs one program: what it changes in memory by its old value, one thread changes
    /// for all.
    unsafe fn each_thread(&mut self, op: Op, kind: &ScheduleOp, active: &Mask) -> Ran<()> {
        let func = self.func;
        let data = &func.ops[op];
        let updates = matches!(kind, ScheduleOp::AtomicRmwTko { .. } | ScheduleOp::AtomicCasTko { .. });
        let one = if updates && !self.program.per_thread { active.iter().next() } else { None };
        let alone = Mask::of(one);
        let active = if one.is_some() { &alone } else { active };
        self.decides_all(data, kind, active)?;
        let divided = self.divided(data, kind, active)?;
        self.watch(data, kind, active)?;
        let mut feeds: Vec<Feed> = Vec::new();
        let masked = mask_position(kind);
        for position in 0..data.segments.len() {
            if masked == Some(position) {
                let given = data.optional(position).map(|value| self.lanes(value, data.span)).transpose()?;
                feeds.push(Feed::Tile(self.mask_lanes(active, given)));
                continue;
            }
            for &value in data.group(position).iter().filter(|&&value| *func.ty(value) != Type::Token) {
                let mut lanes = self.lanes(value, data.span)?.clone();
                // Who is not active asserts what is true.
                if matches!(kind, ScheduleOp::Assert { .. }) {
                    let size = scalar_bytes(func.ty(value));
                    let others = Mask::range(0, self.program.threads).without(active);
                    lanes.merge(&self.splat(1, size), size, &others);
                }
                feeds.push(Feed::Tile(lanes));
            }
        }
        // SAFETY: passed on.
        let mut outputs = unsafe { self.delegate(op, feeds)? };
        if let Some(one) = one {
            let numbers = data.results.iter().filter(|&&result| *func.ty(result) != Type::Token);
            for (output, &result) in outputs.iter_mut().zip(numbers) {
                let size = scalar_bytes(func.ty(result));
                *output = self.splat(output.get(one, size), size);
            }
        }
        if divided.is_some() {
            outputs.iter_mut().for_each(|output| output.divided.clone_from(&divided));
        }
        self.bind(op, outputs, true);
        Ok(())
    }

    /// Truth values: active, and given if there is a mask.
    pub(super) fn mask_lanes(&self, active: &Mask, given: Option<&Buffer>) -> Buffer {
        let mut lanes = Buffer::new(self.program.threads);
        let bytes = lanes.bytes_mut();
        for thread in active.iter() {
            bytes[thread] = given.map_or(1, |given| given.bytes()[thread] & 1);
        }
        lanes
    }

    /// Prints once where all threads have the same to say, else once a thread.
    unsafe fn printed(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let feeds = |machine: &Self, threads: &Mask| -> Ran<Vec<Feed>> {
            data.group(0).iter().map(|&value| machine.feed(value, threads, data.span)).collect()
        };
        if let Ok(feeds) = feeds(self, active) {
            // SAFETY: passed on.
            unsafe { self.delegate(op, feeds)? };
        } else {
            for thread in active.iter() {
                let feeds = feeds(self, &Mask::of([thread]))?;
                // SAFETY: passed on.
                unsafe { self.delegate(op, feeds)? };
            }
        }
        self.bind(op, Vec::new(), false);
        Ok(())
    }
}

/// Numbers of fewer bytes as 64-bit ones.
fn widened(lanes: &Buffer, size: usize, threads: usize) -> Buffer {
    let mut wide = Buffer::new(8 * threads);
    let bytes = wide.bytes_mut();
    for thread in 0..threads {
        bytes[8 * thread..8 * thread + 8].copy_from_slice(&lanes.get_signed(thread, size).to_le_bytes());
    }
    wide
}

pub(super) fn pointee_bytes(ty: &Type) -> usize {
    match super::micro::scalar_elem(ty) {
        Some(tessera_ir::Elem::Ptr(to)) => to.unpacked_bytes(),
        _ => 1,
    }
}

/// A part of a message: which threads.
pub(super) fn threads_text(threads: &Mask) -> String {
    let mut shown: Vec<String> = threads.iter().take(4).map(|thread| thread.to_string()).collect();
    if threads.len() > shown.len() {
        shown.push("...".to_string());
    }
    shown.join(", ")
}

/// All lanes of each warp that has an active one must be active.
pub(super) fn whole_warps(active: &Mask, threads: usize, span: Span) -> Ran<()> {
    for first in (0..threads).step_by(32) {
        let warp = Mask::range(first, (first + 32).min(threads));
        let here = warp.and(active);
        if !here.is_empty() && here != warp {
            let absent = threads_text(&warp.without(active));
            let message = format!("not all lanes of the warp come here: threads {absent} are elsewhere");
            return Err(fault("cpu-divergent", span, &message));
        }
    }
    Ok(())
}
