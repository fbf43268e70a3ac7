//! Jobs under way.

use super::run::Outcome;
use super::schedule::Stopped;
use super::{Cluster, Fault, Warp};
use crate::program::Op;
use crate::report::FindingKind;

/// A warp's asynchronous operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarpQueues {
    /// Generations of the cluster's barrier that this warp waited for.
    pub(crate) cluster_generation: u64,
}

/// A bulk copy.
#[derive(Clone, Debug)]
pub(crate) struct Job;

impl Cluster<'_> {
    pub(super) fn perhaps_complete(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
    pub(super) fn complete_one(&mut self) -> Result<bool, Stopped> {
        Ok(false)
    }
    pub(super) fn finish(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
    pub(super) fn end_warp(&mut self, _warp: &mut Warp) -> Result<(), Fault> {
        Ok(())
    }
    pub(super) fn check_in_flight(&mut self, _warp: &Warp, _pc: u32, _active: u32) -> Result<(), Fault> {
        Ok(())
    }
    pub(super) fn start(&mut self, _warp: &mut Warp, _fragment: usize, _pc: u32, active: u32, _op: &Op) -> Result<Outcome, Fault> {
        Err(Fault::new(FindingKind::Trap, active.trailing_zeros() as usize, "not executed yet"))
    }
    /// No progress for a long time.
    pub(crate) fn livelock(&self) -> Stopped {
        self.deadlock()
    }
}
