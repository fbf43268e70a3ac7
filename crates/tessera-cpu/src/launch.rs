//! What a launch takes and what it can end in.

use std::fmt;
use std::sync::Mutex;

use tessera_ir::{Diagnostic, Span};
use tessera_types::TimeLimit;

use crate::exec::Range;

/// One argument of a function, in the order of [`tessera_ir::Func::args`].
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// An array's memory.
    Pointer {
        /// Its first byte.
        base: *mut u8,
        /// How many bytes may be touched.
        bytes: usize,
    },
    /// A number: its bits, zero-extended.
    Scalar(u64),
}

// SAFETY: the pointer is only dereferenced under the promises of `Program::run`, which name all threads that run blocks.
unsafe impl Send for Arg {}
// SAFETY: as above; an `Arg` itself is never written through.
unsafe impl Sync for Arg {}

/// Memory that is reached through addresses in other arrays (list parameters), not through an argument of its own.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Its first byte.
    pub base: *mut u8,
    /// How many bytes may be touched.
    pub bytes: usize,
}

// SAFETY: as for `Arg`.
unsafe impl Send for Allocation {}
// SAFETY: as for `Arg`.
unsafe impl Sync for Allocation {}

/// How a launch runs.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Report undetermined padding and uninitialised memory that reach a store, a branch or an address, blocks and threads that touch
    /// each other's bytes with nothing that orders them, stores of two values for one place, tiles wholly outside their array, parts
    /// outside their tile, broken assumptions and shift counts out of range. Blocks then run one after another.
    pub checked: bool,
    /// Threads that run blocks; all of rayon's pool when absent. Results do not depend on it.
    pub threads: Option<usize>,
    /// Memory beyond the arguments.
    pub allocations: &'a [Allocation],
    /// Memory that holds nothing yet (checked launches): positions of pointer arguments and, counted on behind the last argument, of
    /// `allocations`.
    pub uninitialised: &'a [usize],
    /// Where a checked launch of tiles that ran to its end puts which bytes of that memory were written, in the same order.
    pub written: Option<&'a Mutex<Vec<Vec<bool>>>>,
    /// How long it may take; a kernel that takes longer is stopped in one of its loops.
    pub limit: TimeLimit,
    /// Where `print_tko` writes, block after block.
    pub output: Option<&'a Mutex<String>>,
}

impl fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions").field("checked", &self.checked).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// The memory of each argument by its position (numbers have none), then the allocations.
pub(crate) fn ranges(wanted: usize, args: &[Arg], options: &RunOptions<'_>, span: Span) -> Result<Vec<Range>, Fault> {
    if args.len() != wanted {
        let message = format!("the kernel takes {wanted} arguments, {} were given", args.len());
        return Err(Fault { diagnostic: Diagnostic::error("cpu-arguments", span, message), block: None });
    }
    let range = |base: *mut u8, bytes: usize| Range { start: base as u64, end: base as u64 + bytes as u64 };
    let mut ranges: Vec<Range> = args
        .iter()
        .map(|arg| match *arg {
            Arg::Pointer { base, bytes } => range(base, bytes),
            Arg::Scalar(_) => Range { start: 0, end: 0 },
        })
        .collect();
    ranges.extend(options.allocations.iter().map(|allocation| range(allocation.base, allocation.bytes)));
    Ok(ranges)
}

/// Why a launch stopped: the first mistake in block order.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What happened, where, and what it clashes with.
    pub diagnostic: Diagnostic,
    /// The block in which it happened; absent for arguments that do not fit.
    pub block: Option<[u32; 3]>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)?;
        match self.block {
            Some([x, y, z]) => write!(f, " (in block {x}, {y}, {z})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
