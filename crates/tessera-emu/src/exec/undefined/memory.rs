//! Undefined bits of memory: of shared and local memory a mask for each byte, of global memory whether a byte was written.

use std::collections::BTreeMap;

use super::{NOWHERE_YET, Origin, Sources, Unwritten, Use, Who};
use crate::exec::access::{Target, shifted};
use crate::exec::tensor::{Far, unswizzled};
use crate::exec::{Cluster, Warp};
use crate::lanes::LANES;
use crate::program::{Change, Reg};
use crate::tensor_map::swizzle;

/// The undefined bits of some memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    /// Of each byte; empty where nobody follows them.
    bytes: Vec<u8>,
    /// By byte: where bits come from that were stored undefined.
    origins: BTreeMap<u32, Origin>,
}

impl Shadow {
    /// Of memory to which nothing was written.
    pub(super) fn new(bytes: usize) -> Shadow {
        Shadow { bytes: vec![0xff; bytes], origins: BTreeMap::new() }
    }

    /// Of a block's shared memory.
    pub(in crate::exec) fn of_block(bytes: usize, follows: bool) -> Shadow {
        if follows { Shadow::new(bytes) } else { Shadow::default() }
    }

    /// Whether every bit of a range was written; all are where nobody follows them.
    pub(in crate::exec) fn is_defined(&self, at: usize, count: usize) -> bool {
        self.bytes.is_empty() || self.bytes[at..at + count].iter().all(|bits| *bits == 0)
    }

    pub(in crate::exec) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A range was written.
    pub(in crate::exec) fn define(&mut self, at: usize, count: usize) {
        if !self.bytes.is_empty() {
            self.bytes[at..at + count].fill(0);
        }
    }

    /// Bits that are stored; `from` says of a byte where they come from.
    pub(in crate::exec) fn store(&mut self, at: usize, bits: &[u8], from: impl Fn(usize) -> Option<Origin>) {
        if self.bytes.is_empty() {
            return;
        }
        self.bytes[at..at + bits.len()].copy_from_slice(bits);
        for (index, bits) in bits.iter().enumerate() {
            match from(index).filter(|_| *bits != 0) {
                Some(origin) => drop(self.origins.insert((at + index) as u32, origin)),
                None if self.origins.is_empty() => {}
                None => drop(self.origins.remove(&((at + index) as u32))),
            }
        }
    }
}

/// Undefined bits of some bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lacking {
    /// Of each byte; none where all are defined.
    pub(in crate::exec) bits: Vec<u8>,
    /// Of each byte: where they come from.
    pub(in crate::exec) origins: Vec<Option<Origin>>,
}

impl Lacking {
    /// All from one place.
    pub(in crate::exec) fn from_one(bits: &[u8], origin: Option<Origin>) -> Lacking {
        Lacking { bits: bits.to_vec(), origins: bits.iter().map(|bits| origin.filter(|_| *bits != 0)).collect() }
    }

    /// Where the first of them come from; none where all are defined.
    pub(in crate::exec) fn first(&self) -> Option<Origin> {
        self.origins.iter().flatten().next().copied()
    }

    /// At most eight bytes as a value.
    pub(in crate::exec) fn value(&self) -> (u64, Sources) {
        let bits = self.bits.iter().take(8).rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let last = self.origins.iter().flatten().next_back().copied().unwrap_or(NOWHERE_YET);
        (bits, Sources(std::array::from_fn(|at| self.origins.get(at).copied().flatten().unwrap_or(last))))
    }
}

impl Cluster<'_> {
    fn local_place(&self, offset: u32, lane: usize) -> usize {
        lane * self.launch.program.local_bytes as usize + offset as usize
    }

    /// Whether every bit of some bytes was written.
    pub(in crate::exec) fn is_defined(&self, warp: &Warp, target: Target, bytes: u32, lane: usize) -> bool {
        match target {
            Target::Shared { rank, offset } => self.blocks[rank].undefined.is_defined(offset as usize, bytes as usize),
            Target::Global { allocation, address } => {
                self.launch.heap.get(allocation).is_none_or(|found| found.unwritten(address, u64::from(bytes)).is_none())
            }
            Target::Local { offset } => warp
                .undefined
                .as_ref()
                .is_none_or(|undefined| undefined.local.is_defined(self.local_place(offset, lane), bytes as usize)),
            Target::Param { .. } => true,
        }
    }

    /// The undefined bits of some bytes.
    pub(in crate::exec) fn undefined_bytes(&mut self, warp: Option<&Warp>, target: Target, bytes: u32, who: Who) -> Lacking {
        let (shadow, start) = match target {
            Target::Shared { rank, offset } => (&self.blocks[rank].undefined, offset as usize),
            Target::Local { offset } => match warp.and_then(|warp| warp.undefined.as_ref()) {
                Some(undefined) => (&undefined.local, self.local_place(offset, who.thread % LANES)),
                None => return Lacking::default(),
            },
            Target::Global { allocation, address } => {
                let found = self.launch.heap.get(allocation);
                let missing = |at: u64| found.is_some_and(|found| found.unwritten(address + at, 1).is_some());
                let bits: Vec<u8> = (0..u64::from(bytes)).map(|at| if missing(at) { 0xff } else { 0 }).collect();
                let Some(first) = bits.iter().position(|bits| *bits != 0) else { return Lacking::default() };
                let origin = self.origin(who, Unwritten::Global(address + first as u64));
                return Lacking::from_one(&bits, Some(origin));
            }
            Target::Param { .. } => return Lacking::default(),
        };
        if shadow.is_defined(start, bytes as usize) {
            return Lacking::default();
        }
        let bits = shadow.bytes[start..start + bytes as usize].to_vec();
        let mut origins: Vec<Option<Origin>> =
            (start..start + bytes as usize).map(|at| shadow.origins.get(&(at as u32)).copied()).collect();
        // What was never stored is read here for the first time.
        let missing = (0..bits.len()).find(|&at| bits[at] != 0 && origins[at].is_none());
        if let Some(missing) = missing {
            let what = match target {
                Target::Shared { rank, offset } => Unwritten::Shared { rank, offset: offset + missing as u32 },
                Target::Local { offset } => Unwritten::Local(offset + missing as u32),
                Target::Global { address, .. } => Unwritten::Global(address),
                Target::Param { offset } => Unwritten::Local(offset),
            };
            let own = self.origin(who, what);
            origins.iter_mut().zip(&bits).for_each(|(origin, bits)| *origin = origin.or((*bits != 0).then_some(own)));
        }
        Lacking { bits, origins }
    }

    /// Bytes are stored with the undefined bits that they have; global memory wants none.
    pub(in crate::exec) fn store_undefined(
        &mut self,
        warp: Option<&mut Warp>,
        target: Target,
        (bytes, lacking): (u32, &Lacking),
        who: Who,
        name: &str,
    ) {
        let (shadow, start) = match target {
            Target::Shared { rank, offset } => (&mut self.blocks[rank].undefined, offset as usize),
            Target::Local { offset } => {
                let place = self.local_place(offset, who.thread % LANES);
                match warp.and_then(|warp| warp.undefined.as_mut()) {
                    Some(undefined) => (&mut undefined.local, place),
                    None => return,
                }
            }
            Target::Global { .. } => {
                if let Some(origin) = lacking.first() {
                    self.use_undefined(who, name, origin, Use::Stored);
                }
                return;
            }
            Target::Param { .. } => return,
        };
        match &lacking.bits[..] {
            [] => shadow.define(start, bytes as usize),
            bits => shadow.store(start, bits, |at| lacking.origins[at]),
        }
    }

    /// Registers take over the undefined bits of what was loaded: consecutive values of some bytes each.
    #[cold]
    pub(in crate::exec) fn load_undefined(
        &mut self,
        warp: &mut Warp,
        target: Target,
        to: &[Option<Reg>],
        (bytes, signed): (u32, bool),
        who: Who,
    ) {
        for (index, to) in to.iter().enumerate() {
            let Some(to) = to else { continue };
            let (mut bits, sources) = self.undefined_bytes(Some(warp), shifted(target, index as u32 * bytes), bytes, who).value();
            // The sign fills the rest of the register.
            if signed && bits >> (8 * bytes - 1) & 1 == 1 {
                bits |= u64::MAX << (8 * bytes - 1);
            }
            if let Some(undefined) = &mut warp.undefined {
                undefined.set(to.slot, to.wide, who.thread % LANES, bits, sources);
            }
        }
    }

    /// What a register's lane lacks, as bytes, and the register's name.
    pub(in crate::exec) fn lacking_of(&mut self, warp: &Warp, reg: Reg, bytes: u32, who: Who) -> (Lacking, String) {
        let lane = who.thread % LANES;
        let nothing = (Lacking::default(), String::new());
        let Some(undefined) = &warp.undefined else { return nothing };
        if undefined.lanes(reg.slot) >> lane & 1 == 0 {
            return nothing;
        }
        let bits = undefined.bits(reg.slot, reg.wide, lane).to_le_bytes()[..bytes.min(8) as usize].to_vec();
        if bits.iter().all(|bits| *bits == 0) {
            return nothing;
        }
        let sources = self.sources_of(undefined, who, reg.slot, lane);
        let origins = bits.iter().zip(sources.0).map(|(bits, origin)| (*bits != 0).then_some(origin)).collect();
        (Lacking { bits, origins }, self.name_of(undefined, reg.slot, lane, who.pc))
    }

    /// Memory takes over the undefined bits of registers, consecutive values of some bytes each.
    pub(in crate::exec) fn store_registers(&mut self, warp: &mut Warp, target: Target, from: &[Reg], bytes: u32, who: Who) {
        let parts: Vec<(Lacking, String)> = from.iter().map(|reg| self.lacking_of(warp, *reg, bytes, who)).collect();
        if matches!(target, Target::Global { .. }) {
            let how = if self.is_padding(from, bytes, &parts) { Use::Padding } else { Use::Stored };
            for (lacking, name) in &parts {
                lacking.first().iter().for_each(|origin| self.use_undefined(who, name, *origin, how));
            }
            return;
        }
        for (index, (lacking, name)) in parts.iter().enumerate() {
            self.store_undefined(Some(warp), shifted(target, index as u32 * bytes), (bytes, lacking), who, name);
        }
    }

    /// Whether what registers lack looks like the padding of a structure that is copied: whole bytes that were loaded and that
    /// nothing was done with, and a register has them beside bytes that were written.
    fn is_padding(&mut self, from: &[Reg], bytes: u32, parts: &[(Lacking, String)]) -> bool {
        let bits = || parts.iter().map(|(lacking, _)| &lacking.bits);
        bits().any(|bits| bits.contains(&0) && bits.contains(&0xff))
            && bits().flatten().all(|bits| matches!(bits, 0 | 0xff))
            && from.iter().zip(parts).all(|(reg, (lacking, _))| lacking.first().is_none() || self.is_loaded(reg.slot, bytes))
    }

    /// A read-modify-write: registers get what the cell has undefined, the cell what either has; global memory wants none.
    pub(in crate::exec) fn change_undefined(
        &mut self,
        warp: &mut Warp,
        target: Target,
        (how, bytes): (Change, u32),
        to: &[Option<Reg>],
        [value, second]: [&[Reg]; 2],
        who: Who,
    ) {
        for index in 0..value.len() {
            let cell = shifted(target, index as u32 * bytes);
            let held = self.undefined_bytes(Some(warp), cell, bytes, who);
            let mut given = (Lacking::default(), String::new());
            for reg in [value.get(index), second.get(index)].into_iter().flatten() {
                if given.0.first().is_none() {
                    given = self.lacking_of(warp, *reg, bytes, who);
                }
            }
            let (given, name) = given;
            let stored = match (how, given.first().or(held.first())) {
                (Change::Exchange, _) | (_, None) => given,
                (_, origin) => Lacking::from_one(&vec![0xff; bytes as usize], origin),
            };
            let name = if name.is_empty() { "the result" } else { &name };
            self.store_undefined(Some(warp), cell, (bytes, &stored), who, name);
            if let (Some(Some(to)), Some(undefined)) = (to.get(index), &mut warp.undefined) {
                let (bits, sources) = held.value();
                undefined.set(to.slot, to.wide, who.thread % LANES, bits, sources);
            }
        }
    }

    /// Bytes in memory must be defined.
    pub(in crate::exec) fn need_bytes(&mut self, warp: &Warp, target: Target, bytes: u32, who: Who, name: &str, how: Use) {
        if self.follows_undefined()
            && let Some(origin) = self.undefined_bytes(Some(warp), target, bytes, who).first()
        {
            self.use_undefined(who, name, origin, how);
        }
    }

    /// The undefined bits of what a bulk copy brings, in the order of the box.
    pub(in crate::exec) fn undefined_far(&mut self, far: &Far, who: Who) -> Lacking {
        if !self.follows_undefined() {
            return Lacking::default();
        }
        let places = self.far_places(far);
        let missing = places.iter().find_map(|(target, bytes, _)| match target {
            Target::Global { allocation, address } => {
                self.launch.heap.get(*allocation).and_then(|found| found.unwritten(*address, u64::from(*bytes)))
            }
            _ => None,
        });
        let Some(missing) = missing else { return Lacking::default() };
        let mut bits = vec![0; far.bytes() as usize];
        for (target, bytes, at) in places {
            let own = self.undefined_bytes(None, target, bytes, who).bits;
            bits[at as usize..][..own.len()].copy_from_slice(&own);
        }
        let origin = self.origin(who, Unwritten::Global(missing));
        Lacking::from_one(&bits, Some(origin))
    }

    /// Shared memory takes over the undefined bits of a box that a copy brings.
    pub(in crate::exec) fn bring_undefined(&mut self, rank: usize, offset: u32, (bytes, mode): (u32, u8), lacking: &Lacking) {
        let shadow = &mut self.blocks[rank].undefined;
        for start in (0..bytes as usize).step_by(16) {
            let (at, count) = (swizzle(offset + start as u32, mode) as usize, 16.min(bytes as usize - start));
            match lacking.bits.get(start..start + count) {
                None => shadow.define(at, count),
                Some(bits) => shadow.store(at, bits, |index| lacking.origins[start + index]),
            }
        }
    }

    /// What a bulk copy takes from shared memory to places of global memory must be defined there.
    pub(in crate::exec) fn need_near(&mut self, offset: u32, far: &Far, who: Who) {
        if !self.follows_undefined() {
            return;
        }
        let mode = far.swizzle();
        let bits = unswizzled(self.blocks[who.rank].undefined.bytes(), offset, far.bytes(), mode);
        if bits.iter().all(|bits| *bits == 0) {
            return;
        }
        for (_, bytes, at) in self.far_places(far) {
            if let Some(first) = bits[at as usize..][..bytes as usize].iter().position(|bits| *bits != 0) {
                let at = at + first as u32;
                let offset = swizzle(offset + at / 16 * 16, mode) + at % 16;
                let target = Target::Shared { rank: who.rank, offset };
                if let Some(origin) = self.undefined_bytes(None, target, 1, who).first() {
                    self.use_undefined(who, "what the copy takes", origin, Use::Stored);
                }
                return;
            }
        }
    }

    /// Places of global memory were written by a bulk copy; a reduction wants them to have been before.
    pub(in crate::exec) fn written_far(&mut self, places: &[(Target, u32, u32)], reduces: bool, who: Who) {
        if !self.follows_undefined() {
            return;
        }
        for &(target, bytes, _) in places {
            let Target::Global { allocation, address } = target else { continue };
            if reduces && let Some(origin) = self.undefined_bytes(None, target, bytes, who).first() {
                self.use_undefined(who, "what the copy adds to", origin, Use::Stored);
            }
            if let Some(found) = self.launch.heap.get(allocation) {
                found.mark(address, u64::from(bytes));
            }
        }
    }
}
