//! What a launch found: mistakes, formal ones, and advice, each with its place.

use std::fmt;

use serde::Serialize;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Right, and could be faster.
    Advice,
    /// Against the rules of PTX, in a way by which no value can differ in practice: writers that write the same value, an
    /// initialisation that a barrier covers though not the fence that the manual asks for, padding that is copied.
    Formal,
    /// Values can differ, or the launch cannot end.
    Wrong,
}

impl Class {
    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Advice => "advice",
            Class::Formal => "formal",
            Class::Wrong => "wrong",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// An access outside every allocation.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// An access to memory that is gone.
    UseAfterFree,
    /// A value that nobody wrote decides something.
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
    /// A texture or surface that nothing is bound to, or an instruction that it does not fit.
    Texture,
    /// No thread can go on.
    Deadlock,
    /// The kernel took longer than it was given.
    NeverEnds,
    /// The kernel stopped itself.
    Trap,
    /// Results that depend on the order of atomic operations, and on nothing else.
    Nondeterministic,
    /// Lanes that meet in a bank of shared memory at different words.
    BankConflicts,
    /// Lanes of a warp whose bytes of global memory do not lie together.
    Uncoalesced,
}

impl FindingKind {
    /// Every kind.
    pub const ALL: [FindingKind; 20] = [
        FindingKind::OutOfBounds,
        FindingKind::Misaligned,
        FindingKind::UseAfterFree,
        FindingKind::Uninitialized,
        FindingKind::Race,
        FindingKind::ProxyFence,
        FindingKind::InFlight,
        FindingKind::Barrier,
        FindingKind::DivergentBarrier,
        FindingKind::WarpMask,
        FindingKind::Mbarrier,
        FindingKind::BulkCopy,
        FindingKind::Matrix,
        FindingKind::Texture,
        FindingKind::Deadlock,
        FindingKind::NeverEnds,
        FindingKind::Trap,
        FindingKind::Nondeterministic,
        FindingKind::BankConflicts,
        FindingKind::Uncoalesced,
    ];

    /// The name in reports and in suppressions.
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
            FindingKind::Texture => "texture",
            FindingKind::Deadlock => "deadlock",
            FindingKind::NeverEnds => "never-ends",
            FindingKind::Trap => "trap",
            FindingKind::Nondeterministic => "nondeterministic",
            FindingKind::BankConflicts => "bank-conflicts",
            FindingKind::Uncoalesced => "uncoalesced",
        }
    }

    /// How much a finding of the kind weighs where nothing lessens it.
    pub const fn class(self) -> Class {
        match self {
            FindingKind::BankConflicts | FindingKind::Uncoalesced => Class::Advice,
            FindingKind::OutOfBounds
            | FindingKind::Misaligned
            | FindingKind::UseAfterFree
            | FindingKind::Uninitialized
            | FindingKind::Race
            | FindingKind::ProxyFence
            | FindingKind::InFlight
            | FindingKind::Barrier
            | FindingKind::DivergentBarrier
            | FindingKind::WarpMask
            | FindingKind::Mbarrier
            | FindingKind::BulkCopy
            | FindingKind::Matrix
            | FindingKind::Texture
            | FindingKind::Deadlock
            | FindingKind::NeverEnds
            | FindingKind::Trap
            | FindingKind::Nondeterministic => Class::Wrong,
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place in a kernel, and who was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kernel.
    pub kernel: String,
    /// The line of the PTX text, from 1; 0 is unknown.
    pub line: u32,
    /// The instruction, without its operands.
    pub instruction: String,
    /// The file, line and column of the kernel's source, where `.loc` says them.
    pub source: Option<(String, u32, u32)>,
    /// The device that ran it, where there are several.
    pub device: Option<u32>,
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
        if let Some(device) = self.device {
            write!(f, ", device {device}")?;
        }
        let [x, y, z] = self.block;
        write!(f, ", block ({x}, {y}, {z})")?;
        match self.thread {
            Some([x, y, z]) => write!(f, ", thread ({x}, {y}, {z})"),
            None => Ok(()),
        }
    }
}

/// One finding. Findings of a kind at the same instructions are one, with a count.
///
/// As JSON it is an object of `class`, `id` (the kind), `message`, `count`, and the place's `kernel`, `file`, `line`, `column`
/// (of the source, null where `.loc` does not say them), `ptx_line`, `instruction`, `block`, `thread`; `earlier` is null or
/// another place with the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub class: Class,
    /// What it is.
    pub kind: FindingKind,
    /// In words, as it was the first time.
    pub message: String,
    /// Where it was noticed.
    pub place: Place,
    /// What it conflicts with, or where the undefined value came from.
    pub earlier: Option<Place>,
    /// How often it happened, until the launch ended.
    pub count: u64,
    /// Of advice: what the accesses took.
    pub traffic: Option<Traffic>,
}

/// What the accesses of a memory instruction took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Passes over the banks, or sectors of 32 bytes.
    pub transactions: u64,
    /// The least that the bytes need.
    pub needed: u64,
}

impl Finding {
    /// A finding that happened once, of its kind's class.
    pub(crate) fn new(kind: FindingKind, message: String, place: Place, earlier: Option<Place>) -> Finding {
        Finding { class: kind.class(), kind, message, place, earlier, count: 1, traffic: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        if self.count > 1 && self.traffic.is_none() {
            write!(f, " ({} times)", self.count)?;
        }
        write!(f, "\n  at {}", self.place)?;
        match &self.earlier {
            Some(earlier) if self.kind == FindingKind::Uninitialized => write!(f, "\n  from {earlier}"),
            Some(earlier) => write!(f, "\n  against {earlier}"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct PlaceFields<'a> {
    kernel: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    ptx_line: u32,
    instruction: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    block: [u32; 3],
    thread: Option<[u32; 3]>,
}

#[derive(Serialize)]
struct FindingFields<'a> {
    class: Class,
    id: FindingKind,
    message: &'a str,
    count: u64,
    #[serde(flatten)]
    place: &'a Place,
    earlier: Option<&'a Place>,
    #[serde(flatten)]
    traffic: Option<Traffic>,
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Place { kernel, line, instruction, source, device, block, thread } = self;
        let (file, number, column) = match source {
            Some((file, line, column)) => (Some(file.as_str()), Some(*line), Some(*column)),
            None => (None, None, None),
        };
        let (ptx_line, block, thread) = (*line, *block, *thread);
        PlaceFields { kernel, file, line: number, column, ptx_line, instruction, device: *device, block, thread }
            .serialize(serializer)
    }
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Finding { class, kind, message, place, earlier, count, traffic } = self;
        FindingFields { class: *class, id: *kind, message, count: *count, place, earlier: earlier.as_ref(), traffic: *traffic }
            .serialize(serializer)
    }
}
