//! Assertions, printing, the order of launches.

use tessera_ir::{OpData, ScheduleOp};

use super::bound::Bound;
use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    /// Lowers an operation that is seen outside; false if it is none.
    pub(super) fn debug(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<bool> {
        match kind {
            ScheduleOp::Assert { .. } => {
                for (register, when) in self.live(data.one(0), None)? {
                    let holds = self.regs(data.one(0))?[register];
                    let fails = self.b.not(holds);
                    let fails = self.both(when, Some(fails)).unwrap_or(fails);
                    let (wrong, right) = (self.b.new_block(&[]), self.b.new_block(&[]));
                    self.b.branch(fails, (wrong, &[]), (right, &[]));
                    self.b.switch_to(wrong);
                    self.b.trap();
                    self.b.switch_to(right);
                }
            }
            ScheduleOp::GdcWaitTko {} => {
                if self.arch.has_grid_dependency_control() {
                    self.b.grid_wait();
                    self.waits_for_predecessor = true;
                }
            }
            ScheduleOp::GdcLaunchDependentsTko {} => {
                if self.arch.has_grid_dependency_control() {
                    self.b.grid_launch_dependents();
                }
            }
            _ => return Ok(false),
        }
        for &result in &data.results {
            self.bind(result, Bound::Token);
        }
        Ok(true)
    }
}
