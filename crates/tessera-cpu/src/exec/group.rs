//! Fused chains: strips of elements through the operations of a group.

use smallvec::SmallVec;

use super::marks::Stored;
use super::reduce::Lanes;
use super::view::{Window, fill};
use super::{Machine, Ran, assertion, assumption, holds, mask, shift};
use crate::check::Marks;
use crate::kernels::tape;
use crate::lanes::{self, Strips};
use crate::plan::{Fetch, Group, Node, NodeKind, Place, Sink};
use crate::touched::Kind;

/// Where the operands and results of a region's group stand.
pub(super) struct Params<'p> {
    pub(super) inputs: &'p [*const u8],
    pub(super) outputs: &'p [*mut u8],
    /// In checked execution, where the marks of the operands and those of the results stand.
    pub(super) marks: &'p [*const u8],
    pub(super) result_marks: &'p [*mut u8],
}

const NO_PARAMS: Params<'static> = Params { inputs: &[], outputs: &[], marks: &[], result_marks: &[] };

/// What a group keeps while its strips run.
pub(super) struct Frame<'g> {
    pub(super) group: &'g Group,
    pub(super) params: &'g Params<'g>,
    /// Where strips of results stand, and how far they are apart.
    scratch: *mut u8,
    slot_size: usize,
    /// The current strip of each node.
    pub(super) strips: SmallVec<[*const u8; 24]>,
    /// Windows of the nodes that read views, in order of the nodes.
    pub(super) windows: SmallVec<[Option<Window>; 8]>,
    /// Windows of the sinks that write views, in order of the sinks.
    pub(super) targets: SmallVec<[Option<Window>; 2]>,
    pub(super) marks: Vec<Marks>,
    /// In checked execution, what the sinks have stored in memory.
    pub(super) stored: Stored,
    /// Running values of each reduction.
    lanes: SmallVec<[Lanes; 1]>,
}

impl Frame<'_> {
    fn slot(&self, node: &Node) -> *mut u8 {
        self.scratch.wrapping_add(node.slot as usize * self.slot_size)
    }

    fn strip(&self, node: u16) -> *const u8 {
        self.strips[node as usize]
    }
}

/// The elements of a group that its strips hold now.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) start: usize,
    pub(super) count: usize,
}

impl Machine<'_> {
    /// Runs a group over all its elements.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn group(&mut self, group: &Group) -> Ran<()> {
        let only_checks = |sink: &Sink| matches!(sink, Sink::Assume { .. } | Sink::ShiftCount { .. });
        if self.check.is_none() && group.sinks.iter().all(only_checks) {
            return Ok(());
        }
        // SAFETY: passed on.
        unsafe {
            match &group.tape {
                Some(tape) if self.check.is_none() && tape::is_fast() => self.tape(group, tape),
                _ => self.strips(group, group.len, &NO_PARAMS),
            }
        }
    }

    /// Runs a group over so many elements.
    ///
    /// # Safety
    /// As for [`Machine::run`], and parameters hold that many elements.
    pub(super) unsafe fn strips(&mut self, group: &Group, len: usize, params: &Params<'_>) -> Ran<()> {
        debug_assert!(group.slots_size() <= self.launch.plan.scratch_bytes, "strip registers lie in the plan's memory");
        let mut frame = Frame {
            group,
            params,
            scratch: self.memory.scratch.at(0),
            slot_size: group.slot_size(),
            strips: SmallVec::from_elem(std::ptr::null(), group.nodes.len()),
            windows: SmallVec::new(),
            targets: SmallVec::new(),
            marks: if self.check.is_some() { vec![None; group.nodes.len()] } else { Vec::new() },
            stored: Stored::default(),
            lanes: SmallVec::new(),
        };
        self.open_nodes(&mut frame, len)?;
        self.open_sinks(&mut frame)?;
        let mut start = 0;
        while start < len {
            let stretch = Stretch { start, count: group.strip.min(len - start) };
            // SAFETY: strips hold `count` elements of their node's type, and slots were assigned so that no result
            // overlaps what is still read; sinks were given room for all elements.
            unsafe {
                self.compute(&mut frame, stretch)?;
                if self.check.is_some() {
                    self.mark_sinks(&mut frame, stretch)?;
                }
                self.deliver(&mut frame, stretch)?;
            }
            start += stretch.count;
        }
        Ok(())
    }

    /// Finds the memory that nodes read, and fills strips that stay the same.
    fn open_nodes(&mut self, frame: &mut Frame<'_>, len: usize) -> Ran<()> {
        let group = frame.group;
        for (i, node) in group.nodes.iter().enumerate() {
            match &node.kind {
                NodeKind::Fetch(Fetch::View(access)) => {
                    let window = self.window(access, Kind::Read)?;
                    frame.windows.push(Some(window));
                }
                NodeKind::Fetch(Fetch::Uniform(reg)) => {
                    let slot = frame.slot(node);
                    // SAFETY: uniform slots are shared with no other node.
                    unsafe { fill(slot, group.strip.min(len), node.bytes as usize, self.get(*reg)) };
                    frame.strips[i] = slot;
                }
                NodeKind::Fetch(Fetch::Strided { place, first, .. }) if is_uniform(node) => {
                    let bytes = node.bytes as usize;
                    let index = first.map_or(0, |reg| self.get(reg) as usize);
                    // An index outside the tile is undefined: it reads the first element here.
                    let index = if index < self.place_elements(*place, bytes) { index } else { 0 };
                    let slot = frame.slot(node);
                    // SAFETY: the element lies in the tile; the slot is as above.
                    unsafe { repeat(slot, 0, self.place(*place), index as isize, 0, group.strip.min(len), node.bytes) };
                    frame.strips[i] = slot;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds the memory that sinks write, and starts reductions.
    fn open_sinks(&mut self, frame: &mut Frame<'_>) -> Ran<()> {
        for sink in &frame.group.sinks {
            match sink {
                Sink::View { access, .. } => {
                    let window = self.window(access, Kind::Write)?;
                    frame.targets.push(Some(window));
                }
                Sink::Reduce { combine, extents, place, lane, .. } => {
                    // SAFETY: the place holds one element for each pair of outer and inner indices.
                    unsafe { super::reduce::clear((*combine, *lane), self.place(*place), extents[0] * extents[2]) };
                    frame.lanes.push(Lanes::default());
                    if let Some(check) = self.check.as_mut() {
                        check.clear(*place, extents[0] * extents[2]);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Brings each node's strip to a stretch of elements.
    ///
    /// # Safety
    /// Strips hold that many elements of their node's type, and no result overlaps what is still read.
    #[inline]
    unsafe fn compute(&mut self, frame: &mut Frame<'_>, stretch: Stretch) -> Ran<()> {
        let (group, count) = (frame.group, stretch.count);
        let mut windows = 0..frame.windows.len();
        for (i, node) in group.nodes.iter().enumerate() {
            let window = if let NodeKind::Fetch(Fetch::View(_)) = &node.kind { windows.next() } else { None };
            // SAFETY: passed on.
            unsafe {
                frame.strips[i] = match &node.kind {
                    NodeKind::Fetch(fetch) if fetch.is_uniform() => frame.strips[i],
                    NodeKind::Fetch(Fetch::View(_)) => {
                        let strip = frame.slot(node);
                        match window.and_then(|window| frame.windows[window].as_ref()) {
                            Some(window) => window.fetch(stretch.start, count, strip),
                            None => strip,
                        }
                    }
                    NodeKind::Fetch(fetch) => self.fetch(frame, node, fetch, stretch),
                    NodeKind::Op(op, src) => {
                        let dst = if node.direct { self.direct(group, i, stretch.start) } else { frame.slot(node) };
                        let mut operands = [std::ptr::null(); 3];
                        for (to, &from) in operands.iter_mut().zip(src) {
                            *to = frame.strip(from);
                        }
                        let strips = Strips { dst, src: operands, len: count };
                        lanes::apply(self.launch.isa, *op, strips);
                        dst
                    }
                    NodeKind::Load { addresses, mask, padding, origin, .. } => {
                        let strip = frame.slot(node);
                        let addresses = frame.strip(*addresses).cast::<u64>();
                        let mask = mask.map(|mask| frame.strip(mask));
                        let padding = padding.map(|padding| frame.strip(padding));
                        self.load_pointers(strip, addresses, mask, padding, count, node, *origin)?;
                        strip
                    }
                };
            }
            if self.check.is_some() {
                self.mark_node(frame, i, window, stretch)?;
            }
        }
        Ok(())
    }

    /// A strip of what is at hand, views aside.
    ///
    /// # Safety
    /// As for [`Machine::compute`].
    unsafe fn fetch(&self, frame: &Frame<'_>, node: &Node, fetch: &Fetch, stretch: Stretch) -> *const u8 {
        let (strip, Stretch { start, count }) = (frame.slot(node), stretch);
        // SAFETY: passed on.
        unsafe {
            match fetch {
                Fetch::Place(place) => self.place(*place).add(start * node.bytes as usize),
                Fetch::Param(position) => frame.params.inputs[*position as usize].add(start * node.bytes as usize),
                Fetch::Strided { place, extents, strides, first } => {
                    let first = first.map_or(0, |reg| self.get(reg) as isize);
                    let limit = self.place_elements(*place, node.bytes as usize);
                    let from = self.place(*place);
                    walk(extents, strides, start, count, |at, run, offset, stride| {
                        // An index outside the tile is undefined: it reads the first elements here.
                        let last = offset + first + (run as isize - 1) * stride;
                        let inside = offset + first >= 0 && last < limit as isize;
                        let offset = if inside { offset + first } else { 0 };
                        repeat(strip, at, from, offset, stride, run, node.bytes);
                    });
                    strip
                }
                Fetch::Counting { extents, strides } => {
                    walk(extents, strides, start, count, |at, run, offset, stride| {
                        count_up(strip, at, offset, stride, run, node.bytes);
                    });
                    strip
                }
                // Filled before the first strip, or read through its window.
                Fetch::Uniform(_) | Fetch::View(_) => strip,
            }
        }
    }

    /// Passes what was computed to the sinks.
    ///
    /// # Safety
    /// As for [`Machine::compute`], and sinks have room for all elements.
    #[inline]
    unsafe fn deliver(&mut self, frame: &mut Frame<'_>, stretch: Stretch) -> Ran<()> {
        let (group, Stretch { start, count }) = (frame.group, stretch);
        let (mut target, mut reduction) = (0, 0);
        for sink in &group.sinks {
            // SAFETY: passed on.
            unsafe {
                match sink {
                    Sink::Place { node, place } => {
                        let bytes = group.nodes[*node as usize].bytes as usize;
                        let to = self.place(*place).add(start * bytes);
                        let from = frame.strip(*node);
                        if !std::ptr::eq(to, from) {
                            std::ptr::copy(from, to, count * bytes);
                        }
                    }
                    Sink::View { node, .. } => {
                        if let Some(window) = &frame.targets[target] {
                            window.store(start, count, frame.strip(*node));
                        }
                        target += 1;
                    }
                    Sink::Scatter { addresses, value, mask, origin, span, .. } => {
                        let addresses = frame.strip(*addresses).cast::<u64>();
                        let mask = mask.map(|mask| frame.strip(mask));
                        let bytes = group.nodes[*value as usize].bytes as usize;
                        self.store_pointers(addresses, frame.strip(*value), mask, count, bytes, *origin, *span)?;
                    }
                    Sink::Reduce { node, combine, lane, extents, place, .. } => {
                        let (to, from) = (self.place(*place), frame.strip(*node));
                        let stretch = super::reduce::Stretch { extents: *extents, start, count };
                        let lanes = frame.lanes[reduction].start();
                        super::reduce::combine_strip((*combine, *lane), to, from, stretch, lanes);
                        reduction += 1;
                    }
                    Sink::Param { node, position } => {
                        let bytes = group.nodes[*node as usize].bytes as usize;
                        let to = frame.params.outputs[*position as usize].add(start * bytes);
                        std::ptr::copy_nonoverlapping(frame.strip(*node), to, count * bytes);
                    }
                    Sink::Assert { node, message, span } => {
                        let truths = std::slice::from_raw_parts(frame.strip(*node), count);
                        if truths.contains(&0) {
                            return Err(assertion(message, *span));
                        }
                    }
                    Sink::Assume { .. } | Sink::ShiftCount { .. } => {
                        if self.check.is_some() {
                            self.promise(sink, frame, count)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The elements of a place; compile-time tiles are rounded up to whole words.
    pub(super) fn place_elements(&self, place: Place, bytes: usize) -> usize {
        match place {
            Place::Buffer(index) => self.launch.plan.buffers[index as usize].elements,
            Place::Pool(index) => self.launch.plan.pool[index as usize].len() * 8 / bytes,
        }
    }

    /// The place that a node's strip is written to at once.
    fn direct(&self, group: &Group, node: usize, start: usize) -> *mut u8 {
        let place = group.sinks.iter().find_map(|sink| match sink {
            Sink::Place { node: n, place } if *n as usize == node => Some(*place),
            _ => None,
        });
        let bytes = group.nodes[node].bytes as usize;
        place.map_or(std::ptr::null_mut(), |place| self.place(place).wrapping_add(start * bytes))
    }

    unsafe fn promise(&self, sink: &Sink, frame: &Frame<'_>, count: usize) -> Ran<()> {
        let (node, bytes) = match sink {
            Sink::Assume { node, bytes, .. } | Sink::ShiftCount { node, bytes, .. } => (*node, *bytes),
            _ => return Ok(()),
        };
        for i in 0..count {
            let mut bits = [0; 8];
            // SAFETY: the strip holds `count` elements of so many bytes.
            unsafe {
                let from = frame.strip(node).add(i * bytes as usize);
                std::ptr::copy_nonoverlapping(from, bits.as_mut_ptr(), bytes as usize);
            }
            let bits = u64::from_le_bytes(bits);
            match sink {
                Sink::Assume { predicate, span, .. } if !holds(predicate, bits, bytes) => {
                    return Err(assumption(predicate, bits, bytes, *span));
                }
                Sink::ShiftCount { bits: width, span, .. } if mask(bits, bytes) >= u64::from(*width) => {
                    return Err(shift(mask(bits, bytes), *width, *span));
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one strip of each operand")]
    unsafe fn load_pointers(
        &mut self,
        strip: *mut u8,
        addresses: *const u64,
        mask: Option<*const u8>,
        padding: Option<*const u8>,
        count: usize,
        node: &Node,
        origin: Option<u16>,
    ) -> Ran<()> {
        let bytes = node.bytes as usize;
        // SAFETY: strips hold `count` elements; addresses are checked against the memory they may touch.
        unsafe {
            let addresses = std::slice::from_raw_parts(addresses, count);
            let mask = mask.map(|mask| std::slice::from_raw_parts(mask, count));
            self.reachable(addresses, mask, bytes, origin, node.span, Kind::Read)?;
            for (i, &address) in addresses.iter().enumerate() {
                let to = strip.add(i * bytes);
                if mask.is_none_or(|mask| mask[i] != 0) {
                    copy_element(address as usize as *const u8, to, bytes);
                } else if let Some(padding) = padding {
                    copy_element(padding.add(i * bytes), to, bytes);
                } else {
                    fill(to, 1, bytes, 0);
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one strip of each operand")]
    unsafe fn store_pointers(
        &mut self,
        addresses: *const u64,
        value: *const u8,
        mask: Option<*const u8>,
        count: usize,
        bytes: usize,
        origin: Option<u16>,
        span: tessera_ir::Span,
    ) -> Ran<()> {
        // SAFETY: strips hold `count` elements; addresses are checked against the memory they may touch.
        unsafe {
            let addresses = std::slice::from_raw_parts(addresses, count);
            let mask = mask.map(|mask| std::slice::from_raw_parts(mask, count));
            self.reachable(addresses, mask, bytes, origin, span, Kind::Write)?;
            for (i, &address) in addresses.iter().enumerate() {
                if mask.is_none_or(|mask| mask[i] != 0) {
                    copy_element(value.add(i * bytes), address as usize as *mut u8, bytes);
                }
            }
        }
        Ok(())
    }

    /// Reports the first address whose element lies outside the memory that it may touch.
    pub(super) fn reachable(
        &self,
        addresses: &[u64],
        mask: Option<&[u8]>,
        bytes: usize,
        origin: Option<u16>,
        span: tessera_ir::Span,
        kind: Kind,
    ) -> Ran<()> {
        let active = |i: usize| mask.is_none_or(|mask| mask[i] != 0);
        let mut low = u64::MAX;
        let mut high = 0;
        for (i, &address) in addresses.iter().enumerate() {
            if active(i) {
                low = low.min(address);
                high = high.max(address);
            }
        }
        if low > high {
            return Ok(());
        }
        let end = high.saturating_add(bytes as u64);
        if self.owner(low, end, origin).is_some() {
            return Ok(());
        }
        // Addresses of several arrays: each by itself.
        for (i, &address) in addresses.iter().enumerate() {
            if active(i) && self.owner(address, address.saturating_add(bytes as u64), origin).is_none() {
                let what = if kind.reads() { "load reads" } else { "store writes" };
                return Err(Box::new(
                    tessera_ir::Diagnostic::error("cpu-bounds", span, format!("this {what} outside the array's memory"))
                        .note(format!("element {i} of the tile"))
                        .help("mask the element, or check its index against the array's size"),
                ));
            }
        }
        Ok(())
    }
}

fn is_uniform(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Fetch(fetch) if fetch.is_uniform())
}

/// Walks elements `start..start + count` of a strided tile: `visit(at, run, offset, stride)` for each run along the last axis.
pub(super) fn walk(
    extents: &[usize],
    strides: &[isize],
    start: usize,
    count: usize,
    mut visit: impl FnMut(usize, usize, isize, isize),
) {
    let rank = extents.len();
    let (extent, stride) = (extents[rank - 1], strides[rank - 1]);
    let mut at = 0;
    while at < count {
        let (mut row, column) = ((start + at) / extent, (start + at) % extent);
        let run = (extent - column).min(count - at);
        let mut offset = column as isize * stride;
        for axis in (0..rank - 1).rev() {
            offset += (row % extents[axis]) as isize * strides[axis];
            row /= extents[axis];
        }
        visit(at, run, offset, stride);
        at += run;
    }
}

unsafe fn repeat(strip: *mut u8, at: usize, from: *const u8, offset: isize, stride: isize, run: usize, bytes: u8) {
    let size = bytes as usize;
    // SAFETY: the run lies inside the tile, and the strip has room.
    unsafe {
        let to = strip.add(at * size);
        let from = from.offset(offset * size as isize);
        if stride == 0 {
            let mut bits = [0; 8];
            std::ptr::copy_nonoverlapping(from, bits.as_mut_ptr(), size);
            fill(to, run, size, u64::from_le_bytes(bits));
        } else {
            super::view::gather(to, from, stride, run, size);
        }
    }
}

unsafe fn count_up(strip: *mut u8, at: usize, offset: isize, stride: isize, run: usize, bytes: u8) {
    let number = |k: usize| (offset + k as isize * stride) as u64;
    // SAFETY: the strip has room for the run.
    unsafe {
        match bytes {
            1 => (0..run).for_each(|k| *strip.add(at + k) = number(k) as u8),
            2 => (0..run).for_each(|k| *strip.cast::<u16>().add(at + k) = number(k) as u16),
            4 => (0..run).for_each(|k| *strip.cast::<u32>().add(at + k) = number(k) as u32),
            _ => (0..run).for_each(|k| *strip.cast::<u64>().add(at + k) = number(k)),
        }
    }
}

unsafe fn copy_element(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for one element on both sides.
    unsafe {
        match bytes {
            1 => *to = *from,
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            _ => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
        }
    }
}
