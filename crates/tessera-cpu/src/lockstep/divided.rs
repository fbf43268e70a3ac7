//! Divisions by zero in checked launches: which threads' elements come of one.
//!
//! A buffer with an element a thread says so of itself ([`Divided`]), and an operation's result of its operands, but for what comes out the same whatever the
//! quotient is: the side of a selection that is not taken, a product or an `and` with zero. Where such an element decides something (a store, a branch,
//! an index, an address), the division is reported.

use std::rc::Rc;

use tessera_ir::{OpData, ScheduleOp, Span, Type, Value};

use super::machine::Machine;
use super::mask::Mask;
use super::micro::scalar_bytes;
use super::program::mask_position;
use super::value::Buffer;
use crate::check::division;
use crate::exec::Ran;

/// Threads whose element comes of a division by zero, and where that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divided {
    pub(super) threads: Mask,
    pub(super) span: Span,
}

impl Divided {
    /// All of them as one; `None` where no thread's does.
    pub(super) fn of(parts: impl IntoIterator<Item = Divided>) -> Option<Rc<Divided>> {
        let some = parts.into_iter().filter(|part| !part.threads.is_empty());
        some.reduce(|all, part| Divided { threads: all.threads.or(&part.threads), ..all }).map(Rc::new)
    }
}

impl Machine<'_> {
    /// What an operation on scalars makes of its operands' divisions, and of its own.
    pub(super) fn divided(&self, data: &OpData, kind: &ScheduleOp, active: &Mask) -> Ran<Option<Rc<Divided>>> {
        if !self.checked || data.results.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for (position, &value) in data.operands.iter().enumerate().filter(|&(_, &value)| *self.func.ty(value) != Type::Token) {
            let Some(divided) = self.lanes(value, data.span)?.divided.as_deref() else { continue };
            let mut counted = Vec::new();
            for thread in active.and(&divided.threads).iter() {
                if self.depends(data, kind, position, thread)? {
                    counted.push(thread);
                }
            }
            parts.push(Divided { threads: Mask::of(counted), ..*divided });
        }
        if matches!(kind, ScheduleOp::DivI { .. } | ScheduleOp::RemI { .. }) {
            let (divisor, size) = (self.lanes(data.one(1), data.span)?, scalar_bytes(self.func.ty(data.one(1))));
            let threads = Mask::of(active.iter().filter(|&thread| divisor.get(thread, size) == 0));
            parts.push(Divided { threads, span: data.span });
        }
        Ok(Divided::of(parts))
    }

    /// Whether a thread's result depends on an operand, given what the others are.
    fn depends(&self, data: &OpData, kind: &ScheduleOp, position: usize, thread: usize) -> Ran<bool> {
        let of = |position: usize| -> Ran<u64> {
            let value = data.operands[position];
            Ok(self.lanes(value, data.span)?.get(thread, scalar_bytes(self.func.ty(value))))
        };
        Ok(match kind {
            ScheduleOp::Select {} => position == 0 || (position == 1) == (of(0)? & 1 != 0),
            ScheduleOp::AndI {} | ScheduleOp::MulI { .. } => of(1 - position)? != 0,
            ScheduleOp::OrI {} => {
                let ones =
                    self.func.ty(data.operands[0]).as_tile().and_then(|tile| tile.elem.num()).map_or(64, |dtype| dtype.bits());
                of(1 - position)? != u64::MAX >> (64 - ones)
            }
            _ => true,
        })
    }

    /// Reports a division whose result decides something for these threads.
    pub(super) fn decides(&self, lanes: &Buffer, active: &Mask, span: Span, reached: &str) -> Ran<()> {
        match lanes.divided.as_deref() {
            Some(divided) if !divided.threads.and(active).is_empty() => Err(division(divided.span, span, reached)),
            _ => Ok(()),
        }
    }

    /// The same of what an operation on the launch's memory does it with, or an assertion asks.
    pub(super) fn decides_all(&self, data: &OpData, kind: &ScheduleOp, active: &Mask) -> Ran<()> {
        let touches = mask_position(kind);
        if !self.checked || touches.is_none() && !matches!(kind, ScheduleOp::Assert { .. }) {
            return Ok(());
        }
        let mask = touches.and_then(|position| data.optional(position));
        let mut taking = *active;
        if let Some(mask) = mask {
            let lanes = self.lanes(mask, data.span)?;
            self.decides(lanes, active, data.span, "a mask")?;
            taking = Mask::of(active.iter().filter(|&thread| lanes.get(thread, 1) & 1 != 0));
        }
        let reached = |value: Value| match kind {
            ScheduleOp::Assert { .. } => "an assertion",
            _ if value == data.one(0) => "an address",
            ScheduleOp::StorePtrTko { .. } => "this store",
            _ => "this update",
        };
        let others = data.operands.iter().filter(|&&value| *self.func.ty(value) != Type::Token && Some(value) != mask);
        for &value in others {
            // What stands where the mask is false decides nothing here.
            if matches!(kind, ScheduleOp::LoadPtrTko { .. }) && value != data.one(0) {
                continue;
            }
            self.decides(self.lanes(value, data.span)?, &taking, data.span, reached(value))?;
        }
        Ok(())
    }
}
