//! Warp-level matrix instructions.
use super::{Cluster, Fault, Warp};
use crate::program::{Mma, Op};
use crate::report::FindingKind;

pub(crate) fn supported(_mma: &Mma) -> Result<(), String> {
    Ok(())
}

impl Cluster<'_> {
    pub(super) fn matrix(&mut self, _warp: &mut Warp, mask: u32, _pc: u32, _op: &Op) -> Result<(), Fault> {
        Err(Fault::new(FindingKind::Trap, mask.trailing_zeros() as usize, "not executed yet"))
    }
}
