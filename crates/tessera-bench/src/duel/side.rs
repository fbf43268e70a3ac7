//! What takes part in a duel: sides, each of which can be seated again and again, as a fresh process every time.

use serde::{Deserialize, Serialize};

use crate::case::{DeviceState, Fault, Pace, Place};
use crate::environment::Accelerator;
use crate::gate::GateReport;
use crate::record::Tool;

/// A program, a kernel, or either under a configuration: what a duel compares with another.
pub trait Side {
    /// Its name in tables and messages.
    fn name(&self) -> &str;

    /// Starts a fresh process of it (or what stands for one). It may still be preparing when this returns.
    fn sit(&mut self) -> Result<Box<dyn Sitting + '_>, Lost>;
}

/// One process of a side. It keeps still unless it is asked for something, so that the other side is alone while it is timed.
pub trait Sitting {
    /// What it is and every row that it has; the same for every sitting of a side.
    fn about(&mut self) -> Result<About, Lost>;

    /// Builds some rows with their tensors. It may return before that is done; [`ready`](Sitting::ready) waits for it.
    fn prepare(&mut self, rows: &[usize]) -> Result<(), Lost>;

    /// What became of the rows that were prepared last, in their order.
    fn ready(&mut self) -> Result<Vec<Result<Readiness, Fault>>, Lost>;

    /// Takes a prepared row through the correctness gate.
    fn check(&mut self, row: usize) -> Result<Result<Checked, Fault>, Lost>;

    /// Moves the tensors of all prepared rows, each row's by a key of its own.
    fn relocate(&mut self, place: Place) -> Result<(), Lost>;

    /// Times a block of a prepared row.
    fn block(&mut self, ask: Ask) -> Result<Result<Reading, Fault>, Lost>;

    /// The digest of what one more launch of a prepared row leaves; none where equal inputs may give different bits.
    fn digest(&mut self, row: usize) -> Result<Result<Option<u64>, Fault>, Lost>;
}

/// A sitting that can be asked nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Lost {
    /// What happened to it.
    pub message: String,
    /// True where another start would end the same way: a program that is not there, a wrong command line.
    pub for_good: bool,
}

impl Lost {
    /// A sitting that ended; another one may do better.
    pub fn once(message: impl Into<String>) -> Lost {
        Lost { message: message.into(), for_good: false }
    }

    /// A side that cannot be started.
    pub fn for_good(message: impl Into<String>) -> Lost {
        Lost { message: message.into(), for_good: true }
    }
}

/// What a side is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The program.
    pub tool: Tool,
    /// The device's name.
    pub device: String,
    /// The device that kernels run on, where it is not the machine's processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Whether the rows are a list of a user's, whose order counts.
    #[serde(default)]
    pub listed: bool,
    /// Memory that the tensors of one sitting may take, where it is known.
    pub memory: Option<u64>,
    /// The rows.
    pub rows: Vec<Offer>,
}

/// A row as a side offers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Hash of the case: rows of two sides with the same one are compared.
    pub case: String,
    /// The case in words.
    pub title: String,
    /// Bytes of its tensors.
    pub bytes: u64,
}

/// A row that was built and launched a few times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Readiness {
    /// Time of one launch, roughly.
    pub estimate_ns: f64,
    /// Time of a launch that does nothing.
    pub floor_ns: f64,
    /// The clock's step.
    pub tick_ns: f64,
}

/// What the gate said, and the digest that later launches are held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The report.
    pub report: GateReport,
    /// See [`Sitting::digest`].
    pub digest: Option<u64>,
}

/// A block to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Which row.
    pub row: usize,
    /// How launches follow each other.
    pub pace: Pace,
    /// Samples.
    pub samples: usize,
    /// Launches in a sample.
    pub launches: usize,
    /// Untimed launches fill so much time before the first sample.
    pub warm_ns: f64,
}

/// A block that was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Time of one launch, for each sample.
    pub samples_ns: Vec<f64>,
    /// What the device said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceState>,
}
