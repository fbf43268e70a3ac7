//! Checked execution of a group: which elements of a strip are undetermined, and what the memory remembers.

use rustc_hash::FxHashMap;
use tessera_ir::{Diagnostic, Span};

use super::group::{Frame, Params, Stretch, walk};
use super::view::Window;
use super::{Machine, Ran};
use crate::check::{Check, Marks};
use crate::lanes::LaneOp;
use crate::plan::{Access, Fetch, Node, NodeKind, Reg, Sink};
use crate::touched::{Kind, Touch};

impl Machine<'_> {
    /// Marks the elements of a node's strip, which has just been computed: operands may make room for later nodes.
    pub(super) fn mark_node(&mut self, frame: &mut Frame<'_>, node: usize, window: Option<usize>, stretch: Stretch) -> Ran<()> {
        let Some(check) = self.check.as_mut() else { return Ok(()) };
        let registers = &self.memory.registers;
        let of = &frame.group.nodes[node];
        frame.marks[node] = match &of.kind {
            NodeKind::Fetch(Fetch::View(access)) => match window.and_then(|window| frame.windows[window].as_ref()) {
                Some(window) => view_marks(check, window, access, stretch)?,
                None => None,
            },
            NodeKind::Fetch(Fetch::Param(position)) => param_marks(frame.params, *position, stretch),
            NodeKind::Fetch(fetch) => fetched_marks(check, fetch, stretch, |reg| registers[reg.0 as usize]),
            NodeKind::Op(op, src) => combined_marks(check, frame, (*op, src, of.span), stretch.count),
            NodeKind::Load { addresses, mask, padding, strong, .. } => {
                let kind = if *strong { Kind::Look } else { Kind::Read };
                loaded_marks(check, frame, (of, kind), [Some(*addresses), *mask, *padding], stretch.count)?
            }
        };
        Ok(())
    }

    /// Checks and marks what the sinks do with a strip.
    pub(super) fn mark_sinks(&mut self, frame: &mut Frame<'_>, stretch: Stretch) -> Ran<()> {
        let Some(check) = self.check.as_mut() else { return Ok(()) };
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

/// Marks of a region's operand.
fn param_marks(params: &Params<'_>, position: u8, Stretch { start, count }: Stretch) -> Marks {
    // SAFETY: the operand holds all elements of the group, and a mark for each.
    let marks = unsafe { std::slice::from_raw_parts(params.marks.get(usize::from(position))?.add(start), count) };
    marks.iter().any(|&mark| mark != 0).then(|| marks.to_vec())
}

/// Marks of a result.
fn combined_marks(check: &mut Check, frame: &Frame<'_>, (op, src, span): (LaneOp, &[u16], Span), count: usize) -> Marks {
    let sources: Vec<&Marks> = src.iter().map(|&s| &frame.marks[s as usize]).collect();
    if op.divisor().is_none() && sources.iter().all(|marks| marks.is_none()) {
        return None;
    }
    let mut of = vec![0; src.len()];
    let element = |k: usize| {
        for (to, marks) in of.iter_mut().zip(&sources) {
            *to = marks.as_ref().map_or(0, |marks| marks[k]);
        }
        check.result(op, &of, |operand| value(frame, src[operand], k), span)
    };
    let marks: Vec<u8> = (0..count).map(element).collect();
    marks.iter().any(|&mark| mark != 0).then_some(marks)
}

/// The bits of an element of a node's strip.
fn value(frame: &Frame<'_>, node: u16, k: usize) -> u64 {
    let bytes = frame.group.nodes[node as usize].bytes as usize;
    let mut bits = [0; 8];
    // SAFETY: the strip holds the element.
    unsafe { std::ptr::copy_nonoverlapping(frame.strips[node as usize].add(k * bytes), bits.as_mut_ptr(), bytes) };
    u64::from_le_bytes(bits)
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
fn loaded_marks(
    check: &mut Check,
    frame: &Frame<'_>,
    (node, kind): (&Node, Kind),
    operands: [Option<u16>; 3],
    count: usize,
) -> Ran<Marks> {
    let [Some(addresses), mask, padding] = operands else { return Ok(None) };
    let (list, active) = addressed(frame, addresses, mask, count);
    let mut marks = vec![0; count];
    for k in 0..count {
        check.element(&frame.marks[mask.unwrap_or(addresses) as usize], k, node.span, "an address or mask")?;
        marks[k] = if active.is_none_or(|active| active[k] != 0) {
            check.element(&frame.marks[addresses as usize], k, node.span, "an address or mask")?;
            check.touch(Touch { kind, address: list[k], bytes: node.bytes as usize, value: None, span: node.span })?
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
    let kind = if access.strong { Kind::Look } else { Kind::Read };
    each_element(window, stretch.start, stretch.count, |k, place| match place {
        None if window.undetermined => marks[k] = check.padding(access.span),
        None => {}
        Some((address, bytes)) => match check.touch(Touch { kind, address, bytes, value: None, span: access.span }) {
            Ok(mark) => marks[k] = mark,
            Err(fault) if result.is_ok() => result = Err(fault),
            Err(_) => {}
        },
    });
    result?;
    Ok(marks.iter().any(|&mark| mark != 0).then_some(marks))
}

/// Checks that what leaves the group is determined, and passes marks on.
fn mark_sinks(check: &mut Check, frame: &mut Frame<'_>, stretch: Stretch) -> Ran<()> {
    let Stretch { start, count } = stretch;
    let group = frame.group;
    let (mut target, mut stored) = (0, std::mem::take(&mut frame.stored));
    for (number, sink) in group.sinks.iter().enumerate() {
        match sink {
            Sink::Place { node, place } => check.set_marks(*place, start, count, frame.marks[*node as usize].as_deref()),
            Sink::View { node, access } => {
                if let Some(window) = &frame.targets[target] {
                    view_store(check, frame, window, (*node, access), stretch, |address, value| {
                        stored.put((number, address), value, access.span)
                    })?;
                }
                target += 1;
            }
            Sink::Scatter { addresses, value: stores, mask, span, strong, .. } => {
                let (kind, span) = (if *strong { Kind::Atomic } else { Kind::Write }, *span);
                let bytes = group.nodes[*stores as usize].bytes as usize;
                let (list, active) = addressed(frame, *addresses, *mask, count);
                for k in 0..count {
                    if let Some(mask) = mask {
                        check.element(&frame.marks[*mask as usize], k, span, "a mask")?;
                    }
                    if active.is_none_or(|active| active[k] != 0) {
                        check.element(&frame.marks[*addresses as usize], k, span, "an address")?;
                        check.element(&frame.marks[*stores as usize], k, span, "this store")?;
                        let (address, value) = (list[k], value(frame, *stores, k));
                        check.touch(Touch { kind, address, bytes, value: Some(value), span })?;
                        stored.put((number, address), value, span)?;
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
            Sink::Param { node, position } => {
                let marks = frame.marks[*node as usize].as_deref();
                // SAFETY: the result holds all elements of the group, and a mark for each.
                let to =
                    unsafe { std::slice::from_raw_parts_mut(frame.params.result_marks[*position as usize].add(start), count) };
                match marks {
                    Some(marks) => to.copy_from_slice(marks),
                    None => to.fill(0),
                }
            }
            Sink::Assume { .. } | Sink::ShiftCount { .. } => {}
        }
    }
    frame.stored = stored;
    Ok(())
}

/// What one store has put where, by the sink's number and the address: two elements may have one place.
#[derive(Default)]
pub(super) struct Stored(FxHashMap<(usize, u64), u64>);

impl Stored {
    fn put(&mut self, place: (usize, u64), value: u64, span: Span) -> Ran<()> {
        if *self.0.entry(place).or_insert(value) == value {
            return Ok(());
        }
        let message = "two elements of this store have one place and different values, and nothing says which one stays";
        Err(Box::new(
            Diagnostic::error("cpu-conflict", span, message).help("keep their indices apart, mask all but one, or use atomics"),
        ))
    }
}

/// A store to a view: its elements are determined, and the memory remembers them.
fn view_store(
    check: &mut Check,
    frame: &Frame<'_>,
    window: &Window,
    (node, access): (u16, &Access),
    stretch: Stretch,
    mut put: impl FnMut(u64, u64) -> Ran<()>,
) -> Ran<()> {
    let kind = if access.strong { Kind::Atomic } else { Kind::Write };
    let gathered = window.sides.iter().any(|side| side.gather.is_some());
    let mut result = Ok(());
    each_element(window, stretch.start, stretch.count, |k, place| {
        let (Ok(()), Some((address, bytes))) = (&result, place) else { return };
        // Elements that share a byte are no value of it.
        let value = window.packing.is_none().then(|| value(frame, node, k));
        result = check
            .element(&frame.marks[node as usize], k, access.span, "this store")
            .and_then(|()| check.touch(Touch { kind, address, bytes, value, span: access.span }))
            .and_then(|_| match value.filter(|_| gathered) {
                Some(value) => put(address, value),
                None => Ok(()),
            });
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
