//! What a launch did: its findings, counts, and what the kernel printed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tessera_ptx::{PtxError, Target};

use crate::exec::Launch;
use crate::finding::{Class, Finding};

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

/// A finding that a suppression let pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suppressed {
    /// The rule's number in its list.
    pub rule: usize,
    /// What was found.
    pub finding: Finding,
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Instructions executed, counted for each thread.
    pub instructions: u64,
    /// What was found, in the order in which it was noticed; advice last, the most wasteful first.
    pub findings: Vec<Finding>,
    /// What suppressions let pass.
    pub suppressed: Vec<Suppressed>,
    /// Of systematic schedules, how many there were.
    pub explored: Option<Explored>,
    /// What the kernel printed, block by block.
    pub output: String,
    /// The operations of the warp that was traced: PTX line, lanes, instruction, and what it wrote.
    pub trace: Vec<String>,
}

impl Report {
    /// Takes over what the kernel of a launch has printed, block by block, and its trace.
    pub(crate) fn take_lines(&mut self, launch: &Launch<'_>) {
        let taken =
            |mutex: &Mutex<BTreeMap<u64, String>>| std::mem::take(&mut *mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.output.extend(taken(&launch.output).into_values());
        self.trace.append(&mut launch.trace.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The findings of a class, or of one that weighs more; none where nothing fails.
    pub fn failing(&self, fail_on: Option<Class>) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| fail_on.is_some_and(|least| finding.class >= least))
    }
}

/// Why something could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmuError {
    /// The PTX text is not PTX that the table knows.
    #[error("{0}")]
    Parse(#[from] PtxError),
    /// The module is for another chip.
    #[error("the module is for {target}, the device is sm_{chip} ({device})")]
    Target {
        /// What the module is for.
        target: Target,
        /// The product.
        device: &'static str,
        /// Its compute capability, ten times the major number and the minor one.
        chip: u32,
    },
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
