//! Operations of the Tile dialect.

use tessera_ir::attrs::ShuffleMode;
use tessera_ir::fragment::{Fragment, PER_LANE, SIDE};
use tessera_ir::{EntityId, Op, OpData, TileOp, Type, bug};

use super::machine::{Machine, Step, fault};
use super::mask::Mask;
use super::micro::{Feed, scalar_bytes};
use super::schedule::{threads_text, whole_warps};
use super::value::{Buffer, Data};
use crate::exec::Ran;

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
            TileOp::ConvertLayout {} => self.converted(data)?,

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
            TileOp::StoreElement {} => self.store_element(data, active)?,
            TileOp::LoadVector { .. } => self.load_vector(data, active)?,
            TileOp::StoreVector { .. } => self.store_vector(data, active)?,
            // SAFETY: passed on.
            TileOp::AtomicElement { .. } => unsafe { self.update(op, 1, active)? },
            // SAFETY: passed on.
            TileOp::AtomicCasElement {} => unsafe { self.update(op, 2, active)? },

            // SAFETY: passed on.
            TileOp::WarpReduce { .. } => unsafe { self.warp_reduce(op, active)? },
            TileOp::Shuffle { mode } => self.shuffle(data, *mode, active)?,
            // SAFETY: passed on.
            TileOp::MmaFragment { .. } => unsafe { self.fragments(op, active)? },

            // Blocks of a cluster run one after the other: each brings for itself what they bring together.
            TileOp::Barrier {} | TileOp::ClusterBarrier {} => {
                let alive = self.roles[role].alive;
                if *active != alive {
                    let absent = threads_text(&alive.without(active));
                    let message = format!("not all threads of the block come here: threads {absent} are elsewhere");
                    return Err(fault("cpu-divergent", data.span, &message));
                }
            }
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
            TileOp::Commit {} => self.commit(role, data)?,
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
            feeds.push(Feed::Tile(self.lanes(data.one(position), data.span)?.clone()));
        }
        feeds.push(Feed::Tile(self.mask_lanes(active, None)));
        // SAFETY: passed on.
        let outputs = unsafe { self.delegate(op, feeds)? };
        self.bind(op, outputs, true);
        Ok(())
    }

    unsafe fn warp_reduce(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        whole_warps(active, self.program.threads, data.span)?;
        let size = scalar_bytes(self.func.ty(data.one(0)));
        let mut lanes = self.lanes(data.one(0), data.span)?.clone();
        for bit in [16, 8, 4, 2, 1] {
            let other = self.taken(&lanes, size, |thread| thread ^ bit);
            // SAFETY: passed on.
            let outputs = unsafe { self.delegate(op, [lanes, other].map(Feed::Tile))? };
            lanes = outputs.into_iter().next().unwrap_or_else(|| Buffer::new(size * self.program.threads));
        }
        self.values[data.result().index()] = Some(Data::Lanes(lanes));
        Ok(())
    }

    /// A product of each warp's matrices, whose elements its lanes hold.
    unsafe fn fragments(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let threads = self.program.threads;
        whole_warps(active, threads, data.span)?;
        let size = |position: usize| scalar_bytes(self.func.ty(data.group(position)[0]));
        let sizes = [size(0), size(1), size(2)];
        let kinds = [Fragment::Lhs, Fragment::Rhs, Fragment::Acc];
        let mut outputs = vec![Buffer::new(sizes[2] * threads); PER_LANE];
        for first in (0..threads).step_by(32).filter(|&first| active.iter().any(|thread| thread / 32 == first / 32)) {
            let mut feeds = Vec::new();
            for (position, (&size, kind)) in sizes.iter().zip(kinds).enumerate() {
                let mut matrix = Buffer::new(size * (SIDE * SIDE) as usize);
                for (at, &value) in data.group(position).iter().enumerate() {
                    let lanes = self.lanes(value, data.span)?;
                    for lane in 0..32 {
                        let to = offset(kind, 8 * size, at, lane) * size;
                        let from = (first + lane) * size;
                        matrix.bytes_mut()[to..to + size].copy_from_slice(&lanes.bytes()[from..from + size]);
                    }
                }
                feeds.push(Feed::Tile(matrix));
            }
            // SAFETY: passed on.
            let product = unsafe { self.delegate(op, feeds)? };
            for (at, output) in outputs.iter_mut().enumerate() {
                for lane in 0..32 {
                    let from = offset(Fragment::Acc, 8 * sizes[2], at, lane) * sizes[2];
                    let to = (first + lane) * sizes[2];
                    output.bytes_mut()[to..to + sizes[2]].copy_from_slice(&product[0].bytes()[from..from + sizes[2]]);
                }
            }
        }
        self.bind(op, outputs, true);
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
        moved
    }

    fn shuffle(&mut self, data: &OpData, mode: ShuffleMode, active: &Mask) -> Ran<()> {
        whole_warps(active, self.program.threads, data.span)?;
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
}

/// The number, row by row, of an element of a lane's in its matrix.
fn offset(kind: Fragment, bits: usize, element: usize, lane: usize) -> usize {
    let [row, column] = kind.element(bits as u32, element).place(lane as u32);
    (row * SIDE + column) as usize
}
