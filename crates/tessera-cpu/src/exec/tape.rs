//! Groups that run as tapes: operands are bound row by row, and each row is one pass.

use smallvec::SmallVec;

use super::view::Window;
use super::{Machine, Ran};
use crate::build::GATHERED;
use crate::kernels::reduce::LANES;
use crate::kernels::tape::{self, KEPT, Operand, Step};
use crate::plan::{Fetch, Group, NodeKind, Place, Sink, Source, Tape};
use crate::touched::Kind;

/// Where the elements of a node or a sink are found.
enum Bound<'p> {
    /// The accumulator alone has them.
    Nowhere,
    /// One number.
    Number(*mut u8),
    /// All elements in their order.
    Whole { at: *mut u8, stream: bool, ahead: usize },
    /// Each row somewhere.
    Rows { place: Place, extents: &'p [usize], strides: &'p [isize], first: isize },
    /// A tile that does not stand in memory in its own order, and room for some of it.
    Window(Box<Window>, *mut u8),
    /// Running values.
    Lanes(*mut u8),
}

/// Bytes of a contiguous fetch that are asked for ahead of those that are read.
const AHEAD: usize = 4096;

impl Machine<'_> {
    /// Runs a group by its tape.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn tape(&mut self, group: &Group, tape: &Tape) -> Ran<()> {
        let kept = self.memory.scratch.at(0);
        let mut room = tape.kept as usize * KEPT * 4;
        let mut part = group.len;
        let mut fetched: SmallVec<[Bound<'_>; 12]> = SmallVec::new();
        for node in &group.nodes {
            let NodeKind::Fetch(fetch) = &node.kind else {
                fetched.push(Bound::Nowhere);
                continue;
            };
            fetched.push(match fetch {
                Fetch::Uniform(reg) => Bound::Number((&raw mut self.memory.registers[reg.0 as usize]).cast()),
                Fetch::Place(place) => Bound::Whole { at: self.place(*place), stream: false, ahead: 0 },
                Fetch::Strided { place, extents, strides, first } => {
                    let first = first.map_or(0, |reg| self.get(reg) as isize);
                    Bound::Rows { place: *place, extents, strides, first }
                }
                Fetch::View(access) => {
                    let window = self.window(access, Kind::Read)?;
                    if window.linear {
                        let next = if node.again { group.len * 4 } else { AHEAD };
                        Bound::Whole {
                            at: window.base as usize as *mut u8,
                            stream: false,
                            ahead: if window.stream { next } else { 0 },
                        }
                    } else {
                        part = part.min(GATHERED);
                        room += GATHERED * 4;
                        Bound::Window(Box::new(window), kept.wrapping_add(room - GATHERED * 4))
                    }
                }
                Fetch::Counting { .. } | Fetch::Param(_) => Bound::Nowhere,
            });
        }
        let mut sunk: SmallVec<[Bound<'_>; 4]> = SmallVec::new();
        for sink in &group.sinks {
            sunk.push(match sink {
                Sink::Place { place, .. } => Bound::Whole { at: self.place(*place), stream: false, ahead: 0 },
                Sink::View { access, .. } => {
                    let window = self.window(access, Kind::Write)?;
                    if window.linear {
                        Bound::Whole { at: window.base as usize as *mut u8, stream: window.stream, ahead: 0 }
                    } else {
                        part = part.min(GATHERED);
                        room += GATHERED * 4;
                        Bound::Window(Box::new(window), kept.wrapping_add(room - GATHERED * 4))
                    }
                }
                Sink::Reduce { .. } => {
                    room += LANES * 4;
                    Bound::Lanes(kept.wrapping_add(room - LANES * 4))
                }
                _ => Bound::Nowhere,
            });
        }
        let mut steps: SmallVec<[Step; 16]> = SmallVec::new();
        let mut start = 0;
        while start < group.len {
            let mut count = part.min(group.len - start);
            for row in &tape.rows {
                count = count.min(row - start % row);
            }
            steps.clear();
            // SAFETY: bound operands have `count` elements from `start` on; what is gathered fits its room.
            unsafe {
                for (bound, sink) in sunk.iter().zip(&group.sinks) {
                    if let (Bound::Lanes(lanes), Sink::Reduce { combine, lane, extents: [_, middle, _], .. }) = (bound, sink) {
                        if start % middle == 0 {
                            super::reduce::begin((*combine, *lane), *lanes);
                        }
                    }
                }
                for step in &tape.steps {
                    let bind = |source: Source| match source {
                        Source::None => Operand::NONE,
                        Source::Kept(index) => Operand { at: kept.add(index as usize * KEPT * 4).cast(), ..Operand::NONE },
                        Source::Fetched(node) => self.operand(&fetched[node as usize], start, count, true),
                        Source::Sink(sink) => self.operand(&sunk[sink as usize], start, count, false),
                    };
                    steps.push(Step { code: step.code, a: bind(step.a), b: bind(step.b) });
                }
                tape::run(&steps, count);
                for (bound, sink) in sunk.iter().zip(&group.sinks) {
                    match (bound, sink) {
                        (Bound::Window(window, strip), _) => window.store(start, count, *strip),
                        (Bound::Lanes(lanes), Sink::Reduce { combine, lane, extents: [_, middle, _], place, .. })
                            if (start + count).is_multiple_of(*middle) =>
                        {
                            let to = self.place(*place).add(start / middle * lane.bytes());
                            super::reduce::end((*combine, *lane), *lanes, to);
                        }
                        _ => {}
                    }
                }
            }
            start += count;
        }
        Ok(())
    }

    /// The operand of the elements `start..start + count`.
    unsafe fn operand(&self, bound: &Bound<'_>, start: usize, count: usize, read: bool) -> Operand {
        let moving = Operand { fixed: false, ..Operand::NONE };
        match bound {
            Bound::Nowhere => Operand::NONE,
            Bound::Number(at) => Operand { at: at.cast(), splat: true, ..Operand::NONE },
            Bound::Lanes(at) => Operand { at: at.cast(), ..Operand::NONE },
            Bound::Whole { at, stream, ahead } => {
                let at = at.wrapping_add(start * 4);
                Operand { at: at.cast(), stream: *stream && (at as usize).is_multiple_of(64), ahead: *ahead, ..moving }
            }
            Bound::Rows { place, extents, strides, first } => {
                let rank = extents.len();
                let (mut row, column) = (start / extents[rank - 1], start % extents[rank - 1]);
                let stride = strides[rank - 1];
                let mut offset = *first + column as isize * stride;
                for axis in (0..rank - 1).rev() {
                    offset += (row % extents[axis]) as isize * strides[axis];
                    row /= extents[axis];
                }
                let last = offset + (count as isize - 1) * stride;
                // An index outside the tile is undefined: it reads the first elements here.
                let inside = offset >= 0 && last < self.place_elements(*place, 4) as isize;
                let at = self.place(*place).wrapping_offset(if inside { offset * 4 } else { 0 }).cast();
                if stride == 0 { Operand { at, splat: true, ..Operand::NONE } } else { Operand { at, ..moving } }
            }
            Bound::Window(window, strip) => {
                // SAFETY: the strip has room for what is gathered at once.
                let at = if read { unsafe { window.fetch(start, count, *strip).cast_mut() } } else { *strip };
                Operand { at: at.cast(), ..moving }
            }
        }
    }
}
