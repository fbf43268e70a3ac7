//! Calls of routines: functions that call themselves or are called by pointer.
//!
//! All lanes of a fragment are inside the same calls. A call saves the routine's registers (it may be running already, further
//! out), begins a frame behind the caller's and copies the arguments there; the return undoes that and copies the results.
//! Lanes that part inside a routine meet at its one [`Op::Return`](crate::program::Op::Return) at the latest, or return on
//! their own.

use super::access::Target;
use super::undefined::{Lacking, Saved, Who};
use super::{Cluster, Fault, Fragment, Warp};
use crate::finding::FindingKind;
use crate::lanes::{LANES, Slot, lanes};
use crate::program::{CALL_BYTES, Call, Callee, Formal, Op, Passed, Routine, STACK_BYTES, StackPlace};

/// A call that has not returned in all lanes.
pub(crate) struct Open {
    parent: u32,
    routine: u32,
    /// Where the call stands.
    pc: u32,
    /// Lanes that are still inside.
    pub(super) pending: u32,
    frame_step: u32,
    registers: Vec<Slot>,
    predicates: Vec<u32>,
    /// What of the registers was undefined.
    undefined: Vec<Saved>,
}

/// An argument or result under way: bytes and their undefined bits.
#[derive(Debug, Default)]
struct Carried {
    values: Vec<u8>,
    lacking: Lacking,
}

impl Cluster<'_> {
    /// Where bytes of a lane's local memory stand in the warp's.
    pub(super) fn local(&self, warp: &Warp, place: StackPlace, bytes: u32, lane: usize) -> Option<usize> {
        let program = self.launch.program;
        let base = if place.framed { warp.regs[program.frame as usize].w()[lane] as usize } else { 0 };
        let at = base + place.at as usize;
        let size = program.local_bytes as usize;
        (at + bytes as usize <= size).then_some(lane * size + at)
    }

    /// The bytes of an argument or result.
    pub(super) fn copy_in(&self, warp: &Warp, from: Passed, bytes: usize, lane: usize) -> Vec<u8> {
        match from {
            Passed::Register(reg) => warp.value(reg, lane).to_le_bytes()[..bytes.min(8)].to_vec(),
            Passed::Bytes(place) => match self.local(warp, place, bytes as u32, lane) {
                Some(at) => warp.local[at..at + bytes].to_vec(),
                None => vec![0; bytes],
            },
        }
    }

    fn take(&mut self, warp: &Warp, from: Passed, bytes: usize, who: Who) -> Carried {
        let lane = who.thread % LANES;
        let values = self.copy_in(warp, from, bytes, lane);
        let lacking = match from {
            _ if warp.undefined.is_none() => Lacking::default(),
            Passed::Register(reg) => self.lacking_of(warp, reg, bytes as u32, who).0,
            Passed::Bytes(place) => match self.local(warp, place, bytes as u32, lane) {
                Some(at) => {
                    let offset = (at - lane * self.launch.program.local_bytes as usize) as u32;
                    self.undefined_bytes(Some(warp), Target::Local { offset }, bytes as u32, who)
                }
                None => Lacking::default(),
            },
        };
        Carried { values, lacking }
    }

    fn copy_out(&mut self, warp: &mut Warp, to: Passed, carried: &Carried, who: Who) {
        let lane = who.thread % LANES;
        let Carried { values, lacking } = carried;
        match to {
            Passed::Register(reg) => {
                let word = values.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                warp.set(reg, lane, word);
                if let Some(undefined) = &mut warp.undefined {
                    let (bits, sources) = lacking.value();
                    undefined.set(reg.slot, reg.wide, lane, bits, sources);
                }
            }
            Passed::Bytes(place) => {
                if let Some(at) = self.local(warp, place, values.len() as u32, lane) {
                    warp.local[at..at + values.len()].copy_from_slice(values);
                    let offset = (at - lane * self.launch.program.local_bytes as usize) as u32;
                    let count = values.len() as u32;
                    self.store_undefined(Some(warp), Target::Local { offset }, (count, lacking), who, "an argument");
                }
            }
        }
    }

    /// Goes into a routine; where lanes mean different ones, they part first.
    pub(super) fn call(&mut self, warp: &mut Warp, fragment: usize, pc: u32, call: &Call) -> Result<(), Fault> {
        let program = self.launch.program;
        let Fragment { mask, call: parent, .. } = warp.fragments[fragment];
        let first = mask.trailing_zeros() as usize;
        let index = match call.callee {
            Callee::Routine(index) => index,
            Callee::Pointer(reg) => {
                let pointer = warp.value(reg, first);
                let same = lanes(mask).filter(|&lane| warp.value(reg, lane) == pointer).fold(0, |same, lane| same | 1 << lane);
                if same != mask {
                    warp.part(fragment, &[(pc, same), (pc, mask & !same)], pc + 1);
                    return Ok(());
                }
                let found = program.routines.iter().position(|routine| routine.address == pointer);
                found.ok_or_else(|| {
                    let message = format!("a call to {pointer:#x}, where no function with these parameters stands");
                    Fault::new(FindingKind::OutOfBounds, first, message)
                })? as u32
            }
        };
        let routine = &program.routines[index as usize];
        if routine.params.len() != call.arguments.len() || routine.results.len() != call.results.len() {
            return Err(Fault::new(FindingKind::OutOfBounds, first, "a call to a function with other parameters"));
        }
        let frame_step =
            call.caller.map_or(program.kernel_frame, |caller| program.routines[caller as usize].frame_bytes).max(CALL_BYTES);
        let frame = warp.regs[program.frame as usize].w()[first] + u64::from(frame_step);
        if frame + u64::from(routine.frame_bytes) > u64::from(program.local_bytes) {
            let message = format!("the calls need more than {} bytes of stack", STACK_BYTES);
            return Err(Fault::new(FindingKind::OutOfBounds, first, message));
        }
        let arguments: Vec<Vec<Carried>> = lanes(mask)
            .map(|lane| {
                let pairs = call.arguments.iter().zip(&routine.params);
                pairs.map(|(from, formal)| self.take(warp, *from, size(*formal), Who::lane(warp, lane, pc))).collect()
            })
            .collect();
        let open = Open {
            parent,
            routine: index,
            pc,
            pending: mask,
            frame_step,
            registers: routine.registers.iter().map(|reg| warp.regs[reg.slot as usize]).collect(),
            predicates: routine.predicates.iter().map(|&index| warp.predicates[index as usize]).collect(),
            undefined: match &warp.undefined {
                Some(undefined) => routine.registers.iter().map(|reg| undefined.save(reg.slot)).collect(),
                None => Vec::new(),
            },
        };
        for lane in lanes(mask) {
            warp.regs[program.frame as usize].w_mut()[lane] = frame;
        }
        for (lane, values) in lanes(mask).zip(arguments) {
            for (formal, carried) in routine.params.iter().zip(values) {
                self.copy_out(warp, placed(*formal), &carried, Who::lane(warp, lane, pc));
            }
        }
        let number = match warp.calls.iter().position(|open| open.pending == 0) {
            Some(free) => {
                warp.calls[free] = open;
                free
            }
            None => {
                warp.calls.push(open);
                warp.calls.len() - 1
            }
        };
        let fragment = &mut warp.fragments[fragment];
        (fragment.pc, fragment.call) = (routine.start, number as u32);
        Ok(())
    }

    /// Comes back from a routine.
    pub(super) fn give_back(&mut self, warp: &mut Warp, fragment: usize) {
        let program = self.launch.program;
        let Fragment { mask, call: number, .. } = warp.fragments[fragment];
        let Some(open) = warp.calls.get_mut(number as usize) else { return };
        open.pending &= !mask;
        let Open { parent, routine, pc, frame_step, .. } = *open;
        let routine: &Routine = &program.routines[routine as usize];
        let Op::Call(call) = &program.code[pc as usize].op else { return };
        let results: Vec<Vec<Carried>> = lanes(mask)
            .map(|lane| {
                let take = |formal: &Formal| self.take(warp, placed(*formal), size(*formal), Who::lane(warp, lane, pc));
                routine.results.iter().map(take).collect()
            })
            .collect();
        let (registers, predicates, undefined) = {
            let open = &warp.calls[number as usize];
            (open.registers.clone(), open.predicates.clone(), open.undefined.clone())
        };
        if let Some(own) = &mut warp.undefined {
            for (reg, saved) in routine.registers.iter().zip(&undefined) {
                own.restore(reg.slot, reg.wide, mask, saved);
            }
        }
        for (reg, saved) in routine.registers.iter().zip(&registers) {
            warp.regs[reg.slot as usize].take(saved, reg.wide, mask);
        }
        for (&index, saved) in routine.predicates.iter().zip(predicates) {
            warp.set_predicate(index, mask, saved);
        }
        for lane in lanes(mask) {
            warp.regs[program.frame as usize].w_mut()[lane] -= u64::from(frame_step);
        }
        for (lane, values) in lanes(mask).zip(results) {
            for (to, carried) in call.results.iter().zip(values) {
                self.copy_out(warp, *to, &carried, Who::lane(warp, lane, pc));
            }
        }
        let fragment = &mut warp.fragments[fragment];
        (fragment.pc, fragment.call) = (pc + 1, parent);
    }
}

fn size(formal: Formal) -> usize {
    match formal {
        Formal::Bytes { bytes, .. } => bytes as usize,
        Formal::Register(reg) => {
            if reg.wide {
                8
            } else {
                4
            }
        }
    }
}

/// A parameter or result as the routine that runs sees it.
fn placed(formal: Formal) -> Passed {
    match formal {
        Formal::Bytes { at, .. } => Passed::Bytes(StackPlace { at, framed: true }),
        Formal::Register(reg) => Passed::Register(reg),
    }
}
