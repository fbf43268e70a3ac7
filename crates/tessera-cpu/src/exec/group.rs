//! Fused chains: strips of elements through the operations of a group.

use smallvec::SmallVec;

use super::reduce::Lanes;
use super::view::{Window, fill};
use super::{Machine, Ran, assertion, assumption, division, holds, mask, shift};
use crate::check::{Kind, Marks};
use crate::kernels::tape;
use crate::lanes::{self, LaneOp, Strips};
use crate::plan::{Access, Fetch, Group, Node, NodeKind, Place, Sink};

/// Where the operands and results of a region's group stand.
pub(super) struct Params<'p> {
    pub(super) inputs: &'p [*const u8],
    pub(super) outputs: &'p [*mut u8],
}

const NO_PARAMS: Params<'static> = Params { inputs: &[], outputs: &[] };

/// What a group keeps while its strips run.
struct Frame {
    /// The current strip of each node.
    strips: SmallVec<[*const u8; 24]>,
    windows: SmallVec<[Option<Window>; 8]>,
    targets: SmallVec<[Option<Window>; 2]>,
    marks: Vec<Marks>,
    /// Running values of each reduction.
    lanes: SmallVec<[Lanes; 1]>,
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
        let mut frame = Frame {
            strips: SmallVec::from_elem(std::ptr::null(), group.nodes.len()),
            windows: SmallVec::new(),
            targets: SmallVec::new(),
            marks: if self.check.is_some() { vec![None; group.nodes.len()] } else { Vec::new() },
            lanes: SmallVec::new(),
        };
        let slot_size = (group.strip * group.slot_bytes as usize + 64).next_multiple_of(64);
        let scratch = self.memory.scratch.at(0);
        let slot = |node: &Node| scratch.wrapping_add(node.slot as usize * slot_size);
        // Windows are numbered in the order of their nodes.
        for (i, node) in group.nodes.iter().enumerate() {
            match &node.kind {
                NodeKind::Fetch(Fetch::View(access)) => {
                    let window = self.window(access, Kind::Read)?;
                    frame.windows.push(Some(window));
                }
                NodeKind::Fetch(Fetch::Uniform(reg)) => {
                    // SAFETY: uniform slots are shared with no other node.
                    unsafe { fill(slot(node), group.strip.min(len), node.bytes as usize, self.get(*reg)) };
                    frame.strips[i] = slot(node);
                }
                NodeKind::Fetch(Fetch::Strided { place, first, .. }) if is_uniform(node) => {
                    let bytes = node.bytes as usize;
                    let index = first.map_or(0, |reg| self.get(reg) as usize);
                    // An index outside the tile is undefined: it reads the first element here.
                    let index = if index < self.place_elements(*place, bytes) { index } else { 0 };
                    // SAFETY: the element lies in the tile; the slot is as above.
                    unsafe { repeat(slot(node), 0, self.place(*place), index as isize, 0, group.strip.min(len), node.bytes) };
                    frame.strips[i] = slot(node);
                }
                _ => {}
            }
        }
        for sink in &group.sinks {
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
        let mut start = 0;
        while start < len {
            let count = group.strip.min(len - start);
            let mut window = 0;
            for (i, node) in group.nodes.iter().enumerate() {
                // SAFETY: strips hold `count` elements of their node's type, and slots were assigned so that no result
                // overlaps what is still read.
                unsafe {
                    match &node.kind {
                        NodeKind::Fetch(fetch) => {
                            let strip = slot(node);
                            frame.strips[i] = match fetch {
                                fetch if fetch.is_uniform() => frame.strips[i],
                                Fetch::Uniform(_) => frame.strips[i],
                                Fetch::Place(place) => self.place(*place).add(start * node.bytes as usize),
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
                                Fetch::View(_) => {
                                    let fetched = match &frame.windows[window] {
                                        Some(window) => window.fetch(start, count, strip),
                                        None => strip,
                                    };
                                    window += 1;
                                    fetched
                                }
                                Fetch::Param(position) => params.inputs[*position as usize].add(start * node.bytes as usize),
                            };
                        }
                        NodeKind::Op(op, src) => {
                            let dst = if node.direct { self.direct(group, i, start) } else { slot(node) };
                            let mut operands = [std::ptr::null(); 3];
                            for (to, &from) in operands.iter_mut().zip(src) {
                                *to = frame.strips[from as usize];
                            }
                            let strips = Strips { dst, src: operands, len: count };
                            if !lanes::apply(self.launch.isa, *op, strips) {
                                return Err(division(node.span));
                            }
                            frame.strips[i] = dst;
                        }
                        NodeKind::Load { addresses, mask, padding, origin, .. } => {
                            let strip = slot(node);
                            let addresses = frame.strips[*addresses as usize].cast::<u64>();
                            let mask = mask.map(|mask| frame.strips[mask as usize]);
                            let padding = padding.map(|padding| frame.strips[padding as usize]);
                            self.load_pointers(strip, addresses, mask, padding, count, node, *origin)?;
                            frame.strips[i] = strip;
                        }
                    }
                }
            }
            if self.check.is_some() {
                self.mark_strip(group, &mut frame, start, count)?;
            }
            let (mut target, mut reduction) = (0, 0);
            for sink in &group.sinks {
                // SAFETY: as above; sinks were given room for all elements.
                unsafe {
                    match sink {
                        Sink::Place { node, place } => {
                            let bytes = group.nodes[*node as usize].bytes as usize;
                            let to = self.place(*place).add(start * bytes);
                            let from = frame.strips[*node as usize];
                            if !std::ptr::eq(to, from) {
                                std::ptr::copy(from, to, count * bytes);
                            }
                        }
                        Sink::View { node, .. } => {
                            if let Some(window) = &frame.targets[target] {
                                window.store(start, count, frame.strips[*node as usize]);
                            }
                            target += 1;
                        }
                        Sink::Scatter { addresses, value, mask, origin, span, .. } => {
                            let addresses = frame.strips[*addresses as usize].cast::<u64>();
                            let mask = mask.map(|mask| frame.strips[mask as usize]);
                            let bytes = group.nodes[*value as usize].bytes as usize;
                            self.store_pointers(addresses, frame.strips[*value as usize], mask, count, bytes, *origin, *span)?;
                        }
                        Sink::Reduce { node, combine, lane, extents, place, .. } => {
                            let to = self.place(*place);
                            let stretch = super::reduce::Stretch { extents: *extents, start, count };
                            let lanes = frame.lanes[reduction].start();
                            super::reduce::combine_strip((*combine, *lane), to, frame.strips[*node as usize], stretch, lanes);
                            reduction += 1;
                        }
                        Sink::Param { node, position } => {
                            let bytes = group.nodes[*node as usize].bytes as usize;
                            let to = params.outputs[*position as usize].add(start * bytes);
                            std::ptr::copy_nonoverlapping(frame.strips[*node as usize], to, count * bytes);
                        }
                        Sink::Assert { node, message, span } => {
                            let truths = std::slice::from_raw_parts(frame.strips[*node as usize], count);
                            if truths.contains(&0) {
                                return Err(assertion(message, *span));
                            }
                        }
                        Sink::Assume { .. } | Sink::ShiftCount { .. } => {
                            if self.check.is_some() {
                                self.promise(sink, &frame, count)?;
                            }
                        }
                    }
                }
            }
            start += count;
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

    unsafe fn promise(&self, sink: &Sink, frame: &Frame, count: usize) -> Ran<()> {
        let (node, bytes) = match sink {
            Sink::Assume { node, bytes, .. } | Sink::ShiftCount { node, bytes, .. } => (*node, *bytes),
            _ => return Ok(()),
        };
        for i in 0..count {
            let mut bits = [0; 8];
            // SAFETY: the strip holds `count` elements of so many bytes.
            unsafe {
                let from = frame.strips[node as usize].add(i * bytes as usize);
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
                let what = if kind == Kind::Read { "load reads" } else { "store writes" };
                return Err(Box::new(
                    tessera_ir::Diagnostic::error("cpu-bounds", span, format!("this {what} outside the array's memory"))
                        .note(format!("element {i} of the tile"))
                        .help("mask the element, or check its index against the array's size"),
                ));
            }
        }
        Ok(())
    }

    /// Checked execution: which elements of the strip are undetermined, and what the memory remembers.
    fn mark_strip(&mut self, group: &Group, frame: &mut Frame, start: usize, count: usize) -> Ran<()> {
        let Some(check) = self.check.as_mut() else { return Ok(()) };
        let mut window = 0;
        for (i, node) in group.nodes.iter().enumerate() {
            let marks: Marks = match &node.kind {
                NodeKind::Fetch(fetch) => match fetch {
                    Fetch::Place(place) => check.marks(*place, start, count),
                    Fetch::Uniform(reg) => check.uniform(*reg, count),
                    Fetch::Strided { place, extents, strides, first } => {
                        let first = first.map_or(0, |reg| self.memory.registers[reg.0 as usize] as isize);
                        check.marks(*place, 0, usize::MAX).map(|source| {
                            let mut marks = vec![0; count];
                            walk(extents, strides, start, count, |at, run, offset, stride| {
                                for k in 0..run {
                                    let index = offset + first + k as isize * stride;
                                    marks[at + k] = usize::try_from(index).ok().and_then(|i| source.get(i)).copied().unwrap_or(0);
                                }
                            });
                            marks
                        })
                    }
                    Fetch::Counting { .. } | Fetch::Param(_) => None,
                    Fetch::View(access) => {
                        let marks = match &frame.windows[window] {
                            Some(window) => view_marks(check, window, access, start, count)?,
                            None => None,
                        };
                        window += 1;
                        marks
                    }
                },
                NodeKind::Op(op, src) => {
                    let sources: Vec<&Marks> = src.iter().map(|&s| &frame.marks[s as usize]).collect();
                    if sources.iter().all(|marks| marks.is_none()) {
                        None
                    } else {
                        let of = |marks: &Marks, k: usize| marks.as_ref().map_or(0, |marks| marks[k]);
                        let condition = matches!(op, LaneOp::Select(_)).then(|| frame.strips[src[0] as usize]);
                        let combined = (0..count)
                            .map(|k| match condition {
                                Some(condition) => {
                                    // SAFETY: the condition's strip holds `count` truth values.
                                    let taken = if unsafe { *condition.add(k) } != 0 { 1 } else { 2 };
                                    of(sources[0], k).max(of(sources[taken], k))
                                }
                                None => sources.iter().map(|marks| of(marks, k)).max().unwrap_or(0),
                            })
                            .collect();
                        Some(combined)
                    }
                }
                NodeKind::Load { addresses, mask, padding, .. } => {
                    // SAFETY: strips hold `count` elements.
                    let (list, active) = unsafe {
                        let list = std::slice::from_raw_parts(frame.strips[*addresses as usize].cast::<u64>(), count);
                        let active = mask.map(|m| std::slice::from_raw_parts(frame.strips[m as usize], count));
                        (list, active)
                    };
                    let mut marks = vec![0; count];
                    for k in 0..count {
                        check.element(&frame.marks[mask.unwrap_or(*addresses) as usize], k, node.span, "an address or mask")?;
                        if active.is_none_or(|active| active[k] != 0) {
                            check.element(&frame.marks[*addresses as usize], k, node.span, "an address or mask")?;
                            marks[k] = check.touch(Kind::Read, list[k], node.bytes as usize, node.span)?;
                        } else {
                            marks[k] = match padding {
                                Some(p) => frame.marks[*p as usize].as_ref().map_or(0, |marks| marks[k]),
                                None => check.padding(node.span),
                            };
                        }
                    }
                    marks.iter().any(|&mark| mark != 0).then_some(marks)
                }
            };
            frame.marks[i] = marks;
        }
        let mut target = 0;
        for sink in &group.sinks {
            match sink {
                Sink::Place { node, place } => check.set_marks(*place, start, count, frame.marks[*node as usize].as_deref()),
                Sink::View { node, access } => {
                    if let Some(window) = &frame.targets[target] {
                        let marks = &frame.marks[*node as usize];
                        let kind = if access.strong { Kind::Atomic } else { Kind::Write };
                        let mut result = Ok(());
                        each_element(window, start, count, |k, place| {
                            if result.is_ok() {
                                if let Some((address, bytes)) = place {
                                    result = check
                                        .element(marks, k, access.span, "this store")
                                        .and_then(|()| check.touch(kind, address, bytes, access.span).map(|_| ()));
                                }
                            }
                        });
                        result?;
                    }
                    target += 1;
                }
                Sink::Scatter { addresses, value, mask, span, strong, .. } => {
                    let kind = if *strong { Kind::Atomic } else { Kind::Write };
                    let bytes = group.nodes[*value as usize].bytes as usize;
                    // SAFETY: strips hold `count` elements.
                    let (list, active) = unsafe {
                        let list = std::slice::from_raw_parts(frame.strips[*addresses as usize].cast::<u64>(), count);
                        let active = mask.map(|m| std::slice::from_raw_parts(frame.strips[m as usize], count));
                        (list, active)
                    };
                    for k in 0..count {
                        if let Some(mask) = mask {
                            check.element(&frame.marks[*mask as usize], k, *span, "a mask")?;
                        }
                        if active.is_none_or(|active| active[k] != 0) {
                            check.element(&frame.marks[*addresses as usize], k, *span, "an address")?;
                            check.element(&frame.marks[*value as usize], k, *span, "this store")?;
                            check.touch(kind, list[k], bytes, *span)?;
                        }
                    }
                }
                Sink::Reduce { node, extents: [_, middle, inner], place, .. } => {
                    if let Some(marks) = &frame.marks[*node as usize] {
                        for (k, &mark) in marks.iter().enumerate() {
                            let index = start + k;
                            check.raise(*place, index / (middle * inner) * inner + index % inner, mark);
                        }
                    }
                }
                Sink::Assert { node, span, .. } => {
                    for k in 0..count {
                        check.element(&frame.marks[*node as usize], k, *span, "an assertion")?;
                    }
                }
                Sink::Param { .. } | Sink::Assume { .. } | Sink::ShiftCount { .. } => {}
            }
        }
        Ok(())
    }
}

/// Calls `visit` with each element of the strip and where its bytes stand, `None` outside the array.
pub(super) fn each_element(window: &Window, start: usize, count: usize, mut visit: impl FnMut(usize, Option<(u64, usize)>)) {
    window.segments(start, count, |segment| {
        for k in 0..segment.len {
            let place = segment.from.map(|from| match window.packing {
                None => ((from + k as i64 * segment.stride * window.bytes as i64) as u64, window.bytes),
                Some(packing) => {
                    let bit = (from + k as i64 * segment.stride) * i64::from(packing.bits());
                    ((window.base as i64 + bit.div_euclid(8)) as u64, 1)
                }
            });
            visit(segment.at + k, place);
        }
    });
}

fn view_marks(check: &mut crate::check::Check, window: &Window, access: &Access, start: usize, count: usize) -> Ran<Marks> {
    let mut marks = vec![0; count];
    let mut result = Ok(());
    each_element(window, start, count, |k, place| match place {
        None if window.undetermined => marks[k] = check.padding(access.span),
        None => {}
        Some((address, bytes)) => match check.touch(Kind::Read, address, bytes, access.span) {
            Ok(mark) => marks[k] = mark,
            Err(fault) if result.is_ok() => result = Err(fault),
            Err(_) => {}
        },
    });
    result?;
    Ok(marks.iter().any(|&mark| mark != 0).then_some(marks))
}

fn is_uniform(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Fetch(fetch) if fetch.is_uniform())
}

/// Walks elements `start..start + count` of a strided tile: `visit(at, run, offset, stride)` for each run along the last axis.
fn walk(extents: &[usize], strides: &[isize], start: usize, count: usize, mut visit: impl FnMut(usize, usize, isize, isize)) {
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
