//! Memory accesses of a warp: which memory an address means, whether the access is legal, and the access itself.

use smallvec::SmallVec;
use tessera_ptx::Type;

use super::undefined::Who;
use super::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::{FULL, LANES, lanes};
use crate::program::{Addr, LOCAL_WINDOW, Order, PARAM_WINDOW, RANK_SHIFT, Reg, SHARED_START, SHARED_WINDOW, Scope, Space};
use crate::sanitize::Access;

/// A place in one of the memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Global { allocation: usize, address: u64 },
    Shared { rank: usize, offset: u32 },
    Local { offset: u32 },
    Param { offset: u32 },
}

/// What an access is, for checks and reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    /// Reads and writes.
    pub(crate) updates: bool,
    /// A write of what the memory holds already.
    pub(crate) same: bool,
    /// Bytes of each of its elements: a vector's are accesses of their own.
    pub(crate) width: u32,
    pub(crate) order: Order,
    pub(crate) scope: Scope,
}

impl Kind {
    /// As the sanitizer is told of it.
    fn access(self, warp: &Warp, lane: usize, pc: u32) -> Access {
        let Kind { write, atomic, updates, same, width, order, scope } = self;
        let thread = warp.index as usize * LANES + lane;
        Access { rank: warp.rank, thread, pc, write, same, atomic, updates, width, order, scope }
    }

    /// Of a load or a store.
    pub(crate) fn plain(write: bool, width: u32, order: Order, scope: Scope) -> Kind {
        Kind { write, atomic: order != Order::Weak, updates: false, same: false, width, order, scope }
    }

    /// Of a read-modify-write.
    pub(crate) fn update(ty: Type, order: Order, scope: Scope) -> Kind {
        // Packed elements are one by one.
        let width = if matches!(ty, Type::F16x2 | Type::Bf16x2) { 2 } else { ty.bits() / 8 };
        Kind { write: true, atomic: true, updates: true, same: false, width, order, scope }
    }
}

/// The addresses of an operand in every lane.
pub(crate) fn addresses(warp: &Warp, addr: Addr) -> [u64; LANES] {
    let slot = &warp.regs[addr.base.slot as usize];
    let mut out = [0; LANES];
    if addr.base.wide {
        for (out, base) in out.iter_mut().zip(slot.w()) {
            *out = base.wrapping_add(addr.offset as u64);
        }
    } else {
        // A 32-bit base counts modulo 2^32.
        for (out, base) in out.iter_mut().zip(slot.n()) {
            *out = u64::from(base.wrapping_add(addr.offset as u32));
        }
    }
    out
}

fn misaligned(what: &str, address: u64, bytes: u32, lane: usize) -> Fault {
    Fault::new(FindingKind::Misaligned, lane, format!("{what} at {address:#x}, which is no multiple of {bytes}"))
}

impl Cluster<'_> {
    /// Finds the memory of `bytes` bytes at an address; the address must be a multiple of `align`.
    pub(crate) fn resolve(
        &self,
        warp: &mut Warp,
        space: Space,
        address: u64,
        bytes: u32,
        align: u32,
        lane: usize,
    ) -> Result<Target, Fault> {
        let what = || format!("an access of {bytes} bytes");
        if !address.is_multiple_of(u64::from(align)) {
            return Err(misaligned(&what(), address, align, lane));
        }
        match space {
            Space::Shared if address >> RANK_SHIFT != warp.rank as u64 && address >> 32 == 0 => {
                let message = format!(
                    "{} at shared address {address:#x}, which is block {}'s of the cluster: `.shared::cluster` reaches it",
                    what(),
                    address >> RANK_SHIFT
                );
                Err(Fault::new(FindingKind::OutOfBounds, lane, message))
            }
            Space::Shared | Space::Cluster => self.resolve_shared(warp.rank, address, bytes, lane),
            Space::Generic if address >> 32 == SHARED_WINDOW >> 32 => {
                self.resolve_shared(warp.rank, address - SHARED_WINDOW, bytes, lane)
            }
            Space::Generic if address >> 32 == LOCAL_WINDOW >> 32 => self.resolve_local(address - LOCAL_WINDOW, bytes, lane),
            Space::Generic if address >> 32 == PARAM_WINDOW >> 32 => self.resolve_param(address - PARAM_WINDOW, bytes, lane),
            Space::Generic | Space::Global => {
                if let Some(recent) = self.launch.heap.get(warp.recent)
                    && !recent.freed
                    && self.launch.reaches(recent)
                    && recent.holds(address, u64::from(bytes))
                {
                    return Ok(Target::Global { allocation: warp.recent, address });
                }
                match self.launch.find(address, u64::from(bytes)) {
                    Some(allocation) => {
                        warp.recent = allocation;
                        Ok(Target::Global { allocation, address })
                    }
                    None => {
                        let message = format!("{} at {address:#x}: {}", what(), self.launch.describe(address));
                        Err(Fault::new(self.outside(address), lane, message))
                    }
                }
            }
            Space::Local => self.resolve_local(address, bytes, lane),
            Space::Param => self.resolve_param(address, bytes, lane),
        }
    }

    /// What an access to global memory is that no allocation holds.
    pub(super) fn outside(&self, address: u64) -> FindingKind {
        if self.launch.heap.was_freed(address) { FindingKind::UseAfterFree } else { FindingKind::OutOfBounds }
    }

    pub(crate) fn resolve_shared(&self, own: usize, address: u64, bytes: u32, lane: usize) -> Result<Target, Fault> {
        let rank = (address >> RANK_SHIFT) as usize;
        let offset = (address & ((1 << RANK_SHIFT) - 1)) as u32;
        let Some(block) = self.blocks.get(rank) else {
            let message = format!("an access of {bytes} bytes at shared address {address:#x}: the cluster has no block {rank}");
            return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
        };
        let floor = self.launch.program.shared_floor;
        if offset < floor || u64::from(offset) + u64::from(bytes) > block.shared.len() as u64 {
            let end = block.shared.len();
            let message =
                format!("an access of {bytes} bytes at shared address {offset:#x}: the block's memory is {floor:#x} to {end:#x}");
            return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
        }
        if rank != own && block.live_warps == 0 {
            let message = format!("an access to the shared memory of block {rank} of the cluster, which has ended");
            return Err(Fault::new(FindingKind::UseAfterFree, lane, message));
        }
        Ok(Target::Shared { rank, offset })
    }

    fn resolve_local(&self, address: u64, bytes: u32, lane: usize) -> Result<Target, Fault> {
        let size = u64::from(self.launch.program.local_bytes);
        if address.checked_add(u64::from(bytes)).is_none_or(|end| end > size) {
            let message = format!("an access of {bytes} bytes at local address {address:#x}: a thread has {size} bytes");
            return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
        }
        Ok(Target::Local { offset: address as u32 })
    }

    fn resolve_param(&self, address: u64, bytes: u32, lane: usize) -> Result<Target, Fault> {
        let size = self.launch.params.len() as u64;
        if address.checked_add(u64::from(bytes)).is_none_or(|end| end > size) {
            let message = format!("an access of {bytes} bytes at parameter offset {address:#x}: there are {size} bytes");
            return Err(Fault::new(FindingKind::OutOfBounds, lane, message));
        }
        Ok(Target::Param { offset: address as u32 })
    }

    /// Reads up to 8 bytes.
    pub(crate) fn read(&self, warp: &Warp, target: Target, bytes: u32, lane: usize) -> u64 {
        match target {
            Target::Global { allocation, address } => {
                self.launch.heap.get(allocation).map_or(0, |found| found.read(address, u64::from(bytes)))
            }
            Target::Shared { rank, offset } => little(&self.blocks[rank].shared, offset as usize, bytes as usize),
            Target::Local { offset } => {
                let at = lane * self.launch.program.local_bytes as usize + offset as usize;
                little(&warp.local, at, bytes as usize)
            }
            Target::Param { offset } => little(&self.launch.params, offset as usize, bytes as usize),
        }
    }

    /// Writes up to 8 bytes.
    pub(crate) fn write(&mut self, warp: &mut Warp, target: Target, bytes: u32, lane: usize, value: u64) -> Result<(), Fault> {
        match target {
            Target::Global { allocation, address } => {
                if let Some(found) = self.launch.heap.get(allocation) {
                    found.write(address, u64::from(bytes), value);
                    if self.follows_undefined() {
                        found.mark(address, u64::from(bytes));
                    }
                }
            }
            Target::Shared { rank, offset } => {
                let at = offset as usize;
                self.blocks[rank].shared[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
            }
            Target::Local { offset } => {
                let at = lane * self.launch.program.local_bytes as usize + offset as usize;
                warp.local[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
            }
            Target::Param { .. } => {
                return Err(Fault::new(FindingKind::OutOfBounds, lane, "a store to the kernel's parameters"));
            }
        }
        Ok(())
    }

    /// Tells the sanitizer of an access by a thread.
    pub(crate) fn observe(&mut self, warp: &Warp, target: Target, bytes: u32, lane: usize, kind: Kind, pc: u32) {
        let Some(mut sanitizer) = self.sanitizer.take() else { return };
        sanitizer.access(self, target, bytes, &kind.access(warp, lane, pc));
        self.sanitizer = Some(sanitizer);
    }

    /// Tells it what a read-modify-write has found. It was told of the access before, so that whoever finds what it wrote finds what it published; another
    /// device may have written since.
    pub(super) fn observe_found(&mut self, warp: &Warp, target: Target, lane: usize, kind: Kind, pc: u32) {
        if !self.launch.shared {
            return;
        }
        let Some(mut sanitizer) = self.sanitizer.take() else { return };
        sanitizer.found(self, target, &kind.access(warp, lane, pc));
        self.sanitizer = Some(sanitizer);
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        pc: u32,
        to: &[Option<Reg>],
        (bytes, signed): (u32, bool),
        addr: Addr,
        kind: Kind,
    ) -> Result<(), Fault> {
        let at = addresses(warp, addr);
        let total = bytes * to.len() as u32;
        self.advise(warp, mask, pc, addr.space, &at, total);
        if self.load_rows(warp, mask, to, bytes, addr.space, &at) {
            return Ok(());
        }
        let extend = if signed { 64 - 8 * bytes } else { 0 };
        if let Some(start) = self.own_shared(warp, mask, addr.space, &at, total) {
            let memory = &self.blocks[warp.rank].shared;
            for (index, to) in to.iter().enumerate() {
                let Some(to) = to else { continue };
                let slot = &mut warp.regs[to.slot as usize];
                let place = |lane: usize| (at[lane] - start) as usize + index * bytes as usize;
                if bytes == 4 && !to.wide {
                    let slot = slot.n_mut();
                    for lane in lanes(mask) {
                        slot[lane] = little(memory, place(lane), 4) as u32;
                    }
                    continue;
                }
                for lane in lanes(mask) {
                    let value = little(memory, place(lane), bytes as usize);
                    slot.set(to.wide, lane, ((value << extend) as i64 >> extend) as u64);
                }
            }
            return Ok(());
        }
        // One address in all lanes, as parameters have: one read.
        if mask == FULL && self.sanitizer.is_none() && addr.space != Space::Local && at.iter().all(|other| *other == at[0]) {
            let target = self.resolve(warp, addr.space, at[0], total, total, 0)?;
            if !matches!(target, Target::Local { .. }) {
                for (index, to) in to.iter().enumerate() {
                    let Some(to) = to else { continue };
                    let value = self.read(warp, shifted(target, index as u32 * bytes), bytes, 0);
                    let value = ((value << extend) as i64 >> extend) as u64;
                    let slot = &mut warp.regs[to.slot as usize];
                    if to.wide {
                        *slot.w_mut() = [value; LANES];
                    } else {
                        *slot.n_mut() = [value as u32; LANES];
                    }
                }
                return Ok(());
            }
        }
        let follows = self.follows_undefined();
        for lane in lanes(mask) {
            let target = match self.resolve(warp, addr.space, at[lane], total, total, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    to.iter().flatten().for_each(|to| warp.set(*to, lane, 0));
                    continue;
                }
            };
            // Read before the sanitizer is told: a device that writes meanwhile has published before.
            let part = |index: usize| shifted(target, index as u32 * bytes);
            let values: SmallVec<[u64; 4]> = (0..to.len()).map(|index| self.read(warp, part(index), bytes, lane)).collect();
            if self.sanitizer.is_some() {
                self.observe(warp, target, total, lane, kind, pc);
            }
            for (to, value) in to.iter().zip(values) {
                if let Some(to) = to {
                    let value = ((value << extend) as i64 >> extend) as u64;
                    warp.regs[to.slot as usize].set(to.wide, lane, value);
                }
            }
            if follows && !self.is_defined(warp, target, total, lane) {
                self.load_undefined(warp, target, to, (bytes, signed), Who::lane(warp, lane, pc));
            }
        }
        Ok(())
    }

    /// Counts the transactions of an access to shared or global memory, where that is asked for.
    pub(super) fn advise(&mut self, warp: &Warp, mask: u32, pc: u32, space: Space, at: &[u64; LANES], bytes: u32) {
        let Some(counts) = &mut self.advice else { return };
        let first = at[mask.trailing_zeros() as usize % LANES];
        let kind = match space {
            Space::Shared | Space::Cluster => FindingKind::BankConflicts,
            Space::Global => FindingKind::Uncoalesced,
            Space::Generic if first >> 32 == SHARED_WINDOW >> 32 => FindingKind::BankConflicts,
            Space::Generic if first >> 32 >= PARAM_WINDOW >> 32 => return,
            Space::Generic => FindingKind::Uncoalesced,
            Space::Local | Space::Param => return,
        };
        counts.note((pc, kind), (self.blocks[warp.rank].index, warp.index), mask, at, bytes);
    }

    /// The common case: all lanes load consecutive 32-bit words of global memory.
    fn load_rows(&mut self, warp: &mut Warp, mask: u32, to: &[Option<Reg>], bytes: u32, space: Space, at: &[u64; LANES]) -> bool {
        let stride = u64::from(bytes) * to.len() as u64;
        if mask != FULL
            || bytes != 4
            || self.sanitizer.is_some()
            || !matches!(space, Space::Global | Space::Generic)
            || !at[0].is_multiple_of(stride)
            || !at.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride)
        {
            return false;
        }
        let Some(allocation) = self.whole(warp, at[0], stride * LANES as u64) else { return false };
        let Some(memory) = self.launch.heap.get(allocation) else { return false };
        let mut words = [0u32; LANES * 4];
        let words = &mut words[..LANES * to.len()];
        memory.read_words(at[0], words);
        for (index, to) in to.iter().enumerate() {
            let Some(to) = to else { continue };
            let slot = &mut warp.regs[to.slot as usize];
            if to.wide {
                for (lane, value) in slot.w_mut().iter_mut().enumerate() {
                    *value = u64::from(words[lane * stride as usize / 4 + index]);
                }
            } else {
                for (lane, value) in slot.n_mut().iter_mut().enumerate() {
                    *value = words[lane * stride as usize / 4 + index];
                }
            }
        }
        true
    }

    /// The address of the own block's shared memory, where all lanes touch it as they may and nobody watches.
    fn own_shared(&self, warp: &Warp, mask: u32, space: Space, at: &[u64; LANES], bytes: u32) -> Option<u64> {
        let start = (warp.rank as u64) << RANK_SHIFT;
        let end = start + self.blocks[warp.rank].shared.len() as u64;
        let inside = |at: u64| {
            at >= start + u64::from(SHARED_START) && at + u64::from(bytes) <= end && at.is_multiple_of(u64::from(bytes))
        };
        let all = matches!(space, Space::Shared | Space::Cluster)
            && self.sanitizer.is_none()
            && end - start < 1 << RANK_SHIFT
            && lanes(mask).all(|lane| inside(at[lane]));
        all.then_some(start)
    }

    fn whole(&self, warp: &mut Warp, address: u64, bytes: u64) -> Option<usize> {
        if let Some(recent) = self.launch.heap.get(warp.recent)
            && !recent.freed
            && self.launch.reaches(recent)
            && recent.holds(address, bytes)
        {
            return Some(warp.recent);
        }
        warp.recent = self.launch.find(address, bytes)?;
        Some(warp.recent)
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        pc: u32,
        from: &[Reg],
        bytes: u32,
        addr: Addr,
        kind: Kind,
    ) -> Result<(), Fault> {
        self.progress += 1;
        let at = addresses(warp, addr);
        let total = bytes * from.len() as u32;
        self.advise(warp, mask, pc, addr.space, &at, total);
        if self.store_rows(warp, mask, from, bytes, addr.space, &at) {
            return Ok(());
        }
        if let Some(start) = self.own_shared(warp, mask, addr.space, &at, total) {
            let memory = &mut self.blocks[warp.rank].shared;
            // Lane by lane: of lanes that meet, the last one's values stay together.
            for lane in lanes(mask) {
                for (index, reg) in from.iter().enumerate() {
                    let place = (at[lane] - start) as usize + index * bytes as usize;
                    let value = warp.value(*reg, lane).to_le_bytes();
                    memory[place..place + bytes as usize].copy_from_slice(&value[..bytes as usize]);
                }
            }
            return Ok(());
        }
        let follows = self.follows_undefined();
        for lane in lanes(mask) {
            let target = match self.resolve(warp, addr.space, at[lane], total, total, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    continue;
                }
            };
            let values: SmallVec<[u64; 4]> = from.iter().map(|reg| warp.regs[reg.slot as usize].get(reg.wide, lane)).collect();
            if self.sanitizer.is_some() {
                let same = |(index, value): (usize, &u64)| {
                    let held = self.read(warp, shifted(target, index as u32 * bytes), bytes, lane);
                    (held ^ value) << (64 - 8 * bytes) == 0
                };
                let kind = Kind { same: values.iter().enumerate().all(same), ..kind };
                self.observe(warp, target, total, lane, kind, pc);
            }
            for (index, value) in values.into_iter().enumerate() {
                self.write(warp, shifted(target, index as u32 * bytes), bytes, lane, value)?;
            }
            if follows {
                self.store_registers(warp, target, from, bytes, Who::lane(warp, lane, pc));
            }
        }
        Ok(())
    }

    fn store_rows(&mut self, warp: &mut Warp, mask: u32, from: &[Reg], bytes: u32, space: Space, at: &[u64; LANES]) -> bool {
        let stride = u64::from(bytes) * from.len() as u64;
        if mask != FULL
            || bytes != 4
            || self.sanitizer.is_some()
            || !matches!(space, Space::Global | Space::Generic)
            || from.iter().any(|reg| reg.wide)
            || !at[0].is_multiple_of(stride)
            || !at.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride)
        {
            return false;
        }
        let Some(allocation) = self.whole(warp, at[0], stride * LANES as u64) else { return false };
        let Some(memory) = self.launch.heap.get(allocation) else { return false };
        let mut words = [0u32; LANES * 4];
        let words = &mut words[..LANES * from.len()];
        for (index, reg) in from.iter().enumerate() {
            for (lane, value) in warp.regs[reg.slot as usize].n().iter().enumerate() {
                words[lane * from.len() + index] = *value;
            }
        }
        memory.write_words(at[0], words);
        true
    }

    /// Reads bytes at a generic address, one by one where need be.
    pub(crate) fn read_bytes(
        &self,
        warp: &mut Warp,
        space: Space,
        address: u64,
        to: &mut [u8],
        lane: usize,
    ) -> Result<(), Fault> {
        for (index, byte) in to.iter_mut().enumerate() {
            let target = self.resolve(warp, space, address.wrapping_add(index as u64), 1, 1, lane)?;
            *byte = self.read(warp, target, 1, lane) as u8;
        }
        Ok(())
    }
}

/// The place some bytes further on.
pub(crate) fn shifted(target: Target, bytes: u32) -> Target {
    match target {
        Target::Global { allocation, address } => Target::Global { allocation, address: address + u64::from(bytes) },
        Target::Shared { rank, offset } => Target::Shared { rank, offset: offset + bytes },
        Target::Local { offset } => Target::Local { offset: offset + bytes },
        Target::Param { offset } => Target::Param { offset: offset + bytes },
    }
}

#[inline(always)]
fn little(memory: &[u8], at: usize, bytes: usize) -> u64 {
    if let (4, Some(word)) = (bytes, memory.get(at..at + 4).and_then(|word| word.first_chunk::<4>())) {
        return u64::from(u32::from_le_bytes(*word));
    }
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&memory[at..at + bytes]);
    u64::from_le_bytes(word)
}
