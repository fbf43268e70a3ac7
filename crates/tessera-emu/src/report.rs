//! What a launch found out: findings with their places, counts, and what the kernel printed.

use std::fmt;

use serde::Serialize;
use tessera_ptx::PtxError;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// An access outside every allocation.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// An access to memory that is gone.
    UseAfterFree,
    /// A register or a byte that is read before anything was written to it.
    Uninitialized,
    /// Conflicting accesses that nothing orders.
    Race,
    /// Generic accesses and accesses by the copy engine or tensor cores without a proxy fence between them.
    ProxyFence,
    /// Registers or memory touched while an asynchronous operation uses them.
    InFlight,
    /// A block barrier with a wrong number or count.
    Barrier,
    /// Lanes of a warp that come to an aligned barrier apart.
    DivergentBarrier,
    /// A warp instruction for lanes that do not execute it.
    WarpMask,
    /// An mbarrier that is used wrongly.
    Mbarrier,
    /// A tensor map or a bulk copy that the engine refuses.
    BulkCopy,
    /// A matrix instruction or descriptor that the chip refuses.
    Matrix,
    /// No thread can go on.
    Deadlock,
    /// The kernel stopped itself.
    Trap,
    /// Results that depend on the order of atomic operations, and on nothing else.
    Nondeterministic,
}

impl FindingKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FindingKind::OutOfBounds => "out-of-bounds",
            FindingKind::Misaligned => "misaligned",
            FindingKind::UseAfterFree => "use-after-free",
            FindingKind::Uninitialized => "uninitialized",
            FindingKind::Race => "race",
            FindingKind::ProxyFence => "proxy-fence",
            FindingKind::InFlight => "in-flight",
            FindingKind::Barrier => "barrier",
            FindingKind::DivergentBarrier => "divergent-barrier",
            FindingKind::WarpMask => "warp-mask",
            FindingKind::Mbarrier => "mbarrier",
            FindingKind::BulkCopy => "bulk-copy",
            FindingKind::Matrix => "matrix",
            FindingKind::Deadlock => "deadlock",
            FindingKind::Trap => "trap",
            FindingKind::Nondeterministic => "nondeterministic",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place in a kernel, and who was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The kernel.
    pub kernel: String,
    /// The line of the PTX text, from 1; 0 is unknown.
    pub line: u32,
    /// The instruction, without its operands.
    pub instruction: String,
    /// The file, line and column of the kernel's source, where `.loc` says them.
    pub source: Option<(String, u32, u32)>,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in the block; `None` where it is no thread.
    pub thread: Option<[u32; 3]>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, PTX line {}, `{}`", self.kernel, self.line, self.instruction)?;
        if let Some((file, line, column)) = &self.source {
            write!(f, ", {file}:{line}:{column}")?;
        }
        let [x, y, z] = self.block;
        write!(f, ", block ({x}, {y}, {z})")?;
        match self.thread {
            Some([x, y, z]) => write!(f, ", thread ({x}, {y}, {z})"),
            None => Ok(()),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// In words.
    pub message: String,
    /// Where it was noticed.
    pub place: Place,
    /// The earlier access that it conflicts with.
    pub earlier: Option<Place>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  at {}", self.kind, self.message, self.place)?;
        match &self.earlier {
            Some(earlier) => write!(f, "\n  against {earlier}"),
            None => Ok(()),
        }
    }
}

/// What could be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// Lanes that meet in a bank of shared memory at different words.
    BankConflicts,
    /// Lanes of a warp whose bytes of global memory do not lie together.
    Uncoalesced,
}

/// A memory instruction that takes more transactions than its bytes need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it is.
    pub kind: AdviceKind,
    /// Where; the thread is the first that came there.
    pub place: Place,
    /// Executions by a warp.
    pub accesses: u64,
    /// Passes over the banks, or sectors of 32 bytes.
    pub transactions: u64,
    /// The least that the bytes need.
    pub needed: u64,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = match self.kind {
            AdviceKind::BankConflicts => ("bank-conflicts", "passes over the banks"),
            AdviceKind::Uncoalesced => ("uncoalesced", "sectors of 32 bytes"),
        };
        let Advice { accesses, transactions, needed, place, .. } = self;
        write!(f, "{name}: {accesses} accesses take {transactions} {unit} where {needed} would do\n  at {place}")
    }
}

/// What [`Schedule::Systematic`](crate::Schedule::Systematic) went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explored {
    /// Executions to the end.
    pub executions: u64,
    /// Executions that were given up because all they could still do was seen before.
    pub pruned: u64,
    /// Different contents of global memory at the end.
    pub outcomes: u64,
    /// Whether there is no other interleaving.
    pub complete: bool,
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Instructions executed, counted for each thread.
    pub instructions: u64,
    /// What sanitizers found.
    pub findings: Vec<Finding>,
    /// What could be faster, the most wasteful first.
    pub advice: Vec<Advice>,
    /// Of systematic schedules, how many there were.
    pub explored: Option<Explored>,
    /// What the kernel printed, block by block.
    pub output: String,
    /// The operations of the warp that was traced: PTX line, lanes, instruction, and what it wrote.
    pub trace: Vec<String>,
}

impl Report {
    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Why something could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmuError {
    /// The PTX text is not PTX that the table knows.
    #[error("{0}")]
    Parse(#[from] PtxError),
    /// The kernel uses something that is not executed.
    #[error("kernel `{kernel}`, PTX line {line}: {message}")]
    Unsupported {
        /// The kernel.
        kernel: String,
        /// The line of the PTX text.
        line: u32,
        /// What it is.
        message: String,
    },
    /// The launch does not fit the kernel or the device.
    #[error("{0}")]
    Launch(String),
    /// The launch was stopped by the finding; the report holds it and what was found before.
    #[error("{finding}")]
    Fault {
        /// What stopped it.
        finding: Box<Finding>,
        /// Everything.
        report: Box<Report>,
    },
    /// Memory that is not there, or not enough of it.
    #[error("{0}")]
    Memory(String),
}
