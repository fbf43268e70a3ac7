//! Conditions and loops where threads go different ways.
//!
//! A role has a stack of frames, one a region that it is in, each with the threads that are active there. `if` runs its first
//! region with the threads whose condition holds, then the second with the others. A loop's frame collects the threads that
//! go on with the next round; the frame ends when there are none. A thread that leaves by `continue`, `break` or `return` is
//! struck from the frames up to the one that it leaves to, so nothing there runs for it.

use tessera_ir::{Block, Diagnostic, Op, OpData, OpKind, ScheduleOp, TileOp, Value};

use super::copies::Copies;
use super::machine::{Machine, Role, fault};
use super::mask::Mask;
use super::micro::scalar_bytes;
use super::value::{Buffer, Data};
use crate::exec::Ran;
use crate::pace::around;

/// What a condition decides.
const BRANCH: &str = "a branch or a loop's bounds";

/// A region that a role is in.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) block: Block,
    /// The next operation.
    pub(super) at: usize,
    pub(super) active: Mask,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Body,
    /// The first region of an `if`; `other` threads take the second.
    Then {
        op: Op,
        other: Mask,
    },
    /// The second region.
    Else {
        op: Op,
    },
    /// The body of a loop.
    Loop {
        op: Op,
        next: Mask,
        entered: Mask,
        count: Option<Box<Count>>,
        /// Which round it is in.
        round: u64,
    },
}

/// Where each thread's counter stands, and where it goes.
#[derive(Clone, Debug)]
struct Count {
    value: Vec<i128>,
    upper: Vec<i128>,
    step: Vec<i128>,
}

impl Frame {
    pub(super) fn body(block: Block, active: Mask) -> Frame {
        Frame { block, at: 0, active, kind: Kind::Body }
    }
}

impl Machine<'_> {
    /// Does an operation of control; false if it is none.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn control(&mut self, role: usize, op: Op, kind: &ScheduleOp, active: &Mask) -> Ran<bool> {
        let func = self.func;
        let data = &func.ops[op];
        match kind {
            ScheduleOp::If {} => {
                let lanes = self.lanes(data.one(0), data.span)?;
                self.decides(lanes, active, data.span, BRANCH)?;
                let then = Mask::of(active.iter().filter(|&thread| lanes.get(thread, 1) & 1 != 0));
                let kind = Kind::Then { op, other: active.without(&then) };
                self.roles[role].frames.push(Frame { block: data.regions[0], at: 0, active: then, kind });
            }
            ScheduleOp::For { unsigned, .. } => {
                let args = &func.blocks[data.regions[0]].args;
                let count = self.count(data, *unsigned, active)?;
                let first = Mask::of(active.iter().filter(|&thread| count.value[thread] < count.upper[thread]));
                self.pass(data.group(3), &args[1..], active, data)?;
                self.counter(args[0], &count);
                let kind = Kind::Loop { op, next: Mask::NONE, entered: *active, count: Some(Box::new(count)), round: 1 };
                self.roles[role].frames.push(Frame { block: data.regions[0], at: 0, active: first, kind });
            }
            ScheduleOp::Loop {} => {
                let args = &func.blocks[data.regions[0]].args;
                self.pass(data.group(0), args, active, data)?;
                let kind = Kind::Loop { op, next: Mask::NONE, entered: *active, count: None, round: 1 };
                self.roles[role].frames.push(Frame { block: data.regions[0], at: 0, active: *active, kind });
            }
            ScheduleOp::Yield {} => {
                if let Some(Frame { kind: Kind::Then { op, .. } | Kind::Else { op }, .. }) = self.roles[role].frames.last() {
                    let to = &func.ops[*op].results;
                    self.pass(data.group(0), to, active, data)?;
                }
                self.leave(role)?;
            }
            ScheduleOp::Continue {} => {
                let (depth, owner) = self.enclosing(role, data)?;
                let args = &func.blocks[func.ops[owner].regions[0]].args;
                let counts = usize::from(matches!(func.ops[owner].kind, OpKind::Schedule(ScheduleOp::For { .. })));
                self.pass(data.group(0), &args[counts..], active, data)?;
                self.strike(role, depth, active);
                if let Kind::Loop { next, .. } = &mut self.roles[role].frames[depth].kind {
                    *next = next.or(active);
                }
            }
            ScheduleOp::Break {} => {
                let (depth, owner) = self.enclosing(role, data)?;
                self.pass(data.group(0), &func.ops[owner].results, active, data)?;
                self.strike(role, depth, active);
            }
            ScheduleOp::Return {} => {
                self.strike(role, 0, active);
                let alive = &mut self.roles[role].alive;
                *alive = alive.without(active);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The innermost loop around the current operation: its frame and operation.
    fn enclosing(&self, role: usize, data: &OpData) -> Ran<(usize, Op)> {
        let frames = self.roles[role].frames.iter().enumerate().rev();
        let mut loops = frames.filter_map(|(depth, frame)| match frame.kind {
            Kind::Loop { op, .. } => Some((depth, op)),
            Kind::Body | Kind::Then { .. } | Kind::Else { .. } => None,
        });
        loops.next().ok_or_else(|| fault("cpu-region", data.span, "there is no loop here to leave"))
    }

    /// Takes threads out of the frames from a depth on.
    fn strike(&mut self, role: usize, depth: usize, threads: &Mask) {
        for frame in &mut self.roles[role].frames[depth..] {
            frame.active = frame.active.without(threads);
        }
    }

    /// Gives values to others for these threads, all at once.
    fn pass(&mut self, from: &[Value], to: &[Value], threads: &Mask, data: &OpData) -> Ran<()> {
        let values: Vec<Data> = from.iter().map(|&value| self.data(value, data.span).cloned()).collect::<Ran<_>>()?;
        for (value, &to) in values.iter().zip(to) {
            self.assign(to, value, threads);
        }
        Ok(())
    }

    fn count(&self, data: &OpData, unsigned: bool, active: &Mask) -> Ran<Count> {
        let size = scalar_bytes(self.func.ty(data.one(0)));
        let read = |position: usize| -> Ran<Vec<i128>> {
            let lanes = self.lanes(data.one(position), data.span)?;
            self.decides(lanes, active, data.span, BRANCH)?;
            let number = |thread: usize| match unsigned {
                true => i128::from(lanes.get(thread, size)),
                false => i128::from(lanes.get_signed(thread, size)),
            };
            Ok((0..self.program.threads).map(number).collect())
        };
        let count = Count { value: read(0)?, upper: read(1)?, step: read(2)? };
        if let Some(thread) = active.iter().find(|&thread| count.step[thread] <= 0) {
            let message = format!("the loop's step is {}", count.step[thread]);
            let diagnostic = Diagnostic::error("cpu-step", data.span, message).help("a step must be greater than zero");
            return Err(Box::new(diagnostic));
        }
        Ok(count)
    }

    fn counter(&mut self, arg: Value, count: &Count) {
        let size = scalar_bytes(self.func.ty(arg));
        let mut lanes = Buffer::new(size * self.program.threads);
        let bytes = lanes.bytes_mut();
        for (thread, value) in count.value.iter().enumerate() {
            bytes[thread * size..(thread + 1) * size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        self.set(arg, Data::Lanes(lanes));
    }

    /// Goes on after the end of the innermost region: the other side of an `if`, the next round, what follows.
    pub(super) fn leave(&mut self, role: usize) -> Ran<()> {
        let func = self.func;
        let Some(frame) = self.roles[role].frames.pop() else { return Ok(()) };
        match frame.kind {
            Kind::Body => self.finish(role),
            Kind::Else { .. } => Ok(()),
            Kind::Then { op, other } => {
                let block = func.ops[op].regions[1];
                self.roles[role].frames.push(Frame { block, at: 0, active: other, kind: Kind::Else { op } });
                Ok(())
            }
            Kind::Loop { op, next, entered, mut count, round } => {
                let mut active = next;
                let args = &func.blocks[frame.block].args;
                if let Some(count) = &mut count {
                    for thread in next.iter() {
                        count.value[thread] += count.step[thread];
                    }
                    active = Mask::of(next.iter().filter(|&thread| count.value[thread] < count.upper[thread]));
                    if active.is_empty() {
                        return self.pass(&args[1..], &func.ops[op].results, &entered, &func.ops[op]);
                    }
                    self.counter(args[0], count);
                }
                if !active.is_empty() {
                    if let Some(given) = self.pace.round() {
                        let stopped = self.pace.never_ends(given, func.ops[op].span, round);
                        return Err(self.roles[role].frames.iter().rev().fold(stopped, |stopped, frame| match frame.kind {
                            Kind::Loop { op, round, .. } => around(stopped, func.ops[op].span, round),
                            Kind::Body | Kind::Then { .. } | Kind::Else { .. } => stopped,
                        }));
                    }
                    let kind = Kind::Loop { op, next: Mask::NONE, entered, count, round: round + 1 };
                    self.roles[role].frames.push(Frame { block: frame.block, at: 0, active, kind });
                }
                Ok(())
            }
        }
    }

    /// Runs the role at hand and those that follow it directly, at the same time.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn roles(&mut self, role: usize, op: Op) -> Ran<()> {
        let func = self.func;
        let Some(frame) = self.roles[role].frames.last_mut() else { return Ok(()) };
        let ops = &func.blocks[frame.block].ops;
        let first = ops.iter().position(|&other| other == op).unwrap_or(frame.at - 1);
        let group: Vec<Op> = ops[first..]
            .iter()
            .copied()
            .take_while(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Role { .. })))
            .collect();
        frame.at = first + group.len();
        let active = frame.active;
        let start = self.roles.len();
        for &op in &group {
            let OpKind::Tile(TileOp::Role { first_warp, warps, .. }) = &func.ops[op].kind else { continue };
            let first = 32 * *first_warp as usize;
            let threads = Mask::range(first, first + 32 * *warps as usize).and(&active);
            let body = Frame::body(func.ops[op].regions[0], threads);
            self.roles.push(Role { op: Some(op), frames: vec![body], alive: threads, copies: Copies::default(), wait: None });
        }
        // SAFETY: passed on.
        unsafe { self.drive(start..self.roles.len())? };
        self.roles.truncate(start);
        Ok(())
    }
}
