//! What is done where nothing cheap makes a kernel fit into its registers.
//!
//! 1. Values leave over the operation that lacks most, one after the other, the cheapest first, by all ways that [`super::pressure`] knows: through
//!    shared memory as long as a buffer fits there, else by loading them again.
//! 2. What is left over is for the assembler to keep in local memory. It does so for every kernel, also for the sums of tensor cores and in roles
//!    that have registers of their own; where, it decides by its own schedule.
//!
//! Each step is a [`Fallback`], whose cost the driver compares with that of other ways to lay the kernel out.

use tessera_ir::{Diagnostic, Fallback, Func, Op, Severity, Span, Value};
use tessera_types::Arch;

use super::live_values::LiveValues;
use super::pressure::{Choice, Means, choices, rounds};
use super::registers::{Peak, Places, described};
use super::settle;

/// Values that leave the registers at most.
const MOST: usize = 64;
/// Operations that lack registers, of which the dearest says what local memory costs.
const PEAKS: usize = 16;
/// Instructions that a register in local memory counts for: it is stored and loaded, through the cache.
const LOCAL: u64 = 16;

/// A value that has left the registers over an operation.
pub(super) struct Eased {
    pub(super) value: Value,
    /// `waits in shared memory`.
    pub(super) how: &'static str,
    /// Registers of a thread that this frees.
    pub(super) frees: u64,
    /// Bytes of shared memory that it takes.
    pub(super) bytes: u64,
    /// The operation.
    pub(super) span: Span,
    pub(super) cost: u64,
}

impl Eased {
    pub(super) fn fallback(&self, func: &Func, arch: Arch) -> Fallback {
        let Eased { frees, bytes, how, .. } = self;
        let taken = if *bytes > 0 { format!(", which takes {bytes} bytes there") } else { String::new() };
        let message =
            format!("{} {how} behind this: {frees} registers of a thread are free meanwhile{taken}", described(func, self.value));
        let note = Diagnostic::error("target-registers", self.span, message).severity(Severity::Note);
        let help = format!("smaller tiles fit the registers of `{arch}` as they are");
        Fallback { note: note.help(help), cost: self.cost }
    }
}

/// Moves as much out of registers as there are ways for, and says what is left to local memory.
pub(super) fn spill(func: &mut Func, arch: Arch, fallbacks: &mut Vec<Fallback>) -> Result<(), Box<Diagnostic>> {
    let mut left: Vec<Value> = Vec::new();
    let mut given_up: Vec<Op> = Vec::new();
    for _ in 0..MOST {
        let live = LiveValues::of(func);
        let Some(peak) = Peak::snug(func, arch, &live, &given_up) else { break };
        let ways = choices(func, &live, &peak, Means::All, &left);
        let Some((choice, next)) = ways.iter().find_map(|choice| Some((choice, moved(func, arch, choice)?))) else {
            given_up.push(peak.op);
            continue;
        };
        left.push(choice.value);
        fallbacks.push(choice.eased(func, peak.op).fallback(func, arch));
        *func = next;
    }
    settle(func, arch)?;
    if let Some(peak) = Peak::beyond(func, arch, &LiveValues::of(func), &[]) {
        fallbacks.push(Fallback { note: peak.note(func, arch), cost: local_cost(func, arch) });
    }
    Ok(())
}

/// The function with a value moved, where shared memory has room for what that takes.
fn moved(func: &Func, arch: Arch, choice: &Choice) -> Option<Func> {
    let mut next = func.clone();
    choice.apply(&mut next);
    let fits = !choice.needs_buffer() || settle(&mut next.clone(), arch).is_ok();
    fits.then_some(next)
}

/// What the dearest operation that lacks registers costs.
fn local_cost(func: &Func, arch: Arch) -> u64 {
    let (live, places) = (LiveValues::of(func), Places::of(func));
    let mut seen: Vec<Op> = Vec::new();
    let mut dearest = 0;
    while let Some(peak) = Peak::beyond(func, arch, &live, &seen).filter(|_| seen.len() < PEAKS) {
        dearest = dearest.max(peak.local_bytes() / 4 * LOCAL * rounds(func, &places, peak.op));
        seen.push(peak.op);
    }
    dearest
}
