//! Operations of the Tile dialect.

use tessera_ir::attrs::ShuffleMode;
use tessera_ir::fragment::{Fragment, PER_LANE, SIDE, stored_places};
use tessera_ir::{EntityId, Op, OpData, Span, TileOp, Type, bug};

use super::divided::Divided;
use super::machine::{Machine, Step, fault};
use super::mask::Mask;
use super::micro::{Feed, scalar_bytes};
use super::schedule::{threads_text, whole_warps};
use super::value::{Buffer, Data};
use crate::exec::{Ran, misplaced};

/// What an operation makes of words or matrices.
const TOGETHER: &str = "what a warp makes of it";

impl Machine<'_> {
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn tile(&mut self, role: usize, op: Op, kind: &TileOp, active: &Mask) -> Ran<Step> {
        let func = self.func;
        let data = &func.ops[op];
        match kind {
            TileOp::ThreadId {}
            | TileOp::LaneId {}
            | TileOp::WarpId {}
            | TileOp::Worker {}
            | TileOp::Workers {}
            | TileOp::ClusterRank {}
            | TileOp::ClusterNumber {} => self.number(data, kind),
            TileOp::Workspace { .. } => self.workspace(op, data)?,
            TileOp::ClusterSum { .. } | TileOp::ClusterGather {} => self.meet(op, kind, active)?,
            TileOp::ConvertLayout {} | TileOp::Renew { .. } | TileOp::Vary {} => self.converted(data)?,

            TileOp::AllocShared { .. } => {
                if let Type::Shared(shared) = func.ty(data.result()) {
                    self.allocate_shared(op, shared);
                }
            }
            TileOp::AllocRegister {} => {
                if let Type::Registers(tile) = func.ty(data.result()) {
                    self.allocate_registers(op, tile);
                }
            }
            TileOp::SliceShared {} => self.slice(data, active)?,
            TileOp::SubviewShared { offsets } => self.subview(data, offsets)?,
            TileOp::TransposeShared { permutation } => self.transpose(data, permutation)?,
            TileOp::CollapseShared {} => self.collapse(data)?,
            TileOp::LoadShared {} => {
                let shared = self.shared(data.one(0), data.span)?;
                let tile = self.gather(&shared, self.common(&shared, active, data.span)?, data.span)?;
                self.bind(op, vec![tile], false);
            }
            TileOp::StoreShared { .. } => {
                let shared = self.shared(data.one(1), data.span)?;
                let value = match self.data(data.one(0), data.span)? {
                    Data::Lanes(lanes) => {
                        let size = scalar_bytes(func.ty(data.one(0)));
                        Buffer::splat(self.uniform(lanes, size, active, data.one(0), data.span)?, size, 1)
                    }
                    _ => self.whole(data.one(0), data.span)?.clone(),
                };
                self.scatter(&shared, self.common(&shared, active, data.span)?, &value);
            }
            TileOp::CopyShared {} => {
                let (from, to) = (self.shared(data.one(0), data.span)?, self.shared(data.one(1), data.span)?);
                let tile = self.gather(&from, self.common(&from, active, data.span)?, data.span)?;
                self.scatter(&to, self.common(&to, active, data.span)?, &tile);
            }
            TileOp::LoadElement {} => self.load_element(data, active)?,
            &TileOp::StoreElement { relaxed } => self.store_element(data, relaxed, active)?,
            TileOp::LoadVector { .. } => self.load_vector(data, active)?,
            TileOp::StoreVector { .. } => self.store_vector(data, active)?,
            // SAFETY: passed on.
            TileOp::AtomicElement { .. } => unsafe { self.update(op, 1, active)? },
            // SAFETY: passed on.
            TileOp::AtomicCasElement {} => unsafe { self.update(op, 2, active)? },

            // SAFETY: passed on.
            TileOp::WarpReduce { .. } => unsafe { self.warp_reduce(op, active)? },
            TileOp::Shuffle { mode } => self.shuffle(data, *mode, active)?,
            TileOp::MatchAny { bits } => self.match_any(data, *bits, active)?,
            TileOp::Popcount {} => self.popcount(data, active)?,
            // SAFETY: passed on.
            TileOp::MmaFragment { .. } | TileOp::MmaFragmentSparse { .. } => unsafe { self.fragments(op, kind, active)? },

            // Blocks of a cluster run one after the other: each brings for itself what they bring together.
            TileOp::Barrier {} | TileOp::ClusterBarrier {} => self.block_meets(role, active, data.span)?,
            TileOp::NamedBarrier { id, threads } => return self.named_barrier(role, (*id, *threads), true, active, data.span),
            TileOp::NamedArrive { id, threads } => return self.named_barrier(role, (*id, *threads), false, active, data.span),

            TileOp::CopyAsync { .. } => self.start_copy(role, op, active)?,
            TileOp::CopyAsyncElement { bytes } => self.start_elements(role, data, *bytes, active)?,
            TileOp::CommitGroup {} => self.commit_group(role, active),
            // SAFETY: passed on.
            TileOp::WaitGroup { pending } => unsafe { self.wait_group(role, *pending, active)? },

            TileOp::Ring { .. } => self.make_ring(op, kind)?,
            TileOp::RingStart {} => self.ring_start(data),
            TileOp::Advance {} => self.advance_cursor(data, 1)?,
            TileOp::Skip {} => self.skip(data, active)?,
            TileOp::Acquire {} => return self.acquire(role, data),
            &TileOp::Commit { bytes } => self.commit(role, data, bytes)?,
            // SAFETY: passed on.
            TileOp::Wait {} => return unsafe { self.wait_full(role, data) },
            TileOp::Release {} => self.release(data)?,
            TileOp::Slot { buffer } => self.slot(data, *buffer)?,

            TileOp::TmaLoad { .. } => self.tma_load(op, active)?,
            TileOp::TmaStore {} => self.start_store(role, op, active)?,
            // SAFETY: passed on.
            TileOp::SendTile {} | TileOp::StoreLines {} => unsafe { self.send(op, data, active)? },
            // SAFETY: passed on.
            TileOp::TmaStoreWait { pending, .. } => unsafe { self.wait_stores(role, *pending)? },

            // SAFETY: passed on.
            TileOp::MmaShared { .. } | TileOp::MmaSync { .. } | TileOp::WgmmaPromoted { .. } => unsafe {
                self.product(op, active)?
            },
            TileOp::Wgmma { .. } => self.start_product(role, op)?,
            // SAFETY: passed on.
            TileOp::WgmmaWait { pending } => unsafe { self.wait_products(role, data, *pending, active)? },

            // SAFETY: passed on.
            TileOp::Role { .. } => unsafe { self.roles(role, op)? },
            TileOp::FenceAsync {}
            | TileOp::ClusterArrive {}
            | TileOp::ClusterWait {}
            | TileOp::Mark { .. }
            | TileOp::Prefetch {}
            | TileOp::GroupTurn { .. } => {}
        }
        Ok(Step::Done)
    }

    /// The same tile in other threads.
    fn converted(&mut self, data: &OpData) -> Ran<()> {
        let same = self.data(data.one(0), data.span)?.clone();
        self.set(data.result(), same);
        Ok(())
    }

    /// The address of the launch's memory that an operation names.
    fn workspace(&mut self, op: Op, data: &OpData) -> Ran<()> {
        let known = self.workspaces.iter().find(|(named, _)| *named == op).map(|(_, range)| range.start);
        let start = known.ok_or_else(|| fault("cpu-value", data.span, "memory without an address"))?;
        let lanes = self.splat(start, 8);
        self.set(data.result(), Data::Lanes(lanes));
        Ok(())
    }

    /// A tile that warpgroups send: nobody can see that it arrives later, so it does at once.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn send(&mut self, op: Op, data: &OpData, active: &Mask) -> Ran<()> {
        let operands = [data.one(0), data.one(1)].into_iter().chain(data.group(2).iter().copied());
        let feeds: Vec<Feed> = operands.map(|value| self.feed(value, active, data.span)).collect::<Ran<_>>()?;
        // SAFETY: passed on.
        unsafe { self.delegate(op, feeds)? };
        Ok(())
    }

    /// Which thread, warp or block it is.
    fn number(&mut self, data: &OpData, kind: &TileOp) {
        let (worker, workers) = (self.block[0] as usize, self.workers as usize);
        let (rank, cluster) = (self.meeting.rank as usize, self.meeting.cluster as usize);
        match kind {
            TileOp::ThreadId {} => self.identity(data, |thread| thread),
            TileOp::LaneId {} => self.identity(data, |thread| thread % 32),
            TileOp::WarpId {} => self.identity(data, |thread| thread / 32),
            TileOp::Worker {} => self.identity(data, |_| worker),
            TileOp::Workers {} => self.identity(data, |_| workers),
            TileOp::ClusterRank {} => self.identity(data, |_| rank),
            TileOp::ClusterNumber {} => self.identity(data, |_| cluster),
            _ => bug!("{kind:?} is no number"),
        }
    }

    fn identity(&mut self, data: &OpData, of: impl Fn(usize) -> usize) {
        let mut lanes = Buffer::new(4 * self.program.threads);
        let bytes = lanes.bytes_mut();
        for thread in 0..self.program.threads {
            bytes[4 * thread..4 * thread + 4].copy_from_slice(&(of(thread) as u32).to_le_bytes());
        }
        self.set(data.result(), Data::Lanes(lanes));
    }

    /// An atomic update of elements of a buffer, which is the declared operand at `buffer`; the values stand before it.
    unsafe fn update(&mut self, op: Op, buffer: usize, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let shared = self.shared(data.one(buffer), data.span)?;
        let mut feeds = vec![Feed::Tile(self.addresses(&shared, data.group(buffer + 1), active, data.span)?)];
        for position in 0..buffer {
            let lanes = self.lanes(data.one(position), data.span)?;
            self.decides(lanes, active, data.span, "this update")?;
            feeds.push(Feed::Tile(lanes.clone()));
        }
        feeds.push(Feed::Tile(self.mask_lanes(active, None)));
        // SAFETY: passed on.
        let outputs = unsafe { self.delegate(op, feeds)? };
        self.bind(op, outputs, true);
        Ok(())
    }

    fn block_meets(&mut self, role: usize, active: &Mask, span: Span) -> Ran<()> {
        let alive = self.roles[role].alive;
        if *active != alive {
            let absent = threads_text(&alive.without(active));
            let message = format!("not all threads of the block come here: threads {absent} are elsewhere");
            return Err(fault("cpu-divergent", span, &message));
        }
        if let Some(races) = &mut self.races {
            races.barrier();
        }
        Ok(())
    }

    unsafe fn warp_reduce(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        self.warps_meet(active, data.span)?;
        let size = scalar_bytes(self.func.ty(data.one(0)));
        let mut lanes = self.lanes(data.one(0), data.span)?.clone();
        for bit in [16, 8, 4, 2, 1] {
            let other = self.taken(&lanes, size, |thread| thread ^ bit);
            let divided = Divided::of([&lanes, &other].into_iter().filter_map(|lanes| lanes.divided.as_deref().copied()));
            // SAFETY: passed on.
            let outputs = unsafe { self.delegate(op, [lanes, other].map(Feed::Tile))? };
            lanes = outputs.into_iter().next().unwrap_or_else(|| Buffer::new(size * self.program.threads));
            lanes.divided = divided;
        }
        self.values[data.result().index()] = Some(Data::Lanes(lanes));
        Ok(())
    }

    /// A product of each warp's matrices, whose elements its lanes hold.
    unsafe fn fragments(&mut self, op: Op, kind: &TileOp, active: &Mask) -> Ran<()> {
        if let TileOp::MmaFragmentSparse { .. } = kind {
            // SAFETY: passed on.
            return unsafe { self.sparse_fragments(op, active) };
        }
        let kinds = [Fragment::Lhs, Fragment::Rhs, Fragment::Acc];
        // SAFETY: passed on.
        unsafe {
            self.warps_products(op, active, |machine, first| {
                kinds.into_iter().enumerate().map(|(group, kind)| machine.matrix(op, group, kind, first)).collect()
            })
        }
    }

    /// The same with a left factor that is stored by half: each row of it by itself, with those rows of the right factor that it multiplies.
    unsafe fn sparse_fragments(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let side = SIDE as usize;
        let span = self.func.ops[op].span;
        // SAFETY: passed on.
        unsafe {
            self.warps_products(op, active, |machine, first| {
                let places = machine.matrix(op, 1, Fragment::Places, first)?;
                let right = machine.matrix(op, 2, Fragment::Rhs, first)?;
                // Bytes of a row of the right factor.
                let line = right.bytes().len() / (2 * side);
                let mut chosen = Buffer::new(side * side * line);
                let rows = chosen.bytes_mut().chunks_exact_mut(side * line);
                for (row, lines) in rows.enumerate() {
                    let word = places.get(row, 4) as u32;
                    let stored = stored_places(word).map_err(|four| misplaced(row, word, four, span))?;
                    for (to, from) in lines.chunks_exact_mut(line).zip(stored) {
                        to.copy_from_slice(&right.bytes()[from * line..][..line]);
                    }
                }
                let (left, sums) = (machine.matrix(op, 0, Fragment::Lhs, first)?, machine.matrix(op, 3, Fragment::Acc, first)?);
                Ok(vec![left, chosen, sums])
            })
        }
    }

    /// A matrix, row by row, or several of them one below the other, of which the lanes of the warp from `first` on hold a group of operands.
    fn matrix(&self, op: Op, group: usize, kind: Fragment, first: usize) -> Ran<Buffer> {
        let data = &self.func.ops[op];
        let values = data.group(group);
        let size = scalar_bytes(self.func.ty(values[0]));
        let (each, columns) = match kind {
            Fragment::Places => (SIDE as usize, 1),
            Fragment::Lhs | Fragment::Rhs | Fragment::Acc => ((SIDE * SIDE) as usize, SIDE),
        };
        let mut matrix = Buffer::new(size * each * values.len() / kind.per_lane());
        for (at, &value) in values.iter().enumerate() {
            let lanes = self.lanes(value, data.span)?;
            self.decides(lanes, &Mask::range(first, first + 32), data.span, TOGETHER)?;
            let (below, at) = (at / kind.per_lane() * each, at % kind.per_lane());
            for lane in 0..32 {
                let [row, column] = kind.element(8 * size as u32, at).place(lane as u32);
                let to = (below + (row * columns + column) as usize) * size;
                let from = (first + lane) * size;
                matrix.bytes_mut()[to..to + size].copy_from_slice(&lanes.bytes()[from..from + size]);
            }
        }
        Ok(matrix)
    }

    /// What an operation makes of each warp's matrices, which `factors` gathers: 16 x 16 sums, whose elements the lanes get.
    unsafe fn warps_products(&mut self, op: Op, active: &Mask, factors: impl Fn(&Self, usize) -> Ran<Vec<Buffer>>) -> Ran<()> {
        let data = &self.func.ops[op];
        let threads = self.program.threads;
        self.warps_meet(active, data.span)?;
        let size = scalar_bytes(self.func.ty(data.results[0]));
        let mut outputs = vec![Buffer::new(size * threads); PER_LANE];
        for first in (0..threads).step_by(32).filter(|&first| active.iter().any(|thread| thread / 32 == first / 32)) {
            let feeds = factors(self, first)?.into_iter().map(Feed::Tile);
            // SAFETY: passed on.
            let product = unsafe { self.delegate(op, feeds)? };
            for (at, output) in outputs.iter_mut().enumerate() {
                for lane in 0..32 {
                    let [row, column] = Fragment::Acc.element(8 * size as u32, at).place(lane as u32);
                    let from = (row * SIDE + column) as usize * size;
                    let to = (first + lane) * size;
                    output.bytes_mut()[to..to + size].copy_from_slice(&product[0].bytes()[from..from + size]);
                }
            }
        }
        self.bind(op, outputs, true);
        Ok(())
    }

    /// What a warp does together, all its lanes come to.
    fn warps_meet(&mut self, active: &Mask, span: Span) -> Ran<()> {
        whole_warps(active, self.program.threads, span)?;
        if let Some(races) = &mut self.races {
            races.warps_met(active);
        }
        Ok(())
    }

    /// Each thread's element from another thread.
    fn taken(&self, lanes: &Buffer, size: usize, from: impl Fn(usize) -> usize) -> Buffer {
        let mut moved = Buffer::new(size * self.program.threads);
        let bytes = moved.bytes_mut();
        for thread in 0..self.program.threads {
            let from = from(thread) * size;
            bytes[thread * size..(thread + 1) * size].copy_from_slice(&lanes.bytes()[from..from + size]);
        }
        moved.divided = lanes.divided.as_deref().and_then(|divided| {
            let threads = (0..self.program.threads).filter(|&thread| divided.threads.contains(from(thread)));
            Divided::of([Divided { threads: Mask::of(threads), ..*divided }])
        });
        moved
    }

    fn shuffle(&mut self, data: &OpData, mode: ShuffleMode, active: &Mask) -> Ran<()> {
        self.warps_meet(active, data.span)?;
        let size = scalar_bytes(self.func.ty(data.one(0)));
        let lanes = self.lanes(data.one(0), data.span)?;
        let chosen = self.lanes(data.one(1), data.span)?;
        // The hardware looks at the low five bits of the operand.
        let moved = self.taken(lanes, size, |thread| {
            let (lane, by) = (thread % 32, chosen.get(thread, 4) as usize % 32);
            let from = match mode {
                ShuffleMode::Index => Some(by),
                ShuffleMode::Up => lane.checked_sub(by),
                ShuffleMode::Down => Some(lane + by).filter(|&from| from < 32),
                ShuffleMode::Xor => Some(lane ^ by),
            };
            thread - lane + from.unwrap_or(lane)
        });
        self.set(data.result(), Data::Lanes(moved));
        Ok(())
    }

    fn match_any(&mut self, data: &OpData, bits: u32, active: &Mask) -> Ran<()> {
        self.warps_meet(active, data.span)?;
        let words = self.words(data, active)?;
        let compared = u32::MAX >> (32 - bits);
        let mut found = Vec::with_capacity(words.len());
        for warp in words.chunks(32) {
            for own in warp {
                let is_same = |other: &u32| (own ^ other) & compared == 0;
                found.push(warp.iter().enumerate().fold(0, |lanes, (lane, other)| lanes | u32::from(is_same(other)) << lane));
            }
        }
        self.set_words(data, &found);
        Ok(())
    }

    fn popcount(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let counts: Vec<u32> = self.words(data, active)?.into_iter().map(u32::count_ones).collect();
        self.set_words(data, &counts);
        Ok(())
    }

    /// An operation's operand, an integer of 32 bits a thread.
    fn words(&self, data: &OpData, active: &Mask) -> Ran<Vec<u32>> {
        let lanes = self.lanes(data.one(0), data.span)?;
        self.decides(lanes, active, data.span, TOGETHER)?;
        Ok((0..self.program.threads).map(|thread| lanes.get(thread, 4) as u32).collect())
    }

    fn set_words(&mut self, data: &OpData, words: &[u32]) {
        let mut lanes = Buffer::new(4 * words.len());
        for (bytes, word) in lanes.bytes_mut().chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.set(data.result(), Data::Lanes(lanes));
    }
}
