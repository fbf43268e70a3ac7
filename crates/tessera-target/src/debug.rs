//! What is seen outside: assertions, prints, the order of launches.

use tessera_ir::attrs::GridAxis;
use tessera_ir::{Assertion, HiddenParam, Op, OpData, ScheduleOp, bug};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::Value as Reg;

use super::bound::Bound;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;

impl Lowering<'_> {
    /// Where a failed assertion is noted, and the number of this one.
    fn assertion(&mut self, message: &str) -> (Reg, u32) {
        let known = self.hidden.iter().position(|hidden| matches!(hidden, HiddenParam::Assertions(_)));
        let place = known.unwrap_or_else(|| {
            let record = self.b.pointer_param("failed_assertion", 16);
            self.hidden.push(HiddenParam::Assertions(Vec::new()));
            self.maps.push(record);
            self.hidden.len() - 1
        });
        let assertion = Assertion { message: message.to_string(), span: self.span };
        let number = match &mut self.hidden[place] {
            HiddenParam::Assertions(list) => {
                list.push(assertion);
                list.len() as u32
            }
            _ => bug!("assertions recorded elsewhere"),
        };
        (self.maps[place], number)
    }

    /// Lowers an operation that is seen outside.
    pub(super) fn debug(&mut self, op: Op, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        match kind {
            ScheduleOp::Assert { message } => {
                let (record, number) = self.assertion(message);
                for (register, when) in self.live(data.one(0), None)? {
                    let holds = self.regs(data.one(0))?[register];
                    let fails = self.b.not(holds);
                    let fails = self.both(when, Some(fails)).unwrap_or(fails);
                    let (wrong, right) = (self.b.new_block(&[]), self.b.new_block(&[]));
                    self.b.branch(fails, (wrong, &[]), (right, &[]));
                    self.b.switch_to(wrong);
                    let block = [GridAxis::X, GridAxis::Y, GridAxis::Z].map(|axis| self.asked_block(axis));
                    let number = self.b.u32(number);
                    self.b.st_vector("global", Ty::B32, record, &[number, block[0], block[1], block[2]]);
                    // The host reads it when the kernel has stopped.
                    self.b.fence("acq_rel.sys");
                    self.b.trap();
                    self.b.switch_to(right);
                }
            }
            ScheduleOp::PrintTko { format } => self.print(op, data, format)?,
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
            _ => astray(kind),
        }
        for &result in &data.results {
            self.bind(result, Bound::Token);
        }
        Ok(())
    }
}
