//! Slots of rings and named barriers: who uses a slot when, and how many must come.
//!
//! | id | mistake |
//! |---|---|
//! | `sync-slot` | a slot is read before anybody has waited for it, or after it was given back |
//! | `sync-bytes` | what is loaded into a slot is not what the ring waits for: the slot never becomes full |
//! | `sync-arrivals` | fewer come than are waited for |
//!
//! Invariant: what is reported is wrong on every way that comes there. A slot that another name than the one waited for stands for is not looked at.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Diagnostic, Func, Op, OpData, OpKind, TileOp, Value};
use tessera_types::Arch;

/// The mistakes in a function, in order.
pub(super) fn mistakes(func: &Func) -> Vec<Diagnostic> {
    let has = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::Ring { .. } | TileOp::NamedBarrier { .. }));
    if !func.linked_ops().iter().any(has) {
        return Vec::new();
    }
    let mut check = Check { func, found: Vec::new(), releases: FxHashMap::default(), arrivals: BTreeMap::new() };
    check.block(func.body, func.hints.warps(), &mut FxHashSet::default());
    check.counts();
    check.found
}

struct Check<'f> {
    func: &'f Func,
    found: Vec<Diagnostic>,
    /// Operations that give slots of a ring back.
    releases: FxHashMap<Value, Vec<Op>>,
    /// Who comes to each named barrier.
    arrivals: BTreeMap<u32, Vec<Arrival>>,
}

/// Threads that come to a named barrier.
#[derive(Clone, Copy)]
struct Arrival {
    op: Op,
    /// For how many threads they say that it opens.
    wanted: u32,
    come: u32,
    waits: bool,
}

impl Check<'_> {
    /// `ready` are rings that the threads here have waited for or may fill.
    fn block(&mut self, block: Block, warps: u32, ready: &mut FxHashSet<Value>) {
        let func = self.func;
        let mut released: Vec<(Value, Value, Op)> = Vec::new();
        let mut loaded: FxHashMap<(Value, Value), u64> = FxHashMap::default();
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            self.reads(data, ready, &released);
            match &data.kind {
                OpKind::Tile(TileOp::Wait {} | TileOp::Acquire {}) => {
                    ready.insert(data.one(0));
                }
                OpKind::Tile(TileOp::Release {}) => {
                    released.push((data.one(0), data.one(1), op));
                    self.releases.entry(data.one(0)).or_default().push(op);
                }
                OpKind::Tile(TileOp::TmaLoad { .. }) => {
                    let ty = func.ty(data.one(2)).the_shared();
                    let bytes = ty.tile().len() as u64 * ty.elem.unpacked_bytes() as u64;
                    *loaded.entry((data.one(3), data.one(4))).or_default() += bytes;
                }
                &OpKind::Tile(TileOp::Commit { bytes: wanted }) => {
                    if let Some(&bytes) = loaded.get(&(data.one(0), data.one(1))) {
                        self.filled(data, (bytes, wanted));
                    }
                }
                OpKind::Tile(TileOp::NamedBarrier { id, threads }) => {
                    self.handed_over(data, ready);
                    let arrival = Arrival { op, wanted: *threads, come: warps * Arch::WARP, waits: true };
                    self.arrivals.entry(*id).or_default().push(arrival);
                }
                OpKind::Tile(TileOp::NamedArrive { id, threads }) => {
                    let arrival = Arrival { op, wanted: *threads, come: warps * Arch::WARP, waits: false };
                    self.arrivals.entry(*id).or_default().push(arrival);
                }
                _ => {}
            }
            let OpKind::Tile(TileOp::Role { warps, .. }) = data.kind else {
                if !data.regions.is_empty() {
                    loaded.clear();
                    // A round may have waited for what a later one reads.
                    self.waited(data, ready);
                }
                data.regions.iter().for_each(|&region| self.block(region, warps, ready));
                continue;
            };
            self.block(data.regions[0], warps, &mut ready.clone());
        }
    }

    /// Adds the rings that are waited for in an operation's regions.
    fn waited(&self, data: &OpData, ready: &mut FxHashSet<Value>) {
        for op in data.regions.iter().flat_map(|&region| &self.func.blocks[region].ops) {
            let inner = &self.func.ops[*op];
            if matches!(inner.kind, OpKind::Tile(TileOp::Wait {} | TileOp::Acquire {})) {
                ready.insert(inner.one(0));
            }
            self.handed_over(inner, ready);
            self.waited(inner, ready);
        }
    }

    /// Others may have waited who are met at a named barrier.
    fn handed_over(&self, data: &OpData, ready: &mut FxHashSet<Value>) {
        if matches!(data.kind, OpKind::Tile(TileOp::NamedBarrier { .. })) {
            let rings = self.func.linked_ops().into_iter().map(|op| &self.func.ops[op]);
            ready.extend(rings.filter(|made| matches!(made.kind, OpKind::Tile(TileOp::Ring { .. }))).map(OpData::result));
        }
    }

    /// The ring and the position that a buffer is a slot of.
    fn slot(&self, buffer: Value) -> Option<(Value, Value)> {
        let data = &self.func.ops[self.func.defining_op(buffer)?];
        match data.kind {
            OpKind::Tile(TileOp::Slot { .. }) => Some((data.one(0), data.one(1))),
            OpKind::Tile(
                TileOp::SliceShared {}
                | TileOp::SubviewShared { .. }
                | TileOp::TransposeShared { .. }
                | TileOp::CollapseShared {},
            ) => self.slot(data.one(0)),
            _ => None,
        }
    }

    fn reads(&mut self, data: &OpData, ready: &FxHashSet<Value>, released: &[(Value, Value, Op)]) {
        let touches = self.func.touches(data);
        for (ring, cursor) in touches.iter().filter(|touch| touch.effect.reads()).filter_map(|touch| self.slot(touch.value)) {
            let name = data.row().mnemonic;
            let made = self.func.defining_op(ring).map(|op| self.func.ops[op].span);
            let error = if let Some(&(.., op)) = released.iter().find(|&&(other, at, _)| (other, at) == (ring, cursor)) {
                let error =
                    Diagnostic::error("sync-slot", data.span, format!("`{name}` reads a slot that was given back before"));
                let error = error.also(self.func.ops[op].span, "from here on it may be filled again");
                error.help("put `tile.release` behind the last operation that reads the slot")
            } else if !ready.contains(&ring) {
                let error = Diagnostic::error("sync-slot", data.span, format!("`{name}` reads a slot before it was filled"));
                let error = made.into_iter().fold(error, |error, span| error.also(span, "the ring is made here"));
                error.help("put `tile.wait` for the slot before this")
            } else {
                continue;
            };
            self.found.push(error);
            return;
        }
    }

    /// A slot that the accelerator fills becomes full by as many bytes as the ring says.
    fn filled(&mut self, data: &OpData, (bytes, own): (u64, Option<u32>)) {
        let Some(made) = self.func.defining_op(data.one(0)).map(|op| &self.func.ops[op]) else { return };
        let OpKind::Tile(TileOp::Ring { producer: RingProducer::Tma, bytes: wanted, .. }) = made.kind else { return };
        let wanted = own.unwrap_or(wanted);
        if bytes != u64::from(wanted) {
            let message = format!("{bytes} bytes are loaded into a slot that {wanted} make full: who waits for it never goes on");
            let error = Diagnostic::error("sync-bytes", data.span, message).also(made.span, "the ring is made here");
            self.found.push(error.help(format!("make the ring with `bytes={bytes}`")));
        }
    }

    /// Whether as many come to rings and barriers as these wait for.
    fn counts(&mut self) {
        for op in self.func.linked_ops() {
            let data = &self.func.ops[op];
            let OpKind::Tile(TileOp::Ring { consumers, .. }) = data.kind else { continue };
            let come = self.releases.get(&data.result()).map_or(0, |ops| ops.len() as u32);
            if come > 0 && come < consumers {
                let message = format!("a slot is free again after {consumers} releases, and {come} operations release it");
                let error = Diagnostic::error("sync-arrivals", data.span, message);
                let at = self.func.ops[self.releases[&data.result()][0]].span;
                self.found.push(error.also(at, "it is released here").help(format!("make the ring with `consumers={come}`")));
            }
        }
        for (id, arrivals) in &self.arrivals {
            for &Arrival { op, wanted, .. } in arrivals {
                // A barrier may be used with another number when all have gone on.
                let with = arrivals.iter().filter(|other| other.wanted == wanted);
                let (all, waits) = with.fold((0, true), |(all, wait), other| (all + other.come, wait && other.waits));
                if waits && all < wanted {
                    let message = format!("barrier {id} opens for {wanted} threads, and only {all} come to it");
                    let error = Diagnostic::error("sync-arrivals", self.func.ops[op].span, message);
                    self.found.push(error.help(format!("write `threads={all}`")));
                }
            }
        }
    }
}
