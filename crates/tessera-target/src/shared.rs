//! Buffers in shared memory, and arrays of each thread's own, which lie there too: element `i` of thread `t` at
//! `i * threads + t`, so that a warp's accesses meet no bank twice.
//!
//! `memory-management` has given buffers their places. Address bits are mixed in absolute addresses; a mixed
//! buffer is aligned to the span of its pattern, so that offsets in it mix the same way.

use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Const, Elem, Op, OpData, OpKind, ScheduleOp, Swizzle, TileOp, Type, Value};
use tessera_layout::Distribution;
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, CacheOptions, Guard, Value as Reg};
use tessera_types::Arch;

use super::atomic::Update;
use super::bound::{Bound, Buffer, Entry, Regs};
use super::lowering::{Lowered, Lowering};
use super::memory::{Space, access_words};
use super::operation::astray;
use super::place::{Inside, Place};
use super::scratch::moved_as;
use super::view::{Ends, Run};
use tessera_analysis::arrangement::Arrangement;
use tessera_analysis::room::{GATHER_SLOTS, LEAST_ALIGN, SUM_BARRIERS, buffer_align, buffer_bytes, gathered_bytes};
use tessera_analysis::sent;

impl Lowering<'_> {
    /// Finds the place of everything that the function allocates: buffers have theirs from `memory-management`; what has none
    /// (without that pass, all buffers; arrays of threads; the barriers of rings) follows behind, and lives as long as the block.
    pub(super) fn reserve_buffers(&mut self) -> Lowered<()> {
        let (mut end, mut behind) = (0u64, Vec::new());
        for op in self.func.linked_ops() {
            let data = self.data(op);
            let (bytes, align) = match (&data.kind, data.results.first().map(|&result| self.func.ty(result))) {
                (OpKind::Tile(TileOp::AllocShared { align, offset }), Some(Type::Shared(ty))) => {
                    if let Some(offset) = offset {
                        self.scratch.offsets.insert(op, u64::from(*offset));
                        end = end.max(u64::from(*offset) + buffer_bytes(ty));
                        continue;
                    }
                    (buffer_bytes(ty), buffer_align(ty, *align))
                }
                (OpKind::Tile(TileOp::AllocRegister {}), Some(Type::Registers(tile))) => {
                    let threads = u64::from(self.team.warps * Arch::WARP);
                    (tile.len() as u64 * tile.elem.bytes() * threads, 16)
                }
                (OpKind::Tile(TileOp::Ring { stages, .. }), _) => (16 * u64::from(*stages), 16),
                (OpKind::Tile(TileOp::ClusterSum { .. }), _) => (SUM_BARRIERS, LEAST_ALIGN),
                (OpKind::Tile(TileOp::ClusterGather {}), Some(ty)) => (gathered_bytes(ty.the_tile()), GATHER_SLOTS),
                (OpKind::Tile(TileOp::SendTile {} | TileOp::StoreLines {}), _) => {
                    let warps = self.layout(data.one(0))?.warps();
                    (sent::staging_bytes(warps), sent::STAGING_ALIGN)
                }
                (OpKind::Schedule(ScheduleOp::Alloca { count, align }), Some(ty)) => {
                    let pointee = match ty.the_tile().elem {
                        Elem::Ptr(to) | Elem::Num(to) => to.unpacked_bytes() as u64,
                    };
                    (u64::from(*count) * pointee, u64::from(*align).max(16))
                }
                _ => continue,
            };
            behind.push((op, bytes, align));
        }
        for (op, bytes, align) in behind {
            end = end.next_multiple_of(align);
            self.scratch.offsets.insert(op, end);
            end += bytes;
        }
        self.scratch.reserved = end.next_multiple_of(128);
        Ok(())
    }

    /// The address of what an operation allocates.
    pub(super) fn reserved(&mut self, op: Op) -> Lowered<Reg> {
        let offset = *self.scratch.offsets.get(&op).ok_or_else(|| self.broken("a buffer without a place"))?;
        let base = self.shared_base();
        let offset = self.b.u32(offset as u32);
        Ok(self.b.add(Ty::U32, base, offset))
    }

    /// Lowers an operation on buffers.
    pub(super) fn shared(&mut self, op: Op, data: &OpData, kind: &TileOp) -> Lowered<()> {
        match kind {
            TileOp::AllocShared { .. } => {
                let base = self.reserved(op)?;
                let Type::Shared(ty) = self.func.ty(data.result()) else { return Err(self.broken("no buffer")) };
                self.bind(data.result(), Bound::Buffer(Buffer::whole(base, ty)));
            }
            TileOp::AllocRegister {} => self.alloc_register(op, data)?,
            TileOp::SliceShared {} => {
                let buffer = self.buffer(data.one(0))?;
                let index = data.one(1);
                let buffer = match self.func.constant(index).and_then(Const::splat_bits) {
                    Some(number) => {
                        let start = number as u32 * buffer.entry_bytes() as u32;
                        self.further(&buffer, start, buffer.lies.clone().entry())
                    }
                    None => {
                        let index = self.index_in_shared(index)?;
                        self.slice(&buffer, index)
                    }
                };
                self.bind(data.result(), Bound::Buffer(buffer));
            }
            TileOp::SubviewShared { offsets } => {
                let buffer = self.buffer(data.one(0))?;
                let Type::Shared(ty) = self.func.ty(data.result()) else { return Err(self.broken("no buffer")) };
                let buffer = self.subview(&buffer, offsets, &ty.shape)?;
                self.bind(data.result(), Bound::Buffer(buffer));
            }
            TileOp::TransposeShared { permutation } => {
                let Buffer { base, lies, entry } = self.buffer(data.one(0))?;
                let buffer = Buffer { base, lies: lies.permuted(permutation), entry };
                self.bind(data.result(), Bound::Buffer(buffer));
            }
            TileOp::CollapseShared {} => {
                let Buffer { base, lies, entry } = self.buffer(data.one(0))?;
                let Type::Shared(ty) = self.func.ty(data.result()) else { return Err(self.broken("no buffer")) };
                let lies = lies
                    .collapsed(&ty.shape)
                    .ok_or_else(|| self.unsupported("axes that do not lie one behind the other are no one axis"))?;
                self.bind(data.result(), Bound::Buffer(Buffer { base, lies, entry }));
            }
            TileOp::LoadShared {} => {
                let buffer = self.buffer(data.one(0))?;
                let layout = self.layout(data.result())?;
                let by_matrices = buffer.matrix_load(&layout).and_then(|_| self.load_matrices(&buffer, &layout));
                let regs = by_matrices.unwrap_or_else(|| self.load_buffer(&buffer, &layout));
                self.bind_regs(data.result(), regs);
            }
            TileOp::StoreShared { matrices } => {
                let buffer = self.buffer(data.one(1))?;
                let (layout, regs) = (self.layout(data.one(0))?, self.regs(data.one(0))?);
                if !*matrices {
                    self.store_buffer(&buffer, &layout, &regs);
                } else if !self.store_matrices(&buffer, 0, &layout, &regs) {
                    return Err(self.unsupported("the tile and the buffer are not made of `stmatrix`'s matrices"));
                }
            }
            TileOp::CopyShared {} => self.copy_shared(data)?,
            TileOp::LoadElement {} => {
                let (buffer, address) = self.chosen(data.one(0), data.group(1))?;
                let value = self.take(Elem::Num(buffer.elem), address);
                self.bind_regs(data.result(), [value]);
            }
            TileOp::StoreElement { relaxed } => {
                let value = self.reg(data.one(0))?;
                let (buffer, address) = self.chosen(data.one(1), data.group(2))?;
                let elem = Elem::Num(buffer.elem);
                if *relaxed {
                    let value = self.stored_element(elem, value);
                    self.b.st("relaxed.cta.shared", moved_as(elem), address, value);
                } else {
                    self.put(elem, address, value, None);
                }
            }
            TileOp::AtomicElement { mode } => {
                let value = self.reg(data.one(0))?;
                let (buffer, address) = self.chosen(data.one(1), data.group(2))?;
                let words = "shared".to_string();
                let update = Update { words, dtype: buffer.elem, mode: *mode, address, expected: None, value, when: None };
                self.bind_update(data.result(), &update)?;
            }
            TileOp::AtomicCasElement {} => {
                let (expected, value) = (self.reg(data.one(0))?, self.reg(data.one(1))?);
                let (buffer, address) = self.chosen(data.one(2), data.group(3))?;
                let mode = tessera_ir::attrs::AtomicMode::Xchg;
                let words = "shared".to_string();
                let update = Update { words, dtype: buffer.elem, mode, address, expected: Some(expected), value, when: None };
                self.bind_update(data.result(), &update)?;
            }
            TileOp::CopyAsync { bypass_l1, cache, lines } => self.copy_async(data, (*bypass_l1, *cache, *lines))?,
            TileOp::CopyAsyncElement { bytes } => self.copy_async_element(data, *bytes)?,
            TileOp::CommitGroup {} => {
                if self.arch.has_cp_async() {
                    self.b.cp_async_commit();
                }
            }
            TileOp::WaitGroup { pending } => {
                if self.arch.has_cp_async() {
                    self.b.cp_async_wait(*pending);
                }
            }
            _ => astray(kind),
        }
        Ok(())
    }

    /// The block of a buffer at some offsets.
    fn subview(&mut self, buffer: &Buffer, offsets: &[u32], shape: &[u32]) -> Lowered<Buffer> {
        let Some((lies, start)) = buffer.lies.clone().block(offsets, shape) else {
            return Err(self.unsupported("a part of a swizzled buffer begins within a line's slab"));
        };
        Ok(self.further(buffer, start as u32, lies))
    }

    /// What begins so many bytes behind a buffer's begin.
    fn further(&mut self, buffer: &Buffer, bytes: u32, lies: Arrangement) -> Buffer {
        let bytes = self.b.u32(bytes);
        let entry = buffer.entry.map(|entry| Entry { first: self.b.add(Ty::U32, entry.first, bytes), ..entry });
        Buffer { base: self.b.add(Ty::U32, buffer.base, bytes), lies, entry }
    }

    /// Some neighbours along an axis of a buffer.
    pub(super) fn part(&mut self, buffer: &Buffer, axis: usize, first: u64, count: u64) -> Lowered<Buffer> {
        let (mut offsets, mut shape) = (vec![0; buffer.shape.len()], buffer.shape.clone());
        offsets[axis] = first as u32;
        shape[axis] = count as u32;
        self.subview(buffer, &offsets, &shape)
    }

    fn bind_update(&mut self, result: Value, update: &Update) -> Lowered<()> {
        let wanted = self.is_used(result);
        let old = self.update(update, wanted)?;
        let zero = self.bits(Elem::Num(update.dtype), 0);
        self.bind_regs(result, [old.unwrap_or(zero)]);
        Ok(())
    }

    fn alloc_register(&mut self, op: Op, data: &OpData) -> Lowered<()> {
        let Type::Registers(tile) = self.func.ty(data.result()) else { return Err(self.broken("no array")) };
        let Elem::Num(elem) = tile.elem else { return Err(self.unsupported("an array of pointers has no place")) };
        let threads = u64::from(self.team.warps * Arch::WARP);
        let base = self.reserved(op)?;
        let (thread, bytes) = (self.b.special(tessera_ptx::Special::TidX), self.b.u32(elem.unpacked_bytes() as u32));
        let base = self.b.mad(Ty::U32, thread, bytes, base);
        let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(threads, tile.shape.len());
        for dim in (0..tile.shape.len().saturating_sub(1)).rev() {
            strides[dim] = strides[dim + 1] * u64::from(tile.shape[dim + 1]);
        }
        let align = elem.unpacked_bytes() as u64;
        let lies = Arrangement { strides, swizzle: Swizzle::NONE, shape: tile.shape.clone(), elem, align, slabs: None };
        self.bind(data.result(), Bound::Array(Buffer { base, lies, entry: None }));
        Ok(())
    }

    /// A scalar integer in 32 bits.
    pub(super) fn index_in_shared(&mut self, value: Value) -> Lowered<Reg> {
        Ok(match self.index32(value)? {
            Some(index) => index,
            None => {
                let wide = self.index64(value)?;
                self.b.cvt(Ty::U32, Ty::U64, wide)
            }
        })
    }

    /// A buffer and the address of the element that the thread names.
    pub(super) fn chosen(&mut self, buffer: Value, indices: &[Value]) -> Lowered<(Buffer, Address)> {
        let (buffer, address) = self.unmixed(buffer, indices)?;
        let address = self.mixed(buffer.swizzle, address);
        Ok((buffer, address.into()))
    }

    /// The same before swizzling.
    pub(super) fn unmixed(&mut self, buffer: Value, indices: &[Value]) -> Lowered<(Buffer, Reg)> {
        let buffer = self.buffer(buffer)?;
        let mut address = buffer.base;
        for (axis, &index) in indices.iter().enumerate() {
            let index = self.index_in_shared(index)?;
            address = self.along(&buffer, axis, index, address);
        }
        Ok((buffer, address))
    }

    /// An address moved by so many elements along an axis.
    pub(super) fn along(&mut self, buffer: &Buffer, axis: usize, index: Reg, address: Reg) -> Reg {
        let size = self.b.u32((buffer.strides[axis] * buffer.elem.unpacked_bytes() as u64) as u32);
        let Some(slabs) = buffer.slabs.filter(|slabs| slabs.axis == axis) else {
            return self.b.mad(Ty::U32, index, size, address);
        };
        let (count, mask) = (self.b.u32(slabs.elements.trailing_zeros()), self.b.u32(slabs.elements as u32 - 1));
        let (slab, within) = (self.b.shr(Ty::U32, index, count), self.b.and(index, mask));
        let stride = self.b.u32(slabs.stride as u32);
        let address = self.b.mad(Ty::U32, slab, stride, address);
        self.b.mad(Ty::U32, within, size, address)
    }

    /// An address with its bits mixed.
    pub(super) fn mixed(&mut self, swizzle: Swizzle, address: Reg) -> Reg {
        if swizzle.bits == 0 {
            return address;
        }
        let (count, mask) = (self.b.u32(swizzle.shift), self.b.u32(((1 << swizzle.bits) - 1) << swizzle.base));
        let high = self.b.shr(Ty::U32, address, count);
        let bits = self.b.and(high, mask);
        self.b.xor(address, bits)
    }

    /// The address of a register's element in a buffer.
    pub(super) fn buffer_address(&mut self, buffer: &Buffer, place: &Place, register: usize) -> Address {
        if buffer.slabs.is_some() {
            let mut address = buffer.base;
            for axis in 0..buffer.strides.len() {
                let coordinate = self.coordinate(place, register, axis);
                address = self.along(buffer, axis, coordinate, address);
            }
            return self.mixed(buffer.swizzle, address).into();
        }
        let bytes = buffer.elem.unpacked_bytes() as u64;
        let mut bases = rustc_hash::FxHashMap::default();
        let address = self.element_address(place, register, &buffer.strides, 0, bytes, buffer.base, &mut bases);
        // Whole spans of the pattern behind the mixing: registers that they are apart share what is mixed.
        let span = buffer.swizzle.span() as i64;
        let whole = address.offset / span * span;
        let within = self.b.at(address.base, address.offset - whole);
        let within = self.address_of(&within);
        let mixed = self.mixed(buffer.swizzle, within);
        self.b.at(mixed, whole)
    }

    /// What a thread holds of a tile, grouped into what one instruction moves between registers and a buffer.
    pub(super) fn buffer_runs(&mut self, buffer: &Buffer, layout: &Distribution) -> Vec<Run> {
        let place = self.place(layout);
        let bits = buffer.vector_bits(layout, 16);
        let mut seen = vec![false; place.len()];
        let mut runs = Vec::new();
        for first in 0..place.len() {
            if seen[first] {
                continue;
            }
            let mut registers = vec![first];
            for (position, &bit) in bits.iter().enumerate() {
                for i in 0..1 << position {
                    let other = registers[i] | bit;
                    registers.push(other);
                }
            }
            registers.iter().for_each(|&register| seen[register] = true);
            let when = match self.inside(&place, first) {
                Inside::Never => continue,
                Inside::Always => None,
                Inside::When(within) => Some(within),
            };
            let address = self.buffer_address(buffer, &place, first);
            runs.push(Run { registers, address, when, cut: None });
        }
        runs
    }

    /// A buffer's elements as a tile.
    pub(super) fn load_buffer(&mut self, buffer: &Buffer, layout: &Distribution) -> Regs {
        let elem = Elem::Num(buffer.elem);
        let zero = self.bits(elem, 0);
        let mut regs: Regs = std::iter::repeat_n(zero, layout.registers() as usize).collect();
        let runs = self.buffer_runs(buffer, layout);
        for run in runs {
            let loaded = self.load_run("shared", elem, &run, zero, false);
            for (&register, value) in run.registers.iter().zip(loaded) {
                regs[register] = value;
            }
        }
        regs
    }

    /// Writes a tile to a buffer, each element once.
    pub(super) fn store_buffer(&mut self, buffer: &Buffer, layout: &Distribution, regs: &Regs) {
        self.store_further(buffer, 0, layout, regs);
    }

    /// The same so many bytes behind the buffer, whole spans of its swizzle.
    pub(super) fn store_further(&mut self, buffer: &Buffer, bytes: u64, layout: &Distribution, regs: &Regs) {
        let elem = Elem::Num(buffer.elem);
        let mine = self.stores(layout);
        let runs = self.buffer_runs(buffer, layout);
        for mut run in runs {
            if !layout.is_primary(run.registers[0] as u64, 0) {
                continue;
            }
            run.when = self.both(run.when, mine);
            run.address.offset += bytes as i64;
            let values: Vec<Reg> = run.registers.iter().map(|&register| regs[register]).collect();
            self.store_run("shared", elem, &run, &values, false);
        }
    }

    // --- asynchronous copies

    /// A tile of a view into a buffer, 4, 8 or 16 bytes at a time; what cannot move so goes through registers.
    fn copy_async(&mut self, data: &OpData, (bypass_l1, cache, lines): (bool, CacheHint, bool)) -> Lowered<()> {
        let (view, index, buffer) = (data.one(0), data.group(1), self.buffer(data.one(2))?);
        let shape: SmallVec<[u64; 4]> = buffer.shape.iter().map(|&extent| u64::from(extent)).collect();
        let elem = Elem::Num(buffer.elem);
        let bytes = elem.bytes();
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|&dim| buffer.strides[dim]);
        let threads = u64::from(self.team.warps * Arch::WARP);
        let vector = order.first().map_or(1, |&contiguous| (16 / bytes).max(1).min(1 << shape[contiguous].trailing_zeros()));
        let layout =
            Distribution::blocked(&shape, &order, vector, threads).map_err(|_| self.broken("a tile that cannot be laid out"))?;
        let layout = buffer.without_conflicts(layout);
        let mut window = self.window(view, index, &layout)?;
        let place = self.place(&layout);
        let padding = self.padding(window.padding, window.dtype);
        let zero_padding = self.b.kernel().constant(padding) == Some(0);
        let mine = self.stores(&layout);
        if window.packed.is_some() {
            return Err(self.unsupported("elements that share bytes cannot be copied asynchronously"));
        }
        let widest = buffer.vector_bits(&layout, 16);
        let priority = match cache {
            CacheHint::Normal => None,
            CacheHint::Streamed => Some("evict_first"),
            CacheHint::Kept => Some("evict_last"),
        };
        let policy = priority.filter(|_| self.arch.has_cp_async()).map(|priority| self.b.cache_policy(priority));
        let options = CacheOptions { bypass_l1, lines, policy };
        for run in self.runs(&mut window, Ends::Apart) {
            if !layout.is_primary(run.registers[0] as u64, 0) {
                continue;
            }
            // The shorter of the two vectors counts.
            let common = run.registers.len().min(1 << widest.len());
            for (piece, registers) in run.registers.chunks(common).enumerate() {
                let moved = registers.len() as u64 * bytes;
                let to = self.buffer_address(&buffer, &place, registers[0]);
                let from = self.b.at(run.address.base, run.address.offset + (piece * common) as i64 * bytes as i64);
                let holds = match self.inside(&place, registers[0]) {
                    Inside::Never => continue,
                    Inside::Always => mine,
                    Inside::When(within) => self.both(Some(within), mine),
                };
                if self.arch.has_cp_async() && moved >= 4 && zero_padding && self.space(view) == Space::Global {
                    let size = run.when.map(|when| {
                        let (all, none) = (self.b.u32(moved as u32), self.b.u32(0));
                        self.b.select(when, all, none)
                    });
                    let copy =
                        |b: &mut tessera_ptx::ssa::Builder| b.cp_async(to.clone(), from.clone(), moved as u32, size, options);
                    match holds {
                        None => copy(&mut self.b),
                        Some(value) => self.b.under(Guard { value, negated: false }, copy),
                    }
                    continue;
                }
                let part = Run { registers: registers.to_vec(), address: from, when: run.when, cut: None };
                let words = access_words(self.space(view), MemoryOrder::Weak, None, CacheHint::Normal);
                let values = self.load_run(&words, elem, &part, padding, false);
                let part = Run { registers: registers.to_vec(), address: to, when: holds, cut: None };
                self.store_run("shared", elem, &part, &values, false);
            }
        }
        Ok(())
    }

    fn copy_async_element(&mut self, data: &OpData, bytes: u32) -> Lowered<()> {
        let from = self.reg(data.one(0))?;
        let (_, to) = self.chosen(data.one(1), data.group(2))?;
        if self.arch.has_cp_async() && self.space(data.one(0)) == Space::Global {
            self.b.cp_async(to, from, bytes, None, CacheOptions { bypass_l1: true, ..CacheOptions::default() });
            return Ok(());
        }
        let words = (bytes / 4) as usize;
        let space = access_words(self.space(data.one(0)), MemoryOrder::Weak, None, CacheHint::Normal);
        let values = self.b.ld_vector(&space, Ty::B32, words, from);
        self.b.st_vector("shared", Ty::B32, to, &values);
        Ok(())
    }
}
