//! Checked execution of a group: which elements of a strip are undetermined, and what the memory remembers.

use super::group::{Frame, Stretch, walk};
use super::view::Window;
use super::{Machine, Ran};
use crate::check::{Check, Kind, Marks};
use crate::lanes::LaneOp;
use crate::plan::{Access, Fetch, Node, NodeKind, Reg, Sink};

impl Machine<'_> {
    /// Marks the elements of each node's strip, then checks and marks what the sinks do with them.
    pub(super) fn mark_strip(&mut self, frame: &mut Frame<'_>, stretch: Stretch) -> Ran<()> {
        let Some(check) = self.check.as_mut() else { return Ok(()) };
        let registers = &self.memory.registers;
        let mut window = 0;
        for (i, node) in frame.group.nodes.iter().enumerate() {
            frame.marks[i] = match &node.kind {
                NodeKind::Fetch(Fetch::View(access)) => {
                    window += 1;
                    match &frame.windows[window - 1] {
                        Some(window) => view_marks(check, window, access, stretch)?,
                        None => None,
                    }
                }
                NodeKind::Fetch(fetch) => fetched_marks(check, fetch, stretch, |reg| registers[reg.0 as usize]),
                NodeKind::Op(op, src) => combined_marks(frame, *op, src, stretch.count),
                NodeKind::Load { addresses, mask, padding, .. } => {
                    loaded_marks(check, frame, node, [Some(*addresses), *mask, *padding], stretch.count)?
                }
            };
        }
        mark_sinks(check, frame, stretch)
    }
}

/// Marks of what is at hand, views aside.
fn fetched_marks(check: &Check, fetch: &Fetch, stretch: Stretch, register: impl Fn(Reg) -> u64) -> Marks {
    let Stretch { start, count } = stretch;
    match fetch {
        Fetch::Place(place) => check.marks(*place, start, count),
        Fetch::Uniform(reg) => check.uniform(*reg, count),
        Fetch::Strided { place, extents, strides, first } => {
            let first = first.map_or(0, |reg| register(reg) as isize);
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
        Fetch::Counting { .. } | Fetch::Param(_) | Fetch::View(_) => None,
    }
}

/// Marks of a result: the worst of its operands', of those that a selection takes.
fn combined_marks(frame: &Frame<'_>, op: LaneOp, src: &[u16], count: usize) -> Marks {
    let sources: Vec<&Marks> = src.iter().map(|&s| &frame.marks[s as usize]).collect();
    if sources.iter().all(|marks| marks.is_none()) {
        return None;
    }
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

/// The addresses of a strip, and which of its elements are active.
fn addressed<'f>(frame: &'f Frame<'_>, addresses: u16, mask: Option<u16>, count: usize) -> (&'f [u64], Option<&'f [u8]>) {
    // SAFETY: strips hold `count` elements.
    unsafe {
        let list = std::slice::from_raw_parts(frame.strips[addresses as usize].cast::<u64>(), count);
        let active = mask.map(|mask| std::slice::from_raw_parts(frame.strips[mask as usize], count));
        (list, active)
    }
}

/// Marks of what a load through pointers finds; operands are addresses, a mask, and what stands where the mask is false.
fn loaded_marks(check: &mut Check, frame: &Frame<'_>, node: &Node, operands: [Option<u16>; 3], count: usize) -> Ran<Marks> {
    let [Some(addresses), mask, padding] = operands else { return Ok(None) };
    let (list, active) = addressed(frame, addresses, mask, count);
    let mut marks = vec![0; count];
    for k in 0..count {
        check.element(&frame.marks[mask.unwrap_or(addresses) as usize], k, node.span, "an address or mask")?;
        marks[k] = if active.is_none_or(|active| active[k] != 0) {
            check.element(&frame.marks[addresses as usize], k, node.span, "an address or mask")?;
            check.touch(Kind::Read, list[k], node.bytes as usize, node.span)?
        } else {
            match padding {
                Some(padding) => frame.marks[padding as usize].as_ref().map_or(0, |marks| marks[k]),
                None => check.padding(node.span),
            }
        };
    }
    Ok(marks.iter().any(|&mark| mark != 0).then_some(marks))
}

fn view_marks(check: &mut Check, window: &Window, access: &Access, stretch: Stretch) -> Ran<Marks> {
    let mut marks = vec![0; stretch.count];
    let mut result = Ok(());
    each_element(window, stretch.start, stretch.count, |k, place| match place {
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

/// Checks that what leaves the group is determined, and passes marks on.
fn mark_sinks(check: &mut Check, frame: &Frame<'_>, stretch: Stretch) -> Ran<()> {
    let Stretch { start, count } = stretch;
    let mut target = 0;
    for sink in &frame.group.sinks {
        match sink {
            Sink::Place { node, place } => check.set_marks(*place, start, count, frame.marks[*node as usize].as_deref()),
            Sink::View { node, access } => {
                if let Some(window) = &frame.targets[target] {
                    view_store(check, window, access, &frame.marks[*node as usize], stretch)?;
                }
                target += 1;
            }
            Sink::Scatter { addresses, value, mask, span, strong, .. } => {
                let kind = if *strong { Kind::Atomic } else { Kind::Write };
                let bytes = frame.group.nodes[*value as usize].bytes as usize;
                let (list, active) = addressed(frame, *addresses, *mask, count);
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

/// A store to a view: its elements are determined, and the memory remembers them.
fn view_store(check: &mut Check, window: &Window, access: &Access, marks: &Marks, stretch: Stretch) -> Ran<()> {
    let kind = if access.strong { Kind::Atomic } else { Kind::Write };
    let mut result = Ok(());
    each_element(window, stretch.start, stretch.count, |k, place| {
        if result.is_ok()
            && let Some((address, bytes)) = place
        {
            result = check
                .element(marks, k, access.span, "this store")
                .and_then(|()| check.touch(kind, address, bytes, access.span).map(|_| ()));
        }
    });
    result
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
